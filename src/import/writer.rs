//! The sink that writes into a store.
//!
//! It works inside one write transaction, so a transcript comes in whole or not at all. A message
//! is known again by its place in its loop and by the digest of its raw record; what is known is
//! skipped. New messages wait in a batch that is bounded, so that a transcript of any size needs
//! little memory.

use std::collections::HashMap;
use std::path::Path;

use super::activity;
use super::dedup::Dedup;
use super::deferred::{DeferredSession, RecordKey};
use super::matching::{Digest, Digests, Stored};
use super::pending::PendingMessage;
use super::pipeline::{EncodedSink, Encoder, SinkCall, SkipEncoding};
use super::report::ImportReport;
use super::secrets::{HeldMessage, Secrets, TurnPlace};
use super::state::{Described, LoopState, PendingHistory, SessionState};
use super::{FoundCompaction, Identity, ImportError, SessionHead, Sink};
use crate::compact::seal_appended;
use crate::model::{AgentMessage, LoopId, LoopRecord, LoopStatus, Role, SessionId};
use crate::store::append::{self, LastTurn};
use crate::store::ready::Ready;
use crate::store::{LoopKey, LoopRow, SessionKey, StoreResult, StoreWrite, session};
use crate::tokens::TokenCounter;

/// A batch is written when it holds this many messages …
const MAX_BATCH_MESSAGES: usize = 256;
/// … or their records this many bytes.
const MAX_BATCH_BYTES: usize = 1 << 20;

/// Where a transcript comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The format.
    pub format: String,
    /// The file, as it was given.
    pub path: String,
    /// The file's name without folders.
    pub file_name: String,
    /// When the file was last written, in milliseconds since the epoch; `None` if there is no such file.
    pub modified_at: Option<i64>,
}

impl Origin {
    /// A transcript of this format in this file.
    pub fn new(format: &str, path: &Path) -> Self {
        let name = path.file_name().unwrap_or(path.as_os_str());
        Self {
            format: format.to_owned(),
            path: path.to_string_lossy().into_owned(),
            file_name: name.to_string_lossy().into_owned(),
            modified_at: activity::modified_at(path),
        }
    }

    pub(super) fn stem(&self) -> &str {
        let name = self.file_name.as_str();
        name.rsplit_once('.')
            .map_or(name, |(stem, _)| if stem.is_empty() { name } else { stem })
    }
}

/// Messages of one loop that are not written yet.
struct LoopBatch {
    loop_key: LoopKey,
    messages: Vec<Ready>,
    bytes: usize,
}

/// Writes what an importer finds; [`StoreSink::finish`] must end it.
pub struct StoreSink<'a> {
    pub(super) write: &'a mut (dyn StoreWrite + 'a),
    pub(super) counter: &'a dyn TokenCounter,
    pub(super) from: Origin,
    /// Only this session is wanted.
    only: Option<SessionId>,
    pub(super) digests: Digests,
    pub(super) report: ImportReport,
    pub(super) sessions: Vec<SessionState>,
    pub(super) by_id: HashMap<SessionId, usize>,
    /// The session that was begun last; `None`: it is not wanted.
    current: Option<usize>,
    has_begun: bool,
    pub(super) deferred: Option<DeferredSession>,
    pub(super) secrets: Secrets,
    batch: Option<LoopBatch>,
    /// With secrets to look for: the messages of the turn at hand.
    pub(super) held: Vec<HeldMessage>,
    skip_encoding: SkipEncoding,
    pub(super) last_turn: LastTurn,
}

impl<'a> StoreSink<'a> {
    /// A sink that writes a transcript; with `only`, just that session of it.
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
            current: None,
            has_begun: false,
            deferred: None,
            secrets,
            batch: None,
            held: Vec::new(),
            skip_encoding: SkipEncoding::default(),
            last_turn: LastTurn::Sealed,
        })
    }

    /// Says how final the last turn of a transcript is.
    pub(super) fn with_last_turn(mut self, last_turn: LastTurn) -> Self {
        self.last_turn = last_turn;
        self
    }

    /// Sets `skip_encoding` when stored forms are not worth making ahead.
    pub(super) fn skipping(mut self, skip_encoding: SkipEncoding) -> Self {
        self.skip_encoding = skip_encoding;
        self
    }

    /// Returns what a reader ahead of this sink needs.
    pub(super) fn encoder(&self) -> Encoder<'a> {
        Encoder {
            digests: self.digests.clone(),
            counter: self.counter,
            skip_encoding: self.skip_encoding.clone(),
        }
    }

    /// Writes what is left and says what came in.
    ///
    /// # Errors
    /// If the store refuses; the transaction must then be given up.
    pub fn finish(mut self) -> Result<ImportReport, ImportError> {
        self.settle()?;
        self.flush()?;
        let sessions = std::mem::take(&mut self.sessions);
        if sessions.is_empty() && self.only.is_none() {
            let reason = "there is no conversation in it";
            self.report.skip(&self.from.path, None, reason);
        }
        for state in sessions {
            let from = match state.redacts {
                true => self.secrets.origin(&self.from),
                false => self.from.clone(),
            };
            let finished = state.finish(self.write, &from, self.last_turn)?;
            self.report.loops += finished.loops;
            self.report.turns += finished.turns;
            match finished.is_stored {
                true => self.report.sessions.push(finished.id),
                false => {
                    let reason = format!("session `{}` holds no conversation", finished.id);
                    self.report.skip(&self.from.path, None, reason);
                }
            }
        }
        Ok(self.report)
    }

    fn waits(&mut self, head: SessionHead, file_name: String, key: String) {
        self.deferred = Some(DeferredSession {
            head,
            key: RecordKey { file_name, key },
            calls: Vec::new(),
        });
    }

    pub(super) fn begin(
        &mut self,
        id: SessionId,
        key: Option<RecordKey>,
        mut head: SessionHead,
    ) -> StoreResult<()> {
        self.current = None;
        if self.only.as_ref().is_some_and(|only| *only != id) {
            return Ok(());
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
                let mut state = SessionState::new(head, key, stored);
                state.redacts = redacts;
                self.sessions.push(state);
                self.by_id.insert(id, self.sessions.len() - 1);
                self.sessions.len() - 1
            }
        };
        self.current = Some(at);
        Ok(())
    }

    /// Returns the session begun last, `None` if it is not wanted.
    fn session_at(&self) -> Result<Option<usize>, ImportError> {
        if self.has_begun {
            return Ok(self.current);
        }
        let reason = "the importer found a loop before its session";
        Err(ImportError::Refused(reason.into()))
    }

    pub(super) fn loop_begins(&mut self, mut record: LoopRecord) -> Result<(), ImportError> {
        let Some(at) = self.session_at()? else {
            return Ok(());
        };
        record.messages.clear();
        record.compaction_block = None;
        if self.redacts(at) {
            self.redact_loop(&mut record)?;
        }
        let turns = std::mem::take(&mut record.turns);
        let events = std::mem::take(&mut record.events);
        let history = PendingHistory::of(&turns, &events)?;
        if !self.sessions[at].loops.contains_key(&record.loop_id) {
            let state = self.open_loop(at, &mut record)?;
            let session = &mut self.sessions[at];
            session.order.push(record.loop_id.clone());
            session.loops.insert(record.loop_id.clone(), state);
        }
        let state = self.sessions[at].loops.get_mut(&record.loop_id);
        if let Some(state) = state {
            state.described = Described::of(&record)?;
            if history.is_some() {
                state.history = history;
            }
            state.spill(self.write)?;
        }
        Ok(())
    }

    /// Finds a loop in the store, or creates it.
    fn open_loop(&mut self, at: usize, record: &mut LoopRecord) -> Result<LoopState, ImportError> {
        let session = self.session_key(at)?;
        if let Some(row) = self.write.loop_by_id(session, &record.loop_id)? {
            let stored = Stored::of(&*self.write, &row, self.is_own_form())?;
            self.check_comparable(at, &row, &stored)?;
            return Ok(LoopState::known(&row, stored, Described::of(record)?));
        }
        // The child's cut may be the parent's last turn.
        self.flush()?;
        let parent = match &record.parent_loop_id {
            Some(id) => self.write.loop_by_id(session, id)?,
            None => None,
        };
        self.check_cut(parent.as_ref(), record);
        let key = session::add_loop(self.write, session, record, parent.as_deref())?;
        self.sessions[at].is_changed = true;
        Ok(LoopState::new(key, Described::of(record)?))
    }

    /// Refuses a transcript of a loop that came in from loopstore's own lines: they do not hold the
    /// digests by which its records would be known again.
    fn check_comparable(
        &self,
        at: usize,
        row: &LoopRow,
        stored: &Stored,
    ) -> Result<(), ImportError> {
        let session = self.write.session_by_key(row.session)?;
        let is_of_format = session.source.as_deref() == Some(self.from.format.as_str());
        let has_none = stored.places.is_empty() && stored.revised.is_empty();
        if !is_of_format || !has_none || row.totals.next_seq == 0 || self.is_own_form() {
            return Ok(());
        }
        let id = &self.sessions[at].head.session.session_id;
        Err(ImportError::NoTranscript(format!(
            "session `{id}` came in from an export, which its transcript cannot be compared with; \
             import the transcript into the database of that export"
        )))
    }

    /// Takes out a `parent_turn` that the parent does not have.
    fn check_cut(&mut self, parent: Option<&LoopRow>, record: &mut LoopRecord) {
        let (Some(parent), Some(cut)) = (parent, &record.parent_turn) else {
            return;
        };
        let cut = cut.get();
        let turn = u32::try_from(cut).ok();
        let turn = turn.filter(|turn| *turn < parent.totals.turns);
        if cut == session::NO_TURN || turn.is_some() {
            let part = turn.zip(session::parent_seq(record));
            let fits = part.is_none_or(|(turn, seq)| {
                session::part_of(self.write.as_read(), parent, turn, seq).is_ok()
            });
            if !fits {
                let reason = format!(
                    "loop `{}` goes on from within turn {cut} of `{}`, which has no such message",
                    record.loop_id, parent.loop_id
                );
                self.report.skip(&self.from.path, None, reason);
                session::forget_parent_seq(record);
            }
            return;
        }
        let reason = format!(
            "loop `{}` goes on from turn {cut} of `{}`, which has {} turns",
            record.loop_id, parent.loop_id, parent.totals.turns
        );
        self.report.skip(&self.from.path, None, reason);
        record.parent_turn = None;
    }

    /// Returns the key of a session, which is created if it is not there yet.
    fn session_key(&mut self, at: usize) -> StoreResult<SessionKey> {
        let state = &mut self.sessions[at];
        if let Some(key) = state.key {
            return Ok(key);
        }
        let head = &state.head;
        let source = Some(self.from.format.clone());
        let key = session::create_session(self.write, &head.session, head.title.clone(), source)?;
        state.key = Some(key);
        state.is_changed = true;
        if state.redacts {
            self.mark(key)?;
        }
        Ok(key)
    }

    pub(super) fn take_message(
        &mut self,
        loop_key: &LoopId,
        message: PendingMessage,
        origin: Digest,
        bytes: usize,
    ) -> Result<(), ImportError> {
        let Some(at) = self.session_at()? else {
            return Ok(());
        };
        let redacts = self.redacts(at);
        let (mut message, mut has_secret) = (message, false);
        if redacts {
            let (redacted, changed) = self.redact_message(message.into_message()?)?;
            (message, has_secret) = (redacted.into(), changed);
        }
        let Some(state) = self.sessions[at].loops.get_mut(loop_key) else {
            let reason = format!("the importer found a message before its loop `{loop_key}`");
            return Err(ImportError::Refused(reason));
        };
        let is_note = message.role() == Role::Extension;
        let begins = state.follow(&message);
        if redacts {
            let turn = TurnPlace {
                at,
                loop_id: loop_key,
                begins,
            };
            message = self
                .without_bound(&turn, message.into_message()?, has_secret)?
                .into();
        }
        self.report.messages += u64::from(!is_note);
        match self.look_up(at, loop_key, &origin)? {
            Dedup::Known => {
                self.known_already();
                return Ok(());
            }
            Dedup::Changed(seq) => {
                self.count_secrets(at);
                let message = message.into_message()?;
                return Ok(self.changed(at, loop_key, seq, message, origin)?);
            }
            Dedup::New => self.count_secrets(at),
        }
        self.report.added_messages += u64::from(!is_note);
        if redacts {
            self.hold(at, loop_key, message.into_message()?, origin, bytes);
            return Ok(());
        }
        Ok(self.queue(at, loop_key, message, origin, bytes)?)
    }

    pub(super) fn loop_key(&self, at: usize, loop_key: &LoopId) -> Option<LoopKey> {
        Some(self.sessions[at].loops.get(loop_key)?.key)
    }

    pub(super) fn queue(
        &mut self,
        at: usize,
        loop_key: &LoopId,
        message: PendingMessage,
        origin: Digest,
        bytes: usize,
    ) -> StoreResult<()> {
        let Some(key) = self.loop_key(at, loop_key) else {
            return Ok(());
        };
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
            .push(message.into_ready(origin, self.counter)?);
        batch.bytes += bytes;
        if batch.messages.len() >= MAX_BATCH_MESSAGES || batch.bytes >= MAX_BATCH_BYTES {
            self.flush_batch()?;
        }
        Ok(())
    }

    /// Writes all that waits.
    pub(super) fn flush(&mut self) -> StoreResult<()> {
        self.release_held()?;
        self.flush_batch()
    }

    fn flush_batch(&mut self) -> StoreResult<()> {
        let Some(batch) = self.batch.take() else {
            return Ok(());
        };
        // It runs until the transcript ends, so that its last turn counts as in flight meanwhile.
        let (key, messages) = (batch.loop_key, batch.messages);
        let are_notes = messages.iter().all(|new| new.role() == Role::Extension);
        let before = match are_notes {
            true => {
                let owner = self.write.loop_by_key(key)?.session;
                Some(self.write.session_by_key(owner)?)
            }
            false => None,
        };
        let appended = append::append_ready(self.write, key, messages, self.last_turn)?;
        if let Some(before) = before {
            // Nobody goes on from a loop because of a note, such as what an older copy of a transcript says otherwise.
            let mut row = self.write.session_by_key(before.key)?;
            row.current_loop = before.current_loop;
            self.write.touch_session(&(&row).into())?;
        }
        let sealed = seal_appended(self.write, self.counter, &appended.compactions)?;
        self.report.compactions.extend(sealed);
        Ok(())
    }

    /// Sets a loop running until the transcript ends, so that its last turn counts as in flight
    /// while it is.
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
        let owner = crate::store::session::run_owner(self.write.as_read(), id)?;
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
        // What the source calls ended has no turn in flight.
        let mut row = self.write.loop_by_key(loop_key)?;
        if status.is_ended() && !row.status.is_ended() {
            row.status = status;
            append::seal(self.write, &mut row, LastTurn::Sealed)?;
            self.write.update_loop(&row)?;
        }
        let run = super::runs::ImportedRun { loop_key, run_id };
        let ended = run.write(self.write, self.counter, compaction)?;
        self.report.compactions.push(ended);
        Ok(())
    }
}

impl EncodedSink for StoreSink<'_> {
    fn encoded(
        &mut self,
        loop_id: LoopId,
        message: PendingMessage,
        origin: Digest,
        bytes: usize,
    ) -> Result<(), ImportError> {
        match &mut self.deferred {
            Some(deferred) => {
                let call = SinkCall::Message(loop_id, message, origin, bytes);
                deferred.calls.push(call);
                Ok(())
            }
            None => self.take_message(&loop_id, message, origin, bytes),
        }
    }
}

impl Sink for StoreSink<'_> {
    fn session(&mut self, head: SessionHead) -> Result<(), ImportError> {
        self.settle()?;
        self.flush()?;
        self.has_begun = true;
        match head.identity.clone() {
            Identity::Own(id) => self.begin(id, None, head)?,
            Identity::Key(key) => self.waits(head, self.from.file_name.clone(), key),
            Identity::Series(key) => self.waits(head, String::new(), key),
        }
        Ok(())
    }

    fn begin_loop(&mut self, record: LoopRecord) -> Result<(), ImportError> {
        match &mut self.deferred {
            Some(deferred) => {
                deferred.calls.push(SinkCall::Loop(Box::new(record)));
                Ok(())
            }
            None => self.loop_begins(record),
        }
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
        match &mut self.deferred {
            Some(deferred) => {
                deferred.calls.push(SinkCall::Compaction(Box::new(found)));
                Ok(())
            }
            None => self.found(found),
        }
    }

    fn skip(&mut self, line: Option<u64>, reason: String) {
        self.report.skip(&self.from.path, line, reason);
    }
}
