//! Adds values that the page does not have yet, in lines by name.

use std::collections::BTreeSet;

use super::super::lines::Heading;
use super::super::record::DocumentRecord;
use super::super::values::Fact;
use super::super::values::line::{SEEN, quoted};
use super::PageDraft;

impl PageDraft<'_> {
    /// Adds values that the page does not have yet, in the given order, within `most` bytes.
    pub(in super::super) fn values(&mut self, order: &[usize], most: usize) {
        let mut left = most.min(self.room);
        let mut has_seen = self.value_lines.values().any(|used| !used);
        for at in order {
            let fact = &self.record.values.facts[*at];
            if left < fact.value.len() + 6 {
                self.is_full = true;
            } else if !self.known.has_value(&fact.value) {
                self.value(*at, fact, &mut left, &mut has_seen);
            }
        }
    }

    /// True if the page contains a value.
    pub(in super::super) fn shows_value(&self, value: &str) -> bool {
        self.known.has_value(value)
    }

    /// Adds values that were only seen, within their share of the page.
    pub(in super::super) fn seen(&mut self, order: &[usize]) {
        let before = self.room;
        self.values(order, self.seen_left);
        let spent = before.saturating_sub(self.room);
        self.seen_left = self.seen_left.saturating_sub(spent);
    }

    /// Adds a value. `has_seen`: the heading of lines with seen values alone is paid for.
    fn value(&mut self, at: usize, fact: &Fact, left: &mut usize, has_seen: &mut bool) {
        let Some(value) = quoted(&fact.value) else {
            return;
        };
        let line = self.line_of(fact);
        let shares = |at: &&usize| {
            let other = &self.record.values.facts[**at];
            other.place == fact.place
                && self.line_of(other) == line
                && other.source.is_used() == fact.source.is_used()
        };
        let place = match self.values.iter().rev().take(64).find(shares) {
            Some(_) => 0,
            None => fact.place.to_string().len() + 3,
        };
        let mut cost = value.len() + place + 2;
        if !self.value_lines.contains_key(&line) {
            cost += self.label_of(line).len() + 2;
        }
        // The first line with seen values alone needs a heading above it.
        let is_only_seen = !fact.source.is_used() && !self.value_lines.contains_key(&line);
        if is_only_seen && !*has_seen {
            cost += SEEN.len() + 1;
        }
        if !self.reserve(Heading::Values, cost, left) {
            return;
        }
        *has_seen |= is_only_seen;
        *self.value_lines.entry(line).or_default() |= fact.source.is_used();
        self.known.add(&fact.value);
        self.values.push(at);
    }

    pub(super) fn line_of(&self, fact: &Fact) -> (Option<usize>, usize) {
        (fact.tool.filter(|_| self.tools_named), fact.label())
    }

    pub(super) fn label_of(&self, (tool, label): (Option<usize>, usize)) -> String {
        let labels = &self.record.values.labels;
        let name = &labels[label].name;
        match tool {
            Some(tool) => format!("{}:{name}", labels[tool].name),
            None => name.clone(),
        }
    }
}

/// Returns the bytes of the tools' names in all lines of values.
pub(in super::super) fn tool_bytes(record: &DocumentRecord) -> usize {
    let labels = &record.values.labels;
    let lines: BTreeSet<(usize, usize)> = record
        .values
        .facts
        .iter()
        .filter_map(|fact| Some((fact.tool?, fact.label())))
        .collect();
    let name = |at: usize| labels[at].name.len();
    let bytes: usize = lines
        .iter()
        .map(|(tool, label)| name(*tool) + name(*label) + 4)
        .sum();
    bytes
}
