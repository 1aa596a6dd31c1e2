//! The contract of a backend, and the rules that all backends share.
//!
//! A [`SessionStore`] has two entry points. `read` runs a closure on one consistent snapshot, `write`
//! runs one in a transaction that commits if the closure returns `Ok` and leaves no trace otherwise.
//! A backend implements primitive operations on rows; the rules (how an append groups turns, which
//! blocks are active, what a commit compares) are written once, above them. A model call never happens
//! inside a transaction.
//!
//! Both take closures and return no guards. So the backend decides how a transaction begins, and when the begin is
//! retried, for instance after a failover.

pub mod active_blocks;
pub mod append;
pub mod audit;
pub mod calls;
pub mod codec;
#[doc(hidden)]
pub mod columns;
#[doc(hidden)]
pub mod counter_choice;
#[doc(hidden)]
pub mod database;
pub mod digest;
mod edit_refusal;
#[doc(hidden)]
pub mod edit_sizes;
#[doc(hidden)]
pub mod encoded;
#[doc(hidden)]
pub mod error;
#[doc(hidden)]
pub mod history;
pub mod index;
#[doc(hidden)]
pub mod key;
pub mod lease;
#[doc(hidden)]
pub mod listing;
pub mod live_edits;
pub mod lookup;
#[doc(hidden)]
pub mod mapping;
#[doc(hidden)]
pub mod migrations;
#[doc(hidden)]
pub mod packed_edits;
#[doc(hidden)]
pub mod packing;
pub mod packs;
pub mod prompt;
#[doc(hidden)]
pub mod query;
mod quotes;
#[doc(hidden)]
pub mod read;
mod reading;
pub mod receipt;
pub mod recount;
pub mod removal;
#[doc(hidden)]
pub mod rollups;
mod rows;
pub mod scan;
pub mod session;
pub mod source;
#[doc(hidden)]
pub mod stats;
#[doc(hidden)]
pub mod values;
#[doc(hidden)]
pub mod write;

pub use database::{Database, RecountWork, ScanWork};
pub use edit_refusal::EditRefusal;
#[doc(hidden)]
pub use error::key_taken;
pub use error::{Cause, OpenError, StoreError, StoreResult};
pub use key::{Key, KeyError};
pub use lease::{Lease, LeaseGuard, LeaseRow};
pub use listing::{SessionCursor, SessionFilter, SessionView};
pub use live_edits::{EditedMessage, LiveEdits, MessageEdit};
pub use query::{QueryLimits, QueryRows, Record};
pub use quotes::{QuotingBlock, quote, quote_body, shown_message};
#[doc(hidden)]
pub use quotes::{check_quoted, quote_of};
pub use read::*;
pub use reading::*;
pub use removal::ScrubState;
#[doc(hidden)]
pub use rollups::{added_loops, tokens_of_others, tokens_to};
pub use rows::*;
pub use stats::Stats;
pub use write::*;

use crate::model::AgentMessage;

/// The work of a read: called once with the snapshot.
pub type ReadWork<'a> = Box<dyn FnOnce(&dyn StoreRead) -> StoreResult<()> + 'a>;

/// The work of a write: called once with the transaction. A backend cannot run the work again, so a
/// transaction that the database interrupted fails with [`StoreError::SerializationFailure`], and the
/// caller decides whether to repeat it:
///
/// ```compile_fail,E0382
/// # use loopstore::extend::{StoreResult, StoreWrite, WriteWork};
/// fn write_twice(transaction: &mut dyn StoreWrite, work: WriteWork<'_>) -> StoreResult<()> {
///     work(transaction)?;
///     work(transaction) // The first call used `work` up.
/// }
/// ```
pub type WriteWork<'a> = Box<dyn FnOnce(&mut dyn StoreWrite) -> StoreResult<()> + 'a>;

/// A durable store of sessions.
///
/// A backend must keep these promises; `crates/testing/src/conformance` has a test for each.
/// - `read` must show the database at one moment, without rows that other writers commit meanwhile.
/// - `write` must be atomic and serial: all of it is stored or nothing, also after a crash. A write that returned
///   `Ok` must survive a power loss (at the default durability). Writes to different sessions may run at the same
///   time; a write to a session must see all earlier writes to that session.
/// - A thread must not call `read` or `write` within the closure of a `read` or `write`: it could wait for itself.
/// - A message, block, run, flip or manifest that was committed must never change; an attempt must fail.
pub trait SessionStore: Send + Sync {
    /// Runs `work` on one snapshot, exactly once.
    ///
    /// # Errors
    /// If `work` or the backend fails.
    fn read(&self, work: ReadWork<'_>) -> StoreResult<()>;

    /// Runs `work` exactly once in a write transaction, which commits if `work` returns `Ok`. If `work` panics,
    /// nothing was written, and the store must stay usable. The reads of `work` must see its own writes.
    ///
    /// # Errors
    /// If `work` or the backend fails; then nothing was written.
    fn write(&self, work: WriteWork<'_>) -> StoreResult<()>;

    /// Returns the token counter that the database is written with.
    fn counter(&self) -> &dyn crate::tokens::TokenCounter;

    /// Returns the files that the store keeps open and that no other code in this process may open, since closing
    /// such a file would drop the store's locks. Empty if there are none.
    fn files(&self) -> Vec<std::path::PathBuf> {
        Vec::new()
    }
}

/// Runs `work` on one snapshot of `store` and returns its result.
///
/// # Errors
/// If `work` or the backend fails.
///
/// # Examples
/// ```
/// use loopstore::{SessionId, SqliteStore, extend as store};
///
/// let store = SqliteStore::in_memory()?;
/// let id = SessionId::new("weather")?;
/// let session = store::read(&store, |read| read.session(&id))?;
/// assert_eq!(session, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn read<T>(
    store: &dyn SessionStore,
    work: impl FnOnce(&dyn StoreRead) -> StoreResult<T>,
) -> StoreResult<T> {
    let mut result = None;
    store.read(Box::new(|snapshot| {
        result = Some(work(snapshot)?);
        Ok(())
    }))?;
    result.ok_or_else(|| StoreError::Invalid("the store did not run the read".into()))
}

/// Runs `work` in a write transaction of `store` and returns its result.
///
/// # Errors
/// If `work` or the backend fails; then nothing was written.
///
/// # Examples
/// ```
/// use loopstore::extend::{self as store, session};
/// use loopstore::*;
///
/// let store = SqliteStore::in_memory()?;
/// let new = Session::new(SessionId::new("weather")?, "agent");
/// // An error takes back all that was written before it.
/// let failed = store::write(&store, |write| {
///     session::create_session(write, &new, None, None)?;
///     session::create_session(write, &new, None, None)
/// });
/// assert!(matches!(failed, Err(StoreError::SessionExists(_))));
/// assert_eq!(store::read(&store, |read| read.sessions())?, []);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write<T>(
    store: &dyn SessionStore,
    work: impl FnOnce(&mut dyn StoreWrite) -> StoreResult<T>,
) -> StoreResult<T> {
    let mut result = None;
    store.write(Box::new(|transaction| {
        result = Some(work(transaction)?);
        Ok(())
    }))?;
    result.ok_or_else(|| StoreError::Invalid("the store did not run the write".into()))
}

/// Decodes a message that is borrowed from its row.
///
/// # Errors
/// If the stored form is damaged.
pub fn decode_ref(
    read: &(impl StoreRead + ?Sized),
    message: &StoredMessageRef<'_>,
) -> StoreResult<AgentMessage> {
    codec::decode_ref(message, &mut |sha256| read.blob(sha256))
}

/// Decodes a stored message.
///
/// # Errors
/// If the stored form is damaged.
pub fn decode(
    read: &(impl StoreRead + ?Sized),
    stored: StoredMessage,
) -> StoreResult<AgentMessage> {
    codec::decode(stored, &mut |sha256| read.blob(sha256))
}
