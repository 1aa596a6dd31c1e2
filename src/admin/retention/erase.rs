//! Erasing a session: nothing of it is left but its receipt.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Leftover, scrub};
use crate::model::{SessionId, Time};
use crate::store::receipt::{OpenReceipt, Receipt};
use crate::store::removal::StoreRemove;
use crate::store::{
    Database, ReceiptRow, SessionKey, SessionRow, StoreError, StoreRead, StoreResult, database,
    lease,
};

/// What is to be erased.
#[derive(Clone, Debug)]
pub struct EraseRequest {
    /// The session.
    pub session: SessionId,
    /// Why; it stays in the receipt.
    pub reason: Option<String>,
    /// Also while somebody drives one of its loops; the next write of the driver then fails.
    pub force: bool,
}

/// What was erased.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EraseReport {
    /// The session.
    pub session_id: SessionId,
    /// The receipt.
    pub receipt: i64,
    /// Whether it had been erased before, and only its bytes had to be taken away.
    pub was_erased: bool,
    /// Rows that went, by table.
    pub counts: BTreeMap<String, u64>,
    /// Kept source files that went.
    pub sources: u64,
    /// Other sessions that these files held something of.
    pub source_of: Vec<SessionId>,
    /// Blobs and parts of files that stay because others show them too.
    pub shared: u64,
    /// Sessions that name this one.
    pub named_by: Vec<SessionId>,
    /// Whether bytes are left.
    pub leftover: Leftover,
}

/// Erases a session: its rows, its words in the index, the files that it came from, and their bytes in
/// the file and its log. One that was erased before, and whose bytes are still to be taken away, is
/// finished.
///
/// # Errors
/// [`StoreError::LeaseHeld`] if somebody drives one of its loops, [`StoreError::NoSession`] if there is
/// no such session and no receipt of one, or if the store refuses. Then nothing was erased.
///
/// # Examples
/// ```
/// use loopstore::admin::retention::{EraseRequest, Leftover, erase};
/// use loopstore::*;
///
/// let store = Store::in_memory()?;
/// let chat = store.session("weather")?;
/// chat.append([Message::user("Will it rain?")])?;
/// let reason = Some("its user asked for it".into());
/// let request = EraseRequest { session: chat.id().clone(), reason, force: false };
/// let report = erase(store.database(), &request)?;
/// assert_eq!(report.leftover, Leftover::None);
/// assert_eq!(chat.leaf()?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn erase(store: &dyn Database, request: &EraseRequest) -> StoreResult<EraseReport> {
    let reason = request.reason.as_deref();
    let (key, receipt, was_erased) = database::removing(store, |write| {
        let Some(row) = write.session(&request.session)? else {
            let (key, receipt) = erased_before(write, &request.session)?;
            return Ok((key, receipt, true));
        };
        if !request.force {
            check_free(write.as_read(), &row)?;
        }
        let (key, receipt) = remove(write, row, "erase", reason)?;
        Ok((key, receipt, false))
    })?;
    Ok(EraseReport {
        session_id: receipt.session,
        receipt: key,
        was_erased,
        counts: receipt.counts,
        sources: receipt.sources.len() as u64,
        source_of: receipt.source_of,
        shared: receipt.shared,
        named_by: receipt.named_by,
        leftover: scrub(store)?,
    })
}

/// Returns the newest receipt of a session that is gone.
fn erased_before(write: &dyn StoreRemove, session: &SessionId) -> StoreResult<(i64, Receipt)> {
    let found = write.receipts()?.into_iter().rev().find_map(|row| {
        let fits = |receipt: &Receipt| receipt.session == *session && is_removal(&row);
        Some((row.key, Receipt::read(&row).filter(fits)?))
    });
    found.ok_or_else(|| StoreError::NoSession(session.to_string()))
}

fn is_removal(row: &ReceiptRow) -> bool {
    matches!(row.kind.as_str(), "erase" | "prune")
}

/// Refuses while somebody drives a loop of the session.
fn check_free(read: &dyn StoreRead, session: &SessionRow) -> StoreResult<()> {
    let now = lease::now();
    for row in read.loops(session.key)? {
        if let Some(lease) = lease::held(read, row.key, now)? {
            let until = Time::from_millis(lease.expires_at);
            return Err(StoreError::LeaseHeld {
                loop_id: row.loop_id.to_string(),
                owner: lease.owner,
                until: until.map_or_else(String::new, |time| time.as_str().to_owned()),
            });
        }
    }
    Ok(())
}

/// Returns the sessions that this one started, or that go on from a loop of it.
fn named_by(write: &dyn StoreRemove, key: SessionKey) -> StoreResult<Vec<SessionId>> {
    let mut keys = write.started_by(key)?;
    let links = write.session_links()?;
    keys.extend(
        links
            .into_iter()
            .filter(|(_, of)| *of == key)
            .map(|(from, _)| from),
    );
    keys.sort();
    keys.dedup();
    keys.retain(|other| *other != key);
    let id = |key: &SessionKey| write.session_by_key(*key).map(|row| row.session_id);
    keys.iter().map(id).collect()
}

/// Removes a session within a transaction and writes its receipt.
pub(super) fn remove(
    write: &mut dyn StoreRemove,
    row: SessionRow,
    kind: &'static str,
    reason: Option<&str>,
) -> StoreResult<(i64, Receipt)> {
    let key = row.key;
    let mut receipt = Receipt::of(write.as_read(), key, row.session_id, reason)?;
    receipt.named_by = named_by(write, key)?;
    let open = OpenReceipt::new(write, key, kind)?;
    let sources = write.remove_sources(key)?;
    receipt.take_sources(write.as_read(), &sources)?;
    let removed = write.remove_session(key)?;
    receipt.shared += removed.shared_blobs;
    receipt.counts = removed
        .rows
        .into_iter()
        .map(|(table, rows)| (table.to_owned(), rows))
        .collect();
    write.note_scrub()?;
    let key = open.close(write, &receipt)?;
    Ok((key, receipt))
}
