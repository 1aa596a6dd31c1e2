//! A preview of a compaction: its messages, without a run.

use std::cell::RefCell;

use super::check::introduced_fault;
use super::fallback;
use super::planner::CandidatePlanner;
use super::report::BudgetTooSmall;
use super::request::{CompactRequest, CompactTrigger};
use super::running::OpenRow;
use super::snapshot::{Snapshot, TriggerCheck};
use super::texts::Texts;
use crate::compaction::StrategyError;
use crate::context::messages_with;
use crate::model::{AgentMessage, SessionId};
use crate::store::{self, SessionStore};

/// Returns the messages that the next model call would have after this compaction. Nothing is written, no hook is
/// called, and the trigger is not evaluated; the policy only limits the size of the result.
///
/// # Errors
/// If the session or the loop does not exist, the strategy fails, or not even the last turn fits.
///
/// # Examples
/// ```
/// use loopstore::compact::compacted_messages;
/// use loopstore::*;
///
/// let store = Store::in_memory()?;
/// let chat = store.session("weather")?;
/// let report = |hour| Message::assistant(format!("Hour {hour}: {}", "rain, ".repeat(200)));
/// chat.append([Message::user("How is the weather?")])?;
/// chat.append((0..40).map(report))?;
/// let request = Policy::new(6_000).request();
/// let messages = compacted_messages(store.database(), chat.id(), &request)?;
/// assert!(total_tokens(&messages) <= 6_000);
/// assert_eq!(chat.context()?.messages.len(), 41);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn compacted_messages(
    store: &dyn SessionStore,
    session: &SessionId,
    request: &CompactRequest,
) -> Result<Vec<AgentMessage>, StrategyError> {
    let request = &CompactRequest {
        trigger: match request.trigger {
            CompactTrigger::Force => CompactTrigger::Force,
            CompactTrigger::Policy | CompactTrigger::Length => CompactTrigger::Length,
        },
        dry_run: true,
        ..request.clone()
    };
    let snapshot = match Snapshot::load(store, session, request, None)? {
        TriggerCheck::Fired(snapshot) => snapshot,
        // Only a policy may not fire, and none is evaluated.
        TriggerCheck::NotFired(..) => return Ok(Vec::new()),
    };
    let (texts, open_row) = (Texts::default(), OpenRow::default());
    let planner = CandidatePlanner {
        store,
        snapshot: &snapshot,
        request,
        texts: &texts,
        forms: RefCell::default(),
        rooms: RefCell::default(),
        open_row: &open_row,
        kept_prompts: RefCell::default(),
    };
    let candidate = fallback::fit(&planner)?;
    if let Some(too_small) = BudgetTooSmall::check(request.policy.window.budget(), candidate.after)
    {
        return Err(StrategyError::Failed(too_small.to_string()));
    }
    if let Some(fault) = introduced_fault(store, &snapshot, &candidate)? {
        let error = format!("the context would have a fault that its originals have not: {fault}");
        return Err(StrategyError::Failed(error));
    }
    let blocks: Vec<_> = candidate
        .blocks
        .iter()
        .map(|placed| &placed.block)
        .collect();
    let messages = store::read(store, |read| messages_with(read, &candidate.chain, &blocks))?;
    Ok(messages)
}
