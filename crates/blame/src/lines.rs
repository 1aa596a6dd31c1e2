//! Which lines of a text were lines of another.

use std::collections::HashMap;

use similar::{Algorithm, DiffOp, capture_diff_slices};

/// The most lines of both sides for which the longest common sequence is searched; its cost is quadratic. Beyond
/// that, lines that occur once on each side are the anchors.
const MOST_EXACT: usize = 6_000;

/// Returns, for each line of `new`, the line of `old` that it continues. The matched lines are a longest common
/// sequence, unless both sides have thousands of lines in common in another order.
pub(crate) fn matched(old: &[&str], new: &[&str]) -> Vec<Option<usize>> {
    let before = old
        .iter()
        .zip(new)
        .take_while(|(old, new)| old == new)
        .count();
    let rest = old.len().min(new.len()) - before;
    let behind = old.iter().rev().zip(new.iter().rev());
    let behind = behind.take(rest).take_while(|(old, new)| old == new);
    let behind = behind.count();
    let mut found: Vec<Option<usize>> = vec![None; new.len()];
    for (at, line) in found.iter_mut().take(before).enumerate() {
        *line = Some(at);
    }
    for at in 1..=behind {
        found[new.len() - at] = Some(old.len() - at);
    }
    let (old, new) = (
        &old[before..old.len() - behind],
        &new[before..new.len() - behind],
    );
    for (old_at, new_at) in between(old, new) {
        found[before + new_at] = Some(before + old_at);
    }
    found
}

/// Returns the matched lines of two texts that begin and end differently.
fn between(old: &[&str], new: &[&str]) -> Vec<(usize, usize)> {
    let mut ids: HashMap<&str, u32> = HashMap::new();
    let mut of_new: Vec<(u32, usize)> = Vec::with_capacity(new.len());
    for (at, line) in new.iter().enumerate() {
        let next = ids.len() as u32;
        of_new.push((*ids.entry(line).or_insert(next), at));
    }
    // A line that only one side has is in no common sequence.
    let mut is_common = vec![false; ids.len()];
    let mut of_old: Vec<(u32, usize)> = Vec::new();
    for (at, line) in old.iter().enumerate() {
        if let Some(id) = ids.get(line) {
            is_common[*id as usize] = true;
            of_old.push((*id, at));
        }
    }
    of_new.retain(|(id, _)| is_common[*id as usize]);
    let plain = |side: &[(u32, usize)]| side.iter().map(|(id, _)| *id).collect::<Vec<u32>>();
    let (old_ids, new_ids) = (plain(&of_old), plain(&of_new));
    let pairs = match old_ids.len() + new_ids.len() <= MOST_EXACT {
        true => longest(&old_ids, &new_ids),
        false => anchored(&old_ids, &new_ids, ids.len()),
    };
    let placed = pairs.into_iter();
    placed
        .map(|(old, new)| (of_old[old].1, of_new[new].1))
        .collect()
}

fn longest(old: &[u32], new: &[u32]) -> Vec<(usize, usize)> {
    let mut pairs = Vec::new();
    for op in capture_diff_slices(Algorithm::Myers, old, new) {
        if let DiffOp::Equal {
            old_index,
            new_index,
            len,
        } = op
        {
            pairs.extend((0..len).map(|at| (old_index + at, new_index + at)));
        }
    }
    pairs
}

/// Matches lines that occur once on each side, in the longest order that both sides have, and their neighbours.
fn anchored(old: &[u32], new: &[u32], ids: usize) -> Vec<(usize, usize)> {
    let once = |side: &[u32]| {
        let mut places: Vec<(u32, usize)> = vec![(0, 0); ids];
        for (at, id) in side.iter().enumerate() {
            let place = &mut places[*id as usize];
            *place = (place.0 + 1, at);
        }
        places
    };
    let (of_old, of_new) = (once(old), once(new));
    let unique = new.iter().enumerate().filter_map(|(at, id)| {
        let (old, new) = (of_old[*id as usize], of_new[*id as usize]);
        (old.0 == 1 && new.0 == 1).then_some((old.1, at))
    });
    let anchors = rising(&unique.collect::<Vec<_>>());
    let mut pairs: Vec<(usize, usize)> = Vec::with_capacity(anchors.len());
    for (nth, anchor) in anchors.iter().enumerate() {
        let last = pairs.last().map_or((0, 0), |(old, new)| (old + 1, new + 1));
        let mut first = *anchor;
        // A neighbour that an earlier anchor has reached belongs to it.
        if first.0 < last.0 || first.1 < last.1 {
            continue;
        }
        while first.0 > last.0 && first.1 > last.1 && old[first.0 - 1] == new[first.1 - 1] {
            first = (first.0 - 1, first.1 - 1);
        }
        let next = anchors.get(nth + 1).copied();
        let end = next.unwrap_or((old.len(), new.len()));
        let mut at = first;
        while at.0 < end.0 && at.1 < end.1 && (at <= *anchor || old[at.0] == new[at.1]) {
            pairs.push(at);
            at = (at.0 + 1, at.1 + 1);
        }
    }
    pairs
}

/// Returns the longest part of the pairs, which are in the order of the second, whose first numbers rise.
fn rising(pairs: &[(usize, usize)]) -> Vec<(usize, usize)> {
    // For each length, the pair with the least first number that ends such a part.
    let mut ends: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = Vec::with_capacity(pairs.len());
    for (at, pair) in pairs.iter().enumerate() {
        let length = ends.partition_point(|end| pairs[*end].0 < pair.0);
        before.push(length.checked_sub(1).map(|length| ends[length]));
        match ends.get_mut(length) {
            Some(end) => *end = at,
            None => ends.push(at),
        }
    }
    let mut found = Vec::with_capacity(ends.len());
    let mut next = ends.last().copied();
    while let Some(at) = next {
        found.push(pairs[at]);
        next = before[at];
    }
    found.reverse();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(old: &str, new: &str) -> Vec<Option<usize>> {
        let lines = |text: &'static str| text.split(' ').collect::<Vec<_>>();
        let (old, new) = (old.to_owned().leak(), new.to_owned().leak());
        matched(&lines(old), &lines(new))
    }

    #[test]
    fn a_line_continues_the_line_it_was() {
        assert_eq!(of("a b c", "a b c"), [Some(0), Some(1), Some(2)]);
        assert_eq!(of("a b c", "a x c"), [Some(0), None, Some(2)]);
        assert_eq!(of("a b", "x a y b z"), [None, Some(0), None, Some(1), None]);
        assert_eq!(of("a", "b"), [None]);
        assert_eq!(of("a a a", "a a"), [Some(0), Some(1)]);
        assert!(matched(&[], &[]).is_empty());
        assert_eq!(matched(&[], &["a"]), [None]);
        assert!(matched(&["a"], &[]).is_empty());
    }

    #[test]
    fn thousands_of_lines_are_matched_by_anchors() {
        // Two halves change places, so that no beginning and no end is common.
        let line = |at: usize| format!("line {}", if at.is_multiple_of(7) { 0 } else { at });
        let old: Vec<String> = (0..8_000).map(line).collect();
        let new: Vec<String> = (3_000..8_000).chain(0..3_000).map(line).collect();
        let (old, new): (Vec<&str>, Vec<&str>) = (
            old.iter().map(String::as_str).collect(),
            new.iter().map(String::as_str).collect(),
        );
        let found = matched(&old, &new);
        let pairs: Vec<(usize, usize)> = (0..)
            .zip(&found)
            .filter_map(|(new, old)| Some(((*old)?, new)))
            .collect();
        assert!(pairs.len() >= 4_990, "{}", pairs.len());
        assert!(pairs.iter().all(|(at, to)| old[*at] == new[*to]));
        assert!(pairs.windows(2).all(|two| two[0].0 < two[1].0));
    }
}
