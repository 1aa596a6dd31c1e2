//! The request of an edit.

use std::ops::RangeInclusive;

use crate::model::{EditAction, LoopId};

/// The strategy of a run with edits that a person or a program made.
const STRATEGY: &str = "edit";

/// The strategy of a run that edits old tool results; see [`EditTarget::OldResults`].
const CLEAR_STRATEGY: &str = "clear";

/// The messages to edit, and what to do with them.
#[derive(Clone, Debug)]
pub struct EditRequest {
    /// The leaf at which the edits are recorded; the session's current loop if `None`.
    pub leaf: Option<LoopId>,
    /// The action, which says what contexts show of the targets.
    pub action: EditAction,
    /// The messages and parts.
    pub targets: Vec<EditTarget>,
    /// The text that replaces a part; required for [`EditAction::Replaced`] only. The text of a call is its arguments,
    /// a JSON object.
    pub text: Option<String>,
    /// The tokens by which the context must become smaller. If it does not, nothing is written
    /// ([`EditRefusal::TooLittle`](crate::store::EditRefusal::TooLittle)).
    pub at_least: u64,
    /// True to return the report of the edit without writing anything.
    pub dry_run: bool,
    /// The reason, stored with the run.
    pub reason: Option<String>,
}

impl EditRequest {
    /// Returns a request for the current loop of a session.
    pub fn new(action: EditAction, targets: impl IntoIterator<Item = EditTarget>) -> Self {
        Self {
            leaf: None,
            action,
            targets: targets.into_iter().collect(),
            text: None,
            at_least: 0,
            dry_run: false,
            reason: None,
        }
    }

    /// Returns a request to remove messages or parts.
    pub fn remove(targets: impl IntoIterator<Item = EditTarget>) -> Self {
        Self::new(EditAction::Removed, targets)
    }

    /// Returns a request to show markers in place of texts.
    pub fn clear(targets: impl IntoIterator<Item = EditTarget>) -> Self {
        Self::new(EditAction::Cleared, targets)
    }

    /// Returns a request to show a text in place of a message or a part.
    pub fn replace(target: EditTarget, text: impl Into<String>) -> Self {
        Self {
            text: Some(text.into()),
            ..Self::new(EditAction::Replaced, [target])
        }
    }

    /// Returns the strategy of the run.
    pub(super) fn strategy(&self) -> &'static str {
        let is_of_policy = |target: &EditTarget| matches!(target, EditTarget::OldResults { .. });
        match self.targets.iter().any(is_of_policy) {
            true => CLEAR_STRATEGY,
            false => STRATEGY,
        }
    }
}

/// A target of an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditTarget {
    /// All messages of some turns of a loop.
    Turns(LoopId, RangeInclusive<u32>),
    /// A message, by its loop, its turn and its sequence in the loop.
    Message(LoopId, u32, u32),
    /// A part of a message, from 0.
    Part(LoopId, u32, u32, u32),
    /// A tool call, by its id. Its removal removes the call and its results; cleared or replaced are its results.
    Call(String),
    /// All messages of the chain that meet each condition of a filter.
    Matching(EditFilter),
    /// The tool results that the context shows, except the newest.
    OldResults {
        /// The number of newest results that are no targets, whatever their tools.
        keep: u32,
        /// The names of tools whose results are no targets.
        exclude_tools: Vec<String>,
    },
}

/// The conditions of a filter. At least one must be given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EditFilter {
    /// Words that the texts of a message contain, each of them, in any case.
    pub words: Option<String>,
    /// The tool of a tool result.
    pub tool: Option<String>,
    /// The size of a message's JSON, in bytes, that is exceeded.
    pub larger: Option<u64>,
    /// The number of complete turns that came after the turn of the message, at least.
    pub older_than: Option<u32>,
}

impl EditFilter {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
