//! Rows that a recorder stores besides messages, as plain values.

use std::ops::Range;

use serde::Serialize;

use super::LoopKey;

/// A row of `started_calls`: a tool call, written before the tool runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallRow {
    /// The loop that makes the call.
    pub loop_key: LoopKey,
    /// The id of the call.
    pub call_id: String,
    /// The number of the call among those of the loop with this id, from 0.
    pub nth: u32,
    /// The tool.
    pub tool_name: String,
    /// The arguments of the call, as JSON; `None` once the result is stored.
    pub arguments: Option<String>,
    /// The idempotency key, the same at each attempt.
    pub idempotency_key: String,
    /// The source's index of the turn.
    pub turn_index: Option<i64>,
    /// ISO-8601 text.
    pub started_at: String,
    /// The number of times that the call was started.
    pub attempts: u32,
    /// ISO-8601 text; `None` while there is no result.
    pub finished_at: Option<String>,
}

/// A row of `append_keys`: the key (here `name`) that a caller gave an append, and the position of its messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendKey {
    /// The name; unique in its session.
    pub name: String,
    /// The loop of the last message.
    pub loop_key: LoopKey,
    /// The sequences in that loop.
    pub seqs: Range<u32>,
    /// The turns in that loop.
    pub turns: Range<u32>,
    /// The tokens of all messages.
    pub tokens: u64,
}

/// A range of append keys of a session, in the order of their bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppendKeyRange {
    /// The prefix of the names.
    pub prefix: String,
    /// The name after which the range begins.
    pub after: Option<String>,
    /// The name before which the range ends.
    pub before: Option<String>,
    /// True to return the last name first.
    pub descending: bool,
    /// The largest number of keys to return.
    pub limit: Option<u32>,
}

impl AppendKeyRange {
    /// Returns the lower bound of the names, inclusive, and the upper bound, exclusive.
    pub fn bounds(&self) -> (String, Option<String>) {
        // The least text after another is that text with a zero character appended; a backend that cannot
        // store such a text has none between the two.
        let after = self.after.as_deref().unwrap_or_default();
        let end = end_of_prefix(&self.prefix);
        let end = match (end, self.before.clone()) {
            (Some(end), Some(before)) => Some(end.min(before)),
            (end, before) => end.or(before),
        };
        (self.prefix.as_str().max(after).to_owned(), end)
    }
}

/// Returns the first text, in the order of bytes, after all that begin with `prefix`; `None` if there is none.
fn end_of_prefix(prefix: &str) -> Option<String> {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        // The order of bytes of UTF-8 is that of the characters.
        if let Some(next) = (last..=char::MAX).nth(1) {
            chars.push(next);
            return Some(chars.into_iter().collect());
        }
    }
    None
}

/// A row of `notes`: a fact recorded of a loop while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// An event as JSON.
    Event(String),
    /// A turn as JSON.
    Turn(String),
}

/// Tokens as providers reported them, and their cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct UsageCost {
    /// Prompt tokens.
    pub input: u64,
    /// Completion tokens.
    pub output: u64,
    /// Prompt tokens read from a cache.
    pub cache_read: u64,
    /// Prompt tokens written to a cache.
    pub cache_write: u64,
    /// Completion tokens spent on reasoning.
    pub reasoning: u64,
    /// The total that the providers reported, or else the sum of input, output and both caches.
    pub total: u64,
    /// The cost: by the given price, else as providers reported it (`usage.cost`).
    pub cost: f64,
}

impl UsageCost {
    /// Adds another usage.
    pub fn add(&mut self, other: &Self) {
        self.input = self.input.saturating_add(other.input);
        self.output = self.output.saturating_add(other.output);
        self.cache_read = self.cache_read.saturating_add(other.cache_read);
        self.cache_write = self.cache_write.saturating_add(other.cache_write);
        self.reasoning = self.reasoning.saturating_add(other.reasoning);
        self.total = self.total.saturating_add(other.total);
        self.cost += other.cost;
    }
}

/// The token usage that providers reported for the answers of a model in a loop, summed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UsageRow {
    /// The loop.
    pub loop_id: String,
    /// The model, if the answers name one.
    pub model: Option<String>,
    /// The tokens, and the sum of `usage.cost` or `usage.cost.total`, as providers reported them.
    pub spent: UsageCost,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_so_lies_before_its_end_whatever_follows() {
        for (prefix, end) in [
            ("", None),
            ("cp/", Some("cp0")),
            ("a\u{7f}", Some("a\u{80}")),
            ("\u{d7ff}", Some("\u{e000}")),
            ("a\u{10ffff}\u{10ffff}", Some("b")),
            ("\u{10ffff}", None),
        ] {
            let found = end_of_prefix(prefix);
            assert_eq!(found.as_deref(), end);
            if let Some(end) = found {
                for more in ["", "\0", "\u{10ffff}\u{10ffff}"] {
                    let name = format!("{prefix}{more}");
                    assert!(name.as_bytes() < end.as_bytes(), "{name:?} {end:?}");
                }
            }
        }
    }
}
