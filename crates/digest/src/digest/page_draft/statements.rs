//! Adds prompts, statements and standing instructions.

use std::collections::{BTreeMap, BTreeSet};

use super::super::instructions::order_in;
use super::super::lines::{GAP, Heading, instruction_line, names_speaker, statement_head};
use super::super::page::UnitRef;
use super::super::page::order::InstructionLine;
use super::super::record::Statement;
use super::{PageDraft, ShownUnits};

/// A unit of a prompt of one or two words and at most so many characters is left out: it is mostly a greeting.
const FEW_CHARACTERS: usize = 12;
/// A number of instructions that has as many digits as any that is expected.
const LONGEST_COUNT: usize = 99;
/// A statement that takes back an earlier one is shown whole up to so many bytes, else in part.
const WHOLE_REPLACEMENT: usize = 400;

impl PageDraft<'_> {
    fn head(&self, statement: &Statement, heading: Heading) -> String {
        let names = names_speaker(statement.speaker, heading, self.is_conversation)
            && self.only_speaker != Some(statement.speaker);
        statement_head(
            statement,
            self.shows_days && !statement.day.is_empty(),
            names,
        )
    }

    /// Returns the bytes of a whole prompt.
    pub(in super::super) fn prompt_bytes(&self, at: usize) -> usize {
        let statement = &self.record.statements[at];
        self.head(statement, Heading::Task).len() + statement.text.len() + 1
    }

    /// True if the task shows a part of a prompt.
    pub(in super::super) fn shows_prompt(&self, at: usize) -> bool {
        self.task.contains_key(&at)
    }

    /// True if the task shows a whole prompt.
    pub(in super::super) fn shows_all_of(&self, at: usize) -> bool {
        matches!(self.task.get(&at), Some(ShownUnits::All))
    }

    /// Shows a whole prompt in the task. Its instructions are then not listed as such.
    pub(in super::super) fn prompt_whole(&mut self, at: usize, left: &mut usize) {
        let now = match self.task.get(&at) {
            Some(ShownUnits::All) => return,
            Some(ShownUnits::Some(_, bytes)) => *bytes,
            None => 0,
        };
        if !self.shows_replacement_of(at, left) {
            return;
        }
        let (lines, freed) = self.instructions_of(at);
        let more = self.prompt_bytes(at).saturating_sub(now);
        self.room += freed;
        *left = left.saturating_add(freed);
        if self.reserve(Heading::Task, more, left) {
            let text = &self.record.statements[at].text;
            self.known.add(text);
            self.task.insert(at, ShownUnits::All);
            for line in lines {
                self.lines.remove(&line);
            }
            self.instructed.retain(|unit| unit.statement != at);
            self.drop_empty_instructions();
        } else {
            self.room -= freed;
            *left = left.saturating_sub(freed);
        }
    }

    /// Returns the instructions on the page that no other statement contains, and their bytes.
    fn instructions_of(&self, at: usize) -> (Vec<(Heading, usize)>, usize) {
        let (mut lines, mut bytes) = (Vec::new(), 0);
        if self.instructed.iter().all(|unit| unit.statement != at) {
            return (lines, bytes);
        }
        let own = (Heading::Instructions, 0)..=(Heading::Instructions, usize::MAX);
        for (key, (line, _)) in self.lines.range(own) {
            if self.instruction_units.get(&key.1) == Some(&at) {
                lines.push(*key);
                bytes += line.len();
            }
        }
        (lines, bytes)
    }

    fn drop_empty_instructions(&mut self) {
        let heading = Heading::Instructions;
        let mut own = self.lines.range((heading, 0)..=(heading, usize::MAX));
        let is_empty = own.next().is_none() && !self.model_sections.contains_key(&heading);
        if is_empty && self.left_out == 0 && self.headings.remove(&heading) {
            self.room += self.heading_bytes(heading);
        }
    }

    /// Shows a whole prompt if it fits `most`, else its last unit and as many of the first as fit.
    pub(in super::super) fn prompt_beginning(&mut self, at: usize, most: usize) {
        let mut left = most;
        if self.prompt_bytes(at) <= most {
            return self.prompt_whole(at, &mut left);
        }
        let units = &self.record.statements[at].units.units;
        // The request often follows its explanation.
        let says_much = |unit: &usize| {
            let text = &units[*unit].text;
            text.chars().nth(FEW_CHARACTERS).is_some() || text.split_whitespace().nth(2).is_some()
        };
        let last = units.len().checked_sub(1).filter(says_much);
        let last = last.filter(|last| units[*last].text.len() <= most / 2);
        let rest = (0..units.len()).filter(|unit| says_much(unit) || units.len() == 1);
        for unit in last.into_iter().chain(rest) {
            self.prompt_unit(
                UnitRef {
                    statement: at,
                    unit,
                },
                &mut left,
            );
        }
    }

    /// Shows a unit of a prompt in the task.
    pub(in super::super) fn prompt_unit(&mut self, unit: UnitRef, left: &mut usize) {
        self.add_unit(unit, Heading::Task, left);
    }

    /// Shows a unit of a statement, unless the task shows it.
    pub(in super::super) fn unit(&mut self, unit: UnitRef, left: &mut usize) {
        if !self.shows_unit(unit, Heading::Task) {
            self.add_unit(unit, Heading::Findings, left);
        }
    }

    fn add_unit(&mut self, unit: UnitRef, heading: Heading, left: &mut usize) {
        if self.instructed.contains(&unit) {
            return;
        }
        let text = &self.record.statements[unit.statement].units.units[unit.unit].text;
        // A line grows by at least its new unit, less the marks of a gap that the unit closes.
        let marks = if heading == Heading::Task {
            2 * GAP.len()
        } else {
            0
        };
        if self.shows_unit(unit, heading) {
            return;
        }
        if text.len() > (*left).min(self.room) + marks {
            self.is_full = true;
            return;
        }
        if self.shows_replacement_of(unit.statement, left) {
            self.add_units(unit.statement, &[unit.unit], heading, left);
        }
    }

    fn shown(&self, heading: Heading) -> &BTreeMap<usize, ShownUnits> {
        match heading {
            Heading::Task => &self.task,
            _ => &self.statements,
        }
    }

    /// True if a section shows a unit.
    fn shows_unit(&self, unit: UnitRef, heading: Heading) -> bool {
        match self.shown(heading).get(&unit.statement) {
            Some(ShownUnits::All) => true,
            Some(ShownUnits::Some(units, _)) => units.contains(&unit.unit),
            None => false,
        }
    }

    /// Shows several units of a statement, or none if they do not fit.
    fn add_units(&mut self, at: usize, more: &[usize], heading: Heading, left: &mut usize) -> bool {
        let (mut units, before) = match self.shown(heading).get(&at) {
            Some(ShownUnits::All) => return true,
            Some(ShownUnits::Some(units, bytes)) => (units.clone(), *bytes),
            None => (BTreeSet::new(), 0),
        };
        units.extend(more);
        let after = self.shown_bytes(at, &units, heading);
        if !self.reserve(heading, after.saturating_sub(before), left) {
            return false;
        }
        for unit in more {
            self.known
                .add(&self.record.statements[at].units.units[*unit].text);
        }
        let shown = match heading {
            Heading::Task => &mut self.task,
            _ => &mut self.statements,
        };
        shown.insert(at, ShownUnits::Some(units, after));
        true
    }

    /// Shows the statement that took another one back, if any; returns false if it does not fit.
    fn shows_replacement_of(&mut self, at: usize, left: &mut usize) -> bool {
        match self.replaced_by.get(at).copied().flatten() {
            Some(by) => self.replacement(by, left),
            None => true,
        }
    }

    /// Shows a statement that takes back what was said before: whole if it is short, else the sentences that do and
    /// those after them. Returns false if they do not fit.
    pub(in super::super) fn replacement(&mut self, at: usize, left: &mut usize) -> bool {
        let statement = &self.record.statements[at];
        let all = statement.units.units.len();
        let units: BTreeSet<usize> = match statement.text.len() <= WHOLE_REPLACEMENT {
            true => (0..all).collect(),
            false => {
                let both = statement
                    .takes_back
                    .iter()
                    .flat_map(|unit| [*unit, unit + 1]);
                both.filter(|unit| *unit < all).collect()
            }
        };
        let missing = units.into_iter().filter(|unit| {
            let unit = UnitRef {
                statement: at,
                unit: *unit,
            };
            !self.instructed.contains(&unit)
                && !self.shows_unit(unit, Heading::Task)
                && !self.shows_unit(unit, Heading::Findings)
        });
        let missing: Vec<usize> = missing.collect();
        let heading = match self.is_conversation {
            true => Heading::Findings,
            false => Heading::Task,
        };
        missing.is_empty() || self.add_units(at, &missing, heading, left)
    }

    fn shown_bytes(&self, at: usize, units: &BTreeSet<usize>, heading: Heading) -> usize {
        let statement = &self.record.statements[at];
        let mut bytes = self.head(statement, heading).len() + 1;
        for_each_part(statement, units, heading, &mut |text| bytes += text.len());
        bytes
    }

    /// True if the record's part of the page contains an instruction. A model's lines do not count: the model may leave
    /// the instruction out the next time.
    pub(in super::super) fn shows_instruction(&self, line: &InstructionLine) -> bool {
        line.units
            .iter()
            .any(|unit| self.shows_all_of(unit.statement))
            || self
                .known
                .contains_after(self.model_bytes, &line.instruction.text)
    }

    /// True if an instruction is listed.
    pub(in super::super) fn lists_instruction(&self, at: usize) -> bool {
        self.lines.contains_key(&(Heading::Instructions, at))
    }

    /// Returns true if instructions of so many bytes fit. If not, reserves the line with the number of those left out,
    /// once.
    pub(in super::super) fn count_left_out(&mut self, bytes: usize, left: &mut usize) -> bool {
        let line = self.left_out_line(LONGEST_COUNT).len();
        let fits = bytes + self.heading_bytes(Heading::Instructions) <= *left;
        if !fits && !self.is_left_out_counted && line <= self.room {
            self.is_left_out_counted = true;
            self.room -= line;
            *left = left.saturating_sub(line);
        }
        fits
    }

    /// Returns the line that says how many instructions are left out.
    pub(super) fn left_out_line(&self, count: usize) -> String {
        match self.has_short_headings() {
            true => format!("({count} more)\n"),
            false => format!("({count} older ones are left out)\n"),
        }
    }

    /// Lists an instruction; returns false if it does not fit. `is_whole`: all instructions fit. If not, on a small page
    /// an instruction begins with its order.
    pub(in super::super) fn instruction(
        &mut self,
        at: usize,
        line: &InstructionLine,
        is_whole: bool,
        left: &mut usize,
    ) -> bool {
        let mut instruction = line.instruction.clone();
        if !is_whole && self.has_short_headings() {
            instruction.text = order_in(&instruction.text).to_owned();
        }
        let text = instruction_line(&instruction);
        let places = vec![line.instruction.place.clone()];
        if !self.line((Heading::Instructions, at), text, places, left) {
            return false;
        }
        let mut statements = line.units.iter().map(|unit| unit.statement);
        if let Some(first) = statements.next()
            && statements.all(|other| other == first)
        {
            self.instruction_units.insert(at, first);
        }
        self.instructed.extend(&line.units);
        true
    }
}

/// Calls `each` with the parts of the line that shows the given units of a statement. In the task, a gap between units
/// is marked, since a person's words must not seem complete.
pub(super) fn for_each_part(
    statement: &Statement,
    units: &BTreeSet<usize>,
    heading: Heading,
    each: &mut dyn FnMut(&str),
) {
    let all = &statement.units;
    let (mut next, mut lead, mut before) = (0, None, "");
    for at in units {
        let unit = &all.units[*at];
        let is_gap = heading == Heading::Task && *at != next;
        if !before.is_empty() {
            let ends = before.ends_with(['.', '!', '?', ':', ';', '。', '！', '？', '…']);
            each(if is_gap {
                GAP
            } else if ends {
                " "
            } else {
                "; "
            });
        } else if is_gap {
            each(GAP.trim_start());
        }
        if unit.lead != lead {
            lead = unit.lead;
            if let Some(lead) = lead {
                each(&all.leads[lead]);
                each(": ");
            }
        }
        each(&unit.text);
        (next, before) = (at + 1, &unit.text);
    }
    if heading == Heading::Task && next < all.units.len() {
        each(GAP.trim_end());
    }
}
