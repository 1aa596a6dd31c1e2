//! What a reader knows already: nothing of it is said again.

use std::collections::HashSet;

/// Texts that were said, and their words.
#[derive(Default)]
pub(in super::super) struct KnownText {
    text: String,
    words: HashSet<String>,
}

impl KnownText {
    /// Adds a text.
    pub(in super::super) fn add(&mut self, text: &str) {
        for word in words_in(text) {
            if !self.words.contains(word) {
                self.words.insert(word.to_owned());
            }
        }
        self.text.push_str(text);
        self.text.push('\n');
    }

    /// Returns how many bytes were said.
    pub(in super::super) fn len(&self) -> usize {
        self.text.len()
    }

    /// Whether a sentence was said, after so many bytes.
    pub(in super::super) fn contains_after(&self, bytes: usize, sentence: &str) -> bool {
        self.text[bytes..].contains(sentence)
    }

    /// Whether a value was said, not as a part of a longer word. Only one of several words that were all said
    /// is searched for.
    pub(in super::super) fn has_value(&self, value: &str) -> bool {
        words_in(value).all(|word| self.words.contains(word))
            && (words_in(value).next() == Some(value) || is_written(&self.text, value))
    }
}

/// Returns the words of a text as [`is_written`] parts them.
fn words_in(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(|word| !word.is_empty())
}

/// Whether a value stands in a text, not as a part of a longer word.
fn is_written(written: &str, value: &str) -> bool {
    let joins = |c: char| c.is_alphanumeric() || c == '_';
    let finder = memchr::memmem::Finder::new(value);
    let mut from = 0;
    while let Some(start) = finder.find(&written.as_bytes()[from..]).map(|at| from + at) {
        let end = start + value.len();
        if !written[..start].ends_with(joins) && !written[end..].starts_with(joins) {
            return true;
        }
        from = start + value.chars().next().map_or(1, char::len_utf8);
    }
    false
}
