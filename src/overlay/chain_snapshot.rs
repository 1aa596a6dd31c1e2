//! A chain as the compaction of another tool meets it.

use crate::store::active_blocks::{self, ChainLink, View};
use crate::store::{LoopKey, StoreError, StoreRead, StoreResult};

/// Every loop of a chain from the root, with the active block on each.
pub(crate) struct ChainSnapshot {
    /// Root first.
    pub(crate) links: Vec<ChainLink>,
    /// The place of the loop that holds the active rollup.
    pub(crate) anchor: Option<usize>,
}

impl ChainSnapshot {
    /// Reads the chain of `leaf`.
    pub(crate) fn load(read: &dyn StoreRead, leaf: LoopKey) -> StoreResult<Self> {
        let raw = View {
            raw: true,
            ..View::default()
        };
        let mut links = active_blocks::chain(read, leaf, raw)?;
        let active = active_blocks::chain(read, leaf, View::default())?;
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

    /// Returns the place of the leaf.
    pub(crate) fn leaf(&self) -> usize {
        self.links.len() - 1
    }

    /// Returns how many turns of a loop a block may cover: those in flight stay out.
    pub(crate) fn end(&self, at: usize) -> u32 {
        if at == self.leaf() {
            self.links[at].complete
        } else {
            self.links[at].turns
        }
    }

    /// Returns the place of a loop.
    pub(crate) fn place(&self, key: LoopKey) -> Option<usize> {
        self.links.iter().position(|link| link.row.key == key)
    }
}
