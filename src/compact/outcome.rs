//! The outcomes of a compaction.

use serde::Serialize;

use crate::store::Outcome;

/// The outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CompactOutcome {
    /// There was nothing to do, and no run is recorded; [`CompactReport::not_needed`](super::CompactReport) has the
    /// reason.
    NotNeeded,
    /// The blocks are active.
    Committed,
    /// The context would not have become smaller.
    NoGain,
    /// A hook vetoed it.
    Vetoed,
    /// The strategy or a check failed.
    Failed,
    /// Another run was committed first, or something was removed meanwhile.
    Conflict,
}

/// The reason why an attempt was not needed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotNeeded {
    /// The trigger did not fire.
    Trigger,
    /// The plan leaves every loop as it is.
    Unchanged,
    /// An earlier run on this leaf tried the same plan without success.
    TriedBefore {
        /// The run.
        run: String,
    },
}

impl From<Outcome> for CompactOutcome {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Committed => Self::Committed,
            Outcome::NoGain => Self::NoGain,
            Outcome::Vetoed => Self::Vetoed,
            Outcome::Failed | Outcome::Running | Outcome::Interrupted => Self::Failed,
            Outcome::Conflict => Self::Conflict,
        }
    }
}
