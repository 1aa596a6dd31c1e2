//! Finding messages by their words, also those that a compaction hid.
//!
//! Recording never writes the index: a search lets it catch up first, in transactions of its own.
//! What it could not take in (the store is read-only or busy, or somebody records meanwhile) is
//! looked through directly, so a message is found as soon as it is recorded. Every hit is compared
//! with the text as it stands.

pub(crate) mod catch_up;
pub(crate) mod excerpt;
mod matching;
pub(crate) mod query;
mod rank;
mod recall;
mod snippet;
mod text;
mod visibility;
mod words;

pub(crate) use catch_up::index;
pub use query::QueryError;
pub(crate) use query::parse_query;
pub use recall::{LeftOut, Recall, RecallPart, recall};
pub use snippet::Snippet;

use std::ops::ControlFlow;

use rank::{Scanned, add_scores};
use text::{MessageText, message_text};
use visibility::{MessageSpot, Sights};

use crate::context::session_of;
use crate::model::{LoopId, Role, SessionId, Time};
use crate::store::index::{IndexFilter, IndexQuery, Match};
use crate::store::{
    self, Disposition, LoopKey, MessageRow, SessionStore, StoreError, StoreRead, StoreResult,
};

/// What to look for, and where.
///
/// ```
/// use loopstore::search::{SearchQuery, search};
/// use loopstore::*;
///
/// let store = Store::in_memory()?;
/// let chat = store.session("weather")?;
/// let report = |hour| Message::assistant(format!("Hour {hour}: {}", "rain, ".repeat(200)));
/// chat.append([Message::user("How is the weather?")])?;
/// chat.append((0..40).map(report))?;
/// # let trigger = CompactTrigger::Force;
/// # let request = CompactRequest { trigger, ..CompactRequest::default() };
/// chat.compact(&request)?;
/// // What the summary of this session left out.
/// let hidden = SearchQuery {
///     session: Some(chat.id().clone()),
///     hidden: Some(true),
///     limit: Some(5),
///     ..SearchQuery::new("hour")
/// };
/// assert_eq!(search(store.database(), &hidden)?.hits.len(), 5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct SearchQuery {
    /// The words: see [`parse_query`].
    pub text: String,
    /// Only messages of this session.
    pub session: Option<SessionId>,
    /// Only messages of this role.
    pub role: Option<Role>,
    /// Only calls of the tool of this name, and its results.
    pub tool: Option<String>,
    /// Only messages of this time or later, in milliseconds since the epoch.
    pub since: Option<i64>,
    /// Only messages of this time or earlier.
    pub until: Option<i64>,
    /// Only messages that the context does not hold, or only those that it holds.
    pub hidden: Option<bool>,
    /// How many hits to return; 20 if not given.
    pub limit: Option<usize>,
    /// How many of the best to leave out.
    pub offset: usize,
}

impl SearchQuery {
    /// Looks for `text` everywhere.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }
}

impl From<&str> for SearchQuery {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for SearchQuery {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

/// How many hits are returned if nothing else is said.
const LIMIT: usize = 20;

/// A message that was found.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct SearchHit {
    /// Its session.
    pub session_id: SessionId,
    /// Its loop.
    pub loop_id: LoopId,
    /// Its turn; `None` for an extension before the first.
    pub turn: Option<u32>,
    /// Its place in the loop.
    pub seq: u32,
    /// Its role.
    #[serde(serialize_with = "role_name")]
    pub role: Role,
    /// When it was said, if that is known.
    pub created_at: Option<Time>,
    /// What fits, with its surroundings; in JSON what fits stands between `«` and `»`.
    pub snippet: Snippet,
    /// How well it fits (BM25); more is better.
    pub score: f64,
    /// Whether the context does not hold it: that of the session's current loop, for a message
    /// that is not on its chain that of its own loop. An extension is in no context.
    pub hidden: bool,
    /// The run whose block covers it.
    pub run_id: Option<String>,
    /// The loop that this block stands on: another one for a rollup.
    pub block_loop_id: Option<LoopId>,
    /// The generation of this block on that loop.
    pub generation: Option<u32>,
    /// What the block says of it.
    #[serde(serialize_with = "disposition_name")]
    pub disposition: Option<Disposition>,
}

/// What a search found.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct SearchResults {
    /// The best first; of equals the newest.
    pub hits: Vec<SearchHit>,
    /// Messages that the index has taken in; the others were looked through directly.
    pub indexed: u64,
    /// The offset to go on with, if there are more hits.
    pub next: Option<usize>,
}

/// Why a search failed.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// The query cannot be asked.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The store failed, or the session is not there.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The least answer does not fit.
    #[error("an answer needs at least {needed} tokens here, and {given} are allowed")]
    TooFewTokens {
        /// What the least answer takes.
        needed: u64,
        /// What it may take.
        given: u64,
    },
}

fn role_name<S: serde::Serializer>(role: &Role, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(role.as_str())
}

fn disposition_name<S: serde::Serializer>(
    disposition: &Option<Disposition>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serde::Serialize::serialize(&disposition.map(Disposition::as_str), serializer)
}

/// Finds messages by their words.
///
/// The index catches up first, if the store can be written to now.
///
/// # Errors
/// If the query cannot be asked, the session is not there, the index is damaged or the store fails.
///
/// # Examples
/// ```
/// use loopstore::search::{SearchQuery, search};
///
/// let store = loopstore::Store::in_memory()?;
/// let found = search(store.database(), &SearchQuery::new("\"status report\" OR summary -draft"))?;
/// assert!(found.hits.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn search(store: &dyn SessionStore, query: &SearchQuery) -> Result<SearchResults, SearchError> {
    let words = parse_query(&query.text)?;
    match index(store, &mut |_| {}) {
        // What is not indexed is looked through.
        Err(
            StoreError::ReadOnly
            | StoreError::Busy
            | StoreError::SerializationFailure
            | StoreError::Full
            | StoreError::Io(_)
            | StoreError::Unconfirmed(_),
        ) => {}
        done => {
            done?;
        }
    }
    Ok(store::read(store, |read| {
        SearchRun::new(read, query, &words)?.run()
    })?)
}

/// One search within one snapshot.
struct SearchRun<'a> {
    read: &'a dyn StoreRead,
    query: &'a SearchQuery,
    words: &'a IndexQuery,
    filter: IndexFilter,
    sights: Sights,
}

impl<'a> SearchRun<'a> {
    fn new(
        read: &'a dyn StoreRead,
        query: &'a SearchQuery,
        words: &'a IndexQuery,
    ) -> StoreResult<Self> {
        let session = match &query.session {
            Some(id) => Some(session_of(read, id)?.key),
            None => None,
        };
        let filter = IndexFilter {
            session,
            role: query.role,
            tool: query.tool.clone(),
            since: query.since,
            until: query.until,
        };
        Ok(Self {
            read,
            query,
            words,
            filter,
            sights: Sights::default(),
        })
    }

    fn run(mut self) -> StoreResult<SearchResults> {
        let state = self.read.index_state()?;
        let is_usable = state.version == Some(words::VERSION);
        let mut matches = Vec::new();
        if is_usable {
            self.read.find(self.words, &self.filter, &mut |found| {
                matches.push(found);
                Ok(ControlFlow::Continue(()))
            })?;
        }
        let scanned = self.scan(is_usable)?;
        add_scores(
            self.read,
            self.words,
            scanned,
            state,
            is_usable,
            &mut matches,
        )?;
        matches.sort_by(Match::order);
        let mut results = SearchResults {
            indexed: if is_usable { state.indexed } else { 0 },
            ..SearchResults::default()
        };
        self.fill(&mut results, &matches)?;
        Ok(results)
    }

    fn fill(&mut self, results: &mut SearchResults, matches: &[Match]) -> StoreResult<()> {
        let (mut left_out, limit) = (0, self.query.limit.unwrap_or(LIMIT));
        for found in matches {
            let Some(hit) = self.hit(found)? else {
                continue;
            };
            if left_out < self.query.offset {
                left_out += 1;
            } else if results.hits.len() < limit {
                results.hits.push(hit);
            } else {
                results.next = Some(self.query.offset + limit);
                break;
            }
        }
        Ok(())
    }

    /// Looks through the messages that the index has not taken in.
    fn scan(&mut self, is_usable: bool) -> StoreResult<Vec<Scanned>> {
        let mut scanned = Vec::new();
        for (loop_key, from, to) in self.unindexed(is_usable)? {
            let session = self.sights.loop_of(self.read, loop_key)?.session;
            if self.filter.session.is_some_and(|only| only != session) {
                continue;
            }
            self.read.messages(loop_key, from..to, &mut |row| {
                let (seq, tick) = (row.seq, row.tick);
                if !self.passes(&row) {
                    return Ok(ControlFlow::Continue(()));
                }
                let message_text = text_in(row)?;
                if self.has_tool(&message_text)
                    && let Some(places) = matching::places(self.words, &message_text)
                {
                    let found = Match {
                        loop_key,
                        seq,
                        session,
                        tick,
                        score: 0.0,
                    };
                    let counts = places.counts;
                    scanned.push(Scanned { found, counts });
                }
                Ok(ControlFlow::Continue(()))
            })?;
        }
        Ok(scanned)
    }

    /// Returns loops with the sequences that the index does not have.
    fn unindexed(&self, is_usable: bool) -> StoreResult<Vec<(LoopKey, u32, u32)>> {
        let mut open = Vec::new();
        if is_usable {
            for loop_key in self.read.unindexed()? {
                let seqs = self.read.unindexed_seqs(loop_key)?;
                open.push((loop_key, seqs.start, seqs.end));
            }
            return Ok(open);
        }
        for session in self.read.sessions()? {
            let rows = self.read.loops(session.key)?;
            open.extend(rows.iter().map(|row| (row.key, 0, row.totals.next_seq)));
        }
        Ok(open)
    }

    fn passes(&self, row: &MessageRow) -> bool {
        let (filter, at) = (&self.filter, row.created_at);
        filter.role.is_none_or(|role| role == row.body.role)
            && filter
                .since
                .is_none_or(|since| at.is_some_and(|at| at >= since))
            && filter
                .until
                .is_none_or(|until| at.is_some_and(|at| at <= until))
    }

    fn has_tool(&self, message_text: &MessageText) -> bool {
        let tool = self.filter.tool.as_ref();
        tool.is_none_or(|tool| message_text.tools.contains(tool))
    }

    /// Reads a message that was found; `None` if it does not fit (any more).
    fn hit(&mut self, found: &Match) -> StoreResult<Option<SearchHit>> {
        let mut row = None;
        let seqs = found.seq..found.seq.saturating_add(1);
        self.read.messages(found.loop_key, seqs, &mut |message| {
            row = Some(message);
            Ok(ControlFlow::Break(()))
        })?;
        let Some(row) = row else {
            return Ok(None);
        };
        let spot = MessageSpot {
            loop_key: found.loop_key,
            seq: row.seq,
            turn: row.turn,
            role: row.body.role,
        };
        let created_at = row.created_at.and_then(Time::from_millis);
        let sight = self.sights.of(self.read, spot)?;
        if self
            .query
            .hidden
            .is_some_and(|hidden| hidden != sight.hidden)
        {
            return Ok(None);
        }
        let message_text = text_in(row)?;
        let Some(places) = matching::places(self.words, &message_text) else {
            return Ok(None);
        };
        let owner = self.sights.session(self.read, found.session)?;
        let session = owner.session_id.clone();
        let loop_id = self.sights.loop_of(self.read, found.loop_key)?;
        let (mut run, mut block_loop, mut generation, mut disposition) = (None, None, None, None);
        if let Some(by) = sight.by {
            disposition = Some(by.disposition);
            (run, block_loop) = (Some(by.run), Some(by.loop_id));
            generation = Some(by.generation);
        }
        Ok(Some(SearchHit {
            session_id: session,
            loop_id: loop_id.loop_id.clone(),
            turn: spot.turn,
            seq: spot.seq,
            role: spot.role,
            created_at,
            snippet: snippet::snippet(&message_text, &places),
            score: (found.score * 1e6).round() / 1e6,
            hidden: sight.hidden,
            run_id: run,
            block_loop_id: block_loop,
            generation,
            disposition,
        }))
    }
}

fn text_in(row: MessageRow) -> StoreResult<MessageText> {
    // What an image shows is not searched, so its bytes are not read.
    Ok(message_text(store::codec::decode(row.body, &mut |_| {
        Ok(None)
    })?))
}
