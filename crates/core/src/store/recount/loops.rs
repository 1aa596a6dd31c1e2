//! Counts the messages of loops, and derives the sums of turns and loops.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use super::{BATCH_BYTES, BATCH_MESSAGES, RecountState, StoreRecount, count};
use crate::model::{AgentMessage, Role};
use crate::store::error::StoreResult;
use crate::store::{LoopKey, MessageRow, codec, edit_sizes};
use crate::tokens::TokenCounter;

/// The counts that one transaction makes, by sequence and turn.
#[derive(Default)]
struct Counts {
    messages: Vec<(u32, u64)>,
    turns: BTreeMap<u32, u64>,
}

/// Counts the next messages of the next loop; returns `false` if there is none.
pub(super) fn step(
    write: &mut dyn StoreRecount,
    counter: &dyn TokenCounter,
    state: &mut RecountState,
) -> StoreResult<bool> {
    let Some((key, next_seq)) = write.loop_from(LoopKey(state.loop_key))? else {
        return Ok(false);
    };
    if key.0 != state.loop_key {
        (state.loop_key, state.seq, state.tokens) = (key.0, 0, 0);
        (state.system_before, state.system_after) = (0, 0);
    }
    let mut counts = Counts::default();
    for row in batch(write, key, state.seq..next_seq)? {
        count_message(counter, state, &mut counts, row)?;
    }
    write.put_message_tokens(key, &counts.messages)?;
    let turns: Vec<_> = counts.turns.into_iter().collect();
    write.put_turn_tokens(key, &turns)?;
    if state.seq >= next_seq {
        write.put_loop_tokens(key, state.tokens, state.system_before, state.system_after)?;
        count_edits(write, counter, key)?;
        state.loop_key = key.0 + 1;
        state.seq = 0;
        (state.tokens, state.system_before, state.system_after) = (0, 0, 0);
    }
    Ok(true)
}

/// Counts the edits of a loop, whose messages are counted.
fn count_edits(
    write: &mut dyn StoreRecount,
    counter: &dyn TokenCounter,
    key: LoopKey,
) -> StoreResult<()> {
    let (mut edits, mut runs) = (Vec::new(), BTreeSet::new());
    write.edits_of_loop(key, &mut |found| {
        edits.push(found);
        Ok(ControlFlow::Continue(()))
    })?;
    for mut found in edits {
        edit_sizes::measure(&*write, counter, &mut found.edit)?;
        let (before, after) = (found.edit.before.tokens, found.edit.after.tokens);
        write.put_edit_tokens(found.run, found.ordinal, before, after)?;
        runs.insert(found.run);
    }
    runs.into_iter().try_for_each(|run| write.repack_edits(run))
}

/// Returns messages until there are enough for one transaction.
fn batch(
    write: &dyn StoreRecount,
    key: LoopKey,
    seqs: std::ops::Range<u32>,
) -> StoreResult<Vec<MessageRow>> {
    let (mut rows, mut bytes) = (Vec::new(), 0u64);
    write.messages(key, seqs, &mut |row| {
        bytes = bytes.saturating_add(row.body.bytes);
        rows.push(row);
        Ok(if rows.len() < BATCH_MESSAGES && bytes < BATCH_BYTES {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        })
    })?;
    Ok(rows)
}

fn count_message(
    counter: &dyn TokenCounter,
    state: &mut RecountState,
    counts: &mut Counts,
    row: MessageRow,
) -> StoreResult<()> {
    let before = row.body.tokens;
    let is_extension = row.body.role == Role::Extension;
    let is_system = is_extension && is_system(&row)?;
    let tokens = count(row.body, counter)?;
    if tokens != before {
        counts.messages.push((row.seq, tokens));
    }
    if is_system {
        state.system_before += before;
        state.system_after += tokens;
    }
    if !is_extension {
        state.tokens += tokens;
        if let Some(turn) = row.turn {
            counts.turns.insert(turn, state.tokens);
        }
    }
    state.messages += 1;
    state.seq = row.seq + 1;
    Ok(())
}

fn is_system(row: &MessageRow) -> StoreResult<bool> {
    if row.body.head.is_none() {
        return Ok(false);
    }
    let message = codec::decode(row.body.clone(), &mut |_| Ok(None))?;
    Ok(matches!(message, AgentMessage::Extension(note) if note.kind == "system"))
}
