//! The contract of a backend, and what all backends share.
//!
//! A [`SessionStore`] has two doors. `read` runs a closure on one consistent snapshot, `write` runs
//! one in a transaction that commits if the closure returns `Ok` and leaves no trace otherwise.
//! Behind the doors stand primitive operations on rows; the rules (how an append groups turns,
//! what is in force, what a commit compares) are written once, above them. A model call never
//! happens inside a door.

pub mod active_blocks;
pub mod append;
pub mod codec;
mod columns;
pub(crate) mod database;
pub mod digest;
mod error;
pub mod index;
mod key;
pub mod lease;
pub mod lookup;
mod mapping;
mod migrations;
pub(crate) mod packing;
pub mod packs;
#[cfg(feature = "postgres")]
pub mod postgres;
mod reading;
pub(crate) mod ready;
pub mod receipt;
mod recording;
pub mod recount;
pub mod removal;
mod rows;
pub mod scan;
pub mod session;
pub mod source;
pub mod sqlite;

use std::ops::{ControlFlow, Range};

pub use database::Database;
pub use error::{Cause, OpenError, StoreError, StoreResult};
pub use key::{Key, KeyError};
pub use lease::{Lease, LeaseGuard, LeaseRow};
pub use reading::*;
pub use recording::{AppendKey, CallRow, Note, UsageRow};
pub use rows::*;

use crate::model::{AgentMessage, LoopId, SessionId};
use index::{IndexEntry, IndexFilter, IndexQuery, IndexState, Match};

/// Called with each row; stops the query by breaking.
pub type Visit<'a, T> = dyn FnMut(T) -> StoreResult<ControlFlow<()>> + 'a;

/// Called with each message where it lies.
pub type VisitMessageRef<'a> = dyn FnMut(&MessageRef<'_>) -> StoreResult<ControlFlow<()>> + 'a;

/// Called with each run where it lies.
pub type VisitRunSummary<'a> = dyn FnMut(&RunSummary<'_>) -> StoreResult<ControlFlow<()>> + 'a;

/// A durable store of sessions.
///
/// A backend must keep these promises; `tests/store/conformance.rs` holds a case for each.
/// - `read` must show one moment: rows that other writers commit meanwhile must not appear.
/// - `write` must be atomic and serial: all of it or none, also after a crash, and what it returned
///   `Ok` for must survive a power loss (at the default durability). Writes of different sessions may run
///   side by side; of one session each must see all of the one before.
/// - Neither door may be opened within the other or itself by one thread: it could wait for itself.
/// - A message, block, run, flip or manifest that was committed must never change; an attempt must fail.
pub trait SessionStore: Send + Sync {
    /// Runs `work` on one snapshot.
    ///
    /// # Errors
    /// What `work` returns, or the backend's own failure.
    fn read(&self, work: &mut dyn FnMut(&dyn StoreRead) -> StoreResult<()>) -> StoreResult<()>;

    /// Runs `work` in a write transaction, which commits if `work` returns `Ok`. If `work` panics
    /// nothing was written, and the store must stay usable. What `work` reads must include what it
    /// wrote.
    ///
    /// # Errors
    /// What `work` returns, or the backend's own failure; then nothing was written.
    fn write(
        &self,
        work: &mut dyn FnMut(&mut dyn StoreWrite) -> StoreResult<()>,
    ) -> StoreResult<()>;

    /// Returns the token counter that the database is written with.
    fn counter(&self) -> &dyn crate::tokens::TokenCounter;

    /// Returns the files that the store keeps open, and may not be opened by anybody else in this
    /// process: closing one would drop the store's locks. Empty if there are none.
    fn files(&self) -> Vec<std::path::PathBuf> {
        Vec::new()
    }
}

/// What can be read within one snapshot.
pub trait StoreRead {
    /// Returns the session with this id.
    fn session(&self, id: &SessionId) -> StoreResult<Option<SessionRow>>;
    /// Returns the sessions, last active first.
    fn sessions(&self) -> StoreResult<Vec<SessionRow>>;
    /// Returns at most `limit` ids of sessions in the order of their bytes, from the first that is not
    /// before `first` on.
    fn session_ids(&self, first: &str, limit: u32) -> StoreResult<Vec<SessionId>>;
    /// Returns the session with this key; a key without a row is damage.
    fn session_by_key(&self, key: SessionKey) -> StoreResult<SessionRow>;
    /// Returns the loop of a session with this id.
    fn loop_by_id(&self, session: SessionKey, id: &LoopId) -> StoreResult<Option<LoopRow>>;
    /// Returns the loop with this key; a key without a row is damage.
    fn loop_by_key(&self, key: LoopKey) -> StoreResult<LoopRow>;
    /// Returns what an append has to know of a loop; a key without a row is damage.
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
    /// Returns the key of the newest receipt that may be one of the session, 0 without any: another one
    /// than before says that content may be gone.
    fn last_receipt(&self, session: SessionKey) -> StoreResult<i64>;
    /// Returns the session with this id and its current loop, by their keys.
    fn current(&self, id: &SessionId) -> StoreResult<Option<(SessionKey, LoopKey)>> {
        let session = self.session(id)?;
        Ok(session.and_then(|row| Some((row.key, row.current_loop?))))
    }
    /// Returns the parent of a loop, and how many of its turns belong to the loop's chain; a key without
    /// a row is damage.
    fn parent_of(&self, key: LoopKey) -> StoreResult<Option<(LoopKey, u32)>> {
        let row = self.loop_by_key(key)?;
        Ok(row.parent.map(|parent| (parent, row.parent_turns())))
    }
    /// Returns the newest loop that goes on from this one by default.
    fn default_child(&self, key: LoopKey) -> StoreResult<Option<LoopKey>>;
    /// Returns the loops of a session, in the order of their creation.
    fn loops(&self, session: SessionKey) -> StoreResult<Vec<LoopRow>>;
    /// Returns what the loop's source said of it.
    fn loop_meta(&self, key: LoopKey) -> StoreResult<LoopMeta>;
    /// Visits the loops of the chain that ends in `leaf`, leaf first. One recursive query over
    /// stored totals; must stop walking when `visit` breaks, must end on a damaged chain too, and a
    /// parent in another session ends the chain.
    fn walk(&self, leaf: LoopKey, visit: &mut Visit<'_, LoopRow>) -> StoreResult<()>;
    /// Walks a chain as [`StoreRead::walk`] does, and finds the newest block of each loop on the way.
    fn loops_with_blocks(
        &self,
        leaf: LoopKey,
        visit: &mut Visit<'_, LoopWithBlock>,
    ) -> StoreResult<()> {
        self.walk(leaf, &mut |row| visit(loop_with_block(self, row.core)?))
    }
    /// Returns one turn.
    fn turn(&self, loop_key: LoopKey, turn: u32) -> StoreResult<Option<TurnRow>>;
    /// Returns some turns in order; those that are not there are left out.
    fn turns(&self, loop_key: LoopKey, turns: Range<u32>) -> StoreResult<Vec<TurnRow>>;
    /// Returns the turns within `turns` that answer calls of other turns, with those.
    fn answers(
        &self,
        loop_key: LoopKey,
        turns: Range<u32>,
    ) -> StoreResult<Vec<(u32, Vec<CallSite>)>>;
    /// Visits some messages in order; must stop when `visit` breaks, and hand on its error.
    fn messages(
        &self,
        loop_key: LoopKey,
        seqs: Range<u32>,
        visit: &mut Visit<'_, MessageRow>,
    ) -> StoreResult<()>;
    /// Visits what some messages say, in order and without a copy, each with its proof if `proofs` are
    /// asked for; must stop when `visit` breaks, and hand on its error.
    fn said(
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
    /// Visits some messages in order without reading what they say; must stop when `visit` breaks.
    fn sizes(
        &self,
        loop_key: LoopKey,
        seqs: Range<u32>,
        visit: &mut Visit<'_, MessageSize>,
    ) -> StoreResult<()>;
    /// Returns how many messages the loop had at `tick`: those of that tick or an earlier one.
    fn length_at(&self, loop_key: LoopKey, tick: Tick) -> StoreResult<u32>;
    /// Returns a blob's bytes.
    fn blob(&self, sha256: &[u8; 32]) -> StoreResult<Option<Vec<u8>>>;
    /// Returns the names of the blobs from `first` to `last`, both inclusive, in order.
    fn blob_names(&self, first: &[u8; 32], last: &[u8; 32]) -> StoreResult<Vec<[u8; 32]>>;
    /// Visits the blocks of committed runs on a loop, newest generation first; must stop when
    /// `visit` breaks.
    fn generations(&self, loop_key: LoopKey, visit: &mut Visit<'_, Generation>) -> StoreResult<()>;
    /// Returns the undos and redos of a run in order.
    fn flips(&self, run: RunKey) -> StoreResult<Vec<FlipRow>>;
    /// Visits the runs of a session, newest first; must stop when `visit` breaks.
    fn runs(&self, session: SessionKey, visit: &mut Visit<'_, RunRow>) -> StoreResult<()>;
    /// Visits the runs of a session, newest first, without most of what they say of themselves; must
    /// stop when `visit` breaks.
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
                older_loops: &run.older_loops,
            })
        })
    }
    /// Returns the run with this key; a key without a row is damage.
    fn run_by_key(&self, key: RunKey) -> StoreResult<RunRow>;
    /// Returns the blocks that a run wrote, by loop.
    fn blocks_of_run(&self, run: RunKey) -> StoreResult<Vec<BlockRow>>;
    /// Returns all blocks on a loop, oldest generation first.
    fn blocks_of_loop(&self, loop_key: LoopKey) -> StoreResult<Vec<BlockRow>>;
    /// Returns the block with this key; a key without a row is damage.
    fn block_by_key(&self, key: BlockKey) -> StoreResult<BlockRow>;
    /// Returns the messages of a block in order.
    fn block_messages(&self, block: BlockKey) -> StoreResult<Vec<BlockMessage>>;
    /// Returns the coverage of a block in order.
    fn coverage(&self, block: BlockKey) -> StoreResult<Vec<CoverageRow>>;
    /// Visits the manifests of a session, newest first; must stop when `visit` breaks.
    fn manifests(&self, session: SessionKey, visit: &mut Visit<'_, ManifestRow>)
    -> StoreResult<()>;
    /// Returns the key that digests of imported records are made with; it never changes.
    fn import_key(&self) -> StoreResult<Vec<u8>>;
    /// Returns the sessions imported from a record without an id, oldest first.
    fn imported(
        &self,
        format: &str,
        file_name: &str,
        record_key: &str,
    ) -> StoreResult<Vec<SessionKey>>;
    /// Returns how far the index of messages is.
    fn index_state(&self) -> StoreResult<IndexState>;
    /// Returns the loops that have messages which the index has not taken in, oldest first. If there
    /// are none this must be quick: it may cost time for each session, not for each loop.
    fn unindexed(&self) -> StoreResult<Vec<LoopKey>>;
    /// Returns the messages of a loop which the index has not taken in; empty also for a loop that
    /// is not there.
    fn unindexed_seqs(&self, loop_key: LoopKey) -> StoreResult<Range<u32>>;
    /// Visits the messages in the index that fit, in any order; must stop when `visit` breaks. Only
    /// the messages that the index has taken in are looked at. Of more than
    /// [`MOST_MATCHES`](index::MOST_MATCHES) only so many need to be visited, about the newest.
    fn find(
        &self,
        query: &IndexQuery,
        filter: &IndexFilter,
        visit: &mut Visit<'_, Match>,
    ) -> StoreResult<()>;
    /// Returns the files that are kept for a session, oldest first.
    fn sources(&self, session: SessionKey) -> StoreResult<Vec<SourceRow>>;
    /// Returns the parts of a kept file in order.
    fn source_parts(&self, source: SourceKey) -> StoreResult<Vec<SourcePart>>;
    /// Returns the packed bytes of a part.
    fn source_piece(&self, sha256: &[u8; 32]) -> StoreResult<Option<Vec<u8>>>;
    /// Returns the lease of a loop as it was last written, also one that ended or was let go.
    fn lease(&self, loop_key: LoopKey) -> StoreResult<Option<LeaseRow>>;
    /// Whether the holder of a lease is known to be gone, its [`LeaseGuard`] with it. `false` where a
    /// backend cannot know: then the time of the lease decides.
    fn is_holder_gone(&self, lease: &LeaseRow) -> StoreResult<bool> {
        let _ = lease;
        Ok(false)
    }
    /// Returns the loops (of a session) that are pending or running, oldest first.
    fn loops_at_work(&self, session: Option<SessionKey>) -> StoreResult<Vec<LoopKey>>;
    /// Returns the started tool calls (of a session) that have no result, oldest first.
    fn open_calls(&self, session: Option<SessionKey>) -> StoreResult<Vec<CallRow>>;
    /// Returns the started calls of a loop with this id, oldest first.
    fn calls(&self, loop_key: LoopKey, call_id: &str) -> StoreResult<Vec<CallRow>>;
    /// Returns all started calls of a loop, oldest first.
    fn calls_of_loop(&self, loop_key: LoopKey) -> StoreResult<Vec<CallRow>>;
    /// Returns the append of a session with this name.
    fn append_key(&self, session: SessionKey, name: &str) -> StoreResult<Option<AppendKey>>;
    /// Returns the named appends of a session, by name.
    fn append_keys(&self, session: SessionKey) -> StoreResult<Vec<AppendKey>>;
    /// Returns the notes of a loop in order.
    fn notes(&self, loop_key: LoopKey) -> StoreResult<Vec<Note>>;
    /// Returns what providers reported for a session, by loop and model.
    fn usage(&self, session: SessionKey) -> StoreResult<Vec<UsageRow>>;
    /// Returns the sessions that say they were started by this one, oldest first.
    fn started_by(&self, session: SessionKey) -> StoreResult<Vec<SessionKey>>;
    /// Returns what was decided about a session.
    fn flags(&self, session: SessionKey) -> StoreResult<SessionFlags>;
}

/// What can be written within one transaction.
pub trait StoreWrite: StoreRead {
    /// Returns the same transaction for reading.
    fn as_read(&self) -> &dyn StoreRead;
    /// Returns the same transaction for looking at every row.
    fn as_scan(&self) -> &dyn scan::StoreScan;
    /// Returns the same transaction for removing content.
    fn as_remove(&mut self) -> &mut dyn removal::StoreRemove;
    /// Adds a session; the key of `row` is ignored. Refused if its id is there.
    fn insert_session(&mut self, row: &SessionRow) -> StoreResult<SessionKey>;
    /// Writes what changes in a session: all but key and id.
    fn update_session(&mut self, row: &SessionRow) -> StoreResult<()>;
    /// Writes of a session only what changes with all that happens in it.
    fn touch_session(&mut self, activity: &SessionActivity) -> StoreResult<()>;
    /// Adds a loop without messages; the key and the totals of `row` are ignored. Refused if the
    /// session has a loop of this id.
    fn insert_loop(&mut self, row: &LoopRow, meta: &LoopMeta) -> StoreResult<LoopKey>;
    /// Writes what changes in a loop: status, times, kind and totals. Refused if a sealed message
    /// would no longer be sealed.
    fn update_loop(&mut self, row: &LoopRow) -> StoreResult<()>;
    /// Writes of a loop only what an append or a run changes: status, totals, and what the next append
    /// goes on from. Refused as [`StoreWrite::update_loop`].
    fn update_totals(&mut self, row: &LoopCore, progress: &LoopProgress) -> StoreResult<()>;
    /// Writes what the loop's source says of it.
    fn update_loop_meta(&mut self, key: LoopKey, meta: &LoopMeta) -> StoreResult<()>;
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
    /// Adds or rewrites a turn.
    fn put_turn(&mut self, loop_key: LoopKey, row: &TurnRow) -> StoreResult<()>;
    /// Adds a run; the key of `row` is ignored. Refused if its id is there.
    fn insert_run(&mut self, row: &RunRow) -> StoreResult<RunKey>;
    /// Adds a block with its messages and coverage; the key of its row is ignored. Refused if the
    /// loop has a block of this generation.
    fn insert_block(&mut self, block: &NewBlock) -> StoreResult<BlockKey>;
    /// Adds a flip.
    fn insert_flip(&mut self, session: SessionKey, row: &FlipRow) -> StoreResult<()>;
    /// Adds a manifest; the key of `row` is ignored. Refused if its id is there.
    fn insert_manifest(&mut self, row: &ManifestRow) -> StoreResult<ManifestKey>;
    /// Notes where a session was imported from.
    fn insert_import(&mut self, session: SessionKey, from: &ImportRow) -> StoreResult<()>;
    /// Takes messages into the index: `entries` are all of `seqs` that have words. Refused if `seqs`
    /// do not begin where the loop's [`StoreRead::unindexed_seqs`] do, or end after them.
    fn index(
        &mut self,
        loop_key: LoopKey,
        seqs: Range<u32>,
        entries: &[IndexEntry],
    ) -> StoreResult<()>;
    /// Takes the messages from `from` on out of the index, also if they are gone already; those
    /// that are there count as not indexed afterwards.
    fn unindex(&mut self, loop_key: LoopKey, from: u32) -> StoreResult<()>;
    /// Notes which sessions have no message that the index has not taken in, so that
    /// [`StoreRead::unindexed`] need not look at their loops.
    fn settle_index(&mut self) -> StoreResult<()>;
    /// Makes the index empty, also a damaged one, for words made by this version of the rule.
    fn clear_index(&mut self, version: u32) -> StoreResult<()>;
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
    /// Writes the lease of a loop over the one before. Refused if its token would go back.
    fn put_lease(&mut self, row: &LeaseRow) -> StoreResult<()>;
    /// Makes it known that the holder of a lease lives, until the guard is dropped or the process ends;
    /// `None` where a backend cannot. Called before the lease is written.
    fn guard_lease(&mut self, loop_key: LoopKey, token: i64) -> StoreResult<Option<LeaseGuard>> {
        let _ = (loop_key, token);
        Ok(None)
    }
    /// Adds a started call. Refused if the loop has this one.
    fn insert_call(&mut self, row: &CallRow) -> StoreResult<()>;
    /// Writes what changes in a started call: arguments, turn, attempts, and that it is finished.
    /// Refused for a finished one, and for other arguments unless it is finished now.
    fn update_call(&mut self, row: &CallRow) -> StoreResult<()>;
    /// Names an append. Refused if the session has one of this name.
    fn insert_append_key(&mut self, session: SessionKey, row: &AppendKey) -> StoreResult<()>;
    /// Adds a note behind the others of its loop.
    fn insert_note(&mut self, loop_key: LoopKey, note: &Note) -> StoreResult<()>;
    /// Removes the notes of a loop.
    fn remove_notes(&mut self, loop_key: LoopKey) -> StoreResult<()>;
    /// Writes what was decided about a session.
    fn put_flags(&mut self, session: SessionKey, flags: &SessionFlags) -> StoreResult<()>;
}

/// A row of `imports`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportRow {
    /// The format.
    pub format: String,
    /// The file, as it was given.
    pub path: String,
    /// The file's name without folders.
    pub file_name: String,
    /// The record's own key.
    pub record_key: Option<String>,
}

/// Runs `work` on one snapshot of `store` and returns its result.
///
/// # Errors
/// What `work` returns, or the backend's own failure.
///
/// # Examples
/// ```
/// use loopstore::{SessionId, SqliteStore, extend as store};
///
/// let store = SqliteStore::in_memory()?;
/// let id = SessionId::new("weather")?;
/// let session = store::read(&store, |read| read.session(&id))?;
/// assert_eq!(session, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn read<T>(
    store: &dyn SessionStore,
    work: impl FnOnce(&dyn StoreRead) -> StoreResult<T>,
) -> StoreResult<T> {
    let (mut work, mut result) = (Some(work), None);
    store.read(&mut |snapshot| {
        if let Some(work) = work.take() {
            result = Some(work(snapshot)?);
        }
        Ok(())
    })?;
    result.ok_or_else(|| StoreError::Invalid("the store did not run the read".into()))
}

/// Runs `work` in a write transaction of `store` and returns its result.
///
/// # Errors
/// What `work` returns, or the backend's own failure; then nothing was written.
///
/// # Examples
/// ```
/// use loopstore::extend::{self as store, session};
/// use loopstore::*;
///
/// let store = SqliteStore::in_memory()?;
/// let new = Session::new(SessionId::new("weather")?, "agent");
/// // An error takes back all that was written before it.
/// let failed = store::write(&store, |write| {
///     session::create_session(write, &new, None, None)?;
///     session::create_session(write, &new, None, None)
/// });
/// assert!(matches!(failed, Err(StoreError::SessionExists(_))));
/// assert_eq!(store::read(&store, |read| read.sessions())?, []);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write<T>(
    store: &dyn SessionStore,
    work: impl FnOnce(&mut dyn StoreWrite) -> StoreResult<T>,
) -> StoreResult<T> {
    let (mut work, mut result) = (Some(work), None);
    store.write(&mut |transaction| {
        if let Some(work) = work.take() {
            result = Some(work(transaction)?);
        }
        Ok(())
    })?;
    result.ok_or_else(|| StoreError::Invalid("the store did not run the write".into()))
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

/// Turns what a stored message says back into the message.
///
/// # Errors
/// If the stored form is damaged.
pub fn decode_ref(
    read: &(impl StoreRead + ?Sized),
    said: &StoredMessageRef<'_>,
) -> StoreResult<AgentMessage> {
    codec::decode_ref(said, &mut |sha256| read.blob(sha256))
}

/// Turns a stored message back into the message.
///
/// # Errors
/// If the stored form is damaged.
pub fn decode(
    read: &(impl StoreRead + ?Sized),
    stored: StoredMessage,
) -> StoreResult<AgentMessage> {
    codec::decode(stored, &mut |sha256| read.blob(sha256))
}
