//! A database that takes part in a sync: one that is opened here, or one behind a stream.

use loopstore::extend::StoreError;
use loopstore::extend::receipt::{Receipt, is_genuine};
use loopstore::extend::{ReceiptRow, SessionKey};
use loopstore::model::{SessionId, Time};
use loopstore_export::ExportError;
use loopstore_transcripts::ImportError;
use serde::{Deserialize, Serialize};

use crate::document::SessionText;
use crate::wire::WireError;

/// The number of groups of sessions whose hashes are compared first.
pub(crate) const BUCKETS: u16 = 1024;

/// An error that ends a sync. Sessions that were brought together stay, and the next sync continues.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// A store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The connection to the other database failed.
    #[error(transparent)]
    PeerWire(#[from] WireError),
    /// The other database reported an error.
    #[error("the other database: {0}")]
    Other(String),
    /// The databases cannot be brought together.
    #[error("{0}")]
    Refused(String),
}

/// An error of one operation of a peer.
#[derive(Debug)]
pub(crate) enum PeerError {
    /// Only this session is affected.
    Session(String),
    /// The sync ends.
    Fatal(SyncError),
}

pub(crate) type PeerResult<T> = Result<T, PeerError>;

impl From<StoreError> for PeerError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Damaged(detail) => Self::Session(detail),
            error => match ImportError::from(error) {
                ImportError::Store(error) => Self::Fatal(error.into()),
                refused => Self::Session(refused.to_string()),
            },
        }
    }
}

impl From<ExportError> for PeerError {
    fn from(error: ExportError) -> Self {
        match error {
            ExportError::Store(error) => error.into(),
            ExportError::Write(error) => Self::Session(error.to_string()),
        }
    }
}

impl From<ImportError> for PeerError {
    fn from(error: ImportError) -> Self {
        match error {
            ImportError::Store(error) => error.into(),
            error => Self::Session(error.to_string()),
        }
    }
}

impl From<WireError> for PeerError {
    fn from(error: WireError) -> Self {
        Self::Fatal(error.into())
    }
}

/// The sessions to bring together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncFilter {
    /// Only sessions whose project folder contains this, in upper or lower case.
    pub project: Option<String>,
    /// Only sessions that were active at this time or later, as ISO-8601 text.
    pub since: Option<String>,
}

impl SyncFilter {
    /// True if all sessions are brought together.
    pub(crate) fn is_empty(&self) -> bool {
        self.project.is_none() && self.since.is_none()
    }

    /// Returns the time in milliseconds since the epoch.
    pub(crate) fn since_millis(&self) -> Option<i64> {
        Time::from_text(self.since.clone()?).millis()
    }
}

/// The description of a peer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PeerInfo {
    /// The path or address of the database.
    pub(crate) place: String,
    /// The name of its token counter.
    pub(crate) counter: String,
    /// A digest of the names of all receipts that are exchanged.
    pub(crate) receipts: String,
}

/// A session and the fingerprint of its state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct PeerEntry {
    pub(crate) id: SessionId,
    pub(crate) fingerprint: String,
}

/// A receipt of a removal, as it is exchanged.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct RemovalReceipt {
    /// `erase`, `prune` or `redact`.
    pub(crate) kind: String,
    pub(crate) opened_at: String,
    pub(crate) session: SessionId,
    /// The key of the session in the database of the receipt, which its seal includes.
    pub(crate) key: i64,
    pub(crate) detail: String,
}

/// The reason in the receipts that an import of redacted lines writes. Such a receipt belongs to its database.
const CAME_REDACTED: &str = "it came in redacted";

impl RemovalReceipt {
    /// Returns a stored receipt for the exchange; `None` if it is open, changed, or not of a removal.
    pub(crate) fn of(row: &ReceiptRow) -> Option<Self> {
        let receipt = Receipt::read(row)?;
        let is_removal = matches!(row.kind.as_str(), "erase" | "prune" | "redact");
        let is_own = row.kind == "redact" && receipt.reason.as_deref() == Some(CAME_REDACTED);
        if !is_removal || is_own || is_genuine(row) != Some(true) {
            return None;
        }
        Some(Self {
            kind: row.kind.clone(),
            opened_at: row.opened_at.clone(),
            session: receipt.session,
            key: row.session.0,
            detail: row.detail.clone(),
        })
    }

    /// Returns the row, and its content.
    ///
    /// # Errors
    /// If the receipt is not genuine; with the reason.
    pub(crate) fn row(&self) -> Result<(ReceiptRow, Receipt), String> {
        let row = ReceiptRow {
            key: 0,
            session: SessionKey(self.key),
            kind: self.kind.clone(),
            opened_at: self.opened_at.clone(),
            closed_at: None,
            detail: self.detail.clone(),
        };
        let receipt = Self::of(&row)
            .filter(|receipt| receipt == self)
            .and_then(|_| Receipt::read(&row));
        match receipt {
            Some(receipt) => Ok((row, receipt)),
            None => Err("the receipt of its removal was changed".into()),
        }
    }

    /// The identity of the receipt in every database.
    pub(crate) fn name(&self) -> (&str, &str, &SessionId) {
        (&self.kind, &self.opened_at, &self.session)
    }

    /// True if the whole session was removed.
    pub(crate) fn is_removal(&self) -> bool {
        self.kind != "redact"
    }
}

/// The result of writing a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StoreOutcome {
    Stored,
    /// The session was written since it was read.
    Changed,
    /// A program drives one of its loops.
    InUse(String),
    /// The session is stored under this id: it was hidden or shown again.
    Renamed(SessionId),
}

/// The result of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RemoveOutcome {
    Removed,
    /// The database has no such session, or another one with this id; the receipt was stored.
    Absent,
    /// The database keeps what others removed.
    Refused,
    /// A program drives one of the session's loops.
    InUse,
    /// The session is not among those that are brought together.
    Filtered,
}

/// The name of a kept file of a session.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct FileName {
    pub(crate) format: String,
    pub(crate) path: String,
    pub(crate) bytes: u64,
}

/// A database that takes part in a sync.
pub(crate) trait Peer: Send {
    /// Returns the description of the database.
    fn info(&mut self) -> PeerResult<PeerInfo>;

    /// Returns a hash of the fingerprints of the sessions of each bucket.
    fn buckets(&mut self) -> PeerResult<Vec<String>>;

    /// Returns the sessions of these buckets.
    fn entries(&mut self, buckets: &[u16]) -> PeerResult<Vec<PeerEntry>>;

    /// Returns all receipts of removals.
    fn receipts(&mut self) -> PeerResult<Vec<RemovalReceipt>>;

    /// True if the database has a session with this id.
    fn has(&mut self, id: &SessionId) -> PeerResult<bool>;

    /// Returns the state of a session; `have` is a text that the caller has and that may have many of its lines.
    fn load(
        &mut self,
        id: &SessionId,
        have: Option<&SessionText>,
    ) -> PeerResult<Option<SessionText>>;

    /// Writes the state of a session in one transaction, if its present state is still `expected`. With `is_apart` a
    /// new session is not compared with those that were hidden or shown again: the other database has both.
    fn store(
        &mut self,
        id: &SessionId,
        expected: Option<&SessionText>,
        text: &SessionText,
        is_apart: bool,
    ) -> PeerResult<StoreOutcome>;

    /// Gives a session the id that it has in the other database, where it was hidden or shown again. Returns true if
    /// it was there under an earlier id.
    fn follow_hides(&mut self, text: &SessionText, id: &SessionId) -> PeerResult<bool>;

    /// Removes a session that the other database removed, and stores the receipt.
    fn remove(&mut self, receipt: &RemovalReceipt) -> PeerResult<RemoveOutcome>;

    /// Stores a receipt without removing anything.
    fn place_receipt(&mut self, receipt: &RemovalReceipt) -> PeerResult<()>;

    /// Returns the kept files of a session.
    fn files(&mut self, id: &SessionId) -> PeerResult<Vec<FileName>>;

    /// Returns the bytes of a kept file.
    fn file(&mut self, id: &SessionId, name: &FileName) -> PeerResult<Vec<u8>>;

    /// Receives a kept file that the next write of the session stores with it, and reads the marks of its records.
    fn offer(&mut self, id: &SessionId, name: &FileName, bytes: Vec<u8>) -> PeerResult<()>;

    /// Keeps a file for a session.
    fn keep(&mut self, id: &SessionId, name: &FileName, bytes: &[u8]) -> PeerResult<()>;

    /// Ends the sync: removes the bytes of removed content from the file too.
    fn finish(&mut self) -> PeerResult<()>;

    /// Returns the numbers of bytes that were sent and received.
    fn traffic(&self) -> (u64, u64) {
        (0, 0)
    }
}
