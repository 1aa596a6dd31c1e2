//! The strategies, each of which compacts one history to a budget.

use std::sync::atomic::{AtomicUsize, Ordering};

use loopstore::compaction::{ContextConfig, LoopMessage, StrategyError, SummarizeCompaction};
use loopstore::extend::compaction::{
    DIGEST, DigestInput, compact_messages, digest_of, keep_within_budget, one_liner,
};
use loopstore::model::{AgentMessage, Message, Role};
use loopstore::tokens::{TokenCounter, estimate_tokens};
use loopstore::{ClearToolResults, Error, Store, StoreError};

use super::History;

/// A strategy that compacts a whole history to a budget, without the messages after the history.
///
/// ```
/// use loopstore_eval::{EvalStrategy, retention};
/// use loopstore::*;
///
/// /// Keeps nothing: what any other strategy should do better than.
/// struct Nothing;
///
/// impl EvalStrategy for Nothing {
///     fn name(&self) -> &str {
///         "nothing"
///     }
///
///     fn compact(
///         &self,
///         _history: &[LoopMessage],
///         _budget: u64,
///         _counter: &dyn TokenCounter,
///     ) -> Result<Vec<AgentMessage>, StrategyError> {
///         Ok(Vec::new())
///     }
/// }
///
/// let store = Store::in_memory()?;
/// let chat = store.session("weather")?;
/// let report = |hour| Message::assistant(format!("Hour {hour}: {}", "rain, ".repeat(200)));
/// chat.append([Message::user("How is the weather?")])?;
/// chat.append((0..40).map(report))?;
/// let report = retention(store.database(), &[chat.id().clone()], &[0.1], &[&Nothing])?;
/// assert_eq!(report.results[0].tokens, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait EvalStrategy {
    /// Returns the name of the strategy.
    fn name(&self) -> &str;

    /// Returns the messages that replace `history`, in at most `budget` tokens.
    ///
    /// # Errors
    /// An error that ends the strategy.
    fn compact(
        &self,
        history: &[LoopMessage],
        budget: u64,
        counter: &dyn TokenCounter,
    ) -> Result<Vec<AgentMessage>, StrategyError>;

    /// Returns the messages that replace a whole chain, in at most `budget` tokens. A strategy that names the sources
    /// of its text overrides this method to name the loops.
    ///
    /// # Errors
    /// As [`EvalStrategy::compact`].
    fn compact_chain(
        &self,
        history: &History,
        budget: u64,
        counter: &dyn TokenCounter,
    ) -> Result<Vec<AgentMessage>, StrategyError> {
        self.compact(&history.messages, budget, counter)
    }
}

/// The strategies without options, in the order in which they are compared. A new strategy without options is added
/// here.
pub const STRATEGIES: [&(dyn EvalStrategy + Sync); 5] = [
    &EvalOneLiner,
    &EvalTiered,
    &EvalTruncate,
    &EvalClear,
    &EvalDigest,
];

/// Returns the strategy in [`STRATEGIES`] with this name.
pub fn strategy(name: &str) -> Option<&'static dyn EvalStrategy> {
    let mut all = STRATEGIES
        .iter()
        .map(|strategy| *strategy as &dyn EvalStrategy);
    all.find(|strategy| strategy.name() == name)
}

/// A strategy that keeps one line for each answer, from the first on, until the budget is used up.
#[derive(Clone, Copy, Debug, Default)]
pub struct EvalOneLiner;

impl EvalStrategy for EvalOneLiner {
    fn name(&self) -> &str {
        "one-liner"
    }

    fn compact(
        &self,
        history: &[LoopMessage],
        budget: u64,
        _counter: &dyn TokenCounter,
    ) -> Result<Vec<AgentMessage>, StrategyError> {
        let mut left = budget;
        let mut lines = Vec::new();
        for placed in history {
            let Some(Message::Assistant(answer)) = placed.message.message() else {
                continue;
            };
            let line = one_liner(answer);
            let Some(rest) = left.checked_sub(estimate_tokens(&line)) else {
                break;
            };
            left = rest;
            lines.push(AgentMessage::from(Message::user(line)));
        }
        Ok(lines)
    }
}

/// A strategy that calls [`compact_messages`] with its defaults and the budget as window.
#[derive(Clone, Copy, Debug, Default)]
pub struct EvalTiered;

impl EvalStrategy for EvalTiered {
    fn name(&self) -> &str {
        "tiered"
    }

    fn compact(
        &self,
        history: &[LoopMessage],
        budget: u64,
        counter: &dyn TokenCounter,
    ) -> Result<Vec<AgentMessage>, StrategyError> {
        let window = ContextConfig {
            max_context_tokens: budget,
            ..ContextConfig::default()
        };
        Ok(compact_messages(messages(history), &window, counter))
    }
}

/// A strategy that keeps the last messages that fit.
#[derive(Clone, Copy, Debug, Default)]
pub struct EvalTruncate;

impl EvalStrategy for EvalTruncate {
    fn name(&self) -> &str {
        "truncate"
    }

    fn compact(
        &self,
        history: &[LoopMessage],
        budget: u64,
        counter: &dyn TokenCounter,
    ) -> Result<Vec<AgentMessage>, StrategyError> {
        Ok(keep_within_budget(messages(history), budget, counter))
    }
}

/// A strategy that clears old tool results as [`ClearToolResults`] does by default, whatever that frees, and then keeps
/// the last messages that fit.
#[derive(Clone, Copy, Debug, Default)]
pub struct EvalClear;

impl EvalStrategy for EvalClear {
    fn name(&self) -> &str {
        "clear"
    }

    fn compact(
        &self,
        history: &[LoopMessage],
        budget: u64,
        counter: &dyn TokenCounter,
    ) -> Result<Vec<AgentMessage>, StrategyError> {
        let messages = match cleared(messages(history)) {
            Ok(messages) => messages,
            Err(error) => return Err(StrategyError::Failed(error.to_string())),
        };
        Ok(keep_within_budget(messages, budget, counter))
    }
}

/// Returns the messages with their old tool results cleared, as a store shows them.
fn cleared(messages: Vec<AgentMessage>) -> Result<Vec<AgentMessage>, Box<dyn std::error::Error>> {
    if messages.is_empty() {
        return Ok(messages);
    }
    let chat = Store::in_memory()?.session("history")?;
    chat.append(messages)?;
    match chat.edit(&ClearToolResults::new().at_least(0).request()) {
        // A history without old results stays as it is.
        Ok(_) | Err(Error::Store(StoreError::EditRefused(_))) => Ok(chat.context()?.messages),
        Err(error) => Err(error.into()),
    }
}

/// A strategy that writes a digest of the whole history.
#[derive(Clone, Copy, Debug, Default)]
pub struct EvalDigest;

impl EvalStrategy for EvalDigest {
    fn name(&self) -> &str {
        DIGEST
    }

    fn compact(
        &self,
        history: &[LoopMessage],
        budget: u64,
        counter: &dyn TokenCounter,
    ) -> Result<Vec<AgentMessage>, StrategyError> {
        let part = DigestInput::Messages {
            loop_name: None,
            messages: history.to_vec(),
        };
        let digest = digest_of(&mut std::iter::once(part), budget, counter);
        Ok(digest.message(Role::User).into_iter().collect())
    }

    fn compact_chain(
        &self,
        history: &History,
        budget: u64,
        counter: &dyn TokenCounter,
    ) -> Result<Vec<AgentMessage>, StrategyError> {
        let digest = digest_of(&mut history.by_loop().into_iter(), budget, counter);
        Ok(digest.message(Role::User).into_iter().collect())
    }
}

/// A strategy that lets a model write a summary.
///
/// As in a compaction, a digest replaces an answer of the model that is not usable. [`EvalSummarize::fallbacks`]
/// returns the number of such texts, whose figures are not the model's.
pub struct EvalSummarize {
    strategy: SummarizeCompaction,
    fallbacks: AtomicUsize,
}

impl EvalSummarize {
    /// Returns summaries by `strategy`. The budget overrides its option for the tokens of a summary.
    pub fn new(strategy: SummarizeCompaction) -> Self {
        Self {
            strategy,
            fallbacks: AtomicUsize::new(0),
        }
    }

    /// Returns the number of texts that the digest wrote because the model returned no usable text.
    pub fn fallbacks(&self) -> usize {
        self.fallbacks.load(Ordering::Relaxed)
    }
}

impl EvalStrategy for EvalSummarize {
    fn name(&self) -> &str {
        "summarize"
    }

    fn compact(
        &self,
        history: &[LoopMessage],
        budget: u64,
        counter: &dyn TokenCounter,
    ) -> Result<Vec<AgentMessage>, StrategyError> {
        match self.strategy.summarize(history, budget, counter) {
            Ok(message) => Ok(vec![message]),
            Err(_) => {
                self.fallbacks.fetch_add(1, Ordering::Relaxed);
                EvalDigest.compact(history, budget, counter)
            }
        }
    }
}

fn messages(history: &[LoopMessage]) -> Vec<AgentMessage> {
    history
        .iter()
        .map(|placed| placed.message.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use loopstore::HeuristicTokenCounter;
    use loopstore::model::Json;

    fn placed(messages: Vec<Message>) -> Vec<LoopMessage> {
        let place = |(seq, message): (u32, Message)| LoopMessage {
            turn: seq / 2,
            seq,
            message: message.into(),
        };
        (0..).zip(messages).map(place).collect()
    }

    fn history(calls: u32) -> Vec<LoopMessage> {
        let mut all = vec![Message::user("How is the weather?")];
        for hour in 0..calls {
            let (id, text) = (
                format!("c{hour}"),
                format!("hour {hour} {}", "rain ".repeat(200)),
            );
            let call = Message::assistant("I look.");
            all.push(call.with_tool_call(&id, "forecast", Json::parse("{}").unwrap()));
            all.push(Message::tool_result(&id, text));
        }
        all.push(Message::assistant("It rains."));
        placed(all)
    }

    fn texts(budget: u64, history: &[LoopMessage]) -> String {
        let counter = HeuristicTokenCounter;
        let left = EvalClear.compact(history, budget, &counter).unwrap();
        let tokens: u64 = left.iter().map(|one| counter.message_tokens(one)).sum();
        assert!(tokens <= budget, "{tokens}");
        let texts = left.iter().filter_map(AgentMessage::message);
        texts
            .flat_map(Message::texts)
            .collect::<Vec<_>>()
            .join("\n")
    }

    #[test]
    fn old_results_are_cleared_and_the_newest_three_stay() {
        let text = texts(10_000, &history(6));
        assert_eq!(
            text,
            texts(10_000, &history(6)),
            "the strategy is deterministic"
        );
        for hour in 0..6 {
            assert_eq!(
                text.contains(&format!("hour {hour} rain")),
                hour > 2,
                "{text}"
            );
        }
        assert_eq!(text.matches("[cleared: ").count(), 3);
        assert!(text.starts_with("How is the weather?"));
    }

    #[test]
    fn what_is_still_too_large_is_cut_at_the_start() {
        let text = texts(700, &history(6));
        assert!(
            text.contains("hour 5 rain") && !text.contains("How is"),
            "{text}"
        );
    }

    #[test]
    fn a_history_without_old_results_stays_as_it_is() {
        let short = history(2);
        let left = EvalClear
            .compact(&short, 10_000, &HeuristicTokenCounter)
            .unwrap();
        // A store gives each message its turn.
        let inner = |all: &[AgentMessage]| -> Vec<Option<Message>> {
            all.iter().map(|one| one.message().cloned()).collect()
        };
        assert_eq!(inner(&left), inner(&messages(&short)));
        assert!(
            EvalClear
                .compact(&[], 10, &HeuristicTokenCounter)
                .unwrap()
                .is_empty()
        );
    }
}
