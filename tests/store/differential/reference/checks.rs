//! Invariants of any block and any context, whatever produced them. These checks share no code with the plan and the
//! build, so that they can be applied to the model and to the store alike.

use super::build::{build_with, first_in_context};
use super::forces::{in_force, options, seen};
use super::pins;
use super::types::*;

/// A message of a line: `(loop, index, turn)`.
type ChainMessage = (usize, usize, u32);

/// Returns the turn of each message of a loop, `None` for extensions.
fn turn_numbers(l: &RefLoop) -> Vec<Option<u32>> {
    let mut last: Option<(u32, Option<u32>)> = None;
    let mut numbers = Vec::new();
    for m in &l.messages {
        if m.kind == RefKind::Extension {
            numbers.push(None);
            continue;
        }
        let turn = match last {
            None => 0,
            Some((turn, index)) if index.is_some() && index == m.turn_index => turn,
            Some((turn, _)) => turn + 1,
        };
        last = Some((turn, m.turn_index));
        numbers.push(Some(turn));
    }
    numbers
}

/// Returns every message that belongs to the leaf's chain, in order.
fn chain_messages(s: &RefSession, leaf: usize) -> Vec<ChainMessage> {
    let l = &s.loops[leaf];
    let mut chain_messages = match l.parent {
        Some(parent) => chain_messages(s, parent),
        None => Vec::new(),
    };
    if let Some(parent) = l.parent {
        chain_messages.retain(|&(loop_ix, _, turn)| {
            loop_ix != parent || l.parent_turn.is_some_and(|cut| turn <= cut)
        });
    }
    let numbers = turn_numbers(l).into_iter().enumerate();
    chain_messages.extend(numbers.filter_map(|(i, turn)| Some((leaf, i, turn?))));
    chain_messages
}

/// Checks the model's own context of a leaf, with options not given.
pub fn every_turn_once(s: &RefSession, leaf: usize) -> Result<(), String> {
    every_turn_once_with(s, leaf, &options(s, leaf))
}

/// Checks the model's own context of a leaf. With `Skip`, loops older than the scope are absent.
pub fn every_turn_once_with(s: &RefSession, leaf: usize, config: &RefConfig) -> Result<(), String> {
    let s = &seen(s, config);
    let mut line: Vec<usize> = chain_messages(s, leaf).iter().map(|p| p.0).collect();
    line.dedup();
    let blocks: Vec<RefBlock> = line
        .iter()
        .filter_map(|&i| in_force(s, leaf, i))
        .map(|(_, b)| b)
        .collect();
    let first = super::turns::chain(s, leaf)[first_in_context(s, leaf, config)].loop_ix;
    shown_or_covered_once(s, leaf, first, &build_with(s, leaf, config), &blocks)
}

/// Checks that each message of the chain, from loop `first` on, is either in the context exactly once (whole or cut,
/// according to its coverage), or hidden by the coverage of exactly one active block; that older messages are absent;
/// and that the order is that of the chain.
pub fn shown_or_covered_once(
    s: &RefSession,
    leaf: usize,
    first: usize,
    context: &[RefOut],
    blocks: &[RefBlock],
) -> Result<(), String> {
    let line = chain_messages(s, leaf);
    let scope = loops_from(s, leaf, first);
    for &position in &line {
        let skipped = !scope.contains(&position.0);
        let is_quote = |o: &&RefOut| o.quotes == Some((position.0, position.1));
        let quotes = context.iter().filter(is_quote).count();
        let shown: Vec<&RefOut> = context
            .iter()
            .filter(|o| (o.loop_ix, o.original) == (position.0, Some(position.1)))
            .collect();
        match skipped {
            true if shown.is_empty() && quotes <= 1 => (),
            true => return Err(format!("{position:?} is older than the scope but shown")),
            false => check_spot(s, position, &shown, &fates(blocks, position), quotes)?,
        }
    }
    in_order(&line, context)
}

/// Returns the loops of the chain from `first` to the leaf, leaf first.
fn loops_from(s: &RefSession, leaf: usize, first: usize) -> Vec<usize> {
    let mut loops = vec![leaf];
    while let (Some(&at), false) = (loops.last(), loops.last() == Some(&first)) {
        let Some(parent) = s.loops[at].parent else {
            break;
        };
        loops.push(parent);
    }
    loops
}

fn fates(blocks: &[RefBlock], (loop_ix, message, turn): ChainMessage) -> Vec<Disposition> {
    let of_loop = blocks.iter().filter(|b| b.loop_ix == loop_ix);
    let lines = of_loop
        .flat_map(|b| &b.coverage)
        .filter(|c| c.message == message && c.turn == turn);
    lines.map(|c| c.disposition).collect()
}

fn check_spot(
    s: &RefSession,
    position: ChainMessage,
    shown: &[&RefOut],
    fates: &[Disposition],
    quotes: usize,
) -> Result<(), String> {
    let original = &s.loops[position.0].messages[position.1];
    let holds = match (shown, fates) {
        ([o], [] | [Disposition::Kept]) => o.message == *original && o.turn == position.2,
        ([o], [Disposition::Truncated]) => o.message != *original && o.turn == position.2,
        ([], [Disposition::Kept]) => quotes == 1,
        ([], [Disposition::Summarised | Disposition::Dropped | Disposition::RolledUp]) => true,
        _ => false,
    };
    let holds = holds && (quotes == 0 || (shown.is_empty() && fates == [Disposition::Kept]));
    holds.then_some(()).ok_or_else(|| {
        format!(
            "{position:?} is shown {} times, quoted {quotes} times, covered as {fates:?}",
            shown.len()
        )
    })
}

fn in_order(line: &[ChainMessage], context: &[RefOut]) -> Result<(), String> {
    let place = |o: &RefOut| {
        line.iter()
            .position(|p| (p.0, Some(p.1)) == (o.loop_ix, o.original))
    };
    let mut last = None;
    for o in context.iter().filter(|o| o.original.is_some()) {
        let here = place(o).ok_or_else(|| {
            format!(
                "loop {} message {:?} is not on the chain",
                o.loop_ix, o.original
            )
        })?;
        if last.is_some_and(|l| l >= here) {
            return Err(format!(
                "loop {} message {:?} is out of order",
                o.loop_ix, o.original
            ));
        }
        last = Some(here);
    }
    Ok(())
}

/// Checks that "the ranges of a block follow each other without gap or overlap" from turn 0 on, and that its coverage
/// has exactly those turns, each with the disposition of its section.
pub fn sections_partition(block: &RefBlock) -> Result<(), String> {
    let section = |s: &Option<RefSection>| s.as_ref().map(|s| s.range);
    let ranges = [
        block.keep_first,
        section(&block.keep_compacted),
        section(&block.keep_recent),
    ];
    let mut next = 0;
    for (first, last) in ranges.into_iter().flatten() {
        if first != next || last < first {
            return Err(format!("{first}..={last} does not follow turn {next}"));
        }
        next = last + 1;
    }
    let mut turns: Vec<u32> = block.coverage.iter().map(|c| c.turn).collect();
    turns.dedup();
    if turns != (0..next).collect::<Vec<_>>() {
        return Err(format!(
            "coverage tells of turns {turns:?}, the sections of ..{next}"
        ));
    }
    block
        .coverage
        .iter()
        .try_for_each(|c| fits_section(block, c))
}

fn fits_section(block: &RefBlock, c: &RefCoverage) -> Result<(), String> {
    use Disposition::{Dropped, Kept, Summarised, Truncated};
    let fits = match section_of(block, c.turn) {
        Some(0) => c.disposition == Kept,
        Some(1) if c.disposition == Kept => {
            pins::quoted(block).contains(&(block.loop_ix, c.message))
        }
        Some(1) => matches!(c.disposition, Summarised | Dropped),
        Some(2) => matches!(c.disposition, Kept | Truncated),
        _ => false,
    };
    let within = block.through.is_some_and(|through| c.message <= through);
    (fits && within)
        .then_some(())
        .ok_or_else(|| format!("{c:?} does not fit its section"))
}

/// Returns 0, 1 or 2 for `keep_first`, `keep_compacted` and `keep_recent`.
fn section_of(block: &RefBlock, turn: u32) -> Option<usize> {
    let section = |s: &Option<RefSection>| s.as_ref().map(|s| s.range);
    let ranges = [
        block.keep_first,
        section(&block.keep_compacted),
        section(&block.keep_recent),
    ];
    ranges
        .iter()
        .position(|r| r.is_some_and(|(first, last)| first <= turn && turn <= last))
}

/// Checks that "a tool call and its result are never in different sections" of a block. A result
/// pairs with the nearest call before it that has its id.
pub fn no_pair_parted(s: &RefSession, block: &RefBlock) -> Result<(), String> {
    let l = &s.loops[block.loop_ix];
    let turns = turn_numbers(l);
    let end = block.through.map_or(0, |t| t + 1);
    for result in 0..end {
        let Some(id) = &l.messages[result].answers else {
            continue;
        };
        let makes = |&i: &usize| l.messages[i].calls.iter().any(|(call, _, _)| call == id);
        let Some(call) = (0..result).rev().find(makes) else {
            continue;
        };
        let section = |i: usize| turns[i].and_then(|t| section_of(block, t));
        if section(call) != section(result) {
            return Err(format!(
                "call {id} in message {call} is parted from its result in {result}"
            ));
        }
    }
    Ok(())
}

/// Checks that a context shows no result without its call, nor a call without the result that it
/// has on the chain. A result that came after its call was covered is a fault, not an error:
/// only ask this of a context just after a run.
pub fn context_parts_no_pair(
    s: &RefSession,
    leaf: usize,
    context: &[RefOut],
) -> Result<(), String> {
    let line = chain_messages(s, leaf);
    let message = |p: &ChainMessage| &s.loops[p.0].messages[p.1];
    let shown = |p: &ChainMessage| {
        context
            .iter()
            .any(|o| (o.loop_ix, o.original) == (p.0, Some(p.1)))
    };
    for (i, result) in line.iter().enumerate() {
        let Some(id) = &message(result).answers else {
            continue;
        };
        let makes = |p: &&ChainMessage| message(p).calls.iter().any(|(call, _, _)| call == id);
        let Some(call) = line[..i].iter().rev().find(makes) else {
            continue;
        };
        if shown(call) != shown(result) {
            return Err(format!(
                "call {call:?} is parted from its result {result:?}"
            ));
        }
    }
    Ok(())
}

/// Checks the context of a leaf just after a run was committed there: every pinned message is in it unchanged exactly
/// once, in its place or quoted, and nothing else is quoted. With `Skip`, loops older than the scope are absent.
pub fn pinned_messages_are_shown(s: &RefSession, leaf: usize) -> Result<(), String> {
    let config = options(s, leaf);
    let s = &seen(s, &config);
    let context = build_with(s, leaf, &config);
    let pinned = pins::pinned(s, leaf);
    let skipped = match config.older_loops {
        OlderLoops::Skip => first_in_context(s, leaf, &config),
        OlderLoops::Rollup => 0,
    };
    for p in pinned.iter().filter(|p| p.depth >= skipped) {
        let original = &s.loops[p.loop_ix].messages[p.message];
        let whole = |o: &RefOut| {
            (o.loop_ix, o.original) == (p.loop_ix, Some(p.message)) && o.message == *original
        };
        let says = |o: &RefOut, text: &String| o.message.texts.iter().any(|t| t.contains(text));
        let quotes = |o: &RefOut| {
            o.quotes == Some((p.loop_ix, p.message)) && original.texts.iter().all(|t| says(o, t))
        };
        let times = context.iter().filter(|o| whole(o) || quotes(o)).count();
        if times != 1 {
            return Err(format!("{p:?} is pinned and stands there {times} times"));
        }
    }
    let is_pinned = |of: &RefPlace| pinned.iter().any(|p| (p.loop_ix, p.message) == *of);
    match context
        .iter()
        .filter_map(|o| o.quotes)
        .find(|of| !is_pinned(of))
    {
        Some(of) => Err(format!("{of:?} is quoted and not pinned")),
        None => Ok(()),
    }
}

/// Returns the disposition of each message of the chain that an active block covers, in order.
pub fn coverage_of(s: &RefSession, leaf: usize) -> Vec<(RefPlace, Disposition)> {
    let config = options(s, leaf);
    let s = &seen(s, &config);
    let anchor = super::forces::anchor(s, leaf);
    let rollup = anchor.and_then(|a| in_force(s, leaf, super::turns::chain(s, leaf)[a].loop_ix));
    let quoted = rollup.map_or(Vec::new(), |(_, block)| pins::quoted(&block));
    let mut all = Vec::new();
    for p in super::turns::chain_places(s, leaf) {
        let of = (p.loop_ix, p.message);
        if anchor.is_some_and(|a| p.depth < a) {
            all.push(match quoted.contains(&of) {
                true => (of, Disposition::Kept),
                false => (of, Disposition::RolledUp),
            });
        } else if let Some((_, block)) = in_force(s, leaf, p.loop_ix) {
            let covered = block.coverage.iter().filter(|c| c.message == p.message);
            all.extend(covered.map(|c| (of, c.disposition)));
        }
    }
    all
}
