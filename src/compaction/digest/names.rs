//! Short names for loops: a document of several loops names one in almost every line, and an id may be long.
//!
//! `L1`, `L2` … in the order of the chain, with a last line that says which loop each is.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::record::Record;
use crate::compaction::activity::Place;

/// Names longer than this are worth a line that explains shorter ones.
const LONG: usize = 6;

/// Begins the line that says which loop each name stands for.
const LOOPS: &str = "Loops: ";

/// The names of a document's loops, by the short ones.
#[derive(Clone, Debug, Default)]
pub(super) struct LoopNames(HashMap<Arc<str>, Arc<str>>);

impl LoopNames {
    /// Gives the loops of a record short names where theirs are long.
    pub(super) fn shorten(record: &mut Record) -> Self {
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

    /// Returns the line that explains the names of `places`; empty if there is nothing to explain.
    pub(super) fn line(&self, places: &BTreeSet<Place>) -> String {
        let mut named: Vec<&Arc<str>> = places
            .iter()
            .filter_map(|place| place.of.as_ref())
            .collect();
        // `L2` is before `L10`.
        named.sort_by_key(|name| (name.len(), Arc::clone(name)));
        named.dedup();
        let explained =
            |short: &&Arc<str>| self.0.get(*short).map(|name| format!("{short} {name}"));
        let all: Vec<String> = named.iter().filter_map(explained).collect();
        match all.is_empty() {
            true => String::new(),
            false => format!("\n{LOOPS}{}", all.join(", ")),
        }
    }

    /// Reads the line from a document's end; returns also what stands before it.
    pub(super) fn read(text: &str) -> (Self, &str) {
        let (before, last) = text.rsplit_once('\n').unwrap_or_default();
        let Some(line) = last.strip_prefix(LOOPS) else {
            return (Self::default(), text);
        };
        let pair = |pair: &str| {
            let (short, name) = pair.split_once(' ')?;
            Some((Arc::from(short), Arc::from(name)))
        };
        (Self(line.split(", ").filter_map(pair).collect()), before)
    }

    /// Gives a place its loop's own name back.
    pub(super) fn restore(&self, place: &mut Place) {
        rename(place, &self.0);
    }
}

fn rename(place: &mut Place, names: &HashMap<Arc<str>, Arc<str>>) {
    if let Some(name) = place.of.as_ref().and_then(|of| names.get(of)) {
        place.of = Some(Arc::clone(name));
    }
}
