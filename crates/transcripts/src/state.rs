//! The state of the sessions and loops of a transcript during an import.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use loopstore::extend::{
    ImportRow, LoopCore, LoopKey, LoopMeta, LoopProgress, LoopRow, LoopTotals, SessionKey,
    SessionRow, StoreError, StoreRead, StoreResult, StoreWrite, append, codec, decode, session,
};
use loopstore::internal::{CURRENT_LOOP, LastTurn, history_fingerprint, shorten_history};
use loopstore::model::{Json, LoopId, LoopRecord, LoopStatus, Role, SessionId, Time, Turn};
use loopstore_model::GroupCursor;

use super::activity;
use super::identity::{CurrentLoop, newest_loop};
use super::matching::RecordDigest;
use super::pending::PendingMessage;
use super::{Origin, SessionHead};

/// The maximum size of recorded turns and events that wait in memory until the end.
const MAX_HELD_BYTES: usize = 1 << 20;

/// The description of a loop; the last record wins.
#[derive(Clone, Debug)]
pub(super) struct LoopDescription {
    pub(super) status: LoopStatus,
    kind: String,
    started_at: Option<String>,
    ended_at: Option<String>,
    meta: String,
}

impl LoopDescription {
    pub(super) fn of(record: &LoopRecord) -> StoreResult<Self> {
        let mut row = LoopRow {
            core: LoopCore {
                key: LoopKey(0),
                session: SessionKey(0),
                loop_id: record.loop_id.clone(),
                parent: None,
                parent_turn: None,
                parent_seq: None,
                status: LoopStatus::default(),
                totals: LoopTotals::default(),
                edits: 0,
            },
            parent_loop_id: None,
            kind: String::new(),
            started_at: None,
            ended_at: None,
            tick: 0,
            progress: LoopProgress::default(),
        };
        let LoopMeta { meta, .. } = session::describe_loop(&mut row, record)?;
        Ok(Self {
            status: row.core.status,
            kind: row.kind,
            started_at: row.started_at,
            ended_at: row.ended_at,
            meta,
        })
    }
}

/// Recorded turns and events, which wait until the messages are known.
#[derive(Clone, Debug)]
pub(super) enum PendingHistory {
    /// In memory, as JSON.
    Held(String),
    /// In the row of a new loop, as JSON including the messages.
    Spilled,
}

impl PendingHistory {
    /// Returns `None` if there is nothing to keep.
    pub(super) fn of(turns: &[Turn], events: &[Json]) -> StoreResult<Option<Self>> {
        #[derive(serde::Serialize)]
        struct Form<'a> {
            turns: &'a [Turn],
            events: &'a [Json],
        }
        if turns.is_empty() && events.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self::Held(codec::to_json(&Form { turns, events })?)))
    }
}

/// The stored part of a loop of the transcript.
pub(super) struct KnownLoop {
    /// The status before this import.
    pub(super) status: LoopStatus,
    /// True if the stored loop continues beyond the end of the transcript, or differently.
    pub(super) is_left_behind: bool,
    pub(super) has_recorded: bool,
    /// Digests of the changed records that are stored.
    pub(super) revised: HashSet<RecordDigest>,
    /// The stored messages that the transcript contains too.
    pub(super) matched: HashSet<u32>,
    /// The first message that was replaced.
    pub(super) replaced_from: Option<u32>,
}

/// A loop of the transcript.
pub(super) struct LoopState {
    pub(super) key: LoopKey,
    /// The part that was stored before this import; `None` if the loop was not stored.
    pub(super) known: Option<KnownLoop>,
    pub(super) described: LoopDescription,
    pub(super) history: Option<PendingHistory>,
    cursor: GroupCursor,
    turns: u64,
    /// True if a secret was found in the current turn.
    pub(super) turn_has_secrets: bool,
}

impl LoopState {
    /// Returns the state of a loop that is stored already.
    pub(super) fn known(key: LoopKey, known: KnownLoop, described: LoopDescription) -> Self {
        Self {
            known: Some(known),
            ..Self::new(key, described)
        }
    }

    /// Returns the state of a loop that this import created.
    pub(super) fn new(key: LoopKey, described: LoopDescription) -> Self {
        Self {
            key,
            known: None,
            described,
            history: None,
            cursor: GroupCursor::default(),
            turns: 0,
            turn_has_secrets: false,
        }
    }

    /// Counts the turns of the transcript. Returns true if a turn begins.
    pub(super) fn follow(&mut self, role: Role, turn_index: Option<i64>) -> bool {
        let begins = role != Role::Extension && self.cursor.begins(turn_index);
        self.turns += u64::from(begins);
        begins
    }

    /// Writes the long history of a new loop unchanged; [`LoopState::finish`] shortens it.
    pub(super) fn spill(&mut self, write: &mut dyn StoreWrite) -> StoreResult<()> {
        match &self.history {
            Some(PendingHistory::Held(text))
                if text.len() > MAX_HELD_BYTES && self.known.is_none() =>
            {
                let mut meta = write.loop_meta(self.key)?;
                meta.history = Some(text.clone());
                write.update_loop_meta(self.key, &meta)?;
                self.history = Some(PendingHistory::Spilled);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Writes the facts that are known only at the end. Returns true if any of them is new.
    fn finish(self, write: &mut dyn StoreWrite, last_turn: LastTurn) -> StoreResult<bool> {
        let row = write.loop_by_key(self.key)?;
        let mut new = row.clone();
        match &self.known {
            // The transcript is an earlier state, so the stored description is newer.
            Some(known) if known.is_left_behind => {
                new.status.clone_from(&known.status);
            }
            _ => {
                new.status.clone_from(&self.described.status);
                new.kind.clone_from(&self.described.kind);
                new.started_at.clone_from(&self.described.started_at);
                new.ended_at.clone_from(&self.described.ended_at);
            }
        }
        append::finalize_turns(write, &mut new, last_turn)?;
        if new != row {
            write.update_loop(&new)?;
        }
        Ok(self.finish_meta(write)? || new != row)
    }

    fn finish_meta(self, write: &mut dyn StoreWrite) -> StoreResult<bool> {
        if self
            .known
            .as_ref()
            .is_some_and(|known| known.is_left_behind)
        {
            return Ok(false);
        }
        let old = write.loop_meta(self.key)?;
        let history = match self.history {
            None => old.history.clone(),
            Some(PendingHistory::Held(text)) => Some(shortened(write, self.key, &text)?),
            Some(PendingHistory::Spilled) => match &old.history {
                Some(text) => Some(shortened(write, self.key, text)?),
                None => None,
            },
        };
        let new = LoopMeta {
            meta: self.described.meta,
            history,
        };
        if new != old {
            write.update_loop_meta(self.key, &new)?;
        }
        Ok(new != old)
    }
}

/// Returns a history without the loop's messages.
fn shortened(read: &dyn StoreRead, key: LoopKey, history: &str) -> StoreResult<String> {
    let mut known = HashMap::new();
    let end = read.loop_by_key(key)?.totals.next_seq;
    read.messages(key, 0..end, &mut |row| {
        let json = codec::to_json(&decode(read, row.body)?)?;
        if let Ok(json) = Json::parse(&json) {
            known.entry(history_fingerprint(&json)).or_insert(row.seq);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    shorten_history(history, &|digest| known.get(digest).copied())
        .map_err(|error| StoreError::Invalid(format!("recorded turns: {error}")))
}

/// The key, together with the format, of a session without a usable id.
#[derive(Clone)]
pub(super) struct RecordKey {
    /// Empty if the name does not identify the session.
    pub(super) file_name: String,
    pub(super) key: String,
}

/// A session of the transcript.
pub(super) struct ImportedSession {
    pub(super) head: SessionHead,
    /// The key of a session without an id.
    record_key: Option<RecordKey>,
    /// `None` until the first loop.
    pub(super) key: Option<SessionKey>,
    /// True if this import created the session.
    is_new: bool,
    pub(super) is_changed: bool,
    /// True if the messages of the session are redacted.
    pub(super) redacts: bool,
    /// True if a secret was found in one of its messages.
    pub(super) has_secrets: bool,
    pub(super) loops: HashMap<LoopId, LoopState>,
    /// The loops in the order in which they began.
    pub(super) order: Vec<LoopId>,
    /// Ids of the stored runs.
    runs: Option<HashSet<String>>,
    /// The number of runs found with each id.
    found: HashMap<String, u32>,
    last_active_before: Option<String>,
    pub(super) current: CurrentLoop,
    /// True if the session was imported from the same file before.
    is_same_file: bool,
    /// The time of the newest imported message in milliseconds since the epoch.
    newest: Option<i64>,
}

/// The outcome of the import of a session.
pub(super) struct Finished {
    pub(super) id: SessionId,
    pub(super) loops: u64,
    pub(super) turns: u64,
    pub(super) is_stored: bool,
}

impl ImportedSession {
    pub(super) fn new(
        head: SessionHead,
        record_key: Option<RecordKey>,
        stored: Option<SessionRow>,
        is_same_file: bool,
    ) -> Self {
        Self {
            head,
            record_key,
            key: stored.as_ref().map(|row| row.key),
            is_new: stored.is_none(),
            is_changed: false,
            redacts: false,
            has_secrets: false,
            loops: HashMap::new(),
            order: Vec::new(),
            runs: None,
            found: HashMap::new(),
            current: CurrentLoop::new(stored.as_ref().and_then(|row| row.current_loop)),
            is_same_file,
            last_active_before: stored.and_then(|row| row.last_active_at),
            newest: None,
        }
    }

    /// Records that a message is about to be appended.
    pub(super) fn appended(&mut self, message: &PendingMessage) {
        self.is_changed = true;
        self.newest = self.newest.max(message.created_at());
    }

    /// Numbers equal compactions in order.
    pub(super) fn numbered(&mut self, run_id: String) -> String {
        let number = self.found.entry(run_id.clone()).or_insert(0);
        *number += 1;
        match number {
            1 => run_id,
            _ => format!("{run_id}-{number}"),
        }
    }

    /// True if a run is stored. The run counts as stored from now on.
    pub(super) fn knows_run(
        &mut self,
        read: &dyn StoreRead,
        key: SessionKey,
        run_id: &str,
    ) -> StoreResult<bool> {
        Ok(!self.runs(read, key)?.insert(run_id.to_owned()))
    }

    /// True if a run is stored.
    pub(super) fn has_run(
        &mut self,
        read: &dyn StoreRead,
        key: SessionKey,
        run_id: &str,
    ) -> StoreResult<bool> {
        Ok(self.runs(read, key)?.contains(run_id))
    }

    fn runs(&mut self, read: &dyn StoreRead, key: SessionKey) -> StoreResult<&mut HashSet<String>> {
        if self.runs.is_none() {
            let mut stored = HashSet::new();
            read.runs(key, &mut |run| {
                stored.insert(run.run_id);
                Ok(ControlFlow::Continue(()))
            })?;
            self.runs = Some(stored);
        }
        Ok(self.runs.get_or_insert_default())
    }

    /// Writes the facts that are known only at the end. `last_turn` applies to the newest loop; the other loops do not
    /// change any more.
    pub(super) fn finish(
        mut self,
        write: &mut dyn StoreWrite,
        from: &Origin,
        last_turn: LastTurn,
    ) -> StoreResult<Finished> {
        let finished = Finished {
            id: self.head.session.session_id.clone(),
            loops: self.loops.len() as u64,
            turns: self.loops.values().map(|state| state.turns).sum(),
            is_stored: self.key.is_some(),
        };
        let Some(key) = self.key else {
            return Ok(finished);
        };
        let current = self.current_loop(write, key)?;
        let newest = newest_loop(write, key)?;
        for id in std::mem::take(&mut self.order) {
            if let Some(state) = self.loops.remove(&id) {
                let last_turn = match newest == Some(state.key) {
                    true => last_turn,
                    false => LastTurn::Final,
                };
                self.is_changed |= state.finish(write, last_turn)?;
            }
        }
        let row = write.session_by_key(key)?;
        let mut new = self.described(&row, from)?;
        new.current_loop = current.or(row.current_loop);
        if new != row {
            write.update_session(&new)?;
        }
        if self.is_changed || new != row {
            write.insert_import(key, &self.import_row(from))?;
        }
        Ok(finished)
    }

    /// Returns the current loop of a new session: another program may name it.
    fn current_loop(&self, read: &dyn StoreWrite, key: SessionKey) -> StoreResult<Option<LoopKey>> {
        let noted = self.head.session.extra.get(CURRENT_LOOP);
        let id = noted.filter(|_| self.is_new).map(Json::read::<LoopId>);
        if let Some(Ok(id)) = id
            && let Some(row) = read.loop_by_id(key, &id)?
        {
            return Ok(Some(row.key));
        }
        let mut loops = self.loops.values();
        let before = loops.find(|state| Some(state.key) == self.current.before);
        let known = before.and_then(|state| state.known.as_ref());
        let is_covered = known.is_some_and(|known| !known.is_left_behind && !known.has_recorded);
        let read: &dyn StoreRead = read;
        self.current.decide(read, is_covered, self.is_same_file)
    }

    fn import_row(&self, from: &Origin) -> ImportRow {
        ImportRow {
            format: from.format.clone(),
            path: from.path.clone(),
            // In a series, the name of the file does not identify the session.
            file_name: match &self.record_key {
                Some(key) if key.file_name.is_empty() => String::new(),
                _ => from.file_name.clone(),
            },
            record_key: self.record_key.as_ref().map(|key| key.key.clone()),
        }
    }

    fn described(&self, row: &SessionRow, from: &Origin) -> StoreResult<SessionRow> {
        let mut new = row.clone();
        session::describe_session(&mut new, &self.head.session)?;
        new.agent_id = new.agent_id.or_else(|| row.agent_id.clone());
        new.created_at = new.created_at.or_else(|| row.created_at.clone());
        new.title = self.head.title.clone().or_else(|| row.title.clone());
        // The project of a session is where it began: an agent may go to other folders.
        new.project = row.project.clone().or_else(|| self.head.project.clone());
        new.last_active_at = self.last_active(row, from);
        Ok(new)
    }

    /// Returns the newest of the known times. If neither the imported messages nor the transcript have one, the time is
    /// taken from the files.
    fn last_active(&self, row: &SessionRow, from: &Origin) -> Option<String> {
        let stated = self.head.session.last_active_at.as_ref();
        let newest = self.newest.and_then(Time::sortable_from_millis);
        let known = stated.and_then(Time::sortable).max(newest);
        let known = match known {
            None if self.is_changed => activity::of_files(&self.head, from),
            known => known,
        };
        let before = self.last_active_before.clone();
        known.max(before).max(row.last_active_at.clone())
    }
}
