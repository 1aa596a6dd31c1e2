//! Appends with an unknown end: an error, or a future that was dropped.
//!
//! rig gives an append no name. An append that is repeated with the same messages after a failure is the same append,
//! under the same key; an append that is repeated after it was acknowledged is another one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use loopstore::LoopId;

/// The number of appends that are remembered; the oldest is dropped first.
const MOST: usize = 1_024;

/// Appends that were not acknowledged.
#[derive(Debug, Default)]
pub(crate) struct PendingAppends(Mutex<VecDeque<PendingAppend>>);

#[derive(Debug)]
struct PendingAppend {
    conversation: String,
    digest: [u8; 32],
    key: String,
}

impl PendingAppends {
    /// Begins an append, or continues one that was not acknowledged.
    pub(crate) fn begin(self: &Arc<Self>, conversation: &str, digest: [u8; 32]) -> AppendGuard {
        let mut known = self.known();
        let is_same =
            |append: &PendingAppend| append.digest == digest && append.conversation == conversation;
        let again = known.iter().position(is_same);
        let append = again.and_then(|at| known.remove(at));
        AppendGuard {
            pending: Arc::clone(self),
            append: Some(append.unwrap_or_else(|| PendingAppend {
                conversation: conversation.to_owned(),
                digest,
                key: format!("{}{}", crate::memory::KEYS, LoopId::generate()),
            })),
        }
    }

    /// Drops the appends of a conversation that was cleared.
    pub(crate) fn forget(&self, conversation: &str) {
        self.known()
            .retain(|append| append.conversation != conversation);
    }

    fn known(&self) -> MutexGuard<'_, VecDeque<PendingAppend>> {
        // The value is consistent also after a panic of another thread.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running append. If it is dropped without [`AppendGuard::acknowledged`], it may be repeated.
#[derive(Debug)]
pub(crate) struct AppendGuard {
    pending: Arc<PendingAppends>,
    append: Option<PendingAppend>,
}

impl AppendGuard {
    pub(crate) fn key(&self) -> String {
        self.append
            .as_ref()
            .map(|append| append.key.clone())
            .unwrap_or_default()
    }

    pub(crate) fn acknowledged(mut self) {
        self.append = None;
    }
}

impl Drop for AppendGuard {
    fn drop(&mut self) {
        if let Some(append) = self.append.take() {
            let mut known = self.pending.known();
            known.push_back(append);
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
        let pending = Arc::<PendingAppends>::default();
        let first = pending.begin("c", [1; 32]);
        let key = first.key();
        // Another one of the same words, at the same time.
        let beside = pending.begin("c", [1; 32]);
        assert_ne!(beside.key(), key);
        beside.acknowledged();
        drop(first);
        assert_ne!(pending.begin("d", [1; 32]).key(), key);
        assert_ne!(pending.begin("c", [2; 32]).key(), key);
        let again = pending.begin("c", [1; 32]);
        assert_eq!(again.key(), key);
        again.acknowledged();
        assert_ne!(pending.begin("c", [1; 32]).key(), key);
    }

    #[test]
    fn what_failed_for_ever_takes_no_room_for_ever() {
        let pending = Arc::<PendingAppends>::default();
        for number in 0..2 * MOST {
            drop(pending.begin(&number.to_string(), [0; 32]));
        }
        assert_eq!(pending.known().len(), MOST);
        pending.forget(&(2 * MOST - 1).to_string());
        assert_eq!(pending.known().len(), MOST - 1);
    }
}
