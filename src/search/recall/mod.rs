//! Recall: the best messages for a question, cut to the lines around the searched words, within a number of tokens.
//!
//! Half of the tokens are for the beginnings of the best hits. The other half goes to the same hits, best first, a
//! third of the rest to each, so that the best hit has the longest excerpt. Remaining tokens go to further hits.

mod candidate;
mod selection;

use std::fmt;

use self::selection::RecallSelection;
use super::excerpt::{one_line, quote_lines};
use super::query::without_phrases;
use super::{SearchError, SearchQuery, parse_query, question, search};
use crate::model::{LoopId, Role, SessionId, Time};
use crate::store::{self, SessionStore};

/// The number of hits that are read if the query has no limit.
const LIMIT: usize = 50;

/// The text if nothing was found.
const NOTHING: &str = "Nothing found.\n";

/// The answer to a question: excerpts of the best hits, in the order of the conversation.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct Recall {
    /// The question.
    pub question: String,
    /// The tokens of the answer as text, by the store's counter.
    pub tokens: u64,
    /// The excerpts. The session of the best hit is first; within a session the excerpts are in the order of the
    /// conversation.
    pub parts: Vec<RecallPart>,
    /// The hits that are not in the answer.
    pub left_out: Option<OmittedHits>,
}

/// The excerpt of a message for a question.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct RecallPart {
    /// Its session.
    pub session_id: SessionId,
    /// Its loop.
    pub loop_id: LoopId,
    /// Its turn.
    pub turn: Option<u32>,
    /// The messages of the excerpt: the message of the lead, if there is one, and the message of the text.
    pub seqs: Vec<u32>,
    /// The role of the message.
    #[serde(serialize_with = "super::role_name")]
    pub role: Role,
    /// The time of the message, if known.
    pub created_at: Option<Time>,
    /// One line of context: for an answer its prompt, for a result its call. `None` if another part shows it, or if
    /// no tokens are left.
    pub lead: Option<String>,
    /// The lines around the searched words, word for word; `…` marks a cut.
    pub text: String,
    /// Tokens of this part of the answer, with its heading.
    pub tokens: u64,
    /// The score of the message; more is better.
    pub score: f64,
    /// True if the context does not contain the message.
    pub hidden: bool,
    /// True if the message is longer than the excerpt.
    pub cut: bool,
    /// The role of the message, with the tool and the call of a result.
    #[serde(skip)]
    pub heading: String,
}

/// The hits that are not in the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct OmittedHits {
    /// The number of hits that are not in the answer.
    pub hits: u64,
    /// The number of turns that contain these hits.
    pub turns: u64,
    /// True if the search has more hits, which were not read.
    pub more: bool,
    /// The offset with which the same question, or a search, returns the next hits.
    pub offset: usize,
}

impl fmt::Display for OmittedHits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.hits == 0 {
            return write!(f, "left out: further hits; go on at offset {}", self.offset);
        }
        let plural = |count| if count == 1 { "" } else { "s" };
        write!(
            f,
            "left out: {}{} more hit{} in {} turn{}; go on at offset {}",
            if self.more { "at least " } else { "" },
            self.hits,
            plural(self.hits),
            self.turns,
            plural(self.turns),
            self.offset,
        )
    }
}

impl RecallPart {
    /// Returns the part as text: its loop, turn and message, the lead, and the excerpt with `> ` before each line.
    fn render(&self) -> String {
        let turn = self
            .turn
            .map_or_else(String::new, |turn| format!(", turn {turn}"));
        let lead = self.lead.as_deref();
        format!(
            "── loop {}{turn}, message {}, {}{}\n{}{}{}\n\n",
            one_line(self.loop_id.as_str(), usize::MAX),
            self.seqs.last().copied().unwrap_or_default(),
            self.heading,
            if self.hidden {
                "; not in the context"
            } else {
                ""
            },
            lead.unwrap_or_default(),
            if lead.is_some() { "\n" } else { "" },
            quote_lines(&self.text),
        )
    }
}

impl Recall {
    /// Returns the answer for a store without messages.
    pub(crate) fn nothing(question: &str) -> Self {
        Self {
            question: question.to_owned(),
            ..Self::default()
        }
    }

    /// Returns the answer as text. Each part has a heading with its position, and `> ` before each line of the
    /// excerpt.
    pub fn text(&self) -> String {
        if self.parts.is_empty() && self.left_out.is_none() {
            return NOTHING.into();
        }
        let (mut text, mut session) = (String::new(), None);
        for part in &self.parts {
            if session.replace(&part.session_id) != Some(&part.session_id) {
                text.push_str(&session_line(&part.session_id));
            }
            text.push_str(&part.render());
        }
        if let Some(left_out) = &self.left_out {
            text.push_str(&format!("{left_out}\n"));
        }
        text
    }
}

impl fmt::Display for Recall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

fn session_line(id: &SessionId) -> String {
    format!("Session {}\n\n", one_line(id.as_str(), usize::MAX))
}

/// True if a query has any hit, on whatever page.
fn is_anywhere(store: &dyn SessionStore, query: &SearchQuery) -> Result<bool, SearchError> {
    let first = SearchQuery {
        offset: 0,
        limit: Some(1),
        ..query.clone()
    };
    Ok(!search(store, &first)?.hits.is_empty())
}

/// Answers a question with the best hits of [`search`], in at most `tokens` tokens by the store's
/// counter.
///
/// Signs next to words have no meaning: `rm -rf` excludes nothing. If any message contains a quoted phrase, each hit
/// must contain the phrase.
///
/// The shortest answer takes about 100 tokens if ids are short. If `tokens` is less than the shortest answer, the
/// error contains the number needed. [`SearchQuery::limit`] is the number of hits to read (50 if `None`), and
/// [`SearchQuery::offset`] continues after the hits of an earlier answer. Extensions are left out unless the query
/// selects their role.
///
/// # Errors
/// As [`search`]. [`SearchError::TooFewTokens`] if the shortest answer does not fit.
///
/// # Examples
/// ```
/// use loopstore::search::{SearchQuery, recall};
/// use loopstore::*;
///
/// let store = Store::in_memory()?;
/// let chat = store.session("deploy")?;
/// let log = "waiting for the server\n".repeat(5000) + "listening on port 7071\n";
/// let call = Message::assistant("").with_tool_call("c1", "tail", serde_json::json!({"file": "log"}));
/// chat.append([Message::user("Start it."), call, Message::tool_result("c1", log)])?;
/// let answer = recall(store.database(), &SearchQuery::new("port"), 200)?;
/// let part = &answer.parts[0];
/// assert!(part.text.contains("listening on port 7071") && part.cut);
/// assert_eq!((part.turn, &*part.seqs), (Some(0), &[1, 2][..]));
/// assert!(answer.tokens <= 200);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn recall(
    store: &dyn SessionStore,
    query: &SearchQuery,
    tokens: u64,
) -> Result<Recall, SearchError> {
    let mut limited = SearchQuery {
        text: question(&query.text),
        limit: Some(query.limit.unwrap_or(LIMIT)),
        ..query.clone()
    };
    let mut found = search(store, &limited)?;
    if found.hits.is_empty()
        && let Some(text) = without_phrases(&limited.text)
        && (limited.offset == 0 || !is_anywhere(store, &limited)?)
    {
        limited.text = text;
        found = search(store, &limited)?;
    }
    let words = parse_query(&limited.text)?;
    limited.text.clone_from(&query.text);
    let mut selection = RecallSelection::new(store.counter(), &limited, &found, tokens);
    let needed = match store::read(store, |read| selection.fill(read, &words))? {
        Err(needed) => needed,
        Ok(()) => {
            let answer = selection.answer();
            if answer.tokens <= tokens {
                return Ok(answer);
            }
            answer.tokens
        }
    };
    let given = tokens;
    Err(SearchError::TooFewTokens { needed, given })
}
