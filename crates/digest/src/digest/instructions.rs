//! Recognises standing instructions: sentences of a person that constrain the work after them.
//!
//! An instruction orders, or speaks to the agent. In English a clause of it begins with what constrains (*never*,
//! *always*, *do not*, *make sure*), or says what everything, nobody or *you* must do. So a statement about people or
//! habits (*I've always wanted to*, *Homeowners must ensure*) and a question are none. In other languages a word
//! that constrains is enough, unless a pronoun precedes it in its clause.

mod phrases;

use super::speech::{begins_with_any, clause_ranges, clauses, contains_any};
use crate::words::stems::is_stop_word;
use crate::words::{each_word, words_of};
use phrases::{
    ANYWHERE, MARKS, MARKS_WITHIN, MODALS, NO_MARKS, NOT_AFTER_ADVERB, NOT_AFTER_NEGATION, OPENERS,
    ORDERS, SELVES, SUBJECTS,
};

/// An order with fewer words besides stop words needs the sentences before it to be understood.
const FEW_WORDS: usize = 2;

/// The most words of an introduction that is a title.
const LONGEST_TITLE: usize = 6;

/// Words that only English clauses have. Some marks of other languages are English words too.
const ENGLISH: [&str; 8] = ["and", "for", "my", "of", "the", "this", "with", "your"];

/// Words of an introduction whose items are instructions, folded.
const RULES: [&str; 10] = [
    "always",
    "constraints",
    "conventions",
    "forbidden",
    "guidelines",
    "must",
    "never",
    "prohibited",
    "regeln",
    "rules",
];

/// Verbs after `must` that say how something is to be.
const STATES: [&str; 6] = ["be", "have", "never", "not", "remain", "stay"];

/// Words that refer to an earlier sentence.
const REFERENCES: [&str; 8] = ["both", "it", "so", "that", "them", "these", "this", "those"];

/// True if a sentence constrains the work after it.
pub(super) fn is_instruction(sentence: &str) -> bool {
    let sentence = sentence.trim();
    if sentence.ends_with(['?', '？', '؟']) || sentence.starts_with(['"', '“', '«', '>']) {
        return false;
    }
    if MARKS_WITHIN.iter().any(|mark| sentence.contains(mark)) {
        return true;
    }
    let clauses = clauses(sentence);
    let of_itself = clauses.first().is_some_and(|first| is_about_others(first));
    clauses
        .iter()
        .any(|words| orders(words) || constrains(words))
        || !of_itself && clauses.iter().any(|words| contains_any(words, &ANYWHERE))
}

/// Returns an instruction from its order on: without `Rule one:`, `Oh right, and`, `absolutely`.
pub(super) fn order_in(sentence: &str) -> &str {
    for range in clause_ranges(sentence) {
        let (mut words, mut places) = (Vec::new(), Vec::new());
        each_word(&sentence[range.clone()], &mut |word, place| {
            words.push(word.to_owned());
            places.push(range.start + place.start);
        });
        if let Some(at) = order_at(&words) {
            return &sentence[places[at]..];
        }
    }
    sentence
}

/// True if the items below an introduction are instructions: `House rules:`.
pub(super) fn introduces_rules(lead: &str) -> bool {
    let words = words_of(lead);
    words.len() <= LONGEST_TITLE && words.iter().any(|word| RULES.contains(&word.as_str()))
}

/// True if a sentence is not understood without the sentences before it.
pub(super) fn needs_context(sentence: &str) -> bool {
    let clauses = clauses(sentence);
    let said = |words: &&String| !is_stop_word(words) && !ORDERS.contains(&words.as_str());
    let own = clauses.iter().flatten().filter(said).count();
    let mut words = clauses.iter().flatten();
    own <= FEW_WORDS && words.any(|word| REFERENCES.contains(&word.as_str()))
}

/// True if an English clause begins with an order, or with a subject and what it must do.
fn orders(words: &[String]) -> bool {
    order_at(words).is_some()
}

/// Returns the position of the order in an English clause that begins with one, after words such as `please`.
fn order_at(words: &[String]) -> Option<usize> {
    for at in 0..words.len() {
        let rest = &words[at..];
        if begins_with_any(rest, &ORDERS) {
            return is_order(rest).then_some(at);
        }
        // The verb of the subject is near: `all dates of an order must`.
        let is_due =
            |verb: usize| begins_with_any(&rest[verb..], &MODALS) && !supposes(&rest[verb..]);
        let has_subject = SUBJECTS.contains(&rest[0].as_str());
        if has_subject && (1..rest.len().min(8)).any(is_due) || is_required(rest) {
            return Some(at);
        }
        if !OPENERS.contains(&rest[0].as_str()) && !rest[0].ends_with("ly") {
            return None;
        }
    }
    None
}

/// True if what follows the beginning of an order completes it.
fn is_order(words: &[String]) -> bool {
    match words[0].as_str() {
        "stop" => words.get(1).is_some_and(|verb| verb.ends_with("ing")),
        "always" | "never" => {
            let verb = &words[1..];
            !verb.is_empty() && !begins_with_any(verb, &NOT_AFTER_ADVERB) && !is_told(verb)
        }
        "do" | "don" => !begins_with_any(words.get(2..).unwrap_or_default(), &NOT_AFTER_NEGATION),
        _ => true,
    }
}

/// True if a verb tells of what was or is done: `never wanted`, `always singing`.
fn is_told(words: &[String]) -> bool {
    words.first().is_some_and(|verb| {
        (verb.len() > 4 && verb.ends_with("ed")) || (verb.len() > 5 && verb.ends_with("ing"))
    })
}

/// True if a clause says how things without an article must be: `prices must be in euro`. What they must do is told of
/// others, and `the cause must be the cache` supposes.
fn is_required(words: &[String]) -> bool {
    let Some(modal @ 1..=2) = words.iter().position(|word| word == "must") else {
        return false;
    };
    let is_state = words
        .get(modal + 1)
        .is_some_and(|verb| STATES.contains(&verb.as_str()));
    let is_bare = words[..modal].iter().all(|word| !is_stop_word(word))
        && words[modal - 1].ends_with('s')
        && !SELVES.contains(&words[0].as_str());
    is_state && is_bare && !supposes(&words[modal..])
}

/// True if a modal and its verb suppose something: `must have been`, `you must be so glad`.
fn supposes(words: &[String]) -> bool {
    let verb = words.get(1).map_or("", String::as_str);
    match verb {
        "ve" | "feel" => true,
        "have" => words.get(2).is_some_and(|verb| {
            verb == "been" || verb == "had" || verb.ends_with("ed") || verb.ends_with("en")
        }),
        "be" => words
            .get(2)
            .is_some_and(|how| matches!(how.as_str(), "so" | "very" | "really" | "such")),
        _ => false,
    }
}

/// True if a clause begins with a person or thing that is no addressee.
fn is_about_others(words: &[String]) -> bool {
    words
        .first()
        .is_some_and(|first| SELVES.contains(&first.as_str()))
}

/// True if a clause has a word that constrains, in a language other than English, and no pronoun before it.
fn constrains(words: &[String]) -> bool {
    if words.iter().any(|word| ENGLISH.contains(&word.as_str())) {
        return false;
    }
    (0..words.len()).any(|at| {
        let says_else = begins_with_any(&words[at..], &NO_MARKS);
        let is_told_of = words[..at]
            .iter()
            .any(|word| SELVES.contains(&word.as_str()));
        !says_else && !is_told_of && begins_with_any(&words[at..], &MARKS)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_that_constrain_are_found_in_several_languages() {
        for text in [
            "Never push to main.",
            "please don't touch the schema",
            "All dates must be in UTC.",
            "Prices must be in euro.",
            "Commit messages must never name a customer.",
            "All endpoints must have authentication.",
            "Always have two approvals.",
            "From now on use window seats.",
            "Use window seats from now on.",
            "Absolutely never store passwords in plaintext.",
            "Rule two: never lift at the quay.",
            "Oh right — key rule: never sail on Fridays.",
            "Under no circumstances should anyone here sail on Fridays.",
            "So — let's not do that this time.",
            "You must ask before each booking.",
            "If the tests fail, do not commit.",
            "Keep the API as it is, and never round an amount.",
            "Make sure the ferry has a seat left.",
            "Only use the night ferry.",
            "Stop guessing!",
            "Bitte niemals auf main pushen.",
            "Ne jamais supprimer de fichiers.",
            "Nunca borres la tabla.",
            "Никогда не удаляй файлы.",
            "不要修改数据库。",
            "テストは必ず実行してください。",
        ] {
            assert!(is_instruction(text), "{text}");
        }
    }

    #[test]
    fn what_is_asked_or_told_is_none() {
        for text in [
            "Why must it be so?",
            "I don't know.",
            "I never saw it.",
            "I've always wanted to climb it.",
            "Always wanted to see the sea.",
            "Never mind.",
            "You must be so glad about it!",
            "Must have been a hard trip.",
            "All of it must feel new.",
            "Don't give up on your dreams!",
            "Always happy to help.",
            "I won't quit, no matter what.",
            "Don't worry about it.",
            "Homeowners must ensure that the roof holds.",
            "The cause must be the cache.",
            "The settings must be wrong.",
            "Guests must have been late.",
            "The tide tables don't match.",
            "My brother always takes the ferry.",
            "We always sail at noon.",
            "\"Never sail on Fridays\", he said.",
            "Das verstehe ich immer noch nicht.",
            "The build must have been broken before.",
            "It only fails on Mondays.",
            "Add a test.",
            "",
            "Мы всегда так делали.",
        ] {
            assert!(!is_instruction(text), "{text}");
        }
    }

    #[test]
    fn an_order_that_refers_to_what_was_said_needs_it() {
        for text in [
            "So — let's not do that this time.",
            "Never do it.",
            "Always ask for this.",
        ] {
            assert!(needs_context(text), "{text}");
        }
        for text in [
            "Never push to main.",
            "Do not charge card 9911 for that trip.",
        ] {
            assert!(!needs_context(text), "{text}");
        }
    }

    #[test]
    fn an_order_begins_after_its_opening_words() {
        assert_eq!(
            order_in("Rule two: never lift at the quay."),
            "never lift at the quay."
        );
        assert_eq!(order_in("Absolutely never sail."), "never sail.");
        assert_eq!(
            order_in("Oh right — key rule: do not sail."),
            "do not sail."
        );
        assert_eq!(order_in("Nunca borres la tabla."), "Nunca borres la tabla.");
    }

    #[test]
    fn a_title_of_rules_makes_rules_of_its_items() {
        assert!(introduces_rules("House rules") && introduces_rules("You must"));
        assert!(!introduces_rules(
            "Rules that the harbour had before the war and has not any more"
        ));
        assert!(!introduces_rules("Steps"));
    }

    #[test]
    fn phrases_are_in_order_and_folded() {
        let lists: [&[&str]; 9] = [
            &ORDERS,
            &ANYWHERE,
            &OPENERS,
            &NOT_AFTER_ADVERB,
            &NOT_AFTER_NEGATION,
            &SUBJECTS,
            &MODALS,
            &MARKS,
            &SELVES,
        ];
        for list in lists {
            assert!(list.is_sorted(), "for the search: {list:?}");
            for phrase in list {
                assert_eq!(words_of(phrase).join(" "), **phrase);
            }
        }
    }
}
