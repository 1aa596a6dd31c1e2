//! Measures of compaction: the share of later needed information that survives a compaction.
//!
//! A recorded session is cut at 60 % of its messages, moved back to the end of a turn at which no call waits for its
//! result. A value that a later call took from the part before the cut is *needed*. A strategy compacts this part
//! without the rest of the session, and recall is the share of needed values that its text contains verbatim:
//! [`retention()`]. [`state()`], [`prose()`], [`exam`] and [`compactions()`] measure other losses.
//!
//! The module `command` is the command `loopstore eval`. The crate stores nothing: it imports transcripts into
//! memory. It contains only the strategies that serve as baselines. `loopstore-report` writes the page of
//! compactions.

#![warn(missing_docs)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod baselines;
#[doc(hidden)]
pub mod command;
mod compactions;
mod cost;
pub mod exam;
mod history;
mod needed;
mod plot;
mod prose;
mod recall;
mod state;
mod strategies;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

pub use baselines::{EvalRandom, EvalTfIdf};
pub use compactions::{
    CompactionResult, CompactionsReport, ComparedCompaction, ForgottenValue, HANDBACK_TOKENS,
    RepeatedCall, RepeatedKind, compactions, repeated_calls,
};
pub use cost::{CostReport, CostResult, TURNS_OF_A_BILL, TokenPrices, cost};
pub use history::{History, HistoryLoop, readable_runs};
pub use needed::{context_text, needed_values};
pub use plot::recall_svg;
pub use prose::{
    ConversationError, ProseConversation, ProseMessage, ProseQuestion, ProseReport, prose,
};
pub use recall::{
    RecallAt, RecallCase, RecallMessage, RecallQuestion, RecallSession, SearchRecallReport,
    search_recall,
};
pub use state::{
    LostFact, STATE_KINDS, StateCount, StateCounts, StateFacts, StateReport, StateResult, state,
};
pub use strategies::{
    EvalClear, EvalDigest, EvalOneLiner, EvalStrategy, EvalSummarize, EvalTiered, EvalTruncate,
    STRATEGIES, strategy,
};

use loopstore::compaction::StrategyError;
use loopstore::extend::SessionStore;
use loopstore::model::{AgentMessage, SessionId};
use loopstore::tokens::TokenCounter;

/// The report of [`retention`]; serialises to the JSON that `eval retention --json` prints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RetentionReport {
    /// Histories that were cut.
    pub cases: usize,
    /// Values that were needed after a cut, over all cases.
    pub needed: usize,
    /// The results, one for each strategy at each budget.
    pub results: Vec<RetentionResult>,
}

/// The result of a strategy at a budget.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RetentionResult {
    /// The strategy's name.
    pub strategy: String,
    /// The budget, as a share of the tokens before the cut.
    pub budget: f64,
    /// Needed values found ÷ needed values, over all cases; 1 if nothing was needed.
    pub recall: f64,
    /// Tokens of the compacted contexts, over all cases.
    pub tokens: u64,
}

/// Cuts the chain of each session's current loop, compacts the part before the cut with each of `strategies` to each
/// of `budgets` (shares of the tokens of the part), and counts the needed values in the result.
///
/// # Errors
/// If a session cannot be read or a strategy fails.
///
/// # Examples
/// ```
/// use loopstore_eval::{retention, strategy};
/// use loopstore::*;
///
/// let store = Store::in_memory()?;
/// let chat = store.session("weather")?;
/// let report = |hour| Message::assistant(format!("Hour {hour}: {}", "rain, ".repeat(200)));
/// chat.append([Message::user("How is the weather?")])?;
/// chat.append((0..40).map(report))?;
/// let strategies: Vec<_> = ["digest", "truncate"].into_iter().filter_map(strategy).collect();
/// let report = retention(store.database(), &[chat.id().clone()], &[0.1, 0.3], &strategies)?;
/// assert_eq!((report.cases, report.results.len()), (1, 4));
/// println!("{}", report.table());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn retention(
    store: &dyn SessionStore,
    sessions: &[SessionId],
    budgets: &[f64],
    strategies: &[&dyn EvalStrategy],
) -> Result<RetentionReport, StrategyError> {
    let mut tally = RecallTally::new(budgets, strategies);
    for session in sessions {
        let history = History::load(store, session)?;
        tally.add(&history, store.counter())?;
    }
    Ok(tally.report())
}

struct RecallTally<'a> {
    budgets: &'a [f64],
    strategies: &'a [&'a dyn EvalStrategy],
    cases: usize,
    needed: usize,
    /// Values found and tokens used, by strategy and budget.
    found: Vec<(usize, u64)>,
}

impl<'a> RecallTally<'a> {
    fn new(budgets: &'a [f64], strategies: &'a [&'a dyn EvalStrategy]) -> Self {
        Self {
            budgets,
            strategies,
            cases: 0,
            needed: 0,
            found: vec![(0, 0); budgets.len() * strategies.len()],
        }
    }

    fn add(&mut self, history: &History, counter: &dyn TokenCounter) -> Result<(), StrategyError> {
        let (before, after) = history.cut();
        if before.is_empty() {
            return Ok(());
        }
        let needed = needed_values(before, after);
        let count = |message: &AgentMessage| counter.message_tokens(message);
        let tokens: u64 = before.iter().map(|placed| count(&placed.message)).sum();
        self.cases += 1;
        self.needed += needed.len();
        for (at, strategy) in self.strategies.iter().enumerate() {
            for (place, budget) in self.budgets.iter().enumerate() {
                let budget = (tokens as f64 * budget) as u64;
                let context = strategy.compact(before, budget, counter)?;
                let text = context_text(&context);
                let found = &mut self.found[at * self.budgets.len() + place];
                found.0 += needed.iter().filter(|value| text.contains(*value)).count();
                found.1 += context.iter().map(count).sum::<u64>();
            }
        }
        Ok(())
    }

    fn report(&self) -> RetentionReport {
        let each = self.strategies.iter().flat_map(|strategy| {
            let of = |budget: &f64| (strategy.name().to_owned(), *budget);
            self.budgets.iter().map(of)
        });
        let result = |((strategy, budget), (found, tokens)): ((String, f64), &(usize, u64))| {
            RetentionResult {
                strategy,
                budget,
                recall: share(*found, self.needed),
                tokens: *tokens,
            }
        };
        RetentionReport {
            cases: self.cases,
            needed: self.needed,
            results: each.zip(&self.found).map(result).collect(),
        }
    }
}

impl RetentionReport {
    /// Returns the budgets in the order given.
    pub fn budgets(&self) -> Vec<f64> {
        distinct(self.results.iter().map(|result| result.budget))
    }

    /// Returns the names of the strategies in the order given.
    pub fn strategies(&self) -> Vec<&str> {
        distinct(self.results.iter().map(|result| result.strategy.as_str()))
    }

    /// Returns the recall of a strategy at a budget.
    pub fn recall(&self, strategy: &str, budget: f64) -> Option<f64> {
        let of = |result: &&RetentionResult| result.strategy == strategy && result.budget == budget;
        self.results.iter().find(of).map(|result| result.recall)
    }

    /// Returns a summary of the measurement: `2 cases, 13 needed values`.
    fn head(&self) -> String {
        let (cases, needed) = (self.cases, self.needed);
        format!(
            "{}, {}",
            count(cases, "case"),
            count(needed, "needed value")
        )
    }

    /// Returns a plain table: a line for each strategy, a column for each budget.
    pub fn table(&self) -> String {
        self.head() + "\n" + &recall_table(&self.results)
    }
}

/// Writes a line for each strategy, with a column for each budget.
fn recall_table(results: &[RetentionResult]) -> String {
    let names = distinct(results.iter().map(|result| result.strategy.as_str()));
    let width = names
        .iter()
        .map(|name| name.len())
        .max()
        .unwrap_or(0)
        .max(8);
    let mut lines = vec![format!("{:<width$}", "strategy")];
    lines.extend(names.iter().map(|name| format!("{name:<width$}")));
    for budget in distinct(results.iter().map(|result| result.budget)) {
        lines[0].push_str(&format!("  {:>6}", percent(budget)));
        for (line, name) in lines[1..].iter_mut().zip(&names) {
            let mut of = results.iter().filter(|result| result.strategy == *name);
            let recall = of.find(|result| result.budget == budget);
            let recall = recall.map_or_else(String::new, |result| percent(result.recall));
            line.push_str(&format!("  {recall:>6}"));
        }
    }
    lines
        .iter()
        .fold(String::new(), |text, line| text + line + "\n")
}

/// Writes a number with its noun.
fn count(count: usize, one: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {one}s"),
    }
}

/// Returns `part / whole`; 1 if `whole` is 0.
fn share(part: usize, whole: usize) -> f64 {
    match whole {
        0 => 1.0,
        whole => part as f64 / whole as f64,
    }
}

/// Writes a share as a percentage, with a decimal only where it has one.
fn percent(share: f64) -> String {
    let tenths = (share * 1000.0).round() as i64;
    match tenths % 10 {
        0 => format!("{} %", tenths / 10),
        tenth => format!("{}.{} %", tenths / 10, tenth.abs()),
    }
}

/// Returns a sort key that gives an order determined by the seed.
fn shuffled(seed: u64, parts: &[&str]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(seed.to_le_bytes());
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    all.fold(Vec::new(), |mut seen, one| {
        if !seen.contains(&one) {
            seen.push(one);
        }
        seen
    })
}
