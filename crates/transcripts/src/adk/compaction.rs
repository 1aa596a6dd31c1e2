//! Summaries of ADK, each of the messages in a range of time.

use loopstore::model::AgentMessage;

use super::messages::{Keys, blocks};
use crate::authors::by_harness;
use crate::fields::{Fields, some};
use crate::values::user;

/// A summary, with the first and last second of the range that it summarises.
pub(super) struct EventSummary {
    start: f64,
    end: f64,
    message: AgentMessage,
}

impl EventSummary {
    /// Reads `{start_timestamp, end_timestamp, compacted_content}`.
    ///
    /// # Errors
    /// If a field is missing; the error names it.
    pub(super) fn read(fields: &Fields<'_>) -> Result<Self, String> {
        let seconds = |snake, camel| {
            let value = some(fields.either(snake, camel))?;
            serde_json::from_str::<f64>(value.get()).ok()
        };
        let start = seconds("start_timestamp", "startTimestamp");
        let end = seconds("end_timestamp", "endTimestamp");
        let (Some(start), Some(end)) = (start, end) else {
            return Err("a summary without the times that it stands for".into());
        };
        let content = some(fields.either("compacted_content", "compactedContent"));
        let content = content.and_then(|content| Fields::parse(content.get()).ok());
        let blocks = match content {
            Some(content) => blocks(&content, "summary")?,
            None => Vec::new(),
        };
        if blocks.is_empty() {
            return Err("a summary that says nothing".into());
        }
        Ok(Self {
            start,
            end,
            message: by_harness(user(blocks, None)),
        })
    }

    fn contains(&self, other: &Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }
}

/// The summaries of a session, in the order in which they were added.
#[derive(Default)]
pub(super) struct Summaries(Vec<EventSummary>);

impl Summaries {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn truncate(&mut self, kept: usize) {
        self.0.truncate(kept);
    }

    /// Adds a summary. Returns true if it is active: its range is not within the range of another.
    pub(super) fn add(&mut self, summary: EventSummary) -> bool {
        let mut others = self.0.iter();
        let is_new = !others.any(|other| other.contains(&summary) && !summary.contains(other));
        self.0.push(summary);
        is_new
    }

    /// Returns the summaries whose range is not within the range of another, ordered by end.
    fn active(&self) -> Vec<&EventSummary> {
        let is_held = |(at, summary): &(usize, &EventSummary)| {
            let mut others = self.0.iter().enumerate().filter(|(other, _)| other != at);
            others.any(|(other, by)| by.contains(summary) && (!summary.contains(by) || other > *at))
        };
        let all = self.0.iter().enumerate();
        let mut found: Vec<&EventSummary> = all
            .filter(|one| !is_held(one))
            .map(|(_, summary)| summary)
            .collect();
        found.sort_by(|one, other| one.end.total_cmp(&other.end));
        found
    }

    pub(super) fn messages(&self) -> Vec<AgentMessage> {
        let found = self.active().into_iter();
        found.map(|summary| summary.message.clone()).collect()
    }

    /// Returns the last second of the summarised ranges.
    pub(super) fn end(&self) -> f64 {
        let ends = self.0.iter().map(|summary| summary.end);
        ends.fold(f64::NEG_INFINITY, f64::max)
    }

    /// Returns the summarised ranges of seconds.
    pub(super) fn covered(&self) -> CoveredEvents {
        let mut ranges: Vec<(f64, f64)> = self.0.iter().map(|one| (one.start, one.end)).collect();
        ranges.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut merged: Vec<(f64, f64)> = Vec::new();
        for (start, end) in ranges {
            match merged.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => merged.push((start, end)),
            }
        }
        CoveredEvents(merged)
    }
}

/// Disjoint ranges of seconds, in order.
pub(super) struct CoveredEvents(Vec<(f64, f64)>);

impl CoveredEvents {
    pub(super) fn contains(&self, seconds: f64) -> bool {
        let next = self.0.partition_point(|range| range.0 <= seconds);
        let range = next.checked_sub(1).and_then(|at| self.0.get(at));
        range.is_some_and(|range| seconds <= range.1)
    }
}
