//! The state of the work: the facts about files, plan, failures, running calls and prompts that a context states.
//!
//! The facts come from the structure of the calls before a cut ([`Activity`]) and from the prompts of people;
//! no model is asked. Recall is the share of them that the context states.

mod facts;
mod stated;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use loopstore::compaction::StrategyError;
use loopstore::extend::SessionStore;
use loopstore::extend::compaction::document_work;
use loopstore::model::SessionId;

use super::{EvalStrategy, History, context_text, count, percent, share};

pub use facts::StateFacts;

/// The kinds of facts, in the order in which they are shown: changed files, the last change of each file, the items
/// of the last plan with their states, failed commands with their later outcome, running calls, and the content words
/// of prompts.
pub const STATE_KINDS: [&str; 6] = ["files", "changes", "plan", "failures", "running", "prompts"];

/// The number of facts of a kind, and of those that a context states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateCount {
    /// Facts.
    pub facts: usize,
    /// Facts that the context states.
    pub stated: usize,
}

/// A fact of the work that a context does not state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostFact {
    /// One of [`STATE_KINDS`].
    pub kind: String,
    /// The file, the item of the plan, the command or the call.
    pub what: String,
}

impl StateCount {
    /// Returns the share of facts that are stated; 1 if there are no facts.
    pub fn recall(self) -> f64 {
        share(self.stated, self.facts)
    }
}

/// The counts by kind, without kinds that have no facts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StateCounts(BTreeMap<String, StateCount>);

impl StateCounts {
    /// Returns the count of a kind.
    pub fn of(&self, kind: &str) -> Option<StateCount> {
        self.0.get(kind).copied()
    }

    fn add_fact(&mut self, kind: &str, is_stated: bool) {
        let count = self.0.entry(kind.to_owned()).or_default();
        count.facts += 1;
        count.stated += usize::from(is_stated);
    }

    /// Adds the counts of another context.
    pub(super) fn add(&mut self, other: &Self) {
        for (kind, more) in &other.0 {
            let count = self.0.entry(kind.clone()).or_default();
            count.facts += more.facts;
            count.stated += more.stated;
        }
    }
}

/// The report of [`state`]; serialises to the JSON that `eval state --json` prints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StateReport {
    /// Histories that were cut.
    pub cases: usize,
    /// The results, one for each strategy at each budget.
    pub results: Vec<StateResult>,
}

/// The facts that the contexts of a strategy state at a budget.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StateResult {
    /// The strategy's name.
    pub strategy: String,
    /// The budget, as a share of the tokens before the cut.
    pub budget: f64,
    /// Tokens of the contexts, over all cases.
    pub tokens: u64,
    /// Counts by kind, over all cases.
    pub kinds: StateCounts,
    /// The claims of the contexts about files, plan, failures and running calls, and those of them that are true;
    /// `None` if the contexts cannot be read back.
    pub claims: Option<StateCount>,
}

/// Cuts the chain of each session's current loop as [`retention`](super::retention) does, compacts the part before
/// the cut with each of `strategies` to each of `budgets`, and counts the facts of the part that the contexts state.
///
/// # Errors
/// If a session cannot be read or a strategy fails.
pub fn state(
    store: &dyn SessionStore,
    sessions: &[SessionId],
    budgets: &[f64],
    strategies: &[&dyn EvalStrategy],
) -> Result<StateReport, StrategyError> {
    let counter = store.counter();
    let result = |strategy: &&dyn EvalStrategy, budget: &f64| StateResult {
        strategy: strategy.name().to_owned(),
        budget: *budget,
        tokens: 0,
        kinds: StateCounts::default(),
        claims: None,
    };
    let of = |strategy| budgets.iter().map(move |budget| (strategy, *budget));
    let rows: Vec<(&&dyn EvalStrategy, f64)> = strategies.iter().flat_map(of).collect();
    let mut report = StateReport {
        cases: 0,
        results: rows
            .iter()
            .map(|(one, budget)| result(one, budget))
            .collect(),
    };
    for session in sessions {
        let history = History::load(store, session)?;
        let before = history.first(history.cut().0.len());
        if before.messages.is_empty() {
            continue;
        }
        report.cases += 1;
        let facts = StateFacts::of(&before.messages);
        let tokens = before.tokens(counter) as f64;
        for ((strategy, budget), result) in rows.iter().zip(&mut report.results) {
            let context = strategy.compact_chain(&before, (tokens * budget) as u64, counter)?;
            let text = context_text(&context);
            result.kinds.add(&facts.stated_in(&text));
            if let Some(work) = document_work(text.trim_end()) {
                let claims = facts.claims_in(work);
                let all = result.claims.get_or_insert_default();
                all.facts += claims.facts;
                all.stated += claims.stated;
            }
            result.tokens += context
                .iter()
                .map(|m| counter.message_tokens(m))
                .sum::<u64>();
        }
    }
    Ok(report)
}

impl StateReport {
    /// True if there is nothing to state.
    pub fn is_empty(&self) -> bool {
        self.results.iter().all(|result| result.kinds.0.is_empty())
    }

    /// Returns a plain table: a line for each strategy at each budget, a column for each kind.
    pub fn table(&self) -> String {
        let mut text = count(self.cases, "case") + "\n";
        text.push_str(&format!("{:<10} {:>6}", "strategy", "budget"));
        STATE_KINDS
            .iter()
            .for_each(|kind| text.push_str(&format!("  {kind:>8}")));
        text.push_str(&format!("  {:>8}\n{:<17}", "truth", "facts"));
        let facts = |kind: &str| self.results.first().and_then(|one| one.kinds.of(kind));
        for kind in STATE_KINDS {
            let facts = facts(kind).map_or(0, |count| count.facts);
            text.push_str(&format!("  {facts:>8}"));
        }
        text.push('\n');
        for result in &self.results {
            let budget = percent(result.budget);
            text.push_str(&format!("{:<10} {budget:>6}", result.strategy));
            let cell = |recall: Option<f64>| recall.map_or_else(|| "-".to_owned(), percent);
            let kinds = STATE_KINDS.iter().map(|kind| result.kinds.of(kind));
            let recalls = kinds.map(|count| count.map(StateCount::recall));
            for recall in recalls.chain([result.claims.map(|claims| claims.recall())]) {
                text.push_str(&format!("  {:>8}", cell(recall)));
            }
            text.push('\n');
        }
        text
    }
}
