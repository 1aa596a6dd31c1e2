//! The parts of a stream that were passed on and not recorded.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

/// The reason that a part of a stream was not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Unrecorded {
    /// Lines that are not JSON objects.
    NotJson,
    /// Lines that are longer than 64 MiB.
    TooLong,
    /// Bytes that arrived faster than they could be recorded, or after the recorder stopped.
    DroppedBytes,
    /// Lines of which bytes were dropped.
    Incomplete,
    /// Messages with an unknown method.
    UnknownMethod,
    /// Messages without the fields that their method requires.
    Malformed,
    /// Updates outside of a prompt.
    OutsidePrompt,
    /// Updates with which the agent repeated a stored conversation.
    Repeated,
    /// Updates of a tool call after its result.
    LateUpdate,
    /// Messages that could not be stored.
    StoreFailed,
}

impl fmt::Display for Unrecorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotJson => "lines that are not JSON objects",
            Self::TooLong => "lines longer than 64 MiB",
            Self::DroppedBytes => "bytes that arrived too fast or after the recorder stopped",
            Self::Incomplete => "lines with missing bytes",
            Self::UnknownMethod => "messages with an unknown method",
            Self::Malformed => "messages without required fields",
            Self::OutsidePrompt => "updates outside of a prompt",
            Self::Repeated => "updates that repeat a stored conversation",
            Self::LateUpdate => "updates of a tool call after its result",
            Self::StoreFailed => "messages that could not be stored",
        })
    }
}

/// The number of unrecorded parts by reason.
pub(crate) type PassedCounts = BTreeMap<Unrecorded, u64>;

/// Adds to a count.
pub(crate) fn add(counts: &mut PassedCounts, reason: Unrecorded, count: u64) {
    if count > 0 {
        *counts.entry(reason).or_default() += count;
    }
}
