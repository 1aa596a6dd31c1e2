//! Runs, undos and redos, manifests.

use super::{BlockKey, LoopKey, ManifestKey, RunKey, SessionKey, Size, Tick};
use crate::model::{Json, SealingProvider, SessionId};

/// The outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The run has not ended; its row is open.
    Running,
    /// Its blocks are active until undone.
    Committed,
    /// The context would not have become smaller.
    NoGain,
    /// A hook refused the compaction.
    Vetoed,
    /// The strategy or a check failed.
    Failed,
    /// Another run came first.
    Conflict,
    /// The process of the run ended before the run did.
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

    /// Returns the outcome for a word in SQL and JSON.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|outcome| outcome.as_str() == word)
    }
}

/// The position at which a run, a flip or a pin was made: a loop, and its number of complete turns then.
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
    /// The position of the leaf at the time.
    pub point: Point,
    /// The tick at which the run was written.
    pub tick: Tick,
    /// The trigger: `manual`, `headroom`, `force` …
    pub trigger: String,
    /// The strategy that made the text.
    pub strategy: String,
    /// The number of the run among the committed runs of the chain, from 1.
    pub round: u32,
    /// The outcome.
    pub outcome: Outcome,
    /// The last fallback that the run needed.
    pub fallback: Option<String>,
    /// The error, if the run failed.
    pub error: Option<String>,
    /// The scope as text.
    pub scope: String,
    /// `skip` or `rollup`.
    pub older_loops: String,
    /// The token counter.
    pub counter: String,
    /// The context before.
    pub before: Size,
    /// The context after the run, or as it would have been.
    pub after: Size,
    /// ISO-8601 text.
    pub started_at: String,
    /// The duration in milliseconds.
    pub duration_ms: u64,
    /// The requested configuration, as JSON.
    pub config: String,
    /// Tokens of summarisers as JSON.
    pub usage: Option<String>,
    /// Digest of the plan.
    pub plan: [u8; 32],
    /// The record of another tool, if it made the compaction.
    pub record: Option<String>,
    /// Its events as a JSON array.
    pub events: Option<String>,
    /// The configuration that was used in the end, as JSON; the requested one if `None`.
    pub reached: Option<String>,
}

/// The trigger of a run that writes edits and no blocks.
pub const EDIT_TRIGGER: &str = "edit";

impl RunRow {
    /// True if the run wrote edits and no blocks.
    pub fn is_edit(&self) -> bool {
        self.trigger == EDIT_TRIGGER
    }

    /// Returns the reason that was given for its edits.
    pub fn edit_reason(&self) -> Option<String> {
        #[derive(serde::Deserialize)]
        struct EditConfig {
            reason: Option<String>,
        }
        let config = serde_json::from_str::<EditConfig>(&self.config).ok();
        config.filter(|_| self.is_edit())?.reason
    }

    /// Returns the provider that made the compaction, if only that provider can read it. The edits that a provider
    /// applied have the same strategy and are none.
    pub fn sealed_by(&self) -> Option<SealingProvider> {
        SealingProvider::of_strategy(&self.strategy).filter(|_| !self.is_edit())
    }

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
    /// True for a redo: the run is live afterwards.
    pub redo: bool,
    /// The position of the leaf at the time.
    pub point: Point,
    /// The tick at which it was written.
    pub tick: Tick,
    /// ISO-8601 text.
    pub at: String,
    /// The reason, if one was given.
    pub reason: Option<String>,
}

/// A row of `pins`: a message was pinned or unpinned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinRow {
    /// The loop of the message.
    pub loop_key: LoopKey,
    /// Its sequence.
    pub seq: u32,
    /// True if the message is pinned afterwards.
    pub pinned: bool,
    /// The position of the leaf at the time.
    pub point: Point,
    /// The tick at which it was written.
    pub tick: Tick,
    /// ISO-8601 text.
    pub at: String,
}

/// A row of `hides`: a session was hidden or shown again. Each change gives it another id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HideRow {
    /// True if the session is hidden afterwards.
    pub hidden: bool,
    /// The id before the change.
    pub was: SessionId,
    /// The id after the change.
    pub session_id: SessionId,
    /// The tick at which it was written.
    pub tick: Tick,
    /// ISO-8601 text.
    pub at: String,
}

/// A row of `heads`: the ends of all audit chains of the database at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadRow {
    /// SHA-256 of the content before it was compressed.
    pub sha256: [u8; 32],
    /// ISO-8601 text.
    pub taken_at: String,
    /// The content as raw DEFLATE.
    pub content: Vec<u8>,
}

/// A row of `manifests`: the messages that a context was made of.
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
    /// `skip` or `rollup`. With `skip`, the context begins with the loop of the first part.
    pub older_loops: String,
    /// The parts of the context, in order.
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
    /// The block that the section belongs to.
    pub block: Option<BlockKey>,
    /// The first and the last original; `None` if the messages belong to the block.
    pub seqs: Option<(u32, u32)>,
    /// The number of messages.
    pub messages: u64,
}
