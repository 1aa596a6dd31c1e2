//! Splits text into words, in the same way for stored texts and for queries.
//!
//! A word is a run of letters, digits and combining marks, in lower case and without accents: `Café` and `cafe` are one
//! word. Separators are dropped, so `src/cli/main.rs` is four consecutive words, and a query for it finds them. In
//! scripts without spaces (Chinese, Japanese, Thai …) and in Korean, whose words have inflected endings, each character
//! is a word: 退款 is two consecutive words, which a query finds within any sentence. An index of trigrams would not
//! find them, as they are fewer than three characters. An emoji is a word too.

pub mod stems;

use std::iter::Peekable;
use std::ops::Range;
use std::str::CharIndices;

use unicode_normalization::char::{compose, decompose_compatible, is_combining_mark};

/// The version of these rules. An index of another version is rebuilt.
pub const VERSION: u32 = 2;

/// The longest word in characters; a longer run, such as base64, is several consecutive words.
const MAX_CHARS: usize = 64;

/// A word that no text contains. It separates the parts of a message in the index, so that no phrase matches across
/// two of them.
pub const BREAK: &str = "¶";

/// Calls `each` with every word of `text`, folded, and its range in bytes.
pub fn each_word(text: &str, each: &mut dyn FnMut(&str, Range<usize>)) {
    let mut split = Split {
        word: String::new(),
        chars: 0,
        place: 0..0,
        each,
    };
    let mut rest = text.char_indices().peekable();
    while let Some((at, c)) = rest.next() {
        let place = at..at + c.len_utf8();
        if c.is_ascii_alphanumeric() {
            split.begin(&place);
            split.push(c.to_ascii_lowercase());
            continue;
        }
        let c = narrow(c);
        match kind_of(c) {
            CharKind::Gap => split.flush(),
            // A mark belongs to the letter before it; alone it is dropped.
            CharKind::Accent => split.place.end = place.end,
            CharKind::Letter => {
                split.begin(&place);
                fold(c, &mut |c| split.push(c));
            }
            CharKind::Alone => {
                split.flush();
                let (c, end) = composed(c, place.end, &mut rest);
                split.begin(&(place.start..end));
                split.push(c);
                split.flush();
            }
        }
    }
    split.flush();
}

/// Returns the folded words of `text`.
pub fn words_of(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    each_word(text, &mut |word, _| words.push(word.to_owned()));
    words
}

/// True if a word is one character of a script without spaces, or an emoji.
pub fn is_single_character(word: &str) -> bool {
    let mut chars = word.chars();
    let first = chars.next().map(kind_of);
    matches!(first, Some(CharKind::Alone)) && chars.next().is_none()
}

/// True if a word may contain this character.
pub fn is_in_word(c: char) -> bool {
    !matches!(kind_of(narrow(c)), CharKind::Gap)
}

struct Split<'a> {
    word: String,
    chars: usize,
    place: Range<usize>,
    each: &'a mut dyn FnMut(&str, Range<usize>),
}

impl Split<'_> {
    /// Extends the range of the word by one more character of the text.
    fn begin(&mut self, place: &Range<usize>) {
        if self.chars >= MAX_CHARS {
            self.flush();
        }
        if self.word.is_empty() {
            self.place.start = place.start;
        }
        self.place.end = place.end;
    }

    fn push(&mut self, c: char) {
        self.word.push(c);
        self.chars += 1;
    }

    fn flush(&mut self) {
        if !self.word.is_empty() {
            (self.each)(&self.word, self.place.clone());
        }
        self.word.clear();
        self.chars = 0;
    }
}

enum CharKind {
    Letter,
    /// A character that is a word by itself.
    Alone,
    /// A mark that is dropped, since it does not make another word.
    Accent,
    Gap,
}

fn kind_of(c: char) -> CharKind {
    if c.is_ascii() {
        return if c.is_ascii_alphanumeric() {
            CharKind::Letter
        } else {
            CharKind::Gap
        };
    }
    if is_accent(c) {
        return CharKind::Accent;
    }
    if is_emoji(c) {
        return CharKind::Alone;
    }
    match (c.is_alphanumeric() || is_combining_mark(c), is_unspaced(c)) {
        (false, _) => CharKind::Gap,
        (true, true) => CharKind::Alone,
        (true, false) => CharKind::Letter,
    }
}

/// True for accents of Latin, Greek and Cyrillic, for the points of Hebrew and Arabic, which are mostly not written,
/// and for characters that only select a glyph.
fn is_accent(c: char) -> bool {
    let is_point = matches!(c, '\u{591}'..='\u{5c7}' | '\u{610}'..='\u{61a}'
        | '\u{64b}'..='\u{65f}' | '\u{670}' | '\u{6d6}'..='\u{6ed}');
    matches!(c, '\u{ad}' | '\u{300}'..='\u{36f}' | '\u{483}'..='\u{487}' | '\u{640}'
        | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}' | '\u{200d}'
        | '\u{20d0}'..='\u{20ff}' | '\u{fe00}'..='\u{fe0f}' | '\u{fe20}'..='\u{fe2f}'
        | '\u{1f3fb}'..='\u{1f3ff}' | '\u{e0100}'..='\u{e01ef}')
        || (is_point && is_combining_mark(c))
}

fn is_emoji(c: char) -> bool {
    matches!(c, '\u{2600}'..='\u{27bf}' | '\u{1f300}'..='\u{1faff}')
}

fn is_unspaced(c: char) -> bool {
    matches!(c,
        // Thai, Lao, Burmese, Khmer.
        '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}'
        // Chinese, Japanese, Korean.
        | '\u{1100}'..='\u{11ff}' | '\u{2e80}'..='\u{2fdf}' | '\u{3005}'..='\u{31ff}'
        | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{a960}'..='\u{a97f}'
        | '\u{ac00}'..='\u{d7ff}' | '\u{f900}'..='\u{faff}' | '\u{1b000}'..='\u{1b16f}'
        | '\u{20000}'..='\u{3ffff}')
}

/// Returns the usual form of a full-width, half-width or compatibility character.
fn narrow(c: char) -> char {
    if !matches!(c, '\u{2e80}'..='\u{2fdf}' | '\u{f900}'..='\u{faff}' | '\u{ff00}'..='\u{ffef}'
        | '\u{2f800}'..='\u{2fa1f}')
    {
        return c;
    }
    let (mut usual, mut count) = (c, 0);
    decompose_compatible(c, |part| {
        (usual, count) = (part, count + 1);
    });
    if count == 1 { usual } else { c }
}

/// Composes a character with the ones after it, as syllables of Hangul and sounds of kana are; returns the character
/// and the end of the last one.
fn composed(mut c: char, mut end: usize, rest: &mut Peekable<CharIndices<'_>>) -> (char, usize) {
    while let Some((at, next)) = rest.peek().copied() {
        let Some(whole) = compose(c, narrow(next)) else {
            break;
        };
        (c, end) = (whole, at + next.len_utf8());
        rest.next();
    }
    (c, end)
}

/// Calls `push` with the characters of a letter in lower case without its accents.
fn fold(c: char, push: &mut dyn FnMut(char)) {
    decompose_compatible(c, |part| {
        let is_kept = part.is_alphanumeric() || is_combining_mark(part);
        if is_kept && !is_accent(part) {
            part.to_lowercase()
                .filter(|c| !is_accent(*c))
                .for_each(|c| push(if c == 'ς' { 'σ' } else { c }));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> String {
        words_of(text).join(" ")
    }

    #[test]
    fn case_and_accents_do_not_matter() {
        assert_eq!(
            split("Café CAFE\u{301} naïve Ünïcödé"),
            "cafe cafe naive unicode"
        );
        assert_eq!(
            split("Σίσυφος İstanbul ﬁle ＡＢＣ１"),
            "σισυφοσ istanbul file abc1"
        );
        assert_eq!(split("Ёлка Straße"), "елка straße");
    }

    #[test]
    fn identifiers_are_words_that_follow_each_other() {
        assert_eq!(split("4WQ150"), "4wq150");
        assert_eq!(split("src/cli/main.rs:12"), "src cli main rs 12");
        assert_eq!(split("foo_bar error[E0382]"), "foo bar error e0382");
        assert_eq!(split("a\0b\u{feff}c\u{2028}d"), "a b c d");
        assert_eq!(split("-- \t;'\"«»…"), "");
    }

    #[test]
    fn scripts_without_spaces_have_a_word_for_each_character() {
        assert_eq!(split("我要退款，谢谢"), "我 要 退 款 谢 谢");
        assert_eq!(split("東京タワーABC駅"), "東 京 タ ワ ー abc 駅");
        assert_eq!(split("검색을"), "검 색 을");
        assert_eq!(split("ไทย"), "ไ ท ย");
        assert_eq!(split("done 🎉👍🏽"), "done 🎉 👍");
    }

    #[test]
    fn what_is_written_in_parts_is_put_together() {
        assert_eq!(split("\u{1100}\u{1161}\u{11a8}"), "각");
        assert_eq!(split("か\u{3099}"), "が");
        assert_eq!(split("ｶﾞｷ"), "ガ キ");
        assert_eq!(split("\u{f9e4}"), "理");
    }

    #[test]
    fn marks_that_make_another_word_stay() {
        assert_ne!(split("हिन्दी"), split("हन्द"));
        assert_eq!(words_of("हिन्दी").len(), 1);
        assert_eq!(split("שָׁלוֹם"), split("שלום"));
        assert_eq!(split("\u{301}"), "");
    }

    #[test]
    fn a_long_run_is_several_words() {
        let run = "a".repeat(150);
        let lengths: Vec<usize> = words_of(&run).iter().map(String::len).collect();
        assert_eq!(lengths, [64, 64, 22]);
    }

    #[test]
    fn places_are_those_of_the_text() {
        let text = "Zu Cafe\u{301}s, 東京か\u{3099}!";
        let mut places = Vec::new();
        each_word(text, &mut |_, place| places.push(&text[place]));
        assert_eq!(places, ["Zu", "Cafe\u{301}s", "東", "京", "か\u{3099}"]);
    }
}
