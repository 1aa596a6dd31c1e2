//! Fills a budget: what is worth most of each section first, then whatever still fits.

mod order;
mod supplement;

use std::cmp::Reverse;
use std::collections::BTreeSet;

use self::order::{instructions, prompt_order, statement_order};
use super::lines::{Heading, instruction_line};
use super::page_draft::{PageDraft, tool_bytes};
use super::record::{DocumentRecord, Instruction, SpeakerRole};
use super::values::rank_by_worth;
use crate::activity::{CallHistory, FileAct, SourceTurn};

/// One part in so many of the budget that a section may take before the others have had their turn.
mod share {
    /// What a model wrote earlier. Of a page for what it just wrote, this is what is kept for the record.
    pub(super) const MODEL: usize = 2;
    pub(super) const BESIDE_MODEL: usize = 4;
    /// Prompts; if all of them fit it, they are whole.
    pub(super) const TASK: usize = 3;
    /// Prompts that do not fit it, on a small page: there values are worth more than words.
    pub(super) const TASK_OF_SMALL: usize = 8;
    /// Prompts where people only talk: most of what is said are prompts then.
    pub(super) const TASK_OF_CONVERSATION: usize = 12;
    pub(super) const FOREIGN_SUMMARY: usize = 2;
    pub(super) const INSTRUCTIONS: usize = 5;
    /// What the newest instructions get where people only talk and that is too little for all: most are then what
    /// people say of themselves.
    pub(super) const TOO_MANY_INSTRUCTIONS: usize = 16;
    pub(super) const PLAN: usize = 6;
    pub(super) const FILES: usize = 4;
    pub(super) const COMMANDS: usize = 8;
    /// What searches found.
    pub(super) const FOUND: usize = 16;
    /// Files that were only read, and values that were only seen.
    pub(super) const READ: usize = 16;
    pub(super) const SEEN: usize = 32;
    /// Values that one call used, and that nobody is likely to ask for again.
    pub(super) const USED_ONCE: usize = 5;
    /// The last report of the agent.
    pub(super) const LAST: usize = 8;
    pub(super) const LAST_OF_CONVERSATION: usize = 16;
    /// The plan and the open errors beside another's summary.
    pub(super) const PLAN_OF_SUPPLEMENT: usize = 2;
    pub(super) const ERRORS_OF_SUPPLEMENT: usize = 2;
}

/// On a page of fewer bytes than this values come before all but the task.
const SMALL: usize = 2_400;
/// Of what the sections above leave, the percentage that values get at least on a large page, and how many
/// bytes it takes until it is that: the smaller the page, the more they get.
const VALUES: usize = 30;
const MOST_VALUES: usize = 90;
/// Where people only talk, what somebody may ask for is in sentences.
const VALUES_OF_CONVERSATION: usize = 8;
const LARGE: usize = 4_500;
/// Names of places in a file that a line tells.
const SYMBOLS: usize = 4;
/// How often a page gets back what was paid for more than it has, and the part of it that is too little for that.
const REFILLS: usize = 3;
const ENOUGH: usize = 128;
/// The last prompts are shown whole before others, so many.
const LAST_PROMPTS: usize = 3;

/// What failed and is still open, as it ranks among attempts.
const OPEN_ERROR: Option<u8> = Some(0);
/// What a search found.
const FOUND: Option<u8> = Some(4);

/// A document of a given size.
pub(super) struct DocumentPage {
    pub(super) text: String,
    /// Where what it says comes from.
    pub(super) places: BTreeSet<SourceTurn>,
    /// Whether something was left out for want of room.
    pub(super) is_full: bool,
}

/// A unit of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnitRef {
    pub(super) statement: usize,
    pub(super) unit: usize,
}

/// Fills pages of any size from one record.
pub(super) struct PageWriter<'a> {
    record: &'a DocumentRecord,
    is_conversation: bool,
    /// What it costs to name the tools of values.
    tool_bytes: usize,
    /// Statements that are prompts.
    prompts: Vec<usize>,
    /// Units of prompts, and of what else was said, in the order of their worth.
    prompt_units: Vec<UnitRef>,
    statement_units: Vec<UnitRef>,
    /// Instructions, oldest first, with the prompt that each stands in.
    instructions: Vec<(Option<usize>, Instruction)>,
    /// Files that were changed, those only read, and attempts, the best first.
    changed: Vec<usize>,
    read: Vec<usize>,
    calls: Vec<usize>,
    /// Values that calls took, or that have a name whose values they took, and the others.
    likely_needed: Vec<usize>,
    used_once: Vec<usize>,
    other_values: Vec<usize>,
    /// Prompts, attempts and units that a model had read that wrote their section.
    covered_prompts: Vec<usize>,
    covered_calls: Vec<usize>,
    covered_units: Vec<UnitRef>,
    /// Whether a reader knows the plan already.
    is_plan_known: bool,
}

impl<'a> PageWriter<'a> {
    /// Puts everything in order. Pages of more than `most` bytes may lack statements.
    pub(super) fn new(record: &'a DocumentRecord, most: usize) -> Self {
        let is_conversation = record.is_conversation();
        let all = record.statements.iter().enumerate();
        let prompts: Vec<usize> = all
            .filter(|(_, s)| s.is_prompt())
            .map(|(at, _)| at)
            .collect();
        let instructions = instructions(record, &prompts);
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
        // The newest first.
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
            .partition(is_likely_needed);
        let (used_once, other_values) = rest.into_iter().partition(is_used);
        Self {
            record,
            is_conversation,
            tool_bytes: tool_bytes(record),
            prompt_units: prompt_order(record, &prompts, most),
            statement_units,
            instructions,
            prompts,
            changed,
            read,
            calls,
            likely_needed,
            used_once,
            other_values,
            covered_prompts,
            covered_calls,
            covered_units,
            is_plan_known: false,
        }
    }

    /// Returns a page of at most `most` bytes that begins with the longest of `headers` (best first) that
    /// does not take too much of it. It is empty if nothing fits below the header.
    pub(super) fn page(&self, headers: &[String], most: usize) -> DocumentPage {
        let mut draft = PageDraft::new(self.record, self.is_conversation, self.tool_bytes, most);
        draft.header(headers);
        draft.add_model_sections(self.model_share(most));
        if most < SMALL && !self.is_conversation {
            self.task(&mut draft, most);
            self.plan(&mut draft, most / share::PLAN);
            self.files(&mut draft, most / share::FILES);
            self.ranked(&mut draft, OPEN_ERROR, most / share::COMMANDS);
            draft.values(&self.likely_needed, usize::MAX);
            draft.values(&self.used_once, usize::MAX);
        }
        self.plan(&mut draft, most / share::PLAN);
        for at in 0..self.record.foreign_summaries.len() {
            draft.foreign_summary(at, most / share::FOREIGN_SUMMARY);
        }
        self.task(&mut draft, most);
        let instructed = self.instructions_share(&draft, most);
        self.instructions(&mut draft, instructed);
        self.files(&mut draft, most / share::FILES);
        self.calls(&mut draft, most / share::COMMANDS);
        let (last, values) = match self.is_conversation {
            true => (share::LAST_OF_CONVERSATION, VALUES_OF_CONVERSATION),
            false => (share::LAST, values_share(most)),
        };
        self.last_report(&mut draft, most / last);
        self.ranked(&mut draft, FOUND, most / share::FOUND);
        let stated = draft.room() * (100 - values) / 100;
        self.statements(&mut draft, stated);
        draft.values(&self.likely_needed, usize::MAX);
        draft.values(&self.used_once, most / share::USED_ONCE);
        self.read(&mut draft, most / share::READ);
        draft.values(&self.other_values, most / share::SEEN);
        self.rest(&mut draft);
        let mut page = draft.render();
        // Written, a page is shorter than what was paid for it: a day stands once, values share a turn.
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

    /// Adds whatever still fits.
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
        draft.values(&self.used_once, usize::MAX);
        draft.seen(&self.other_values);
    }

    /// Returns the bytes for what a model wrote: most of the page of a new answer.
    fn model_share(&self, most: usize) -> usize {
        let given = &self.record.model_sections;
        match given.iter().any(|given| given.is_new) {
            true => most - most / share::BESIDE_MODEL,
            false if given.is_empty() => 0,
            false => most / share::MODEL,
        }
    }

    /// Adds the record's own words beside a model's.
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

    fn task(&self, draft: &mut PageDraft<'a>, most: usize) {
        let whole = self.prompts.iter().map(|at| draft.prompt_bytes(*at));
        let whole = whole.sum::<usize>() + Heading::Task.line().len() + 2;
        let mut cap = (most / share::TASK).min(draft.room());
        if whole <= cap {
            for at in &self.prompts {
                draft.prompt_whole(*at, &mut cap);
            }
            return;
        }
        let cap = match (self.is_conversation, most < SMALL) {
            (true, _) => most / share::TASK_OF_CONVERSATION,
            (_, true) => most / share::TASK_OF_SMALL,
            _ => cap,
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

    /// Returns the bytes that instructions may take before the others have had their turn.
    fn instructions_share(&self, draft: &PageDraft<'a>, most: usize) -> usize {
        let enough = most / share::INSTRUCTIONS;
        if !self.is_conversation {
            return enough;
        }
        let all = self.instructions.iter().map(|(_, instruction)| instruction);
        let untold = all.filter(|instruction| !draft.shows_instruction(instruction));
        let bytes: usize = untold.map(|told| instruction_line(told).len()).sum();
        match bytes <= enough {
            true => enough,
            false => most / share::TOO_MANY_INSTRUCTIONS,
        }
    }

    /// Adds the instructions that no prompt shows, the newest first.
    fn instructions(&self, draft: &mut PageDraft<'a>, most: usize) {
        let mut left = most.min(draft.room());
        let mut left_out = 0;
        for (at, (prompt, instruction)) in self.instructions.iter().enumerate().rev() {
            let is_shown = prompt.is_some_and(|at| draft.shows_all_of(at))
                || draft.shows_instruction(instruction);
            if !is_shown && !draft.instruction(at, instruction, &mut left) {
                left_out += 1;
            }
        }
        draft.left_out = left_out;
    }

    fn files(&self, draft: &mut PageDraft<'a>, most: usize) {
        let mut left = most.min(draft.room());
        if self.changed.iter().all(|at| draft.shows_file(*at)) {
            return;
        }
        // As much of each as lets all of them in.
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

    /// Adds the attempts of one rank.
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

    /// Adds the last report, and what the agent said last of what it is doing since.
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
        for (statement, said) in now.into_iter().chain(last) {
            if !self
                .record
                .is_covered_by_model(Heading::Findings, &said.place)
            {
                for unit in 0..said.units.units.len() {
                    draft.unit(UnitRef { statement, unit }, &mut left);
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

/// Returns the percentage of the room that values get before statements go on.
fn values_share(most: usize) -> usize {
    let below = LARGE.saturating_sub(most.max(SMALL));
    VALUES + below * (MOST_VALUES - VALUES) / (LARGE - SMALL)
}

/// Returns how much an attempt is worth a line, best first; `None`: not at all. What failed and is still open
/// comes first, then what builds, tests or runs here and how that went, then what failed once, then what searches
/// found. A command that only looks and found nothing is no failure of the work.
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
