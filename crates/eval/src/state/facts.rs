//! The facts at a cut, from the structure of the calls.

use std::collections::{BTreeSet, HashSet};

use loopstore::compaction::LoopMessage;
use loopstore::extend::compaction::{
    Activity, AgentWork, CallHistory, FileAct, FileWork, PlanItem, SourceTurn,
};
use loopstore::extend::search::content_words;

use super::stated::StatedText;
use super::{LostFact, StateCount, StateCounts};

/// The state of the work at a cut.
#[derive(Clone, Debug, Default)]
pub struct StateFacts {
    files: Vec<FileFact>,
    plan: Vec<PlanItem>,
    /// Commands that failed, each with true if it passed later.
    failures: Vec<(String, bool)>,
    /// Failures of other calls. A context need not state them, but what it states must be true.
    other_failures: Vec<(String, bool)>,
    /// The calls that are still running.
    running: Vec<String>,
    /// The content words of each prompt of a person, each once.
    prompts: Vec<BTreeSet<String>>,
}

/// A file that was changed.
#[derive(Clone, Debug)]
struct FileFact {
    path: String,
    /// An end of its path that no other file has.
    end: String,
    /// The last change of the file.
    act: FileAct,
}

impl StateFacts {
    /// Returns the facts of messages.
    pub fn of(messages: &[LoopMessage]) -> Self {
        let mut activity = Activity::default();
        let mut prompts = Vec::new();
        for placed in messages {
            let Some(message) = placed.message.message() else {
                continue;
            };
            let (loop_name, turn) = (None, placed.turn);
            activity.add_message(message, &SourceTurn { loop_name, turn });
            if let Some(prompt) = message.prompt_text() {
                prompts.push(content_words(&prompt).into_iter().collect());
            }
        }
        Self {
            prompts,
            ..Self::of_work(activity.into_work())
        }
    }

    fn of_work(work: AgentWork) -> Self {
        let failed = work.calls.into_iter().filter(|one| one.failure.is_some());
        let failed = failed.filter(|one| !one.description.trim().is_empty());
        let (commands, others): (Vec<_>, Vec<_>) = failed.partition(|one| one.is_command);
        let ends = |all: Vec<CallHistory>| -> Vec<(String, bool)> {
            let end = |one: CallHistory| (one.description, one.passed.is_some());
            all.into_iter().map(end).collect()
        };
        let items = work.plan.into_iter().flat_map(|plan| plan.items);
        let running = work.running.into_iter().map(|call| call.description);
        Self {
            files: changed(&work.files),
            plan: items.filter(|item| !item.text.trim().is_empty()).collect(),
            failures: ends(commands),
            other_failures: ends(others),
            running: running.filter(|what| !what.trim().is_empty()).collect(),
            prompts: Vec::new(),
        }
    }

    /// Counts the claims of a document about files, plan, failures and running calls, and those of them that are
    /// true.
    pub fn claims_in(&self, document: AgentWork) -> StateCount {
        let claimed = Self::of_work(document);
        let files = claimed.files.iter().map(|claim| {
            let mut all = self.files.iter();
            all.any(|file| file.path == claim.path && file.act == claim.act)
        });
        let items = claimed.plan.iter().map(|item| self.plan.contains(item));
        let failures = (claimed.failures.iter().chain(&claimed.other_failures))
            .map(|claim| self.failures.contains(claim) || self.other_failures.contains(claim));
        let running = claimed.running.iter().map(|claim| {
            let begins = |call: &String| call.starts_with(claim.trim_end_matches('…'));
            self.running.iter().any(begins)
        });
        let mut count = StateCount::default();
        for is_so in files.chain(items).chain(failures).chain(running) {
            count.facts += 1;
            count.stated += usize::from(is_so);
        }
        count
    }

    /// Counts the facts, and those of them that a context states.
    pub fn stated_in(&self, context: &str) -> StateCounts {
        let context = StatedText::new(context);
        let mut counts = StateCounts::default();
        for file in &self.files {
            let lines = context.lines_with_path(&file.end);
            counts.add_fact("files", !lines.is_empty());
            let is_stated = lines.iter().any(|line| line.states_change(&file.act));
            counts.add_fact("changes", is_stated);
        }
        for item in &self.plan {
            counts.add_fact("plan", context.states_item(item));
        }
        for (command, passed) in &self.failures {
            counts.add_fact("failures", context.states_failure(command, *passed));
        }
        for call in &self.running {
            counts.add_fact("running", context.states_running(call));
        }
        for word in self.prompts.iter().flatten() {
            counts.add_fact("prompts", context.has_word(word));
        }
        counts
    }
}

impl StateFacts {
    /// Returns the facts that a context does not state, except words of prompts.
    pub fn missing_in(&self, context: &str) -> Vec<LostFact> {
        let context = StatedText::new(context);
        let lost = |kind: &str, what: &str| LostFact {
            kind: kind.to_owned(),
            what: what.to_owned(),
        };
        let files = self.files.iter();
        let files = files.filter(|file| context.lines_with_path(&file.end).is_empty());
        let items = self.plan.iter().filter(|item| !context.states_item(item));
        let failed = self.failures.iter();
        let failed = failed.filter(|(what, passed)| !context.states_failure(what, *passed));
        let running = self
            .running
            .iter()
            .filter(|call| !context.states_running(call));
        files
            .map(|file| lost("files", &file.path))
            .chain(items.map(|item| lost("plan", &item.text)))
            .chain(failed.map(|(what, _)| lost("failures", what)))
            .chain(running.map(|call| lost("running", call)))
            .collect()
    }
}

/// Returns the changed files, each with its last change.
fn changed(files: &[FileWork]) -> Vec<FileFact> {
    let paths: HashSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let change = |file: &FileWork| {
        let acts = file.events.iter().rev().map(|event| &event.act);
        let act = acts.into_iter().find(|act| **act != FileAct::Read)?;
        Some(FileFact {
            path: file.path.clone(),
            end: unambiguous_end(&file.path, &paths),
            act: act.clone(),
        })
    };
    files.iter().filter_map(change).collect()
}

/// Returns the shortest suffix of a path, in whole parts, that no other path has. A single word without a dot (`test`)
/// could be any word, so its folder is included.
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
