//! How well a message answers a question: BM25 over fields, more for words that stand together and for
//! what is said around the message.
//!
//! The sum over the terms is BM25 (Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25
//! and Beyond", 2009), in which an occurrence counts by its field, as in BM25F. Two additions reward
//! terms that stand together: pairs of words that follow each other in the question, as in the sequential
//! dependence model (Metzler and Croft, 2005), and the best window of [`WINDOW`] words. Lengths are
//! measured against a constant and not against the average of the store: so a message has the same score
//! whatever else is stored and wherever.

use std::collections::HashMap;

use super::matching::{PhraseAt, QueryMatches};
use super::query::Query;
use crate::store::SessionKey;

/// How much the second occurrence of a word adds.
const K1: f64 = 1.2;

/// How much the length of a message matters.
const B: f64 = 0.75;

/// Words of a message that is neither long nor short.
const USUAL_WORDS: f64 = 100.0;

/// What a pair of words counts, beside one word as rare as the more common of the two.
const PAIR: f64 = 0.6;

/// How many words further on the second word of a pair may stand.
const PAIR_WORDS: u32 = 2;

/// Words that stand together are at most this many words apart.
const WINDOW: u32 = 30;

/// What the best of the messages around a message counts, and the title of its session; each further message
/// counts half as much.
pub(super) const AROUND: f64 = 0.3;

/// After so many messages what is said counts half.
const HALVED_AFTER: f64 = 8.0;

/// What is said further away does not count.
const AROUND_MESSAGES: u64 = 30;

/// How many messages around count, and of a session.
const MOST_AROUND: usize = 5;

/// What each further message of a session counts, beside the one before.
const NEXT_IN_SESSION: f64 = 0.3;

/// How well a message fits by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Score {
    pub(super) score: f64,
    /// How much of the question stands together in it, from 0 to 1.
    pub(super) relevance: f64,
}

/// What each term of a query is worth.
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

    /// Returns what a message is worth at most about, of which only these terms are known to occur.
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

    /// Counts where the pairs of the question stand.
    fn pairs(&self, places: &[PhraseAt]) -> HashMap<(usize, usize), u32> {
        let mut counts = HashMap::new();
        if self.query.pairs.is_empty() {
            return counts;
        }
        for (at, first) in places.iter().enumerate() {
            let near = |next: &&PhraseAt| next.word <= first.word + PAIR_WORDS;
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
    fn together(&self, places: &[PhraseAt]) -> f64 {
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

/// A message with its place in its session, counted in messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    pub(super) session: SessionKey,
    pub(super) at: u64,
    pub(super) score: f64,
}

/// Returns what each message is worth together with what is said around it: who asks in the words of a
/// question that was asked looks for the answer that follows.
pub(super) fn with_surroundings(spots: &[Spot]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..spots.len()).collect();
    order.sort_by_key(|spot| (spots[*spot].session, spots[*spot].at));
    let mut scores: Vec<f64> = spots.iter().map(|spot| spot.score).collect();
    let mut around = Vec::new();
    for (place, spot) in order.iter().enumerate() {
        let here = spots[*spot];
        let distance = |other: &Spot| other.at.abs_diff(here.at);
        let is_near = |other: &&usize| {
            let other = &spots[**other];
            other.session == here.session && distance(other) <= AROUND_MESSAGES
        };
        let before = order[..place].iter().rev().take_while(is_near);
        let after = order[place + 1..].iter().take_while(is_near);
        around.clear();
        around.extend(before.chain(after).map(|other| {
            let other = &spots[*other];
            other.score * (-(distance(other) as f64) / HALVED_AFTER).exp2()
        }));
        scores[*spot] += AROUND * faded(&mut around, 0.5);
    }
    scores
}

/// Returns what a session is worth whose messages have these scores.
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
    use super::super::text::{Field, MessageText, Piece};
    use super::*;

    fn scores(query: &str, holders: &[u64], texts: &[(Field, &str)]) -> Vec<Score> {
        let query = parse_query(query).unwrap();
        let ranking = Ranking::new(&query, holders, 1000);
        let mut matcher = Matcher::new(&query);
        let mut score = |(field, text): &(Field, &str)| {
            let text = (*text).to_owned();
            let pieces = vec![Piece {
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
    fn in_order(query: &str, holders: &[u64], texts: &[(Field, &str)]) {
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
                (Field::Prompt, "the flaky kite"),
                (Field::Statement, "the flaky kite"),
                (Field::Output, "the flaky kite"),
                (Field::Output, "the kite is flaky"),
                (Field::Output, &apart),
                (Field::Output, "the kite"),
                (Field::Output, &long),
                (Field::Output, "nothing"),
            ],
        );
        in_order(
            "flaky kite",
            &[5, 500],
            &[(Field::Output, "flaky"), (Field::Output, "kite")],
        );
    }

    #[test]
    fn relevance_is_the_share_of_the_question_that_stands_together() {
        let apart = format!("flaky {} kite", "word ".repeat(60));
        let texts = [
            (Field::Output, "kite flaky"),
            (Field::Output, "kite"),
            (Field::Output, &apart),
        ];
        let relevances: Vec<f64> = scores("flaky kite", &[10, 10], &texts)
            .iter()
            .map(|score| score.relevance)
            .collect();
        assert_eq!(relevances, [1.0, 0.5, 0.5]);
    }

    #[test]
    fn a_word_that_is_everywhere_is_worth_a_little() {
        let [one] = scores("kite", &[1000], &[(Field::Output, "kite")])[..] else {
            panic!();
        };
        assert!(one.score > 0.0 && one.score < 0.01, "{one:?}");
    }

    #[test]
    fn what_is_said_around_counts_less_the_further_it_is() {
        let spot = |session, at, score| Spot {
            session: SessionKey(session),
            at,
            score,
        };
        let spots = [
            spot(1, 11, 1.0),
            spot(1, 10, 10.0),
            spot(1, 20, 1.0),
            spot(1, 90, 1.0),
            spot(2, 10, 1.0),
        ];
        let scores = with_surroundings(&spots);
        assert!(scores[0] > scores[2] && scores[2] > scores[3], "{scores:?}");
        assert_eq!(scores[3..], [1.0, 1.0]);
        assert!(scores[1] > 10.0 && scores[0] < 5.0);
    }

    #[test]
    fn a_session_is_worth_its_best_and_a_little_more() {
        assert_eq!(of_session(vec![]), 0.0);
        assert_eq!(of_session(vec![1.0, 4.0]), 4.0 + 0.3);
        assert_eq!(of_session(vec![1.0; 9]), of_session(vec![1.0; 5]));
    }
}
