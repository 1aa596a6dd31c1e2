//! What a compaction gives up, step by step, until its result fits.
//!
//! As asked; then the turns kept at the end are pruned; then none is kept at the start; then only
//! the last turns that fit are kept, and everything before them shares what is left; then only the
//! last turn, and nothing is said of the rest; a turn in flight may be that one. Each step is a plan of
//! its own, so coverage, pairs and sizes are those of any other.

use std::ops::ControlFlow;

use super::candidate::{Candidate, FallbackStep, LAST_TURNS, Prune};
use super::planner::Planner;
use crate::compaction::{
    Budget, CompactionConfig, CompactionScope, KeepRecent, OutputSize, RecentWindow, StrategyError,
    output_cap,
};
use crate::model::{Role, Size, Turns};
use crate::overlay::turn_seqs;
use crate::store::active_blocks::ChainLink;
use crate::store::{self, StoreRead, StoreResult};

/// Tokens below which no tool output is pruned.
const LEAST_OUTPUT: u64 = 100;

/// Bytes of JSON that a token of a summary has at most, about.
const BYTES_OF_A_TOKEN: u64 = 5;

/// What is given up, in order. Pruned twice: what images and thinking leave of the bytes is known only
/// afterwards.
const LADDER: [GivenUp; 6] = [
    GivenUp::Outputs,
    GivenUp::Outputs,
    GivenUp::FirstTurns,
    GivenUp::AllThatDoesNotFit,
    GivenUp::AllButTheLastTurn,
    GivenUp::AllButTheTurnInFlight,
];

/// What a step gives up besides what the one before did.
#[derive(Clone, Copy, Debug)]
enum GivenUp {
    /// Of the turns kept at the end: images, thinking, and as much of the tool outputs as it takes.
    Outputs,
    /// The turns kept at the start.
    FirstTurns,
    /// All but the last turns that fit; what comes before them shares what is left.
    AllThatDoesNotFit,
    /// All but the last turn, and nothing is said of the rest.
    AllButTheLastTurn,
    /// All complete turns, where one is in flight: that is the last turn then, and stays whatever is
    /// planned.
    AllButTheTurnInFlight,
}

/// Goes down the ladder until the context is within `target`; returns the last candidate.
///
/// A step aims at 80 % of the target: a context that only just fits would be compacted again after
/// the next turn.
pub(super) fn fit(planner: &Planner<'_>, target: Budget) -> Result<Candidate, StrategyError> {
    let asked = FallbackStep::asked(&planner.request.config, planner.snapshot.chain.recent);
    let mut candidate = planner.attempt(asked)?;
    let aim = Budget {
        tokens: target.tokens - target.tokens / 5,
        bytes: target.bytes.map(|bytes| bytes - bytes / 5),
    };
    let leaf = planner.snapshot.chain.links.last();
    let is_in_flight = leaf.is_some_and(|leaf| leaf.complete < leaf.row.totals.turns);
    for given_up in LADDER {
        let is_possible = is_in_flight || !matches!(given_up, GivenUp::AllButTheTurnInFlight);
        if target.fits(candidate.after) || !is_possible {
            break;
        }
        candidate = planner.attempt(next_step(planner, &candidate, given_up, aim)?)?;
        if aim.fits(candidate.after)
            && let Some(softer) = relaxed(planner, &candidate, aim)?
        {
            candidate = softer;
        }
    }
    Ok(candidate)
}

/// Returns the step that gives up more than the last candidate's.
fn next_step(
    planner: &Planner<'_>,
    last: &Candidate,
    given_up: GivenUp,
    aim: Budget,
) -> Result<FallbackStep, StrategyError> {
    let step = last.step.clone();
    let config = step.config.clone();
    Ok(match given_up {
        GivenUp::Outputs => {
            let mut aim = aim;
            if step.prune.is_none() {
                aim.bytes = None;
            }
            let output_tokens = outputs_within(planner, last, aim)?;
            FallbackStep {
                name: Some("prune"),
                prune: Some(Prune {
                    output_tokens,
                    last_images: false,
                }),
                ..step
            }
        }
        GivenUp::FirstTurns => FallbackStep {
            name: Some("keep_first"),
            config: CompactionConfig {
                keep_first_turns: 0,
                ..config
            },
            prune: step.prune.map(|prune| Prune {
                output_tokens: Some(LEAST_OUTPUT),
                ..prune
            }),
            ..step
        },
        GivenUp::AllThatDoesNotFit => last_turns(planner, step, aim)?,
        GivenUp::AllButTheLastTurn | GivenUp::AllButTheTurnInFlight => {
            let most = u32::from(matches!(given_up, GivenUp::AllButTheLastTurn));
            let recent = step.recent.min(most);
            FallbackStep {
                config: CompactionConfig {
                    keep_recent: KeepRecent::Turns(recent),
                    ..config
                },
                recent,
                texts: false,
                ..step
            }
        }
    })
}

/// Keeps the last turns that fit. Half of the aim is theirs in any case; a summary of what came
/// before in the loop and the rollup of all loops before get up to a quarter each.
fn last_turns(
    planner: &Planner<'_>,
    step: FallbackStep,
    aim: Budget,
) -> Result<FallbackStep, StrategyError> {
    let config = &step.config;
    let of_bytes = aim.bytes.map_or(u64::MAX, |bytes| bytes / BYTES_OF_A_TOKEN);
    let text = aim.tokens.min(of_bytes) / 4;
    let room = Budget {
        tokens: aim.tokens.saturating_sub(2 * text),
        bytes: aim.bytes.map(|bytes| bytes / 2),
    };
    let (links, window) = (&planner.snapshot.chain.links, config.recent_window);
    let recent = store::read(planner.store, |read| {
        turns_within(read, links, window, room)
    })?;
    let recent = recent.max(1).min(step.recent);
    let rollup = match config.max_rollup_tokens {
        0 => text,
        most => most.min(text),
    };
    Ok(FallbackStep {
        name: Some(LAST_TURNS),
        config: CompactionConfig {
            keep_recent: KeepRecent::Turns(recent),
            compaction_scope: CompactionScope::FixedCount(0),
            max_summary_tokens: config.max_summary_tokens.min(text),
            // With none the loops before would stay as they are.
            max_rollup_tokens: rollup.max(1),
            ..config.clone()
        },
        recent,
        prune: Some(Prune {
            output_tokens: Some(LEAST_OUTPUT),
            last_images: true,
        }),
        texts: true,
    })
}

/// Returns a candidate that gives back to the tool outputs what one that fits has left, if there is one.
fn relaxed(
    planner: &Planner<'_>,
    last: &Candidate,
    aim: Budget,
) -> Result<Option<Candidate>, StrategyError> {
    let Some(prune) = last
        .step
        .prune
        .filter(|prune| prune.output_tokens.is_some())
    else {
        return Ok(None);
    };
    let output_tokens = outputs_within(planner, last, aim)?;
    if output_tokens.is_some() && output_tokens <= prune.output_tokens {
        return Ok(None);
    }
    let softer = planner.attempt(FallbackStep {
        prune: Some(Prune {
            output_tokens,
            ..prune
        }),
        ..last.step.clone()
    })?;
    Ok(aim.fits(softer.after).then_some(softer))
}

/// Returns the tokens that each tool output may have so that all else and they are within `aim`;
/// `None`: any number.
fn outputs_within(
    planner: &Planner<'_>,
    last: &Candidate,
    aim: Budget,
) -> Result<Option<u64>, StrategyError> {
    let cap = last.step.prune.and_then(|prune| prune.output_tokens);
    let outputs = planner.outputs(last)?;
    let now = outputs.iter().map(|output| output.capped(cap));
    let (of_tokens, of_bytes) = now.fold((0, 0), |(tokens, bytes): (u64, u64), output| {
        (tokens + output.tokens, bytes + output.bytes)
    });
    let else_of = |after: u64, outputs: u64| after.saturating_sub(outputs);
    let room = Budget {
        tokens: aim
            .tokens
            .saturating_sub(else_of(last.after.tokens, of_tokens)),
        bytes: aim
            .bytes
            .map(|most| most.saturating_sub(else_of(last.after.bytes, of_bytes))),
    };
    Ok(output_cap(&outputs, room, LEAST_OUTPUT))
}

/// Counts the last turns of a chain that are within `room`, what follows them included, each tool
/// output pruned as far as it goes.
fn turns_within(
    read: &dyn StoreRead,
    links: &[ChainLink],
    window: RecentWindow,
    room: Budget,
) -> StoreResult<u32> {
    let mut spent = Size::default();
    let mut turns = 0;
    for (back, link) in links.iter().rev().enumerate() {
        if link.is_anchor() || (back > 0 && window == RecentWindow::CurrentLoop) {
            break;
        }
        let mut end = link.end_seq;
        for turn in (0..link.complete).rev() {
            let start = turn_seqs(read, link.row.key, Turns::only(turn), link.end_seq)?.start;
            add_pruned(read, link, start..end, &mut spent)?;
            if !room.fits(spent) {
                return Ok(turns);
            }
            end = start;
            turns += 1;
        }
    }
    Ok(turns)
}

fn add_pruned(
    read: &dyn StoreRead,
    link: &ChainLink,
    seqs: std::ops::Range<u32>,
    spent: &mut Size,
) -> StoreResult<()> {
    read.sizes(link.row.key, seqs, &mut |message| {
        let mut size = message.size;
        if message.role == Role::ToolResult {
            let output = OutputSize {
                tokens: size.tokens,
                bytes: size.bytes,
            };
            let output = output.capped(Some(LEAST_OUTPUT));
            (size.tokens, size.bytes) = (output.tokens, output.bytes);
        }
        if message.role != Role::Extension {
            spent.add(size);
        }
        Ok(ControlFlow::Continue(()))
    })
}
