//! The stored session as types: its record, its loops with their messages, and their blocks.

use std::ops::ControlFlow;

use super::records::{SessionRecords, ordered, session_record};
use super::{Error, Result, SessionHandle};
use crate::model::{CompactionBlock, LoopId, LoopRecord, Session};
use crate::store::{self, BlockKind, LoopRow, SessionRow, StoreRead, StoreResult, decode};

/// A stored block of a loop, with its run and its state.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StoredBlock {
    /// Its number among the blocks of its loop, from 1.
    pub generation: u32,
    /// The run that wrote it.
    pub run_id: String,
    /// Its kind: a block on the loop that was current, on an earlier loop, or a rollup over several loops.
    pub kind: BlockKind,
    /// True if it is active.
    pub is_active: bool,
    /// Its sections.
    pub block: CompactionBlock,
}

impl SessionHandle {
    /// Returns the session with its loops, but without the messages, turns, events and blocks of the loops.
    /// [`SessionHandle::load_loop`] reads these for one loop.
    ///
    /// ```
    /// use loopstore::{Message, Store};
    ///
    /// let chat = Store::in_memory()?.session("weather")?;
    /// chat.append([Message::user("Will it rain?"), Message::assistant("It will.")])?;
    /// let session = chat.load()?;
    /// assert!(session.loops[0].messages.is_empty());
    /// let first = chat.load_loop(&session.loops[0].loop_id)?;
    /// assert_eq!(first.messages.len(), 2);
    /// assert_eq!(chat.active_block(&first.loop_id)?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the session does not exist, or the store fails.
    pub fn load(&self) -> Result<Session> {
        self.loading(|records, row, loops| {
            let mut session = session_record(row, loops)?;
            let outlines = loops.iter().map(|row| records.outline(row));
            session.loops = outlines.collect::<StoreResult<_>>()?;
            Ok(Some(session))
        })?
        .ok_or_else(|| Error::not_found("session", self.id().as_str()))
    }

    /// Returns the session with all its content, as in its JSON document. For a long session this is large;
    /// [`SessionHandle::load`] returns the session without content.
    ///
    /// # Errors
    /// If the session does not exist, or the store fails.
    pub fn load_whole(&self) -> Result<Session> {
        self.loading(|records, row, loops| {
            let mut session = session_record(row, loops)?;
            let whole = loops.iter().map(|row| whole_loop(records, row));
            session.loops = whole.collect::<StoreResult<_>>()?;
            Ok(Some(session))
        })?
        .ok_or_else(|| Error::not_found("session", self.id().as_str()))
    }

    /// Returns a loop with its messages, its recorded turns and events, and its active block, which
    /// includes the turns after it.
    ///
    /// # Errors
    /// If the session has no such loop, or the store fails.
    pub fn load_loop(&self, loop_id: &LoopId) -> Result<LoopRecord> {
        self.of_loop(loop_id, whole_loop)
    }

    /// Returns the blocks of a loop, oldest first. Each block is returned as it was made, without the turns appended
    /// after it.
    ///
    /// # Errors
    /// If the session has no such loop, or the store fails.
    pub fn blocks(&self, loop_id: &LoopId) -> Result<Vec<StoredBlock>> {
        self.of_loop(loop_id, |records, row| stored_blocks(records, row, None))
    }

    /// Returns a block of a loop by its generation.
    ///
    /// # Errors
    /// If the session has no such loop, the loop has no such block, or the store fails.
    pub fn block(&self, loop_id: &LoopId, generation: u32) -> Result<StoredBlock> {
        let found = self.of_loop(loop_id, |records, row| {
            stored_blocks(records, row, Some(generation))
        })?;
        let name = || format!("{loop_id}#{generation}");
        found
            .into_iter()
            .next()
            .ok_or_else(|| Error::not_found("block", name()))
    }

    /// Returns the active block of a loop; `None` if the context shows the originals, or if a rollup on a later loop
    /// replaces the loop.
    ///
    /// # Errors
    /// If the session has no such loop, or the store fails.
    pub fn active_block(&self, loop_id: &LoopId) -> Result<Option<StoredBlock>> {
        let blocks = self.blocks(loop_id)?;
        Ok(blocks.into_iter().rfind(|block| block.is_active))
    }

    fn loading<T>(
        &self,
        work: impl FnOnce(&SessionRecords<'_>, &SessionRow, &[LoopRow]) -> StoreResult<Option<T>>,
    ) -> Result<Option<T>> {
        Ok(store::read(self.store().database(), |read| {
            let Some(row) = read.session(self.id())? else {
                return Ok(None);
            };
            let loops = ordered(read.loops(row.key)?, row.current_loop);
            let records = SessionRecords::of(read, &row, &loops)?;
            work(&records, &row, &loops)
        })?)
    }

    fn of_loop<T>(
        &self,
        loop_id: &LoopId,
        work: impl FnOnce(&SessionRecords<'_>, &LoopRow) -> StoreResult<T>,
    ) -> Result<T> {
        let found = self.loading(|records, _, loops| {
            let row = loops.iter().find(|row| row.loop_id == *loop_id);
            row.map(|row| work(records, row)).transpose()
        })?;
        found.ok_or_else(|| Error::not_found("loop", loop_id.as_str()))
    }
}

fn whole_loop(records: &SessionRecords<'_>, row: &LoopRow) -> StoreResult<LoopRecord> {
    let mut record = records.loop_record(row)?;
    let read: &dyn StoreRead = records.read;
    read.messages(row.key, 0..row.totals.next_seq, &mut |message| {
        record.messages.push(decode(read, message.body)?);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(record)
}

fn stored_blocks(
    records: &SessionRecords<'_>,
    row: &LoopRow,
    only: Option<u32>,
) -> StoreResult<Vec<StoredBlock>> {
    let active = records.active(row);
    let mut rows = records.read.blocks_of_loop(row.key)?;
    rows.retain(|block| only.is_none_or(|only| only == block.generation));
    rows.sort_by_key(|block| block.generation);
    let stored = rows.into_iter().map(|block| {
        Ok(StoredBlock {
            generation: block.generation,
            run_id: records.read.run_by_key(block.run)?.run_id,
            kind: block.kind,
            is_active: active == Some(block.key),
            block: records.stored_block(row, &block)?,
        })
    });
    stored.collect()
}
