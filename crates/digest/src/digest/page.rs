//! Fills a budget: what is worth most of each section first, then whatever still fits.

mod beside;
mod order;

use std::cmp::Reverse;
use std::collections::BTreeSet;

use self::order::{instructions, prompt_order, said_order};
use super::filling::{Filling, tool_bytes};
use super::lines::{Heading, instruction_line};
use super::record::{Instruction, Record, Speaker};
use super::values::by_worth;
use crate::activity::{Attempt, FileAct, Place};

/// One part in so many of the budget that a section may take before the others have had their turn.
mod share {
    /// What a model wrote earlier. Of a page for what it just wrote, this is what is kept for the record.
    pub(super) const GIVEN: usize = 2;
    pub(super) const BESIDE_GIVEN: usize = 4;
    /// Prompts; if all of them fit it, they are whole.
    pub(super) const TASK: usize = 3;
    /// Prompts that do not fit it, on a small page: there values are worth more than words.
    pub(super) const TASK_OF_SMALL: usize = 8;
    /// Prompts where people only talk: most of what is said are prompts then.
    pub(super) const TASK_OF_TALK: usize = 12;
    pub(super) const CARRIED: usize = 2;
    pub(super) const INSTRUCTIONS: usize = 5;
    /// What the newest instructions get where people only talk and that is too little for all: most are then what
    /// people say of themselves.
    pub(super) const TOO_MANY_INSTRUCTIONS: usize = 16;
    pub(super) const PLAN: usize = 6;
    pub(super) const FILES: usize = 4;
    pub(super) const ATTEMPTS: usize = 8;
    /// What searches found.
    pub(super) const FOUND: usize = 16;
    /// Files that were only read, and values that were only seen.
    pub(super) const READ: usize = 16;
    pub(super) const SEEN: usize = 32;
    /// Values that one call used, and that nobody is likely to ask for again.
    pub(super) const USED_ONCE: usize = 5;
    /// The last report of the agent.
    pub(super) const LAST: usize = 8;
    pub(super) const LAST_OF_TALK: usize = 16;
    /// The plan and the open errors beside another's summary.
    pub(super) const PLAN_BESIDE: usize = 2;
    pub(super) const ERRORS_BESIDE: usize = 2;
}

/// On a page of fewer bytes than this values come before all but the task.
const SMALL: usize = 2_400;
/// Of what the sections above leave, the percentage that values get at least on a large page, and how many
/// bytes it takes until it is that: the smaller the page, the more they get.
const VALUES: usize = 30;
const MOST_VALUES: usize = 90;
/// Where people only talk, what somebody may ask for is in sentences.
const VALUES_OF_TALK: usize = 8;
const LARGE: usize = 4_500;
/// Names of places in a file that a line tells.
const SPOTS: usize = 4;
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
    pub(super) places: BTreeSet<Place>,
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
    record: &'a Record,
    is_talk: bool,
    /// What it costs to name the tools of values.
    tool_bytes: usize,
    /// Statements that are prompts.
    prompts: Vec<usize>,
    /// Units of prompts, and of what else was said, in the order of their worth.
    prompt_units: Vec<UnitRef>,
    said_units: Vec<UnitRef>,
    /// Instructions, oldest first, with the prompt that each stands in.
    instructions: Vec<(Option<usize>, Instruction)>,
    /// Files that were changed, those only read, and attempts, the best first.
    changed: Vec<usize>,
    read: Vec<usize>,
    attempts: Vec<usize>,
    /// Values that calls took, or that have a name whose values they took, and the others.
    sought: Vec<usize>,
    used_once: Vec<usize>,
    other_values: Vec<usize>,
    /// Prompts, attempts and units that a model had read that wrote their section.
    given_prompts: Vec<usize>,
    given_attempts: Vec<usize>,
    given_units: Vec<UnitRef>,
    /// Whether a reader knows the plan already.
    is_plan_known: bool,
}

impl<'a> PageWriter<'a> {
    /// Puts everything in order. Pages of more than `most` bytes may lack statements.
    pub(super) fn new(record: &'a Record, most: usize) -> Self {
        let is_talk = record.is_talk();
        let all = record.statements.iter().enumerate();
        let prompts: Vec<usize> = all
            .filter(|(_, s)| s.is_prompt())
            .map(|(at, _)| at)
            .collect();
        let instructions = instructions(record, &prompts);
        let of_statement =
            |at: usize, heading| record.is_given(heading, &record.statements[at].place);
        let (given_prompts, prompts): (Vec<usize>, Vec<usize>) = prompts
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
        let position = |place: &Place| record.values.position_of(place);
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
        let rank = |at: &usize| attempt_rank(&work.attempts[*at]);
        let mut attempts: Vec<usize> = (0..work.attempts.len())
            .filter(|at| rank(at).is_some())
            .collect();
        attempts.sort_by_key(|at| (rank(at), Reverse(position(&work.attempts[*at].last))));
        let (given_attempts, attempts) = attempts
            .into_iter()
            .partition(|at| record.is_given(Heading::Attempts, &work.attempts[*at].last));
        let (given_units, said_units) = said_order(record, is_talk, most)
            .into_iter()
            .partition(|unit| of_statement(unit.statement, Heading::Said));
        let is_sought = |at: &usize| record.values.is_sought(&record.values.facts[*at]);
        let is_used = |at: &usize| record.values.facts[*at].uses > 0;
        let (sought, rest): (Vec<_>, Vec<_>) =
            by_worth(&record.values).into_iter().partition(is_sought);
        let (used_once, other_values) = rest.into_iter().partition(is_used);
        Self {
            record,
            is_talk,
            tool_bytes: tool_bytes(record),
            prompt_units: prompt_order(record, &prompts, most),
            said_units,
            instructions,
            prompts,
            changed,
            read,
            attempts,
            sought,
            used_once,
            other_values,
            given_prompts,
            given_attempts,
            given_units,
            is_plan_known: false,
        }
    }

    /// Returns a page of at most `most` bytes that begins with the longest of `headers` (best first) that
    /// does not take too much of it. It is empty if nothing fits below the header.
    pub(super) fn page(&self, headers: &[String], most: usize) -> DocumentPage {
        let mut filling = Filling::new(self.record, self.is_talk, self.tool_bytes, most);
        filling.header(headers);
        filling.given(self.given_share(most));
        if most < SMALL && !self.is_talk {
            self.task(&mut filling, most);
            self.plan(&mut filling, most / share::PLAN);
            self.files(&mut filling, most / share::FILES);
            self.ranked(&mut filling, OPEN_ERROR, most / share::ATTEMPTS);
            filling.values(&self.sought, usize::MAX);
            filling.values(&self.used_once, usize::MAX);
        }
        self.plan(&mut filling, most / share::PLAN);
        for at in 0..self.record.carried.len() {
            filling.carried(at, most / share::CARRIED);
        }
        self.task(&mut filling, most);
        let instructed = self.instructions_share(&filling, most);
        self.standing(&mut filling, instructed);
        self.files(&mut filling, most / share::FILES);
        self.attempts(&mut filling, most / share::ATTEMPTS);
        let (last, values) = match self.is_talk {
            true => (share::LAST_OF_TALK, VALUES_OF_TALK),
            false => (share::LAST, values_share(most)),
        };
        self.last_report(&mut filling, most / last);
        self.ranked(&mut filling, FOUND, most / share::FOUND);
        let stated = filling.room() * (100 - values) / 100;
        self.said(&mut filling, stated);
        filling.values(&self.sought, usize::MAX);
        filling.values(&self.used_once, most / share::USED_ONCE);
        self.read(&mut filling, most / share::READ);
        filling.values(&self.other_values, most / share::SEEN);
        self.rest(&mut filling);
        let mut page = filling.written();
        // Written, a page is shorter than what was paid for it: a day stands once, values share a turn.
        for _ in 0..REFILLS {
            let unspent = most.saturating_sub(page.text.len());
            if !page.is_full || unspent <= most / ENOUGH {
                break;
            }
            filling.refill(unspent);
            self.rest(&mut filling);
            page = filling.written();
        }
        page
    }

    /// Adds whatever still fits.
    fn rest(&self, filling: &mut Filling<'a>) {
        self.said(filling, usize::MAX);
        self.prompt_rest(filling, usize::MAX);
        for at in 0..self.record.carried.len() {
            filling.carried(at, usize::MAX);
        }
        self.plan(filling, usize::MAX);
        self.files(filling, usize::MAX);
        self.attempts(filling, usize::MAX);
        self.standing(filling, usize::MAX);
        self.given_rest(filling);
        self.read(filling, usize::MAX);
        filling.values(&self.used_once, usize::MAX);
        filling.seen(&self.other_values);
    }

    /// Returns the bytes for what a model wrote: most of the page of a new answer.
    fn given_share(&self, most: usize) -> usize {
        let given = &self.record.given;
        match given.iter().any(|given| given.is_new) {
            true => most - most / share::BESIDE_GIVEN,
            false if given.is_empty() => 0,
            false => most / share::GIVEN,
        }
    }

    /// Adds the record's own words beside a model's.
    fn given_rest(&self, filling: &mut Filling<'a>) {
        let mut left = filling.room();
        for at in self.given_prompts.iter().rev() {
            filling.prompt_whole(*at, &mut left);
        }
        for at in &self.given_attempts {
            filling.attempt(*at, &mut left);
        }
        for unit in &self.given_units {
            filling.unit(*unit, &mut left);
        }
    }

    fn plan(&self, filling: &mut Filling<'a>, most: usize) {
        let mut left = most.min(filling.room());
        filling.open_calls(&mut left);
        let plan = self.record.activity.work().plan.as_ref();
        if plan.is_some_and(|plan| !self.record.is_given(Heading::Plan, &plan.place)) {
            filling.plan(&mut left);
        }
    }

    fn task(&self, filling: &mut Filling<'a>, most: usize) {
        let whole = self.prompts.iter().map(|at| filling.prompt_bytes(*at));
        let whole = whole.sum::<usize>() + Heading::Task.line().len() + 2;
        let mut cap = (most / share::TASK).min(filling.room());
        if whole <= cap {
            for at in &self.prompts {
                filling.prompt_whole(*at, &mut cap);
            }
            return;
        }
        let cap = match (self.is_talk, most < SMALL) {
            (true, _) => most / share::TASK_OF_TALK,
            (_, true) => most / share::TASK_OF_SMALL,
            _ => cap,
        };
        let before = filling.room();
        let spent = |filling: &Filling<'_>| before - filling.room();
        if let Some(first) = self.prompts.first() {
            filling.prompt_beginning(*first, cap / 3);
        }
        for at in self.prompts.iter().skip(1).rev().take(LAST_PROMPTS) {
            let left = cap.saturating_sub(spent(filling));
            filling.prompt_beginning(*at, left / 2);
        }
        let left = cap.saturating_sub(spent(filling));
        self.prompt_rest(filling, left);
    }

    fn prompt_rest(&self, filling: &mut Filling<'a>, most: usize) {
        let mut left = most.min(filling.room());
        if !self.is_talk {
            for unit in &self.prompt_units {
                filling.prompt_unit(*unit, &mut left);
            }
        }
        for at in self.prompts.iter().rev() {
            if !self.is_talk || filling.shows_prompt(*at) {
                filling.prompt_whole(*at, &mut left);
            }
        }
    }

    /// Returns the bytes that instructions may take before the others have had their turn.
    fn instructions_share(&self, filling: &Filling<'a>, most: usize) -> usize {
        let enough = most / share::INSTRUCTIONS;
        if !self.is_talk {
            return enough;
        }
        let all = self.instructions.iter().map(|(_, instruction)| instruction);
        let untold = all.filter(|instruction| !filling.tells(instruction));
        let bytes: usize = untold.map(|told| instruction_line(told).len()).sum();
        match bytes <= enough {
            true => enough,
            false => most / share::TOO_MANY_INSTRUCTIONS,
        }
    }

    /// Adds the instructions that no prompt shows, the newest first.
    fn standing(&self, filling: &mut Filling<'a>, most: usize) {
        let mut left = most.min(filling.room());
        let mut left_out = 0;
        for (at, (prompt, instruction)) in self.instructions.iter().enumerate().rev() {
            let is_shown =
                prompt.is_some_and(|at| filling.shows_all_of(at)) || filling.tells(instruction);
            if !is_shown && !filling.instruction(at, instruction, &mut left) {
                left_out += 1;
            }
        }
        filling.left_out = left_out;
    }

    fn files(&self, filling: &mut Filling<'a>, most: usize) {
        let mut left = most.min(filling.room());
        if self.changed.iter().all(|at| filling.shows_file(*at)) {
            return;
        }
        // As much of each as lets all of them in.
        let bytes = |spots: usize| -> usize {
            let line = |at: &usize| filling.file_bytes(*at, spots);
            self.changed.iter().map(line).sum()
        };
        let spots = [SPOTS, SPOTS / 2, 0]
            .into_iter()
            .find(|spots| bytes(*spots) <= left);
        for at in &self.changed {
            filling.file(*at, spots.unwrap_or(0), &mut left);
        }
    }

    fn read(&self, filling: &mut Filling<'a>, most: usize) {
        let mut left = most.min(filling.room());
        for at in &self.read {
            filling.file_read(*at, &mut left);
        }
    }

    /// Adds the attempts of one rank.
    fn ranked(&self, filling: &mut Filling<'a>, rank: Option<u8>, most: usize) {
        let mut left = most.min(filling.room());
        let attempts = &self.record.activity.work().attempts;
        for at in &self.attempts {
            if attempt_rank(&attempts[*at]) == rank {
                filling.attempt(*at, &mut left);
            }
        }
    }

    fn attempts(&self, filling: &mut Filling<'a>, most: usize) {
        let mut left = most.min(filling.room());
        for at in &self.attempts {
            filling.attempt(*at, &mut left);
        }
    }

    /// Adds the last report, and what the agent said last of what it is doing since.
    fn last_report(&self, filling: &mut Filling<'a>, most: usize) {
        let mut left = most.min(filling.room());
        let all = self.record.statements.iter().enumerate().rev();
        let is_report = |s: &super::record::Statement| s.speaker == Speaker::Agent && !s.has_calls;
        let last = all
            .clone()
            .find(|(_, s)| is_report(s))
            .or_else(|| all.clone().find(|(_, s)| !s.is_prompt()));
        let now = all.clone().find(|(_, s)| s.speaker == Speaker::Agent);
        let now = now.filter(|(at, _)| last.is_some_and(|(last, _)| last < *at));
        for (statement, said) in now.into_iter().chain(last) {
            if !self.record.is_given(Heading::Said, &said.place) {
                for unit in 0..said.units.units.len() {
                    filling.unit(UnitRef { statement, unit }, &mut left);
                }
            }
        }
    }

    fn said(&self, filling: &mut Filling<'a>, most: usize) {
        let mut left = most.min(filling.room());
        for unit in &self.said_units {
            filling.unit(*unit, &mut left);
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
fn attempt_rank(attempt: &Attempt) -> Option<u8> {
    let only_looks = attempt.is_command && !attempt.runs;
    match (&attempt.failure, &attempt.passed) {
        (Some(_), None) if attempt.refused => Some(1),
        (Some(_), None) if only_looks => Some(3),
        (Some(_), None) => OPEN_ERROR,
        (Some(_), Some(_)) if only_looks => None,
        (Some(_), Some(_)) => Some(2),
        (None, _) if attempt.runs && (attempt.result.is_some() || attempt.times > 1) => Some(1),
        (None, _) if attempt.runs => Some(2),
        (None, _) if attempt.result.is_some() => FOUND,
        (None, _) => None,
    }
}
