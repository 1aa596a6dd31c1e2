//! The result of an append.

use std::ops::Range;

use crate::model::LoopId;
use crate::store::AppendKey;
use crate::store::append::TurnsAppended;

/// The result of an append.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Appended {
    /// The loop of the last of the messages.
    pub loop_id: LoopId,
    /// The turns of the messages in that loop, including turns that existed before the append.
    pub turns: Range<u32>,
    /// The sequences of the messages in that loop.
    pub seqs: Range<u32>,
    /// The tokens of all messages.
    pub tokens: u64,
    /// The loops that the messages began, in order.
    pub begun: Vec<LoopId>,
    /// A sentence for each tool call or result whose missing id or name, or arguments of another type, were
    /// completed.
    pub notes: Vec<String>,
    /// True if the session already had an append under this key; nothing was appended.
    pub duplicate: bool,
}

impl Appended {
    /// Returns the result of an earlier append under a key, in the loop of this id.
    pub(super) fn before(loop_id: LoopId, known: AppendKey) -> Self {
        Self {
            loop_id,
            turns: known.turns,
            seqs: known.seqs,
            tokens: known.tokens,
            begun: Vec::new(),
            notes: Vec::new(),
            duplicate: true,
        }
    }
}

impl From<TurnsAppended> for Appended {
    fn from(done: TurnsAppended) -> Self {
        Self {
            loop_id: done.loop_id,
            turns: done.turns,
            seqs: done.seqs,
            tokens: done.tokens,
            begun: done.begun,
            notes: done.notes,
            duplicate: false,
        }
    }
}
