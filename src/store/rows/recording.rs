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
