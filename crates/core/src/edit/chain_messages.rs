//! The messages of a chain as an edit reads them, loop by loop.

use std::collections::{BTreeSet, HashMap};
use std::ops::{ControlFlow, Range};

use crate::model::{Message, Role};
use crate::overlay::ChainPins;
use crate::store::active_blocks::{ChainLink, ChainView, chain};
use crate::store::{self, LoopKey, MessageEdit, SessionRow, Size, StoreRead, StoreResult};

/// The place of a message: the index of its loop in the chain, and its sequence.
pub(super) type Place = (usize, u32);

/// A message of the chain, as it was recorded.
pub(super) struct ChainMessage {
    pub(super) seq: u32,
    pub(super) turn: u32,
    pub(super) size: Size,
    pub(super) message: Message,
}

/// The messages of a chain. A loop is read when it is needed.
pub(super) struct ChainMessages<'a> {
    pub(super) read: &'a dyn StoreRead,
    /// Root first.
    pub(super) links: Vec<ChainLink>,
    pinned: BTreeSet<(LoopKey, u32)>,
    loops: HashMap<usize, Vec<ChainMessage>>,
    /// Messages of loops that were not read as a whole.
    single: HashMap<Place, Option<ChainMessage>>,
}

impl<'a> ChainMessages<'a> {
    pub(super) fn load(
        read: &'a dyn StoreRead,
        owner: &SessionRow,
        leaf: LoopKey,
    ) -> StoreResult<Self> {
        let raw = ChainView {
            raw: true,
            ..ChainView::default()
        };
        let pins = ChainPins::load(read, owner.key, leaf)?.messages;
        Ok(Self {
            read,
            links: chain(read, leaf, raw)?,
            pinned: pins.iter().map(|pin| pin.place()).collect(),
            loops: HashMap::new(),
            single: HashMap::new(),
        })
    }

    /// Returns the messages of a loop in order.
    pub(super) fn of(&mut self, depth: usize) -> StoreResult<&[ChainMessage]> {
        if !self.loops.contains_key(&depth) {
            let found = self.read_messages(depth, 0..u32::MAX)?;
            self.loops.insert(depth, found);
        }
        Ok(self.loops.get(&depth).map_or(&[], Vec::as_slice))
    }

    fn read_messages(&self, depth: usize, seqs: Range<u32>) -> StoreResult<Vec<ChainMessage>> {
        let link = &self.links[depth];
        let (read, mut found) = (self.read, Vec::new());
        let seqs = seqs.start..seqs.end.min(link.end_seq);
        if seqs.is_empty() {
            return Ok(found);
        }
        read.messages(link.row.key, seqs, &mut |row| {
            let (seq, turn) = (row.seq, row.turn);
            let size = Size {
                tokens: row.body.tokens,
                bytes: row.body.bytes,
                messages: 1,
            };
            if row.body.role == Role::Extension {
                return Ok(ControlFlow::Continue(()));
            }
            let message = store::decode(read, row.body)?;
            if let (Some(turn), Some(message)) = (turn, message.message()) {
                found.push(ChainMessage {
                    seq,
                    turn,
                    size,
                    message: message.clone(),
                });
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    }

    /// Returns a message; `None` if it is an extension, or missing.
    pub(super) fn at(&mut self, place: Place) -> StoreResult<Option<&ChainMessage>> {
        if !self.loops.contains_key(&place.0) {
            if !self.single.contains_key(&place) {
                let seqs = place.1..place.1.saturating_add(1);
                let found = self.read_messages(place.0, seqs)?.pop();
                self.single.insert(place, found);
            }
            return Ok(self.single.get(&place).and_then(Option::as_ref));
        }
        let messages = self.of(place.0)?;
        let at = messages.binary_search_by_key(&place.1, |message| message.seq);
        Ok(at.ok().map(|at| &messages[at]))
    }

    /// Returns the live edit of a message.
    pub(super) fn edit(&self, place: Place) -> Option<MessageEdit<'_>> {
        self.links[place.0].edits.as_ref()?.at(place.1)
    }

    /// True if a live edit removes the part of a message, or the message.
    pub(super) fn is_removed(&self, place: Place, part: Option<u32>) -> bool {
        match self.edit(place) {
            None => false,
            Some(MessageEdit::Removed) => true,
            Some(MessageEdit::Parts(edited)) => part.is_some_and(|part| edited.removes(part)),
        }
    }

    pub(super) fn is_pinned(&self, place: Place) -> bool {
        let key = self.links[place.0].row.key;
        self.pinned.contains(&(key, place.1))
    }

    /// True if the turn of a message is not complete.
    pub(super) fn is_in_flight(&self, depth: usize, turn: u32) -> bool {
        depth + 1 == self.links.len() && turn >= self.links[depth].complete
    }

    /// Returns the order in which loops are searched for the other half of a pair of a loop: its own first, then the
    /// nearest.
    pub(super) fn order_from(&self, depth: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.links.len()).collect();
        order.sort_by_key(|other| other.abs_diff(depth));
        order
    }

    /// Returns the results of a call of a message. A later call may have the same id: the results after it are its own.
    pub(super) fn results(&mut self, of: Place, call: &str) -> StoreResult<Vec<Place>> {
        let mut found = Vec::new();
        for depth in of.0..self.links.len() {
            let own = self.of(depth)?.iter();
            for message in own.filter(|own| depth > of.0 || own.seq > of.1) {
                match &message.message {
                    Message::ToolResult(result) if result.tool_call_id == call => {
                        found.push((depth, message.seq));
                    }
                    other if other.tool_calls().any(|made| made.id == call) => return Ok(found),
                    _ => {}
                }
            }
            if !found.is_empty() {
                break;
            }
        }
        Ok(found)
    }

    /// Returns the call with this id: the last one before a result, or the last of all.
    pub(super) fn call(
        &mut self,
        near: Option<Place>,
        call: &str,
    ) -> StoreResult<Option<(Place, u32)>> {
        let from = near.map_or(self.links.len().saturating_sub(1), |place| place.0);
        for depth in self.order_from(from) {
            let end = near.filter(|place| place.0 == depth).map(|place| place.1);
            for message in self.of(depth)?.iter().rev() {
                if end.is_some_and(|end| message.seq >= end) {
                    continue;
                }
                let mut parts = (0u32..).zip(message.message.content());
                let found = parts.find(|(_, part)| {
                    matches!(part, crate::model::Content::ToolCall(made) if made.id == call)
                });
                if let Some((part, _)) = found {
                    return Ok(Some(((depth, message.seq), part)));
                }
            }
        }
        Ok(None)
    }
}
