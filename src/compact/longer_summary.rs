//! The room that the turns kept word for word leave in the target, for the first summary of the current loop.
//!
//! Only the first: it replaces everything that filled the window, or the whole of an imported session. A
//! later summary extends it with the configured tokens, so that a context has room to grow in between. The
//! shaping of a block has only the configured tokens: a later summary reads this one, however long it is.

use super::fallback::{AIM, BYTES_OF_A_TOKEN, share};
use super::planner::{CandidatePlanner, StepPlanner};
use crate::compaction::{CompactionScope, LoopSlice, OlderLoops, StrategyError};
use crate::model::{AgentMessage, Layout, Turns};
use crate::overlay::shown_size_of;
use crate::store;

/// The share of the target that the context is to have, in percent: it is to grow on from there.
const FILLED: u64 = 88;

impl CandidatePlanner<'_> {
    /// True if a summary may have more than the configured tokens.
    pub(super) fn has_longer_summary(&self) -> bool {
        let configured = self.request.policy.compaction.max_summary_tokens;
        self.rooms.borrow().values().any(|room| *room > configured)
    }
}

impl StepPlanner<'_> {
    /// Returns the tokens that the summary of a loop may have.
    pub(super) fn summary_room(&self, depth: usize, layout: &Layout) -> Result<u64, StrategyError> {
        let configured = self.step.config.max_summary_tokens;
        let link = &self.snapshot.chain.links[depth];
        let is_first = link.row.key == self.snapshot.leaf && link.block.is_none();
        if !self.step.config.fills_window || !is_first {
            return Ok(configured);
        }
        if let Some(room) = self.planner.rooms.borrow().get(layout) {
            return Ok(*room);
        }
        let target = self.planner.request.policy.target();
        let of_bytes = target
            .bytes
            .map_or(u64::MAX, |bytes| bytes / BYTES_OF_A_TOKEN);
        let filled = target.tokens.min(of_bytes) / 100 * FILLED;
        let aim = filled.min(share(self.snapshot.growth.goal.tokens, AIM));
        let kept = self.kept_tokens(depth, layout)? + self.tokens_of_earlier(depth);
        let kept = kept + self.planner.prompts_size().tokens;
        let room = configured.max(aim.saturating_sub(kept));
        self.planner.rooms.borrow_mut().insert(layout.clone(), room);
        Ok(room)
    }

    /// Returns the tokens of the kept turns of the current loop, and of the turns after them.
    fn kept_tokens(&self, depth: usize, layout: &Layout) -> Result<u64, StrategyError> {
        let link = &self.snapshot.chain.links[depth];
        let after = Turns::of(layout.end()..link.turns);
        let whole = [layout.first, layout.recent, after];
        let mut tokens = 0;
        for turns in whole.into_iter().flatten() {
            let size = store::read(self.planner.store, |read| shown_size_of(read, link, turns));
            tokens += size?.tokens;
        }
        let through = self.planner.through(depth, layout)?;
        let slice = self.planner.slice(depth, layout, through)?;
        Ok(tokens.saturating_sub(self.cut_tokens(&slice)?))
    }

    /// Returns the tokens that are cut from long outputs of the turns kept at the end.
    fn cut_tokens(&self, slice: &LoopSlice<'_>) -> Result<u64, StrategyError> {
        let Some(recent) = self.strategy.keep_recent(slice, &self.step.config)? else {
            return Ok(0);
        };
        if recent.replaced.is_empty() {
            return Ok(0);
        }
        let tokens = |message: &AgentMessage| slice.counter().message_tokens(message);
        let mut cut = 0;
        for placed in slice.messages(recent.turns)? {
            let mut replaced = recent.replaced.iter().filter(|(seq, _)| *seq == placed.seq);
            if let Some((_, message)) = replaced.next() {
                let left = message.as_ref().map_or(0, tokens);
                cut += tokens(&placed.message).saturating_sub(left);
            }
        }
        Ok(cut)
    }

    /// Returns the most tokens that the loops before the current one have once they are compacted.
    fn tokens_of_earlier(&self, depth: usize) -> u64 {
        let (config, chain) = (&self.step.config, &self.snapshot.chain);
        let scope = match config.compaction_scope {
            CompactionScope::FixedCount(count) => count,
            CompactionScope::TokenBudget => usize::MAX,
        };
        let from = depth.saturating_sub(scope).max(chain.start.min(depth));
        let in_scope = chain.shown[from..depth].iter();
        let in_scope: u64 = in_scope
            .map(|size| size.tokens.min(config.max_summary_tokens))
            .sum();
        let older = chain.shown[chain.start.min(from)..from].iter();
        let older: u64 = older.map(|size| size.tokens).sum();
        in_scope
            + match config.older_loops {
                OlderLoops::Skip => 0,
                OlderLoops::Rollup => older.min(config.max_rollup_tokens),
            }
    }
}
