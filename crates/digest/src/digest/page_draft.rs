//! A page in the making: what stands in it so far, and how much room is left.

mod known_text;
mod render;
mod values;

use std::collections::{BTreeMap, BTreeSet};

use super::lines::{
    GAP, Heading, READ, call_line, file_line, instruction_line, names_speaker, open_line,
    plan_head, plan_line, read_file, statement_head,
};
use super::model_sections;
use super::page::UnitRef;
use super::read::foreign_summary_head;
use super::record::{DocumentRecord, Instruction, SpeakerRole, Statement};
use super::values::shortened;
use crate::activity::{AgentWork, PlanState, SourceTurn};
pub(super) use known_text::KnownText;
pub(super) use values::tool_bytes;

/// The names of tools are given only where they take no more than one part in so many.
const TOOL_SHARE: usize = 16;
/// Bytes of a call that is still running at most.
const LONGEST_OPEN: usize = 400;
/// Values that were merely seen take at most one part in so many of the page, whatever else there is to say: better
/// no word than many that nobody asks for.
const SEEN_PART: usize = 4;
/// A unit of a prompt of so many characters, and of one or two words, says nothing by itself.
const FEW_CHARACTERS: usize = 12;
/// What a header may take of the page: one part in so many, for each but the shortest, and for that. Without
/// one nobody knows a text for what it is, and a later compaction cannot go on from it.
const HEADER_PARTS: [usize; 3] = [24, 14, 6];
const SHORTEST_HEADER: usize = 3;

/// What is shown of a prompt or a statement.
#[derive(Clone, Debug)]
enum ShownUnits {
    All,
    /// Some of its units, and the bytes of their line.
    Some(BTreeSet<usize>, usize),
}

pub(super) struct PageDraft<'a> {
    record: &'a DocumentRecord,
    is_conversation: bool,
    shows_days: bool,
    /// Who is named only once, as nobody else talks.
    only_speaker: Option<SpeakerRole>,
    most: usize,
    room: usize,
    header: Option<String>,
    headings: BTreeSet<Heading>,
    task: BTreeMap<usize, ShownUnits>,
    statements: BTreeMap<usize, ShownUnits>,
    /// Lines of each other section by what orders them there, with the places that they tell of.
    lines: BTreeMap<(Heading, usize), (String, Vec<SourceTurn>)>,
    /// Files that were only read, by their place among all.
    read: BTreeMap<usize, String>,
    /// Instructions for which there was no room.
    pub(super) left_out: usize,
    values: Vec<usize>,
    /// Bytes that values may still take that were merely seen.
    seen_left: usize,
    /// Labels that have a line, and whether it is among those of used values.
    value_lines: BTreeMap<(Option<usize>, usize), bool>,
    tools_named: bool,
    /// What a model wrote for sections.
    model_sections: BTreeMap<Heading, Vec<String>>,
    /// Everything said so far, to say no value twice; a model's words first, of so many bytes.
    known: KnownText,
    model_bytes: usize,
    is_full: bool,
}

impl<'a> PageDraft<'a> {
    pub(super) fn new(
        record: &'a DocumentRecord,
        is_conversation: bool,
        tool_bytes: usize,
        most: usize,
    ) -> Self {
        let mut days = record
            .statements
            .iter()
            .map(|s| &s.day)
            .filter(|day| !day.is_empty());
        let first = days.next();
        let only_speaker = record.only_speaker().filter(|_| is_conversation);
        let name_bytes = only_speaker.map_or(0, |voice| voice.name().len() + 1);
        Self {
            record,
            is_conversation,
            shows_days: first.is_some_and(|first| days.any(|day| day != first)),
            only_speaker,
            most,
            room: most.saturating_sub(name_bytes),
            header: None,
            headings: BTreeSet::new(),
            task: BTreeMap::new(),
            statements: BTreeMap::new(),
            lines: BTreeMap::new(),
            read: BTreeMap::new(),
            left_out: 0,
            values: Vec::new(),
            seen_left: most / SEEN_PART,
            value_lines: BTreeMap::new(),
            tools_named: tool_bytes <= most / TOOL_SHARE,
            model_sections: BTreeMap::new(),
            known: KnownText::default(),
            model_bytes: 0,
            is_full: false,
        }
    }

    fn work(&self) -> &'a AgentWork {
        self.record.activity.work()
    }

    /// Returns the bytes that are left.
    pub(super) fn room(&self) -> usize {
        self.room
    }

    /// Goes on with so many bytes.
    pub(super) fn refill(&mut self, room: usize) {
        self.room = room;
        self.is_full = false;
    }

    /// Holds back so many bytes, or what is left; returns how many.
    pub(super) fn hold_back(&mut self, bytes: usize) -> usize {
        let held = bytes.min(self.room);
        self.room -= held;
        held
    }

    /// Gives back what was held back.
    pub(super) fn give_back(&mut self, bytes: usize) {
        self.room += bytes;
    }

    pub(super) fn header(&mut self, headers: &[String]) {
        let longer = headers.len().saturating_sub(1);
        let parts = HEADER_PARTS
            .into_iter()
            .take(longer)
            .chain([SHORTEST_HEADER]);
        let fits = |(header, parts): &(&String, usize)| header.len() < self.most / parts;
        if let Some((header, _)) = headers.iter().zip(parts).find(fits) {
            self.room -= header.len() + 1;
            self.header = Some(header.clone());
        }
    }

    /// Adds what a model wrote, as much of it as fits `most`.
    pub(super) fn add_model_sections(&mut self, most: usize) {
        let sections = model_sections::fitted(&self.record.model_sections, most.min(self.room));
        for (heading, lines) in &sections {
            let mut left = usize::MAX;
            let text = lines.join("\n");
            if self.reserve(*heading, text.len() + 1, &mut left) {
                self.known.add(&text);
                self.model_sections.insert(*heading, lines.clone());
            }
        }
        self.model_bytes = self.known.len();
    }

    /// Takes room for some bytes of a section, within `left`.
    fn reserve(&mut self, heading: Heading, bytes: usize, left: &mut usize) -> bool {
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

    /// Adds a line to a section; `at` orders it there. Whether it stands there now.
    fn line(
        &mut self,
        key: (Heading, usize),
        line: String,
        places: Vec<SourceTurn>,
        left: &mut usize,
    ) -> bool {
        if self.lines.contains_key(&key) {
            return true;
        }
        if !self.reserve(key.0, line.len(), left) {
            return false;
        }
        self.known.add(&line);
        self.lines.insert(key, (line, places));
        true
    }

    // Prompts and statements.

    fn head(&self, statement: &Statement, heading: Heading) -> String {
        let names = names_speaker(statement.speaker, heading, self.is_conversation)
            && self.only_speaker != Some(statement.speaker);
        statement_head(
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
        matches!(self.task.get(&at), Some(ShownUnits::All))
    }

    /// Shows a prompt word for word.
    pub(super) fn prompt_whole(&mut self, at: usize, left: &mut usize) {
        let now = match self.task.get(&at) {
            Some(ShownUnits::All) => return,
            Some(ShownUnits::Some(_, bytes)) => *bytes,
            None => 0,
        };
        let more = self.prompt_bytes(at).saturating_sub(now);
        if self.reserve(Heading::Task, more, left) {
            let text = &self.record.statements[at].text;
            self.known.add(text);
            self.task.insert(at, ShownUnits::All);
        }
    }

    /// Shows a prompt whole, or its last unit and as many of the first as `most` bytes hold.
    pub(super) fn prompt_beginning(&mut self, at: usize, most: usize) {
        let mut left = most;
        if self.prompt_bytes(at) <= most {
            return self.prompt_whole(at, &mut left);
        }
        let units = &self.record.statements[at].units.units;
        // What is asked for often stands behind all that explains it; a greeting says nothing.
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
    pub(super) fn prompt_unit(&mut self, unit: UnitRef, left: &mut usize) {
        self.add_unit(unit, Heading::Task, left);
    }

    /// Shows a unit of a statement, unless the task shows it.
    pub(super) fn unit(&mut self, unit: UnitRef, left: &mut usize) {
        let is_shown = match self.task.get(&unit.statement) {
            Some(ShownUnits::All) => true,
            Some(ShownUnits::Some(units, _)) => units.contains(&unit.unit),
            None => false,
        };
        if !is_shown {
            self.add_unit(unit, Heading::Findings, left);
        }
    }

    fn add_unit(&mut self, unit: UnitRef, heading: Heading, left: &mut usize) {
        let text = &self.record.statements[unit.statement].units.units[unit.unit].text;
        // A line grows by more than its new unit, but for the marks of a gap that it closes.
        let marks = if heading == Heading::Task {
            2 * GAP.len()
        } else {
            0
        };
        let is_too_long = text.len() > (*left).min(self.room) + marks;
        let shown = match heading {
            Heading::Task => &self.task,
            _ => &self.statements,
        };
        let (mut units, before) = match shown.get(&unit.statement) {
            Some(ShownUnits::All) => return,
            Some(ShownUnits::Some(units, _)) if units.contains(&unit.unit) => return,
            _ if is_too_long => {
                self.is_full = true;
                return;
            }
            Some(ShownUnits::Some(units, bytes)) => (units.clone(), *bytes),
            None => (BTreeSet::new(), 0),
        };
        units.insert(unit.unit);
        let after = self.shown_bytes(unit.statement, &units, heading);
        if !self.reserve(heading, after.saturating_sub(before), left) {
            return;
        }
        self.known.add(text);
        let shown = match heading {
            Heading::Task => &mut self.task,
            _ => &mut self.statements,
        };
        shown.insert(unit.statement, ShownUnits::Some(units, after));
    }

    fn shown_bytes(&self, at: usize, units: &BTreeSet<usize>, heading: Heading) -> usize {
        let statement = &self.record.statements[at];
        let mut bytes = self.head(statement, heading).len() + 1;
        words_of_units(statement, units, heading, &mut |text| bytes += text.len());
        bytes
    }

    /// Whether an instruction stands already where somebody's words are shown. A model may say it too, but
    /// need not the next time.
    pub(super) fn shows_instruction(&self, instruction: &Instruction) -> bool {
        self.known
            .contains_after(self.model_bytes, &instruction.text)
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
        let key = (Heading::Plan, 0);
        if self.lines.contains_key(&key) {
            return;
        }
        let head = plan_head(&plan.place);
        let whole: String = plan.items.iter().map(plan_line).collect();
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
        for (at, open) in self.work().running.iter().enumerate().rev() {
            if self.lines.contains_key(&(Heading::Plan, at + 1)) {
                continue;
            }
            let mut open = open.clone();
            open.description = shortened(&open.description, LONGEST_OPEN).unwrap_or_default();
            let places = vec![open.place.clone()];
            self.line((Heading::Plan, at + 1), open_line(&open), places, left);
        }
    }

    /// Returns what the line of a file costs.
    pub(super) fn file_bytes(&self, at: usize, symbols: usize) -> usize {
        file_line(&self.work().files[at], symbols).0.len()
    }

    /// Whether the line of a file stands there.
    pub(super) fn shows_file(&self, at: usize) -> bool {
        self.lines.contains_key(&(Heading::Files, at))
    }

    pub(super) fn file(&mut self, at: usize, symbols: usize, left: &mut usize) {
        if self.shows_file(at) {
            return;
        }
        let (line, places) = file_line(&self.work().files[at], symbols);
        self.line((Heading::Files, at), line, places, left);
    }

    /// Says how many changed files have no line, and in which turns they were changed.
    pub(super) fn files_left_out(&mut self, files: &[usize]) {
        let last = |at: &usize| self.work().files[*at].events.last();
        let mut places: Vec<SourceTurn> = files
            .iter()
            .filter_map(last)
            .map(|e| e.place.clone())
            .collect();
        places.sort();
        if let (Some(first), Some(last)) = (places.first(), places.last()) {
            let line = format!(
                "({} more in turns {first} to {last}: expand)\n",
                files.len()
            );
            self.line(
                (Heading::Files, usize::MAX),
                line,
                Vec::new(),
                &mut usize::MAX.clone(),
            );
        }
    }

    pub(super) fn file_read(&mut self, at: usize, left: &mut usize) {
        if self.read.contains_key(&at) {
            return;
        }
        let text = read_file(&self.work().files[at]);
        let line = if self.read.is_empty() { READ.len() } else { 0 };
        if self.reserve(Heading::Files, line + text.len() + 2, left) {
            self.known.add(&text);
            self.read.insert(at, text);
        }
    }

    pub(super) fn call(&mut self, at: usize, left: &mut usize) {
        if self.lines.contains_key(&(Heading::Commands, at)) {
            return;
        }
        let history = &self.work().calls[at];
        let failed = history.failure.iter().map(|failure| failure.0.clone());
        let places = failed
            .chain(history.passed.clone())
            .chain([history.last.clone()])
            .collect();
        self.line((Heading::Commands, at), call_line(history), places, left);
    }

    /// Adds a summary that another wrote: whole, or as many of its sections as fit.
    pub(super) fn foreign_summary(&mut self, at: usize, most: usize) {
        let carried = &self.record.foreign_summaries[at];
        let key = (Heading::EarlierSummary, at);
        if self.lines.contains_key(&key) {
            return;
        }
        let mut left = most.min(self.room);
        let head = foreign_summary_head(&carried.place);
        let frame = head.len() + Heading::EarlierSummary.line().len() + 2;
        let text = cut_by_sections(&carried.text, left.saturating_sub(frame));
        if let Some(text) = text {
            self.line(key, head + &text, vec![carried.place.clone()], &mut left);
        } else {
            self.is_full = true;
        }
    }
}

/// Calls `each` with the parts of the line of the chosen units of a statement. In the task, where a person's
/// words count one by one, what is left out is marked.
fn words_of_units(
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
