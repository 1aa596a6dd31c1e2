//! The strategies, each of which compacts one history to a budget.

use std::sync::atomic::{AtomicUsize, Ordering};

use loopstore::compaction::{ContextConfig, LoopMessage, StrategyError, SummarizeCompaction};
use loopstore::extend::compaction::{
    DIGEST, DigestInput, compact_messages, digest_of, keep_within_budget, one_liner,
};
use loopstore::model::{AgentMessage, Message, Role};
use loopstore::tokens::{TokenCounter, estimate_tokens};

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
pub const STRATEGIES: [&(dyn EvalStrategy + Sync); 4] =
    [&EvalOneLiner, &EvalTiered, &EvalTruncate, &EvalDigest];

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
