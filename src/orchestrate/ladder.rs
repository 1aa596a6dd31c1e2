//! What a compaction gives up, step by step, until its result fits.
//!
//! As asked; then the turns kept at the end are pruned; then none is kept at the start; then only
//! the last turns that fit are kept, and everything before them shares what is left; then only the
//! last turn, and nothing is said of the rest. Each rung is a plan of its own, so coverage, pairs
//! and sizes are those of any other.

use std::ops::ControlFlow;

use super::work::{Planned, Work};
use crate::compaction::{
    Budget, CompactionConfig, CompactionScope, KeepRecent, RecentWindow, StrategyError, output_cap,
    seqs_of,
};
use crate::model::Role;
use crate::store::in_force::Link;
use crate::store::{self, Size, StoreRead, StoreResult, Turns};

/// The step at which only the last turns that fit are kept.
const LAST_TURNS: &str = "last_turns";

/// Tokens below which no tool output is pruned.
const LEAST_OUTPUT: u64 = 100;

/// One way to compact.
#[derive(Clone)]
pub(super) struct Rung {
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

impl Rung {
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
    /// Tokens that a tool result may have.
    pub(super) output_tokens: u64,
    /// Whether the last turn loses its images too.
    pub(super) last_images: bool,
}

/// What a rung comes to.
pub(super) struct Tried {
    pub(super) rung: Rung,
    pub(super) planned: Planned,
    /// The context with the blocks in force.
    pub(super) after: Size,
}

impl Tried {
    /// Whether nothing is written as asked, and the context is no smaller for it.
    pub(super) fn changes_nothing(&self, before: Size) -> bool {
        let is_smaller = self.after.tokens < before.tokens;
        self.rung.step.is_none() && self.planned.made.is_empty() && !is_smaller
    }
}

/// What a step aims at, as a share of the target in hundredths: a context that only just fits
/// would be compacted again after the next turn.
const AIM: u64 = 80;

/// Goes down the ladder until the context is within `target`; returns the last rung tried.
pub(super) fn fit(
    work: &mut Work<'_>,
    config: &CompactionConfig,
    target: Budget,
) -> Result<Tried, StrategyError> {
    let asked = Rung::asked(config, work.ground.chain.recent);
    let mut tried = work.try_rung(asked)?;
    let aim = Budget {
        tokens: target.tokens / 100 * AIM,
        bytes: target.bytes.map(|bytes| bytes / 100 * AIM),
    };
    for step in [prune, without_first, last_turns, last_turn] {
        if target.fits(tried.after) {
            break;
        }
        let rung = step(work, &tried, aim)?;
        tried = work.try_rung(rung)?;
        if aim.fits(tried.after) {
            tried = relent(work, tried, aim)?;
        }
    }
    Ok(tried)
}

/// Prunes no more than it takes.
fn prune(work: &mut Work<'_>, tried: &Tried, aim: Budget) -> Result<Rung, StrategyError> {
    let excess = tried.after.tokens.saturating_sub(aim.tokens);
    let cap = output_cap(&work.outputs(&tried.planned)?, excess, LEAST_OUTPUT);
    Ok(Rung {
        step: Some("prune"),
        prune: Some(Prune {
            output_tokens: cap.unwrap_or(u64::MAX),
            last_images: false,
        }),
        ..tried.rung.clone()
    })
}

fn without_first(_: &mut Work<'_>, tried: &Tried, _: Budget) -> Result<Rung, StrategyError> {
    Ok(Rung {
        step: Some("keep_first"),
        config: CompactionConfig {
            keep_first_turns: 0,
            ..tried.rung.config.clone()
        },
        ..tried.rung.clone()
    })
}

/// Keeps the last turns that fit. Half of the aim is theirs in any case; a summary of what came
/// before in the loop and the rollup of all loops before get up to a quarter each.
fn last_turns(work: &mut Work<'_>, tried: &Tried, aim: Budget) -> Result<Rung, StrategyError> {
    let config = &tried.rung.config;
    let text = aim.tokens / 4;
    let room = aim.tokens.saturating_sub(2 * text);
    let recent = store::read(work.store, |read| {
        turns_within(read, &work.ground.chain.links, config.recent_window, room)
    })?;
    let rollup = match config.max_rollup_tokens {
        0 => text,
        most => most.min(text),
    };
    let recent = recent.max(1).min(tried.rung.recent);
    Ok(Rung {
        step: Some(LAST_TURNS),
        config: CompactionConfig {
            keep_recent: KeepRecent::Turns(recent),
            compaction_scope: CompactionScope::FixedCount(0),
            max_summary_tokens: config.max_summary_tokens.min(text),
            max_rollup_tokens: rollup,
            ..config.clone()
        },
        recent,
        prune: Some(Prune {
            output_tokens: LEAST_OUTPUT,
            last_images: true,
        }),
        texts: true,
    })
}

fn last_turn(_: &mut Work<'_>, tried: &Tried, _: Budget) -> Result<Rung, StrategyError> {
    let recent = tried.rung.recent.min(1);
    Ok(Rung {
        config: CompactionConfig {
            keep_recent: KeepRecent::Turns(recent),
            ..tried.rung.config.clone()
        },
        recent,
        texts: false,
        ..tried.rung.clone()
    })
}

/// Gives back to the tool outputs what a rung that fits has left.
fn relent(work: &mut Work<'_>, tried: Tried, aim: Budget) -> Result<Tried, StrategyError> {
    let Some(prune) = tried.rung.prune else {
        return Ok(tried);
    };
    let outputs = work.outputs(&tried.planned)?;
    let over = outputs
        .iter()
        .map(|o| o.saturating_sub(prune.output_tokens));
    let room = aim.tokens - tried.after.tokens;
    let excess = over.sum::<u64>().saturating_sub(room);
    let cap = output_cap(&outputs, excess, LEAST_OUTPUT).unwrap_or(u64::MAX);
    if cap <= prune.output_tokens {
        return Ok(tried);
    }
    let softer = Rung {
        prune: Some(Prune {
            output_tokens: cap,
            ..prune
        }),
        ..tried.rung.clone()
    };
    let softer = work.try_rung(softer)?;
    Ok(if aim.fits(softer.after) {
        softer
    } else {
        tried
    })
}

/// Counts the last turns of a chain that have at most `room` tokens, what follows them included,
/// each tool output pruned as far as it goes.
fn turns_within(
    read: &dyn StoreRead,
    links: &[Link],
    window: RecentWindow,
    room: u64,
) -> StoreResult<u32> {
    let mut left = room;
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
            let Some(rest) = left.checked_sub(pruned_size(read, link, start..end)?) else {
                return Ok(turns);
            };
            (left, end) = (rest, start);
            turns += 1;
        }
    }
    Ok(turns)
}

fn pruned_size(read: &dyn StoreRead, link: &Link, seqs: std::ops::Range<u32>) -> StoreResult<u64> {
    let mut tokens = 0u64;
    read.sizes(link.row.key, seqs, &mut |message| {
        tokens += match message.role {
            Role::Extension => 0,
            Role::ToolResult => message.size.tokens.min(LEAST_OUTPUT),
            Role::User | Role::Assistant => message.size.tokens,
        };
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(tokens)
}
