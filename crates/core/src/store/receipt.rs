//! Receipts: the records of removals.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::audit::{AuditEntry, AuditKind, RECEIPTS};
use super::codec::to_json;
use super::{ReceiptRow, SessionKey, StoreRead, StoreResult, StoreWrite};
use crate::model::{Json, LoopId, SessionId, Time};

/// The state of a loop at the time of its removal, or of a redaction of its messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopDigest {
    /// The loop.
    #[serde(rename = "loop")]
    pub loop_id: LoopId,
    /// The number of its messages.
    pub messages: u32,
    /// Its digest chain through the last of them, in hexadecimal digits.
    pub chain: String,
}

/// A message that was redacted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageDigest {
    /// Its loop.
    #[serde(rename = "loop")]
    pub loop_id: LoopId,
    /// The generation of the block that has the message; `None` for an original.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u32>,
    /// Its sequence, or its place in the block.
    pub seq: u32,
    /// The digest of the original content, which is kept.
    pub was: String,
    /// The digest of the redacted content.
    pub now: String,
}

/// The content of a receipt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The session.
    pub session: SessionId,
    /// The given reason.
    pub reason: Option<String>,
    /// Its loops.
    #[serde(default)]
    pub loops: Vec<LoopDigest>,
    /// Messages that were redacted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<MessageDigest>,
    /// Secrets that were replaced, by type.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, u64>,
    /// The number of replaced parts of secrets, in texts from which the rest of the secret had been cut.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pieces: u64,
    /// Removed rows, by table; of a redaction, changed texts, by table and column.
    #[serde(default)]
    pub counts: BTreeMap<String, u64>,
    /// Digests of the kept source files that were removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    /// Other sessions that these files contained messages of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub source_of: Vec<SessionId>,
    /// Digests of the kept source files that stay for other sessions, with their messages of this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources_left: Vec<String>,
    /// The number of blobs and parts of files that stay because other sessions use them too.
    #[serde(default)]
    pub shared: u64,
    /// Sessions that name this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub named_by: Vec<SessionId>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The stored form of a receipt: with a digest, so that `verify` finds a changed one.
#[derive(Serialize, Deserialize)]
struct StoredReceipt {
    receipt: Json,
    digest: String,
}

/// An open receipt.
pub struct OpenReceipt {
    /// The key of the receipt.
    pub key: i64,
    session: SessionKey,
    kind: &'static str,
    opened_at: String,
}

impl OpenReceipt {
    /// Opens a receipt: from now on content of the session may be removed.
    pub fn new(
        write: &mut dyn StoreWrite,
        session: SessionKey,
        kind: &'static str,
    ) -> StoreResult<Self> {
        let opened_at = Time::now().as_str().to_owned();
        Ok(Self {
            key: write.open_receipt(session, kind, &opened_at)?,
            session,
            kind,
            opened_at,
        })
    }

    /// Closes the receipt.
    pub fn close(self, write: &mut dyn StoreWrite, receipt: &Receipt) -> StoreResult<i64> {
        let text = to_json(receipt)?;
        let digest = digest_of(self.session, self.kind, &self.opened_at, &text);
        close(write, self.key, &text, digest)?;
        Ok(self.key)
    }
}

impl Receipt {
    /// Returns a receipt for a session, with its loops only.
    #[doc(hidden)]
    pub fn of(
        read: &dyn StoreRead,
        key: SessionKey,
        session: SessionId,
        reason: Option<&str>,
    ) -> StoreResult<Self> {
        Ok(Self::of_loops(session, reason, read.loops(key)?))
    }

    /// Returns a receipt with these loops only.
    pub fn of_loops(session: SessionId, reason: Option<&str>, loops: Vec<super::LoopRow>) -> Self {
        let digest = |row: super::LoopRow| LoopDigest {
            messages: row.totals.next_seq,
            chain: hex::encode(row.progress.chain),
            loop_id: row.core.loop_id,
        };
        Self {
            session,
            reason: reason.map(str::to_owned),
            loops: loops.into_iter().map(digest).collect(),
            messages: Vec::new(),
            secrets: BTreeMap::new(),
            pieces: 0,
            counts: BTreeMap::new(),
            sources: Vec::new(),
            source_of: Vec::new(),
            sources_left: Vec::new(),
            shared: 0,
            named_by: Vec::new(),
        }
    }

    /// Reads a stored receipt; `None` if it is open or of another form.
    ///
    /// ```
    /// # use loopstore::extend as store;
    /// use loopstore::extend::receipt::is_genuine;
    /// use loopstore_admin::retention::{EraseRequest, Receipt, erase};
    /// use loopstore::*;
    ///
    /// # use loopstore::extend::{append, session};
    /// # let (store, id) = (SqliteStore::in_memory()?, SessionId::new("weather")?);
    /// # let new = Session::new(id.clone(), "agent");
    /// # let mut first = LoopRecord::new(LoopId::generate(), None);
    /// # first.status = LoopStatus::Completed;
    /// # store::write(&store, |write| {
    /// #     let key = session::create_session(write, &new, None, None)?;
    /// #     let loop_key = session::create_loop(write, key, &first)?;
    /// #     let message = AgentMessage::from(Message::user("Will it rain?"));
    /// #     append::append(write, loop_key, vec![message.into()], &HeuristicTokenCounter)
    /// # })?;
    /// let reason = Some("its user asked for it".into());
    /// erase(&store, &EraseRequest { reason: reason.clone(), ..EraseRequest::new(id) })?;
    /// store.scan(Box::new(|scan| {
    ///     let row = &scan.receipts()?[0];
    ///     assert_eq!(is_genuine(row), Some(true));
    ///     assert_eq!(Receipt::read(row).and_then(|receipt| receipt.reason), reason);
    ///     Ok(())
    /// }))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read(row: &ReceiptRow) -> Option<Self> {
        let stored: StoredReceipt = serde_json::from_str(&row.detail).ok()?;
        stored.receipt.read().ok()
    }
}

/// Returns `true` if a receipt is unchanged since it was closed; `None` if it is open or of another form.
pub fn is_genuine(row: &ReceiptRow) -> Option<bool> {
    let stored: StoredReceipt = serde_json::from_str(&row.detail).ok()?;
    Some(digest(row).is_some_and(|digest| hex::encode(digest) == stored.digest))
}

/// Returns the digest of a receipt's content; `None` if it is open or of another form.
#[doc(hidden)]
pub fn digest(row: &ReceiptRow) -> Option<[u8; 32]> {
    let stored: StoredReceipt = serde_json::from_str(&row.detail).ok()?;
    let text = stored.receipt.as_str();
    Some(digest_of(row.session, &row.kind, &row.opened_at, text))
}

/// Closes an open receipt of a session with the content of a receipt of another database. Returns `false` if that
/// receipt has another form.
///
/// # Errors
/// If the store fails.
#[doc(hidden)]
pub fn seal(
    write: &mut dyn StoreWrite,
    (opened, session): (i64, SessionKey),
    row: &ReceiptRow,
) -> StoreResult<bool> {
    let Ok(stored) = serde_json::from_str::<StoredReceipt>(&row.detail) else {
        return Ok(false);
    };
    let text = stored.receipt.as_str();
    let digest = digest_of(session, &row.kind, &row.opened_at, text);
    close(write, opened, text, digest)?;
    Ok(true)
}

/// Records a receipt in the chain of all receipts, and closes it.
fn close(write: &mut dyn StoreWrite, key: i64, text: &str, digest: [u8; 32]) -> StoreResult<()> {
    write.note_audit(RECEIPTS, &AuditEntry::new(AuditKind::Receipt, digest))?;
    let digest = hex::encode(digest);
    let detail = format!("{{\"receipt\":{text},\"digest\":\"{digest}\"}}");
    write.close_receipt(key, &detail)
}

fn digest_of(session: SessionKey, kind: &str, opened_at: &str, text: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(session.0.to_le_bytes());
    for part in [kind, opened_at, text] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}
