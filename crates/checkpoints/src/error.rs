//! The errors of checkpoints, by what the caller can do about them.

use loopstore::StoreError;
use loopstore::model::InvalidId;

/// The result of a call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a call on checkpoints. A write that fails stores nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A text is not an id.
    #[error(transparent)]
    Id(#[from] InvalidId),
    /// The thread's values are in the encoding of another language, which cannot read this one's.
    #[error(
        "thread `{thread}` was written by LangGraph for {theirs}, whose values {ours} cannot read; its messages \
         and its search are shared, its state is not: use another thread id, or read it with {theirs}"
    )]
    Foreign {
        /// The thread.
        thread: String,
        /// The language that wrote it.
        theirs: &'static str,
        /// The language of the caller.
        ours: &'static str,
    },
    /// The segments of the caller belong to a session that was deleted: read the thread again.
    #[error("thread `{0}` was deleted and began again since it was read")]
    Stale(String),
    /// No value is stored for these channels at the versions of the checkpoint: pass their values.
    #[error("no value is stored for {}", .0.join(", "))]
    Missing(Vec<String>),
    /// The target of a copy has checkpoints.
    #[error("thread `{0}` has checkpoints already; delete it first, or copy to another id")]
    ThreadExists(String),
    /// A message or value of a checkpoint was redacted, erased or damaged.
    #[error("{what} of thread `{thread}` cannot be read: {why}")]
    Unreadable {
        /// The unreadable part.
        what: String,
        /// The thread.
        thread: String,
        /// The reason.
        why: String,
    },
    /// A name or a value that cannot be stored.
    #[error("{0}")]
    Invalid(String),
    /// An error of the store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<loopstore::Error> for Error {
    fn from(error: loopstore::Error) -> Self {
        match error {
            loopstore::Error::Id(error) => Self::Id(error),
            loopstore::Error::Store(error) => Self::Store(error),
            loopstore::Error::Busy => Self::Store(StoreError::Busy),
            loopstore::Error::NotFound { id, .. } => Self::Store(StoreError::NoSession(id)),
            loopstore::Error::Damaged(why) => Self::Store(StoreError::Damaged(why)),
            other => Self::Store(StoreError::Other(other.into())),
        }
    }
}
