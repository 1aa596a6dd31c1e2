//! Erasing a session: only its receipt remains.

use std::collections::BTreeMap;

use loopstore::extend::{
    Database, ReceiptRow, SessionKey, SessionRow, StoreError, StoreRead, StoreResult, StoreWrite,
    lease, receipt::Receipt, scan::StoreScan,
};
use loopstore::internal::{OpenReceipt, database};
use loopstore::model::{SessionId, Time};
use loopstore_files::copies::UnfinishedCopy;
use loopstore_model::clock::now;
use serde::Serialize;

use super::files::{self, KeptFile, KeptFiles};
use super::{Leftover, scrub};

/// A request to erase a session.
#[derive(Clone, Debug)]
pub struct EraseRequest {
    /// The session.
    pub session: SessionId,
    /// The reason; it is stored in the receipt.
    pub reason: Option<String>,
    /// True to erase the session even if a program holds the lease of one of its loops. The next write of this
    /// program fails.
    pub force: bool,
    /// True to remove also kept source files that contain other sessions.
    pub with_files: bool,
    /// True to change nothing and only report.
    pub dry_run: bool,
}

impl EraseRequest {
    /// Returns a request to erase a session and the kept files that contain no other session.
    pub fn new(session: SessionId) -> Self {
        Self {
            session,
            reason: None,
            force: false,
            with_files: false,
            dry_run: false,
        }
    }
}

/// The result of an erasure, or of its dry run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EraseReport {
    /// The session.
    pub session_id: SessionId,
    /// True if nothing was changed.
    pub dry_run: bool,
    /// The receipt of the erasure; `None` for a dry run on a session that is still stored.
    pub receipt: Option<i64>,
    /// True if the session was erased before, and only its remaining bytes were removed.
    pub was_erased: bool,
    /// The number of removed rows by table; empty for a dry run on a session that is still stored.
    pub counts: BTreeMap<String, u64>,
    /// The number of removed source files.
    pub sources: u64,
    /// Other sessions with content in these files.
    pub source_of: Vec<SessionId>,
    /// All kept source files of the session, including files that stay for other sessions.
    pub files: Vec<KeptFile>,
    /// The number of blobs and file parts that stay, since other sessions use them.
    pub shared: u64,
    /// Sessions that refer to this session.
    pub named_by: Vec<SessionId>,
    /// The places where bytes of the content may remain.
    pub leftover: Leftover,
    /// Unfinished copies that killed processes left.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<UnfinishedCopy>,
}

/// Erases a session: its rows, its words in the search index, the kept files that contain no other session, and their
/// bytes in the database file and its log. If the session was erased before and bytes of it remain, they are removed.
///
/// # Errors
/// [`StoreError::LeaseHeld`] if a program drives one of its loops; [`StoreError::NoSession`] if there is neither such
/// a session nor a receipt of it; or if the store fails. Nothing is erased then.
///
/// # Examples
/// ```
/// use loopstore_admin::retention::{EraseRequest, Leftover, erase};
/// use loopstore::*;
///
/// let store = Store::in_memory()?;
/// let chat = store.session("weather")?;
/// chat.append([Message::user("Will it rain?")])?;
/// let reason = Some("its user asked for it".into());
/// let request = EraseRequest { reason, ..EraseRequest::new(chat.id().clone()) };
/// let report = erase(store.database(), &request)?;
/// assert_eq!(report.leftover, Leftover::None);
/// assert_eq!(chat.leaf()?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn erase(store: &dyn Database, request: &EraseRequest) -> StoreResult<EraseReport> {
    if request.dry_run {
        return database::scan(store, |scan| preview(scan, request));
    }
    let reason = request.reason.as_deref();
    let (key, receipt, files) = database::removing(store, |write| {
        let Some(row) = write.session(&request.session)? else {
            let (key, receipt) = erased_before(&*write, &request.session)?;
            return Ok((key, receipt, None));
        };
        if !request.force {
            check_free(write, &row)?;
        }
        let (key, receipt, files) = remove(write, row, "erase", reason, request.with_files)?;
        Ok((key, receipt, Some(files)))
    })?;
    let was_erased = files.is_none();
    let mut report = EraseReport::of(receipt, files.unwrap_or_default());
    report.receipt = Some(key);
    report.was_erased = was_erased;
    let stays = report.files.iter().any(|file| !file.goes);
    let (leftover, copies) = scrub(store)?;
    report.leftover = leftover.or_in_content(stays);
    report.copies = copies;
    Ok(report)
}

/// Returns the report of a dry run.
fn preview(scan: &dyn StoreScan, request: &EraseRequest) -> StoreResult<EraseReport> {
    let Some(row) = scan.session(&request.session)? else {
        let (key, receipt) = erased_before(scan, &request.session)?;
        let mut report = EraseReport::of(receipt, KeptFiles::new());
        (report.receipt, report.was_erased, report.dry_run) = (Some(key), true, true);
        return Ok(report);
    };
    if !request.force {
        check_free(scan, &row)?;
    }
    let files = files::plan(scan, &[row.key], request.with_files)?;
    let mut receipt = Receipt::of(scan, row.key, row.session_id, None)?;
    receipt.named_by = named_by(scan, row.key)?;
    for (source, file) in files.values().filter(|(_, file)| file.goes) {
        receipt.sources.push(hex::encode(source.digest));
        receipt.source_of.extend(file.sessions.iter().cloned());
    }
    let mut report = EraseReport::of(receipt, files);
    report.dry_run = true;
    Ok(report)
}

impl EraseReport {
    fn of(receipt: Receipt, files: KeptFiles) -> Self {
        Self {
            session_id: receipt.session,
            dry_run: false,
            receipt: None,
            was_erased: false,
            counts: receipt.counts,
            sources: receipt.sources.len() as u64,
            source_of: receipt.source_of,
            files: files::listed(files),
            shared: receipt.shared,
            named_by: receipt.named_by,
            leftover: Leftover::None,
            copies: Vec::new(),
        }
    }
}

/// Returns the newest receipt of an erased session.
fn erased_before(scan: &dyn StoreScan, session: &SessionId) -> StoreResult<(i64, Receipt)> {
    let found = scan.receipts()?.into_iter().rev().find_map(|row| {
        let fits = |receipt: &Receipt| receipt.session == *session && is_removal(&row);
        Some((row.key, Receipt::read(&row).filter(fits)?))
    });
    found.ok_or_else(|| StoreError::NoSession(session.to_string()))
}

fn is_removal(row: &ReceiptRow) -> bool {
    matches!(row.kind.as_str(), "erase" | "prune")
}

/// Fails if a program holds the lease of a loop of the session.
fn check_free(read: &dyn StoreRead, session: &SessionRow) -> StoreResult<()> {
    let now = now();
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

/// Returns the sessions that this one started, or that continue a loop of it.
fn named_by(scan: &dyn StoreScan, key: SessionKey) -> StoreResult<Vec<SessionId>> {
    let mut keys = scan.started_by(key)?;
    keys.extend(scan.continuations(key)?.by);
    keys.sort();
    keys.dedup();
    keys.retain(|other| *other != key);
    let id = |key: &SessionKey| scan.session_by_key(*key).map(|row| row.session_id);
    keys.iter().map(id).collect()
}

/// Removes a session within a transaction and writes its receipt.
pub(super) fn remove(
    write: &mut dyn StoreWrite,
    row: SessionRow,
    kind: &'static str,
    reason: Option<&str>,
    with_files: bool,
) -> StoreResult<(i64, Receipt, KeptFiles)> {
    let key = row.key;
    let mut receipt = Receipt::of(write, key, row.session_id, reason)?;
    receipt.named_by = named_by(&*write, key)?;
    let open = OpenReceipt::new(write, key, kind)?;
    let files = files::remove(write, key, with_files, &mut receipt)?;
    let removed = write.remove_session(key)?;
    receipt.shared += removed.shared_blobs;
    receipt.counts = removed
        .rows
        .into_iter()
        .map(|(table, rows)| (table.to_owned(), rows))
        .collect();
    write.note_scrub()?;
    let key = open.close(write, &receipt)?;
    Ok((key, receipt, files))
}
