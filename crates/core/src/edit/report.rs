//! The report of an edit.

use serde::Serialize;

use crate::model::{EditAction, LoopId};

/// The result of an edit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EditReport {
    /// The run that the edits belong to; `None` for a dry run.
    pub run_id: Option<String>,
    /// The edited messages and parts that the request names.
    pub edits: Vec<EditedMessage>,
    /// The other halves of pairs, which are removed with them.
    pub paired: Vec<EditedMessage>,
    /// The content that a provider bound to an edited part, which is removed with it.
    pub bound: Vec<EditedMessage>,
    /// The messages that match and were not edited.
    pub skipped: Vec<SkippedMessage>,
    /// The runs of compaction of which a text is not active any more, since it was made from an edited message.
    pub stale: Vec<String>,
    /// Tokens of the context before.
    pub tokens_before: u64,
    /// Tokens of the context after.
    pub tokens_after: u64,
    /// Messages of the context before.
    pub messages_before: u64,
    /// Messages of the context after.
    pub messages_after: u64,
}

/// An edited message or part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EditedMessage {
    /// The loop.
    pub loop_id: LoopId,
    /// The turn.
    pub turn: u32,
    /// The sequence of the message in the loop.
    pub seq: u32,
    /// The part; `None` for the whole message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<u32>,
    /// The action, which says what contexts show of it.
    pub action: EditAction,
    /// Tokens of the message or the part as recorded.
    pub tokens_before: u64,
    /// Tokens of what is shown instead.
    pub tokens_after: u64,
}

/// A message that was not edited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SkippedMessage {
    /// The loop.
    pub loop_id: LoopId,
    /// The turn.
    pub turn: u32,
    /// The sequence of the message in the loop.
    pub seq: u32,
    /// The reason.
    pub reason: &'static str,
}
