//! The planner of one step of the fallback: makes the candidate of the step.
//!
//! The plan gives each loop its layout, and the strategy makes the texts. A middle whose
//! replacement is not smaller than the middle itself is planned again as kept. Nothing is written, and a
//! candidate does not depend on the one before.

use std::ops::ControlFlow;

use super::candidate::{CompactionCandidate, FallbackStep, PlacedBlock, PlannedLoop, TextSource};
use super::check::check_draft;
use super::planner::{CandidatePlanner, StepPlanner};
use super::request::CompactTrigger;
use super::texts::TextKey;
use crate::compaction::plan::{KeptTurns, LoopCosts, Plan};
use crate::compaction::{CompactionConfig, Draft, OlderLoops, StrategyError, cut_recent};
use crate::context::{Chain, Purpose};
use crate::model::{AgentMessage, Content, Layout, Role, Turns};
use crate::overlay::{shown_size_of, turn_seqs};
use crate::store::active_blocks::{ChainLink, ChainView};
use crate::store::{self, BlockCore, BlockKind, StoreError, StoreRead, StoreResult};

/// The number of times that a candidate is made with other quotes. Each of them is valid.
const ROUNDS: usize = 4;

impl CandidatePlanner<'_> {
    /// Makes the candidate of a step.
    pub(super) fn candidate(
        &self,
        step: FallbackStep,
    ) -> Result<CompactionCandidate, StrategyError> {
        self.check_wanted()?;
        let mut planner = StepPlanner::new(self, step);
        let mut rounds = 1;
        loop {
            let (planned, blocks) = planner.blocks()?;
            let chain = planner.chain_with(&blocks)?;
            let hidden = planner.hidden_prompts(&chain)?;
            if rounds < ROUNDS && !planner.quotes(&hidden) {
                rounds += 1;
                planner.quote_prompts(hidden);
                continue;
            }
            return Ok(CompactionCandidate {
                planned,
                after: chain.size(),
                chain,
                blocks,
                prompts: planner.count(&hidden),
                step: planner.step,
            });
        }
    }

    /// Returns the plan of a step before any text is made, each loop with the sequence after its
    /// last planned message.
    pub(super) fn outline(&self, step: FallbackStep) -> StoreResult<Vec<(PlannedLoop, u32)>> {
        let planner = StepPlanner::new(self, step);
        let planned = planner.settle(&mut planner.new_plan())?;
        let place =
            |(depth, kept): PlannedLoop| Ok(((depth, kept), self.through(depth, &kept.layout())?));
        planned.into_iter().map(place).collect()
    }
}

impl StepPlanner<'_> {
    /// Returns the chain as it will be with these blocks.
    pub(super) fn chain_with(&self, blocks: &[PlacedBlock]) -> StoreResult<Chain> {
        let cores: Vec<&BlockCore> = blocks.iter().map(|placed| &placed.block.row.core).collect();
        let (leaf, view, purpose) = (self.snapshot.leaf, ChainView::default(), Purpose::Plan);
        let (config, window) = (&self.step.config, &self.planner.request.policy.window);
        store::read(self.planner.store, |read| {
            Chain::load_with(read, leaf, view, config, window, purpose, &cores)
        })
    }

    /// Plans the loops in scope, and makes the blocks.
    fn blocks(&self) -> Result<(Vec<PlannedLoop>, Vec<PlacedBlock>), StrategyError> {
        let (planned, rollup) = self.plan()?;
        let mut blocks = Vec::from_iter(rollup);
        for (depth, kept) in &planned {
            blocks.extend(self.block_for(*depth, kept)?);
        }
        self.renew_quotes(&mut blocks)?;
        Ok((planned, blocks))
    }

    /// Plans the loops in scope. Also returns the rollup of the loops before the scope, if the rollup is smaller
    /// than these loops. If not, they stay as they are, and each call in them must keep its result.
    fn plan(&self) -> Result<(Vec<PlannedLoop>, Option<PlacedBlock>), StrategyError> {
        if self.step.is_text_only() && self.planner.rolls_up_all() {
            let all = self.rollup(self.snapshot.chain.links.len())?;
            if all.is_some() {
                return Ok((Vec::new(), all));
            }
        }
        let (planned, scope) = self.settled(self.new_plan())?;
        let rollup = self.rollup(scope)?;
        let config = &self.step.config;
        let is_wanted = config.older_loops == OlderLoops::Rollup && config.max_rollup_tokens > 0;
        let older = &self.snapshot.facts[..scope - self.snapshot.base];
        if rollup.is_some() || !is_wanted || older.iter().all(|facts| facts.turns == 0) {
            return Ok((planned, rollup));
        }
        let (planned, _) = self.settled(self.new_plan().keeping_older())?;
        Ok((planned, None))
    }

    /// Settles a plan until every text is smaller than the turns that it replaces. Also returns the depth of the
    /// first loop in scope.
    fn settled(&self, mut plan: Plan<'_>) -> Result<(Vec<PlannedLoop>, usize), StrategyError> {
        let base = self.snapshot.base;
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
                return Ok((planned, base + plan.scope()));
            }
        }
    }

    fn new_plan(&self) -> Plan<'_> {
        let config = &self.step.config;
        let mut budget = self.planner.request.policy.window.budget().tokens;
        if config.older_loops == OlderLoops::Rollup {
            budget = budget.saturating_sub(config.max_rollup_tokens);
        }
        Plan::new(&self.snapshot.facts, config, self.step.recent, budget)
    }

    /// Settles a plan; returns the loops in scope.
    fn settle(&self, plan: &mut Plan<'_>) -> StoreResult<Vec<PlannedLoop>> {
        let (base, config) = (self.snapshot.base, &self.step.config);
        store::read(self.planner.store, |read| {
            loop {
                plan.settle(&mut ChainCosts {
                    read,
                    chain: &self.snapshot.chain,
                    base,
                    config,
                })?;
                let place = |(depth, kept)| (depth + base, kept);
                let planned: Vec<PlannedLoop> = plan.in_scope().map(place).collect();
                let parted = parted_answers(read, &self.snapshot.chain, &planned)?;
                if parted.is_empty() {
                    return Ok(planned);
                }
                for (depth, turn) in parted {
                    plan.join(depth - base, turn);
                }
            }
        })
    }

    /// True if the text of a loop's middle is smaller than the middle.
    fn shrinks(&self, depth: usize, kept: &KeptTurns) -> Result<bool, StrategyError> {
        let layout = kept.layout();
        let Some(middle) = kept.middle() else {
            return Ok(true);
        };
        let is_left_alone = self.is_left_alone(depth, &layout)?;
        let stays = is_left_alone && !self.snapshot.pins.any;
        if stays || self.snapshot.rollup_on(depth).is_some() {
            return Ok(true);
        }
        let (turns, text) = match is_left_alone {
            // Only what is pinned of it may have changed.
            true => (middle, self.text_tokens(depth)?),
            false => match self.draft(depth, &layout)?.compacted {
                Some((turns, summary)) => (turns, self.tokens_of(&summary)),
                None => return Ok(true),
            },
        };
        let link = &self.snapshot.chain.links[depth];
        let key = link.row.key;
        let originals = store::read(self.planner.store, |read| shown_size_of(read, link, turns))?;
        let quotes = self.quote_tokens(key, &|pin| pin.is_hidden(key, Some(turns), false))?;
        Ok(text + quotes < originals.tokens)
    }

    /// True if the active block already has the planned layout, made by the same strategy with the same options.
    fn is_left_alone(&self, depth: usize, layout: &Layout) -> StoreResult<bool> {
        let is_forced = self.planner.request.trigger == CompactTrigger::Force;
        let block = self.snapshot.chain.links[depth].block.as_ref();
        let Some(block) = block.filter(|_| !is_forced) else {
            return Ok(false);
        };
        if self.snapshot.rollup_on(depth).is_some() {
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

    /// Returns the sections of a loop with the texts of the strategy. A silent step has no text for the turns
    /// between the kept ones.
    pub(super) fn draft(&self, depth: usize, layout: &Layout) -> Result<Draft, StrategyError> {
        let config = &self.step.config;
        if let Some(summary) = self.step.texts.unsaid() {
            let through = self.planner.through(depth, layout)?;
            let slice = self.planner.slice(depth, layout, through)?;
            return Ok(Draft {
                first: layout.first,
                compacted: layout.compacted.map(|turns| (turns, summary)),
                recent: cut_recent(&slice, config)?,
            });
        }
        let rollup = self.snapshot.rollup_on(depth);
        let tokens = match rollup {
            Some(_) => self.carried_tokens(),
            None => self.summary_room(depth, layout)?,
        };
        let config = &CompactionConfig {
            max_summary_tokens: match rollup {
                Some(_) => config.max_summary_tokens,
                None => tokens,
            },
            ..config.clone()
        };
        let key = TextKey {
            depth,
            layout: Some(layout.clone()),
            tokens,
            stands_in: false,
        };
        self.limited(key, &|planner| {
            let through = self.planner.through(depth, layout)?;
            let slice = self.planner.slice(depth, layout, through)?;
            self.planner.note_running()?;
            let draft = match rollup {
                Some(rollup) => planner.carried_draft(rollup, &slice)?,
                None => planner.strategy.compact(&slice, config)?,
            };
            let store = self.planner.store;
            check_draft(store, self.snapshot, depth, through, layout, &draft)?;
            Ok(draft)
        })
    }

    /// Returns the draft that `make` makes with the strategy, or with the default strategy if the step limits texts
    /// and the text of the strategy exceeds the limit.
    pub(super) fn limited(
        &self,
        mut key: TextKey,
        make: &dyn Fn(&StepPlanner<'_>) -> Result<Draft, StrategyError>,
    ) -> Result<Draft, StrategyError> {
        let (texts, most) = (self.planner.texts, key.tokens);
        let draft = texts.get_or_make(key.clone(), || make(self))?;
        let made = draft.compacted.as_ref();
        let Some(made) = made.and_then(|(_, summary)| self.excess_of(summary, most)) else {
            return Ok(draft);
        };
        let default = &*self.planner.request.default_strategy;
        if self.strategy.name() == default.name() {
            return Ok(draft);
        }
        texts.note_long();
        if self.step.texts != TextSource::Limited {
            return Ok(draft);
        }
        key.stands_in = true;
        texts.get_or_make(key, || {
            let mut draft = make(&StepPlanner {
                planner: self.planner,
                snapshot: self.snapshot,
                strategy: default,
                step: self.step.clone(),
                pins: self.pins.clone(),
            })?;
            if let Some((_, summary)) = &mut draft.compacted {
                let name = self.strategy.name();
                summary.notes.fallback = Some(default.name().to_owned());
                summary.notes.error = Some(format!(
                    "the text of `{name}` has {made} tokens, it may have {most}"
                ));
            }
            Ok(draft)
        })
    }

    /// Returns the block that a planned loop needs, if it needs one.
    fn block_for(
        &self,
        depth: usize,
        kept: &KeptTurns,
    ) -> Result<Option<PlacedBlock>, StrategyError> {
        let layout = kept.layout();
        if self.is_left_alone(depth, &layout)? {
            return Ok(None);
        }
        let mut draft = match kept.raw {
            true => Draft::default(),
            false => self.draft(depth, &layout)?,
        };
        if let Some(recent) = draft.recent.take() {
            let recent = self.pruned(depth, recent)?;
            draft.recent = Some(self.with_pinned(depth, recent));
        }
        let shows_originals = draft.compacted.is_none()
            && draft.recent.as_ref().is_none_or(|r| r.replaced.is_empty());
        if shows_originals {
            // Nothing is replaced or cut: the loop is to be read raw. If an active block replaces turns of it,
            // a block is written that shows the whole loop.
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
        Ok(Some(match self.snapshot.rollup_on(depth) {
            Some(rollup) => self.place(depth, self.carried_spec(rollup, spec)?)?,
            None => self.place(depth, spec)?,
        }))
    }
}

/// Returns each planned turn, with the depth of its loop, that a boundary separates from the turn before
/// although both are one answer: a message of thinking alone is worth nothing without the rest of its answer.
fn parted_answers(
    read: &dyn StoreRead,
    chain: &Chain,
    planned: &[PlannedLoop],
) -> StoreResult<Vec<(usize, u32)>> {
    let mut parted = Vec::new();
    for (depth, kept) in planned {
        let Some(middle) = kept.middle() else {
            continue;
        };
        let link = &chain.links[*depth];
        for turn in [middle.first, middle.end()] {
            if (1..link.turns).contains(&turn) && goes_on(read, link, turn)? {
                parted.push((*depth, turn));
            }
        }
    }
    Ok(parted)
}

/// True if a turn continues an answer of which the turn before contains only the thinking.
fn goes_on(read: &dyn StoreRead, link: &ChainLink, turn: u32) -> StoreResult<bool> {
    let key = link.row.key;
    let before = turn_seqs(read, key, Turns::only(turn - 1), link.end_seq)?;
    let seqs = before.start..turn_seqs(read, key, Turns::only(turn), link.end_seq)?.end;
    let (mut last, mut next) = (None, None);
    read.sizes(key, seqs, &mut |message| {
        let place = (message.role, message.seq);
        match (message.role, message.seq < before.end) {
            (Role::Extension, _) => {}
            (_, true) => last = Some(place),
            (_, false) => next = next.or(Some(place)),
        }
        Ok(match next {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        })
    })?;
    let (Some((Role::Assistant, last)), Some((Role::Assistant, next))) = (last, next) else {
        return Ok(false);
    };
    let mut answers = Vec::new();
    for seq in [last, next] {
        read.messages(key, seq..seq.saturating_add(1), &mut |row| {
            answers.push(store::decode(read, row.body)?);
            Ok(ControlFlow::Break(()))
        })?;
    }
    let content = answers.first().and_then(AgentMessage::message);
    let is_thinking = content.is_some_and(|m| m.content().iter().all(Content::is_thinking));
    Ok(is_thinking && crate::context::continues_answer(&answers, 0))
}

/// The costs of the loops, from stored totals.
struct ChainCosts<'a> {
    read: &'a dyn StoreRead,
    chain: &'a Chain,
    /// The loop that the plan counts as the first.
    base: usize,
    config: &'a CompactionConfig,
}

impl LoopCosts for ChainCosts<'_> {
    type Error = StoreError;

    fn planned(&mut self, depth: usize, kept: &KeptTurns) -> StoreResult<u64> {
        let link = &self.chain.links[self.base + depth];
        let through = |turns| match Turns::of(0..turns) {
            Some(turns) if link.edits.is_some() => {
                Ok(shown_size_of(self.read, link, turns)?.tokens)
            }
            _ => Ok::<_, StoreError>(link.size_through(self.read, turns)?.tokens),
        };
        let (first, recent) = (through(kept.first)?, through(kept.recent)?);
        let middle = recent
            .saturating_sub(first)
            .min(self.config.max_summary_tokens);
        Ok((first + middle + through(link.turns)?).saturating_sub(recent))
    }

    fn active_tokens(&mut self, depth: usize) -> StoreResult<u64> {
        Ok(self.chain.shown[self.base + depth].tokens)
    }
}
