//! The plan: the turns of each loop that a compaction keeps, computed from numbers of turns, without messages.
//!
//! First the recent window is applied to the chain, then the scope is determined, then boundaries are moved until no
//! call is separated from its result. Summaries are made afterwards: if one is not smaller than the turns that it
//! replaces, [`Plan::keep`] keeps these turns, and the plan is settled again.

use super::config::{CompactionConfig, CompactionScope, OlderLoops, RecentWindow};
use crate::{Layout, Turns};

/// The facts about one loop of the chain that the plan needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoopFacts {
    /// The number of turns to plan: for the leaf its complete turns, for another loop the turns up to its
    /// continuation.
    pub turns: u32,
    /// The number of turns at its start that the rollup on it summarises; they remain summarised.
    pub rolled_up: u32,
    /// The turns that the active block hides.
    pub hidden: Option<Turns>,
    /// The results of calls of other turns.
    pub answers: Vec<ForeignAnswer>,
    /// The turns with a result whose call is before the planned turns, in a rollup.
    pub orphans: Vec<u32>,
}

/// A result of a call in another turn of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignAnswer {
    /// The turn with the result.
    pub turn: u32,
    /// The turn with the call.
    pub call: ChainTurn,
}

/// A turn of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChainTurn {
    /// The index of its loop, counted from the root.
    pub depth: usize,
    /// The turn.
    pub turn: u32,
}

/// The kept turns of one loop: turns before `first` are unchanged, turns from `recent` on have long tool outputs cut,
/// and the turns between are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptTurns {
    /// The number of turns to plan.
    pub turns: u32,
    /// The first turn that is not kept at the start.
    pub first: u32,
    /// The first turn that is kept at the end.
    pub recent: u32,
    /// True if the whole loop is unchanged.
    pub raw: bool,
}

impl KeptTurns {
    /// Returns the turns that are replaced.
    pub fn middle(&self) -> Option<Turns> {
        if self.raw {
            None
        } else {
            Turns::of(self.first..self.recent)
        }
    }

    /// Returns the sections.
    pub fn layout(&self) -> Layout {
        if self.raw {
            return Layout {
                first: Turns::of(0..self.turns),
                ..Layout::default()
            };
        }
        Layout {
            first: Turns::of(0..self.first),
            compacted: self.middle(),
            recent: Turns::of(self.recent..self.turns),
        }
    }

    fn keeps(&self, turn: u32) -> bool {
        self.raw || turn < self.first || turn >= self.recent
    }
}

/// The tokens of loops, for a scope that is a token budget.
pub trait LoopCosts {
    /// The error of a failed query.
    type Error;
    /// Returns the tokens of a loop as planned: its kept turns uncut, and at most the tokens of a summary for its
    /// middle.
    ///
    /// # Errors
    /// If the tokens cannot be determined.
    fn planned(&mut self, depth: usize, kept: &KeptTurns) -> Result<u64, Self::Error>;
    /// Returns the tokens of a loop with its active block.
    ///
    /// # Errors
    /// If the tokens cannot be determined.
    fn active_tokens(&mut self, depth: usize) -> Result<u64, Self::Error>;
}

/// The kept turns of a chain.
pub struct Plan<'a> {
    facts: &'a [LoopFacts],
    config: &'a CompactionConfig,
    /// Tokens for messages: the window without the system prompt.
    budget: u64,
    kept: Vec<KeptTurns>,
    scope: usize,
    /// Turns that must not be separated from the turn before, though no call connects them.
    joined: Vec<(ChainTurn, ChainTurn)>,
    /// True if the loops before the scope get no rollup and are unchanged.
    keeps_older: bool,
}

impl<'a> Plan<'a> {
    /// Returns a plan with a recent window of `recent` turns. `facts` are the loops from the root, or from the first
    /// planned loop, to the leaf.
    pub fn new(
        facts: &'a [LoopFacts],
        config: &'a CompactionConfig,
        recent: u32,
        budget: u64,
    ) -> Self {
        let kept = window(facts, config, recent);
        Self {
            facts,
            config,
            budget,
            kept,
            scope: facts.len().saturating_sub(1),
            joined: Vec::new(),
            keeps_older: config.max_rollup_tokens == 0,
        }
    }

    /// Keeps the loops before the scope unchanged, since a rollup of them would not be smaller.
    #[must_use]
    pub fn keeping_older(mut self) -> Self {
        self.keeps_older = true;
        self
    }

    /// Connects a turn of a loop to the one before it: no boundary may separate them.
    pub fn join(&mut self, depth: usize, turn: u32) {
        let before = turn.saturating_sub(1);
        let at = |turn| ChainTurn { depth, turn };
        self.joined.push((at(before), at(turn)));
    }

    /// Moves the boundaries until no pair is separated, and determines the scope again after each move.
    ///
    /// # Errors
    /// The errors of `costs`.
    pub fn settle<C: LoopCosts>(&mut self, costs: &mut C) -> Result<(), C::Error> {
        loop {
            self.scope = self.scope_for(costs)?;
            if !self.grow_for_a_pair() {
                return Ok(());
            }
        }
    }

    /// Returns the index of the first loop in scope; the loops before it are older.
    pub fn scope(&self) -> usize {
        self.scope
    }

    /// Keeps the middle of a loop, since its replacement would not be smaller.
    pub fn keep(&mut self, depth: usize) {
        let leaf = self.leaf();
        let kept = &mut self.kept[depth];
        if depth == leaf {
            kept.first = kept.recent;
        } else {
            kept.raw = true;
        }
    }

    /// Returns the loops in scope with their kept turns.
    pub fn in_scope(&self) -> impl Iterator<Item = (usize, KeptTurns)> + '_ {
        self.kept.iter().copied().enumerate().skip(self.scope)
    }

    fn leaf(&self) -> usize {
        self.kept.len() - 1
    }

    fn scope_for<C: LoopCosts>(&self, costs: &mut C) -> Result<usize, C::Error> {
        let (reached, leaf) = (reached(&self.kept), self.leaf());
        if let CompactionScope::FixedCount(count) = self.config.compaction_scope {
            return Ok(reached.min(leaf.saturating_sub(count)));
        }
        let mut spent = 0u64;
        for (depth, kept) in self.kept.iter().enumerate().skip(reached) {
            spent = spent.saturating_add(costs.planned(depth, kept)?);
        }
        let most = self.config.max_summary_tokens;
        fit(self.budget, spent, reached, |depth| {
            Ok(costs.active_tokens(depth)?.min(most))
        })
    }

    fn grow_for_a_pair(&mut self) -> bool {
        for (first, second) in self.joined.clone() {
            if self.grow(first, second) {
                return true;
            }
        }
        let facts = self.facts;
        for (depth, loop_facts) in facts.iter().enumerate() {
            for answer in &loop_facts.answers {
                let result = ChainTurn {
                    depth,
                    turn: answer.turn,
                };
                if self.grow(answer.call, result) {
                    return true;
                }
            }
        }
        false
    }

    /// Moves the boundary that separates this call from this result; returns true if there was one.
    fn grow(&mut self, call: ChainTurn, result: ChainTurn) -> bool {
        if call.depth == result.depth {
            let rolled_up = self.facts[call.depth].rolled_up;
            return call.depth >= self.scope
                && call.turn >= rolled_up
                && grow_within(&mut self.kept[call.depth], call, result);
        }
        if call.turn < self.facts[call.depth].rolled_up {
            return false;
        }
        match (self.stays(call), self.stays(result)) {
            (false, true) if result.depth >= self.scope => {
                self.kept[call.depth].recent = call.turn;
                true
            }
            (true, false) if result.depth >= self.scope => {
                let leaf = self.leaf();
                let kept = &mut self.kept[result.depth];
                if result.depth == leaf {
                    kept.first = result.turn + 1;
                } else {
                    kept.recent = result.turn;
                }
                true
            }
            _ => false,
        }
    }

    /// True if a turn is kept, unchanged or cut.
    fn stays(&self, spot: ChainTurn) -> bool {
        if spot.depth >= self.scope {
            return self.kept[spot.depth].keeps(spot.turn);
        }
        match self.config.older_loops {
            OlderLoops::Skip => false,
            OlderLoops::Rollup if !self.keeps_older => false,
            OlderLoops::Rollup => !is_hidden(&self.facts[spot.depth], spot.turn),
        }
    }
}

/// True if the active block of a loop hides a turn.
#[doc(hidden)]
pub fn is_hidden(facts: &LoopFacts, turn: u32) -> bool {
    facts
        .hidden
        .is_some_and(|hidden| hidden.first <= turn && turn <= hidden.last)
}

/// Returns the turns of each loop that a window of `recent` turns keeps.
#[doc(hidden)]
pub fn window(facts: &[LoopFacts], config: &CompactionConfig, recent: u32) -> Vec<KeptTurns> {
    let mut kept: Vec<KeptTurns> = facts
        .iter()
        .map(|facts| KeptTurns {
            turns: facts.turns,
            first: 0,
            recent: facts.turns,
            raw: false,
        })
        .collect();
    let Some((current, earlier)) = kept.split_last_mut() else {
        return kept;
    };
    let leaf = &facts[facts.len() - 1];
    current.first = match leaf.rolled_up {
        0 => config.keep_first_turns.min(current.turns),
        _ => 0,
    };
    let plannable = current.turns - current.first.max(leaf.rolled_up.min(current.turns));
    current.recent = current.turns - recent.min(plannable);
    // A result that is hidden together with its call remains hidden.
    for turn in leaf.orphans.iter().filter(|turn| is_hidden(leaf, **turn)) {
        current.first = current.first.min(*turn);
        current.recent = current.recent.max(turn + 1);
    }
    let mut spare = match config.recent_window {
        RecentWindow::CurrentLoop => 0,
        RecentWindow::Chain => recent.saturating_sub(current.turns),
    };
    for (kept, facts) in earlier.iter_mut().zip(facts).rev() {
        let given = spare.min(kept.turns.saturating_sub(facts.rolled_up));
        kept.recent -= given;
        spare -= given;
    }
    kept
}

/// Returns the index of the oldest loop of which the window keeps turns, or of the leaf.
#[doc(hidden)]
pub fn reached(kept: &[KeptTurns]) -> usize {
    let leaf = kept.len().saturating_sub(1);
    kept.iter()
        .position(|kept| kept.recent < kept.turns)
        .unwrap_or(leaf)
        .min(leaf)
}

/// Walks back from `from` while the costs of the loops fit `budget` less `spent`; returns the first loop that fits.
#[doc(hidden)]
pub fn fit<E>(
    budget: u64,
    spent: u64,
    from: usize,
    mut cost: impl FnMut(usize) -> Result<u64, E>,
) -> Result<usize, E> {
    let Some(mut left) = budget.checked_sub(spent) else {
        return Ok(from);
    };
    let mut first = from;
    while let Some(depth) = first.checked_sub(1) {
        let Some(rest) = left.checked_sub(cost(depth)?) else {
            break;
        };
        (left, first) = (rest, depth);
    }
    Ok(first)
}

/// Moves a boundary within a loop: `first` forward to the result, or `recent` back to the call. A result after the
/// planned turns is kept, as all turns there are.
fn grow_within(kept: &mut KeptTurns, call: ChainTurn, result: ChainTurn) -> bool {
    if kept.raw {
        return false;
    }
    if call.turn < kept.first && kept.first <= result.turn && result.turn < kept.turns {
        kept.first = result.turn + 1;
        kept.recent = kept.recent.max(kept.first);
        return true;
    }
    if kept.first <= call.turn && call.turn < kept.recent && kept.recent <= result.turn {
        kept.recent = call.turn;
        return true;
    }
    false
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    struct Free;
    impl LoopCosts for Free {
        type Error = Infallible;
        fn planned(&mut self, _: usize, _: &KeptTurns) -> Result<u64, Infallible> {
            Ok(0)
        }
        fn active_tokens(&mut self, _: usize) -> Result<u64, Infallible> {
            Ok(1)
        }
    }

    fn facts(turns: &[u32]) -> Vec<LoopFacts> {
        turns
            .iter()
            .map(|turns| LoopFacts {
                turns: *turns,
                ..LoopFacts::default()
            })
            .collect()
    }

    fn layouts(facts: &[LoopFacts], config: &CompactionConfig) -> Vec<(usize, u32, u32)> {
        let mut plan = Plan::new(facts, config, 4, 0);
        plan.settle(&mut Free).unwrap();
        plan.in_scope()
            .map(|(depth, kept)| (depth, kept.first, kept.recent))
            .collect()
    }

    fn config() -> CompactionConfig {
        CompactionConfig {
            keep_first_turns: 2,
            compaction_scope: CompactionScope::FixedCount(1),
            ..CompactionConfig::default()
        }
    }

    #[test]
    fn the_current_loop_keeps_its_ends() {
        assert_eq!(layouts(&facts(&[10]), &config()), [(0, 2, 6)]);
        assert_eq!(layouts(&facts(&[5]), &config()), [(0, 2, 2)]);
        assert_eq!(layouts(&facts(&[1]), &config()), [(0, 1, 1)]);
        assert_eq!(layouts(&facts(&[0]), &config()), [(0, 0, 0)]);
    }

    #[test]
    fn a_short_current_loop_lets_the_window_reach_back() {
        assert_eq!(
            layouts(&facts(&[9, 2, 1]), &config()),
            [(0, 0, 8), (1, 0, 0), (2, 1, 1)]
        );
        let original = CompactionConfig {
            recent_window: RecentWindow::CurrentLoop,
            ..config()
        };
        assert_eq!(
            layouts(&facts(&[9, 2, 1]), &original),
            [(1, 0, 2), (2, 1, 1)]
        );
    }

    #[test]
    fn boundaries_move_for_pairs_within_and_between_loops() {
        let mut chain = facts(&[10]);
        chain[0].answers = vec![ForeignAnswer {
            turn: 7,
            call: ChainTurn { depth: 0, turn: 4 },
        }];
        assert_eq!(layouts(&chain, &config()), [(0, 2, 4)]);
        chain[0].answers = vec![ForeignAnswer {
            turn: 3,
            call: ChainTurn { depth: 0, turn: 1 },
        }];
        assert_eq!(layouts(&chain, &config()), [(0, 4, 6)]);
        let mut chain = facts(&[8, 3, 10]);
        chain[2].answers = vec![ForeignAnswer {
            turn: 0,
            call: ChainTurn { depth: 0, turn: 5 },
        }];
        let skip = CompactionConfig {
            older_loops: OlderLoops::Skip,
            ..config()
        };
        assert_eq!(layouts(&chain, &skip), [(0, 0, 5), (1, 0, 3), (2, 2, 6)]);
    }

    #[test]
    fn an_exact_fit_is_in_scope() {
        let each = |_| Ok::<_, Infallible>(1);
        assert_eq!(fit(3, 0, 5, each).unwrap(), 2);
        assert_eq!(fit(3, 4, 5, each).unwrap(), 5);
        assert_eq!(fit(9, 0, 5, each).unwrap(), 0);
    }
}
