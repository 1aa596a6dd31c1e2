//! The baselines for strategies for prose: messages chosen without understanding them.

use std::collections::{HashMap, HashSet};

use loopstore::compaction::{LoopMessage, StrategyError};
use loopstore::extend::search::content_words;
use loopstore::model::{AgentMessage, Message};
use loopstore::tokens::TokenCounter;

use super::{EvalStrategy, shuffled};

/// A baseline that chooses messages at random.
#[derive(Clone, Copy, Debug, Default)]
pub struct EvalRandom {
    /// The seed of the choice.
    pub seed: u64,
}

impl EvalStrategy for EvalRandom {
    fn name(&self) -> &str {
        "random"
    }

    fn compact(
        &self,
        history: &[LoopMessage],
        budget: u64,
        counter: &dyn TokenCounter,
    ) -> Result<Vec<AgentMessage>, StrategyError> {
        let mut order: Vec<usize> = (0..history.len()).collect();
        order.sort_by_cached_key(|at| shuffled(self.seed, &[&at.to_string()]));
        Ok(chosen(history, &order, budget, counter))
    }
}

/// A baseline that chooses the messages with the most information per token: those whose words few other messages
/// contain (tf-idf).
#[derive(Clone, Copy, Debug, Default)]
pub struct EvalTfIdf;

impl EvalStrategy for EvalTfIdf {
    fn name(&self) -> &str {
        "tf-idf"
    }

    fn compact(
        &self,
        history: &[LoopMessage],
        budget: u64,
        counter: &dyn TokenCounter,
    ) -> Result<Vec<AgentMessage>, StrategyError> {
        let words = |placed: &LoopMessage| {
            let texts = placed
                .message
                .message()
                .into_iter()
                .flat_map(Message::texts);
            content_words(&texts.collect::<Vec<_>>().join(" "))
        };
        let words: Vec<Vec<String>> = history.iter().map(words).collect();
        let mut holders: HashMap<&str, f64> = HashMap::new();
        for message in &words {
            for word in message.iter().collect::<HashSet<_>>() {
                *holders.entry(word).or_default() += 1.0;
            }
        }
        let idf = |word: &String| (history.len() as f64 / holders[word.as_str()]).ln();
        let worth = |at: &usize| {
            let tokens = counter.message_tokens(&history[*at].message).max(1);
            words[*at].iter().map(idf).sum::<f64>() / tokens as f64
        };
        let mut order: Vec<(usize, f64)> = (0..history.len()).map(|at| (at, worth(&at))).collect();
        // The sort is stable: of two equal values the earlier comes first.
        order.sort_by(|a, b| b.1.total_cmp(&a.1));
        let order: Vec<usize> = order.into_iter().map(|(at, _)| at).collect();
        Ok(chosen(history, &order, budget, counter))
    }
}

/// Returns the messages that fit, selected in this order and returned in the original order.
fn chosen(
    history: &[LoopMessage],
    order: &[usize],
    budget: u64,
    counter: &dyn TokenCounter,
) -> Vec<AgentMessage> {
    let (mut left, mut taken) = (budget, Vec::new());
    for at in order {
        if let Some(rest) = left.checked_sub(counter.message_tokens(&history[*at].message)) {
            left = rest;
            taken.push(*at);
        }
    }
    taken.sort_unstable();
    taken
        .into_iter()
        .map(|at| history[at].message.clone())
        .collect()
}
