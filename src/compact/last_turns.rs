//! The steps of the fallback that keep the last turns that fit, and texts for what came before; or texts alone.

use std::rc::Rc;

use super::candidate::{
    CompactionCandidate, FallbackStep, LAST_TURNS, NO_TURNS, Prune, TextSource,
};
use super::fallback::{BYTES_OF_A_TOKEN, Ladder};
use super::planner::CandidatePlanner;
use super::room::{TurnForms, hardest_pruning, left_of, mildest_pruning, size_of_turns};
use crate::compaction::plan::ChainTurn;
use crate::compaction::{
    Budget, CompactionConfig, CompactionScope, KeepRecent, OlderLoops, RecentWindow, StrategyError,
};
use crate::model::{Size, Turns};
use crate::overlay::shown_size_of;
use crate::store::append::size_through;
use crate::store::{self, BlockKind, Section};

/// Tokens below which a text is not worth having.
const LEAST_TEXT: u64 = 24;

/// Tokens of texts that no turn may take, up to a quarter of the aim: a document with a few lines for each section.
const TEXT_BEFORE_TURNS: u64 = 400;

/// Tokens of the text for the middle of a loop, and of the rollup of the loops before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TextLimits {
    pub(super) summary: u64,
    pub(super) rollup: u64,
}

impl TextLimits {
    fn of(config: &CompactionConfig) -> Self {
        Self {
            summary: config.max_summary_tokens,
            rollup: config.max_rollup_tokens,
        }
    }

    fn tokens(self) -> u64 {
        self.summary.saturating_add(self.rollup)
    }

    fn size(self) -> Size {
        Size {
            tokens: self.tokens(),
            bytes: self.tokens().saturating_mul(BYTES_OF_A_TOKEN),
            messages: 0,
        }
    }

    /// Cuts both to fit `room`, each in proportion.
    fn within(self, room: Budget) -> Self {
        let of_bytes = room.bytes.map(|bytes| bytes / BYTES_OF_A_TOKEN);
        let most = room.tokens.min(of_bytes.unwrap_or(u64::MAX));
        let all = u128::from(self.tokens().max(1));
        let part = |limit: u64| {
            let part = u128::from(limit) * u128::from(most) / all;
            limit.min(u64::try_from(part).unwrap_or(limit))
        };
        Self {
            summary: part(self.summary),
            rollup: part(self.rollup),
        }
    }
}

/// The turns that may be kept at the end, newest first.
#[derive(Default)]
struct Available {
    turns: Vec<Rc<TurnForms>>,
    /// Tokens that a text replaces if a turn is the first kept one: the turns before it in its loop.
    before: Vec<u64>,
}

/// The estimated size of a context with the last turns, and texts for the rest.
struct ContextEstimate<'a> {
    available: &'a Available,
    /// The size of everything but the turns and the texts.
    rest: Size,
    limits: TextLimits,
    /// The tokens of the texts of the candidate before.
    made: Option<TextLimits>,
}

impl ContextEstimate<'_> {
    /// Returns the approximate tokens of the texts if so many turns are kept.
    fn texts(&self, count: usize) -> TextLimits {
        let before = count.checked_sub(1).map(|at| self.available.before[at]);
        // A text has at most about half of the tokens that it replaces, and not much more than the last text had.
        let half = before.unwrap_or(u64::MAX) / 2;
        let made = self.made.map(|made| made.summary).filter(|made| *made > 0);
        let summary = made.map_or(half, |made| half.min(made + made / 4));
        let rollup = self.made.map_or(self.limits.rollup, |made| made.rollup);
        TextLimits {
            summary: summary.min(self.limits.summary),
            rollup: rollup.min(self.limits.rollup),
        }
    }

    fn besides(&self, count: usize) -> Size {
        let mut size = self.rest;
        size.add(self.texts(count).size());
        size
    }

    fn turns(&self, count: usize) -> &[Rc<TurnForms>] {
        &self.available.turns[..count]
    }

    /// Returns the size of so many turns without any text, each as small as possible.
    fn smallest(&self, count: usize) -> Size {
        let (turns, mut size) = (self.turns(count), self.rest);
        size.add(size_of_turns(turns, Some(hardest_pruning(turns, false))));
        size
    }

    fn size(&self, count: usize, prune: Prune) -> Size {
        let mut size = self.besides(count);
        size.add(size_of_turns(self.turns(count), Some(prune)));
        size
    }

    /// Returns the number of turns that fit a budget, each as small as possible.
    fn most(&self, budget: Budget) -> Option<usize> {
        let fits = |count: &usize| {
            let hardest = hardest_pruning(self.turns(*count), false);
            budget.fits(self.size(*count, hardest))
        };
        (1..=self.available.turns.len()).rev().find(fits)
    }

    fn mildest(&self, count: usize, budget: Budget) -> Prune {
        let room = left_of(budget, self.besides(count));
        mildest_pruning(self.turns(count), room, false)
    }
}

impl CandidatePlanner<'_> {
    /// Returns the size of what no step gives up: the turn in flight, and the quotes of pinned messages.
    pub(super) fn fixed_size(&self) -> Result<Size, StrategyError> {
        let leaf = self.snapshot.leaf();
        let mut size = store::read(self.store, |read| {
            let through = |turns| size_through(read, leaf.row.key, turns);
            Ok(through(leaf.turns)?.without(through(leaf.complete)?))
        })?;
        size.add(self.quotes_size()?);
        Ok(size)
    }
}

impl Ladder<'_> {
    /// Keeps the last turns that fit, after a text for the turns before. The rest of the budget goes to their
    /// outputs, then to turns at the start, then to the texts.
    pub(super) fn last_turns(
        &self,
        from: &CompactionCandidate,
        is_first: bool,
    ) -> Result<Option<FallbackStep>, StrategyError> {
        let available = self.available()?;
        let mut room = match is_first {
            true => ContextEstimate {
                available: &available,
                rest: self.planner.fixed_size()?,
                limits: self.text_limits(),
                made: None,
            },
            false => self.room_left_by(from, &available)?,
        };
        let least = available.turns.len().min(1);
        if room.most(self.aim).is_none() {
            // The texts yield to the last turn.
            let limits = room.limits;
            room.limits = limits.within(left_of(self.aim, room.smallest(least)));
        }
        let least_text = LEAST_TEXT.max(TEXT_BEFORE_TURNS.min(self.aim.tokens / 4));
        if room.limits.tokens() < least_text.min(self.text_limits().tokens()) {
            return Ok(None);
        }
        let mut count = room.most(self.aim).unwrap_or(least);
        let mut prune = room.mildest(count, self.aim);
        if !self.is_enough(room.size(count, prune))
            && let Some(more) = room.most(self.target).filter(|more| *more > count)
        {
            (count, prune) = (more, room.mildest(more, self.target));
        }
        let is_stuck = !is_first && self.is_stuck(from, count, prune);
        if is_stuck && count < available.turns.len() {
            // A turn more, for which the texts yield.
            let smallest = room.smallest(count + 1);
            let limits = room.limits.within(left_of(self.aim, smallest));
            if limits.tokens() >= least_text {
                (count, room.limits) = (count + 1, limits);
                prune = room.mildest(count, self.target);
            }
        }
        let mut spare = left_of(self.aim, room.size(count, prune));
        let first = self.first_within(room.turns(count), &mut spare)?;
        if !is_first && from.step.recent as usize == count {
            room.limits = self.more_text(from, room.limits, spare.tokens);
        }
        let recent = u32::try_from(count).unwrap_or(u32::MAX);
        let config = CompactionConfig {
            keep_first_turns: first,
            keep_recent: KeepRecent::Turns(recent),
            compaction_scope: CompactionScope::FixedCount(0),
            max_summary_tokens: room.limits.summary,
            // With none the loops before would stay as they are.
            max_rollup_tokens: room.limits.rollup.max(1),
            fills_window: false,
            ..from.step.config.clone()
        };
        let before = &from.step.config;
        let is_same = !is_first
            && from.step.prune == Some(prune)
            && from.step.recent == recent
            && before.keep_first_turns == first
            && TextLimits::of(before) == TextLimits::of(&config);
        Ok((!is_same).then_some(FallbackStep {
            name: Some(LAST_TURNS),
            config,
            recent,
            prune: Some(prune),
            texts: TextSource::Limited,
        }))
    }

    /// Keeps no complete turn: the texts for them get all that pinned messages and the turn in flight leave. If no
    /// turn is in flight, one text replaces all loops.
    pub(super) fn no_turns(
        &self,
        from: &CompactionCandidate,
        is_first: bool,
    ) -> Result<Option<FallbackStep>, StrategyError> {
        let planner = self.planner;
        let limits = match is_first {
            true => self.all_to_texts(left_of(self.aim, planner.fixed_size()?)),
            false => {
                let (made, limits) = (self.texts_of(from), TextLimits::of(&from.step.config));
                let rest = from.after.without(made.size());
                let most = left_of(self.aim, rest);
                match self.target.fits(from.after) {
                    true => self.more_text(from, limits, most.tokens.saturating_sub(made.tokens())),
                    false => limits.within(most),
                }
            }
        };
        let config = CompactionConfig {
            keep_first_turns: 0,
            keep_recent: KeepRecent::Turns(0),
            compaction_scope: CompactionScope::FixedCount(0),
            max_summary_tokens: limits.summary,
            // With none the loops before would stay as they are.
            max_rollup_tokens: limits.rollup.max(1),
            fills_window: false,
            ..planner.request.policy.compaction.clone()
        };
        let is_same = !is_first && TextLimits::of(&from.step.config) == TextLimits::of(&config);
        if limits.tokens() < LEAST_TEXT || is_same {
            return Ok(None);
        }
        Ok(Some(FallbackStep {
            name: Some(NO_TURNS),
            config,
            recent: 0,
            prune: None,
            texts: TextSource::Limited,
        }))
    }

    /// Returns the limits of texts that get a whole budget.
    fn all_to_texts(&self, budget: Budget) -> TextLimits {
        let snapshot = self.planner.snapshot;
        let limits = |summary, rollup| TextLimits { summary, rollup }.within(budget);
        let has_older = snapshot.chain.links.len() > 1 || snapshot.rollup().is_some();
        let is_skipped = self.planner.request.policy.compaction.older_loops == OlderLoops::Skip;
        match (has_older && !is_skipped, snapshot.leaf().complete) {
            (false, _) => limits(u64::MAX / 4, 0),
            (true, 0) => limits(0, u64::MAX / 4),
            (true, _) if self.planner.rolls_up_all() => limits(0, u64::MAX / 4),
            (true, _) => limits(u64::MAX / 4, u64::MAX / 4),
        }
    }

    /// True if a candidate uses too little of the target, and the next one would keep the same turns.
    fn is_stuck(&self, from: &CompactionCandidate, count: usize, prune: Prune) -> bool {
        let is_same = from.step.recent as usize == count && from.step.prune == Some(prune);
        is_same && self.target.fits(from.after) && !self.is_enough(from.after)
    }

    /// Returns the estimate for the next step, corrected by a candidate of this step.
    fn room_left_by<'a>(
        &self,
        from: &CompactionCandidate,
        available: &'a Available,
    ) -> Result<ContextEstimate<'a>, StrategyError> {
        let turns = self.planner.kept_at_the_end(from)?;
        let made = self.texts_of(from);
        let mut rest = self.rest_of(from, &turns);
        for size in self.first_turns(from)? {
            rest = rest.without(size);
        }
        Ok(ContextEstimate {
            available,
            rest: rest.without(made.size()),
            limits: TextLimits::of(&from.step.config),
            made: Some(made),
        })
    }

    /// Counts the turns from the start of the leaf, at most the configured number and none of `kept`, that
    /// fit the rest of the budget, and subtracts them from it.
    fn first_within(
        &self,
        kept: &[Rc<TurnForms>],
        spare: &mut Budget,
    ) -> Result<u32, StrategyError> {
        let snapshot = self.planner.snapshot;
        let leaf = snapshot.chain.links.len() - 1;
        if snapshot.rollup_on(leaf).is_some() {
            return Ok(0);
        }
        let in_leaf = kept.iter().filter(|turn| turn.at.depth == leaf).count() as u32;
        let free = snapshot.leaf().complete.saturating_sub(in_leaf);
        let most = self
            .planner
            .request
            .policy
            .compaction
            .keep_first_turns
            .min(free);
        Ok(store::read(self.planner.store, |read| {
            for turn in 0..most {
                let size = shown_size_of(read, snapshot.leaf(), Turns::only(turn))?;
                if !spare.fits(size) {
                    return Ok(turn);
                }
                *spare = left_of(*spare, size);
            }
            Ok(most)
        })?)
    }

    /// Returns the turns that may be kept at the end, newest first, as many as could fit.
    fn available(&self) -> Result<Available, StrategyError> {
        let snapshot = self.planner.snapshot;
        let window = self.planner.request.policy.compaction.recent_window;
        let mut available = Available::default();
        let mut spent = Size::default();
        for depth in (snapshot.base..snapshot.chain.links.len()).rev() {
            let is_leaf = depth + 1 == snapshot.chain.links.len();
            let facts = &snapshot.facts[depth - snapshot.base];
            if !is_leaf && window == RecentWindow::CurrentLoop {
                break;
            }
            let key = snapshot.chain.links[depth].row.key;
            for turn in (facts.rolled_up..facts.turns).rev() {
                let count = available.turns.len();
                if count >= snapshot.chain.recent as usize || !self.target.fits(spent) {
                    return Ok(available);
                }
                let forms = self.planner.forms_of(ChainTurn { depth, turn })?;
                let one = std::slice::from_ref(&forms);
                spent.add(size_of_turns(one, Some(hardest_pruning(one, false))));
                available.turns.push(forms);
                // The rollup on a loop replaces its own turns too.
                available.before.push(match facts.rolled_up {
                    0 => {
                        store::read(self.planner.store, |read| size_through(read, key, turn))?
                            .tokens
                    }
                    _ => 0,
                });
            }
        }
        Ok(available)
    }

    /// Returns the tokens that the texts of a candidate have.
    pub(super) fn texts_of(&self, candidate: &CompactionCandidate) -> TextLimits {
        let mut made = TextLimits::default();
        for placed in &candidate.blocks {
            let messages = placed.block.messages.iter();
            let own = messages.filter(|message| {
                message.section == Section::Compacted && message.quotes.is_none()
            });
            let tokens = own.filter_map(|message| Some(message.body.as_ref()?.tokens));
            match placed.block.row.kind {
                BlockKind::Rollup | BlockKind::Sealed(_) => made.rollup += tokens.sum::<u64>(),
                BlockKind::Current | BlockKind::Earlier => made.summary += tokens.sum::<u64>(),
            }
        }
        made
    }

    /// Returns the limits of texts when only the last turns are kept: up to half of the aim, and no more than
    /// configured.
    fn text_limits(&self) -> TextLimits {
        let (config, snapshot) = (
            &self.planner.request.policy.compaction,
            self.planner.snapshot,
        );
        let of_bytes = self
            .aim
            .bytes
            .map_or(u64::MAX, |bytes| bytes / BYTES_OF_A_TOKEN);
        let half = self.aim.tokens.min(of_bytes) / 2;
        let has_older = snapshot.chain.links.len() > 1 || snapshot.rollup().is_some();
        let (summary, rollup) = match (has_older, config.older_loops, snapshot.leaf().complete) {
            (false, ..) | (_, OlderLoops::Skip, _) => (half, 0),
            // A loop of so few turns is mostly kept.
            (_, _, 0..=2) => (half / 4, half),
            _ => (half / 2, half / 2),
        };
        TextLimits {
            summary: config.max_summary_tokens.min(summary),
            rollup: match config.max_rollup_tokens {
                0 => rollup,
                most => most.min(rollup),
            },
        }
    }

    /// Gives the rest of the budget to the texts that filled their limits, beyond the configured limits.
    fn more_text(
        &self,
        from: &CompactionCandidate,
        mut limits: TextLimits,
        spare: u64,
    ) -> TextLimits {
        let made = self.texts_of(from);
        let is_full = |made: u64, limit: u64| made > 0 && made + made / 10 >= limit;
        match is_full(made.summary, limits.summary) {
            true => limits.summary += spare,
            false if is_full(made.rollup, limits.rollup) => limits.rollup += spare,
            false => {}
        }
        limits
    }
}
