//! Compares the compactions that transcripts record with those of loopstore.

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

/// The maximum number of tokens of the handback text beside a recorded summary.
pub const HANDBACK_TOKENS: u64 = 1_000;

/// The report of [`compactions`]; serialises to the JSON that `eval compactions --json` prints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CompactionsReport {
    /// The number of needed values, over all compactions.
    pub needed: usize,
    /// The results of the recorded texts and of each strategy, over all compactions.
    pub results: Vec<CompactionResult>,
    /// The single compactions.
    pub compactions: Vec<ComparedCompaction>,
}

/// A recorded compaction, compared with those of loopstore.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ComparedCompaction {
    /// The session.
    pub session_id: String,
    /// The run of the recorded compaction.
    pub run_id: String,
    /// The number of tokens of the originals that its text replaces.
    pub originals: u64,
    /// The number of values that were needed later and that the messages kept beside the text do not contain.
    pub needed: usize,
    /// The results: the recorded text, the recorded text with the handback text, then each strategy.
    pub results: Vec<CompactionResult>,
    /// The values that were needed later and that neither the text nor the messages kept beside it contain.
    pub forgotten: Vec<ForgottenValue>,
    /// The facts of the work that neither of them states: files, the plan, failed commands, running calls.
    pub lost: Vec<LostFact>,
    /// The calls that were repeated before the next compaction although nothing had changed.
    pub again: Vec<RepeatedCall>,
    /// The handback text beside the summary, of at most [`HANDBACK_TOKENS`].
    pub handback: String,
}

/// A value that was needed after a compaction and that the context no longer contained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgottenValue {
    /// The value.
    pub value: String,
    /// True if the handback text contains the value.
    #[serde(rename = "handed_back")]
    pub is_handed_back: bool,
}

/// The result of a summary: the share of needed values and of facts that the text keeps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CompactionResult {
    /// `recorded`, `with-handback`, or the name of the strategy.
    pub candidate: String,
    /// The number of tokens of the text.
    pub tokens: u64,
    /// The number of needed values in the text.
    pub kept: usize,
    /// Needed values found ÷ needed values; 1 if nothing was needed.
    pub recall: f64,
    /// The counts of the facts about the work in the originals, and of those that the text states.
    pub state: StateCounts,
}

/// Compares each strategy with every compaction that the sessions record with a text. The strategy gets the originals
/// that the text replaces, and a budget of the text's tokens. A value is needed if a later call takes it from these
/// originals ([`needed_values`](super::needed_values)) and the messages kept beside the text do not contain it.
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
