//! Orders the units of prompts and statements by their worth, and collects the standing instructions.

use std::collections::{HashMap, HashSet};

use super::super::instructions::{introduces_rules, is_instruction, needs_context};
use super::super::lines::statement_head;
use super::super::record::{DocumentRecord, Instruction, SpeakerRole, Statement};
use super::super::select::{Selector, UnitCosts};
use super::super::speech::{Substance, substance};
use super::UnitRef;
use crate::words::words_of;

/// The weight of a unit of a message with calls. A sentence of a report has 1.
const WITH_CALLS: f64 = 0.4;
/// The factors of a unit that announces the next step of the agent, and of an aside of a person.
const ANNOUNCED: f64 = 0.05;
const ASIDE: f64 = 0.1;
const REACTION: f64 = 0.3;
/// In a conversation of a person with an agent, the factors of a person's statement, of a person's question, and of
/// the items of the agent's lists.
const OF_PERSON: f64 = 1.8;
const ASKED_BY_PERSON: f64 = 0.6;
const LISTED_BY_AGENT: f64 = 0.5;
/// The factors of a person's statement that is told in passing or corrects, and of one that is not about the person.
const IN_PASSING: f64 = 1.5;
const OF_OTHERS: f64 = 0.7;
/// The factors of a person's statement with a number, and with a name.
const OF_NUMBER: f64 = 1.5;
const OF_NAME: f64 = 1.3;
/// Words by which a person speaks of the own side.
const OWN: [&str; 7] = ["i", "me", "mine", "my", "our", "us", "we"];
/// Words for numbers, and how often something happens.
const NUMBERS: [&str; 16] = [
    "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "once", "twice", "daily", "weekly", "monthly",
];
/// The weight of a unit of a harness's text.
const PUT_IN: f64 = 0.2;
/// The weight of a unit of a harness's text that is the task.
const INSTEAD_OF_A_PROMPT: f64 = 2.0;
/// The factor of such a unit if it constrains, as the rules of a project do.
const CONSTRAINS: f64 = 2.0;
/// The weight of a sentence of a sub-agent's report.
const REPORTED: f64 = 0.6;
/// The weight of a sentence of the specification that a tool returned.
const FETCHED: f64 = 0.8;
/// The factor of a row of a table or a line of code.
const RAW: f64 = 0.5;
/// The factor of a question of the agent: its findings are worth more.
const ASKED: f64 = 0.5;
/// The factor of the oldest unit and of the oldest prompt, if there were calls; the newest has 1.
const OLDEST: f64 = 0.5;
const OLDEST_PROMPT: f64 = 0.8;
/// The factor of the first and the last unit of a prompt.
const ENDS: f64 = 2.0;
/// The factors of a word in the name of a changed file or declaration, and of a word of a prompt.
const WORKED_ON: f64 = 2.0;
const ASKED_FOR: f64 = 1.4;
/// The [`UnitCosts::spread`] of statements, if there were calls.
const SPREAD: f64 = 0.1;
/// The costs of units, if there were calls.
const OF_PROMPTS: UnitCosts = UnitCosts {
    line_bytes: LINE_BYTES,
    per_byte: 0.8,
    spread: 0.0,
};
const OF_REPORTS: UnitCosts = UnitCosts {
    spread: SPREAD,
    ..OF_PROMPTS
};
/// The usual length of the prefix of a statement, in bytes.
const LINE_BYTES: usize = 8;

pub(super) fn prompt_order(
    record: &DocumentRecord,
    prompts: &[usize],
    most: usize,
) -> Vec<UnitRef> {
    let mut selector = Selector::default();
    let mut refs = Vec::new();
    for (line, at) in prompts.iter().enumerate() {
        let age = (prompts.len() - line) as f64 / prompts.len() as f64;
        let units = &record.statements[*at].units.units;
        for (unit, text) in units.iter().enumerate() {
            let raw = if text.is_raw { RAW } else { 1.0 };
            // A request comes before or after the text that a person pastes.
            let is_end = unit == 0 || unit + 1 == units.len();
            let place = if is_end { ENDS } else { 1.0 };
            selector.add(
                line,
                &text.text,
                raw * place * (1.0 - (1.0 - OLDEST_PROMPT) * age),
            );
            refs.push(UnitRef {
                statement: *at,
                unit,
            });
        }
    }
    let order = selector.order(OF_PROMPTS, most);
    order.into_iter().map(|at| refs[at]).collect()
}

pub(super) fn statement_order(
    record: &DocumentRecord,
    is_conversation: bool,
    most: usize,
) -> Vec<UnitRef> {
    let mut selector = Selector::default();
    let mut refs = Vec::new();
    let mut seen: HashSet<&str> = HashSet::new();
    let count = record.statements.len().max(1) as f64;
    let is_dialogue = is_conversation && record.only_speaker().is_none();
    for (at, statement) in record.statements.iter().enumerate() {
        if statement.is_prompt() && !is_conversation {
            selector.boost(&statement.text, ASKED_FOR);
            continue;
        }
        let age = (count - at as f64) / count;
        let weight = match statement.speaker {
            SpeakerRole::Harness if statement.is_task => INSTEAD_OF_A_PROMPT,
            SpeakerRole::Harness => PUT_IN,
            SpeakerRole::SubAgent => REPORTED,
            SpeakerRole::Tool => FETCHED,
            SpeakerRole::Agent if statement.has_calls => WITH_CALLS,
            _ => 1.0,
        };
        let weight = weight
            * if is_conversation {
                1.0
            } else {
                1.0 - (1.0 - OLDEST) * age
            };
        for (unit, text) in statement.units.units.iter().enumerate() {
            if seen.insert(&text.text) {
                let raw = if text.is_raw { RAW } else { 1.0 };
                let Some(spoken) = speech_weight(statement, unit, is_dialogue, is_conversation)
                else {
                    continue;
                };
                let constrains =
                    statement.speaker == SpeakerRole::Harness && is_instruction(&text.text);
                let constrains = if constrains { CONSTRAINS } else { 1.0 };
                selector.add(at, &text.text, weight * raw * spoken * constrains);
                refs.push(UnitRef {
                    statement: at,
                    unit,
                });
            }
        }
    }
    let work = record.activity.work();
    for file in &work.files {
        let name = file.path.rsplit(['/', '\\']).next();
        selector.boost(name.unwrap_or_default(), WORKED_ON);
        for symbol in file.events.iter().flat_map(|event| &event.symbols) {
            selector.boost(symbol, WORKED_ON);
        }
    }
    let costs = if is_conversation {
        conversation_costs(record)
    } else {
        OF_REPORTS
    };
    let order = selector.order(costs, most);
    order.into_iter().map(|at| refs[at]).collect()
}

/// Returns the factor of a unit for what kind of sentence it is; `None` if it carries nothing. `is_dialogue`: a person
/// talks with an agent, and there are no calls.
fn speech_weight(
    statement: &Statement,
    unit: usize,
    is_dialogue: bool,
    is_conversation: bool,
) -> Option<f64> {
    let text = &statement.units.units[unit];
    let is_agent = statement.speaker == SpeakerRole::Agent;
    if !statement.speaker.is_participant() {
        return Some(1.0);
    }
    let by_person = is_dialogue && !is_agent;
    match substance(&text.text, is_agent) {
        Substance::Empty => None,
        Substance::Announcement => Some(ANNOUNCED),
        Substance::Aside => Some(ASIDE),
        Substance::Reaction if is_dialogue => Some(REACTION),
        Substance::Question if by_person => Some(ASKED_BY_PERSON),
        Substance::Question if !is_conversation => Some(ASKED),
        Substance::Statement if by_person => Some(OF_PERSON * own_fact(&text.text)),
        Substance::Statement if is_dialogue && text.lead.is_some() => Some(LISTED_BY_AGENT),
        Substance::Reaction | Substance::Question | Substance::Statement => Some(1.0),
    }
}

/// Returns the factor of a person's statement: more for a fact that is told in passing or corrected and for one with a
/// number or name, less for what is not about the person.
fn own_fact(text: &str) -> f64 {
    let words = words_of(text);
    let begins = |at: usize, word: &str| words.get(at).is_some_and(|own| own == word);
    let in_passing = (0..words.len())
        .any(|at| begins(at, "by") && begins(at + 1, "the") && begins(at + 2, "way"));
    let number = if has_number(&words) { OF_NUMBER } else { 1.0 };
    let name = if has_name(text) { OF_NAME } else { 1.0 };
    let kind = if in_passing || begins(0, "actually") {
        IN_PASSING
    } else if words.iter().any(|word| OWN.contains(&word.as_str())) {
        1.0
    } else {
        OF_OTHERS
    };
    kind * number * name
}

/// True if one of the words is a number or says how often something happens.
fn has_number(words: &[String]) -> bool {
    let is_number = |word: &String| {
        word.bytes().any(|byte| byte.is_ascii_digit()) || NUMBERS.contains(&word.as_str())
    };
    words.iter().any(is_number)
}

/// True if a word after the first one begins with a capital, except that for the speaker.
fn has_name(text: &str) -> bool {
    let is_name =
        |word: &str| word.starts_with(char::is_uppercase) && word != "I" && !word.starts_with("I'");
    text.split_whitespace().skip(1).any(is_name)
}

/// Returns the costs of units in a conversation without calls: its lines are many and short, so the prefix of each
/// counts, and every byte.
fn conversation_costs(record: &DocumentRecord) -> UnitCosts {
    let is_named = record.only_speaker().is_none();
    let statements = &record.statements;
    let heads = statements
        .iter()
        .map(|statement| statement_head(statement, false, is_named).len() + 1);
    UnitCosts {
        line_bytes: heads.sum::<usize>() / statements.len().max(1),
        per_byte: 1.0,
        spread: 0.0,
    }
}

/// A standing instruction, and the units of a prompt that contain it.
pub(in super::super) struct InstructionLine {
    pub(in super::super) instruction: Instruction,
    pub(in super::super) units: Vec<UnitRef>,
}

/// In a conversation, a prompt of several lines with more units is taken for a pasted text, of which only so many units
/// at each end are the person's own words.
const PASTED: usize = 12;
const OWN_WORDS: usize = 3;

/// The most bytes of the sentences before an instruction that refers to them.
const CONTEXT_BYTES: usize = 240;

/// Returns the standing instructions, oldest first: those of an earlier document, and those in prompts of people.
pub(super) fn instructions(
    record: &DocumentRecord,
    prompts: &[usize],
    is_conversation: bool,
) -> Vec<InstructionLine> {
    let mut known: HashMap<String, usize> = HashMap::new();
    let mut all: Vec<InstructionLine> = Vec::new();
    for kept in &record.instructions {
        known.entry(key_of(&kept.text)).or_insert_with(|| {
            let (instruction, units) = (kept.clone(), Vec::new());
            all.push(InstructionLine { instruction, units });
            all.len() - 1
        });
    }
    for at in prompts {
        let statement = &record.statements[*at];
        if statement.speaker != SpeakerRole::Human {
            continue;
        }
        for (text, units) in instructions_in(statement, is_conversation) {
            let refs = units.map(|unit| UnitRef {
                statement: *at,
                unit,
            });
            let line = *known.entry(key_of(&text)).or_insert_with(|| {
                let place = statement.place.clone();
                all.push(InstructionLine {
                    instruction: Instruction { place, text },
                    units: Vec::new(),
                });
                all.len() - 1
            });
            all[line].units.extend(refs);
        }
    }
    all.sort_by_key(|line| record.values.position_of(&line.instruction.place));
    all
}

/// Returns the words of an instruction, so that it is listed once however it is punctuated.
fn key_of(text: &str) -> String {
    words_of(text).join(" ")
}

/// Returns the instructions of a prompt, each with its units.
fn instructions_in(
    statement: &Statement,
    is_conversation: bool,
) -> Vec<(String, std::ops::Range<usize>)> {
    let (units, leads) = (&statement.units.units, &statement.units.leads);
    let is_pasted = is_conversation && units.len() > PASTED && statement.text.contains('\n');
    let mut found = Vec::new();
    let mut next = 0;
    for (at, unit) in units.iter().enumerate() {
        let is_own = !is_pasted || at < OWN_WORDS || at + OWN_WORDS >= units.len();
        if unit.is_raw || !is_own {
            continue;
        }
        let lead = unit.lead.map(|lead| &*leads[lead]);
        let is_rule = is_instruction(&unit.text);
        let is_item_of_rules = !is_rule && lead.is_some_and(introduces_rules);
        if !is_rule && !is_item_of_rules {
            continue;
        }
        let mut from = at;
        if is_rule && needs_context(&unit.text) {
            let mut left = CONTEXT_BYTES;
            while from > next && units[from - 1].text.len() <= left && !units[from - 1].is_raw {
                from -= 1;
                left -= units[from].text.len();
            }
        }
        let texts: Vec<&str> = units[from..=at].iter().map(|unit| &*unit.text).collect();
        let text = match lead {
            // `Never: push to main`
            Some(lead) if is_item_of_rules => format!("{lead}: {}", texts.join(" ")),
            _ => texts.join(" "),
        };
        found.push((text, from..at + 1));
        next = at + 1;
    }
    found
}
