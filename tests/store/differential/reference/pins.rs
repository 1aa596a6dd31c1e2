//! Pins, section 10: "a pinned message is kept word for word through every compaction: the section refers
//! to it by its sequence, shows it as quoted text with its author, coverage says `kept`".

use super::build::first_in_context;
use super::forces::{counts, in_force, point, seen};
use super::plan::{fate, one_lines_of};
use super::run::with_run;
use super::text::{cut_turns, messages_of};
use super::turns::{Place, chain, chain_places, groups};
use super::types::*;

/// Returns the pinned messages as seen from a leaf, in the order of the chain. A pin counts as an undo does, and the
/// last one decides.
pub fn pinned(s: &RefSession, leaf: usize) -> Vec<Place> {
    let is_pinned = |p: &Place| {
        let of = (p.loop_ix, p.message);
        let counting = s.pins.iter().filter(|pin| pin.of == of);
        let last = counting
            .filter(|pin| counts(s, leaf, pin.loop_ix, pin.point))
            .max_by_key(|pin| pin.tick);
        last.is_some_and(|pin| pin.pinned)
    };
    chain_places(s, leaf)
        .into_iter()
        .filter(is_pinned)
        .collect()
}

/// Pins a message of a turn, or without one the messages of a person or the agent in it. Returns each with true if it
/// was not pinned before; `None` if that is rejected.
pub fn pin(
    s: &mut RefSession,
    leaf: Option<usize>,
    (loop_ix, turn, message): (usize, u32, Option<usize>),
) -> Option<Vec<(usize, bool)>> {
    let leaf = leaf_for(s, leaf, loop_ix, turn)?;
    let l = &s.loops[loop_ix];
    let group = groups(l).get(turn as usize)?.clone();
    let is_asked = |i: &usize| match message {
        Some(message) => *i == message,
        None => l.messages[*i].kind != RefKind::ToolResult,
    };
    let says_something = |i: &usize| {
        let m = &l.messages[*i];
        !m.calls.is_empty() || m.texts.iter().any(|text| !text.trim().is_empty())
    };
    let asked: Vec<usize> = group
        .into_iter()
        .filter(is_asked)
        .filter(says_something)
        .collect();
    (!asked.is_empty()).then(|| change(s, leaf, loop_ix, &asked, true))
}

/// Removes the pins of a message of a turn, or of all its messages; `None` if none is pinned.
pub fn unpin(
    s: &mut RefSession,
    leaf: Option<usize>,
    (loop_ix, turn, message): (usize, u32, Option<usize>),
) -> Option<Vec<(usize, bool)>> {
    let leaf = leaf_for(s, leaf, loop_ix, turn)?;
    let is_asked = |p: &Place| {
        (p.loop_ix, p.turn) == (loop_ix, turn) && message.is_none_or(|message| p.message == message)
    };
    let asked: Vec<usize> = pinned(s, leaf)
        .into_iter()
        .filter(is_asked)
        .map(|p| p.message)
        .collect();
    (!asked.is_empty()).then(|| change(s, leaf, loop_ix, &asked, false))
}

/// Returns the leaf from which a pin is made: the requested one, which must have the turn on its chain, else the
/// current loop if that has it, else the message's own loop.
fn leaf_for(s: &RefSession, asked: Option<usize>, loop_ix: usize, turn: u32) -> Option<usize> {
    let has = |leaf: usize| {
        let within = |turns| leaf == loop_ix || turn < turns;
        chain(s, leaf)
            .iter()
            .any(|k| k.loop_ix == loop_ix && within(k.turns))
    };
    match asked {
        Some(leaf) => has(leaf).then_some(leaf),
        None => Some(current(s)).filter(|leaf| has(*leaf)).or(Some(loop_ix)),
    }
}

/// Returns the loop "last appended to or created".
fn current(s: &RefSession) -> usize {
    let last = |l: &RefLoop| {
        let ticks = l.messages.iter().map(|m| m.tick);
        ticks.chain([l.created_tick]).max()
    };
    let loops = s.loops.iter().enumerate();
    loops
        .max_by_key(|(_, l)| last(l))
        .expect("there is a loop")
        .0
}

fn change(
    s: &mut RefSession,
    leaf: usize,
    loop_ix: usize,
    messages: &[usize],
    to: bool,
) -> Vec<(usize, bool)> {
    let before = pinned(s, leaf);
    let mut changes = Vec::new();
    for &message in messages {
        let is_pinned = before
            .iter()
            .any(|p| (p.loop_ix, p.message) == (loop_ix, message));
        if is_pinned != to {
            let (point, tick) = (point(s, leaf), s.next_tick());
            s.pins.push(RefPin {
                of: (loop_ix, message),
                pinned: to,
                loop_ix: leaf,
                point,
                tick,
            });
        }
        changes.push((message, is_pinned != to));
    }
    changes
}

/// Returns the messages that a block quotes.
pub fn quoted(block: &RefBlock) -> Vec<RefPlace> {
    let own = block.keep_compacted.iter().flat_map(|s| &s.messages);
    own.filter_map(|r| r.quotes).collect()
}

/// Returns the quotes of the pinned messages that a block would hide: those of the turns that it compacts,
/// and for a rollup those of the loops before.
pub fn quotes(
    s: &RefSession,
    leaf: usize,
    block_loop: usize,
    compacted: Option<RefRange>,
    is_rollup: bool,
) -> Vec<RefReplacement> {
    let depth = chain(s, leaf)
        .iter()
        .position(|k| k.loop_ix == block_loop)
        .expect("a loop of the chain");
    let is_hidden = |p: &Place| match p.depth == depth {
        true => compacted.is_some_and(|(first, last)| first <= p.turn && p.turn <= last),
        false => is_rollup && p.depth < depth,
    };
    let quote = |p: Place| RefReplacement {
        turn: p.turn,
        replaces: None,
        quotes: Some((p.loop_ix, p.message)),
        message: quote_of(s, block_loop, p),
    };
    pinned(s, leaf)
        .into_iter()
        .filter(is_hidden)
        .map(quote)
        .collect()
}

/// Returns a message in the form in which a block on a loop quotes it: a note of the harness with its origin and
/// author, and its texts and calls. Thinking is left out.
fn quote_of(s: &RefSession, block_loop: usize, p: Place) -> RefMessage {
    let m = &s.loops[p.loop_ix].messages[p.message];
    let whose = match m.kind {
        RefKind::User => "user".to_string(),
        RefKind::Assistant => "assistant".to_string(),
        RefKind::ToolResult if m.tool_name.is_empty() => "result".to_string(),
        RefKind::ToolResult => format!("result of {}", m.tool_name),
        RefKind::Extension => unreachable!("an extension is in no turn"),
    };
    let of = match p.loop_ix == block_loop {
        true => String::new(),
        false => format!(" of {}", s.loops[p.loop_ix].id),
    };
    let label = match m.kind {
        RefKind::User => "Kept prompt",
        _ => "Pinned",
    };
    let mut lines = vec![format!("[{label}, t{}{of}, {whose}]", p.turn)];
    lines.extend(m.texts.iter().cloned());
    let calls = m.calls.iter();
    lines.extend(calls.map(|(_, name, arguments)| format!("{name} {arguments}")));
    let quote = RefMessage::new(RefKind::User, None, 0).with_text(lines.join("\n"));
    RefMessage {
        from_harness: true,
        ..quote
    }
}

/// Adds to a plan the active blocks that stay in the context although they do not show the current pins: each is
/// written again, with its texts.
pub fn with_renewed(s: &RefSession, leaf: usize, mut plan: RefPlan) -> RefPlan {
    while !s.pins.is_empty() {
        let after = seen(&with_run(s, leaf, &plan), &plan.config);
        let first = first_in_context(&after, leaf, &plan.config);
        let links = chain(s, leaf);
        let standing = links[first..].iter().filter_map(|k| {
            let is_new = plan.blocks.iter().any(|b| b.loop_ix == k.loop_ix);
            let (_, block) = in_force(&after, leaf, k.loop_ix)?;
            (!is_new).then_some(block)
        });
        let renewed: Vec<RefBlock> = standing
            .filter_map(|block| renewed(s, leaf, &plan.config, &block))
            .collect();
        if renewed.is_empty() {
            return plan;
        }
        plan.blocks.extend(renewed);
        let depth = |b: &RefBlock| links.iter().position(|k| k.loop_ix == b.loop_ix);
        plan.blocks.sort_by_key(depth);
    }
    plan
}

/// Returns a block with the current pins; `None` if it shows them already.
fn renewed(s: &RefSession, leaf: usize, config: &RefConfig, before: &RefBlock) -> Option<RefBlock> {
    let is_rollup = before.kind == BlockKind::Rollup;
    let compacted = before.keep_compacted.as_ref().map(|c| c.range);
    let wanted = quotes(s, leaf, before.loop_ix, compacted, is_rollup);
    let places: Vec<RefPlace> = wanted.iter().filter_map(|r| r.quotes).collect();
    let now: Vec<RefPlace> = pinned(s, leaf)
        .iter()
        .map(|p| (p.loop_ix, p.message))
        .collect();
    let is_pinned = |message: usize| now.contains(&(before.loop_ix, message));
    let is_cut = |r: &RefReplacement| r.replaces.is_some_and(is_pinned);
    let cuts = before.keep_recent.iter().flat_map(|r| &r.messages);
    if quoted(before) == places && !cuts.clone().any(is_cut) {
        return None;
    }
    let mut block = RefBlock {
        generation: 0,
        kind: match before.kind {
            BlockKind::Rollup => BlockKind::Rollup,
            _ if before.loop_ix == leaf => BlockKind::Current,
            _ => BlockKind::Earlier,
        },
        ..before.clone()
    };
    let l = &s.loops[block.loop_ix];
    let is_unknown = !is_rollup && has_a_turn_of_which_no_more_is_known(s, before, &places);
    if is_unknown {
        block.shaping = (config.max_summary_tokens, config.tool_output_max_lines);
    }
    if let Some(section) = &mut block.keep_compacted {
        match is_unknown {
            true => section.messages = one_lines_of(l, section.range, config),
            false => section.messages.retain(|r| r.quotes.is_none()),
        }
        section.messages.extend(wanted);
    }
    if let Some(section) = &mut block.keep_recent {
        let (first, last) = section.range;
        match is_unknown {
            true => {
                let lines = config.tool_output_max_lines;
                section.messages = cut_turns(l, first, last + 1, lines, is_pinned);
            }
            false => section.messages.retain(|r| !is_cut(r)),
        }
    }
    let end = before.coverage.last().map_or(0, |c| c.turn + 1);
    block.coverage = messages_of(l, 0, end)
        .into_iter()
        .map(|(turn, message)| RefCoverage {
            turn,
            message,
            disposition: fate(&block, turn, message),
        })
        .collect();
    Some(block)
}

/// Returns true if every message of a turn was quoted and one no longer is: the coverage was `kept`, without a record
/// of whether the summary includes it. The strategy decides between "summarised or dropped" again.
fn has_a_turn_of_which_no_more_is_known(
    s: &RefSession,
    before: &RefBlock,
    now: &[RefPlace],
) -> bool {
    let Some(section) = &before.keep_compacted else {
        return false;
    };
    let (first, last) = section.range;
    (first..=last).any(|turn| {
        let places = messages_of(&s.loops[before.loop_ix], turn, turn + 1);
        let mut places = places.into_iter().map(|(_, i)| (before.loop_ix, i));
        let then = quoted(before);
        places.clone().all(|p| then.contains(&p)) && !places.all(|p| now.contains(&p))
    })
}
