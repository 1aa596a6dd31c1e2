//! The sections of a document that a model wrote: read from its answer, and cut to their share of a page.
//!
//! Any answer is accepted. Headings are recognised in many spellings; text before the first heading or below an
//! unknown one belongs to `Done, decided and found`. The files and exact values that a model lists are left out,
//! since the record has them exactly.
//!
//! A line of a model is changed so that it never begins like a line of the record, `- t3: …`. So [`super::read`]
//! distinguishes both, and a model cannot write a line that is later read as a person's words.

use std::collections::BTreeMap;

use super::lines::{Heading, OPENING, PLAN_HEAD};
use crate::activity::SourceTurn;

/// The lines that a model wrote for a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ModelSection {
    pub(super) heading: Heading,
    /// The last turn that the model had read.
    pub(super) place: SourceTurn,
    /// True if the model has just written it, from the whole record.
    pub(super) is_new: bool,
    pub(super) lines: Vec<String>,
}

/// Words by which a heading is assigned to a section; the first row of which the heading contains a word wins. Any
/// other heading of `Done, decided and found` is kept as a lead, since its name adds something.
const WORDS: [(&[&str], Option<Heading>); 7] = [
    (
        &["done, decided and found", "done, decided, found"],
        Some(Heading::Findings),
    ),
    (
        &["exact value", "identifiers", "key values"],
        Some(Heading::Values),
    ),
    (&["file", "artifact"], Some(Heading::Files)),
    (&["error", "command", "failure"], Some(Heading::Commands)),
    (
        &[
            "plan",
            "to-do",
            "todo",
            "to do",
            "next step",
            "pending",
            "remaining",
            "open item",
            "unfinished",
        ],
        Some(Heading::Plan),
    ),
    (
        &["instruction", "constraint", "preference", "standing"],
        Some(Heading::Instructions),
    ),
    (
        &[
            "task",
            "request",
            "goal",
            "objective",
            "user message",
            "original prompt",
        ],
        Some(Heading::Task),
    ),
];

/// Words of headings of finished work, whatever else the heading names.
const FINISHED: [&str; 6] = [
    "completed",
    "done",
    "finished",
    "progress",
    "status",
    "state",
];

/// Headings that are recognised without any mark of a heading.
const PLAIN: [&str; 14] = [
    "commands and errors",
    "done, decided and found",
    "errors",
    "exact values",
    "files",
    "instructions",
    "next steps",
    "original task",
    "pending work",
    "plan",
    "standing instructions",
    "task",
    "to-do",
    "todo",
];

/// The most words of a heading; a longer line is a sentence.
const MOST_WORDS: usize = 7;

/// Lines of an empty section.
const NOTHING: [&str; 6] = ["none", "n/a", "-", "nothing", "(none)", "none."];

/// Returns the lines of each section of an answer that is not empty.
pub(super) fn sections_of(answer: &str) -> BTreeMap<Heading, Vec<String>> {
    let mut reader = SectionReader::default();
    for line in unfenced(answer.trim()).lines() {
        reader.line(line.trim_end());
    }
    reader.set_lead(None);
    let mut sections = reader.sections;
    sections.retain(|_, lines| {
        let says = |line: &String| {
            let text = line.trim_start_matches(['*', ' ']).trim();
            !text.is_empty() && !NOTHING.contains(&&*text.to_lowercase())
        };
        lines.iter().any(says)
    });
    sections
}

/// Removes a code fence around the whole answer.
fn unfenced(text: &str) -> &str {
    let inner = text.strip_prefix("```").and_then(|t| t.strip_suffix("```"));
    match inner.and_then(|inner| inner.split_once('\n')) {
        Some((_, inner)) if !inner.contains("```") => inner,
        _ => text,
    }
}

struct SectionReader {
    sections: BTreeMap<Heading, Vec<String>>,
    heading: Heading,
    /// The level of the last heading of a known section.
    level: usize,
    /// A heading without any line below it so far.
    lead: Option<String>,
    in_fence: bool,
}

impl Default for SectionReader {
    fn default() -> Self {
        Self {
            sections: BTreeMap::new(),
            heading: Heading::Findings,
            level: 0,
            lead: None,
            in_fence: false,
        }
    }
}

impl SectionReader {
    fn line(&mut self, line: &str) {
        let text = line.trim();
        if text.starts_with("```") || text.starts_with("~~~") {
            self.in_fence = !self.in_fence;
        } else if self.in_fence {
            self.say(&format!("    {line}"));
        } else if let Some(found) = heading_of(text) {
            self.head(found);
        } else if !is_rule(text) && !text.starts_with(OPENING) {
            self.say(line);
        }
    }

    fn head(&mut self, found: FoundHeading<'_>) {
        match found.heading {
            Some(heading) => {
                (self.heading, self.level) = (heading, found.level);
                self.set_lead(None);
                // Another name of this section is kept as a lead.
                if heading == Heading::Findings
                    && section_named(found.name) != Some(Heading::Findings)
                {
                    self.set_lead(Some(found.name));
                }
            }
            None => {
                // A deeper heading is a part of the section above.
                if self.level == 0 || found.level <= self.level {
                    (self.heading, self.level) = (Heading::Findings, 0);
                }
                let is_title = found.name.to_lowercase().contains("summary");
                self.set_lead(Some(found.name).filter(|_| !is_title));
            }
        }
        self.say(found.rest);
    }

    fn set_lead(&mut self, lead: Option<&str>) {
        self.lead = lead.map(|lead| format!("**{}:**", lead.trim_end_matches(':')));
    }

    fn say(&mut self, line: &str) {
        if line.trim().is_empty() || matches!(self.heading, Heading::Files | Heading::Values) {
            return;
        }
        let lines = self.sections.entry(self.heading).or_default();
        lines.extend(self.lead.take());
        lines.push(escape_model_line(line));
    }
}

struct FoundHeading<'a> {
    /// The level, 1 to 6; 7 for a name in bold or without a mark.
    level: usize,
    name: &'a str,
    heading: Option<Heading>,
    /// The rest of the line.
    rest: &'a str,
}

/// Reads a heading: `## Name`, `**Name:**` with or without words after it, `1. Name`, `Name:`.
fn heading_of(line: &str) -> Option<FoundHeading<'_>> {
    let level = line.bytes().take_while(|byte| *byte == b'#').count();
    if (1..=6).contains(&level) && line[level..].starts_with([' ', '*', '\t']) {
        let name = line[level..].trim_matches(['#', '*', '_', ' ', '\t']);
        let known = section_of(name);
        if let (None, Some((first, rest))) = (known, name.split_once(": ")) {
            let first = first.trim_matches(['*', ' ']);
            if let Some(heading) = section_of(first) {
                return Some(FoundHeading {
                    level,
                    name: unnumbered(first),
                    heading: Some(heading),
                    rest: rest.trim_matches(['*', ' ']),
                });
            }
        }
        return Some(FoundHeading {
            level,
            name: unnumbered(name.trim_end_matches(':')),
            heading: known,
            rest: "",
        });
    }
    let bold = unnumbered(line)
        .strip_prefix("**")
        .and_then(|rest| rest.split_once("**"));
    if let Some((name, rest)) = bold {
        let ends = name.ends_with(':') || rest.starts_with(':');
        let name = name.trim_matches([':', ' ']);
        let rest = rest.trim_start_matches(':').trim();
        let is_heading = (ends && rest.is_empty()) || is_plain(name);
        let heading = section_of(name).filter(|_| is_heading && (ends || rest.is_empty()))?;
        return Some(FoundHeading {
            level: 7,
            name,
            heading: Some(heading),
            rest,
        });
    }
    let name = unnumbered(line).trim_end_matches(':');
    Some(FoundHeading {
        level: 7,
        name,
        heading: Some(section_of(name).filter(|_| is_plain(name))?),
        rest: "",
    })
}

fn is_plain(name: &str) -> bool {
    PLAIN.contains(&&*name.to_lowercase())
}

/// Returns the section of a heading, if it has at most [`MOST_WORDS`] words and one of a table.
fn section_of(name: &str) -> Option<Heading> {
    let name = unnumbered(name).to_lowercase();
    if name.split_whitespace().count() > MOST_WORDS {
        return None;
    }
    let own = section_named(&name);
    let is_finished = || FINISHED.iter().any(|word| name.contains(word));
    own.or_else(|| {
        let found = WORDS
            .iter()
            .find(|(words, _)| words.iter().any(|word| name.contains(word)));
        match found.and_then(|found| found.1) {
            Some(Heading::Task | Heading::Instructions) | None if is_finished() => {
                Some(Heading::Findings)
            }
            found => found,
        }
    })
}

/// Returns the section with exactly this name.
fn section_named(name: &str) -> Option<Heading> {
    let is_named = |heading: &Heading| {
        heading
            .line()
            .trim_start_matches("## ")
            .eq_ignore_ascii_case(name)
    };
    let named = Heading::ALL.into_iter().find(is_named);
    named.filter(|heading| *heading != Heading::EarlierSummary)
}

/// Removes the number before a heading: `1. Task`, `2) Plan`.
fn unnumbered(text: &str) -> &str {
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    match rest.strip_prefix(['.', ')']) {
        Some(rest) if rest.len() < text.len() - 1 => rest.trim_start(),
        _ => text,
    }
}

fn is_rule(text: &str) -> bool {
    text.len() >= 3 && text.chars().all(|c| matches!(c, '-' | '=' | '*' | '_'))
}

/// Returns a model's line so that it cannot be read as a line of the record.
fn escape_model_line(line: &str) -> String {
    if let Some(item) = line.strip_prefix("- ") {
        return format!("* {item}");
    }
    let is_like_ours = line.starts_with(['#', '-', '(']) || line.starts_with(PLAN_HEAD);
    match is_like_ours {
        true => format!(" {line}"),
        false => line.to_owned(),
    }
}

/// True if a line of a document was written by a model.
pub(super) fn is_model_line(line: &str) -> bool {
    !line.trim().is_empty() && !line.starts_with(['#', '-', '(']) && !line.starts_with(PLAN_HEAD)
}

/// The order in which sections are cut.
const CUT: [Heading; 5] = [
    Heading::Findings,
    Heading::Commands,
    Heading::Plan,
    Heading::Instructions,
    Heading::Task,
];

/// A longer line is cut at its beginning instead of left out, in bytes.
const LONG_LINE: usize = 400;

/// Returns the lines of each section, cut to `most` bytes with their headings. The oldest lines of the sections in
/// [`CUT`] are left out first.
pub(super) fn fitted(given: &[ModelSection], most: usize) -> BTreeMap<Heading, Vec<String>> {
    let mut sections: BTreeMap<Heading, Vec<String>> = BTreeMap::new();
    for given in given {
        let lines = sections.entry(given.heading).or_default();
        lines.extend(given.lines.iter().cloned());
    }
    let mut excess = bytes_of(&sections).saturating_sub(most);
    for heading in CUT {
        if excess == 0 {
            break;
        }
        if let Some(lines) = sections.get_mut(&heading) {
            excess = excess.saturating_sub(cut_oldest(lines, excess));
            if lines.is_empty() {
                sections.remove(&heading);
                excess = bytes_of(&sections).saturating_sub(most);
            }
        }
    }
    sections
}

/// Returns the bytes of sections with their headings.
pub(super) fn bytes_of(sections: &BTreeMap<Heading, Vec<String>>) -> usize {
    let bytes = |(heading, lines): (&Heading, &Vec<String>)| {
        heading.line().len() + 2 + lines.iter().map(|line| line.len() + 1).sum::<usize>()
    };
    sections.iter().map(bytes).sum()
}

fn is_lead(line: &str) -> bool {
    line.starts_with("**") && line.ends_with(":**")
}

/// Removes at least `excess` bytes from the beginning of some lines; returns the number. The lead of the first kept
/// line is kept.
fn cut_oldest(lines: &mut Vec<String>, excess: usize) -> usize {
    let (mut taken, mut lead, mut kept) = (0, None, Vec::new());
    for line in lines.drain(..) {
        let bytes = line.len() + 1;
        if taken >= excess {
            // A lead that another lead follows has no line any more.
            kept.extend(lead.take().filter(|_| !is_lead(&line)));
            kept.push(line);
        } else if is_lead(&line) {
            taken += lead.replace(line).map_or(0, |lead: String| lead.len() + 1);
        } else if bytes > LONG_LINE && bytes > excess - taken + LONG_LINE / 2 {
            kept.extend(lead.take());
            let from = line.ceil_char_boundary(excess - taken + "… ".len());
            taken = excess;
            kept.push(format!("… {}", line[from..].trim_start()));
        } else {
            taken += bytes;
        }
    }
    taken += lead.map_or(0, |lead| lead.len() + 1);
    *lines = kept;
    taken
}

#[cfg(test)]
mod tests;
