//! The number of turns of each loop that belong to a chain, computed once for all blocks of a run.

use std::collections::HashMap;
use std::ops::ControlFlow;

use loopstore::extend::{LoopKey, Point, SessionKey, StoreResult, scan::StoreScan};

/// The cuts of the loops above a leaf, as far up as they were needed so far.
#[derive(Default)]
pub(super) struct ChainCuts {
    leaf: Option<(LoopKey, SessionKey)>,
    known: HashMap<LoopKey, u32>,
    /// The next loop up, and its cut.
    next: Option<(LoopKey, u32)>,
}

impl ChainCuts {
    /// Returns the number of turns of a loop that belong to the chain of a point; `None` if the loop is not on
    /// the chain.
    pub(super) fn of(
        &mut self,
        scan: &dyn StoreScan,
        point: Point,
        loop_key: LoopKey,
    ) -> StoreResult<Option<u32>> {
        if loop_key == point.loop_key {
            return Ok(Some(point.turns));
        }
        if self.leaf.is_none_or(|(leaf, _)| leaf != point.loop_key) {
            *self = Self::default();
            scan.walk(point.loop_key, &mut |row| {
                self.leaf = Some((row.key, row.session));
                self.next = row.parent.map(|parent| (parent, row.parent_turns()));
                Ok(ControlFlow::Break(()))
            })?;
        }
        // Keys decrease from child to parent.
        while let Some((key, cut)) = self.next.filter(|(key, _)| *key >= loop_key) {
            self.next = None;
            scan.walk(key, &mut |row| {
                if self.leaf.is_some_and(|(_, session)| session == row.session) {
                    self.known.insert(key, cut);
                    let parent = row.parent.filter(|parent| *parent < key);
                    self.next = parent.map(|parent| (parent, row.parent_turns()));
                }
                Ok(ControlFlow::Break(()))
            })?;
        }
        Ok(self.known.get(&loop_key).copied())
    }
}
