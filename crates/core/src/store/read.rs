//! The reads of a backend within one snapshot, by table.

use std::ops::{ControlFlow, Range};

use super::StoreResult;
use super::index::{IndexFilter, IndexQuery, IndexState, Match, Phrase};
use super::lease::LeaseRow;
use super::prompt::{PromptPlace, PromptsOf, VisitPrompt, visit_prompt};
use super::reading::{AppendState, ContentNeed, LoopWithBlock, MessageRef, RunSummary};
use super::rows::*;
use crate::model::{LoopId, SessionId};

/// Called with each row; stops the query by breaking.
pub type Visit<'a, T> = dyn FnMut(T) -> StoreResult<ControlFlow<()>> + 'a;

/// Called with each message, borrowed from its row.
pub type VisitMessageRef<'a> = dyn FnMut(&MessageRef<'_>) -> StoreResult<ControlFlow<()>> + 'a;

/// Called with each run, borrowed from its row.
pub type VisitRunSummary<'a> = dyn FnMut(&RunSummary<'_>) -> StoreResult<ControlFlow<()>> + 'a;

/// Reads sessions.
pub trait ReadSessions {
    /// Returns the session with this id.
    fn session(&self, id: &SessionId) -> StoreResult<Option<SessionRow>>;

    /// Returns the session with this key; a key without a row is damage.
    fn session_by_key(&self, key: SessionKey) -> StoreResult<SessionRow>;

    /// Returns the sessions, last active first.
    fn sessions(&self) -> StoreResult<Vec<SessionRow>>;

    /// Returns at most `limit` ids of sessions in the order of their bytes, beginning with the first id that is equal
    /// to or after `first`.
    fn session_ids(&self, first: &str, limit: u32) -> StoreResult<Vec<SessionId>>;

    /// Returns the session with this id and its current loop, by their keys.
    fn current(&self, id: &SessionId) -> StoreResult<Option<(SessionKey, LoopKey)>> {
        let session = self.session(id)?;
        Ok(session.and_then(|row| Some((row.key, row.current_loop?))))
    }

    /// Returns the sessions whose metadata names this one as their starter, oldest first.
    fn started_by(&self, session: SessionKey) -> StoreResult<Vec<SessionKey>>;

    /// Returns the flags of a session.
    fn flags(&self, session: SessionKey) -> StoreResult<SessionFlags>;

    /// Returns the key of the newest receipt that may belong to the session, or 0 if there is none. If the key has
    /// changed between two reads, content may have been removed.
    fn last_receipt(&self, session: SessionKey) -> StoreResult<i64>;

    /// Returns `true` if a receipt of the session is newer than the one with this key, which may belong to
    /// another session.
    fn has_receipt_after(&self, session: SessionKey, receipt: i64) -> StoreResult<bool> {
        Ok(self.last_receipt(session)? > receipt)
    }
}

/// Reads loops.
pub trait ReadLoops {
    /// Returns the loop of a session with this id.
    fn loop_by_id(&self, session: SessionKey, id: &LoopId) -> StoreResult<Option<LoopRow>>;

    /// Returns the loop with this key; a key without a row is damage.
    fn loop_by_key(&self, key: LoopKey) -> StoreResult<LoopRow>;

    /// Returns the loops of a session, in the order of their creation.
    fn loops(&self, session: SessionKey) -> StoreResult<Vec<LoopRow>>;

    /// Returns the keys of the loops of a session, each with its number of messages.
    fn loop_lengths(&self, session: SessionKey) -> StoreResult<Vec<(LoopKey, u32)>>;

    /// Returns the pending and running loops of a session, or of all sessions if `None`, oldest first.
    fn loops_at_work(&self, session: Option<SessionKey>) -> StoreResult<Vec<LoopKey>>;

    /// Returns at most `most` loops of a session that contain system messages, from the loop `until` back, newest
    /// first.
    fn loops_with_system_messages(
        &self,
        session: SessionKey,
        until: LoopKey,
        most: u32,
    ) -> StoreResult<Vec<LoopKey>>;

    /// Returns the metadata of a loop.
    fn loop_meta(&self, key: LoopKey) -> StoreResult<LoopMeta>;

    /// Returns the parent of a loop, and where the loop's chain leaves it; a key without a row is damage.
    fn parent_of(&self, key: LoopKey) -> StoreResult<Option<(LoopKey, Cut)>> {
        let row = self.loop_by_key(key)?;
        Ok(row.parent.map(|parent| (parent, row.parent_cut())))
    }

    /// Returns the newest loop that continues this one by default.
    fn default_child(&self, key: LoopKey) -> StoreResult<Option<LoopKey>>;

    /// Visits the loops of the chain that ends in `leaf`, leaf first, with one recursive query over stored totals.
    /// The walk must stop when `visit` breaks, and must end on a damaged chain too. A parent in another session ends
    /// the chain.
    fn walk(&self, leaf: LoopKey, visit: &mut Visit<'_, LoopRow>) -> StoreResult<()>;
}

/// Reads turns.
pub trait ReadTurns {
    /// Returns one turn.
    fn turn(&self, loop_key: LoopKey, turn: u32) -> StoreResult<Option<TurnRow>>;

    /// Returns some turns in order; missing ones are left out.
    fn turns(&self, loop_key: LoopKey, turns: Range<u32>) -> StoreResult<Vec<TurnRow>>;

    /// Returns the turns within `turns` that answer calls of other turns, with these other turns.
    fn answers(
        &self,
        loop_key: LoopKey,
        turns: Range<u32>,
    ) -> StoreResult<Vec<(u32, Vec<CallSite>)>>;
}

/// Reads messages.
pub trait ReadMessages {
    /// Visits some messages in order; must stop when `visit` breaks, and return its error.
    fn messages(
        &self,
        loop_key: LoopKey,
        seqs: Range<u32>,
        visit: &mut Visit<'_, MessageRow>,
    ) -> StoreResult<()>;

    /// Visits the content of some messages, in order and without a copy, each with its proof if `proofs` is
    /// set; must stop when `visit` breaks, and return its error.
    fn message_refs(
        &self,
        loop_key: LoopKey,
        seqs: Range<u32>,
        proofs: bool,
        visit: &mut VisitMessageRef<'_>,
    ) -> StoreResult<()> {
        self.messages(loop_key, seqs, &mut |row| {
            visit(&MessageRef::of(&row, proofs))
        })
    }

    /// Visits the content of some messages as [`message_refs`](Self::message_refs) does. `need` returns the content that
    /// is needed of a message; the rest may be left out.
    fn message_refs_as_needed(
        &self,
        loop_key: LoopKey,
        seqs: Range<u32>,
        proofs: bool,
        _: &dyn Fn(u32) -> ContentNeed,
        visit: &mut VisitMessageRef<'_>,
    ) -> StoreResult<()> {
        self.message_refs(loop_key, seqs, proofs, visit)
    }

    /// Visits the content of some messages as [`message_refs`](Self::message_refs) does, each with its time. A
    /// build reads hundreds of messages and has no use for the times.
    fn message_refs_with_times(
        &self,
        loop_key: LoopKey,
        seqs: Range<u32>,
        visit: &mut VisitMessageRef<'_>,
    ) -> StoreResult<()> {
        self.message_refs(loop_key, seqs, false, visit)
    }

    /// Visits some messages in order without reading their content; must stop when `visit` breaks.
    fn sizes(
        &self,
        loop_key: LoopKey,
        seqs: Range<u32>,
        visit: &mut Visit<'_, MessageSize>,
    ) -> StoreResult<()>;

    /// Returns the number of messages of the loop that were appended at `tick` or earlier.
    fn length_at(&self, loop_key: LoopKey, tick: Tick) -> StoreResult<u32>;

    /// Returns `true` if a run was committed, undone or redone since the message was appended, so that contexts of
    /// the session may have changed. `None` if there is no such message.
    fn is_overlaid_since(
        &self,
        session: SessionKey,
        loop_key: LoopKey,
        seq: u32,
    ) -> StoreResult<Option<bool>>;

    /// Returns the positions of prompts, which are user messages that no harness wrote: prompts of people first, then
    /// by loop and sequence. For one session or loop it returns at most `limit` prompts, for several the first of
    /// each. The cost must be at most one search of an index for each loop.
    fn prompt_places(&self, of: PromptsOf<'_>, limit: u32) -> StoreResult<Vec<PromptPlace>>;

    /// Returns the token usage that providers reported for a session, by loop and model.
    fn usage(&self, session: SessionKey) -> StoreResult<Vec<UsageRow>>;
}

/// Reads blobs.
pub trait ReadBlobs {
    /// Returns a blob's bytes.
    fn blob(&self, sha256: &[u8; 32]) -> StoreResult<Option<Vec<u8>>>;

    /// Returns the names of the blobs from `first` to `last`, both inclusive, in order.
    fn blob_names(&self, first: &[u8; 32], last: &[u8; 32]) -> StoreResult<Vec<[u8; 32]>>;
}

/// Reads compaction runs, their undos and redos.
pub trait ReadRuns {
    /// Returns the run with this key; a key without a row is damage.
    fn run_by_key(&self, key: RunKey) -> StoreResult<RunRow>;

    /// Visits the runs of a session, newest first; must stop when `visit` breaks. A list would cost too much:
    /// a row may contain a large record of another tool, and most callers need one of the newest runs.
    fn runs(&self, session: SessionKey, visit: &mut Visit<'_, RunRow>) -> StoreResult<()>;

    /// Returns the open runs of a session, or of all sessions if `None`.
    fn open_runs(&self, session: Option<SessionKey>) -> StoreResult<Vec<RunRow>>;

    /// Visits the runs of a session, newest first, without most of their columns; must stop when `visit`
    /// breaks.
    fn run_summaries(
        &self,
        session: SessionKey,
        visit: &mut VisitRunSummary<'_>,
    ) -> StoreResult<()> {
        self.runs(session, &mut |run| {
            visit(&RunSummary {
                key: run.key,
                point: run.point,
                tick: run.tick,
                round: run.round,
                is_committed: run.outcome == Outcome::Committed,
                is_flipped: !self.flips(run.key)?.is_empty(),
                has_no_settings: run.is_edit() || run.sealed_by().is_some(),
                older_loops: &run.older_loops,
            })
        })
    }

    /// Visits the runs of a session as [`run_summaries`](Self::run_summaries) does, without the runs of edits: a build
    /// looks for the newest run with settings, and a session may have a thousand edits after it.
    fn compaction_summaries(
        &self,
        session: SessionKey,
        visit: &mut VisitRunSummary<'_>,
    ) -> StoreResult<()>;

    /// Returns the undos and redos of a run in order.
    fn flips(&self, run: RunKey) -> StoreResult<Vec<FlipRow>>;
}

/// Reads edits.
pub trait ReadEdits {
    /// Returns the number of edits of a session, whatever their runs.
    fn edit_count(&self, session: SessionKey) -> StoreResult<u64>;

    /// Visits the edits of committed runs whose messages belong to the loop, in the order of the runs' ticks, then in
    /// their own; must stop when `visit` breaks.
    fn edits_of_loop(&self, loop_key: LoopKey, visit: &mut Visit<'_, RunEdit>) -> StoreResult<()>;

    /// Returns the edits of a run in order.
    fn edits_of_run(&self, run: RunKey) -> StoreResult<Vec<EditRow>>;

    /// Returns the packed edits of the committed runs of a session, without those of runs with a tick above `until`.
    fn packed_edits(&self, session: SessionKey, until: Option<Tick>) -> StoreResult<PackedRuns>;
}

/// Reads pins.
pub trait ReadPins {
    /// Returns the pins of a session in order, with the unpinnings.
    fn pins(&self, session: SessionKey) -> StoreResult<Vec<PinRow>>;
}

/// Reads the hides of sessions.
pub trait ReadHides {
    /// Returns the hides of a session in order; the last row decides if it is hidden.
    fn hides(&self, session: SessionKey) -> StoreResult<Vec<HideRow>>;

    /// Returns the hidden sessions, oldest first. This must be quick if no session was ever hidden.
    fn hidden_sessions(&self) -> StoreResult<Vec<SessionKey>>;

    /// Returns the sessions that had this id before they were hidden or shown again, oldest first.
    fn renamed_from(&self, id: &SessionId) -> StoreResult<Vec<SessionKey>>;
}

/// Reads blocks.
pub trait ReadBlocks {
    /// Returns the block with this key; a key without a row is damage.
    fn block_by_key(&self, key: BlockKey) -> StoreResult<BlockRow>;

    /// Returns the blocks that a run wrote, by loop.
    fn blocks_of_run(&self, run: RunKey) -> StoreResult<Vec<BlockRow>>;

    /// Returns all blocks on a loop, oldest generation first.
    fn blocks_of_loop(&self, loop_key: LoopKey) -> StoreResult<Vec<BlockRow>>;

    /// Visits the blocks of committed runs on a loop, newest generation first; must stop when
    /// `visit` breaks.
    fn generations(&self, loop_key: LoopKey, visit: &mut Visit<'_, Generation>) -> StoreResult<()>;

    /// Returns the messages of a block in order.
    fn block_messages(&self, block: BlockKey) -> StoreResult<Vec<BlockMessage>>;

    /// Returns the coverage of a block in order.
    fn coverage(&self, block: BlockKey) -> StoreResult<Vec<CoverageRow>>;
}

/// Reads manifests.
pub trait ReadManifests {
    /// Returns the manifests of a session, newest first.
    fn manifests(&self, session: SessionKey) -> StoreResult<Vec<ManifestRow>>;

    /// Returns the manifest with an id.
    fn manifest(&self, session: SessionKey, id: &str) -> StoreResult<Option<ManifestRow>>;
}

/// Reads imports and kept files.
pub trait ReadSources {
    /// Returns the key that digests of imported records are made with; it never changes.
    fn import_key(&self) -> StoreResult<Vec<u8>>;

    /// Returns the imports of a session, oldest first.
    fn imports(&self, session: SessionKey) -> StoreResult<Vec<ImportRow>>;

    /// Returns the sessions imported from a record without an id, oldest first.
    fn imported(
        &self,
        format: &str,
        file_name: &str,
        record_key: &str,
    ) -> StoreResult<Vec<SessionKey>>;

    /// Returns the files that are kept for a session, oldest first.
    fn sources(&self, session: SessionKey) -> StoreResult<Vec<SourceRow>>;

    /// Returns the parts of a kept file in order.
    fn source_parts(&self, source: SourceKey) -> StoreResult<Vec<SourcePart>>;

    /// Returns the packed bytes of a part.
    fn source_piece(&self, sha256: &[u8; 32]) -> StoreResult<Option<Vec<u8>>>;
}

/// Reads leases.
pub trait ReadLeases {
    /// Returns the lease of a loop as it was last written, also one that ended or was released.
    fn lease(&self, loop_key: LoopKey) -> StoreResult<Option<LeaseRow>>;

    /// True if the process or guard ([`LeaseGuard`](super::LeaseGuard)) of the holder of a lease is known to have
    /// ended. `false` if a backend cannot know it; then the time of the lease decides.
    fn is_holder_gone(&self, lease: &LeaseRow) -> StoreResult<bool> {
        let _ = lease;
        Ok(false)
    }
}

/// Reads started tool calls.
pub trait ReadCalls {
    /// Returns the started calls of a loop with this id, oldest first.
    fn calls(&self, loop_key: LoopKey, call_id: &str) -> StoreResult<Vec<CallRow>>;

    /// Returns all started calls of a loop, oldest first.
    fn calls_of_loop(&self, loop_key: LoopKey) -> StoreResult<Vec<CallRow>>;

    /// Returns the started tool calls without a result of a session, or of all sessions if `None`, oldest first.
    fn open_calls(&self, session: Option<SessionKey>) -> StoreResult<Vec<CallRow>>;
}

/// Reads named appends.
pub trait ReadAppendKeys {
    /// Returns the append of a session with this name.
    fn append_key(&self, session: SessionKey, name: &str) -> StoreResult<Option<AppendKey>>;

    /// Returns the named appends of a session, by name.
    fn append_keys(&self, session: SessionKey) -> StoreResult<Vec<AppendKey>>;

    /// Returns the named appends of a session in a range of names. The cost must depend on the number of
    /// returned rows only.
    fn append_keys_within(
        &self,
        session: SessionKey,
        range: &AppendKeyRange,
    ) -> StoreResult<Vec<AppendKey>>;

    /// Returns the named appends with a prefix, of all sessions that are not hidden, by session and name. The
    /// cost must depend on the number of returned rows, and one lookup for each session.
    fn append_keys_of_all(&self, prefix: &str) -> StoreResult<Vec<(SessionKey, AppendKey)>>;
}

/// Reads notes.
pub trait ReadNotes {
    /// Returns the notes of a loop in order.
    fn notes(&self, loop_key: LoopKey) -> StoreResult<Vec<Note>>;
}

/// Reads the index of messages.
pub trait ReadIndex {
    /// Returns the version of the rule that the words of the index were made by; `None` if it was never
    /// filled.
    fn index_version(&self) -> StoreResult<Option<u32>>;

    /// Counts the messages of the index and of the store.
    fn index_state(&self) -> StoreResult<IndexState>;

    /// Returns the loops with messages that are not indexed yet, oldest first. The cost must depend on the
    /// number of returned rows only.
    fn unindexed(&self) -> StoreResult<Vec<LoopKey>>;

    /// Returns the sequences of a loop that are not indexed yet; empty also if there is no such loop.
    fn unindexed_seqs(&self, loop_key: LoopKey) -> StoreResult<Range<u32>>;

    /// Visits the indexed messages that match, the newest `limit` of them; must stop when `visit` breaks.
    fn find(
        &self,
        query: &IndexQuery,
        filter: &IndexFilter,
        limit: u32,
        visit: &mut Visit<'_, Match>,
    ) -> StoreResult<()>;

    /// Counts the indexed messages that contain a phrase, up to `most`.
    fn holders(&self, phrase: &Phrase, most: u32) -> StoreResult<u32>;

    /// True if the index finds this message by this word.
    fn is_indexed(&self, loop_key: LoopKey, seq: u32, word: &str) -> StoreResult<bool>;

    /// Returns at most `most` loops, picked at random. The cost must depend on the number of returned rows only.
    fn sampled_loops(&self, most: u32) -> StoreResult<Vec<LoopKey>>;
}

/// All reads within one snapshot.
pub trait StoreRead:
    ReadSessions
    + ReadLoops
    + ReadTurns
    + ReadMessages
    + ReadBlobs
    + ReadRuns
    + ReadEdits
    + ReadPins
    + ReadHides
    + ReadBlocks
    + ReadManifests
    + ReadSources
    + ReadLeases
    + ReadCalls
    + ReadAppendKeys
    + ReadNotes
    + ReadIndex
{
    /// Walks a chain as [`ReadLoops::walk`] does, and finds the newest block of each loop on the way.
    fn loops_with_blocks(
        &self,
        leaf: LoopKey,
        visit: &mut Visit<'_, LoopWithBlock>,
    ) -> StoreResult<()> {
        self.walk(leaf, &mut |row| visit(loop_with_block(self, row.core)?))
    }

    /// Walks a chain as [`ReadLoops::walk`] does, reading only the begin and the end of its loops.
    fn chain(&self, leaf: LoopKey, visit: &mut Visit<'_, LoopCore>) -> StoreResult<()> {
        self.loops_with_blocks(leaf, &mut |found| visit(found.row))
    }

    /// Returns the state of a loop that an append starts from; a key without a row is damage.
    fn append_state(&self, loop_key: LoopKey) -> StoreResult<AppendState> {
        let lease = self.lease(loop_key)?;
        let row = self.loop_by_key(loop_key)?;
        let last = row.totals.turns.checked_sub(1);
        let last = last.map(|turn| self.turn(loop_key, turn)).transpose()?;
        Ok(AppendState {
            session: (&self.session_by_key(row.session)?).into(),
            lease,
            last: last.flatten(),
            row: row.core,
            progress: row.progress,
        })
    }

    /// Visits the first prompt of a session or loop, or of each, in any order. Damaged prompts are skipped.
    fn prompts(&self, of: PromptsOf<'_>, visit: &mut VisitPrompt<'_>) -> StoreResult<()> {
        for place in self.prompt_places(of, 1)? {
            visit_prompt(self, place, visit)?;
        }
        Ok(())
    }
}

/// Finds the newest block of a loop.
fn loop_with_block(read: &(impl StoreRead + ?Sized), row: LoopCore) -> StoreResult<LoopWithBlock> {
    let mut newest = None;
    read.generations(row.key, &mut |generation| {
        newest = Some(generation);
        Ok(ControlFlow::Break(()))
    })?;
    let is_disputed = match &newest {
        Some(newest) => !read.flips(newest.block.run)?.is_empty(),
        None => false,
    };
    Ok(LoopWithBlock {
        row,
        newest: newest.filter(|_| !is_disputed),
        is_disputed,
    })
}
