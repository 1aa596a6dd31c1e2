//! Long conversations without tools: the share of the answers to later questions that a compaction keeps.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use loopstore::compaction::StrategyError;
use loopstore::extend::search::content_words;
use loopstore::model::{AgentMessage, Int, Message, Time};
use loopstore::{Store, StoreError};

use super::{
    EvalRandom, EvalStrategy, EvalTfIdf, History, RetentionResult, context_text, count,
    recall_table, share,
};

/// The number of random choices of messages; the report has the mean.
const DRAWS: usize = 5;

/// A conversation, and questions about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProseConversation {
    /// The messages, in order.
    pub messages: Vec<ProseMessage>,
    /// The questions.
    pub questions: Vec<ProseQuestion>,
}

/// A message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProseMessage {
    /// The author. `assistant` is the agent. Any other name is a user, and is written into the text.
    pub author: String,
    /// The text.
    pub text: String,
    /// The time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
}

/// A question about a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProseQuestion {
    /// The question.
    pub question: String,
    /// The right answer.
    pub answer: String,
}

/// An error of a measurement of a conversation.
#[derive(Debug, thiserror::Error)]
pub enum ConversationError {
    /// The conversation is not valid.
    #[error("{0}")]
    Invalid(String),
    /// The conversation could not be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A strategy failed.
    #[error(transparent)]
    Strategy(#[from] StrategyError),
}

/// The report of [`prose`]; serialises to the JSON that `eval prose --json` prints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProseReport {
    /// The number of conversations.
    pub conversations: usize,
    /// The number of questions.
    pub questions: usize,
    /// The number of content words in the answers.
    pub words: usize,
    /// The results at each budget: of each strategy, of messages chosen at random, and of messages chosen by tf-idf.
    pub results: Vec<RetentionResult>,
}

impl ProseConversation {
    /// Reads a conversation from JSON.
    ///
    /// # Errors
    /// If the JSON is invalid, or there are no messages or no questions.
    pub fn from_json(json: &str) -> Result<Self, ConversationError> {
        let invalid = |why: &str| ConversationError::invalid(why);
        let read: Self = serde_json::from_str(json).map_err(ConversationError::invalid)?;
        match (read.messages.is_empty(), read.questions.is_empty()) {
            (true, _) => Err(invalid("there are no messages")),
            (_, true) => Err(invalid("there are no questions")),
            _ => Ok(read),
        }
    }
}

impl ConversationError {
    pub(crate) fn invalid(error: impl std::fmt::Display) -> Self {
        Self::Invalid(error.to_string())
    }
}

impl ProseMessage {
    pub(crate) fn message(&self) -> AgentMessage {
        let mut message = match self.author.as_str() {
            "assistant" => Message::assistant(self.text.clone()),
            "user" => Message::user(self.text.clone()),
            author => Message::user(format!("{author}: {}", self.text)),
        };
        let time = self.time.as_deref().map(Time::from_text);
        let at = time.and_then(|time| time.millis()).map(Int::from);
        match &mut message {
            Message::User(user) => user.timestamp = at,
            Message::Assistant(answer) => answer.timestamp = at,
            Message::ToolResult(_) => {}
        }
        message.into()
    }
}

/// Compacts each conversation with each of `strategies` to each of `budgets` (shares of its tokens), and counts the
/// content words of the answers in the result. The baselines are [`EvalTfIdf`] and [`EvalRandom`], the mean of five
/// draws.
///
/// # Errors
/// If a conversation cannot be stored or a strategy fails.
pub fn prose(
    conversations: &[ProseConversation],
    budgets: &[f64],
    strategies: &[&dyn EvalStrategy],
    seed: u64,
) -> Result<ProseReport, ConversationError> {
    let draws: [EvalRandom; DRAWS] = std::array::from_fn(|at| EvalRandom {
        seed: seed.wrapping_add(at as u64),
    });
    let mut rows: Vec<Vec<&dyn EvalStrategy>> = strategies.iter().map(|one| vec![*one]).collect();
    rows.push(vec![&EvalTfIdf]);
    rows.push(draws.iter().map(|draw| draw as &dyn EvalStrategy).collect());
    let mut tallies = vec![(0, 0); rows.len() * budgets.len()];
    let mut report = ProseReport::default();
    for conversation in conversations {
        let asked = StoredConversation::load(conversation)?;
        report.conversations += 1;
        report.questions += asked.answers.len();
        report.words += asked.answers.iter().map(HashSet::len).sum::<usize>();
        for (row, tallies) in rows.iter().zip(tallies.chunks_mut(budgets.len())) {
            for (budget, tally) in budgets.iter().zip(tallies) {
                for strategy in row {
                    let (found, tokens) = asked.measure(*strategy, *budget)?;
                    tally.0 += found;
                    tally.1 += tokens;
                }
            }
        }
    }
    for (row, tallies) in rows.iter().zip(tallies.chunks(budgets.len())) {
        for (budget, (found, tokens)) in budgets.iter().zip(tallies) {
            report.results.push(RetentionResult {
                strategy: row[0].name().to_owned(),
                budget: *budget,
                recall: share(*found, report.words * row.len()),
                tokens: tokens / row.len() as u64,
            });
        }
    }
    Ok(report)
}

/// A conversation in a separate store, and the words of the answers.
struct StoredConversation {
    store: Store,
    history: History,
    tokens: u64,
    answers: Vec<HashSet<String>>,
}

impl StoredConversation {
    fn load(conversation: &ProseConversation) -> Result<Self, ConversationError> {
        let store = Store::in_memory().map_err(ConversationError::invalid)?;
        let chat = store
            .session("conversation")
            .map_err(ConversationError::invalid)?;
        let messages = conversation.messages.iter().map(ProseMessage::message);
        chat.append(messages).map_err(ConversationError::invalid)?;
        let history = History::load(store.database(), chat.id())?;
        let words = |one: &ProseQuestion| content_words(&one.answer).into_iter().collect();
        Ok(Self {
            tokens: history.tokens(store.database().counter()),
            answers: conversation.questions.iter().map(words).collect(),
            history,
            store,
        })
    }

    /// Returns the number of the answers' words in a context of this share, and its tokens.
    fn measure(
        &self,
        strategy: &dyn EvalStrategy,
        budget: f64,
    ) -> Result<(usize, u64), StrategyError> {
        let counter = self.store.database().counter();
        let budget = (self.tokens as f64 * budget) as u64;
        let context = strategy.compact_chain(&self.history, budget, counter)?;
        let known: HashSet<String> = content_words(&context_text(&context)).into_iter().collect();
        let found = self
            .answers
            .iter()
            .map(|answer| answer.intersection(&known).count());
        let tokens = context
            .iter()
            .map(|message| counter.message_tokens(message));
        Ok((found.sum(), tokens.sum()))
    }
}

impl ProseReport {
    /// Returns a plain table: a line for each strategy, a column for each budget.
    pub fn table(&self) -> String {
        let head = [
            count(self.conversations, "conversation"),
            count(self.questions, "question"),
            count(self.words, "word"),
        ];
        format!(
            "{} in the answers\n{}",
            head.join(", "),
            recall_table(&self.results)
        )
    }
}
