//! Compares an append with the one that was made under its key.

use std::ops::{ControlFlow, Range};

use crate::model::{AgentMessage, Role, received};
use crate::store::{
    AppendKey, LoopCore, LoopKey, MessageRow, StoreError, StoreRead, StoreResult, decode,
};

/// Fails if other messages were appended under a key.
///
/// # Errors
/// [`StoreError::KeyTaken`]; or if the store fails.
pub(super) fn ensure_same(
    read: &dyn StoreRead,
    known: &AppendKey,
    messages: &[AgentMessage],
) -> StoreResult<()> {
    if is_same(read, known, messages)? {
        return Ok(());
    }
    Err(StoreError::KeyTaken {
        key: known.name.clone(),
        loop_id: read.loop_by_key(known.loop_key)?.core.loop_id.to_string(),
        seqs: known.seqs.clone(),
    })
}

/// True if these messages were appended under a key. The last of them are in the loop that the key names;
/// the messages before, if that loop began with the append, are at the end of its parent.
fn is_same(
    read: &dyn StoreRead,
    known: &AppendKey,
    mut messages: &[AgentMessage],
) -> StoreResult<bool> {
    let (mut at, mut seqs) = (known.loop_key, known.seqs.clone());
    loop {
        let Some(before) = messages.len().checked_sub(seqs.len()) else {
            return Ok(false);
        };
        let (rest, own) = messages.split_at(before);
        if !holds(read, at, seqs.clone(), own)? {
            return Ok(false);
        }
        if rest.is_empty() {
            return Ok(true);
        }
        let row = read.loop_by_key(at)?;
        let Some(parent) = row.core.parent.filter(|_| seqs.start == 0) else {
            return Ok(false);
        };
        let end = end_within(read, &row.core, parent)?;
        let count = u32::try_from(rest.len()).unwrap_or(u32::MAX);
        (messages, at, seqs) = (rest, parent, end.saturating_sub(count)..end);
    }
}

/// Returns the sequence after the last message of a loop's parent that was there when the loop began.
fn end_within(read: &dyn StoreRead, row: &LoopCore, parent: LoopKey) -> StoreResult<u32> {
    let next = row.parent_turn.map_or(0, |turn| turn.saturating_add(1));
    Ok(match read.turn(parent, next)? {
        Some(next) => next.first_seq,
        None => read.loop_by_key(parent)?.totals.next_seq,
    })
}

/// True if the messages of a loop are these.
fn holds(
    read: &dyn StoreRead,
    loop_key: LoopKey,
    seqs: Range<u32>,
    messages: &[AgentMessage],
) -> StoreResult<bool> {
    let mut left = messages.iter();
    let mut are_same = true;
    read.messages(loop_key, seqs, &mut |row| {
        are_same = match left.next() {
            Some(given) => is_message(read, row, given)?,
            None => false,
        };
        Ok(match are_same {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        })
    })?;
    Ok(are_same && left.next().is_none())
}

/// True if a stored message is this one. The append put it into its turn, and completed calls and results without
/// an id; a redacted message cannot be compared.
fn is_message(read: &dyn StoreRead, row: MessageRow, given: &AgentMessage) -> StoreResult<bool> {
    if row.body.salt.is_none() {
        return Ok(row.body.role == given.role() || row.body.role == Role::Extension);
    }
    let mut stored = decode(read, row.body)?;
    let mut given = given.clone();
    received::complete_as(&mut given, &stored);
    if let (AgentMessage::Llm(stored), AgentMessage::Llm(given)) = (&mut stored, &given) {
        stored.turn_id.clone_from(&given.turn_id);
    }
    Ok(stored == given)
}
