//! Turn groups, complete turns, the chain with its cuts, and calls with their results.

use super::types::*;

/// Returns the turn groups of a loop as message indices, extensions left out: "consecutive
/// messages of a loop with the same turn index; a message without a turn id is a group of its
/// own; an extension message never splits or starts one".
pub fn groups(l: &RefLoop) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (i, m) in l.messages.iter().enumerate() {
        if m.kind == RefKind::Extension {
            continue;
        }
        match groups.last_mut() {
            Some(g) if continues(&l.messages[g[0]], m) => g.push(i),
            _ => groups.push(vec![i]),
        }
    }
    groups
}

fn continues(first: &RefMessage, m: &RefMessage) -> bool {
    m.turn_index.is_some() && first.turn_index == m.turn_index
}

/// Returns how many turns of a loop are complete: all, but "in a running loop the last group is
/// in flight while it has no assistant message or an unanswered call".
pub fn complete_turns(l: &RefLoop) -> u32 {
    let groups = groups(l);
    let in_flight = l.running && groups.last().is_some_and(|g| is_unfinished(l, g));
    (groups.len() - usize::from(in_flight)) as u32
}

fn is_unfinished(l: &RefLoop, group: &[usize]) -> bool {
    let assistants: Vec<usize> = group
        .iter()
        .copied()
        .filter(|&i| l.messages[i].kind == RefKind::Assistant)
        .collect();
    assistants.is_empty() || assistants.iter().any(|&i| has_unanswered_call(l, i))
}

fn has_unanswered_call(l: &RefLoop, assistant: usize) -> bool {
    let later = &l.messages[assistant + 1..];
    let answered = |id: &String| later.iter().any(|m| m.answers.as_ref() == Some(id));
    l.messages[assistant]
        .calls
        .iter()
        .any(|(id, _, _)| !answered(id))
}

/// A loop of a chain, with the number of its turns that belong to the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    pub loop_ix: usize,
    pub turns: u32,
}

/// Returns the loops from the root to the leaf, each up to its cut: "`parent_turn` ... the last
/// turn of the parent that belongs to the child's chain, inclusive"; "for the leaf, its end".
pub fn chain(s: &RefSession, leaf: usize) -> Vec<Link> {
    let mut links = vec![Link {
        loop_ix: leaf,
        turns: groups(&s.loops[leaf]).len() as u32,
    }];
    let mut child = leaf;
    while let Some(parent) = s.loops[child].parent {
        let there = groups(&s.loops[parent]).len() as u32;
        let cut = s.loops[child].parent_turn.map_or(0, |t| t + 1);
        links.push(Link {
            loop_ix: parent,
            turns: cut.min(there),
        });
        child = parent;
    }
    links.reverse();
    links
}

/// A message of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The place of its loop on the chain, root = 0.
    pub depth: usize,
    pub loop_ix: usize,
    pub turn: u32,
    pub message: usize,
}

/// Returns the messages of one loop of a chain, up to its cut.
pub fn link_places(s: &RefSession, depth: usize, link: Link) -> Vec<Place> {
    let groups = groups(&s.loops[link.loop_ix]);
    let turns = groups.iter().enumerate().take(link.turns as usize);
    let place = |turn, message| Place {
        depth,
        loop_ix: link.loop_ix,
        turn,
        message,
    };
    turns
        .flat_map(|(t, g)| g.iter().map(move |&m| place(t as u32, m)))
        .collect()
}

/// Returns all messages of a chain in order, a turn in flight included.
pub fn chain_places(s: &RefSession, leaf: usize) -> Vec<Place> {
    let links = chain(s, leaf).into_iter().enumerate();
    links
        .flat_map(|(depth, link)| link_places(s, depth, link))
        .collect()
}

/// A call and a result of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    pub call: Place,
    pub result: Place,
}

/// Returns every result on the chain with the nearest call before it that has its id.
pub fn pairs(s: &RefSession, leaf: usize) -> Vec<Pair> {
    let places = chain_places(s, leaf);
    let at = |p: &Place| &s.loops[p.loop_ix].messages[p.message];
    let mut pairs = Vec::new();
    for (i, &result) in places.iter().enumerate() {
        let Some(id) = &at(&result).answers else {
            continue;
        };
        let makes = |p: &&Place| at(p).calls.iter().any(|(call, _, _)| call == id);
        if let Some(&call) = places[..i].iter().rev().find(makes) {
            pairs.push(Pair { call, result });
        }
    }
    pairs
}

/// Returns the tokens of turns `from..to` of a loop, uncut.
pub fn turn_tokens(s: &RefSession, loop_ix: usize, from: u32, to: u32) -> u64 {
    let l = &s.loops[loop_ix];
    let groups = groups(l);
    let messages = groups[from as usize..to as usize].iter().flatten();
    messages
        .map(|&i| super::tokens::message_tokens(&l.messages[i]))
        .sum()
}
