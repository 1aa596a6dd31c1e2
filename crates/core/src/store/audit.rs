//! The audit chain: the operations on a session, in order, so that a removed row is detected.
//!
//! Each run, undo, redo, pin, hide, manifest and note of an import has a row in the chain of its session, and each
//! receipt has one in the chain of all receipts, which outlive their sessions. A row has the digest of the
//! recorded row, and a chain digest over the chain row before. The session keeps number and chain digest
//! of its newest row, so that the removal of the newest is detected as well. A redacted row gets a further
//! row in the chain, with the digest that it had before. Backends write the chain row before the recorded
//! row, and their triggers reject any other order.

use std::collections::BTreeMap;

use super::digest::FieldDigest;
use super::rows::{BlockKey, FlipKey, RunKey, SessionKey};
use super::scan::StoreScan;
use super::{StoreError, StoreResult, digest};

/// The chain of all receipts, in the place of a session.
pub const RECEIPTS: SessionKey = SessionKey(0);

/// The kind of row that a row of an audit chain records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AuditKind {
    /// A run of compaction.
    Run,
    /// An undo or a redo.
    Flip,
    /// A pin, or its end.
    Pin,
    /// A session was hidden or shown again.
    Hide,
    /// A manifest.
    Manifest,
    /// The note of an import.
    Import,
    /// A receipt.
    Receipt,
}

impl AuditKind {
    const ALL: [Self; 7] = [
        Self::Run,
        Self::Flip,
        Self::Pin,
        Self::Hide,
        Self::Manifest,
        Self::Import,
        Self::Receipt,
    ];

    /// Returns the word in SQL.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Flip => "flip",
            Self::Pin => "pin",
            Self::Hide => "hide",
            Self::Manifest => "manifest",
            Self::Import => "import",
            Self::Receipt => "receipt",
        }
    }

    /// Returns the kind for a word in SQL.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// The content of a row of an audit chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// The kind of the recorded row.
    pub kind: AuditKind,
    /// The digest of the recorded row.
    pub digest: [u8; 32],
    /// The digest that the recorded row had before; `None` for a new row.
    pub was: Option<[u8; 32]>,
}

impl AuditEntry {
    /// Returns the entry for a new row.
    pub fn new(kind: AuditKind, digest: [u8; 32]) -> Self {
        let was = None;
        Self { kind, digest, was }
    }
}

/// The newest row of an audit chain: its number, from 1, and its chain digest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditEnd {
    /// The number of the newest row; 0 without rows.
    pub seq: u64,
    /// The chain digest of the newest row; zeros without rows.
    pub chain: [u8; 32],
}

impl AuditEnd {
    /// Returns the end of the chain of `session` with one more row.
    pub fn with(&self, session: SessionKey, entry: &AuditEntry) -> Self {
        let seq = self.seq + 1;
        let mut fields = FieldDigest::new("audit");
        fields.number(session.0);
        fields.bytes(&self.chain);
        fields.count(seq);
        fields.text(entry.kind.as_str());
        fields.bytes(&entry.digest);
        fields.bytes(entry.was.as_ref().map_or(&[], |was| &was[..]));
        let chain = fields.finish();
        Self { seq, chain }
    }
}

/// A row of `audit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditRow {
    /// Its number and chain digest.
    pub end: AuditEnd,
    /// The recorded row.
    pub entry: AuditEntry,
}

/// An audit chain as stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditChain {
    /// The newest row according to the session, or to the database for receipts.
    pub end: AuditEnd,
    /// The rows in order.
    pub rows: Vec<AuditRow>,
}

impl AuditChain {
    /// True if each row continues the row before it, the last row is the end, and the chain records exactly the
    /// digests `stored`.
    #[doc(hidden)]
    pub fn fits(&self, session: SessionKey, stored: &[AuditEntry]) -> bool {
        let (mut end, mut audited) = (AuditEnd::default(), AuditedDigests::default());
        for row in &self.rows {
            end = end.with(session, &row.entry);
            if row.end != end || !audited.apply(&row.entry) {
                return false;
            }
        }
        end == self.end
            && stored
                .iter()
                .all(|entry| audited.take(entry.kind, entry.digest))
            && audited.rest().next().is_none()
    }
}

/// Returns the entries that the audit chain of a session must have, derived from the stored rows: its imports,
/// runs, flips, pins and hides in order, and its manifests.
#[doc(hidden)]
pub fn stored_entries(scan: &dyn StoreScan, session: SessionKey) -> StoreResult<Vec<AuditEntry>> {
    let mut entries = Vec::new();
    for key in scan.import_keys(session)? {
        let (_, digest) = scan.import_and_digest(key)?;
        entries.push(AuditEntry::new(AuditKind::Import, digest));
    }
    let mut moments = Vec::new();
    for key in scan.run_keys(session)? {
        let (row, stored) = scan.run_and_digest(key)?;
        let digest = match stored {
            Some(digest) => digest,
            None => digest::run(&row, &scan.part_digests(key)?),
        };
        moments.push((row.tick, AuditEntry::new(AuditKind::Run, digest)));
    }
    for key in scan.flip_keys(session)? {
        let (row, digest) = scan.flip_and_digest(key)?;
        moments.push((row.tick, AuditEntry::new(AuditKind::Flip, digest)));
    }
    for key in scan.pin_keys(session)? {
        let (row, digest) = scan.pin_and_digest(key)?;
        moments.push((row.tick, AuditEntry::new(AuditKind::Pin, digest)));
    }
    for key in scan.hide_keys(session)? {
        let (row, digest) = scan.hide_and_digest(key)?;
        moments.push((row.tick, AuditEntry::new(AuditKind::Hide, digest)));
    }
    moments.sort_by_key(|(tick, _)| *tick);
    entries.extend(moments.into_iter().map(|(_, entry)| entry));
    for key in scan.manifest_keys(session)? {
        let (_, digest) = scan.manifest_and_digest(key)?;
        entries.push(AuditEntry::new(AuditKind::Manifest, digest));
    }
    Ok(entries)
}

/// The digests that the tables must contain according to an audit chain, by kind, each with its count.
#[derive(Debug, Default)]
#[doc(hidden)]
pub struct AuditedDigests(BTreeMap<(AuditKind, [u8; 32]), u64>);

impl AuditedDigests {
    /// Applies a row of the chain; returns `false` if the row changes a digest that was not recorded.
    pub fn apply(&mut self, entry: &AuditEntry) -> bool {
        let had = entry.was.is_none_or(|was| self.take(entry.kind, was));
        *self.0.entry((entry.kind, entry.digest)).or_default() += 1;
        had
    }

    /// Removes a digest; returns `false` if there is none.
    pub fn take(&mut self, kind: AuditKind, digest: [u8; 32]) -> bool {
        match self.0.get_mut(&(kind, digest)) {
            Some(count) if *count > 0 => {
                *count -= 1;
                true
            }
            _ => false,
        }
    }

    /// Returns the digests that were not removed.
    pub fn rest(&self) -> impl Iterator<Item = (AuditKind, [u8; 32], u64)> {
        let left = self.0.iter().filter(|(_, count)| **count > 0);
        left.map(|((kind, digest), count)| (*kind, *digest, *count))
    }
}

/// The digest of a row, as stored and as derived from the row's present content.
pub struct RowDigest {
    /// The session of the row.
    pub session: SessionKey,
    /// The digest that is stored.
    pub stored: [u8; 32],
    /// The digest of the present content.
    pub derived: [u8; 32],
    /// The kind of its entry in the audit chain; a block has none, as its run's entry covers it.
    pub kind: Option<AuditKind>,
    /// The run of a block.
    pub run: Option<RunKey>,
}

/// The tables with texts whose digest is derived again when they change.
pub const DIGESTED: [&str; 4] = ["runs", "flips", "blocks", "imports"];

/// Derives the digest of a row of one of the [`DIGESTED`] tables.
pub fn row_digest(scan: &dyn StoreScan, table: &str, key: i64) -> StoreResult<RowDigest> {
    let row_digest = |session, (stored, derived), kind| RowDigest {
        session,
        stored,
        derived,
        kind: Some(kind),
        run: None,
    };
    match table {
        "runs" => {
            let (row, stored) = scan.run_and_digest(RunKey(key))?;
            let derived = digest::run(&row, &scan.part_digests(row.key)?);
            Ok(row_digest(
                row.session,
                (stored.unwrap_or(derived), derived),
                AuditKind::Run,
            ))
        }
        "flips" => {
            let (row, stored) = scan.flip_and_digest(FlipKey(key))?;
            let session = scan.run_by_key(row.run)?.session;
            let digests = (stored, digest::flip(&row));
            Ok(row_digest(session, digests, AuditKind::Flip))
        }
        "imports" => {
            let (row, stored) = scan.import_and_digest(key)?;
            let digests = (stored, digest::import(&row));
            Ok(row_digest(row.session, digests, AuditKind::Import))
        }
        "blocks" => {
            let (row, stored) = scan.block_and_digest(BlockKey(key))?;
            let messages = scan.block_messages(row.key)?;
            let coverage = scan.coverage(row.key)?;
            Ok(RowDigest {
                session: scan.loop_by_key(row.loop_key)?.session,
                stored,
                derived: digest::block(&row, &messages, &coverage),
                kind: None,
                run: Some(row.run),
            })
        }
        _ => Err(StoreError::Invalid(format!("{table} has no digests"))),
    }
}
