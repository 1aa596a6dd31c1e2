//! The errors of the memory, by what the caller can do about them.

use rig_core::memory::MemoryError;

/// An error of a call on a conversation. A write that fails stores nothing, except with [`Error::Stopped`] and the
/// exceptions of [`loopstore::Error`].
///
/// rig returns the error as a [`MemoryError`], from which it can be downcast:
///
/// ```
/// use loopstore_rig::Error;
/// use rig_core::memory::MemoryError;
///
/// fn is_busy(error: &MemoryError) -> bool {
///     let MemoryError::Backend(source) = error else { return false };
///     matches!(source.downcast_ref(), Some(Error::Store(loopstore::Error::Busy)))
/// }
/// # assert!(is_busy(&Error::Store(loopstore::Error::Busy).into()));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of the store.
    #[error(transparent)]
    Store(#[from] loopstore::Error),
    /// A message has JSON that nests too deeply to be read again.
    #[error(
        "a message nests {depth} levels deep, and {most} can be kept; flatten its JSON, or append it as text"
    )]
    TooDeep {
        /// The depth of the message.
        depth: usize,
        /// The largest depth.
        most: usize,
    },
    /// The messages that rig passes for compaction are not in the conversation.
    #[error(
        "the messages to be compacted are not in conversation `{conversation}` of this store; under rig's \
         CompactingMemory use both parts of one `LoopstoreMemory::compacting()`"
    )]
    NotInRecord {
        /// The conversation.
        conversation: String,
    },
    /// The compaction failed, or a hook vetoed it.
    #[error("conversation `{conversation}` was not compacted: {reason}")]
    NotCompacted {
        /// The conversation.
        conversation: String,
        /// The reason.
        reason: String,
    },
    /// A call did not finish. Its write may have been stored as a whole. Append the same messages again: nothing is
    /// appended twice.
    #[error(
        "a call on the store did not come to its end: it panicked, or the runtime was shut down; append the same \
         again, nothing is appended twice"
    )]
    Stopped,
    /// No thread could be started. The call had no effect.
    #[error(
        "no thread could be started for a call on the store: {0}; try again when the machine has room"
    )]
    NoThread(std::io::Error),
}

impl From<loopstore::InvalidId> for Error {
    fn from(error: loopstore::InvalidId) -> Self {
        Self::Store(error.into())
    }
}

impl From<loopstore::StoreError> for Error {
    fn from(error: loopstore::StoreError) -> Self {
        Self::Store(error.into())
    }
}

/// An error of a context that does not fit the policy's window is rig's `Policy`, any other error its `Backend`.
impl From<Error> for MemoryError {
    fn from(error: Error) -> Self {
        match error {
            Error::NotCompacted { .. }
            | Error::Store(
                loopstore::Error::BudgetTooSmall { .. }
                | loopstore::Error::NeedsCompaction { .. }
                | loopstore::Error::NeedsFewerBytes { .. },
            ) => Self::Policy(error.to_string()),
            error => Self::backend(error),
        }
    }
}
