//! The last turn of a loop, replaced while it is in flight.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use super::{AppendedMessages, DefaultTime, LastTurn, NewMessage, append_ended_by, turn_of};
use crate::model::{AgentMessage, Message, Role};
use crate::store::error::{StoreError, StoreResult};
use crate::store::{LoopKey, LoopRow, StoreWrite, TurnRow, decode, lease};
use crate::tokens::TokenCounter;

/// Replaces the last turn of a loop, which must not be final, by `messages`.
///
/// # Errors
/// If the turn is final, the loop has none, the loop is leased, or the store fails.
///
/// # Examples
/// ```
/// use loopstore::extend::append::{append, replace_last_turn};
/// use loopstore::extend::{self as store, session};
/// use loopstore::*;
///
/// # let store = SqliteStore::in_memory()?;
/// # let new = Session::new(SessionId::new("weather")?, "agent");
/// let mut record = LoopRecord::new(LoopId::generate(), None);
/// // Its last turn may still change.
/// record.status = LoopStatus::Running;
/// let half = AgentMessage::from(Message::user("Will it"));
/// let whole = AgentMessage::from(Message::user("Will it rain?"));
/// let turns = store::write(&store, |write| {
///     let key = session::create_session(write, &new, None, None)?;
///     let loop_key = session::create_loop(write, key, &record)?;
///     append(write, loop_key, vec![half.into()], &HeuristicTokenCounter)?;
///     replace_last_turn(write, loop_key, vec![whole.into()], &HeuristicTokenCounter)
/// })?;
/// assert_eq!(turns.seqs, 0..1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn replace_last_turn(
    write: &mut dyn StoreWrite,
    loop_key: LoopKey,
    messages: Vec<NewMessage>,
    counter: &dyn TokenCounter,
) -> StoreResult<AppendedMessages> {
    let stamp = Some(lease::now());
    replace_turn(write, loop_key, messages, counter, stamp, LastTurn::Final)
}

/// Replaces the last turn; `last_turn` decides if the new turn is final once it is complete.
#[doc(hidden)]
pub fn replace_turn(
    write: &mut dyn StoreWrite,
    loop_key: LoopKey,
    messages: Vec<NewMessage>,
    counter: &dyn TokenCounter,
    stamp: DefaultTime,
    last_turn: LastTurn,
) -> StoreResult<AppendedMessages> {
    let now = lease::now();
    lease::ensure_unleased(write, loop_key, now)?;
    let mut row = write.loop_by_key(loop_key)?;
    let Some(turn) = row.totals.turns.checked_sub(1) else {
        return append_ended_by(write, loop_key, messages, counter, (now, stamp), last_turn);
    };
    let last = turn_of(write, loop_key, turn)?;
    if last.first_seq < row.totals.sealed_seq {
        return Err(StoreError::Invalid(format!(
            "turn {turn} is complete and cannot be replaced"
        )));
    }
    roll_back(write, &mut row, &last)?;
    write.remove_unsealed(loop_key, last.first_seq, turn)?;
    write.update_totals(&row, &row.progress)?;
    append_ended_by(write, loop_key, messages, counter, (now, stamp), last_turn)
}

/// Resets the loop's totals to those before its last turn.
fn roll_back(write: &dyn StoreWrite, row: &mut LoopRow, last: &TurnRow) -> StoreResult<()> {
    let before = match last.turn.checked_sub(1) {
        Some(turn) => turn_of(write, row.key, turn)?,
        None => TurnRow::default(),
    };
    let (system, reopened) = undone_by_removal(write, row, last)?;
    let totals = &mut row.totals;
    totals.turns = last.turn;
    totals.complete = totals.complete.min(last.turn);
    totals.next_seq = last.first_seq;
    totals.messages = before.messages;
    totals.tokens = before.tokens;
    totals.bytes = before.bytes;
    totals.reported = totals
        .reported
        .filter(|reported| reported.seq < last.first_seq);
    let (key, progress) = (row.key, &mut row.progress);
    progress.system_tokens = progress.system_tokens.saturating_sub(system);
    progress.last_turn_index = before.turn_index;
    progress.open_calls.retain(|_, made| *made < last.turn);
    progress.open_calls.extend(reopened);
    progress.chain = [0; 32];
    if let Some(seq) = last.first_seq.checked_sub(1) {
        write.messages(key, seq..seq + 1, &mut |message| {
            progress.chain = message.chain;
            Ok(ControlFlow::Continue(()))
        })?;
    }
    Ok(())
}

/// Returns the effects of removing a loop's last turn: the tokens of its system prompts, and the calls of
/// earlier turns that are open again, as the turn answered them or made a call of the same id.
fn undone_by_removal(
    read: &dyn StoreWrite,
    row: &LoopRow,
    last: &TurnRow,
) -> StoreResult<(u64, BTreeMap<String, u32>)> {
    let (mut system, mut ids) = (0, BTreeSet::new());
    let seqs = last.first_seq..row.totals.next_seq;
    read.messages(row.key, seqs, &mut |message| {
        let tokens = message.body.tokens;
        match decode(read, message.body)? {
            AgentMessage::Extension(extension) if extension.kind == "system" => system += tokens,
            AgentMessage::Llm(llm) => {
                let message = llm.message;
                ids.extend(message.tool_calls().map(|call| call.id.clone()));
                if let Message::ToolResult(result) = message {
                    ids.insert(result.tool_call_id);
                }
            }
            AgentMessage::Extension(_) => {}
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok((system, open_before(read, row, last.first_seq, &ids)?))
}

/// Returns those of these calls that had no result before a message of the loop, with their turns.
fn open_before(
    read: &dyn StoreWrite,
    row: &LoopRow,
    before: u32,
    ids: &BTreeSet<String>,
) -> StoreResult<BTreeMap<String, u32>> {
    let mut open = BTreeMap::new();
    if ids.is_empty() {
        return Ok(open);
    }
    read.messages(row.key, 0..before, &mut |stored| {
        let has_calls = matches!(stored.body.role, Role::Assistant | Role::ToolResult);
        let Some(turn) = stored.turn.filter(|_| has_calls) else {
            return Ok(ControlFlow::Continue(()));
        };
        let message = decode(read, stored.body)?;
        let calls = message.message().into_iter().flat_map(Message::tool_calls);
        for call in calls.filter(|call| ids.contains(&call.id)) {
            open.insert(call.id.clone(), turn);
        }
        if let Some(Message::ToolResult(result)) = message.message() {
            open.remove(&result.tool_call_id);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(open)
}
