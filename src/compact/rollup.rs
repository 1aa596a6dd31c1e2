//! Rollups: one summary for everything before the scope.

use std::ops::ControlFlow;

use super::candidate::PlacedBlock;
use super::check::check_summary;
use super::planner::{CandidatePlanner, StepPlanner};
use super::texts::TextKey;
use crate::compaction::{
    CompactionConfig, ContextMessage, Draft, LoopSlice, OlderLoops, ReadError, RollupSlice,
    StrategyError, Summary,
};
use crate::context::shown_messages;
use crate::model::{LoopId, Message, Size, Turns};
use crate::overlay::{BlockSpec, CompactedAs, first_prompt};
use crate::store::active_blocks::{ActiveBlocks, ChainLink, ChainView};
use crate::store::{self, BlockCore, BlockKind, LoopKey, StoreRead, StoreResult};

impl CandidatePlanner<'_> {
    /// True if one rollup can replace all loops of the chain, the current one included: there are several, and no
    /// turn is in flight.
    pub(super) fn rolls_up_all(&self) -> bool {
        let (leaf, links) = (self.snapshot.leaf(), &self.snapshot.chain.links);
        let wants_rollup = self.request.policy.compaction.older_loops == OlderLoops::Rollup;
        wants_rollup && links.len() > 1 && leaf.complete > 0 && leaf.complete == leaf.turns
    }
}

impl StepPlanner<'_> {
    /// Makes the rollup of the loops before `scope`, if it is smaller than their content in the context. It
    /// belongs to the newest of them that has turns; empty loops after it show nothing anyway.
    pub(super) fn rollup(&self, scope: usize) -> Result<Option<PlacedBlock>, StrategyError> {
        let (chain, base) = (&self.snapshot.chain, self.snapshot.base);
        let extends = self.snapshot.rollup().is_some();
        let (config, unsaid) = (&self.step.config, self.step.texts.unsaid());
        let most = config.max_rollup_tokens;
        if config.older_loops == OlderLoops::Skip || (most == 0 && unsaid.is_none()) {
            return Ok(None);
        }
        let newest = (base..scope)
            .rev()
            .find(|depth| chain.links[*depth].turns > 0);
        let Some(anchor) = newest.or_else(|| self.too_large_rollup()) else {
            return Ok(None);
        };
        let Some(turns) = Turns::of(0..chain.links[anchor].turns) else {
            return Ok(None);
        };
        let key = TextKey {
            depth: anchor,
            layout: None,
            tokens: most,
            stands_in: false,
        };
        let is_unsaid = unsaid.is_some();
        let draft = match unsaid {
            None => self.limited(key, &|step| {
                step.planner.note_running()?;
                let links = &chain.links[..=anchor];
                let loops = links.iter().map(|link| link.row.loop_id.clone()).collect();
                let read = |at: usize| match links.get(at) {
                    Some(link) => self.shown(link),
                    None => Ok(Vec::new()),
                };
                Ok(whole(
                    turns,
                    step.rollup_text(loops, extends, &read, config)?,
                ))
            })?,
            Some(unsaid) => whole(turns, unsaid),
        };
        let made = draft.compacted.as_ref();
        let made = made.map_or(0, |(_, summary)| self.tokens_of(summary));
        let shown: u64 = chain.shown[..=anchor].iter().map(|size| size.tokens).sum();
        let own = chain.links[anchor].row.key;
        let quotes = self.quote_tokens(own, &|pin| pin.is_hidden(own, Some(turns), true))?;
        if made + quotes >= shown || (made > most && !is_unsaid) {
            return Ok(None);
        }
        let spec = self.rollup_spec(anchor, draft)?;
        Ok(Some(self.place(anchor, spec)?))
    }

    /// Returns the place of the active rollup if it has more tokens than the step allows.
    fn too_large_rollup(&self) -> Option<usize> {
        let first = self.snapshot.chain.links[..self.snapshot.base].first()?;
        let most = match self.step.texts.unsaid() {
            None => self.step.config.max_rollup_tokens,
            Some(_) => 0,
        };
        let is_too_large = first.block.as_ref()?.size.tokens > most;
        (self.step.is_squeezed() && is_too_large).then_some(0)
    }

    fn shown(&self, link: &ChainLink) -> Result<Vec<ContextMessage>, ReadError> {
        Ok(store::read(self.planner.store, |read| {
            shown_messages(read, link, false)
        })?)
    }

    fn rollup_text(
        &self,
        loops: Vec<LoopId>,
        extends: bool,
        read: &dyn Fn(usize) -> Result<Vec<ContextMessage>, ReadError>,
        config: &CompactionConfig,
    ) -> Result<Summary, StrategyError> {
        let leaf = self.snapshot.leaf;
        let task = || {
            Ok(store::read(self.planner.store, |read| {
                task_of_chain(read, leaf)
            })?)
        };
        let strategy = |depth| {
            let block = self.planner.block_before(depth)?;
            Ok(block.map(|block| block.strategy))
        };
        let slice = RollupSlice {
            loops,
            extends,
            round: self.snapshot.round,
            counter: self.planner.store.counter(),
            cancel: &self.planner.request.cancel,
            read,
            strategy: &strategy,
            task: &task,
        };
        let summary = self.strategy.rollup(&slice, config)?;
        check_summary(&summary)?;
        Ok(summary)
    }

    fn rollup_spec(&self, anchor: usize, draft: Draft) -> StoreResult<BlockSpec> {
        let chain = &self.snapshot.chain;
        let mut spec = self.spec(BlockKind::Rollup, draft);
        spec.compacted_as = CompactedAs::RolledUp;
        let before = self.snapshot.rollup();
        // Loops that the rollup before does not cover begin after its own loop.
        let base = usize::from(before.is_some());
        spec.extends = before.map(|block| block.key);
        // The loop of the rollup before is covered by that one, unless it showed more than it.
        let shows_more = |link: &ChainLink, shown: &Size| {
            let block = link.block.as_ref();
            block.is_some_and(|b| b.layout.first.or(b.layout.recent).is_some() || b.size != *shown)
        };
        store::read(self.planner.store, |read| {
            let tokens = |link: &ChainLink| {
                Ok::<_, store::StoreError>(link.size_through(read, link.turns)?.tokens)
            };
            if let Some(before) = before {
                let before = read.block_by_key(before.key)?;
                spec.tokens_before = match anchor < base {
                    // It replaces that rollup on the same loop.
                    true => store::tokens_of_others(read, &before)?,
                    false => before.tokens_covered,
                };
            }
            for depth in base..anchor {
                spec.tokens_before += tokens(&chain.links[depth])?;
            }
            for (link, shown) in chain.links.iter().zip(&chain.shown).take(base.min(anchor)) {
                if shows_more(link, shown) {
                    spec.roll_up(read, link)?;
                }
            }
            for link in &chain.links[base.min(anchor)..anchor] {
                spec.roll_up(read, link)?;
            }
            Ok(())
        })?;
        if let Some(before) = before {
            self.cover_anew(chain.links[anchor].row.key, before, &mut spec)?;
        }
        Ok(spec)
    }

    /// Returns the sections of the next block of the rollup's loop: the text of the rollup
    /// and the turns that have aged since become one text.
    pub(super) fn carried_draft(
        &self,
        rollup: &BlockCore,
        slice: &LoopSlice<'_>,
    ) -> Result<Draft, StrategyError> {
        let recent = self.strategy.keep_recent(slice, &self.step.config)?;
        let compacted = match slice.layout.compacted {
            Some(turns) => Some((turns, self.carried_text(rollup, slice, turns)?)),
            None => None,
        };
        Ok(Draft {
            first: None,
            compacted,
            recent,
        })
    }

    fn carried_text(
        &self,
        rollup: &BlockCore,
        slice: &LoopSlice<'_>,
        turns: Turns,
    ) -> Result<Summary, StrategyError> {
        let mut shown = self.shown(&self.snapshot.chain.links[0])?;
        shown.retain(|(turn, _)| turn.is_none_or(|turn| turn < turns.end()));
        let tokens = |(_, message): &ContextMessage| slice.counter.message_tokens(message);
        let most = self.carried_tokens();
        let nothing_aged = rollup.layout.compacted == Some(turns);
        if nothing_aged && shown.iter().map(tokens).sum::<u64>() <= most {
            return Ok(Summary {
                messages: shown.into_iter().map(|(_, message)| message).collect(),
                ..Summary::default()
            });
        }
        let config = CompactionConfig {
            max_rollup_tokens: most,
            ..self.step.config.clone()
        };
        let loops = vec![slice.loop_id.clone()];
        self.rollup_text(loops, true, &|_| Ok(shown.clone()), &config)
    }

    /// Makes the next block of a loop a rollup that extends the one on it.
    pub(super) fn carried_spec(
        &self,
        rollup: &BlockCore,
        mut spec: BlockSpec,
    ) -> StoreResult<BlockSpec> {
        let says_something = |(_, summary): &(Turns, Summary)| !summary.messages.is_empty();
        if spec.draft.compacted.as_ref().is_some_and(says_something) {
            spec.compacted_as = CompactedAs::RolledUp;
        }
        spec.kind = BlockKind::Rollup;
        spec.extends = Some(rollup.key);
        spec.tokens_before = store::read(self.planner.store, |read| {
            store::tokens_of_others(read, &read.block_by_key(rollup.key)?)
        })?;
        self.cover_anew(rollup.loop_key, rollup, &mut spec)?;
        Ok(spec)
    }

    /// Returns the tokens that the text of a rollup may have that is carried on. With no rollup wanted
    /// it still replaces the loop's own turns.
    pub(super) fn carried_tokens(&self) -> u64 {
        let config = &self.step.config;
        match config.max_rollup_tokens {
            0 => config.max_summary_tokens,
            most => most,
        }
    }
}

/// Returns sections in which a summary replaces all turns of a loop.
fn whole(turns: Turns, summary: Summary) -> Draft {
    Draft {
        compacted: Some((turns, summary)),
        ..Draft::default()
    }
}

/// Returns the text of the first prompt of a chain: the prompt of the root, unless it has none.
fn task_of_chain(read: &dyn StoreRead, leaf: LoopKey) -> StoreResult<Option<String>> {
    let mut chain = Vec::new();
    read.walk(leaf, &mut |row| {
        chain.push((row.key, row.edits > 0));
        Ok(ControlFlow::Continue(()))
    })?;
    let mut walk = ActiveBlocks::new(read, leaf, ChainView::default());
    for (loop_key, is_edited) in chain.into_iter().rev() {
        let edits = match is_edited {
            true => walk.live_edits(loop_key)?,
            false => None,
        };
        if let Some((prompt, _)) = first_prompt(read, loop_key, u32::MAX, edits.as_ref())? {
            return Ok(prompt.message().and_then(Message::prompt_text));
        }
    }
    Ok(None)
}
