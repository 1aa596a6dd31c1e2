//! Scores of messages that the index has not taken in, so that they stand among its hits.
//!
//! BM25 as the index has it, but that every message counts as one of average length.

use std::ops::ControlFlow;

use crate::store::index::{IndexFilter, IndexQuery, IndexState, Match};
use crate::store::{StoreRead, StoreResult};

/// A message that was looked through and fits.
pub(super) struct Scanned {
    pub(super) found: Match,
    /// How often each phrase occurs.
    pub(super) counts: Vec<u64>,
}

/// Saturation of BM25: how much the second occurrence of a word adds.
const K1: f64 = 1.2;

/// Adds what was scanned to `matches`, with its scores.
pub(super) fn add_scores(
    read: &dyn StoreRead,
    query: &IndexQuery,
    scanned: Vec<Scanned>,
    state: IndexState,
    is_usable: bool,
    matches: &mut Vec<Match>,
) -> StoreResult<()> {
    if scanned.is_empty() {
        return Ok(());
    }
    let mut weights = Vec::new();
    for (at, phrase) in query.all.iter().flatten().enumerate() {
        let mut holders = scanned.iter().filter(|found| found.counts[at] > 0).count() as u64;
        if is_usable {
            let alone = IndexQuery {
                all: vec![vec![phrase.clone()]],
                none: Vec::new(),
            };
            read.find(&alone, &IndexFilter::default(), &mut |_| {
                holders += 1;
                Ok(ControlFlow::Continue(()))
            })?;
        }
        weights.push(rarity(state.total as f64, holders as f64));
    }
    for Scanned { mut found, counts } in scanned {
        let part = |(weight, count): (&f64, u64)| {
            let count = count as f64;
            weight * count * (K1 + 1.0) / (count + K1)
        };
        found.score = weights.iter().zip(counts).map(part).sum();
        matches.push(found);
    }
    Ok(())
}

/// Returns what a phrase is worth that this many of all messages hold; never nothing, as in FTS5.
fn rarity(all: f64, holders: f64) -> f64 {
    ((all - holders + 0.5) / (holders + 0.5)).ln().max(1e-6)
}
