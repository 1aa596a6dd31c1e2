//! Kinds of sentences that people and agents say to each other, by the words that they begin with.
//!
//! A document has room for few sentences. [`Substance`] says which ones carry nothing that a later reader needs;
//! [`takes_back`] finds statements that replace an earlier plan or value.

mod substance;
mod takes_back;

pub(super) use substance::{Substance, substance};
pub(super) use takes_back::{replaced_values, takes_back};

use std::ops::Range;

use crate::words::words_of;

/// Splits a sentence into clauses of folded words: at punctuation that a space follows, and at dashes.
pub(super) fn clauses(sentence: &str) -> Vec<Vec<String>> {
    let words = clause_ranges(sentence)
        .into_iter()
        .map(|range| words_of(&sentence[range]));
    words.filter(|words| !words.is_empty()).collect()
}

/// Returns the places of the clauses of a sentence.
pub(super) fn clause_ranges(sentence: &str) -> Vec<Range<usize>> {
    let mut clauses = Vec::new();
    let (mut from, mut rest) = (0, sentence.char_indices().peekable());
    while let Some((at, c)) = rest.next() {
        let before_space = rest.peek().is_none_or(|(_, next)| next.is_whitespace());
        let parts = match c {
            '—' | '–' | '(' | ')' | '，' | '；' | '：' | '、' => true,
            ',' | ';' | ':' | '.' | '!' | '?' | '…' => before_space,
            '-' => before_space && sentence[..at].ends_with(char::is_whitespace),
            _ => false,
        };
        if parts {
            clauses.push(from..at);
            from = at + c.len_utf8();
        }
    }
    clauses.push(from..sentence.len());
    clauses
}

/// True if the words begin with a phrase of words.
fn begins_with(words: &[String], phrase: &str) -> bool {
    let mut rest = words.iter();
    phrase
        .split(' ')
        .all(|word| rest.next().is_some_and(|next| next == word))
}

/// True if the words begin with one of sorted phrases. Phrases with the same first word are adjacent.
pub(super) fn begins_with_any(words: &[String], phrases: &[&str]) -> bool {
    let Some(first) = words.first() else {
        return false;
    };
    let from = phrases.partition_point(|phrase| *phrase < first.as_str());
    let alike = phrases[from..]
        .iter()
        .take_while(|phrase| phrase.starts_with(first.as_str()));
    alike.into_iter().any(|phrase| begins_with(words, phrase))
}

/// True if the words contain one of sorted phrases.
pub(super) fn contains_any(words: &[String], phrases: &[&str]) -> bool {
    (0..words.len()).any(|at| begins_with_any(&words[at..], phrases))
}
