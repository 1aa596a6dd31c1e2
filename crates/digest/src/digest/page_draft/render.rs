//! Renders the page as text.

use std::collections::{BTreeMap, BTreeSet};

use super::super::lines::{Heading, READ, names_speaker, statement_head};

use super::super::page::DocumentPage;
use super::super::values::Fact;
use super::super::values::line::{LineValue, SEEN, write_values};
use super::statements::for_each_part;
use super::{PageDraft, ShownUnits};

impl PageDraft<'_> {
    pub(in super::super) fn render(&self) -> DocumentPage {
        let mut page = DocumentPage {
            text: String::new(),
            places: BTreeSet::new(),
            is_full: self.is_full,
        };
        let is_first = |heading: &Heading| self.has_no_heading(*heading);
        let first = Heading::ALL.into_iter().filter(is_first);
        let rest = Heading::ALL
            .into_iter()
            .filter(|heading| !is_first(heading));
        for heading in first.chain(rest) {
            if !self.headings.contains(&heading) {
                continue;
            }
            if !self.has_no_heading(heading) {
                if !page.text.is_empty() {
                    page.text.push('\n');
                }
                page.text.push_str(self.heading_line(heading));
                page.text.push('\n');
            }
            for line in self.model_sections.get(&heading).into_iter().flatten() {
                page.text.push_str(line);
                page.text.push('\n');
            }
            match heading {
                Heading::Task => self.write_statements(&self.task, heading, &mut page),
                Heading::Findings => self.write_statements(&self.statements, heading, &mut page),
                Heading::Values => self.write_values(&mut page),
                _ => {}
            }
            for ((_, _), (line, places)) in self.lines.range((heading, 0)..=(heading, usize::MAX)) {
                page.text.push_str(line);
                page.places.extend(places.iter().cloned());
            }
            match heading {
                Heading::Files => self.write_read(&mut page),
                Heading::Instructions if self.left_out > 0 => {
                    page.text.push_str(&self.left_out_line(self.left_out));
                }
                _ => {}
            }
        }
        if let (Some(header), false) = (&self.header, page.text.is_empty()) {
            page.text.insert_str(0, &format!("{header}\n"));
        }
        page.text.truncate(page.text.trim_end().len());
        page
    }

    fn write_statements(
        &self,
        shown: &BTreeMap<usize, ShownUnits>,
        heading: Heading,
        page: &mut DocumentPage,
    ) {
        let (mut day, mut is_speaker_named) = ("", false);
        for (at, shown) in shown {
            let statement = &self.record.statements[*at];
            let is_only_speaker = self.only_speaker == Some(statement.speaker);
            let names = names_speaker(statement.speaker, heading, self.is_conversation)
                && !(is_only_speaker && is_speaker_named);
            is_speaker_named |= is_only_speaker;
            let is_new = self.shows_days && !statement.day.is_empty() && statement.day != day;
            day = &statement.day;
            page.text
                .push_str(&statement_head(statement, is_new, names));
            match shown {
                ShownUnits::All => page.text.push_str(&statement.text),
                ShownUnits::Some(units, _) => {
                    for_each_part(statement, units, heading, &mut |text| {
                        page.text.push_str(text);
                    });
                }
            }
            page.text.push('\n');
            page.places.insert(statement.place.clone());
        }
    }

    fn write_read(&self, page: &mut DocumentPage) {
        if self.read.is_empty() {
            return;
        }
        let all: Vec<&str> = self.read.values().map(|text| &**text).collect();
        page.text.push_str(&format!("{READ}{}\n", all.join(", ")));
        let files = self.read.keys().map(|at| &self.work().files[*at]);
        page.places.extend(
            files
                .filter_map(|file| file.events.last())
                .map(|event| event.place.clone()),
        );
    }

    /// Writes the lines of values in the order of their best value, lines with used values first.
    fn write_values(&self, page: &mut DocumentPage) {
        let mut order: Vec<(Option<usize>, usize)> = Vec::new();
        let mut entries: BTreeMap<(Option<usize>, usize), Vec<&Fact>> = BTreeMap::new();
        for at in &self.values {
            let fact = &self.record.values.facts[*at];
            let line = self.line_of(fact);
            let of_line = entries.entry(line).or_default();
            if of_line.is_empty() {
                order.push(line);
            }
            of_line.push(fact);
        }
        for used in [true, false] {
            let of_part: Vec<_> = order
                .iter()
                .filter(|l| self.value_lines[*l] == used)
                .collect();
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
    }
}
