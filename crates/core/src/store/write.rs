//! The writes of a backend within one transaction, by table.

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
    /// Adds a session; the key of `row` is ignored. Fails if its id exists.
    fn insert_session(&mut self, row: &SessionRow) -> StoreResult<SessionKey>;

    /// Updates a session: all columns but key and id.
    fn update_session(&mut self, row: &SessionRow) -> StoreResult<()>;

    /// Updates the activity of a session only.
    fn touch_session(&mut self, activity: &SessionActivity) -> StoreResult<()>;

    /// Writes the flags of a session. The redaction of imports cannot be switched off again. The time of protection
    /// can be set or cleared, but not changed.
    fn put_flags(&mut self, session: SessionKey, flags: &SessionFlags) -> StoreResult<()>;
}

/// Writes loops.
pub trait WriteLoops {
    /// Adds a loop without messages; the key and the totals of `row` are ignored. Fails if the session has a
    /// loop with this id.
    fn insert_loop(&mut self, row: &LoopRow, meta: &LoopMeta) -> StoreResult<LoopKey>;

    /// Updates the status, times, kind and totals of a loop. Fails if a final message would no longer be final.
    fn update_loop(&mut self, row: &LoopRow) -> StoreResult<()>;

    /// Updates the columns of a loop that an append or a run changes: status, totals and progress. Fails as
    /// [`WriteLoops::update_loop`].
    fn update_totals(&mut self, row: &LoopCore, progress: &LoopProgress) -> StoreResult<()>;

    /// Updates the totals of a loop that ends, at `ended_at`.
    fn end_loop(
        &mut self,
        row: &LoopCore,
        progress: &LoopProgress,
        ended_at: &str,
    ) -> StoreResult<()>;

    /// Writes the metadata of a loop.
    fn update_loop_meta(&mut self, key: LoopKey, meta: &LoopMeta) -> StoreResult<()>;
}

/// Writes turns.
pub trait WriteTurns {
    /// Adds or rewrites a turn.
    fn put_turn(&mut self, loop_key: LoopKey, row: &TurnRow) -> StoreResult<()>;
}

/// Writes messages.
pub trait WriteMessages {
    /// Adds a message, and the blobs that are not stored yet. Fails if its sequence is taken.
    fn insert_message(
        &mut self,
        loop_key: LoopKey,
        row: &MessageRow,
        blobs: &[Blob],
    ) -> StoreResult<()>;

    /// Removes the messages from `seq` on, from the index too, and the turns from `turn` on. Fails if one of the
    /// messages is final.
    fn remove_unsealed(&mut self, loop_key: LoopKey, seq: u32, turn: u32) -> StoreResult<()>;
}

/// Writes compaction runs, their undos and redos.
pub trait WriteRuns {
    /// Adds an open run, whose blocks are not active yet; the key and the outcome of `row` are ignored. Fails if
    /// its id exists.
    fn insert_run(&mut self, row: &RunRow) -> StoreResult<RunKey>;

    /// Closes an open run with the values of `row`; afterwards neither the run nor its blocks can change. `was` is
    /// the digest of the run in the audit chain so far. Fails if the run is closed, or if its blocks are incomplete.
    fn close_run(&mut self, row: &RunRow, was: Option<[u8; 32]>) -> StoreResult<()>;

    /// Records a run that stays open for now in the audit chain of its session.
    fn note_open_run(&mut self, row: &RunRow) -> StoreResult<()> {
        let digest = digest::run(row, &[]);
        self.note_audit(row.session, &AuditEntry::new(AuditKind::Run, digest))
    }

    /// Writes the next row of the audit chain of a session, or of all receipts. The other methods of this trait write
    /// their own rows of the chain. The row of a receipt is written when the receipt is closed.
    fn note_audit(&mut self, session: SessionKey, entry: &AuditEntry) -> StoreResult<()>;

    /// Adds a flip.
    fn insert_flip(&mut self, session: SessionKey, row: &FlipRow) -> StoreResult<()>;
}

/// Writes edits.
pub trait WriteEdits {
    /// Adds edits to an open run, in this order, and counts them for their loops and for the session. Fails if the
    /// run is closed, or if a loop is in another session.
    fn insert_edits(&mut self, run: RunKey, edits: &[EditRow]) -> StoreResult<()>;
}

/// Writes pins.
pub trait WritePins {
    /// Adds a row that pins or unpins a message.
    fn insert_pin(&mut self, session: SessionKey, row: &PinRow) -> StoreResult<()>;
}

/// Writes the hides of sessions.
pub trait WriteHides {
    /// Hides a session or shows it again, under the new id in `row`. Fails if another session has that id, or
    /// if this session does not have the former id in `row`.
    fn insert_hide(&mut self, session: SessionKey, row: &HideRow) -> StoreResult<()>;

    /// Adds the hide of a copied session, which has its new id already.
    fn restore_hide(&mut self, session: SessionKey, row: &HideRow) -> StoreResult<()>;

    /// Adds the content of a head, which lists the ends of all audit chains. Fails if it is stored already.
    fn insert_head(&mut self, row: &HeadRow) -> StoreResult<()>;
}

/// Writes blocks.
pub trait WriteBlocks {
    /// Adds a block with its messages and coverage to an open run; the key of its row is ignored. Fails if
    /// the loop has a block of this generation, if its sections are not consecutive, or if the coverage does
    /// not match them.
    fn insert_block(&mut self, block: &NewBlock) -> StoreResult<BlockKey>;
}

/// Writes manifests.
pub trait WriteManifests {
    /// Adds a manifest; the key of `row` is ignored. Fails if its id exists.
    fn insert_manifest(&mut self, row: &ManifestRow) -> StoreResult<ManifestKey>;
}

/// Writes imports and kept files.
pub trait WriteSources {
    /// Records an import of a session.
    fn insert_import(&mut self, session: SessionKey, from: &ImportRow) -> StoreResult<()>;

    /// Adds a kept file; the key of `row` is ignored.
    fn insert_source(&mut self, row: &SourceRow) -> StoreResult<SourceKey>;

    /// Updates a kept file: its path and size.
    fn update_source(&mut self, row: &SourceRow) -> StoreResult<()>;

    /// Links a kept file to a session that it contains messages of, unless it is linked already.
    fn link_source(&mut self, session: SessionKey, source: SourceKey) -> StoreResult<()>;

    /// Adds a part to a kept file; its bytes are stored unless they are stored already.
    fn put_source_part(
        &mut self,
        source: SourceKey,
        number: u32,
        piece: &SourcePiece,
    ) -> StoreResult<()>;

    /// Removes the parts of a kept file from `number` on, and bytes that no other file needs.
    fn remove_source_parts(&mut self, source: SourceKey, number: u32) -> StoreResult<()>;
}

/// Writes leases.
pub trait WriteLeases {
    /// Writes the lease of a loop over the one before. Fails if its token would be lower.
    fn put_lease(&mut self, row: &LeaseRow) -> StoreResult<()>;

    /// Marks the holder of a lease as alive until the guard is dropped or the process ends; returns `None` if
    /// the backend cannot. Called before the lease is written.
    fn guard_lease(&mut self, loop_key: LoopKey, token: i64) -> StoreResult<Option<LeaseGuard>> {
        let _ = (loop_key, token);
        Ok(None)
    }
}

/// Writes started tool calls.
pub trait WriteCalls {
    /// Adds a started call. Fails if the loop has this call.
    fn insert_call(&mut self, row: &CallRow) -> StoreResult<()>;

    /// Updates a started call: arguments, turn, attempts and end. Fails for a finished call, and for other
    /// arguments unless the call is finished now.
    fn update_call(&mut self, row: &CallRow) -> StoreResult<()>;
}

/// Writes named appends.
pub trait WriteAppendKeys {
    /// Adds the key of an append (its name). Fails if the session has an append with this key.
    fn insert_append_key(&mut self, session: SessionKey, row: &AppendKey) -> StoreResult<()>;
}

/// Writes notes.
pub trait WriteNotes {
    /// Adds a note after the others of its loop.
    fn insert_note(&mut self, loop_key: LoopKey, note: &Note) -> StoreResult<()>;

    /// Removes the notes of a loop.
    fn remove_notes(&mut self, loop_key: LoopKey) -> StoreResult<()>;
}

/// Writes the index of messages.
pub trait WriteIndex {
    /// Adds messages to the index: `entries` are all of `seqs` that have words. Fails if `seqs` do not begin
    /// where the loop's [`ReadIndex::unindexed_seqs`](super::ReadIndex::unindexed_seqs) do, or end after them.
    fn index(
        &mut self,
        loop_key: LoopKey,
        seqs: Range<u32>,
        entries: &[IndexEntry],
    ) -> StoreResult<()>;

    /// Removes the messages from `from` on from the index, also if they are deleted already; remaining
    /// messages count as not indexed afterwards.
    fn unindex(&mut self, loop_key: LoopKey, from: u32) -> StoreResult<()>;

    /// Empties the index, also a damaged one, for words made by this version of the rule.
    fn clear_index(&mut self, version: u32) -> StoreResult<()>;
}

/// All writes within one transaction.
pub trait StoreWrite:
    StoreRemove
    + WriteSessions
    + WriteLoops
    + WriteTurns
    + WriteMessages
    + WriteRuns
    + WriteEdits
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
    /// Begins the next generation of the blocks of a loop, and makes the messages before the sequence `through` final.
    /// Returns the number of the generation.
    fn begin_generation(&mut self, loop_key: LoopKey, through: u32) -> StoreResult<u32> {
        let mut owner = self.loop_by_key(loop_key)?;
        owner.totals.generation += 1;
        owner.totals.sealed_seq = owner.totals.sealed_seq.max(through);
        self.update_totals(&owner, &owner.progress)?;
        Ok(owner.totals.generation)
    }
}
