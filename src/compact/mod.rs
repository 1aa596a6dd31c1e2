//! Joins compaction to a store: plan from a snapshot, run the strategy with no transaction open,
//! commit by comparing.
//!
//! A request is a walk down and back: [`CompactRequest`] → `Snapshot` (the chain of one moment) → for
//! each `FallbackStep` a `Candidate` (plan, texts, blocks; nothing written)
//! until one fits → a run with its blocks, in one transaction → [`CompactReport`].
//!
//! The commit looks again which blocks of the chain are active. If the snapshot saw the same, it
//! writes run, blocks, replacement messages and coverage; if not, only the run, as a conflict. An
//! append never conflicts: turns that came meanwhile are the tail.

mod attempt;
mod candidate;
mod check;
mod commit;
mod elsewhere;
mod events;
mod fallback;
mod flips;
mod guard;
mod last_turns;
mod longer_summary;
mod outcome;
mod pins;
mod planner;
mod preview;
mod pruning;
mod quotes;
pub(crate) mod recorded;
mod repair;
mod report;
mod request;
mod rollup;
mod room;
pub(crate) mod running;
pub(crate) mod sealed;
mod snapshot;
mod texts;

use std::cell::RefCell;
use std::time::Instant;

use crate::compaction::StrategyError;
use crate::model::{SessionId, Time};
use crate::store::{self, Outcome, SessionStore, StoreError, StoreResult};

use candidate::FallbackStep;
use commit::PendingRun;
pub use elsewhere::OriginalsElsewhere;
pub use events::{CompactionEnded, CompactionHook, CompactionStarted, Decision, Hooks};
pub use flips::{FlipReport, FlipRequest, redo, undo};
use guard::guarded;
pub use outcome::{CompactOutcome, NotNeeded};
pub use pins::{Pin, PinChange, PinList, PinRef, PinReport, PinRequest, pin, pins, unpin};
use planner::Planner;
pub use preview::compacted_messages;
pub(crate) use recorded::{Recorded, RecordedRun};
pub use repair::{RepairReport, repair_session};
pub use report::{BlockReport, BudgetTooSmall, BudgetUnit, CompactReport, CoverageCounts};
pub use request::{CompactRequest, CompactTrigger};
use running::OpenRow;
pub(crate) use running::close_interrupted;
pub(crate) use sealed::{StandsFor, seal_all, seal_appended};
use snapshot::{Asked, Snapshot};
pub use snapshot::{ContextTokens, TokenSource};
use texts::Texts;

/// Compacts the chain of a leaf: asks the trigger, then makes one run.
///
/// The current loop gets a block of up to three sections, each earlier loop in scope one in which
/// it is summarised; what does not fit the policy's target is given up step by step. Every attempt
/// but one that was not needed leaves a run as its audit row; a strategy that fails, or a budget
/// that nothing can fit, gives a report with the outcome `failed`, not an error. One in which the strategy, a
/// hook or the token counter panics leaves a failed run as well, and the default strategy stands in: a second run.
///
/// # Errors
/// If the session or the loop is not there, or the store fails.
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
/// let request = CompactRequest {
///     window: ContextConfig { max_context_tokens: 6_000, ..ContextConfig::default() },
///     ..CompactRequest::default()
/// };
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
    let panicked = match guarded(|| attempt(store, session, request)) {
        Ok(Ok(Attempted::Ended(report))) => return Ok(report),
        Ok(Ok(Attempted::Panicked(report))) => report.error.unwrap_or_default(),
        Ok(Err(error)) => return Err(of_a_session(store, session, error)),
        Err(panicked) => panicked,
    };
    // Hooks were told of the attempt that failed, or it was they.
    let mut stand_in = CompactRequest {
        hooks: Hooks::default(),
        ..request.clone()
    };
    stand_in.config.block_strategy = None;
    match guarded(|| attempt(store, session, &stand_in)) {
        Ok(Ok(Attempted::Ended(mut report))) => {
            let stood_in = report.strategy.clone();
            report.fallback.get_or_insert(stood_in);
            report.error.get_or_insert(panicked);
            Ok(report)
        }
        Ok(Ok(Attempted::Panicked(report))) => Ok(report),
        Ok(Err(error)) => Err(of_a_session(store, session, error)),
        Err(_) => Ok(CompactReport {
            outcome: CompactOutcome::Failed,
            not_needed: None,
            error: Some(panicked),
            ..CompactReport::default()
        }),
    }
}

/// Returns the error of an attempt; what looks damaged may be missing because the session was erased meanwhile.
fn of_a_session(store: &dyn SessionStore, session: &SessionId, error: StoreError) -> StoreError {
    let is_gone = || store::read(store, |read| Ok(read.session(session)?.is_none()));
    match error {
        StoreError::Damaged(_) if is_gone().unwrap_or(false) => {
            StoreError::NoSession(session.to_string())
        }
        error => error,
    }
}

/// How an attempt came to its end.
enum Attempted {
    Ended(CompactReport),
    /// Code of a user panicked; the run says so.
    Panicked(CompactReport),
}

/// Makes one attempt.
fn attempt(
    store: &dyn SessionStore,
    session: &SessionId,
    request: &CompactRequest,
) -> StoreResult<Attempted> {
    let begun = Instant::now();
    let started_at = Time::now();
    let snapshot = match Snapshot::load(store, session, request)? {
        // The trigger may count messages, or believe a provider's count: what is too large by the store's own
        // count is refused by every build with a budget.
        Asked::NotYet(size, _)
            if request.trigger == CompactTrigger::Policy && !request.window.budget().fits(size) =>
        {
            let trigger = CompactTrigger::Length;
            return attempt(
                store,
                session,
                &CompactRequest {
                    trigger,
                    ..request.clone()
                },
            );
        }
        Asked::NotYet(size, about) => {
            return Ok(Attempted::Ended(CompactReport::of(request, size, about)));
        }
        Asked::Compact(snapshot) => snapshot,
    };
    if !request.dry_run {
        close_interrupted(store, Some(snapshot.session), false)?;
    }
    let mut report = CompactReport::of(request, snapshot.before, snapshot.asked_about);
    report.in_flight = snapshot.leaf().complete < snapshot.leaf().turns;
    let (texts, open_row) = (Texts::default(), OpenRow::default());
    let planner = Planner {
        store,
        snapshot: &snapshot,
        request,
        texts: &texts,
        forms: RefCell::default(),
        rooms: RefCell::default(),
        open_row: &open_row,
    };
    let asked = FallbackStep::asked(&request.config, snapshot.chain.recent);
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
        report.note_tried_before(&tried, request.window.budget());
        return Ok(Attempted::Ended(report));
    }
    run.plan_open_row(&report)?;
    let failed = report.clone();
    match guarded(|| carry_out(&planner, &run, report)) {
        Ok(Ok(report)) => Ok(Attempted::Ended(report)),
        Ok(Err(error)) => {
            if open_row.is_written() {
                // What keeps this from being noted kept the attempt from going on.
                let _ = run.fail(failed, Outcome::Failed, Some(error.to_string()));
            }
            Err(error)
        }
        Err(panicked) => {
            let report = run.fail(failed, Outcome::Failed, Some(panicked))?;
            Ok(Attempted::Panicked(report))
        }
    }
}

/// Asks the hooks and the strategy, and ends the run.
fn carry_out(
    planner: &Planner<'_>,
    run: &PendingRun<'_>,
    mut report: CompactReport,
) -> StoreResult<CompactReport> {
    let Planner {
        request, snapshot, ..
    } = *planner;
    if !request.dry_run && !request.hooks.is_empty() {
        planner.note_running()?;
        if let Some(reason) = request.hooks.veto(&run.started) {
            return run.fail(report, Outcome::Vetoed, Some(reason));
        }
    }
    let target = request.config.policy.target_of(&request.window);
    let fitted = fallback::fit(planner, target);
    let candidate = fitted.and_then(|candidate| planner.check_wanted().map(|()| candidate));
    let notes = planner.texts.notes();
    report.take_notes(&notes)?;
    match candidate {
        // A summariser that was asked in vain leaves its audit row; a narrower scope alone is a
        // gain.
        Ok(candidate) if notes.calls == 0 && candidate.changes_nothing(snapshot.before) => {
            report.note_unchanged();
            if run.open_row.is_written() {
                run.fail(report.clone(), Outcome::NoGain, None)?;
            } else if !request.dry_run {
                report.error = request.hooks.after(&report.ended(&run.started));
            }
            Ok(report)
        }
        Ok(candidate) => run.finish(report, candidate),
        Err(StrategyError::Read(error)) => Err(error.into()),
        Err(StrategyError::Failed(error)) => run.fail(report, Outcome::Failed, Some(error)),
    }
}
