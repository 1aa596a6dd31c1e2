//! What strategies note of their planner, carried into the run.

use std::ops::ControlFlow;

use super::report::CompactReport;
use crate::compaction::{BlockCompactionStrategy, Summary, SummaryNotes};
use crate::model::{Extra, Json, Usage};
use crate::store::active_blocks::{ActiveBlocks, View};
use crate::store::{LoopKey, SessionKey, StoreError, StoreRead, StoreResult};

/// Adds up what was noted, also of drafts that went into no block, and puts it into the report.
/// Returns whether a summariser was asked.
pub(super) fn take<'a>(
    report: &mut CompactReport,
    notes: impl Iterator<Item = &'a SummaryNotes>,
) -> StoreResult<bool> {
    let mut all = SummaryNotes::default();
    notes.for_each(|notes| all.add(notes));
    report.usage = usage(&all)?;
    report.fallback = all.fallback;
    report.error = all.error;
    Ok(all.calls > 0)
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

/// Names what made a summary: a block that a fallback made is not taken for the strategy's own.
pub(super) fn made_by<'a>(
    summary: &'a Summary,
    strategy: &'a dyn BlockCompactionStrategy,
) -> &'a str {
    let fallback = summary.notes.fallback.as_deref();
    fallback.unwrap_or_else(|| strategy.name())
}

/// Returns the number of the next run from a leaf: they count the committed runs of its chain.
pub(super) fn next_round(
    read: &dyn StoreRead,
    session: SessionKey,
    leaf: LoopKey,
) -> StoreResult<u32> {
    let mut round = 1;
    ActiveBlocks::new(read, leaf, View::default()).run_summaries(session, &mut |_, run| {
        round = run.round + 1;
        Ok(ControlFlow::Break(()))
    })?;
    Ok(round)
}
