//! The blocks that are active for a leaf, derived from runs and flips alone.
//!
//! A run or a flip *counts* from a leaf if its loop is on the leaf's chain, and if that loop had no complete turn
//! beyond the chain's cut when the run or flip was made. A run is *live* if it committed and the last of its flips
//! that count is not an undo. The active block of a loop is the newest generation whose run counts and is live. Seen
//! from the leaf, the first active rollup covers every loop before its own.
//!
//! A block whose text hides messages is active only with the edits that it was made with: those of the runs in
//! [`BlockCore::edits`]. If a message that the text hides was removed or replaced since, or if that was undone, the next
//! older generation is tried, as if the run of the block did not count.

mod edits;

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use super::append::size_within;
use super::error::StoreResult;
use super::live_edits::LiveEdits;
use super::rows::{
    BlockCore, BlockKey, BlockKind, Cut, FlipRow, Generation, LoopCore, Outcome, Point, RunKey,
    RunRow, Size,
};
use super::{LoopKey, LoopWithBlock, RunSummary, SessionKey, StoreRead, Tick};

use crate::model::{Message, Role, SealingProvider};

use edits::EditedLoops;
pub use edits::PendingEdits;

/// The conditions under which a chain is read: the moment, the provider, and the blocks that may be active.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChainView {
    /// The tick at which the chain is read; now if `None`.
    pub at: Option<Tick>,
    /// The sequence at which the leaf ends, regardless of the ticks of its messages. With `at`, it selects a moment
    /// within an append.
    pub leaf_end: Option<u32>,
    /// With `at`: the number of turns of the leaf that are known to have been complete then.
    pub complete: u32,
    /// True if no rollup is active (`OlderLoops::Skip`).
    pub without_rollups: bool,
    /// True if no block is active (a forced compaction).
    pub raw: bool,
    /// True if no edit is live: with `raw`, the messages as they were recorded.
    pub without_edits: bool,
    /// The provider that the context is for. Of the compactions that providers made, only those of this provider are
    /// active.
    pub provider: Option<SealingProvider>,
}

/// One loop of a chain.
#[derive(Clone, Debug, PartialEq)]
pub struct ChainLink {
    /// The loop.
    pub row: LoopCore,
    /// The number of its turns that belong to the chain.
    pub turns: u32,
    /// The number of these turns that are complete.
    pub complete: u32,
    /// The sequence after the last that belongs to the chain.
    pub end_seq: u32,
    /// True if the chain leaves the loop within the last of these turns.
    pub is_part: bool,
    /// The active block.
    pub block: Option<BlockCore>,
    /// The live edits of its messages.
    pub edits: Option<Arc<LiveEdits>>,
}

impl ChainLink {
    /// Returns the end of the last of the first `turns` turns, as a sequence, if the chain leaves the loop within
    /// that turn.
    pub fn end_of(&self, turns: u32) -> Option<u32> {
        (self.is_part && turns == self.turns).then_some(self.end_seq)
    }

    /// Returns the size of the first `turns` turns, as far as they belong to the chain.
    ///
    /// # Errors
    /// If a turn is missing.
    pub fn size_through(&self, read: &dyn StoreRead, turns: u32) -> StoreResult<Size> {
        size_within(read, self.row.key, turns, self.end_of(turns))
    }

    /// Returns the loop and its active block.
    pub fn active_block(&self) -> (LoopKey, Option<BlockKey>) {
        (self.row.key, self.block.as_ref().map(|block| block.key))
    }

    /// Returns the loop and the runs whose edits are live on it; `None` without such edits.
    pub fn edit_runs(&self) -> Option<(LoopKey, Vec<RunKey>)> {
        let edits = self.edits.as_ref()?;
        Some((self.row.key, edits.runs().to_vec()))
    }

    /// True if the active block covers every loop before this one.
    pub fn is_anchor(&self) -> bool {
        self.block
            .as_ref()
            .is_some_and(|block| block.kind.covers_earlier_loops())
    }
}

/// Returns the place of a loop in a chain, root first. The keys of loops rise from the root to the leaf.
pub fn depth_of(links: &[ChainLink], key: LoopKey) -> Option<usize> {
    links.binary_search_by_key(&key, |link| link.row.key).ok()
}

/// A function that returns the active block of a loop.
pub(crate) type BlockLookup<'a> = &'a dyn Fn(LoopKey) -> StoreResult<Option<BlockCore>>;

/// A walk along a chain from its leaf, with the runs that count.
pub struct ActiveBlocks<'a> {
    read: &'a dyn StoreRead,
    view: ChainView,
    /// The cut of each loop visited so far. Keys fall.
    cuts: Vec<(LoopKey, Cut)>,
    /// The loop to visit next, and its cut.
    next: Option<(LoopKey, Cut)>,
    leaf: LoopKey,
    live: HashMap<RunKey, bool>,
    /// Blocks to be written, which the walk treats as active already.
    instead: HashMap<LoopKey, BlockCore>,
    /// The source of the active blocks, if they are known without reading runs.
    lookup: Option<BlockLookup<'a>>,
    /// Edits that the walk treats as live already.
    pending: Option<PendingEdits<'a>>,
    /// The edits of the session, read for the first loop that has some.
    edited: Option<EditedLoops>,
}

impl<'a> ActiveBlocks<'a> {
    /// Returns a walk that begins at `leaf` and has visited no loop yet.
    pub fn new(read: &'a dyn StoreRead, leaf: LoopKey, view: ChainView) -> Self {
        let next = Some((leaf, Cut::NONE));
        Self {
            read,
            view,
            cuts: Vec::new(),
            next,
            leaf,
            live: HashMap::new(),
            instead: HashMap::new(),
            lookup: None,
            pending: None,
            edited: None,
        }
    }

    /// Returns the same walk along a raw chain, with the active blocks from `lookup`.
    #[must_use]
    pub(crate) fn with_lookup(mut self, lookup: BlockLookup<'a>) -> Self {
        self.view.raw = true;
        self.lookup = Some(lookup);
        self
    }

    /// Returns the same walk, with these edits live.
    #[must_use]
    pub fn with_pending(mut self, pending: Option<PendingEdits<'a>>) -> Self {
        self.pending = pending;
        self
    }

    pub(crate) fn leaf(&self) -> LoopKey {
        self.leaf
    }

    pub(crate) fn view(&self) -> ChainView {
        self.view
    }

    /// Ignores rollups from here on.
    pub(crate) fn ignore_rollups(&mut self) {
        self.view.without_rollups = true;
    }

    /// Returns the same walk, with these blocks active.
    #[must_use]
    pub fn with_blocks<'b>(mut self, blocks: impl IntoIterator<Item = &'b BlockCore>) -> Self {
        let by_loop = |block: &BlockCore| (block.loop_key, block.clone());
        self.instead = blocks.into_iter().map(by_loop).collect();
        self
    }

    /// Visits the loops of the chain, leaf first, with the active block on each; stops after the
    /// anchor of the active rollup.
    ///
    /// # Errors
    /// If the store or `visit` fails.
    pub fn run(
        &mut self,
        visit: &mut dyn FnMut(ChainLink) -> StoreResult<ControlFlow<()>>,
    ) -> StoreResult<()> {
        self.run_after(&mut |_| Ok(()), visit)
    }

    /// Visits the loops as [`run`](Self::run) does, and calls `begin` once before it looks for the block on the
    /// leaf. The leaf is read by then, so that `begin` finds the runs that count without a query for the leaf's parent.
    ///
    /// # Errors
    /// If the store, `begin` or `visit` fails.
    pub(crate) fn run_after(
        &mut self,
        begin: &mut dyn FnMut(&mut Self) -> StoreResult<()>,
        visit: &mut dyn FnMut(ChainLink) -> StoreResult<ControlFlow<()>>,
    ) -> StoreResult<()> {
        let (read, leaf) = (self.read, self.leaf);
        let (raw, mut cut) = (self.view.raw, Cut::NONE);
        let mut begin = Some(begin);
        let mut visit_row = |found: LoopWithBlock| {
            let next = found.row.parent_cut();
            self.record_cut(found.row.key, cut, found.row.parent_with_cut());
            if let Some(begin) = begin.take() {
                begin(self)?;
            }
            let link = self.link(found, cut)?;
            cut = next;
            let is_anchor = link.is_anchor();
            let flow = visit(link)?;
            Ok(if is_anchor {
                ControlFlow::Break(())
            } else {
                flow
            })
        };
        match raw {
            true => read.chain(leaf, &mut |row| {
                visit_row(LoopWithBlock {
                    row,
                    newest: None,
                    is_disputed: false,
                })
            }),
            false => read.loops_with_blocks(leaf, &mut visit_row),
        }
    }

    /// Records the cut of a loop, and the loop that comes next.
    fn record_cut(&mut self, key: LoopKey, cut: Cut, parent: Option<(LoopKey, Cut)>) {
        // `counts` may have recorded some loops before the walk reaches them.
        if self.cuts.last().is_none_or(|(last, _)| key < *last) {
            self.cuts.push((key, cut));
        }
        if self.next.is_some_and(|(next, _)| next == key) {
            self.next = parent;
        }
    }

    fn link(&mut self, found: LoopWithBlock, cut: Cut) -> StoreResult<ChainLink> {
        let LoopWithBlock {
            row,
            newest,
            is_disputed,
        } = found;
        let edits = match row.edits > 0 && !self.view.without_edits {
            true => (self.live_edits_in(Some(row.session), row.key)?).map(Arc::new),
            false => None,
        };
        let block = match (self.instead.get(&row.key).cloned(), newest) {
            (Some(block), _) => Some(block),
            (None, _) if self.view.raw => match self.lookup {
                Some(lookup) => lookup(row.key)?,
                None => None,
            },
            (None, None) if !is_disputed => None,
            // Nearly always the newest block is active, and its run was never flipped.
            (None, Some(newest)) if self.applies(&newest)? => Some(newest.block),
            (None, _) => self.block_of(&row, edits.as_deref())?,
        };
        let turns = cut.turns().min(row.totals.turns);
        let mut link = ChainLink {
            turns,
            // The part of a turn that belongs to the chain counts as a complete turn.
            complete: match cut.part {
                Some(_) => turns,
                None => turns.min(row.totals.complete),
            },
            end_seq: row.totals.next_seq,
            is_part: cut.part.is_some(),
            row,
            block,
            edits,
        };
        if let Some(last) = cut.part {
            link.end_seq = last.saturating_add(1);
        } else if cut.whole < link.row.totals.turns {
            link.end_seq = first_seq(self.read, link.row.key, cut.whole)?;
        }
        match (self.view.leaf_end, self.view.at) {
            (Some(end), _) if link.row.key == self.leaf => self.cut_within(&mut link, end)?,
            (_, Some(tick)) => {
                let length = self.read.length_at(link.row.key, tick)?;
                match link.row.key == self.leaf && length < link.end_seq {
                    // Later messages exist, so the loop was running then.
                    true => self.cut_within(&mut link, length)?,
                    false => self.shorten(&mut link, length)?,
                }
            }
            (_, None) => {}
        }
        Ok(link)
    }

    /// Shortens a running loop to the messages before `end`, and does not count a turn in flight as complete.
    fn cut_within(&self, link: &mut ChainLink, end: u32) -> StoreResult<()> {
        self.shorten(link, end)?;
        if let Some(last) = link.turns.checked_sub(1)
            && last >= self.view.complete
            && is_in_flight(self.read, link, last)?
        {
            link.complete = link.complete.min(last);
        }
        Ok(())
    }

    /// Shortens the link to the first `length` messages.
    fn shorten(&self, link: &mut ChainLink, length: u32) -> StoreResult<()> {
        if length < link.end_seq {
            link.end_seq = length;
            link.is_part = false;
            link.turns = turns_before(self.read, link, length)?;
            link.complete = link.complete.min(link.turns);
        }
        Ok(())
    }

    /// True if the block existed then, the view includes its kind, and its run counts from the leaf.
    fn applies(&mut self, generation: &Generation) -> StoreResult<bool> {
        let then = self.view.at.is_none_or(|at| generation.tick <= at);
        let wanted = match generation.block.kind {
            BlockKind::Current | BlockKind::Earlier => true,
            BlockKind::Rollup => !self.view.without_rollups,
            BlockKind::Sealed(provider) => self.view.provider == Some(provider),
        };
        Ok(then && wanted && self.counts(generation.point)?)
    }

    fn block_of(
        &mut self,
        row: &LoopCore,
        edits: Option<&LiveEdits>,
    ) -> StoreResult<Option<BlockCore>> {
        let mut found = None;
        let read = self.read;
        read.generations(row.key, &mut |generation| {
            if self.applies(&generation)?
                && self.is_live(generation.block.run)?
                && self.has_its_edits(row, &generation.block, edits)?
            {
                found = Some(generation.block);
                return Ok(ControlFlow::Break(()));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    }

    /// True if a run or a flip made at `point` counts from the leaf.
    ///
    /// # Errors
    /// If the store fails.
    pub fn counts(&mut self, point: Point) -> StoreResult<bool> {
        let cut = self.cut_of(point.loop_key)?;
        Ok(cut.is_some_and(|cut| point.turns <= cut.whole))
    }

    /// True if a message of a turn belongs to the chain.
    ///
    /// # Errors
    /// If the store fails.
    pub fn holds(&mut self, loop_key: LoopKey, turn: u32, seq: u32) -> StoreResult<bool> {
        let cut = self.cut_of(loop_key)?;
        Ok(cut.is_some_and(|cut| cut.holds(turn, seq)))
    }

    /// Returns where the chain leaves a loop, if the loop is on the chain. Keys fall from child to parent,
    /// so the chain is followed only to the first key that is not larger.
    fn cut_of(&mut self, loop_key: LoopKey) -> StoreResult<Option<Cut>> {
        if loop_key == self.leaf {
            return Ok(Some(Cut::NONE));
        }
        while let Some((next, cut)) = self.next.filter(|(next, _)| *next > loop_key) {
            let parent = self.read.parent_of(next)?;
            self.record_cut(next, cut, parent);
        }
        if let Some((_, cut)) = self.next.filter(|(next, _)| *next == loop_key) {
            return Ok(Some(cut));
        }
        let at = self.cuts.binary_search_by(|(key, _)| loop_key.cmp(key));
        Ok(at.ok().map(|at| self.cuts[at].1))
    }

    /// True if a run that counts is live from the leaf.
    ///
    /// # Errors
    /// If the store fails.
    pub fn is_live(&mut self, run: RunKey) -> StoreResult<bool> {
        if let Some(live) = self.live.get(&run) {
            return Ok(*live);
        }
        let live = self.last_flip(run)?.is_none_or(|flip| flip.redo);
        self.live.insert(run, live);
        Ok(live)
    }

    /// Returns the last undo or redo of a run that counts from the leaf.
    ///
    /// # Errors
    /// If the store fails.
    pub fn last_flip(&mut self, run: RunKey) -> StoreResult<Option<FlipRow>> {
        let flips = self.read.flips(run)?;
        for flip in flips.into_iter().rev() {
            let then = self.view.at.is_none_or(|at| flip.tick <= at);
            if then && self.counts(flip.point)? {
                return Ok(Some(flip));
            }
        }
        Ok(None)
    }

    /// Visits the committed runs that count from the leaf, newest first.
    ///
    /// # Errors
    /// If the store or `visit` fails.
    pub fn runs(
        &mut self,
        visit: &mut dyn FnMut(&mut Self, RunRow) -> StoreResult<ControlFlow<()>>,
    ) -> StoreResult<()> {
        let read = self.read;
        let session = read.loop_by_key(self.leaf)?.session;
        read.runs(session, &mut |run| {
            let then = self.view.at.is_none_or(|at| run.tick <= at);
            if then && run.outcome == Outcome::Committed && self.counts(run.point)? {
                return visit(self, run);
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    /// Visits the committed runs that count from the leaf, a loop of `session`, newest first, without
    /// most of their columns.
    ///
    /// # Errors
    /// If the store or `visit` fails.
    pub fn run_summaries(
        &mut self,
        session: SessionKey,
        visit: &mut dyn FnMut(&mut Self, &RunSummary<'_>) -> StoreResult<ControlFlow<()>>,
    ) -> StoreResult<()> {
        let read = self.read;
        read.run_summaries(session, &mut |run| {
            let then = self.view.at.is_none_or(|at| run.tick <= at);
            if then && run.is_committed && self.counts(run.point)? {
                return visit(self, run);
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    /// Calls `look` with the newest run that counts and is live from the leaf, a loop of `session`, and returns its
    /// result. Compactions made by a provider are skipped, as they are active for that provider only.
    ///
    /// # Errors
    /// If the store fails.
    pub fn newest_live<T>(
        &mut self,
        session: SessionKey,
        look: impl Fn(&RunSummary<'_>) -> T,
    ) -> StoreResult<Option<T>> {
        let (read, mut newest) = (self.read, None);
        read.compaction_summaries(session, &mut |run| {
            let then = self.view.at.is_none_or(|at| run.tick <= at);
            if then
                && run.is_committed
                && !run.has_no_settings
                && self.counts(run.point)?
                && (!run.is_flipped || self.is_live(run.key)?)
            {
                newest = Some(look(run));
                return Ok(ControlFlow::Break(()));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(newest)
    }

    /// Returns the newest run that counts and is live from the leaf.
    ///
    /// # Errors
    /// If the store fails.
    pub fn newest_live_run(&mut self) -> StoreResult<Option<RunRow>> {
        let read = self.read;
        let session = read.loop_by_key(self.leaf)?.session;
        let newest = self.newest_live(session, |run| run.key)?;
        newest.map(|run| read.run_by_key(run)).transpose()
    }
}

/// Returns the chain of `leaf` from the anchor of the active rollup (or the root) to the leaf.
///
/// # Errors
/// If the store fails.
///
/// # Examples
/// ```
/// use loopstore::extend as store;
/// use loopstore::extend::active_blocks::{self, ChainView};
/// use loopstore::*;
///
/// # use loopstore::extend::{append, session};
/// # let (store, id) = (SqliteStore::in_memory()?, SessionId::new("weather")?);
/// # let new = Session::new(id.clone(), "agent");
/// # let mut monday = LoopRecord::new(LoopId::new("monday")?, None);
/// # monday.status = LoopStatus::Completed;
/// # let loop_key = store::write(&store, |write| {
/// #     let key = session::create_session(write, &new, None, None)?;
/// #     let loop_key = session::create_loop(write, key, &monday)?;
/// #     let report = |hour| format!("Hour {hour}: {}", "rain, ".repeat(200));
/// #     let messages = (0..40).map(|hour| AgentMessage::from(Message::user(report(hour))).into());
/// #     append::append(write, loop_key, messages.collect(), &HeuristicTokenCounter)?;
/// #     Ok(loop_key)
/// # })?;
/// # let trigger = CompactTrigger::Force;
/// # let request = CompactRequest { trigger, ..CompactRequest::default() };
/// compact_session_loops(&store, &id, &request)?;
/// let links = store::read(&store, |read| active_blocks::chain(read, loop_key, ChainView::default()))?;
/// let block = links[0].block.as_ref();
/// assert_eq!(block.map(|block| block.generation), Some(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn chain(read: &dyn StoreRead, leaf: LoopKey, view: ChainView) -> StoreResult<Vec<ChainLink>> {
    let mut links = Vec::new();
    ActiveBlocks::new(read, leaf, view).run(&mut |link| {
        links.push(link);
        Ok(ControlFlow::Continue(()))
    })?;
    links.reverse();
    Ok(links)
}

fn first_seq(read: &dyn StoreRead, loop_key: LoopKey, turn: u32) -> StoreResult<u32> {
    let row = read.turn(loop_key, turn)?;
    row.map(|row| row.first_seq)
        .ok_or_else(|| super::StoreError::Damaged(format!("turn {turn} is missing")))
}

/// True if the last turn of a running loop has no answer or an unanswered call.
fn is_in_flight(read: &dyn StoreRead, link: &ChainLink, last: u32) -> StoreResult<bool> {
    let from = first_seq(read, link.row.key, last)?;
    let (mut is_answered, mut open) = (false, HashSet::new());
    read.messages(link.row.key, from..link.end_seq, &mut |row| {
        is_answered |= row.body.role == Role::Assistant;
        let message = super::decode(read, row.body)?;
        if let Some(Message::ToolResult(result)) = message.message() {
            open.remove(&result.tool_call_id);
        }
        let calls = message.message().into_iter().flat_map(Message::tool_calls);
        open.extend(calls.map(|call| call.id.clone()));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(!is_answered || !open.is_empty())
}

/// Returns the number of turns of the link that begin before the sequence `end`.
fn turns_before(read: &dyn StoreRead, link: &ChainLink, end: u32) -> StoreResult<u32> {
    let (mut low, mut high) = (0, link.turns);
    while low < high {
        let middle = low + (high - low) / 2;
        if first_seq(read, link.row.key, middle)? < end {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}
