//! The language of queries: a question, phrases, prefixes, alternatives and exclusions.
//!
//! The words of a query are split like the words of messages. Only these words are passed to a backend.

use super::stop_words::{self, StopWords};
use crate::store::index::Phrase;
use crate::words::stems::{Stems, each_part, is_stop_word};
use crate::words::{each_word, is_in_word, is_single_character, words_of};

/// The most terms of a query. Further words of a question are ignored; further conditions are an error.
pub const MAX_QUERY_WORDS: usize = 256;

/// An error in a query. Positions are characters, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// The query has no words.
    #[error("the query has no letter or digit to look for")]
    Empty,
    /// A quotation that does not end.
    #[error("the quote at character {at} is never closed; add a `\"`, or remove it")]
    OpenQuote {
        /// The position of the quote.
        at: usize,
    },
    /// The query has only exclusions.
    #[error("the query only excludes words; add one to look for")]
    OnlyExclusions,
    /// `OR` with nothing on one side.
    #[error(
        "the `OR` at character {at} needs a word or phrase on both sides; quote it to look for \
         the word"
    )]
    LooseOr {
        /// Its position.
        at: usize,
    },
    /// An exclusion as one side of `OR`.
    #[error("the word excluded by `-` at character {at} cannot be a side of `OR`")]
    ExcludedSide {
        /// Its position.
        at: usize,
    },
    /// Too many words that must occur, or must not.
    #[error("the query has conditions of {words} words; at most {MAX_QUERY_WORDS} are allowed")]
    TooLong {
        /// The number of words.
        words: usize,
    },
}

/// A parsed query.
///
/// Without conditions (`all`), a message matches if it contains any of the terms. With conditions, it matches if it
/// contains at least one term of each list. All terms that the message contains count for its rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Query {
    /// The terms in the order of the query; each once.
    pub(super) terms: Vec<Term>,
    /// Lists of terms, by their place in `terms`.
    pub(super) all: Vec<Vec<usize>>,
    /// Excluded phrases.
    pub(super) none: Vec<Phrase>,
    /// Words of the question that follow each other.
    pub(super) pairs: Vec<(usize, usize)>,
}

/// A word or phrase of a query.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Term {
    /// Words that follow each other; of a plain word its stem.
    pub(super) phrase: Phrase,
    /// True if any word with this stem matches.
    pub(super) is_stem: bool,
    /// The weight, apart from its rarity.
    pub(super) weight: f64,
}

impl Query {
    /// True if the query has required or excluded phrases.
    pub(super) fn has_conditions(&self) -> bool {
        !self.all.is_empty() || !self.none.is_empty()
    }
}

/// The weight of a part of `camelCase`: a query for the whole identifier means the whole.
const PART: f64 = 0.5;

/// Characters of the shortest word that a hyphen excludes; a shorter one is a flag (`-rf`).
const SHORTEST_EXCLUDED: usize = 3;

/// The number of words of a question that are read: of a pasted log the beginning counts.
const MAX_READ: usize = 1_024;

/// Words of an identifier that is also looked for as a whole.
const MAX_WHOLE: usize = 8;

/// One term as it was typed.
#[derive(Debug)]
enum QueryToken {
    Or(usize),
    /// Words that are required or excluded as typed.
    Exact {
        at: usize,
        is_excluded: bool,
        phrase: Phrase,
    },
    /// A part of a question.
    Plain {
        at: usize,
        text: String,
    },
}

/// Parses a query. Plain words are a question: any of them may occur, in any of their forms. `"a phrase"` and `+word`
/// must occur, and `-word` must not. `word*` requires a word with this beginning, and `a OR b` requires one of two
/// terms.
///
/// # Errors
/// If the query is not valid; the error contains the reason and the position.
///
/// # Examples
/// ```
/// use loopstore::search::QueryError;
/// use loopstore::extend::search::parse_query;
///
/// parse_query("why does the build fail \"status report\" OR summary* -draft")?;
/// assert_eq!(parse_query("-draft").err(), Some(QueryError::OnlyExclusions));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn parse_query(text: &str) -> Result<Query, QueryError> {
    let mut tokens = tokens(text)?;
    sides_are_exact(&mut tokens);
    let words = tokens.iter().map(QueryToken::words_of_condition).sum();
    if words > MAX_QUERY_WORDS {
        return Err(QueryError::TooLong { words });
    }
    let texts = tokens.iter().filter_map(QueryToken::text_of_question);
    let mut reader = QueryReader {
        language: stop_words::language(texts),
        ..QueryReader::default()
    };
    reader.read(tokens)?;
    let query = reader.finish();
    match (query.terms.is_empty(), query.none.is_empty()) {
        (true, true) => Err(QueryError::Empty),
        (true, false) => Err(QueryError::OnlyExclusions),
        _ => Ok(query),
    }
}

/// Makes plain words beside `OR` operands: they must occur as typed.
fn sides_are_exact(tokens: &mut [QueryToken]) {
    let is_or = |token: Option<&QueryToken>| matches!(token, Some(QueryToken::Or(_)));
    for place in 0..tokens.len() {
        let is_side = is_or(place.checked_sub(1).and_then(|before| tokens.get(before)))
            || is_or(tokens.get(place + 1));
        if let (true, QueryToken::Plain { at, text }) = (is_side, &tokens[place]) {
            let phrase = Phrase {
                words: words_of(text),
                is_prefix: false,
            };
            tokens[place] = QueryToken::Exact {
                at: *at,
                is_excluded: false,
                phrase,
            };
        }
    }
}

/// Returns a text as a question without conditions. Hyphens and plus signs before words, stars, `OR` and unclosed
/// quotes have no meaning: `rm -rf` searches both words and excludes none.
pub fn question(text: &str) -> String {
    let plain = |word: &str| match word.trim_start_matches(['-', '+']) {
        "OR" => "or".to_owned(),
        word => word.replace('*', " "),
    };
    let words: Vec<String> = text.split(is_space).map(plain).collect();
    let question = words.join(" ");
    match tokens(&question) {
        Err(QueryError::OpenQuote { .. }) => question.replace('"', " "),
        _ => question,
    }
}

/// Returns a question without quotes; `None` if it has none.
pub(crate) fn without_phrases(question: &str) -> Option<String> {
    question.contains('"').then(|| question.replace('"', " "))
}

#[derive(Default)]
struct QueryReader {
    query: Query,
    stems: Stems,
    /// Words of the question that were read.
    read: usize,
    /// The language whose stop words are skipped, in addition to English.
    language: Option<StopWords>,
    /// Stop words of the question, used if it has no other words.
    stop_words: Vec<String>,
    /// The last word of the question, if the next one may follow it.
    last: Option<usize>,
}

impl QueryReader {
    fn read(&mut self, tokens: Vec<QueryToken>) -> Result<(), QueryError> {
        // The `OR` that waits for its right side, and true if a left side precedes it.
        let (mut or, mut has_left) = (None, false);
        for token in tokens {
            match token {
                QueryToken::Or(at) if !has_left || or.is_some() => {
                    return Err(QueryError::LooseOr { at });
                }
                QueryToken::Or(at) => or = Some(at),
                QueryToken::Exact {
                    at,
                    is_excluded: true,
                    phrase,
                } => {
                    if or.is_some() {
                        return Err(QueryError::ExcludedSide { at });
                    }
                    self.query.none.push(phrase);
                    has_left = false;
                }
                QueryToken::Exact { phrase, .. } => {
                    let term = self.term(phrase, false, 1.0);
                    let all = &mut self.query.all;
                    match all.last_mut().filter(|_| or.take().is_some()) {
                        Some(sides) => sides.push(term),
                        None => all.push(vec![term]),
                    }
                    has_left = true;
                }
                QueryToken::Plain { text, .. } => {
                    self.plain(&text);
                    has_left = false;
                }
            }
        }
        or.map_or(Ok(()), |at| Err(QueryError::LooseOr { at }))
    }

    /// Reads a part of the question: a word, or several without a space (`src/main.rs`, 退款).
    fn plain(&mut self, text: &str) {
        // The letter of a script without spaces that waits for the next one.
        let (mut letter, mut is_single): (Option<String>, bool) = (None, false);
        let mut words = Vec::new();
        each_word(text, &mut |word, place| {
            let mut parts = Vec::new();
            each_part(&text[place], &mut |part| parts.push(part.to_owned()));
            words.push((word.to_owned(), parts));
        });
        self.whole(text, &words);
        for (word, parts) in words {
            self.read += 1;
            if self.read > MAX_READ || self.query.terms.len() >= MAX_QUERY_WORDS {
                break;
            }
            if is_single_character(&word) {
                match letter.replace(word) {
                    Some(before) => {
                        let both = vec![before, letter.clone().unwrap_or_default()];
                        self.follow(both, false);
                        is_single = false;
                    }
                    None => is_single = true,
                }
                continue;
            }
            self.single(letter.take().filter(|_| is_single));
            if self.says_nothing(&word) {
                if self.stop_words.len() < MAX_QUERY_WORDS {
                    self.stop_words.push(word);
                }
                continue;
            }
            let stem = self.stems.of(&word).into_owned();
            self.follow(vec![stem], true);
            for part in parts.iter().filter(|part| !is_stop_word(part)) {
                let stem = self.stems.of(part).into_owned();
                self.term(Phrase::of(vec![stem]), true, PART);
            }
        }
        self.single(letter.filter(|_| is_single));
    }

    fn says_nothing(&self, word: &str) -> bool {
        let of_language = |language: StopWords| language.contains(&word);
        is_stop_word(word) || stop_words::is_filler(word) || self.language.is_some_and(of_language)
    }

    /// Adds an identifier of several words as a phrase: it means more than its parts.
    fn whole(&mut self, text: &str, words: &[(String, Vec<String>)]) {
        let is_spaced = !words.iter().any(|(word, _)| is_single_character(word));
        // Words joined by an apostrophe are no identifier.
        let is_one = is_spaced && !text.contains(['\'', '’']);
        let is_one = is_one && self.query.terms.len() < MAX_QUERY_WORDS;
        // `is_some` is an identifier, and `est-ce` is not.
        let is_hyphened = text.chars().all(|c| c == '-' || c.is_alphabetic());
        let is_one =
            is_one && !(is_hyphened && words.iter().all(|(word, _)| self.says_nothing(word)));
        if is_one && (2..=MAX_WHOLE).contains(&words.len()) {
            let words = words.iter().map(|(word, _)| word.clone());
            self.term(Phrase::of(words.collect()), false, 1.0);
        }
    }

    fn single(&mut self, letter: Option<String>) {
        if let Some(letter) = letter {
            self.follow(vec![letter], false);
        }
    }

    /// Adds a word of the question, which follows the last one.
    fn follow(&mut self, words: Vec<String>, is_stem: bool) {
        let term = self.term(Phrase::of(words), is_stem, 1.0);
        if let Some(last) = self.last.replace(term)
            && last != term
            && !self.query.pairs.contains(&(last, term))
        {
            self.query.pairs.push((last, term));
        }
    }

    /// Returns the place of a term, which is added if it is not there.
    fn term(&mut self, phrase: Phrase, is_stem: bool, weight: f64) -> usize {
        let terms = &mut self.query.terms;
        let same = |term: &Term| term.phrase == phrase && term.is_stem == is_stem;
        if let Some(known) = terms.iter().position(same) {
            terms[known].weight = terms[known].weight.max(weight);
            return known;
        }
        terms.push(Term {
            phrase,
            is_stem,
            weight,
        });
        terms.len() - 1
    }

    fn finish(mut self) -> Query {
        if self.query.terms.is_empty() {
            for word in std::mem::take(&mut self.stop_words) {
                let stem = self.stems.of(&word).into_owned();
                self.follow(vec![stem], true);
            }
        }
        self.query
    }
}

impl QueryToken {
    fn words_of_condition(&self) -> usize {
        match self {
            Self::Exact { phrase, .. } => phrase.words.len(),
            Self::Or(_) | Self::Plain { .. } => 0,
        }
    }

    fn text_of_question(&self) -> Option<&str> {
        match self {
            Self::Plain { text, .. } => Some(text),
            Self::Or(_) | Self::Exact { .. } => None,
        }
    }
}

fn tokens(text: &str) -> Result<Vec<QueryToken>, QueryError> {
    let chars: Vec<char> = text.chars().collect();
    let (mut tokens, mut at) = (Vec::new(), 0);
    while at < chars.len() {
        if is_space(chars[at]) {
            at += 1;
            continue;
        }
        let start = at;
        // Two hyphens are the name of an option, not an exclusion.
        let sign = Some(chars[at]).filter(|sign| matches!(sign, '-' | '+'));
        let sign = sign.filter(|sign| chars.get(at + 1).is_some_and(|next| next != sign));
        let sign = sign.filter(|sign| *sign == '+' || !is_flag(&chars[at + 1..]));
        at += usize::from(sign.is_some());
        let term: String;
        let is_quoted = chars.get(at) == Some(&'"');
        if is_quoted {
            let open = at + 1;
            let length = chars[open..].iter().position(|c| *c == '"');
            let length = length.ok_or(QueryError::OpenQuote { at: open })?;
            term = chars[open..open + length].iter().collect();
            at = open + length + 1;
        } else {
            let rest = &chars[at..];
            let length = rest.iter().position(|c| is_space(*c) || *c == '*');
            let length = length.unwrap_or(rest.len());
            term = rest[..length].iter().collect();
            at += length;
            if term == "OR" && sign.is_none() {
                tokens.push(QueryToken::Or(start + 1));
                continue;
            }
        }
        let has_star = chars.get(at) == Some(&'*');
        at += usize::from(has_star);
        let words = words_of(&term);
        // Signs without a letter or digit are in no index; they do not narrow the search.
        if words.is_empty() {
            continue;
        }
        let is_prefix = has_star && term.chars().next_back().is_some_and(is_in_word);
        tokens.push(match is_quoted || is_prefix || sign.is_some() {
            true => QueryToken::Exact {
                at: start + 1,
                is_excluded: sign == Some('-'),
                phrase: Phrase { words, is_prefix },
            },
            false => QueryToken::Plain {
                at: start + 1,
                text: term,
            },
        });
    }
    Ok(tokens)
}

/// True if the text after a hyphen is a flag of a command or a number: nobody excludes so short a word.
fn is_flag(behind: &[char]) -> bool {
    let word = behind.iter().take_while(|c| !is_space(**c));
    let word: Vec<&char> = word.take(SHORTEST_EXCLUDED).collect();
    let is_short = word.len() < SHORTEST_EXCLUDED && word.iter().all(|c| c.is_ascii_alphanumeric());
    is_short || word.first().is_some_and(|c| c.is_ascii_digit())
}

fn is_space(c: char) -> bool {
    c.is_whitespace() || c.is_control()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stems as they are, what is exact in quotes; parts of identifiers in brackets.
    fn written(text: &str) -> String {
        let query = parse_query(text).unwrap();
        let exact = |phrase: &Phrase| {
            let end = if phrase.is_prefix { "*" } else { "" };
            format!("'{}'{end}", phrase.words.join(" "))
        };
        let term = |term: &Term| match (term.is_stem, term.weight < 1.0) {
            (true, false) => term.phrase.words.join(" "),
            (true, true) => format!("({})", term.phrase.words.join(" ")),
            (false, _) => exact(&term.phrase),
        };
        let has_group = |at: &usize| query.all.iter().flatten().any(|sought| sought == at);
        let plain = (0..query.terms.len()).filter(|at| !has_group(at));
        let plain = plain.map(|at| term(&query.terms[at]));
        let all = query.all.iter().map(|sides| {
            let sides: Vec<String> = sides.iter().map(|at| term(&query.terms[*at])).collect();
            format!("+{}", sides.join("|"))
        });
        let none = query.none.iter().map(|none| format!("-{}", exact(none)));
        plain.chain(all).chain(none).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn plain_words_are_a_question() {
        assert_eq!(written("How did we fix the Builds?"), "fix build");
        assert_eq!(written("build builds building"), "build");
        assert_eq!(written("who is who"), "who is");
        assert_eq!(written("the \"end\""), "+'end'");
        assert_eq!(
            written("src/cli/main.rs getUserName error[E0382]"),
            "'src cli main rs' src cli main rs getusernam (get) (user) (name) 'error e0382' error e0382"
        );
        assert_eq!(written("退款了 x 退"), "'退 款' '款 了' x '退'");
        assert_eq!(
            written("--max-tokens print(\"x\") a\0b"),
            "'max tokens' max token 'print x' print x b"
        );
    }

    #[test]
    fn words_of_a_question_that_follow_each_other_are_pairs() {
        let query = parse_query("the flaky test of the flaky build").unwrap();
        assert_eq!(query.pairs, [(0, 1), (1, 0), (0, 2)]);
    }

    #[test]
    fn phrases_beginnings_sides_and_exclusions() {
        assert_eq!(
            written("\"fix it\" -\"not this\" -that +The"),
            "+'fix it' +'the' -'not this' -'that'"
        );
        assert_eq!(
            written("a OR b c OR \"d e\" OR f"),
            "+'a'|'b' +'c'|'d e'|'f'"
        );
        assert_eq!(written("buil* \"a tes\"* x/*"), "x +'buil'* +'a tes'*");
        assert_eq!(written("flaky \"x y\" -one"), "flaki +'x y' -'one'");
    }

    #[test]
    fn operators_of_others_are_words() {
        assert_eq!(
            written("x AND y NOT z NEAR(w, 2)"),
            "x y z 'near w' near w 2"
        );
        assert_eq!(
            written("\"OR\" or words : {x} ^y + (z ++"),
            "word x y z +'or'"
        );
        assert_eq!(written("'; DROP TABLE x;--"), "drop tabl x");
        assert_eq!(written("x\"b \"c\"d"), "'x b' x b +'c'");
    }

    #[test]
    fn what_cannot_be_asked_says_why_and_where() {
        let error = |text: &str| parse_query(text).unwrap_err();
        for empty in ["", "  ", "\0", "-", "()", "\"\"", "* -* \"…\"", "\u{301}"] {
            assert_eq!(error(empty), QueryError::Empty, "{empty:?}");
        }
        assert_eq!(error("a \"b c"), QueryError::OpenQuote { at: 3 });
        assert_eq!(error("é -\"b"), QueryError::OpenQuote { at: 4 });
        assert_eq!(error("-one -\"b\""), QueryError::OnlyExclusions);
        assert_eq!(error("OR a"), QueryError::LooseOr { at: 1 });
        assert_eq!(error("a OR"), QueryError::LooseOr { at: 3 });
        assert_eq!(error("a OR OR b"), QueryError::LooseOr { at: 6 });
        assert_eq!(error("-one OR b"), QueryError::LooseOr { at: 6 });
        assert_eq!(error("a OR -two"), QueryError::ExcludedSide { at: 6 });
        let conditions = "+w ".repeat(300);
        assert_eq!(error(&conditions), QueryError::TooLong { words: 300 });
    }

    #[test]
    fn of_a_long_question_the_first_words_count() {
        assert_eq!(written(&"pear ".repeat(300)), "pear");
        let many: String = (0..5_000).map(|number| format!("w{number} ")).collect();
        let terms = parse_query(&many).unwrap().terms.len();
        assert!(
            (MAX_QUERY_WORDS..MAX_QUERY_WORDS + 9).contains(&terms),
            "{terms}"
        );
        let text = "退".repeat(300) + "款";
        assert!(parse_query(&text).unwrap().terms.len() < 9);
    }

    #[test]
    fn flags_and_numbers_are_no_exclusions() {
        assert_eq!(written("rm -rf target"), "rm rf target");
        assert_eq!(written("exit code -1"), "exit code 1");
        assert_eq!(written("kite -draft"), "kite -'draft'");
        assert_eq!(written("a -\"x\""), "a -'x'");
    }

    #[test]
    fn a_question_insists_on_nothing_but_closed_quotes() {
        let asked = |text: &str| written(&question(text));
        assert_eq!(asked("go test -race ./... +later"), "go test race later");
        assert_eq!(asked("say \"pear"), "say pear");
        assert_eq!(asked("**protected** OR 2*3"), "protect 2 3");
        assert_eq!(asked("\"status report\" late"), "late +'status report'");
        assert_eq!(asked("the 19\" monitor \"broken"), "19 monitor broken");
        assert_eq!(asked("why does is_some panic"), "'is some' panic");
        assert_eq!(without_phrases("a \"b c\"").as_deref(), Some("a  b c "));
        assert_eq!(without_phrases("a b"), None);
    }

    #[test]
    fn what_only_makes_a_question_polite_says_nothing() {
        assert_eq!(
            written(
                "Hey, do you still remember, could you please tell me again: why isn't it built? Thanks!"
            ),
            "built"
        );
        assert_eq!(
            written("wie hat sich der Umfang nicht geändert"),
            "umfang geandert"
        );
        assert_eq!(
            written("pourquoi est-ce que le port ne change pas"),
            "port chang"
        );
        // One word of another language is a word of this one.
        assert_eq!(written("let it die"), "die");
        assert_eq!(written("thanks"), "thank");
    }
}
