//! The score of a message for a question: BM25 over fields, more for words that are near each other and for
//! the messages around it.
//!
//! The sum over the terms is BM25 (Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25
//! and Beyond", 2009), in which an occurrence counts by its field, as in BM25F. Two additions reward
//! terms that are near each other: pairs of words that follow each other in the question, as in the sequential
//! dependence model (Metzler and Croft, 2005), and the best window of [`WINDOW`] words. Lengths are
//! measured against a constant and not against the average of the store: so a message has the same score
//! whatever else is stored and wherever.
//!
//! An answer of many hundred words holds a word of every question about its subject, so a long message gets a little
//! less for all it holds, and less of what the messages around it say than a short one, which says little by itself.
//!
//! Sessions are ordered by two ranks that are added (reciprocal rank fusion; Cormack, Clarke and Büttcher, 2009): one of
//! their best messages, and one of all their matching messages as one text.

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

/// Words of a message that is short.
const SHORT_WORDS: f64 = 75.0;

/// The power of the share of a longer message that a short one would be, with which its score is multiplied.
const LONG_POWER: f64 = 0.2;

/// Words from which a message does not lose more: beyond are outputs of tools, whose field counts little anyway.
const LONGEST_WORDS: f64 = 1_000.0;

/// The weight of a pair of words, relative to one word as rare as the more common of the two.
const PAIR: f64 = 0.6;

/// The largest distance of the two words of a pair, in words.
const PAIR_WORDS: u32 = 2;

/// The length of a window in words.
const WINDOW: u32 = 30;

/// The weight of the best of the messages around a short message; each further message counts half as much.
const AROUND: f64 = 0.5;

/// The weight of the title of the session of a message.
pub(super) const TITLE: f64 = 0.3;

/// The distance in messages after which the weight of a message halves.
const HALVED_AFTER: f64 = 8.0;

/// Messages further away do not count.
const AROUND_MESSAGES: u64 = 30;

/// The number of messages that count around a message, and of a session.
const MOST_AROUND: usize = 5;

/// The weight of each further message of a session, relative to the one before.
const NEXT_IN_SESSION: f64 = 0.3;

/// Ranks that are added count the less, the further they are from the first: by half after so many.
const FUSED_RANKS: f64 = 20.0;

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

    /// Scores all matching messages of a session as one text, compared with sessions of `usual` words.
    pub(super) fn whole(&self, session: &SessionWords, usual: f64) -> f64 {
        let norm = 1.0 - B + B * session.words / usual.max(1.0);
        let terms = self.worth.iter().zip(&session.weights);
        terms
            .map(|(worth, weight)| worth * saturated(weight / SAID, norm))
            .sum()
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
        let share = short_share(f64::from(found.length).min(LONGEST_WORDS));
        Score {
            score: (terms + pairs.iter().sum::<f64>() + together * relevance)
                * share.powf(LONG_POWER),
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

/// Returns the share of a message of this many words that a short one would be; 1 for short ones.
fn short_share(words: f64) -> f64 {
    (SHORT_WORDS / words.max(1.0)).min(1.0)
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
    /// The number of its words.
    pub(super) words: u32,
}

/// The matching messages of a session as one text.
#[derive(Clone, Debug, Default)]
pub(super) struct SessionWords {
    /// The number of occurrences of each term, each weighted by its field.
    weights: Vec<f64>,
    words: f64,
}

/// The weight of a word of a person, which counts as one occurrence in a session.
const SAID: f64 = 4.0;

impl SessionWords {
    /// Adds a message.
    pub(super) fn add(&mut self, weights: &[f64], words: u32) {
        self.weights.resize(weights.len(), 0.0);
        for (sum, weight) in self.weights.iter_mut().zip(weights) {
            *sum += weight;
        }
        self.words += f64::from(words);
    }

    /// Returns the mean number of words of sessions.
    pub(super) fn mean<'a>(sessions: impl Iterator<Item = &'a Self>) -> f64 {
        let (words, count) = sessions.fold((0.0, 0.0), |(words, count), session| {
            (words + session.words, count + 1.0)
        });
        words / f64::max(count, 1.0)
    }
}

/// Adds the ranks that two lists of scores give the same things; more is better.
pub(super) fn fused(one: &[f64], other: &[f64]) -> Vec<f64> {
    let shares = |scores: &[f64]| {
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
        let mut shares = vec![0.0; scores.len()];
        let (mut rank, mut before) = (0, None);
        for (place, at) in order.into_iter().enumerate() {
            // Equal scores have one rank.
            if before != Some(scores[at]) {
                (rank, before) = (place, Some(scores[at]));
            }
            shares[at] = 1.0 / (FUSED_RANKS + rank as f64);
        }
        shares
    };
    let pairs = shares(one).into_iter().zip(shares(other));
    pairs.map(|(one, other)| one + other).collect()
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
        let share = short_share(f64::from(here.words));
        scores[*at_index] += AROUND * share * faded(&mut around, 0.5);
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
            words: 10,
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
    fn a_long_message_gets_less_for_all_it_holds_and_for_what_is_around() {
        let words = |count: usize| "word ".repeat(count);
        let (short, long) = (
            format!("kite {}", words(30)),
            format!("kite {}", words(600)),
        );
        let texts = [(TextField::Prompt, &*short), (TextField::Prompt, &*long)];
        let scores = scores("kite", &[10], &texts);
        assert!(scores[0].score > 2.0 * scores[1].score, "{scores:?}");
        let positioned = |at, words| PositionedScore {
            session: SessionKey(1),
            at,
            score: 4.0,
            words,
        };
        let around = with_surroundings(&[positioned(1, 30), positioned(2, 600)]);
        assert!(around[0] - 4.0 > 4.0 * (around[1] - 4.0), "{around:?}");
    }

    #[test]
    fn what_is_good_in_two_ways_comes_before_what_is_best_in_one() {
        let fused = fused(&[9.0, 8.0, 1.0, 0.0], &[0.0, 3.0, 1.0, 9.0]);
        assert!(fused[1] > fused[0] && fused[1] > fused[3] && fused[3] > fused[2]);
        // Equal scores have the same rank.
        assert_eq!(super::fused(&[1.0, 1.0], &[2.0, 2.0])[0], 2.0 / FUSED_RANKS);
    }

    #[test]
    fn a_session_is_compared_as_a_whole_by_its_length() {
        let query = parse_query("flaky kite").unwrap();
        let ranking = Ranking::new(&query, &[10, 10], 1000);
        let session = |weights: [f64; 2], words| {
            let mut session = SessionWords::default();
            session.add(&weights, words);
            session
        };
        let (both, one) = (session([4.0, 4.0], 100), session([8.0, 0.0], 100));
        let long = session([4.0, 4.0], 10_000);
        let usual = SessionWords::mean([&both, &one].into_iter());
        let [both, one, long] = [both, one, long].map(|one| ranking.whole(&one, usual));
        assert!(both > one && both > long, "{both} {one} {long}");
    }

    #[test]
    fn a_session_is_worth_its_best_and_a_little_more() {
        assert_eq!(of_session(vec![]), 0.0);
        assert_eq!(of_session(vec![1.0, 4.0]), 4.0 + 0.3);
        assert_eq!(of_session(vec![1.0; 9]), of_session(vec![1.0; 5]));
    }
}
