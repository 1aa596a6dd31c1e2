//! The errors of a store, one variant for each reaction of a caller.

use crate::compact::{BudgetTooSmall, BudgetUnit};
use crate::context::BuildError;
use crate::model::InvalidId;
use crate::provider::ProviderError;
use crate::search::SearchError;
use crate::store::{StoreError, key_taken};

/// The result of a call on a store or session.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a call on a store or session. A write that fails is not kept, not even a part of it; only after
/// [`StoreError::Unconfirmed`] may the write be stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A text is not a valid id.
    #[error(transparent)]
    Id(#[from] InvalidId),
    /// Another writer held the database longer than the timeout. A retry may succeed.
    #[error("the database is busy: another writer held it longer than the timeout; try again")]
    Busy,
    /// There is no such session, loop, run, turn or call, or no compaction to undo or redo on the chain of a
    /// loop.
    #[error("no {what} `{id}`")]
    NotFound {
        /// The kind of the missing thing.
        what: &'static str,
        /// Its id.
        id: String,
    },
    /// Another program drives the loop under a lease.
    #[error("loop `{loop_id}` is driven by `{owner}` until {until}")]
    LoopHeld {
        /// The loop.
        loop_id: String,
        /// The owner of the lease.
        owner: String,
        /// When its lease ends if it is not renewed, as ISO-8601 text.
        until: String,
    },
    /// Other messages were appended under the key earlier. Nothing is appended.
    #[error("{}", key_taken(key, loop_id, seqs))]
    KeyTaken {
        /// The key.
        key: String,
        /// The loop with the last of the messages that were appended under the key.
        loop_id: String,
        /// The sequences of these messages in that loop.
        seqs: std::ops::Range<u32>,
    },
    /// The context has more tokens than fit, and no compaction made it smaller.
    #[error("the context has {tokens} tokens, {budget} fit{}", because(reason))]
    NeedsCompaction {
        /// The size of the context.
        tokens: u64,
        /// The size that fits.
        budget: u64,
        /// The reason why the last attempt to compact it failed, if there was one.
        reason: Option<String>,
    },
    /// The context has more bytes than the policy allows, and no compaction made it smaller.
    #[error("the context has {bytes} bytes, {budget} fit{}", because(reason))]
    NeedsFewerBytes {
        /// The size of the context.
        bytes: u64,
        /// The size that fits.
        budget: u64,
        /// The reason why the last attempt to compact it failed, if there was one.
        reason: Option<String>,
    },
    /// Not even the last turn fits; a larger window is needed.
    #[error("not even the last turn fits: {needed} {unit} are needed, {budget} fit")]
    BudgetTooSmall {
        /// The size of the smallest context.
        needed: u64,
        /// The size that fits.
        budget: u64,
        /// The unit of both sizes.
        unit: BudgetUnit,
    },
    /// The database contains rows that cannot exist; restore a backup.
    #[error("the database is damaged: {0}")]
    Damaged(String),
    /// A provider's JSON cannot be read or written.
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// The search query cannot be read.
    #[error(transparent)]
    Query(crate::search::QueryError),
    /// The shortest answer to a question has more tokens than are allowed.
    #[error("an answer needs at least {needed} tokens here, and {given} are allowed")]
    TooFewTokens {
        /// The tokens of the shortest answer.
        needed: u64,
        /// The tokens that are allowed.
        given: u64,
    },
    /// An async call panicked, with this message; a transaction in it was rolled back.
    #[cfg(feature = "tokio")]
    #[error("a call on the store panicked: {0}")]
    Panicked(String),
    /// The runtime shut down before an async call began; the call had no effect.
    #[cfg(feature = "tokio")]
    #[error("the runtime shut down before the call began")]
    ShutDown,
    /// Any other error of the store.
    #[error(transparent)]
    Store(StoreError),
}

fn because(reason: &Option<String>) -> String {
    reason
        .as_ref()
        .map_or_else(String::new, |reason| format!(" ({reason})"))
}

impl Error {
    pub(super) fn not_found(what: &'static str, id: impl Into<String>) -> Self {
        let id = id.into();
        Self::NotFound { what, id }
    }

    pub(super) fn too_large(error: BuildError, reason: Option<String>) -> Self {
        match error {
            BuildError::Store(error) => error.into(),
            BuildError::NeedsCompaction { tokens, budget } => Self::NeedsCompaction {
                tokens,
                budget,
                reason,
            },
            BuildError::NeedsFewerBytes { bytes, budget } => Self::NeedsFewerBytes {
                bytes,
                budget,
                reason,
            },
            BuildError::Invalid(why) => Self::Store(StoreError::Invalid(why)),
        }
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Busy | StoreError::PoolTimeout(_) | StoreError::SerializationFailure => {
                Self::Busy
            }
            StoreError::NoSession(id) => Self::not_found("session", id),
            StoreError::NoLoop(id) => Self::not_found("loop", id),
            StoreError::NoRun(id) => Self::not_found("run", id),
            StoreError::NoManifest(id) => Self::not_found("manifest", id),
            StoreError::NoCompaction { what, loop_id } => Self::not_found(what, loop_id),
            StoreError::LeaseHeld {
                loop_id,
                owner,
                until,
            } => Self::LoopHeld {
                loop_id,
                owner,
                until,
            },
            StoreError::KeyTaken { key, loop_id, seqs } => Self::KeyTaken { key, loop_id, seqs },
            StoreError::Damaged(detail) | StoreError::IndexDamaged(detail) => Self::Damaged(detail),
            other => Self::Store(other),
        }
    }
}

impl From<BudgetTooSmall> for Error {
    fn from(error: BudgetTooSmall) -> Self {
        let BudgetTooSmall {
            needed,
            budget,
            unit,
        } = error;
        Self::BudgetTooSmall {
            needed,
            budget,
            unit,
        }
    }
}

impl From<BuildError> for Error {
    fn from(error: BuildError) -> Self {
        Self::too_large(error, None)
    }
}

impl From<SearchError> for Error {
    fn from(error: SearchError) -> Self {
        match error {
            SearchError::Store(error) => error.into(),
            SearchError::Query(error) => Self::Query(error),
            SearchError::TooFewTokens { needed, given } => Self::TooFewTokens { needed, given },
        }
    }
}
