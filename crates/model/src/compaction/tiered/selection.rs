//! The selection of the messages that are kept, their form, and their tokens.
//!
//! The levels only mark messages; calls and results are paired once at the end, by their original positions. Pairing
//! after each level would change the number of messages that the next level counts, and so change results in which no
//! pair is separated.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use super::super::one_liner;
use crate::tokens::TokenCounter;
use crate::{AgentMessage, Message, Role};

/// The form of a message in the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rendering {
    /// Left out.
    Gone,
    /// As one line.
    Line,
    /// In full.
    Whole,
}

/// The messages that level three dropped between the first and the recent ones.
struct Middle {
    range: Range<usize>,
    /// True if its marker is among the result.
    marked: bool,
    removed: usize,
}

/// A history with the form of each message.
pub(super) struct TieredSelection<'a> {
    counter: &'a dyn TokenCounter,
    messages: Vec<AgentMessage>,
    costs: Vec<u64>,
    lines: HashMap<usize, (AgentMessage, u64)>,
    /// Each answer with calls, and the results of these calls.
    pairs: BTreeMap<usize, Vec<usize>>,
    /// The forms after level two; later levels count these messages.
    listed: Vec<Rendering>,
    shown: Vec<Rendering>,
    /// The tokens of the result without markers.
    body: u64,
    middle: Option<Middle>,
    /// The number of listed messages outside the middle that are left out.
    removed: usize,
    /// True if messages outside the middle were left out for the budget.
    newest_only: bool,
    /// True if not even a marker fits.
    mute: bool,
}

impl<'a> TieredSelection<'a> {
    /// Selects all of `messages`.
    pub(super) fn new(messages: Vec<AgentMessage>, counter: &'a dyn TokenCounter) -> Self {
        let costs: Vec<u64> = messages.iter().map(|m| counter.message_tokens(m)).collect();
        Self {
            counter,
            body: costs.iter().sum(),
            pairs: find_pairs(&messages),
            listed: vec![Rendering::Whole; messages.len()],
            shown: vec![Rendering::Whole; messages.len()],
            lines: HashMap::new(),
            costs,
            messages,
            middle: None,
            removed: 0,
            newest_only: false,
            mute: false,
        }
    }

    /// Returns the tokens of what is left, markers included.
    pub(super) fn tokens(&self) -> u64 {
        let cost = |marker: Option<AgentMessage>| {
            marker.map_or(0, |marker| self.counter.message_tokens(&marker))
        };
        self.body + cost(self.middle_marker()) + cost(self.newest_marker())
    }

    /// Level two: a line for each answer but those among the last `keep_recent` messages; the
    /// results before these go.
    pub(super) fn summarise_all_but(&mut self, keep_recent: usize) {
        for at in 0..self.messages.len().saturating_sub(keep_recent) {
            let form = match self.messages[at].message() {
                Some(Message::Assistant(answer)) => {
                    let line = AgentMessage::from(Message::user(one_liner(answer)));
                    let cost = self.counter.message_tokens(&line);
                    self.lines.insert(at, (line, cost));
                    Rendering::Line
                }
                Some(Message::ToolResult(_)) => Rendering::Gone,
                _ => Rendering::Whole,
            };
            self.show(at, form);
        }
        self.listed.clone_from(&self.shown);
        self.removed = 0;
    }

    /// Level three: everything between the first `keep_first` and the last `keep_recent` messages
    /// goes, if there is anything between.
    pub(super) fn drop_middle(&mut self, keep_first: usize, keep_recent: usize) {
        let list = self.list();
        let recent = list.len().saturating_sub(keep_recent);
        let Some(start) = list.get(keep_first).filter(|_| keep_first < recent) else {
            return;
        };
        let range = *start..list.get(recent).copied().unwrap_or(self.messages.len());
        self.middle = Some(Middle {
            range: range.clone(),
            marked: true,
            removed: 0,
        });
        for at in range {
            self.show(at, Rendering::Gone);
        }
    }

    /// Keeps only the newest messages that fit, the marker of the middle being one of them.
    pub(super) fn keep_newest(&mut self, budget: u64) {
        let elements = self.elements();
        let mut from = self.newest_that_fit(&elements, budget);
        for element in &elements[..from] {
            self.give_up(*element);
        }
        self.newest_only = true;
        while self.tokens() > budget && from < elements.len() {
            self.give_up(elements[from]);
            from += 1;
        }
        self.mute = self.tokens() > budget;
    }

    /// Makes whole or drops whole each call with its results, of which only a part is left.
    pub(super) fn join_pairs(&mut self, budget: u64) {
        for (call, results) in std::mem::take(&mut self.pairs).into_iter().rev() {
            let whole = |at: &usize| self.shown[*at] == Rendering::Whole;
            let kept = results.iter().filter(|at| whole(at)).count() + usize::from(whole(&call));
            if kept > 0 && kept < results.len() + 1 {
                self.join(call, &results, budget);
            }
        }
        // Only with a counter that charges more for a longer marker than the message had cost.
        if self.tokens() > budget {
            self.give_up_everything();
        }
    }

    fn give_up_everything(&mut self) {
        (0..self.shown.len()).for_each(|at| self.show(at, Rendering::Gone));
        self.mute = true;
    }

    fn join(&mut self, call: usize, results: &[usize], budget: u64) {
        let before: Vec<(usize, Rendering)> = std::iter::once(&call)
            .chain(results)
            .map(|at| (*at, self.shown[*at]))
            .collect();
        for (at, _) in &before {
            self.show(*at, Rendering::Whole);
        }
        if self.tokens() <= budget {
            return;
        }
        for (at, form) in before {
            self.show(
                at,
                if form == Rendering::Whole {
                    Rendering::Gone
                } else {
                    form
                },
            );
        }
    }

    /// Returns what is left.
    pub(super) fn into_messages(mut self) -> Vec<AgentMessage> {
        let mut marks = [
            (
                self.first_removed(|s, at| !s.counts_in_middle(at)),
                self.newest_marker(),
            ),
            (
                self.first_removed(|s, at| s.counts_in_middle(at)),
                self.middle_marker(),
            ),
        ];
        let mut result = Vec::new();
        for (at, message) in self.messages.into_iter().enumerate() {
            for (_, marker) in marks.iter_mut().filter(|(place, _)| *place == Some(at)) {
                result.extend(marker.take());
            }
            match self.shown[at] {
                Rendering::Gone => {}
                Rendering::Line => result.extend(self.lines.remove(&at).map(|(line, _)| line)),
                Rendering::Whole => result.push(message),
            }
        }
        result
    }

    fn show(&mut self, at: usize, form: Rendering) {
        let before = std::mem::replace(&mut self.shown[at], form);
        self.body = self.body + self.cost(at, form) - self.cost(at, before);
        if self.listed[at] == Rendering::Gone {
            return;
        }
        let removed = match &mut self.middle {
            Some(middle) if middle.range.contains(&at) => &mut middle.removed,
            _ => &mut self.removed,
        };
        *removed -= usize::from(before == Rendering::Gone);
        *removed += usize::from(form == Rendering::Gone);
    }

    fn cost(&self, at: usize, form: Rendering) -> u64 {
        match form {
            Rendering::Gone => 0,
            Rendering::Line => self.lines.get(&at).map_or(0, |(_, cost)| *cost),
            Rendering::Whole => self.costs[at],
        }
    }

    fn list(&self) -> Vec<usize> {
        (0..self.listed.len())
            .filter(|at| self.listed[*at] != Rendering::Gone)
            .collect()
    }

    /// Returns what is left, in order: a message, or `None` for the marker of the middle.
    fn elements(&self) -> Vec<Option<usize>> {
        let mut elements = Vec::new();
        for at in self.list() {
            if self.shown[at] != Rendering::Gone {
                elements.push(Some(at));
            } else if elements.last() != Some(&None) {
                elements.push(None);
            }
        }
        elements
    }

    fn newest_that_fit(&self, elements: &[Option<usize>], budget: u64) -> usize {
        let mut remaining = budget;
        for (nth, element) in elements.iter().enumerate().rev() {
            let tokens = match element {
                Some(at) => self.cost(*at, self.shown[*at]),
                None => self
                    .middle_marker()
                    .map_or(0, |m| self.counter.message_tokens(&m)),
            };
            match remaining.checked_sub(tokens) {
                Some(rest) => remaining = rest,
                None => return nth + 1,
            }
        }
        0
    }

    fn give_up(&mut self, element: Option<usize>) {
        match (element, &mut self.middle) {
            (Some(at), _) => self.show(at, Rendering::Gone),
            (None, Some(middle)) => middle.marked = false,
            (None, None) => {}
        }
    }

    fn middle_marker(&self) -> Option<AgentMessage> {
        let middle = self
            .middle
            .as_ref()
            .filter(|middle| middle.marked && !self.mute)?;
        let removed = middle.removed + if self.newest_only { 0 } else { self.removed };
        let text = format!("[Context compacted: {removed} messages removed to fit context window]");
        (removed > 0).then(|| Message::user(text).into())
    }

    fn newest_marker(&self) -> Option<AgentMessage> {
        let marker_removed = self.middle.as_ref().is_some_and(|middle| !middle.marked);
        let removed = self.removed + usize::from(marker_removed);
        let text = format!("[Context compacted: {removed} messages removed]");
        (self.newest_only && removed > 0 && !self.mute).then(|| Message::user(text).into())
    }

    fn counts_in_middle(&self, at: usize) -> bool {
        match &self.middle {
            Some(middle) => middle.marked && (!self.newest_only || middle.range.contains(&at)),
            None => false,
        }
    }

    fn first_removed(&self, counts: impl Fn(&Self, usize) -> bool) -> Option<usize> {
        let gone =
            |at: &usize| self.listed[*at] != Rendering::Gone && self.shown[*at] == Rendering::Gone;
        (0..self.shown.len())
            .filter(gone)
            .find(|at| counts(self, *at))
    }
}

/// Finds for each answer the results of its calls. A result belongs to the last call before it
/// that has its id.
fn find_pairs(messages: &[AgentMessage]) -> BTreeMap<usize, Vec<usize>> {
    let mut calls: HashMap<&str, usize> = HashMap::new();
    let mut pairs: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (at, message) in messages.iter().enumerate() {
        match (message.role(), message.message()) {
            (Role::Assistant, Some(answer)) => {
                calls.extend(answer.tool_calls().map(|call| (call.id.as_str(), at)));
            }
            (_, Some(Message::ToolResult(result))) => {
                if let Some(call) = calls.get(result.tool_call_id.as_str()) {
                    pairs.entry(*call).or_default().push(at);
                }
            }
            _ => {}
        }
    }
    pairs
}
