//! Calls of earlier loops that an append answers.

use std::ops::ControlFlow;

use super::turn_of;
use crate::store::error::StoreResult;
use crate::store::{CallSite, LoopCore, StoreWrite, decode};

/// Finds the call `id` in the loops before: among their unanswered ones, or among those that were
/// answered only after this chain had left the loop.
pub(super) fn call_above(
    read: &dyn StoreWrite,
    row: &LoopCore,
    id: &str,
) -> StoreResult<Option<CallSite>> {
    let Some(parent) = row.parent else {
        return Ok(None);
    };
    let (mut cut, mut found) = (row.parent_turns(), None);
    read.walk(parent, &mut |above| {
        let open = above.progress.open_calls.get(id).copied();
        let made = match open.filter(|turn| *turn < cut) {
            Some(turn) => Some(turn),
            None => answered_later(read, &above, cut, id)?,
        };
        if let Some(turn) = made {
            let loop_key = above.key;
            found = Some(CallSite { loop_key, turn });
            return Ok(ControlFlow::Break(()));
        }
        cut = above.parent_turns();
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

/// Finds the call `id` in the first `cut` turns of a loop, if a later turn answers it. This reads
/// messages, but only those of turns whose calls were answered across the cut.
fn answered_later(
    read: &dyn StoreWrite,
    row: &LoopCore,
    cut: u32,
    id: &str,
) -> StoreResult<Option<u32>> {
    let answers = read.answers(row.key, cut..row.totals.turns)?;
    let sites = answers.into_iter().flat_map(|(_, sites)| sites);
    for site in sites.filter(|site| site.loop_key == row.key && site.turn < cut) {
        if turn_calls(read, row, site.turn, id)? {
            return Ok(Some(site.turn));
        }
    }
    Ok(None)
}

/// Whether a turn makes the call `id`.
fn turn_calls(read: &dyn StoreWrite, row: &LoopCore, turn: u32, id: &str) -> StoreResult<bool> {
    let first = turn_of(read, row.key, turn)?.first_seq;
    let next = read.turn(row.key, turn + 1)?;
    let end = next.map_or(row.totals.next_seq, |next| next.first_seq);
    let mut calls = false;
    read.messages(row.key, first..end, &mut |message| {
        let message = decode(read, message.body)?;
        calls |= message
            .message()
            .is_some_and(|message| message.tool_calls().any(|call| call.id == id));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(calls)
}
