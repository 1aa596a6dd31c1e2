//! Checks that the index is complete: messages of the record are looked up by one of their words.
//!
//! An index that was emptied or thinned is consistent in itself, and a search would report that there is
//! nothing. So each search checks some messages, picked at random, and `verify` checks all of them.

use std::collections::HashSet;
use std::ops::ControlFlow;

use super::text::{MessageText, message_text};
use crate::sqlite::SqliteStore;
use crate::store::{self, Database, LoopKey, StoreError, StoreRead, StoreResult};
use crate::words::{VERSION, each_word};

/// The number of loops that a search checks.
const LOOPS: u32 = 4;

/// The most bytes of a message of which a search looks for a word: a longer one takes long to be read.
const MOST_BYTES: u64 = 64 << 10;

/// The bytes of a text from which a word is taken.
const BEGINNING: usize = 8 << 10;

/// The number of messages that `verify` names.
const NAMED: usize = 10;

/// The approximate number of messages that `verify` looks up on a server, one query each: of more, every n-th.
const MOST_ASKED: u64 = 20_000;

/// Looks up some messages of the record.
///
/// # Errors
/// [`StoreError::IndexDamaged`] if the index lacks one of them.
pub(super) fn check_some(read: &dyn StoreRead) -> StoreResult<()> {
    if read.index_version()? != Some(VERSION) {
        return Ok(());
    }
    let open: HashSet<LoopKey> = read.unindexed()?.into_iter().collect();
    for loop_key in read.sampled_loops(LOOPS)? {
        let end = end_of_indexed(read, &open, loop_key)?;
        let Some(last) = end.checked_sub(1) else {
            continue;
        };
        let mut random = [0; 4];
        // Without random numbers from the system the first message is checked.
        let _ = getrandom::fill(&mut random);
        for seq in [last, u32::from_ne_bytes(random) % end] {
            if !is_held_or_damaged(read, loop_key, seq, MOST_BYTES)? {
                return Err(StoreError::IndexDamaged(format!(
                    "{} is not in it, and is recorded",
                    name(read, loop_key, seq)?
                )));
            }
        }
    }
    Ok(())
}

/// Looks up stored messages in the index, all of them if the database is a file, and returns a line for each message
/// that the index lacks.
///
/// # Errors
/// If the store cannot be read, except because it is damaged.
pub fn missing(store: &dyn Database) -> StoreResult<Vec<String>> {
    let is_file = SqliteStore::downcast(store).is_some();
    store::read(store, |read| {
        if read.index_version()? != Some(VERSION) {
            return Ok(Vec::new());
        }
        let open: HashSet<LoopKey> = read.unindexed()?.into_iter().collect();
        let step = match is_file {
            true => 1,
            false => read.index_state()?.total / MOST_ASKED + 1,
        };
        let (mut lines, mut more, mut at) = (Vec::new(), 0u64, 0u64);
        for session in read.sessions()? {
            for (loop_key, _) in read.loop_lengths(session.key)? {
                for seq in 0..end_of_indexed(read, &open, loop_key)? {
                    at += 1;
                    if !at.is_multiple_of(step)
                        || is_held_or_damaged(read, loop_key, seq, u64::MAX)?
                    {
                        continue;
                    }
                    match lines.len() < NAMED {
                        true => lines.push(format!("{} is not in it", name(read, loop_key, seq)?)),
                        false => more += 1,
                    }
                }
            }
        }
        if more > 0 {
            lines.push(format!("{more} more messages are not in it"));
        }
        Ok(lines)
    })
}

/// Returns the sequence from which on a search reads the messages of a loop themselves.
fn end_of_indexed(
    read: &dyn StoreRead,
    open: &HashSet<LoopKey>,
    loop_key: LoopKey,
) -> StoreResult<u32> {
    let seqs = read.unindexed_seqs(loop_key)?;
    Ok(match open.contains(&loop_key) {
        true => seqs.start,
        false => seqs.end,
    })
}

/// True also for a message that cannot be read: it is damage of the record, and named as such.
fn is_held_or_damaged(
    read: &dyn StoreRead,
    loop_key: LoopKey,
    seq: u32,
    most: u64,
) -> StoreResult<bool> {
    match is_held(read, loop_key, seq, most) {
        Err(StoreError::Damaged(_)) => Ok(true),
        found => found,
    }
}

/// True if the index finds a message by a word of it, or it has none.
fn is_held(read: &dyn StoreRead, loop_key: LoopKey, seq: u32, most: u64) -> StoreResult<bool> {
    let mut word = None;
    read.messages(loop_key, seq..seq.saturating_add(1), &mut |row| {
        // Of a message whose content was removed there is nothing to find.
        if row.body.bytes <= most && row.body.head.is_some() {
            let author = row.body.author;
            let message = store::codec::decode(row.body, &mut |_| Ok(None))?;
            word = longest_word(&message_text(message, author));
        }
        Ok(ControlFlow::Break(()))
    })?;
    match word {
        Some(word) => read.is_indexed(loop_key, seq, &word),
        None => Ok(true),
    }
}

/// Returns the longest word of the beginnings of a message's texts: the rarest, most likely.
fn longest_word(text: &MessageText) -> Option<String> {
    let mut longest = String::new();
    for piece in &text.pieces {
        let mut beginning = &piece.text[..piece.text.floor_char_boundary(BEGINNING)];
        if beginning.len() < piece.text.len() {
            // The last word may be cut.
            let end = beginning.rfind(char::is_whitespace).unwrap_or(0);
            beginning = &beginning[..end];
        }
        each_word(beginning, &mut |word, _| {
            if word.len() > longest.len() {
                longest = word.to_owned();
            }
        });
    }
    (!longest.is_empty()).then_some(longest)
}

fn name(read: &dyn StoreRead, loop_key: LoopKey, seq: u32) -> StoreResult<String> {
    let row = read.loop_by_key(loop_key)?;
    let session = read.session_by_key(row.core.session)?;
    Ok(format!(
        "message {seq} of loop `{}` of session `{}`",
        row.core.loop_id, session.session_id
    ))
}
