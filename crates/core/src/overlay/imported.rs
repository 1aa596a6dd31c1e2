//! The blocks of a compaction that was made elsewhere, by another tool or on another chain.

use std::ops::ControlFlow;

use super::block_builder::BlockSpec;
use super::chain_snapshot::ChainSnapshot;
use super::ranges::turn_seqs;
use crate::compaction::{Recent, Summary};
use crate::model::{AgentMessage, Role, Turns};
use crate::store::{BlockKind, NewBlock, StoreRead, StoreResult, decode};
use crate::tokens::TokenCounter;

/// The context of a compaction that another tool made, from which its blocks are built.
pub struct ImportedCompaction<'a> {
    /// The snapshot of the store.
    pub read: &'a dyn StoreRead,
    /// The chain to the loop of the compaction.
    pub chain: &'a ChainSnapshot,
    /// The counter of tokens.
    pub counter: &'a dyn TokenCounter,
    /// The name of the tool.
    pub strategy: &'a str,
    /// The time of the compaction.
    pub created_at: &'a str,
}

/// A turn of the chain: the index of its loop, and the turn.
type ChainTurnAt = (usize, u32);

/// A message that replaces an original, by the original's sequence; `None` drops the original.
pub type Replacement = (u32, Option<AgentMessage>);

impl ImportedCompaction<'_> {
    fn kind(&self, at: usize) -> BlockKind {
        if at == self.chain.leaf() {
            BlockKind::Current
        } else {
            BlockKind::Earlier
        }
    }

    /// Returns the specification of a block that shows the first `turns` turns of a loop unchanged.
    pub fn unchanged(&self, at: usize, turns: u32) -> BlockSpec {
        BlockSpec::unchanged(self.kind(at), turns, self.strategy, self.created_at)
    }

    /// Returns the block of a loop of the chain, by its specification.
    pub fn build(&self, at: usize, spec: BlockSpec) -> StoreResult<NewBlock> {
        spec.build(self.read, &self.chain.links[at], self.counter)
    }

    /// Replaces everything before `first_kept` (everything, if `None`) by `messages`.
    ///
    /// Returns no block if there is nothing to replace.
    pub fn summary(
        &self,
        messages: &[AgentMessage],
        first_kept: Option<ChainTurnAt>,
    ) -> StoreResult<Vec<NewBlock>> {
        self.placed(messages, first_kept, false)
    }

    /// Replaces everything before `first_kept` by messages that also summarise an earlier conversation, which is
    /// stored elsewhere: no later compaction can derive them again from the turns here.
    pub fn anchored(
        &self,
        messages: &[AgentMessage],
        first_kept: ChainTurnAt,
    ) -> StoreResult<Vec<NewBlock>> {
        self.placed(messages, Some(first_kept), true)
    }

    fn placed(
        &self,
        messages: &[AgentMessage],
        first_kept: Option<ChainTurnAt>,
        is_anchor: bool,
    ) -> StoreResult<Vec<NewBlock>> {
        let (mut at, mut kept) = self.boundary(first_kept)?;
        // A summary needs turns to replace: without any here it is on the loop before.
        let at_loop_start = kept == 0;
        while kept == 0 {
            let Some(before) = at.checked_sub(1) else {
                return Ok(Vec::new());
            };
            at = before;
            kept = self.chain.links[at].turns;
        }
        let mut spec = self.unchanged(at, 0);
        let messages = messages.iter();
        let messages = messages.filter(|message| message.role() != Role::Extension);
        spec.draft.compacted = summary_of(0..kept, messages.cloned().collect());
        spec.draft.recent = recent_of(kept..self.chain.end(at), Vec::new());
        if at > 0 || at_loop_start || is_anchor {
            self.roll_up(at, &mut spec)?;
        }
        let mut blocks = vec![self.build(at, spec)?];
        self.show_later(at, &mut blocks)?;
        Ok(blocks)
    }

    /// Shows the loops after the one with the summary; all their turns were kept.
    fn show_later(&self, at: usize, blocks: &mut Vec<NewBlock>) -> StoreResult<()> {
        for later in at + 1..self.chain.links.len() {
            if self.is_hidden(at, later) {
                blocks.push(self.build(later, self.unchanged(later, self.chain.end(later)))?);
            }
        }
        Ok(())
    }

    /// Replaces everything before a message of turn `kept` by `message`: the first `dropped` messages of that
    /// turn are replaced too.
    ///
    /// Only messages before the turn's answer are dropped, since the calls of the answer need their results. If there
    /// are none, the summary is at the start of the turn. If that is the start of the chain, the first prompt is
    /// shown after the summary.
    pub fn summary_within(
        &self,
        message: &AgentMessage,
        kept: ChainTurnAt,
        dropped: u32,
    ) -> StoreResult<Vec<NewBlock>> {
        let whole = || self.summary(std::slice::from_ref(message), Some(kept));
        let (at, turn) = kept;
        let is_moved = self.boundary(Some(kept))? != kept;
        let is_start = kept == (0, 0) && dropped == 0;
        let mut recent = match is_moved || turn >= self.chain.end(at) {
            true => Vec::new(),
            false => self.prompts_of(at, turn, dropped.max(u32::from(is_start)))?,
        };
        let Some((seq, shown)) = recent.first_mut() else {
            return whole();
        };
        let mut spec = self.unchanged(at, 0);
        match turn {
            0 if is_start => *shown = Some(self.prepend(message, at, *seq)?),
            0 => *shown = Some(message.clone()),
            _ => spec.draft.compacted = summary_of(0..turn, vec![message.clone()]),
        }
        spec.draft.recent = recent_of(turn..self.chain.end(at), recent);
        if at > 0 {
            self.roll_up(at, &mut spec)?;
        }
        let mut blocks = vec![self.build(at, spec)?];
        self.show_later(at, &mut blocks)?;
        Ok(blocks)
    }

    /// Returns a message with the content of `lead` before its own.
    fn prepend(&self, lead: &AgentMessage, at: usize, seq: u32) -> StoreResult<AgentMessage> {
        let key = self.chain.links[at].row.key;
        let mut led = lead.clone();
        self.read.messages(key, seq..seq + 1, &mut |row| {
            let mut original = decode(self.read, row.body)?;
            if let (Some(inner), Some(lead)) = (original.message_mut(), lead.message()) {
                let content = lead.content().iter().cloned();
                inner.content_mut().splice(0..0, content);
            }
            led = original;
            Ok(ControlFlow::Break(()))
        })?;
        Ok(led)
    }

    /// Returns the prompts that a turn begins with, at most `limit` messages, as dropped.
    fn prompts_of(&self, at: usize, turn: u32, limit: u32) -> StoreResult<Vec<Replacement>> {
        let link = &self.chain.links[at];
        let range = turn_seqs(self.read, link.row.key, Turns::only(turn), link.end_seq)?;
        let mut found = Vec::new();
        self.read.sizes(link.row.key, range, &mut |message| {
            let is_over = found.len() as u64 >= u64::from(limit);
            match message.role {
                Role::Extension => {}
                Role::User if !is_over => found.push((message.seq, None)),
                _ => return Ok(ControlFlow::Break(())),
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    }

    /// Returns the first kept turn, moved back so far that no kept result loses its call.
    fn boundary(&self, first_kept: Option<ChainTurnAt>) -> StoreResult<ChainTurnAt> {
        let links = &self.chain.links;
        let leaf = self.chain.leaf();
        let mut first = match first_kept {
            Some((at, turn)) => (at, turn.min(self.chain.end(at))),
            None => (leaf, self.chain.end(leaf)),
        };
        while let Some(call) = self.earliest_call(first)? {
            first = (call.0, call.1.min(links[call.0].turns));
        }
        Ok(first)
    }

    /// Returns the earliest turn before `first` with a call that is answered from `first` on.
    fn earliest_call(&self, first: ChainTurnAt) -> StoreResult<Option<ChainTurnAt>> {
        let mut earliest: Option<ChainTurnAt> = None;
        for (at, link) in self.chain.links.iter().enumerate().skip(first.0) {
            let from = if at == first.0 { first.1 } else { 0 };
            let answers = self.read.answers(link.row.key, from..link.turns)?;
            let sites = answers.into_iter().flat_map(|(_, sites)| sites);
            let spots =
                sites.filter_map(|site| Some((self.chain.place(site.loop_key)?, site.turn)));
            earliest = spots.filter(|spot| *spot < first).chain(earliest).min();
        }
        Ok(earliest)
    }

    /// Makes a block a rollup of the loops before `at`.
    fn roll_up(&self, at: usize, spec: &mut BlockSpec) -> StoreResult<()> {
        spec.kind = BlockKind::Rollup;
        self.chain.roll_up(self.read, at, spec)
    }

    /// True if turns of a loop after the summary, which were all kept, are hidden so far.
    fn is_hidden(&self, summary: usize, later: usize) -> bool {
        let link = &self.chain.links[later];
        if self.chain.anchor.is_some_and(|anchor| anchor > summary) {
            // The active rollup hides the blocks of the loops before it: any of these blocks
            // would be active again.
            return link.row.totals.generation > 0;
        }
        link.block.as_ref().is_some_and(|block| {
            block.layout.compacted.is_some() || block.kind == BlockKind::Rollup
        })
    }
}

/// Returns a section in which messages replace every turn, or none if there are no messages.
pub fn summary_of(
    turns: std::ops::Range<u32>,
    messages: Vec<AgentMessage>,
) -> Option<(Turns, Summary)> {
    let summarised = match messages.is_empty() {
        true => 0..0,
        false => turns.clone(),
    };
    let summary = Summary {
        turns: summarised.collect(),
        messages,
        ..Summary::default()
    };
    Some((Turns::of(turns)?, summary))
}

fn recent_of(turns: std::ops::Range<u32>, replaced: Vec<Replacement>) -> Option<Recent> {
    let turns = Turns::of(turns)?;
    Some(Recent { turns, replaced })
}
