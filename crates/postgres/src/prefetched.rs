//! Rows that a write reads before they are requested: the row of the session comes with its lock, the row of a
//! loop with its lease. An append needs both right afterwards and saves two round trips. Any write discards
//! them.

use loopstore_core::store::columns::Columns;
use loopstore_core::store::mapping::{lease_row, loop_row, session_row};
use loopstore_core::store::{LeaseRow, LoopKey, LoopRow, SessionKey, SessionRow, StoreResult};

use super::keys::session_of;
use super::row::{LOOP_COLUMNS, PostgresRow, SESSION};
use super::transaction::PostgresTransaction;

/// Rows that were read together with the first query of a write.
#[derive(Default)]
pub(super) struct PrefetchedRows {
    session: Option<SessionRow>,
    loop_key: Option<LoopRow>,
}

/// A loop and its lease.
fn loop_and_lease_of(row: &PostgresRow) -> StoreResult<(Option<LoopRow>, Option<LeaseRow>)> {
    let has_lease: Option<i64> = row.get("loop")?;
    let lease = has_lease.map(|_| lease_row(row)).transpose()?;
    Ok((loop_row(row).ok(), lease))
}

impl PostgresTransaction<'_> {
    /// Makes other writers of a session wait until the end of this write.
    pub(super) fn lock_row(&self, session: i64) -> StoreResult<()> {
        let sql = format!("{SESSION} WHERE s.session = $1 FOR NO KEY UPDATE OF s");
        let rows = self.ask(&sql, &[&session])?;
        // An error in a row is reported when the row is requested, since the row may be about to be removed.
        let row = rows.first().map(session_row);
        self.prefetched.borrow_mut().session = row.and_then(Result::ok);
        Ok(())
    }

    /// Returns the row of the session if it was prefetched.
    pub(super) fn prefetched_session(&self, key: SessionKey) -> Option<SessionRow> {
        let prefetched = self.prefetched.borrow();
        prefetched.session.clone().filter(|row| row.key == key)
    }

    /// Returns the row of the loop if it was prefetched.
    pub(super) fn prefetched_loop(&self, key: LoopKey) -> Option<LoopRow> {
        let prefetched = self.prefetched.borrow();
        prefetched.loop_key.clone().filter(|row| row.key == key)
    }

    /// Returns the lease of a loop. A write also prefetches the row of the loop.
    pub(super) fn lease_and_loop(&self, loop_key: LoopKey) -> StoreResult<Option<LeaseRow>> {
        let session = session_of(loop_key.0);
        let sql = format!(
            "SELECT {LOOP_COLUMNS}, d.loop, d.owner, d.token, d.ttl, d.renewed_at, d.expires_at,
                 d.released
             FROM loops l LEFT JOIN leases d ON d.session = $1 AND d.loop = $2
             WHERE l.session = $1 AND l.key = $2"
        );
        let Some((row, lease)) =
            self.first(session, &sql, &[&session, &loop_key.0], loop_and_lease_of)?
        else {
            return Ok(None);
        };
        self.prefetched.borrow_mut().loop_key = row;
        Ok(lease)
    }
}
