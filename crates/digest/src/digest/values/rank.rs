//! Which values are worth their bytes.
//!
//! What an agent needs again is mostly what its calls have used, above all what they used more than
//! once; then what the user gave it, and what tools returned under a name whose values calls have
//! taken before. Of these the recent, the repeated, and what names one thing and no other. The
//! figures are round ones; recall hardly changes when one is doubled.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

use super::{Fact, FactSource, Label, Ledger, Shape};

/// Of a value that calls used: uses beyond this many do not count.
const MOST_USES: u32 = 20;
/// Turns beyond this many that a value stood in do not count.
const MOST_TURNS: u32 = 5;
/// So many turns back, the worth of a used value begins to sink.
const RECENT_TURNS: f64 = 10.0;
/// The part of its worth that a used value has lost at the far end of the history.
const LOST_BY_AGE: f64 = 0.5;
/// So many values of a name have to be known before they say more of it than is assumed.
const KNOWN_NAME: f64 = 10.0;
/// How many times more a value may be worth because of its name.
const BEST_NAME: f64 = 20.0;
/// Of the worth of a new value that was only seen, what the oldest still has.
const FLOOR: f64 = 0.25;
/// The share of the history after which what is above the floor has halved.
const HALF_LIFE: f64 = 0.25;
/// Models ask for round places and limits: how many times more a round number in a text is worth.
const ROUND: f64 = 10.0;
/// What each value costs beside its own bytes.
const OVERHEAD: f64 = 10.0;
/// What a line costs beside its values and the name.
const LINE: f64 = 2.0;
/// After this many values of one name and look that no call asks for, the next is worth half.
const ENOUGH: f64 = 12.0;

/// Returns the facts, those of most worth per byte first.
pub(crate) fn rank_by_worth(ledger: &Ledger) -> Vec<usize> {
    let mut worth: Vec<f64> = ledger.facts.iter().map(|f| worth(ledger, f)).collect();
    thin_out(ledger, &mut worth);
    by_cost(ledger, &worth)
}

/// Says of each fact whether it is one of the `most` that are worth most per byte.
pub(crate) fn best(ledger: &Ledger, most: usize) -> Vec<bool> {
    let worth: Vec<f64> = ledger.facts.iter().map(|f| worth(ledger, f)).collect();
    let mut order: Vec<usize> = (0..worth.len()).collect();
    // Of two that are worth the same the newer one stays.
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

/// The hundredth line number of a listing tells less than the first path of another; in structured
/// results each value has its place.
fn thin_out(ledger: &Ledger, worth: &mut [f64]) {
    let mut alike: HashMap<(usize, Shape), u32> = HashMap::new();
    for at in sorted(worth) {
        let fact = &ledger.facts[at];
        let is_asked_for = |label: &(usize, u32, bool)| ledger.labels[label.0].used > 0;
        if fact.source >= FactSource::Field
            || is_round(fact)
            || fact.labels.iter().any(is_asked_for)
        {
            continue;
        }
        let before = alike.entry((fact.label(), fact.shape)).or_default();
        worth[at] /= 1.0 + f64::from(*before) / ENOUGH;
        *before += 1;
    }
}

/// A fact at what its bytes cost now.
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

/// Puts facts in order. The first of a name pays for its line, which makes the others cheaper.
fn by_cost(ledger: &Ledger, worth: &[f64]) -> Vec<usize> {
    let labels: Vec<usize> = ledger.facts.iter().map(Fact::label).collect();
    let mut waiting: HashMap<usize, Vec<usize>> = HashMap::new();
    let mut offers = BinaryHeap::new();
    for (at, fact) in ledger.facts.iter().enumerate() {
        waiting.entry(labels[at]).or_default().push(at);
        let line = ledger.labels[labels[at]].name.len() as f64 + LINE;
        let per_byte = worth[at] * bytes(fact) / (bytes(fact) + line);
        offers.push(PricedFact { per_byte, at });
    }
    let mut is_placed = vec![false; worth.len()];
    let mut order = Vec::with_capacity(worth.len());
    while let Some(PricedFact { at, .. }) = offers.pop() {
        if std::mem::replace(&mut is_placed[at], true) {
            continue;
        }
        order.push(at);
        let alike = waiting.remove(&labels[at]).into_iter().flatten();
        offers.extend(alike.filter(|at| !is_placed[*at]).map(|at| PricedFact {
            per_byte: worth[at],
            at,
        }));
    }
    order
}

fn bytes(fact: &Fact) -> f64 {
    fact.value.len() as f64 + OVERHEAD
}

/// Returns what a fact is worth per byte, the line's name not counted.
fn worth(ledger: &Ledger, fact: &Fact) -> f64 {
    let worth = if fact.uses > 0 {
        worth_of_used(ledger, fact)
    } else {
        worth_of_seen(ledger, fact)
    };
    fact.source.weight() * worth / bytes(fact)
}

/// What was used twice is used again far more often than what was used once.
fn worth_of_used(ledger: &Ledger, fact: &Fact) -> f64 {
    let uses = f64::from(fact.uses.min(MOST_USES));
    let turns = f64::from(fact.turns.min(MOST_TURNS));
    let label = &ledger.labels[fact.label()];
    let comes_back = 4.0 * f64::from(label.reused + 1) / f64::from(label.called + 4);
    let (back, age) = age(ledger, fact);
    let freshness = (1.0 + back / RECENT_TURNS).powf(-0.3) * (1.0 - LOST_BY_AGE * age);
    fact.shape.weight().max(1.0) * uses.powi(2) * turns.powf(0.3) * comes_back.sqrt() * freshness
}

fn worth_of_seen(ledger: &Ledger, fact: &Fact) -> f64 {
    let labels = fact.labels.iter().map(|(at, ..)| &ledger.labels[*at]);
    let name = labels.map(asked_for).fold(0.0, f64::max);
    let turns = f64::from(fact.turns.min(MOST_TURNS));
    let (_, age) = age(ledger, fact);
    let freshness = FLOOR + (1.0 - FLOOR) / (1.0 + age / HALF_LIFE);
    let round = if is_round(fact) { ROUND } else { 1.0 };
    let name = name.powf(0.7).min(BEST_NAME);
    fact.shape.weight() * round * name * turns * freshness
}

/// Returns how often calls took values of that name, against a name of which nothing is known.
fn asked_for(label: &Label) -> f64 {
    let used = if label.used > 0 { 2.0 } else { 0.0 };
    (2.0 * f64::from(label.taken) + 1.0 + used) * KNOWN_NAME
        / (f64::from(label.values) + KNOWN_NAME)
}

/// Whether a fact is a round number in a text that nobody has used or told.
fn is_round(fact: &Fact) -> bool {
    fact.shape == Shape::Number
        && fact.source < FactSource::Field
        && fact.value.ends_with(['0', '5'])
}

/// Returns how long ago a fact stood last: in turns, and as a share of the history.
fn age(ledger: &Ledger, fact: &Fact) -> (f64, f64) {
    let newest = ledger.length().saturating_sub(1);
    let back = f64::from(newest - fact.last.min(newest));
    (back, back / f64::from(newest.max(1)))
}
