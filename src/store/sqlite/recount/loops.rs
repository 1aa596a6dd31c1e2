//! Counting the messages of loops, and what is summed up from them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use rusqlite::params;

use super::super::read::{Reader, packed};
use super::super::write::signed;
use super::{BATCH_BYTES, BATCH_MESSAGES, State, count};
use crate::model::{AgentMessage, Role};
use crate::store::error::StoreResult;
use crate::store::{LoopKey, MessageRow, StoreRead, codec};
use crate::tokens::TokenCounter;

/// Counts the next messages of the next loop; returns whether there was one.
pub(super) fn step(
    reader: &Reader<'_>,
    counter: &dyn TokenCounter,
    state: &mut State,
) -> StoreResult<bool> {
    let Some((key, next_seq)) = next_loop(reader, state.in_loop)? else {
        return Ok(false);
    };
    if key != state.in_loop {
        (state.in_loop, state.seq, state.tokens) = (key, 0, 0);
        (state.system_before, state.system_after) = (0, 0);
    }
    let mut turns = BTreeMap::new();
    for row in batch(reader, key, state.seq..next_seq)? {
        count_message(reader, counter, state, &mut turns, row)?;
    }
    for (turn, tokens) in turns {
        let sql = "UPDATE turns SET tokens = ?2 WHERE id = ?1";
        reader.run(sql, [packed(key, turn), signed(tokens)?])?;
    }
    if state.seq >= next_seq {
        finish(reader, state)?;
        state.in_loop = key + 1;
        state.seq = 0;
        (state.tokens, state.system_before, state.system_after) = (0, 0, 0);
    }
    Ok(true)
}

fn next_loop(reader: &Reader<'_>, from: i64) -> StoreResult<Option<(i64, u32)>> {
    reader.first(
        "SELECT key, next_seq FROM loops WHERE key >= ?1 ORDER BY key LIMIT 1",
        [from],
        |row| Ok((row.get("key")?, row.small("next_seq")?)),
    )
}

/// Returns messages until there are enough for one transaction.
fn batch(
    reader: &Reader<'_>,
    key: i64,
    seqs: std::ops::Range<u32>,
) -> StoreResult<Vec<MessageRow>> {
    let (mut rows, mut bytes) = (Vec::new(), 0u64);
    reader.messages(LoopKey(key), seqs, &mut |row| {
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
    reader: &Reader<'_>,
    counter: &dyn TokenCounter,
    state: &mut State,
    turns: &mut BTreeMap<u32, u64>,
    row: MessageRow,
) -> StoreResult<()> {
    let before = row.body.tokens;
    let is_extension = row.body.role == Role::Extension;
    let is_system = is_extension && is_system(&row)?;
    let tokens = count(row.body, counter)?;
    if tokens != before {
        let id = packed(state.in_loop, row.seq);
        let sql = "UPDATE messages SET tokens = ?2 WHERE id = ?1";
        reader.run(sql, [id, signed(tokens)?])?;
    }
    if is_system {
        state.system_before += before;
        state.system_after += tokens;
    }
    if !is_extension {
        state.tokens += tokens;
        if let Some(turn) = row.turn {
            turns.insert(turn, state.tokens);
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

/// Writes the loop's totals. A system prompt whose content is gone keeps its part of them.
fn finish(reader: &Reader<'_>, state: &State) -> StoreResult<()> {
    reader.run(
        "UPDATE loops SET tokens = ?2, system_tokens = max(system_tokens - ?3, 0) + ?4
         WHERE key = ?1",
        params![
            state.in_loop,
            signed(state.tokens)?,
            signed(state.system_before)?,
            signed(state.system_after)?,
        ],
    )?;
    Ok(())
}
