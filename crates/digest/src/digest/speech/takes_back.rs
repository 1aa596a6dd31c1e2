//! Statements that replace an earlier plan, decision or value.

use super::{begins_with_any, clauses, contains_any};

/// Phrases by which a person takes back what was said before, folded and sorted.
const PHRASES: [&str; 65] = [
    "are off the table",
    "au lieu de",
    "change my mind",
    "change of plan",
    "change of plans",
    "changed my mind",
    "disregard",
    "doch nicht",
    "en lugar de",
    "en vez de",
    "final answer",
    "finalement",
    "forget about",
    "forget everything",
    "forget it",
    "forget that",
    "forget the",
    "forget what",
    "full pivot",
    "full reset",
    "i meant",
    "i misspoke",
    "i take back",
    "i take it back",
    "i take that back",
    "i was wrong",
    "ignore all",
    "ignore everything",
    "ignore my",
    "ignore that",
    "ignore the earlier",
    "ignore the first",
    "ignore the last",
    "ignore the previous",
    "ignore what",
    "instead of",
    "is off the table",
    "let me rephrase",
    "let me revise",
    "let s instead",
    "lieber doch",
    "make that",
    "mejor no",
    "never mind",
    "nevermind",
    "new plan",
    "no longer",
    "not anymore",
    "olvida",
    "on second thought",
    "on second thoughts",
    "oublie",
    "plutot que",
    "rather than",
    "scratch all",
    "scratch it",
    "scratch that",
    "scratch the",
    "scratch this",
    "start over",
    "stattdessen",
    "switch back",
    "that was wrong",
    "total reset",
    "vergiss das",
];

/// Words with which a clause begins that corrects, if more than a few words follow.
const BEGINNINGS: [&str; 7] = [
    "actually",
    "correction",
    "eigentlich",
    "en fait",
    "en realidad",
    "no wait",
    "wait no",
];

/// The words that stand between a new value and the one that it replaces.
const REPLACED: [&str; 5] = ["instead of", "no longer", "not", "rather than", "statt"];

/// A clause that corrects has at least so many words.
const CORRECTION: usize = 3;

/// True if a sentence of a person replaces something that was said before.
pub(in super::super) fn takes_back(sentence: &str) -> bool {
    if sentence.trim_end().ends_with(['?', '？', '؟']) {
        return false;
    }
    let clauses = clauses(sentence);
    let words: usize = clauses.iter().map(Vec::len).sum();
    let corrects = |clause: &Vec<String>| begins_with_any(clause, &BEGINNINGS);
    clauses.iter().any(|clause| contains_any(clause, &PHRASES))
        || (clauses.iter().any(corrects) && words > CORRECTION)
        // `Use the other one instead.`
        || clauses.iter().any(|clause| clause.len() > 1 && clause.last().is_some_and(|last| last == "instead"))
}

/// Calls `each` with the words that directly follow `not`, `instead of` and the like in a sentence: values that do
/// not hold any more.
pub(in super::super) fn replaced_values<'a>(sentence: &'a str, each: &mut dyn FnMut(&'a str)) {
    let lower = sentence.to_ascii_lowercase();
    for phrase in REPLACED {
        for (at, _) in lower.match_indices(phrase) {
            let end = at + phrase.len();
            let is_word =
                !lower[..at].ends_with(char::is_alphanumeric) && lower[end..].starts_with(' ');
            if is_word && let Some(value) = sentence[end..].split_whitespace().next() {
                each(value.trim_matches(|c: char| {
                    c.is_ascii_punctuation() && !matches!(c, '/' | '@' | '_' | '~')
                }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_something_back_is_found() {
        for text in [
            "Actually, I need 120, not 300.",
            "Scratch that.",
            "Wait — scratch all of this.",
            "Use the night ferry instead.",
            "The old pier is off the table.",
            "I changed my mind about the quay.",
            "Ignore everything we've said so far.",
            "Total reset.",
            "Vergiss das, wir nehmen die Bahn.",
        ] {
            assert!(takes_back(text), "{text}");
        }
        for text in [
            "I'm actually fond of ferries.",
            "Should I use the night ferry instead?",
            "The plan is new.",
            "Actually fine.",
            "",
        ] {
            assert!(!takes_back(text), "{text}");
        }
    }

    #[test]
    fn a_replaced_value_follows_what_it_is_not() {
        let replaced = |text| {
            let mut found = Vec::new();
            replaced_values(text, &mut |value| found.push(value));
            found
        };
        assert_eq!(replaced("I need 120, not 300."), ["300"]);
        assert_eq!(replaced("Use `KX-2041` instead of `KX-2040`."), ["KX-2040"]);
        assert_eq!(replaced("It is nothing, knots 300."), Vec::<&str>::new());
    }

    #[test]
    fn phrases_are_in_order_and_folded() {
        let lists: [&[&str]; 2] = [&PHRASES, &BEGINNINGS];
        for list in lists {
            assert!(list.is_sorted(), "for the search: {list:?}");
            for phrase in list {
                assert_eq!(crate::words::words_of(phrase).join(" "), **phrase);
            }
        }
    }
}
