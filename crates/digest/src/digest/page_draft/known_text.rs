//! The text that a reader already has, so that the document does not repeat it.

use std::collections::HashSet;

/// The texts that a reader already has, and their words.
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

    /// Returns the length of the texts in bytes.
    pub(in super::super) fn len(&self) -> usize {
        self.text.len()
    }

    /// True if the texts after so many bytes contain a sentence.
    pub(in super::super) fn contains_after(&self, bytes: usize, sentence: &str) -> bool {
        self.text[bytes..].contains(sentence)
    }

    /// True if the texts contain a value, not as a part of a longer word. The texts are searched only if they contain
    /// each of several words of the value.
    pub(in super::super) fn has_value(&self, value: &str) -> bool {
        words_in(value).all(|word| self.words.contains(word))
            && (words_in(value).next() == Some(value) || is_written(&self.text, value))
    }
}

/// Returns the words of a text as [`is_written`] separates them.
fn words_in(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(|word| !word.is_empty())
}

/// True if a text contains a value, not as a part of a longer word.
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
