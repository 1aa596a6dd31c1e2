//! The loops that a rollup covers in addition to its own.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::append::size_through;
use super::rows::{BlockCore, BlockRow, LoopKey};
use super::{StoreError, StoreRead, StoreResult};
use crate::model::Role;

/// Returns the earlier loops that a rollup covers and that the rollup which it extends does not, each with
/// the last covered sequence and turn.
pub fn added_loops(
    read: &(impl StoreRead + ?Sized),
    block: &BlockCore,
) -> StoreResult<Vec<(LoopKey, u32, u32)>> {
    let mut added: BTreeMap<LoopKey, (u32, u32)> = BTreeMap::new();
    for row in read.coverage(block.key)? {
        // A loop with quoted messages has several rows, in order.
        if let (Some((_, seq)), Some((_, turn))) = (row.seqs, row.turns)
            && row.loop_key != block.loop_key
        {
            added.insert(row.loop_key, (seq, turn));
        }
    }
    // Keys fall, so that the way back cannot be a cycle.
    let (mut key, mut before) = (block.key, block.extends);
    while let Some(earlier) = before.filter(|before| *before < key && !added.is_empty()) {
        let row = read.block_by_key(earlier)?;
        added.remove(&row.loop_key);
        for row in read.coverage(earlier)? {
            added.remove(&row.loop_key);
        }
        (key, before) = (earlier, row.extends);
    }
    let rows = added.into_iter();
    Ok(rows.map(|(key, (seq, turn))| (key, seq, turn)).collect())
}

/// Returns the tokens of the loops before its own that a rollup covers.
pub fn tokens_of_others(read: &(impl StoreRead + ?Sized), rollup: &BlockRow) -> StoreResult<u64> {
    let (turns, end) = (rollup.layout.end(), rollup.through);
    let own = tokens_to(read, rollup.loop_key, turns, end)?;
    Ok(rollup.tokens_covered.saturating_sub(own))
}

/// Returns the tokens of the first `turns` turns of a loop, up to the sequence `end`.
pub fn tokens_to(
    read: &(impl StoreRead + ?Sized),
    loop_key: LoopKey,
    turns: u32,
    end: u32,
) -> StoreResult<u64> {
    let Some(last) = turns.checked_sub(1) else {
        return Ok(0);
    };
    let row = read
        .turn(loop_key, last)?
        .ok_or_else(|| StoreError::Damaged(format!("turn {last} is missing")))?;
    let mut tokens = size_through(read, loop_key, last)?.tokens;
    read.sizes(loop_key, row.first_seq..end, &mut |message| {
        if message.role != Role::Extension {
            tokens += message.size.tokens;
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(tokens)
}
