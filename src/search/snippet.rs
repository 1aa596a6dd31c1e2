//! The snippet of a message: the part with the most of the searched words.

use std::ops::Range;

use super::matching::{PhraseMatch, QueryMatches};
use super::text::MessageText;

/// Characters of a snippet, about.
const LENGTH: usize = 160;

/// Characters before the first place that it shows, at most.
const BEFORE: usize = 40;

/// A piece of text on one line, with the ranges of the searched words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snippet {
    /// The text. Each run of white space is one space; `…` marks a cut.
    pub text: String,
    /// The ranges that match the query, in bytes of `text`: in order, without overlap.
    pub marks: Vec<Range<usize>>,
}

impl Snippet {
    /// Returns the text with `open` before each mark and `close` after it.
    ///
    /// # Examples
    /// ```
    /// let snippet = loopstore::search::Snippet { text: "a b".into(), marks: vec![2..3] };
    /// assert_eq!(snippet.marked("<b>", "</b>"), "a <b>b</b>");
    /// ```
    pub fn marked(&self, open: &str, close: &str) -> String {
        let (mut out, mut at) = (String::new(), 0);
        for mark in &self.marks {
            out.push_str(&self.text[at..mark.start]);
            out.push_str(open);
            out.push_str(&self.text[mark.clone()]);
            out.push_str(close);
            at = mark.end;
        }
        out.push_str(&self.text[at..]);
        out
    }
}

impl serde::Serialize for Snippet {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.marked("«", "»"))
    }
}

/// Returns the snippet with the most of the searched words.
pub(super) fn snippet(message_text: &MessageText, places: &QueryMatches) -> Snippet {
    let Some((first, count)) = best(&places.places) else {
        return Snippet::default();
    };
    let shown = &places.places[first..first + count];
    let piece = &message_text.pieces[shown[0].piece].text;
    let start = back(piece, shown[0].bytes.start, BEFORE);
    let end = forth(piece, start, LENGTH);
    draw(piece, start..end, &places.places, shown[0].piece)
}

/// Returns the places that fit into one snippet and hold the most different phrases: the first of
/// them, and how many.
fn best(places: &[PhraseMatch]) -> Option<(usize, usize)> {
    // A character is at least one byte, so this many bytes are always shown.
    let fits = |first: &PhraseMatch, place: &PhraseMatch| {
        place.piece == first.piece && place.bytes.end <= first.bytes.start + LENGTH - BEFORE
    };
    let mut best: Option<(usize, usize, usize)> = None;
    for (at, first) in places.iter().enumerate() {
        let rest = &places[at..];
        let count = rest.iter().take_while(|place| fits(first, place)).count();
        let count = count.max(1);
        let mut phrases: Vec<usize> = rest[..count].iter().map(|place| place.phrase).collect();
        phrases.sort_unstable();
        phrases.dedup();
        let (kinds, most) = (phrases.len(), best.map_or(0, |(kinds, ..)| kinds));
        if kinds > most {
            best = Some((kinds, at, count));
        }
    }
    best.map(|(_, at, count)| (at, count))
}

/// Goes back at most `count` characters, to the beginning of a word.
fn back(text: &str, from: usize, count: usize) -> usize {
    let before = text[..from].char_indices().rev().take(count);
    let start = before.last().map_or(from, |(at, _)| at);
    if start == 0 {
        return 0;
    }
    let is_space = |(_, c): &(usize, char)| c.is_whitespace();
    let space = text[start..from].char_indices().find(is_space);
    space.map_or(start, |(at, c)| start + at + c.len_utf8())
}

/// Goes on at most `count` characters, to the end of a word.
fn forth(text: &str, from: usize, count: usize) -> usize {
    let Some((length, _)) = text[from..].char_indices().nth(count) else {
        return text.len();
    };
    let part = &text[from..from + length];
    // A long word is cut; the found text is well before this.
    let space = part.rfind(char::is_whitespace);
    from + space.filter(|at| *at > length / 2).unwrap_or(length)
}

/// Writes a part of a piece on one line, with its marks.
fn draw(text: &str, part: Range<usize>, places: &[PhraseMatch], piece: usize) -> Snippet {
    let near = places.iter().filter(|place| place.piece == piece);
    let near = near.filter(|p| p.bytes.start < part.end && p.bytes.end > part.start);
    let near: Vec<&PhraseMatch> = near.collect();
    let is_marked = |at: usize| near.iter().any(|place| place.bytes.contains(&at));
    let mut snippet = Snippet::default();
    if part.start > 0 {
        snippet.text.push('…');
    }
    let (mut mark, mut was_space) = (None, true);
    for (at, c) in text[part.clone()].char_indices() {
        let is_space = c.is_whitespace() || c.is_control();
        let inside = is_marked(part.start + at);
        if !inside {
            let end = snippet.text.len();
            snippet.marks.extend(mark.take().map(|start| start..end));
        }
        if is_space && was_space {
            continue;
        }
        was_space = is_space;
        if inside && mark.is_none() {
            mark = Some(snippet.text.len());
        }
        snippet.text.push(if is_space { ' ' } else { c });
    }
    let end = snippet.text.len();
    snippet.marks.extend(mark.map(|start| start..end));
    if part.end < text.len() {
        snippet.text.push('…');
    }
    snippet
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::matching::Matcher;
    use crate::search::query::parse_query;
    use crate::search::text::{TextField, TextPiece};

    fn of(query: &str, pieces: &[&str]) -> String {
        let piece = |text: &&str| TextPiece {
            field: TextField::Statement,
            text: (*text).to_owned(),
        };
        let message_text = MessageText {
            pieces: pieces.iter().map(piece).collect(),
            tools: Vec::new(),
        };
        let query = parse_query(query).unwrap();
        let places = Matcher::new(&query).places(&message_text).unwrap();
        snippet(&message_text, &places).marked("«", "»")
    }

    #[test]
    fn a_short_text_is_shown_whole_on_one_line() {
        assert_eq!(of("b OR d", &["a\n\n  b\tc d"]), "a «b» c «d»");
        assert_eq!(of("\"a b\"", &["a\nb"]), "«a b»");
        assert_eq!(of("+b \"a b\"", &["a b"]), "«a b»");
    }

    #[test]
    fn a_long_text_is_cut_where_most_of_the_query_stands() {
        let text = format!(
            "{} east {} west north {}",
            "x ".repeat(99),
            "y ".repeat(200),
            "z ".repeat(300)
        );
        let cut = of("north east west", &["other east", &text]);
        assert!(cut.contains("«west» «north»"), "{cut}");
        assert!(cut.starts_with('…') && cut.ends_with('…'), "{cut}");
        assert!(cut.chars().count() < LENGTH + 12, "{cut}");
    }

    #[test]
    fn characters_stay_whole() {
        let text = format!("{}退款{}", "好".repeat(500), "é".repeat(500));
        let cut = of("退款", &[&text]);
        assert!(cut.contains("«退款»"), "{cut}");
        let long = "w".repeat(1000);
        assert!(of(&format!("+{long}"), &[&long]).starts_with("«www"));
    }
}
