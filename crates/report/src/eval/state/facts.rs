//! What is so before a cut, from the structure of the calls.

use std::collections::{BTreeSet, HashSet};

use loopstore::compaction::Placed;
use loopstore::extend::compaction::{Activity, FileAct, FileWork, Place, PlanItem, Work};
use loopstore::extend::search::content_words;

use super::StateCounts;
use super::stated::Context;

/// The state of the work at a cut.
#[derive(Clone, Debug, Default)]
pub struct StateFacts {
    /// Each changed file by an end of its path that no other file has, and what was done to it last.
    files: Vec<(String, FileAct)>,
    plan: Vec<PlanItem>,
    /// Commands that failed, and whether they passed later.
    failures: Vec<(String, bool)>,
    /// What is running.
    running: Vec<String>,
    /// The content words of each prompt of a person, each once.
    prompts: Vec<BTreeSet<String>>,
}

impl StateFacts {
    /// Reads what messages did.
    pub fn of(messages: &[Placed]) -> Self {
        let mut activity = Activity::default();
        let mut prompts = Vec::new();
        for placed in messages {
            let Some(message) = placed.message.message() else {
                continue;
            };
            let (of, turn) = (None, placed.turn);
            activity.message(message, &Place { of, turn });
            if let Some(prompt) = message.prompt_text() {
                prompts.push(content_words(&prompt).into_iter().collect());
            }
        }
        Self {
            prompts,
            ..Self::of_work(activity.into_work())
        }
    }

    fn of_work(work: Work) -> Self {
        let failed = work.attempts.into_iter().filter(|one| one.is_command);
        let failed = failed.filter(|one| one.failure.is_some() && !one.what.trim().is_empty());
        let items = work.plan.into_iter().flat_map(|plan| plan.items);
        let running = work.open.into_iter().map(|call| call.what);
        Self {
            files: changed(&work.files),
            plan: items.filter(|item| !item.text.trim().is_empty()).collect(),
            failures: failed.map(|one| (one.what, one.passed.is_some())).collect(),
            running: running.filter(|what| !what.trim().is_empty()).collect(),
            prompts: Vec::new(),
        }
    }

    /// Counts what a context states of this.
    pub fn stated_in(&self, context: &str) -> StateCounts {
        let context = Context::new(context);
        let mut counts = StateCounts::default();
        for (end, act) in &self.files {
            let lines = context.lines_with_path(end);
            counts.add_fact("files", !lines.is_empty());
            let is_stated = lines.iter().any(|line| line.says_change(act));
            counts.add_fact("changes", is_stated);
        }
        for item in &self.plan {
            counts.add_fact("plan", context.says_item(item));
        }
        for (command, passed) in &self.failures {
            counts.add_fact("failures", context.says_failure(command, *passed));
        }
        for call in &self.running {
            counts.add_fact("running", context.says_running(call));
        }
        for word in self.prompts.iter().flatten() {
            counts.add_fact("prompts", context.has_word(word));
        }
        counts
    }
}

/// Returns the files that were changed, with the last thing done to each.
fn changed(files: &[FileWork]) -> Vec<(String, FileAct)> {
    let paths: HashSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let change = |file: &FileWork| {
        let acts = file.events.iter().rev().map(|event| &event.act);
        let act = acts.into_iter().find(|act| **act != FileAct::Read)?;
        Some((unambiguous_end(&file.path, &paths), act.clone()))
    };
    files.iter().filter_map(change).collect()
}

/// Returns the shortest end of a path, in whole parts, that no other path has. A single word without a dot
/// (`test`) could be any word: its folder belongs to it.
fn unambiguous_end(path: &str, all: &HashSet<&str>) -> String {
    let starts = path.rmatch_indices('/').map(|(at, _)| at + 1);
    for start in starts {
        let end = &path[start..];
        let is_end_of = |other: &&&str| {
            let rest = other.strip_suffix(end);
            rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
        };
        let is_word = !end.contains(['.', '/']);
        if !end.is_empty() && !is_word && all.iter().filter(is_end_of).count() == 1 {
            return end.to_owned();
        }
    }
    path.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_end_that_only_one_path_has_is_taken() {
        let paths = [
            "/r/src/a.rs",
            "/r/src/b.rs",
            "/r/tests/b.rs",
            "/r/bin/test",
            "c.rs",
        ];
        let all: HashSet<&str> = paths.into_iter().collect();
        let ends = paths.map(|path| unambiguous_end(path, &all));
        assert_eq!(ends, ["a.rs", "src/b.rs", "tests/b.rs", "bin/test", "c.rs"]);
    }
}
