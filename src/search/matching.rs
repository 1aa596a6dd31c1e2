//! Whether a message holds what is asked for, and where: the rule of the index once more, on the
//! text itself. So a hit is never older than the text, and messages that the index has not taken in
//! are found too.

use std::ops::Range;

use super::text::MessageText;
use super::words::each_word;
use crate::store::index::{IndexQuery, Phrase};

/// More places of a phrase are only counted: a snippet shows a few.
const MAX_PLACES: usize = 1000;

/// Where a phrase stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PhraseAt {
    pub(super) piece: usize,
    /// Bytes of the piece.
    pub(super) bytes: Range<usize>,
    /// Which phrase of the query it is.
    pub(super) phrase: usize,
}

/// What a query finds in a message.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct QueryMatches {
    /// In order of the text.
    pub(super) places: Vec<PhraseAt>,
    /// How often each phrase of [`IndexQuery::all`] occurs.
    pub(super) counts: Vec<u64>,
}

/// Returns where the phrases of `query` stand; `None` if the message does not fit.
pub(super) fn places(query: &IndexQuery, text_of_message: &MessageText) -> Option<QueryMatches> {
    let sought: Vec<&Phrase> = query.all.iter().flatten().collect();
    let mut search: Vec<PhraseSearch<'_>> = sought.iter().copied().map(PhraseSearch::new).collect();
    let mut barred: Vec<PhraseSearch<'_>> = query.none.iter().map(PhraseSearch::new).collect();
    for (piece, text) in text_of_message.pieces.iter().enumerate() {
        let mut all = search.iter_mut().chain(&mut barred).collect::<Vec<_>>();
        all.iter_mut().for_each(|search| search.begin(piece));
        each_word(text, &mut |word, place| {
            all.iter_mut().for_each(|search| search.step(word, &place));
        });
    }
    let mut at = 0;
    for sides in &query.all {
        let found = &search[at..at + sides.len()];
        if found.iter().all(|search| search.count == 0) {
            return None;
        }
        at += sides.len();
    }
    if barred.iter().any(|search| search.count > 0) {
        return None;
    }
    Some(collect(search))
}

fn collect(search: Vec<PhraseSearch<'_>>) -> QueryMatches {
    let counts = search.iter().map(|search| search.count).collect();
    let mut places = Vec::new();
    for (phrase, search) in search.into_iter().enumerate() {
        let place = |(piece, bytes)| PhraseAt {
            piece,
            bytes,
            phrase,
        };
        places.extend(search.found.into_iter().map(place));
    }
    places.sort_by_key(|place| (place.piece, place.bytes.start, place.bytes.end));
    QueryMatches { places, counts }
}

/// Looks for one phrase, word by word.
struct PhraseSearch<'q> {
    phrase: &'q Phrase,
    piece: usize,
    /// Beginnings of the phrase that may go on: how many words fitted, and where the first stands.
    open: Vec<(usize, usize)>,
    found: Vec<(usize, Range<usize>)>,
    count: u64,
}

impl<'q> PhraseSearch<'q> {
    fn new(phrase: &'q Phrase) -> Self {
        Self {
            phrase,
            piece: 0,
            open: Vec::new(),
            found: Vec::new(),
            count: 0,
        }
    }

    fn begin(&mut self, piece: usize) {
        self.piece = piece;
        self.open.clear();
    }

    fn step(&mut self, word: &str, place: &Range<usize>) {
        if !self.open.is_empty() {
            let mut open = std::mem::take(&mut self.open);
            open.retain_mut(|(fitted, from)| {
                let goes_on = self.fits(*fitted, word);
                *fitted += 1;
                let is_whole = goes_on && *fitted == self.phrase.words.len();
                if is_whole {
                    self.take(*from..place.end);
                }
                goes_on && !is_whole
            });
            self.open = open;
        }
        if self.fits(0, word) {
            if self.phrase.words.len() == 1 {
                self.take(place.clone());
            } else {
                self.open.push((1, place.start));
            }
        }
    }

    fn fits(&self, at: usize, word: &str) -> bool {
        let is_last = at + 1 == self.phrase.words.len();
        match self.phrase.words.get(at) {
            Some(sought) if is_last && self.phrase.is_prefix => word.starts_with(sought.as_str()),
            Some(sought) => word == sought,
            None => false,
        }
    }

    fn take(&mut self, bytes: Range<usize>) {
        self.count += 1;
        if self.found.len() < MAX_PLACES {
            self.found.push((self.piece, bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::query::parse_query;

    fn marked(query: &str, pieces: &[&str]) -> Option<Vec<String>> {
        let text_of_message = MessageText {
            pieces: pieces.iter().map(|piece| (*piece).to_owned()).collect(),
            tools: Vec::new(),
        };
        let places = places(&parse_query(query).unwrap(), &text_of_message)?;
        let text = |place: PhraseAt| text_of_message.pieces[place.piece][place.bytes].to_owned();
        Some(places.places.into_iter().map(text).collect())
    }

    #[test]
    fn phrases_stand_within_one_piece() {
        let text = ["a b a b c", "c a"];
        assert_eq!(marked("\"a b c\"", &text), Some(vec!["a b c".into()]));
        assert_eq!(marked("\"c c\"", &text), None);
        assert_eq!(marked("\"b a\" c", &text).unwrap(), ["b a", "c", "c"]);
        assert_eq!(marked("\"a a\"", &["a a a"]).unwrap(), ["a a", "a a"]);
    }

    #[test]
    fn sides_beginnings_and_exclusions() {
        assert_eq!(marked("x OR b", &["a B"]).unwrap(), ["B"]);
        assert_eq!(marked("a -b", &["a b"]), None);
        assert_eq!(marked("a -\"b c\"", &["a b", "c"]).unwrap(), ["a"]);
        assert_eq!(
            marked("buil*", &["re-build, building"]).unwrap(),
            ["build", "building"]
        );
        assert_eq!(marked("退款", &["我要退款了"]).unwrap(), ["退款"]);
        assert_eq!(marked("退款", &["款退"]), None);
    }
}
