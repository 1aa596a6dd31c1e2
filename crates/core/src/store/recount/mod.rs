//! Recounts tokens with another counter.
//!
//! The work goes through the loops and then the blocks in the order of their keys, in short
//! transactions. Each records its progress in `store_meta`, so that an interrupted recount continues from
//! there; until it is done the database opens for nothing else. The last transaction writes the
//! counter's name. The token counts in runs stay: a run names its own counter.

mod blocks;
mod loops;

use serde::{Deserialize, Serialize};

use super::codec::{self, decode, to_json};
use super::error::{OpenError, StoreError, StoreResult};
use super::{BlockKey, BlockRow, Database, LoopKey, RunKey, StoreRead, StoredMessage};
use crate::tokens::TokenCounter;

/// Messages that one transaction counts at most.
const BATCH_MESSAGES: usize = 1_000;

/// Bytes of messages after which a transaction ends.
const BATCH_BYTES: u64 = 8 << 20;

/// The operations of a transaction of a recount. No other transaction writes meanwhile, and later transactions must
/// use the new counter.
pub trait StoreRecount: StoreRead {
    /// Returns the name of the counter that the database is written with.
    fn counter_name(&self) -> StoreResult<Option<String>>;
    /// Returns the note of a recount that is not finished.
    fn recount_note(&self) -> StoreResult<Option<String>>;
    /// Writes the note of a recount over the one before.
    fn put_recount_note(&mut self, note: &str) -> StoreResult<()>;
    /// Writes the name of the counter, and removes the note.
    fn finish_recount(&mut self, counter: &str) -> StoreResult<()>;
    /// Returns the number of stored messages, including the messages of blocks.
    fn stored_messages(&self) -> StoreResult<u64>;
    /// Returns the first loop whose key is `from` or greater, and its number of messages.
    fn loop_from(&self, from: LoopKey) -> StoreResult<Option<(LoopKey, u32)>>;
    /// Returns the first block whose key is `from` or greater.
    fn block_from(&self, from: BlockKey) -> StoreResult<Option<BlockRow>>;
    /// Writes the tokens of messages, by their sequences.
    fn put_message_tokens(&mut self, loop_key: LoopKey, counts: &[(u32, u64)]) -> StoreResult<()>;
    /// Writes the tokens of a loop through the ends of turns.
    fn put_turn_tokens(&mut self, loop_key: LoopKey, counts: &[(u32, u64)]) -> StoreResult<()>;
    /// Writes the tokens of a loop. `before` and `after` are the tokens of its system prompts before and after the
    /// recount. A system prompt whose content was removed keeps its tokens.
    fn put_loop_tokens(
        &mut self,
        loop_key: LoopKey,
        tokens: u64,
        before: u64,
        after: u64,
    ) -> StoreResult<()>;
    /// Writes the tokens of an edit, before it and after it.
    fn put_edit_tokens(
        &mut self,
        run: RunKey,
        ordinal: u32,
        before: u64,
        after: u64,
    ) -> StoreResult<()>;
    /// Writes the packed form of the edits of a run again, from its rows.
    fn repack_edits(&mut self, run: RunKey) -> StoreResult<()>;
    /// Writes the tokens of a block's messages, by their position in it.
    fn put_block_message_tokens(
        &mut self,
        block: BlockKey,
        counts: &[(u32, u64)],
    ) -> StoreResult<()>;
    /// Writes the tokens that a block covers, and the tokens that it shows instead.
    fn put_block_tokens(&mut self, block: BlockKey, covered: u64, shown: u64) -> StoreResult<()>;
}

/// The progress of a recount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecountProgress {
    /// Messages counted, including the messages of blocks.
    pub messages: u64,
    /// Blocks counted.
    pub blocks: u64,
    /// Messages in the database when the recount began or was resumed.
    pub all_messages: u64,
}

/// The result of a recount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RecountReport {
    /// The counter before.
    pub from: String,
    /// The counter now.
    pub to: String,
    /// Messages counted, including the messages of blocks.
    pub messages: u64,
    /// Blocks counted.
    pub blocks: u64,
    /// True if it resumed an interrupted recount.
    pub resumed: bool,
}

/// An error of a recount.
#[derive(Debug, thiserror::Error)]
pub enum RecountError {
    /// The database could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The database could not be read or written; running the recount again resumes it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The state of a recount, as stored in `store_meta`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct RecountState {
    /// The counter of the recount.
    to: String,
    /// The next loop, and the next message of it.
    loop_key: i64,
    seq: u32,
    /// Tokens of that loop before this message; extensions do not count.
    tokens: u64,
    /// Tokens of its system prompts before this message, as they were and as they are.
    system_before: u64,
    system_after: u64,
    /// The next block, once the loops are done.
    block: Option<i64>,
    messages: u64,
    blocks: u64,
}

/// Returns the counter that the note of a recount names; an empty text if the note cannot be read.
pub fn counter_of(note: &str) -> String {
    let state: RecountState = serde_json::from_str(note).unwrap_or_default();
    state.to
}

/// Recounts the tokens of a database, which was opened for that, with its counter.
///
/// `progress` is called after each transaction. A process that is killed loses the last one only:
/// the next recount with the same counter continues from there.
///
/// # Errors
/// If the database cannot be read or written.
pub fn run(
    store: &dyn Database,
    progress: &mut dyn FnMut(RecountProgress),
) -> StoreResult<RecountReport> {
    let counter = store.counter();
    let ((from, mut state, resumed), all_messages) = within(store, |write| {
        Ok((begin_or_resume(write, counter)?, write.stored_messages()?))
    })?;
    let mut seen = RecountProgress {
        all_messages,
        ..RecountProgress::default()
    };
    while from != state.to || resumed {
        let (next, done) = within(store, |write| step(write, counter, &state))?;
        state = next;
        (seen.messages, seen.blocks) = (state.messages, state.blocks);
        progress(seen);
        if done {
            break;
        }
    }
    Ok(RecountReport {
        from,
        to: state.to,
        messages: state.messages,
        blocks: state.blocks,
        resumed,
    })
}

fn within<T>(
    store: &dyn Database,
    work: impl FnOnce(&mut dyn StoreRecount) -> StoreResult<T>,
) -> StoreResult<T> {
    let mut result = None;
    store.recounting(Box::new(|write| {
        result = Some(work(write)?);
        Ok(())
    }))?;
    result.ok_or_else(|| StoreError::Invalid("the store did not run the recount".into()))
}

/// Records the start of a recount, or returns the state of an interrupted one.
fn begin_or_resume(
    write: &mut dyn StoreRecount,
    counter: &dyn TokenCounter,
) -> StoreResult<(String, RecountState, bool)> {
    let from = write
        .counter_name()?
        .ok_or_else(|| StoreError::Damaged("the token counter's name is missing".into()))?;
    let to = counter.name().to_owned();
    let earlier = read_state(write)?;
    // Half of the counts may be those of a third counter: then nothing can be skipped.
    let resumed = earlier.is_some();
    if let Some(state) = earlier.filter(|state| state.to == to) {
        return Ok((from, state, true));
    }
    let state = RecountState {
        to,
        ..RecountState::default()
    };
    if from != state.to || resumed {
        write.put_recount_note(&to_json(&state)?)?;
    }
    Ok((from, state, resumed))
}

/// Returns the stored state of a recount; a state that cannot be read counts as the beginning.
fn read_state(write: &dyn StoreRecount) -> StoreResult<Option<RecountState>> {
    let note = write.recount_note()?;
    Ok(note.map(|note| serde_json::from_str(&note).unwrap_or_default()))
}

/// Runs one transaction; returns the state after it, and `true` if it was the last.
fn step(
    write: &mut dyn StoreRecount,
    counter: &dyn TokenCounter,
    state: &RecountState,
) -> StoreResult<(RecountState, bool)> {
    // Two recounts at once would add up each other's figures.
    if read_state(write)?.as_ref() != Some(state) {
        let why = "another recount of this database is at work";
        return Err(StoreError::Invalid(why.into()));
    }
    let mut next = state.clone();
    let done = match next.block {
        None => {
            if !loops::step(write, counter, &mut next)? {
                next.block = Some(0);
            }
            false
        }
        Some(_) => !blocks::step(write, counter, &mut next)?,
    };
    if done {
        write.finish_recount(&next.to)?;
    } else {
        write.put_recount_note(&to_json(&next)?)?;
    }
    Ok((next, done))
}

/// Counts a stored message; one whose content is gone keeps its count.
fn count(stored: StoredMessage, counter: &dyn TokenCounter) -> StoreResult<u64> {
    if stored.head.is_none() {
        return Ok(stored.tokens);
    }
    // An image counts by its size, which is part of the message; its bytes are not needed.
    let message = decode(stored, &mut |_| Ok(None))?;
    codec::count_message(&message, counter)
}
