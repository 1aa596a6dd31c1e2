//! The fallback: the steps in which a compaction gives up content until its result fits.
//!
//! First as asked. Then the first summary gets no more than the configured tokens; then the digest replaces texts
//! that exceed their limit; then the turns kept at the end are pruned; then fewer turns are kept at the start;
//! then only the last turns that fit are kept, and the texts for everything before them share the rest; then texts
//! replace the last turns too; then only the last turn is kept, without any text; a turn in flight may be that one.
//! Each step is a plan of its own, so coverage, pairs and sizes follow the same rules in every step.
//!
//! The steps go down to a size that leaves room for the turns to come (`growth`). A size to hand a
//! conversation over in has none to come: texts take the place of all turns at once.
//!
//! A step gives up as little as it must, computed from stored sizes (`room`). The size of a text is
//! known only when it is made, so a step is corrected by the size of its candidate.

use std::rc::Rc;

use super::candidate::{CompactionCandidate, FallbackStep, LAST_TURNS, TextSource};
use super::growth::is_handed_over;
use super::planner::CandidatePlanner;
use super::room::{TurnForms, hardest_pruning, left_of, mildest_pruning, size_of_turns};
use crate::compaction::{Budget, CompactionConfig, CompactionScope, KeepRecent, StrategyError};
use crate::model::{Size, Turns};
use crate::overlay::shown_size_of;
use crate::store;

/// The share of the target that a step aims at, in percent: the sizes of texts are estimates until they are made.
pub(super) const AIM: u64 = 96;

/// The share of a target without room for later turns that a step aims at: a context that only just fits would be
/// compacted again after the next turn.
const AIM_WITHOUT_ROOM: u64 = 92;

/// The share of the target, in percent, below which a step looks for more to keep.
const ENOUGH: u64 = 86;

/// The number of times that a step is corrected by the size of its candidate.
const CORRECTIONS: usize = 6;

/// Bytes of JSON that a token of a summary has at most, about.
pub(super) const BYTES_OF_A_TOKEN: u64 = 5;

/// The content that is given up, in order.
const LADDER: [GivenUp; 8] = [
    GivenUp::LongerSummary,
    GivenUp::LongTexts,
    GivenUp::Outputs,
    GivenUp::FirstTurns,
    GivenUp::AllThatDoesNotFit,
    GivenUp::AllTurns,
    GivenUp::AllButTheLastTurn,
    GivenUp::AllButTheTurnInFlight,
];

/// The content that a step gives up in addition to the steps before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GivenUp {
    /// A first summary that got more than the configured tokens.
    LongerSummary,
    /// Texts of a strategy that are longer than they may be.
    LongTexts,
    /// Of the turns kept at the end: thinking and images, and as much of the tool outputs as it takes.
    Outputs,
    /// Turns kept at the start, the last of them first.
    FirstTurns,
    /// All but the last turns that fit; the texts for the turns before share the rest of the budget.
    AllThatDoesNotFit,
    /// All complete turns; the texts for them get the whole budget.
    AllTurns,
    /// All but the last turn, without any text for the rest.
    AllButTheLastTurn,
    /// All complete turns, where one is in flight: that is the last turn then, and stays whatever is
    /// planned.
    AllButTheTurnInFlight,
}

/// Goes down the ladder until the context is within the goal; returns the last candidate.
pub(super) fn fit(planner: &CandidatePlanner<'_>) -> Result<CompactionCandidate, StrategyError> {
    let mut target = planner.snapshot.growth.goal;
    // Room for later turns is worth less than a text for the earlier ones beside a large turn in flight.
    let most = planner.request.policy.target().tokens;
    let needed = planner.fixed_size()?.tokens.saturating_add(most / 4);
    target.tokens = target.tokens.max(needed.min(most));
    let ladder = Ladder {
        planner,
        target,
        aim: Budget {
            tokens: match planner.request.policy.compaction.room_turns {
                0 => share(target.tokens, AIM_WITHOUT_ROOM),
                _ => share(target.tokens, AIM),
            },
            bytes: target.bytes.map(|bytes| share(bytes, AIM_WITHOUT_ROOM)),
        },
    };
    let asked = FallbackStep::asked(
        &planner.request.policy.compaction,
        planner.snapshot.chain.recent,
    );
    ladder.descend(ladder.try_step(asked)?)
}

pub(super) fn share(whole: u64, percent: u64) -> u64 {
    (u128::from(whole) * u128::from(percent) / 100) as u64
}

pub(super) struct Ladder<'a> {
    pub(super) planner: &'a CandidatePlanner<'a>,
    pub(super) target: Budget,
    /// The size that a step aims at.
    pub(super) aim: Budget,
}

impl Ladder<'_> {
    fn descend(
        &self,
        mut candidate: CompactionCandidate,
    ) -> Result<CompactionCandidate, StrategyError> {
        let first = is_handed_over(&self.planner.request.policy).then_some(GivenUp::AllTurns);
        for given_up in first.into_iter().chain(LADDER) {
            if self.target.fits(candidate.after) {
                break;
            }
            candidate = self.give_up(given_up, candidate)?;
        }
        Ok(candidate)
    }

    /// Returns the candidate of a step. If its context is empty, the step is taken with a marker: a provider
    /// rejects a request without messages.
    fn try_step(&self, step: FallbackStep) -> Result<CompactionCandidate, StrategyError> {
        let made = self.planner.candidate(step)?;
        let is_empty = made.after.messages == 0 && self.planner.snapshot.before.messages > 0;
        if !is_empty || made.step.texts == TextSource::Marker {
            return Ok(made);
        }
        self.planner.candidate(FallbackStep {
            texts: TextSource::Marker,
            ..made.step
        })
    }

    /// Takes a step down, and corrects it; returns the candidate that uses the most of the target, or
    /// the last one if none fits.
    fn give_up(
        &self,
        given_up: GivenUp,
        last: CompactionCandidate,
    ) -> Result<CompactionCandidate, StrategyError> {
        let mut best = last;
        let mut from = None;
        for _ in 0..CORRECTIONS {
            let step = match &from {
                None => self.next_step(given_up, &best, true)?,
                Some(from) => self.next_step(given_up, from, false)?,
            };
            let Some(step) = step else { break };
            let made = self.try_step(step)?;
            let is_enough = self.aim.fits(made.after) && self.is_enough(made.after);
            // The better of the two is kept, and the newer one is corrected next.
            match from.replace(made) {
                Some(before) if self.worth(before.after) > self.worth(best.after) => best = before,
                _ => {}
            }
            if is_enough {
                break;
            }
        }
        Ok(match from {
            Some(made) if self.worth(made.after) >= self.worth(best.after) => made,
            _ => best,
        })
    }

    /// True if a context uses enough of the target.
    pub(super) fn is_enough(&self, after: Size) -> bool {
        let uses = |used: u64, most: u64| used >= share(most, ENOUGH);
        let bytes = self
            .target
            .bytes
            .is_some_and(|most| uses(after.bytes, most));
        uses(after.tokens, self.target.tokens) || bytes
    }

    /// Orders candidates: those that fit before those that do not, then the fullest, but with enough
    /// used those within the aim first. Of those that do not fit the smallest is the best.
    fn worth(&self, after: Size) -> (u8, i128) {
        let used = i128::from(after.tokens);
        if !self.target.fits(after) {
            return (0, -used);
        }
        match (self.is_enough(after), self.aim.fits(after)) {
            (true, true) => (3, used),
            (true, false) => (2, -used),
            (false, _) => (1, used),
        }
    }

    /// Returns the step that gives up more than a candidate, or with `is_first` unset one that is
    /// corrected by it; `None` if there is none that would do better.
    fn next_step(
        &self,
        given_up: GivenUp,
        from: &CompactionCandidate,
        is_first: bool,
    ) -> Result<Option<FallbackStep>, StrategyError> {
        match given_up {
            GivenUp::LongerSummary => Ok(self.configured_summary(from)),
            GivenUp::LongTexts => Ok(self.limited_texts(from)),
            GivenUp::Outputs => self.pruned(from, is_first),
            GivenUp::FirstTurns => self.fewer_first(from, is_first),
            GivenUp::AllThatDoesNotFit => self.last_turns(from, is_first),
            GivenUp::AllTurns => self.no_turns(from, is_first),
            GivenUp::AllButTheLastTurn => self.silent(from, is_first, 1),
            GivenUp::AllButTheTurnInFlight => match self.is_in_flight() {
                true => self.silent(from, is_first, 0),
                false => Ok(None),
            },
        }
    }

    fn is_in_flight(&self) -> bool {
        let leaf = self.planner.snapshot.leaf();
        leaf.complete < leaf.row.totals.turns
    }

    /// Gives the first summary of the current loop the configured tokens: a longer one must not cost content that
    /// would be kept without it.
    fn configured_summary(&self, from: &CompactionCandidate) -> Option<FallbackStep> {
        let is_longer = from.step.config.fills_window && self.planner.has_longer_summary();
        is_longer.then(|| from.step.without_longer_summary())
    }

    fn limited_texts(&self, from: &CompactionCandidate) -> Option<FallbackStep> {
        let is_new = from.step.texts == TextSource::Strategy && self.planner.texts.has_long();
        is_new.then(|| FallbackStep {
            name: Some("digest"),
            texts: TextSource::Limited,
            ..from.step.without_longer_summary()
        })
    }

    /// Prunes the turns kept at the end.
    fn pruned(
        &self,
        from: &CompactionCandidate,
        is_first: bool,
    ) -> Result<Option<FallbackStep>, StrategyError> {
        let turns = self.planner.kept_at_the_end(from)?;
        let rest = self.rest_of(from, &turns);
        let prune = mildest_pruning(&turns, left_of(self.aim, rest), true);
        let hardest = size_of_turns(&turns, Some(hardest_pruning(&turns, true)));
        let is_hopeless = is_first && rest.tokens + hardest.tokens > self.target.tokens;
        if turns.is_empty() || is_hopeless || from.step.prune == Some(prune) {
            return Ok(None);
        }
        Ok(Some(FallbackStep {
            name: Some("prune"),
            prune: Some(prune),
            texts: TextSource::Limited,
            ..from.step.without_longer_summary()
        }))
    }

    /// Keeps fewer turns at the start: as many as leave room for the turns at the end, pruned if need be.
    fn fewer_first(
        &self,
        from: &CompactionCandidate,
        is_first: bool,
    ) -> Result<Option<FallbackStep>, StrategyError> {
        let first = self.first_turns(from)?;
        let turns = self.planner.kept_at_the_end(from)?;
        let rest = self.rest_of(from, &turns);
        let hardest = size_of_turns(&turns, Some(hardest_pruning(&turns, true)));
        let text = self.texts_of(from).summary;
        let mut gone = Size::default();
        for kept in (0..=first.len()).rev() {
            if let Some(size) = first.get(kept) {
                gone.add(*size);
            } else if is_first {
                continue;
            }
            // The text grows by the turns given up, by half of their tokens at most.
            let limit = from.step.config.max_summary_tokens;
            let grown = (gone.tokens / 2).min(limit.saturating_sub(text));
            let mut rest = rest.without(gone);
            rest.tokens += grown;
            rest.bytes += grown * BYTES_OF_A_TOKEN;
            let mut all = rest;
            all.add(hardest);
            let is_last_try = kept == 0 && self.target.fits(all);
            if !self.aim.fits(all) && !is_last_try {
                continue;
            }
            let prune = mildest_pruning(&turns, left_of(self.aim, rest), true);
            let is_same = gone == Size::default() && from.step.prune == Some(prune);
            let kept = u32::try_from(kept).unwrap_or(u32::MAX);
            return Ok((!is_same).then(|| FallbackStep {
                name: Some("keep_first"),
                config: CompactionConfig {
                    keep_first_turns: kept,
                    fills_window: false,
                    ..from.step.config.clone()
                },
                prune: Some(prune),
                texts: TextSource::Limited,
                ..from.step.clone()
            }));
        }
        Ok(None)
    }

    /// Keeps at most so many turns, without any text for the rest.
    fn silent(
        &self,
        from: &CompactionCandidate,
        is_first: bool,
        most: u32,
    ) -> Result<Option<FallbackStep>, StrategyError> {
        let turns = self.planner.kept_at_the_end(from)?;
        let prune = match is_first {
            true => hardest_pruning(&turns, false),
            false => {
                let room = left_of(self.aim, self.rest_of(from, &turns));
                mildest_pruning(&turns, room, false)
            }
        };
        if !is_first && from.step.prune == Some(prune) {
            return Ok(None);
        }
        let recent = from.step.recent.min(most);
        Ok(Some(FallbackStep {
            name: Some(LAST_TURNS),
            config: CompactionConfig {
                keep_first_turns: 0,
                keep_recent: KeepRecent::Turns(recent),
                compaction_scope: CompactionScope::FixedCount(0),
                max_rollup_tokens: from.step.config.max_rollup_tokens.max(1),
                // Prompts yield to the last turn.
                keep_prompts_tokens: 0,
                fills_window: false,
                ..from.step.config.clone()
            },
            recent,
            prune: Some(prune),
            texts: match from.step.texts {
                TextSource::Marker if !is_first => TextSource::Marker,
                _ => TextSource::Silent,
            },
        }))
    }

    /// Returns the size of a candidate without the turns that it keeps at the end.
    pub(super) fn rest_of(&self, candidate: &CompactionCandidate, turns: &[Rc<TurnForms>]) -> Size {
        candidate
            .after
            .without(size_of_turns(turns, candidate.step.prune))
    }

    /// Returns the sizes of the turns that a candidate keeps at the start.
    pub(super) fn first_turns(
        &self,
        candidate: &CompactionCandidate,
    ) -> Result<Vec<Size>, StrategyError> {
        let leaf = self.planner.snapshot.chain.links.len() - 1;
        let planned = candidate.planned.iter().find(|(depth, _)| *depth == leaf);
        let kept = planned.filter(|(_, kept)| !kept.raw);
        let link = self.planner.snapshot.leaf();
        Ok(store::read(self.planner.store, |read| {
            let turns = 0..kept.map_or(0, |(_, kept)| kept.first);
            turns
                .map(|turn| shown_size_of(read, link, Turns::only(turn)))
                .collect()
        })?)
    }
}
