//! The turns of a stored loop, as a strategy reads them.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::ranges::{size_of, turn_seqs};
use crate::compaction::{LoopMessage, ReadError, StrategyError, TurnReader};
use crate::model::{AgentMessage, Role, SessionId, Turns};
use crate::store::{
    self, BlockKey, LiveEdits, LoopKey, MessageEdit, Section, SessionStore, StoreError, StoreRead,
    StoreResult,
};

/// Reads one loop of a store; each call is a transaction of its own.
pub struct StoreTurns<'a> {
    store: &'a dyn SessionStore,
    loop_key: LoopKey,
    /// The sequence after the last that may be read.
    through: u32,
    /// The number of turns of the chain and the end of the last one, if the chain leaves the loop within it.
    part: Option<(u32, u32)>,
    /// The active block.
    before: Option<BlockKey>,
    /// The live edits of the loop.
    edits: Option<Arc<LiveEdits>>,
    bytes_read: AtomicU64,
}

impl<'a> StoreTurns<'a> {
    pub fn new(
        store: &'a dyn SessionStore,
        loop_key: LoopKey,
        through: u32,
        part: Option<(u32, u32)>,
        before: Option<BlockKey>,
        edits: Option<Arc<LiveEdits>>,
    ) -> Self {
        let bytes_read = AtomicU64::default();
        Self {
            store,
            loop_key,
            through,
            part,
            before,
            edits,
            bytes_read,
        }
    }

    fn read<T>(&self, work: impl FnOnce(&dyn StoreRead) -> StoreResult<T>) -> Result<T, ReadError> {
        Ok(store::read(self.store, work)?)
    }

    fn count_read(&self, bytes: u64) {
        self.bytes_read.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Reads one message, an extension too.
    fn message(&self, read: &dyn StoreRead, seq: u32) -> StoreResult<Option<LoopMessage>> {
        let mut found = None;
        read.messages(self.loop_key, seq..seq.saturating_add(1), &mut |row| {
            self.count_read(row.body.bytes);
            found = Some(LoopMessage {
                turn: row.turn.unwrap_or_default(),
                seq,
                message: store::decode(read, row.body)?,
            });
            Ok(ControlFlow::Break(()))
        })?;
        Ok(found)
    }
}

impl TurnReader for StoreTurns<'_> {
    fn session_id(&self) -> Result<SessionId, ReadError> {
        self.read(|read| {
            let session = read.loop_by_key(self.loop_key)?.session;
            Ok(read.session_by_key(session)?.session_id)
        })
    }

    fn tokens(&self, turns: Turns) -> Result<u64, ReadError> {
        let part = self.part.filter(|(all, _)| *all == turns.end());
        let end = part.map(|(_, end)| end);
        self.read(|read| {
            let size = size_of(read, self.loop_key, turns, end)?;
            let Some(edits) = &self.edits else {
                return Ok(size.tokens);
            };
            let seqs = turn_seqs(read, self.loop_key, turns, self.through)?;
            Ok(edits.resized(read, self.loop_key, &seqs, size)?.tokens)
        })
    }

    fn messages(&self, turns: Turns) -> Result<Vec<LoopMessage>, ReadError> {
        self.read(|read| {
            let mut found = Vec::new();
            let seqs = turn_seqs(read, self.loop_key, turns, self.through)?;
            read.messages(self.loop_key, seqs, &mut |row| {
                self.count_read(row.body.bytes);
                let edit = self.edits.as_ref().and_then(|edits| edits.at(row.seq));
                if edit == Some(MessageEdit::Removed) {
                    return Ok(ControlFlow::Continue(()));
                }
                if let (Some(turn), true) = (row.turn, row.body.role != Role::Extension) {
                    let mut message = store::decode(read, row.body)?;
                    if let Some(MessageEdit::Parts(edited)) = edit {
                        edited.apply(&mut message);
                    }
                    found.push(LoopMessage {
                        turn,
                        seq: row.seq,
                        message,
                    });
                }
                Ok(ControlFlow::Continue(()))
            })?;
            Ok(found)
        })
    }

    /// Reads the long results only, which the stored counts of lines identify. A result with edits is shown as the edits
    /// say, and not cut.
    fn long_results(&self, turns: Turns, max_lines: usize) -> Result<Vec<LoopMessage>, ReadError> {
        self.read(|read| {
            let seqs = turn_seqs(read, self.loop_key, turns, self.through)?;
            let mut long = Vec::new();
            read.sizes(self.loop_key, seqs, &mut |size| {
                let is_edited =
                    (self.edits.as_ref()).is_some_and(|edits| edits.at(size.seq).is_some());
                if !is_edited && size.lines.is_some_and(|lines| lines as usize > max_lines) {
                    long.push(size.seq);
                }
                Ok(ControlFlow::Continue(()))
            })?;
            let long = long.into_iter().map(|seq| self.message(read, seq));
            long.filter_map(Result::transpose).collect()
        })
    }

    fn first_prompt(&self) -> Result<Option<AgentMessage>, ReadError> {
        self.read(|read| {
            let edits = self.edits.as_deref();
            let prompt = first_prompt(read, self.loop_key, self.through, edits)?;
            if let Some((_, bytes)) = &prompt {
                self.count_read(*bytes);
            }
            Ok(prompt.map(|(message, _)| message))
        })
    }

    fn earlier_messages(&self) -> Result<Vec<AgentMessage>, ReadError> {
        let Some(block) = self.before else {
            return Ok(Vec::new());
        };
        self.read(|read| {
            let shown = read.block_messages(block)?.into_iter();
            let own = shown.filter(|message| message.section == Section::Compacted);
            let own = own.filter(|message| message.quotes.is_none());
            own.filter_map(|message| message.body)
                .filter(|body| body.role != Role::Extension)
                .map(|body| {
                    self.count_read(body.bytes);
                    store::decode(read, body)
                })
                .collect()
        })
    }

    fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }
}

/// Returns the first prompt of a loop before the sequence `through`, as the edits show it, and its bytes. A prompt
/// without a text does not count, nor one that the edits remove.
pub fn first_prompt(
    read: &dyn StoreRead,
    loop_key: LoopKey,
    through: u32,
    edits: Option<&LiveEdits>,
) -> StoreResult<Option<(AgentMessage, u64)>> {
    let mut next = 0;
    loop {
        let mut seq = None;
        read.sizes(loop_key, next..through, &mut |size| {
            seq = size.is_prompt().then_some(size.seq);
            Ok(match seq {
                Some(_) => ControlFlow::Break(()),
                None => ControlFlow::Continue(()),
            })
        })?;
        let Some(seq) = seq else { return Ok(None) };
        next = seq.saturating_add(1);
        let edit = edits.and_then(|edits| edits.at(seq));
        if edit == Some(MessageEdit::Removed) {
            continue;
        }
        let mut found = None;
        read.messages(loop_key, seq..next, &mut |row| {
            let bytes = row.body.bytes;
            let mut message = store::decode(read, row.body)?;
            if let Some(MessageEdit::Parts(edited)) = edit {
                edited.apply(&mut message);
            }
            found = Some((message, bytes));
            Ok(ControlFlow::Break(()))
        })?;
        let has_prompt = |(message, _): &(AgentMessage, u64)| {
            message
                .message()
                .is_some_and(|message| message.prompt_text().is_some())
        };
        if let Some(prompt) = found.filter(has_prompt) {
            return Ok(Some(prompt));
        }
    }
}

impl From<StoreError> for ReadError {
    fn from(error: StoreError) -> Self {
        Self::new(error)
    }
}

impl From<ReadError> for StoreError {
    fn from(error: ReadError) -> Self {
        match error.into_inner().downcast() {
            Ok(error) => *error,
            Err(other) => Self::Invalid(other.to_string()),
        }
    }
}

impl From<StoreError> for StrategyError {
    fn from(error: StoreError) -> Self {
        Self::Read(error.into())
    }
}
