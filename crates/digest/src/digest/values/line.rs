//! Writes the lines of values, and reads them back.
//!
//! `label: value, value (t3), value (t5); value (t2)`: each turn in parentheses is the last turn of the values before
//! it. The values before the semicolon were given by a person or used by a call, those after it were only seen; below
//! [`SEEN`], all were only seen.

use std::fmt::Write;
use std::sync::Arc;

use super::SourceTurn;

/// The line between used values and values that were only seen.
pub(crate) const SEEN: &str = "Seen:";

/// Quotes for values that cannot be read back without them.
const QUOTES: [(char, char); 4] = [('"', '"'), ('`', '`'), ('«', '»'), ('⟦', '⟧')];

/// The texts that may follow a value.
const AFTER: [&str; 2] = [" (", ", "];

/// A value in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LineValue {
    pub(crate) value: String,
    pub(crate) place: SourceTurn,
    pub(crate) used: bool,
}

/// Values that share a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ValueLine {
    pub(crate) tool: Option<String>,
    pub(crate) label: String,
    pub(crate) entries: Vec<LineValue>,
}

/// Returns a value in a form that can be read back, in quotes if necessary; `None` if there is no such form.
pub(crate) fn quoted(value: &str) -> Option<String> {
    let opens = |(open, _): &(char, char)| value.starts_with(*open);
    let parts = |after: &str| value.contains(after) || value.ends_with(',');
    if !AFTER.iter().any(|after| parts(after)) && !QUOTES.iter().any(opens) {
        return Some(value.to_owned());
    }
    let fits = |(_, close): &&(char, char)| {
        let ends = |after: &str| value.contains(&format!("{close}{after}"));
        !AFTER.iter().any(|after| ends(after))
    };
    let (open, close) = QUOTES.iter().find(fits)?;
    Some(format!("{open}{value}{close}"))
}

/// Writes the values of a label. Used values come first, values of the same turn are adjacent.
pub(crate) fn write_values(text: &mut String, label: &str, entries: &[LineValue], seen_part: bool) {
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
        text.push_str(&quoted(&entry.value).unwrap_or_default());
        let shares = |next: &LineValue| next.place == entry.place && next.used == entry.used;
        if !entries.get(at + 1).is_some_and(shares) {
            // Writing to a string cannot fail.
            let _ = write!(text, " ({})", entry.place);
        }
    }
    text.push('\n');
}

/// Reads a line of values. `used`: the line is above [`SEEN`].
pub(crate) fn read_values(line: &str, used: bool) -> Option<ValueLine> {
    let (label, rest) = line.split_once(": ")?;
    let (tool, label) = match label.split_once(':') {
        Some((tool, label)) => (Some(tool.to_owned()), label),
        None => (None, label),
    };
    let entries = read_entries(rest, used);
    (!entries.is_empty()).then(|| ValueLine {
        tool,
        label: label.to_owned(),
        entries,
    })
}

fn read_entries(mut rest: &str, mut used: bool) -> Vec<LineValue> {
    let mut entries = Vec::new();
    let mut waiting: Vec<&str> = Vec::new();
    while let Some((value, after)) = read_value(rest) {
        waiting.push(value);
        if let Some(more) = after.strip_prefix(", ") {
            rest = more;
            continue;
        }
        let end = after
            .strip_prefix(" (")
            .and_then(|after| after.split_once(')'));
        let Some((place, after)) = end else { break };
        let Some(place) = read_place(place) else {
            break;
        };
        entries.extend(waiting.drain(..).map(|value| LineValue {
            value: value.to_owned(),
            place: place.clone(),
            used,
        }));
        used &= !after.starts_with("; ");
        rest = after.get(2..).unwrap_or_default();
    }
    entries
}

/// Returns the first value and the rest of the line.
fn read_value(rest: &str) -> Option<(&str, &str)> {
    let first = |rest: &str, close: &str| {
        let found = AFTER
            .iter()
            .filter_map(|after| rest.find(&format!("{close}{after}")));
        found.min()
    };
    for (open, close) in QUOTES {
        if let Some(inside) = rest.strip_prefix(open) {
            let end = first(inside, close.encode_utf8(&mut [0; 4]))?;
            return Some((&inside[..end], &inside[end + close.len_utf8()..]));
        }
    }
    first(rest, "").map(|end| rest.split_at(end))
}

/// Reads a turn: `t12`, or `L1 t12`.
pub(crate) fn read_place(text: &str) -> Option<SourceTurn> {
    let (loop_name, turn) = match text.rsplit_once(' ') {
        Some((name, turn)) => (Some(Arc::from(name)), turn),
        None => (None, text),
    };
    let turn = turn.strip_prefix('t')?.parse().ok()?;
    Some(SourceTurn { loop_name, turn })
}
