//! A flag that cancels work from another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that cancels requests from another thread; clones share it.
///
/// ```
/// use loopstore_model::compaction::CancelFlag;
///
/// let flag = CancelFlag::new();
/// let of_another_thread = flag.clone();
/// flag.cancel();
/// assert!(of_another_thread.is_cancelled());
/// ```
#[derive(Clone, Debug, Default)]
pub struct CancelFlag {
    own: Arc<AtomicBool>,
    /// The flags that set this one too.
    others: Vec<Arc<AtomicBool>>,
}

impl CancelFlag {
    /// Returns a flag that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the flag, which cannot be cleared: every request with it is cancelled.
    pub fn cancel(&self) {
        self.own.store(true, Ordering::Relaxed);
    }

    /// True if the flag is set.
    pub fn is_cancelled(&self) -> bool {
        let is_set = |flag: &Arc<AtomicBool>| flag.load(Ordering::Relaxed);
        is_set(&self.own) || self.others.iter().any(is_set)
    }

    /// Returns a flag that is also set when `other` is.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        let mut both = self.clone();
        both.others.push(Arc::clone(&other.own));
        both.others.extend_from_slice(&other.others);
        both
    }
}
