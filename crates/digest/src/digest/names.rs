//! Short names for loops: a document of several loops names one in almost every line, and an id may be long.
//!
//! The names are `L1`, `L2` … in the order of the chain, and the last line of the document maps them to ids. If the ids
//! end with consecutive numbers, one pair maps all of them: `L1..L40 run-0..run-39`.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::record::DocumentRecord;
use crate::activity::SourceTurn;

/// Ids longer than this, in bytes, are replaced by short names.
const LONG: usize = 6;

/// The most names of one pair, and of all pairs of a line.
const MOST_COUNTED: u64 = 1 << 16;
const MOST_NAMES: usize = 1 << 18;

/// The separator of the first and the last of several names.
const TO: &str = "..";

/// The beginning of the line that maps names to ids.
const LOOPS: &str = "Loops: ";

/// The ids of a document's loops, by their short names.
#[derive(Clone, Debug, Default)]
pub(super) struct LoopNames(HashMap<Arc<str>, Arc<str>>);

impl LoopNames {
    /// Gives the loops of a record short names if an id is long.
    pub(super) fn shorten(record: &mut DocumentRecord) -> Self {
        let loops = record.values.loops();
        if loops.iter().all(|name| name.len() <= LONG) {
            return Self::default();
        }
        let short = |at: usize| Arc::from(format!("L{}", at + 1));
        let shorter: HashMap<Arc<str>, Arc<str>> = loops
            .iter()
            .cloned()
            .enumerate()
            .map(|(at, name)| (name, short(at)))
            .collect();
        record.each_place(&mut |place| rename(place, &shorter));
        Self(
            shorter
                .into_iter()
                .map(|(name, short)| (short, name))
                .collect(),
        )
    }

    /// Returns the line that maps the names of `places` to ids; empty if there are no short names.
    pub(super) fn line(&self, places: &BTreeSet<SourceTurn>) -> String {
        let mut named: Vec<&Arc<str>> = places
            .iter()
            .filter_map(|place| place.loop_name.as_ref())
            .collect();
        // `L2` comes before `L10`.
        named.sort_by_key(|name| (name.len(), Arc::clone(name)));
        named.dedup();
        named.retain(|short| self.0.contains_key(*short));
        let mut runs: Vec<(&str, &str)> = Vec::new();
        for short in named {
            match runs.last_mut() {
                Some((first, last)) if self.counts(first, last, short) => *last = short,
                _ => runs.push((short, short)),
            }
        }
        let explained = |(first, last): &(&str, &str)| match first == last {
            true => format!("{first} {}", self.0[*first]),
            false => format!("{first}{TO}{last} {}{TO}{}", self.0[*first], self.0[*last]),
        };
        let all: Vec<String> = runs.iter().map(explained).collect();
        match all.is_empty() {
            true => String::new(),
            false => format!("\n{LOOPS}{}", all.join(", ")),
        }
    }

    /// True if the ids from after `last` to `next` continue the numbers of the id of `first`.
    fn counts(&self, first: &str, last: &str, next: &str) -> bool {
        let numbers = [first, last, next].map(counted);
        let [Some((short, first_number)), Some((_, from)), Some((_, to))] = numbers else {
            return false;
        };
        if to.saturating_sub(first_number) >= MOST_COUNTED {
            return false;
        }
        let Some((name, begin)) = self.0.get(first).and_then(|name| counted(name)) else {
            return false;
        };
        (from + 1..=to).all(|at| {
            let own = self.0.get(&*format!("{short}{at}"));
            let expected = (at - first_number).checked_add(begin);
            own.zip(expected)
                .is_some_and(|(own, number)| **own == *format!("{name}{number}"))
        })
    }

    /// Reads the last line of a document; returns the names and the text before the line.
    pub(super) fn read(text: &str) -> (Self, &str) {
        let (before, last) = text.rsplit_once('\n').unwrap_or_default();
        let Some(line) = last.strip_prefix(LOOPS) else {
            return (Self::default(), text);
        };
        let mut names: HashMap<Arc<str>, Arc<str>> = HashMap::new();
        for (short, name) in line.split(", ").filter_map(|pair| pair.split_once(' ')) {
            match counted_pairs(short, name).filter(|pairs| names.len() + pairs.len() <= MOST_NAMES)
            {
                Some(pairs) => names.extend(pairs),
                None => {
                    names.insert(Arc::from(short), Arc::from(name));
                }
            }
        }
        (Self(names), before)
    }

    /// Replaces the short name in a turn by the loop's id.
    pub(super) fn restore(&self, place: &mut SourceTurn) {
        rename(place, &self.0);
    }
}

/// Splits a name into its text and the number at its end; `None` if there is none or it begins with `0`.
fn counted(name: &str) -> Option<(&str, u64)> {
    let before = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let digits = &name[before.len()..];
    let is_padded = digits.len() > 1 && digits.starts_with('0');
    let number = digits.parse().ok().filter(|_| !is_padded)?;
    Some((before, number))
}

/// Returns the pairs of `L1..L3 run-0..run-2`.
fn counted_pairs(short: &str, name: &str) -> Option<Vec<(Arc<str>, Arc<str>)>> {
    let span = |(first, last): (&str, &str)| {
        let ((before, first), (same, last)) = (counted(first)?, counted(last)?);
        let count = last.checked_sub(first)?;
        (before == same).then(|| (before.to_owned(), first, count))
    };
    let (short, first_short, count) = short.split_once(TO).and_then(span)?;
    let at = name.match_indices(TO).map(|(at, _)| at);
    let mut spans = at.filter_map(|at| span((&name[..at], &name[at + TO.len()..])));
    let (name, first_name, _) = spans.find(|span| span.2 == count)?;
    if count >= MOST_COUNTED {
        return None;
    }
    let pair = |at: u64| {
        let short = format!("{short}{}", first_short + at);
        (
            Arc::from(short),
            Arc::from(format!("{name}{}", first_name + at)),
        )
    };
    Some((0..=count).map(pair).collect())
}

fn rename(place: &mut SourceTurn, names: &HashMap<Arc<str>, Arc<str>>) {
    if let Some(name) = place.loop_name.as_ref().and_then(|of| names.get(of)) {
        place.loop_name = Some(Arc::clone(name));
    }
}
