//! The planner that all steps of an attempt share, and the planner of one step.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use super::candidate::{FallbackStep, PlacedBlock, TextSource};
use super::request::CompactRequest;
use super::room::TurnForms;
use super::running::OpenRow;
use super::snapshot::Snapshot;
use super::texts::Texts;
use crate::compaction::plan::ChainTurn;
use crate::compaction::{
    BlockCompactionStrategy, Draft, EarlierBlock, LoopSlice, StrategyError, Summary,
};
use crate::model::{AgentMessage, Layout, Time};
use crate::overlay::{BlockSpec, CompactedAs, PinnedMessage, StoreTurns, through};
use crate::store::{self, BlockCore, BlockKind, BlockRow, SessionStore, StoreResult};

/// The error in the audit row of a cancelled compaction.
pub(super) const CANCELLED: &str = "cancelled";

/// The state that all steps of an attempt share.
pub(super) struct CandidatePlanner<'a> {
    pub(super) store: &'a dyn SessionStore,
    pub(super) snapshot: &'a Snapshot,
    pub(super) request: &'a CompactRequest,
    pub(super) texts: &'a Texts,
    /// The turns at the end that were read so far.
    pub(super) forms: RefCell<HashMap<ChainTurn, Rc<TurnForms>>>,
    /// The tokens that the summary of the current loop may have, by the sections planned.
    pub(super) rooms: RefCell<HashMap<Layout, u64>>,
    pub(super) open_row: &'a OpenRow,
    /// The prompts that the last candidate quotes.
    pub(super) kept_prompts: RefCell<Vec<PinnedMessage>>,
}

impl CandidatePlanner<'_> {
    /// Writes, before the first call of the strategy, that the attempt is running.
    pub(super) fn note_running(&self) -> StoreResult<()> {
        self.open_row.write(self.store)
    }

    /// Fails if the compaction was cancelled.
    pub(super) fn check_wanted(&self) -> Result<(), StrategyError> {
        match self.request.cancel.is_cancelled() {
            true => Err(StrategyError::Failed(CANCELLED.into())),
            false => Ok(()),
        }
    }

    /// Returns the messages that a step quotes, in the order of the chain.
    pub(super) fn pins_of(&self, step: &FallbackStep) -> Vec<PinnedMessage> {
        let mut pins = self.snapshot.pins.messages.clone();
        if step.config.keep_prompts_tokens > 0 {
            pins.extend(self.kept_prompts.borrow().iter());
            pins.sort_unstable();
        }
        pins
    }

    /// Returns the sequence after the last message that a block of this layout covers.
    pub(super) fn through(&self, depth: usize, layout: &Layout) -> StoreResult<u32> {
        let link = &self.snapshot.chain.links[depth];
        store::read(self.store, |read| through(read, link, layout.end()))
    }

    /// Returns the block on a loop as the plan sees it.
    pub(super) fn block_before(&self, depth: usize) -> StoreResult<Option<BlockRow>> {
        let block = self.snapshot.chain.links[depth].block.as_ref();
        let row = |block: &BlockCore| store::read(self.store, |read| read.block_by_key(block.key));
        block.map(row).transpose()
    }

    /// Returns a loop up to the sequence `through` as a strategy sees it.
    pub(super) fn slice(
        &self,
        depth: usize,
        layout: &Layout,
        through: u32,
    ) -> StoreResult<LoopSlice<'_>> {
        let link = &self.snapshot.chain.links[depth];
        let key = link.row.key;
        let before = self.block_before(depth)?;
        let before_key = before.as_ref().map(|row| row.key);
        Ok(LoopSlice {
            reader: Box::new(StoreTurns::new(
                self.store,
                key,
                through,
                link.end_of(link.turns).map(|end| (link.turns, end)),
                before_key,
                link.edits.clone(),
            )),
            counter: self.store.counter(),
            cancel: self.request.cancel.clone(),
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
}

/// The planner of one step of the fallback.
pub(super) struct StepPlanner<'a> {
    pub(super) planner: &'a CandidatePlanner<'a>,
    pub(super) snapshot: &'a Snapshot,
    pub(super) strategy: &'a dyn BlockCompactionStrategy,
    pub(super) step: FallbackStep,
    /// The messages to quote: the pinned ones, and prompts of people.
    pub(super) pins: Vec<PinnedMessage>,
}

impl<'a> StepPlanner<'a> {
    pub(super) fn new(planner: &'a CandidatePlanner<'a>, step: FallbackStep) -> Self {
        Self {
            planner,
            snapshot: planner.snapshot,
            strategy: &**planner.request.strategy(),
            pins: planner.pins_of(&step),
            step,
        }
    }

    /// Returns the tokens of a text if they exceed the limit. The overhead of each message does not
    /// count: a text may be many short ones.
    pub(super) fn excess_of(&self, summary: &Summary, most: u64) -> Option<u64> {
        let counter = self.planner.store.counter();
        let content = summary.messages.iter().filter_map(AgentMessage::message);
        let tokens: u64 = content.map(|m| counter.content_tokens(m.content())).sum();
        Some(tokens).filter(|tokens| *tokens > most)
    }

    /// Counts the messages of a summary.
    pub(super) fn tokens_of(&self, summary: &Summary) -> u64 {
        let counter = self.planner.store.counter();
        let messages = summary.messages.iter();
        messages
            .map(|message| counter.message_tokens(message))
            .sum()
    }

    /// Returns what shapes the blocks of this step.
    pub(super) fn shaping(&self) -> String {
        let mut shaping = self.strategy.shaping(&self.step.config);
        if let Some(prune) = self.step.prune {
            let most = prune
                .output_tokens
                .map_or("any".into(), |most| most.to_string());
            shaping.push_str(&format!(" outputs={most}"));
            if let Some(ChainTurn { depth, turn }) = prune.whole_from {
                shaping.push_str(&format!(" whole={depth}:{turn}"));
            }
        }
        shaping.push_str(match self.step.texts {
            TextSource::Strategy | TextSource::Limited => "",
            TextSource::Silent => " silent",
            TextSource::Marker => " marker",
        });
        shaping
    }

    /// Returns the specification of a block of this step.
    pub(super) fn spec(&self, kind: BlockKind, draft: Draft) -> BlockSpec {
        // A block that a fallback of the strategy made is not taken for the strategy's own.
        let fallback = draft.notes().and_then(|notes| notes.fallback.clone());
        BlockSpec {
            kind,
            extends: None,
            compacted_as: CompactedAs::Turns,
            rolled_up: Vec::new(),
            edits: Vec::new(),
            quote_edits: self.snapshot.quote_edits(&self.pins),
            pins: self.pins.clone(),
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
}
