//! The history of commands and other calls: runs, failures and passes.

use super::super::actions::CallAction;
use super::super::shell::{Runner, are_different_folders};
use super::super::work::{CallHistory, SourceTurn};
use super::Activity;

/// The most calls that are kept.
pub(super) const MOST_CALLS: usize = 2_000;

/// The identity of a call, by which later runs of it are recognised.
#[derive(Default)]
pub(super) struct CallKey {
    pub(super) key: String,
    /// The folder that it runs in, if that is known.
    pub(super) folder: Option<String>,
    /// True if the call was read from a document.
    pub(super) from_document: bool,
    /// The runners of the last failure that no later run has covered and passed.
    pub(super) unresolved: Vec<Runner>,
}

impl CallKey {
    /// True if `action` repeats the call of `history`. A document may have cut a long command line, and it lists all
    /// arguments of a call with an effect.
    fn is_of(&self, history: &CallHistory, action: &CallAction) -> bool {
        let is_same = || match self.key.strip_suffix('…') {
            Some(beginning) => action.key.starts_with(beginning),
            None => self.key == action.key,
        };
        if action.is_command || !action.runs {
            return is_same()
                && !are_different_folders(self.folder.as_deref(), action.folder.as_deref());
        }
        // With other arguments the call has another effect, unless the first run had none.
        let is_open = history.failure.is_some() && history.passed.is_none();
        history.description == action.description
            || is_open && (is_same() || self.matches_document(&action.key))
    }

    /// True if the call was read from a document and its arguments contain those of `key`.
    fn matches_document(&self, key: &str) -> bool {
        let Some((tool, about)) = key.split_once(' ').filter(|_| self.from_document) else {
            return false;
        };
        let arguments = self.key.strip_prefix(tool);
        arguments.is_some_and(|rest| rest.starts_with(' ') && rest.contains(about))
    }
}

impl Activity {
    /// Records the outcome of a call. A command, a call with an effect or with a result is always recorded; another
    /// call only if it failed or has failed before.
    pub(super) fn record_call(
        &mut self,
        action: CallAction,
        failure: Option<String>,
        refused: bool,
        result: Option<String>,
        place: &SourceTurn,
    ) {
        let (known, calls) = (&mut self.known, &mut self.work.calls);
        let same = known
            .iter()
            .zip(calls.iter())
            .rposition(|(known, history)| known.is_of(history, &action));
        let failed = failure.is_some();
        let (mut key, mut history) = match same {
            Some(at) => (known.remove(at), calls.remove(at)),
            None if !action.is_command && !action.runs && !failed && result.is_none() => return,
            None => {
                let history = CallHistory {
                    description: String::new(),
                    is_command: action.is_command,
                    runs: false,
                    refused: false,
                    times: 0,
                    last: place.clone(),
                    failure: None,
                    passed: None,
                    result: None,
                };
                (
                    CallKey {
                        key: action.key.clone(),
                        ..CallKey::default()
                    },
                    history,
                )
            }
        };
        key.folder = action.folder.or(key.folder);
        history.description = action.description;
        // A document does not record which failed calls are commands.
        history.is_command = action.is_command;
        history.runs = action.runs;
        history.times = history.times.saturating_add(1);
        history.last = place.clone();
        history.result = result;
        if failed {
            history.refused = refused;
        }
        key.unresolved = Vec::new();
        if let Some(line) = failure {
            history.failure = Some((place.clone(), line));
            history.passed = None;
            key.unresolved.clone_from(&action.runners);
        } else if history.failure.is_some() && history.passed.is_none() {
            history.passed = Some(place.clone());
        }
        known.push(key);
        calls.push(history);
        if !failed && !action.runners.is_empty() {
            self.resolve_narrower_failures(&action.runners, place);
        }
        self.forget_some();
    }

    /// Marks failures as passed that a wider run covers, which has passed.
    fn resolve_narrower_failures(&mut self, passed: &[Runner], place: &SourceTurn) {
        for (known, history) in self.known.iter_mut().zip(&mut self.work.calls) {
            if known.unresolved.is_empty() {
                continue;
            }
            known
                .unresolved
                .retain(|left| !passed.iter().any(|runner| runner.covers(left)));
            if known.unresolved.is_empty() {
                history.passed = Some(place.clone());
            }
        }
    }

    /// Removes calls beyond the limit, the oldest first: calls without an effect, then those without an open
    /// failure, then any.
    fn forget_some(&mut self) {
        let calls = &mut self.work.calls;
        if calls.len() <= MOST_CALLS {
            return;
        }
        let mut over = calls.len() - MOST_CALLS * 3 / 4;
        for step in 0..3 {
            let goes: Vec<bool> = calls
                .iter()
                .map(|history| {
                    let is_open = history.failure.is_some() && history.passed.is_none();
                    let goes = over > 0 && (step == 2 || !is_open && (step == 1 || !history.runs));
                    over -= usize::from(goes);
                    goes
                })
                .collect();
            let mut each = goes.iter();
            calls.retain(|_| each.next() == Some(&false));
            let mut each = goes.iter();
            self.known.retain(|_| each.next() == Some(&false));
        }
    }
}
