//! One attempt: a step of the fallback becomes a candidate.
//!
//! The plan gives each loop its layout, the strategy is asked for the texts, and a middle whose
//! replacement is not smaller than what it replaces is planned again as kept. Nothing is written, and a
//! candidate knows nothing of the one before.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;

use super::check::check_draft;
use super::fallback::FallbackStep;
use super::texts::{TextKey, Texts};
use super::{CompactRequest, CompactTrigger, Snapshot};
use crate::compaction::plan::{Costs, Kept, Plan};
use crate::compaction::{
    BlockCompactionStrategy, CompactionConfig, Draft, EarlierBlock, LoopSlice, OlderLoops, Output,
    Pruned, Pruning, Recent, StrategyError, Summary, cut_recent,
};
use crate::context::{Chain, Purpose};
use crate::model::{AgentMessage, Layout, Role, Size, Time, Turns};
use crate::overlay::{BlockSpec, CompactedAs, StoreTurns, size_of, through, turn_seqs};
use crate::store::active_blocks::View;
use crate::store::append::size_through;
use crate::store::{
    self, BlockCore, BlockKind, BlockRow, NewBlock, SessionStore, StoreError, StoreRead,
    StoreResult,
};

/// A loop of the chain, and what is kept of it.
pub(super) type PlannedLoop = (usize, Kept);

/// A block that is to be written, and the place of its loop.
pub(super) struct PlacedBlock {
    pub(super) depth: usize,
    pub(super) block: NewBlock,
}

/// What a step comes to; nothing of it is written yet.
pub(super) struct Candidate {
    pub(super) step: FallbackStep,
    /// The loops in scope.
    pub(super) planned: Vec<PlannedLoop>,
    pub(super) blocks: Vec<PlacedBlock>,
    /// The chain with the blocks in force.
    pub(super) chain: Chain,
    /// The size of the context.
    pub(super) after: Size,
}

impl Candidate {
    /// Whether nothing is written as asked, and the context is no smaller for it.
    pub(super) fn changes_nothing(&self, before: Size) -> bool {
        let is_smaller = self.after.tokens < before.tokens;
        self.step.step.is_none() && self.blocks.is_empty() && !is_smaller
    }
}

/// What all attempts of a compaction share.
pub(super) struct Planner<'a> {
    pub(super) store: &'a dyn SessionStore,
    pub(super) snapshot: &'a Snapshot,
    pub(super) request: &'a CompactRequest,
    pub(super) texts: &'a Texts,
}

impl Planner<'_> {
    /// Makes the candidate of a step.
    pub(super) fn attempt(&self, step: FallbackStep) -> Result<Candidate, StrategyError> {
        let attempt = Attempt::new(self, step);
        let (planned, scope) = attempt.plan()?;
        let mut blocks = Vec::new();
        for (depth, kept) in &planned {
            blocks.extend(attempt.block_for(*depth, kept)?);
        }
        if let Some(scope) = scope {
            blocks.splice(0..0, attempt.rollup(scope)?);
        }
        let cores: Vec<&BlockCore> = blocks.iter().map(|placed| &placed.block.row.core).collect();
        let (leaf, view, purpose) = (self.snapshot.leaf, View::default(), Purpose::Plan);
        let (config, window) = (&attempt.step.config, &self.request.window);
        let chain = store::read(self.store, |read| {
            Chain::load_with(read, leaf, view, config, window, purpose, &cores)
        })?;
        Ok(Candidate {
            planned,
            after: chain.size(),
            chain,
            blocks,
            step: attempt.step,
        })
    }

    /// Returns the plan of a step before any text is asked for, each loop with the sequence after its
    /// last planned message.
    pub(super) fn outline(&self, step: FallbackStep) -> StoreResult<Vec<(PlannedLoop, u32)>> {
        let attempt = Attempt::new(self, step);
        let planned = match self.snapshot.rollup_on_leaf() {
            Some(rollup) => vec![attempt.aged(rollup)],
            None => attempt.settle(&mut attempt.new_plan())?,
        };
        let place =
            |(depth, kept): PlannedLoop| Ok(((depth, kept), self.through(depth, &kept.layout())?));
        planned.into_iter().map(place).collect()
    }

    /// Returns the sequence after the last message that a block of this layout covers.
    fn through(&self, depth: usize, layout: &Layout) -> StoreResult<u32> {
        let link = &self.snapshot.chain.links[depth];
        store::read(self.store, |read| through(read, link, layout.end()))
    }

    /// Returns the block on a loop as the plan sees it.
    fn block_before(&self, depth: usize) -> StoreResult<Option<BlockRow>> {
        let block = self.snapshot.chain.links[depth].block.as_ref();
        let row = |block: &BlockCore| store::read(self.store, |read| read.block_by_key(block.key));
        block.map(row).transpose()
    }

    /// Returns a loop as a strategy sees it.
    fn slice(&self, depth: usize, layout: &Layout) -> StoreResult<LoopSlice<'_>> {
        let link = &self.snapshot.chain.links[depth];
        let (key, through) = (link.row.key, self.through(depth, layout)?);
        let before = self.block_before(depth)?;
        let before_key = before.as_ref().map(|row| row.key);
        Ok(LoopSlice {
            reader: Box::new(StoreTurns::new(self.store, key, through, before_key)),
            counter: self.store.counter(),
            loop_id: link.row.loop_id.clone(),
            is_current: key == self.snapshot.leaf,
            layout: layout.clone(),
            before: before.map(|row| EarlierBlock {
                layout: row.core.layout,
                is_rollup: row.core.kind == BlockKind::Rollup,
                strategy: row.strategy,
                shaping: row.shaping,
            }),
            round: self.snapshot.round,
        })
    }

    /// Returns each tool output among the turns that a candidate keeps at the end, not pruned.
    pub(super) fn outputs(&self, candidate: &Candidate) -> Result<Vec<Output>, StrategyError> {
        let (mut outputs, counter) = (Vec::new(), self.store.counter());
        for (depth, kept) in &candidate.planned {
            let layout = kept.layout();
            let (false, Some(turns)) = (kept.raw, layout.recent) else {
                continue;
            };
            let cut = cut_recent(&self.slice(*depth, &layout)?, &candidate.step.config)?;
            let output = |message: &AgentMessage| Output {
                tokens: counter.message_tokens(message),
                bytes: serde_json::to_vec(message).map_or(0, |json| json.len() as u64),
            };
            let cut: HashMap<u32, Output> = cut
                .iter()
                .flat_map(|recent| &recent.replaced)
                .filter_map(|(seq, message)| Some((*seq, output(message.as_ref()?))))
                .collect();
            let link = &self.snapshot.chain.links[*depth];
            store::read(self.store, |read| {
                let end = through(read, link, layout.end())?;
                let seqs = turn_seqs(read, link.row.key, turns, end)?;
                read.sizes(link.row.key, seqs, &mut |message| {
                    if message.role == Role::ToolResult {
                        let whole = Output {
                            tokens: message.size.tokens,
                            bytes: message.size.bytes,
                        };
                        outputs.push(cut.get(&message.seq).copied().unwrap_or(whole));
                    }
                    Ok(ControlFlow::Continue(()))
                })
            })?;
        }
        Ok(outputs)
    }
}

/// One step at work.
pub(super) struct Attempt<'a> {
    pub(super) planner: &'a Planner<'a>,
    pub(super) snapshot: &'a Snapshot,
    pub(super) strategy: &'a dyn BlockCompactionStrategy,
    pub(super) step: FallbackStep,
}

impl<'a> Attempt<'a> {
    fn new(planner: &'a Planner<'a>, step: FallbackStep) -> Self {
        Self {
            planner,
            snapshot: planner.snapshot,
            strategy: &*planner.request.config.block_strategy,
            step,
        }
    }

    /// Plans the loops in scope, and plans again as long as a text is not smaller than what it
    /// replaces. Also returns the place of the first loop in scope, unless a rollup on the leaf leaves
    /// nothing before it to plan.
    fn plan(&self) -> Result<(Vec<PlannedLoop>, Option<usize>), StrategyError> {
        if let Some(rollup) = self.snapshot.rollup_on_leaf() {
            return Ok((vec![self.aged(rollup)], None));
        }
        let (mut plan, base) = (self.new_plan(), self.snapshot.base);
        loop {
            let planned = self.settle(&mut plan)?;
            let mut is_settled = true;
            for (depth, kept) in &planned {
                if !self.shrinks(*depth, kept)? {
                    plan.keep(*depth - base);
                    is_settled = false;
                }
            }
            if is_settled {
                return Ok((planned, Some(base + plan.scope())));
            }
        }
    }

    fn new_plan(&self) -> Plan<'_> {
        let config = &self.step.config;
        let mut budget = self.planner.request.window.budget().tokens;
        if config.older_loops == OlderLoops::Rollup {
            budget = budget.saturating_sub(config.max_rollup_tokens);
        }
        Plan::new(&self.snapshot.facts, config, self.step.recent, budget)
    }

    /// Settles a plan; returns the loops in scope.
    fn settle(&self, plan: &mut Plan<'_>) -> StoreResult<Vec<PlannedLoop>> {
        let (base, config) = (self.snapshot.base, &self.step.config);
        store::read(self.planner.store, |read| {
            plan.settle(&mut ChainCosts {
                read,
                chain: &self.snapshot.chain,
                base,
                config,
            })
        })?;
        let place = |(depth, kept)| (depth + base, kept);
        Ok(plan.in_scope().map(place).collect())
    }

    /// Whether the text of a loop's middle is smaller than the middle.
    fn shrinks(&self, depth: usize, kept: &Kept) -> Result<bool, StrategyError> {
        let layout = kept.layout();
        if kept.middle().is_none() || self.is_left_alone(depth, &layout)? {
            return Ok(true);
        }
        let Some((turns, summary)) = self.draft(depth, &layout)?.compacted else {
            return Ok(true);
        };
        let key = self.snapshot.chain.links[depth].row.key;
        let originals = store::read(self.planner.store, |read| size_of(read, key, turns))?;
        Ok(self.tokens_of(&summary) < originals.tokens)
    }

    /// Counts the messages of a summary.
    pub(super) fn tokens_of(&self, summary: &Summary) -> u64 {
        let counter = self.planner.store.counter();
        let messages = summary.messages.iter();
        messages
            .map(|message| counter.message_tokens(message))
            .sum()
    }

    /// Whether the block in force is what the plan wants.
    fn is_left_alone(&self, depth: usize, layout: &Layout) -> StoreResult<bool> {
        let is_forced = self.planner.request.trigger == CompactTrigger::Force;
        let block = self.snapshot.chain.links[depth].block.as_ref();
        let Some(block) = block.filter(|_| !is_forced) else {
            return Ok(false);
        };
        if self.snapshot.rollup_on_leaf().is_some() {
            let nothing_aged = block.layout.compacted == layout.compacted;
            return Ok(nothing_aged && self.step.prune.is_none());
        }
        if block.layout != *layout
            || block.kind == BlockKind::Rollup
            || block.through != self.planner.through(depth, layout)?
        {
            return Ok(false);
        }
        let row = self.planner.block_before(depth)?;
        let shaping = self.shaping();
        Ok(row.is_some_and(|row| row.strategy == self.strategy.name() && row.shaping == shaping))
    }

    /// Returns what shapes the blocks of this step.
    fn shaping(&self) -> String {
        let mut shaping = self.strategy.shaping(&self.step.config);
        if let Some(prune) = self.step.prune {
            let most = prune
                .output_tokens
                .map_or("any".into(), |most| most.to_string());
            shaping.push_str(&format!(" outputs={most}"));
        }
        if !self.step.texts {
            shaping.push_str(" silent");
        }
        shaping
    }

    /// Returns the sections of a loop with their texts, as the strategy makes them; a silent step says
    /// nothing of the turns between those that it keeps.
    fn draft(&self, depth: usize, layout: &Layout) -> Result<Draft, StrategyError> {
        let config = &self.step.config;
        if !self.step.texts {
            let slice = self.planner.slice(depth, layout)?;
            return Ok(Draft {
                first: layout.first,
                compacted: layout.compacted.map(|turns| (turns, Summary::default())),
                recent: cut_recent(&slice, config)?,
            });
        }
        let rollup = self.snapshot.rollup_on_leaf();
        let tokens = match rollup {
            Some(_) => self.leaf_tokens(),
            None => config.max_summary_tokens,
        };
        let key = TextKey {
            depth,
            layout: Some(layout.clone()),
            tokens,
        };
        self.planner.texts.get_or_make(key, || {
            let slice = self.planner.slice(depth, layout)?;
            let draft = match rollup {
                Some(rollup) => self.leaf_draft(rollup, &slice)?,
                None => self.strategy.compact(&slice, config)?,
            };
            let (store, through) = (self.planner.store, self.planner.through(depth, layout)?);
            check_draft(store, self.snapshot, depth, through, layout, &draft)?;
            Ok(draft)
        })
    }

    /// Returns the block that a planned loop needs, if it needs one.
    fn block_for(&self, depth: usize, kept: &Kept) -> Result<Option<PlacedBlock>, StrategyError> {
        let layout = kept.layout();
        if self.is_left_alone(depth, &layout)? {
            return Ok(None);
        }
        let mut draft = match kept.raw {
            true => Draft::default(),
            false => self.draft(depth, &layout)?,
        };
        if let Some(recent) = &mut draft.recent {
            self.prune(depth, recent)?;
        }
        let shows_originals = draft.compacted.is_none()
            && draft.recent.as_ref().is_none_or(|r| r.replaced.is_empty());
        if shows_originals {
            // Nothing is replaced or cut: the loop is to be read raw. Where a block says otherwise,
            // one is written that shows the whole loop.
            draft = Draft {
                first: Turns::of(0..kept.turns),
                ..Draft::default()
            };
            if !self.snapshot.block_applies(depth) || self.is_left_alone(depth, &draft.layout())? {
                return Ok(None);
            }
        }
        let is_leaf = self.snapshot.chain.links[depth].row.key == self.snapshot.leaf;
        let kind = match is_leaf {
            true => BlockKind::Current,
            false => BlockKind::Earlier,
        };
        let spec = self.spec(kind, draft);
        Ok(Some(match self.snapshot.rollup_on_leaf() {
            Some(rollup) => self.place(depth, self.leaf_spec(rollup, spec)?)?,
            None => self.place(depth, spec)?,
        }))
    }

    /// Says what a block of this step is to show.
    pub(super) fn spec(&self, kind: BlockKind, draft: Draft) -> BlockSpec {
        // A block that a fallback of the strategy made is not taken for the strategy's own.
        let fallback = draft.notes().and_then(|notes| notes.fallback.clone());
        BlockSpec {
            kind,
            extends: None,
            compacted_as: CompactedAs::Turns,
            rolled_up: Vec::new(),
            tokens_before: 0,
            strategy: fallback.unwrap_or_else(|| self.strategy.name().to_owned()),
            shaping: self.shaping(),
            created_at: Time::now().as_str().to_owned(),
            extra: None,
            draft,
        }
    }

    pub(super) fn place(&self, depth: usize, spec: BlockSpec) -> StoreResult<PlacedBlock> {
        let link = &self.snapshot.chain.links[depth];
        let counter = self.planner.store.counter();
        let block = store::read(self.planner.store, |read| spec.build(read, link, counter))?;
        Ok(PlacedBlock { depth, block })
    }

    /// Prunes the turns kept at the end of a loop as far as the step says.
    fn prune(&self, depth: usize, recent: &mut Recent) -> Result<(), StrategyError> {
        let Some(prune) = self.step.prune else {
            return Ok(());
        };
        let layout = Layout {
            recent: Some(recent.turns),
            ..Layout::default()
        };
        let slice = self.planner.slice(depth, &layout)?;
        let is_leaf = depth + 1 == self.snapshot.chain.links.len();
        let mut replaced: BTreeMap<u32, Option<AgentMessage>> = recent.replaced.drain(..).collect();
        for placed in slice.messages(recent.turns)? {
            let is_last = is_leaf && placed.turn == recent.turns.last;
            let pruning = Pruning {
                thinking: placed.seq < self.snapshot.current_cycle(depth),
                images: !is_last || prune.last_images,
                output_tokens: prune.output_tokens,
            };
            let shown = match replaced.get(&placed.seq) {
                Some(None) => continue,
                Some(Some(cut)) => cut,
                None => &placed.message,
            };
            match pruning.prune(shown, slice.counter()) {
                Pruned::Whole => {}
                Pruned::Shorter(message) => {
                    replaced.insert(placed.seq, Some(*message));
                }
                Pruned::Gone => {
                    replaced.insert(placed.seq, None);
                }
            }
        }
        recent.replaced = replaced.into_iter().collect();
        Ok(())
    }
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
    type Error = StoreError;

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
