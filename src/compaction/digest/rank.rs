//! Which values are worth their bytes.
//!
//! What an agent needs again is mostly what it has used, what the user gave it, and what tools
//! returned under a name that calls use; of these the recent, the repeated, and what names one
//! thing and no other. The figures are round ones; recall hardly changes when one is doubled.

use super::fact::{Fact, Ledger};

/// Of the worth of a new value, what the oldest still has.
const FLOOR: f64 = 0.25;
/// The share of the history after which what is above the floor has halved.
const HALF_LIFE: f64 = 0.25;
/// A result's value under a name that calls use is worth this many times more.
const CALLED_SO: f64 = 3.0;
/// Turns beyond this many that a value stood in do not count.
const MOST_TURNS: u32 = 5;
/// A name that has more values than this tells little about each.
const CROWDED: u32 = 40;
/// What each value costs beside its own bytes.
const OVERHEAD: f64 = 10.0;

/// Returns the facts, those of most worth per byte first.
pub(super) fn by_worth(ledger: &Ledger) -> Vec<usize> {
    let worth: Vec<f64> = ledger.facts.iter().map(|f| worth(ledger, f)).collect();
    let mut order: Vec<usize> = (0..worth.len()).collect();
    order.sort_by(|a, b| worth[*b].total_cmp(&worth[*a]).then(a.cmp(b)));
    order
}

fn worth(ledger: &Ledger, fact: &Fact) -> f64 {
    let used = fact.labels.iter().any(|label| label.2);
    let labels = || fact.labels.iter().map(|(at, ..)| &ledger.labels[*at]);
    let mut worth = fact.source.weight();
    if used {
        worth *= fact.shape.weight().max(0.5);
    } else {
        worth *= fact.shape.weight();
        if labels().any(|label| label.used > 0) {
            worth *= CALLED_SO;
        } else if labels().all(|label| label.values > CROWDED) {
            worth *= 0.5;
        }
    }
    worth *= f64::from(fact.turns.min(MOST_TURNS));
    worth *= freshness(ledger, fact);
    worth / (fact.value.len() as f64 + OVERHEAD)
}

fn freshness(ledger: &Ledger, fact: &Fact) -> f64 {
    let newest = ledger.length().saturating_sub(1);
    let age = f64::from(newest - fact.last.min(newest)) / f64::from(newest.max(1));
    FLOOR + (1.0 - FLOOR) / (1.0 + age / HALF_LIFE)
}
