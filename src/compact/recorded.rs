//! The runs of compactions that another tool or a provider made.

use sha2::{Digest as _, Sha256};

use super::{CompactionEnded, CompactionStarted, ContextTokens};
use crate::context::size_with;
use crate::model::{Json, Time};
use crate::overlay::{self, ChainSnapshot};
use crate::store::active_blocks::ChainView;
use crate::store::{
    LoopKey, NewBlock, Outcome, Point, RunKey, RunRow, StoreResult, StoreWrite, codec,
};
use crate::tokens::TokenCounter;

/// A run without its blocks.
pub struct RecordedRun {
    /// The id of the run.
    pub run_id: String,
    /// The name of the strategy.
    pub strategy: String,
    /// The trigger: `auto`, `manual`, `imported`.
    pub trigger: String,
    /// The time at which the run began.
    pub started_at: Time,
    /// The duration in milliseconds.
    pub duration_ms: u64,
    /// The record of the tool or provider that made the compaction.
    pub record: Json,
}

/// The result of a compaction that is to be recorded.
pub struct RecordedResult {
    /// The blocks of the run.
    pub blocks: Vec<NewBlock>,
    /// The outcome of the run.
    pub outcome: Outcome,
    /// The reason, if the run wrote no blocks.
    pub error: Option<String>,
}

impl RecordedRun {
    /// Writes the run with its blocks, as made after `turns` turns of the leaf, and returns the event of its end. The
    /// sizes are those of the contexts under `view`.
    ///
    /// # Errors
    /// If the store fails.
    pub fn commit(
        self,
        write: &mut dyn StoreWrite,
        counter: &dyn TokenCounter,
        (chain, turns): (&ChainSnapshot, u32),
        view: ChainView,
        made: RecordedResult,
    ) -> StoreResult<CompactionEnded> {
        let leaf = &chain.links[chain.leaf()].row;
        let (session, loop_key): (_, LoopKey) = (leaf.session, leaf.key);
        let size_with = |blocks: &[NewBlock]| size_with(&*write, loop_key, view, blocks);
        let (before, after) = (size_with(&[])?, size_with(&made.blocks)?);
        let started = CompactionStarted {
            session_id: write.session_by_key(session)?.session_id,
            loop_id: leaf.loop_id.clone(),
            trigger: self.trigger.clone(),
            strategy: self.strategy.clone(),
            tokens_before: before.tokens,
            bytes_before: before.bytes,
            messages_before: before.messages,
            asked_about: ContextTokens::estimated(before),
            timestamp: self.started_at.as_str().to_owned(),
        };
        let ended = CompactionEnded {
            session_id: started.session_id.clone(),
            loop_id: started.loop_id.clone(),
            outcome: made.outcome.into(),
            tokens_before: before.tokens,
            tokens_after: after.tokens,
            messages_before: before.messages,
            messages_after: after.messages,
            timestamp: ended_at(&self.started_at, self.duration_ms),
        };
        let run = RunRow {
            key: RunKey(0),
            session,
            point: Point { loop_key, turns },
            tick: 0,
            trigger: self.trigger,
            round: 0,
            outcome: made.outcome,
            fallback: None,
            error: made.error,
            scope: "fixed:0".into(),
            older_loops: "rollup".into(),
            counter: counter.name().to_owned(),
            before,
            after,
            started_at: self.started_at.as_str().to_owned(),
            duration_ms: self.duration_ms,
            config: "{}".into(),
            usage: None,
            plan: Sha256::digest(&self.run_id).into(),
            events: Some(codec::to_json(&(&started, &ended))?),
            reached: None,
            record: (!self.record.is_null()).then(|| self.record.as_str().to_owned()),
            strategy: self.strategy,
            run_id: self.run_id,
        };
        overlay::commit(write, run, made.blocks, None)?;
        Ok(ended)
    }
}

/// Returns the time at which a compaction ended.
fn ended_at(began: &Time, duration_ms: u64) -> String {
    let millis = began.millis().zip(i64::try_from(duration_ms).ok());
    let ended = millis.and_then(|(began, took)| Time::from_millis(began.checked_add(took)?));
    // Without a duration the text of the source stays as it is.
    let ended = ended.filter(|_| duration_ms > 0);
    ended.as_ref().unwrap_or(began).as_str().to_owned()
}
