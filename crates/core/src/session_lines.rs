//! A session as lines of JSON: one record each, with public ids in place of the keys of a database.
//!
//! The line of a session comes first, then each loop with its turns, messages, notes and calls, then each run with its
//! blocks, edits and flips, the pins, the hides, the manifests, and the end. Stored JSON is included unchanged; digests that
//! include keys of a database are left out and recomputed.

// The fields are named as in the JSON.
#![allow(missing_docs)]

use std::collections::BTreeMap;

use crate::model::{EditAction, LoopId, LoopStatus, SessionId};
use crate::store::{
    BlockKind, BlockRow, CoverageRow, Disposition, Layout, Outcome, Size, StoreError, StoreResult,
    Turns,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The number of this form.
pub const FORM: u32 = 1;

/// The kind of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LineKind {
    Session,
    Loop,
    Turn,
    Message,
    Note,
    Call,
    Run,
    Block,
    Edit,
    Flip,
    Pin,
    Hide,
    Manifest,
    End,
}

/// The kind of a line; the other fields are not read.
#[derive(Deserialize)]
pub struct AnyLine {
    pub record: LineKind,
}

#[derive(Clone, Serialize, Deserialize)]
pub struct SessionLine {
    pub record: LineKind,
    /// [`FORM`].
    pub loopstore: u32,
    pub session: SessionId,
    pub agent_id: Option<String>,
    pub title: Option<String>,
    pub created_at: Option<String>,
    pub last_active_at: Option<String>,
    pub current_loop: Option<LoopId>,
    pub tick: i64,
    pub source: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The counter of the tokens in all lines.
    pub counter: String,
    pub meta: Box<RawValue>,
}

#[derive(Clone, Serialize, Deserialize)]
pub struct LoopLine {
    pub record: LineKind,
    #[serde(rename = "loop")]
    pub loop_id: LoopId,
    /// The parent, if it is a loop of this session.
    pub parent: Option<LoopId>,
    /// The parent as the source names it.
    pub parent_loop_id: Option<LoopId>,
    pub parent_turn: Option<u32>,
    /// The last message of the parent on the loop's chain, if it is within the turn; absent if it is the end of the
    /// turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_seq: Option<u32>,
    pub kind: Box<RawValue>,
    pub status: LoopStatus,
    pub started_at: Option<String>,
    pub ended_at: Option<String>,
    pub tick: i64,
    pub next_seq: u32,
    pub sealed_seq: u32,
    pub turns: u32,
    pub complete: u32,
    pub messages: u64,
    pub tokens: u64,
    pub bytes: u64,
    pub system_tokens: u64,
    pub generation: u32,
    pub last_turn_index: Option<i64>,
    pub open_calls: BTreeMap<String, u32>,
    pub chain: String,
    pub meta: Box<RawValue>,
    pub history: Option<Box<RawValue>>,
}

/// A turn of a loop, by its number.
#[derive(Clone, Serialize, Deserialize)]
pub struct JsonTurnRef {
    #[serde(rename = "loop")]
    pub loop_id: LoopId,
    pub turn: u32,
}

#[derive(Clone, Serialize, Deserialize)]
pub struct TurnLine {
    pub record: LineKind,
    #[serde(rename = "loop")]
    pub loop_id: LoopId,
    pub turn: u32,
    pub first_seq: u32,
    pub messages: u64,
    pub prompts: u64,
    pub tokens: u64,
    pub bytes: u64,
    pub turn_index: Option<i64>,
    pub answered: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<JsonTurnRef>,
    pub tick: i64,
    pub started_at: Option<i64>,
    pub ended_at: Option<i64>,
}

/// A message; `M` is its type while it is written or read.
#[derive(Clone, Serialize, Deserialize)]
pub struct MessageLine<M> {
    pub record: LineKind,
    pub session: SessionId,
    #[serde(rename = "loop")]
    pub loop_id: LoopId,
    pub turn: Option<u32>,
    pub seq: u32,
    pub tokens: u64,
    pub tick: i64,
    pub created_at: Option<i64>,
    /// True if the store gave the message its time: then the chain of digests includes the time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stamped: bool,
    /// Both as hexadecimal text; no salt if the content was removed.
    pub salt: Option<String>,
    pub digest: String,
    /// Absent if the content was removed.
    pub message: Option<M>,
}

/// A record of a loop while it runs; exactly one of the two fields is set.
#[derive(Clone, Serialize, Deserialize)]
pub struct NoteLine {
    pub record: LineKind,
    #[serde(rename = "loop")]
    pub loop_id: LoopId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<Box<RawValue>>,
}

#[derive(Clone, Serialize, Deserialize)]
pub struct CallLine {
    pub record: LineKind,
    #[serde(rename = "loop")]
    pub loop_id: LoopId,
    pub call_id: String,
    pub nth: u32,
    pub tool_name: String,
    pub arguments: Option<Box<RawValue>>,
    pub idempotency_key: String,
    pub turn_index: Option<i64>,
    pub started_at: String,
    pub attempts: u32,
    pub finished_at: Option<String>,
}

/// Tokens, bytes and messages.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct Sizes {
    pub tokens: u64,
    pub bytes: u64,
    pub messages: u64,
}

impl From<Size> for Sizes {
    fn from(size: Size) -> Self {
        let Size {
            tokens,
            bytes,
            messages,
        } = size;
        Self {
            tokens,
            bytes,
            messages,
        }
    }
}

impl From<Sizes> for Size {
    fn from(size: Sizes) -> Self {
        Self {
            tokens: size.tokens,
            bytes: size.bytes,
            messages: size.messages,
        }
    }
}

#[derive(Clone, Serialize, Deserialize)]
pub struct RunLine {
    pub record: LineKind,
    pub run: String,
    #[serde(rename = "loop")]
    pub loop_id: LoopId,
    pub turns: u32,
    pub tick: i64,
    pub trigger: String,
    pub strategy: String,
    pub round: u32,
    pub outcome: String,
    pub fallback: Option<String>,
    pub error: Option<String>,
    pub scope: String,
    pub older_loops: String,
    pub counter: String,
    pub before: Sizes,
    pub after: Sizes,
    pub started_at: String,
    pub duration_ms: u64,
    pub config: Box<RawValue>,
    pub usage: Option<Box<RawValue>>,
    pub plan: String,
    /// The record of another tool.
    pub recorded: Option<Box<RawValue>>,
    pub events: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<Box<RawValue>>,
}

/// The identity of a block: its loop and number.
#[derive(Clone, Serialize, Deserialize)]
pub struct BlockAddress {
    #[serde(rename = "loop")]
    pub loop_id: LoopId,
    pub generation: u32,
}

#[derive(Clone, Serialize, Deserialize)]
pub struct BlockLine {
    pub record: LineKind,
    pub run: String,
    #[serde(rename = "loop")]
    pub loop_id: LoopId,
    pub generation: u32,
    pub kind: String,
    pub extends: Option<BlockAddress>,
    pub keep_first: Option<(u32, u32)>,
    pub keep_compacted: Option<(u32, u32)>,
    pub keep_recent: Option<(u32, u32)>,
    pub through: u32,
    pub tokens_covered: u64,
    pub size: Sizes,
    pub strategy: String,
    pub shaping: String,
    pub created_at: String,
    pub extra: Option<Box<RawValue>>,
    /// The ids of the runs with edits that its text was made with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edits: Vec<String>,
    pub shows: Vec<ShownForm>,
    pub coverage: Vec<CoverageForm>,
}

/// A message of a block.
#[derive(Clone, Serialize, Deserialize)]
pub struct ShownForm {
    /// True if it is in `keep_recent`.
    pub recent: bool,
    pub replaces: Option<u32>,
    /// The loop of the pinned message that it quotes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quotes: Option<LoopId>,
    pub salt: Option<String>,
    /// Absent if the original is dropped.
    pub digest: Option<String>,
    pub message: Option<Box<RawValue>>,
}

#[derive(Clone, Serialize, Deserialize)]
pub struct CoverageForm {
    #[serde(rename = "loop")]
    pub loop_id: LoopId,
    pub seqs: Option<(u32, u32)>,
    pub turns: Option<(u32, u32)>,
    pub disposition: String,
}

/// An edit of messages, or of a part of one message.
#[derive(Clone, Serialize, Deserialize)]
pub struct EditLine {
    pub record: LineKind,
    pub run: String,
    #[serde(rename = "loop")]
    pub loop_id: LoopId,
    pub seqs: (u32, u32),
    /// The number of the part and the number of parts; absent if messages are removed as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<(u32, u32)>,
    pub action: EditAction,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    pub before: Sizes,
    pub after: Sizes,
    pub salt: String,
}

#[derive(Clone, Serialize, Deserialize)]
pub struct FlipLine {
    pub record: LineKind,
    pub run: String,
    /// True for a redo, which makes the run live.
    pub redo: bool,
    #[serde(rename = "loop")]
    pub loop_id: LoopId,
    pub turns: u32,
    pub tick: i64,
    pub at: String,
    pub reason: Option<String>,
}

#[derive(Clone, Serialize, Deserialize)]
pub struct PinLine {
    pub record: LineKind,
    /// The loop of the message.
    #[serde(rename = "loop")]
    pub loop_id: LoopId,
    pub seq: u32,
    /// True if the message is pinned from now on.
    pub pinned: bool,
    /// The leaf on which the pin was made.
    pub leaf: LoopId,
    pub turns: u32,
    pub tick: i64,
    pub at: String,
}

/// An event that hid a session, or showed it again under another id.
#[derive(Clone, Serialize, Deserialize)]
pub struct HideLine {
    pub record: LineKind,
    /// True if the session is hidden from now on.
    pub hidden: bool,
    pub was: SessionId,
    pub session: SessionId,
    pub tick: i64,
    pub at: String,
}

#[derive(Clone, Serialize, Deserialize)]
pub struct ManifestLine {
    pub record: LineKind,
    pub manifest: String,
    #[serde(rename = "loop")]
    pub loop_id: LoopId,
    pub tick: i64,
    pub recorded_at: String,
    pub older_loops: String,
    pub parts: Vec<PartForm>,
    pub size: Sizes,
    pub counter: String,
    pub sha256: String,
}

#[derive(Clone, Serialize, Deserialize)]
pub struct PartForm {
    #[serde(rename = "loop")]
    pub loop_id: LoopId,
    pub section: String,
    pub block: Option<BlockAddress>,
    pub seqs: Option<(u32, u32)>,
    pub messages: u64,
}

#[derive(Clone, Serialize, Deserialize)]
pub struct EndLine {
    pub record: LineKind,
    /// The number of the session's lines before this one.
    pub records: u64,
}

/// Returns stored JSON for a line: white space in it must not contain a line end.
pub fn raw(text: &str) -> StoreResult<Box<RawValue>> {
    let damaged = |error| StoreError::Damaged(format!("stored JSON: {error}"));
    RawValue::from_string(text.replace(['\n', '\r'], " ")).map_err(damaged)
}

/// Returns optional stored JSON for a line.
pub fn raw_if(text: Option<&str>) -> StoreResult<Option<Box<RawValue>>> {
    text.map(raw).transpose()
}

fn pair(turns: Option<Turns>) -> Option<(u32, u32)> {
    turns.map(|turns| (turns.first, turns.last))
}

fn turns(pair: Option<(u32, u32)>) -> Option<Turns> {
    pair.map(|(first, last)| Turns { first, last })
}

impl BlockLine {
    /// Returns a line without messages and coverage.
    pub fn of(
        row: &BlockRow,
        run: &str,
        loop_id: LoopId,
        extends: Option<BlockAddress>,
    ) -> StoreResult<Self> {
        Ok(Self {
            record: LineKind::Block,
            run: run.to_owned(),
            loop_id,
            generation: row.generation,
            kind: row.kind.as_str().to_owned(),
            extends,
            keep_first: pair(row.layout.first),
            keep_compacted: pair(row.layout.compacted),
            keep_recent: pair(row.layout.recent),
            through: row.through,
            tokens_covered: row.tokens_covered,
            size: row.size.into(),
            strategy: row.strategy.clone(),
            shaping: row.shaping.clone(),
            created_at: row.created_at.clone(),
            extra: raw_if(row.extra.as_deref())?,
            edits: row.edits.clone(),
            shows: Vec::new(),
            coverage: Vec::new(),
        })
    }

    /// Returns the sections.
    pub fn layout(&self) -> Layout {
        Layout {
            first: turns(self.keep_first),
            compacted: turns(self.keep_compacted),
            recent: turns(self.keep_recent),
        }
    }

    /// Returns the kind, if the word is known.
    pub fn block_kind(&self) -> Option<BlockKind> {
        BlockKind::from_word(&self.kind)
    }
}

impl RunLine {
    /// Returns the outcome, if the word is known.
    pub fn run_outcome(&self) -> Option<Outcome> {
        Outcome::from_word(&self.outcome)
    }
}

impl CoverageForm {
    /// Returns the line of a coverage range.
    pub fn of(row: &CoverageRow, loop_id: LoopId) -> Self {
        Self {
            loop_id,
            seqs: row.seqs,
            turns: row.turns,
            disposition: row.disposition.as_str().to_owned(),
        }
    }

    /// Returns the disposition, if the word is known.
    pub fn what(&self) -> Option<Disposition> {
        Disposition::from_word(&self.disposition)
    }
}
