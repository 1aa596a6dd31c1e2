//! Loops and their turns.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

use super::{LoopKey, SessionKey, Size, Tick};
use crate::model::{LoopId, LoopStatus};

/// What a loop holds, as kept by each append.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoopTotals {
    /// Messages stored, extensions included: the next sequence.
    pub next_seq: u32,
    /// Messages before this sequence are sealed.
    pub sealed_seq: u32,
    /// Turn groups.
    pub turns: u32,
    /// Turn groups that are not in flight.
    pub complete: u32,
    /// Messages that are no extension.
    pub messages: u64,
    /// Tokens of these.
    pub tokens: u64,
    /// Bytes of these as JSON.
    pub bytes: u64,
    /// The newest generation of a block on this loop.
    pub generation: u32,
    /// What the provider of the last answer counted; `None` if none told, or a run, an undo or a redo
    /// came after it.
    pub reported: Option<ReportedTokens>,
}

/// What a provider counted for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportedTokens {
    /// The sequence of the answer.
    pub seq: u32,
    /// All that the call read and wrote: with the system prompt and the tools.
    pub tokens: u64,
}

/// What else of a loop the next append goes on from.
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

/// What a chain needs of a loop: where it stands, and how much it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopCore {
    /// Its key.
    pub key: LoopKey,
    /// Its session.
    pub session: SessionKey,
    /// Its public id.
    pub loop_id: LoopId,
    /// The loop that it goes on from, if that is in the same session.
    pub parent: Option<LoopKey>,
    /// The last turn of the parent that belongs to this loop's chain; `None`: no turn of it.
    pub parent_turn: Option<u32>,
    /// Where within that turn the chain leaves the parent: the last sequence that belongs to it; `None`: the
    /// whole turn does.
    pub parent_seq: Option<u32>,
    /// Where it stands.
    pub status: LoopStatus,
    /// What it holds.
    pub totals: LoopTotals,
}

/// A row of `loops`: the core, which can be asked for as if it were the row's own, and what else
/// appending and showing need.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopRow {
    /// What a chain needs.
    pub core: LoopCore,
    /// The parent as the source names it.
    pub parent_loop_id: Option<LoopId>,
    /// The continuation kind as JSON.
    pub kind: String,
    /// ISO-8601 text.
    pub started_at: Option<String>,
    /// ISO-8601 text.
    pub ended_at: Option<String>,
    /// When it was created.
    pub tick: Tick,
    /// What the next append goes on from.
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
    /// Returns how many turns of the parent belong to this loop's chain, one of which only a part does included.
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

/// Where a chain leaves a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// How many turns belong whole to the chain.
    pub whole: u32,
    /// The last sequence of the turn after these that belongs to it too; `None`: nothing of that does.
    pub part: Option<u32>,
}

impl Cut {
    /// No cut: all of a loop belongs to its own chain.
    pub const NONE: Self = Self {
        whole: u32::MAX,
        part: None,
    };

    /// Returns how many turns belong to the chain, one of which only a part does included.
    pub fn turns(&self) -> u32 {
        self.whole.saturating_add(u32::from(self.part.is_some()))
    }

    /// Whether a message of a turn lies before it.
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
    /// Whether the model answered.
    pub answered: bool,
    /// Other turns that hold a call answered here.
    pub answers: Vec<CallSite>,
    /// When it was last appended to.
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
