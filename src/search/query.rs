//! What is asked for: words, phrases, beginnings, alternatives and exclusions.
//!
//! The words of a query are split as those of messages are; nothing else of what was typed goes on
//! to a backend.

use super::words::{is_in_word, words_of};
use crate::store::index::{IndexQuery, Phrase};

/// More words make a query that was pasted by mistake.
pub const MAX_QUERY_WORDS: usize = 100;

/// Why a query cannot be asked. Places are characters, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// There is nothing to look for.
    #[error("the query has no letter or digit to look for")]
    Empty,
    /// A quotation that does not end.
    #[error("the quote at character {at} is never closed; add a `\"`, or remove it")]
    OpenQuote {
        /// Where it begins.
        at: usize,
    },
    /// Nothing but what must not occur.
    #[error("the query only excludes words; add one to look for")]
    OnlyExclusions,
    /// `OR` with nothing on one side.
    #[error(
        "the `OR` at character {at} needs a word or phrase on both sides; quote it to look for \
         the word"
    )]
    LooseOr {
        /// Where it stands.
        at: usize,
    },
    /// An exclusion as one side of `OR`.
    #[error("the word excluded by `-` at character {at} cannot be a side of `OR`")]
    ExcludedSide {
        /// Where it stands.
        at: usize,
    },
    /// Too many words.
    #[error("the query has {words} words; at most {MAX_QUERY_WORDS} are allowed")]
    TooLong {
        /// How many it has.
        words: usize,
    },
}

/// One term as it was typed.
#[derive(Debug)]
struct Term {
    at: usize,
    is_excluded: bool,
    phrase: Phrase,
}

#[derive(Debug)]
enum Token {
    Or(usize),
    Term(Term),
}

/// Reads a query: `word` must occur, `"a phrase"` too, `-word` must not, `word*` is the beginning of
/// one, `a OR b` is one of the two.
///
/// # Errors
/// If it cannot be asked; the error says why and where.
///
/// # Examples
/// ```
/// use loopstore::search::QueryError;
/// use loopstore::extend::search::parse_query;
///
/// let query = parse_query("\"status report\" OR summary* -draft")?;
/// // Either of two, and one that must not occur.
/// assert_eq!((query.all[0].len(), query.none.len()), (2, 1));
/// assert_eq!(parse_query("-draft").err(), Some(QueryError::OnlyExclusions));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn parse_query(text: &str) -> Result<IndexQuery, QueryError> {
    let tokens = tokens(text)?;
    let counts = tokens.iter().map(|token| match token {
        Token::Or(_) => 0,
        Token::Term(term) => term.phrase.words.len(),
    });
    let words = counts.sum();
    if words > MAX_QUERY_WORDS {
        return Err(QueryError::TooLong { words });
    }
    let query = join(tokens)?;
    match (query.all.is_empty(), query.none.is_empty()) {
        (true, true) => Err(QueryError::Empty),
        (true, false) => Err(QueryError::OnlyExclusions),
        _ => Ok(query),
    }
}

fn join(tokens: Vec<Token>) -> Result<IndexQuery, QueryError> {
    let mut query = IndexQuery::default();
    // The `OR` that waits for its right side, and whether a left side stands before.
    let (mut or, mut has_left) = (None, false);
    for token in tokens {
        match token {
            Token::Or(at) if !has_left || or.is_some() => return Err(QueryError::LooseOr { at }),
            Token::Or(at) => or = Some(at),
            Token::Term(term) if term.is_excluded => {
                if or.is_some() {
                    return Err(QueryError::ExcludedSide { at: term.at });
                }
                query.none.push(term.phrase);
                has_left = false;
            }
            Token::Term(term) => {
                match query.all.last_mut().filter(|_| or.take().is_some()) {
                    Some(sides) => sides.push(term.phrase),
                    None => query.all.push(vec![term.phrase]),
                }
                has_left = true;
            }
        }
    }
    match or {
        Some(at) => Err(QueryError::LooseOr { at }),
        None => Ok(query),
    }
}

fn tokens(text: &str) -> Result<Vec<Token>, QueryError> {
    let chars: Vec<char> = text.chars().collect();
    let (mut tokens, mut at) = (Vec::new(), 0);
    while at < chars.len() {
        if is_space(chars[at]) {
            at += 1;
            continue;
        }
        let start = at;
        // Two hyphens are the name of an option, not an exclusion.
        let excludes = chars[at] == '-' && chars.get(at + 1).is_some_and(|c| *c != '-');
        at += usize::from(excludes);
        let term: String;
        if chars.get(at) == Some(&'"') {
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
            if term == "OR" && !excludes {
                tokens.push(Token::Or(start + 1));
                continue;
            }
        }
        let has_star = chars.get(at) == Some(&'*');
        at += usize::from(has_star);
        let words = words_of(&term);
        // Signs without a letter or digit are in no index; they do not narrow the search.
        if !words.is_empty() {
            let is_prefix = has_star && term.chars().next_back().is_some_and(is_in_word);
            let phrase = Phrase { words, is_prefix };
            tokens.push(Token::Term(Term {
                at: start + 1,
                is_excluded: excludes,
                phrase,
            }));
        }
    }
    Ok(tokens)
}

fn is_space(c: char) -> bool {
    c.is_whitespace() || c.is_control()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> String {
        let query = parse_query(text).unwrap();
        let phrase =
            |phrase: &Phrase| phrase.words.join("+") + if phrase.is_prefix { "*" } else { "" };
        let any = |list: &Vec<Phrase>| list.iter().map(phrase).collect::<Vec<_>>().join("|");
        let all = query.all.iter().map(any);
        let none = query.none.iter().map(|none| format!("-{}", phrase(none)));
        all.chain(none).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn words_phrases_beginnings_sides_and_exclusions() {
        assert_eq!(written("Fix the Build"), "fix the build");
        assert_eq!(
            written("\"fix it\" -\"not this\" -that"),
            "fix+it -not+this -that"
        );
        assert_eq!(written("a OR b c OR \"d e\" OR f"), "a|b c|d+e|f");
        assert_eq!(written("buil* \"a tes\"* x/*"), "buil* a+tes* x");
        assert_eq!(
            written("src/cli/main.rs foo_bar error[E0382]"),
            "src+cli+main+rs foo+bar error+e0382"
        );
        assert_eq!(written("退款 x退*"), "退+款 x+退*");
    }

    #[test]
    fn operators_of_others_are_words() {
        assert_eq!(
            written("a AND b NOT c NEAR(d, 2)"),
            "a and b not c near+d 2"
        );
        assert_eq!(
            written("\"OR\" or words : {x} ^y + (z"),
            "or or words x y z"
        );
        assert_eq!(written("'; DROP TABLE x;--"), "drop table x");
        assert_eq!(
            written("--max-tokens -1 print(\"x\") a\0b"),
            "max+tokens print+x a b -1"
        );
        assert_eq!(written("a\"b \"c\"d"), "a+b c d");
    }

    #[test]
    fn what_cannot_be_asked_says_why_and_where() {
        let error = |text: &str| parse_query(text).unwrap_err();
        for empty in ["", "  ", "\0", "-", "()", "\"\"", "* -* \"…\"", "\u{301}"] {
            assert_eq!(error(empty), QueryError::Empty, "{empty:?}");
        }
        assert_eq!(error("a \"b c"), QueryError::OpenQuote { at: 3 });
        assert_eq!(error("é -\"b"), QueryError::OpenQuote { at: 4 });
        assert_eq!(error("-a -b"), QueryError::OnlyExclusions);
        assert_eq!(error("OR a"), QueryError::LooseOr { at: 1 });
        assert_eq!(error("a OR"), QueryError::LooseOr { at: 3 });
        assert_eq!(error("a OR OR b"), QueryError::LooseOr { at: 6 });
        assert_eq!(error("-a OR b"), QueryError::LooseOr { at: 4 });
        assert_eq!(error("a OR -b"), QueryError::ExcludedSide { at: 6 });
        assert_eq!(error(&"w ".repeat(101)), QueryError::TooLong { words: 101 });
    }
}
