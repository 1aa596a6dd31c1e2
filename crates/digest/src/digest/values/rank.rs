//! Orders values by their worth per byte.
//!
//! An agent mostly needs the values again that its calls have used, above all those used more than once; then values
//! that the user gave, and fields of results with a name whose values calls have used before. Among these, recent and
//! repeated values and those that identify one thing are worth more. The figures are round; the recall of needed values
//! hardly changes when one of them is doubled.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::{Fact, FactSource, Label, Shape, ValueLedger};
use crate::activity::{ArgumentRole, is_run};

/// Uses of a value beyond this number do not count.
const MOST_USES: u32 = 20;
/// Turns that contain a value beyond this number do not count.
const MOST_TURNS: u32 = 5;
/// The odds that a later call has a value that one call used in the newest turn, and whose name says nothing.
const USED_ONCE: f64 = 0.5;
/// The powers of the turns since the last one that contains the value, and of the share of values of its name that
/// calls used again.
const BY_TURNS: f64 = -0.3;
const BY_NAME: f64 = 0.4;
/// The part of the odds that a value loses over the whole history.
const LOST_BY_AGE: f64 = 0.45;
/// The factors of the odds by the role of the argument.
const LIMIT: f64 = 6.0;
const LINES: f64 = 0.35;
const SEARCH: f64 = 0.22;
const COMMAND: f64 = 0.35;
const RUN: f64 = 2.0;
/// The worth of a value that a later call has for sure.
const NEEDED: f64 = 12.0;
/// The number of values of a name at which their statistics count as much as the prior.
const KNOWN_NAME: f64 = 10.0;
/// The largest factor of a value for its name.
const BEST_NAME: f64 = 20.0;
/// The factor of the oldest value that was only seen; the newest has 1.
const FLOOR: f64 = 0.25;
/// The share of the history after which the part above the floor has halved.
const HALF_LIFE: f64 = 0.25;
/// The factor of a round number in a text: models use round offsets and limits.
const ROUND: f64 = 10.0;
/// The factor of the whole path of a file that a result of the newest turn lists, and the power of the turns since.
const FILE: f64 = 20.0;
const BY_TURNS_OF_FILE: f64 = -0.5;
/// The cost of a value in addition to its bytes.
const OVERHEAD: f64 = 10.0;
/// The cost of a line in addition to its values and name.
const LINE: f64 = 2.0;
/// After this many values of one name and shape that no call uses, the next is worth half.
const ENOUGH: f64 = 12.0;

/// Returns the indexes of the facts in the order of their worth per byte, the highest first.
pub(crate) fn rank_by_worth(ledger: &ValueLedger) -> Vec<usize> {
    let mut worth: Vec<f64> = ledger.facts.iter().map(|f| worth(ledger, f)).collect();
    thin_out(ledger, &mut worth);
    by_cost(ledger, &worth)
}

/// Returns for each fact whether it is one of the `most` with the highest worth per byte.
pub(crate) fn best(ledger: &ValueLedger, most: usize) -> Vec<bool> {
    let worth: Vec<f64> = ledger.facts.iter().map(|f| worth(ledger, f)).collect();
    let mut order: Vec<usize> = (0..worth.len()).collect();
    // Of two facts with equal worth, the newer one is kept.
    let rank_by_worth = |a: &usize, b: &usize| worth[*b].total_cmp(&worth[*a]).then(b.cmp(a));
    if most < order.len() {
        order.select_nth_unstable_by(most, rank_by_worth);
        order.truncate(most);
    }
    let mut is_kept = vec![false; worth.len()];
    order.into_iter().for_each(|at| is_kept[at] = true);
    is_kept
}

fn sorted(worth: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..worth.len()).collect();
    order.sort_by(|a, b| worth[*b].total_cmp(&worth[*a]).then(a.cmp(b)));
    order
}

/// Reduces the worth of values with the same name and shape: the hundredth line number of a listing is worth less than
/// the first path of another. Fields of structured results are not reduced.
fn thin_out(ledger: &ValueLedger, worth: &mut [f64]) {
    let mut alike = vec![[0_u32; Shape::COUNT]; ledger.labels.len()];
    for at in sorted(worth) {
        let fact = &ledger.facts[at];
        let is_asked_for = |label: &(usize, u32, bool)| ledger.labels[label.0].used > 0;
        if fact.source >= FactSource::Field
            || is_round(fact)
            || fact.labels.iter().any(is_asked_for)
        {
            continue;
        }
        let before = &mut alike[fact.label()][fact.shape as usize];
        worth[at] /= 1.0 + f64::from(*before) / ENOUGH;
        *before += 1;
    }
}

/// A fact with its current worth per byte.
#[derive(PartialEq)]
struct PricedFact {
    per_byte: f64,
    at: usize,
}

impl Eq for PricedFact {}

impl Ord for PricedFact {
    fn cmp(&self, other: &Self) -> Ordering {
        let worth = self.per_byte.total_cmp(&other.per_byte);
        worth.then(other.at.cmp(&self.at))
    }
}

impl PartialOrd for PricedFact {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Orders facts. The first fact of a name also costs the line, so the others become cheaper: a name offers its best fact
/// with the line, and then the others without it.
fn by_cost(ledger: &ValueLedger, worth: &[f64]) -> Vec<usize> {
    // The facts of each name; the last is offered next.
    let mut waiting = vec![Vec::new(); ledger.labels.len()];
    for (at, fact) in ledger.facts.iter().enumerate() {
        waiting[fact.label()].push(at);
    }
    let mut offers = BinaryHeap::with_capacity(waiting.len());
    for (label, alike) in waiting.iter_mut().enumerate() {
        let line = ledger.labels[label].name.len() as f64 + LINE;
        let with_line = |at: &usize| {
            let bytes = bytes(&ledger.facts[*at]);
            let per_byte = worth[*at] * bytes / (bytes + line);
            PricedFact { per_byte, at: *at }
        };
        if let Some(first) = alike.iter().map(with_line).max() {
            alike.retain(|at| *at != first.at);
            alike.sort_unstable_by(|a, b| worth[*a].total_cmp(&worth[*b]).then(b.cmp(a)));
            offers.push((first, label));
        }
    }
    let mut order = Vec::with_capacity(worth.len());
    while let Some((PricedFact { at, .. }, label)) = offers.pop() {
        order.push(at);
        let next = waiting[label].pop();
        offers.extend(next.map(|at| {
            let per_byte = worth[at];
            (PricedFact { per_byte, at }, label)
        }));
    }
    order
}

fn bytes(fact: &Fact) -> f64 {
    fact.value.len() as f64 + OVERHEAD
}

/// Returns the worth of a fact per byte, without the name of its line.
fn worth(ledger: &ValueLedger, fact: &Fact) -> f64 {
    let worth = if fact.uses > 0 {
        worth_of_used(ledger, fact)
    } else {
        worth_of_seen(ledger, fact)
    };
    fact.source.weight() * worth / bytes(fact)
}

/// Returns the worth of a used value: the likelihood that a later call has it. The odds grow with the uses, and with
/// the share of values of the same name that were used again. They fall with time, fast at first. A limit of time is
/// often used again, a command that builds or tests more often than one that only looks, a line number and the pattern
/// of a search hardly ever.
fn worth_of_used(ledger: &ValueLedger, fact: &Fact) -> f64 {
    NEEDED * likelihood(ledger, fact)
}

/// Returns the likelihood that a later call has a used value.
pub(super) fn likelihood(ledger: &ValueLedger, fact: &Fact) -> f64 {
    let label = &ledger.labels[fact.label()];
    let comes_back = f64::from(label.reused + 1) / f64::from(label.called + 4);
    let role = match ArgumentRole::of(&label.name) {
        ArgumentRole::Limit => LIMIT,
        ArgumentRole::Lines => LINES,
        ArgumentRole::Search => SEARCH,
        ArgumentRole::Command if is_run(&fact.value) => RUN,
        ArgumentRole::Command => COMMAND,
        ArgumentRole::Other => 1.0,
    };
    let (back, age) = age(ledger, fact);
    let odds = USED_ONCE
        * f64::from(fact.uses.min(MOST_USES))
        * (1.0 + back).powf(BY_TURNS)
        * (1.0 - LOST_BY_AGE * age)
        * comes_back.powf(BY_NAME)
        * fact.shape.weight().max(1.0)
        * role;
    odds / (1.0 + odds)
}

fn worth_of_seen(ledger: &ValueLedger, fact: &Fact) -> f64 {
    let labels = fact.labels.iter().map(|(at, ..)| &ledger.labels[*at]);
    let name = labels.map(demand).fold(0.0, f64::max);
    let turns = f64::from(fact.turns.min(MOST_TURNS));
    let (back, age) = age(ledger, fact);
    let freshness = FLOOR + (1.0 - FLOOR) / (1.0 + age / HALF_LIFE);
    let round = if is_round(fact) { ROUND } else { 1.0 };
    let file = match names_file(fact) {
        true => FILE * (1.0 + back).powf(BY_TURNS_OF_FILE),
        false => 1.0,
    };
    let name = name.powf(0.7).min(BEST_NAME);
    fact.shape.weight() * round * file * name * turns * freshness
}

/// Returns how often calls used values of the name, relative to a name without statistics.
fn demand(label: &Label) -> f64 {
    let used = if label.used > 0 { 2.0 } else { 0.0 };
    (2.0 * f64::from(label.taken) + 1.0 + used) * KNOWN_NAME
        / (f64::from(label.values) + KNOWN_NAME)
}

/// True if a fact is the whole path of a file.
fn names_file(fact: &Fact) -> bool {
    let is_whole = fact.value.starts_with(['/', '~']);
    let name = fact.value.rsplit('/').next().unwrap_or_default();
    is_whole && fact.shape == Shape::Path && name.trim_start_matches('.').contains('.')
}

/// True if a fact is a round number that was only seen in a text.
fn is_round(fact: &Fact) -> bool {
    fact.shape == Shape::Number
        && fact.source < FactSource::Field
        && fact.value.ends_with(['0', '5'])
}

/// Returns the age of a fact's last turn: in turns, and as a share of the history.
fn age(ledger: &ValueLedger, fact: &Fact) -> (f64, f64) {
    let newest = ledger.length().saturating_sub(1);
    let back = f64::from(newest - fact.last.min(newest));
    (back, back / f64::from(newest.max(1)))
}
