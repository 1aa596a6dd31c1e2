//! Writes a page within a budget: the best of each section first, then whatever still fits.

pub(super) mod order;
mod supplement;

use std::cmp::Reverse;
use std::collections::BTreeSet;

use self::order::{InstructionLine, instructions, prompt_order, statement_order};
use super::lines::{Heading, instruction_line};
use super::page_draft::{PageDraft, tool_bytes};
use super::record::{DocumentRecord, SpeakerRole};
use super::specification::requires;
use super::speech::{Substance, substance};
use super::values::rank_by_worth;
use crate::activity::{CallHistory, FileAct, SourceTurn};

/// One part in so many of the budget that a section may take before the other sections have taken theirs.
mod share {
    /// Sections that a model wrote earlier, and the part that is left for the record if the model has just written
    /// them.
    pub(super) const MODEL: usize = 2;
    pub(super) const BESIDE_MODEL: usize = 4;
    /// Prompts; if all of them fit, they are shown whole.
    pub(super) const TASK: usize = 3;
    /// Prompts that do not fit, on a small page: there, values are worth more than prose.
    pub(super) const TASK_OF_SMALL: usize = 8;
    /// Prompts of a conversation without calls: most of its statements are prompts.
    pub(super) const TASK_OF_CONVERSATION: usize = 12;
    pub(super) const FOREIGN_SUMMARY: usize = 2;
    /// Standing instructions, on a page that is so large that the part is more than [`super::INSTRUCTION_BYTES`].
    pub(super) const INSTRUCTIONS: usize = 5;
    /// Standing instructions where only people talk, to each other and not to an agent.
    pub(super) const INSTRUCTIONS_AMONG_PEOPLE: usize = 16;
    /// Statements that take back what was said before.
    pub(super) const REPLACEMENTS: usize = 4;
    /// The text of the task that a tool returned, and on a small page.
    pub(super) const SPECIFICATION: usize = 10;
    pub(super) const SPECIFICATION_OF_SMALL: usize = 16;
    pub(super) const PLAN: usize = 6;
    pub(super) const FILES: usize = 4;
    pub(super) const COMMANDS: usize = 8;
    /// Results of searches.
    pub(super) const FOUND: usize = 16;
    /// Files that were only read, and values that were only seen.
    pub(super) const READ: usize = 16;
    pub(super) const SEEN: usize = 32;
    /// Used values that are hardly needed again.
    pub(super) const RARELY_NEEDED: usize = 5;
    /// The last report of the agent.
    pub(super) const LAST: usize = 8;
    pub(super) const LAST_OF_CONVERSATION: usize = 16;
    /// The plan and the open errors of a supplement.
    pub(super) const PLAN_OF_SUPPLEMENT: usize = 2;
    pub(super) const ERRORS_OF_SUPPLEMENT: usize = 2;
}

/// The bytes that standing instructions may take before anything else, even if they are all of the page.
const INSTRUCTION_BYTES: usize = 1_000;
/// On a page of fewer bytes, values come before all sections but the task, the plan and the files.
const SMALL: usize = 2_400;
/// The percentage for values of the bytes that the other sections leave: on a page of at least [`LARGE`] bytes, and on
/// one of [`SMALL`]. Between both it is interpolated.
const VALUES: usize = 30;
const MOST_VALUES: usize = 90;
/// The percentages of the page that are held back for values that are likely needed, if it has fewer than [`LARGE`]
/// bytes, and that these may take before found places and statements.
const HELD_FOR_VALUES: usize = 30;
const FIRST_VALUES: usize = 40;
/// The percentage of a small page that these values may take before the files that are not on it yet.
const FIRST_VALUES_OF_SMALL: usize = 30;
/// The usual bytes of a value beside its own: its turn, and the marks around it.
const VALUE_BYTES: usize = 8;
/// The percentage of the remaining bytes in a conversation without calls, where facts are in sentences.
const VALUES_OF_CONVERSATION: usize = 8;
const LARGE: usize = 4_500;
/// The most declarations that the line of a file names.
const SYMBOLS: usize = 4;
/// The number of times that bytes that were reserved but not written are used again, and the part of the page below
/// which they are not.
const REFILLS: usize = 3;
const ENOUGH: usize = 128;
/// The number of the agent's newest statements that are shown after its last report.
const RECENT: usize = 6;
/// The number of last prompts that are shown before the others.
const LAST_PROMPTS: usize = 3;

/// The rank of a failure that is still open.
const OPEN_ERROR: Option<u8> = Some(0);
/// The rank of a search with a result.
const FOUND: Option<u8> = Some(4);

/// A document of a given size.
pub(super) struct DocumentPage {
    pub(super) text: String,
    /// The turns that the lines come from.
    pub(super) places: BTreeSet<SourceTurn>,
    /// True if something did not fit.
    pub(super) is_full: bool,
}

/// A unit of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct UnitRef {
    pub(super) statement: usize,
    pub(super) unit: usize,
}

/// Writes pages of any size from one record.
pub(super) struct PageWriter<'a> {
    record: &'a DocumentRecord,
    is_conversation: bool,
    is_among_people: bool,
    /// The bytes of the tools' names in the lines of values.
    tool_bytes: usize,
    /// The statements that are prompts.
    prompts: Vec<usize>,
    /// The units of prompts, and of other statements, the best first.
    prompt_units: Vec<UnitRef>,
    statement_units: Vec<UnitRef>,
    /// The instructions, oldest first.
    instructions: Vec<InstructionLine>,
    /// For each statement the one that took it back, and these statements, the newest first.
    replaced_by: Vec<Option<usize>>,
    replacements: Vec<usize>,
    /// The changed files, the files that were only read, and the calls, the best first.
    changed: Vec<usize>,
    read: Vec<usize>,
    calls: Vec<usize>,
    /// The values that are likely needed again, the other used ones, and those that were only seen.
    likely_needed: Vec<usize>,
    rarely_needed: Vec<usize>,
    other_values: Vec<usize>,
    /// The prompts, calls and units that a model had read when it wrote their section.
    covered_prompts: Vec<usize>,
    covered_calls: Vec<usize>,
    covered_units: Vec<UnitRef>,
    /// True if the reader of a supplement knows the plan.
    is_plan_known: bool,
}

impl<'a> PageWriter<'a> {
    /// Orders the content of a record for pages of up to `most` bytes; a larger page may lack statements.
    pub(super) fn new(record: &'a DocumentRecord, most: usize) -> Self {
        let is_conversation = record.is_conversation();
        let all = record.statements.iter().enumerate();
        let prompts: Vec<usize> = all
            .filter(|(_, s)| s.is_prompt())
            .map(|(at, _)| at)
            .collect();
        let instructions = instructions(record, &prompts, is_conversation);
        // Where only people talk, nobody instructs an agent or takes back a plan of its work.
        let is_among_people = is_conversation && record.only_speaker().is_some();
        let replaced_by = match is_among_people {
            true => Vec::new(),
            false => record.replacements(is_conversation),
        };
        let mut replacements: Vec<usize> = replaced_by.iter().copied().flatten().collect();
        replacements.sort_unstable_by_key(|at| Reverse(*at));
        replacements.dedup();
        let of_statement =
            |at: usize, heading| record.is_covered_by_model(heading, &record.statements[at].place);
        let (covered_prompts, prompts): (Vec<usize>, Vec<usize>) = prompts
            .into_iter()
            .partition(|at| of_statement(*at, Heading::Task));
        let work = record.activity.work();
        let is_changed = |at: &usize| {
            let mut events = work.files[*at].events.iter();
            events.any(|event| event.act != FileAct::Read)
        };
        let (mut changed, mut read): (Vec<usize>, Vec<usize>) =
            (0..work.files.len()).partition(is_changed);
        // The most recent first.
        let position = |place: &SourceTurn| record.values.position_of(place);
        let last = |at: &usize| {
            Reverse(
                work.files[*at]
                    .events
                    .last()
                    .map(|event| position(&event.place)),
            )
        };
        changed.sort_by_key(last);
        read.sort_by_key(last);
        let rank = |at: &usize| call_rank(&work.calls[*at]);
        let mut calls: Vec<usize> = (0..work.calls.len())
            .filter(|at| rank(at).is_some())
            .collect();
        calls.sort_by_key(|at| (rank(at), Reverse(position(&work.calls[*at].last))));
        let (covered_calls, calls) = calls
            .into_iter()
            .partition(|at| record.is_covered_by_model(Heading::Commands, &work.calls[*at].last));
        let (covered_units, statement_units) = statement_order(record, is_conversation, most)
            .into_iter()
            .partition(|unit| of_statement(unit.statement, Heading::Findings));
        let is_likely_needed =
            |at: &usize| record.values.is_likely_needed(&record.values.facts[*at]);
        let is_used = |at: &usize| record.values.facts[*at].uses > 0;
        let (likely_needed, rest): (Vec<_>, Vec<_>) = rank_by_worth(&record.values)
            .into_iter()
            .filter(|at| !record.values.facts[*at].is_replaced())
            .partition(is_likely_needed);
        let (rarely_needed, other_values) = rest.into_iter().partition(is_used);
        Self {
            record,
            is_conversation,
            is_among_people,
            tool_bytes: tool_bytes(record),
            prompt_units: prompt_order(record, &prompts, most),
            statement_units,
            instructions,
            replaced_by,
            replacements,
            prompts,
            changed,
            read,
            calls,
            likely_needed,
            rarely_needed,
            other_values,
            covered_prompts,
            covered_calls,
            covered_units,
            is_plan_known: false,
        }
    }

    /// Returns a page of at most `most` bytes. It begins with the first of `headers` that does not take too much of it,
    /// and is empty if nothing fits below the header.
    pub(super) fn page(&self, headers: &[String], most: usize) -> DocumentPage {
        let mut draft = self.draft(most);
        draft.header(headers);
        draft.add_model_sections(self.model_share(most));
        if !self.task_whole(&mut draft, most) {
            self.instructions(
                &mut draft,
                INSTRUCTION_BYTES.max(most / share::INSTRUCTIONS),
            );
            self.replacements(&mut draft, most / share::REPLACEMENTS);
        }
        if most < SMALL && !self.is_conversation {
            self.task(&mut draft, most);
            self.specification(&mut draft, most / share::SPECIFICATION_OF_SMALL);
            self.plan(&mut draft, most / share::PLAN);
            self.files(&mut draft, most / share::FILES);
            self.ranked(&mut draft, OPEN_ERROR, most / share::COMMANDS);
            draft.values(&self.likely_needed, most * FIRST_VALUES_OF_SMALL / 100);
            self.files(&mut draft, usize::MAX);
            draft.values(&self.likely_needed, usize::MAX);
            draft.values(&self.rarely_needed, usize::MAX);
        }
        let held = match self.is_conversation || most >= LARGE {
            true => 0,
            false => draft.hold_back(self.value_bytes(&draft).min(most * HELD_FOR_VALUES / 100)),
        };
        self.plan(&mut draft, most / share::PLAN);
        for at in 0..self.record.foreign_summaries.len() {
            draft.foreign_summary(at, most / share::FOREIGN_SUMMARY);
        }
        self.task(&mut draft, most);
        self.specification(&mut draft, most / share::SPECIFICATION);
        self.instructions(&mut draft, self.instruction_bytes(most));
        self.files(&mut draft, most / share::FILES);
        self.calls(&mut draft, most / share::COMMANDS);
        let (last, values) = match self.is_conversation {
            true => (share::LAST_OF_CONVERSATION, VALUES_OF_CONVERSATION),
            false => (share::LAST, values_share(most)),
        };
        self.last_report(&mut draft, most / last);
        draft.give_back(held);
        if !self.is_conversation {
            draft.values(&self.likely_needed, most * FIRST_VALUES / 100);
        }
        self.ranked(&mut draft, FOUND, most / share::FOUND);
        let stated = draft.room() * (100 - values) / 100;
        self.statements(&mut draft, stated);
        draft.values(&self.likely_needed, usize::MAX);
        draft.values(&self.rarely_needed, most / share::RARELY_NEEDED);
        self.read(&mut draft, most / share::READ);
        draft.values(&self.other_values, most / share::SEEN);
        self.rest(&mut draft);
        let mut page = draft.render();
        // A page is shorter than the bytes reserved for it: a day is written once, values share a turn.
        for _ in 0..REFILLS {
            let unspent = most.saturating_sub(page.text.len());
            if !page.is_full || unspent <= most / ENOUGH {
                break;
            }
            draft.refill(unspent);
            self.rest(&mut draft);
            page = draft.render();
        }
        page
    }

    /// Adds everything else that fits.
    fn rest(&self, draft: &mut PageDraft<'a>) {
        self.statements(draft, usize::MAX);
        self.prompt_rest(draft, usize::MAX);
        for at in 0..self.record.foreign_summaries.len() {
            draft.foreign_summary(at, usize::MAX);
        }
        self.plan(draft, usize::MAX);
        self.files(draft, usize::MAX);
        self.calls(draft, usize::MAX);
        self.instructions(draft, usize::MAX);
        self.covered_rest(draft);
        self.read(draft, usize::MAX);
        draft.values(&self.rarely_needed, usize::MAX);
        draft.seen(&self.other_values);
    }

    /// Returns about how many bytes the values take that are likely needed and not on the page yet.
    fn value_bytes(&self, draft: &PageDraft<'a>) -> usize {
        let facts = &self.record.values.facts;
        let values = self.likely_needed.iter().map(|at| &facts[*at].value);
        let missing = values.filter(|value| !draft.shows_value(value));
        missing.map(|value| value.len() + VALUE_BYTES).sum()
    }

    /// Returns the bytes for the sections that a model wrote: most of the page if it has just written them.
    fn model_share(&self, most: usize) -> usize {
        let given = &self.record.model_sections;
        match given.iter().any(|given| given.is_new) {
            true => most - most / share::BESIDE_MODEL,
            false if given.is_empty() => 0,
            false => most / share::MODEL,
        }
    }

    /// Adds prompts, calls and units that a model's sections cover.
    fn covered_rest(&self, draft: &mut PageDraft<'a>) {
        let mut left = draft.room();
        for at in self.covered_prompts.iter().rev() {
            draft.prompt_whole(*at, &mut left);
        }
        for at in &self.covered_calls {
            draft.call(*at, &mut left);
        }
        for unit in &self.covered_units {
            draft.unit(*unit, &mut left);
        }
    }

    fn plan(&self, draft: &mut PageDraft<'a>, most: usize) {
        let mut left = most.min(draft.room());
        draft.open_calls(&mut left);
        let plan = self.record.activity.work().plan.as_ref();
        if plan.is_some_and(|plan| !self.record.is_covered_by_model(Heading::Plan, &plan.place)) {
            draft.plan(&mut left);
        }
    }

    /// Returns a page without content.
    fn draft(&self, most: usize) -> PageDraft<'a> {
        let mut draft = PageDraft::new(self.record, self.is_conversation, self.tool_bytes, most);
        draft.replaced_by.clone_from(&self.replaced_by);
        draft
    }

    /// Shows all prompts whole if they fit their share; else returns false.
    fn task_whole(&self, draft: &mut PageDraft<'a>, most: usize) -> bool {
        let whole = self.prompts.iter().map(|at| draft.prompt_bytes(*at));
        let whole = whole.sum::<usize>() + Heading::Task.line().len() + 2;
        let mut cap = (most / share::TASK).min(draft.room());
        if whole > cap {
            return false;
        }
        // Backwards: a prompt that was taken back needs the one that did it.
        for at in self.prompts.iter().rev() {
            draft.prompt_whole(*at, &mut cap);
        }
        true
    }

    fn task(&self, draft: &mut PageDraft<'a>, most: usize) {
        let cap = match (self.is_conversation, most < SMALL) {
            (true, _) => most / share::TASK_OF_CONVERSATION,
            (_, true) => most / share::TASK_OF_SMALL,
            _ => (most / share::TASK).min(draft.room()),
        };
        let before = draft.room();
        let spent = |draft: &PageDraft<'_>| before - draft.room();
        if let Some(first) = self.prompts.first() {
            draft.prompt_beginning(*first, cap / 3);
        }
        for at in self.prompts.iter().skip(1).rev().take(LAST_PROMPTS) {
            let left = cap.saturating_sub(spent(draft));
            draft.prompt_beginning(*at, left / 2);
        }
        let left = cap.saturating_sub(spent(draft));
        self.prompt_rest(draft, left);
    }

    fn prompt_rest(&self, draft: &mut PageDraft<'a>, most: usize) {
        let mut left = most.min(draft.room());
        if !self.is_conversation {
            for unit in &self.prompt_units {
                draft.prompt_unit(*unit, &mut left);
            }
        }
        for at in self.prompts.iter().rev() {
            if !self.is_conversation || draft.shows_prompt(*at) {
                draft.prompt_whole(*at, &mut left);
            }
        }
    }

    /// Returns the bytes that instructions may take before the other sections have taken theirs.
    fn instruction_bytes(&self, most: usize) -> usize {
        match self.is_among_people {
            true => most / share::INSTRUCTIONS_AMONG_PEOPLE,
            false => INSTRUCTION_BYTES.max(most / share::INSTRUCTIONS),
        }
    }

    /// Adds the instructions that the page does not show yet, the newest first, and the number of those that do not fit.
    fn instructions(&self, draft: &mut PageDraft<'a>, most: usize) {
        let mut left = most.min(draft.room());
        let missing: Vec<usize> = (0..self.instructions.len())
            .rev()
            .filter(|at| {
                !draft.lists_instruction(*at) && !draft.shows_instruction(&self.instructions[*at])
            })
            .collect();
        let line = |at: &usize| instruction_line(&self.instructions[*at].instruction).len();
        let fits = draft.count_left_out(missing.iter().map(line).sum(), &mut left);
        let mut left_out = 0;
        for at in missing {
            if !draft.instruction(at, &self.instructions[at], fits, &mut left) {
                left_out += 1;
            }
        }
        draft.left_out = left_out;
    }

    /// Adds the text of the task that a tool returned, the sentences that require something first.
    fn specification(&self, draft: &mut PageDraft<'a>, most: usize) {
        let mut left = most.min(draft.room());
        let all = self.record.statements.iter().enumerate();
        for (statement, words) in all.filter(|(_, words)| words.speaker == SpeakerRole::Tool) {
            let units = &words.units;
            let is_required = |unit: &usize| {
                let unit = &units.units[*unit];
                let lead = unit.lead.map(|lead| &units.leads[lead]);
                requires(&unit.text) || lead.is_some_and(|lead| requires(lead))
            };
            let (first, rest): (Vec<usize>, Vec<usize>) =
                (0..units.units.len()).partition(is_required);
            for unit in first.into_iter().chain(rest) {
                draft.unit(UnitRef { statement, unit }, &mut left);
            }
        }
    }

    /// Adds the statements that take back earlier ones, the newest first.
    fn replacements(&self, draft: &mut PageDraft<'a>, most: usize) {
        let mut left = most.min(draft.room());
        for at in &self.replacements {
            draft.replacement(*at, &mut left);
        }
    }

    fn files(&self, draft: &mut PageDraft<'a>, most: usize) {
        let mut left = most.min(draft.room());
        if self.changed.iter().all(|at| draft.shows_file(*at)) {
            return;
        }
        // As many declarations as leave room for all files.
        let bytes = |symbols: usize| -> usize {
            let line = |at: &usize| draft.file_bytes(*at, symbols);
            self.changed.iter().map(line).sum()
        };
        let symbols = [SYMBOLS, SYMBOLS / 2, 0]
            .into_iter()
            .find(|symbols| bytes(*symbols) <= left);
        for at in &self.changed {
            draft.file(*at, symbols.unwrap_or(0), &mut left);
        }
    }

    fn read(&self, draft: &mut PageDraft<'a>, most: usize) {
        let mut left = most.min(draft.room());
        for at in &self.read {
            draft.file_read(*at, &mut left);
        }
    }

    /// Adds the calls of one rank.
    fn ranked(&self, draft: &mut PageDraft<'a>, rank: Option<u8>, most: usize) {
        let mut left = most.min(draft.room());
        let calls = &self.record.activity.work().calls;
        for at in &self.calls {
            if call_rank(&calls[*at]) == rank {
                draft.call(*at, &mut left);
            }
        }
    }

    fn calls(&self, draft: &mut PageDraft<'a>, most: usize) {
        let mut left = most.min(draft.room());
        for at in &self.calls {
            draft.call(*at, &mut left);
        }
    }

    /// Adds the last report of the agent, and its last statement if that is newer.
    fn last_report(&self, draft: &mut PageDraft<'a>, most: usize) {
        let mut left = most.min(draft.room());
        let all = self.record.statements.iter().enumerate().rev();
        let is_report =
            |s: &super::record::Statement| s.speaker == SpeakerRole::Agent && !s.has_calls;
        let last = all
            .clone()
            .find(|(_, s)| is_report(s))
            .or_else(|| all.clone().find(|(_, s)| !s.is_prompt()));
        let now = all.clone().find(|(_, s)| s.speaker == SpeakerRole::Agent);
        let now = now.filter(|(at, _)| last.is_some_and(|(last, _)| last < *at));
        // The newest findings and decisions, as far as they are no report.
        let recent = all.filter(|(_, s)| s.speaker == SpeakerRole::Agent && s.has_calls);
        for (statement, words) in now.into_iter().chain(last).chain(recent.take(RECENT)) {
            if !self
                .record
                .is_covered_by_model(Heading::Findings, &words.place)
            {
                for (unit, text) in words.units.units.iter().enumerate() {
                    let is_now = now.is_some_and(|(at, _)| at == statement);
                    let kind = substance(&text.text, true);
                    if kind != Substance::Empty && (is_now || kind != Substance::Announcement) {
                        draft.unit(UnitRef { statement, unit }, &mut left);
                    }
                }
            }
        }
    }

    fn statements(&self, draft: &mut PageDraft<'a>, most: usize) {
        let mut left = most.min(draft.room());
        for unit in &self.statement_units {
            draft.unit(*unit, &mut left);
        }
    }
}

/// Returns the percentage of the remaining bytes that is left for values.
fn values_share(most: usize) -> usize {
    let below = LARGE.saturating_sub(most.max(SMALL));
    VALUES + below * (MOST_VALUES - VALUES) / (LARGE - SMALL)
}

/// Returns the rank of a call, 0 for the best; `None` if it gets no line. Open failures come first, then runs of builds
/// and tests with a result, then failures that were resolved, then searches with a result. The failure of a utility
/// that later passed is no failure of the work.
fn call_rank(call: &CallHistory) -> Option<u8> {
    let only_looks = call.is_command && !call.runs;
    match (&call.failure, &call.passed) {
        (Some(_), None) if call.refused => Some(1),
        (Some(_), None) if only_looks => Some(3),
        (Some(_), None) => OPEN_ERROR,
        (Some(_), Some(_)) if only_looks => None,
        (Some(_), Some(_)) => Some(2),
        (None, _) if call.runs && (call.result.is_some() || call.times > 1) => Some(1),
        (None, _) if call.runs => Some(2),
        (None, _) if call.result.is_some() => FOUND,
        (None, _) => None,
    }
}
