//! The turns that a plan keeps of each loop of the chain: the recent window, then the pair rule.

use super::build::shows;
use super::forces::{anchor, in_force};
use super::text::messages_of;
use super::turns::{Link, Pair, Place, chain, complete_turns, pairs};
use super::types::*;

/// Returns the turns that the recent window and `keep_first_turns` keep of each loop of the chain, root first: "`f =
/// min(F, T)`, `r = min(R, T − f)`"; with `RecentWindow::Chain` "what the current loop does not use, `max(R − T, 0)`,
/// reach[es] back: each earlier loop gives up to its own turns". "Scope and recent window end at the anchor of the
/// rollup in force."
pub fn window(s: &RefSession, leaf: usize, config: &RefConfig) -> Vec<RefKept> {
    let base = base(s, leaf);
    let mut kept: Vec<RefKept> = chain(s, leaf)
        .into_iter()
        .map(|k| nothing_kept(s, leaf, k))
        .collect();
    let (current, earlier) = kept.split_last_mut().expect("a chain has its leaf");
    current.first = config.keep_first_turns.min(current.turns);
    current.recent = current.turns - config.keep_recent_turns.min(current.turns - current.first);
    for turn in hidden_with_their_call(s, leaf, base) {
        current.first = current.first.min(turn);
        current.recent = current.recent.max(turn + 1);
    }
    let mut spare = match config.recent_window {
        RecentWindow::CurrentLoop => 0,
        RecentWindow::Chain => config.keep_recent_turns.saturating_sub(current.turns),
    };
    for k in earlier[base..].iter_mut().rev() {
        let given = spare.min(k.turns);
        k.recent -= given;
        spare -= given;
    }
    kept
}

/// Returns the position on the chain of the first loop that can be planned.
pub fn base(s: &RefSession, leaf: usize) -> usize {
    anchor(s, leaf).map_or(0, |anchor| anchor + 1)
}

/// Returns the turns of the leaf that its block hides with a result whose call the rollup covers: kept, they would show
/// a result without its call.
fn hidden_with_their_call(s: &RefSession, leaf: usize, base: usize) -> Vec<u32> {
    let depth = chain(s, leaf).len() - 1;
    let hidden = in_force(s, leaf, leaf).and_then(|(_, b)| Some(b.keep_compacted?.range));
    let is_hidden = |turn: u32| hidden.is_some_and(|(first, last)| first <= turn && turn <= last);
    let all = pairs(s, leaf).into_iter();
    let parted = all.filter(|p| p.call.depth < base && p.result.depth == depth);
    parted
        .map(|p| p.result.turn)
        .filter(|turn| is_hidden(*turn))
        .collect()
}

fn nothing_kept(s: &RefSession, leaf: usize, link: Link) -> RefKept {
    let l = &s.loops[link.loop_ix];
    let turns = if link.loop_ix == leaf {
        complete_turns(l)
    } else {
        link.turns
    };
    let through = messages_of(l, 0, turns).last().map(|&(_, i)| i);
    RefKept {
        loop_ix: link.loop_ix,
        turns,
        through,
        first: 0,
        recent: turns,
        raw: false,
    }
}

/// Returns the position on the chain of the oldest loop that the recent window reaches, or of which the pair rule keeps
/// turns "as if the recent window had reached them"; else the position of the leaf.
pub fn reached(kept: &[RefKept]) -> usize {
    let leaf = kept.len() - 1;
    kept.iter()
        .position(|k| k.recent < k.turns)
        .unwrap_or(leaf)
        .min(leaf)
}

/// Extends the kept turns by one pair that a boundary separates. Returns true if there was one: "A boundary that would
/// part a call from its result moves so that the kept side grows; between loops too".
pub fn grow_for_a_pair(
    s: &RefSession,
    leaf: usize,
    config: &RefConfig,
    kept: &mut [RefKept],
    scope: usize,
    base: usize,
    keeps_older: bool,
) -> bool {
    pairs(s, leaf).into_iter().any(|pair| {
        let Pair { call, result } = pair;
        if call.depth < base {
            return false;
        }
        if call.depth == result.depth {
            return call.depth >= scope && grow_within(kept, pair);
        }
        let stays = |p| stays(s, leaf, config, kept, scope, keeps_older, p);
        let (call_stays, result_stays) = (stays(call), stays(result));
        match (call_stays, result_stays) {
            (false, true) if result.depth >= scope => keep_from(kept, call),
            (true, false) if result.depth >= scope => keep_result(kept, result),
            _ => false,
        }
    })
}

/// Returns true if a message of the chain would be shown, whole or cut.
fn stays(
    s: &RefSession,
    leaf: usize,
    config: &RefConfig,
    kept: &[RefKept],
    scope: usize,
    keeps_older: bool,
    p: Place,
) -> bool {
    let k = &kept[p.depth];
    if p.depth >= scope {
        return k.raw || p.turn < k.first || p.turn >= k.recent;
    }
    match config.older_loops {
        OlderLoops::Skip => false,
        OlderLoops::Rollup if config.max_rollup_tokens > 0 && !keeps_older => false,
        OlderLoops::Rollup => shows(s, leaf, p.loop_ix, p.message),
    }
}

/// Moves a boundary inside a loop: `keep_first` forward to the result, else `keep_recent` back to the call. A result
/// after the covered turns is kept, as the tail is.
fn grow_within(kept: &mut [RefKept], Pair { call, result }: Pair) -> bool {
    let k = &mut kept[call.depth];
    if k.raw {
        return false;
    }
    if call.turn < k.first && k.first <= result.turn && result.turn < k.turns {
        k.first = result.turn + 1;
        k.recent = k.recent.max(k.first);
        return true;
    }
    let in_middle = k.first <= call.turn && call.turn < k.recent;
    if in_middle && k.recent <= result.turn {
        k.recent = call.turn;
        return true;
    }
    false
}

/// Keeps an earlier loop from a call on.
fn keep_from(kept: &mut [RefKept], call: Place) -> bool {
    kept[call.depth].recent = call.turn;
    true
}

/// Keeps a result whose call is kept in an earlier loop: in the current loop `keep_first` grows,
/// being the kept side next to the call; an earlier loop has only `keep_recent` to grow.
fn keep_result(kept: &mut [RefKept], result: Place) -> bool {
    let leaf = kept.len() - 1;
    let k = &mut kept[result.depth];
    if result.depth == leaf {
        k.first = result.turn + 1;
    } else {
        k.recent = result.turn;
    }
    true
}
