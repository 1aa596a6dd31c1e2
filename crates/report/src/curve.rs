//! The size of the context after each turn of a chain.
//!
//! Between two compactions a context grows by what is appended, so that only the first turn and the
//! turns after a run, an undo or a redo are read as contexts; the turns between are additions. If that
//! would be wrong, every turn is read: if older loops are left out (the scope moves with each
//! turn), and if a loop got late messages after another loop continued it.

use std::collections::HashMap;

use serde::Serialize;

use loopstore::compaction::OlderLoops;
use loopstore::extend::active_blocks::{ChainLink, ChainView};
use loopstore::extend::{
    LoopCore, Outcome, Point, RunKey, SessionRow, SizesOverTime, StoreError, StoreRead,
    StoreResult, Tick, leaf_of,
};
use loopstore_admin::replay::{ChangeKind, ReplayChange, changes};

/// The sizes of a context over time.
#[derive(Debug, Default, Serialize)]
pub(super) struct Curve {
    /// Tokens of the context just after each turn of the chain.
    tokens: Vec<u64>,
    /// Compactions, undos and redos in order.
    changes: Vec<Drop>,
}

/// A compaction, undo or redo.
#[derive(Debug, Serialize)]
struct Drop {
    /// The number of turns of the chain before it.
    at: usize,
    change: ChangeKind,
    run_id: String,
    /// Tokens of the context before it.
    before: u64,
    /// Tokens of the context after it.
    after: u64,
}

/// The end of a turn.
struct TurnEnd {
    depth: usize,
    tick: Tick,
    /// Tokens of the loop through this turn.
    through: u64,
}

/// Returns the sizes for a chain, root first, seen from its leaf.
pub(super) fn curve_of(
    read: &dyn StoreRead,
    owner: &SessionRow,
    links: &[ChainLink],
) -> StoreResult<Curve> {
    let Some(leaf) = links.last() else {
        return Ok(Curve::default());
    };
    let moments = moments(read, links)?;
    let sizes = SizesOverTime::of(read, owner.key)?;
    let runs = committed(read, owner)?;
    let mut progress = CurveWalk {
        sizes: &sizes,
        links,
        breaks: breaks(read, &runs)?,
        last_tick: last_tick(read, links)?,
        before: None,
    };
    let mut curve = Curve::default();
    for moment in &moments {
        curve.tokens.push(progress.next(moment)?);
    }
    let mut ticks: Vec<Tick> = moments.iter().map(|moment| moment.tick).collect();
    ticks.sort_unstable();
    for change in changes(read, leaf.row.key)? {
        let at = ticks.partition_point(|tick| *tick <= change.tick);
        let complete = runs.get(&change.run_id).map_or(0, |run| run.point.turns);
        let leaf = leaf_of(read, owner, Some(&change.loop_id))?;
        curve
            .changes
            .push(drop_of(&sizes, &leaf, complete, change, at)?);
    }
    Ok(curve)
}

fn moments(read: &dyn StoreRead, links: &[ChainLink]) -> StoreResult<Vec<TurnEnd>> {
    let mut moments = Vec::new();
    for (depth, link) in links.iter().enumerate() {
        let turns = read.turns(link.row.key, 0..link.turns)?;
        moments.extend(turns.into_iter().map(|turn| TurnEnd {
            depth,
            tick: turn.tick,
            through: turn.tokens,
        }));
    }
    Ok(moments)
}

/// The fields of a run on which the sizes of contexts depend.
struct Committed {
    key: RunKey,
    point: Point,
    tick: Tick,
}

/// Returns the committed runs of a session, by their ids.
fn committed(read: &dyn StoreRead, owner: &SessionRow) -> StoreResult<HashMap<String, Committed>> {
    let mut runs = HashMap::new();
    read.runs(owner.key, &mut |run| {
        if run.outcome == Outcome::Committed {
            let (key, point, tick) = (run.key, run.point, run.tick);
            runs.insert(run.run_id, Committed { key, point, tick });
        }
        Ok(std::ops::ControlFlow::Continue(()))
    })?;
    Ok(runs)
}

/// Returns the ticks at which runs were committed, undone and redone.
fn breaks(read: &dyn StoreRead, runs: &HashMap<String, Committed>) -> StoreResult<Vec<Tick>> {
    let mut ticks: Vec<Tick> = runs.values().map(|run| run.tick).collect();
    for run in runs.values() {
        ticks.extend(read.flips(run.key)?.iter().map(|flip| flip.tick));
    }
    ticks.sort_unstable();
    Ok(ticks)
}

/// Returns the tick of the last message of the chain in a loop that has a child.
fn last_tick(read: &dyn StoreRead, links: &[ChainLink]) -> StoreResult<Tick> {
    let mut last_tick = Tick::MIN;
    for pair in links.windows(2) {
        let [link, child] = pair else { continue };
        let Some(last) = link.turns.checked_sub(1) else {
            continue;
        };
        let last = read.turn(link.row.key, last)?;
        let born = read.loop_by_key(child.row.key)?.tick;
        let is_late = |tick: &Tick| *tick > born;
        last_tick = last
            .map(|turn| turn.tick)
            .filter(is_late)
            .unwrap_or(Tick::MIN)
            .max(last_tick);
    }
    Ok(last_tick)
}

struct CurveWalk<'a> {
    sizes: &'a SizesOverTime<'a>,
    links: &'a [ChainLink],
    breaks: Vec<Tick>,
    last_tick: Tick,
    /// The previous turn, the size of its context, and true if later turns only add to it.
    before: Option<(Tick, usize, u64, u64, bool)>,
}

impl CurveWalk<'_> {
    fn next(&mut self, moment: &TurnEnd) -> StoreResult<u64> {
        let (tokens, only_grows) = match self.added(moment) {
            Some(tokens) => (tokens, true),
            None => size_at(self.sizes, &self.links[moment.depth].row, moment.tick)?,
        };
        let TurnEnd {
            depth,
            tick,
            through,
        } = *moment;
        self.before = Some((tick, depth, through, tokens, only_grows));
        Ok(tokens)
    }

    fn added(&self, moment: &TurnEnd) -> Option<u64> {
        let (tick, depth, through, tokens, only_grows) = self.before?;
        let first = self.breaks.partition_point(|change| *change <= tick);
        let is_quiet = self
            .breaks
            .get(first)
            .is_none_or(|change| *change > moment.tick);
        let in_order = tick < moment.tick && tick >= self.last_tick;
        if !(only_grows && is_quiet && in_order) {
            return None;
        }
        let from = if depth == moment.depth { through } else { 0 };
        Some(tokens + moment.through.checked_sub(from)?)
    }
}

/// Returns the size of a context at a tick, and true if turns only add to it.
fn size_at(sizes: &SizesOverTime<'_>, leaf: &LoopCore, tick: Tick) -> StoreResult<(u64, bool)> {
    let view = ChainView {
        at: Some(tick),
        ..ChainView::default()
    };
    let (size, older_loops) = sizes.size(leaf, view)?;
    Ok((size.tokens, older_loops == OlderLoops::Rollup))
}

/// Returns the effect of a change on the context of its leaf, with the known number of complete turns.
fn drop_of(
    sizes: &SizesOverTime<'_>,
    leaf: &LoopCore,
    complete: u32,
    change: ReplayChange,
    at: usize,
) -> StoreResult<Drop> {
    let tokens_at = |tick| {
        let view = ChainView {
            at: Some(tick),
            complete,
            ..ChainView::default()
        };
        Ok::<_, StoreError>(sizes.size(leaf, view)?.0.tokens)
    };
    Ok(Drop {
        at,
        before: tokens_at(change.tick - 1)?,
        after: tokens_at(change.tick)?,
        change: change.change,
        run_id: change.run_id,
    })
}
