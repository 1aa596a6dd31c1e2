//! What a compaction gives up, step by step, until its result fits.
//!
//! As asked; then the turns kept at the end are pruned; then none is kept at the start; then only
//! the last turns that fit are kept, and everything before them shares what is left; then only the
//! last turn, and nothing is said of the rest; a turn in flight may be that one. Each step is a plan of its own, so coverage, pairs
//! and sizes are those of any other.

use std::ops::ControlFlow;

use super::planner::{Planned, Planner};
use crate::compaction::{
    Budget, CompactionConfig, CompactionScope, KeepRecent, Output, RecentWindow, StrategyError,
    output_cap, seqs_of,
};
use crate::context::Chain;
use crate::model::Role;
use crate::store::active_blocks::ChainLink;
use crate::store::{self, Size, StoreRead, StoreResult, Turns};

/// The step at which only the last turns that fit are kept.
const LAST_TURNS: &str = "last_turns";

/// Tokens below which no tool output is pruned.
const LEAST_OUTPUT: u64 = 100;

/// Bytes of JSON that a token of a summary has at most, about.
const BYTES_OF_A_TOKEN: u64 = 5;

/// One way to compact.
#[derive(Clone)]
pub(super) struct FallbackStep {
    /// What the run's `fallback` names; `None` as asked.
    pub(super) step: Option<&'static str>,
    pub(super) config: CompactionConfig,
    /// Turns that the recent window takes.
    pub(super) recent: u32,
    /// How the turns kept at the end are pruned.
    pub(super) prune: Option<Prune>,
    /// Whether anything is said of what is not kept.
    pub(super) texts: bool,
}

impl FallbackStep {
    /// Compacts as asked.
    pub(super) fn asked(config: &CompactionConfig, recent: u32) -> Self {
        Self {
            step: None,
            config: config.clone(),
            recent,
            prune: None,
            texts: true,
        }
    }

    /// Whether it keeps no more than the last turns that fit.
    pub(super) fn is_squeezed(&self) -> bool {
        self.step == Some(LAST_TURNS)
    }
}

/// How the turns kept at the end are pruned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Prune {
    /// Tokens that a tool result may have; `None`: any number.
    pub(super) output_tokens: Option<u64>,
    /// Whether the last turn loses its images too.
    pub(super) last_images: bool,
}

/// What a step comes to.
pub(super) struct Tried {
    pub(super) step: FallbackStep,
    pub(super) planned: Planned,
    /// The chain with the blocks in force.
    pub(super) chain: Chain,
    /// The size of the context.
    pub(super) after: Size,
}

impl Tried {
    /// Whether nothing is written as asked, and the context is no smaller for it.
    pub(super) fn changes_nothing(&self, before: Size) -> bool {
        let is_smaller = self.after.tokens < before.tokens;
        self.step.step.is_none() && self.planned.made.is_empty() && !is_smaller
    }
}

/// Makes the next step from what was tried, and what it aims at.
type Step = fn(&mut Planner<'_>, &Tried, Budget) -> Result<FallbackStep, StrategyError>;

/// Goes down the fallback until the context is within `target`; returns the last step tried.
///
/// A step aims at 80 % of the target: a context that only just fits would be compacted again after
/// the next turn.
pub(super) fn fit(
    planner: &mut Planner<'_>,
    config: &CompactionConfig,
    target: Budget,
) -> Result<Tried, StrategyError> {
    let asked = FallbackStep::asked(config, planner.snapshot.chain.recent);
    let mut tried = planner.try_step(asked)?;
    let aim = Budget {
        tokens: target.tokens - target.tokens / 5,
        bytes: target.bytes.map(|bytes| bytes - bytes / 5),
    };
    // Pruned twice: what images and thinking leave of the bytes is known only afterwards.
    let steps = [prune, prune, without_first, last_turns, last_turn];
    let leaf = planner.snapshot.chain.links.last();
    let is_in_flight = leaf.is_some_and(|leaf| leaf.complete < leaf.row.totals.turns);
    // What is in flight is the last turn then; it stays whatever is planned.
    let more = is_in_flight.then_some(no_turn as Step);
    for step in steps.into_iter().map(|step| step as Step).chain(more) {
        if target.fits(tried.after) {
            break;
        }
        let step = step(planner, &tried, aim)?;
        tried = planner.try_step(step)?;
        if aim.fits(tried.after) {
            tried = relax(planner, tried, aim)?;
        }
    }
    Ok(tried)
}

/// Prunes no more than it takes.
fn prune(
    planner: &mut Planner<'_>,
    tried: &Tried,
    aim: Budget,
) -> Result<FallbackStep, StrategyError> {
    let room = room_for_outputs(planner, tried, aim)?;
    let first = tried.step.prune.is_none();
    let room = Budget {
        bytes: room.bytes.filter(|_| !first),
        ..room
    };
    let cap = output_cap(&planner.outputs(&tried.planned)?, room, LEAST_OUTPUT);
    Ok(FallbackStep {
        step: Some("prune"),
        prune: Some(Prune {
            output_tokens: cap,
            last_images: false,
        }),
        ..tried.step.clone()
    })
}

/// Returns what the tool outputs may have together so that all else and they are within `aim`.
fn room_for_outputs(
    planner: &mut Planner<'_>,
    tried: &Tried,
    aim: Budget,
) -> Result<Budget, StrategyError> {
    let cap = tried.step.prune.and_then(|prune| prune.output_tokens);
    let outputs = planner.outputs(&tried.planned)?;
    let (mut tokens, mut bytes) = (aim.tokens, aim.bytes);
    let now = outputs.iter().map(|output| output.capped(cap));
    let (of_tokens, of_bytes) = now.fold((0, 0), |(tokens, bytes): (u64, u64), output| {
        (tokens + output.tokens, bytes + output.bytes)
    });
    let else_of = |after: u64, outputs: u64| after.saturating_sub(outputs);
    tokens = tokens.saturating_sub(else_of(tried.after.tokens, of_tokens));
    bytes = bytes.map(|most| most.saturating_sub(else_of(tried.after.bytes, of_bytes)));
    Ok(Budget { tokens, bytes })
}

fn without_first(
    _: &mut Planner<'_>,
    tried: &Tried,
    _: Budget,
) -> Result<FallbackStep, StrategyError> {
    Ok(FallbackStep {
        step: Some("keep_first"),
        config: CompactionConfig {
            keep_first_turns: 0,
            ..tried.step.config.clone()
        },
        prune: tried.step.prune.map(|prune| Prune {
            output_tokens: Some(LEAST_OUTPUT),
            ..prune
        }),
        ..tried.step.clone()
    })
}

/// Keeps the last turns that fit. Half of the aim is theirs in any case; a summary of what came
/// before in the loop and the rollup of all loops before get up to a quarter each.
fn last_turns(
    planner: &mut Planner<'_>,
    tried: &Tried,
    aim: Budget,
) -> Result<FallbackStep, StrategyError> {
    let config = &tried.step.config;
    let of_bytes = aim.bytes.map_or(u64::MAX, |bytes| bytes / BYTES_OF_A_TOKEN);
    let text = aim.tokens.min(of_bytes) / 4;
    let room = Budget {
        tokens: aim.tokens.saturating_sub(2 * text),
        bytes: aim.bytes.map(|bytes| bytes / 2),
    };
    let recent = store::read(planner.store, |read| {
        turns_within(
            read,
            &planner.snapshot.chain.links,
            config.recent_window,
            room,
        )
    })?;
    let recent = recent.max(1).min(tried.step.recent);
    let rollup = match config.max_rollup_tokens {
        0 => text,
        most => most.min(text),
    };
    Ok(FallbackStep {
        step: Some(LAST_TURNS),
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

fn last_turn(_: &mut Planner<'_>, tried: &Tried, _: Budget) -> Result<FallbackStep, StrategyError> {
    let recent = tried.step.recent.min(1);
    Ok(FallbackStep {
        config: CompactionConfig {
            keep_recent: KeepRecent::Turns(recent),
            ..tried.step.config.clone()
        },
        recent,
        texts: false,
        ..tried.step.clone()
    })
}

fn no_turn(_: &mut Planner<'_>, tried: &Tried, _: Budget) -> Result<FallbackStep, StrategyError> {
    Ok(FallbackStep {
        config: CompactionConfig {
            keep_recent: KeepRecent::Turns(0),
            ..tried.step.config.clone()
        },
        recent: 0,
        ..tried.step.clone()
    })
}

/// Gives back to the tool outputs what a step that fits has left.
fn relax(planner: &mut Planner<'_>, tried: Tried, aim: Budget) -> Result<Tried, StrategyError> {
    let Some(prune) = tried
        .step
        .prune
        .filter(|prune| prune.output_tokens.is_some())
    else {
        return Ok(tried);
    };
    let room = room_for_outputs(planner, &tried, aim)?;
    let cap = output_cap(&planner.outputs(&tried.planned)?, room, LEAST_OUTPUT);
    if cap.is_some() && cap <= prune.output_tokens {
        return Ok(tried);
    }
    let softer = FallbackStep {
        prune: Some(Prune {
            output_tokens: cap,
            ..prune
        }),
        ..tried.step.clone()
    };
    let softer = planner.try_step(softer)?;
    Ok(if aim.fits(softer.after) {
        softer
    } else {
        tried
    })
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
            let only = Turns {
                first: turn,
                last: turn,
            };
            let start = seqs_of(read, link.row.key, only, link.end_seq)?.start;
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
            let output = Output {
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
