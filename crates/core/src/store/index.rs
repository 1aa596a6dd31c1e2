//! The requests and results of an index of messages, as plain values.
//!
//! An index contains words, never text: `words` splits both the stored text and the query,
//! so that every backend finds the same. A word contains no white space.

use std::ops::Range;

use super::rows::{LoopKey, SessionKey};
use super::{StoreError, StoreResult, StoreWrite, Tick};
use crate::model::{Author, Role};

/// A phrase: consecutive words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phrase {
    /// The words; never empty.
    pub words: Vec<String>,
    /// True if the last word may be the beginning of a word.
    pub is_prefix: bool,
}

impl Phrase {
    /// Returns a phrase of whole words.
    pub fn of(words: Vec<String>) -> Self {
        Self {
            words,
            is_prefix: false,
        }
    }
}

/// The words that a message must contain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexQuery {
    /// Lists of phrases; a message contains at least one phrase of each list.
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

/// The messages that are searched; a field that is `None` restricts nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexFilter {
    /// The sessions of the messages.
    pub sessions: Option<Vec<SessionKey>>,
    /// The role of the messages.
    pub role: Option<Role>,
    /// The tool: only its calls and their results.
    pub tool: Option<String>,
    /// The earliest time, in milliseconds since the epoch.
    pub since: Option<i64>,
    /// The latest time.
    pub until: Option<i64>,
}

/// A message as it is added to the index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexEntry {
    /// Its sequence.
    pub seq: u32,
    /// The words of the message in order, separated by spaces, then other forms by which these words are found; empty
    /// if the message has no words.
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
    /// The author of its words.
    pub author: Author,
    /// Its size in bytes.
    pub bytes: u64,
    /// The tick of its append.
    pub tick: Tick,
}

/// The progress of an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexState {
    /// Messages in the index.
    pub indexed: u64,
    /// Messages in the store, extensions included.
    pub total: u64,
}

impl Match {
    /// Returns the key by which hits are sorted by age. Hits of one session are sorted by tick and sequence. Of
    /// different sessions, the hit in the session that was stored later is newer.
    pub fn age(&self) -> (SessionKey, Tick, LoopKey, u32) {
        (self.session, self.tick, self.loop_key, self.seq)
    }
}

/// Removes the messages of a loop from the index, from `from` on. A transaction that removes the
/// content of messages must call this, as the index still contains their words. The remaining messages are
/// indexed again with their new content; a backend may drop the whole index for that.
///
/// # Errors
/// If the store fails, or the index is damaged.
pub fn remove_loop(write: &mut dyn StoreWrite, loop_key: LoopKey, from: u32) -> StoreResult<()> {
    write.unindex(loop_key, from)
}

/// Removes all messages of a session from the index, as [`remove_loop`] does.
///
/// # Errors
/// If the store fails, or the index is damaged.
pub fn remove_session(write: &mut dyn StoreWrite, session: SessionKey) -> StoreResult<()> {
    for row in write.loops(session)? {
        write.unindex(row.key, 0)?;
    }
    Ok(())
}
