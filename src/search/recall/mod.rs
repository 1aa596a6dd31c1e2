//! What answers a question, within so many tokens: the best messages, cut to what was looked for.
//!
//! Half of the room is for the beginnings of the best hits. The rest goes to them best first, each a third of
//! what is left, so that the best answer is the longest; what then remains goes to further hits.

mod candidate;

use std::fmt;
use std::ops::ControlFlow;

use self::candidate::Candidate;
use super::excerpt::one_line;
use super::{SearchError, SearchHit, SearchQuery, SearchResults, parse_query, search};
use crate::model::{LoopId, Role, SessionId, Time};
use crate::store::index::IndexQuery;
use crate::store::{self, SessionStore, StoreRead, StoreResult};
use crate::tokens::TokenCounter;

/// How many hits are looked at if the query names no limit.
const LIMIT: usize = 50;

/// What is said where nothing was found.
const NOTHING: &str = "Nothing found.\n";

/// What answers a question: excerpts of the best hits, in the order of the conversation.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct Recall {
    /// The question.
    pub question: String,
    /// Tokens of the text, by the store's counter.
    pub tokens: u64,
    /// The excerpts: the session of the best hit first, and within a session in the order in which they
    /// were said.
    pub parts: Vec<RecallPart>,
    /// What else was found.
    pub left_out: Option<LeftOut>,
}

/// What a message says to a question.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct RecallPart {
    /// Its session.
    pub session_id: SessionId,
    /// Its loop.
    pub loop_id: LoopId,
    /// Its turn.
    pub turn: Option<u32>,
    /// The messages that it is taken from: that of the lead, if there is one, and that of the text.
    pub seqs: Vec<u32>,
    /// The role of the message.
    #[serde(serialize_with = "super::role_name")]
    pub role: Role,
    /// When it was said, if that is known.
    pub created_at: Option<Time>,
    /// One line: the prompt that an answer answers, or the call that a result is of.
    pub lead: Option<String>,
    /// The lines around what was looked for, word for word; `…` stands where the message is cut.
    pub text: String,
    /// Tokens of this part of the answer, with its heading.
    pub tokens: u64,
    /// How well the message fits; more is better.
    pub score: f64,
    /// Whether the context does not hold it.
    pub hidden: bool,
    /// Whether there is more of the message.
    pub cut: bool,
    /// The role of the message, with the tool and the call of a result.
    #[serde(skip)]
    pub heading: String,
}

/// What was found and is not in the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct LeftOut {
    /// Further hits.
    pub hits: u64,
    /// The turns that they stand in.
    pub turns: u64,
    /// Whether there are more than were looked at.
    pub more: bool,
    /// The offset at which a search, or the same question, goes on.
    pub offset: usize,
}

impl fmt::Display for LeftOut {
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
    /// Returns the part as text: where it stands, the lead and the excerpt.
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
            self.text,
        )
    }
}

impl Recall {
    /// The answer where there is nothing to look through.
    pub(crate) fn nothing(question: &str) -> Self {
        Self {
            question: question.to_owned(),
            ..Self::default()
        }
    }

    /// Returns the answer as text, each part under the place that it is from.
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

/// Answers a question with the best of what [`search`] finds, in at most `tokens` tokens by the store's
/// counter.
///
/// The least answer takes about 100 tokens where ids are short; with less the error says how many are needed.
/// [`SearchQuery::limit`] is how many hits are looked at (50 if not given), and [`SearchQuery::offset`] goes
/// on behind those that an earlier answer held. Extensions are left out, unless the query asks for their role.
///
/// # Errors
/// As [`search`], and [`SearchError::TooFewTokens`].
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
    let words = parse_query(&query.text)?;
    let limited = SearchQuery {
        limit: Some(query.limit.unwrap_or(LIMIT)),
        ..query.clone()
    };
    let found = search(store, &limited)?;
    let mut selection = Selection {
        counter: store.counter(),
        most: tokens,
        spent: store.counter().text_tokens(&reserved(query.offset, &found)),
        seats: Vec::new(),
    };
    let left = store::read(store, |read| selection.fill(read, query, &words, &found))?;
    let taken = match left {
        Ok(taken) => taken,
        Err(needed) => {
            let given = tokens;
            return Err(SearchError::TooFewTokens { needed, given });
        }
    };
    let answer = selection.answer(&query.text, taken, query, &found);
    let needed = answer.tokens;
    match needed <= tokens {
        true => Ok(answer),
        false => Err(SearchError::TooFewTokens {
            needed,
            given: tokens,
        }),
    }
}

/// The longest line that may stand at the end of the answer.
fn reserved(offset: usize, found: &SearchResults) -> String {
    if found.hits.is_empty() {
        return NOTHING.into();
    }
    let hits = found.hits.len();
    let line = LeftOut {
        hits: hits as u64,
        turns: hits as u64,
        more: found.next.is_some(),
        offset: offset.saturating_add(hits),
    };
    format!("{line}\n")
}

/// The hits that are in the answer, best first.
struct Selection<'a> {
    counter: &'a dyn TokenCounter,
    most: u64,
    spent: u64,
    seats: Vec<Seat>,
}

struct Seat {
    candidate: Candidate,
    part: RecallPart,
    /// Which of the hits it is.
    rank: usize,
    level: u32,
}

impl Selection<'_> {
    /// Takes hits and lets them grow; returns how many of the hits are taken or passed over, or what the
    /// least answer needs.
    fn fill(
        &mut self,
        read: &dyn StoreRead,
        query: &SearchQuery,
        words: &IndexQuery,
        found: &SearchResults,
    ) -> StoreResult<Result<usize, u64>> {
        let (mut taken, mut is_grown) = (0, false);
        while let Some(hit) = found.hits.get(taken) {
            let is_wanted = hit.role != Role::Extension || query.role == Some(Role::Extension);
            let candidate = match is_wanted {
                true => Candidate::load(read, hit, words)?,
                false => None,
            };
            let Some(candidate) = candidate else {
                taken += 1;
                continue;
            };
            let half = self
                .spent
                .saturating_add(self.most.saturating_sub(self.spent) / 2);
            let bound = match is_grown || self.seats.is_empty() {
                true => self.most,
                false => half.min(self.most / 2),
            };
            match self.seat((taken, hit), candidate, bound) {
                ControlFlow::Continue(()) => taken += 1,
                ControlFlow::Break(needed) if self.seats.is_empty() => return Ok(Err(needed)),
                ControlFlow::Break(_) if is_grown => break,
                ControlFlow::Break(_) => {
                    self.grow();
                    is_grown = true;
                }
            }
        }
        if !is_grown {
            self.grow();
        }
        Ok(Ok(taken))
    }

    /// Takes a hit with the least of it, if that fits; breaks with what would be needed.
    fn seat(
        &mut self,
        (rank, hit): (usize, &SearchHit),
        candidate: Candidate,
        bound: u64,
    ) -> ControlFlow<u64> {
        let is_known = self
            .seats
            .iter()
            .any(|seat| seat.part.session_id == hit.session_id);
        let line = match is_known {
            true => 0,
            false => self.counter.text_tokens(&session_line(&hit.session_id)),
        };
        let part = candidate.part(hit, 0, self.counter);
        let spent = self.spent.saturating_add(line).saturating_add(part.tokens);
        if spent > bound {
            return ControlFlow::Break(spent);
        }
        self.spent = spent;
        self.seats.push(Seat {
            candidate,
            part,
            rank,
            level: 0,
        });
        ControlFlow::Continue(())
    }

    /// Lets what was taken grow, best first.
    fn grow(&mut self) {
        for share in [3, 1] {
            for at in 0..self.seats.len() {
                let left = self.most.saturating_sub(self.spent);
                let mut bound = left / share;
                self.add_lead(at, &mut bound);
                while self.add_lines(at, &mut bound) {}
            }
        }
    }

    fn add_lead(&mut self, at: usize, bound: &mut u64) {
        let seat = &self.seats[at];
        let Some((seq, lead)) = &seat.candidate.lead else {
            return;
        };
        let is_there = |other: &Seat| {
            other.candidate.loop_key == seat.candidate.loop_key
                && other.part.seqs.last() == Some(seq)
        };
        if seat.part.lead.is_some() || self.seats.iter().any(is_there) {
            return;
        }
        let mut part = seat.part.clone();
        part.lead = Some(lead.clone());
        part.seqs.insert(0, *seq);
        part.tokens = self.counter.text_tokens(&part.render());
        self.replace(at, part, 0, bound);
    }

    /// Shows more around what was looked for; returns whether there was room, and more to show.
    fn add_lines(&mut self, at: usize, bound: &mut u64) -> bool {
        let seat = &self.seats[at];
        if !seat.part.cut {
            return false;
        }
        let mut part = seat.part.clone();
        (part.text, part.cut) = seat.candidate.excerpt(seat.level + 1);
        part.tokens = self.counter.text_tokens(&part.render());
        self.replace(at, part, 1, bound)
    }

    fn replace(&mut self, at: usize, part: RecallPart, levels: u32, bound: &mut u64) -> bool {
        let seat = &mut self.seats[at];
        let cost = part.tokens.saturating_sub(seat.part.tokens);
        if cost > *bound {
            return false;
        }
        *bound -= cost;
        self.spent += cost;
        seat.level += levels;
        seat.part = part;
        true
    }

    /// Puts the parts in order. With a counter that counts a text as more than its parts, the last ones are
    /// shortened.
    fn answer(
        mut self,
        question: &str,
        mut taken: usize,
        query: &SearchQuery,
        found: &SearchResults,
    ) -> Recall {
        loop {
            let mut answer = Recall {
                question: question.to_owned(),
                tokens: 0,
                parts: self.ordered(),
                left_out: left_out(&found.hits[taken..], found, query, taken),
            };
            answer.tokens = self.counter.text_tokens(&answer.text());
            if answer.tokens <= self.most {
                return answer;
            }
            let Some(last) = self.seats.last_mut().filter(|last| last.level > 0) else {
                match self.seats.pop() {
                    Some(last) if !self.seats.is_empty() => taken = last.rank,
                    _ => return answer,
                }
                continue;
            };
            last.level -= 1;
            (last.part.text, last.part.cut) = last.candidate.excerpt(last.level);
            last.part.tokens = self.counter.text_tokens(&last.part.render());
        }
    }

    fn ordered(&self) -> Vec<RecallPart> {
        let session = |seat: &Seat| {
            let same = |other: &Seat| other.part.session_id == seat.part.session_id;
            self.seats.iter().position(same)
        };
        let mut seats: Vec<&Seat> = self.seats.iter().collect();
        seats.sort_by_key(|seat| (session(seat), seat.candidate.order()));
        seats.into_iter().map(|seat| seat.part.clone()).collect()
    }
}

fn left_out(
    hits: &[SearchHit],
    found: &SearchResults,
    query: &SearchQuery,
    taken: usize,
) -> Option<LeftOut> {
    let is_wanted =
        |hit: &&SearchHit| hit.role != Role::Extension || query.role == Some(Role::Extension);
    let hits: Vec<&SearchHit> = hits.iter().filter(is_wanted).collect();
    let mut turns: Vec<_> = hits
        .iter()
        .map(|hit| (hit.session_id.as_str(), hit.loop_id.as_str(), hit.turn))
        .collect();
    turns.sort_unstable();
    turns.dedup();
    let more = found.next.is_some();
    (more || !hits.is_empty()).then_some(LeftOut {
        hits: hits.len() as u64,
        turns: turns.len() as u64,
        more,
        offset: query.offset.saturating_add(taken),
    })
}
