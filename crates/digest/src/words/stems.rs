//! Stems, the parts of `camelCase`, and stop words.
//!
//! Stems and stop words are defined for folded words ([`super`]): in lower case and without accents. The stemmers are
//! those of the Snowball project: English for words of Latin letters, Russian for Cyrillic ones. Other words, and words
//! with a digit, are unchanged.

use std::borrow::Cow;

use rust_stemmers::{Algorithm, Stemmer};

use super::each_word;

/// The stemmers.
pub struct Stems {
    english: Stemmer,
    russian: Stemmer,
}

impl Default for Stems {
    fn default() -> Self {
        Self {
            english: Stemmer::create(Algorithm::English),
            russian: Stemmer::create(Algorithm::Russian),
        }
    }
}

impl Stems {
    /// Returns the stem of a folded word. A stop word is returned unchanged: its stem would only enlarge the index.
    pub fn of<'w>(&self, word: &'w str) -> Cow<'w, str> {
        if is_stop_word(word) {
            Cow::Borrowed(word)
        } else if word.bytes().all(|byte| byte.is_ascii_lowercase()) {
            self.english.stem(word)
        } else if word.chars().all(|c| matches!(c, 'а'..='я' | 'ё')) {
            self.russian.stem(word)
        } else {
            Cow::Borrowed(word)
        }
    }
}

/// Calls `each` with the parts of a word in `camelCase`, in lower case. `word` is not folded.
///
/// A part begins at an upper-case letter next to a lower-case one: the parts of `parseHTTPReply2x` are `parse`, `http`
/// and `reply2x`. A word with one part has none, a single letter is no part, and a word of more than 48 bytes, such as
/// a key or a hash, has no parts.
pub fn each_part(word: &str, each: &mut dyn FnMut(&str)) {
    const LONGEST: usize = 48;
    let bytes = word.as_bytes();
    if !bytes.is_ascii() || bytes.len() > LONGEST {
        return;
    }
    let begins = |at: usize| {
        let (before, here, after) = (bytes[at - 1], bytes[at], bytes.get(at + 1));
        let is_beside = before.is_ascii_lowercase() || after.is_some_and(u8::is_ascii_lowercase);
        here.is_ascii_uppercase() && is_beside
    };
    let mut from = 0;
    let mut part = |from: usize, to: usize| {
        if to - from > 1 {
            each(&word[from..to].to_ascii_lowercase());
        }
    };
    for at in 1..bytes.len() {
        if begins(at) {
            part(from, at);
            from = at;
        }
    }
    if from > 0 {
        part(from, bytes.len());
    }
}

/// Returns the stems of the words of a text in order, without stop words.
///
/// ```
/// use loopstore_digest::words::stems::content_words;
///
/// assert_eq!(content_words("The pears are picked."), ["pear", "pick"]);
/// ```
pub fn content_words(text: &str) -> Vec<String> {
    let stems = Stems::default();
    let mut words = Vec::new();
    each_word(text, &mut |word, _| {
        if !is_stop_word(word) {
            words.push(stems.of(word).into_owned());
        }
    });
    words
}

/// True if a folded word is a stop word: one that most texts contain, whatever their subject.
pub fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.binary_search(&word).is_ok()
}

/// English stop words, sorted. A single letter is the rest of a contraction (`don't`, `it's`).
const STOP_WORDS: [&str; 141] = [
    "a",
    "about",
    "above",
    "after",
    "again",
    "against",
    "all",
    "also",
    "am",
    "an",
    "and",
    "any",
    "are",
    "as",
    "at",
    "be",
    "because",
    "been",
    "before",
    "being",
    "below",
    "between",
    "both",
    "but",
    "by",
    "can",
    "cannot",
    "could",
    "d",
    "did",
    "do",
    "does",
    "doing",
    "don",
    "down",
    "during",
    "each",
    "either",
    "few",
    "for",
    "from",
    "further",
    "had",
    "has",
    "have",
    "having",
    "he",
    "her",
    "here",
    "hers",
    "herself",
    "him",
    "himself",
    "his",
    "how",
    "i",
    "if",
    "in",
    "into",
    "is",
    "it",
    "its",
    "itself",
    "just",
    "ll",
    "m",
    "me",
    "more",
    "most",
    "my",
    "myself",
    "no",
    "nor",
    "not",
    "now",
    "of",
    "off",
    "on",
    "once",
    "only",
    "or",
    "other",
    "our",
    "ours",
    "ourselves",
    "out",
    "over",
    "own",
    "re",
    "s",
    "same",
    "shall",
    "she",
    "should",
    "so",
    "some",
    "such",
    "t",
    "than",
    "that",
    "the",
    "their",
    "theirs",
    "them",
    "themselves",
    "then",
    "there",
    "these",
    "they",
    "this",
    "those",
    "through",
    "to",
    "too",
    "under",
    "until",
    "up",
    "us",
    "ve",
    "very",
    "was",
    "we",
    "were",
    "what",
    "when",
    "where",
    "whether",
    "which",
    "while",
    "who",
    "whom",
    "whose",
    "why",
    "will",
    "with",
    "would",
    "you",
    "your",
    "yours",
    "yourself",
    "yourselves",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(word: &str) -> Vec<String> {
        let mut parts = Vec::new();
        each_part(word, &mut |part| parts.push(part.to_owned()));
        parts
    }

    #[test]
    fn words_meet_in_their_stems() {
        let stems = Stems::default();
        for (word, stem) in [
            ("running", "run"),
            ("runs", "run"),
            ("timeouts", "timeout"),
            ("configured", "configur"),
            ("happy", "happi"),
            ("ошибка", "ошибк"),
            ("ошибки", "ошибк"),
            ("e0382", "e0382"),
            ("退", "退"),
            ("løsning", "løsning"),
        ] {
            assert_eq!(stems.of(word), stem, "{word}");
        }
    }

    #[test]
    fn identifiers_have_parts() {
        assert_eq!(parts("parseHTTPReply2x"), ["parse", "http", "reply2x"]);
        assert_eq!(parts("getUserName"), ["get", "user", "name"]);
        assert_eq!(parts("HTTPServer"), ["http", "server"]);
        assert_eq!(parts("v2Api"), ["v2", "api"]);
        assert_eq!(parts("isAFile"), ["is", "file"]);
        for whole in ["word", "Word", "HTTP", "4WQ150", "éTé", ""] {
            assert!(parts(whole).is_empty(), "{whole}");
        }
    }

    #[test]
    fn stop_words_are_in_order() {
        assert!(STOP_WORDS.is_sorted());
        assert!(is_stop_word("the") && !is_stop_word("token"));
    }
}
