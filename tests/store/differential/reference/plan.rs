//! The plan, section 4: the wanted layout of each loop of the chain, and the blocks it asks for.

use super::build::loop_context;
use super::forces::{anchor, in_force, originals, seen};
use super::layout::{base, grow_for_a_pair, window};
use super::scope::when_compacting;
use super::text::{cut_turns, messages_of, one_liners, rollup_of_lines};
use super::tokens::{context_tokens, message_tokens};
use super::turns::{chain, turn_tokens};
use super::types::*;

/// Returns what a compaction of a leaf would write. "`--force` plans as if nothing were in force."
pub fn plan(s: &RefSession, leaf: usize, config: &RefConfig, force: bool) -> RefPlan {
    let s = &seen(s, config);
    let (kept, first_in_scope) = settle(s, leaf, config, force);
    let generation =
        |k: &RefKept| in_force(s, leaf, k.loop_ix).map(|(_, b)| (k.loop_ix, b.generation));
    let in_force = kept.iter().filter_map(generation).collect();
    let layout = kept[first_in_scope..].to_vec();
    let ground = if force { originals(s) } else { s.clone() };
    let rollup = rollup(&ground, leaf, config, &kept[..first_in_scope]);
    let blocks = layout
        .iter()
        .filter_map(|k| block_for(s, leaf, config, force, k));
    let blocks = rollup.into_iter().chain(blocks).collect();
    RefPlan {
        config: config.clone(),
        force,
        in_force,
        first_in_scope,
        layout,
        blocks,
    }
}

/// Returns the rollup of the loops before the scope: "made from the rollup before and the blocks in
/// force of the loops that it adds (or their originals ...), written only if smaller than what it
/// replaces". It stands on the newest of them that has turns.
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
    let text = rollup_of_lines(&shown, config.max_rollup_tokens);
    let made: u64 = text.iter().map(message_tokens).sum();
    if made >= context_tokens(&shown) || made > config.max_rollup_tokens {
        return None;
    }
    let k = &older[depth];
    let replacement = |message: RefMessage| RefReplacement {
        turn: 0,
        replaces: None,
        message,
    };
    let rolled_up = |(turn, message)| RefCoverage {
        turn,
        message,
        disposition: Disposition::RolledUp,
    };
    let mut block = bare(k, BlockKind::Rollup);
    block.keep_compacted = range(0, k.turns).map(|range| RefSection {
        range,
        messages: text.into_iter().map(replacement).collect(),
    });
    let all = messages_of(&ground.loops[k.loop_ix], 0, k.turns).into_iter();
    block.coverage = all.map(rolled_up).collect();
    Some(block)
}

/// Grows what the window keeps until no pair is parted and every replacement is smaller than what
/// it replaces; returns that and the place of the first loop in scope.
fn settle(s: &RefSession, leaf: usize, config: &RefConfig, force: bool) -> (Vec<RefKept>, usize) {
    let ground = if force { originals(s) } else { s.clone() };
    let mut kept = window(&ground, leaf, config);
    loop {
        let scope = when_compacting(&ground, leaf, config, &kept);
        let grew = grow_for_a_pair(s, leaf, config, &mut kept, scope, base(&ground, leaf));
        if !grew && !keep_what_does_not_shrink(s, config, &mut kept[scope..]) {
            return (kept, scope);
        }
    }
}

/// "A middle whose replacement is not smaller stays kept"; of an earlier loop: "if the replacement
/// would not be smaller than the originals, the loop stays raw". Returns whether there was one.
fn keep_what_does_not_shrink(s: &RefSession, config: &RefConfig, in_scope: &mut [RefKept]) -> bool {
    let leaf = in_scope.len() - 1;
    let mut grew = false;
    for (i, k) in in_scope.iter_mut().enumerate() {
        if k.raw || k.first == k.recent || shrinks(s, config, k) {
            continue;
        }
        if i == leaf {
            k.first = k.recent;
        } else {
            k.raw = true;
        }
        grew = true;
    }
    grew
}

fn shrinks(s: &RefSession, config: &RefConfig, k: &RefKept) -> bool {
    let texts = one_liners(
        &s.loops[k.loop_ix],
        k.first,
        k.recent,
        config.max_summary_tokens,
    );
    let tokens: u64 = texts.iter().map(|r| message_tokens(&r.message)).sum();
    tokens < turn_tokens(s, k.loop_ix, k.first, k.recent)
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
    let wanted = sectioned(s, config, k, kind).or_else(|| {
        // "Where a loop is to be raw but a block or rollup applies to it, a block is written whose
        // `keep_first` is the whole loop."
        let depth = chain(s, leaf).iter().position(|c| c.loop_ix == k.loop_ix);
        let under_a_rollup = anchor(s, leaf).is_some_and(|a| depth.is_some_and(|d| d <= a));
        (before.is_some() || under_a_rollup).then(|| whole(s, k, kind))
    })?;
    let same = |(run, b): (usize, RefBlock)| {
        same_layout(&b, &wanted) && same_texts(&s.runs[run].config, config)
    };
    let left_alone = !force && before.is_some_and(same);
    (!left_alone).then_some(wanted)
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

fn same_texts(a: &RefConfig, b: &RefConfig) -> bool {
    a.max_summary_tokens == b.max_summary_tokens
        && a.tool_output_max_lines == b.tool_output_max_lines
}

/// Returns the block with the sections kept, or `None` where the loop is to be raw: "a layout
/// without a middle is written only if a tool result was really cut".
fn sectioned(s: &RefSession, config: &RefConfig, k: &RefKept, kind: BlockKind) -> Option<RefBlock> {
    let l = &s.loops[k.loop_ix];
    let texts = one_liners(l, k.first, k.recent, config.max_summary_tokens);
    let cuts = cut_turns(l, k.recent, k.turns, config.tool_output_max_lines);
    if k.raw || (k.first == k.recent && cuts.is_empty()) {
        return None;
    }
    let mut block = bare(k, kind);
    block.keep_first = range(0, k.first);
    block.keep_compacted = range(k.first, k.recent).map(|range| RefSection {
        range,
        messages: texts,
    });
    block.keep_recent = range(k.recent, k.turns).map(|range| RefSection {
        range,
        messages: cuts,
    });
    block.coverage = coverage(l, k, &block);
    Some(block)
}

/// Returns the block that shows a loop as it is; "no sections if it is empty".
fn whole(s: &RefSession, k: &RefKept, kind: BlockKind) -> RefBlock {
    let mut block = bare(k, kind);
    block.keep_first = range(0, k.turns);
    block.coverage = coverage(&s.loops[k.loop_ix], k, &block);
    block
}

fn bare(k: &RefKept, kind: BlockKind) -> RefBlock {
    RefBlock {
        loop_ix: k.loop_ix,
        generation: 0,
        kind,
        keep_first: None,
        keep_compacted: None,
        keep_recent: None,
        through: k.through,
        coverage: Vec::new(),
    }
}

/// Returns turns `from..to` as an inclusive range, `None` if empty.
fn range(from: u32, to: u32) -> Option<RefRange> {
    (from < to).then(|| (from, to - 1))
}

/// "`kept` or `truncated` for each message of a kept range, `summarised` or `dropped` for each
/// turn group of a compacted one (summarised = the replacement holds something made from it)."
fn coverage(l: &RefLoop, k: &RefKept, block: &RefBlock) -> Vec<RefCoverage> {
    let all = messages_of(l, 0, k.turns).into_iter();
    all.map(|(turn, message)| RefCoverage {
        turn,
        message,
        disposition: fate(block, turn, message),
    })
    .collect()
}

fn fate(block: &RefBlock, turn: u32, message: usize) -> Disposition {
    let of = |section: &Option<RefSection>| section.clone().map_or(Vec::new(), |s| s.messages);
    let compacted = block.keep_compacted.as_ref();
    if compacted.is_some_and(|c| c.range.0 <= turn && turn <= c.range.1) {
        let made = of(&block.keep_compacted).iter().any(|r| r.turn == turn);
        return if made {
            Disposition::Summarised
        } else {
            Disposition::Dropped
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
