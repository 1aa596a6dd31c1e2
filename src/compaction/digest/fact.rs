//! What a history holds: values with where they come from, and notes in words.

use std::collections::{HashMap, HashSet};

use super::rank::best;
use super::shape::{Shape, is_value};
pub use crate::compaction::activity::Place;

/// How a value came into the history; the later, the more likely it is needed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FactSource {
    /// In the text of a result or an answer.
    Mentioned,
    /// In quotes there.
    Quoted,
    /// Within the text of an argument.
    WithinArgument,
    /// In an earlier digest, neither used nor told.
    KeptSeen,
    /// A leaf of a structured result.
    Field,
    /// The user said it.
    Told,
    /// The user said it in quotes.
    ToldQuoted,
    /// In an earlier digest, used or told.
    KeptUsed,
    /// An argument of a call.
    Used,
}

impl FactSource {
    /// Returns how much values from here are worth against each other.
    pub(super) fn weight(self) -> f64 {
        match self {
            Self::Mentioned => 0.009,
            Self::Quoted => 0.013,
            Self::WithinArgument => 0.02,
            Self::KeptSeen => 0.08,
            Self::Field | Self::Told => 0.12,
            Self::ToldQuoted => 0.25,
            Self::KeptUsed => 0.6,
            Self::Used => 1.0,
        }
    }

    /// Whether the user gave the value or a call used it.
    pub(super) fn is_used(self) -> bool {
        self >= Self::Told
    }
}

/// A value.
#[derive(Clone, Debug)]
pub(super) struct Fact {
    pub(super) value: String,
    pub(super) shape: Shape,
    pub(super) source: FactSource,
    /// What it is called, how often, and whether a call calls it so.
    pub(super) labels: Vec<(usize, u32, bool)>,
    /// The tool that used it last.
    pub(super) tool: Option<usize>,
    /// Where it stood last.
    pub(super) place: Place,
    /// The same as a position in the history.
    pub(super) last: u32,
    /// In how many turns it stood.
    pub(super) turns: u32,
    /// In how many turns a call used it.
    pub(super) uses: u32,
    /// The position of the last of these.
    used_at: Option<u32>,
    /// Whether the call that used it there failed.
    pub(super) failed: bool,
}

impl Fact {
    /// Returns what the value is called: as calls call it, else as it is called most often.
    pub(super) fn label(&self) -> usize {
        let rank = |(at, (_, count, used)): &(usize, &(usize, u32, bool))| {
            (*used, *count, std::cmp::Reverse(*at))
        };
        let best = self.labels.iter().enumerate().max_by_key(rank);
        best.map_or(0, |(_, (label, _, _))| *label)
    }
}

/// What values are called.
#[derive(Clone, Debug)]
pub(super) struct Label {
    pub(super) name: String,
    /// How many values of calls have it.
    pub(super) used: u32,
    /// How many values have it.
    pub(super) values: u32,
    /// How many of its values that were only seen a call used later.
    pub(super) taken: u32,
    /// How many values that have it were used by a call.
    pub(super) called: u32,
    /// How many of these were used again in another turn.
    pub(super) reused: u32,
}

/// What a note tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum NoteKind {
    /// What the user wants.
    Task,
    /// A sentence of a later prompt.
    Said,
    /// What a failing tool gave back.
    Wrong,
    /// The last words of the model.
    Answer,
    /// A call without a result.
    Waiting,
}

/// Something in words.
#[derive(Clone, Debug)]
pub(super) struct Remark {
    pub(super) kind: NoteKind,
    pub(super) text: String,
    pub(super) place: Place,
    /// Where the same thing worked.
    pub(super) ok_at: Option<Place>,
}

/// Everything that a digest may tell.
#[derive(Default)]
pub(super) struct Ledger {
    pub(super) facts: Vec<Fact>,
    by_value: HashMap<String, usize>,
    pub(super) labels: Vec<Label>,
    by_name: HashMap<String, usize>,
    pub(super) notes: Vec<Remark>,
    seen: HashSet<String>,
    positions: HashMap<Place, u32>,
}

impl Ledger {
    /// Returns the position of a place; one not met before is the newest.
    pub(super) fn position(&mut self, place: &Place) -> u32 {
        let next = self.positions.len() as u32;
        *self.positions.entry(place.clone()).or_insert(next)
    }

    /// Returns the number of places.
    pub(super) fn length(&self) -> u32 {
        self.positions.len() as u32
    }

    /// Returns the first and last turn, if there is only one loop.
    pub(super) fn span(&self) -> Option<(u32, u32)> {
        let turns = || self.positions.keys().map(|place| place.turn);
        let single = self.positions.keys().all(|place| place.of.is_none());
        single.then(|| Some((turns().min()?, turns().max()?)))?
    }

    /// Returns the label of that name.
    pub(super) fn label(&mut self, name: &str) -> usize {
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

    /// Notes a value that stood at `place`, and returns it. `None`: it is none.
    pub(super) fn add(
        &mut self,
        value: &str,
        label: usize,
        source: FactSource,
        place: &Place,
    ) -> Option<usize> {
        if !is_value(value) {
            return None;
        }
        let last = self.position(place);
        let at = self.entry(value, source, place, last);
        if matches!(source, FactSource::Used | FactSource::KeptUsed) {
            self.use_it(at, label, last);
        }
        let fact = &mut self.facts[at];
        fact.source = fact.source.max(source);
        if fact.last < last {
            fact.turns += 1;
            (fact.last, fact.place, fact.failed) = (last, place.clone(), false);
        }
        self.call_it(at, label, source);
        Some(at)
    }

    /// Counts a use, once a turn.
    fn use_it(&mut self, at: usize, label: usize, now: u32) {
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

    fn entry(&mut self, value: &str, source: FactSource, place: &Place, last: u32) -> usize {
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
            failed: false,
        });
        self.facts.len() - 1
    }

    /// Forgets all facts but the `most` that are worth most. Returns where each fact stands now.
    pub(super) fn forget(&mut self, most: usize) -> Vec<Option<usize>> {
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

    fn call_it(&mut self, at: usize, label: usize, source: FactSource) {
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

    /// Adds a note; words said before are not said again.
    pub(super) fn note(&mut self, kind: NoteKind, text: &str, place: &Place) -> Option<usize> {
        let text = flat(text);
        if text.is_empty() || (kind == NoteKind::Said && !self.seen.insert(text.clone())) {
            return None;
        }
        self.position(place);
        self.notes.push(Remark {
            kind,
            text,
            place: place.clone(),
            ok_at: None,
        });
        Some(self.notes.len() - 1)
    }
}

/// Makes a label of a key: no colon, no space, no control character, at most 40 characters.
pub(super) fn clean_label(name: &str) -> String {
    let plain = |c: char| {
        if c.is_whitespace() || c.is_control() || matches!(c, ':' | '(' | ')') {
            '_'
        } else {
            c
        }
    };
    let name: String = name.trim().chars().map(plain).take(40).collect();
    if name.is_empty() {
        "value".into()
    } else {
        name
    }
}

/// Puts a text on one line: line ends become ` / `, other control characters spaces.
pub(super) fn flat(text: &str) -> String {
    let mut flat = String::with_capacity(text.len());
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if !flat.is_empty() {
            flat.push_str(" / ");
        }
        flat.extend(line.chars().map(|c| if c.is_control() { ' ' } else { c }));
    }
    flat
}

/// Returns the beginning of a text of at most `most` bytes, with `…` where something is missing.
pub(super) fn shortened(text: &str, most: usize) -> Option<String> {
    if text.len() <= most {
        return Some(text.to_owned());
    }
    let end = text.floor_char_boundary(most.checked_sub('…'.len_utf8())?);
    let cut = text[..end].trim_end();
    (!cut.is_empty()).then(|| format!("{cut}…"))
}
