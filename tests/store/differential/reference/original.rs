//! The original algorithm: blocks on loops, overwritten, with three sections on the current loop, `keep_compacted`
//! alone on earlier loops in scope, and older loops skipped. It has no cuts, pair rule, gain or turn in flight.

use super::build::tokens_with;
use super::forces::{in_force, options, originals};
use super::run::should_compact;
use super::text::{cut_result, messages_of, one_liners};
use super::tokens::message_tokens;
use super::turns::{chain, complete_turns, groups, pairs, turn_tokens};
use super::types::*;

/// The original's block.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OriginalBlock {
    pub keep_first: Option<RefRange>,
    /// The turns, and the messages that replace them.
    pub keep_compacted: Option<(RefRange, Vec<RefMessage>)>,
    /// The turns, with all their messages, cut or not.
    pub keep_recent: Option<(RefRange, Vec<RefMessage>)>,
}

/// Returns the block that the original would put on each loop of the session, `None` where none:
/// `compact_session_loops` with `FixedCount`.
pub fn compact_session_loops(
    s: &RefSession,
    leaf: usize,
    config: &RefConfig,
) -> Vec<Option<OriginalBlock>> {
    let mut blocks = vec![None; s.loops.len()];
    for loop_ix in loops_in_scope(s, leaf, config) {
        let l = &s.loops[loop_ix];
        blocks[loop_ix] = Some(if loop_ix == leaf {
            current(l, config)
        } else {
            earlier(l, config)
        });
    }
    blocks
}

/// Returns the context that the original would build from such blocks:
/// `build_context_from_session`.
pub fn build_context_from_session(
    s: &RefSession,
    leaf: usize,
    config: &RefConfig,
    blocks: &[Option<OriginalBlock>],
) -> Vec<RefMessage> {
    let scope = loops_in_scope(s, leaf, config).into_iter();
    scope
        .flat_map(|i| load(&s.loops[i], blocks[i].as_ref(), i == leaf))
        .collect()
}

/// Returns the context after one compaction by the original.
pub fn original_context(s: &RefSession, leaf: usize, config: &RefConfig) -> Vec<RefMessage> {
    let blocks = compact_session_loops(s, leaf, config);
    build_context_from_session(s, leaf, config, &blocks)
}

fn loops_in_scope(s: &RefSession, leaf: usize, config: &RefConfig) -> Vec<usize> {
    let RefScope::FixedCount(n) = config.scope else {
        panic!("only FixedCount is told here")
    };
    let chain: Vec<usize> = chain(s, leaf).iter().map(|k| k.loop_ix).collect();
    chain[chain.len().saturating_sub(n + 1)..].to_vec()
}

/// "current loop gets all three sections": the first turns, the middle, the last turns. The first
/// and the last may overlap.
fn current(l: &RefLoop, config: &RefConfig) -> OriginalBlock {
    let turns = groups(l).len() as u32;
    let first = config.keep_first_turns.min(turns);
    let recent = turns.saturating_sub(config.keep_recent_turns);
    OriginalBlock {
        keep_first: range(0, first),
        keep_compacted: range(first, recent).map(|r| (r, summary(l, r, config))),
        keep_recent: range(recent, turns).map(|r| (r, cut(l, r, config))),
    }
}

/// "earlier loops get only keep_compacted": the entire loop.
fn earlier(l: &RefLoop, config: &RefConfig) -> OriginalBlock {
    let all = range(0, groups(l).len() as u32);
    OriginalBlock {
        keep_compacted: all.map(|r| (r, summary(l, r, config))),
        ..OriginalBlock::default()
    }
}

fn range(from: u32, to: u32) -> Option<RefRange> {
    (from < to).then(|| (from, to - 1))
}

fn summary(l: &RefLoop, (first, last): RefRange, config: &RefConfig) -> Vec<RefMessage> {
    let texts = one_liners(l, first, last + 1, config.max_summary_tokens);
    texts.into_iter().map(|r| r.message).collect()
}

fn verbatim(l: &RefLoop, (first, last): RefRange) -> Vec<RefMessage> {
    messages_of(l, first, last + 1)
        .into_iter()
        .map(|(_, i)| l.messages[i].clone())
        .collect()
}

fn cut(l: &RefLoop, range: RefRange, config: &RefConfig) -> Vec<RefMessage> {
    let all = verbatim(l, range).into_iter();
    all.map(|m| cut_result(&m, config.tool_output_max_lines).unwrap_or(m))
        .collect()
}

/// "Most recent loop: loads keep_first + keep_compacted + keep_recent; older loops: loads only
/// keep_compacted; no compaction block: loads raw messages." What came after the block vanishes.
fn load(l: &RefLoop, block: Option<&OriginalBlock>, is_most_recent: bool) -> Vec<RefMessage> {
    let Some(block) = block else {
        return l.messages.clone();
    };
    let section = |s: &Option<(RefRange, Vec<RefMessage>)>| s.clone().map_or(Vec::new(), |s| s.1);
    let mut out = Vec::new();
    if is_most_recent {
        out.extend(block.keep_first.map_or(Vec::new(), |r| verbatim(l, r)));
    }
    out.extend(section(&block.keep_compacted));
    if is_most_recent {
        out.extend(section(&block.keep_recent));
    }
    out
}

/// Returns true if the original algorithm is free of its defects here and none of the later rules applies, so that one
/// compaction now must give the same context: section 5, "With `FixedCount`, `Skip` and `RecentWindow::CurrentLoop` the
/// result equals the original algorithm's".
pub fn original_is_sound(s: &RefSession, leaf: usize, config: &RefConfig, force: bool) -> bool {
    has_its_options(config)
        && is_plain(s, leaf)
        && !sections_overlap(s, leaf, config)
        && no_pair_crosses(s, leaf, config)
        && every_summary_is_smaller(s, leaf, config)
        && gains_within_budget(s, leaf, config, force)
}

fn has_its_options(config: &RefConfig) -> bool {
    let scope = matches!(config.scope, RefScope::FixedCount(_));
    let window = config.recent_window == RecentWindow::CurrentLoop;
    scope && window && config.older_loops == OlderLoops::Skip
}

/// True if every loop is whole, without extension messages and never compacted, and no turn is in flight.
fn is_plain(s: &RefSession, leaf: usize) -> bool {
    let linear = chain(s, leaf).into_iter().all(|k| {
        let l = &s.loops[k.loop_ix];
        let whole = k.turns as usize == groups(l).len();
        let bare = l.messages.iter().all(|m| m.kind != RefKind::Extension);
        whole && bare && in_force(s, leaf, k.loop_ix).is_none()
    });
    linear && complete_turns(&s.loops[leaf]) as usize == groups(&s.loops[leaf]).len()
}

fn sections_overlap(s: &RefSession, leaf: usize, config: &RefConfig) -> bool {
    let turns = groups(&s.loops[leaf]).len() as u32;
    config.keep_first_turns.min(turns) + config.keep_recent_turns.min(turns) > turns
}

/// True if no call is in another section or loop than its result.
fn no_pair_crosses(s: &RefSession, leaf: usize, config: &RefConfig) -> bool {
    let turns = groups(&s.loops[leaf]).len() as u32;
    let first = config.keep_first_turns.min(turns);
    let recent = turns.saturating_sub(config.keep_recent_turns);
    let section = |loop_ix, turn| match turn {
        _ if loop_ix != leaf => (loop_ix, 1),
        t if t < first => (loop_ix, 0),
        t if t < recent => (loop_ix, 1),
        _ => (loop_ix, 2),
    };
    let together = |a: (usize, u32), b: (usize, u32)| section(a.0, a.1) == section(b.0, b.1);
    pairs(s, leaf).iter().all(|p| {
        together(
            (p.call.loop_ix, p.call.turn),
            (p.result.loop_ix, p.result.turn),
        )
    })
}

fn every_summary_is_smaller(s: &RefSession, leaf: usize, config: &RefConfig) -> bool {
    let blocks = compact_session_loops(s, leaf, config);
    let smaller = |(loop_ix, block): (usize, &Option<OriginalBlock>)| {
        let Some(((first, last), texts)) = block.clone().and_then(|b| b.keep_compacted) else {
            return true;
        };
        texts.iter().map(message_tokens).sum::<u64>() < turn_tokens(s, loop_ix, first, last + 1)
    };
    blocks.iter().enumerate().all(smaller)
}

/// True if the trigger fires or is skipped, the context shrinks, and the result needs no fallback.
fn gains_within_budget(s: &RefSession, leaf: usize, config: &RefConfig, force: bool) -> bool {
    let before = match force {
        true => tokens_with(&originals(s), leaf, config),
        false => tokens_with(s, leaf, &options(s, leaf)),
    };
    let after: u64 = original_context(s, leaf, config)
        .iter()
        .map(message_tokens)
        .sum();
    (force || should_compact(config, before)) && after < before && !should_compact(config, after)
}
