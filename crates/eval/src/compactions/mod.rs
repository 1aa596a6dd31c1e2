//! Compactions that transcripts record, and ours in their place.

mod again;
mod recorded;

use serde::{Deserialize, Serialize};

use loopstore::compaction::StrategyError;
use loopstore::extend::SessionStore;
use loopstore::model::SessionId;

use super::state::LostFact;
use super::{EvalStrategy, StateCounts, distinct, readable_runs, share};
pub use again::{RepeatedCall, RepeatedKind, repeated_calls};
use recorded::RecordedCompaction;

/// Tokens that are handed back beside a recorded text at most.
pub const HANDBACK_TOKENS: u64 = 1_000;

/// The report of [`compactions`]; serialises to the JSON that `eval compactions --json` prints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CompactionsReport {
    /// Values that were needed after a compaction, over all of them.
    pub needed: usize,
    /// The recorded texts and each strategy, over all compactions.
    pub results: Vec<CompactionResult>,
    /// One by one.
    pub compactions: Vec<ComparedCompaction>,
}

/// A recorded compaction beside ours.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ComparedCompaction {
    /// The session.
    pub session_id: String,
    /// The run of the recorded compaction.
    pub run_id: String,
    /// Tokens of the originals that its text replaces.
    pub originals: u64,
    /// Values that were needed afterwards and that nothing kept beside the text holds.
    pub needed: usize,
    /// The recorded text first, then the same with what is handed back, then each strategy.
    pub results: Vec<CompactionResult>,
    /// Values that were needed afterwards and that neither the text nor what is kept beside it holds.
    pub forgotten: Vec<ForgottenValue>,
    /// What of the work neither of them states: files, the plan, commands that failed, what is running.
    pub lost: Vec<LostFact>,
    /// The calls that were made again until the next compaction though nothing had changed.
    pub again: Vec<RepeatedCall>,
    /// The text that is handed back beside the summary, in at most [`HANDBACK_TOKENS`].
    pub handback: String,
}

/// A value that was needed after a compaction and was gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgottenValue {
    /// The value.
    pub value: String,
    /// True if it is among what is handed back.
    #[serde(rename = "handed_back")]
    pub is_handed_back: bool,
}

/// The result of a text: how much it keeps of the messages that it replaces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CompactionResult {
    /// `recorded`, or the strategy.
    pub candidate: String,
    /// Its tokens.
    pub tokens: u64,
    /// Needed values found in it.
    pub kept: usize,
    /// Needed values found ÷ needed values; 1 if nothing was needed.
    pub recall: f64,
    /// The facts that the text states of the work in the originals.
    pub state: StateCounts,
}

/// Puts each strategy in the place of every compaction that the sessions record with a text: it gets the
/// originals that the text stands for, and as many tokens. Needed is what later calls take from these
/// originals, as [`needed_values`](super::needed_values) says, and what is not kept beside the text.
///
/// # Errors
/// If a session cannot be read or a strategy fails.
pub fn compactions(
    store: &dyn SessionStore,
    sessions: &[SessionId],
    strategies: &[&dyn EvalStrategy],
) -> Result<CompactionsReport, StrategyError> {
    let mut report = CompactionsReport::default();
    for session in sessions {
        let mut recorded = Vec::new();
        for run in readable_runs(store, session)? {
            recorded.extend(RecordedCompaction::load(store, session, &run)?);
        }
        let mut recorded = recorded.into_iter().peekable();
        while let Some(one) = recorded.next() {
            let compared = one.compare(store, recorded.peek(), strategies)?;
            report.compactions.push(compared);
        }
    }
    report.sum_up();
    Ok(report)
}

impl CompactionsReport {
    fn sum_up(&mut self) {
        self.needed = self.compactions.iter().map(|one| one.needed).sum();
        let all = || self.compactions.iter().flat_map(|one| &one.results);
        let names = distinct(all().map(|result| result.candidate.clone()));
        let sum = |name: String| {
            let of_name = || all().filter(|result| result.candidate == name);
            let mut state = StateCounts::default();
            of_name().for_each(|result| state.add(&result.state));
            let kept = of_name().map(|result| result.kept).sum();
            CompactionResult {
                candidate: name.clone(),
                tokens: of_name().map(|result| result.tokens).sum(),
                kept,
                recall: share(kept, self.needed),
                state,
            }
        };
        self.results = names.into_iter().map(sum).collect();
    }
}
