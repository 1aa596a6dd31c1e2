//! Attempts and flips: the trigger, the gain, and the blocks that become live.

use super::build::tokens_with;
use super::forces::{counts, last_flip, live, live_runs, options, originals, point};
use super::plan::plan;
use super::types::*;

/// The result of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct RefAttempt {
    pub outcome: RefOutcome,
    pub plan: RefPlan,
    pub tokens_before: u64,
    /// With the planned blocks, live or not.
    pub tokens_after: u64,
    /// The result would be over the target, so that the budget rules, which are not modelled, would apply.
    pub over_target: bool,
}

/// Returns whether the headroom trigger fires: "`compact_at_pct − system/max − current/max <
/// compact_budget_threshold_pct`".
pub fn should_compact(config: &RefConfig, current: u64) -> bool {
    let share = |tokens: u64| tokens as f64 / config.max_context_tokens as f64;
    let headroom = config.compact_at_pct - share(config.system_tokens) - share(current);
    headroom < config.compact_budget_threshold_pct
}

/// Returns the result of a compaction of a leaf without committing it.
pub fn attempt(s: &RefSession, leaf: usize, config: &RefConfig, force: bool) -> RefAttempt {
    let plan = plan(s, leaf, config, force);
    let ground = originals(s);
    let tokens_before = match force {
        true => tokens_with(&ground, leaf, config),
        false => tokens_with(s, leaf, &options(s, leaf)),
    };
    let tokens_after = tokens_with(&with_run(s, leaf, &plan), leaf, config);
    let asked = force || should_compact(config, tokens_before);
    let changes_nothing = plan.blocks.is_empty() && tokens_after >= tokens_before;
    let outcome = match () {
        () if !asked || changes_nothing || tried_before(s, leaf, &plan) => RefOutcome::NotNeeded,
        () if tokens_after >= tokens_before => RefOutcome::NoGain,
        () => RefOutcome::Committed,
    };
    let over = match should_compact(config, 0) {
        true => tokens_after + config.system_tokens > config.max_context_tokens,
        false => should_compact(config, tokens_after),
    };
    RefAttempt {
        outcome,
        plan,
        tokens_before,
        tokens_after,
        over_target: asked && over,
    }
}

/// "A `no_gain` run already tried this very plan (layout, inputs, strategy, config) on this leaf."
fn tried_before(s: &RefSession, leaf: usize, plan: &RefPlan) -> bool {
    let same = |r: &RefRun| r.loop_ix == leaf && r.outcome == RefOutcome::NoGain && r.plan == *plan;
    s.runs.iter().any(same)
}

/// Returns the session with a plan committed.
pub fn with_run(s: &RefSession, leaf: usize, plan: &RefPlan) -> RefSession {
    let mut after = s.clone();
    let blocks = plan.blocks.iter().map(|b| numbered(s, b)).collect();
    let tick = after.next_tick();
    after.runs.push(RefRun {
        loop_ix: leaf,
        point: point(s, leaf),
        tick,
        outcome: RefOutcome::Committed,
        flips: Vec::new(),
        blocks,
        config: plan.config.clone(),
        plan: plan.clone(),
        tokens_before: 0,
        tokens_after: 0,
    });
    after
}

/// Gives a block its generation: "numbered per loop from 1, never overwritten".
fn numbered(s: &RefSession, block: &RefBlock) -> RefBlock {
    let all = s.runs.iter().flat_map(|r| &r.blocks);
    let last = all
        .filter(|b| b.loop_ix == block.loop_ix)
        .map(|b| b.generation)
        .max();
    RefBlock {
        generation: last.unwrap_or(0) + 1,
        ..block.clone()
    }
}

/// Compacts a leaf. `NotNeeded` leaves no row; with `NoGain` nothing becomes live.
pub fn compact(s: &mut RefSession, leaf: usize, config: &RefConfig, force: bool) -> RefAttempt {
    let attempt = attempt(s, leaf, config, force);
    if attempt.outcome == RefOutcome::NotNeeded {
        return attempt;
    }
    let mut after = with_run(s, leaf, &attempt.plan);
    let run = after.runs.last_mut().expect("just pushed");
    run.outcome = attempt.outcome;
    run.tokens_before = attempt.tokens_before;
    run.tokens_after = attempt.tokens_after;
    if attempt.outcome == RefOutcome::NoGain {
        run.blocks.clear();
    }
    *s = after;
    attempt
}

/// Undoes "the last run that is live from the loop", or the named run if it is live. Returns the run.
pub fn undo(s: &mut RefSession, leaf: usize, named: Option<usize>) -> Option<usize> {
    let live = live_runs(s, leaf);
    let run = match named {
        Some(run) => live.into_iter().find(|&r| r == run)?,
        None => live.into_iter().max_by_key(|&r| s.runs[r].tick)?,
    };
    Some(flip(s, leaf, run, FlipKind::Undo))
}

/// Redoes the run of "the newest undo that counts, unless a run was committed after it", or the named run if it is
/// undone. Returns the run.
pub fn redo(s: &mut RefSession, leaf: usize, named: Option<usize>) -> Option<usize> {
    let undone = undone_runs(s, leaf);
    let run = match named {
        Some(run) => undone.into_iter().find(|u| u.0 == run)?.0,
        None => {
            let (run, tick) = undone.into_iter().max_by_key(|u| u.1)?;
            (!committed_after(s, leaf, tick)).then_some(run)?
        }
    };
    Some(flip(s, leaf, run, FlipKind::Redo))
}

/// Returns each run that counts and is undone from a leaf, with the tick of that undo.
fn undone_runs(s: &RefSession, leaf: usize) -> Vec<(usize, u64)> {
    let mut undone = Vec::new();
    for (i, r) in s.runs.iter().enumerate() {
        let committed = r.outcome == RefOutcome::Committed && counts(s, leaf, r.loop_ix, r.point);
        if committed && !live(s, leaf, r) {
            undone.push((i, last_flip(s, leaf, r).expect("only a flip undoes").tick));
        }
    }
    undone
}

/// Returns whether a run that counts from the leaf, live or since undone, committed after a tick.
fn committed_after(s: &RefSession, leaf: usize, tick: u64) -> bool {
    let later = |r: &RefRun| r.outcome == RefOutcome::Committed && r.tick > tick;
    s.runs
        .iter()
        .any(|r| later(r) && counts(s, leaf, r.loop_ix, r.point))
}

/// Adds a flip, made at the leaf's point, and returns the run.
fn flip(s: &mut RefSession, leaf: usize, run: usize, kind: FlipKind) -> usize {
    let point = point(s, leaf);
    let tick = s.next_tick();
    s.runs[run].flips.push(RefFlip {
        kind,
        loop_ix: leaf,
        point,
        tick,
    });
    run
}
