//! Stores the compactions of a transcript as runs of the tool that made them.

use loopstore::compact::CompactionEnded;
use loopstore::extend::active_blocks::ChainView;
use loopstore::extend::{LoopKey, Outcome, StoreResult, StoreWrite, codec};
use loopstore::internal::{
    ChainSnapshot, CompactedExtent, ImportedCompaction, OWN_RUN, RecordedResult, RecordedRun,
    block_spec, record_provider_compaction,
};
use loopstore::model::{CompactionBlock, Json, LoopId, SealingProvider, Time};
use loopstore::tokens::TokenCounter;
use sha2::{Digest as _, Sha256};

use super::matching::harmless;
use super::{FoundCompaction, FoundEffect};

/// Returns the id of the run, which is the same whenever the same compaction is found.
pub(super) fn run_id(session: &str, found: &FoundCompaction) -> StoreResult<String> {
    // Of a block, the content is hashed and not the text of its record: an export may write the fields in another
    // order.
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

/// Returns the run that made a block of loopstore itself.
pub(super) fn own_run(found: &FoundCompaction) -> Option<String> {
    match &found.effect {
        FoundEffect::Block(block) => block.extra.get(OWN_RUN)?.read().ok(),
        _ => None,
    }
}

/// Returns the id of a run of loopstore in another database, where each of its blocks is a run.
pub(super) fn run_id_of_own(session: &str, loop_id: &LoopId, run: &str) -> String {
    let mut hash = Sha256::new();
    for part in [session, loop_id.as_str(), run] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    format!("loopstore-{}", &hex::encode(hash.finalize())[..24])
}

/// The context on which a found compaction was made.
pub(super) struct ImportedRun {
    pub(super) loop_key: LoopKey,
    pub(super) run_id: String,
}

/// The outcome of the run, and its record.
struct RunResult {
    recorded: RecordedResult,
    record: Json,
}

impl ImportedRun {
    /// Writes the run and its blocks, and returns its status.
    pub(super) fn write(
        self,
        write: &mut dyn StoreWrite,
        counter: &dyn TokenCounter,
        found: FoundCompaction,
    ) -> StoreResult<CompactionEnded> {
        let started_at = found.at.clone().unwrap_or_else(Time::now);
        let trigger = found.trigger.clone().unwrap_or_else(|| "imported".into());
        let mut run = RecordedRun {
            run_id: self.run_id,
            strategy: found.strategy.clone(),
            trigger,
            duration_ms: duration(&found.record),
            started_at,
            record: found.record.clone(),
        };
        if let Some(provider) = SealingProvider::of_strategy(&found.strategy)
            && let FoundEffect::Summary { messages, .. } = found.effect
        {
            let what = CompactedExtent {
                leaf: self.loop_key,
                provider,
                through: None,
            };
            return record_provider_compaction(write, counter, what, messages, run);
        }
        let chain = ChainSnapshot::load(&*write, self.loop_key, ChainView::default())?;
        let compaction = ImportedCompaction {
            read: &*write,
            chain: &chain,
            counter,
            strategy: &found.strategy,
            created_at: run.started_at.as_str(),
        };
        let made = made(&compaction, &found)?;
        run.record = made.record;
        let turns = chain.end(chain.leaf());
        run.commit(
            write,
            counter,
            (&chain, turns),
            ChainView::default(),
            made.recorded,
        )
    }
}

fn made(compaction: &ImportedCompaction<'_>, found: &FoundCompaction) -> StoreResult<RunResult> {
    let (blocks, nothing) = match &found.effect {
        FoundEffect::Summary {
            messages,
            first_kept,
        } => {
            let chain = compaction.chain;
            let first_kept = first_kept
                .as_ref()
                .and_then(|kept| position_of(chain, kept));
            let blocks = compaction.summary(messages, first_kept)?;
            (blocks, "no turn stands before the first one that was kept")
        }
        FoundEffect::SummaryWithin {
            message,
            first_kept,
            dropped,
        } => {
            let kept = position_of(compaction.chain, first_kept);
            let blocks = match kept {
                Some(kept) => compaction.summary_within(message, kept, *dropped)?,
                None => compaction.summary(std::slice::from_ref(&**message), None)?,
            };
            (
                blocks,
                "no message stands before the first one that was kept",
            )
        }
        // Written by `write_edits`.
        FoundEffect::EditedResults { .. } => (Vec::new(), "edits have no blocks"),
        FoundEffect::Block(block) => return foreign_block(compaction, found, block),
    };
    let is_empty = blocks.is_empty();
    let recorded = RecordedResult {
        blocks,
        outcome: match is_empty {
            true => Outcome::NoGain,
            false => Outcome::Committed,
        },
        error: is_empty.then(|| nothing.to_owned()),
    };
    Ok(RunResult {
        recorded,
        record: found.record.clone(),
    })
}

/// Returns the position of a turn on the chain; `None` for a loop that is not on the chain, of which nothing is kept.
fn position_of(chain: &ChainSnapshot, (kept, turn): &(LoopId, u32)) -> Option<(usize, u32)> {
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
) -> StoreResult<RunResult> {
    Ok(match block_spec(compaction, block)? {
        Ok(spec) => RunResult {
            recorded: RecordedResult {
                blocks: vec![compaction.build(compaction.chain.leaf(), spec)?],
                outcome: Outcome::Committed,
                error: None,
            },
            record: found.record.clone(),
        },
        Err(broken) => RunResult {
            recorded: RecordedResult {
                blocks: Vec::new(),
                outcome: Outcome::Failed,
                error: Some(broken),
            },
            record: Json::parse(&codec::to_json(block)?).unwrap_or_default(),
        },
    })
}

/// Returns the duration in milliseconds, from the record or from an object within it.
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
    // The column is a signed integer of 64 bits.
    within(&value)
        .or_else(nested)
        .unwrap_or(0)
        .min(i64::MAX as u64)
}
