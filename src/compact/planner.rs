//! Asks the strategy for the texts of a plan, and makes the blocks.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::atomic::AtomicU64;

use super::fallback::{FallbackStep, Tried};
use super::{CompactRequest, CompactTrigger, Snapshot, blocks, notes, rollup};
use crate::compaction::plan::{Costs, Kept, LoopFacts, Plan};
use crate::compaction::{
    BlockCompactionStrategy, CompactionConfig, ContextConfig, Draft, LoopSlice, Output, Pruned,
    Pruning, Recent, StrategyError, Summary, SummaryNotes, cut_recent, says_nothing, seqs_of,
};
use crate::context::{Chain, Purpose};
use crate::model::{AgentMessage, Role, Time};
use crate::store::active_blocks::{ChainLink, View};
use crate::store::append::size_through;
use crate::store::{
    self, BlockCore, BlockKey, BlockKind, BlockRow, Layout, LoopKey, NewBlock, SessionStore, Size,
    StoreError, StoreRead, StoreResult, Turns,
};

/// A block that is to be written.
pub(crate) struct Made {
    pub(super) depth: usize,
    pub(super) block: NewBlock,
}

/// What a plan came to.
pub(crate) struct Planned {
    /// Each loop in scope: what is kept of it, and the sequence after its last planned message.
    pub(super) kept: Vec<(usize, Kept, u32)>,
    pub(super) made: Vec<Made>,
}

pub(super) struct Planner<'a> {
    pub(super) store: &'a dyn SessionStore,
    pub(super) snapshot: &'a Snapshot,
    pub(super) window: &'a ContextConfig,
    pub(super) strategy: &'a dyn BlockCompactionStrategy,
    force: bool,
    pub(super) step: FallbackStep,
    /// What the strategy made, by loop, layout and the tokens that it had: a plan that settles
    /// again asks once.
    drafts: HashMap<(usize, Layout, u64), Draft>,
    /// Rollups, by anchor and the tokens that they had.
    pub(super) rollups: HashMap<(usize, u64), Summary>,
    /// What was noted of summaries that belong to no draft.
    noted: Vec<SummaryNotes>,
    /// The last user message of the chain.
    last_user: (usize, u32),
}

impl<'a> Planner<'a> {
    pub(super) fn new(
        store: &'a dyn SessionStore,
        snapshot: &'a Snapshot,
        request: &'a CompactRequest,
    ) -> StoreResult<Self> {
        let links = &snapshot.chain.links;
        Ok(Self {
            store,
            snapshot,
            window: &request.window,
            strategy: &*request.config.block_strategy,
            force: request.trigger == CompactTrigger::Force,
            step: FallbackStep::asked(&request.config, snapshot.chain.recent),
            drafts: HashMap::new(),
            rollups: HashMap::new(),
            noted: Vec::new(),
            last_user: store::read(store, |read| last_user(read, links))?,
        })
    }

    /// Returns the chain as it would be with new blocks in force.
    fn chain_after(&self, made: &[Made]) -> StoreResult<Chain> {
        let blocks: Vec<&BlockCore> = made.iter().map(|made| &made.block.row.core).collect();
        let (leaf, config) = (self.snapshot.leaf, &self.step.config);
        store::read(self.store, |read| {
            let (view, purpose) = (View::default(), Purpose::Plan);
            Chain::load_with(read, leaf, view, config, self.window, purpose, &blocks)
        })
    }

    /// Makes the blocks of a step.
    pub(super) fn try_step(&mut self, step: FallbackStep) -> Result<Tried, StrategyError> {
        self.step = step;
        let planned = self.make_blocks()?;
        let chain = self.chain_after(&planned.made)?;
        Ok(Tried {
            step: self.step.clone(),
            planned,
            after: chain.size(),
            chain,
        })
    }

    /// Returns the plan of the step before any text is made.
    pub(super) fn outline(&self) -> StoreResult<Vec<(usize, Kept, u32)>> {
        let kept = match self.snapshot.rollup_on_leaf() {
            Some(rollup) => vec![self.aged(rollup)],
            None => {
                let facts = rollup::facts_from(&self.snapshot.chain.facts, self.snapshot.base);
                let mut plan = self.plan(&facts, &self.step);
                self.settle(&mut plan)?;
                self.in_scope(&plan)
            }
        };
        let place =
            |(depth, kept): (usize, Kept)| Ok((depth, kept, self.through(depth, &kept.layout())?));
        kept.into_iter().map(place).collect()
    }

    pub(super) fn note(&mut self, summary: &Summary) {
        self.noted.push(summary.notes.clone());
    }

    /// Returns what the strategy noted, also of drafts that went into no block.
    pub(super) fn notes(&self) -> impl Iterator<Item = &SummaryNotes> {
        let drafts = self.drafts.values().filter_map(Draft::notes);
        drafts.chain(&self.noted)
    }

    /// Plans, asks the strategy for text, and plans again as long as a text is not smaller than
    /// what it replaces.
    fn make_blocks(&mut self) -> Result<Planned, StrategyError> {
        if let Some(rollup) = self.snapshot.rollup_on_leaf() {
            return self.blocks_for(&[self.aged(rollup)]);
        }
        let (step, base) = (self.step.clone(), self.snapshot.base);
        let facts = rollup::facts_from(&self.snapshot.chain.facts, base);
        let mut plan = self.plan(&facts, &step);
        loop {
            self.settle(&mut plan)?;
            let kept = self.in_scope(&plan);
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

    fn plan<'p>(&self, facts: &'p [LoopFacts], step: &'p FallbackStep) -> Plan<'p> {
        let budget = rollup::budget(&step.config, self.window);
        Plan::new(facts, &step.config, step.recent, budget)
    }

    fn settle(&self, plan: &mut Plan<'_>) -> StoreResult<()> {
        store::read(self.store, |read| {
            plan.settle(&mut ChainCosts {
                read,
                chain: &self.snapshot.chain,
                base: self.snapshot.base,
                config: &self.step.config,
            })
        })
    }

    fn in_scope(&self, plan: &Plan<'_>) -> Vec<(usize, Kept)> {
        let base = self.snapshot.base;
        plan.in_scope()
            .map(|(depth, kept)| (depth + base, kept))
            .collect()
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
        let key = self.snapshot.chain.links[depth].row.key;
        let originals = store::read(self.store, |read| size_of(read, key, turns))?;
        Ok(made < originals.tokens)
    }

    fn draft(&mut self, depth: usize, layout: Layout) -> Result<Draft, StrategyError> {
        let rollup = self.snapshot.rollup_on_leaf();
        let most = match rollup {
            Some(_) => self.leaf_tokens(),
            None => self.step.config.max_summary_tokens,
        };
        let key = (depth, layout, most);
        if let Some(draft) = self.drafts.get(&key).filter(|_| self.step.texts) {
            return Ok(draft.clone());
        }
        let slice = self.slice(depth, &key.1)?;
        let draft = match rollup {
            Some(rollup) => self.leaf_draft(rollup, &slice)?,
            None if self.step.texts => self.strategy.compact(&slice, &self.step.config)?,
            None => silent(&slice, &self.step.config)?,
        };
        if !self.step.texts {
            return Ok(draft);
        }
        blocks::check(&draft, &key.1, &self.snapshot.chain.facts, depth)
            .map_err(StrategyError::Failed)?;
        store::read(self.store, |read| {
            blocks::check_messages(
                read,
                slice.loop_key,
                slice.through,
                &draft,
                self.current_cycle(depth),
            )
        })?
        .map_err(StrategyError::Failed)?;
        self.drafts.insert(key, draft.clone());
        Ok(draft)
    }

    fn slice(&self, depth: usize, layout: &Layout) -> StoreResult<LoopSlice<'a>> {
        let link = &self.snapshot.chain.links[depth];
        Ok(LoopSlice {
            store: self.store,
            loop_key: link.row.key,
            loop_id: link.row.loop_id.clone(),
            is_current: link.row.key == self.snapshot.leaf,
            layout: layout.clone(),
            before: match &link.block {
                Some(block) => Some(self.whole(block)?),
                None => None,
            },
            round: self.snapshot.round,
            through: self.through(depth, layout)?,
            read: AtomicU64::default(),
        })
    }

    /// Returns the first sequence of a loop that comes after the last user message of the chain:
    /// from there on a provider wants its thinking back.
    pub(super) fn current_cycle(&self, depth: usize) -> u32 {
        match depth.cmp(&self.last_user.0) {
            Ordering::Less => u32::MAX,
            Ordering::Equal => self.last_user.1,
            Ordering::Greater => 0,
        }
    }

    /// Prunes the turns kept at the end of a loop as far as the step says.
    pub(super) fn prune(&self, depth: usize, recent: &mut Recent) -> StoreResult<()> {
        let Some(prune) = self.step.prune else {
            return Ok(());
        };
        let layout = Layout {
            recent: Some(recent.turns),
            ..Layout::default()
        };
        let slice = self.slice(depth, &layout)?;
        let is_leaf = depth + 1 == self.snapshot.chain.links.len();
        let mut replaced: BTreeMap<u32, Option<AgentMessage>> = recent.replaced.drain(..).collect();
        for placed in slice.messages(recent.turns)? {
            let is_last = is_leaf && placed.turn == recent.turns.last;
            let pruning = Pruning {
                thinking: placed.seq < self.current_cycle(depth),
                images: !is_last || prune.last_images,
                output_tokens: prune.output_tokens,
            };
            let shown = match replaced.get(&placed.seq) {
                Some(None) => continue,
                Some(Some(cut)) => cut,
                None => &placed.message,
            };
            match pruning.prune(shown, self.store.counter()) {
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

    /// Returns each tool output among the turns kept at the end, not pruned.
    pub(super) fn outputs(&mut self, planned: &Planned) -> Result<Vec<Output>, StrategyError> {
        let mut outputs = Vec::new();
        for (depth, kept, through) in &planned.kept {
            let (false, Some(turns)) = (kept.raw, kept.layout().recent) else {
                continue;
            };
            let key = self.snapshot.chain.links[*depth].row.key;
            let slice = self.slice(*depth, &kept.layout())?;
            let recent = cut_recent(&slice, &self.step.config)?;
            let cut: HashMap<u32, Output> = recent
                .iter()
                .flat_map(|recent| &recent.replaced)
                .filter_map(|(seq, message)| Some((*seq, self.output(message.as_ref()?))))
                .collect();
            store::read(self.store, |read| {
                let seqs = seqs_of(read, key, turns, *through)?;
                read.sizes(key, seqs, &mut |message| {
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

    fn output(&self, message: &AgentMessage) -> Output {
        Output {
            tokens: self.store.counter().message_tokens(message),
            bytes: serde_json::to_vec(message).map_or(0, |json| json.len() as u64),
        }
    }

    pub(super) fn through(&self, depth: usize, layout: &Layout) -> StoreResult<u32> {
        let link = &self.snapshot.chain.links[depth];
        store::read(self.store, |read| blocks::through(read, link, layout.end()))
    }

    /// Whether the block in force is what the plan wants.
    fn is_left_alone(&self, depth: usize, layout: &Layout) -> StoreResult<bool> {
        let Some(block) = self.snapshot.chain.links[depth]
            .block
            .as_ref()
            .filter(|_| !self.force)
        else {
            return Ok(false);
        };
        if self.snapshot.rollup_on_leaf().is_some() {
            let nothing_aged = block.layout.compacted == layout.compacted;
            return Ok(nothing_aged && self.step.prune.is_none());
        }
        Ok(block.layout == *layout
            && block.kind != BlockKind::Rollup
            && block.through == self.through(depth, layout)?
            && self.is_made_alike(block)?)
    }

    /// Whether a block was made by this strategy, shaped as it would shape it now.
    fn is_made_alike(&self, block: &BlockCore) -> StoreResult<bool> {
        let row = self.whole(block)?;
        Ok(row.strategy == self.strategy.name() && row.shaping == self.shaping())
    }

    fn whole(&self, block: &BlockCore) -> StoreResult<BlockRow> {
        store::read(self.store, |read| read.block_by_key(block.key))
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
        if let Some(recent) = &mut draft.recent {
            self.prune(depth, recent)?;
        }
        let shows_originals = draft.compacted.is_none()
            && draft.recent.as_ref().is_none_or(|r| r.replaced.is_empty());
        if shows_originals {
            // Nothing is replaced or cut: the loop is to be read raw. Where a block says otherwise,
            // one is written that shows the whole loop.
            layout = Layout {
                first: Turns::of(0..kept.turns),
                ..Layout::default()
            };
            if !self.snapshot.block_applies(depth) || self.is_left_alone(depth, &layout)? {
                return Ok(None);
            }
            draft = Draft {
                first: layout.first,
                ..Draft::default()
            };
        }
        let link = &self.snapshot.chain.links[depth];
        let before = self.snapshot.rollup_on_leaf();
        let kind = match before {
            Some(_) => BlockKind::Rollup,
            None if link.row.key == self.snapshot.leaf => BlockKind::Current,
            None => BlockKind::Earlier,
        };
        let through = self.through(depth, &layout)?;
        let summary = draft.compacted.as_ref().map(|(_, summary)| summary.clone());
        let summary = summary.unwrap_or_default();
        let mut row = self.row(depth, kind, draft.layout(), through, &summary);
        row.extends = before.map(|rollup| rollup.key);
        let counter = self.store.counter();
        let block = store::read(self.store, |read| {
            let mut block = blocks::assemble(read, row, draft, counter)?;
            if let Some(rollup) = before {
                let own = size_through(read, rollup.loop_key, rollup.layout.end())?.tokens;
                let covered = read.block_by_key(rollup.key)?.tokens_covered;
                block.row.tokens_covered += covered.saturating_sub(own);
            }
            Ok(block)
        })?;
        Ok(Some(block))
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

    /// Returns a row for a block on a loop; its sizes are not known yet.
    pub(super) fn row(
        &self,
        depth: usize,
        kind: BlockKind,
        layout: Layout,
        through: u32,
        summary: &Summary,
    ) -> BlockRow {
        BlockRow {
            core: BlockCore {
                key: BlockKey(0),
                loop_key: self.snapshot.chain.links[depth].row.key,
                generation: 0,
                run: store::RunKey(0),
                kind,
                extends: None,
                layout,
                through,
                size: Size::default(),
            },
            tokens_covered: 0,
            strategy: notes::made_by(summary, self.strategy).to_owned(),
            shaping: self.shaping(),
            created_at: Time::now().as_str().to_owned(),
            extra: None,
        }
    }
}

/// Returns the size of some turns.
pub(super) fn size_of(read: &dyn StoreRead, loop_key: LoopKey, turns: Turns) -> StoreResult<Size> {
    let before = size_through(read, loop_key, turns.first)?;
    Ok(size_through(read, loop_key, turns.end())?.without(before))
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

/// Returns the place of the last user message of a chain; the very beginning if it has none.
fn last_user(read: &dyn StoreRead, links: &[ChainLink]) -> StoreResult<(usize, u32)> {
    for (depth, link) in links.iter().enumerate().rev() {
        for turn in (0..link.turns).rev() {
            let only = Turns {
                first: turn,
                last: turn,
            };
            let mut prompts = Vec::new();
            let seqs = seqs_of(read, link.row.key, only, link.end_seq)?;
            read.sizes(link.row.key, seqs, &mut |message| {
                if message.role == Role::User {
                    prompts.push(message.seq);
                }
                Ok(ControlFlow::Continue(()))
            })?;
            for seq in prompts.into_iter().rev() {
                if !is_blank(read, link.row.key, seq)? {
                    return Ok((depth, seq));
                }
            }
        }
    }
    Ok((0, 0))
}

/// Whether a message says nothing: no provider gets it, so it begins nothing.
fn is_blank(read: &dyn StoreRead, loop_key: LoopKey, seq: u32) -> StoreResult<bool> {
    let mut blank = false;
    read.messages(loop_key, seq..seq.saturating_add(1), &mut |row| {
        blank = store::decode(read, row.body)?
            .message()
            .is_none_or(says_nothing);
        Ok(ControlFlow::Break(()))
    })?;
    Ok(blank)
}

/// Makes a block that says nothing of the turns between those that it keeps.
fn silent(slice: &LoopSlice<'_>, config: &CompactionConfig) -> StoreResult<Draft> {
    let layout = slice.layout();
    Ok(Draft {
        first: layout.first,
        compacted: layout.compacted.map(|turns| (turns, Summary::default())),
        recent: cut_recent(slice, config)?,
    })
}
