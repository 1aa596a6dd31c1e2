//! `resolve_scope`: the earlier loops that a compaction or a build includes.

use super::build::loop_context;
use super::layout::{base, reached};
use super::tokens::context_tokens;
use super::turns::{chain, turn_tokens};
use super::types::*;

/// Returns the position on the chain of the first loop in scope of a compaction. Loops reached by the recent window
/// "are in scope whatever the scope says". `ground` is the session with the blocks that the plan considers active.
pub fn when_compacting(
    ground: &RefSession,
    leaf: usize,
    config: &RefConfig,
    kept: &[RefKept],
) -> usize {
    let spent = |depth: usize| planned_tokens(ground, leaf, config, &kept[depth]);
    let cost = |depth: usize| in_force_tokens(ground, leaf, depth).min(config.max_summary_tokens);
    let base = base(ground, leaf);
    let rollup = match config.older_loops {
        OlderLoops::Skip => 0,
        OlderLoops::Rollup => config.max_rollup_tokens,
    };
    let config = RefConfig {
        system_tokens: config.system_tokens + rollup,
        ..config.clone()
    };
    first_in_scope(&config, kept.len() - 1, base, reached(kept), spent, cost)
}

/// Returns the position on the chain of the first loop in scope of a build with `Skip`, where every loop costs the
/// tokens of its active form.
pub fn when_building(s: &RefSession, leaf: usize, config: &RefConfig, reached: usize) -> usize {
    let cost = |depth: usize| in_force_tokens(s, leaf, depth);
    first_in_scope(config, chain(s, leaf).len() - 1, 0, reached, cost, cost)
}

/// "`FixedCount(n)`: the last `n` earlier loops. `TokenBudget`: from `max_context_tokens` less the
/// system prompt, ... the loops that the recent window reaches, and the current loop ..., walk back
/// subtracting ...; exact fit is allowed; stop at the first that does not fit."
fn first_in_scope(
    config: &RefConfig,
    leaf_depth: usize,
    base: usize,
    reached: usize,
    spent: impl Fn(usize) -> u64,
    cost: impl Fn(usize) -> u64,
) -> usize {
    if let RefScope::FixedCount(n) = config.scope {
        return reached.min(leaf_depth.saturating_sub(n)).max(base);
    }
    let window = config
        .max_context_tokens
        .saturating_sub(config.system_tokens);
    let mut left = i128::from(window);
    left -= (reached..=leaf_depth)
        .map(|d| i128::from(spent(d)))
        .sum::<i128>();
    let mut first = reached;
    while first > base && i128::from(cost(first - 1)) <= left {
        first -= 1;
        left -= i128::from(cost(first));
    }
    first
}

/// "as planned (kept turns uncut, plus at most `max_summary_tokens` for its middle ...)", and for
/// the current loop its turn in flight.
fn planned_tokens(s: &RefSession, leaf: usize, config: &RefConfig, k: &RefKept) -> u64 {
    let link = *chain(s, leaf)
        .iter()
        .find(|c| c.loop_ix == k.loop_ix)
        .expect("a loop of the chain");
    let kept =
        turn_tokens(s, k.loop_ix, 0, k.first) + turn_tokens(s, k.loop_ix, k.recent, link.turns);
    let middle = turn_tokens(s, k.loop_ix, k.first, k.recent);
    kept + middle.min(config.max_summary_tokens)
}

fn in_force_tokens(s: &RefSession, leaf: usize, depth: usize) -> u64 {
    context_tokens(&loop_context(s, leaf, depth))
}
