//! The pruning with which turns fit a budget, computed from stored sizes alone.
//!
//! Each message of a turn kept at the end has its sizes in each form that pruning may leave it in, so
//! the size of a pruned section is a sum, and the mildest pruning that fits is a search over sums.

use std::rc::Rc;

use super::candidate::Prune;
use crate::compaction::plan::ChainTurn;
use crate::compaction::{Budget, OutputSize, output_cap};
use crate::model::Size;

/// Tokens below which no tool output is pruned.
pub(super) const LEAST_OUTPUT: u64 = 100;

/// The sizes of a message of a kept turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MessageForms {
    /// As it is planned.
    pub(super) whole: OutputSize,
    /// Without thinking, and with references in place of images.
    pub(super) bare: OutputSize,
    /// True for a tool output, which can be cut.
    pub(super) is_output: bool,
}

impl MessageForms {
    /// Returns the forms of a message that pruning never changes.
    pub(super) fn fixed(size: Size) -> Self {
        let whole = OutputSize {
            tokens: size.tokens,
            bytes: size.bytes,
        };
        Self {
            whole,
            bare: whole,
            is_output: false,
        }
    }
}

/// A turn that is kept at the end, or may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TurnForms {
    pub(super) at: ChainTurn,
    pub(super) messages: Vec<MessageForms>,
}

impl TurnForms {
    fn sizes(&self, prune: Option<Prune>) -> impl Iterator<Item = OutputSize> + '_ {
        self.messages.iter().map(move |message| match prune {
            None => message.whole,
            Some(prune) => {
                let size = match prune.keeps_whole(self.at) {
                    true => message.whole,
                    false => message.bare,
                };
                size.capped(prune.output_tokens.filter(|_| message.is_output))
            }
        })
    }
}

/// Returns the size of turns once they are pruned.
pub(super) fn size_of_turns(turns: &[Rc<TurnForms>], prune: Option<Prune>) -> Size {
    let mut size = Size::default();
    for part in turns.iter().flat_map(|turn| turn.sizes(prune)) {
        size.tokens += part.tokens;
        size.bytes += part.bytes;
    }
    size
}

/// Returns what is left of a budget.
pub(super) fn left_of(budget: Budget, spent: Size) -> Budget {
    Budget {
        tokens: budget.tokens.saturating_sub(spent.tokens),
        bytes: budget.bytes.map(|bytes| bytes.saturating_sub(spent.bytes)),
    }
}

/// The most that pruning takes from turns, newest first; with `spares_last` the last of them keeps its
/// thinking and its images.
pub(super) fn hardest_pruning(turns: &[Rc<TurnForms>], spares_last: bool) -> Prune {
    let last = turns.first().map(|turn| turn.at);
    Prune {
        whole_from: last.filter(|_| spares_last),
        output_tokens: Some(LEAST_OUTPUT),
    }
}

/// Returns the mildest pruning of turns, newest first, with which they fit `room`, or the hardest if
/// none does: thinking and images go from the oldest turns first, then the longest outputs are cut.
pub(super) fn mildest_pruning(turns: &[Rc<TurnForms>], room: Budget, spares_last: bool) -> Prune {
    let whole_turns = |count: usize| Prune {
        whole_from: count.checked_sub(1).map(|at| turns[at].at),
        output_tokens: None,
    };
    let fits = |prune: Prune| room.fits(size_of_turns(turns, Some(prune)));
    let least = usize::from(spares_last).min(turns.len());
    let (mut low, mut high) = (least, turns.len());
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if fits(whole_turns(middle)) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    let mut prune = whole_turns(low);
    if low == least && !fits(prune) {
        let sizes = |is_output: bool| {
            let turns = turns.iter().flat_map(move |turn| {
                let outputs = turn.messages.iter().map(|message| message.is_output);
                turn.sizes(Some(prune)).zip(outputs)
            });
            turns
                .filter(move |(_, is)| *is == is_output)
                .map(|(size, _)| size)
        };
        let mut others = Size::default();
        for size in sizes(false) {
            others.tokens += size.tokens;
            others.bytes += size.bytes;
        }
        let outputs: Vec<OutputSize> = sizes(true).collect();
        prune.output_tokens = output_cap(&outputs, left_of(room, others), LEAST_OUTPUT);
    }
    prune
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(turn: u32, text: u64, thinking: u64, output: u64) -> Rc<TurnForms> {
        let size = |tokens| OutputSize {
            tokens,
            bytes: tokens * 4,
        };
        let forms = |whole, bare, is_output| MessageForms {
            whole: size(whole),
            bare: size(bare),
            is_output,
        };
        Rc::new(TurnForms {
            at: ChainTurn { depth: 0, turn },
            messages: vec![
                forms(text + thinking, text, false),
                forms(output, output, true),
            ],
        })
    }

    fn room(tokens: u64) -> Budget {
        Budget {
            tokens,
            bytes: None,
        }
    }

    #[test]
    fn thinking_goes_from_the_oldest_turns_before_an_output_is_cut() {
        let turns = [
            turn(2, 10, 50, 200),
            turn(1, 10, 50, 900),
            turn(0, 10, 50, 100),
        ];
        let from = |turn| Some(ChainTurn { depth: 0, turn });
        let pruned = |tokens, spares| {
            let prune = mildest_pruning(&turns, room(tokens), spares);
            (prune.whole_from, prune.output_tokens)
        };
        assert_eq!(pruned(1_380, false), (from(0), None));
        assert_eq!(pruned(1_379, false), (from(1), None));
        assert_eq!(pruned(1_280, false), (from(2), None));
        assert_eq!(pruned(1_279, false), (None, None));
        assert_eq!(pruned(1_279, true), (from(2), Some(899)));
        assert_eq!(pruned(1_229, false), (None, Some(899)));
        assert_eq!(pruned(0, false), (None, Some(LEAST_OUTPUT)));
        assert_eq!(mildest_pruning(&[], room(0), true), Prune::default());
    }
}
