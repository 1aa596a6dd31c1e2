//! What the tables hold, as plain values. Keys are a backend's own integers.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

pub use crate::model::{Layout, Size, Turns};
use crate::model::{LoopId, LoopStatus, Role, SessionId};

// The default of a key stands in a row that is not stored yet.
macro_rules! key {
    ($($(#[$meta:meta])* $name:ident),* $(,)?) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub(crate) i64);
    )*};
}

key! {
    /// A session within its database.
    SessionKey,
    /// A loop within its database. A parent's key is always smaller than its child's.
    LoopKey,
    /// A compaction run within its database.
    RunKey,
    /// A block within its database.
    BlockKey,
    /// An undo or redo within its database.
    FlipKey,
    /// A kept file within its database.
    SourceKey,
    /// A manifest within its database.
    ManifestKey,
}

/// A moment of a session: everything with this tick or an earlier one has happened.
pub type Tick = i64;

/// A row of `sessions`.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionRow {
    /// Its key.
    pub key: SessionKey,
    /// Its public id.
    pub session_id: SessionId,
    /// The agent.
    pub agent_id: Option<String>,
    /// A title for people.
    pub title: Option<String>,
    /// ISO-8601 text.
    pub created_at: Option<String>,
    /// ISO-8601 text.
    pub last_active_at: Option<String>,
    /// The loop last appended to or created.
    pub current_loop: Option<LoopKey>,
    /// The session's clock.
    pub tick: Tick,
    /// The format that it was imported from.
    pub source: Option<String>,
    /// The interchange form without loops.
    pub meta: String,
}

/// What changes of a session with all that happens in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionActivity {
    /// Its key.
    pub key: SessionKey,
    /// ISO-8601 text.
    pub last_active_at: Option<String>,
    /// The loop last appended to or created.
    pub current_loop: Option<LoopKey>,
    /// The session's clock.
    pub tick: Tick,
}

impl From<&SessionRow> for SessionActivity {
    fn from(row: &SessionRow) -> Self {
        Self {
            key: row.key,
            last_active_at: row.last_active_at.clone(),
            current_loop: row.current_loop,
            tick: row.tick,
        }
    }
}

/// What was decided about a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionFlags {
    /// Since when prune leaves it alone, as ISO-8601 text; `None`: it does not.
    pub pinned_at: Option<String>,
    /// Whether what is imported into it is redacted first.
    pub redacts: bool,
}

/// What is left of a message that was redacted: the digest of what stands there now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redaction {
    /// The receipt of the redaction.
    pub receipt: i64,
    /// The salt of that digest.
    pub salt: [u8; 16],
    /// SHA-256 of salt and stored bytes.
    pub digest: [u8; 32],
}

/// What a loop holds, as kept by each append.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoopTotals {
    /// Messages stored, extensions included: the next sequence.
    pub next_seq: u32,
    /// Messages before this sequence are sealed.
    pub sealed_seq: u32,
    /// Turn groups.
    pub turns: u32,
    /// Turn groups that are not in flight.
    pub complete: u32,
    /// Messages that are no extension.
    pub messages: u64,
    /// Tokens of these.
    pub tokens: u64,
    /// Bytes of these as JSON.
    pub bytes: u64,
    /// The newest generation of a block on this loop.
    pub generation: u32,
}

/// What else of a loop the next append goes on from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoopProgress {
    /// Tokens of extensions of kind `system`.
    pub system_tokens: u64,
    /// The source's index of the last turn group.
    pub last_turn_index: Option<i64>,
    /// Calls without a result, and the turn that made them.
    pub open_calls: BTreeMap<String, u32>,
    /// The digest chain through the last message.
    pub chain: [u8; 32],
}

/// What a chain needs of a loop: where it stands, and how much it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopCore {
    /// Its key.
    pub key: LoopKey,
    /// Its session.
    pub session: SessionKey,
    /// Its public id.
    pub loop_id: LoopId,
    /// The loop that it goes on from, if that is in the same session.
    pub parent: Option<LoopKey>,
    /// The last turn of the parent that belongs to this loop's chain; `None`: no turn of it.
    pub parent_turn: Option<u32>,
    /// Where it stands.
    pub status: LoopStatus,
    /// What it holds.
    pub totals: LoopTotals,
}

/// A row of `loops`: the core, which can be asked for as if it were the row's own, and what else
/// appending and showing need.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopRow {
    /// What a chain needs.
    pub core: LoopCore,
    /// The parent as the source names it.
    pub parent_loop_id: Option<LoopId>,
    /// The continuation kind as JSON.
    pub kind: String,
    /// ISO-8601 text.
    pub started_at: Option<String>,
    /// ISO-8601 text.
    pub ended_at: Option<String>,
    /// When it was created.
    pub tick: Tick,
    /// What the next append goes on from.
    pub progress: LoopProgress,
}

impl Deref for LoopRow {
    type Target = LoopCore;

    fn deref(&self) -> &LoopCore {
        &self.core
    }
}

impl DerefMut for LoopRow {
    fn deref_mut(&mut self) -> &mut LoopCore {
        &mut self.core
    }
}

impl LoopCore {
    /// Returns how many turns of the parent belong to this loop's chain.
    pub fn parent_turns(&self) -> u32 {
        self.parent_turn.map_or(0, |turn| turn.saturating_add(1))
    }
}

/// What a loop's source said of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoopMeta {
    /// The interchange form without messages, turns and events.
    pub meta: String,
    /// Recorded turns and events.
    pub history: Option<String>,
}

/// A message without what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageSize {
    /// Its place in the loop.
    pub seq: u32,
    /// Its turn group.
    pub turn: Option<u32>,
    /// Its role.
    pub role: Role,
    /// Its size.
    pub size: Size,
    /// Lines of the longest text of a tool result.
    pub lines: Option<u32>,
}

/// A block with what is needed to tell whether it is in force.
#[derive(Clone, Debug, PartialEq)]
pub struct Generation {
    /// The block.
    pub block: BlockCore,
    /// Where its run was made.
    pub point: Point,
    /// When its run was committed.
    pub tick: Tick,
}

/// A row of `turns`: one turn group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TurnRow {
    /// Its position in the loop.
    pub turn: u32,
    /// The sequence of its first message.
    pub first_seq: u32,
    /// Messages of the loop through this turn.
    pub messages: u64,
    /// User messages of the loop through this turn.
    pub prompts: u64,
    /// Tokens of the loop through this turn.
    pub tokens: u64,
    /// Bytes of the loop through this turn.
    pub bytes: u64,
    /// The source's index.
    pub turn_index: Option<i64>,
    /// Whether the model answered.
    pub answered: bool,
    /// Other turns that hold a call answered here.
    pub answers: Vec<CallSite>,
    /// When it was last appended to.
    pub tick: Tick,
    /// Milliseconds since the epoch.
    pub started_at: Option<i64>,
    /// Milliseconds since the epoch.
    pub ended_at: Option<i64>,
}

/// The turn that holds a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallSite {
    /// Its loop.
    pub loop_key: LoopKey,
    /// The turn.
    pub turn: u32,
}

/// A row of `messages`.
#[derive(Clone, Debug, PartialEq)]
pub struct MessageRow {
    /// Its place in the loop.
    pub seq: u32,
    /// Its turn group; `None` for an extension before the first.
    pub turn: Option<u32>,
    /// When it was appended.
    pub tick: Tick,
    /// What it says.
    pub body: StoredMessage,
    /// Milliseconds since the epoch.
    pub created_at: Option<i64>,
    /// Keyed digest of the record that it was imported from.
    pub origin: Option<[u8; 32]>,
    /// The digest chain through this message.
    pub chain: [u8; 32],
}

/// A message in its stored form: small JSON, the largest text apart, images in blobs.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredMessage {
    /// Its role.
    pub role: Role,
    /// Its tokens.
    pub tokens: u64,
    /// The size of its JSON.
    pub bytes: u64,
    /// Lines of the longest text of a tool result.
    pub lines: Option<u32>,
    /// The content block whose text is `text`.
    pub text_block: Option<u32>,
    /// The random salt of its digest; `None` once redacted.
    pub salt: Option<[u8; 16]>,
    /// SHA-256 of salt and stored bytes.
    pub digest: [u8; 32],
    /// The interchange form with that text left empty; `None` once redacted or archived.
    pub head: Option<String>,
    /// The largest text.
    pub text: Option<String>,
}

/// Content that stands apart from its message, named by its SHA-256.
#[derive(Clone, Debug, PartialEq)]
pub struct Blob {
    /// Its name.
    pub sha256: [u8; 32],
    /// Its bytes.
    pub data: Vec<u8>,
}

/// A row of `blobs`.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredBlob {
    /// Its name.
    pub sha256: [u8; 32],
    /// The noted length.
    pub bytes: u64,
    /// Its bytes.
    pub data: Vec<u8>,
}

/// A row of `imports`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportRow {
    /// The format.
    pub format: String,
    /// The file, as it was given.
    pub path: String,
    /// The file's name without folders.
    pub file_name: String,
    /// The record's own key.
    pub record_key: Option<String>,
}

/// A row of `sources`: a file that sessions were imported from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceRow {
    /// Its key.
    pub key: SourceKey,
    /// The format.
    pub format: String,
    /// The whole path of the file.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// SHA-256 of the names of its parts, in order.
    pub digest: [u8; 32],
}

/// A part of a kept file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourcePart {
    /// Of the bytes as they stood in the file.
    pub sha256: [u8; 32],
    /// How many these are.
    pub bytes: u64,
}

/// The bytes of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePiece {
    /// Of the bytes as they stood in the file.
    pub sha256: [u8; 32],
    /// How many these are.
    pub bytes: u64,
    /// The bytes, packed.
    pub data: Vec<u8>,
}

/// A row of `maintenance`: the receipt of something that removed content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiptRow {
    /// Its key.
    pub key: i64,
    /// The session; it may be gone.
    pub session: SessionKey,
    /// `erase`, `redact`, `prune` or `archive`.
    pub kind: String,
    /// ISO-8601 text.
    pub opened_at: String,
    /// ISO-8601 text; `None` while content may be removed.
    pub closed_at: Option<String>,
    /// What was removed.
    pub detail: String,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its blocks are in force until undone.
    Committed,
    /// The context would not have become smaller.
    NoGain,
    /// A hook said no.
    Vetoed,
    /// The strategy or a check failed.
    Failed,
    /// Another run came first.
    Conflict,
}

impl Outcome {
    const ALL: [Self; 5] = [
        Self::Committed,
        Self::NoGain,
        Self::Vetoed,
        Self::Failed,
        Self::Conflict,
    ];

    /// Returns the word in SQL and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::NoGain => "no_gain",
            Self::Vetoed => "vetoed",
            Self::Failed => "failed",
            Self::Conflict => "conflict",
        }
    }

    /// Reads the word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|outcome| outcome.as_str() == word)
    }
}

/// Where a run or a flip was made: a loop, and how many complete turns it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// The leaf.
    pub loop_key: LoopKey,
    /// Its complete turns.
    pub turns: u32,
}

impl TurnRow {
    /// Returns the size of the loop through this turn.
    pub fn size(&self) -> Size {
        Size {
            tokens: self.tokens,
            bytes: self.bytes,
            messages: self.messages,
        }
    }
}

/// A row of `runs`: the audit row of one attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRow {
    /// Its key.
    pub key: RunKey,
    /// Its session.
    pub session: SessionKey,
    /// Its public id.
    pub run_id: String,
    /// Where it was made.
    pub point: Point,
    /// When it was written.
    pub tick: Tick,
    /// What asked for it: `manual`, `headroom`, `force` …
    pub trigger: String,
    /// What made the text.
    pub strategy: String,
    /// Counts the committed runs of the chain from 1.
    pub round: u32,
    /// How it ended.
    pub outcome: Outcome,
    /// The last fallback that it needed.
    pub fallback: Option<String>,
    /// What went wrong.
    pub error: Option<String>,
    /// The scope as text.
    pub scope: String,
    /// `skip` or `rollup`.
    pub older_loops: String,
    /// The token counter.
    pub counter: String,
    /// The context before.
    pub before: Size,
    /// The context after, or as it would have been.
    pub after: Size,
    /// ISO-8601 text.
    pub started_at: String,
    /// Milliseconds.
    pub duration_ms: u64,
    /// The configuration as JSON.
    pub config: String,
    /// Tokens of summarisers as JSON.
    pub usage: Option<String>,
    /// Digest of the plan.
    pub plan: [u8; 32],
    /// What another tool recorded.
    pub record: Option<String>,
    /// Its events as a JSON array.
    pub events: Option<String>,
}

/// An undo or a redo of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct FlipRow {
    /// The run.
    pub run: RunKey,
    /// Whether the run is live afterwards.
    pub redo: bool,
    /// Where it was made.
    pub point: Point,
    /// When.
    pub tick: Tick,
    /// ISO-8601 text.
    pub at: String,
    /// Why.
    pub reason: Option<String>,
}

/// A row of `manifests`: which messages a context was made of.
#[derive(Clone, Debug, PartialEq)]
pub struct ManifestRow {
    /// Its key.
    pub key: ManifestKey,
    /// Its public id.
    pub manifest_id: String,
    /// Its session.
    pub session: SessionKey,
    /// The leaf.
    pub leaf: LoopKey,
    /// The moment of the context.
    pub tick: Tick,
    /// ISO-8601 text.
    pub recorded_at: String,
    /// `skip` or `rollup`. With `skip` the first part tells where the context begins.
    pub older_loops: String,
    /// Where the messages are, in order.
    pub parts: Vec<ManifestPart>,
    /// The size of the context.
    pub size: Size,
    /// The token counter.
    pub counter: String,
    /// SHA-256 over the digests of the messages in order.
    pub sha256: [u8; 32],
}

/// Consecutive messages of a context from one section of one loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestPart {
    /// The loop.
    pub loop_key: LoopKey,
    /// `rollup`, `first`, `compacted`, `recent`, `tail` or `raw`.
    pub section: String,
    /// The block that the section is of.
    pub block: Option<BlockKey>,
    /// The first and the last original; `None`: the messages are those of the block.
    pub seqs: Option<(u32, u32)>,
    /// How many messages they are.
    pub messages: u64,
}

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// On the leaf of its run.
    Current,
    /// On a loop before that.
    Earlier,
    /// It also covers every loop before its own.
    Rollup,
}

impl BlockKind {
    const ALL: [Self; 3] = [Self::Current, Self::Earlier, Self::Rollup];

    /// Returns the word in SQL and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Earlier => "earlier",
            Self::Rollup => "rollup",
        }
    }

    /// Reads the word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// What a chain needs of a block: what it covers, and how much it shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockCore {
    /// Its key.
    pub key: BlockKey,
    /// The loop that it stands on.
    pub loop_key: LoopKey,
    /// Its number on that loop, from 1.
    pub generation: u32,
    /// The run that wrote it.
    pub run: RunKey,
    /// What it is.
    pub kind: BlockKind,
    /// The rollup that it goes on from.
    pub extends: Option<BlockKey>,
    /// Its sections.
    pub layout: Layout,
    /// Sequences before this one are covered.
    pub through: u32,
    /// What its sections show.
    pub size: Size,
}

/// A row of `blocks`: the core, which can be asked for as if it were the row's own, and what else
/// compacting again and showing need.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockRow {
    /// What a chain needs.
    pub core: BlockCore,
    /// Tokens of what it covers.
    pub tokens_covered: u64,
    /// What made the text.
    pub strategy: String,
    /// The configuration that shaped it.
    pub shaping: String,
    /// ISO-8601 text.
    pub created_at: String,
    /// Fields of a foreign block.
    pub extra: Option<String>,
}

impl Deref for BlockRow {
    type Target = BlockCore;

    fn deref(&self) -> &BlockCore {
        &self.core
    }
}

impl DerefMut for BlockRow {
    fn deref_mut(&mut self) -> &mut BlockCore {
        &mut self.core
    }
}

/// A section that has messages of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// `keep_compacted`.
    Compacted,
    /// `keep_recent`.
    Recent,
}

/// A row of `block_messages`.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockMessage {
    /// Where it stands.
    pub section: Section,
    /// The original that it replaces.
    pub replaces: Option<u32>,
    /// What it says; `None`: the original is dropped.
    pub body: Option<StoredMessage>,
}

/// What happened to a message or a turn that a block covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Disposition {
    /// Shown word for word.
    Kept,
    /// Shown with its tool output cut.
    Truncated,
    /// The replacement holds something made from it.
    Summarised,
    /// Nothing of it is shown.
    Dropped,
    /// The whole loop went into a summary that stands on another loop.
    RolledUp,
}

impl Disposition {
    /// All of them, in the order of the JSON.
    pub const ALL: [Self; 5] = [
        Self::Kept,
        Self::Truncated,
        Self::Summarised,
        Self::Dropped,
        Self::RolledUp,
    ];

    /// Returns the word in SQL and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Truncated => "truncated",
            Self::Summarised => "summarised",
            Self::Dropped => "dropped",
            Self::RolledUp => "rolled_up",
        }
    }

    /// Reads the word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|disposition| disposition.as_str() == word)
    }
}

/// A row of `coverage`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoverageRow {
    /// The loop that is covered.
    pub loop_key: LoopKey,
    /// Sequences, both ends inclusive; `None` for a loop without messages.
    pub seqs: Option<(u32, u32)>,
    /// Turns, both ends inclusive.
    pub turns: Option<(u32, u32)>,
    /// What happened.
    pub disposition: Disposition,
}

/// A block with what belongs to it, as a run writes it.
#[derive(Clone, Debug, PartialEq)]
pub struct NewBlock {
    /// The row; its key, generation and run are given by the store.
    pub row: BlockRow,
    /// The messages that differ from the originals.
    pub messages: Vec<BlockMessage>,
    /// What happened to what it covers.
    pub coverage: Vec<CoverageRow>,
    /// Blobs that its messages show.
    pub blobs: Vec<Blob>,
}
