//! Appends whose end is not known: an error, or a future that was dropped.
//!
//! rig gives an append no name. One that comes again with the same messages after it failed is the same append,
//! and goes by the same key; one that comes again after it was acknowledged is another.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use loopstore::LoopId;

/// How many are remembered; the oldest goes first.
const MOST: usize = 1_024;

/// Appends that were not acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Attempts(Mutex<VecDeque<Attempt>>);

#[derive(Debug)]
struct Attempt {
    conversation: String,
    digest: [u8; 32],
    key: String,
}

impl Attempts {
    /// Begins an append, or goes on with one that was not acknowledged.
    pub(crate) fn begin(self: &Arc<Self>, conversation: &str, digest: [u8; 32]) -> Open {
        let mut known = self.known();
        let is_same =
            |attempt: &Attempt| attempt.digest == digest && attempt.conversation == conversation;
        let again = known.iter().position(is_same);
        let attempt = again.and_then(|at| known.remove(at));
        Open {
            attempts: Arc::clone(self),
            attempt: Some(attempt.unwrap_or_else(|| Attempt {
                conversation: conversation.to_owned(),
                digest,
                key: format!("{}{}", crate::memory::KEYS, LoopId::generate()),
            })),
        }
    }

    /// Forgets those of a conversation that begins anew.
    pub(crate) fn forget(&self, conversation: &str) {
        self.known()
            .retain(|attempt| attempt.conversation != conversation);
    }

    fn known(&self) -> MutexGuard<'_, VecDeque<Attempt>> {
        // What is kept is whole also after a panic of another thread.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An append that is under way. Dropped without [`Open::acknowledged`], it may be tried again.
#[derive(Debug)]
pub(crate) struct Open {
    attempts: Arc<Attempts>,
    attempt: Option<Attempt>,
}

impl Open {
    pub(crate) fn key(&self) -> String {
        self.attempt
            .as_ref()
            .map(|attempt| attempt.key.clone())
            .unwrap_or_default()
    }

    pub(crate) fn acknowledged(mut self) {
        self.attempt = None;
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(attempt) = self.attempt.take() {
            let mut known = self.attempts.known();
            known.push_back(attempt);
            if known.len() > MOST {
                known.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_failed_goes_by_the_same_key() {
        let attempts = Arc::<Attempts>::default();
        let first = attempts.begin("c", [1; 32]);
        let key = first.key();
        // Another one of the same words, at the same time.
        let beside = attempts.begin("c", [1; 32]);
        assert_ne!(beside.key(), key);
        beside.acknowledged();
        drop(first);
        assert_ne!(attempts.begin("d", [1; 32]).key(), key);
        assert_ne!(attempts.begin("c", [2; 32]).key(), key);
        let again = attempts.begin("c", [1; 32]);
        assert_eq!(again.key(), key);
        again.acknowledged();
        assert_ne!(attempts.begin("c", [1; 32]).key(), key);
    }

    #[test]
    fn what_failed_for_ever_takes_no_room_for_ever() {
        let attempts = Arc::<Attempts>::default();
        for number in 0..2 * MOST {
            drop(attempts.begin(&number.to_string(), [0; 32]));
        }
        assert_eq!(attempts.known().len(), MOST);
        attempts.forget(&(2 * MOST - 1).to_string());
        assert_eq!(attempts.known().len(), MOST - 1);
    }
}
