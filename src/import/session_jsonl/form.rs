//! The lines: one record each, in which public ids stand for the keys of a database.
//!
//! A session's line comes first, then each loop with its turns, messages, notes and calls, then
//! each run with its blocks and flips, the pins, the hides, the manifests, and the end. JSON that is stored stands in a
//! line as it is; digests that hold keys of a database are left out and made anew.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::model::{LoopId, LoopStatus, SessionId};
use crate::store::{
    BlockKind, BlockRow, CoverageRow, Disposition, Layout, Outcome, Size, StoreError, StoreResult,
    Turns,
};

/// The number of this form.
pub(crate) const FORM: u32 = 1;

/// What a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Record {
    Session,
    Loop,
    Turn,
    Message,
    Note,
    Call,
    Run,
    Block,
    Flip,
    Pin,
    Hide,
    Manifest,
    End,
}

/// Which record a line is; its other fields are not looked at.
#[derive(Deserialize)]
pub(crate) struct AnyLine {
    pub(crate) record: Record,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct SessionLine {
    pub(crate) record: Record,
    /// [`FORM`].
    pub(crate) loopstore: u32,
    pub(crate) session: SessionId,
    pub(crate) agent_id: Option<String>,
    pub(crate) title: Option<String>,
    pub(crate) created_at: Option<String>,
    pub(crate) last_active_at: Option<String>,
    pub(crate) current_loop: Option<LoopId>,
    pub(crate) tick: i64,
    pub(crate) source: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) project: Option<String>,
    /// What the tokens of all lines are counted with.
    pub(crate) counter: String,
    pub(crate) meta: Box<RawValue>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct LoopLine {
    pub(crate) record: Record,
    #[serde(rename = "loop")]
    pub(crate) loop_id: LoopId,
    /// The parent, if it is a loop of this session.
    pub(crate) parent: Option<LoopId>,
    /// The parent as the source names it.
    pub(crate) parent_loop_id: Option<LoopId>,
    pub(crate) parent_turn: Option<u32>,
    /// Where within that turn its chain leaves the parent; absent: behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parent_seq: Option<u32>,
    pub(crate) kind: Box<RawValue>,
    pub(crate) status: LoopStatus,
    pub(crate) started_at: Option<String>,
    pub(crate) ended_at: Option<String>,
    pub(crate) tick: i64,
    pub(crate) next_seq: u32,
    pub(crate) sealed_seq: u32,
    pub(crate) turns: u32,
    pub(crate) complete: u32,
    pub(crate) messages: u64,
    pub(crate) tokens: u64,
    pub(crate) bytes: u64,
    pub(crate) system_tokens: u64,
    pub(crate) generation: u32,
    pub(crate) last_turn_index: Option<i64>,
    pub(crate) open_calls: BTreeMap<String, u32>,
    pub(crate) chain: String,
    pub(crate) meta: Box<RawValue>,
    pub(crate) history: Option<Box<RawValue>>,
}

/// A turn of a loop, by its number.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Site {
    #[serde(rename = "loop")]
    pub(crate) loop_id: LoopId,
    pub(crate) turn: u32,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct TurnLine {
    pub(crate) record: Record,
    #[serde(rename = "loop")]
    pub(crate) loop_id: LoopId,
    pub(crate) turn: u32,
    pub(crate) first_seq: u32,
    pub(crate) messages: u64,
    pub(crate) prompts: u64,
    pub(crate) tokens: u64,
    pub(crate) bytes: u64,
    pub(crate) turn_index: Option<i64>,
    pub(crate) answered: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) answers: Vec<Site>,
    pub(crate) tick: i64,
    pub(crate) started_at: Option<i64>,
    pub(crate) ended_at: Option<i64>,
}

/// A message; `M` is how it is held while it is written or read.
#[derive(Serialize, Deserialize)]
pub(crate) struct MessageLine<M> {
    pub(crate) record: Record,
    pub(crate) session: SessionId,
    #[serde(rename = "loop")]
    pub(crate) loop_id: LoopId,
    pub(crate) turn: Option<u32>,
    pub(crate) seq: u32,
    pub(crate) tokens: u64,
    pub(crate) tick: i64,
    pub(crate) created_at: Option<i64>,
    /// True if the store gave the message its time: then the chain of digests holds it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) stamped: bool,
    /// Both as hexadecimal text; no salt: the content was removed.
    pub(crate) salt: Option<String>,
    pub(crate) digest: String,
    /// Absent once its content was removed.
    pub(crate) message: Option<M>,
}

/// What was told of a loop while it runs: one of the two.
#[derive(Serialize, Deserialize)]
pub(crate) struct NoteLine {
    pub(crate) record: Record,
    #[serde(rename = "loop")]
    pub(crate) loop_id: LoopId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) event: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) turn: Option<Box<RawValue>>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct CallLine {
    pub(crate) record: Record,
    #[serde(rename = "loop")]
    pub(crate) loop_id: LoopId,
    pub(crate) call_id: String,
    pub(crate) nth: u32,
    pub(crate) tool_name: String,
    pub(crate) arguments: Option<Box<RawValue>>,
    pub(crate) idempotency_key: String,
    pub(crate) turn_index: Option<i64>,
    pub(crate) started_at: String,
    pub(crate) attempts: u32,
    pub(crate) finished_at: Option<String>,
}

/// Tokens, bytes and messages.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Sizes {
    pub(crate) tokens: u64,
    pub(crate) bytes: u64,
    pub(crate) messages: u64,
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

#[derive(Serialize, Deserialize)]
pub(crate) struct RunLine {
    pub(crate) record: Record,
    pub(crate) run: String,
    #[serde(rename = "loop")]
    pub(crate) loop_id: LoopId,
    pub(crate) turns: u32,
    pub(crate) tick: i64,
    pub(crate) trigger: String,
    pub(crate) strategy: String,
    pub(crate) round: u32,
    pub(crate) outcome: String,
    pub(crate) fallback: Option<String>,
    pub(crate) error: Option<String>,
    pub(crate) scope: String,
    pub(crate) older_loops: String,
    pub(crate) counter: String,
    pub(crate) before: Sizes,
    pub(crate) after: Sizes,
    pub(crate) started_at: String,
    pub(crate) duration_ms: u64,
    pub(crate) config: Box<RawValue>,
    pub(crate) usage: Option<Box<RawValue>>,
    pub(crate) plan: String,
    /// What another tool recorded.
    pub(crate) recorded: Option<Box<RawValue>>,
    pub(crate) events: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reached: Option<Box<RawValue>>,
}

/// A block by its loop and number.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct BlockAddress {
    #[serde(rename = "loop")]
    pub(crate) loop_id: LoopId,
    pub(crate) generation: u32,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct BlockLine {
    pub(crate) record: Record,
    pub(crate) run: String,
    #[serde(rename = "loop")]
    pub(crate) loop_id: LoopId,
    pub(crate) generation: u32,
    pub(crate) kind: String,
    pub(crate) extends: Option<BlockAddress>,
    pub(crate) keep_first: Option<(u32, u32)>,
    pub(crate) keep_compacted: Option<(u32, u32)>,
    pub(crate) keep_recent: Option<(u32, u32)>,
    pub(crate) through: u32,
    pub(crate) tokens_covered: u64,
    pub(crate) size: Sizes,
    pub(crate) strategy: String,
    pub(crate) shaping: String,
    pub(crate) created_at: String,
    pub(crate) extra: Option<Box<RawValue>>,
    pub(crate) shows: Vec<ShownForm>,
    pub(crate) coverage: Vec<CoverageForm>,
}

/// A message of a block.
#[derive(Serialize, Deserialize)]
pub(crate) struct ShownForm {
    /// Whether it stands in `keep_recent`.
    pub(crate) recent: bool,
    pub(crate) replaces: Option<u32>,
    /// The loop of the pinned message that it quotes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) quotes: Option<LoopId>,
    pub(crate) salt: Option<String>,
    /// Absent: the original is dropped.
    pub(crate) digest: Option<String>,
    pub(crate) message: Option<Box<RawValue>>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct CoverageForm {
    #[serde(rename = "loop")]
    pub(crate) loop_id: LoopId,
    pub(crate) seqs: Option<(u32, u32)>,
    pub(crate) turns: Option<(u32, u32)>,
    pub(crate) disposition: String,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct FlipLine {
    pub(crate) record: Record,
    pub(crate) run: String,
    /// Whether the run is live afterwards.
    pub(crate) redo: bool,
    #[serde(rename = "loop")]
    pub(crate) loop_id: LoopId,
    pub(crate) turns: u32,
    pub(crate) tick: i64,
    pub(crate) at: String,
    pub(crate) reason: Option<String>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct PinLine {
    pub(crate) record: Record,
    /// The message.
    #[serde(rename = "loop")]
    pub(crate) loop_id: LoopId,
    pub(crate) seq: u32,
    /// Whether it is pinned afterwards.
    pub(crate) pinned: bool,
    /// From where it was made.
    pub(crate) leaf: LoopId,
    pub(crate) turns: u32,
    pub(crate) tick: i64,
    pub(crate) at: String,
}

/// A session was hidden, or came back, under another id.
#[derive(Serialize, Deserialize)]
pub(crate) struct HideLine {
    pub(crate) record: Record,
    /// Whether it is hidden afterwards.
    pub(crate) hidden: bool,
    pub(crate) was: SessionId,
    pub(crate) session: SessionId,
    pub(crate) tick: i64,
    pub(crate) at: String,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct ManifestLine {
    pub(crate) record: Record,
    pub(crate) manifest: String,
    #[serde(rename = "loop")]
    pub(crate) loop_id: LoopId,
    pub(crate) tick: i64,
    pub(crate) recorded_at: String,
    pub(crate) older_loops: String,
    pub(crate) parts: Vec<PartForm>,
    pub(crate) size: Sizes,
    pub(crate) counter: String,
    pub(crate) sha256: String,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct PartForm {
    #[serde(rename = "loop")]
    pub(crate) loop_id: LoopId,
    pub(crate) section: String,
    pub(crate) block: Option<BlockAddress>,
    pub(crate) seqs: Option<(u32, u32)>,
    pub(crate) messages: u64,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct EndLine {
    pub(crate) record: Record,
    /// The session's lines before this one.
    pub(crate) records: u64,
}

/// Takes stored JSON for a line: white space between its parts may hold no line end.
pub(crate) fn raw(text: &str) -> StoreResult<Box<RawValue>> {
    let damaged = |error| StoreError::Damaged(format!("stored JSON: {error}"));
    RawValue::from_string(text.replace(['\n', '\r'], " ")).map_err(damaged)
}

/// The same for JSON that may be absent.
pub(crate) fn raw_if(text: Option<&str>) -> StoreResult<Option<Box<RawValue>>> {
    text.map(raw).transpose()
}

fn pair(turns: Option<Turns>) -> Option<(u32, u32)> {
    turns.map(|turns| (turns.first, turns.last))
}

fn turns(pair: Option<(u32, u32)>) -> Option<Turns> {
    pair.map(|(first, last)| Turns { first, last })
}

impl BlockLine {
    /// A line without messages and coverage.
    pub(crate) fn of(
        row: &BlockRow,
        run: &str,
        loop_id: LoopId,
        extends: Option<BlockAddress>,
    ) -> StoreResult<Self> {
        Ok(Self {
            record: Record::Block,
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
            shows: Vec::new(),
            coverage: Vec::new(),
        })
    }

    /// Returns the sections.
    pub(crate) fn layout(&self) -> Layout {
        Layout {
            first: turns(self.keep_first),
            compacted: turns(self.keep_compacted),
            recent: turns(self.keep_recent),
        }
    }

    /// Returns the kind, if the word is known.
    pub(crate) fn block_kind(&self) -> Option<BlockKind> {
        BlockKind::from_word(&self.kind)
    }
}

impl RunLine {
    /// Returns the outcome, if the word is known.
    pub(crate) fn run_outcome(&self) -> Option<Outcome> {
        Outcome::from_word(&self.outcome)
    }
}

impl CoverageForm {
    /// A range of a loop.
    pub(crate) fn of(row: &CoverageRow, loop_id: LoopId) -> Self {
        Self {
            loop_id,
            seqs: row.seqs,
            turns: row.turns,
            disposition: row.disposition.as_str().to_owned(),
        }
    }

    /// Returns what happened, if the word is known.
    pub(crate) fn what(&self) -> Option<Disposition> {
        Disposition::from_word(&self.disposition)
    }
}
