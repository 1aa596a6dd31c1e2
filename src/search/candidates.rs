//! The messages that a search reads: the index narrows a question down to some.
//!
//! Rare words choose, common ones only count. All messages that hold a rare word are taken; where these
//! are few, those that hold as many as possible of the common words.

use std::collections::HashMap;
use std::ops::ControlFlow;

use super::query::Query;
use crate::store::index::{IndexFilter, IndexQuery, Match, Phrase};
use crate::store::{LoopKey, StoreRead, StoreResult};

/// A word that more messages hold is common.
const RARE: u64 = 8192;

/// Messages that are taken for their rare words, all words together.
const MOST_OF_RARE: u64 = 32_768;

/// The number of messages after which the search for candidates ends.
const ENOUGH: usize = 200;

/// Messages that are taken for some common words together.
const MOST_OF_COMMON: u32 = 2000;

/// The number of messages that are taken for one common word, or for the required phrases: about the newest.
const MOST: u32 = 10_000;

/// Further messages that hold a word are not counted.
const MOST_COUNTED: u32 = 1 << 16;

/// Terms by their place in a query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TermSet(Vec<u16>);

impl TermSet {
    pub(super) fn insert(&mut self, term: usize) {
        let term = u16::try_from(term).unwrap_or(u16::MAX);
        if !self.0.contains(&term) {
            self.0.push(term);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().map(|term| usize::from(*term))
    }
}

/// A message that may answer.
#[derive(Clone, Debug)]
pub(super) struct SearchCandidate {
    pub(super) found: Match,
    /// Terms that it is known to hold; it may hold more.
    pub(super) held: TermSet,
}

/// The messages that may answer, each once.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    by_place: HashMap<(LoopKey, u32), SearchCandidate>,
}

impl Candidates {
    pub(super) fn add(&mut self, found: Match, terms: &[usize]) {
        let place = (found.loop_key, found.seq);
        let new = || SearchCandidate {
            found,
            held: TermSet::default(),
        };
        let candidate = self.by_place.entry(place).or_insert_with(new);
        terms.iter().for_each(|term| candidate.held.insert(*term));
    }

    pub(super) fn into_vec(self) -> Vec<SearchCandidate> {
        self.by_place.into_values().collect()
    }
}

/// Counts how many messages of the index hold each term.
pub(super) fn holders(read: &dyn StoreRead, query: &Query) -> StoreResult<Vec<u64>> {
    let count = |phrase: &Phrase| read.holders(phrase, MOST_COUNTED).map(u64::from);
    query.terms.iter().map(|term| count(&term.phrase)).collect()
}

/// Queries the index for the messages that may answer.
pub(super) fn gather(
    read: &dyn StoreRead,
    query: &Query,
    filter: &IndexFilter,
    holders: &[u64],
    to: &mut Candidates,
) -> StoreResult<()> {
    let mut narrowing = Narrowing {
        read,
        query,
        filter,
        to,
    };
    let is_required = |term: &usize| query.all.iter().flatten().any(|side| side == term);
    let mut plain: Vec<usize> = (0..query.terms.len())
        .filter(|term| !is_required(term))
        .collect();
    if plain.is_empty() {
        return narrowing.take(&[], MOST);
    }
    plain.retain(|term| holders[*term] > 0);
    plain.sort_by_key(|term| holders[*term]);
    let mut taken = 0;
    let is_rare = |term: &&usize| {
        taken += holders[**term];
        holders[**term] <= RARE && taken <= MOST_OF_RARE
    };
    let rare = plain.iter().take_while(is_rare).count();
    let (rare, common) = plain.split_at(rare);
    for term in rare {
        narrowing.take(&[*term], u32::MAX)?;
    }
    for count in steps(common.len()) {
        if narrowing.to.by_place.len() >= ENOUGH {
            return Ok(());
        }
        let most = if count == 1 { MOST } else { MOST_OF_COMMON };
        narrowing.take(&common[..count], most)?;
    }
    // The words of the question only rank what fits the rest.
    if !query.all.is_empty() && narrowing.to.by_place.len() < ENOUGH {
        narrowing.take(&[], MOST_OF_COMMON)?;
    }
    Ok(())
}

/// Returns the numbers of common words that are queried together: all, then ever fewer. Each step costs as much as
/// the postings of the rarest word, so they are few.
fn steps(words: usize) -> impl Iterator<Item = usize> {
    let first = Some(words).filter(|words| *words > 0);
    std::iter::successors(first, |words| Some(words / 2).filter(|fewer| *fewer > 0))
}

struct Narrowing<'a> {
    read: &'a dyn StoreRead,
    query: &'a Query,
    filter: &'a IndexFilter,
    to: &'a mut Candidates,
}

impl Narrowing<'_> {
    /// Takes the newest `most` messages that contain the required phrases and all of `terms`.
    fn take(&mut self, terms: &[usize], most: u32) -> StoreResult<()> {
        let phrase = |term: &usize| self.query.terms[*term].phrase.clone();
        let sides = |sides: &Vec<usize>| sides.iter().map(phrase).collect();
        let mut all: Vec<Vec<Phrase>> = self.query.all.iter().map(sides).collect();
        all.extend(terms.iter().map(|term| vec![phrase(term)]));
        // Exclusions are checked on the text: the index also contains stems, of other words.
        self.read
            .find(&IndexQuery { all }, self.filter, most, &mut |found| {
                self.to.add(found, terms);
                Ok(ControlFlow::Continue(()))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_words_are_asked_for_together_first() {
        let steps = |words| steps(words).collect::<Vec<usize>>();
        assert!(steps(0).is_empty());
        assert_eq!(steps(3), [3, 1]);
        assert_eq!(steps(100), [100, 50, 25, 12, 6, 3, 1]);
    }
}
