//! The kept source files of a session that loses content: a file is removed with the last session that has
//! content in it. Until then it stays for the other sessions, and still contains the content of this one.

use std::collections::BTreeMap;

use loopstore::extend::source::sources;
use loopstore::extend::{
    Database, SessionKey, SourceKey, SourceRow, StoreResult, StoreWrite, receipt::Receipt,
    scan::StoreScan,
};
use loopstore::internal::database;
use loopstore::model::SessionId;
use serde::Serialize;

/// A kept source file of a session that loses content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeptFile {
    /// The path of the file when it was imported.
    pub path: String,
    /// The size of the file in bytes.
    pub bytes: u64,
    /// The other sessions with content in the file.
    pub sessions: Vec<SessionId>,
    /// True if the file is removed. Otherwise it stays for the other sessions, and still contains content of this
    /// session.
    pub goes: bool,
}

/// The kept files of sessions that lose content.
pub(super) type KeptFiles = BTreeMap<SourceKey, (SourceRow, KeptFile)>;

/// Decides for each file whether it is removed when these sessions lose content.
pub(super) fn plan(
    scan: &dyn StoreScan,
    sessions: &[SessionKey],
    with_files: bool,
) -> StoreResult<KeptFiles> {
    let mut files = KeptFiles::new();
    for key in sessions {
        for row in scan.sources(*key)? {
            let mut others = scan.sessions_of(row.key)?;
            others.retain(|other| !sessions.contains(other));
            let id = |key: &SessionKey| scan.session_by_key(*key).map(|row| row.session_id);
            let file = KeptFile {
                path: row.path.clone(),
                bytes: row.bytes,
                goes: with_files || others.is_empty(),
                sessions: others.iter().map(id).collect::<StoreResult<_>>()?,
            };
            files.insert(row.key, (row, file));
        }
    }
    Ok(files)
}

/// Removes the files that go, unlinks the others from the session, and records both in the receipt.
pub(super) fn remove(
    write: &mut dyn StoreWrite,
    session: SessionKey,
    with_files: bool,
    receipt: &mut Receipt,
) -> StoreResult<KeptFiles> {
    let files = plan(&*write, &[session], with_files)?;
    for (row, file) in files.values() {
        let digest = hex::encode(row.digest);
        if file.goes {
            receipt.shared += write.remove_source(row.key)?;
            receipt.sources.push(digest);
            receipt.source_of.extend(file.sessions.iter().cloned());
        } else {
            write.unlink_source(session, row.key)?;
            receipt.sources_left.push(digest);
        }
    }
    receipt.source_of.sort();
    receipt.source_of.dedup();
    Ok(files)
}

/// Returns the files in the form of a report.
pub(super) fn listed(files: KeptFiles) -> Vec<KeptFile> {
    files.into_values().map(|(_, file)| file).collect()
}

/// The removal that removed the kept files of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FilesRemoved {
    /// The receipt.
    pub receipt: i64,
    /// The kind of the removal: `redact`, `erase` or `prune`.
    pub kind: String,
    /// The session that the removal applied to: this session, or another session in the same file.
    pub session_id: SessionId,
    /// The time of the removal, as ISO-8601 text.
    pub at: String,
}

/// Returns the newest removal that removed kept files of a session; `None` if the session still has files, or no
/// removal removed any.
///
/// # Errors
/// If the session does not exist, or the store fails.
///
/// # Examples
/// ```
/// use loopstore_admin::retention::files_removed;
/// use loopstore::*;
///
/// let store = Store::in_memory()?;
/// let chat = store.session("weather")?;
/// chat.append([Message::user("Will it rain?")])?;
/// assert_eq!(files_removed(store.database(), chat.id())?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn files_removed(
    store: &dyn Database,
    session: &SessionId,
) -> StoreResult<Option<FilesRemoved>> {
    if !sources(store, session)?.is_empty() {
        return Ok(None);
    }
    let receipts = database::scan(store, |scan| scan.receipts())?;
    let found = receipts.into_iter().rev().find_map(|row| {
        let receipt = Receipt::read(&row)?;
        let is_own = receipt.session == *session && row.kind == "redact";
        let went = !receipt.sources.is_empty() || !receipt.sources_left.is_empty();
        if !(is_own && went || receipt.source_of.contains(session)) {
            return None;
        }
        Some(FilesRemoved {
            receipt: row.key,
            kind: row.kind,
            session_id: receipt.session,
            at: row.closed_at.unwrap_or(row.opened_at),
        })
    });
    Ok(found)
}
