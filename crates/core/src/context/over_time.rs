//! The sizes of contexts at many moments.
//!
//! A context at one moment needs, for each loop, the newest block whose run was live at that moment. If many runs
//! were made and undone, each moment reads all earlier runs, and the cost for all moments of a session is quadratic.
//! Here runs and blocks are read once into a timeline for each loop, in which the block that was active at a moment
//! is looked up.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::rc::Rc;

use super::BuildOptions;
use super::chain::{Chain, Purpose};
use super::settings::settings_of;
use crate::compaction::OlderLoops;
use crate::store::active_blocks::{ActiveBlocks, ChainView};
use crate::store::{
    BlockCore, BlockKind, FlipRow, LoopCore, LoopKey, Point, RunKey, SessionKey, Size, StoreRead,
    StoreResult, Tick,
};

/// The number of runs before a moment that are checked one by one. Mostly the newest is live.
const NEAR: usize = 16;

/// A reader of the sizes that the contexts of a session had at past moments.
///
/// ```
/// use loopstore::extend::active_blocks::ChainView;
/// use loopstore::extend::{self as store, SizesOverTime, leaf_of, session_of};
/// use loopstore::*;
///
/// let store = Store::in_memory()?;
/// let chat = store.session("weather")?;
/// chat.append([Message::user("Will it rain?")])?;
/// chat.append([Message::assistant("It will.")])?;
/// let sizes = store::read(store.database(), |read| {
///     let owner = session_of(read, chat.id())?;
///     let leaf = leaf_of(read, &owner, None)?;
///     let sizes = SizesOverTime::of(read, owner.key)?;
///     let at = |tick| sizes.size(&leaf, ChainView { at: Some(tick), ..ChainView::default() });
///     Ok((at(owner.tick - 1)?.0.messages, at(owner.tick)?.0.messages))
/// })?;
/// assert_eq!(sizes, (1, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SizesOverTime<'a> {
    read: &'a dyn StoreRead,
    /// True if messages of the session have edits, which decide too which blocks are active.
    is_edited: bool,
    /// The committed runs in the order of their ticks.
    runs: Vec<CommittedRun>,
    places: HashMap<RunKey, usize>,
    /// The blocks on each visited loop, oldest first.
    blocks: RefCell<HashMap<LoopKey, Rc<[BlockCore]>>>,
    leaves: RefCell<HashMap<LoopKey, LeafHistory<'a>>>,
}

struct CommittedRun {
    key: RunKey,
    point: Point,
    tick: Tick,
    has_no_settings: bool,
    older_loops: Option<OlderLoops>,
    /// Oldest first.
    flips: Vec<FlipRow>,
}

/// The live runs and active blocks over time, for a leaf.
struct LeafHistory<'a> {
    walk: ActiveBlocks<'a>,
    /// The newest live run, by index.
    newest: Option<Timeline>,
    /// The active block on a loop, by index; with rollups or without.
    active: HashMap<(LoopKey, bool), Timeline>,
}

/// The active candidate from each tick on: the highest of the live ones.
struct Timeline(Vec<(Tick, Option<usize>)>);

/// From a tick on, a candidate is live or is not.
type LiveChange = (Tick, usize, bool);

impl Timeline {
    fn of(mut changes: Vec<LiveChange>) -> Self {
        changes.sort_by_key(|(tick, ..)| *tick);
        let mut live = BTreeSet::new();
        let after = |(tick, candidate, is_live): LiveChange| {
            match is_live {
                true => live.insert(candidate),
                false => live.remove(&candidate),
            };
            (tick, live.last().copied())
        };
        Self(changes.into_iter().map(after).collect())
    }

    fn at(&self, tick: Tick) -> Option<usize> {
        let before = self.0.partition_point(|(from, _)| *from <= tick);
        self.0[before.checked_sub(1)?].1
    }
}

impl<'a> SizesOverTime<'a> {
    /// Reads the runs, undos and redos of a session.
    ///
    /// # Errors
    /// If the store fails.
    pub fn of(read: &'a dyn StoreRead, session: SessionKey) -> StoreResult<Self> {
        let (mut runs, mut flipped) = (Vec::new(), Vec::new());
        read.run_summaries(session, &mut |run| {
            if run.is_committed {
                flipped.extend(run.is_flipped.then_some(runs.len()));
                runs.push(CommittedRun {
                    key: run.key,
                    point: run.point,
                    tick: run.tick,
                    has_no_settings: run.has_no_settings,
                    older_loops: run.older_loops.parse().ok(),
                    flips: Vec::new(),
                });
            }
            Ok(ControlFlow::Continue(()))
        })?;
        for at in flipped {
            runs[at].flips = read.flips(runs[at].key)?;
        }
        runs.sort_by_key(|run| (run.tick, run.key));
        let places = runs.iter().enumerate().map(|(at, run)| (run.key, at));
        Ok(Self {
            read,
            is_edited: read.edit_count(session)? > 0,
            places: places.collect(),
            runs,
            blocks: RefCell::default(),
            leaves: RefCell::default(),
        })
    }

    /// Returns the size of the context of a leaf, and its treatment of older loops. No message is read, and
    /// compactions that only a provider can read do not count.
    ///
    /// # Errors
    /// If a row is damaged, or the store fails.
    pub fn size(&self, leaf: &LoopCore, mut view: ChainView) -> StoreResult<(Size, OlderLoops)> {
        let at = view.at.unwrap_or(Tick::MAX);
        let newest = self
            .newest_live(leaf.key, at)?
            .map(|place| &self.runs[place]);
        let newest = newest.map(|run| (run.key, run.older_loops));
        let (config, window) = settings_of(self.read, newest, &BuildOptions::default())?;
        view.without_rollups |= config.older_loops == OlderLoops::Skip;
        let with_rollups = !view.without_rollups;
        if self.is_edited {
            let walk = ActiveBlocks::new(self.read, leaf.key, view);
            let chain = Chain::load_along(self.read, walk, &config, &window, Purpose::Build)?;
            return Ok((chain.size(), config.older_loops));
        }
        let lookup = |key| self.active_block(leaf.key, (key, with_rollups), at);
        let walk = ActiveBlocks::new(self.read, leaf.key, view).with_lookup(&lookup);
        let chain = Chain::load_along(self.read, walk, &config, &window, Purpose::Build)?;
        Ok((chain.size(), config.older_loops))
    }

    /// Returns the index of the newest run that counts and was live.
    fn newest_live(&self, leaf: LoopKey, at: Tick) -> StoreResult<Option<usize>> {
        let mut leaves = self.leaves.borrow_mut();
        let history = self.history(&mut leaves, leaf);
        let until = self.runs.partition_point(|run| run.tick <= at);
        for place in (0..until).rev().take(NEAR) {
            let run = &self.runs[place];
            if !run.has_no_settings && run.is_live(&mut history.walk, at)? {
                return Ok(Some(place));
            }
        }
        if until <= NEAR {
            return Ok(None);
        }
        let timeline = match history.newest.take() {
            Some(known) => known,
            None => {
                let mut changes = Vec::new();
                for (place, run) in self
                    .runs
                    .iter()
                    .enumerate()
                    .filter(|(_, run)| !run.has_no_settings)
                {
                    run.changes(&mut history.walk, place, &mut changes)?;
                }
                Timeline::of(changes)
            }
        };
        let found = timeline.at(at);
        history.newest = Some(timeline);
        Ok(found)
    }

    /// Returns the block that was active on a loop.
    fn active_block(
        &self,
        leaf: LoopKey,
        on: (LoopKey, bool),
        at: Tick,
    ) -> StoreResult<Option<BlockCore>> {
        let blocks = self.blocks_on(on.0)?;
        if blocks.is_empty() {
            return Ok(None);
        }
        let mut leaves = self.leaves.borrow_mut();
        let history = self.history(&mut leaves, leaf);
        if !history.active.contains_key(&on) {
            let mut changes = Vec::new();
            for (place, block) in blocks.iter().enumerate() {
                let is_wanted = match block.kind {
                    BlockKind::Current | BlockKind::Earlier => true,
                    BlockKind::Rollup => on.1,
                    BlockKind::Sealed(_) => false,
                };
                if is_wanted && let Some(run) = self.places.get(&block.run) {
                    self.runs[*run].changes(&mut history.walk, place, &mut changes)?;
                }
            }
            history.active.insert(on, Timeline::of(changes));
        }
        let place = history.active.get(&on).and_then(|timeline| timeline.at(at));
        Ok(place.map(|place| blocks[place].clone()))
    }

    fn history<'b>(
        &self,
        leaves: &'b mut HashMap<LoopKey, LeafHistory<'a>>,
        leaf: LoopKey,
    ) -> &'b mut LeafHistory<'a> {
        leaves.entry(leaf).or_insert_with(|| LeafHistory {
            walk: ActiveBlocks::new(self.read, leaf, ChainView::default()),
            newest: None,
            active: HashMap::new(),
        })
    }

    fn blocks_on(&self, key: LoopKey) -> StoreResult<Rc<[BlockCore]>> {
        if let Some(known) = self.blocks.borrow().get(&key) {
            return Ok(Rc::clone(known));
        }
        let mut found = Vec::new();
        self.read.generations(key, &mut |generation| {
            found.push(generation.block);
            Ok(ControlFlow::Continue(()))
        })?;
        found.reverse();
        let found: Rc<[BlockCore]> = found.into();
        self.blocks.borrow_mut().insert(key, Rc::clone(&found));
        Ok(found)
    }
}

impl CommittedRun {
    /// True if the run counts from the leaf of a walk, and was live.
    fn is_live(&self, walk: &mut ActiveBlocks<'_>, at: Tick) -> StoreResult<bool> {
        if !walk.counts(self.point)? {
            return Ok(false);
        }
        let then = self.flips.partition_point(|flip| flip.tick <= at);
        for flip in self.flips[..then].iter().rev() {
            if walk.counts(flip.point)? {
                return Ok(flip.redo);
            }
        }
        Ok(true)
    }

    /// Adds the ticks at which the run became live or ceased to be live, for the leaf of a walk.
    fn changes(
        &self,
        walk: &mut ActiveBlocks<'_>,
        candidate: usize,
        changes: &mut Vec<LiveChange>,
    ) -> StoreResult<()> {
        if !walk.counts(self.point)? {
            return Ok(());
        }
        changes.push((self.tick, candidate, true));
        for flip in &self.flips {
            if walk.counts(flip.point)? {
                changes.push((flip.tick, candidate, flip.redo));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_that_is_live_counts_until_it_is_not() {
        let changes = [(9, 1, false), (1, 0, true), (5, 1, true), (12, 0, false)];
        let timeline = Timeline::of(changes.to_vec());
        let at = |tick| timeline.at(tick);
        assert_eq!([at(0), at(1), at(4)], [None, Some(0), Some(0)]);
        assert_eq!([at(5), at(8), at(9)], [Some(1), Some(1), Some(0)]);
        assert_eq!([at(12), at(Tick::MAX)], [None, None]);
    }
}
