//! Rollups: one summary for everything before the scope.

use std::ops::ControlFlow;

use super::blocks;
use super::planner::{Made, Planner};
use crate::compaction::plan::{Answer, Kept, LoopFacts, Spot, window};
use crate::compaction::{
    CompactionConfig, ContextConfig, Draft, LoopSlice, OlderLoops, RollupSlice, Shown,
    StrategyError, Summary, cut_recent,
};
use crate::context::shown_messages;
use crate::model::{LoopId, Role};
use crate::store::active_blocks::ChainLink;
use crate::store::append::size_through;
use crate::store::{
    self, BlockCore, BlockKind, BlockMessage, CoverageRow, Disposition, Layout, LoopKey, NewBlock,
    Section, Size, StoreRead, StoreResult, Turns, codec,
};

/// Returns the tokens that a plan may spend: the window without the system prompt and a rollup.
pub(super) fn budget(config: &CompactionConfig, limits: &ContextConfig) -> u64 {
    let budget = limits.budget().tokens;
    match config.older_loops {
        OlderLoops::Skip => budget,
        OlderLoops::Rollup => budget.saturating_sub(config.max_rollup_tokens),
    }
}

/// Returns the facts of the loops from `base` on, counted from there.
pub(super) fn facts_from(facts: &[LoopFacts], base: usize) -> Vec<LoopFacts> {
    let shifted = |answer: &Answer| {
        let depth = answer.call.depth.checked_sub(base)?;
        let call = Spot {
            depth,
            ..answer.call
        };
        Some(Answer { call, ..*answer })
    };
    let of_loop = |facts: &LoopFacts| {
        let before = facts
            .answers
            .iter()
            .filter(|answer| answer.call.depth < base);
        let orphans = before.map(|answer| answer.turn);
        LoopFacts {
            answers: facts.answers.iter().filter_map(shifted).collect(),
            orphans: orphans.chain(facts.orphans.iter().copied()).collect(),
            ..facts.clone()
        }
    };
    facts[base..].iter().map(of_loop).collect()
}

impl Planner<'_> {
    /// Makes the rollup of the loops before `scope`, if that is smaller than what they show. It
    /// stands on the newest of them that has turns; empty ones after it show nothing anyway.
    pub(super) fn rollup(&mut self, scope: usize) -> Result<Option<Made>, StrategyError> {
        let snapshot = self.snapshot;
        let (chain, base) = (&snapshot.chain, snapshot.base);
        let most = self.step.config.max_rollup_tokens;
        let leaves_them = most == 0 && self.step.texts;
        if self.step.config.older_loops == OlderLoops::Skip || leaves_them {
            return Ok(None);
        }
        let newest = (base..scope)
            .rev()
            .find(|depth| chain.links[*depth].turns > 0);
        let Some(anchor) = newest.or_else(|| self.too_large_rollup()) else {
            return Ok(None);
        };
        let links = &chain.links[..=anchor];
        let summary = self.rollup_summary(anchor, links)?;
        let counter = self.store.counter();
        let made: u64 = summary
            .messages
            .iter()
            .map(|m| counter.message_tokens(m))
            .sum();
        let shown: u64 = chain.shown[..=anchor].iter().map(|size| size.tokens).sum();
        if made >= shown || made > most {
            return Ok(None);
        }
        let block = store::read(self.store, |read| self.rollup_block(read, anchor, &summary))?;
        Ok(Some(Made {
            depth: anchor,
            block,
        }))
    }

    /// Returns the text of a rollup; asked for once, however often the plan settles again.
    fn rollup_summary(
        &mut self,
        anchor: usize,
        links: &[ChainLink],
    ) -> Result<Summary, StrategyError> {
        if !self.step.texts {
            return Ok(Summary::default());
        }
        let key = (anchor, self.step.config.max_rollup_tokens);
        if let Some(summary) = self.rollups.get(&key) {
            return Ok(summary.clone());
        }
        let summary = self.rollup_text(links)?;
        self.note(&summary);
        self.rollups.insert(key, summary.clone());
        Ok(summary)
    }

    /// Returns the place of the rollup in force if it has more tokens than the step allows.
    fn too_large_rollup(&self) -> Option<usize> {
        let first = self.snapshot.chain.links[..self.snapshot.base].first()?;
        let most = match self.step.texts {
            true => self.step.config.max_rollup_tokens,
            false => 0,
        };
        let is_too_large = first.block.as_ref()?.size.tokens > most;
        (self.step.is_squeezed() && is_too_large).then_some(0)
    }

    fn rollup_text(&self, links: &[ChainLink]) -> Result<Summary, StrategyError> {
        let read = |at: usize| match links.get(at) {
            Some(link) => store::read(self.store, |read| shown_messages(read, link)),
            None => Ok(Vec::new()),
        };
        let loops = links.iter().map(|link| link.row.loop_id.clone()).collect();
        self.text_of(loops, self.snapshot.base > 0, &read, &self.step.config)
    }

    fn text_of(
        &self,
        loops: Vec<LoopId>,
        extends: bool,
        read: &dyn Fn(usize) -> StoreResult<Vec<Shown>>,
        config: &CompactionConfig,
    ) -> Result<Summary, StrategyError> {
        let task = || store::read(self.store, |read| first_prompt(read, self.snapshot.leaf));
        let slice = RollupSlice {
            loops,
            extends,
            round: self.snapshot.round,
            counter: self.store.counter(),
            read,
            task: &task,
        };
        let summary = self.strategy.rollup(&slice, config)?;
        blocks::check_summary(&summary).map_err(StrategyError::Failed)?;
        Ok(summary)
    }

    fn rollup_block(
        &self,
        read: &dyn StoreRead,
        anchor: usize,
        summary: &Summary,
    ) -> StoreResult<NewBlock> {
        let (chain, base) = (&self.snapshot.chain, self.snapshot.base);
        let turns = chain.links[anchor].turns;
        let layout = Layout {
            compacted: Turns::of(0..turns),
            ..Layout::default()
        };
        let through = blocks::through(read, &chain.links[anchor], turns)?;
        let mut row = self.row(anchor, BlockKind::Rollup, layout, through, summary);
        let before = chain.links[..base].last();
        if let Some(before) = before.and_then(|link| link.block.as_ref()) {
            row.extends = Some(before.key);
            row.tokens_covered = read.block_by_key(before.key)?.tokens_covered;
        }
        for link in &chain.links[base..=anchor] {
            row.tokens_covered += size_through(read, link.row.key, link.turns)?.tokens;
        }
        let mut block = NewBlock {
            row,
            messages: Vec::new(),
            coverage: Vec::new(),
            blobs: Vec::new(),
        };
        for message in &summary.messages {
            let (stored, blobs) = codec::encode(message.clone(), self.store.counter())?;
            block.row.size.add(Size {
                tokens: stored.tokens,
                bytes: stored.bytes,
                messages: 1,
            });
            block.blobs.extend(blobs);
            block.messages.push(BlockMessage {
                section: Section::Compacted,
                replaces: None,
                body: Some(stored),
            });
        }
        // The loop of the rollup before is covered by that one, unless it showed more than it.
        let shows_more = |link: &ChainLink, shown: &Size| {
            let block = link.block.as_ref();
            block.is_some_and(|b| b.layout.first.or(b.layout.recent).is_some() || b.size != *shown)
        };
        for (depth, link) in chain.links[..=anchor].iter().enumerate() {
            if depth >= base.min(anchor) || shows_more(link, &chain.shown[depth]) {
                block.coverage.push(rolled_up(read, link)?);
            }
        }
        Ok(block)
    }

    /// Returns what is kept of a leaf on which a rollup stands.
    pub(super) fn aged(&self, rollup: &BlockCore) -> (usize, Kept) {
        let depth = self.snapshot.chain.links.len() - 1;
        let config = CompactionConfig {
            keep_first_turns: 0,
            ..self.step.config.clone()
        };
        let facts = facts_from(&self.snapshot.chain.facts, depth);
        let mut kept = window(&facts, &config, self.step.recent)[0];
        let aged = rollup.layout.compacted.map_or(0, Turns::end);
        kept.recent = whole_pairs(&facts[0], kept.recent).max(aged);
        (depth, kept)
    }

    /// Returns the sections of the next block of a leaf on which a rollup stands: the text of that
    /// one and the turns that have aged since become one text.
    pub(super) fn leaf_draft(
        &self,
        rollup: &BlockCore,
        slice: &LoopSlice<'_>,
    ) -> Result<Draft, StrategyError> {
        let recent = match self.step.texts {
            true => self.strategy.keep_recent(slice, &self.step.config)?,
            false => cut_recent(slice, &self.step.config)?,
        };
        let summary = match slice.layout.compacted {
            Some(turns) if self.step.texts => self.leaf_text(rollup, slice, turns)?,
            _ => Summary::default(),
        };
        Ok(Draft {
            first: None,
            compacted: slice.layout.compacted.map(|turns| (turns, summary)),
            recent,
        })
    }

    fn leaf_text(
        &self,
        rollup: &BlockCore,
        slice: &LoopSlice<'_>,
        turns: Turns,
    ) -> Result<Summary, StrategyError> {
        let link = &self.snapshot.chain.links[self.snapshot.chain.links.len() - 1];
        let mut shown = store::read(self.store, |read| shown_messages(read, link))?;
        shown.retain(|(turn, _)| turn.is_none_or(|turn| turn < turns.end()));
        let counter = self.store.counter();
        let tokens = |(_, message): &Shown| counter.message_tokens(message);
        let most = self.leaf_tokens();
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
        self.text_of(loops, true, &|_| Ok(shown.clone()), &config)
    }

    /// Returns the tokens that the text of a rollup on the leaf may have. With no rollup wanted it
    /// still stands for the loop's own turns.
    pub(super) fn leaf_tokens(&self) -> u64 {
        let config = &self.step.config;
        match config.max_rollup_tokens {
            0 => config.max_summary_tokens,
            most => most,
        }
    }
}

/// Returns the first prompt of the root of a chain.
fn first_prompt(read: &dyn StoreRead, leaf: LoopKey) -> StoreResult<Option<String>> {
    let mut root = leaf;
    read.walk(leaf, &mut |row| {
        root = row.key;
        Ok(ControlFlow::Continue(()))
    })?;
    let mut prompt = None;
    read.messages(root, 0..u32::MAX, &mut |row| {
        if row.body.role != Role::User {
            return Ok(ControlFlow::Continue(()));
        }
        let message = store::decode(read, row.body)?;
        let texts = message
            .message()
            .map(|m| m.texts().collect::<Vec<_>>().join("\n"));
        prompt = texts;
        Ok(ControlFlow::Break(()))
    })?;
    Ok(prompt)
}

/// Moves the beginning of the recent turns back until it parts no call from its result.
fn whole_pairs(facts: &LoopFacts, mut recent: u32) -> u32 {
    loop {
        let parted = facts.answers.iter().filter(|answer| {
            answer.call.depth == 0 && answer.call.turn < recent && recent <= answer.turn
        });
        match parted.map(|answer| answer.call.turn).min() {
            Some(turn) => recent = turn,
            None => return recent,
        }
    }
}

fn rolled_up(read: &dyn StoreRead, link: &ChainLink) -> StoreResult<CoverageRow> {
    let through = blocks::through(read, link, link.turns)?;
    Ok(CoverageRow {
        loop_key: link.row.key,
        seqs: through.checked_sub(1).map(|last| (0, last)),
        turns: link.turns.checked_sub(1).map(|last| (0, last)),
        disposition: Disposition::RolledUp,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boundary_moves_back_over_every_pair() {
        let answer = |turn, call| Answer {
            turn,
            call: Spot {
                depth: 0,
                turn: call,
            },
        };
        let facts = LoopFacts {
            turns: 9,
            hidden: None,
            answers: vec![answer(7, 5), answer(5, 2)],
            ..LoopFacts::default()
        };
        assert_eq!(whole_pairs(&facts, 6), 2);
        assert_eq!(whole_pairs(&facts, 8), 8);
    }

    #[test]
    fn facts_are_counted_from_the_base() {
        let mut facts = vec![LoopFacts::default(), LoopFacts::default()];
        let call = |depth| Spot { depth, turn: 0 };
        facts[1].answers = vec![
            Answer {
                turn: 1,
                call: call(0),
            },
            Answer {
                turn: 1,
                call: call(1),
            },
        ];
        let shifted = facts_from(&facts, 1);
        assert_eq!(
            shifted[0].answers,
            [Answer {
                turn: 1,
                call: call(0)
            }]
        );
    }
}
