//! What a recorder stores besides messages, as plain values.

use std::ops::Range;

use super::LoopKey;

/// A row of `started_calls`: a tool call, written before the tool runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallRow {
    /// The loop that makes it.
    pub loop_key: LoopKey,
    /// Names the call.
    pub call_id: String,
    /// Counts the calls of the loop with this id, from 0.
    pub nth: u32,
    /// The tool.
    pub tool_name: String,
    /// What the tool is called with, as JSON; `None` once the result is stored.
    pub arguments: Option<String>,
    /// The same at each attempt.
    pub idempotency_key: String,
    /// The source's index of the turn.
    pub turn_index: Option<i64>,
    /// ISO-8601 text.
    pub started_at: String,
    /// How often it was started.
    pub attempts: u32,
    /// ISO-8601 text; `None`: there is no result.
    pub finished_at: Option<String>,
}

/// A row of `append_keys`: the name that a caller gave an append, and where its messages are.
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

/// Which append keys of a session are asked for, in the order of their bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppendKeyRange {
    /// Only names that begin so.
    pub prefix: String,
    /// Only names behind this one.
    pub after: Option<String>,
    /// Only names before this one.
    pub before: Option<String>,
    /// The last one first.
    pub descending: bool,
    /// The most to return.
    pub limit: Option<u32>,
}

impl AppendKeyRange {
    /// Returns the least name that may be asked for, and the first that is behind all of them.
    pub fn bounds(&self) -> (String, Option<String>) {
        // The least text behind another is that one with a character of zero; a backend that cannot hold
        // such a text has none between the two.
        let after = self.after.as_deref().unwrap_or_default();
        let end = end_of_prefix(&self.prefix);
        let end = match (end, self.before.clone()) {
            (Some(end), Some(before)) => Some(end.min(before)),
            (end, before) => end.or(before),
        };
        (self.prefix.as_str().max(after).to_owned(), end)
    }
}

/// Returns the first text, in the order of bytes, behind all that begin with `prefix`; `None`: there is none.
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

/// A row of `notes`: what was told of a loop while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// An event as JSON.
    Event(String),
    /// A turn as JSON.
    Turn(String),
}

/// What providers reported, summed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UsageRow {
    /// The loop.
    pub loop_id: String,
    /// The model, if the answers name one.
    pub model: Option<String>,
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
    /// The providers' own totals, or else input, output and both caches.
    pub total: u64,
    /// What providers reported as `usage.cost` or `usage.cost.total`.
    pub cost: f64,
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
