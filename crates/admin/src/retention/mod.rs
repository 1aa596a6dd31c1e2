//! Retention: redacts secrets in stored sessions, erases sessions, prunes old sessions, and archives loops.
//!
//! Each removal is one transaction and leaves a receipt with the kind of the removal, the time, the reason and the
//! digests of the removed content. After the transaction the file is scrubbed, so that no byte of the content remains
//! in free pages, the index or the log. If the process is killed before the scrub ends, a second run of the same
//! command finishes it.
//!
//! The rules for shared content:
//! - a blob is removed with the last session that shows it;
//! - a kept source file is removed as a whole, with the last session that has content in it. Until then the file
//!   stays for the other sessions and still contains the content of the removed ones, as each report states;
//!   `with_files` removes it at once;
//! - sessions that refer to an erased one keep the reference, and `verify` explains it;
//! - sessions that started each other, or continue each other, are pruned together or not at all.

mod archive;
mod erase;
mod files;
mod leftovers;
mod prune;
mod redact;
mod sizes;

use loopstore::extend::{
    self as store, Database, StoreError, StoreResult,
    sqlite::{ScrubState, SqliteStore},
};
use loopstore::model::{SessionId, Time};
use loopstore_files::copies::{UnfinishedCopy, remove_unfinished_copies};
use serde::Serialize;

pub use archive::{
    ArchiveReport, ArchiveRequest, MovedLoop, SkipReason, SkippedLoop, UnarchiveRequest, archive,
    unarchive,
};
pub use erase::{EraseReport, EraseRequest, erase};
pub use files::{FilesRemoved, KeptFile, files_removed};
pub use leftovers::ContentRemnant;
pub use loopstore::extend::receipt::Receipt;
pub use prune::{KeepReason, KeptSession, PruneReport, PruneRequest, PrunedSession, prune};
pub use redact::{
    FindingPlace, FoundSecret, RedactReport, RedactRequest, RedactedMessage, redact_session,
};

/// The places where bytes of removed content may remain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Leftover {
    /// No bytes remain.
    None,
    /// Bytes remain in the log beside the file, because another program reads an older state. Run the same command
    /// again after that read ends.
    InLog,
    /// Bytes remain in the file, because other programs wrote all the time. Run the same command again.
    InFile,
    /// Bytes may remain on the server: in pages that it has not used again, in its log and in its backups.
    OnServer,
    /// Bytes remain in content that stays: other sessions, ids, or a kept file that other sessions need. The report
    /// lists the places.
    InContent,
}

impl Leftover {
    /// Returns `InContent` if nothing else remains and something stays in content.
    fn or_in_content(self, stays: bool) -> Self {
        match self {
            Self::None | Self::OnServer if stays => Self::InContent,
            other => other,
        }
    }
}

/// Scrubs the file and removes copies that killed processes left. What cannot be removed now is reported.
fn scrub(store: &dyn Database) -> StoreResult<(Leftover, Vec<UnfinishedCopy>)> {
    let leftover = match store.scrub() {
        Ok(ScrubState::Clean | ScrubState::Done) => Leftover::None,
        Ok(ScrubState::InLog) => Leftover::InLog,
        Ok(ScrubState::OnServer) => Leftover::OnServer,
        Err(StoreError::Busy) => Leftover::InFile,
        Err(error) => return Err(error),
    };
    let path = SqliteStore::downcast(store).and_then(SqliteStore::path);
    Ok((
        leftover,
        path.map(remove_unfinished_copies).unwrap_or_default(),
    ))
}

/// Finishes a removal that was interrupted after its transaction; does nothing if there is none.
///
/// # Errors
/// If the database cannot be read or written.
///
/// # Examples
/// ```
/// use loopstore::Store;
/// use loopstore_admin::retention::{Leftover, finish};
///
/// let store = Store::in_memory()?;
/// assert_eq!(finish(store.database())?, Leftover::None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn finish(store: &dyn Database) -> StoreResult<Leftover> {
    scrub(store).map(|(leftover, _)| leftover)
}

/// Protects a session from [`prune`], or ends the protection. Returns the time since which the session is protected.
///
/// # Errors
/// If the session does not exist, or the store fails.
///
/// # Examples
/// ```
/// use loopstore_admin::retention::{KeepReason, PruneRequest, prune, set_protected};
/// use loopstore::*;
///
/// let store = Store::in_memory()?;
/// let chat = store.session("weather")?;
/// chat.append([Message::user("Will it rain?")])?;
/// set_protected(store.database(), chat.id(), true)?;
/// let request = PruneRequest { keep_last: Some(0), ..PruneRequest::default() };
/// let report = prune(store.database(), &request)?;
/// assert!(report.pruned.is_empty());
/// assert_eq!(report.kept[0].why, KeepReason::Protected);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn set_protected(
    store: &dyn Database,
    session: &SessionId,
    protected: bool,
) -> StoreResult<Option<String>> {
    store::write(store, |write| {
        let row = write
            .session(session)?
            .ok_or_else(|| StoreError::NoSession(session.to_string()))?;
        let mut flags = write.flags(row.key)?;
        if flags.protected_at.is_some() != protected {
            flags.protected_at = protected.then(|| Time::now().as_str().to_owned());
            write.put_flags(row.key, &flags)?;
        }
        Ok(flags.protected_at)
    })
}
