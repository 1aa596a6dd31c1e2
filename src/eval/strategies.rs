//! The strategies, each given one history to compact to a budget.

use crate::compaction::ContextConfig;
use crate::compaction::{
    DIGEST, DigestInput, Placed, StrategyError, compact_messages, digest_of, keep_within_budget,
    one_liner,
};
use crate::model::{AgentMessage, Message, Role};
use crate::tokens::{TokenCounter, estimate_tokens};

/// Compacts a whole history to a budget. It sees nothing of what came after.
pub trait EvalStrategy {
    /// Names the strategy.
    fn name(&self) -> &str;

    /// Returns what stands for `history`, in at most `budget` tokens.
    ///
    /// # Errors
    /// What keeps the strategy from going on.
    fn compact(
        &self,
        history: &[Placed],
        budget: u64,
        counter: &dyn TokenCounter,
    ) -> Result<Vec<AgentMessage>, StrategyError>;
}

/// Returns the strategy of that name: `one-liner`, `tiered`, `truncate` or `digest`.
pub fn strategy(name: &str) -> Option<&'static dyn EvalStrategy> {
    let all: [&dyn EvalStrategy; 4] = [&EvalOneLiner, &EvalTiered, &EvalTruncate, &EvalDigest];
    all.into_iter().find(|strategy| strategy.name() == name)
}

/// The original's line for each answer, from the first on until the budget is used up.
#[derive(Clone, Copy, Debug, Default)]
pub struct EvalOneLiner;

impl EvalStrategy for EvalOneLiner {
    fn name(&self) -> &str {
        "one-liner"
    }

    fn compact(
        &self,
        history: &[Placed],
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

/// [`compact_messages`] with its defaults and the budget as window.
#[derive(Clone, Copy, Debug, Default)]
pub struct EvalTiered;

impl EvalStrategy for EvalTiered {
    fn name(&self) -> &str {
        "tiered"
    }

    fn compact(
        &self,
        history: &[Placed],
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

/// The last messages that fit.
#[derive(Clone, Copy, Debug, Default)]
pub struct EvalTruncate;

impl EvalStrategy for EvalTruncate {
    fn name(&self) -> &str {
        "truncate"
    }

    fn compact(
        &self,
        history: &[Placed],
        budget: u64,
        counter: &dyn TokenCounter,
    ) -> Result<Vec<AgentMessage>, StrategyError> {
        Ok(keep_within_budget(messages(history), budget, counter))
    }
}

/// The digest of the whole history.
#[derive(Clone, Copy, Debug, Default)]
pub struct EvalDigest;

impl EvalStrategy for EvalDigest {
    fn name(&self) -> &str {
        DIGEST
    }

    fn compact(
        &self,
        history: &[Placed],
        budget: u64,
        counter: &dyn TokenCounter,
    ) -> Result<Vec<AgentMessage>, StrategyError> {
        let part = DigestInput::Messages {
            of: None,
            messages: history.to_vec(),
        };
        let digest = digest_of(&mut std::iter::once(part), budget, counter);
        Ok(digest.message(Role::User).into_iter().collect())
    }
}

fn messages(history: &[Placed]) -> Vec<AgentMessage> {
    history
        .iter()
        .map(|placed| placed.message.clone())
        .collect()
}
