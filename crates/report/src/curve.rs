//! How large the context was after each turn of a chain.
//!
//! Between two compactions a context grows by what is appended, so that only the first turn and the
//! turns after a run, an undo or a redo are read as contexts; those between are additions. Where that
//! would not hold, every turn is read: where older loops are left out (the scope moves with each
//! turn), and where a loop got late messages after another went on from it.

use serde::Serialize;

use loopstore::admin::replay::{ChangeKind, ReplayChange, changes};
use loopstore::compaction::OlderLoops;
use loopstore::context::AsOf;
use loopstore::extend::active_blocks::{ChainLink, View};
use loopstore::extend::{
    LoopCore, Outcome, SessionRow, StoreRead, StoreResult, Tick, context_size, leaf_of, moment_of,
};

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
    /// How many turns of the chain were before it.
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
    let mut progress = CurveWalk {
        read,
        links,
        breaks: breaks(read, owner)?,
        settled: settled(read, links)?,
        before: None,
    };
    let mut curve = Curve::default();
    for moment in &moments {
        curve.tokens.push(progress.next(moment)?);
    }
    for change in changes(read, leaf.row.key)? {
        curve.changes.push(drop_of(read, owner, change, &moments)?);
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

/// Returns when runs were committed, undone and redone.
fn breaks(read: &dyn StoreRead, owner: &SessionRow) -> StoreResult<Vec<Tick>> {
    let mut runs = Vec::new();
    read.runs(owner.key, &mut |run| {
        if run.outcome == Outcome::Committed {
            runs.push((run.key, run.tick));
        }
        Ok(std::ops::ControlFlow::Continue(()))
    })?;
    let mut ticks: Vec<Tick> = runs.iter().map(|(_, tick)| *tick).collect();
    for (run, _) in runs {
        ticks.extend(read.flips(run)?.iter().map(|flip| flip.tick));
    }
    ticks.sort_unstable();
    Ok(ticks)
}

/// Returns when a loop that another had gone on from last got a message that belongs to the chain.
fn settled(read: &dyn StoreRead, links: &[ChainLink]) -> StoreResult<Tick> {
    let mut settled = Tick::MIN;
    for pair in links.windows(2) {
        let [link, child] = pair else { continue };
        let Some(last) = link.turns.checked_sub(1) else {
            continue;
        };
        let last = read.turn(link.row.key, last)?;
        let born = read.loop_by_key(child.row.key)?.tick;
        let is_late = |tick: &Tick| *tick > born;
        settled = last
            .map(|turn| turn.tick)
            .filter(is_late)
            .unwrap_or(Tick::MIN)
            .max(settled);
    }
    Ok(settled)
}

struct CurveWalk<'a> {
    read: &'a dyn StoreRead,
    links: &'a [ChainLink],
    breaks: Vec<Tick>,
    settled: Tick,
    /// The turn before, what its context had, and whether turns only add to it.
    before: Option<(Tick, usize, u64, u64, bool)>,
}

impl CurveWalk<'_> {
    fn next(&mut self, moment: &TurnEnd) -> StoreResult<u64> {
        let (tokens, only_grows) = match self.added(moment) {
            Some(tokens) => (tokens, true),
            None => size_at(self.read, &self.links[moment.depth].row, moment.tick)?,
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
        let in_order = tick < moment.tick && tick >= self.settled;
        if !(only_grows && is_quiet && in_order) {
            return None;
        }
        let from = if depth == moment.depth { through } else { 0 };
        Some(tokens + moment.through.checked_sub(from)?)
    }
}

/// Returns the size of a context at a moment, and whether turns only add to it.
fn size_at(read: &dyn StoreRead, leaf: &LoopCore, tick: Tick) -> StoreResult<(u64, bool)> {
    let view = View {
        at: Some(tick),
        ..View::default()
    };
    size_of(read, leaf, view)
}

fn size_of(read: &dyn StoreRead, leaf: &LoopCore, view: View) -> StoreResult<(u64, bool)> {
    let (size, older_loops) = context_size(read, leaf, view)?;
    Ok((size.tokens, older_loops == OlderLoops::Rollup))
}

fn drop_of(
    read: &dyn StoreRead,
    owner: &SessionRow,
    change: ReplayChange,
    moments: &[TurnEnd],
) -> StoreResult<Drop> {
    let (leaf, view) = moment_of(read, owner, &AsOf::Run(change.run_id.clone()))?;
    // An undo or redo may be made from another loop than the run.
    let leaf = match leaf.loop_id == change.loop_id {
        true => leaf,
        false => leaf_of(read, owner, Some(&change.loop_id))?,
    };
    let at = |tick| View {
        at: Some(tick),
        ..view
    };
    let (before, _) = size_of(read, &leaf, at(change.tick - 1))?;
    let (after, _) = size_of(read, &leaf, at(change.tick))?;
    Ok(Drop {
        at: moments.iter().filter(|m| m.tick <= change.tick).count(),
        change: change.change,
        run_id: change.run_id,
        before,
        after,
    })
}
