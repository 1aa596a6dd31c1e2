//! Pinned messages, which a compaction keeps word for word: as they are in the window, quoted elsewhere.

use std::collections::{BTreeSet, HashSet};

use super::candidate::PlacedBlock;
use super::planner::{CandidatePlanner, StepPlanner};
use super::snapshot::Snapshot;
use crate::compaction::{Draft, Recent, StrategyError, Summary};
use crate::model::Size;
use crate::overlay::{BlockSpec, CompactedAs, PinnedMessage, quotes_of};
use crate::store::active_blocks::{ChainView, chain, depth_of};
use crate::store::{
    self, BlockCore, BlockKey, BlockKind, BlockRow, CoverageRow, Disposition, LoopKey,
    QuotingBlock, Section, StoreRead, StoreResult, quote_body,
};

impl Snapshot {
    /// Returns the ids of the runs whose live edits removed or replaced something of a message, with which it is quoted.
    fn edits_of(&self, message: &PinnedMessage) -> BTreeSet<String> {
        let mut links = self.chain.links.iter();
        let link = links.find(|link| link.row.key == message.loop_key);
        let edits = link.and_then(|link| link.edits.as_ref());
        let only = message.seq..message.seq.saturating_add(1);
        let runs = edits.into_iter().flat_map(|edits| edits.rewriting(&only));
        runs.map(str::to_owned).collect()
    }

    /// Returns the ids of the runs that removed or replaced something of these messages.
    pub(super) fn quote_edits(&self, messages: &[PinnedMessage]) -> Vec<String> {
        let runs = messages.iter().flat_map(|message| self.edits_of(message));
        let runs: BTreeSet<String> = runs.collect();
        runs.into_iter().collect()
    }
}

impl CandidatePlanner<'_> {
    /// Returns the most that quotes of all that is pinned and of prompts have.
    pub(super) fn quotes_size(&self) -> StoreResult<Size> {
        let leaf = self.snapshot.leaf;
        store::read(self.store, |read| {
            let mut size = self.prompts_size();
            for pin in &self.snapshot.pins.messages {
                let edits = self.snapshot.quote_edits(std::slice::from_ref(pin));
                let block = QuotingBlock {
                    loop_key: leaf,
                    edits: &edits,
                };
                let body = quote_body(read, self.store.counter(), block, pin.place())?;
                size.add(Size {
                    tokens: body.tokens,
                    bytes: body.bytes,
                    messages: 1,
                });
            }
            Ok(size)
        })
    }
}

impl StepPlanner<'_> {
    /// Counts the quotes of some of the pinned messages on a loop.
    pub(super) fn quote_tokens(
        &self,
        own: LoopKey,
        is_quoted: &dyn Fn(&PinnedMessage) -> bool,
    ) -> StoreResult<u64> {
        let pins = &self.pins;
        if pins.is_empty() {
            return Ok(0);
        }
        let counter = self.planner.store.counter();
        store::read(self.planner.store, |read| {
            let quoted = pins.iter().filter(|pin| is_quoted(pin));
            let tokens = quoted.map(|pin| {
                let edits = self.snapshot.quote_edits(std::slice::from_ref(pin));
                let block = QuotingBlock {
                    loop_key: own,
                    edits: &edits,
                };
                Ok(quote_body(read, counter, block, pin.place())?.tokens)
            });
            tokens.sum()
        })
    }

    /// Shows the pinned messages of the turns kept at the end as they are.
    pub(super) fn with_pinned(&self, depth: usize, mut recent: Recent) -> Recent {
        let own = self.snapshot.chain.links[depth].row.key;
        let pins = &self.snapshot.pins.messages;
        let is_pinned = |seq: u32| pins.iter().any(|pin| pin.place() == (own, seq));
        recent.replaced.retain(|(seq, _)| !is_pinned(*seq));
        recent
    }

    /// Counts the tokens of the text of the active block on a loop, without its quotes.
    pub(super) fn text_tokens(&self, depth: usize) -> StoreResult<u64> {
        let Some(block) = &self.snapshot.chain.links[depth].block else {
            return Ok(0);
        };
        let own = store::read(self.planner.store, |read| read.block_messages(block.key))?;
        let text = own
            .iter()
            .filter(|message| message.section == Section::Compacted && message.quotes.is_none());
        Ok(text
            .filter_map(|message| Some(message.body.as_ref()?.tokens))
            .sum())
    }

    /// Rewrites, with their own texts, the blocks that stay active in the context but do not keep the
    /// messages that are pinned now.
    pub(super) fn renew_quotes(&self, blocks: &mut Vec<PlacedBlock>) -> Result<(), StrategyError> {
        if !self.snapshot.pins.any {
            return Ok(());
        }
        // A shorter context may bring another loop into the scope.
        loop {
            let after = self.chain_with(blocks)?;
            let mut renewed = Vec::new();
            let fresh: HashSet<usize> = blocks.iter().map(|placed| placed.depth).collect();
            for link in after.links.iter().skip(after.start) {
                let depth = depth_of(&self.snapshot.chain.links, link.row.key);
                let is_fresh = |depth: &usize| fresh.contains(depth);
                if let Some(block) = &link.block
                    && let Some(depth) = depth.filter(|depth| !is_fresh(depth))
                    && let Some(spec) = self.renewed(depth, block.key)?
                {
                    renewed.push(self.place(depth, spec)?);
                }
            }
            if renewed.is_empty() {
                return Ok(());
            }
            blocks.extend(renewed);
            blocks.sort_by_key(|placed| placed.depth);
        }
    }

    /// Returns a block that shows what this one does, with the quotes of now; `None` if it has those.
    fn renewed(&self, depth: usize, key: BlockKey) -> Result<Option<BlockSpec>, StrategyError> {
        let (row, messages, coverage, quotes) = store::read(self.planner.store, |read| {
            let messages = read.block_messages(key)?;
            let quotes = quotes_of(read, &messages)?;
            Ok((
                read.block_by_key(key)?,
                messages,
                read.coverage(key)?,
                quotes,
            ))
        })?;
        let (own, is_rollup) = (row.loop_key, row.kind.covers_earlier_loops());
        let pins = self.pins.iter();
        let wanted = pins.filter(|pin| pin.is_hidden(own, row.layout.compacted, is_rollup));
        let wanted: Vec<PinnedMessage> = wanted.copied().collect();
        let is_cut = |pin: &PinnedMessage| {
            let is_here = |message: &store::BlockMessage| {
                message.section == Section::Recent && message.replaces == Some(pin.seq)
            };
            pin.loop_key == own && messages.iter().any(is_here)
        };
        let keeps_recent = !self.snapshot.pins.messages.iter().any(is_cut);
        if keeps_recent && wanted == quotes {
            return Ok(None);
        }
        let covered = covered_turns(own, &coverage);
        let is_uncovered = |quote: &PinnedMessage| {
            quote.loop_key == own && !covered.contains(&quote.turn) && !wanted.contains(quote)
        };
        if !is_rollup && quotes.iter().any(is_uncovered) {
            return self.made_anew(depth, &row).map(Some);
        }
        let mut draft = Draft {
            first: row.layout.first,
            ..Draft::default()
        };
        let mut summary = Summary {
            turns: summarised(own, &coverage),
            ..Summary::default()
        };
        let mut replaced = Vec::new();
        store::read(self.planner.store, |read| {
            for message in messages.into_iter().filter(|one| one.quotes.is_none()) {
                let (section, seq) = (message.section, message.replaces);
                let shown = store::shown_message(read, row.quoting(), message)?;
                match (section, seq) {
                    (Section::Recent, Some(seq)) => replaced.push((seq, shown)),
                    _ => summary.messages.extend(shown),
                }
            }
            Ok(())
        })?;
        draft.compacted = row.layout.compacted.map(|turns| (turns, summary));
        let recent = row.layout.recent.map(|turns| Recent { turns, replaced });
        draft.recent = recent.map(|recent| self.with_pinned(depth, recent));
        Ok(Some(self.renewed_spec(&row, draft, &coverage)?))
    }

    /// Returns a block with the sections of this one and new texts of the strategy. Coverage records of
    /// a turn with only quoted messages that it is kept, not if the text contains something of it as
    /// well: once it is no longer quoted, only the strategy knows.
    fn made_anew(&self, depth: usize, row: &BlockRow) -> Result<BlockSpec, StrategyError> {
        let mut draft = self.draft(depth, &row.layout)?;
        if let Some(recent) = draft.recent.take() {
            let recent = self.pruned(depth, recent)?;
            draft.recent = Some(self.with_pinned(depth, recent));
        }
        let kind = match row.loop_key == self.snapshot.leaf {
            true => BlockKind::Current,
            false => BlockKind::Earlier,
        };
        Ok(self.spec(kind, draft))
    }

    fn renewed_spec(
        &self,
        row: &BlockRow,
        draft: Draft,
        coverage: &[CoverageRow],
    ) -> StoreResult<BlockSpec> {
        let kind = match (row.kind, row.loop_key == self.snapshot.leaf) {
            (BlockKind::Rollup, _) => BlockKind::Rollup,
            (_, true) => BlockKind::Current,
            (_, false) => BlockKind::Earlier,
        };
        let mut spec = self.spec(kind, draft);
        spec.strategy.clone_from(&row.strategy);
        spec.shaping.clone_from(&row.shaping);
        if kind == BlockKind::Rollup {
            let covered = covered_turns(row.loop_key, coverage);
            let is_compacted = |turn: &u32| row.layout.section_of(*turn) == Some(1);
            if !covered.iter().any(is_compacted) {
                spec.compacted_as = CompactedAs::RolledUp;
            }
            spec.extends = Some(row.key);
            spec.tokens_before = store::read(self.planner.store, |read| {
                store::tokens_of_others(read, row)
            })?;
            self.cover_anew(row.loop_key, row, &mut spec)?;
        }
        Ok(spec)
    }

    /// Covers once more the loops that the rollup `before` covers otherwise: what is quoted of them is not
    /// what it quoted.
    pub(super) fn cover_anew(
        &self,
        anchor: LoopKey,
        before: &BlockCore,
        spec: &mut BlockSpec,
    ) -> StoreResult<()> {
        if !self.snapshot.pins.any {
            return Ok(());
        }
        let covered: BTreeSet<LoopKey> = spec.rolled_up.iter().map(|row| row.loop_key).collect();
        let is_above = |pin: &&PinnedMessage| pin.loop_key < anchor;
        let pins = self.pins.iter();
        let now: BTreeSet<PinnedMessage> = pins.filter(is_above).copied().collect();
        store::read(self.planner.store, |read| {
            let quotes = quotes_of(read, &read.block_messages(before.key)?)?;
            let then: BTreeSet<PinnedMessage> = quotes.iter().filter(is_above).copied().collect();
            let changed = now.symmetric_difference(&then).map(|pin| pin.loop_key);
            let changed: BTreeSet<LoopKey> = changed.filter(|key| !covered.contains(key)).collect();
            if !changed.is_empty() {
                self.cover(read, &changed, spec)?;
            }
            Ok(())
        })
    }

    fn cover(
        &self,
        read: &dyn StoreRead,
        loops: &BTreeSet<LoopKey>,
        spec: &mut BlockSpec,
    ) -> StoreResult<()> {
        let raw = ChainView {
            raw: true,
            ..ChainView::default()
        };
        for link in chain(read, self.snapshot.leaf, raw)? {
            if loops.contains(&link.row.key) {
                spec.roll_up(read, &link)?;
            }
        }
        spec.rolled_up.sort_by_key(|row| row.loop_key);
        Ok(())
    }
}

/// Returns the turns of a block's own loop that its summary holds something of.
fn summarised(own: LoopKey, coverage: &[CoverageRow]) -> BTreeSet<u32> {
    turns_that_are(own, coverage, &[Disposition::Summarised])
}

/// Returns the turns of a block's own loop whose coverage records whether its summary contains something of them.
fn covered_turns(own: LoopKey, coverage: &[CoverageRow]) -> BTreeSet<u32> {
    let covered = [Disposition::Summarised, Disposition::Dropped];
    turns_that_are(own, coverage, &covered)
}

fn turns_that_are(own: LoopKey, coverage: &[CoverageRow], are: &[Disposition]) -> BTreeSet<u32> {
    let rows = coverage.iter().filter(|row| row.loop_key == own);
    rows.filter(|row| are.contains(&row.disposition))
        .filter_map(|row| row.turns)
        .flat_map(|(first, last)| first..=last)
        .collect()
}
