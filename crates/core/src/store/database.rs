//! The operations of a backend in addition to reads and writes: queries in SQL, figures, checks of its own.
//!
//! The command line, `verify` and removal work on any [`Database`]; code that needs a file finds its backend
//! with [`Database::as_any`].

use std::any::Any;

use super::error::StoreResult;
use super::listing::{SessionCursor, SessionFilter, SessionView};
use super::query::{QueryLimits, QueryRows, Record};
use super::recount::StoreRecount;
use super::removal::ScrubState;
use super::scan::StoreScan;
use super::stats::Stats;
use super::{SessionStore, StoreWrite, WriteWork};
use crate::model::SessionId;

/// The work of a scan: called once with the snapshot.
pub type ScanWork<'a> = Box<dyn FnOnce(&dyn StoreScan) -> StoreResult<()> + 'a>;

/// The work of a step of a recount: called once with the transaction.
pub type RecountWork<'a> = Box<dyn FnOnce(&mut dyn StoreRecount) -> StoreResult<()> + 'a>;

/// A database of sessions that can be queried in SQL.
///
/// ```
/// use loopstore::extend::QueryLimits;
/// use loopstore::{Database, SqliteStore};
///
/// /// Returns the number of messages in any database.
/// fn messages(store: &dyn Database) -> Result<i64, loopstore::StoreError> {
///     let sql = "SELECT count(*) AS n FROM v_messages";
///     let found = store.query_within(sql, QueryLimits::default())?;
///     Ok(found.records()[0].number("n").unwrap_or_default())
/// }
///
/// assert_eq!(messages(&SqliteStore::in_memory()?)?, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Database: SessionStore {
    /// Returns the path or the address of the database, without user and password.
    fn place(&self) -> String;

    /// Returns the backend for callers that know its type, if the backend allows that.
    fn as_any(&self) -> Option<&dyn Any> {
        None
    }

    /// Runs one query that can only read, within limits, and returns its rows.
    ///
    /// # Errors
    /// If the query is not a single reading statement, takes too long, or the backend fails.
    fn query_within(&self, sql: &str, limits: QueryLimits) -> StoreResult<QueryRows>;

    /// Returns the rows of `v_sessions` that match a filter, last active first, with title and prompt also of
    /// archived messages.
    ///
    /// # Errors
    /// If the database cannot be read.
    fn session_rows(&self, filter: &SessionFilter) -> StoreResult<Vec<Record>> {
        let rows = self.listed_sessions(filter)?;
        Ok(rows.into_iter().map(|(_, row)| row).collect())
    }

    /// Returns the rows of [`session_rows`](Self::session_rows), each with the cursor right after it.
    ///
    /// # Errors
    /// If the database cannot be read.
    fn listed_sessions(&self, filter: &SessionFilter) -> StoreResult<Vec<(SessionCursor, Record)>>;

    /// Returns the rows of `v_compaction_runs`, newest first, each with its undos and redos as
    /// `flips`: of one session, or of all if `None`.
    ///
    /// # Errors
    /// If the database cannot be read.
    fn run_rows(&self, session: Option<&SessionId>) -> StoreResult<Vec<Record>>;

    /// Returns a session with its loops and blocks.
    ///
    /// # Errors
    /// If the session does not exist, or the database cannot be read.
    fn session_view(&self, session: &SessionId) -> StoreResult<SessionView>;

    /// Returns the rows of `v_receipts`, oldest first.
    ///
    /// # Errors
    /// If the database cannot be read.
    fn receipt_rows(&self) -> StoreResult<Vec<Record>> {
        let sql = "SELECT * FROM v_receipts ORDER BY opened_at, receipt";
        Ok(self.query_within(sql, QueryLimits::default())?.records())
    }

    /// Returns figures of the database.
    ///
    /// # Errors
    /// If the database cannot be read.
    fn stats(&self) -> StoreResult<Stats>;

    /// Runs `work` on one snapshot in which every row can be read.
    ///
    /// # Errors
    /// If `work` or the backend fails.
    fn scan(&self, work: ScanWork<'_>) -> StoreResult<()>;

    /// Runs `work` in a write transaction in which content can be removed.
    ///
    /// # Errors
    /// If `work` or the backend fails; then nothing was removed.
    fn removing(&self, work: WriteWork<'_>) -> StoreResult<()>;

    /// Runs `work` in a write transaction in which tokens can be recounted. The counter may differ from that of the
    /// database if `recount` of the backend opened the database.
    ///
    /// # Errors
    /// If `work` or the backend fails; then nothing was changed.
    fn recounting(&self, work: RecountWork<'_>) -> StoreResult<()>;

    /// Removes the bytes of removed content from the files too, as far as the backend can.
    ///
    /// # Errors
    /// If the backend fails; the call can be repeated.
    fn scrub(&self) -> StoreResult<ScrubState>;

    /// Returns the findings of the backend's own checks.
    ///
    /// # Errors
    /// If the database cannot be read at all.
    fn integrity_problems(&self) -> StoreResult<Vec<String>>;

    /// Returns the tables, triggers and views that differ from this format.
    ///
    /// # Errors
    /// If the database cannot be read at all.
    fn schema_problems(&self) -> StoreResult<Vec<String>>;

    /// Returns the problems of the search index.
    ///
    /// # Errors
    /// If the database cannot be read at all.
    fn index_problems(&self) -> StoreResult<Vec<String>>;
}

/// Runs `work` on one snapshot of `store` in which every row can be read.
pub fn scan<T>(
    store: &dyn Database,
    work: impl FnOnce(&dyn StoreScan) -> StoreResult<T>,
) -> StoreResult<T> {
    let mut result = None;
    store.scan(Box::new(|scan| {
        result = Some(work(scan)?);
        Ok(())
    }))?;
    result.ok_or_else(|| super::StoreError::Invalid("the store did not run the scan".into()))
}

/// Runs `work` in a write transaction of `store` in which content can be removed.
pub fn removing<T>(
    store: &dyn Database,
    work: impl FnOnce(&mut dyn StoreWrite) -> StoreResult<T>,
) -> StoreResult<T> {
    let mut result = None;
    store.removing(Box::new(|write| {
        result = Some(work(write)?);
        Ok(())
    }))?;
    result.ok_or_else(|| super::StoreError::Invalid("the store did not run the removal".into()))
}
