//! The report of a compaction.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::events::{CompactionEnded, CompactionStarted};
use super::outcome::{CompactOutcome, NotNeeded};
use super::request::{CompactRequest, CompactTrigger};
use super::snapshot::ContextTokens;
use crate::compaction::{Budget, DEFAULT_STRATEGY, SummaryNotes};
use crate::edit::EditReport;
use crate::model::{Extra, Json, LoopId, SessionId, Size, Time, Turns, Usage};
use crate::overlay::message_count;
use crate::store::{
    BlockKind, CoverageRow, Disposition, LoopKey, Outcome, RunRow, StoreError, StoreRead,
    StoreResult,
};

/// The number of covered messages of a block for each disposition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoverageCounts([u64; Disposition::ALL.len()]);

impl CoverageCounts {
    /// Returns the count of one disposition.
    pub fn get(&self, disposition: Disposition) -> u64 {
        self.0[disposition as usize]
    }

    pub(super) fn of(read: &dyn StoreRead, coverage: &[CoverageRow]) -> StoreResult<Self> {
        let mut counts = Self::default();
        for (row, is_shared) in coverage.iter().zip(shares_a_turn(coverage)) {
            let is_summary = matches!(
                row.disposition,
                Disposition::Summarised | Disposition::RolledUp | Disposition::Sealed
            );
            // A summary hides a turn of which a message is kept.
            let within_turns = is_summary && is_shared;
            counts.0[row.disposition as usize] += message_count(read, row, within_turns)?;
        }
        Ok(counts)
    }
}

/// Returns for each row whether another row covers one of its turns.
fn shares_a_turn(coverage: &[CoverageRow]) -> Vec<bool> {
    let turns = coverage.iter().enumerate();
    let turns = turns.filter_map(|(at, row)| Some((row.loop_key, row.turns?, at)));
    let mut turns: Vec<(LoopKey, (u32, u32), usize)> = turns.collect();
    turns.sort_unstable();
    let mut shares = vec![false; coverage.len()];
    // The row of the loop at hand that reaches farthest.
    let mut farthest: Option<(LoopKey, u32, usize)> = None;
    for (key, (first, last), at) in turns {
        match farthest.filter(|(loop_key, ..)| *loop_key == key) {
            Some((_, end, other)) if first <= end => {
                shares[at] = true;
                shares[other] = true;
                if last > end {
                    farthest = Some((key, last, at));
                }
            }
            _ => farthest = Some((key, last, at)),
        }
    }
    shares
}

impl Serialize for CoverageCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        // Nearly no session has edits.
        let is_listed = |of: &Disposition| *of != Disposition::Removed || self.get(*of) > 0;
        for disposition in Disposition::ALL.into_iter().filter(is_listed) {
            map.serialize_entry(disposition.as_str(), &self.get(disposition))?;
        }
        map.end()
    }
}

/// A block that a run wrote, or would write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockReport {
    /// The loop.
    pub loop_id: LoopId,
    /// The number of the block on the loop; `None` if the block was not written.
    pub generation: Option<u32>,
    /// The kind of the block.
    pub kind: BlockKind,
    /// Turns kept word for word.
    pub keep_first: Option<Turns>,
    /// Turns replaced.
    pub keep_compacted: Option<Turns>,
    /// Turns kept at the end.
    pub keep_recent: Option<Turns>,
    /// The covered messages by disposition.
    pub coverage: CoverageCounts,
}

impl Serialize for BlockReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let range = |turns: Option<Turns>| turns.map(|turns| [turns.first, turns.last]);
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("loop_id", &self.loop_id)?;
        map.serialize_entry("generation", &self.generation)?;
        map.serialize_entry("kind", self.kind.as_str())?;
        map.serialize_entry("keep_first", &range(self.keep_first))?;
        map.serialize_entry("keep_compacted", &range(self.keep_compacted))?;
        map.serialize_entry("keep_recent", &range(self.keep_recent))?;
        map.serialize_entry("coverage", &self.coverage)?;
        map.end()
    }
}

/// The report of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactReport {
    /// The id of the run; `None` if the attempt left no row.
    pub run: Option<String>,
    /// The outcome.
    pub outcome: CompactOutcome,
    /// The reason why nothing was done, if the outcome is [`CompactOutcome::NotNeeded`].
    pub not_needed: Option<NotNeeded>,
    /// The name of the strategy.
    pub strategy: String,
    /// The last step of the fallback that the attempt needed.
    pub fallback: Option<String>,
    /// The size of the context with which the trigger was evaluated, and its source. All other sizes are estimates.
    pub asked_about: ContextTokens,
    /// The tool results that the policy cleared first; `None` if it cleared none. In a dry run, those that it would
    /// clear.
    pub cleared: Option<EditReport>,
    /// The reason why the policy, although it fired, cleared no tool results.
    pub not_cleared: Option<String>,
    /// The context before the compaction, and after any clearing of tool results.
    pub before: Size,
    /// The context after, or as it would have been.
    pub after: Size,
    /// Tokens of a typical turn of the chain: the mean of its newest complete turns; 0 if nothing was planned.
    pub turn_tokens: u64,
    /// Tokens by which the context may grow before the policy requires a compaction.
    pub room: u64,
    /// The blocks.
    pub blocks: Vec<BlockReport>,
    /// The number of prompts of people that the blocks hide and quote; see [`Policy::keep_prompts`].
    ///
    /// [`Policy::keep_prompts`]: super::Policy::keep_prompts
    pub prompts_kept: u64,
    /// The number of hidden prompts that are not quoted, since they exceed the tokens of the policy, or edits removed or
    /// cleared them.
    pub prompts_left_out: u64,
    /// The duration in milliseconds.
    pub duration_ms: u64,
    /// The usage that the summarisers reported: tokens, model, calls and milliseconds.
    pub usage: Option<Json>,
    /// The error.
    pub error: Option<String>,
    /// The effective configuration, if a fallback made it differ from the one that was
    /// requested.
    pub reached: Option<Json>,
    /// The sizes, if not even the smallest context fits, in this run or in an earlier run with the same plan.
    pub too_small: Option<BudgetTooSmall>,
    /// True if the last turn waits for an answer or for tool results. Such a turn is never compacted.
    pub in_flight: bool,
}

/// The error if not even the last turn fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not even the last turn fits: {needed} {unit} are needed, {budget} fit; use a larger window"
)]
pub struct BudgetTooSmall {
    /// The size of the smallest context.
    pub needed: u64,
    /// The size that fits.
    pub budget: u64,
    /// The unit of both sizes.
    pub unit: BudgetUnit,
}

/// The unit of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetUnit {
    /// Tokens.
    Tokens,
    /// Bytes of JSON.
    Bytes,
}

impl std::fmt::Display for BudgetUnit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Tokens => "tokens",
            Self::Bytes => "bytes",
        })
    }
}

impl BudgetTooSmall {
    /// Returns by how much a context is too large, if it is.
    pub(crate) fn check(budget: Budget, needed: Size) -> Option<Self> {
        if needed.tokens > budget.tokens {
            return Some(Self {
                needed: needed.tokens,
                budget: budget.tokens,
                unit: BudgetUnit::Tokens,
            });
        }
        let bytes = budget.bytes.filter(|most| needed.bytes > *most)?;
        Some(Self {
            needed: needed.bytes,
            budget: bytes,
            unit: BudgetUnit::Bytes,
        })
    }
}

impl CompactReport {
    /// Returns the report for a context of this size before anything but the trigger was evaluated.
    pub(super) fn of(request: &CompactRequest, size: Size, about: ContextTokens) -> Self {
        Self {
            strategy: request.strategy().name().to_owned(),
            before: size,
            after: size,
            asked_about: about,
            ..Self::default()
        }
    }

    /// Notes that a run tried the same in vain.
    pub(super) fn note_tried_before(&mut self, run: &RunRow, budget: Budget) {
        let why = run.error.as_deref().unwrap_or("it gained nothing");
        self.error = Some(format!("run {} tried this very plan: {why}", run.run_id));
        self.not_needed = Some(NotNeeded::TriedBefore {
            run: run.run_id.clone(),
        });
        if run.outcome == Outcome::Failed {
            self.too_small = BudgetTooSmall::check(budget, run.after);
        }
    }

    /// Notes that the plan leaves every loop as it is.
    pub(super) fn note_unchanged(&mut self) {
        self.not_needed = Some(NotNeeded::Unchanged);
        self.fallback = None;
        self.error = None;
    }

    /// Adds the notes of the strategy.
    pub(super) fn take_notes(&mut self, notes: &SummaryNotes) -> StoreResult<()> {
        self.usage = usage(notes)?;
        self.fallback.clone_from(&notes.fallback);
        self.error.clone_from(&notes.error);
        Ok(())
    }

    pub(super) fn started(
        &self,
        session: &SessionId,
        leaf: &LoopId,
        request: &CompactRequest,
        at: &Time,
    ) -> CompactionStarted {
        let policy = request.policy.compaction.policy;
        CompactionStarted {
            session_id: session.clone(),
            loop_id: leaf.clone(),
            trigger: match request.trigger {
                CompactTrigger::Policy => policy.name(),
                CompactTrigger::Length => "length",
                CompactTrigger::Force => "force",
            }
            .to_owned(),
            strategy: self.strategy.clone(),
            asked_about: self.asked_about,
            tokens_before: self.before.tokens,
            bytes_before: self.before.bytes,
            messages_before: self.before.messages,
            timestamp: at.as_str().to_owned(),
        }
    }

    pub(super) fn ended(&self, started: &CompactionStarted) -> CompactionEnded {
        CompactionEnded {
            session_id: started.session_id.clone(),
            loop_id: started.loop_id.clone(),
            outcome: self.outcome,
            tokens_before: self.before.tokens,
            tokens_after: self.after.tokens,
            messages_before: self.before.messages,
            messages_after: self.after.messages,
            timestamp: Time::now().as_str().to_owned(),
        }
    }
}

impl Serialize for CompactReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("run_id", &self.run)?;
        map.serialize_entry("outcome", &self.outcome)?;
        map.serialize_entry("strategy", &self.strategy)?;
        map.serialize_entry("fallback", &self.fallback)?;
        map.serialize_entry("asked_about", &self.asked_about)?;
        // Few policies clear tool results.
        if let Some(cleared) = &self.cleared {
            map.serialize_entry("cleared", cleared)?;
        }
        if let Some(reason) = &self.not_cleared {
            map.serialize_entry("not_cleared", reason)?;
        }
        map.serialize_entry("tokens_before", &self.before.tokens)?;
        map.serialize_entry("tokens_after", &self.after.tokens)?;
        map.serialize_entry("bytes_before", &self.before.bytes)?;
        map.serialize_entry("bytes_after", &self.after.bytes)?;
        map.serialize_entry("messages_before", &self.before.messages)?;
        map.serialize_entry("messages_after", &self.after.messages)?;
        if self.turn_tokens > 0 {
            map.serialize_entry("turn_tokens", &self.turn_tokens)?;
            map.serialize_entry("room", &self.room)?;
        }
        map.serialize_entry("loops_compacted", &self.blocks.len())?;
        map.serialize_entry("blocks", &self.blocks)?;
        if self.prompts_kept + self.prompts_left_out > 0 {
            map.serialize_entry("prompts_kept", &self.prompts_kept)?;
            map.serialize_entry("prompts_left_out", &self.prompts_left_out)?;
        }
        map.serialize_entry("duration_ms", &self.duration_ms)?;
        map.serialize_entry("usage", &self.usage)?;
        map.serialize_entry("error", &self.error)?;
        map.serialize_entry("reached", &self.reached)?;
        map.end()
    }
}

impl Default for CompactReport {
    fn default() -> Self {
        Self {
            run: None,
            outcome: CompactOutcome::NotNeeded,
            not_needed: Some(NotNeeded::Trigger),
            strategy: DEFAULT_STRATEGY.to_owned(),
            fallback: None,
            asked_about: ContextTokens::default(),
            cleared: None,
            not_cleared: None,
            before: Size::default(),
            after: Size::default(),
            turn_tokens: 0,
            room: 0,
            blocks: Vec::new(),
            prompts_kept: 0,
            prompts_left_out: 0,
            duration_ms: 0,
            usage: None,
            error: None,
            reached: None,
            too_small: None,
            in_flight: false,
        }
    }
}

/// Returns the usage of all calls with their model, number and time; `None` without a call.
fn usage(notes: &SummaryNotes) -> StoreResult<Option<Json>> {
    if notes.calls == 0 {
        return Ok(None);
    }
    let mut usage = notes.usage.clone().unwrap_or_else(|| Usage {
        input: 0.into(),
        output: 0.into(),
        reasoning: None,
        cache_read: None,
        cache_write: None,
        total_tokens: None,
        extra: Extra::default(),
    });
    if let Some(model) = &notes.model {
        usage.extra.insert("model", Json::string(model));
    }
    for (key, number) in [
        ("calls", u64::from(notes.calls)),
        ("duration_ms", notes.duration_ms),
    ] {
        usage.extra.insert(key, json(&number)?);
    }
    json(&usage).map(Some)
}

fn json<T: serde::Serialize>(value: &T) -> StoreResult<Json> {
    Json::of(value).map_err(|error| StoreError::Invalid(error.to_string()))
}
