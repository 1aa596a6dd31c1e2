//! Counting tokens anew with another counter.
//!
//! The work goes through the loops and then the blocks in the order of their keys, in short
//! transactions. Each notes in `store_meta` how far it came, so that a recount that was cut off
//! goes on from there; until it is done the database opens for nothing else. The last transaction
//! writes the counter's name. What a run says of tokens stays: it names its own counter.

mod blocks;
mod loops;

use std::path::Path;

use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use super::read::Reader;
use super::{SqliteOptions, SqliteStore};
use crate::store::StoredMessage;
use crate::store::codec::to_json;
use crate::store::error::{OpenError, StoreError, StoreResult};
use crate::tokens::TokenCounter;

/// Messages that one transaction counts at most.
const BATCH_MESSAGES: usize = 1_000;

/// Bytes of messages after which a transaction ends.
const BATCH_BYTES: u64 = 8 << 20;

/// How far a recount is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecountProgress {
    /// Messages counted, those of blocks included.
    pub messages: u64,
    /// Blocks counted.
    pub blocks: u64,
    /// Messages in the database when the recount began or went on.
    pub all_messages: u64,
}

/// What a recount did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RecountReport {
    /// The counter before.
    pub from: String,
    /// The counter now.
    pub to: String,
    /// Messages counted, those of blocks included.
    pub messages: u64,
    /// Blocks counted.
    pub blocks: u64,
    /// Whether it went on from where an earlier one was cut off.
    pub resumed: bool,
}

/// Why a recount failed.
#[derive(Debug, thiserror::Error)]
pub enum RecountError {
    /// The database could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The database could not be read or written; run it again to go on.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Where a recount stands, as `store_meta` holds it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct State {
    /// The counter that it counts with.
    pub(super) to: String,
    /// The loop that comes next, and its message that comes next.
    in_loop: i64,
    seq: u32,
    /// Tokens of that loop before this message; extensions do not count.
    tokens: u64,
    /// Tokens of its system prompts before this message, as they were and as they are.
    system_before: u64,
    system_after: u64,
    /// The block that comes next, once the loops are done.
    block: Option<i64>,
    messages: u64,
    blocks: u64,
}

/// Counts the tokens of the database at `path` anew with the counter of `options`.
///
/// `progress` is called after each transaction. A process that is killed loses the last one only:
/// the next recount with the same counter goes on there.
///
/// # Errors
/// If the database cannot be opened, read or written.
pub fn recount(
    path: impl AsRef<Path>,
    options: SqliteOptions,
    progress: &mut dyn FnMut(RecountProgress),
) -> Result<RecountReport, RecountError> {
    let store = SqliteStore::open_with(path, options.create(false).for_recount())?;
    let counter = crate::store::SessionStore::counter(&store);
    let (from, mut state, resumed) = store.transaction(|connection| begin(connection, counter))?;
    let mut seen = RecountProgress {
        all_messages: store.snapshot(count_messages)?,
        ..RecountProgress::default()
    };
    while from != state.to || resumed {
        let done = store.transaction(|connection| step(connection, counter, &mut state))?;
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

/// Notes that a recount is under way, or finds where an earlier one stopped.
fn begin(
    connection: &Connection,
    counter: &dyn TokenCounter,
) -> StoreResult<(String, State, bool)> {
    let reader = Reader::new(connection);
    let from = reader
        .meta("token_counter")?
        .ok_or_else(|| StoreError::Damaged("the token counter's name is missing".into()))?;
    let to = counter.name().to_owned();
    let earlier = reader.state()?;
    // Half of the counts may be those of a third counter: then nothing can be left out.
    let resumed = earlier.is_some();
    if let Some(state) = earlier.filter(|state| state.to == to) {
        return Ok((from, state, true));
    }
    let state = State {
        to,
        ..State::default()
    };
    if from != state.to || resumed {
        reader.put_state(&state)?;
    }
    Ok((from, state, resumed))
}

fn count_messages(connection: &Connection) -> StoreResult<u64> {
    let reader = Reader::new(connection);
    let sql = "SELECT (SELECT count(*) FROM messages) + (SELECT count(*) FROM block_messages) AS n";
    Ok(reader.first(sql, [], |row| row.unsigned("n"))?.unwrap_or(0))
}

/// Does one transaction's worth; returns whether that was the last.
fn step(
    connection: &Connection,
    counter: &dyn TokenCounter,
    state: &mut State,
) -> StoreResult<bool> {
    let reader = Reader::new(connection);
    // Two recounts at once would add up each other's figures.
    if reader.state()?.as_ref() != Some(&*state) {
        let why = "another recount of this database is at work";
        return Err(StoreError::Invalid(why.into()));
    }
    let mut next = state.clone();
    let done = match next.block {
        None => {
            if !loops::step(&reader, counter, &mut next)? {
                next.block = Some(0);
            }
            false
        }
        Some(_) => !blocks::step(&reader, counter, &mut next)?,
    };
    if done {
        reader.finish_recount(&next.to)?;
    } else {
        reader.put_state(&next)?;
    }
    *state = next;
    Ok(done)
}

/// Counts a stored message; one whose content is gone keeps its count.
fn count(stored: StoredMessage, counter: &dyn TokenCounter) -> StoreResult<u64> {
    if stored.head.is_none() {
        return Ok(stored.tokens);
    }
    // An image counts by its size, which stands in the message; its bytes are not needed.
    let message = crate::store::codec::decode(stored, &mut |_| Ok(None))?;
    Ok(counter.message_tokens(&message))
}

impl Reader<'_> {
    fn meta(&self, name: &str) -> StoreResult<Option<String>> {
        let sql = "SELECT value FROM store_meta WHERE name = ?1";
        self.first(sql, [name], |row| row.get("value"))
    }

    /// Returns how far a recount came; what cannot be read is as good as nowhere.
    fn state(&self) -> StoreResult<Option<State>> {
        let json = self.meta("recount")?;
        Ok(json.map(|json| serde_json::from_str(&json).unwrap_or_default()))
    }

    fn put_state(&self, state: &State) -> StoreResult<()> {
        let json = to_json(state)?;
        let sql = "UPDATE store_meta SET value = ?1 WHERE name = 'recount'";
        if self.run(sql, [&json])? == 0 {
            let sql = "INSERT INTO store_meta (name, value) VALUES ('recount', ?1)";
            self.run(sql, [&json])?;
        }
        Ok(())
    }

    fn finish_recount(&self, to: &str) -> StoreResult<()> {
        let sql = "UPDATE store_meta SET value = ?1 WHERE name = 'token_counter'";
        self.run(sql, [to])?;
        self.run("DELETE FROM store_meta WHERE name = 'recount'", [])?;
        Ok(())
    }
}
