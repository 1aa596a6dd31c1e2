//! What an index of messages is asked and told, as plain values.
//!
//! An index knows words, never text: `search::words` splits both what is stored and what is asked,
//! so that every backend finds the same. A word holds no white space.

use super::rows::{LoopKey, SessionKey};
use super::{StoreResult, StoreWrite, Tick};
use crate::model::Role;

/// How many of the messages that fit are ranked: a word that is everywhere tells nothing, and
/// ranking a million messages takes seconds.
pub const MOST_MATCHES: u32 = 10_000;

/// Words that follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phrase {
    /// The words; never empty.
    pub words: Vec<String>,
    /// Whether the last may be the beginning of a word.
    pub is_prefix: bool,
}

/// Which words a message must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexQuery {
    /// Of each of these lists one phrase at least.
    pub all: Vec<Vec<Phrase>>,
    /// None of these.
    pub none: Vec<Phrase>,
}

/// Which messages are looked at; what is `None` does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexFilter {
    /// Only those of this session.
    pub session: Option<SessionKey>,
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
    /// Its words in order, a space between; empty if it has none.
    pub words: String,
    /// The tools that it calls or answers for.
    pub tools: Vec<String>,
}

/// A message that the index found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Match {
    /// Its loop.
    pub loop_key: LoopKey,
    /// Its sequence.
    pub seq: u32,
    /// Its session.
    pub session: SessionKey,
    /// When it was appended.
    pub tick: Tick,
    /// How well it fits; more is better.
    pub score: f64,
}

/// How far an index is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexState {
    /// The version of the rule that its words were made by; `None` if it was never filled.
    pub version: Option<u32>,
    /// Messages that it has taken in.
    pub indexed: u64,
    /// Messages in the store, extensions included.
    pub total: u64,
}

impl Match {
    /// Orders the best first, among equals the newest: in a session by tick and sequence, else the
    /// session that was stored later.
    pub(crate) fn order(&self, other: &Self) -> std::cmp::Ordering {
        let age = |found: &Self| (found.session, found.tick, found.loop_key, found.seq);
        let by_score = other.score.total_cmp(&self.score);
        by_score.then_with(|| age(other).cmp(&age(self)))
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
