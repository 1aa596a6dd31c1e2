//! Exact values with their names and sources, which an agent needs again word for word.

pub(crate) mod line;
mod rank;
pub(crate) mod scan;
mod shape;

use std::collections::HashMap;
use std::sync::Arc;

pub use crate::activity::SourceTurn;
pub(crate) use rank::rank_by_worth;
use rank::{best, likelihood};
pub(crate) use shape::{Shape, is_value};

/// The source of a value, ordered by how likely the value is needed again, the least likely first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FactSource {
    /// The text of a result or an answer.
    Mentioned,
    /// A quoted part of such a text.
    Quoted,
    /// A part of the text of an argument.
    WithinArgument,
    /// An earlier digest, in which the value was only seen.
    KeptSeen,
    /// A leaf of a structured result.
    Field,
    /// A text of the user.
    FromUser,
    /// A quoted part of a text of the user.
    QuotedByUser,
    /// An earlier digest, in which the value was used or given by the user.
    KeptUsed,
    /// An argument of a call.
    Used,
}

impl FactSource {
    /// Returns the weight of values from this source.
    pub(crate) fn weight(self) -> f64 {
        match self {
            Self::Mentioned => 0.009,
            Self::Quoted => 0.013,
            Self::WithinArgument => 0.02,
            Self::KeptSeen => 0.08,
            Self::Field | Self::FromUser => 0.12,
            Self::QuotedByUser => 0.25,
            Self::KeptUsed => 0.6,
            Self::Used => 1.0,
        }
    }

    /// True if the user gave the value or a call used it.
    pub(crate) fn is_used(self) -> bool {
        self >= Self::FromUser
    }
}

/// The least likelihood of a used value that is likely needed again. Below it are mostly line numbers, patterns of
/// searches and commands that look at something, each used once and long ago.
const LIKELY: f64 = 0.02;

/// A value and its uses.
#[derive(Clone, Debug)]
pub(crate) struct Fact {
    pub(crate) value: String,
    pub(crate) shape: Shape,
    pub(crate) source: FactSource,
    /// Its labels: the index, the number of occurrences, and whether a call used the value under the label.
    pub(crate) labels: Vec<(usize, u32, bool)>,
    /// The tool that used it last.
    pub(crate) tool: Option<usize>,
    /// The last turn that contains the value.
    pub(crate) place: SourceTurn,
    /// The position of that turn in the history.
    pub(crate) last: u32,
    /// The number of turns that contain the value.
    pub(crate) turns: u32,
    /// The number of turns in which a call used the value.
    pub(crate) uses: u32,
    /// The position of the last such turn.
    used_at: Option<u32>,
    /// The position of the last turn in which a person replaced the value by another one.
    replaced_at: Option<u32>,
}

impl Fact {
    /// True if a person replaced the value by another one, and it did not occur afterwards.
    pub(crate) fn is_replaced(&self) -> bool {
        self.replaced_at.is_some_and(|at| at >= self.last)
    }

    /// Returns the label under which calls used the value, else its most frequent label.
    pub(crate) fn label(&self) -> usize {
        let rank = |(at, (_, count, used)): &(usize, &(usize, u32, bool))| {
            (*used, *count, std::cmp::Reverse(*at))
        };
        let best = self.labels.iter().enumerate().max_by_key(rank);
        best.map_or(0, |(_, (label, _, _))| *label)
    }
}

/// A name of values: the key of a field, the name of a tool or an argument.
#[derive(Clone, Debug)]
pub(crate) struct Label {
    pub(crate) name: String,
    /// The number of uses of values under the label.
    pub(crate) used: u32,
    /// The number of values with the label.
    pub(crate) values: u32,
    /// The number of values that were first seen under the label and later used by a call.
    pub(crate) taken: u32,
    /// The number of values that a call first used under the label.
    pub(crate) called: u32,
    /// The number of values that were used again in another turn.
    pub(crate) reused: u32,
}

/// The values of a history.
#[derive(Default)]
pub(crate) struct ValueLedger {
    pub(crate) facts: Vec<Fact>,
    by_value: HashMap<String, usize>,
    pub(crate) labels: Vec<Label>,
    by_name: HashMap<String, usize>,
    positions: HashMap<SourceTurn, u32>,
    /// The turn of the last query, a cache: one message has many values.
    last: Option<(SourceTurn, u32)>,
}

impl ValueLedger {
    /// Returns the position of a turn in the history; an unknown turn is added as the newest.
    pub(crate) fn position(&mut self, place: &SourceTurn) -> u32 {
        if let Some((last, at)) = &self.last
            && last == place
        {
            return *at;
        }
        let next = self.positions.len() as u32;
        let at = *self.positions.entry(place.clone()).or_insert(next);
        self.last = Some((place.clone(), at));
        at
    }

    /// Returns the position of a known turn; 0 for an unknown one.
    pub(crate) fn position_of(&self, place: &SourceTurn) -> u32 {
        self.positions.get(place).copied().unwrap_or_default()
    }

    /// True if a call used any value.
    pub(crate) fn has_used(&self) -> bool {
        self.facts.iter().any(|fact| fact.uses > 0)
    }

    /// True if a value is likely needed again: an unused one if a person gave it or it is a field of a result.
    pub(crate) fn is_likely_needed(&self, fact: &Fact) -> bool {
        match fact.uses {
            0 => fact.source >= FactSource::Field,
            _ => likelihood(self, fact) >= LIKELY,
        }
    }

    /// Calls `each` with every turn.
    pub(crate) fn each_place(&mut self, each: &mut dyn FnMut(&mut SourceTurn)) {
        self.facts.iter_mut().for_each(|fact| each(&mut fact.place));
        self.last = None;
        let positions = std::mem::take(&mut self.positions);
        self.positions
            .extend(positions.into_iter().map(|(mut place, at)| {
                each(&mut place);
                (place, at)
            }));
    }

    /// Returns the names of loops in the order of the history.
    pub(crate) fn loops(&self) -> Vec<Arc<str>> {
        let mut first: HashMap<&Arc<str>, u32> = HashMap::new();
        for (place, at) in &self.positions {
            if let Some(of) = &place.loop_name {
                let first = first.entry(of).or_insert(*at);
                *first = (*first).min(*at);
            }
        }
        let mut loops: Vec<(&Arc<str>, u32)> = first.into_iter().collect();
        loops.sort_by_key(|(_, at)| *at);
        loops.into_iter().map(|(of, _)| Arc::clone(of)).collect()
    }

    /// Returns the number of turns.
    pub(crate) fn length(&self) -> u32 {
        self.positions.len() as u32
    }

    /// Returns the first and last turn if there is only one loop, else `None`.
    pub(crate) fn span(&self) -> Option<(u32, u32)> {
        let turns = || self.positions.keys().map(|place| place.turn);
        let single = self.positions.keys().all(|place| place.loop_name.is_none());
        single.then(|| Some((turns().min()?, turns().max()?)))?
    }

    /// Returns the index of the label with that name, and adds it if it is new.
    pub(crate) fn label(&mut self, name: &str) -> usize {
        // Most names are clean and known.
        if let Some(at) = self.by_name.get(name) {
            return *at;
        }
        let name = clean_label(name);
        if let Some(at) = self.by_name.get(&name) {
            return *at;
        }
        self.by_name.insert(name.clone(), self.labels.len());
        self.labels.push(Label {
            name,
            used: 0,
            values: 0,
            taken: 0,
            called: 0,
            reused: 0,
        });
        self.labels.len() - 1
    }

    /// Records a value of the turn `place`, and returns its index; `None` if [`is_value`] rejects it.
    pub(crate) fn add(
        &mut self,
        value: &str,
        label: usize,
        source: FactSource,
        place: &SourceTurn,
    ) -> Option<usize> {
        is_value(value).then(|| self.add_value(value, label, source, place))
    }

    /// Records a value that [`is_value`] accepts.
    pub(crate) fn add_value(
        &mut self,
        value: &str,
        label: usize,
        source: FactSource,
        place: &SourceTurn,
    ) -> usize {
        let last = self.position(place);
        let at = self.entry(value, source, place, last);
        if matches!(source, FactSource::Used | FactSource::KeptUsed) {
            self.count_use(at, label, last);
        }
        let fact = &mut self.facts[at];
        fact.source = fact.source.max(source);
        if fact.last < last {
            fact.turns += 1;
            (fact.last, fact.place) = (last, place.clone());
        }
        self.add_label(at, label, source);
        at
    }

    /// Records a part of an argument. A phrase that another turn contains too counts as used.
    pub(crate) fn add_piece(&mut self, value: &str, label: usize, place: &SourceTurn) {
        let Some(at) = self.add(value, label, FactSource::WithinArgument, place) else {
            return;
        };
        let fact = &self.facts[at];
        if fact.turns > 1 && fact.shape == Shape::Phrase {
            let last = fact.last;
            self.count_use(at, label, last);
            self.facts[at].source = FactSource::Used;
        }
    }

    /// Records that a person replaced a value by another one in the turn `place`.
    pub(crate) fn replace(&mut self, value: &str, place: &SourceTurn) {
        let now = self.position(place);
        if let Some(at) = self.by_value.get(value) {
            self.facts[*at].replaced_at = Some(now);
        }
    }

    /// Counts a use, at most once per turn.
    fn count_use(&mut self, at: usize, label: usize, now: u32) {
        let fact = &mut self.facts[at];
        if fact.used_at == Some(now) {
            return;
        }
        fact.used_at = Some(now);
        fact.uses += 1;
        match fact.uses {
            1 => {
                self.labels[label].called += 1;
                for (label, ..) in &fact.labels {
                    self.labels[*label].taken += 1;
                }
            }
            2 => self.labels[label].reused += 1,
            _ => {}
        }
    }

    fn entry(&mut self, value: &str, source: FactSource, place: &SourceTurn, last: u32) -> usize {
        if let Some(at) = self.by_value.get(value) {
            return *at;
        }
        self.by_value.insert(value.to_owned(), self.facts.len());
        self.facts.push(Fact {
            value: value.to_owned(),
            shape: Shape::of(value),
            source,
            labels: Vec::new(),
            tool: None,
            place: place.clone(),
            last,
            turns: 1,
            uses: 0,
            used_at: None,
            replaced_at: None,
        });
        self.facts.len() - 1
    }

    /// Removes all facts but the `most` of the highest worth. Returns the new index of each fact.
    pub(crate) fn forget(&mut self, most: usize) -> Vec<Option<usize>> {
        let keeps = best(self, most);
        let mut free = 0..;
        let places: Vec<Option<usize>> = keeps
            .iter()
            .map(|keep| if *keep { free.next() } else { None })
            .collect();
        let mut keeps = keeps.into_iter();
        self.facts.retain(|_| keeps.next().unwrap_or(true));
        self.by_value.retain(|_, at| {
            let place = places.get(*at).copied().flatten();
            *at = place.unwrap_or(*at);
            place.is_some()
        });
        places
    }

    fn add_label(&mut self, at: usize, label: usize, source: FactSource) {
        let used = matches!(source, FactSource::Used | FactSource::KeptUsed);
        self.labels[label].used += u32::from(used);
        let labels = &mut self.facts[at].labels;
        if let Some(known) = labels.iter_mut().find(|known| known.0 == label) {
            known.1 += 1;
            known.2 |= used;
        } else {
            labels.push((label, 1, used));
            self.labels[label].values += 1;
        }
    }
}

/// Returns a key as a label: at most 40 characters, with `_` for spaces, colons, parentheses and control characters.
pub(crate) fn clean_label(name: &str) -> String {
    let plain = |c: char| {
        if c.is_whitespace() || c.is_control() || matches!(c, ':' | '(' | ')') {
            '_'
        } else {
            c
        }
    };
    let name: String = name.trim().chars().map(plain).take(40).collect();
    match &*name {
        "" => "value".into(),
        // `Loops` begins the line that maps short names to loops.
        "Loops" => "loops".into(),
        _ => name,
    }
}

/// Returns a text on one line: line ends become ` / `, other control characters spaces.
pub(crate) fn flat(text: &str) -> String {
    let mut flat = String::with_capacity(text.len());
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if !flat.is_empty() {
            flat.push_str(" / ");
        }
        flat.extend(line.chars().map(|c| if c.is_control() { ' ' } else { c }));
    }
    flat
}

/// Returns a text cut to `most` bytes, with `…` at the end if it was cut; `None` if nothing fits.
pub(crate) fn shortened(text: &str, most: usize) -> Option<String> {
    if text.len() <= most {
        return Some(text.to_owned());
    }
    let end = text.floor_char_boundary(most.checked_sub('…'.len_utf8())?);
    let cut = text[..end].trim_end();
    (!cut.is_empty()).then(|| format!("{cut}…"))
}
