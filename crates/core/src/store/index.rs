//! What an index of messages is asked and told, as plain values.
//!
//! An index knows words, never text: `words` splits both what is stored and what is asked,
//! so that every backend finds the same. A word holds no white space.

use std::ops::Range;

use super::rows::{LoopKey, SessionKey};
use super::{StoreError, StoreResult, StoreWrite, Tick};
use crate::model::{Author, Role};

/// Words that follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phrase {
    /// The words; never empty.
    pub words: Vec<String>,
    /// Whether the last may be the beginning of a word.
    pub is_prefix: bool,
}

impl Phrase {
    /// Returns whole words that follow each other.
    pub fn of(words: Vec<String>) -> Self {
        Self {
            words,
            is_prefix: false,
        }
    }
}

/// Which words a message must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexQuery {
    /// Of each of these lists one phrase at least.
    pub all: Vec<Vec<Phrase>>,
}

impl IndexQuery {
    /// Fails for a query without a word, which no backend answers.
    #[doc(hidden)]
    pub fn check(&self) -> StoreResult<()> {
        match self.all.is_empty() || self.all.iter().any(Vec::is_empty) {
            true => Err(StoreError::Invalid(
                "an index cannot be asked for messages without a word".into(),
            )),
            false => Ok(()),
        }
    }
}

/// Which messages are looked at; what is `None` does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexFilter {
    /// Only those of these sessions.
    pub sessions: Option<Vec<SessionKey>>,
    /// Only those of this role.
    pub role: Option<Role>,
    /// Only calls of this tool and its results.
    pub tool: Option<String>,
    /// Not before this time, in milliseconds since the epoch.
    pub since: Option<i64>,
    /// Not after this time.
    pub until: Option<i64>,
}

/// A message as the index takes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexEntry {
    /// Its sequence.
    pub seq: u32,
    /// Its words in order, a space between, and behind them the forms that they are also found by; empty
    /// if it has none.
    pub words: String,
    /// The tools that it calls or answers for.
    pub tools: Vec<String>,
}

impl IndexEntry {
    /// Fails unless `seqs` begins at the first message of `unindexed`, ends within it, and has all entries.
    #[doc(hidden)]
    pub fn check_all(
        entries: &[Self],
        seqs: &Range<u32>,
        unindexed: &Range<u32>,
    ) -> StoreResult<()> {
        if seqs.start != unindexed.start || seqs.end > unindexed.end || seqs.start > seqs.end {
            return Err(StoreError::Invalid(format!(
                "messages {seqs:?} cannot be indexed: {unindexed:?} are to be indexed next"
            )));
        }
        match entries.iter().find(|entry| !seqs.contains(&entry.seq)) {
            Some(entry) => Err(StoreError::Invalid(format!(
                "message {} is not among {seqs:?}",
                entry.seq
            ))),
            None => Ok(()),
        }
    }
}

/// A message that the index found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// Its loop.
    pub loop_key: LoopKey,
    /// Its sequence.
    pub seq: u32,
    /// Its session.
    pub session: SessionKey,
    /// Its turn; `None` for an extension before the first.
    pub turn: Option<u32>,
    /// Its role.
    pub role: Role,
    /// Whose words it is.
    pub author: Author,
    /// Its size in bytes.
    pub bytes: u64,
    /// When it was appended.
    pub tick: Tick,
}

/// How far an index is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexState {
    /// Messages that it has taken in.
    pub indexed: u64,
    /// Messages in the store, extensions included.
    pub total: u64,
}

impl Match {
    /// Returns by what the newer one is told: in a session by tick and sequence, else the session that was
    /// stored later.
    pub fn age(&self) -> (SessionKey, Tick, LoopKey, u32) {
        (self.session, self.tick, self.loop_key, self.seq)
    }
}

/// Takes the messages of a loop out of the index, those from `from` on. Whoever removes what
/// messages say must call this in the same transaction: an index still holds their words. What is
/// left is indexed again as it then stands; an index may be thrown away whole for that.
///
/// # Errors
/// If the store refuses, or the index is damaged.
pub fn remove_loop(write: &mut dyn StoreWrite, loop_key: LoopKey, from: u32) -> StoreResult<()> {
    write.unindex(loop_key, from)
}

/// Takes all messages of a session out of the index, as [`remove_loop`] does.
///
/// # Errors
/// If the store refuses, or the index is damaged.
pub fn remove_session(write: &mut dyn StoreWrite, session: SessionKey) -> StoreResult<()> {
    for row in write.loops(session)? {
        write.unindex(row.key, 0)?;
    }
    Ok(())
}
