//! Loops and their turns.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

use super::{LoopKey, SessionKey, Size, Tick};
use crate::model::{LoopId, LoopStatus};

/// The totals of a loop, updated by each append.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoopTotals {
    /// Messages stored, extensions included: the next sequence.
    pub next_seq: u32,
    /// The first sequence that is not final yet.
    pub sealed_seq: u32,
    /// Turn groups.
    pub turns: u32,
    /// Turn groups that are not in flight.
    pub complete: u32,
    /// Messages that are not extensions.
    pub messages: u64,
    /// Tokens of these messages.
    pub tokens: u64,
    /// Bytes of these messages as JSON.
    pub bytes: u64,
    /// The newest generation of a block on this loop.
    pub generation: u32,
    /// The tokens that the provider of the last answer reported; `None` if it reported none, or a run, an
    /// undo or a redo came after the answer.
    pub reported: Option<ReportedTokens>,
}

/// The tokens that a provider reported for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportedTokens {
    /// The sequence of the answer.
    pub seq: u32,
    /// The tokens that the call read and wrote, with the system prompt and the tools.
    pub tokens: u64,
}

/// The running state of a loop that the next append continues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoopProgress {
    /// Tokens of extensions of kind `system`.
    pub system_tokens: u64,
    /// The source's index of the last turn group.
    pub last_turn_index: Option<i64>,
    /// Calls without a result, and the turn that made them.
    pub open_calls: BTreeMap<String, u32>,
    /// The digest chain through the last message.
    pub chain: [u8; 32],
}

/// The part of a loop that a chain needs: its parent, its status and its totals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopCore {
    /// Its key.
    pub key: LoopKey,
    /// Its session.
    pub session: SessionKey,
    /// Its public id.
    pub loop_id: LoopId,
    /// The loop that it continues, if that loop is in the same session.
    pub parent: Option<LoopKey>,
    /// The last turn of the parent that belongs to this loop's chain; `None` if no turn does.
    pub parent_turn: Option<u32>,
    /// The last sequence of that turn that belongs to the chain; `None` if the whole turn does.
    pub parent_seq: Option<u32>,
    /// The status.
    pub status: LoopStatus,
    /// The totals.
    pub totals: LoopTotals,
    /// The number of edits of its messages, whatever their runs; written with the edits.
    pub edits: u32,
}

/// A row of `loops`: the core, to which the row dereferences, and the columns that only appends and
/// reports need.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopRow {
    /// The part that a chain needs.
    pub core: LoopCore,
    /// The parent as the source names it.
    pub parent_loop_id: Option<LoopId>,
    /// The continuation kind as JSON.
    pub kind: String,
    /// ISO-8601 text.
    pub started_at: Option<String>,
    /// ISO-8601 text.
    pub ended_at: Option<String>,
    /// The tick at which it was created.
    pub tick: Tick,
    /// The running state that the next append continues.
    pub progress: LoopProgress,
}

impl Deref for LoopRow {
    type Target = LoopCore;

    fn deref(&self) -> &LoopCore {
        &self.core
    }
}

impl DerefMut for LoopRow {
    fn deref_mut(&mut self) -> &mut LoopCore {
        &mut self.core
    }
}

impl LoopCore {
    /// Returns the number of the parent's turns that belong to this loop's chain, a partial last turn included.
    pub fn parent_turns(&self) -> u32 {
        self.parent_turn.map_or(0, |turn| turn.saturating_add(1))
    }

    /// Returns where this loop's chain leaves the parent.
    pub fn parent_cut(&self) -> Cut {
        let part = self.parent_seq;
        Cut {
            whole: self
                .parent_turns()
                .saturating_sub(u32::from(part.is_some())),
            part,
        }
    }

    /// Returns the parent, and where this loop's chain leaves it.
    pub(crate) fn parent_with_cut(&self) -> Option<(LoopKey, Cut)> {
        self.parent.map(|parent| (parent, self.parent_cut()))
    }
}

/// The point at which a chain leaves a loop, to continue in one of the loop's children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The number of turns of the loop that belong to the chain as a whole.
    pub whole: u32,
    /// If only the beginning of the next turn belongs to the chain, the sequence of the last message of that
    /// beginning; else `None`.
    pub part: Option<u32>,
}

impl Cut {
    /// No cut: all of a loop belongs to its own chain.
    pub const NONE: Self = Self {
        whole: u32::MAX,
        part: None,
    };

    /// Returns the number of turns that belong to the chain, a partial last turn included.
    pub fn turns(&self) -> u32 {
        self.whole.saturating_add(u32::from(self.part.is_some()))
    }

    /// True if a message of a turn is before the cut.
    pub fn holds(&self, turn: u32, seq: u32) -> bool {
        turn < self.whole || turn == self.whole && self.part.is_some_and(|last| seq <= last)
    }
}

/// A row of `turns`: one turn group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TurnRow {
    /// Its position in the loop.
    pub turn: u32,
    /// The sequence of its first message.
    pub first_seq: u32,
    /// Messages of the loop through this turn.
    pub messages: u64,
    /// User messages of the loop through this turn.
    pub prompts: u64,
    /// Tokens of the loop through this turn.
    pub tokens: u64,
    /// Bytes of the loop through this turn.
    pub bytes: u64,
    /// The source's index.
    pub turn_index: Option<i64>,
    /// True if the model answered.
    pub answered: bool,
    /// Other turns with a call that is answered in this turn.
    pub answers: Vec<CallSite>,
    /// The tick of the last append to the turn.
    pub tick: Tick,
    /// Milliseconds since the epoch.
    pub started_at: Option<i64>,
    /// Milliseconds since the epoch.
    pub ended_at: Option<i64>,
}

/// The turn that holds a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallSite {
    /// Its loop.
    pub loop_key: LoopKey,
    /// The turn.
    pub turn: u32,
}

impl TurnRow {
    /// Returns the size of the loop through this turn.
    pub fn size(&self) -> Size {
        Size {
            tokens: self.tokens,
            bytes: self.bytes,
            messages: self.messages,
        }
    }
}
