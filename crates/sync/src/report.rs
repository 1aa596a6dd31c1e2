//! The report of a sync.

use loopstore::model::{LoopId, SessionId};
use serde::Serialize;

/// One of the two databases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SyncSide {
    /// The database that the sync was started with.
    Here,
    /// The other database.
    There,
}

/// A session that both databases continued, and that is whole in both now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MergedSession {
    /// The session.
    pub session_id: SessionId,
    /// The loops that became branches, because both databases continued the same loop. Empty if each database has
    /// added other loops, runs, undos or pins.
    pub branches: Vec<MadeBranch>,
}

/// A branch that a sync made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct MadeBranch {
    /// The new loop.
    pub loop_id: LoopId,
    /// The loop whose messages it had.
    pub of: LoopId,
}

/// A session that one database removed or redacted, while the other one has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RemovedSession {
    /// The session.
    pub session_id: SessionId,
    /// `erase`, `prune` or `redact`.
    pub kind: String,
    /// The database that has, or had, the session.
    pub side: SyncSide,
}

/// A session that was not brought together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnsyncedSession {
    /// The session.
    pub session_id: SessionId,
    /// The reason.
    pub reason: String,
}

/// The report of a sync.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SyncReport {
    /// The path or address of the database that the sync was started with.
    pub here: String,
    /// The path or address of the other database.
    pub there: String,
    /// True if nothing was written.
    pub dry_run: bool,
    /// Sessions that only the other database had.
    pub fetched: Vec<SessionId>,
    /// Sessions that only this database had.
    pub sent: Vec<SessionId>,
    /// Sessions that only the other database had continued.
    pub updated_here: Vec<SessionId>,
    /// Sessions that only this database had continued.
    pub updated_there: Vec<SessionId>,
    /// Sessions that both databases had continued.
    pub merged: Vec<MergedSession>,
    /// Sessions of which only kept files or receipts were missing in one of the databases.
    pub completed: Vec<SessionId>,
    /// Sessions that were removed or redacted, because the other database had done so.
    pub removed: Vec<RemovedSession>,
    /// Sessions that a database keeps although the other one removed or redacted them.
    pub refused: Vec<RemovedSession>,
    /// Sessions that could not be brought together; the next sync tries them again.
    pub failed: Vec<UnsyncedSession>,
    /// Receipts of removals that were stored.
    pub receipts: u64,
    /// Kept files of imports that were stored.
    pub files: u64,
    /// The number of sessions that were the same in both databases.
    pub unchanged: u64,
    /// The number of bytes sent to the other database; 0 if it was opened by this program.
    pub bytes_sent: u64,
    /// The number of bytes received from the other database.
    pub bytes_received: u64,
    /// The duration in seconds.
    pub seconds: f64,
}

impl SyncReport {
    /// True if both databases have the same sessions now, except those that one of them keeps.
    pub fn is_whole(&self) -> bool {
        self.failed.is_empty()
    }
}
