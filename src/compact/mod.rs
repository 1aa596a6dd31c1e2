//! Compaction of sessions in a store: a plan from a snapshot, a strategy that runs with no transaction open, and a
//! commit that compares the snapshot with the present state.
//!
//! An attempt is one try: [`CompactRequest`] → `Snapshot` (the chain in one read transaction) → for each
//! `FallbackStep` a `CompactionCandidate` (plan, texts, blocks; nothing written) until one fits → a run with its
//! blocks, in one transaction → [`CompactReport`]. Only [`compact_session_loops`] repeats an attempt, and only
//! `fallback` takes the next step.
//!
//! The commit compares the active blocks of the chain with those of the snapshot. If both are equal, it writes the
//! run, the blocks, their messages and their coverage; else it writes only the run, with the outcome `conflict`. An
//! append never causes a conflict: turns that were appended meanwhile follow the blocks.

mod approval;
mod candidate;
mod check;
mod clearing;
mod commit;
mod events;
mod fallback;
mod flips;
mod growth;
mod guard;
mod last_turns;
mod longer_summary;
mod originals;
mod outcome;
mod pins;
mod planner;
mod policy;
mod preview;
mod prompts;
pub(crate) mod provider_compaction;
mod pruning;
mod quotes;
pub(crate) mod recorded;
mod repair;
mod report;
mod request;
mod rollup;
mod room;
pub(crate) mod running;
mod snapshot;
mod step_planner;
mod texts;

use std::borrow::Cow;
use std::cell::RefCell;
use std::time::Instant;

use crate::compaction::StrategyError;
use crate::model::{SessionId, Size, Time};
use crate::store::{self, Outcome, SessionStore, StoreError, StoreResult};

use approval::Decided;
pub use approval::{Approval, Proposal, ProposedBlock};
use candidate::FallbackStep;
use clearing::ClearedFirst;
use commit::PendingRun;
pub use events::{
    CompactionEnded, CompactionHook, CompactionStarted, Decision, Hooks, WindowWarning,
};
pub(crate) use flips::undo_edits;
pub use flips::{FlipReport, FlipRequest, redo, undo};
use guard::guarded;
pub use originals::OriginalsLocation;
pub use outcome::{CompactOutcome, NotNeeded};
pub use pins::{Pin, PinChange, PinList, PinRef, PinReport, PinRequest, pin, pins, unpin};
use planner::CandidatePlanner;
pub use policy::Policy;
pub use preview::compacted_messages;
pub(crate) use provider_compaction::{
    CompactedExtent, record_appended_compactions, record_provider_compaction,
};
pub(crate) use recorded::{RecordedResult, RecordedRun};
pub use repair::{RepairReport, repair_session};
pub use report::{BlockReport, BudgetTooSmall, BudgetUnit, CompactReport, CoverageCounts};
pub use request::{CompactRequest, CompactTrigger};
use running::OpenRow;
pub(crate) use running::close_interrupted;
pub use snapshot::{ContextTokens, TokenSource};
use snapshot::{Snapshot, TriggerCheck};
use texts::Texts;

/// Compacts the chain of a leaf: evaluates the trigger, then makes one run.
///
/// If the policy clears tool results ([`Policy::clear_tool_results`]), they are cleared first, and the trigger is
/// evaluated again.
///
/// The current loop gets a block of up to three sections, and each earlier loop in scope gets a block with a summary.
/// If the result does not fit the policy's target, content is removed step by step. Every attempt that was needed
/// leaves a run as its audit row. If the strategy fails, or if not even the last turn fits, the report has the
/// outcome `failed`, and no error is returned. If the strategy, a hook or the token counter panics, the attempt
/// leaves a failed run, and a second attempt uses the default strategy.
///
/// # Errors
/// If the session or the loop does not exist, or the store fails.
///
/// # Examples
/// ```
/// use loopstore::*;
///
/// let store = Store::in_memory()?;
/// let chat = store.session("weather")?;
/// let report = |hour| Message::assistant(format!("Hour {hour}: {}", "rain, ".repeat(200)));
/// chat.append([Message::user("How is the weather?")])?;
/// chat.append((0..40).map(report))?;
/// let request = Policy::new(6_000).request();
/// let report = compact_session_loops(store.database(), chat.id(), &request)?;
/// assert!(report.run.is_some());
/// assert!(report.after.tokens < report.before.tokens);
/// // Nothing more is done until the window fills again.
/// assert_eq!(compact_session_loops(store.database(), chat.id(), &request)?.run, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn compact_session_loops(
    store: &dyn SessionStore,
    session: &SessionId,
    request: &CompactRequest,
) -> StoreResult<CompactReport> {
    let Some(cleared) = ClearedFirst::of(store, session, request)? else {
        return compact_chain(store, session, request, None);
    };
    let report = match cleared.would_be_enough() {
        Some(size) => CompactReport::of(request, size, cleared.about),
        None => compact_chain(store, session, request, cleared.counted)?,
    };
    Ok(cleared.noted_in(report))
}

/// Compacts the chain of a leaf as it is. `counted` is the size to evaluate the trigger with, if it is known.
fn compact_chain(
    store: &dyn SessionStore,
    session: &SessionId,
    request: &CompactRequest,
    counted: Option<ContextTokens>,
) -> StoreResult<CompactReport> {
    let mut request = Cow::Borrowed(request);
    let mut first_panic = None;
    loop {
        let panicked = match guarded(|| attempt(store, session, &request, counted)) {
            Ok(Ok(AttemptEnd::Ended(report))) => return Ok(with_panic(report, first_panic)),
            Ok(Ok(AttemptEnd::OverBudget)) => {
                request.to_mut().trigger = CompactTrigger::Length;
                continue;
            }
            Ok(Ok(AttemptEnd::Panicked(report))) if first_panic.is_some() => return Ok(report),
            Ok(Ok(AttemptEnd::Panicked(report))) => report.error.unwrap_or_default(),
            Ok(Err(error)) => return Err(of_a_session(store, session, error)),
            Err(panicked) => panicked,
        };
        if first_panic.is_some() {
            return Ok(CompactReport {
                outcome: CompactOutcome::Failed,
                not_needed: None,
                error: first_panic,
                ..CompactReport::default()
            });
        }
        first_panic = Some(panicked);
        // The hooks saw the attempt that failed, or one of them panicked.
        let default = request.to_mut();
        default.policy.hooks = Hooks::default();
        default.policy.compaction.block_strategy = None;
    }
}

/// Returns the report of an attempt in which the default strategy replaced code that had panicked.
fn with_panic(mut report: CompactReport, panicked: Option<String>) -> CompactReport {
    if let Some(panicked) = panicked {
        report.fallback.get_or_insert(report.strategy.clone());
        report.error.get_or_insert(panicked);
    }
    report
}

/// Returns the error of an attempt. If the session was erased meanwhile, rows are missing that a damaged
/// database would lack as well.
fn of_a_session(store: &dyn SessionStore, session: &SessionId, error: StoreError) -> StoreError {
    let is_gone = || store::read(store, |read| Ok(read.session(session)?.is_none()));
    match error {
        StoreError::Damaged(_) if is_gone().unwrap_or(false) => {
            StoreError::NoSession(session.to_string())
        }
        error => error,
    }
}

/// The end of an attempt.
enum AttemptEnd {
    Ended(CompactReport),
    /// The policy did not fire, but the context does not fit the budget.
    OverBudget,
    /// Code of a user panicked; the run is recorded as failed.
    Panicked(CompactReport),
}

/// Tries the compaction once.
fn attempt(
    store: &dyn SessionStore,
    session: &SessionId,
    request: &CompactRequest,
    counted: Option<ContextTokens>,
) -> StoreResult<AttemptEnd> {
    let begun = Instant::now();
    let now = crate::clock::now();
    let snapshot = match Snapshot::load(store, session, request, counted)? {
        // The trigger may count messages, or use a provider's count; a build with a budget rejects a context that
        // is too large by the store's own count.
        TriggerCheck::NotFired(size, _)
            if request.trigger == CompactTrigger::Policy
                && !request.policy.window.budget().fits(size) =>
        {
            return Ok(AttemptEnd::OverBudget);
        }
        TriggerCheck::NotFired(size, about) => {
            let mut report = CompactReport::of(request, size, about);
            report.error = warn(request, session, size);
            return Ok(AttemptEnd::Ended(report));
        }
        TriggerCheck::Fired(snapshot) => snapshot,
    };
    if !request.dry_run {
        close_interrupted(store, Some(snapshot.session), false)?;
    }
    let started_at = Time::sortable_from_millis(now).map_or_else(Time::now, Time::from_text);
    let mut report = CompactReport::of(request, snapshot.before, snapshot.asked_about);
    report.in_flight = snapshot.leaf().complete < snapshot.leaf().turns;
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
    let asked = FallbackStep::asked(&request.policy.compaction, snapshot.chain.recent);
    let run = PendingRun {
        store,
        snapshot: &snapshot,
        request,
        begun,
        asked: commit::run_config(request, &asked)?,
        plan: commit::plan_digest(&snapshot, request, &planner.outline(asked)?)?,
        started: report.started(session, &snapshot.leaf().row.loop_id, request, &started_at),
        open_row: &open_row,
    };
    if let Some(tried) = run.tried_before()? {
        report.note_tried_before(&tried, request.policy.window.budget());
        return Ok(AttemptEnd::Ended(report));
    }
    run.plan_open_row(&report)?;
    let failed = report.clone();
    match guarded(|| carry_out(&planner, &run, report)) {
        Ok(Ok(report)) => Ok(AttemptEnd::Ended(report)),
        Ok(Err(error)) => {
            if open_row.is_written() {
                // If this write fails as well, it fails for the reason that ended the attempt.
                let _ = run.fail(failed, Outcome::Failed, Some(error.to_string()));
            }
            Err(error)
        }
        Err(panicked) => {
            let report = run.fail(failed, Outcome::Failed, Some(panicked))?;
            Ok(AttemptEnd::Panicked(report))
        }
    }
}

/// Warns the hooks if the context reached the share of the window that the policy names. Returns the message of a panic
/// in a hook.
fn warn(request: &CompactRequest, session: &SessionId, size: Size) -> Option<String> {
    let percent = request.policy.warn_at?;
    let window = &request.policy.window;
    let tokens = size.tokens.saturating_add(window.system_prompt_tokens);
    let used = tokens.saturating_mul(100) / window.max_context_tokens.max(1);
    if request.dry_run || used < u64::from(percent) {
        return None;
    }
    request.policy.hooks.warn(&WindowWarning {
        session_id: session.clone(),
        tokens,
        window: window.max_context_tokens,
        percent: u32::try_from(used).unwrap_or(u32::MAX),
    })
}

/// Calls the hooks and the strategy, and ends the run.
fn carry_out(
    planner: &CandidatePlanner<'_>,
    run: &PendingRun<'_>,
    mut report: CompactReport,
) -> StoreResult<CompactReport> {
    let CandidatePlanner {
        request, snapshot, ..
    } = *planner;
    if !request.dry_run && !request.policy.hooks.is_empty() {
        planner.note_running()?;
        if let Some(reason) = request.policy.hooks.veto(&run.started) {
            return run.fail(report, Outcome::Vetoed, Some(reason));
        }
    }
    let fitted = fallback::fit(planner);
    let candidate = fitted.and_then(|candidate| planner.check_wanted().map(|()| candidate));
    let notes = planner.texts.notes();
    report.take_notes(&notes)?;
    match candidate {
        // A call of a summariser without gain leaves an audit row; a narrower scope alone is a
        // gain.
        Ok(candidate) if notes.calls == 0 && candidate.changes_nothing(snapshot.before) => {
            report.note_unchanged();
            if run.open_row.is_written() {
                run.fail(report.clone(), Outcome::NoGain, None)?;
            } else if !request.dry_run {
                report.error = request.policy.hooks.after(&report.ended(&run.started));
            }
            Ok(report)
        }
        Ok(candidate) if request.dry_run || request.policy.hooks.is_empty() => {
            run.finish(report, candidate)
        }
        Ok(candidate) => match approval::decide(planner, run, candidate) {
            Ok(Decided::Commit(candidate)) => {
                report.take_notes(&planner.texts.notes())?;
                run.finish(report, *candidate)
            }
            Ok(Decided::Refused(reason)) => run.refuse(report, reason),
            Ok(Decided::Postponed(reason)) => run.fail(
                report,
                Outcome::Vetoed,
                Some(format!("postponed: {reason}")),
            ),
            Err(error) => failed_by(run, report, error),
        },
        Err(error) => failed_by(run, report, error),
    }
}

/// Ends a run whose strategy failed.
fn failed_by(
    run: &PendingRun<'_>,
    report: CompactReport,
    error: StrategyError,
) -> StoreResult<CompactReport> {
    match error {
        StrategyError::Read(error) => Err(error.into()),
        StrategyError::Failed(error) => run.fail(report, Outcome::Failed, Some(error)),
    }
}
