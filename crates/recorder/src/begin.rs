//! Beginning and resuming loops: their session, row and lease.

use std::ops::ControlFlow;

use loopstore::extend::{
    self as store, LoopKey, LoopRow, SessionRow, StoreError, StoreRead, StoreResult, StoreWrite,
    lease::{self, Acquire, Lease},
    session,
};
use loopstore::internal::{edit_loop, set_status_leased, to_json};
use loopstore::model::{
    ContinuationKind, Extra, Json, LoopId, LoopRecord, LoopStatus, ParentSpawnRef, Session,
    SessionId, Time,
};
use serde_json::json;

use crate::active_loop::{ActiveLoop, StoredTurn};
use crate::calls::{self, check_id};
use crate::error::{RecordError, RecordResult};
use crate::event::{AgentEvent, AgentStart};
use crate::notes::{StoredMessages, event_note, last_ended};
use crate::{Formation, Recorded, RecorderOptions, ResumedLoop, SessionRecorder, writing};

impl SessionRecorder<'_> {
    pub(crate) fn agent_start(
        &mut self,
        start: &AgentStart,
        event: &AgentEvent,
    ) -> RecordResult<Recorded> {
        let id = &start.loop_id;
        if self.active.contains_key(id) {
            return Err(RecordError::AlreadyBegun(id.to_string()));
        }
        if start.parent_loop_id.as_ref() == Some(id) {
            return Err(RecordError::Contradiction {
                loop_id: id.to_string(),
                what: "it cannot be its own parent".into(),
            });
        }
        if let Some(call) = &start.tool_call_id {
            check_id("tool_call_id", call)?;
        }
        let start = &self.with_parent_session(start);
        let active = match self.pending.get(id) {
            Some(pending) => self.promote(pending, start, event)?,
            None => self.begin(start, event)?,
        };
        self.pending.remove(id);
        self.announced.remove(id);
        self.active.insert(id.clone(), active);
        Ok(Recorded::Begun)
    }

    /// Fills in the parent's session if it is active here.
    fn with_parent_session(&self, start: &AgentStart) -> AgentStart {
        let mut start = start.clone();
        if let (None, Some(parent)) = (&start.parent_session_id, &start.parent_loop_id) {
            let known = self.active.get(parent);
            start.parent_session_id = known.map(|active| active.session_id.clone());
        }
        start
    }

    fn begin(&self, start: &AgentStart, event: &AgentEvent) -> RecordResult<ActiveLoop> {
        let group = self.announced.get(&start.loop_id);
        writing(&*self.store, |write| {
            let owner = session_of(write, start, &self.options.formation)?;
            if self.options.redact {
                crate::secrets::mark(write, owner.key)?;
            }
            let start = &continued(write, &owner, start, group)?;
            let record = new_record(write, &owner, start, group)?;
            let key = new_loop(write, &owner, &record)?;
            let lease = take(write, key, &self.options)?;
            note(write, key, event)?;
            let loop_key = (key, start.loop_id.clone());
            Ok(ActiveLoop::new(
                (owner.key, owner.session_id),
                loop_key,
                lease,
            ))
        })
    }

    fn promote(
        &self,
        pending: &ActiveLoop,
        start: &AgentStart,
        event: &AgentEvent,
    ) -> RecordResult<ActiveLoop> {
        let contradiction = |what: &str| RecordError::Contradiction {
            loop_id: start.loop_id.to_string(),
            what: what.into(),
        };
        if pending.session_id != start.session_id {
            return Err(contradiction("it was announced for another session"));
        }
        let now = (self.options.clock)();
        writing(&*self.store, |write| {
            lease::renew(write, &pending.lease, now)?;
            let mut row = write.loop_by_key(pending.loop_key)?;
            if row.parent_loop_id != start.parent_loop_id {
                return Err(contradiction("it was announced with another parent"));
            }
            edit_loop(write, row.key, |record| describe(record, start))?;
            row.status = LoopStatus::Running;
            row.started_at = start
                .timestamp
                .as_ref()
                .map(|time| time.as_str().to_owned());
            if let Some(kind) = &start.continuation_kind {
                row.kind = to_json(kind)?;
            }
            write.update_loop(&row)?;
            note(write, row.key, event)?;
            let session = (pending.session, pending.session_id.clone());
            let loop_key = (row.key, start.loop_id.clone());
            Ok(ActiveLoop::new(session, loop_key, pending.lease.clone()))
        })
    }

    /// Resumes a loop that was aborted, or whose driver stopped without ending it: takes the lease of the loop and
    /// marks the loop as running. An open turn is resumed too, with its messages so far; a `turnStart` with the index
    /// of this turn or a larger index is also accepted.
    ///
    /// # Errors
    /// [`StoreError::LeaseHeld`] if another recorder drives the loop; [`RecordError::Ended`] if the loop has ended;
    /// or if the loop does not exist.
    pub fn resume(&mut self, session: &SessionId, loop_id: &LoopId) -> RecordResult<ResumedLoop> {
        if self.active.contains_key(loop_id) {
            return Err(RecordError::AlreadyBegun(loop_id.to_string()));
        }
        self.prepare_redactor()?;
        let options = &self.options;
        let taken = writing(&*self.store, |write| {
            let owner = write
                .session(session)?
                .ok_or_else(|| StoreError::NoSession(session.to_string()))?;
            let row = write
                .loop_by_id(owner.key, loop_id)?
                .ok_or_else(|| StoreError::NoLoop(loop_id.to_string()))?;
            check_open(&row)?;
            let ttl = term(options);
            match lease::acquire(write, row.key, &options.owner, ttl, (options.clock)())? {
                Acquire::Acquired(lease) => Ok(Ok(go_on(write, owner, row, lease)?)),
                Acquire::Held(error) => Ok(Err(error)),
            }
        })?;
        let (active, resumed) = taken?;
        self.active.insert(loop_id.clone(), active);
        Ok(resumed)
    }
}

fn check_open(row: &LoopRow) -> RecordResult<()> {
    match &row.status {
        LoopStatus::Running | LoopStatus::Aborted => Ok(()),
        other => Err(RecordError::Ended {
            loop_id: row.loop_id.to_string(),
            status: other.as_str().to_owned(),
        }),
    }
}

fn go_on(
    write: &mut dyn StoreWrite,
    owner: SessionRow,
    row: LoopRow,
    lease: Lease,
) -> StoreResult<(ActiveLoop, ResumedLoop)> {
    set_status_leased(write, row.key, LoopStatus::Running, None)?;
    let row = write.loop_by_key(row.key)?;
    edit_loop(write, row.key, |record| {
        record.status = LoopStatus::Running;
        record.ended_at = None;
    })?;
    let mut open = write.open_calls(Some(owner.key))?;
    open.retain(|call| call.loop_key == row.key);
    let turn = open_turn(write, &row, &lease)?;
    let resumed = ResumedLoop {
        turns: row.totals.turns,
        last_turn_index: row.progress.last_turn_index,
        open_turn: turn.as_ref().and_then(StoredTurn::state),
        calls: calls::started(write, open)?,
        taken_over_from: lease.taken_over_from().map(str::to_owned),
    };
    let session = (owner.key, owner.session_id);
    let mut active = ActiveLoop::new(session, (row.key, row.core.loop_id), lease);
    active.has_messages = row.core.totals.next_seq > 0;
    match turn {
        Some(turn) => active.resume_turn(turn),
        None => active.last_index = row.progress.last_turn_index,
    }
    Ok((active, resumed))
}

/// Returns the last turn if it had not ended.
fn open_turn(
    read: &dyn StoreRead,
    row: &LoopRow,
    lease: &Lease,
) -> StoreResult<Option<StoredTurn>> {
    let totals = &row.totals;
    let last = totals.turns.checked_sub(1);
    let (Some(last), Some(index)) = (last, row.progress.last_turn_index) else {
        return Ok(None);
    };
    let ended = last_ended(read, row.key)?;
    // A loop that had no driver before has no recorded ends of turns.
    let may_be_open = totals.complete < totals.turns || !lease.is_first();
    if !may_be_open || ended.is_some_and(|ended| ended >= index) {
        return Ok(None);
    }
    let Some(turn) = read.turn(row.key, last)? else {
        return Ok(None);
    };
    let mut messages = Vec::new();
    read.messages(row.key, turn.first_seq..totals.next_seq, &mut |message| {
        messages.push((message.seq, store::decode(read, message.body)?));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(Some(StoredTurn {
        index: Some(index),
        known: StoredMessages::stored(&messages)?,
        messages,
    }))
}

/// Returns the session of a loop; creates it if it does not exist.
fn session_of(
    write: &mut dyn StoreWrite,
    start: &AgentStart,
    formation: &Formation,
) -> StoreResult<SessionRow> {
    let row = new_session(
        write,
        &start.session_id,
        start.agent_id.as_deref(),
        formation,
    )?;
    let parent = start
        .parent_session_id
        .as_ref()
        .filter(|id| **id != start.session_id);
    let Some(parent) = parent else { return Ok(row) };
    spawned_by(write, row, |spawn| {
        spawn.parent_session_id = parent.clone();
        spawn.parent_loop_id = start.parent_loop_id.clone();
        spawn.tool_call_id = start.tool_call_id.clone();
        spawn.tool_name = start.tool_name.clone();
    })
}

/// Returns a session; creates it if it does not exist.
pub(crate) fn new_session(
    write: &mut dyn StoreWrite,
    id: &SessionId,
    agent: Option<&str>,
    formation: &Formation,
) -> StoreResult<SessionRow> {
    if let Some(row) = write.session(id)? {
        return Ok(row);
    }
    let mut session = Session::new(id.clone(), "");
    session.agent_id = agent.map(str::to_owned);
    session.formation = Json::of(&formed(formation)).ok();
    let key = session::create_session(write, &session, None, None)?;
    write.session_by_key(key)
}

fn formed(formation: &Formation) -> serde_json::Value {
    let timestamp = Time::now();
    match formation {
        Formation::FirstLoop => json!({"FirstLoop": {"timestamp": timestamp}}),
        Formation::Explicit => json!({"Explicit": {"timestamp": timestamp}}),
        Formation::InactivityTimeout {
            threshold_secs,
            previous_session_id,
        } => json!({"InactivityTimeout": {
            "threshold_secs": threshold_secs,
            "previous_session_id": previous_session_id,
            "timestamp": timestamp,
        }}),
    }
}

/// Stores the call that started a session, unless it is known.
pub(crate) fn spawned_by(
    write: &mut dyn StoreWrite,
    mut row: SessionRow,
    fill: impl FnOnce(&mut ParentSpawnRef),
) -> StoreResult<SessionRow> {
    let mut session: Session = read_meta(&row.meta)?;
    if session.parent_spawn_ref.is_some() {
        return Ok(row);
    }
    let mut spawn = ParentSpawnRef {
        parent_session_id: row.session_id.clone(),
        parent_loop_id: None,
        tool_call_id: None,
        tool_name: None,
        extra: Extra::default(),
    };
    fill(&mut spawn);
    session.parent_spawn_ref = Some(spawn);
    row.meta = to_json(&session)?;
    write.update_session(&row)?;
    Ok(row)
}

/// Sets the parent of a loop that has none: the session's current loop. Loops that answer one
/// prompt in parallel have the same parent.
fn continued(
    read: &dyn StoreRead,
    owner: &SessionRow,
    start: &AgentStart,
    group: Option<&Vec<LoopId>>,
) -> StoreResult<AgentStart> {
    let mut start = start.clone();
    let continues_session = matches!(
        start.continuation_kind,
        None | Some(ContinuationKind::Default)
    );
    if !continues_session || start.parent_loop_id.is_some() {
        return Ok(start);
    }
    let mut next = owner.current_loop;
    while let Some(key) = next {
        let row = read.loop_by_key(key)?;
        if !group.is_some_and(|group| group.contains(&row.loop_id)) {
            start.parent_loop_id = Some(row.core.loop_id);
            break;
        }
        next = row.parent;
    }
    Ok(start)
}

fn new_record(
    read: &dyn StoreRead,
    owner: &SessionRow,
    start: &AgentStart,
    group: Option<&Vec<LoopId>>,
) -> RecordResult<LoopRecord> {
    let mut record = LoopRecord::new(start.loop_id.clone(), start.parent_loop_id.clone());
    let goes_on = match &start.parent_loop_id {
        Some(parent) => read.loop_by_id(owner.key, parent)?.is_some(),
        None => false,
    };
    if !goes_on {
        record.continuation_kind = Some(ContinuationKind::Initial);
    }
    record.session_id = Some(owner.session_id.clone());
    record.parent_turn = start.parent_turn.clone();
    record.parallel_group = group.and_then(|group| crate::parallel::group_json(group, None));
    describe(&mut record, start);
    Ok(record)
}

fn describe(record: &mut LoopRecord, start: &AgentStart) {
    record.agent_id = start.agent_id.clone();
    record.status = LoopStatus::Running;
    record.started_at = start.timestamp.clone();
    record.metadata = start.metadata.clone();
    let config = start.config_snapshot.as_ref();
    record.config = config.and_then(|config| Json::of(config).ok());
    if let Some(kind) = &start.continuation_kind {
        record.continuation_kind = Some(kind.clone());
    }
}

/// Creates a loop; an existing one has begun before.
pub(crate) fn new_loop(
    write: &mut dyn StoreWrite,
    owner: &SessionRow,
    record: &LoopRecord,
) -> RecordResult<LoopKey> {
    session::create_loop(write, owner.key, record).map_err(|error| match error {
        StoreError::LoopExists(id) => RecordError::AlreadyBegun(id),
        other => other.into(),
    })
}

fn term(options: &RecorderOptions) -> i64 {
    i64::try_from(options.ttl.as_millis()).unwrap_or(i64::MAX)
}

/// Takes the lease of a loop that this transaction has created.
pub(crate) fn take(
    write: &mut dyn StoreWrite,
    key: LoopKey,
    options: &RecorderOptions,
) -> RecordResult<Lease> {
    match lease::acquire(write, key, &options.owner, term(options), (options.clock)())? {
        Acquire::Acquired(lease) => Ok(lease),
        Acquire::Held(error) => Err(error.into()),
    }
}

fn note(write: &mut dyn StoreWrite, key: LoopKey, event: &AgentEvent) -> StoreResult<()> {
    let note = event_note(event, &[])?;
    write.insert_note(key, &note)
}

fn read_meta<T: serde::de::DeserializeOwned>(meta: &str) -> StoreResult<T> {
    serde_json::from_str(meta).map_err(|error| StoreError::Damaged(format!("meta: {error}")))
}

/// Reads the record of a loop.
pub(crate) fn loop_record(read: &dyn StoreRead, key: LoopKey) -> StoreResult<LoopRecord> {
    read.loop_meta(key)?.record()
}
