//! Chooses sentences: an extractive summary without a model.
//!
//! The method is budgeted maximisation of a submodular function (Lin and Bilmes, "Multi-document
//! Summarization via Budgeted Maximization of Submodular Functions", 2010; "A Class of Submodular Functions
//! for Document Summarization", 2011): the value of a set of units is the total weight of the words that it covers,
//! where a word counts less each time it is covered again; units are taken greedily by the value that they add per
//! byte. The weight of a word follows Luhn ("The Automatic Creation of Literature Abstracts", 1958): it is highest
//! for words that are neither very common nor unique.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

use crate::words::each_word;
use crate::words::stems::{Stems, is_stop_word};

/// The factor of a word each time it is covered again.
const AGAIN: f64 = 0.2;
/// The factor of a name: a word with a digit, or with a capital within a sentence.
const NAME: f64 = 1.6;
/// A unit with fewer terms has a proportionally lower value.
const ENOUGH_TERMS: f64 = 5.0;
/// The cost of a unit in addition to its bytes.
const OVERHEAD: f64 = 4.0;

/// The costs of units.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnitCosts {
    /// The length of the prefix of a line, in bytes.
    pub(super) line_bytes: usize,
    /// The exponent of the bytes by which the gain is divided: below 1, long units are favoured.
    pub(super) per_byte: f64,
    /// Above 0, a unit is worth less the more units of its line were taken, so that one long text does not displace
    /// the others.
    pub(super) spread: f64,
}

/// A unit that may be chosen.
struct CandidateUnit {
    line: usize,
    bytes: f64,
    weight: f64,
    terms: std::ops::Range<usize>,
}

/// Orders the units of lines; the first unit of a line also costs the prefix of the line.
#[derive(Default)]
pub(super) struct Selector {
    stems: Stems,
    numbers: HashMap<String, u32>,
    /// The term numbers of folded words, a cache of their stems. A stop word has none.
    known: HashMap<String, Option<u32>>,
    /// For each term, the number of lines that contain it, and the last of them plus 1.
    lines: Vec<(u32, usize)>,
    is_name: Vec<bool>,
    /// The factor of each term.
    boost: Vec<f64>,
    terms: Vec<u32>,
    candidates: Vec<CandidateUnit>,
    line_count: usize,
}

impl Selector {
    /// Adds a unit of a line; lines are numbered in order. `weight` is the factor of the unit's value.
    pub(super) fn add(&mut self, line: usize, text: &str, weight: f64) {
        self.line_count = self.line_count.max(line + 1);
        let from = self.terms.len();
        self.each_term(text, &mut |all, term| {
            if all.lines[term as usize].1 != line + 1 {
                all.lines[term as usize].0 += 1;
                all.lines[term as usize].1 = line + 1;
            }
            if !all.terms[from..].contains(&term) {
                all.terms.push(term);
            }
        });
        self.candidates.push(CandidateUnit {
            line,
            bytes: text.len() as f64 + OVERHEAD,
            weight,
            terms: from..self.terms.len(),
        });
    }

    /// Raises the factor of the words of a text to `times`: the text names the subject of the work.
    pub(super) fn boost(&mut self, text: &str, times: f64) {
        self.each_term(text, &mut |all, term| {
            let boost = &mut all.boost[term as usize];
            *boost = boost.max(times);
        });
    }

    fn each_term(&mut self, text: &str, each: &mut dyn FnMut(&mut Self, u32)) {
        let mut found: Vec<(u32, bool)> = Vec::new();
        let (mut alone, mut is_first) = (None::<String>, true);
        each_word(text, &mut |word, place| {
            let written = &text[place];
            let is_single = crate::words::is_single_character(word);
            // In scripts without spaces, a pair of characters serves as a word.
            let pair = match (&alone, is_single) {
                (Some(before), true) => Some(format!("{before}{word}")),
                _ => None,
            };
            alone = is_single.then(|| word.to_owned());
            let has_digit = written.bytes().any(|byte| byte.is_ascii_digit());
            let capital = written
                .chars()
                .skip(usize::from(is_first))
                .any(char::is_uppercase)
                || (!is_first && written.starts_with(char::is_uppercase));
            is_first = false;
            if let Some(pair) = pair {
                found.push((self.number(&pair), false));
            } else if !is_single && (word.len() > 1 || has_digit) {
                let number = self.number_of_word(word);
                found.extend(number.map(|number| (number, has_digit || capital)));
            }
        });
        for (term, is_name) in found {
            self.is_name[term as usize] |= is_name;
            each(self, term);
        }
    }

    fn number_of_word(&mut self, word: &str) -> Option<u32> {
        if let Some(known) = self.known.get(word) {
            return *known;
        }
        let number = (!is_stop_word(word)).then(|| {
            let stem = self.stems.of(word).into_owned();
            self.number(&stem)
        });
        self.known.insert(word.to_owned(), number);
        number
    }

    fn number(&mut self, term: &str) -> u32 {
        if let Some(number) = self.numbers.get(term) {
            return *number;
        }
        let number = self.lines.len() as u32;
        self.numbers.insert(term.to_owned(), number);
        self.lines.push((0, 0));
        self.is_name.push(false);
        self.boost.push(1.0);
        number
    }

    /// Returns the units in the order of the value that they add per byte, until they have `most` bytes.
    pub(super) fn order(self, costs: UnitCosts, most: usize) -> Vec<usize> {
        let UnitCosts {
            line_bytes,
            per_byte,
            spread,
        } = costs;
        let weights: Vec<f64> = (0..self.lines.len())
            .map(|term| self.weight(term))
            .collect();
        let mut covered = vec![0_u32; self.lines.len()];
        let mut taken_of = vec![0_u32; self.line_count];
        let mut by_line: Vec<Vec<usize>> = vec![Vec::new(); self.line_count];
        for (at, candidate) in self.candidates.iter().enumerate() {
            by_line[candidate.line].push(at);
        }
        // Powers are slow, and there are few different ones.
        let again: Vec<f64> = (0..10).map(|times| AGAIN.powi(times)).collect();
        let longest = by_line.iter().map(Vec::len).max().unwrap_or(0);
        let spreads: Vec<f64> = (0..=longest)
            .map(|taken| (taken as f64 + 1.0).powf(-spread))
            .collect();
        let cost = |bytes: f64| bytes.powf(per_byte);
        let costs: Vec<[f64; 2]> = self
            .candidates
            .iter()
            .map(|unit| [cost(unit.bytes + line_bytes as f64), cost(unit.bytes)])
            .collect();
        let worth = |at: usize, covered: &[u32], taken_of: &[u32]| {
            let unit = &self.candidates[at];
            let term = |term: &u32| {
                weights[*term as usize] * again[covered[*term as usize].min(9) as usize]
            };
            let gain: f64 = self.terms[unit.terms.clone()].iter().map(term).sum();
            let taken = taken_of[unit.line] as usize;
            let few = (unit.terms.len() as f64 / ENOUGH_TERMS).min(1.0);
            unit.weight * few * spreads[taken] * gain / costs[at][usize::from(taken > 0)]
        };
        let mut offers: BinaryHeap<PricedUnit> = (0..self.candidates.len())
            .map(|at| PricedUnit {
                worth: worth(at, &covered, &taken_of),
                at,
            })
            .collect();
        let (mut order, mut spent) = (Vec::new(), 0.0);
        let mut is_taken = vec![false; self.candidates.len()];
        while let Some(offer) = offers.pop() {
            let unit = &self.candidates[offer.at];
            if is_taken[offer.at] {
                continue;
            }
            let now = worth(offer.at, &covered, &taken_of);
            if now < offer.worth * 0.999_999 && offers.peek().is_some_and(|next| now < next.worth) {
                offers.push(PricedUnit {
                    worth: now,
                    at: offer.at,
                });
                continue;
            }
            is_taken[offer.at] = true;
            order.push(offer.at);
            spent += unit.bytes;
            if spent > most as f64 {
                break;
            }
            for term in &self.terms[unit.terms.clone()] {
                covered[*term as usize] += 1;
            }
            taken_of[unit.line] += 1;
            if taken_of[unit.line] == 1 {
                spent += line_bytes as f64;
                let rest = by_line[unit.line].iter().filter(|at| !is_taken[**at]);
                let cheaper: Vec<PricedUnit> = rest
                    .map(|at| PricedUnit {
                        worth: worth(*at, &covered, &taken_of),
                        at: *at,
                    })
                    .collect();
                offers.extend(cheaper);
            }
        }
        order
    }

    fn weight(&self, term: usize) -> f64 {
        let lines = f64::from(self.lines[term].0.max(1));
        let all = self.line_count.max(1) as f64;
        let rare = (1.0 + all / lines).ln();
        let name = if self.is_name[term] { NAME } else { 1.0 };
        self.boost[term] * name * (1.0 + lines.ln()) * rare
    }
}

struct PricedUnit {
    worth: f64,
    at: usize,
}

impl PartialEq for PricedUnit {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for PricedUnit {}

impl Ord for PricedUnit {
    fn cmp(&self, other: &Self) -> Ordering {
        // Of two units with equal value, the earlier one.
        self.worth
            .total_cmp(&other.worth)
            .then(other.at.cmp(&self.at))
    }
}

impl PartialOrd for PricedUnit {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
