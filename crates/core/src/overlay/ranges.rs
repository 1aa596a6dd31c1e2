//! Sequences and sizes of turns, from stored totals.

use std::ops::{ControlFlow, Range};

use crate::model::{Role, Size, Turns};
use crate::store::active_blocks::ChainLink;
use crate::store::append::{size_through, size_within};
use crate::store::{LoopKey, StoreError, StoreRead, StoreResult};

/// Returns the sequences of some turns, none at or after `end`. Extensions after a turn are within it.
pub fn turn_seqs(
    read: &dyn StoreRead,
    loop_key: LoopKey,
    turns: Turns,
    end: u32,
) -> StoreResult<Range<u32>> {
    let missing = || StoreError::Damaged(format!("turn {} is missing", turns.first));
    let first = read.turn(loop_key, turns.first)?.ok_or_else(missing)?;
    let after = read.turn(loop_key, turns.end())?;
    let after = after.map_or(end, |turn| turn.first_seq);
    Ok(first.first_seq..after.min(end))
}

/// Returns the reach of a block over the first `turns` turns of a loop: the sequence after their last
/// message. Extensions after that message were not part of the summary's input.
pub fn through(read: &dyn StoreRead, link: &ChainLink, turns: u32) -> StoreResult<u32> {
    let Some(last) = turns.checked_sub(1) else {
        return Ok(0);
    };
    let seqs = turn_seqs(read, link.row.key, Turns::only(last), link.end_seq)?;
    let mut end = seqs.start;
    read.sizes(link.row.key, seqs, &mut |message| {
        if message.role != Role::Extension {
            end = message.seq + 1;
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(end)
}

/// Returns the size of some turns of a chain as contexts show their originals, with the live edits.
pub fn shown_size_of(read: &dyn StoreRead, link: &ChainLink, turns: Turns) -> StoreResult<Size> {
    let key = link.row.key;
    let size = size_of(read, key, turns, link.end_of(turns.end()))?;
    match &link.edits {
        None => Ok(size),
        Some(edits) => {
            let seqs = turn_seqs(read, key, turns, link.end_seq)?;
            edits.resized(read, key, &seqs, size)
        }
    }
}

/// Returns the size of some turns as they were appended; of the last turn only the messages before the
/// sequence `end`, if given.
pub fn size_of(
    read: &dyn StoreRead,
    loop_key: LoopKey,
    turns: Turns,
    end: Option<u32>,
) -> StoreResult<Size> {
    let before = size_through(read, loop_key, turns.first)?;
    Ok(size_within(read, loop_key, turns.end(), end)?.without(before))
}
