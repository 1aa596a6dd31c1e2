//! Recall of the search: the share of questions about conversations whose evidence it finds.

use std::collections::{HashMap, HashSet};

use loopstore::Store;
use loopstore::model::{LoopId, Role};
use loopstore::search::{MessageLocation, SearchError, SearchQuery, search, search_sessions};
use serde::{Deserialize, Serialize};

use super::{ConversationError, ProseMessage, count, percent};

/// Sessions, and questions about them with the messages that answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecallCase {
    /// The sessions, the oldest first.
    pub sessions: Vec<RecallSession>,
    /// The questions.
    pub questions: Vec<RecallQuestion>,
}

/// A session of a [`RecallCase`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecallSession {
    /// The id.
    pub id: String,
    /// The messages, in order.
    pub messages: Vec<RecallMessage>,
}

/// A message of a [`RecallSession`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecallMessage {
    /// The name by which the evidence of a question refers to the message; unique in the case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The message.
    #[serde(flatten)]
    pub message: ProseMessage,
}

/// A question, and its evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecallQuestion {
    /// The question.
    pub question: String,
    /// The ids of the messages that answer it.
    pub evidence: Vec<String>,
}

/// The report of [`search_recall`]; serialises to the JSON that `eval recall --json` prints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SearchRecallReport {
    /// The number of cases.
    pub cases: usize,
    /// The number of questions with evidence.
    pub questions: usize,
    /// The number of questions without evidence, which are not measured.
    pub skipped: usize,
    /// The shares of questions whose evidence is among the first messages.
    pub messages: Vec<RecallAt>,
    /// The shares of questions with the sessions of the evidence among the first sessions.
    pub sessions: Vec<RecallAt>,
}

/// The shares of questions whose evidence is among the first results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecallAt {
    /// The number of results.
    pub at: usize,
    /// The share of questions of whose evidence one is among them.
    pub any: f64,
    /// The share of questions of whose evidence all are among them.
    pub all: f64,
}

/// Stores each case in a separate store, searches for each question, and counts the questions whose evidence is among
/// the first results. Only messages of `role` are found, if it is given. A result stands for the messages in its
/// `also` too.
///
/// # Errors
/// If a case cannot be stored, its evidence names no message, or a search fails.
///
/// # Examples
/// ```
/// use loopstore_eval::{RecallCase, search_recall};
///
/// let case = RecallCase::from_json(
///     r#"{"sessions": [{"id": "may", "messages": [
///         {"id": "m1", "author": "user", "text": "The gateway listens on port 8443."},
///         {"id": "m2", "author": "assistant", "text": "Noted."}]}],
///         "questions": [{"question": "Which port does the gateway use?", "evidence": ["m1"]}]}"#,
/// )?;
/// let report = search_recall(&[case], &[1], None)?;
/// assert_eq!((report.messages[0].any, report.sessions[0].all), (1.0, 1.0));
/// # Ok::<(), loopstore_eval::ConversationError>(())
/// ```
pub fn search_recall(
    cases: &[RecallCase],
    at: &[usize],
    role: Option<Role>,
) -> Result<SearchRecallReport, ConversationError> {
    let mut report = SearchRecallReport::default();
    let mut counts = vec![[0; 4]; at.len()];
    for case in cases {
        report.cases += 1;
        let stored = StoredCase::new(case)?;
        for question in &case.questions {
            if question.evidence.is_empty() {
                report.skipped += 1;
                continue;
            }
            report.questions += 1;
            let ranks = stored.ranks(question, at.iter().copied().max().unwrap_or(0), role)?;
            for (at, counts) in at.iter().zip(&mut counts) {
                let within = |rank: &Option<usize>| rank.is_some_and(|rank| rank < *at);
                let [messages, sessions] = &ranks;
                counts[0] += usize::from(messages.iter().any(within));
                counts[1] += usize::from(messages.iter().all(within));
                counts[2] += usize::from(sessions.iter().any(within));
                counts[3] += usize::from(sessions.iter().all(within));
            }
        }
    }
    let share = |count: usize| super::share(count, report.questions);
    for (at, [any, all, of_any, of_all]) in at.iter().copied().zip(counts) {
        let (any, all) = (share(any), share(all));
        report.messages.push(RecallAt { at, any, all });
        let (any, all) = (share(of_any), share(of_all));
        report.sessions.push(RecallAt { at, any, all });
    }
    Ok(report)
}

/// The rank of each part of the evidence; `None` if the search does not return it.
type Ranks = Vec<Option<usize>>;

/// A message by its session, its loop and its sequence.
type FoundPlace = (String, LoopId, u32);

/// A case in a store of its own.
struct StoredCase<'a> {
    store: Store,
    /// The ids of messages, by place.
    ids: HashMap<FoundPlace, &'a str>,
    /// The session of each id.
    session_of: HashMap<&'a str, &'a str>,
}

impl<'a> StoredCase<'a> {
    fn new(case: &'a RecallCase) -> Result<Self, ConversationError> {
        let store = Store::in_memory().map_err(ConversationError::invalid)?;
        let (mut ids, mut session_of) = (HashMap::new(), HashMap::new());
        for session in &case.sessions {
            let chat = store
                .session(&session.id)
                .map_err(ConversationError::invalid)?;
            for placed in &session.messages {
                let done = chat
                    .append([placed.message.message()])
                    .map_err(ConversationError::invalid)?;
                let Some(id) = placed.id.as_deref() else {
                    continue;
                };
                ids.insert((session.id.clone(), done.loop_id, done.seqs.start), id);
                if session_of.insert(id, session.id.as_str()).is_some() {
                    let why = format!("two messages have the id `{id}`");
                    return Err(ConversationError::Invalid(why));
                }
            }
        }
        let mut evidence = case.questions.iter().flat_map(|one| &one.evidence);
        if let Some(unknown) = evidence.find(|id| !session_of.contains_key(id.as_str())) {
            let why = format!("no message has the id `{unknown}`, which is evidence");
            return Err(ConversationError::Invalid(why));
        }
        Ok(Self {
            store,
            ids,
            session_of,
        })
    }

    /// Returns the ranks of the messages of the evidence, and of their sessions.
    fn ranks(
        &self,
        question: &RecallQuestion,
        limit: usize,
        role: Option<Role>,
    ) -> Result<[Ranks; 2], ConversationError> {
        let query = SearchQuery {
            role,
            limit: Some(limit),
            ..SearchQuery::new(plain(&question.question))
        };
        let failed = |error: SearchError| ConversationError::Invalid(error.to_string());
        let found = search(self.store.database(), &query).map_err(failed)?;
        let mut by_message: HashMap<&str, usize> = HashMap::new();
        for (rank, hit) in found.hits.iter().enumerate() {
            let own = (hit.session_id.to_string(), hit.loop_id.clone(), hit.seq);
            let also = hit.also.iter().map(|one: &MessageLocation| {
                (one.session_id.to_string(), one.loop_id.clone(), one.seq)
            });
            for place in std::iter::once(own).chain(also) {
                if let Some(id) = self.ids.get(&place) {
                    by_message.entry(id).or_insert(rank);
                }
            }
        }
        let found = search_sessions(self.store.database(), &query).map_err(failed)?;
        let sessions = found.sessions.iter().enumerate();
        let by_session: HashMap<String, usize> = sessions
            .map(|(rank, session)| (session.session_id.to_string(), rank))
            .collect();
        let evidence: HashSet<&str> = question.evidence.iter().map(String::as_str).collect();
        let sessions: HashSet<&str> = evidence.iter().map(|id| self.session_of[id]).collect();
        Ok([
            evidence
                .iter()
                .map(|id| by_message.get(id).copied())
                .collect(),
            sessions
                .iter()
                .map(|id| by_session.get(*id).copied())
                .collect(),
        ])
    }
}

/// Returns a question without the characters that a query reads as operators.
fn plain(question: &str) -> String {
    question
        .split_whitespace()
        .map(|word| word.trim_matches(['"', '+', '-', '*', '(', ')']))
        .map(|word| if word == "OR" { "or" } else { word })
        .collect::<Vec<_>>()
        .join(" ")
        .replace('"', " ")
}

impl RecallCase {
    /// Reads a case from JSON.
    ///
    /// # Errors
    /// If the JSON is invalid, or there are no messages or no questions.
    pub fn from_json(json: &str) -> Result<Self, ConversationError> {
        let invalid = |why: &str| Err(ConversationError::invalid(why));
        let read: Self = serde_json::from_str(json).map_err(ConversationError::invalid)?;
        if read.sessions.iter().all(|one| one.messages.is_empty()) {
            return invalid("there are no messages");
        }
        match read.questions.is_empty() {
            true => invalid("there are no questions"),
            false => Ok(read),
        }
    }
}

impl SearchRecallReport {
    /// Returns a plain table: a line for messages and one for sessions, columns for each number of results.
    pub fn table(&self) -> String {
        let mut lines = [
            "found     ".to_owned(),
            "messages  ".to_owned(),
            "sessions  ".to_owned(),
        ];
        for (messages, sessions) in self.messages.iter().zip(&self.sessions) {
            let at = messages.at;
            for (line, cell) in lines.iter_mut().zip([
                [format!("any@{at}"), format!("all@{at}")],
                [percent(messages.any), percent(messages.all)],
                [percent(sessions.any), percent(sessions.all)],
            ]) {
                cell.iter()
                    .for_each(|cell| line.push_str(&format!("{cell:>8}  ")));
            }
        }
        let mut head = format!(
            "{}, {}",
            count(self.cases, "case"),
            count(self.questions, "question")
        );
        if self.skipped > 0 {
            let skipped = count(self.skipped, "question");
            head.push_str(&format!("; {skipped} without evidence skipped"));
        }
        let lines = lines.iter().map(|line| line.trim_end());
        std::iter::once(head.as_str())
            .chain(lines)
            .fold(String::new(), |text, line| text + line + "\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(evidence: &str) -> String {
        format!(
            r#"{{"sessions": [
                {{"id": "one", "messages": [
                    {{"id": "a", "author": "Ada", "text": "The kite has a blue tail."}},
                    {{"id": "b", "author": "Bo", "text": "Mine is red."}}]}},
                {{"id": "two", "messages": [{{"id": "c", "author": "Ada", "text": "We sailed."}}]}}],
                "questions": [{{"question": "What colour has the \"kite\"?", "evidence": [{evidence}]}}]}}"#
        )
    }

    fn measured(evidence: &str) -> Result<SearchRecallReport, ConversationError> {
        search_recall(&[RecallCase::from_json(&case(evidence))?], &[1, 3], None)
    }

    #[test]
    fn evidence_that_is_not_found_counts_for_all_and_not_for_any() {
        let report = measured(r#""a", "c""#).unwrap();
        assert_eq!((report.messages[0].any, report.messages[1].all), (1.0, 0.0));
        assert_eq!((report.sessions[0].any, report.sessions[1].all), (1.0, 0.0));
        assert!(report.table().contains("any@3"), "{}", report.table());
    }

    #[test]
    fn questions_without_evidence_are_counted_apart() {
        let report = measured("").unwrap();
        assert_eq!((report.questions, report.skipped), (0, 1));
        assert!(
            report
                .table()
                .contains("1 question without evidence skipped")
        );
    }

    #[test]
    fn what_cannot_be_measured_is_an_error() {
        let error = measured(r#""z""#).unwrap_err().to_string();
        assert!(error.contains("`z`"), "{error}");
        let twice = case("").replace(r#""id": "c""#, r#""id": "a""#);
        let twice = RecallCase::from_json(&twice).unwrap();
        let error = search_recall(&[twice], &[1], None).unwrap_err().to_string();
        assert!(error.contains("two messages"), "{error}");
        for bad in [
            "{",
            r#"{"sessions": [], "questions": []}"#,
            r#"{"sessions": [{"id": "s", "messages": [{"author": "a", "text": "b"}]}], "questions": []}"#,
        ] {
            assert!(RecallCase::from_json(bad).is_err(), "{bad}");
        }
    }
}
