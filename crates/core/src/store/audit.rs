//! The audit chain: what was done to a session, in order, so that a row that was taken out is missed.
//!
//! Each run, undo, redo, pin, hide, manifest and note of an import has a row in the chain of its session, and each
//! receipt has one in the chain of all receipts, which outlive their sessions. A row holds the digest of
//! what it stands for, and a chain digest over the row before. The session keeps number and chain digest
//! of its newest row: so the newest is missed as well. A row that is redacted gets a further row in the
//! chain, which names the digest that it had before. Backends write the chain row before what it stands
//! for, and their triggers refuse anything else.

use std::collections::BTreeMap;

use super::digest::FieldDigest;
use super::rows::{BlockKey, FlipKey, RunKey, SessionKey};
use super::scan::StoreScan;
use super::{StoreError, StoreResult, digest};

/// The chain of all receipts, in the place of a session.
pub const RECEIPTS: SessionKey = SessionKey(0);

/// What a row of an audit chain stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AuditKind {
    /// A run of compaction.
    Run,
    /// An undo or a redo.
    Flip,
    /// A pin, or its end.
    Pin,
    /// A session was hidden, or came back.
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

    /// Reads the word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// What is noted in an audit chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// What it stands for.
    pub kind: AuditKind,
    /// The digest of that.
    pub digest: [u8; 32],
    /// The digest that it had before.
    pub was: Option<[u8; 32]>,
}

impl AuditEntry {
    /// Something new.
    pub fn new(kind: AuditKind, digest: [u8; 32]) -> Self {
        let was = None;
        Self { kind, digest, was }
    }
}

/// The newest row of an audit chain: its number, from 1, and its chain digest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditEnd {
    /// How many rows there are.
    pub seq: u64,
    /// Zeros before the first.
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
    /// What it says.
    pub entry: AuditEntry,
}

/// A chain as it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditChain {
    /// What the session, or the database for its receipts, says of the newest row.
    pub end: AuditEnd,
    /// The rows in order.
    pub rows: Vec<AuditRow>,
}

impl AuditChain {
    /// Whether it goes on from row to row, ends where it should, and stands for exactly these.
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

/// Returns what the audit chain of a session stands for, as it is stored now: where it came from, its runs,
/// flips, pins and hides in order, and its manifests.
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
            None => digest::run(&row, &scan.block_digests(key)?),
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

/// The digests that a chain says are stored now, by kind, each with how often.
#[derive(Debug, Default)]
#[doc(hidden)]
pub struct AuditedDigests(BTreeMap<(AuditKind, [u8; 32]), u64>);

impl AuditedDigests {
    /// Takes a row of the chain in; `false` if it changes what was not there.
    pub fn apply(&mut self, entry: &AuditEntry) -> bool {
        let had = entry.was.is_none_or(|was| self.take(entry.kind, was));
        *self.0.entry((entry.kind, entry.digest)).or_default() += 1;
        had
    }

    /// Takes a digest away; `false` if it is not there.
    pub fn take(&mut self, kind: AuditKind, digest: [u8; 32]) -> bool {
        match self.0.get_mut(&(kind, digest)) {
            Some(count) if *count > 0 => {
                *count -= 1;
                true
            }
            _ => false,
        }
    }

    /// Returns what was not taken away.
    pub fn rest(&self) -> impl Iterator<Item = (AuditKind, [u8; 32], u64)> {
        let left = self.0.iter().filter(|(_, count)| **count > 0);
        left.map(|((kind, digest), count)| (*kind, *digest, *count))
    }
}

/// The digest of a stored row, as it stands and as what the row holds now would have it.
pub struct RowDigest {
    /// The session of the row.
    pub session: SessionKey,
    /// The digest that is stored.
    pub stored: [u8; 32],
    /// The digest of what the row holds now.
    pub derived: [u8; 32],
    /// How it stands in the audit chain; a block stands there with its run.
    pub kind: Option<AuditKind>,
    /// The run of a block.
    pub run: Option<RunKey>,
}

/// Tables with texts whose digest is derived anew when they change.
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
            let derived = digest::run(&row, &scan.block_digests(row.key)?);
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
