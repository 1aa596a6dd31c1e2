//! The context of the next model call, section 5.

use super::forces::{AsOf, anchor, at, in_force, options, seen};
use super::layout;
use super::pins::quoted;
use super::scope;
use super::tokens::{context_tokens, message_tokens};
use super::turns::{Place, chain, link_places, pairs};
use super::types::*;

/// Returns the context of a leaf, optionally as of an earlier point (whose loop then replaces `leaf`), with default
/// options.
pub fn build(s: &RefSession, leaf: usize, as_of: Option<AsOf>) -> Vec<RefOut> {
    match as_of {
        None => build_with(s, leaf, &options(s, leaf)),
        Some(moment) => {
            let (past, leaf) = at(s, moment);
            build_with(&past, leaf, &options(&past, leaf))
        }
    }
}

/// Returns the context of a leaf: "the rollup in force, then every loop of the chain after its
/// anchor, root to leaf: its sections in order, then its tail; without a block, raw up to the cut".
/// "Only `Skip` resolves a scope when building."
pub fn build_with(s: &RefSession, leaf: usize, config: &RefConfig) -> Vec<RefOut> {
    let s = &seen(s, config);
    let first = first_in_context(s, leaf, config);
    let depths = first..chain(s, leaf).len();
    depths
        .flat_map(|depth| loop_context(s, leaf, depth))
        .collect()
}

/// Returns the tokens of that context.
pub fn tokens_with(s: &RefSession, leaf: usize, config: &RefConfig) -> u64 {
    context_tokens(&build_with(s, leaf, config))
}

/// Returns the position on the chain of the first loop in the context. With `Skip`, a loop that shows the call of a
/// result in the context is in scope, "with those between".
pub fn first_in_context(s: &RefSession, leaf: usize, config: &RefConfig) -> usize {
    let s = &seen(s, config);
    if config.older_loops == OlderLoops::Rollup {
        return anchor(s, leaf).unwrap_or(0);
    }
    let mut reached = layout::reached(&layout::window(s, leaf, config));
    loop {
        let first = scope::when_building(s, leaf, config, reached);
        match call_left_behind(s, leaf, first) {
            Some(depth) => reached = depth,
            None => return first,
        }
    }
}

fn call_left_behind(s: &RefSession, leaf: usize, first: usize) -> Option<usize> {
    let shown = |p: Place| shows(s, leaf, p.loop_ix, p.message);
    let all = pairs(s, leaf).into_iter();
    let mut parted = all.filter(|p| p.call.depth < first && p.result.depth >= first);
    parted
        .find(|p| shown(p.call) && shown(p.result))
        .map(|p| p.call.depth)
}

/// Returns the messages of one loop of the chain in the context.
pub fn loop_context(s: &RefSession, leaf: usize, depth: usize) -> Vec<RefOut> {
    let link = chain(s, leaf)[depth];
    let places = link_places(s, depth, link);
    let Some((_, block)) = in_force(s, leaf, link.loop_ix) else {
        return places
            .into_iter()
            .map(|p| original(s, p, RefPart::Raw))
            .collect();
    };
    let covered = |p: &Place| block.through.is_some_and(|through| p.message <= through);
    let (covered, tail): (Vec<Place>, Vec<Place>) = places.into_iter().partition(covered);
    let mut out = sections(s, &block, &covered);
    out.extend(tail.into_iter().map(|p| original(s, p, RefPart::Tail)));
    out
}

fn sections(s: &RefSession, block: &RefBlock, covered: &[Place]) -> Vec<RefOut> {
    let mut out = Vec::new();
    if let Some(range) = block.keep_first {
        out.extend(within(covered, range).map(|p| original(s, p, RefPart::First)));
    }
    if let Some(section) = &block.keep_compacted {
        out.extend(
            section
                .messages
                .iter()
                .map(|r| replacement(block, r, RefPart::Compacted)),
        );
    }
    if let Some(section) = &block.keep_recent {
        out.extend(within(covered, section.range).map(|p| recent(s, block, section, p)));
    }
    out
}

fn within(places: &[Place], (first, last): RefRange) -> impl Iterator<Item = Place> + '_ {
    places
        .iter()
        .copied()
        .filter(move |p| first <= p.turn && p.turn <= last)
}

fn recent(s: &RefSession, block: &RefBlock, section: &RefSection, p: Place) -> RefOut {
    let cut = section
        .messages
        .iter()
        .find(|r| r.replaces == Some(p.message));
    cut.map_or_else(
        || original(s, p, RefPart::Recent),
        |r| replacement(block, r, RefPart::Recent),
    )
}

fn original(s: &RefSession, p: Place, part: RefPart) -> RefOut {
    let message = s.loops[p.loop_ix].messages[p.message].clone();
    let tokens = message_tokens(&message);
    RefOut {
        loop_ix: p.loop_ix,
        turn: p.turn,
        original: Some(p.message),
        quotes: None,
        message,
        part,
        tokens,
    }
}

fn replacement(block: &RefBlock, r: &RefReplacement, part: RefPart) -> RefOut {
    let tokens = message_tokens(&r.message);
    let message = r.message.clone();
    RefOut {
        loop_ix: block.loop_ix,
        turn: r.turn,
        original: r.replaces,
        quotes: r.quotes,
        message,
        part,
        tokens,
    }
}

/// Returns true if a message of the chain is shown, whole or cut, if its loop is in the context. A quoted message is
/// not shown at its original position.
pub fn shows(s: &RefSession, leaf: usize, loop_ix: usize, message: usize) -> bool {
    let hides = |c: &RefCoverage| {
        let gone = !matches!(c.disposition, Disposition::Kept | Disposition::Truncated);
        c.message == message && gone
    };
    let depth = chain(s, leaf).iter().position(|k| k.loop_ix == loop_ix);
    if anchor(s, leaf).is_some_and(|anchor| depth.is_some_and(|depth| depth < anchor)) {
        return false;
    }
    let block = in_force(s, leaf, loop_ix);
    !block.is_some_and(|(_, b)| {
        b.coverage.iter().any(hides) || quoted(&b).contains(&(loop_ix, message))
    })
}

/// Returns `(loop, message)` of each result in a context without an earlier call.
pub fn results_without_call(context: &[RefOut]) -> Vec<(usize, usize)> {
    let makes = |o: &RefOut, id: &String| o.message.calls.iter().any(|(call, _, _)| call == id);
    let mut faults = Vec::new();
    for (i, o) in context.iter().enumerate() {
        let (Some(id), Some(message)) = (&o.message.answers, o.original) else {
            continue;
        };
        if !context[..i].iter().any(|before| makes(before, id)) {
            faults.push((o.loop_ix, message));
        }
    }
    faults
}
