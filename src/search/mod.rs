//! Search for messages and sessions by their text, including messages that a compaction hid.
//!
//! A query is parsed into terms. The index selects candidate messages; their texts are read, compared with the query,
//! and scored together with the messages around them. The words and stems are the same for every backend, and a score
//! depends only on texts and on the number of messages with a word. So all backends return the same order.
//!
//! An append never writes the index. A search first indexes new messages, in transactions of its own. Messages that
//! are not indexed, because the store is read-only or busy or because they were just appended, are read directly. So
//! a message is found as soon as it is appended. Every hit is compared with the stored text.

mod candidates;
pub(crate) mod catch_up;
mod duplicates;
pub(crate) mod excerpt;
mod matching;
pub(crate) mod query;
mod rank;
mod recall;
mod run;
mod snippet;
mod stop_words;
mod text;
pub(crate) mod trust;
mod visibility;

pub use excerpt::quote_lines;
pub use query::QueryError;
pub(crate) use query::{parse_query, question};
pub use recall::{OmittedHits, Recall, RecallPart, recall};
pub use snippet::Snippet;

use run::SearchRun;

use crate::model::{LoopId, Role, SessionId, Time};
use crate::store::{self, Disposition, SessionStore, StoreError};

/// A search: its text, and the filters of messages and sessions.
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
    /// A question, or terms that must occur; see [`parse_query`] for the syntax.
    pub text: String,
    /// Only messages of this session.
    pub session: Option<SessionId>,
    /// Only sessions that were imported from this format.
    pub source: Option<String>,
    /// Only sessions whose project folder contains this text in its path, in upper or lower case.
    pub project: Option<String>,
    /// Only messages of this role.
    pub role: Option<Role>,
    /// Only calls of the tool of this name, and its results.
    pub tool: Option<String>,
    /// Only messages of this time or later, in milliseconds since the epoch.
    pub since: Option<i64>,
    /// Only messages of this time or earlier, in milliseconds since the epoch.
    pub until: Option<i64>,
    /// If `true`, only messages that the context does not contain; if `false`, only messages that the context
    /// contains.
    pub hidden: Option<bool>,
    /// The number of hits to return; 20 if `None`.
    pub limit: Option<usize>,
    /// The number of best hits to skip.
    pub offset: usize,
}

impl SearchQuery {
    /// Returns a search for `text` without filters.
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
    /// Its sequence in the loop.
    pub seq: u32,
    /// Its role.
    #[serde(serialize_with = "role_name")]
    pub role: Role,
    /// The time of the message, if known.
    pub created_at: Option<Time>,
    /// The matching words with their surroundings; in JSON the words are between `«` and `»`.
    pub snippet: Snippet,
    /// The score, which includes the messages around the hit; more is better. Scores of different queries cannot be
    /// compared. Only the most promising messages are ranked; other hits have the score 0.
    pub score: f64,
    /// The share of the query that one passage of the message contains, from 0 to 1; a rare word counts more than a
    /// common one. If even the best hits have a low relevance, the store probably has no answer.
    pub relevance: f64,
    /// True if the context does not contain the message. The context is that of the session's current loop, or that
    /// of the message's own loop if the message is not on the chain of the current loop. An extension is in no
    /// context.
    pub hidden: bool,
    /// The run whose block covers the message.
    pub run_id: Option<String>,
    /// The loop of this block; for a rollup a later loop than that of the message.
    pub block_loop_id: Option<LoopId>,
    /// The generation of this block on that loop.
    pub generation: Option<u32>,
    /// The disposition of the message in that block.
    #[serde(serialize_with = "disposition_name")]
    pub disposition: Option<Disposition>,
    /// The other hits with nearly the same text, which are not listed again.
    pub also: Vec<MessageLocation>,
}

/// The location of a message.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct MessageLocation {
    /// Its session.
    pub session_id: SessionId,
    /// Its loop.
    pub loop_id: LoopId,
    /// Its turn; `None` for an extension before the first.
    pub turn: Option<u32>,
    /// Its sequence in the loop.
    pub seq: u32,
}

/// The results of a search.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct SearchResults {
    /// Sorted: the best first, and of equal scores the newest first.
    pub hits: Vec<SearchHit>,
    /// The number of indexed messages; the search read all other messages directly.
    pub indexed: u64,
    /// The offset of the next page, if there are more hits.
    pub next: Option<usize>,
}

/// A session with its best messages.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct SessionHit {
    /// The session.
    pub session_id: SessionId,
    /// Its own title, else its first prompt as a line.
    pub title: Option<String>,
    /// Its project folder.
    pub project: Option<String>,
    /// The format that it was imported from.
    pub source: Option<String>,
    /// The time of the last append.
    pub last_active_at: Option<String>,
    /// The score; more is better.
    pub score: f64,
    /// The best hits in the session, at most three, best first.
    pub hits: Vec<SearchHit>,
}

/// The sessions that a search found.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct SessionResults {
    /// Sorted: the best first, and of equal scores the newest first.
    pub sessions: Vec<SessionHit>,
    /// The number of indexed messages; the search read all other messages directly.
    pub indexed: u64,
    /// The offset of the next page, if there are more sessions.
    pub next: Option<usize>,
}

/// An error of a search.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// The query is not valid.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The store failed, or the session does not exist.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The shortest answer has more tokens than are allowed.
    #[error("an answer needs at least {needed} tokens here, and {given} are allowed")]
    TooFewTokens {
        /// The tokens of the shortest answer.
        needed: u64,
        /// The tokens that are allowed.
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

/// Finds messages by their text.
///
/// New messages are indexed first, if the store can be written to.
///
/// # Errors
/// If the query is not valid, the session does not exist, the index is damaged, or the store fails.
///
/// # Examples
/// ```
/// use loopstore::search::{SearchQuery, search};
/// use loopstore::*;
///
/// let store = Store::in_memory()?;
/// let chat = store.session("weather")?;
/// chat.append([Message::user("Will it rain?"), Message::assistant("Only on the northern coast.")])?;
/// let found = search(store.database(), &SearchQuery::new("where do we expect rains"))?;
/// assert_eq!(found.hits[0].snippet.marked("<", ">"), "Will it <rain>?");
/// // What must occur.
/// let found = search(store.database(), &SearchQuery::new("\"northern coast\" OR east -rain"))?;
/// assert_eq!(found.hits.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn search(store: &dyn SessionStore, query: &SearchQuery) -> Result<SearchResults, SearchError> {
    prepared(store, query, |run| run.messages())
}

/// Finds sessions by the text of their messages. [`SearchQuery::limit`] and [`SearchQuery::offset`] are numbers of
/// sessions.
///
/// # Errors
/// As [`search`].
///
/// # Examples
/// ```
/// use loopstore::search::{SearchQuery, search_sessions};
/// use loopstore::*;
///
/// let store = Store::in_memory()?;
/// store.session("weather")?.append([Message::user("Will it rain?")])?;
/// store.session("walk")?.append([Message::user("Where shall we walk?")])?;
/// let found = search_sessions(store.database(), &SearchQuery::new("did I ask about rain"))?;
/// assert_eq!(found.sessions[0].session_id.as_str(), "weather");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn search_sessions(
    store: &dyn SessionStore,
    query: &SearchQuery,
) -> Result<SessionResults, SearchError> {
    prepared(store, query, |run| run.sessions())
}

/// Brings the index up to date, if that is possible now, and runs a search.
fn prepared<T>(
    store: &dyn SessionStore,
    query: &SearchQuery,
    run: impl FnOnce(SearchRun<'_>) -> store::StoreResult<T>,
) -> Result<T, SearchError> {
    let words = parse_query(&query.text)?;
    match catch_up::bring_up_to_date(store, &mut |_| {}) {
        // Messages that are not indexed are read directly.
        Err(
            StoreError::ReadOnly
            | StoreError::Busy
            | StoreError::SerializationFailure
            | StoreError::Full
            | StoreError::Io(_)
            | StoreError::Unconfirmed(_)
            | StoreError::ForeignSchema(_),
        ) => {}
        done => {
            done?;
        }
    }
    Ok(store::read(store, |read| {
        trust::check_some(read)?;
        run(SearchRun::new(read, query, &words)?)
    })?)
}
