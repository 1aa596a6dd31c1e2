//! The score of a message for a question: BM25 over fields, more for words that are near each other and for
//! the messages around it.
//!
//! The sum over the terms is BM25 (Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25
//! and Beyond", 2009), in which an occurrence counts by its field, as in BM25F. Two additions reward
//! terms that are near each other: pairs of words that follow each other in the question, as in the sequential
//! dependence model (Metzler and Croft, 2005), and the best window of [`WINDOW`] words. Lengths are
//! measured against a constant and not against the average of the store: so a message has the same score
//! whatever else is stored and wherever.

use std::collections::HashMap;

use super::matching::{PhraseMatch, QueryMatches};
use super::query::Query;
use crate::store::SessionKey;

/// BM25's k1: the saturation of further occurrences of a word.
const K1: f64 = 1.2;

/// BM25's b: the influence of the length of a message.
const B: f64 = 0.75;

/// Words of a message that is neither long nor short.
const USUAL_WORDS: f64 = 100.0;

/// The weight of a pair of words, relative to one word as rare as the more common of the two.
const PAIR: f64 = 0.6;

/// The largest distance of the two words of a pair, in words.
const PAIR_WORDS: u32 = 2;

/// The length of a window in words.
const WINDOW: u32 = 30;

/// The weight of the best of the messages around a message, and of the title of its session; each further message
/// counts half as much.
pub(super) const AROUND: f64 = 0.3;

/// The distance in messages after which the weight of a message halves.
const HALVED_AFTER: f64 = 8.0;

/// Messages further away do not count.
const AROUND_MESSAGES: u64 = 30;

/// The number of messages that count around a message, and of a session.
const MOST_AROUND: usize = 5;

/// The weight of each further message of a session, relative to the one before.
const NEXT_IN_SESSION: f64 = 0.3;

/// The score of a message by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Score {
    pub(super) score: f64,
    /// The share of the question in the best window, from 0 to 1.
    pub(super) relevance: f64,
}

/// The weight of each term of a query.
#[derive(Debug)]
pub(super) struct Ranking<'q> {
    query: &'q Query,
    worth: Vec<f64>,
    all: f64,
}

impl<'q> Ranking<'q> {
    /// Weighs the terms by how many of `total` messages hold each.
    pub(super) fn new(query: &'q Query, holders: &[u64], total: u64) -> Self {
        let rarity = |holders: u64| {
            let (all, holders) = (total.max(holders) as f64, holders as f64);
            (1.0 + (all - holders + 0.5) / (holders + 0.5)).ln()
        };
        let terms = query.terms.iter().zip(holders);
        let worth: Vec<f64> = terms.map(|(term, n)| term.weight * rarity(*n)).collect();
        let all = worth.iter().sum();
        Self { query, worth, all }
    }

    /// Returns an estimate of the highest score of a message that contains these terms.
    pub(super) fn estimate(
        &self,
        terms: impl Iterator<Item = usize>,
        weight: f64,
        length: f64,
    ) -> f64 {
        terms.map(|term| self.worth[term]).sum::<f64>() * saturated(weight, norm(length))
    }

    /// Scores a message.
    pub(super) fn score(&self, found: &QueryMatches) -> Score {
        let norm = norm(f64::from(found.length));
        let terms = self.worth.iter().zip(&found.weights);
        let terms: f64 = terms
            .map(|(worth, weight)| worth * saturated(*weight, norm))
            .sum();
        let pairs = self
            .pairs(&found.places)
            .into_iter()
            .map(|((a, b), count)| {
                PAIR * self.worth[a].min(self.worth[b]) * saturated(f64::from(count), norm)
            });
        let together = self.together(&found.places);
        let relevance = if self.all > 0.0 {
            together / self.all
        } else {
            0.0
        };
        // In order, so that the sum is the same each time.
        let mut pairs: Vec<f64> = pairs.collect();
        pairs.sort_by(f64::total_cmp);
        Score {
            score: terms + pairs.iter().sum::<f64>() + together * relevance,
            relevance,
        }
    }

    /// Counts the occurrences of the pairs of the question.
    fn pairs(&self, places: &[PhraseMatch]) -> HashMap<(usize, usize), u32> {
        let mut counts = HashMap::new();
        if self.query.pairs.is_empty() {
            return counts;
        }
        for (at, first) in places.iter().enumerate() {
            let near = |next: &&PhraseMatch| next.word <= first.word + PAIR_WORDS;
            for next in places[at + 1..].iter().take_while(near) {
                let pair = (first.phrase, next.phrase);
                if self.query.pairs.contains(&pair) {
                    *counts.entry(pair).or_default() += 1;
                }
            }
        }
        counts
    }

    /// Returns the worth of the different terms in the best window.
    fn together(&self, places: &[PhraseMatch]) -> f64 {
        let mut inside = vec![0_u32; self.worth.len()];
        let (mut from, mut worth, mut best) = (0, 0.0_f64, 0.0_f64);
        for place in places {
            if inside[place.phrase] == 0 {
                worth += self.worth[place.phrase];
            }
            inside[place.phrase] += 1;
            while places[from].word + WINDOW < place.word {
                let left = places[from].phrase;
                inside[left] -= 1;
                if inside[left] == 0 {
                    worth -= self.worth[left];
                }
                from += 1;
            }
            best = best.max(worth);
        }
        best
    }
}

fn norm(length: f64) -> f64 {
    1.0 - B + B * length / USUAL_WORDS
}

fn saturated(weight: f64, norm: f64) -> f64 {
    weight * (K1 + 1.0) / (weight + K1 * norm)
}

/// The score of a message at a position of its session, counted in messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct PositionedScore {
    pub(super) session: SessionKey,
    pub(super) at: u64,
    pub(super) score: f64,
}

/// Returns the score of each message together with the messages around it: a query in the words of a
/// question that was asked searches for the answer after it.
pub(super) fn with_surroundings(positioned: &[PositionedScore]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..positioned.len()).collect();
    order.sort_by_key(|at_index| (positioned[*at_index].session, positioned[*at_index].at));
    let mut scores: Vec<f64> = positioned.iter().map(|at_index| at_index.score).collect();
    let mut around = Vec::new();
    for (place, at_index) in order.iter().enumerate() {
        let here = positioned[*at_index];
        let distance = |other: &PositionedScore| other.at.abs_diff(here.at);
        let is_near = |other: &&usize| {
            let other = &positioned[**other];
            other.session == here.session && distance(other) <= AROUND_MESSAGES
        };
        let before = order[..place].iter().rev().take_while(is_near);
        let after = order[place + 1..].iter().take_while(is_near);
        around.clear();
        around.extend(before.chain(after).map(|other| {
            let other = &positioned[*other];
            other.score * (-(distance(other) as f64) / HALVED_AFTER).exp2()
        }));
        scores[*at_index] += AROUND * faded(&mut around, 0.5);
    }
    scores
}

/// Returns the score of a session whose messages have these scores.
pub(super) fn of_session(mut scores: Vec<f64>) -> f64 {
    faded(&mut scores, NEXT_IN_SESSION)
}

/// Sums the best scores, each further one times `next`.
fn faded(scores: &mut [f64], next: f64) -> f64 {
    scores.sort_by(|a, b| b.total_cmp(a));
    let best = scores.iter().take(MOST_AROUND);
    best.rev().fold(0.0, |sum, score| score + next * sum)
}

#[cfg(test)]
mod tests {
    use super::super::matching::Matcher;
    use super::super::query::parse_query;
    use super::super::text::{MessageText, TextField, TextPiece};
    use super::*;

    fn scores(query: &str, holders: &[u64], texts: &[(TextField, &str)]) -> Vec<Score> {
        let query = parse_query(query).unwrap();
        let ranking = Ranking::new(&query, holders, 1000);
        let mut matcher = Matcher::new(&query);
        let mut score = |(field, text): &(TextField, &str)| {
            let text = (*text).to_owned();
            let pieces = vec![TextPiece {
                field: *field,
                text,
            }];
            let tools = Vec::new();
            let found = matcher.places(&MessageText { pieces, tools });
            found.map(|found| ranking.score(&found)).unwrap_or_default()
        };
        texts.iter().map(&mut score).collect()
    }

    #[track_caller]
    fn in_order(query: &str, holders: &[u64], texts: &[(TextField, &str)]) {
        let scores: Vec<f64> = scores(query, holders, texts)
            .iter()
            .map(|s| s.score)
            .collect();
        assert!(scores.is_sorted_by(|a, b| a > b), "{query}: {scores:?}");
    }

    #[test]
    fn what_is_rare_together_in_order_short_and_said_by_people_comes_first() {
        let long = format!("{} kite", "word ".repeat(300));
        let apart = format!("flaky {} kite", "word ".repeat(60));
        in_order(
            "flaky kite",
            &[10, 10],
            &[
                (TextField::Prompt, "the flaky kite"),
                (TextField::Statement, "the flaky kite"),
                (TextField::Output, "the flaky kite"),
                (TextField::Output, "the kite is flaky"),
                (TextField::Output, &apart),
                (TextField::Output, "the kite"),
                (TextField::Output, &long),
                (TextField::Output, "nothing"),
            ],
        );
        in_order(
            "flaky kite",
            &[5, 500],
            &[(TextField::Output, "flaky"), (TextField::Output, "kite")],
        );
    }

    #[test]
    fn relevance_is_the_share_of_the_question_that_stands_together() {
        let apart = format!("flaky {} kite", "word ".repeat(60));
        let texts = [
            (TextField::Output, "kite flaky"),
            (TextField::Output, "kite"),
            (TextField::Output, &apart),
        ];
        let relevances: Vec<f64> = scores("flaky kite", &[10, 10], &texts)
            .iter()
            .map(|score| score.relevance)
            .collect();
        assert_eq!(relevances, [1.0, 0.5, 0.5]);
    }

    #[test]
    fn a_word_that_is_everywhere_is_worth_a_little() {
        let [one] = scores("kite", &[1000], &[(TextField::Output, "kite")])[..] else {
            panic!();
        };
        assert!(one.score > 0.0 && one.score < 0.01, "{one:?}");
    }

    #[test]
    fn what_is_said_around_counts_less_the_further_it_is() {
        let positioned_at = |session, at, score| PositionedScore {
            session: SessionKey(session),
            at,
            score,
        };
        let positioned = [
            positioned_at(1, 11, 1.0),
            positioned_at(1, 10, 10.0),
            positioned_at(1, 20, 1.0),
            positioned_at(1, 90, 1.0),
            positioned_at(2, 10, 1.0),
        ];
        let scores = with_surroundings(&positioned);
        assert!(scores[0] > scores[2] && scores[2] > scores[3], "{scores:?}");
        assert_eq!(scores[3..], [1.0, 1.0]);
        assert!(scores[1] > 10.0 && scores[0] < 6.0, "{scores:?}");
    }

    #[test]
    fn a_session_is_worth_its_best_and_a_little_more() {
        assert_eq!(of_session(vec![]), 0.0);
        assert_eq!(of_session(vec![1.0, 4.0]), 4.0 + 0.3);
        assert_eq!(of_session(vec![1.0; 9]), of_session(vec![1.0; 5]));
    }
}
