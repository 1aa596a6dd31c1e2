//! Orders the units of prompts and statements by their worth, and collects the standing instructions.

use std::collections::HashSet;

use super::super::instructions::is_instruction;
use super::super::lines::statement_head;
use super::super::record::{DocumentRecord, Instruction, SpeakerRole};
use super::super::select::{Selector, UnitCosts};
use super::UnitRef;

/// The weight of a unit that only announces a call. A sentence of a report has 1.
const ANNOUNCED: f64 = 0.25;
/// The weight of a unit of a harness's text.
const PUT_IN: f64 = 0.2;
/// The weight of a unit of a harness's text that is the task.
const INSTEAD_OF_A_PROMPT: f64 = 2.0;
/// The factor of such a unit if it constrains, as the rules of a project do.
const CONSTRAINS: f64 = 2.0;
/// The weight of a sentence of a sub-agent's report.
const REPORTED: f64 = 0.6;
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
            SpeakerRole::Agent if statement.has_calls => ANNOUNCED,
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
                let question = if !is_conversation && text.text.ends_with('?') {
                    ASKED
                } else {
                    1.0
                };
                let constrains =
                    statement.speaker == SpeakerRole::Harness && is_instruction(&text.text);
                let constrains = if constrains { CONSTRAINS } else { 1.0 };
                selector.add(at, &text.text, weight * raw * question * constrains);
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

pub(super) fn instructions(
    record: &DocumentRecord,
    prompts: &[usize],
) -> Vec<(Option<usize>, Instruction)> {
    let mut seen: HashSet<String> = HashSet::new();
    let mut all: Vec<(Option<usize>, Instruction)> = Vec::new();
    for kept in &record.instructions {
        if seen.insert(kept.text.clone()) {
            all.push((None, kept.clone()));
        }
    }
    for at in prompts {
        let statement = &record.statements[*at];
        if statement.speaker != SpeakerRole::Human {
            continue;
        }
        for unit in statement
            .units
            .units
            .iter()
            .filter(|unit| !unit.is_raw && is_instruction(&unit.text))
        {
            if seen.insert(unit.text.clone()) {
                let (place, text) = (statement.place.clone(), unit.text.clone());
                all.push((Some(*at), Instruction { place, text }));
            }
        }
    }
    all.sort_by_key(|(_, instruction)| record.values.position_of(&instruction.place));
    all
}
