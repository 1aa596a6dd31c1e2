//! The sink that writes into a store.
//!
//! The sink works inside one write transaction, so a transcript is imported whole or not at all. Messages that are
//! stored already are skipped; `identity` recognises them. New messages are collected in a bounded batch, so that a
//! transcript of any size needs little memory.

use std::collections::{HashMap, HashSet};

use loopstore::extend::{LoopKey, SessionKey, StoreResult, StoreWrite, append};
use loopstore::internal::{EncodedMessage, LastTurn, record_appended_compactions};
use loopstore::model::{AgentMessage, LoopId, LoopRecord, LoopStatus, Role, SessionId};
use loopstore::tokens::TokenCounter;

use super::identity::{Fate, Incoming, is_voice};
use super::matching::{Digests, RecordDigest};
use super::pending::PendingMessage;
use super::pipeline::{EncodedSink, Encoder, SkipEncoding};
use super::report::{CompletedCall, ImportReport};
use super::secrets::{HeldMessage, MessageTurn, Secrets};
use super::state::{ImportedSession, RecordKey};
use super::{FoundCompaction, FoundEffect, Identity, ImportError, Origin, SessionHead, Sink};

/// A batch is written when it has this many messages …
const MAX_BATCH_MESSAGES: usize = 256;
/// … or when its records have this many bytes.
const MAX_BATCH_BYTES: usize = 1 << 20;

/// The current session of the importer.
#[derive(Clone, Copy)]
enum CurrentSession {
    /// No session was begun yet.
    Nothing,
    /// The session is not imported.
    Unwanted,
    /// The session, at this index, is written while it is read.
    Written(usize),
    /// The session waits, at this index, until it is matched with stored sessions.
    Waiting(usize),
}

/// The facts of a stored message that a transcript repeats.
pub(super) struct KnownMessage {
    pub(super) role: Role,
    pub(super) turn_index: Option<i64>,
    pub(super) is_voice: bool,
    pub(super) created_at: Option<i64>,
}

/// The messages of one loop that are not written yet.
struct LoopBatch {
    loop_key: LoopKey,
    messages: Vec<EncodedMessage>,
    bytes: usize,
}

/// A sink that writes into a store. [`StoreSink::finish`] must be called at the end.
pub struct StoreSink<'a> {
    pub(super) write: &'a mut (dyn StoreWrite + 'a),
    pub(super) counter: &'a dyn TokenCounter,
    pub(super) from: Origin,
    /// The only session to import; `None` for all.
    only: Option<SessionId>,
    pub(super) digests: Digests,
    pub(super) report: ImportReport,
    pub(super) sessions: Vec<ImportedSession>,
    pub(super) by_id: HashMap<SessionId, usize>,
    /// The session that was begun last.
    current: CurrentSession,
    /// True if the file contained a session.
    has_sessions: bool,
    /// Sessions that may be stored already.
    pub(super) waiting: Vec<Incoming>,
    /// Ids that were given to sessions of the file, or that identify their records: each belongs to one session.
    pub(super) claimed: HashSet<SessionId>,
    /// The new ids of sessions of the file that are stored under another id.
    pub(super) renamed: HashMap<SessionId, SessionId>,
    pub(super) secrets: Secrets,
    batch: Option<LoopBatch>,
    /// The messages of the current turn, if secrets are searched for.
    pub(super) held: Vec<HeldMessage>,
    skip_encoding: SkipEncoding,
    pub(super) last_turn: LastTurn,
}

impl<'a> StoreSink<'a> {
    /// Returns a sink that writes a transcript. With `only`, only this session of the transcript is written.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn new(
        write: &'a mut (dyn StoreWrite + 'a),
        counter: &'a dyn TokenCounter,
        from: Origin,
        only: Option<SessionId>,
    ) -> StoreResult<Self> {
        let digests = Digests::new(&*write)?;
        let secrets = Secrets::new(write.import_key()?);
        Ok(Self {
            write,
            counter,
            from,
            only,
            digests,
            report: ImportReport::default(),
            sessions: Vec::new(),
            by_id: HashMap::new(),
            current: CurrentSession::Nothing,
            has_sessions: false,
            waiting: Vec::new(),
            claimed: HashSet::new(),
            renamed: HashMap::new(),
            secrets,
            batch: None,
            held: Vec::new(),
            skip_encoding: SkipEncoding::default(),
            last_turn: LastTurn::Final,
        })
    }

    /// Sets the finality of the last turn of a transcript.
    pub(super) fn with_last_turn(mut self, last_turn: LastTurn) -> Self {
        self.last_turn = last_turn;
        self
    }

    /// Sets `skip_encoding` when encoding ahead is wasted.
    pub(super) fn skipping(mut self, skip_encoding: SkipEncoding) -> Self {
        self.skip_encoding = skip_encoding;
        self
    }

    /// Returns the state that a reader ahead of this sink needs.
    pub(super) fn encoder(&self) -> Encoder<'a> {
        Encoder {
            digests: self.digests.clone(),
            counter: self.counter,
            skip_encoding: self.skip_encoding.clone(),
        }
    }

    /// Writes the remaining messages, and returns the report.
    ///
    /// # Errors
    /// If the store fails. The caller must roll back the transaction then.
    pub fn finish(mut self) -> Result<ImportReport, ImportError> {
        self.finish_document()?;
        if !self.has_sessions && self.only.is_none() {
            let reason = "there is no conversation in it";
            self.report.skip(&self.from.path, None, reason);
        }
        Ok(self.report)
    }

    /// Writes the remaining messages of the sessions so far, and updates their descriptions.
    fn finish_document(&mut self) -> Result<(), ImportError> {
        self.match_waiting()?;
        self.flush()?;
        self.current = CurrentSession::Nothing;
        self.by_id.clear();
        self.renamed.clear();
        for state in std::mem::take(&mut self.sessions) {
            self.has_sessions = true;
            let from = match state.redacts {
                true => self.secrets.origin(&self.from),
                false => self.from.clone(),
            };
            let finished = state.finish(self.write, &from, self.last_turn)?;
            self.report.loops += finished.loops;
            self.report.turns += finished.turns;
            if !finished.is_stored {
                let reason = format!("session `{}` holds no conversation", finished.id);
                self.report.skip(&self.from.path, None, reason);
            } else if !self.report.sessions.contains(&finished.id) {
                self.report.sessions.push(finished.id);
            }
        }
        Ok(())
    }

    /// True if the session with this id is to be imported.
    pub(super) fn is_wanted(&self, id: &SessionId) -> bool {
        self.only.as_ref().is_none_or(|only| only == id)
    }

    /// Begins or continues a session.
    fn start(&mut self, head: SessionHead) -> Result<(), ImportError> {
        // A session that is identified by its file and a key has ended when another one begins.
        let is_keyed = |of: &Incoming| !matches!(of.identity, Identity::Own(_));
        if self.waiting.last().is_some_and(is_keyed) {
            self.match_waiting()?;
        }
        self.flush()?;
        let Identity::Own(id) = head.identity.clone() else {
            self.wait(head, None);
            return Ok(());
        };
        let is_same = |of: &Incoming| of.identity == head.identity;
        if let Some(at) = self.waiting.iter().position(is_same) {
            self.waiting[at].head = head;
            self.current = CurrentSession::Waiting(at);
            return Ok(());
        }
        if !self.by_id.contains_key(&id)
            && let Some(namesake) = self.write.session(&id)?
        {
            self.skip_encoding.set();
            self.wait(head, Some(namesake.key));
            return Ok(());
        }
        let is_wanted = self.is_wanted(&id);
        Ok(self.begin(id, None, head, is_wanted)?)
    }

    fn wait(&mut self, head: SessionHead, namesake: Option<SessionKey>) {
        self.waiting.push(Incoming::new(head, namesake));
        self.current = CurrentSession::Waiting(self.waiting.len() - 1);
    }

    pub(super) fn begin(
        &mut self,
        id: SessionId,
        key: Option<RecordKey>,
        mut head: SessionHead,
        is_wanted: bool,
    ) -> StoreResult<()> {
        self.current = CurrentSession::Unwanted;
        if !is_wanted {
            return Ok(());
        }
        if let Some(by) = &mut head.session.parent_spawn_ref
            && let Some(id) = self.renamed.get(&by.parent_session_id)
        {
            by.parent_session_id.clone_from(id);
        }
        head.session.session_id = id.clone();
        head.session.loops.clear();
        let at = match self.by_id.get(&id).copied() {
            Some(at) => {
                if self.redacts(at) {
                    self.redact_head(self.sessions[at].key, &mut head)?;
                }
                self.sessions[at].head = head;
                at
            }
            None => {
                let stored = self.write.session(&id)?;
                let redacts = self.redact_head(stored.as_ref().map(|row| row.key), &mut head)?;
                if redacts || stored.is_some() {
                    self.skip_encoding.set();
                }
                let key = key.map(|mut key| {
                    if redacts {
                        key.key = self.secrets.name(&key.key);
                    }
                    key
                });
                let is_same_file = match &stored {
                    Some(row) => self.is_of_file(row.key)?,
                    None => false,
                };
                let mut state = ImportedSession::new(head, key, stored, is_same_file);
                state.redacts = redacts;
                self.sessions.push(state);
                self.by_id.insert(id, self.sessions.len() - 1);
                self.sessions.len() - 1
            }
        };
        self.current = CurrentSession::Written(at);
        Ok(())
    }

    /// Returns the index of the session begun last; `None` if it is not imported.
    pub(super) fn session_at(&self) -> Result<Option<usize>, ImportError> {
        match self.current {
            CurrentSession::Written(at) => Ok(Some(at)),
            CurrentSession::Unwanted | CurrentSession::Waiting(_) => Ok(None),
            CurrentSession::Nothing => {
                let reason = "the importer found a loop before its session";
                Err(ImportError::Refused(reason.into()))
            }
        }
    }

    pub(super) fn take_message(
        &mut self,
        loop_id: &LoopId,
        message: PendingMessage,
        origin: RecordDigest,
        bytes: usize,
        fate: Fate,
    ) -> Result<(), ImportError> {
        let Some(at) = self.session_at()? else {
            return Ok(());
        };
        let voice = message.author();
        let redacts = self.redacts(at);
        let (mut message, mut has_secret) = (message, false);
        if redacts {
            let (redacted, changed) = self.redact_message(message.into_message()?)?;
            (message, has_secret) = (redacted.into(), changed);
        }
        let Some(state) = self.sessions[at].loops.get_mut(loop_id) else {
            let reason = format!("the importer found a message before its loop `{loop_id}`");
            return Err(ImportError::Refused(reason));
        };
        let role = message.role();
        let is_note = role == Role::Extension;
        let begins = state.follow(role, message.turn_index());
        let key = state.key;
        if redacts {
            let turn = MessageTurn {
                at,
                loop_id,
                begins,
            };
            message = self
                .without_bound(&turn, message.into_message()?, has_secret)?
                .into();
        }
        self.report.messages += u64::from(!is_note);
        let current = &mut self.sessions[at].current;
        current.message(key, role);
        if is_voice(role, voice) {
            current.voice(message.created_at());
        }
        let fate = match self.is_replaced(at, loop_id, fate) {
            true => Fate::New,
            false => fate,
        };
        match fate {
            Fate::Known(_) => {
                self.known_already();
                return Ok(());
            }
            Fate::Later { .. } | Fate::Revised(_) => {
                self.count_secrets(at);
                let message = message.into_message()?;
                return Ok(self.changed(at, loop_id, fate, message, origin)?);
            }
            Fate::New => self.count_secrets(at),
        }
        self.report.added_messages += u64::from(!is_note);
        if !is_note {
            self.sessions[at].current.grows();
        }
        if redacts {
            self.hold(at, loop_id, message.into_message()?, origin, bytes);
            return Ok(());
        }
        Ok(self.queue(at, loop_id, message, origin, bytes)?)
    }

    /// Skips a message that is stored and unchanged.
    pub(super) fn known_message(&mut self, loop_id: &LoopId, known: &KnownMessage) {
        let CurrentSession::Written(at) = self.current else {
            return;
        };
        let session = &mut self.sessions[at];
        let Some(state) = session.loops.get_mut(loop_id) else {
            return;
        };
        state.follow(known.role, known.turn_index);
        session.current.message(state.key, known.role);
        if known.is_voice {
            session.current.voice(known.created_at);
        }
        self.report.messages += u64::from(known.role != Role::Extension);
    }

    /// True if a stored message was removed with its turn, which is imported again.
    pub(super) fn is_replaced(&self, at: usize, loop_id: &LoopId, fate: Fate) -> bool {
        let state = self.sessions[at].loops.get(loop_id);
        let from = state.and_then(|state| state.known.as_ref()?.replaced_from);
        from.is_some_and(|from| fate.seq().is_some_and(|seq| seq >= from))
    }

    /// Returns the index of the session that is being written.
    pub(super) fn written(&self) -> Option<usize> {
        match self.current {
            CurrentSession::Written(at) => Some(at),
            _ => None,
        }
    }

    pub(super) fn loop_key(&self, at: usize, loop_id: &LoopId) -> Option<LoopKey> {
        Some(self.sessions[at].loops.get(loop_id)?.key)
    }

    pub(super) fn queue(
        &mut self,
        at: usize,
        loop_id: &LoopId,
        message: PendingMessage,
        origin: RecordDigest,
        bytes: usize,
    ) -> StoreResult<()> {
        let Some(key) = self.loop_key(at, loop_id) else {
            return Ok(());
        };
        if let Some((report, response)) = message.applied_edits() {
            self.flush_batch()?;
            self.record_report(
                at,
                (loop_id, key),
                (&report, response.as_deref(), message.created_at()),
            )?;
        }
        self.sessions[at].appended(&message);
        if self
            .batch
            .as_ref()
            .is_some_and(|batch| batch.loop_key != key)
        {
            self.flush_batch()?;
        }
        let batch = self.batch.get_or_insert_with(|| LoopBatch {
            loop_key: key,
            messages: Vec::new(),
            bytes: 0,
        });
        batch
            .messages
            .push(message.into_encoded(origin, self.counter)?);
        batch.bytes += bytes;
        if batch.messages.len() >= MAX_BATCH_MESSAGES || batch.bytes >= MAX_BATCH_BYTES {
            self.flush_batch()?;
        }
        Ok(())
    }

    /// Writes all batches.
    pub(super) fn flush(&mut self) -> StoreResult<()> {
        self.release_held()?;
        self.flush_batch()
    }

    fn flush_batch(&mut self) -> StoreResult<()> {
        let Some(batch) = self.batch.take() else {
            return Ok(());
        };
        // The loop is running until the transcript ends, so that its last turn counts as in flight meanwhile.
        let (key, messages) = (batch.loop_key, batch.messages);
        let appended = append::append_encoded(self.write, key, messages, self.last_turn)?;
        let sealed = record_appended_compactions(self.write, self.counter, &appended.compactions)?;
        self.report.compactions.extend(sealed);
        Ok(())
    }

    /// Sets a loop to running until the transcript ends, so that its last turn counts as in flight meanwhile.
    pub(super) fn reopen(&mut self, key: LoopKey) -> StoreResult<()> {
        let mut row = self.write.loop_by_key(key)?;
        if row.status.is_ended() {
            row.status = LoopStatus::Running;
            self.write.update_loop(&row)?;
        }
        Ok(())
    }

    pub(super) fn found(&mut self, mut compaction: FoundCompaction) -> Result<(), ImportError> {
        let Some(at) = self.session_at()? else {
            return Ok(());
        };
        self.flush()?;
        if self.redacts(at) {
            if self.knows_compaction(at, &compaction)? {
                return Ok(());
            }
            if self.redact_compaction(at, &mut compaction)? {
                let reason = "a compaction of a provider that stands for what was redacted";
                self.report.skip(&self.from.path, None, reason);
                return Ok(());
            }
        }
        let session = &mut self.sessions[at];
        let (Some(key), Some(state)) = (session.key, session.loops.get(&compaction.loop_id)) else {
            let reason = format!(
                "the importer found a compaction before its loop `{}`",
                compaction.loop_id
            );
            return Err(ImportError::Refused(reason));
        };
        let (loop_key, status) = (state.key, state.described.status.clone());
        let id = &session.head.session.session_id;
        let owner = loopstore::internal::run_owner(self.write, id)?;
        let own = super::runs::own_run(&compaction);
        let run_id = match &own {
            Some(run) => super::runs::run_id_of_own(&owner, &compaction.loop_id, run),
            None => super::runs::run_id(&owner, &compaction)?,
        };
        if let Some(run) = own
            && session.has_run(&*self.write, key, &run)?
        {
            return Ok(());
        }
        let run_id = session.numbered(run_id);
        if session.knows_run(&*self.write, key, &run_id)? {
            return Ok(());
        }
        session.is_changed = true;
        // A loop that ended in the transcript has no turn in flight.
        let mut row = self.write.loop_by_key(loop_key)?;
        if status.is_ended() && !row.status.is_ended() {
            row.status = status;
            append::finalize_turns(self.write, &mut row, LastTurn::Final)?;
            self.write.update_loop(&row)?;
        }
        let run = super::runs::ImportedRun { loop_key, run_id };
        if let FoundEffect::EditedResults { .. } = &compaction.effect {
            return Ok(self.write_edits(&run, &compaction)?);
        }
        let ended = run.write(self.write, self.counter, compaction)?;
        self.report.compactions.push(ended);
        Ok(())
    }
}

impl EncodedSink for StoreSink<'_> {
    fn note(&mut self, note: String) {
        let file = self.from.path.clone();
        self.report.notes.push(CompletedCall { file, note });
    }

    fn encoded(
        &mut self,
        loop_id: LoopId,
        message: PendingMessage,
        origin: RecordDigest,
        bytes: usize,
    ) -> Result<(), ImportError> {
        match self.current {
            CurrentSession::Waiting(at) => {
                self.waiting[at].message(&loop_id, message, origin, bytes)
            }
            _ => self.take_message(&loop_id, message, origin, bytes, Fate::New),
        }
    }
}

impl Sink for StoreSink<'_> {
    fn session(&mut self, head: SessionHead) -> Result<(), ImportError> {
        self.start(head)
    }

    fn begin_loop(&mut self, record: LoopRecord) -> Result<(), ImportError> {
        let CurrentSession::Waiting(at) = self.current else {
            let record = self.with_renamed(record);
            return self.loop_begins(record, None);
        };
        let id = record.loop_id.clone();
        if self.waiting[at].begin_loop(record) {
            self.note_stored(at, &id)?;
        }
        Ok(())
    }

    fn message(
        &mut self,
        loop_id: &LoopId,
        message: AgentMessage,
        raw: &[u8],
    ) -> Result<(), ImportError> {
        let origin = self.digests.of(raw);
        self.encoded(loop_id.clone(), message.into(), origin, raw.len())
    }

    fn compaction(&mut self, found: FoundCompaction) -> Result<(), ImportError> {
        match self.current {
            CurrentSession::Waiting(at) => self.waiting[at].compaction(found),
            _ => self.found(found),
        }
    }

    fn end_document(&mut self) -> Result<(), ImportError> {
        self.finish_document()
    }

    fn skip(&mut self, line: Option<u64>, reason: String) {
        self.report.skip(&self.from.path, line, reason);
    }

    fn repaired(&mut self, line: Option<u64>, count: u64, what: &str) {
        self.report.repair(&self.from.path, line, count, what);
    }
}
