//! The state of a chain before the compaction of another tool, or of a provider, is applied.

use super::block_builder::BlockSpec;
use crate::model::Turns;
use crate::store::active_blocks::{self, ChainLink, ChainView, depth_of};
use crate::store::{LoopKey, StoreError, StoreRead, StoreResult};

/// Every loop of a chain from the root, with the active block on each.
pub struct ChainSnapshot {
    /// Root first.
    pub links: Vec<ChainLink>,
    /// The index of the loop with the active rollup; `None` without one.
    pub anchor: Option<usize>,
}

impl ChainSnapshot {
    /// Reads the chain of `leaf` under `view`.
    pub fn load(read: &dyn StoreRead, leaf: LoopKey, view: ChainView) -> StoreResult<Self> {
        let raw = ChainView {
            raw: true,
            ..ChainView::default()
        };
        let mut links = active_blocks::chain(read, leaf, raw)?;
        let active = active_blocks::chain(read, leaf, view)?;
        let first = links
            .len()
            .checked_sub(active.len())
            .filter(|_| !links.is_empty())
            .ok_or_else(|| StoreError::Damaged("a chain without loops".into()))?;
        let anchor = active
            .first()
            .is_some_and(ChainLink::is_anchor)
            .then_some(first);
        for (link, active) in links[first..].iter_mut().zip(active) {
            link.block = active.block;
        }
        Ok(Self { links, anchor })
    }

    /// Returns the index of the leaf.
    pub fn leaf(&self) -> usize {
        self.links.len() - 1
    }

    /// Returns the number of turns of a loop that a block may cover, without turns in flight.
    pub fn end(&self, at: usize) -> u32 {
        if at == self.leaf() {
            self.links[at].complete
        } else {
            self.links[at].turns
        }
    }

    /// Makes a block on the loop at `at` a rollup of the loops before it.
    pub fn roll_up(
        &self,
        read: &dyn StoreRead,
        at: usize,
        spec: &mut BlockSpec,
    ) -> StoreResult<()> {
        spec.tokens_before = self.tokens_before(read, at)?;
        let mut from = 0;
        if let Some(anchor) = self.anchor.filter(|anchor| *anchor <= at) {
            let link = &self.links[anchor];
            spec.extends = link.block.as_ref().map(|block| block.key);
            // The turns that the last block kept of its own loop, or did not cover, are hidden only now.
            let gone = link
                .block
                .as_ref()
                .is_some_and(|block| block.layout.compacted == Turns::of(0..link.turns));
            from = anchor + usize::from(gone);
        }
        for link in self.links[..at].iter().skip(from) {
            spec.roll_up(read, link)?;
        }
        Ok(())
    }

    /// Returns the tokens of the loops before one, as they were appended.
    pub fn tokens_before(&self, read: &dyn StoreRead, at: usize) -> StoreResult<u64> {
        let mut tokens = 0;
        for link in &self.links[..at] {
            tokens += link.size_through(read, link.turns)?.tokens;
        }
        Ok(tokens)
    }

    /// Returns the index of a loop.
    pub fn place(&self, key: LoopKey) -> Option<usize> {
        depth_of(&self.links, key)
    }
}
