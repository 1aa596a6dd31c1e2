//! Compacts until the context of the next call fits.

use super::error::Error;
use crate::compact::{
    CompactOutcome, CompactReport, CompactRequest, NotNeeded, compact_session_loops,
};
use crate::context::BuildError;
use crate::model::SessionId;
use crate::store::{SessionStore, StoreResult};

/// Compacts if necessary; returns the reports of the attempts, in order.
///
/// The trigger reads stored totals only. An attempt that ended in a conflict is repeated, one whose strategy
/// failed is repeated with the default strategy; at most as many attempts as the policy allows.
pub(super) fn compact_to_fit(
    store: &dyn SessionStore,
    session: &SessionId,
    request: &mut CompactRequest,
) -> StoreResult<Vec<CompactReport>> {
    let mut reports = Vec::new();
    let mut left = request.policy.compaction.policy.max_attempts().max(1);
    while left > 0 {
        let report = compact_session_loops(store, session, request)?;
        left -= u32::from(report.outcome != CompactOutcome::NotNeeded);
        let again = prepare_another(&report, request);
        reports.push(report);
        if !again || request.cancel.is_cancelled() {
            break;
        }
    }
    Ok(reports)
}

/// True if another attempt may do better; changes the request for it.
fn prepare_another(report: &CompactReport, request: &mut CompactRequest) -> bool {
    match report.outcome {
        CompactOutcome::Conflict => true,
        CompactOutcome::Failed
            if report.too_small.is_none() && report.strategy != request.default_strategy.name() =>
        {
            request.policy.compaction.block_strategy = None;
            true
        }
        _ => false,
    }
}

/// True if the context that is too large is larger than the one with which the trigger did not fire: another program
/// has appended in between, and the trigger fires the next time.
pub(super) fn has_grown_since(error: &BuildError, reports: &[CompactReport]) -> bool {
    let Some(report) = reports
        .last()
        .filter(|report| report.not_needed == Some(NotNeeded::Trigger))
    else {
        return false;
    };
    match error {
        BuildError::NeedsCompaction { tokens, .. } => *tokens > report.before.tokens,
        BuildError::NeedsFewerBytes { bytes, .. } => *bytes > report.before.bytes,
        BuildError::Store(_) | BuildError::Invalid(_) => false,
    }
}

/// Returns the error of a context that was not built after the last attempt to make it smaller.
pub(super) fn refused(error: BuildError, report: Option<&CompactReport>) -> Error {
    match (error, report) {
        (BuildError::Store(error), _) => error.into(),
        (error, Some(report)) => match report.too_small {
            Some(too_small) => too_small.into(),
            None => {
                let reason = report.error.clone();
                Error::too_large(
                    error,
                    Some(reason.unwrap_or_else(|| "not compacted".into())),
                )
            }
        },
        (error, None) => error.into(),
    }
}
