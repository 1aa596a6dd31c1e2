//! The lines of a digest, written and read back.
//!
//! `label: value (t3), value (t5) failed; value (t2)`: each value with the turn that it stood in
//! last. Before the semicolon stand values that the user gave or a call used, after it values that
//! were only seen; below [`SEEN`] all were. Notes have a label with a space: `User said: … (t4)`.

use std::fmt::Write;
use std::sync::Arc;

use super::fact::{NoteKind, Place};

/// The line that parts values used from values only seen.
pub(super) const SEEN: &str = "Seen:";

/// Begins the first line of every digest.
pub(super) const OPENING: &str = "[Digest";

const FAILED: &str = " failed";
const OK_AT: &str = " ok at ";

/// Quotes for values that could be misread without.
const QUOTES: [(char, char); 4] = [('"', '"'), ('`', '`'), ('«', '»'), ('⟦', '⟧')];

impl NoteKind {
    /// All kinds, as they stand in a digest.
    pub(super) const ALL: [Self; 5] = [
        Self::Task,
        Self::Said,
        Self::Wrong,
        Self::Answer,
        Self::Waiting,
    ];

    /// Returns the label of the note's line; no label of a value has a space.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Task => "The task",
            Self::Said => "User said",
            Self::Wrong => "Went wrong",
            Self::Answer => "Last answer",
            Self::Waiting => "No result yet",
        }
    }
}

/// A value in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LineValue {
    pub(super) value: String,
    pub(super) place: Place,
    pub(super) used: bool,
    pub(super) failed: bool,
}

/// A line that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DigestLine {
    /// Values that share a label.
    Values {
        tool: Option<String>,
        label: String,
        entries: Vec<LineValue>,
    },
    /// Something in words.
    Note {
        kind: NoteKind,
        text: String,
        place: Place,
        ok_at: Option<Place>,
    },
}

/// Returns a value so that it can be read back, in quotes if it must be; `None`: it cannot.
pub(super) fn quoted(value: &str) -> Option<String> {
    let opens = |(open, _): &(char, char)| value.starts_with(*open);
    if !value.contains(" (") && !QUOTES.iter().any(opens) {
        return Some(value.to_owned());
    }
    let fits = |(_, close): &&(char, char)| !value.contains(&format!("{close} ("));
    let (open, close) = QUOTES.iter().find(fits)?;
    Some(format!("{open}{value}{close}"))
}

/// Writes the values of a label; those used come first.
pub(super) fn write_values(text: &mut String, label: &str, entries: &[LineValue], seen_part: bool) {
    text.push_str(label);
    text.push(':');
    let mut used_before = true;
    for (at, entry) in entries.iter().enumerate() {
        let turns_to_seen = used_before && !entry.used && !seen_part;
        text.push_str(match (at, turns_to_seen) {
            (0, _) => " ",
            (_, true) => "; ",
            (_, false) => ", ",
        });
        used_before = entry.used;
        let value = quoted(&entry.value).unwrap_or_default();
        let failed = if entry.failed { FAILED } else { "" };
        // Writing to a string cannot fail.
        let _ = write!(text, "{value} ({}){failed}", entry.place);
    }
    text.push('\n');
}

/// Writes a note.
pub(super) fn write_note(
    text: &mut String,
    kind: NoteKind,
    words: &str,
    place: &Place,
    ok_at: Option<&Place>,
) {
    let _ = write!(text, "{}: {words} ({place})", kind.label());
    if let Some(place) = ok_at {
        let _ = write!(text, "{OK_AT}{place}");
    }
    text.push('\n');
}

/// Reads a digest back.
pub(super) fn read(text: &str) -> Vec<DigestLine> {
    let mut lines = Vec::new();
    let mut used = true;
    for line in text.lines().skip(1) {
        if line == SEEN {
            used = false;
        } else if let Some(line) = read_line(line, used) {
            lines.push(line);
        }
    }
    lines
}

fn read_line(line: &str, used: bool) -> Option<DigestLine> {
    let (label, rest) = line.split_once(": ")?;
    if let Some(kind) = NoteKind::ALL.into_iter().find(|k| k.label() == label) {
        return read_note(kind, rest);
    }
    let (tool, label) = match label.split_once(':') {
        Some((tool, label)) => (Some(tool.to_owned()), label),
        None => (None, label),
    };
    let entries = read_entries(rest, used);
    (!entries.is_empty()).then(|| DigestLine::Values {
        tool,
        label: label.to_owned(),
        entries,
    })
}

fn read_note(kind: NoteKind, rest: &str) -> Option<DigestLine> {
    let (text, end) = rest.rsplit_once(" (")?;
    let (place, after) = end.split_once(')')?;
    let ok_at = after.strip_prefix(OK_AT).and_then(read_place);
    Some(DigestLine::Note {
        kind,
        text: text.to_owned(),
        place: read_place(place)?,
        ok_at,
    })
}

fn read_entries(mut rest: &str, mut used: bool) -> Vec<LineValue> {
    let mut entries = Vec::new();
    while let Some((value, after)) = read_value(rest) {
        let Some((place, after)) = after.split_once(')') else {
            break;
        };
        let Some(place) = read_place(place) else {
            break;
        };
        let (failed, after) = match after.strip_prefix(FAILED) {
            Some(after) => (true, after),
            None => (false, after),
        };
        entries.push(LineValue {
            value: value.to_owned(),
            place,
            used,
            failed,
        });
        used &= !after.starts_with("; ");
        rest = after.get(2..).unwrap_or_default();
    }
    entries
}

/// Returns a value and what follows the parenthesis after it.
fn read_value(rest: &str) -> Option<(&str, &str)> {
    for (open, close) in QUOTES {
        if let Some(inside) = rest.strip_prefix(open) {
            return inside.split_once(&format!("{close} ("));
        }
    }
    rest.split_once(" (")
}

fn read_place(text: &str) -> Option<Place> {
    let (of, turn) = match text.rsplit_once(' ') {
        Some((name, turn)) => (Some(Arc::from(name)), turn),
        None => (None, text),
    };
    let turn = turn.strip_prefix('t')?.parse().ok()?;
    Some(Place { of, turn })
}
