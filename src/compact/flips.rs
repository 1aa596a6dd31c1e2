//! Undo and redo of runs. Each adds a row that makes a run inactive, or active again.

use std::ops::ControlFlow;

use serde::Serialize;

use loopstore_core::edit::{check_flipped, faults_with};

use crate::context::{BuildOptions, Chain, leaf_of, session_of, view_for};
use crate::model::{LoopId, SealingProvider, SessionId, Time};
use crate::store::active_blocks::{ActiveBlocks, ChainView};
use crate::store::{
    self, FlipRow, LoopKey, LoopRow, Outcome, Point, RunKey, RunRow, SessionRow, SessionStore,
    StoreError, StoreRead, StoreResult, StoreWrite,
};

/// The run to undo or redo.
#[derive(Clone, Debug, Default)]
pub struct FlipRequest {
    /// The leaf; the session's current loop if `None`.
    pub leaf: Option<LoopId>,
    /// The run; if `None`, the last run that can be undone or redone.
    pub run: Option<String>,
    /// The reason, stored with the row.
    pub reason: Option<String>,
}

/// The result of an undo or redo.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FlipReport {
    /// The run.
    pub run_id: String,
    /// `undone` or `redone`.
    pub outcome: &'static str,
    /// Tokens of the context before.
    pub tokens_before: u64,
    /// Tokens of the context after.
    pub tokens_after: u64,
}

/// Undoes the last run that is live from the leaf, or the run that the request names. A run can be undone after
/// further turns too.
///
/// # Errors
/// If there is no such run, or if the store fails.
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
/// # let trigger = CompactTrigger::Force;
/// # let request = CompactRequest { trigger, ..CompactRequest::default() };
/// let before = chat.context()?;
/// chat.compact(&request)?;
/// let report = undo(store.database(), chat.id(), &FlipRequest::default())?;
/// assert!(report.tokens_before < report.tokens_after);
/// let after = chat.context()?;
/// assert_eq!(after.messages, before.messages);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn undo(
    store: &dyn SessionStore,
    session: &SessionId,
    request: &FlipRequest,
) -> StoreResult<FlipReport> {
    flip(store, session, request, false)
}

/// Redoes the run of the newest undo that counts from the leaf, or the run that the request names. Without a named
/// run, nothing can be redone if a run was committed after the undo.
///
/// # Errors
/// If there is no such run, or if the store fails.
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
/// # let trigger = CompactTrigger::Force;
/// # let request = CompactRequest { trigger, ..CompactRequest::default() };
/// chat.compact(&request)?;
/// let undone = undo(store.database(), chat.id(), &FlipRequest::default())?;
/// let redone = redo(store.database(), chat.id(), &FlipRequest::default())?;
/// assert_eq!(redone.run_id, undone.run_id);
/// assert_eq!(redone.tokens_after, undone.tokens_before);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn redo(
    store: &dyn SessionStore,
    session: &SessionId,
    request: &FlipRequest,
) -> StoreResult<FlipReport> {
    flip(store, session, request, true)
}

fn flip(
    store: &dyn SessionStore,
    session: &SessionId,
    request: &FlipRequest,
    redo: bool,
) -> StoreResult<FlipReport> {
    store::write(store, |write| {
        let mut owner = session_of(write, session)?;
        let leaf = leaf_of(write, &owner, request.leaf.as_ref())?;
        let named = request.run.as_deref();
        let run = if redo {
            undone_run(write, leaf.key, named)?
        } else {
            live_run(write, leaf.key, named)?
        };
        // A compaction that only its provider can read changes only the contexts for that provider.
        let provider = run.sealed_by();
        let tokens_before = context_tokens(write, &leaf, provider)?;
        // Edits of other runs may have come between that leave no valid context with this one.
        let faults = match run.is_edit() {
            true => Some(faults_with(write, &leaf, None)?),
            false => None,
        };
        write_flip(
            write,
            (&mut owner, &leaf),
            run.key,
            redo,
            request.reason.clone(),
        )?;
        if let Some(faults) = faults {
            check_flipped(write, &leaf, &faults)?;
        }
        Ok(FlipReport {
            run_id: run.run_id,
            outcome: if redo { "redone" } else { "undone" },
            tokens_before,
            tokens_after: context_tokens(write, &leaf, provider)?,
        })
    })
}

/// Undoes some live runs of edits, as they count from a leaf.
pub(crate) fn undo_edits(
    write: &mut dyn StoreWrite,
    session: &SessionId,
    request: &FlipRequest,
    runs: &[RunKey],
) -> StoreResult<Vec<FlipReport>> {
    let mut owner = session_of(write, session)?;
    let leaf = leaf_of(write, &owner, request.leaf.as_ref())?;
    let faults = faults_with(write, &leaf, None)?;
    let mut reports = Vec::with_capacity(runs.len());
    for run in runs {
        let tokens_before = context_tokens(write, &leaf, None)?;
        write_flip(
            write,
            (&mut owner, &leaf),
            *run,
            false,
            request.reason.clone(),
        )?;
        reports.push(FlipReport {
            run_id: write.run_by_key(*run)?.run_id,
            outcome: "undone",
            tokens_before,
            tokens_after: context_tokens(write, &leaf, None)?,
        });
    }
    check_flipped(write, &leaf, &faults)?;
    Ok(reports)
}

/// Writes the undo or redo of a run, as it counts from a leaf.
pub(super) fn write_flip(
    write: &mut dyn StoreWrite,
    (owner, leaf): (&mut SessionRow, &LoopRow),
    run: RunKey,
    redo: bool,
    reason: Option<String>,
) -> StoreResult<()> {
    owner.tick += 1;
    let row = FlipRow {
        run,
        redo,
        point: Point {
            loop_key: leaf.key,
            turns: leaf.totals.complete,
        },
        tick: owner.tick,
        at: Time::now().as_str().to_owned(),
        reason,
    };
    write.insert_flip(owner.key, &row)?;
    write.touch_session(&(&*owner).into())
}

fn context_tokens(
    read: &dyn StoreRead,
    leaf: &LoopRow,
    provider: Option<SealingProvider>,
) -> StoreResult<u64> {
    let view = view_for(provider);
    let keys = (leaf.session, leaf.key);
    let chain = Chain::load_active(read, keys, view, &BuildOptions::default())?;
    Ok(chain.size().tokens)
}

/// Finds the newest run that is live from the leaf, or the named run.
fn live_run(read: &dyn StoreRead, leaf: LoopKey, named: Option<&str>) -> StoreResult<RunRow> {
    let mut found = None;
    ActiveBlocks::new(read, leaf, ChainView::default()).runs(&mut |walk, run| {
        if named.is_none_or(|named| run.run_id == named) && walk.is_live(run.key)? {
            found = Some(run);
            return Ok(ControlFlow::Break(()));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    found.ok_or_else(|| not_found(read, leaf, named, "active compaction or edit to undo"))
}

/// Finds the run of the newest undo that counts, or the named run if it is undone.
fn undone_run(read: &dyn StoreRead, leaf: LoopKey, named: Option<&str>) -> StoreResult<RunRow> {
    let mut newest_commit = None;
    let mut newest_undo: Option<(i64, RunRow)> = None;
    ActiveBlocks::new(read, leaf, ChainView::default()).runs(&mut |walk, run| {
        newest_commit = newest_commit.max(Some(run.tick));
        let wanted = named.is_none_or(|named| run.run_id == named);
        if let Some(flip) = walk.last_flip(run.key)?.filter(|flip| wanted && !flip.redo)
            && newest_undo
                .as_ref()
                .is_none_or(|(tick, _)| flip.tick > *tick)
        {
            newest_undo = Some((flip.tick, run));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    match newest_undo {
        Some((tick, run)) if named.is_some() || newest_commit.is_none_or(|c| c < tick) => Ok(run),
        Some(_) => Err(StoreError::Invalid(
            "a compaction or an edit was made after the last undo; name the run to redo".into(),
        )),
        None => Err(not_found(read, leaf, named, "compaction or edit to redo")),
    }
}

/// Returns the error for a run that cannot be undone or redone.
fn not_found(
    read: &dyn StoreRead,
    leaf: LoopKey,
    named: Option<&str>,
    otherwise: &'static str,
) -> StoreError {
    let Some(named) = named else {
        return match read.loop_by_key(leaf) {
            Ok(row) => StoreError::NoCompaction {
                what: otherwise,
                loop_id: row.loop_id.to_string(),
            },
            Err(error) => error,
        };
    };
    let mut outcome = None;
    let search = read.loop_by_key(leaf).and_then(|row| {
        read.runs(row.session, &mut |run| {
            if run.run_id == named {
                outcome = Some(run.outcome);
            }
            Ok(ControlFlow::Continue(()))
        })
    });
    match (search, outcome) {
        (Err(error), _) => error,
        (Ok(()), None) => StoreError::NoRun(named.to_owned()),
        (Ok(()), Some(Outcome::Committed)) => {
            StoreError::Invalid(format!("run `{named}`: there is no {otherwise}"))
        }
        (Ok(()), Some(outcome)) => StoreError::Invalid(format!(
            "run `{named}` ended as {} and was never active",
            outcome.as_str()
        )),
    }
}
