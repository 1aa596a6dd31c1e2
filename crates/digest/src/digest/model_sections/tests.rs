//! Answers of models in their many forms.

use super::*;

fn shown(answer: &str) -> String {
    let sections = sections_of(answer);
    let lines = sections.iter().map(|(heading, lines)| {
        let name = heading.line().trim_start_matches("## ");
        format!("{name}: {}", lines.join(" / "))
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn headings_are_taken_in_many_spellings() {
    let expected = "Task: Mend the weir.\nPlan: * [ ] docs\nDone, decided and found: It holds.";
    for answer in [
        "## Task\nMend the weir.\n\n## Plan\n- [ ] docs\n## Done, decided and found\nIt holds.",
        "**Original Task:**\nMend the weir.\n**Next Steps:**\n- [ ] docs\n\n# Done, decided and found\nIt holds.",
        "1. Task\nMend the weir.\n2. Plan:\n- [ ] docs\n3. Done, decided and found\nIt holds.",
        "It holds.\n# Original user request\nMend the weir.\n### 4. Pending work\n- [ ] docs",
        "```markdown\n**Task:** Mend the weir.\n## TODO\n- [ ] docs\n## Summary\nIt holds.\n```",
        "Task:\nMend the weir.\nPLAN\n- [ ] docs\n## done, DECIDED and found ##\nIt holds.",
    ] {
        assert_eq!(shown(answer), expected, "{answer}");
    }
}

#[test]
fn unknown_headings_are_leads_of_what_was_found() {
    let answer = "## Plan\n- a\n### Later\n- b\n## Key Technical Decisions\n- use 42\n## Weather\n\n\
        ## Current State\nhalf\n## Errors & Resolutions\nE1 -> fixed";
    assert_eq!(
        shown(answer),
        "Plan: * a / **Later:** / * b\n\
         Done, decided and found: **Key Technical Decisions:** / * use 42 / **Current State:** / half\n\
         Commands and errors: E1 -> fixed"
    );
}

#[test]
fn files_and_values_are_the_records() {
    let answer =
        "## Files and Code Sections\n- a.rs\n### b.rs\nmine\n## Exact values\n42\n## Task\nMend.";
    assert_eq!(shown(answer), "Task: Mend.");
    assert_eq!(shown("## Plan\nNone\n## Task\n- N/A"), "");
}

#[test]
fn no_line_passes_for_one_of_ours() {
    let answer = "[Working state of turns 0..9]\n## Task\n- t3: Never push.\n## Plan\nAs of t9:\n- [x] all\n\
        ```\n## Files\n- `x`: created t1\n```\n(3 older ones are left out)";
    let sections = sections_of(answer);
    assert!(!sections.contains_key(&Heading::Files));
    for line in sections.values().flatten() {
        assert!(is_model_line(line), "{line}");
    }
}

#[test]
fn the_oldest_of_what_was_done_is_cut_first() {
    let given = |heading, lines: &[&str]| ModelSection {
        heading,
        place: SourceTurn {
            loop_name: None,
            turn: 7,
        },
        is_new: true,
        lines: lines.iter().map(|line| (*line).to_owned()).collect(),
    };
    let done = ["**Early:**", "one", "**Late:**", "two", "three"];
    let all = [
        given(Heading::Task, &["Mend the weir."]),
        given(Heading::Findings, &done),
    ];
    let whole = bytes_of(&fitted(&all, usize::MAX));
    for most in 0..=whole {
        assert!(bytes_of(&fitted(&all, most)) <= most, "{most}");
    }
    let said = |most| {
        fitted(&all, most)
            .remove(&Heading::Findings)
            .unwrap_or_default()
    };
    assert_eq!(said(whole), done);
    assert_eq!(said(whole - 1), ["**Late:**", "two", "three"]);
    assert_eq!(said(whole - 19), ["**Late:**", "three"]);
    assert_eq!(
        fitted(&all, 40).keys().collect::<Vec<_>>(),
        [&Heading::Task]
    );
    let long = [given(Heading::Findings, &[&"word ".repeat(500)])];
    let cut = fitted(&long, 1_000);
    assert!((900..=1_000).contains(&bytes_of(&cut)), "{cut:?}");
}
