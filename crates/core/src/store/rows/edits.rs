//! Edits: messages, or parts of a message, that contexts show in another form or not at all.

use std::collections::HashSet;

use super::{LoopKey, Point, RunKey, Size, Tick};
use crate::model::EditAction;

/// A row of `edits`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditRow {
    /// The loop of the messages.
    pub loop_key: LoopKey,
    /// Their sequences, both ends inclusive.
    pub seqs: (u32, u32),
    /// The edited part of one message; `None` if messages are removed as a whole.
    pub part: Option<EditedPart>,
    /// The action.
    pub action: EditAction,
    /// The text that a context shows in place of the part; `None` if nothing is shown.
    pub text: Option<String>,
    /// The size of the messages or the part as recorded. `messages` counts the messages that are removed as a whole.
    pub before: Size,
    /// The size of what is shown instead.
    pub after: Size,
    /// The salt at the beginning of the digest's input.
    pub salt: [u8; 16],
}

/// A part of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EditedPart {
    /// Its number, from 0.
    pub number: u32,
    /// The number of parts of the message.
    pub of: u32,
}

impl EditRow {
    /// True if the edit applies to a message.
    pub fn covers(&self, seq: u32) -> bool {
        (self.seqs.0..=self.seqs.1).contains(&seq)
    }
}

/// The run of packed edits, with the position of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedRun {
    /// The run.
    pub run: RunKey,
    /// The public id of the run.
    pub run_id: String,
    /// The position at which the run was made.
    pub point: Point,
}

/// The packed edits of the committed runs of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackedRuns {
    /// The edits of each run as [`pack`](crate::store::packed_edits::pack) returns them, one run after another, in the
    /// order of their ticks.
    pub edits: Vec<u8>,
    /// The runs of the session that were ever undone or redone.
    pub flipped: HashSet<RunKey>,
}

/// An edit of a committed run, with the position and the tick of the run, which decide if it is live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunEdit {
    /// The run.
    pub run: RunKey,
    /// The public id of the run.
    pub run_id: String,
    /// The position at which the run was made.
    pub point: Point,
    /// The tick at which the run was committed.
    pub tick: Tick,
    /// The number of the edit in its run.
    pub ordinal: u32,
    /// The edit.
    pub edit: EditRow,
}
