//! Which hits are in an answer, and how much of each.

use std::collections::HashSet;
use std::ops::ControlFlow;

use super::candidate::Candidate;
use super::{LeftOut, NOTHING, Recall, RecallPart, session_line};
use crate::model::Role;
use crate::search::query::Query;
use crate::search::{SearchHit, SearchQuery, SearchResults};
use crate::store::{StoreRead, StoreResult};
use crate::tokens::TokenCounter;

/// The longest line that may stand at the end of the answer.
fn last_line(query: &SearchQuery, found: &SearchResults) -> String {
    if found.hits.is_empty() {
        return NOTHING.into();
    }
    let hits = found.hits.len();
    let line = LeftOut {
        hits: hits as u64,
        turns: hits as u64,
        more: found.next.is_some(),
        offset: query.offset.saturating_add(hits),
    };
    format!("{line}\n")
}

/// The hits that are in the answer, best first.
pub(super) struct Selection<'a> {
    counter: &'a dyn TokenCounter,
    query: &'a SearchQuery,
    found: &'a SearchResults,
    most: u64,
    spent: u64,
    seats: Vec<Seat>,
    /// How many of the hits are in the answer or passed over.
    taken: usize,
}

struct Seat {
    candidate: Candidate,
    part: RecallPart,
    /// Which of the hits it is.
    rank: usize,
    level: u32,
}

impl<'a> Selection<'a> {
    pub(super) fn new(
        counter: &'a dyn TokenCounter,
        query: &'a SearchQuery,
        found: &'a SearchResults,
        most: u64,
    ) -> Self {
        Self {
            counter,
            query,
            found,
            most,
            spent: counter.text_tokens(&last_line(query, found)),
            seats: Vec::new(),
            taken: 0,
        }
    }

    /// Takes hits and lets them grow; an error is what the least answer needs.
    pub(super) fn fill(
        &mut self,
        read: &dyn StoreRead,
        words: &Query,
    ) -> StoreResult<Result<(), u64>> {
        let found = self.found;
        let half = self.spent.saturating_add(self.most) / 2;
        let mut is_grown = false;
        while let Some(hit) = found.hits.get(self.taken) {
            let candidate = match is_wanted(self.query, hit) {
                true => Candidate::load(read, hit, words)?,
                false => None,
            };
            let Some(candidate) = candidate else {
                self.taken += 1;
                continue;
            };
            let bound = match is_grown || self.seats.is_empty() {
                true => self.most,
                false => half,
            };
            match self.seat(hit, candidate, bound) {
                ControlFlow::Continue(()) => self.taken += 1,
                ControlFlow::Break(needed) if self.seats.is_empty() => return Ok(Err(needed)),
                ControlFlow::Break(_) if is_grown => break,
                ControlFlow::Break(_) => {
                    self.grow();
                    is_grown = true;
                }
            }
        }
        if !is_grown {
            self.grow();
        }
        Ok(Ok(()))
    }

    /// Takes a hit with the least of it, if that fits; breaks with what would be needed.
    fn seat(&mut self, hit: &SearchHit, candidate: Candidate, bound: u64) -> ControlFlow<u64> {
        let is_known = self
            .seats
            .iter()
            .any(|seat| seat.part.session_id == hit.session_id);
        let line = match is_known {
            true => 0,
            false => self.counter.text_tokens(&session_line(&hit.session_id)),
        };
        let part = candidate.part(hit, 0, self.counter);
        let spent = self.spent.saturating_add(line).saturating_add(part.tokens);
        if spent > bound {
            return ControlFlow::Break(spent);
        }
        self.spent = spent;
        self.seats.push(Seat {
            candidate,
            part,
            rank: self.taken,
            level: 0,
        });
        ControlFlow::Continue(())
    }

    /// Lets what was taken grow, best first.
    fn grow(&mut self) {
        for share in [3, 1] {
            for at in 0..self.seats.len() {
                let left = self.most.saturating_sub(self.spent);
                let mut bound = left / share;
                self.add_lead(at, &mut bound);
                while self.add_lines(at, &mut bound) {}
            }
        }
    }

    fn add_lead(&mut self, at: usize, bound: &mut u64) {
        let seat = &self.seats[at];
        let Some((seq, lead)) = &seat.candidate.lead else {
            return;
        };
        // Several answers to one prompt show it once.
        let is_there = |other: &Seat| {
            other.candidate.loop_key == seat.candidate.loop_key && other.part.seqs.contains(seq)
        };
        if self.seats.iter().any(is_there) {
            return;
        }
        let mut part = seat.part.clone();
        part.lead = Some(lead.clone());
        part.seqs.insert(0, *seq);
        part.tokens = self.counter.text_tokens(&part.render());
        self.replace(at, part, 0, bound);
    }

    /// Shows more around what was looked for; returns whether there was room, and more to show.
    fn add_lines(&mut self, at: usize, bound: &mut u64) -> bool {
        let seat = &self.seats[at];
        if !seat.part.cut {
            return false;
        }
        let mut part = seat.part.clone();
        (part.text, part.cut) = seat.candidate.excerpt(seat.level + 1);
        part.tokens = self.counter.text_tokens(&part.render());
        self.replace(at, part, 1, bound)
    }

    fn replace(&mut self, at: usize, part: RecallPart, levels: u32, bound: &mut u64) -> bool {
        let seat = &mut self.seats[at];
        let cost = part.tokens.saturating_sub(seat.part.tokens);
        if cost > *bound {
            return false;
        }
        *bound -= cost;
        self.spent += cost;
        seat.level += levels;
        seat.part = part;
        true
    }

    /// Puts the parts in order. With a counter that counts a text as more than its parts, the last ones are
    /// shortened.
    pub(super) fn answer(mut self) -> Recall {
        loop {
            let mut answer = Recall {
                question: self.query.text.clone(),
                tokens: 0,
                parts: self.ordered(),
                left_out: self.left_out(),
            };
            answer.tokens = self.counter.text_tokens(&answer.text());
            if answer.tokens <= self.most {
                return answer;
            }
            let Some(last) = self.seats.last_mut().filter(|last| last.level > 0) else {
                match self.seats.pop() {
                    Some(last) if !self.seats.is_empty() => self.taken = last.rank,
                    _ => return answer,
                }
                continue;
            };
            last.level -= 1;
            (last.part.text, last.part.cut) = last.candidate.excerpt(last.level);
            last.part.tokens = self.counter.text_tokens(&last.part.render());
        }
    }

    fn ordered(&self) -> Vec<RecallPart> {
        let session = |seat: &Seat| {
            let same = |other: &Seat| other.part.session_id == seat.part.session_id;
            self.seats.iter().position(same)
        };
        let mut seats: Vec<&Seat> = self.seats.iter().collect();
        seats.sort_by_key(|seat| (session(seat), seat.candidate.order()));
        seats.into_iter().map(|seat| seat.part.clone()).collect()
    }

    fn left_out(&self) -> Option<LeftOut> {
        let rest = self.found.hits[self.taken..].iter();
        let hits: Vec<&SearchHit> = rest.filter(|hit| is_wanted(self.query, hit)).collect();
        let turn = |hit: &&SearchHit| (hit.session_id.clone(), hit.loop_id.clone(), hit.turn);
        let turns: HashSet<_> = hits.iter().map(turn).collect();
        let more = self.found.next.is_some();
        (more || !hits.is_empty()).then_some(LeftOut {
            hits: hits.len() as u64,
            turns: turns.len() as u64,
            more,
            offset: self.query.offset.saturating_add(self.taken),
        })
    }
}

fn is_wanted(query: &SearchQuery, hit: &SearchHit) -> bool {
    hit.role != Role::Extension || query.role == Some(Role::Extension)
}
