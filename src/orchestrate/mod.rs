//! Joins compaction to a store: plan from a snapshot, run the strategy with no transaction open,
//! commit by comparing.
//!
//! The commit is one write transaction that looks again at what is in force over the chain. If
//! that is what the plan saw, it writes run, blocks, replacement messages and coverage; if not,
//! only the run, as a conflict. An append never conflicts: turns that came meanwhile are the tail.

mod blocks;
mod commit;
mod flips;
mod notes;
mod report;
mod rollup;

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use crate::compaction::plan::{Costs, Kept, Plan};
use crate::compaction::{
    BlockCompactionStrategy, CompactionConfig, ContextConfig, Draft, LoopSlice, RunConfig,
    StrategyError, Summary, SummaryNotes,
};
use crate::context::{Chain, Purpose, leaf_of, session_of};
use crate::model::{LoopId, SessionId, Time};
use crate::store::append::size_through;
use crate::store::in_force::View;
use crate::store::{
    self, BlockKey, BlockKind, BlockRow, Layout, LoopKey, NewBlock, Outcome, Point, SessionKey,
    SessionStore, Size, StoreError, StoreRead, StoreResult, Turns,
};

pub use flips::{FlipReport, FlipRequest, redo, undo};
pub use report::{BlockReport, CompactOutcome, CompactReport, CoverageCounts};

/// What to compact, and how.
#[derive(Clone, Debug, Default)]
pub struct CompactRequest {
    /// The leaf; the session's current loop if not given.
    pub leaf: Option<LoopId>,
    /// The policy.
    pub config: CompactionConfig,
    /// The window.
    pub window: ContextConfig,
    /// Compact even if the trigger does not fire, as if nothing were in force; the gain is
    /// measured against the originals.
    pub force: bool,
    /// Only say what would be done.
    pub dry_run: bool,
}

/// Compacts the chain of a leaf: asks the trigger, then makes one run.
///
/// The current loop gets a block of up to three sections, each earlier loop in scope one in which
/// it is summarised. Every attempt but one that was not needed leaves a run as its audit row;
/// a strategy that fails gives a report with the outcome `failed`, not an error.
///
/// # Errors
/// If the session or the loop is not there, or the store fails.
pub fn compact_session_loops(
    store: &dyn SessionStore,
    session: &SessionId,
    request: &CompactRequest,
) -> StoreResult<CompactReport> {
    let begun = Instant::now();
    let started_at = Time::now();
    let ground = Ground::load(store, session, request)?;
    let mut report = CompactReport::new(request, &ground);
    if !request.force
        && !request
            .config
            .fires(&request.window, ground.chain.size().tokens)
    {
        return Ok(report);
    }
    let mut work = Work::new(store, &ground, request);
    let planned = work.make_blocks();
    let asked = notes::take(&mut report, work.notes())?;
    let attempt = commit::Attempt {
        store,
        ground: &ground,
        request,
        begun,
        started_at,
    };
    match planned {
        // A summariser that was asked in vain leaves its audit row.
        Ok(planned) if planned.made.is_empty() && !asked => Ok(CompactReport {
            fallback: None,
            error: None,
            ..report
        }),
        Ok(planned) => attempt.finish(report, planned),
        Err(StrategyError::Store(error)) => Err(error),
        Err(StrategyError::Failed(error)) => attempt.fail(report, error),
    }
}

/// What a plan is made from: the chain as it stood in one snapshot.
pub(crate) struct Ground {
    session: SessionKey,
    leaf: LoopKey,
    /// As the plan sees it: through the blocks in force, or raw with `force`.
    chain: Chain,
    /// The first loop that can be planned: the one after the anchor of the rollup in force.
    base: usize,
    /// The block on each loop of the chain that is really in force.
    in_force: Vec<(LoopKey, Option<BlockKey>)>,
    /// The anchor of the rollup that is really in force.
    anchor: Option<LoopKey>,
    /// The number that the run would have.
    round: u32,
}

impl Ground {
    fn load(
        store: &dyn SessionStore,
        session: &SessionId,
        request: &CompactRequest,
    ) -> StoreResult<Self> {
        store::read(store, |read| {
            let owner = session_of(read, session)?;
            let leaf = leaf_of(read, &owner, request.leaf.as_ref())?;
            let (config, window) = (&request.config, &request.window);
            let real = Chain::load(
                read,
                leaf.key,
                View::default(),
                config,
                window,
                Purpose::Plan,
            )?;
            let in_force = real.in_force();
            let anchor = real.links.first().filter(|link| link.is_anchor());
            let anchor = anchor.map(|link| link.row.key);
            let chain = if request.force {
                let raw = View {
                    raw: true,
                    ..View::default()
                };
                Chain::load(read, leaf.key, raw, config, window, Purpose::Plan)?.hiding_as(&real)
            } else {
                real
            };
            let base = match chain.links.first() {
                Some(first) if first.is_anchor() && chain.links.len() > 1 => 1,
                _ => 0,
            };
            Ok(Self {
                session: owner.key,
                leaf: leaf.key,
                chain,
                base,
                in_force,
                anchor,
                round: notes::next_round(read, leaf.key)?,
            })
        })
    }

    fn point(&self) -> Point {
        let turns = self.chain.links.last().map_or(0, |leaf| leaf.complete);
        Point {
            in_loop: self.leaf,
            turns,
        }
    }

    /// Whether a block or a rollup really applies to a loop.
    fn block_applies(&self, depth: usize) -> bool {
        let key = self.chain.links[depth].row.key;
        let has_block =
            |(in_loop, block): &(LoopKey, Option<BlockKey>)| *in_loop == key && block.is_some();
        self.in_force.iter().any(has_block) || self.anchor.is_some_and(|anchor| key <= anchor)
    }

    /// Returns the rollup in force, if it stands on the leaf itself.
    fn rollup_on_leaf(&self) -> Option<&BlockRow> {
        let leaf = self.chain.links.last().filter(|link| link.is_anchor())?;
        leaf.block.as_ref()
    }
}

/// A block that is to be written.
pub(crate) struct Made {
    depth: usize,
    block: NewBlock,
}

/// What a plan came to.
pub(crate) struct Planned {
    /// Each loop in scope: what is kept of it, and the sequence after its last planned message.
    kept: Vec<(usize, Kept, u32)>,
    made: Vec<Made>,
}

struct Work<'a> {
    store: &'a dyn SessionStore,
    ground: &'a Ground,
    config: &'a CompactionConfig,
    strategy: &'a dyn BlockCompactionStrategy,
    force: bool,
    budget: u64,
    /// What the strategy made, by loop and layout: a plan that settles again asks once.
    drafts: HashMap<(usize, Layout), Draft>,
    /// What was noted of summaries that belong to no draft.
    noted: Vec<SummaryNotes>,
}

impl<'a> Work<'a> {
    fn new(store: &'a dyn SessionStore, ground: &'a Ground, request: &'a CompactRequest) -> Self {
        Self {
            store,
            ground,
            config: &request.config,
            strategy: &*request.config.block_strategy,
            force: request.force,
            budget: rollup::budget(&request.config, &request.window),
            drafts: HashMap::new(),
            noted: Vec::new(),
        }
    }

    fn note(&mut self, summary: &Summary) {
        self.noted.push(summary.notes.clone());
    }

    /// Returns what the strategy noted, also of drafts that went into no block.
    fn notes(&self) -> impl Iterator<Item = &SummaryNotes> {
        let drafts = self.drafts.values().filter_map(Draft::notes);
        drafts.chain(&self.noted)
    }

    /// Plans, asks the strategy for text, and plans again as long as a text is not smaller than
    /// what it replaces.
    fn make_blocks(&mut self) -> Result<Planned, StrategyError> {
        if let Some(rollup) = self.ground.rollup_on_leaf() {
            return self.extend_leaf(rollup);
        }
        let (ground, base) = (self.ground, self.ground.base);
        let facts = rollup::facts_from(&ground.chain.facts, base);
        let mut plan = Plan::new(&facts, self.config, self.budget);
        loop {
            store::read(self.store, |read| {
                plan.settle(&mut ChainCosts {
                    read,
                    chain: &ground.chain,
                    base,
                    config: self.config,
                })
            })?;
            let kept: Vec<(usize, Kept)> = plan
                .in_scope()
                .map(|(depth, kept)| (depth + base, kept))
                .collect();
            let mut settled = true;
            for (depth, kept) in &kept {
                if !self.shrinks(*depth, kept)? {
                    plan.keep(*depth - base);
                    settled = false;
                }
            }
            if settled {
                let mut planned = self.blocks_for(&kept)?;
                let rollup = self.rollup(base + plan.scope())?;
                planned.made.splice(0..0, rollup);
                return Ok(planned);
            }
        }
    }

    fn shrinks(&mut self, depth: usize, kept: &Kept) -> Result<bool, StrategyError> {
        if kept.middle().is_none() || self.is_left_alone(depth, &kept.layout())? {
            return Ok(true);
        }
        let draft = self.draft(depth, kept.layout())?;
        let Some((turns, summary)) = draft.compacted else {
            return Ok(true);
        };
        let counter = self.store.counter();
        let made: u64 = summary
            .messages
            .iter()
            .map(|m| counter.message_tokens(m))
            .sum();
        let key = self.ground.chain.links[depth].row.key;
        let originals = store::read(self.store, |read| size_of(read, key, turns))?;
        Ok(made < originals.tokens)
    }

    fn draft(&mut self, depth: usize, layout: Layout) -> Result<Draft, StrategyError> {
        if let Some(draft) = self.drafts.get(&(depth, layout.clone())) {
            return Ok(draft.clone());
        }
        let link = &self.ground.chain.links[depth];
        let slice = LoopSlice {
            store: self.store,
            in_loop: link.row.key,
            loop_id: link.row.loop_id.clone(),
            is_current: link.row.key == self.ground.leaf,
            layout: layout.clone(),
            before: link.block.clone(),
            round: self.ground.round,
            through: self.through(depth, &layout)?,
            read: AtomicU64::default(),
        };
        let draft = self.strategy.compact(&slice, self.config)?;
        blocks::check(&draft, &layout, &self.ground.chain.facts, depth)
            .map_err(StrategyError::Failed)?;
        self.drafts.insert((depth, layout), draft.clone());
        Ok(draft)
    }

    fn through(&self, depth: usize, layout: &Layout) -> StoreResult<u32> {
        let link = &self.ground.chain.links[depth];
        store::read(self.store, |read| blocks::through(read, link, layout.end()))
    }

    /// Whether the block in force is what the plan wants.
    fn is_left_alone(&self, depth: usize, layout: &Layout) -> StoreResult<bool> {
        let Some(block) = self.ground.chain.links[depth]
            .block
            .as_ref()
            .filter(|_| !self.force)
        else {
            return Ok(false);
        };
        Ok(block.layout == *layout
            && block.kind != BlockKind::Rollup
            && block.strategy == self.strategy.name()
            && block.shaping == self.strategy.shaping(self.config)
            && block.through == self.through(depth, layout)?)
    }

    fn blocks_for(&mut self, kept: &[(usize, Kept)]) -> Result<Planned, StrategyError> {
        let mut planned = Planned {
            kept: Vec::new(),
            made: Vec::new(),
        };
        for (depth, kept) in kept {
            let through = self.through(*depth, &kept.layout())?;
            planned.kept.push((*depth, *kept, through));
            if let Some(block) = self.block_for(*depth, kept)? {
                planned.made.push(Made {
                    depth: *depth,
                    block,
                });
            }
        }
        Ok(planned)
    }

    fn block_for(&mut self, depth: usize, kept: &Kept) -> Result<Option<NewBlock>, StrategyError> {
        let mut layout = kept.layout();
        if self.is_left_alone(depth, &layout)? {
            return Ok(None);
        }
        let mut draft = if kept.raw {
            Draft::default()
        } else {
            self.draft(depth, layout.clone())?
        };
        let shows_originals = draft.compacted.is_none()
            && draft.recent.as_ref().is_none_or(|r| r.replaced.is_empty());
        if shows_originals {
            // Nothing is replaced or cut: the loop is to be read raw. Where a block says otherwise,
            // one is written that shows the whole loop.
            layout = Layout {
                first: Turns::of(0..kept.turns),
                ..Layout::default()
            };
            if !self.ground.block_applies(depth) || self.is_left_alone(depth, &layout)? {
                return Ok(None);
            }
            draft = Draft {
                first: layout.first,
                ..Draft::default()
            };
        }
        let link = &self.ground.chain.links[depth];
        let kind = if link.row.key == self.ground.leaf {
            BlockKind::Current
        } else {
            BlockKind::Earlier
        };
        let through = self.through(depth, &layout)?;
        let summary = draft.compacted.as_ref().map(|(_, summary)| summary.clone());
        let summary = summary.unwrap_or_default();
        let row = self.row(depth, kind, draft.layout(), through, &summary);
        let counter = self.store.counter();
        let block = store::read(self.store, |read| {
            blocks::assemble(read, row, draft, counter)
        })?;
        Ok(Some(block))
    }

    /// Returns a row for a block on a loop; its sizes are not known yet.
    fn row(
        &self,
        depth: usize,
        kind: BlockKind,
        layout: Layout,
        through: u32,
        summary: &Summary,
    ) -> BlockRow {
        BlockRow {
            key: BlockKey(0),
            in_loop: self.ground.chain.links[depth].row.key,
            generation: 0,
            run: store::RunKey(0),
            kind,
            extends: None,
            layout,
            through,
            tokens_covered: 0,
            size: Size::default(),
            strategy: notes::made_by(summary, self.strategy).to_owned(),
            shaping: self.strategy.shaping(self.config),
            created_at: Time::now().as_str().to_owned(),
            extra: None,
        }
    }
}

/// Returns the size of some turns.
fn size_of(read: &dyn StoreRead, in_loop: LoopKey, turns: Turns) -> StoreResult<Size> {
    let before = size_through(read, in_loop, turns.first)?;
    Ok(size_through(read, in_loop, turns.end())?.without(before))
}

/// What loops cost, from stored totals.
struct ChainCosts<'a> {
    read: &'a dyn StoreRead,
    chain: &'a Chain,
    /// The loop that the plan counts as the first.
    base: usize,
    config: &'a CompactionConfig,
}

impl Costs for ChainCosts<'_> {
    fn planned(&mut self, depth: usize, kept: &Kept) -> StoreResult<u64> {
        let link = &self.chain.links[self.base + depth];
        let key = link.row.key;
        let through = |turns| Ok::<_, StoreError>(size_through(self.read, key, turns)?.tokens);
        let (first, recent) = (through(kept.first)?, through(kept.recent)?);
        let middle = (recent - first).min(self.config.max_summary_tokens);
        Ok(first + middle + through(link.turns)? - recent)
    }

    fn in_force(&mut self, depth: usize) -> StoreResult<u64> {
        Ok(self.chain.shown[self.base + depth].tokens)
    }
}

/// Returns what the context would be with the new blocks in force.
fn size_after(
    store: &dyn SessionStore,
    ground: &Ground,
    request: &CompactRequest,
    made: &[Made],
) -> StoreResult<Size> {
    let (config, window) = (&request.config, &request.window);
    let blocks: Vec<&BlockRow> = made.iter().map(|made| &made.block.row).collect();
    let view = View::default();
    let after = store::read(store, |read| {
        Chain::load_with(
            read,
            ground.leaf,
            view,
            config,
            window,
            Purpose::Plan,
            &blocks,
        )
    })?;
    Ok(after.size())
}

impl Default for CompactReport {
    fn default() -> Self {
        Self {
            run: None,
            outcome: CompactOutcome::NotNeeded,
            strategy: RunConfig::default().strategy,
            fallback: None,
            before: Size::default(),
            after: Size::default(),
            blocks: Vec::new(),
            duration_ms: 0,
            usage: None,
            error: None,
        }
    }
}

impl From<Outcome> for CompactOutcome {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Committed => Self::Committed,
            Outcome::NoGain => Self::NoGain,
            Outcome::Vetoed => Self::Vetoed,
            Outcome::Failed => Self::Failed,
            Outcome::Conflict => Self::Conflict,
        }
    }
}
