//! A page under construction: its lines so far, and the bytes that are left.

mod known_text;
mod render;
mod statements;
mod values;

use std::collections::{BTreeMap, BTreeSet};

use super::lines::{
    Heading, READ, call_line, file_line, open_line, plan_head, plan_line, read_file,
};
use super::model_sections;
use super::page::UnitRef;
use super::read::foreign_summary_head;
use super::record::{DocumentRecord, SpeakerRole};
use super::values::shortened;
use crate::activity::{AgentWork, PlanState, SourceTurn};
pub(super) use known_text::KnownText;
pub(super) use values::tool_bytes;

/// The names of tools are written if they take at most one part in so many of the page.
const TOOL_SHARE: usize = 16;
/// The longest description of a running call, in bytes.
const LONGEST_OPEN: usize = 400;
/// Values that were only seen take at most one part in so many of the page, even if nothing else is left to write:
/// they are hardly ever needed.
const SEEN_PART: usize = 4;
/// A header may take one part in so many of the page, for each header but the shortest, and for the shortest. Without
/// a header, a later compaction does not recognise the document and cannot continue from it.
const HEADER_PARTS: [usize; 3] = [24, 14, 6];
const SHORTEST_HEADER: usize = 3;

/// Headings are short on a page of fewer bytes.
const SHORT_HEADINGS: usize = 600;
/// On a page of fewer bytes, standing instructions have no heading.
const TINY: usize = 200;

/// The part of a prompt or statement that the page shows.
#[derive(Clone, Debug)]
enum ShownUnits {
    All,
    /// Some units, and the bytes of their line.
    Some(BTreeSet<usize>, usize),
}

pub(super) struct PageDraft<'a> {
    record: &'a DocumentRecord,
    is_conversation: bool,
    shows_days: bool,
    /// The only speaker of a conversation, who is named once.
    only_speaker: Option<SpeakerRole>,
    most: usize,
    room: usize,
    header: Option<String>,
    headings: BTreeSet<Heading>,
    task: BTreeMap<usize, ShownUnits>,
    statements: BTreeMap<usize, ShownUnits>,
    /// The lines of each other section by their order in it, with the turns that they come from.
    lines: BTreeMap<(Heading, usize), (String, Vec<SourceTurn>)>,
    /// Files that were only read, by their index in the work.
    read: BTreeMap<usize, String>,
    /// For each statement the one that took it back, without which it is not shown.
    pub(super) replaced_by: Vec<Option<usize>>,
    /// The units that are shown as standing instructions, and not again as a part of their prompt.
    instructed: BTreeSet<UnitRef>,
    /// The statement of each instruction on the page, if only one contains it.
    instruction_units: BTreeMap<usize, usize>,
    /// The number of instructions that did not fit.
    pub(super) left_out: usize,
    /// True if the line with this number is reserved.
    is_left_out_counted: bool,
    values: Vec<usize>,
    /// The bytes that are left for values that were only seen.
    seen_left: usize,
    /// The tools and labels that have a line, and whether the line has a used value.
    value_lines: BTreeMap<(Option<usize>, usize), bool>,
    tools_named: bool,
    /// The lines that a model wrote, by section.
    model_sections: BTreeMap<Heading, Vec<String>>,
    /// The text of the page so far, so that no value is written twice. A model's lines come first, `model_bytes` long.
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
            replaced_by: Vec::new(),
            instructed: BTreeSet::new(),
            instruction_units: BTreeMap::new(),
            left_out: 0,
            is_left_out_counted: false,
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

    /// Returns the number of bytes that are left.
    pub(super) fn room(&self) -> usize {
        self.room
    }

    /// Continues with so many bytes.
    pub(super) fn refill(&mut self, room: usize) {
        self.room = room;
        self.is_full = false;
    }

    /// Sets aside so many bytes, or all that are left; returns the number.
    pub(super) fn hold_back(&mut self, bytes: usize) -> usize {
        let held = bytes.min(self.room);
        self.room -= held;
        held
    }

    /// Releases bytes that were set aside.
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

    /// Adds the lines that a model wrote, cut to `most` bytes.
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

    /// Reserves bytes for a section, and for its heading if that is new, within `left`; returns false if they do not
    /// fit.
    fn reserve(&mut self, heading: Heading, bytes: usize, left: &mut usize) -> bool {
        let is_new = !self.headings.contains(&heading);
        let bytes = bytes
            + if is_new {
                self.heading_bytes(heading)
            } else {
                0
            };
        if bytes > *left || bytes > self.room {
            self.is_full = true;
            return false;
        }
        *left -= bytes;
        self.room -= bytes;
        self.headings.insert(heading);
        true
    }

    fn has_short_headings(&self) -> bool {
        self.most < SHORT_HEADINGS
    }

    /// Returns the line of a heading.
    fn heading_line(&self, heading: Heading) -> &'static str {
        match self.has_short_headings() {
            true => heading.short_line(),
            false => heading.line(),
        }
    }

    fn heading_bytes(&self, heading: Heading) -> usize {
        match self.has_no_heading(heading) {
            true => 0,
            false => self.heading_line(heading).len() + 2,
        }
    }

    /// True for the instructions of a tiny page, which follow the header.
    fn has_no_heading(&self, heading: Heading) -> bool {
        self.most < TINY && heading == Heading::Instructions
    }

    /// Adds a line to a section, ordered by the number in `key`. Returns true if the section has the line.
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

    // Plan, files and calls.

    /// Adds the whole plan if it fits, else the items that are not done.
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

    /// Returns the bytes of the line of a file.
    pub(super) fn file_bytes(&self, at: usize, symbols: usize) -> usize {
        file_line(&self.work().files[at], symbols).0.len()
    }

    /// True if the page has the line of a file.
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

    /// Adds the number of changed files without a line, and the turns of their changes.
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

    /// Adds a foreign summary: whole, or as many of its sections as fit.
    pub(super) fn foreign_summary(&mut self, at: usize, most: usize) {
        let carried = &self.record.foreign_summaries[at];
        let key = (Heading::EarlierSummary, at);
        if self.lines.contains_key(&key) {
            return;
        }
        let mut left = most.min(self.room);
        let head = foreign_summary_head(&carried.place);
        let frame = head.len() + self.heading_bytes(Heading::EarlierSummary);
        let text = cut_by_sections(&carried.text, left.saturating_sub(frame));
        if let Some(text) = text {
            self.line(key, head + &text, vec![carried.place.clone()], &mut left);
        } else {
            self.is_full = true;
        }
    }
}

/// Returns a text as quoted lines of at most `most` bytes: the whole text, or its first section and then the last ones
/// that fit.
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
        // The first section does not fit: its beginning is quoted.
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
