//! Compactions found in transcripts, as runs of the tool that made them.

use sha2::{Digest as _, Sha256};

use super::imported_compaction::ImportedCompaction;
use super::matching::harmless;
use super::{FoundCompaction, FoundEffect, foreign};
use crate::compact::{CompactionEnded, CompactionStarted, ContextTokens};
use crate::context::size_with;
use crate::model::{CompactionBlock, Json, LoopId, SessionId, Time};
use crate::overlay::{self, ChainSnapshot};
use crate::store::{
    LoopKey, NewBlock, Outcome, Point, RunKey, RunRow, SessionKey, StoreRead, StoreResult,
    StoreWrite, codec,
};
use crate::tokens::TokenCounter;

/// Returns the id of the run: the same whenever the same compaction is found again.
pub(super) fn run_id(session: &str, found: &FoundCompaction) -> StoreResult<String> {
    // Of a block, what it says counts and not how its record was written: an export writes the
    // fields in another order.
    let (record, block) = match &found.effect {
        FoundEffect::Block(block) => ("", codec::to_json(&**block)?),
        _ => (found.record.as_str(), String::new()),
    };
    let parts = [
        session,
        found.loop_id.as_str(),
        &found.strategy,
        record,
        &block,
    ];
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let digest = hex::encode(hash.finalize());
    Ok(format!("{}-{}", harmless(&found.strategy), &digest[..24]))
}

/// The field of a block that names the run which made it: loopstore's own, written out.
pub(crate) const OWN_RUN: &str = "loopstore_run";

/// Returns the run that made a block of loopstore's own.
pub(super) fn own_run(found: &FoundCompaction) -> Option<String> {
    match &found.effect {
        FoundEffect::Block(block) => block.extra.get(OWN_RUN)?.read().ok(),
        _ => None,
    }
}

/// Returns the name that the ids of a session's runs are made with: its own, and how many sessions had that
/// id before and are hidden now, as those may have runs of the same transcript.
pub(super) fn owner_of(read: &dyn StoreRead, id: &SessionId) -> StoreResult<String> {
    Ok(match read.renamed_from(id)?.len() {
        0 => id.to_string(),
        before => format!("{id}~{before}"),
    })
}

/// Returns the id that such a run has in another database, where each of its blocks is a run.
pub(super) fn run_id_of_own(session: &str, loop_id: &LoopId, run: &str) -> String {
    let mut hash = Sha256::new();
    for part in [session, loop_id.as_str(), run] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    format!("loopstore-{}", &hex::encode(hash.finalize())[..24])
}

/// What the run of a found compaction is made on.
pub(super) struct ImportedRun {
    pub(super) session: SessionKey,
    pub(super) loop_key: LoopKey,
    pub(super) run_id: String,
}

/// What became of it.
struct Made {
    blocks: Vec<NewBlock>,
    outcome: Outcome,
    error: Option<String>,
    record: Json,
}

impl ImportedRun {
    /// Writes the run and its blocks, and returns how it ended.
    pub(super) fn write(
        self,
        write: &mut dyn StoreWrite,
        counter: &dyn TokenCounter,
        found: FoundCompaction,
    ) -> StoreResult<CompactionEnded> {
        let chain = ChainSnapshot::load(&*write, self.loop_key)?;
        let started_at = found.at.clone().unwrap_or_else(Time::now);
        let compaction = ImportedCompaction {
            read: &*write,
            chain: &chain,
            counter,
            strategy: &found.strategy,
            created_at: started_at.as_str(),
        };
        let made = made(&compaction, &found)?;
        let size_with = |blocks: &[NewBlock]| size_with(&*write, self.loop_key, blocks);
        let (before, after) = (size_with(&[])?, size_with(&made.blocks)?);
        let trigger = found.trigger.clone().unwrap_or_else(|| "imported".into());
        let duration_ms = duration(&found.record);
        let started = CompactionStarted {
            session_id: write.session_by_key(self.session)?.session_id,
            loop_id: chain.links[chain.leaf()].row.loop_id.clone(),
            trigger: trigger.clone(),
            strategy: found.strategy.clone(),
            tokens_before: before.tokens,
            bytes_before: before.bytes,
            messages_before: before.messages,
            asked_about: ContextTokens::estimated(before),
            timestamp: started_at.as_str().to_owned(),
        };
        let ended = CompactionEnded {
            session_id: started.session_id.clone(),
            loop_id: started.loop_id.clone(),
            outcome: made.outcome.into(),
            tokens_before: before.tokens,
            tokens_after: after.tokens,
            messages_before: before.messages,
            messages_after: after.messages,
            timestamp: ended_at(&started_at, duration_ms),
        };
        let run = RunRow {
            key: RunKey(0),
            session: self.session,
            point: Point {
                loop_key: self.loop_key,
                turns: chain.end(chain.leaf()),
            },
            tick: 0,
            trigger,
            round: 0,
            outcome: made.outcome,
            fallback: None,
            error: made.error,
            scope: "fixed:0".into(),
            older_loops: "rollup".into(),
            counter: counter.name().to_owned(),
            before,
            after,
            started_at: started_at.as_str().to_owned(),
            duration_ms,
            config: "{}".into(),
            usage: None,
            plan: Sha256::digest(&self.run_id).into(),
            events: Some(codec::to_json(&(&started, &ended))?),
            reached: None,
            record: (!made.record.is_null()).then(|| made.record.as_str().to_owned()),
            strategy: found.strategy,
            run_id: self.run_id,
        };
        overlay::commit(write, run, made.blocks, None)?;
        Ok(ended)
    }
}

fn made(compaction: &ImportedCompaction<'_>, found: &FoundCompaction) -> StoreResult<Made> {
    let (blocks, nothing) = match &found.effect {
        FoundEffect::Summary {
            messages,
            first_kept,
        } => {
            let chain = compaction.chain;
            let first_kept = first_kept.as_ref().and_then(|kept| spot(chain, kept));
            let blocks = compaction.summary(messages, first_kept)?;
            (blocks, "no turn stands before the first one that was kept")
        }
        FoundEffect::SummaryWithin {
            message,
            first_kept,
            dropped,
        } => {
            let kept = spot(compaction.chain, first_kept);
            let blocks = match kept {
                Some(kept) => compaction.summary_within(message, kept, *dropped)?,
                None => compaction.summary(std::slice::from_ref(&**message), None)?,
            };
            (
                blocks,
                "no message stands before the first one that was kept",
            )
        }
        FoundEffect::ClearedResults {
            tool_call_ids,
            placeholder,
        } => {
            let blocks = compaction.cleared(tool_call_ids, placeholder)?;
            (blocks, "the context shows no result of these calls")
        }
        FoundEffect::Block(block) => return foreign_block(compaction, found, block),
    };
    let is_empty = blocks.is_empty();
    Ok(Made {
        blocks,
        outcome: if is_empty {
            Outcome::NoGain
        } else {
            Outcome::Committed
        },
        error: is_empty.then(|| nothing.to_owned()),
        record: found.record.clone(),
    })
}

/// Returns where a turn is on the chain; a loop elsewhere keeps nothing of this context.
fn spot(chain: &ChainSnapshot, (kept, turn): &(LoopId, u32)) -> Option<(usize, u32)> {
    let at = chain
        .links
        .iter()
        .position(|link| link.row.loop_id == *kept)?;
    Some((at, *turn))
}

fn foreign_block(
    compaction: &ImportedCompaction<'_>,
    found: &FoundCompaction,
    block: &CompactionBlock,
) -> StoreResult<Made> {
    Ok(match foreign::block_spec(compaction, block)? {
        Ok(spec) => Made {
            blocks: vec![compaction.build(compaction.chain.leaf(), spec)?],
            outcome: Outcome::Committed,
            error: None,
            record: found.record.clone(),
        },
        Err(broken) => Made {
            blocks: Vec::new(),
            outcome: Outcome::Failed,
            error: Some(broken),
            record: Json::parse(&codec::to_json(block)?).unwrap_or_default(),
        },
    })
}

/// Returns when a compaction ended that began then.
fn ended_at(began: &Time, duration_ms: u64) -> String {
    let millis = began.millis().zip(i64::try_from(duration_ms).ok());
    let ended = millis.and_then(|(began, took)| Time::from_millis(began.checked_add(took)?));
    // Without a duration the text of the source stays as it is.
    let ended = ended.filter(|_| duration_ms > 0);
    ended.as_ref().unwrap_or(began).as_str().to_owned()
}

/// Returns the milliseconds that a record tells of, itself or in an object within.
fn duration(record: &Json) -> u64 {
    let Ok(value) = record.read::<serde_json::Value>() else {
        return 0;
    };
    let within = |value: &serde_json::Value| {
        ["durationMs", "duration_ms"]
            .iter()
            .find_map(|key| value.get(key)?.as_u64())
    };
    let nested = || value.as_object()?.values().find_map(within);
    // The column holds what fits 63 bits.
    within(&value)
        .or_else(nested)
        .unwrap_or(0)
        .min(i64::MAX as u64)
}
