//! Commands and calls that failed and passed.

use super::super::actions::Action;
use super::super::shell::{Runner, are_apart};
use super::super::work::{Attempt, Place};
use super::Activity;

/// Attempts that are held at most.
pub(super) const MOST_ATTEMPTS: usize = 2_000;

/// What an attempt is known by.
#[derive(Default)]
pub(super) struct AttemptKey {
    pub(super) key: String,
    /// Where it is done, if that is known.
    pub(super) folder: Option<String>,
    /// Whether a document tells of it.
    pub(super) is_told: bool,
    /// What of a failure nothing has stood for yet.
    pub(super) left: Vec<Runner>,
}

impl AttemptKey {
    /// Whether a call does the same again as `attempt`. A document may have cut a long line, and of a call that did
    /// something it tells all arguments.
    fn is_of(&self, attempt: &Attempt, action: &Action) -> bool {
        let is_same = || match self.key.strip_suffix('…') {
            Some(beginning) => action.key.starts_with(beginning),
            None => self.key == action.key,
        };
        if action.is_command || !action.runs {
            return is_same() && !are_apart(self.folder.as_deref(), action.folder.as_deref());
        }
        // With other arguments it did something else, unless the first try did nothing.
        let is_open = attempt.failure.is_some() && attempt.passed.is_none();
        attempt.what == action.what || is_open && (is_same() || self.tells_of(&action.key))
    }

    /// Whether it was read from a document that tells of a call with this key.
    fn tells_of(&self, key: &str) -> bool {
        let Some((tool, about)) = key.split_once(' ').filter(|_| self.is_told) else {
            return false;
        };
        let arguments = self.key.strip_prefix(tool);
        arguments.is_some_and(|rest| rest.starts_with(' ') && rest.contains(about))
    }
}

impl Activity {
    /// Notes how a call went: a command always, what did something and what found files; another call if it failed
    /// once.
    pub(super) fn attempt(
        &mut self,
        action: Action,
        failure: Option<String>,
        refused: bool,
        result: Option<String>,
        place: &Place,
    ) {
        let (known, attempts) = (&mut self.known, &mut self.work.attempts);
        let same = known
            .iter()
            .zip(attempts.iter())
            .rposition(|(known, attempt)| known.is_of(attempt, &action));
        let failed = failure.is_some();
        let (mut key, mut attempt) = match same {
            Some(at) => (known.remove(at), attempts.remove(at)),
            None if !action.is_command && !action.runs && !failed && result.is_none() => return,
            None => {
                let attempt = Attempt {
                    what: String::new(),
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
                    AttemptKey {
                        key: action.key.clone(),
                        ..AttemptKey::default()
                    },
                    attempt,
                )
            }
        };
        key.folder = action.folder.or(key.folder);
        attempt.what = action.what;
        // A document does not say which calls are commands.
        attempt.is_command = action.is_command;
        attempt.runs = action.runs;
        attempt.times = attempt.times.saturating_add(1);
        attempt.last = place.clone();
        attempt.result = result;
        if failed {
            attempt.refused = refused;
        }
        key.left = Vec::new();
        if let Some(line) = failure {
            attempt.failure = Some((place.clone(), line));
            attempt.passed = None;
            key.left.clone_from(&action.runners);
        } else if attempt.failure.is_some() && attempt.passed.is_none() {
            attempt.passed = Some(place.clone());
        }
        known.push(key);
        attempts.push(attempt);
        if !failed && !action.runners.is_empty() {
            self.stood_for(&action.runners, place);
        }
        self.forget_some();
    }

    /// A wider run that passes stands for a narrower one that failed.
    fn stood_for(&mut self, passed: &[Runner], place: &Place) {
        for (known, attempt) in self.known.iter_mut().zip(&mut self.work.attempts) {
            if known.left.is_empty() {
                continue;
            }
            known
                .left
                .retain(|left| !passed.iter().any(|runner| runner.covers(left)));
            if known.left.is_empty() {
                attempt.passed = Some(place.clone());
            }
        }
    }

    /// Of too many attempts the oldest looks go first, then what passed.
    fn forget_some(&mut self) {
        let attempts = &mut self.work.attempts;
        if attempts.len() <= MOST_ATTEMPTS {
            return;
        }
        let mut over = attempts.len() - MOST_ATTEMPTS * 3 / 4;
        for step in 0..3 {
            let goes: Vec<bool> = attempts
                .iter()
                .map(|attempt| {
                    let is_open = attempt.failure.is_some() && attempt.passed.is_none();
                    let goes = over > 0 && (step == 2 || !is_open && (step == 1 || !attempt.runs));
                    over -= usize::from(goes);
                    goes
                })
                .collect();
            let mut each = goes.iter();
            attempts.retain(|_| each.next() == Some(&false));
            let mut each = goes.iter();
            self.known.retain(|_| each.next() == Some(&false));
        }
    }
}
