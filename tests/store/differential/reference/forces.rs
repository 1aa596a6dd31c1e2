//! The active blocks, section 3, and the session at an earlier tick.

use super::turns::{chain, complete_turns, groups};
use super::types::*;

/// An earlier point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsOf {
    /// "For the run's own loop, just after its commit."
    Run(usize),
    /// "For that loop, just after the last message of that turn, with the runs and flips until
    /// then."
    Turn { loop_ix: usize, turn: u32 },
    /// A replay's context of a turn: "just before the turn's first assistant message".
    Reply { loop_ix: usize, turn: u32 },
}

/// Returns the session at an earlier point, and the leaf from which it is read.
pub fn at(s: &RefSession, as_of: AsOf) -> (RefSession, usize) {
    match as_of {
        AsOf::Run(run) => (at_tick(s, s.runs[run].tick), s.runs[run].loop_ix),
        AsOf::Turn { loop_ix, turn } => {
            let last = *groups(&s.loops[loop_ix])[turn as usize]
                .last()
                .expect("no group is empty");
            (at_message(s, loop_ix, last + 1, last), loop_ix)
        }
        AsOf::Reply { loop_ix, turn } => {
            let l = &s.loops[loop_ix];
            let group = &groups(l)[turn as usize];
            let is_reply = |&&i: &&usize| l.messages[i].kind == RefKind::Assistant;
            let reply = *group.iter().find(is_reply).expect("a reply in that turn");
            (at_message(s, loop_ix, reply, reply), loop_ix)
        }
    }
}

/// Returns the session at the tick of a message, its loop shortened to `len` messages.
fn at_message(s: &RefSession, loop_ix: usize, len: usize, message: usize) -> RefSession {
    let mut past = at_tick(s, s.loops[loop_ix].messages[message].tick);
    past.loops[loop_ix].running |= len < s.loops[loop_ix].messages.len();
    past.loops[loop_ix].messages.truncate(len);
    past
}

/// Returns the session just after a tick. A loop that grew later was still running then.
pub fn at_tick(s: &RefSession, tick: u64) -> RefSession {
    let mut past = s.clone();
    past.tick = tick;
    past.loops.retain(|l| l.created_tick <= tick);
    past.runs.retain(|r| r.tick <= tick);
    past.pins.retain(|p| p.tick <= tick);
    for run in &mut past.runs {
        run.flips.retain(|f| f.tick <= tick);
    }
    for l in &mut past.loops {
        l.running |= l.messages.iter().any(|m| m.tick > tick);
        l.messages.retain(|m| m.tick <= tick);
    }
    past
}

/// Returns the session as if nothing had ever been compacted.
pub fn originals(s: &RefSession) -> RefSession {
    RefSession {
        runs: Vec::new(),
        ..s.clone()
    }
}

/// Returns the point of an event on a loop: "how many complete turns that loop had".
pub fn point(s: &RefSession, loop_ix: usize) -> u32 {
    complete_turns(&s.loops[loop_ix])
}

/// Returns true if an event at a point counts from a leaf: "if that loop is on the leaf's chain and had then no
/// complete turn beyond its cut".
pub fn counts(s: &RefSession, leaf: usize, loop_ix: usize, point: u32) -> bool {
    let within = |turns| loop_ix == leaf || point <= turns;
    chain(s, leaf)
        .iter()
        .any(|k| k.loop_ix == loop_ix && within(k.turns))
}

/// Returns the last flip of a run that counts from a leaf.
pub fn last_flip<'a>(s: &RefSession, leaf: usize, run: &'a RefRun) -> Option<&'a RefFlip> {
    let counting = run
        .flips
        .iter()
        .filter(|f| counts(s, leaf, f.loop_ix, f.point));
    counting.max_by_key(|f| f.tick)
}

/// Returns true if a run is live from a leaf: "if it committed and the last flip of it that counts, if any, is a redo".
/// `counts` decides whether the run itself counts.
pub fn live(s: &RefSession, leaf: usize, run: &RefRun) -> bool {
    let committed = run.outcome == RefOutcome::Committed;
    committed && last_flip(s, leaf, run).is_none_or(|f| f.kind == FlipKind::Redo)
}

/// Returns the runs that count and are live from a leaf, oldest first.
pub fn live_runs(s: &RefSession, leaf: usize) -> Vec<usize> {
    let runs = s.runs.iter().enumerate();
    let applies = |r: &RefRun| counts(s, leaf, r.loop_ix, r.point) && live(s, leaf, r);
    runs.filter(|(_, r)| applies(r)).map(|(i, _)| i).collect()
}

/// Returns the run and the active block of a loop: "its newest generation of a run that counts and is live". "The
/// rollup in force is the one nearest the leaf; a loop that it covers has no other block in force."
pub fn in_force(s: &RefSession, leaf: usize, loop_ix: usize) -> Option<(usize, RefBlock)> {
    let depth = chain(s, leaf).iter().position(|k| k.loop_ix == loop_ix);
    let is_covered = depth.is_some_and(|depth| anchor(s, leaf).is_some_and(|a| depth < a));
    if is_covered {
        return None;
    }
    newest(s, leaf, loop_ix)
}

/// Returns the position on the chain of the loop with the active rollup.
pub fn anchor(s: &RefSession, leaf: usize) -> Option<usize> {
    let is_rollup =
        |loop_ix| newest(s, leaf, loop_ix).is_some_and(|(_, b)| b.kind == BlockKind::Rollup);
    chain(s, leaf).iter().rposition(|k| is_rollup(k.loop_ix))
}

/// Returns the session as a configuration reads it: "with `Skip`, rollups do not count".
pub fn seen(s: &RefSession, config: &RefConfig) -> RefSession {
    let mut seen = s.clone();
    if config.older_loops == OlderLoops::Skip {
        for run in &mut seen.runs {
            run.blocks.retain(|b| b.kind != BlockKind::Rollup);
        }
    }
    seen
}

fn newest(s: &RefSession, leaf: usize, loop_ix: usize) -> Option<(usize, RefBlock)> {
    let of_run = |i: usize| s.runs[i].blocks.iter().map(move |b| (i, b.clone()));
    let blocks = live_runs(s, leaf).into_iter().flat_map(of_run);
    blocks
        .filter(|(_, b)| b.loop_ix == loop_ix)
        .max_by_key(|(_, b)| b.generation)
}

/// Returns the options of a build that gives none: "from the newest live run of the chain, else
/// from the defaults".
pub fn options(s: &RefSession, leaf: usize) -> RefConfig {
    let newest = live_runs(s, leaf)
        .into_iter()
        .max_by_key(|&i| s.runs[i].tick);
    newest.map_or_else(RefConfig::default, |i| s.runs[i].config.clone())
}
