//! Messages with nearly the same text.
//!
//! A file that is read ten times, or a system text that is in each session, is one hit: the other messages
//! are in its `also`.

use std::collections::BTreeSet;
use std::hash::BuildHasher as _;

use super::text::MessageText;
use crate::words::each_word;

/// Share of words that two messages have in common at least (Jaccard's index of their sets of words).
const ALIKE: f64 = 0.9;

/// The number of words that are compared: two long messages with the same beginning count as alike.
const MOST_WORDS: usize = 20_000;

/// The different words of a message, by hash.
#[derive(Debug)]
pub(super) struct WordSet(Vec<u64>);

impl WordSet {
    pub(super) fn of(message_text: &MessageText) -> Self {
        let hasher = foldhash::fast::FixedState::with_seed(0);
        let (mut words, mut seen) = (BTreeSet::new(), 0);
        for piece in &message_text.pieces {
            each_word(&piece.text, &mut |word, _| {
                seen += 1;
                if seen <= MOST_WORDS {
                    words.insert(hasher.hash_one(word));
                }
            });
        }
        Self(words.into_iter().collect())
    }

    /// True if two messages have nearly the same words.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let (few, many) = match self.0.len() <= other.0.len() {
            true => (&self.0, &other.0),
            false => (&other.0, &self.0),
        };
        if (few.len() as f64) < ALIKE * many.len() as f64 {
            return false;
        }
        let both = few.iter().filter(|word| many.binary_search(word).is_ok());
        let both = both.count();
        both as f64 >= ALIKE * (few.len() + many.len() - both) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::super::text::{TextField, TextPiece};
    use super::*;

    fn set(text: &str) -> WordSet {
        let pieces = vec![TextPiece {
            field: TextField::Output,
            text: text.to_owned(),
        }];
        let tools = Vec::new();
        WordSet::of(&MessageText { pieces, tools })
    }

    #[test]
    fn what_differs_in_few_of_many_words_is_alike() {
        let numbers = |from: u32, to: u32| {
            let numbers: Vec<String> = (from..to).map(|number| number.to_string()).collect();
            numbers.join(" ")
        };
        let file = set(&numbers(0, 100));
        assert!(file.is_like(&set(&numbers(2, 101))));
        assert!(!file.is_like(&set(&numbers(0, 80))));
        assert!(!file.is_like(&set(&numbers(10, 110))));
        assert!(set("yes").is_like(&set("Yes!")));
        assert!(!set("look at the kite 1").is_like(&set("look at the kite 2")));
    }
}
