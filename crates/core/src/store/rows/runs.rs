//! Runs, undos and redos, manifests.

use super::{BlockKey, LoopKey, ManifestKey, RunKey, SessionKey, Size, Tick};
use crate::model::{Json, SessionId};

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is not over; its row is open.
    Running,
    /// Its blocks are active until undone.
    Committed,
    /// The context would not have become smaller.
    NoGain,
    /// A hook said no.
    Vetoed,
    /// The strategy or a check failed.
    Failed,
    /// Another run came first.
    Conflict,
    /// Whoever ran it is gone.
    Interrupted,
}

impl Outcome {
    const ALL: [Self; 7] = [
        Self::Running,
        Self::Committed,
        Self::NoGain,
        Self::Vetoed,
        Self::Failed,
        Self::Conflict,
        Self::Interrupted,
    ];

    /// Returns the word in SQL and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Committed => "committed",
            Self::NoGain => "no_gain",
            Self::Vetoed => "vetoed",
            Self::Failed => "failed",
            Self::Conflict => "conflict",
            Self::Interrupted => "interrupted",
        }
    }

    /// Reads the word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|outcome| outcome.as_str() == word)
    }
}

/// Where a run, a flip or a pin was made: a loop, and how many complete turns it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// The leaf.
    pub loop_key: LoopKey,
    /// Its complete turns.
    pub turns: u32,
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
    /// The configuration that was asked for, as JSON.
    pub config: String,
    /// Tokens of summarisers as JSON.
    pub usage: Option<String>,
    /// Digest of the plan.
    pub plan: [u8; 32],
    /// What another tool recorded.
    pub record: Option<String>,
    /// Its events as a JSON array.
    pub events: Option<String>,
    /// The configuration that was reached, as JSON; `None`: the one that was asked for.
    pub reached: Option<String>,
}

impl RunRow {
    /// Returns its events.
    pub fn noted_events(&self) -> Vec<Json> {
        noted_events(self.events.as_deref())
    }
}

/// Returns the events in a column of `runs`; none if they cannot be read.
pub(in crate::store) fn noted_events(events: Option<&str>) -> Vec<Json> {
    let events = events.and_then(|events| Json::parse(events).ok());
    events
        .and_then(|events| events.read().ok())
        .unwrap_or_default()
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

/// A row of `pins`: a message is pinned, or no longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinRow {
    /// The loop of the message.
    pub loop_key: LoopKey,
    /// Its sequence.
    pub seq: u32,
    /// Whether it is pinned afterwards.
    pub pinned: bool,
    /// Where it was made.
    pub point: Point,
    /// When.
    pub tick: Tick,
    /// ISO-8601 text.
    pub at: String,
}

/// A row of `hides`: a session is hidden, or no longer. Each gives it another id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HideRow {
    /// Whether it is hidden afterwards.
    pub hidden: bool,
    /// The id before.
    pub was: SessionId,
    /// The id since.
    pub session_id: SessionId,
    /// When.
    pub tick: Tick,
    /// ISO-8601 text.
    pub at: String,
}

/// A row of `heads`: where all chains of the database ended at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadRow {
    /// SHA-256 of the content before it was compressed.
    pub sha256: [u8; 32],
    /// ISO-8601 text.
    pub taken_at: String,
    /// The content as raw DEFLATE.
    pub content: Vec<u8>,
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
