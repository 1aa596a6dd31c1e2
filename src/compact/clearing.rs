//! Clears old tool results before a compaction is planned, if the policy says so.

use super::guard::guarded;
use super::report::CompactReport;
use super::request::{CompactRequest, CompactTrigger};
use super::snapshot::{ContextTokens, TokenSource, active_size, fires};
use crate::context::keys_of;
use crate::edit::{EditReport, EditRequest, edit};
use crate::model::SessionId;
use crate::store::{self, SessionStore, Size, StoreError, StoreResult};

/// The clearing of tool results before a compaction.
pub(super) struct ClearedFirst {
    /// The report of the edits, or the reason why there are none.
    result: Result<EditReport, String>,
    /// The size with which the policy fired.
    pub(super) about: ContextTokens,
    /// The size after the clearing by the provider's count, if the policy fired with that.
    pub(super) counted: Option<ContextTokens>,
    /// In a dry run, the size after the clearing if it is below the limits of the policy.
    enough: Option<Size>,
}

impl ClearedFirst {
    /// Clears tool results if the policy clears any and fires. Results that are cleared already are not cleared again,
    /// so a second call writes nothing.
    pub(super) fn of(
        store: &dyn SessionStore,
        session: &SessionId,
        request: &CompactRequest,
    ) -> StoreResult<Option<Self>> {
        // A provider that rejects what fits by the store's count says how little that count is worth, so what is
        // cleared cannot be shown to be enough.
        let clear = request.policy.clear_tool_results.as_ref();
        let clear = clear.filter(|clear| !clear.by_provider);
        let is_wanted = request.trigger == CompactTrigger::Policy && !request.cancel.is_cancelled();
        let Some(clear) = clear.filter(|_| is_wanted) else {
            return Ok(None);
        };
        let (size, about) = store::read(store, |read| {
            let (session, leaf) = keys_of(read, session, request.leaf.as_ref())?;
            active_size(read, session, leaf, request)
        })?;
        let is_over = |size: Size, about: ContextTokens| {
            fires(request, size, about) || !request.policy.window.budget().fits(size)
        };
        if !is_over(size, about) {
            return Ok(None);
        }
        let edits = EditRequest {
            leaf: request.leaf.clone(),
            dry_run: request.dry_run,
            ..clear.request()
        };
        let result = match guarded(|| edit(store, session, &edits)) {
            Ok(Ok(report)) => Ok(report),
            Ok(Err(StoreError::EditRefused(why))) => Err(why.to_string()),
            Ok(Err(error)) => return Err(error),
            Err(panicked) => Err(panicked),
        };
        let mut cleared = Self {
            result,
            about,
            counted: None,
            enough: None,
        };
        if let Ok(report) = &cleared.result {
            let freed = report.tokens_before.saturating_sub(report.tokens_after);
            let after = ContextTokens {
                tokens: about.tokens.saturating_sub(freed),
                ..about
            };
            // An estimate of all messages would be less than what the provider counted, and hide that it still fires.
            cleared.counted = Some(after).filter(|after| after.source == TokenSource::Reported);
            let left = Size {
                tokens: size.tokens.saturating_sub(freed),
                ..size
            };
            let is_enough = request.dry_run && !is_over(left, after);
            cleared.enough = is_enough.then_some(left);
        }
        Ok(Some(cleared))
    }

    /// Returns the size after the clearing if a dry run shows that it would make a compaction unnecessary.
    pub(super) fn would_be_enough(&self) -> Option<Size> {
        self.enough
    }

    /// Returns the report of the compaction with that of the clearing.
    pub(super) fn noted_in(self, mut report: CompactReport) -> CompactReport {
        report.asked_about = self.about;
        match self.result {
            Ok(cleared) => report.cleared = Some(cleared),
            Err(reason) => report.not_cleared = Some(reason),
        }
        report
    }
}
