//! The price of the contexts of a session, call by call, under policies that shorten them in different ways.

mod meter;
mod reads;
mod recorded;
mod replay;

use loopstore::compaction::StrategyError;
use loopstore::extend::SessionStore;
use loopstore::model::SessionId;
use serde::{Deserialize, Serialize};

use super::{History, distinct, readable_runs};
use recorded::recorded_cost;
use replay::{CostPolicy, CostReplay};

/// Turns after a compaction in which a file that is read again counts for the bill of the compaction.
pub const TURNS_OF_A_BILL: u32 = 5;

/// Sessions with fewer tokens are skipped: no window makes them grow into a compaction.
const LEAST_TOKENS: u64 = 8_000;

/// The part of a session's tokens that is its window if none is given.
const WINDOW_PART: u64 = 4;

/// The name of the row of the compactions that the transcripts record.
const RECORDED: &str = "recorded";

/// The prices of tokens, in units of the price of an input token without a cache.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenPrices {
    /// A token that is read from the provider's cache.
    pub cached: f64,
    /// A token that is sent and written to the cache.
    pub written: f64,
    /// A token of an answer.
    pub output: f64,
}

impl Default for TokenPrices {
    fn default() -> Self {
        Self {
            cached: 0.1,
            written: 1.25,
            output: 5.0,
        }
    }
}

/// The report of [`cost`]; serialises to the JSON that `eval cost --json` prints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CostReport {
    /// The number of sessions that were replayed.
    pub sessions: usize,
    /// The number of sessions that are too short to be compacted, and were skipped.
    pub skipped: usize,
    /// The costs of each policy, over all sessions.
    pub results: Vec<CostResult>,
    /// The costs over the sessions that record compactions: of the recorded ones, and of each policy with the window
    /// in which the first of them was made.
    pub recorded: Vec<CostResult>,
}

/// The costs of a policy. Prices are in units of the price of an input token.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CostResult {
    /// The name of the policy.
    pub policy: String,
    /// The number of model calls.
    pub calls: usize,
    /// The number of compactions and clearings.
    pub compactions: usize,
    /// The number of calls whose context is larger than the window.
    pub over: usize,
    /// Tokens that were read from the cache.
    pub cached: u64,
    /// Tokens that were written to the cache.
    pub written: u64,
    /// Tokens of the answers.
    pub output: u64,
    /// The price of the calls that make the texts of compactions.
    pub own: f64,
    /// The price of what a compaction changes or breaks: it is written to the cache, where the unchanged context would
    /// be read from it.
    pub broken: f64,
    /// The price of the files that compactions hid and that the next turns need, if they are read again.
    pub again: f64,
    /// The number of these files.
    pub files: usize,
    /// The price of everything.
    pub total: f64,
}

impl CostResult {
    /// Returns the price of all compactions: their own calls, the broken caches and the files that are read again.
    pub fn bill(&self) -> f64 {
        self.own + self.broken + self.again
    }

    fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.compactions += other.compactions;
        self.over += other.over;
        self.cached += other.cached;
        self.written += other.written;
        self.output += other.output;
        self.own += other.own;
        self.broken += other.broken;
        self.again += other.again;
        self.files += other.files;
        self.total += other.total;
    }
}

/// Replays each session under several policies, and adds up what its model calls cost.
///
/// Before each answer of the session, a policy prepares the context. What the context has in common with that of the
/// call before is read from the cache, and the rest is written to it. A file counts as read again if a compaction hid
/// what was read of it and one of the next [`TURNS_OF_A_BILL`] turns reads or changes it. Without `window`, the window
/// of a session is a quarter of its tokens.
///
/// # Errors
/// If a session cannot be read or stored.
///
/// # Examples
/// ```
/// use loopstore::*;
/// use loopstore_eval::{TokenPrices, cost};
///
/// let store = Store::in_memory()?;
/// let chat = store.session("weather")?;
/// for hour in 0..80 {
///     let report = format!("Hour {hour}: {}", "rain, ".repeat(200));
///     chat.append([Message::user("How is the weather?"), Message::assistant(report)])?;
/// }
/// let report = cost(store.database(), &[chat.id().clone()], None, &TokenPrices::default())?;
/// let never = &report.results[0];
/// assert_eq!((never.policy.as_str(), never.calls, never.bill()), ("never", 80, 0.0));
/// assert!(report.results.iter().any(|one| one.total < never.total));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn cost(
    store: &dyn SessionStore,
    sessions: &[SessionId],
    window: Option<u64>,
    prices: &TokenPrices,
) -> Result<CostReport, StrategyError> {
    let mut report = CostReport::default();
    for session in sessions {
        let history = History::load(store, session)?;
        let tokens = history.tokens(store.counter());
        if tokens < LEAST_TOKENS {
            report.skipped += 1;
            continue;
        }
        report.sessions += 1;
        let usual = window.unwrap_or(tokens / WINDOW_PART);
        for policy in CostPolicy::ALL {
            let result = CostReplay::new(&history, usual, prices).run(policy)?;
            add(&mut report.results, &result);
        }
        if readable_runs(store, session)?.is_empty() {
            continue;
        }
        if let Some((result, window)) = recorded_cost(store, session, &history, prices)? {
            add(&mut report.recorded, &result);
            for policy in CostPolicy::ALL {
                let result = CostReplay::new(&history, window, prices).run(policy)?;
                add(&mut report.recorded, &result);
            }
        }
    }
    Ok(report)
}

/// Adds a result to that of the same policy.
fn add(results: &mut Vec<CostResult>, one: &CostResult) {
    match results.iter_mut().find(|of| of.policy == one.policy) {
        Some(of) => of.add(one),
        None => results.push(one.clone()),
    }
}

impl CostReport {
    /// Returns the names of the policies.
    pub fn policies(&self) -> Vec<&str> {
        distinct(self.results.iter().map(|one| one.policy.as_str()))
    }
}

#[cfg(test)]
mod tests;
