//! What a backend writes within one transaction, by table.

use std::ops::Range;

use super::StoreResult;
use super::audit::{AuditEntry, AuditKind};
use super::digest;
use super::index::IndexEntry;
use super::lease::{LeaseGuard, LeaseRow};
use super::removal::StoreRemove;
use super::rows::*;

/// Writes sessions.
pub trait WriteSessions {
    /// Adds a session; the key of `row` is ignored. Refused if its id is there.
    fn insert_session(&mut self, row: &SessionRow) -> StoreResult<SessionKey>;

    /// Writes what changes in a session: all but key and id.
    fn update_session(&mut self, row: &SessionRow) -> StoreResult<()>;

    /// Writes of a session only what changes with all that happens in it.
    fn touch_session(&mut self, activity: &SessionActivity) -> StoreResult<()>;

    /// Writes what was decided about a session. That its imports are redacted never ends, and the time since
    /// when it is protected is only set or taken out.
    fn put_flags(&mut self, session: SessionKey, flags: &SessionFlags) -> StoreResult<()>;
}

/// Writes loops.
pub trait WriteLoops {
    /// Adds a loop without messages; the key and the totals of `row` are ignored. Refused if the
    /// session has a loop of this id.
    fn insert_loop(&mut self, row: &LoopRow, meta: &LoopMeta) -> StoreResult<LoopKey>;

    /// Writes what changes in a loop: status, times, kind and totals. Refused if a sealed message
    /// would no longer be sealed.
    fn update_loop(&mut self, row: &LoopRow) -> StoreResult<()>;

    /// Writes of a loop only what an append or a run changes: status, totals, and what the next append
    /// goes on from. Refused as [`WriteLoops::update_loop`].
    fn update_totals(&mut self, row: &LoopCore, progress: &LoopProgress) -> StoreResult<()>;

    /// Does the same for a loop that ends, at `ended_at`.
    fn end_loop(
        &mut self,
        row: &LoopCore,
        progress: &LoopProgress,
        ended_at: &str,
    ) -> StoreResult<()>;

    /// Writes what the loop's source says of it.
    fn update_loop_meta(&mut self, key: LoopKey, meta: &LoopMeta) -> StoreResult<()>;
}

/// Writes turns.
pub trait WriteTurns {
    /// Adds or rewrites a turn.
    fn put_turn(&mut self, loop_key: LoopKey, row: &TurnRow) -> StoreResult<()>;
}

/// Writes messages.
pub trait WriteMessages {
    /// Adds a message, and the blobs that are not there yet. Refused if its place is taken.
    fn insert_message(
        &mut self,
        loop_key: LoopKey,
        row: &MessageRow,
        blobs: &[Blob],
    ) -> StoreResult<()>;

    /// Removes the messages from `seq` on, and the turns from `turn` on; refused for sealed ones.
    /// They must leave the index too.
    fn remove_unsealed(&mut self, loop_key: LoopKey, seq: u32, turn: u32) -> StoreResult<()>;
}

/// Writes compaction runs, their undos and redos.
pub trait WriteRuns {
    /// Adds a run, which is open and so counts for nothing; the key and the outcome of `row` are ignored.
    /// Refused if its id is there.
    fn insert_run(&mut self, row: &RunRow) -> StoreResult<RunKey>;

    /// Closes an open run with what `row` says: from now on neither it nor what it holds changes. `was` is
    /// what the audit chain says of it so far. Refused for a closed run, and if its blocks are not whole.
    fn close_run(&mut self, row: &RunRow, was: Option<[u8; 32]>) -> StoreResult<()>;

    /// Notes a run that is to stay open for now in the audit chain of its session.
    fn note_open_run(&mut self, row: &RunRow) -> StoreResult<()> {
        let digest = digest::run(row, &[]);
        self.note_audit(row.session, &AuditEntry::new(AuditKind::Run, digest))
    }

    /// Writes the next row of the audit chain of a session, or of all receipts. What else is written by
    /// methods of this trait notes itself; receipts are noted by who closes them.
    fn note_audit(&mut self, session: SessionKey, entry: &AuditEntry) -> StoreResult<()>;

    /// Adds a flip.
    fn insert_flip(&mut self, session: SessionKey, row: &FlipRow) -> StoreResult<()>;
}

/// Writes pins.
pub trait WritePins {
    /// Adds a pin, or takes one back.
    fn insert_pin(&mut self, session: SessionKey, row: &PinRow) -> StoreResult<()>;
}

/// Writes the hides of sessions.
pub trait WriteHides {
    /// Hides a session or brings it back, under the id that `row` names. Refused if another session has
    /// that id, or this one has not the id that it had.
    fn insert_hide(&mut self, session: SessionKey, row: &HideRow) -> StoreResult<()>;

    /// Notes how a session that has its id already was hidden or came back: of a copy.
    fn restore_hide(&mut self, session: SessionKey, row: &HideRow) -> StoreResult<()>;

    /// Adds what a head stands for. Refused if it is there.
    fn insert_head(&mut self, row: &HeadRow) -> StoreResult<()>;
}

/// Writes blocks.
pub trait WriteBlocks {
    /// Adds a block with its messages and coverage to an open run; the key of its row is ignored. Refused
    /// if the loop has a block of this generation, if its sections do not follow each other, or if the
    /// coverage does not fit them.
    fn insert_block(&mut self, block: &NewBlock) -> StoreResult<BlockKey>;
}

/// Writes manifests.
pub trait WriteManifests {
    /// Adds a manifest; the key of `row` is ignored. Refused if its id is there.
    fn insert_manifest(&mut self, row: &ManifestRow) -> StoreResult<ManifestKey>;
}

/// Writes imports and kept files.
pub trait WriteSources {
    /// Notes where a session was imported from.
    fn insert_import(&mut self, session: SessionKey, from: &ImportRow) -> StoreResult<()>;

    /// Adds a file that is to be kept; the key of `row` is ignored.
    fn insert_source(&mut self, row: &SourceRow) -> StoreResult<SourceKey>;

    /// Writes what changes in a kept file: its path and size.
    fn update_source(&mut self, row: &SourceRow) -> StoreResult<()>;

    /// Notes that a kept file holds something of a session, if that is not noted yet.
    fn link_source(&mut self, session: SessionKey, source: SourceKey) -> StoreResult<()>;

    /// Adds a part to a kept file; its bytes are stored if they are not there yet.
    fn put_source_part(
        &mut self,
        source: SourceKey,
        number: u32,
        piece: &SourcePiece,
    ) -> StoreResult<()>;

    /// Removes the parts of a kept file from `number` on, and bytes that no file needs any more.
    fn remove_source_parts(&mut self, source: SourceKey, number: u32) -> StoreResult<()>;
}

/// Writes leases.
pub trait WriteLeases {
    /// Writes the lease of a loop over the one before. Refused if its token would go back.
    fn put_lease(&mut self, row: &LeaseRow) -> StoreResult<()>;

    /// Makes it known that the holder of a lease lives, until the guard is dropped or the process ends;
    /// `None` where a backend cannot. Called before the lease is written.
    fn guard_lease(&mut self, loop_key: LoopKey, token: i64) -> StoreResult<Option<LeaseGuard>> {
        let _ = (loop_key, token);
        Ok(None)
    }
}

/// Writes started tool calls.
pub trait WriteCalls {
    /// Adds a started call. Refused if the loop has this one.
    fn insert_call(&mut self, row: &CallRow) -> StoreResult<()>;

    /// Writes what changes in a started call: arguments, turn, attempts, and that it is finished.
    /// Refused for a finished one, and for other arguments unless it is finished now.
    fn update_call(&mut self, row: &CallRow) -> StoreResult<()>;
}

/// Writes named appends.
pub trait WriteAppendKeys {
    /// Names an append. Refused if the session has one of this name.
    fn insert_append_key(&mut self, session: SessionKey, row: &AppendKey) -> StoreResult<()>;
}

/// Writes notes.
pub trait WriteNotes {
    /// Adds a note behind the others of its loop.
    fn insert_note(&mut self, loop_key: LoopKey, note: &Note) -> StoreResult<()>;

    /// Removes the notes of a loop.
    fn remove_notes(&mut self, loop_key: LoopKey) -> StoreResult<()>;
}

/// Writes the index of messages.
pub trait WriteIndex {
    /// Takes messages into the index: `entries` are all of `seqs` that have words. Refused if `seqs`
    /// do not begin where the loop's [`ReadIndex::unindexed_seqs`](super::ReadIndex::unindexed_seqs) do, or end after them.
    fn index(
        &mut self,
        loop_key: LoopKey,
        seqs: Range<u32>,
        entries: &[IndexEntry],
    ) -> StoreResult<()>;

    /// Takes the messages from `from` on out of the index, also if they are gone already; those
    /// that are there count as not indexed afterwards.
    fn unindex(&mut self, loop_key: LoopKey, from: u32) -> StoreResult<()>;

    /// Makes the index empty, also a damaged one, for words made by this version of the rule.
    fn clear_index(&mut self, version: u32) -> StoreResult<()>;
}

/// What can be written within one transaction.
pub trait StoreWrite:
    StoreRemove
    + WriteSessions
    + WriteLoops
    + WriteTurns
    + WriteMessages
    + WriteRuns
    + WritePins
    + WriteHides
    + WriteBlocks
    + WriteManifests
    + WriteSources
    + WriteLeases
    + WriteCalls
    + WriteAppendKeys
    + WriteNotes
    + WriteIndex
{
}
