//! Known secrets, and their occurrences in texts in which no rule finds them.
//!
//! A secret may be added at any time, in time linear in its length: there is no automaton to rebuild. An occurrence is
//! found by its first characters, then by the lengths of the secrets with these characters.

use std::collections::HashMap;
use std::ops::Range;

use super::policy::Confidence;

/// The length of the shortest secret that is searched for, in characters.
pub(super) const MIN_KNOWN: usize = 6;

/// The number of bits of the filter, which rules out most positions of a text.
const SIEVE_BITS: u32 = 18;

/// A known secret.
#[derive(Clone, Debug)]
pub(super) struct KnownSecret {
    pub(super) rule: usize,
    pub(super) id: String,
    pub(super) confidence: Confidence,
    /// True if an occurrence next to a letter or digit does not count.
    pub(super) is_word: bool,
}

/// The known secrets.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownSecrets {
    by_text: HashMap<String, KnownSecret>,
    /// The lengths of the secrets with these first characters, the longest first.
    lengths: HashMap<[u8; MIN_KNOWN], Vec<usize>>,
    sieve: Vec<u64>,
}

impl KnownSecrets {
    /// Adds a secret, unless it is known.
    pub(super) fn insert(&mut self, text: &str, secret: KnownSecret) {
        let Some(first) = text.as_bytes().first_chunk::<MIN_KNOWN>() else {
            return;
        };
        if self.by_text.contains_key(text) {
            return;
        }
        let lengths = self.lengths.entry(*first).or_default();
        if let Err(at) = lengths.binary_search_by(|length| text.len().cmp(length)) {
            lengths.insert(at, text.len());
        }
        let (word, bit) = sieve_place(first);
        self.sieve.resize(1 << (SIEVE_BITS - 6), 0);
        self.sieve[word] |= bit;
        self.by_text.insert(text.to_owned(), secret);
    }

    /// Returns the occurrences of secrets in a text; of several at one position the longest.
    pub(super) fn find<'a>(&'a self, text: &str) -> Vec<(Range<usize>, &'a KnownSecret)> {
        let mut found = Vec::new();
        if self.by_text.is_empty() {
            return found;
        }
        let bytes = text.as_bytes();
        let mut at = 0;
        while let Some(first) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
            match self.at(text, at, first) {
                Some((end, secret)) => {
                    found.push((at..end, secret));
                    at = end;
                }
                None => at += 1,
            }
        }
        found
    }

    fn at(&self, text: &str, at: usize, first: &[u8; MIN_KNOWN]) -> Option<(usize, &KnownSecret)> {
        let (word, bit) = sieve_place(first);
        if self.sieve.get(word).is_none_or(|bits| bits & bit == 0) {
            return None;
        }
        self.lengths.get(first)?.iter().find_map(|length| {
            let end = at + length;
            let secret = self.by_text.get(text.get(at..end)?)?;
            (!secret.is_word || is_apart(text, at..end)).then_some((end, secret))
        })
    }
}

/// True if no letter or digit is next to a range of a text.
fn is_apart(text: &str, range: Range<usize>) -> bool {
    let before = text[..range.start].chars().next_back();
    let after = text[range.end..].chars().next();
    !before.into_iter().chain(after).any(char::is_alphanumeric)
}

fn sieve_place(first: &[u8; MIN_KNOWN]) -> (usize, u64) {
    let [a, b, c, d, e, f] = *first;
    let value = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
    let at = value.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - SIEVE_BITS);
    ((at >> 6) as usize, 1 << (at & 63))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(texts: &[&str], is_word: bool) -> KnownSecrets {
        let mut known = KnownSecrets::default();
        for (rule, text) in texts.iter().enumerate() {
            let id = String::new();
            let secret = KnownSecret {
                rule,
                id,
                confidence: Confidence::Medium,
                is_word,
            };
            known.insert(text, secret);
        }
        known
    }

    fn found(known: &KnownSecrets, text: &str) -> Vec<(Range<usize>, usize)> {
        let found = known.find(text).into_iter();
        found.map(|(range, secret)| (range, secret.rule)).collect()
    }

    #[test]
    fn the_longest_of_several_is_found() {
        let known = known(
            &["hunter2", "hunter2-long", "hunter2-longer", "short"],
            false,
        );
        assert_eq!(found(&known, "é hunter2-longe"), [(3..15, 1)]);
        assert_eq!(
            found(&known, "hunter2hunter2-longer"),
            [(0..7, 0), (7..21, 2)]
        );
        assert_eq!(found(&known, "short hunte"), []);
    }

    #[test]
    fn a_secret_that_is_a_word_is_no_part_of_another() {
        let known = known(&["QuietRiver"], true);
        assert_eq!(found(&known, "QuietRivers, QuietRiver."), [(13..23, 0)]);
    }
}
