//! Calls of earlier loops that an append answers.

use std::ops::ControlFlow;

use super::turn_of;
use crate::model::Message;
use crate::store::error::StoreResult;
use crate::store::{CallSite, Cut, LoopCore, StoreWrite, decode};

/// Finds the call `id` in earlier loops: among their unanswered calls, or among those that were
/// answered only after this chain had left the loop.
pub(super) fn call_above(
    read: &dyn StoreWrite,
    row: &LoopCore,
    id: &str,
) -> StoreResult<Option<CallSite>> {
    let Some(parent) = row.parent else {
        return Ok(None);
    };
    let (mut cut, mut found) = (row.parent_cut(), None);
    read.walk(parent, &mut |above| {
        let open = above.progress.open_calls.get(id).copied();
        let made = match open.filter(|turn| *turn < cut.whole) {
            Some(turn) => Some(turn),
            None => match made_in_part(read, &above, cut, id)? {
                Some(turn) => Some(turn),
                None => answered_later(read, &above, cut.whole, id)?,
            },
        };
        if let Some(turn) = made {
            let loop_key = above.key;
            found = Some(CallSite { loop_key, turn });
            return Ok(ControlFlow::Break(()));
        }
        cut = above.parent_cut();
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
        if turn_calls(read, row, site.turn, id, u32::MAX)? == PartCall::Open {
            return Ok(Some(site.turn));
        }
    }
    Ok(None)
}

/// Finds the call `id` in the partial turn in which the chain leaves a loop, if that part does not
/// answer it.
fn made_in_part(
    read: &dyn StoreWrite,
    row: &LoopCore,
    cut: Cut,
    id: &str,
) -> StoreResult<Option<u32>> {
    let Some(last) = cut.part else {
        return Ok(None);
    };
    let call = turn_calls(read, row, cut.whole, id, last.saturating_add(1))?;
    Ok((call == PartCall::Open).then_some(cut.whole))
}

/// The state of a call within some messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartCall {
    None,
    Open,
    Answered,
}

/// Returns the state of the call `id` within a turn; the turn's own answers count only with an `end`.
fn turn_calls(
    read: &dyn StoreWrite,
    row: &LoopCore,
    turn: u32,
    id: &str,
    end: u32,
) -> StoreResult<PartCall> {
    let first = turn_of(read, row.key, turn)?.first_seq;
    let next = read.turn(row.key, turn + 1)?;
    let of_turn = next.map_or(row.totals.next_seq, |next| next.first_seq);
    let mut call = PartCall::None;
    read.messages(row.key, first..of_turn.min(end), &mut |message| {
        let message = decode(read, message.body)?;
        let Some(message) = message.message() else {
            return Ok(ControlFlow::Continue(()));
        };
        if message.tool_calls().any(|call| call.id == id) {
            call = PartCall::Open;
        }
        let answers = matches!(message, Message::ToolResult(result) if result.tool_call_id == id);
        if answers && end != u32::MAX && call == PartCall::Open {
            call = PartCall::Answered;
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(call)
}
