//! Sentences that carry nothing: acknowledgements, offers, announcements of the next step.

use super::{begins_with_any, clauses, contains_any};
use crate::words::stems::is_stop_word;

/// The substance of a sentence for a reader who was not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Substance {
    /// Nothing: an acknowledgement, a greeting, an offer.
    Empty,
    /// A step that the speaker takes next, which is past when the document is read.
    Announcement,
    /// A remark that its speaker marks as an aside.
    Aside,
    /// A reaction to the words before it, without a number or a name.
    Reaction,
    /// A question.
    Question,
    /// Anything else.
    Statement,
}

/// The most words besides stop words that an acknowledgement may have.
const FEW_WORDS: usize = 1;

/// Beginnings of a clause that only answers the words before it, folded and sorted.
const ACKNOWLEDGED: [&str; 97] = [
    "absolutely",
    "acknowledged",
    "agreed",
    "ah",
    "all ears",
    "all right",
    "alright",
    "amazing",
    "awesome",
    "bien sur",
    "brilliant",
    "certainly",
    "congratulations",
    "cool",
    "correct",
    "d accord",
    "danke",
    "de acuerdo",
    "definitely",
    "entendido",
    "exactly",
    "excellent",
    "fair enough",
    "fair point",
    "fantastic",
    "fine",
    "genau",
    "gerne",
    "glad",
    "go ahead",
    "good",
    "good to hear",
    "got it",
    "gotcha",
    "gracias",
    "great",
    "gut",
    "haha",
    "happy to",
    "hello",
    "hey",
    "hi",
    "hola",
    "i agree",
    "i appreciate",
    "i hear you",
    "i see",
    "i understand",
    "in ordnung",
    "indeed",
    "interesting",
    "klar",
    "let s go",
    "locked in",
    "lol",
    "love it",
    "makes sense",
    "me too",
    "merci",
    "nice",
    "no problem",
    "no worries",
    "noted",
    "of course",
    "oh",
    "ok",
    "okay",
    "parfait",
    "perfect",
    "perfekt",
    "please do",
    "right",
    "roger",
    "same here",
    "sehr gut",
    "sorry",
    "sounds good",
    "sounds great",
    "super",
    "sure",
    "take care",
    "thank you",
    "thanks",
    "that makes sense",
    "that works",
    "understood",
    "vale",
    "verstanden",
    "well done",
    "wonderful",
    "wow",
    "yeah",
    "yep",
    "yes",
    "you re absolutely right",
    "you re right",
    "you re welcome",
];

/// Phrases of an offer or a courtesy of the agent, folded and sorted.
const OFFERS: [&str; 48] = [
    "any other questions",
    "anything else",
    "anything more",
    "at your service",
    "do you need",
    "do you want",
    "don t hesitate",
    "enjoy your",
    "feel free",
    "good luck",
    "happy to",
    "have a good",
    "have a great",
    "have a nice",
    "here to help",
    "hope that helps",
    "hope this helps",
    "how can i",
    "how does that sound",
    "how may i",
    "i can help",
    "i d be happy",
    "i m here",
    "if you d like",
    "if you have any",
    "if you want me",
    "if you would like",
    "is there anything",
    "let me know",
    "looking forward",
    "melde dich",
    "n hesite pas",
    "no response needed",
    "no response requested",
    "no response required",
    "ready to continue",
    "ready to proceed",
    "ready when you",
    "shall i",
    "shall we",
    "should i proceed",
    "should we continue",
    "take your time",
    "want me to",
    "what would you like",
    "would you like",
    "would you prefer",
    "you want me to",
];

/// Beginnings of the announcement of a next step, folded and sorted. Words such as `now` may stand before them.
const ANNOUNCED: [&str; 40] = [
    "checking",
    "continuing",
    "exploring",
    "going to",
    "i am going to",
    "i can now",
    "i ll",
    "i m going to",
    "i m now",
    "i need to",
    "i now",
    "i should",
    "i still need to",
    "i want to",
    "i will",
    "ich schaue",
    "ich werde",
    "je vais",
    "let me",
    "let s",
    "let us",
    "looking at",
    "moving on",
    "next step",
    "next up",
    "on to",
    "proceeding",
    "reading",
    "running",
    "searching",
    "starting",
    "time to",
    "to do that",
    "to do this",
    "vamos a",
    "voy a",
    "wait for",
    "waiting for",
    "we need to",
    "we should",
];

/// Words that may stand before an announcement.
const BEFORE: [&str; 28] = [
    "actually",
    "again",
    "alright",
    "also",
    "and",
    "before that",
    "but",
    "excellent",
    "finally",
    "first",
    "good",
    "great",
    "here",
    "hmm",
    "jetzt",
    "lastly",
    "meanwhile",
    "next",
    "now",
    "ok",
    "okay",
    "perfect",
    "right",
    "second",
    "so",
    "then",
    "third",
    "well",
];

/// Beginnings of an aside that its speaker marks as one, folded and sorted.
const ASIDES: [&str; 13] = [
    "fun fact",
    "just curious",
    "off topic",
    "quick aside",
    "quick tangent",
    "random",
    "random question",
    "random thought",
    "side note",
    "tangent",
    "unrelated",
    "unrelated question",
    "unrelatedly",
];

/// Beginnings of a sentence by which a person reacts to the words before it, folded and sorted.
const REACTIONS: [&str; 74] = [
    "i agree",
    "i appreciate",
    "i can see",
    "i can t wait",
    "i didn t know",
    "i didn t realize",
    "i didn t think",
    "i do like",
    "i hadn t",
    "i hope",
    "i hope so",
    "i like how",
    "i like that",
    "i like the",
    "i like your",
    "i ll check",
    "i ll consider",
    "i ll definitely",
    "i ll give",
    "i ll have to",
    "i ll keep",
    "i ll look",
    "i ll make sure",
    "i ll try",
    "i love that",
    "i love the",
    "i love your",
    "i m excited",
    "i m glad",
    "i m going to try",
    "i m looking forward",
    "i m sure",
    "i never thought",
    "i think i ll",
    "i think that s",
    "i think those",
    "i think you re",
    "i will definitely",
    "i will try",
    "it s amazing",
    "it s fascinating",
    "it s good to",
    "it s great",
    "it s interesting",
    "it s nice",
    "it s really",
    "it sounds",
    "sounds like",
    "that s a good",
    "that s a great",
    "that s amazing",
    "that s awesome",
    "that s good",
    "that s great",
    "that s helpful",
    "that s interesting",
    "that s really",
    "that sounds",
    "that would be",
    "these are all",
    "these are great",
    "these are really",
    "they all sound",
    "they sound",
    "this is great",
    "this is helpful",
    "this is really",
    "those are all",
    "those are great",
    "those are really",
    "those sound",
    "wow",
    "you make a good",
    "you re right",
];

/// Returns the substance of a sentence. `is_agent`: the agent says it, so an offer or a next step is its own.
pub(in super::super) fn substance(sentence: &str, is_agent: bool) -> Substance {
    let clauses = clauses(sentence);
    let is_question = sentence.trim_end().ends_with(['?', '？', '؟']);
    let Some(first) = clauses.first() else {
        return Substance::Empty;
    };
    if is_acknowledgement(sentence, &clauses) {
        return Substance::Empty;
    }
    if is_agent {
        if clauses.iter().any(|words| contains_any(words, &OFFERS)) {
            return Substance::Empty;
        }
        if is_announced(&clauses) {
            return Substance::Announcement;
        }
    } else if begins_with_any(after(first, &BEFORE), &ASIDES) {
        return Substance::Aside;
    } else if reacts(sentence, &clauses) {
        return Substance::Reaction;
    }
    match is_question {
        true => Substance::Question,
        false => Substance::Statement,
    }
}

/// True if little is left of a sentence without the acknowledgement that it begins with.
fn is_acknowledgement(sentence: &str, clauses: &[Vec<String>]) -> bool {
    if !begins_with_any(&clauses[0], &ACKNOWLEDGED)
        || sentence.contains(|c: char| c.is_ascii_digit())
    {
        return false;
    }
    let rest = clauses
        .iter()
        .flat_map(|words| match longest(words, &ACKNOWLEDGED) {
            0 => &words[..],
            begun => &words[begun..],
        });
    rest.filter(|word| !is_stop_word(word)).count() <= FEW_WORDS
}

/// True if a sentence reacts, and has neither a number nor a name: a capital within the sentence.
fn reacts(sentence: &str, clauses: &[Vec<String>]) -> bool {
    let said = clauses.iter().map(|words| after(words, &BEFORE));
    let first = said
        .into_iter()
        .find(|words| longest(words, &ACKNOWLEDGED) < words.len());
    let mut words = sentence.split_whitespace().skip(1);
    first.is_some_and(|words| begins_with_any(words, &REACTIONS))
        && !sentence.contains(|c: char| c.is_ascii_digit())
        && !words.any(|word| {
            let word = word.trim_start_matches(|c: char| !c.is_alphanumeric());
            word.starts_with(char::is_uppercase) && !word.starts_with("I'") && word != "I"
        })
}

/// True if the first clause that says something is an announcement.
fn is_announced(clauses: &[Vec<String>]) -> bool {
    let said = clauses.iter().map(|words| after(words, &BEFORE));
    let first = said
        .into_iter()
        .find(|words| longest(words, &ACKNOWLEDGED) < words.len());
    first.is_some_and(|words| begins_with_any(words, &ANNOUNCED))
}

/// Returns the words after any of the phrases, which may follow each other.
fn after<'a>(words: &'a [String], phrases: &[&str]) -> &'a [String] {
    let mut rest = words;
    while let begun @ 1.. = longest(rest, phrases) {
        rest = &rest[begun..];
    }
    rest
}

/// Returns the number of words of the longest phrase that the words begin with.
fn longest(words: &[String], phrases: &[&str]) -> usize {
    let Some(first) = words.first() else {
        return 0;
    };
    let from = phrases.partition_point(|phrase| *phrase < first.as_str());
    let alike = phrases[from..]
        .iter()
        .take_while(|phrase| phrase.starts_with(first.as_str()));
    let found = alike.filter(|phrase| super::begins_with(words, phrase));
    found
        .map(|phrase| phrase.split(' ').count())
        .max()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_answers_offers_or_announces_is_told_from_statements() {
        let agent = [
            ("Got it.", Substance::Empty),
            ("Understood, thanks!", Substance::Empty),
            ("Sounds good, ready when you are.", Substance::Empty),
            (
                "Let me know if you want to go on with the harbour.",
                Substance::Empty,
            ),
            ("Would you like me to book it?", Substance::Empty),
            ("No response requested.", Substance::Empty),
            ("Now let me read the tide tables.", Substance::Announcement),
            ("Great, now I'll run the tests.", Substance::Announcement),
            ("Next, I need to look at quay.rs.", Substance::Announcement),
            ("Perfect, the quay is 40 m long.", Substance::Statement),
            ("The quay is too short for the ferry.", Substance::Statement),
            ("Which quay is free on Sunday?", Substance::Question),
        ];
        for (text, kind) in agent {
            assert_eq!(substance(text, true), kind, "{text}");
        }
        let person = [
            ("Thanks a lot!", Substance::Empty),
            ("ok", Substance::Empty),
            ("Random thought: I keep hearing gulls.", Substance::Aside),
            (
                "Let me know when the ferry KX-2041 leaves.",
                Substance::Statement,
            ),
            ("I will pay with card 9911.", Substance::Statement),
            ("Yes, book the night ferry.", Substance::Statement),
            ("That's a great idea!", Substance::Reaction),
            ("I like the idea of a night ferry.", Substance::Reaction),
            ("I'll try the KX-2041.", Substance::Statement),
            ("It's really close to Cascais.", Substance::Statement),
            ("What does it cost?", Substance::Question),
        ];
        for (text, kind) in person {
            assert_eq!(substance(text, false), kind, "{text}");
        }
        assert_eq!(substance("…", true), Substance::Empty);
    }

    #[test]
    fn phrases_are_in_order_and_folded() {
        let lists: [&[&str]; 6] = [
            &ACKNOWLEDGED,
            &OFFERS,
            &ANNOUNCED,
            &BEFORE,
            &ASIDES,
            &REACTIONS,
        ];
        for list in lists {
            assert!(list.is_sorted(), "for the search: {list:?}");
            for phrase in list {
                assert_eq!(crate::words::words_of(phrase).join(" "), **phrase);
            }
        }
    }
}
