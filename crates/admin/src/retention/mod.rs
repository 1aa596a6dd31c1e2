//! What is not kept: secrets taken out of a stored session, sessions erased, old ones pruned. And what is
//! kept smaller: archived loops.
//!
//! Each removal is one transaction and leaves a receipt: what went, when, why, and the digests of what
//! was there. After it the file is scrubbed, so that no byte is left in free pages, the index or the
//! log. A process that is killed between leaves that to the next: the same command finishes it.
//!
//! What hangs together:
//! - a blob goes with the last session that shows it; one that another session shows stays;
//! - a kept source file goes whole, as a part of it could not be given back as it was, and it goes with
//!   the last session that it holds something of. Until then it stays for the others, with what it holds
//!   of those that went, and each report says so; `with_files` removes it at once;
//! - sessions that refer to an erased one keep the reference, and `verify` explains it;
//! - pruning takes sessions that started each other, or go on from each other, together or not at all.

mod archive;
mod erase;
mod files;
mod left;
mod prune;
mod redact;
mod sizes;

use loopstore::extend::{
    self as store, Database, StoreError, StoreResult,
    sqlite::{Scrubbed, SqliteStore},
};
use loopstore::model::{SessionId, Time};
use loopstore_files::copies::{UnfinishedCopy, remove_unfinished_copies};
use serde::Serialize;

pub use archive::{
    ArchiveReport, ArchiveRequest, LoopStays, LoopStaysWhy, MovedLoop, UnarchiveRequest, archive,
    unarchive,
};
pub use erase::{EraseReport, EraseRequest, erase};
pub use files::{FilesRemoved, KeptFile, files_removed};
pub use left::LeftPlace;
pub use loopstore::extend::receipt::Receipt;
pub use prune::{KeptSession, KeptWhy, PruneReport, PruneRequest, PrunedSession, prune};
pub use redact::{
    FindingPlace, FoundSecret, RedactReport, RedactRequest, RedactedMessage, redact_session,
};

/// The places where bytes of removed content may remain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Leftover {
    /// None.
    None,
    /// Some are in the log beside the file, because another program reads an older state. The same
    /// command takes them away when that is done.
    InLog,
    /// Some are in the file, because other programs wrote all the time. The same command takes them
    /// away.
    InFile,
    /// Some may be on the server, in pages that it has not used again, in its log and its backups.
    OnServer,
    /// Some are in what stays: other sessions, ids, or a kept file that others need too. The report says
    /// where.
    InContent,
}

impl Leftover {
    /// Returns what is left if something also stays in content or not.
    fn or_in_content(self, stays: bool) -> Self {
        match self {
            Self::None | Self::OnServer if stays => Self::InContent,
            other => other,
        }
    }
}

/// Scrubs the file and removes copies that killed processes left. What cannot be done now is reported.
fn scrub(store: &dyn Database) -> StoreResult<(Leftover, Vec<UnfinishedCopy>)> {
    let leftover = match store.scrub() {
        Ok(Scrubbed::Clean | Scrubbed::Done) => Leftover::None,
        Ok(Scrubbed::InLog) => Leftover::InLog,
        Ok(Scrubbed::OnServer) => Leftover::OnServer,
        Err(StoreError::Busy) => Leftover::InFile,
        Err(error) => return Err(error),
    };
    let path = SqliteStore::downcast(store).and_then(SqliteStore::path);
    Ok((
        leftover,
        path.map(remove_unfinished_copies).unwrap_or_default(),
    ))
}

/// Finishes a removal that was cut off after its transaction; does nothing if there is none.
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

/// Protects a session, so that [`prune`] leaves it alone, or no longer. Returns since when it is protected.
///
/// # Errors
/// If there is no such session, or the store refuses.
///
/// # Examples
/// ```
/// use loopstore_admin::retention::{KeptWhy, PruneRequest, prune, set_protected};
/// use loopstore::*;
///
/// let store = Store::in_memory()?;
/// let chat = store.session("weather")?;
/// chat.append([Message::user("Will it rain?")])?;
/// set_protected(store.database(), chat.id(), true)?;
/// let request = PruneRequest { keep_last: Some(0), ..PruneRequest::default() };
/// let report = prune(store.database(), &request)?;
/// assert!(report.pruned.is_empty());
/// assert_eq!(report.kept[0].why, KeptWhy::Protected);
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
