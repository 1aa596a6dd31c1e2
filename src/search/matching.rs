//! Matches a query against the text of a message: the same rules as in the index, applied to the
//! text itself. So a hit is never older than the text, and messages that are not indexed
//! are found too.

use std::collections::HashMap;
use std::ops::Range;

use super::query::Query;
use super::text::{MessageText, TextField, TextPiece};
use crate::store::index::Phrase;
use crate::words::each_word;
use crate::words::stems::{Stems, each_part};

/// More places of a term are only counted: a snippet shows a few.
const MAX_PLACES: usize = 1000;

/// An occurrence of a term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PhraseMatch {
    pub(super) piece: usize,
    /// Bytes of the piece.
    pub(super) bytes: Range<usize>,
    /// The index of the term in the query.
    pub(super) phrase: usize,
    /// The number of words of the message before it.
    pub(super) word: u32,
}

/// The occurrences of the terms of a query in a message.
#[derive(Debug, Default, PartialEq)]
pub(super) struct QueryMatches {
    /// In order of the text.
    pub(super) places: Vec<PhraseMatch>,
    /// The number of occurrences of each term, each weighted by its field.
    pub(super) weights: Vec<f64>,
    /// The number of words of the message.
    pub(super) length: u32,
}

/// The distance in words between two pieces of a message: words of different pieces are not near each other.
const APART: u32 = 100;

/// Looks for the terms of a query in messages.
pub(super) struct Matcher<'q> {
    query: &'q Query,
    stems: Stems,
    /// Terms by their stem.
    by_stem: HashMap<&'q str, usize>,
    /// The first bytes of these stems: a word and its stem begin with the same one.
    begins: [bool; 256],
    /// The terms of the words read so far.
    known: HashMap<String, Option<usize>>,
}

/// Words that are remembered at most.
const MAX_KNOWN: usize = 1 << 16;

impl<'q> Matcher<'q> {
    pub(super) fn new(query: &'q Query) -> Self {
        let (mut by_stem, mut begins) = (HashMap::new(), [false; 256]);
        for (at, term) in query.terms.iter().enumerate() {
            if let (true, Some(stem)) = (term.is_stem, term.phrase.words.first()) {
                by_stem.insert(stem.as_str(), at);
                begins[usize::from(stem.as_bytes().first().copied().unwrap_or_default())] = true;
            }
        }
        Self {
            query,
            stems: Stems::default(),
            by_stem,
            begins,
            known: HashMap::new(),
        }
    }

    /// Returns the term that a folded word is a form of.
    fn term_of(&mut self, word: &str) -> Option<usize> {
        if !self.begins[usize::from(*word.as_bytes().first()?)] {
            return None;
        }
        if let Some(known) = self.known.get(word) {
            return *known;
        }
        let term = self.by_stem.get(&*self.stems.of(word)).copied();
        if self.known.len() < MAX_KNOWN {
            self.known.insert(word.to_owned(), term);
        }
        term
    }

    /// Returns the occurrences of the terms; `None` if the message does not match.
    pub(super) fn places(&mut self, text_of_message: &MessageText) -> Option<QueryMatches> {
        let query = self.query;
        let mut exact: Vec<PhraseSearch<'_>> = query
            .terms
            .iter()
            .enumerate()
            .filter(|(_, term)| !term.is_stem)
            .map(|(at, term)| PhraseSearch::new(&term.phrase, Some(at)))
            .chain(query.none.iter().map(|none| PhraseSearch::new(none, None)))
            .collect();
        let mut found = MatchCollector::new(query.terms.len());
        let mut word_at = 0;
        for (piece, TextPiece { field, text }) in text_of_message.pieces.iter().enumerate() {
            exact.iter_mut().for_each(PhraseSearch::begin);
            each_word(text, &mut |word, place| {
                found.matches.length += 1;
                word_at += 1;
                let mut take = |term: usize, bytes: Range<usize>| {
                    found.take(weight_at(*field, text, &bytes), term, piece, bytes, word_at);
                };
                if !self.by_stem.is_empty() {
                    let whole = self.term_of(word);
                    if let Some(term) = whole {
                        take(term, place.clone());
                    }
                    each_part(&text[place.clone()], &mut |part| {
                        if let Some(term) = self.term_of(part).filter(|part| whole != Some(*part)) {
                            take(term, place.clone());
                        }
                    });
                }
                for search in &mut exact {
                    if let Some(bytes) = search.step(word, &place)
                        && let Some(term) = search.term
                    {
                        take(term, bytes);
                    }
                }
            });
            word_at += APART;
        }
        let is_barred = exact
            .iter()
            .any(|search| search.term.is_none() && search.is_found);
        let holds = |term: &usize| found.matches.weights[*term] > 0.0;
        let fits = match query.all.is_empty() {
            true => (0..query.terms.len()).any(|term| holds(&term)),
            false => query.all.iter().all(|sides| sides.iter().any(holds)),
        };
        (fits && !is_barred).then(|| found.sorted())
    }
}

/// Collects the matches of a message.
struct MatchCollector {
    matches: QueryMatches,
    /// Places of each term.
    counts: Vec<usize>,
}

impl MatchCollector {
    fn new(terms: usize) -> Self {
        let matches = QueryMatches {
            weights: vec![0.0; terms],
            ..QueryMatches::default()
        };
        Self {
            matches,
            counts: vec![0; terms],
        }
    }

    fn take(&mut self, weight: f64, term: usize, piece: usize, bytes: Range<usize>, word: u32) {
        self.matches.weights[term] += weight;
        self.counts[term] += 1;
        if self.counts[term] <= MAX_PLACES {
            self.matches.places.push(PhraseMatch {
                piece,
                bytes,
                phrase: term,
                word,
            });
        }
    }

    fn sorted(mut self) -> QueryMatches {
        let order = |place: &PhraseMatch| (place.piece, place.bytes.start, place.bytes.end);
        self.matches.places.sort_by_key(order);
        self.matches
    }
}

/// Returns the weight of a word at its position.
fn weight_at(field: TextField, text: &str, place: &Range<usize>) -> f64 {
    match field {
        TextField::Call if place.start == 0 || is_in_path(text, place) => TextField::Name.weight(),
        field => field.weight(),
    }
}

/// True if the run without white space around a word is a path.
fn is_in_path(text: &str, place: &Range<usize>) -> bool {
    /// Longer runs are data.
    const LONGEST: usize = 256;
    let from = text.floor_char_boundary(place.start.saturating_sub(LONGEST));
    let to = text.ceil_char_boundary(text.len().min(place.end + LONGEST));
    let before = text[from..place.start].rsplit(char::is_whitespace).next();
    let after = text[place.end..to].split(char::is_whitespace).next();
    [before, after]
        .into_iter()
        .flatten()
        .any(|part| part.contains('/'))
}

/// Looks for one phrase, word by word.
struct PhraseSearch<'q> {
    phrase: &'q Phrase,
    /// The index of the term; `None` for an excluded phrase.
    term: Option<usize>,
    /// Partial matches of the phrase: the number of matched words, and the start of the first.
    open: Vec<(usize, usize)>,
    is_found: bool,
}

impl<'q> PhraseSearch<'q> {
    fn new(phrase: &'q Phrase, term: Option<usize>) -> Self {
        Self {
            phrase,
            term,
            open: Vec::new(),
            is_found: false,
        }
    }

    /// Begins a piece of the message.
    fn begin(&mut self) {
        self.open.clear();
    }

    /// Reads the next word, and returns the range of the phrase that ends with it.
    fn step(&mut self, word: &str, place: &Range<usize>) -> Option<Range<usize>> {
        let mut whole = None;
        if !self.open.is_empty() {
            let mut open = std::mem::take(&mut self.open);
            open.retain_mut(|(fitted, from)| {
                let goes_on = self.fits(*fitted, word);
                *fitted += 1;
                let is_whole = goes_on && *fitted == self.phrase.words.len();
                if is_whole {
                    whole = Some(*from..place.end);
                }
                goes_on && !is_whole
            });
            self.open = open;
        }
        if self.fits(0, word) {
            if self.phrase.words.len() == 1 {
                whole = Some(place.clone());
            } else {
                self.open.push((1, place.start));
            }
        }
        self.is_found |= whole.is_some();
        whole
    }

    fn fits(&self, at: usize, word: &str) -> bool {
        let is_last = at + 1 == self.phrase.words.len();
        match self.phrase.words.get(at) {
            Some(sought) if is_last && self.phrase.is_prefix => word.starts_with(sought.as_str()),
            Some(sought) => word == sought,
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::query::parse_query;

    fn marked(query: &str, pieces: &[&str]) -> Option<Vec<String>> {
        let piece = |text: &&str| TextPiece {
            field: TextField::Statement,
            text: (*text).to_owned(),
        };
        let text_of_message = MessageText {
            pieces: pieces.iter().map(piece).collect(),
            tools: Vec::new(),
        };
        let query = parse_query(query).unwrap();
        let places = Matcher::new(&query).places(&text_of_message)?;
        let text = |at: PhraseMatch| text_of_message.pieces[at.piece].text[at.bytes].to_owned();
        Some(places.places.into_iter().map(text).collect())
    }

    #[test]
    fn phrases_stand_within_one_piece() {
        let text = ["x b x b c", "c x"];
        assert_eq!(marked("\"x b c\"", &text), Some(vec!["x b c".into()]));
        assert_eq!(marked("\"c c\"", &text), None);
        assert_eq!(marked("\"b x\" c", &text).unwrap(), ["b x", "c", "c"]);
        assert_eq!(marked("\"x x\"", &["x x x"]).unwrap(), ["x x", "x x"]);
    }

    #[test]
    fn a_word_of_a_question_is_found_in_any_form() {
        assert_eq!(
            marked(
                "How was the build configured?",
                &["building it", "CONFIGURES x"]
            )
            .unwrap(),
            ["building", "CONFIGURES"]
        );
        assert_eq!(
            marked("user name", &["getUserName()"]).unwrap(),
            ["getUserName"; 2]
        );
        assert_eq!(marked("getUserName", &["the user"]).unwrap(), ["user"]);
        assert_eq!(marked("\"build\"", &["building"]), None);
        assert_eq!(marked("\"user\"", &["getUserName"]), None);
        assert_eq!(marked("flaky", &["a build"]), None);
    }

    #[test]
    fn sides_beginnings_and_exclusions() {
        assert_eq!(marked("x OR b", &["a B"]).unwrap(), ["B"]);
        assert_eq!(marked("x -bed", &["x bed"]), None);
        assert_eq!(marked("x -\"b c\"", &["x b", "c"]).unwrap(), ["x"]);
        assert_eq!(marked("+x b", &["b"]), None);
        assert_eq!(
            marked("buil*", &["re-build, building"]).unwrap(),
            ["build", "building"]
        );
        assert_eq!(marked("退款", &["我要退款了"]).unwrap(), ["退款"]);
        assert_eq!(marked("退款", &["款退"]), None);
    }

    #[test]
    fn words_count_by_where_they_stand() {
        let weight = |field, text: &str| {
            let text = text.to_owned();
            let piece = TextPiece { field, text };
            let text = MessageText {
                pieces: vec![piece],
                tools: Vec::new(),
            };
            let query = parse_query("kite").unwrap();
            Matcher::new(&query).places(&text).unwrap().weights[0]
        };
        assert_eq!(weight(TextField::Prompt, "a kite, two kites"), 8.0);
        assert_eq!(weight(TextField::Output, "a kite"), 0.5);
        assert_eq!(weight(TextField::Call, "edit text: the kite"), 1.0);
        assert_eq!(
            weight(TextField::Call, "edit path: src/kite.rs, text: x"),
            3.0
        );
        assert_eq!(weight(TextField::Call, "kite x"), 3.0);
    }

    #[test]
    fn a_word_begins_as_its_stem() {
        let stems = Stems::default();
        for word in [
            "dying",
            "lying",
            "skies",
            "news",
            "hoping",
            "ошибка",
            "ethics",
        ] {
            assert_eq!(stems.of(word).as_bytes()[0], word.as_bytes()[0], "{word}");
        }
    }
}
