//! The selection of hits for an answer, and of the excerpt of each.

use std::collections::HashSet;
use std::ops::ControlFlow;

use super::candidate::RecallCandidate;
use super::{NOTHING, OmittedHits, Recall, RecallPart, session_line};
use crate::model::Role;
use crate::search::query::Query;
use crate::search::{SearchHit, SearchQuery, SearchResults};
use crate::store::{StoreRead, StoreResult};
use crate::tokens::TokenCounter;

/// Returns the longest line that may end the answer.
fn last_line(query: &SearchQuery, found: &SearchResults) -> String {
    if found.hits.is_empty() {
        return NOTHING.into();
    }
    let hits = found.hits.len();
    let line = OmittedHits {
        hits: hits as u64,
        turns: hits as u64,
        more: found.next.is_some(),
        offset: query.offset.saturating_add(hits),
    };
    format!("{line}\n")
}

/// The hits that are in the answer, best first.
pub(super) struct RecallSelection<'a> {
    counter: &'a dyn TokenCounter,
    query: &'a SearchQuery,
    found: &'a SearchResults,
    most: u64,
    spent: u64,
    selected: Vec<SelectedHit>,
    /// The number of hits that are in the answer or skipped.
    taken: usize,
}

struct SelectedHit {
    candidate: RecallCandidate,
    part: RecallPart,
    /// The index of the hit.
    rank: usize,
    level: u32,
}

impl<'a> RecallSelection<'a> {
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
            selected: Vec::new(),
            taken: 0,
        }
    }

    /// Selects hits and extends them; the error is the number of tokens that the shortest answer needs.
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
                true => RecallCandidate::load(read, hit, words)?,
                false => None,
            };
            let Some(candidate) = candidate else {
                self.taken += 1;
                continue;
            };
            let bound = match is_grown || self.selected.is_empty() {
                true => self.most,
                false => half,
            };
            match self.select(hit, candidate, bound) {
                ControlFlow::Continue(()) => self.taken += 1,
                ControlFlow::Break(needed) if self.selected.is_empty() => return Ok(Err(needed)),
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

    /// Selects a hit with its shortest excerpt, if that fits; breaks with the number of tokens needed otherwise.
    fn select(
        &mut self,
        hit: &SearchHit,
        candidate: RecallCandidate,
        bound: u64,
    ) -> ControlFlow<u64> {
        let is_known = self
            .selected
            .iter()
            .any(|selected_hit| selected_hit.part.session_id == hit.session_id);
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
        self.selected.push(SelectedHit {
            candidate,
            part,
            rank: self.taken,
            level: 0,
        });
        ControlFlow::Continue(())
    }

    /// Extends the selected excerpts, best first.
    fn grow(&mut self) {
        for share in [3, 1] {
            for at in 0..self.selected.len() {
                let left = self.most.saturating_sub(self.spent);
                let mut bound = left / share;
                self.add_lead(at, &mut bound);
                while self.add_lines(at, &mut bound) {}
            }
        }
    }

    fn add_lead(&mut self, at: usize, bound: &mut u64) {
        let selected_hit = &self.selected[at];
        let Some((seq, lead)) = &selected_hit.candidate.lead else {
            return;
        };
        // Several answers to one prompt show it once.
        let is_there = |other: &SelectedHit| {
            other.candidate.loop_key == selected_hit.candidate.loop_key
                && other.part.seqs.contains(seq)
        };
        if self.selected.iter().any(is_there) {
            return;
        }
        let mut part = selected_hit.part.clone();
        part.lead = Some(lead.clone());
        part.seqs.insert(0, *seq);
        part.tokens = self.counter.text_tokens(&part.render());
        self.replace(at, part, 0, bound);
    }

    /// Extends the excerpt; returns true if there was room, and more to show.
    fn add_lines(&mut self, at: usize, bound: &mut u64) -> bool {
        let selected_hit = &self.selected[at];
        if !selected_hit.part.cut {
            return false;
        }
        let mut part = selected_hit.part.clone();
        (part.text, part.cut) = selected_hit.candidate.excerpt(selected_hit.level + 1);
        part.tokens = self.counter.text_tokens(&part.render());
        self.replace(at, part, 1, bound)
    }

    fn replace(&mut self, at: usize, part: RecallPart, levels: u32, bound: &mut u64) -> bool {
        let selected_hit = &mut self.selected[at];
        let cost = part.tokens.saturating_sub(selected_hit.part.tokens);
        if cost > *bound {
            return false;
        }
        *bound -= cost;
        self.spent += cost;
        selected_hit.level += levels;
        selected_hit.part = part;
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
            let Some(last) = self.selected.last_mut().filter(|last| last.level > 0) else {
                match self.selected.pop() {
                    Some(last) if !self.selected.is_empty() => self.taken = last.rank,
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
        let session = |selected_hit: &SelectedHit| {
            let same = |other: &SelectedHit| other.part.session_id == selected_hit.part.session_id;
            self.selected.iter().position(same)
        };
        let mut selected: Vec<&SelectedHit> = self.selected.iter().collect();
        selected
            .sort_by_key(|selected_hit| (session(selected_hit), selected_hit.candidate.order()));
        selected
            .into_iter()
            .map(|selected_hit| selected_hit.part.clone())
            .collect()
    }

    fn left_out(&self) -> Option<OmittedHits> {
        let rest = self.found.hits[self.taken..].iter();
        let hits: Vec<&SearchHit> = rest.filter(|hit| is_wanted(self.query, hit)).collect();
        let turn = |hit: &&SearchHit| (hit.session_id.clone(), hit.loop_id.clone(), hit.turn);
        let turns: HashSet<_> = hits.iter().map(turn).collect();
        let more = self.found.next.is_some();
        (more || !hits.is_empty()).then_some(OmittedHits {
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
