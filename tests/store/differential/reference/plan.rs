//! The plan, section 4: the wanted layout of each loop of the chain, and the blocks for it.

use super::build::loop_context;
use super::forces::{anchor, in_force, originals, seen};
use super::layout::{base, grow_for_a_pair, window};
use super::pins::{pinned, quotes, with_renewed};
use super::scope::when_compacting;
use super::text::{cut_turns, messages_of, one_liners, rollup_of_lines};
use super::tokens::{context_tokens, message_tokens};
use super::turns::{chain, turn_tokens};
use super::types::*;

/// Returns the blocks that a compaction of a leaf would write. "`--force` plans as if nothing were in force."
pub fn plan(s: &RefSession, leaf: usize, config: &RefConfig, force: bool) -> RefPlan {
    let s = &seen(s, config);
    let ground = if force { originals(s) } else { s.clone() };
    let (mut kept, mut first_in_scope) = fit_layout(s, leaf, config, force, false);
    let rollup = rollup(&ground, leaf, config, &kept[..first_in_scope]);
    let older = &kept[base(&ground, leaf)..first_in_scope];
    if rollup.is_none() && older.iter().any(|k| k.turns > 0) {
        // The loops before the scope stay, with the calls in them.
        (kept, first_in_scope) = fit_layout(s, leaf, config, force, true);
    }
    let generation =
        |k: &RefKept| in_force(s, leaf, k.loop_ix).map(|(_, b)| (k.loop_ix, b.generation));
    let in_force = kept.iter().filter_map(generation).collect();
    let layout = kept[first_in_scope..].to_vec();
    let blocks = layout
        .iter()
        .filter_map(|k| block_for(s, leaf, config, force, k));
    let blocks = rollup.into_iter().chain(blocks).collect();
    let pins = pinned(s, leaf).into_iter();
    let pins = pins.map(|p| (p.loop_ix, p.message));
    let plan = RefPlan {
        config: config.clone(),
        force,
        in_force,
        first_in_scope,
        layout,
        pins: pins.collect(),
        blocks,
    };
    with_renewed(s, leaf, plan)
}

/// Returns the rollup of the loops before the scope: "made from the rollup before and the blocks in force of the loops
/// that it adds (or their originals ...), written only if smaller than what it replaces". The rollup is on the newest
/// of these loops that has turns.
fn rollup(
    ground: &RefSession,
    leaf: usize,
    config: &RefConfig,
    older: &[RefKept],
) -> Option<RefBlock> {
    if config.older_loops == OlderLoops::Skip || config.max_rollup_tokens == 0 {
        return None;
    }
    let base = base(ground, leaf);
    let depth = (base..older.len())
        .rev()
        .find(|&depth| older[depth].turns > 0)?;
    let shown: Vec<RefOut> = (base.saturating_sub(1)..=depth)
        .flat_map(|depth| loop_context(ground, leaf, depth))
        .collect();
    let is_quote = |out: &RefOut| out.quotes.is_some();
    let said: Vec<RefOut> = shown.iter().filter(|o| !is_quote(o)).cloned().collect();
    let text = rollup_of_lines(&said, config.max_rollup_tokens);
    let made: u64 = text.iter().map(message_tokens).sum();
    let k = &older[depth];
    let quotes = quotes(ground, leaf, k.loop_ix, range(0, k.turns), true);
    if made + tokens_of(&quotes) >= context_tokens(&shown) || made > config.max_rollup_tokens {
        return None;
    }
    let replacement = |message: RefMessage| RefReplacement {
        turn: 0,
        replaces: None,
        quotes: None,
        message,
    };
    let mut block = bare(k, BlockKind::Rollup, config);
    block.keep_compacted = range(0, k.turns).map(|range| RefSection {
        range,
        messages: text.into_iter().map(replacement).chain(quotes).collect(),
    });
    block.coverage = coverage(&ground.loops[k.loop_ix], k, &block);
    Some(block)
}

/// Extends the kept turns until no pair is separated and every replacement is smaller than the messages that it
/// replaces. Returns the kept turns, and the position of the first loop in scope.
fn fit_layout(
    s: &RefSession,
    leaf: usize,
    config: &RefConfig,
    force: bool,
    keeps_older: bool,
) -> (Vec<RefKept>, usize) {
    let ground = if force { originals(s) } else { s.clone() };
    let mut kept = window(&ground, leaf, config);
    loop {
        let scope = when_compacting(&ground, leaf, config, &kept);
        let base = base(&ground, leaf);
        let grew = grow_for_a_pair(s, leaf, config, &mut kept, scope, base, keeps_older);
        if !grew && !keep_what_does_not_shrink(s, leaf, config, &mut kept[scope..]) {
            return (kept, scope);
        }
    }
}

/// "A middle whose replacement is not smaller stays kept"; of an earlier loop: "if the replacement
/// would not be smaller than the originals, the loop stays raw". Returns whether there was one.
fn keep_what_does_not_shrink(
    s: &RefSession,
    leaf: usize,
    config: &RefConfig,
    in_scope: &mut [RefKept],
) -> bool {
    let last = in_scope.len() - 1;
    let mut grew = false;
    for (i, k) in in_scope.iter_mut().enumerate() {
        if k.raw || k.first == k.recent || shrinks(s, leaf, config, k) {
            continue;
        }
        if i == last {
            k.first = k.recent;
        } else {
            k.raw = true;
        }
        grew = true;
    }
    grew
}

fn shrinks(s: &RefSession, leaf: usize, config: &RefConfig, k: &RefKept) -> bool {
    tokens_of(&compacted(s, leaf, config, k)) < turn_tokens(s, k.loop_ix, k.first, k.recent)
}

/// Returns the replacement of the turns that are not kept: their summary, then quotes of their pinned messages.
fn compacted(s: &RefSession, leaf: usize, config: &RefConfig, k: &RefKept) -> Vec<RefReplacement> {
    let Some(range) = range(k.first, k.recent) else {
        return Vec::new();
    };
    let mut texts = one_lines_of(&s.loops[k.loop_ix], range, config);
    texts.extend(quotes(s, leaf, k.loop_ix, Some(range), false));
    texts
}

/// Returns the summary of some turns.
pub fn one_lines_of(
    l: &RefLoop,
    (first, last): RefRange,
    config: &RefConfig,
) -> Vec<RefReplacement> {
    one_liners(l, first, last + 1, config.max_summary_tokens)
}

fn tokens_of(messages: &[RefReplacement]) -> u64 {
    messages.iter().map(|r| message_tokens(&r.message)).sum()
}

/// Returns the block to write on a loop in scope, if any: "A loop whose block in force has that
/// layout, that strategy and that text-shaping config already, and nothing new to cover, is left
/// alone."
fn block_for(
    s: &RefSession,
    leaf: usize,
    config: &RefConfig,
    force: bool,
    k: &RefKept,
) -> Option<RefBlock> {
    let before = in_force(s, leaf, k.loop_ix);
    let kind = if k.loop_ix == leaf {
        BlockKind::Current
    } else {
        BlockKind::Earlier
    };
    let same = |(_, b): &(usize, RefBlock), layout: &RefBlock| {
        !force
            && b.kind != BlockKind::Rollup
            && same_layout(b, layout)
            && b.shaping == layout.shaping
    };
    let is_same = |layout: &RefBlock| before.as_ref().is_some_and(|before| same(before, layout));
    // Later pins change the block, but not the plan: see `with_renewed`.
    if is_same(&laid_out(k, kind, config)) {
        return None;
    }
    let wanted = sectioned(s, leaf, config, k, kind).or_else(|| {
        // "Where a loop is to be raw but a block or rollup applies to it, a block is written whose
        // `keep_first` is the whole loop."
        let depth = chain(s, leaf).iter().position(|c| c.loop_ix == k.loop_ix);
        let under_a_rollup = anchor(s, leaf).is_some_and(|a| depth.is_some_and(|d| d <= a));
        (before.is_some() || under_a_rollup).then(|| whole(s, config, k, kind))
    })?;
    (!is_same(&wanted)).then_some(wanted)
}

/// Returns the ranges of a block with the sections kept.
fn laid_out(k: &RefKept, kind: BlockKind, config: &RefConfig) -> RefBlock {
    let section = |from, to| {
        range(from, to).map(|range| RefSection {
            range,
            messages: Vec::new(),
        })
    };
    let mut block = bare(k, kind, config);
    if k.raw {
        block.keep_first = range(0, k.turns);
        return block;
    }
    block.keep_first = range(0, k.first);
    block.keep_compacted = section(k.first, k.recent);
    block.keep_recent = section(k.recent, k.turns);
    block
}

fn same_layout(a: &RefBlock, b: &RefBlock) -> bool {
    let ranges = |b: &RefBlock| {
        let section = |s: &Option<RefSection>| s.as_ref().map(|s| s.range);
        (
            b.keep_first,
            section(&b.keep_compacted),
            section(&b.keep_recent),
            b.through,
        )
    };
    ranges(a) == ranges(b)
}

/// Returns the block with the sections kept, or `None` where the loop is to be raw: "a layout
/// without a middle is written only if a tool result was really cut".
fn sectioned(
    s: &RefSession,
    leaf: usize,
    config: &RefConfig,
    k: &RefKept,
    kind: BlockKind,
) -> Option<RefBlock> {
    let l = &s.loops[k.loop_ix];
    let texts = compacted(s, leaf, config, k);
    let pins = pinned(s, leaf);
    let is_pinned = |i: usize| {
        pins.iter()
            .any(|p| (p.loop_ix, p.message) == (k.loop_ix, i))
    };
    let lines = config.tool_output_max_lines;
    let cuts = cut_turns(l, k.recent, k.turns, lines, is_pinned);
    if k.raw || (k.first == k.recent && cuts.is_empty()) {
        return None;
    }
    let mut block = laid_out(k, kind, config);
    if let Some(section) = &mut block.keep_compacted {
        section.messages = texts;
    }
    if let Some(section) = &mut block.keep_recent {
        section.messages = cuts;
    }
    block.coverage = coverage(l, k, &block);
    Some(block)
}

/// Returns the block that shows a loop as it is; "no sections if it is empty".
fn whole(s: &RefSession, config: &RefConfig, k: &RefKept, kind: BlockKind) -> RefBlock {
    let mut block = bare(k, kind, config);
    block.keep_first = range(0, k.turns);
    block.coverage = coverage(&s.loops[k.loop_ix], k, &block);
    block
}

fn bare(k: &RefKept, kind: BlockKind, config: &RefConfig) -> RefBlock {
    RefBlock {
        loop_ix: k.loop_ix,
        generation: 0,
        kind,
        keep_first: None,
        keep_compacted: None,
        keep_recent: None,
        through: k.through,
        shaping: (config.max_summary_tokens, config.tool_output_max_lines),
        coverage: Vec::new(),
    }
}

/// Returns turns `from..to` as an inclusive range, `None` if empty.
fn range(from: u32, to: u32) -> Option<RefRange> {
    (from < to).then(|| (from, to - 1))
}

/// "`kept` or `truncated` for each message of a kept range, `summarised` or `dropped` for each
/// turn group of a compacted one (summarised = the replacement holds something made from it)"; a message
/// that is quoted is `kept`, and those of a rollup are `rolled_up` otherwise.
fn coverage(l: &RefLoop, k: &RefKept, block: &RefBlock) -> Vec<RefCoverage> {
    let all = messages_of(l, 0, k.turns).into_iter();
    all.map(|(turn, message)| RefCoverage {
        turn,
        message,
        disposition: fate(block, turn, message),
    })
    .collect()
}

pub fn fate(block: &RefBlock, turn: u32, message: usize) -> Disposition {
    let of = |section: &Option<RefSection>| section.clone().map_or(Vec::new(), |s| s.messages);
    let compacted = block.keep_compacted.as_ref();
    if compacted.is_some_and(|c| c.range.0 <= turn && turn <= c.range.1) {
        let is_quote = |r: &RefReplacement| r.quotes == Some((block.loop_ix, message));
        let is_text = |r: &RefReplacement| r.quotes.is_none() && r.turn == turn;
        let made = of(&block.keep_compacted);
        return match () {
            () if made.iter().any(is_quote) => Disposition::Kept,
            () if block.kind == BlockKind::Rollup => Disposition::RolledUp,
            () if made.iter().any(is_text) => Disposition::Summarised,
            () => Disposition::Dropped,
        };
    }
    let cut = of(&block.keep_recent)
        .iter()
        .any(|r| r.replaces == Some(message));
    if cut {
        Disposition::Truncated
    } else {
        Disposition::Kept
    }
}
