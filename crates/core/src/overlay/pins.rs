//! The pinned messages of a chain, and the blocks that quote them.
//!
//! A pin counts from a leaf if the point at which the pin was made is on the leaf's chain, as for an undo. A block
//! quotes the pinned messages that its summary hides, so only compactions read pins, never the build of a context.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use crate::model::{Role, Turns};
use crate::store::active_blocks::{ActiveBlocks, ChainView};
use crate::store::{
    BlockMessage, LoopKey, MessageSize, PinRow, SessionKey, StoreRead, StoreResult,
};

/// A pinned message of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PinnedMessage {
    /// The loop: keys rise along a chain.
    pub loop_key: LoopKey,
    /// Its sequence.
    pub seq: u32,
    /// Its turn.
    pub turn: u32,
}

impl PinnedMessage {
    /// Returns its position: loop and sequence.
    pub fn place(&self) -> (LoopKey, u32) {
        (self.loop_key, self.seq)
    }

    /// True if a block on the loop `own` hides the message: the turns `compacted` of that loop, and with `rollup`
    /// also all loops before it.
    pub fn is_hidden(&self, own: LoopKey, compacted: Option<Turns>, rollup: bool) -> bool {
        match self.loop_key == own {
            true => compacted.is_some_and(|turns| (turns.first..=turns.last).contains(&self.turn)),
            false => rollup && self.loop_key < own,
        }
    }
}

/// The pinned messages of a chain.
#[derive(Clone, Debug, Default)]
pub struct ChainPins {
    /// The messages from the root to the leaf.
    pub messages: Vec<PinnedMessage>,
    /// True if a block may contain quotes: a message was once pinned in the session, or prompts are or were kept.
    pub any: bool,
}

impl ChainPins {
    /// Reads the pins that count from `leaf` now.
    pub fn load(read: &dyn StoreRead, session: SessionKey, leaf: LoopKey) -> StoreResult<Self> {
        let rows = read.pins(session)?;
        let mut chain = ActiveBlocks::new(read, leaf, ChainView::default());
        let mut last: BTreeMap<(LoopKey, u32), PinRow> = BTreeMap::new();
        let any = !rows.is_empty();
        for row in rows {
            if chain.counts(row.point)? {
                last.insert((row.loop_key, row.seq), row);
            }
        }
        let mut messages = Vec::new();
        for ((loop_key, seq), _) in last.into_iter().filter(|(_, row)| row.pinned) {
            // The last turn of an import may have been replaced by one that is shorter.
            let Some(turn) = turn_of(read, loop_key, seq)? else {
                continue;
            };
            if chain.holds(loop_key, turn, seq)? {
                messages.push(PinnedMessage {
                    loop_key,
                    seq,
                    turn,
                });
            }
        }
        Ok(Self { messages, any })
    }

    /// Leaves out the messages of which a live edit removes or replaces something: a pin does not bring their words
    /// back.
    pub fn without_rewritten(
        mut self,
        read: &dyn StoreRead,
        session: SessionKey,
        leaf: LoopKey,
    ) -> StoreResult<Self> {
        if self.messages.is_empty() || read.edit_count(session)? == 0 {
            return Ok(self);
        }
        let mut chain = ActiveBlocks::new(read, leaf, ChainView::default());
        let mut kept = Vec::with_capacity(self.messages.len());
        for pin in self.messages {
            let edits = chain.live_edits(pin.loop_key)?;
            let only = pin.seq..pin.seq.saturating_add(1);
            let is_rewritten = edits.is_some_and(|edits| edits.rewrites(&only));
            kept.extend((!is_rewritten).then_some(pin));
        }
        self.messages = kept;
        Ok(self)
    }
}

/// Returns the messages that a block quotes.
pub fn quotes_of(
    read: &dyn StoreRead,
    messages: &[BlockMessage],
) -> StoreResult<Vec<PinnedMessage>> {
    let mut quotes = Vec::new();
    for (loop_key, seq) in messages.iter().filter_map(BlockMessage::quoted) {
        if let Some(turn) = turn_of(read, loop_key, seq)? {
            quotes.push(PinnedMessage {
                loop_key,
                seq,
                turn,
            });
        }
    }
    Ok(quotes)
}

/// Returns the turn of a message that a context can show.
fn turn_of(read: &dyn StoreRead, loop_key: LoopKey, seq: u32) -> StoreResult<Option<u32>> {
    let mut turn = None;
    read.sizes(
        loop_key,
        seq..seq.saturating_add(1),
        &mut |size: MessageSize| {
            turn = size.turn.filter(|_| size.role != Role::Extension);
            Ok(ControlFlow::Break(()))
        },
    )?;
    Ok(turn)
}
