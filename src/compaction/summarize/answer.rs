//! From a model's answer to the text of a block: its sections are checked, and the task is put
//! into its place word for word, whatever the model made of it.

use super::prompt::{SECTIONS, TASK_SECTION, shorten};

/// Characters of a task that must find room.
const MIN_TASK: usize = 200;

/// Returns the text of a block, of at most `most` tokens as `count` counts them.
///
/// # Errors
/// Why the answer cannot stand for the turns, for the audit row.
pub(super) fn finish(
    answer: &str,
    task: &str,
    marker: Option<&str>,
    most: u64,
    count: &dyn Fn(&str) -> u64,
) -> Result<String, String> {
    let answer = unfenced(answer.trim());
    if answer.is_empty() {
        return Err("the answer is empty".into());
    }
    check_sections(answer)?;
    let mut chars = task.chars().count();
    loop {
        let text = marked(&with_task(answer, &shorten(task, chars, "…")), marker);
        let tokens = count(&text);
        if tokens <= most {
            return Ok(text);
        }
        if chars <= MIN_TASK {
            return Err(format!(
                "the answer has {tokens} tokens; {most} are allowed"
            ));
        }
        chars = (chars * 3 / 4).max(MIN_TASK);
    }
}

/// Takes away a code fence around the whole answer.
fn unfenced(text: &str) -> &str {
    let inner = text.strip_prefix("```").and_then(|t| t.strip_suffix("```"));
    match inner.and_then(|inner| inner.split_once('\n')) {
        Some((_, inner)) if !inner.contains("```") => inner.trim(),
        _ => text,
    }
}

fn check_sections(text: &str) -> Result<(), String> {
    let found: Vec<&str> = text.lines().filter_map(section_of).collect();
    match SECTIONS.iter().find(|section| !found.contains(section)) {
        None => Ok(()),
        Some(section) => Err(format!("the answer has no section \"{section}\"")),
    }
}

/// Returns the section that a line is the heading of: `### Name`, at any level, or `**Name**`.
fn section_of(line: &str) -> Option<&'static str> {
    let line = line.trim();
    if !line.starts_with(['#', '*']) {
        return None;
    }
    let name = line.trim_matches(['#', '*', ':', ' ']);
    let sections = SECTIONS.into_iter();
    let mut sections = sections.chain(["Errors & Resolutions", "Errors and Resolutions"]);
    sections.find(|section| section.eq_ignore_ascii_case(name))
}

/// Puts the task between its heading and the next one.
fn with_task(answer: &str, task: &str) -> String {
    let mut lines = Vec::new();
    let mut in_task = false;
    for line in answer.lines() {
        match section_of(line) {
            Some(TASK_SECTION) if !lines.contains(&task) => {
                lines.extend([line, task, ""]);
                in_task = true;
            }
            Some(_) => in_task = false,
            None => {}
        }
        if !in_task {
            lines.push(line);
        }
    }
    lines.join("\n")
}

fn marked(text: &str, marker: Option<&str>) -> String {
    match marker.map(str::trim).filter(|marker| !marker.is_empty()) {
        Some(marker) if !text.starts_with(marker) => format!("{marker}\n{text}"),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = "## Session Summary (Compaction Round 1)\n\n### Original Task\nsome words\n\
        of mine\n\n### Completed Work\n| a | b | c |\n\n### Key Technical Decisions\n- one\n\n\
        ### Current State\n- Working on: it\n\n### Pending Work\n- [ ] rest";

    fn bytes(text: &str) -> u64 {
        text.len() as u64
    }

    #[test]
    fn the_task_stands_word_for_word() {
        let task = "Fix `a.rs`:\n### Notes\nkeep 42";
        let text = finish(ANSWER, task, None, 10_000, &bytes).unwrap();
        assert!(
            text.contains("### Original Task\nFix `a.rs`:\n### Notes\nkeep 42\n\n### Completed")
        );
        assert!(!text.contains("some words"), "{text}");
        assert!(text.ends_with("- [ ] rest"));
    }

    #[test]
    fn other_headings_of_the_sections_are_taken_too() {
        let bold = ANSWER.replace("### Pending Work", "**Pending work:**");
        let fenced = format!("```markdown\n{bold}\n```");
        let text = finish(&fenced, "t", Some("[Summary]"), 10_000, &bytes).unwrap();
        assert!(text.starts_with("[Summary]\n## Session Summary"), "{text}");
        assert!(text.ends_with("- [ ] rest"));
    }

    #[test]
    fn a_marker_is_not_repeated() {
        let text = finish(ANSWER, "t", Some("## Session Summary"), 10_000, &bytes).unwrap();
        assert_eq!(text.matches("## Session Summary").count(), 1);
    }

    #[test]
    fn what_is_no_summary_is_refused_with_its_reason() {
        let refused = |answer| finish(answer, "t", None, 10_000, &bytes).unwrap_err();
        assert_eq!(refused(" \n"), "the answer is empty");
        assert_eq!(
            refused("I cannot help with that."),
            "the answer has no section \"Original Task\""
        );
        let long = finish(ANSWER, "t", None, 10, &bytes).unwrap_err();
        assert!(long.ends_with("10 are allowed"), "{long}");
    }

    #[test]
    fn a_task_too_long_for_the_budget_is_shortened() {
        let task = "日本".repeat(2_000);
        let text = finish(ANSWER, &task, None, 3_000, &bytes).unwrap();
        assert!(text.len() <= 3_000 && text.contains("日本日本") && text.contains('…'));
    }
}
