//! The report of `verify`.

use std::fmt::Display;

use loopstore::extend::{
    BlockKey, FlipKey, HideKey, LoopKey, ManifestKey, PinKey, RunKey, SessionKey, SourceKey,
    StoreError, StoreResult,
};
use loopstore::failpoints::{self, Failpoint};
use loopstore_files::copies::UnfinishedCopy;
use serde::Serialize;

/// The number of problems that are listed; more are only counted, since a database in which every row is
/// damaged must not fill the memory.
const MAX_PROBLEMS: usize = 1000;

/// The kind of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProblemKind {
    /// A problem that SQLite's own checks found: in pages, indexes or references between tables.
    Sqlite,
    /// A table, index, trigger or view that is missing or changed.
    Schema,
    /// A row that cannot be read, or a column of JSON with another text.
    Unreadable,
    /// Stored bytes that do not match their digest.
    Digest,
    /// A message that does not follow the message before it in the digest chain of its loop.
    Chain,
    /// A missing or surplus message or turn.
    Sequence,
    /// A turn whose row does not match its messages.
    Turn,
    /// The totals of a loop.
    Total,
    /// Tokens, bytes or another figure of one message or block.
    Count,
    /// The order in which things happened.
    Tick,
    /// The tree of loops.
    Parent,
    /// A session.
    Session,
    /// A blob, or the references to it.
    Blob,
    /// A kept source file.
    Source,
    /// A run, an undo or a redo.
    Run,
    /// A block and its sections.
    Block,
    /// The coverage of a block.
    Coverage,
    /// A call that is separated from its result.
    Pairs,
    /// A compaction that only its provider can read, and that is misplaced, duplicated, altered or orphaned.
    Sealed,
    /// A manifest that does not match its context.
    Manifest,
    /// An audit chain with a missing or surplus row.
    Audit,
    /// A head that does not match the database.
    Head,
    /// Content that was removed without a receipt, or a receipt that is still open.
    Receipt,
    /// A row that belongs to nothing.
    Stray,
    /// The number of problems that are not listed.
    More,
}

/// A problem that a check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The kind of damage.
    pub kind: ProblemKind,
    /// The place of the problem: `session S, loop L, message 3`.
    #[serde(rename = "where")]
    pub place: String,
    /// The value found, and the expected one.
    pub detail: String,
}

/// Nearly no database has edits, and then the report says nothing of them.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The number of rows checked, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Checked {
    /// Sessions.
    pub sessions: u64,
    /// Loops.
    pub loops: u64,
    /// Turns.
    pub turns: u64,
    /// Messages, extensions included.
    pub messages: u64,
    /// Compaction runs.
    pub runs: u64,
    /// Edits of messages.
    #[serde(skip_serializing_if = "is_zero")]
    pub edits: u64,
    /// Undos and redos.
    pub flips: u64,
    /// Pins, including pins that were removed.
    pub pins: u64,
    /// Changes of the visibility of sessions: hidden or shown again.
    pub hides: u64,
    /// Blocks.
    pub blocks: u64,
    /// Messages of blocks.
    pub block_messages: u64,
    /// Ranges of coverage.
    pub coverage: u64,
    /// Blobs.
    pub blobs: u64,
    /// Manifests.
    pub manifests: u64,
    /// Receipts.
    pub receipts: u64,
    /// Kept source files.
    pub sources: u64,
    /// Rows of audit chains.
    pub audit: u64,
}

/// The report of `verify`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// True if there is no problem.
    pub ok: bool,
    /// The number of rows checked.
    pub checked: Checked,
    /// The first thousand problems; a last entry has the number of the others.
    pub problems: Vec<Problem>,
    /// The faults of the search index. They are no problems, since the index is not part of the record:
    /// [`rebuild_index`](loopstore::extend::search::rebuild_index) rebuilds the index.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub index: Vec<String>,
    /// References to sessions that were erased or pruned, with the reason. They are no problems.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub explained: Vec<String>,
    /// True if bytes of removed content may still be in the file or its log, because a removal was killed or another
    /// program reads an older state. The next write removes the bytes. They are no problem of the record.
    #[serde(skip_serializing_if = "is_false")]
    pub unscrubbed: bool,
    /// Unfinished copies that killed processes left. They contain the content of the database at that time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<UnfinishedCopy>,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// The row that a problem belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Subject {
    /// The file, or a row that belongs to no session.
    #[default]
    Database,
    Receipt(i64),
    Session(SessionKey),
    Loop(LoopKey),
    Message(LoopKey, u32),
    Run(RunKey),
    Flip(FlipKey),
    Pin(PinKey),
    Hide(HideKey),
    Block(BlockKey),
    Manifest(ManifestKey),
    Import(i64),
    Blob(i64),
    Source(SourceKey),
}

/// The problems found so far.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// The row that is being checked.
    pub(super) subject: Subject,
    pub(super) checked: Checked,
    pub(super) index: Vec<String>,
    pub(super) explained: Vec<String>,
    problems: Vec<Problem>,
    /// The place of each problem.
    subjects: Vec<Subject>,
    more: u64,
}

impl Findings {
    pub(super) fn add(&mut self, kind: ProblemKind, place: impl Display, detail: impl Display) {
        let is_of_digest = matches!(kind, ProblemKind::Digest | ProblemKind::Chain);
        if is_of_digest && failpoints::is_active(Failpoint::UncheckedDigest) {
            return;
        }
        if self.problems.len() >= MAX_PROBLEMS {
            self.more += 1;
            return;
        }
        self.subjects.push(self.subject);
        self.problems.push(Problem {
            kind,
            place: place.to_string(),
            detail: detail.to_string(),
        });
    }

    /// Returns the problems, each with its row.
    pub(super) fn into_faults(self) -> Vec<(Subject, Problem)> {
        self.subjects.into_iter().zip(self.problems).collect()
    }

    /// Adds a problem if a stored value is not the derived one.
    pub(super) fn compare<T: PartialEq + std::fmt::Debug>(
        &mut self,
        kind: ProblemKind,
        place: impl Display,
        what: &str,
        stored: &T,
        derived: &T,
    ) {
        if stored != derived {
            let detail = format!("{what} is {stored:?} and should be {derived:?}");
            self.add(kind, place, detail);
        }
    }

    /// Converts damage into a problem; any other error ends the check.
    pub(super) fn readable<T>(
        &mut self,
        place: impl Display,
        result: StoreResult<T>,
    ) -> StoreResult<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(StoreError::Damaged(detail)) => {
                self.add(ProblemKind::Unreadable, place, detail);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    pub(super) fn into_report(mut self) -> VerifyReport {
        if self.more > 0 {
            self.problems.push(Problem {
                kind: ProblemKind::More,
                place: "database".into(),
                detail: format!("{} more problems", self.more),
            });
        }
        VerifyReport {
            ok: self.problems.is_empty(),
            checked: self.checked,
            problems: self.problems,
            index: self.index,
            explained: self.explained,
            unscrubbed: false,
            copies: Vec::new(),
        }
    }
}

/// Writes the beginning of a digest, which is enough to distinguish two.
pub(super) fn short(digest: &[u8; 32]) -> String {
    hex::encode(digest)[..12].to_owned()
}
