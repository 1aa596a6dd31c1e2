//! Fills a budget with lines, best first.

use std::collections::{BTreeMap, BTreeSet};

use super::fact::{Fact, Ledger, NoteKind, Place, shortened};
use super::line::{LineValue, SEEN, quoted, write_note, write_values};
use super::rank::by_worth;

/// Shares of the budget that notes may take before values have had their turn: one part in so
/// many for all notes of a kind. A task is only cut to it if it takes more than half.
const SHARES: [(NoteKind, usize); 5] = [
    (NoteKind::Task, 6),
    (NoteKind::Said, 20),
    (NoteKind::Wrong, 40),
    (NoteKind::Waiting, 40),
    (NoteKind::Answer, 40),
];
/// In fewer bytes, notes other than the task get only what values leave.
const ROOMY: usize = 1_200;
/// A note that would be shorter than this is left out.
const SHORTEST_NOTE: usize = 24;
/// A note of a kind that may have several is not longer than this.
const LONGEST_NOTE: usize = 240;
/// The names of tools are given only where they take no more than one part in so many.
const TOOL_SHARE: usize = 16;

/// A digest of a given size.
pub(super) struct DigestPage {
    pub(super) text: String,
    /// Where what it says comes from.
    pub(super) places: BTreeSet<Place>,
    /// Whether something was left out for want of room.
    pub(super) is_full: bool,
}

/// Fills pages of any size from one ledger.
pub(super) struct PageWriter<'a> {
    ledger: &'a Ledger,
    order: Vec<usize>,
}

impl<'a> PageWriter<'a> {
    pub(super) fn new(ledger: &'a Ledger) -> Self {
        let order = by_worth(ledger);
        Self { ledger, order }
    }

    /// Returns a page of at most `most` bytes that begins with the longest of `headers` (best
    /// first) that does not take too much of it. It is empty if nothing fits below the header.
    pub(super) fn page(&self, headers: &[String], most: usize) -> DigestPage {
        let mut filling = Filling::new(self.ledger, most);
        let header = filling.header(headers);
        for (kind, parts) in SHARES {
            match kind {
                NoteKind::Task => filling.notes(kind, self.task_share(filling.room, parts)),
                _ if most >= ROOMY => filling.notes(kind, most / parts),
                _ => {}
            }
        }
        filling.values(&self.order, WrittenWhere::Anywhere);
        filling.values(&self.order, WrittenWhere::UnderItsName);
        for (kind, _) in SHARES {
            filling.notes(kind, usize::MAX);
        }
        filling.written(header)
    }

    /// Returns the bytes for the task: all that it needs if it takes no more than half of the
    /// room, else its part, but enough to say something.
    fn task_share(&self, room: usize, parts: usize) -> usize {
        let tasks = self.ledger.notes.iter();
        let Some(task) = tasks.rev().find(|note| note.kind == NoteKind::Task) else {
            return 0;
        };
        let frame = note_frame(task.kind, &task.place, None);
        if frame + task.text.len() <= room / 2 {
            return frame + task.text.len();
        }
        (room / parts).max((frame + SHORTEST_NOTE).min(room / 2))
    }
}

/// Where a value must stand already to be left out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WrittenWhere {
    /// In a note or within another value.
    Anywhere,
    /// As a value with its label; only for values used.
    UnderItsName,
}

struct Filling<'a> {
    ledger: &'a Ledger,
    most: usize,
    room: usize,
    /// Texts of notes by their place in the ledger.
    notes: BTreeMap<usize, String>,
    values: Vec<usize>,
    listed: BTreeSet<usize>,
    /// Labels that have a line, and whether it is among those of used values.
    lines: BTreeMap<(Option<usize>, usize), bool>,
    /// Everything said so far, to say nothing twice.
    written: String,
    tools_named: bool,
    is_full: bool,
}

impl<'a> Filling<'a> {
    fn new(ledger: &'a Ledger, most: usize) -> Self {
        Self {
            ledger,
            most,
            room: most,
            notes: BTreeMap::new(),
            values: Vec::new(),
            listed: BTreeSet::new(),
            lines: BTreeMap::new(),
            written: String::new(),
            tools_named: tools_fit(ledger, most),
            is_full: false,
        }
    }

    fn header(&mut self, headers: &[String]) -> Option<String> {
        let parts = [36, 18, 3, 2];
        let fits = |(header, parts): &(&String, usize)| header.len() < self.most / parts;
        let (header, _) = headers.iter().zip(parts).find(fits)?;
        self.room -= header.len() + 1;
        Some(header.clone())
    }

    /// Adds notes of a kind, the newest first, or makes shortened ones longer.
    fn notes(&mut self, kind: NoteKind, share: usize) {
        let mut share = share.min(self.room);
        let all = self.ledger.notes.iter().enumerate().rev();
        for (at, note) in all.filter(|(_, note)| note.kind == kind) {
            let spent = self.notes.get(&at).map_or(0, String::len);
            let frame = note_frame(kind, &note.place, note.ok_at.as_ref());
            let mut most = if spent > 0 {
                spent + share.min(self.room)
            } else {
                share.min(self.room).saturating_sub(frame)
            };
            if kind != NoteKind::Task {
                most = most.min(LONGEST_NOTE);
            }
            if most < SHORTEST_NOTE.min(note.text.len()) || most <= spent {
                self.is_full |= most < note.text.len();
                continue;
            }
            let Some(text) = shortened(&note.text, most) else {
                continue;
            };
            let cost = text.len() + if spent > 0 { 0 } else { frame };
            let cost = cost.saturating_sub(spent);
            self.is_full |= text.len() < note.text.len();
            self.room -= cost;
            share = share.saturating_sub(cost);
            self.written.push_str(&text);
            self.written.push('\n');
            self.notes.insert(at, text);
        }
    }

    fn values(&mut self, order: &[usize], unless: WrittenWhere) {
        // The heading is paid for before it is needed, once.
        let is_paid = self.lines.values().any(|used| !used);
        let heading = if is_paid { 0 } else { SEEN.len() + 1 };
        let Some(room) = self.room.checked_sub(heading) else {
            return;
        };
        self.room = room;
        for at in order {
            let fact = &self.ledger.facts[*at];
            if self.room < fact.value.len() + 6 {
                self.is_full = true;
                continue;
            }
            let skipped = unless == WrittenWhere::UnderItsName
                && (!fact.source.is_used() || self.listed.contains(at));
            if !skipped {
                self.value(*at, fact, unless);
            }
        }
        if self.lines.values().all(|used| *used) {
            self.room += heading;
        }
    }

    fn value(&mut self, at: usize, fact: &Fact, unless: WrittenWhere) {
        let Some(value) = quoted(&fact.value) else {
            return;
        };
        let line = self.line_of(fact);
        let place = digits(fact.place.turn) + 1 + fact.place.of.as_ref().map_or(0, |n| n.len() + 1);
        let mut cost = value.len() + place + 5 + if fact.failed { 7 } else { 0 };
        if !self.lines.contains_key(&line) {
            cost += self.label_of(line).len() + 1;
        }
        if cost > self.room {
            self.is_full = true;
            return;
        }
        if unless == WrittenWhere::Anywhere && is_written(&self.written, &fact.value) {
            return;
        }
        self.room -= cost;
        *self.lines.entry(line).or_default() |= fact.source.is_used();
        self.written.push_str(&fact.value);
        self.written.push('\n');
        self.values.push(at);
        self.listed.insert(at);
    }

    fn line_of(&self, fact: &Fact) -> (Option<usize>, usize) {
        let label = fact.label();
        let tool = fact.tool.filter(|_| self.tools_named);
        (tool, label)
    }

    fn label_of(&self, (tool, label): (Option<usize>, usize)) -> String {
        let name = &self.ledger.labels[label].name;
        match tool {
            Some(tool) => format!("{}:{name}", self.ledger.labels[tool].name),
            None => name.clone(),
        }
    }

    fn written(self, header: Option<String>) -> DigestPage {
        let mut page = DigestPage {
            text: String::new(),
            places: BTreeSet::new(),
            is_full: self.is_full,
        };
        for (at, words) in &self.notes {
            let note = &self.ledger.notes[*at];
            page.places.insert(note.place.clone());
            page.places.extend(note.ok_at.clone());
            write_note(
                &mut page.text,
                note.kind,
                words,
                &note.place,
                note.ok_at.as_ref(),
            );
        }
        self.write_lines(&mut page);
        // At least half of the lines are values, however few there are.
        let is_tiny =
            page.text.is_empty() || (page.text.starts_with(SEEN) && page.text.lines().count() < 3);
        if let (Some(header), false) = (header, is_tiny) {
            page.text.insert_str(0, &format!("{header}\n"));
        }
        page.text.truncate(page.text.trim_end().len());
        page
    }

    /// Writes the lines in the order of their best value, those with used values first.
    fn write_lines(&self, page: &mut DigestPage) {
        let mut order: Vec<(Option<usize>, usize)> = Vec::new();
        let mut entries: BTreeMap<(Option<usize>, usize), Vec<&Fact>> = BTreeMap::new();
        for at in &self.values {
            let fact = &self.ledger.facts[*at];
            let line = self.line_of(fact);
            let of_line = entries.entry(line).or_default();
            if of_line.is_empty() {
                order.push(line);
            }
            of_line.push(fact);
        }
        for used in [true, false] {
            let of_part: Vec<_> = order.iter().filter(|l| self.lines[*l] == used).collect();
            if !used && !of_part.is_empty() {
                page.text.push_str(SEEN);
                page.text.push('\n');
            }
            for line in of_part {
                let mut facts = entries.remove(line).unwrap_or_default();
                facts.sort_by_key(|fact| (!fact.source.is_used(), fact.last));
                page.places
                    .extend(facts.iter().map(|fact| fact.place.clone()));
                let entries: Vec<LineValue> = facts.into_iter().map(entry).collect();
                write_values(&mut page.text, &self.label_of(*line), &entries, !used);
            }
        }
    }
}

fn entry(fact: &Fact) -> LineValue {
    LineValue {
        value: fact.value.clone(),
        place: fact.place.clone(),
        used: fact.source.is_used(),
        failed: fact.failed,
    }
}

fn tools_fit(ledger: &Ledger, most: usize) -> bool {
    let lines: BTreeSet<(usize, usize)> = ledger
        .facts
        .iter()
        .filter_map(|fact| Some((fact.tool?, fact.label())))
        .collect();
    let bytes: usize = lines
        .iter()
        .map(|(tool, label)| ledger.labels[*tool].name.len() + ledger.labels[*label].name.len() + 4)
        .sum();
    bytes <= most / TOOL_SHARE
}

fn note_frame(kind: NoteKind, place: &Place, ok_at: Option<&Place>) -> usize {
    let mut text = String::new();
    write_note(&mut text, kind, "", place, ok_at);
    text.len()
}

fn digits(turn: u32) -> usize {
    turn.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// Whether a value stands in a text, not as a part of a longer word.
fn is_written(written: &str, value: &str) -> bool {
    let mut from = 0;
    while let Some(start) = written[from..].find(value).map(|at| from + at) {
        let end = start + value.len();
        let joins = |c: char| c.is_alphanumeric() || c == '_';
        if !written[..start].ends_with(joins) && !written[end..].starts_with(joins) {
            return true;
        }
        from = start + value.chars().next().map_or(1, char::len_utf8);
    }
    false
}
