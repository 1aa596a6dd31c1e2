//! Decides whether a context states a fact, by the words that all kinds of texts use for it.

use std::collections::HashSet;

use loopstore::extend::compaction::{FileAct, PlanItem, PlanState};
use loopstore::extend::search::content_words;

/// The number of characters that identify a command, since documents truncate long ones.
const COMMAND_CHARS: usize = 60;

/// A context prepared for searching.
pub(super) struct StatedText {
    lines: Vec<StatedLine>,
    words: HashSet<String>,
}

/// A line of a context, with single spaces.
pub(super) struct StatedLine {
    text: String,
    /// The line in lower case.
    lower: String,
}

impl StatedText {
    pub(super) fn new(text: &str) -> Self {
        let lines = text.lines().map(|line| {
            let text = spaced(line);
            let lower = text.to_lowercase();
            StatedLine { text, lower }
        });
        Self {
            lines: lines.collect(),
            words: content_words(text).into_iter().collect(),
        }
    }

    pub(super) fn has_word(&self, word: &str) -> bool {
        self.words.contains(word)
    }

    /// Returns the lines that contain a path with this end.
    pub(super) fn lines_with_path(&self, end: &str) -> Vec<&StatedLine> {
        let lines = self.lines.iter();
        lines.filter(|line| has_path(&line.text, end)).collect()
    }

    /// True if a line contains an item of a plan with its state.
    pub(super) fn states_item(&self, item: &PlanItem) -> bool {
        let text = spaced(&item.text).to_lowercase();
        let words = content_words(&text);
        self.lines.iter().any(|line| match line.lower.find(&text) {
            Some(at) => nearest_state(&line.lower, at, at + text.len()) == Some(item.state),
            None => {
                let known: HashSet<String> = content_words(&line.lower).into_iter().collect();
                let all = !words.is_empty() && words.iter().all(|word| known.contains(word));
                all && states(&line.lower).any(|(_, _, state)| state == item.state)
            }
        })
    }

    /// True if a line names a command and states its outcome. An error in the line may mention other tests that passed,
    /// so words that explicitly say that the failure is open are decisive.
    pub(super) fn states_failure(&self, command: &str, passed: bool) -> bool {
        const PASSED: [&str; 8] = [
            "pass", "succe", "resolved", "fixed", "mended", "works", "green", " ok",
        ];
        const FAILED: [&str; 5] = ["fail", "error", "broken", "exit", "refus"];
        const OPEN: [&str; 3] = ["still open", "unresolved", "not yet"];
        let command = beginning(command);
        let mut lines = self
            .lines
            .iter()
            .filter(|line| line.text.contains(&command));
        lines.any(|line| {
            let rest = line.lower.replace(&command.to_lowercase(), "");
            let says = |words: &[&str]| words.iter().any(|word| rest.contains(word));
            match passed {
                true => says(&PASSED) && !says(&OPEN),
                false => says(&OPEN) || (says(&FAILED) && !says(&PASSED)),
            }
        })
    }

    /// True if a line states that a call is still running.
    pub(super) fn states_running(&self, call: &str) -> bool {
        let call = beginning(call);
        self.lines.iter().any(|line| line.text.contains(&call))
    }
}

impl StatedLine {
    /// True if a line states this change of a file.
    pub(super) fn states_change(&self, act: &FileAct) -> bool {
        let words: &[&str] = match act {
            FileAct::Created => &["creat", "new", "add", "writ", "wrote"],
            FileAct::Written => &["writ", "wrote", "replac"],
            FileAct::Edited => &["edit", "chang", "modif", "updat", "replac", "patch"],
            FileAct::Deleted => &["delet", "remov", "rm "],
            FileAct::Reverted => &["revert", "restor", "put back", "discard", "undo", "undid"],
            FileAct::MovedFrom(_) => &["mov", "renam", "mv "],
            FileAct::Read => &["read"],
        };
        words.iter().any(|word| self.lower.contains(word))
    }
}

/// Returns a text with single spaces between its words.
fn spaced(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn beginning(command: &str) -> String {
    spaced(command).chars().take(COMMAND_CHARS).collect()
}

/// True if a line contains a path with this suffix that does not continue.
fn has_path(line: &str, end: &str) -> bool {
    line.match_indices(end).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let mut after = line[at + end.len()..].chars();
        let begins = before.is_none_or(|c| !is_of_name(c) && c != '.');
        let ends = match after.next() {
            Some('.') => !after.next().is_some_and(is_of_name),
            Some(c) => !is_of_name(c) && c != '/',
            None => true,
        };
        begins && ends
    })
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-')
}

/// The words and marks for the states of items.
const STATES: [(&str, PlanState); 18] = [
    ("in progress", PlanState::InProgress),
    ("in_progress", PlanState::InProgress),
    ("in-progress", PlanState::InProgress),
    ("doing", PlanState::InProgress),
    ("[~]", PlanState::InProgress),
    ("[>]", PlanState::InProgress),
    ("pending", PlanState::Pending),
    ("not started", PlanState::Pending),
    ("to do", PlanState::Pending),
    ("todo", PlanState::Pending),
    ("[ ]", PlanState::Pending),
    ("done", PlanState::Done),
    ("completed", PlanState::Done),
    ("finished", PlanState::Done),
    ("[x]", PlanState::Done),
    ("cancelled", PlanState::Cancelled),
    ("canceled", PlanState::Cancelled),
    ("[-]", PlanState::Cancelled),
];

/// Returns the states that a line names, with their positions.
fn states(line: &str) -> impl Iterator<Item = (usize, usize, PlanState)> {
    STATES.iter().flat_map(move |(word, state)| {
        let places = line.match_indices(word);
        places.map(|(at, _)| (at, at + word.len(), *state))
    })
}

/// Returns the state nearest to a part of a line, within it or around it.
fn nearest_state(line: &str, from: usize, to: usize) -> Option<PlanState> {
    let outside = states(line).filter(|(begin, end, _)| *end <= from || *begin >= to);
    let distance = |(begin, end, _): &(usize, usize, PlanState)| match *end <= from {
        true => from - end,
        false => begin - to,
    };
    outside.min_by_key(distance).map(|(_, _, state)| state)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(text: &str, state: PlanState) -> PlanItem {
        let text = text.to_owned();
        PlanItem { text, state }
    }

    #[test]
    fn a_path_stands_in_a_line_as_a_whole() {
        for line in [
            "a.rs: edited",
            "see src/a.rs.",
            "`a.rs`",
            "(a.rs)",
            "a.rs:12",
        ] {
            assert!(has_path(line, "a.rs"), "{line}");
        }
        for line in [
            "data.rs", "a.rs.bak", "a.rs/b", "x.a.rs", "a.rsx", "my-a.rs",
        ] {
            assert!(!has_path(line, "a.rs"), "{line}");
        }
    }

    #[test]
    fn an_item_needs_its_own_state() {
        let one_line =
            StatedText::new("Plan: [x] Read the page; [ ] Write the list; Run it (in progress)");
        assert!(one_line.states_item(&item("Read the page", PlanState::Done)));
        assert!(one_line.states_item(&item("Write the list", PlanState::Pending)));
        assert!(!one_line.states_item(&item("Write the list", PlanState::Done)));
        assert!(one_line.states_item(&item("Run it", PlanState::InProgress)));
        let json =
            r#"{"content":"Read","status":"completed"},{"content":"Write","status":"pending"}"#;
        let json = StatedText::new(json);
        assert!(json.states_item(&item("Read", PlanState::Done)));
        assert!(json.states_item(&item("Write", PlanState::Pending)));
        let other_words = StatedText::new("Done: the page was read.");
        assert!(other_words.states_item(&item("Read the page", PlanState::Done)));
        assert!(
            !StatedText::new("Read the page").states_item(&item("Read the page", PlanState::Done))
        );
    }

    #[test]
    fn a_failure_needs_its_outcome() {
        let text = "`npm test` failed t5, passed t7\nstill open: `make   it`: 6 passed, 1 failed";
        let context = StatedText::new(text);
        assert!(context.states_failure("npm test", true));
        assert!(!context.states_failure("npm test", false));
        assert!(context.states_failure("make it", false));
        assert!(!context.states_failure("make it", true));
        assert!(!context.states_failure("make other", false));
        // The words of the command itself do not count.
        assert!(
            !StatedText::new("ran `test --fail-fast`").states_failure("test --fail-fast", false)
        );
    }

    #[test]
    fn a_change_is_named_in_the_line_of_the_file() {
        let context = StatedText::new("src/a.rs: created t1; edited t2\nb.rs read");
        let says = |end: &str, act: &FileAct| {
            let lines = context.lines_with_path(end);
            lines.iter().any(|line| line.states_change(act))
        };
        assert!(says("a.rs", &FileAct::Edited));
        assert!(!says("a.rs", &FileAct::Deleted));
        assert!(!says("b.rs", &FileAct::Edited));
    }
}
