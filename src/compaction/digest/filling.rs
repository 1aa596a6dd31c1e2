//! A page in the making: what stands in it so far, and how much room is left.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::given;
use super::lines::{
    GAP, Heading, READ, attempt_line, file_line, instruction_line, names_speaker, open_line,
    plan_head, plan_line, read_file, said_head,
};
use super::page::{DocumentPage, UnitRef};
use super::read::carried_line;
use super::record::{Instruction, Record, Statement};
use super::values::line::{LineValue, SEEN, quoted, write_values};
use super::values::{Fact, shortened};
use crate::compaction::activity::{Place, PlanState, Work};

/// The names of tools are given only where they take no more than one part in so many.
const TOOL_SHARE: usize = 16;
/// Bytes of a call that is still running at most.
const LONGEST_OPEN: usize = 400;
/// What a header may take of the page: one part in so many, for each.
const HEADER_PARTS: [usize; 4] = [24, 14, 6, 3];

/// What is shown of a prompt or a statement.
#[derive(Clone, Debug)]
enum Shown {
    Whole,
    Units(BTreeSet<usize>),
}

pub(super) struct Filling<'a> {
    record: &'a Record,
    is_talk: bool,
    shows_days: bool,
    most: usize,
    room: usize,
    header: Option<String>,
    headings: BTreeSet<Heading>,
    task: BTreeMap<usize, Shown>,
    said: BTreeMap<usize, Shown>,
    /// Lines of each other section by what orders them there, with the places that they tell of.
    lines: BTreeMap<(Heading, usize), (String, Vec<Place>)>,
    /// Files that were only read, by their place among all.
    read: BTreeMap<usize, String>,
    /// Instructions for which there was no room.
    pub(super) left_out: usize,
    values: Vec<usize>,
    /// Labels that have a line, and whether it is among those of used values.
    value_lines: BTreeMap<(Option<usize>, usize), bool>,
    tools_named: bool,
    /// What a model wrote for sections.
    given: BTreeMap<Heading, Vec<String>>,
    /// Everything said so far, to say no value twice; a model's words first, of so many bytes.
    told: String,
    told_words: HashSet<String>,
    told_by_model: usize,
    is_full: bool,
}

impl<'a> Filling<'a> {
    pub(super) fn new(record: &'a Record, is_talk: bool, tool_bytes: usize, most: usize) -> Self {
        let mut days = record
            .statements
            .iter()
            .map(|s| &s.day)
            .filter(|day| !day.is_empty());
        let first = days.next();
        Self {
            record,
            is_talk,
            shows_days: first.is_some_and(|first| days.any(|day| day != first)),
            most,
            room: most,
            header: None,
            headings: BTreeSet::new(),
            task: BTreeMap::new(),
            said: BTreeMap::new(),
            lines: BTreeMap::new(),
            read: BTreeMap::new(),
            left_out: 0,
            values: Vec::new(),
            value_lines: BTreeMap::new(),
            tools_named: tool_bytes <= most / TOOL_SHARE,
            given: BTreeMap::new(),
            told: String::new(),
            told_words: HashSet::new(),
            told_by_model: 0,
            is_full: false,
        }
    }

    fn work(&self) -> &'a Work {
        self.record.activity.work()
    }

    /// Returns the bytes that are left.
    pub(super) fn room(&self) -> usize {
        self.room
    }

    pub(super) fn header(&mut self, headers: &[String]) {
        let fits = |(header, parts): &(&String, usize)| header.len() < self.most / parts;
        if let Some((header, _)) = headers.iter().zip(HEADER_PARTS).find(fits) {
            self.room -= header.len() + 1;
            self.header = Some(header.clone());
        }
    }

    /// Adds what a model wrote, as much of it as fits `most`.
    pub(super) fn given(&mut self, most: usize) {
        let sections = given::fitted(&self.record.given, most.min(self.room));
        for (heading, lines) in &sections {
            let mut left = usize::MAX;
            let text = lines.join("\n");
            if self.pay(*heading, text.len() + 1, &mut left) {
                self.tell(&text);
                self.given.insert(*heading, lines.clone());
            }
        }
        self.told_by_model = self.told.len();
    }

    /// Takes room for some bytes of a section, within `left`.
    fn pay(&mut self, heading: Heading, bytes: usize, left: &mut usize) -> bool {
        let is_new = !self.headings.contains(&heading);
        let bytes = bytes + if is_new { heading.line().len() + 2 } else { 0 };
        if bytes > *left || bytes > self.room {
            self.is_full = true;
            return false;
        }
        *left -= bytes;
        self.room -= bytes;
        self.headings.insert(heading);
        true
    }

    fn tell(&mut self, text: &str) {
        for word in words_in(text) {
            if !self.told_words.contains(word) {
                self.told_words.insert(word.to_owned());
            }
        }
        self.told.push_str(text);
        self.told.push('\n');
    }

    /// Adds a line to a section; `at` orders it there. Whether it stands there now.
    fn line(
        &mut self,
        key: (Heading, usize),
        line: String,
        places: Vec<Place>,
        left: &mut usize,
    ) -> bool {
        if self.lines.contains_key(&key) {
            return true;
        }
        if !self.pay(key.0, line.len(), left) {
            return false;
        }
        self.tell(&line);
        self.lines.insert(key, (line, places));
        true
    }

    // Prompts and statements.

    fn head(&self, statement: &Statement, heading: Heading) -> String {
        let names = names_speaker(statement.speaker, heading, self.is_talk);
        said_head(
            statement,
            self.shows_days && !statement.day.is_empty(),
            names,
        )
    }

    /// Returns what a prompt costs that is shown whole.
    pub(super) fn prompt_bytes(&self, at: usize) -> usize {
        let statement = &self.record.statements[at];
        self.head(statement, Heading::Task).len() + statement.text.len() + 1
    }

    /// Whether something of a prompt stands in the task.
    pub(super) fn shows_prompt(&self, at: usize) -> bool {
        self.task.contains_key(&at)
    }

    /// Whether a prompt stands in the task word for word.
    pub(super) fn shows_all_of(&self, at: usize) -> bool {
        matches!(self.task.get(&at), Some(Shown::Whole))
    }

    /// Shows a prompt word for word.
    pub(super) fn prompt_whole(&mut self, at: usize, left: &mut usize) {
        let now = match self.task.get(&at) {
            Some(Shown::Whole) => return,
            Some(Shown::Units(units)) => self.shown_bytes(at, units, Heading::Task),
            None => 0,
        };
        let more = self.prompt_bytes(at).saturating_sub(now);
        if self.pay(Heading::Task, more, left) {
            let text = &self.record.statements[at].text;
            self.tell(text);
            self.task.insert(at, Shown::Whole);
        }
    }

    /// Shows a prompt whole, or as many of its first units as `most` bytes hold.
    pub(super) fn prompt_beginning(&mut self, at: usize, most: usize) {
        let mut left = most;
        if self.prompt_bytes(at) <= most {
            return self.prompt_whole(at, &mut left);
        }
        for unit in 0..self.record.statements[at].units.units.len() {
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
    pub(super) fn prompt_unit(&mut self, unit: UnitRef, left: &mut usize) {
        self.add_unit(unit, Heading::Task, left);
    }

    /// Shows a unit of a statement, unless the task shows it.
    pub(super) fn unit(&mut self, unit: UnitRef, left: &mut usize) {
        let is_shown = match self.task.get(&unit.statement) {
            Some(Shown::Whole) => true,
            Some(Shown::Units(units)) => units.contains(&unit.unit),
            None => false,
        };
        if !is_shown {
            self.add_unit(unit, Heading::Said, left);
        }
    }

    fn add_unit(&mut self, unit: UnitRef, heading: Heading, left: &mut usize) {
        let shown = match heading {
            Heading::Task => &self.task,
            _ => &self.said,
        };
        let mut units = match shown.get(&unit.statement) {
            Some(Shown::Whole) => return,
            Some(Shown::Units(units)) if units.contains(&unit.unit) => return,
            Some(Shown::Units(units)) => units.clone(),
            None => BTreeSet::new(),
        };
        let before = match units.is_empty() {
            true => 0,
            false => self.shown_bytes(unit.statement, &units, heading),
        };
        units.insert(unit.unit);
        let after = self.shown_bytes(unit.statement, &units, heading);
        if !self.pay(heading, after.saturating_sub(before), left) {
            return;
        }
        let text = &self.record.statements[unit.statement].units.units[unit.unit].text;
        self.tell(text);
        let shown = match heading {
            Heading::Task => &mut self.task,
            _ => &mut self.said,
        };
        shown.insert(unit.statement, Shown::Units(units));
    }

    fn shown_bytes(&self, at: usize, units: &BTreeSet<usize>, heading: Heading) -> usize {
        let statement = &self.record.statements[at];
        self.head(statement, heading).len() + words_of_units(statement, units, heading).len() + 1
    }

    /// Whether an instruction stands already where somebody's words are shown. A model may say it too, but
    /// need not the next time.
    pub(super) fn tells(&self, instruction: &Instruction) -> bool {
        self.told[self.told_by_model..].contains(&*instruction.text)
    }

    pub(super) fn instruction(
        &mut self,
        at: usize,
        instruction: &Instruction,
        left: &mut usize,
    ) -> bool {
        let line = instruction_line(instruction);
        let places = vec![instruction.place.clone()];
        self.line((Heading::Instructions, at), line, places, left)
    }

    // What was done.

    /// Adds the plan: whole, or what is not done.
    pub(super) fn plan(&mut self, left: &mut usize) {
        let Some(plan) = &self.work().plan else {
            return;
        };
        let head = plan_head(&plan.place);
        let whole: String = plan.items.iter().map(plan_line).collect();
        let key = (Heading::Plan, 0);
        let is_done = |state| matches!(state, PlanState::Done | PlanState::Cancelled);
        let rest: String = plan
            .items
            .iter()
            .filter(|i| !is_done(i.state))
            .map(plan_line)
            .collect();
        for items in [whole, rest] {
            if !items.is_empty()
                && self.line(
                    key,
                    format!("{head}{items}"),
                    vec![plan.place.clone()],
                    left,
                )
            {
                return;
            }
        }
    }

    pub(super) fn open_calls(&mut self, left: &mut usize) {
        for (at, open) in self.work().open.iter().enumerate().rev() {
            let mut open = open.clone();
            open.what = shortened(&open.what, LONGEST_OPEN).unwrap_or_default();
            let places = vec![open.place.clone()];
            self.line((Heading::Plan, at + 1), open_line(&open), places, left);
        }
    }

    /// Returns what the line of a file costs.
    pub(super) fn file_bytes(&self, at: usize, spots: usize) -> usize {
        file_line(&self.work().files[at], spots).0.len()
    }

    pub(super) fn file(&mut self, at: usize, spots: usize, left: &mut usize) {
        let (line, places) = file_line(&self.work().files[at], spots);
        self.line((Heading::Files, at), line, places, left);
    }

    pub(super) fn file_read(&mut self, at: usize, left: &mut usize) {
        let text = read_file(&self.work().files[at]);
        let line = if self.read.is_empty() { READ.len() } else { 0 };
        if !self.read.contains_key(&at) && self.pay(Heading::Files, line + text.len() + 2, left) {
            self.tell(&text);
            self.read.insert(at, text);
        }
    }

    pub(super) fn attempt(&mut self, at: usize, left: &mut usize) {
        let attempt = &self.work().attempts[at];
        let failed = attempt.failure.iter().map(|failure| failure.0.clone());
        let places = failed
            .chain(attempt.passed.clone())
            .chain([attempt.last.clone()])
            .collect();
        self.line((Heading::Attempts, at), attempt_line(attempt), places, left);
    }

    /// Adds a summary that another wrote: whole, or as many of its sections as fit.
    pub(super) fn carried(&mut self, at: usize, most: usize) {
        let carried = &self.record.carried[at];
        let key = (Heading::Carried, at);
        if self.lines.contains_key(&key) {
            return;
        }
        let mut left = most.min(self.room);
        let head = carried_line(&carried.place);
        let frame = head.len() + Heading::Carried.line().len() + 2;
        let text = cut_by_sections(&carried.text, left.saturating_sub(frame));
        if let Some(text) = text {
            self.line(key, head + &text, vec![carried.place.clone()], &mut left);
        } else {
            self.is_full = true;
        }
    }

    // Values.

    /// Adds values that stand nowhere yet, the best first.
    pub(super) fn values(&mut self, order: &[usize], most: usize) {
        // The heading is paid for before it is needed, once.
        let is_paid = self.value_lines.values().any(|used| !used);
        let heading = if is_paid { 0 } else { SEEN.len() + 1 };
        let Some(room) = self.room.checked_sub(heading) else {
            return;
        };
        self.room = room;
        let mut left = most.min(room);
        for at in order {
            let fact = &self.record.values.facts[*at];
            if left < fact.value.len() + 6 {
                self.is_full = true;
            } else if !self.is_told(&fact.value) {
                self.value(*at, fact, &mut left);
            }
        }
        if self.value_lines.values().all(|used| *used) {
            self.room += heading;
        }
    }

    /// Whether a value stands somewhere. A value of which a word stands nowhere is not searched for.
    fn is_told(&self, value: &str) -> bool {
        words_in(value).all(|word| self.told_words.contains(word)) && is_written(&self.told, value)
    }

    fn value(&mut self, at: usize, fact: &Fact, left: &mut usize) {
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
        if !self.pay(Heading::Values, cost, left) {
            return;
        }
        *self.value_lines.entry(line).or_default() |= fact.source.is_used();
        let told = fact.value.clone();
        self.tell(&told);
        self.values.push(at);
    }

    fn line_of(&self, fact: &Fact) -> (Option<usize>, usize) {
        (fact.tool.filter(|_| self.tools_named), fact.label())
    }

    fn label_of(&self, (tool, label): (Option<usize>, usize)) -> String {
        let labels = &self.record.values.labels;
        let name = &labels[label].name;
        match tool {
            Some(tool) => format!("{}:{name}", labels[tool].name),
            None => name.clone(),
        }
    }

    // The page.

    pub(super) fn written(self) -> DocumentPage {
        let mut page = DocumentPage {
            text: String::new(),
            places: BTreeSet::new(),
            is_full: self.is_full,
        };
        for heading in Heading::ALL {
            if !self.headings.contains(&heading) {
                continue;
            }
            if !page.text.is_empty() {
                page.text.push('\n');
            }
            page.text.push_str(heading.line());
            page.text.push('\n');
            for line in self.given.get(&heading).into_iter().flatten() {
                page.text.push_str(line);
                page.text.push('\n');
            }
            match heading {
                Heading::Task => self.write_said(&self.task, heading, &mut page),
                Heading::Said => self.write_said(&self.said, heading, &mut page),
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
                    page.text
                        .push_str(&format!("({} older ones are left out)\n", self.left_out));
                }
                _ => {}
            }
        }
        let is_tiny = page.text.lines().count() < 3;
        if let (Some(header), false) = (&self.header, is_tiny) {
            page.text.insert_str(0, &format!("{header}\n"));
        }
        page.text.truncate(page.text.trim_end().len());
        page
    }

    fn write_said(
        &self,
        shown: &BTreeMap<usize, Shown>,
        heading: Heading,
        page: &mut DocumentPage,
    ) {
        let mut day = "";
        for (at, shown) in shown {
            let statement = &self.record.statements[*at];
            let names = names_speaker(statement.speaker, heading, self.is_talk);
            let is_new = self.shows_days && !statement.day.is_empty() && statement.day != day;
            day = &statement.day;
            page.text.push_str(&said_head(statement, is_new, names));
            match shown {
                Shown::Whole => page.text.push_str(&statement.text),
                Shown::Units(units) => page
                    .text
                    .push_str(&words_of_units(statement, units, heading)),
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

    /// Writes the lines in the order of their best value, those with used values first.
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

/// Returns the chosen units of a statement as they stand in a line. In the task, where a person's words
/// count one by one, what is left out is marked.
fn words_of_units(statement: &Statement, units: &BTreeSet<usize>, heading: Heading) -> String {
    let all = &statement.units;
    let mut text = String::new();
    let (mut next, mut lead) = (0, None);
    for at in units {
        let unit = &all.units[*at];
        let is_gap = heading == Heading::Task && *at != next;
        if !text.is_empty() {
            let ends = text.ends_with(['.', '!', '?', ':', ';', '。', '！', '？', '…']);
            text.push_str(if is_gap {
                GAP
            } else if ends {
                " "
            } else {
                "; "
            });
        } else if is_gap {
            text.push_str(GAP.trim_start());
        }
        if unit.lead != lead {
            lead = unit.lead;
            if let Some(lead) = lead {
                text.push_str(&all.leads[lead]);
                text.push_str(": ");
            }
        }
        text.push_str(&unit.text);
        next = at + 1;
    }
    if heading == Heading::Task && next < all.units.len() {
        text.push_str(GAP.trim_end());
    }
    text
}

/// Returns what it costs to name the tool in every line of values.
pub(super) fn tool_bytes(record: &Record) -> usize {
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

/// Returns the words of a text as [`is_written`] parts them.
fn words_in(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(|word| !word.is_empty())
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

/// Returns a text as quoted lines, whole or without some of its sections: the first stays, then of the rest
/// the last.
fn cut_by_sections(text: &str, most: usize) -> Option<String> {
    let quote = |lines: &[&str]| -> String {
        lines
            .iter()
            .map(|line| format!("> {line}").trim_end().to_owned() + "\n")
            .collect()
    };
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let whole = quote(&lines);
    if whole.len() <= most {
        return Some(whole);
    }
    let begins =
        |line: &&str| line.starts_with('#') || (line.starts_with("**") && line.ends_with("**"));
    let mut sections: Vec<Vec<&str>> = Vec::new();
    for line in &lines {
        match sections.last_mut() {
            Some(section) if !begins(line) => section.push(line),
            _ => sections.push(vec![line]),
        }
    }
    let mut parts: Vec<String> = sections.iter().map(|section| quote(section)).collect();
    let first = parts.remove(0);
    let mark = "> …\n";
    let Some(mut left) = most.checked_sub(first.len() + mark.len()) else {
        // Not even the first section fits: as much of its beginning as does.
        let text = first
            .strip_prefix("> ")
            .unwrap_or(&first)
            .replace("\n> ", " / ");
        let room = most.checked_sub("> \n".len())?;
        return shortened(text.trim_end(), room).map(|text| format!("> {text}\n"));
    };
    let mut kept = Vec::new();
    for part in parts.iter().rev() {
        if part.len() <= left {
            left -= part.len();
            kept.push(&**part);
        }
    }
    kept.reverse();
    Some(first + mark + &kept.concat())
}
