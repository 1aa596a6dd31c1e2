//! A session that is recorded again, turn by turn, by an agent with a policy.

use loopstore::compact::CompactOutcome;
use loopstore::compaction::{LoopMessage, StrategyError};
use loopstore::model::Role;
use loopstore::{
    ClearToolResults, CompactionPolicy, Error, Policy, Prepared, SessionHandle, Store, StoreError,
};

use super::meter::Meter;
use super::reads::FileReads;
use super::{CostResult, TokenPrices};
use crate::History;

/// A policy whose costs are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CostPolicy {
    /// Nothing is shortened, whatever the window.
    Never,
    /// The default policy with the default strategy.
    Headroom,
    /// The policy that comes down to half of the window.
    Target,
    /// Only old tool results are cleared, when the default policy fires.
    Clear,
    /// Old tool results are cleared first, and the rest is compacted if that is not enough.
    ClearFirst,
}

/// A window that no session fills.
const ANY: u64 = 1 << 40;

impl CostPolicy {
    pub(super) const ALL: [Self; 5] = [
        Self::Never,
        Self::Headroom,
        Self::Target,
        Self::Clear,
        Self::ClearFirst,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Headroom => "headroom",
            Self::Target => "target",
            Self::Clear => "clear",
            Self::ClearFirst => "clear-first",
        }
    }

    fn policy(self, window: u64) -> Policy {
        match self {
            Self::Never | Self::Clear => Policy::new(ANY),
            Self::Headroom => Policy::new(window),
            Self::Target => Policy::new(window).compaction_policy(CompactionPolicy::target()),
            Self::ClearFirst => Policy::new(window).clear_tool_results(ClearToolResults::new()),
        }
    }
}

/// A session to be replayed.
pub(super) struct CostReplay<'a> {
    history: &'a History,
    window: u64,
    prices: &'a TokenPrices,
}

impl<'a> CostReplay<'a> {
    pub(super) fn new(history: &'a History, window: u64, prices: &'a TokenPrices) -> Self {
        Self {
            history,
            window,
            prices,
        }
    }

    /// Replays the session under a policy.
    pub(super) fn run(&self, policy: CostPolicy) -> Result<CostResult, StrategyError> {
        let store = Store::in_memory().map_err(failed)?;
        let chat = store
            .session("replay")
            .map_err(failed)?
            .with_policy(policy.policy(self.window));
        let counter = store.database().counter();
        let mut meter = Meter::new(policy.name(), self.prices, counter);
        let mut reads = FileReads::default();
        let mut called = None;
        for LoopMessage { turn, message, .. } in &self.history.messages {
            let is_answer = message.role() == Role::Assistant;
            if is_answer && called != Some(*turn) {
                called = Some(*turn);
                self.call(&chat, policy, *turn, &mut meter, &mut reads)?;
            }
            for (call, content) in reads.note(message, *turn, counter) {
                meter.read_again(call, content);
            }
            meter.appended(message, is_answer);
            chat.append([message.clone()]).map_err(failed)?;
        }
        Ok(meter.result())
    }

    fn call(
        &self,
        chat: &SessionHandle,
        policy: CostPolicy,
        turn: u32,
        meter: &mut Meter<'_>,
        reads: &mut FileReads,
    ) -> Result<(), StrategyError> {
        let mut is_cleared = false;
        if policy == CostPolicy::Clear {
            let limit = Policy::new(self.window).target();
            let context = chat.context();
            if context.is_ok_and(|context| context.tokens > limit.tokens) {
                is_cleared = match chat.edit(&ClearToolResults::new().request()) {
                    Ok(_) => true,
                    Err(Error::Store(StoreError::EditRefused(_))) => false,
                    Err(error) => return Err(failed(error)),
                };
            }
        }
        match chat.prepare() {
            Ok(ready) => {
                let is_compacted = is_cleared || is_shortened(&ready);
                meter.call(ready.messages(), is_compacted);
                if is_compacted {
                    reads.compacted(ready.messages(), turn);
                }
            }
            // An agent would have to cut by itself here.
            Err(Error::BudgetTooSmall { .. }) => {
                meter.call(&chat.context().map_err(failed)?.messages, false);
            }
            // The first answer of a session without a prompt.
            Err(Error::NotFound { .. }) => meter.call(&[], false),
            Err(error) => return Err(failed(error)),
        }
        if meter.tokens() > self.window {
            meter.over();
        }
        Ok(())
    }
}

fn is_shortened(ready: &Prepared) -> bool {
    let mut reports = ready.compactions.iter();
    ready.cleared.is_some() || reports.any(|one| one.outcome == CompactOutcome::Committed)
}

fn failed(error: impl std::fmt::Display) -> StrategyError {
    StrategyError::Failed(error.to_string())
}
