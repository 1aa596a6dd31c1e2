//! The writes of a complete message, the start of a call, the end of a turn or a loop: one transaction each,
//! with the events before it.

use loopstore::TokenCounter;
use loopstore::extend::{
    Note, StoreError, StoreResult, StoreWrite, append::AppendedMessages, lease,
};
use loopstore::internal::{
    append_leased, by_reports, edit_loop, record_appended_compactions, record_report,
    set_status_leased, to_json, unreadable_note,
};
use loopstore::model::{
    AgentMessage, ChildLoopRef, Extra, Json, LoopId, LoopRecord, LoopStatus, Message,
};

use crate::active_loop::ActiveLoop;
use crate::begin::spawned_by;
use crate::calls::{self, check_id};
use crate::error::{RecordError, RecordResult};
use crate::event::{
    AgentEnd, AgentEvent, LoopConfigSnapshot, MessageEnd, ToolExecutionStart, TurnEnd,
};
use crate::notes::{StoredMessages, event_note, fold};
use crate::{Recorded, SessionRecorder, writing};

impl SessionRecorder<'_> {
    pub(crate) fn message_end(
        &mut self,
        end: &MessageEnd,
        event: &AgentEvent,
    ) -> RecordResult<Recorded> {
        let (store, now) = (self.store.clone(), (self.options.clock)());
        let active = self.active_loop(event.name(), &end.loop_id)?;
        let message = active.end_message(&end.message)?;
        let written = writing(&*store, |write| {
            let batch = TurnWrite {
                messages: vec![message],
                named: vec![&end.message],
                event,
            };
            Ok(batch.write(write, active, now, store.counter())?)
        });
        let written = match written {
            Ok(written) => written,
            Err(error) => return Err(self.unsure(&end.loop_id, error)),
        };
        active.message_written(written.messages, written.known);
        Ok(Recorded::Message(written.appended))
    }

    pub(crate) fn call_start(
        &mut self,
        start: &ToolExecutionStart,
        event: &AgentEvent,
    ) -> RecordResult<Recorded> {
        check_id("tool_call_id", &start.tool_call_id)?;
        if let Some(key) = &start.idempotency_key {
            check_id("idempotency_key", key)?;
        }
        let (store, now) = (self.store.clone(), (self.options.clock)());
        let active = self.active_loop(event.name(), &start.loop_id)?;
        let turn = active.check_call(&start.tool_call_id)?;
        let row = writing(&*store, |write| {
            lease::keep(write, &active.lease, now)?;
            let row = calls::start(write, active, start, turn)?;
            put_events(write, active, event, &StoredMessages::default())?;
            Ok(row)
        });
        let row = match row {
            Ok(row) => row,
            Err(error) => return Err(self.unsure(&start.loop_id, error)),
        };
        active.call_started(start.tool_call_id.clone());
        active.events_written();
        Ok(Recorded::Call {
            idempotency_key: row.idempotency_key,
            attempts: row.attempts,
        })
    }

    pub(crate) fn turn_end(&mut self, end: &TurnEnd, event: &AgentEvent) -> RecordResult<Recorded> {
        let (store, now) = (self.store.clone(), (self.options.clock)());
        let active = self.active_loop(event.name(), &end.loop_id)?;
        let messages = active.rest_of_turn(end)?;
        let written = writing(&*store, |write| {
            let batch = TurnWrite {
                messages,
                named: end.message.iter().chain(&end.tool_results).collect(),
                event,
            };
            let written = batch.write(write, active, now, store.counter())?;
            if let Some(turn) = active.turn_note(&written.messages, end) {
                write.insert_note(active.loop_key, &Note::Turn(to_json(&turn)?))?;
            }
            Ok(written)
        });
        let written = match written {
            Ok(written) => written,
            Err(error) => return Err(self.unsure(&end.loop_id, error)),
        };
        active.turn_written(!written.messages.is_empty());
        Ok(Recorded::Turn(written.appended))
    }

    pub(crate) fn agent_end(&mut self, end: &AgentEnd) -> RecordResult<Recorded> {
        let (store, now) = (self.store.clone(), (self.options.clock)());
        let active = self.active_loop("agentEnd", &end.loop_id)?;
        let status = active.status_after(end);
        let rejection = end.rejection.clone().or_else(|| active.rejection.clone());
        let event = AgentEvent::AgentEnd(AgentEnd {
            messages: Vec::new(),
            ..end.clone()
        });
        let ended = writing(&*store, |write| {
            let batch = TurnWrite {
                messages: active.last_messages(end),
                named: Vec::new(),
                event: &event,
            };
            batch.write(write, active, now, store.counter())?;
            edit_loop(write, active.loop_key, |record| {
                record.status = status.clone();
                record.ended_at = end.timestamp.clone();
                record.rejection = rejection;
                record.usage = end.usage.clone();
            })?;
            fold(write, active.loop_key)?;
            set_status_leased(write, active.loop_key, status, end.timestamp.as_ref())?;
            Ok(lease::release(write, &active.lease, now)?)
        });
        if let Err(error) = ended {
            return Err(self.unsure(&end.loop_id, error));
        }
        self.active.remove(&end.loop_id);
        Ok(Recorded::Ended)
    }

    /// Stops driving a loop if the outcome of a write is unknown: resuming the loop reads what is stored.
    fn unsure(&mut self, loop_id: &LoopId, error: RecordError) -> RecordError {
        if matches!(error, RecordError::Store(StoreError::Unconfirmed(_))) {
            self.active.remove(loop_id);
        }
        error
    }

    /// Ends a loop as aborted. Complete messages are stored.
    ///
    /// # Errors
    /// As [`SessionRecorder::record`].
    pub fn abort(&mut self, loop_id: &LoopId) -> RecordResult<()> {
        let end = AgentEnd {
            aborted: Some(true),
            ..AgentEnd::new(loop_id.clone())
        };
        self.agent_end(&end).map(|_| ())
    }
}

impl ActiveLoop {
    /// Returns the messages that only the end of the loop has.
    fn last_messages(&self, end: &AgentEnd) -> Vec<AgentMessage> {
        match self.has_messages {
            true => Vec::new(),
            false => end.messages.clone(),
        }
    }

    fn status_after(&self, end: &AgentEnd) -> LoopStatus {
        if end.rejection.is_some() || self.rejection.is_some() {
            LoopStatus::Rejected
        } else if end.aborted == Some(true) {
            LoopStatus::Aborted
        } else {
            LoopStatus::Completed
        }
    }
}

/// The additions of one transaction to a loop.
struct TurnWrite<'a> {
    /// Messages as they are to be stored.
    messages: Vec<AgentMessage>,
    /// Messages as the event has them, including stored ones.
    named: Vec<&'a AgentMessage>,
    event: &'a AgentEvent,
}

/// The result of a write.
struct RecordedWrite {
    appended: AppendedMessages,
    /// Each message with its sequence.
    messages: Vec<(u32, AgentMessage)>,
    known: StoredMessages,
}

impl TurnWrite<'_> {
    /// Appends the messages, finishes the calls that they answer, and writes the buffered events.
    fn write(
        self,
        write: &mut dyn StoreWrite,
        active: &ActiveLoop,
        now: i64,
        counter: &dyn TokenCounter,
    ) -> StoreResult<RecordedWrite> {
        let appended = append(write, active, (&self.messages, now), counter)?;
        let messages: Vec<_> = appended.seqs.clone().zip(self.messages).collect();
        calls::finish(write, active, &messages)?;
        let stored: Vec<_> = active.current.messages.iter().chain(&messages).collect();
        let mut known = StoredMessages::stored(&messages)?;
        known.extend(StoredMessages::named(self.named.into_iter(), &stored)?);
        put_events(write, active, self.event, &known)?;
        put_config(write, active, &messages)?;
        Ok(RecordedWrite {
            appended,
            messages,
            known,
        })
    }
}

/// Appends messages, and before each answer with a report of cleared content the run of its edits.
fn append(
    write: &mut dyn StoreWrite,
    active: &ActiveLoop,
    (messages, now): (&[AgentMessage], i64),
    counter: &dyn TokenCounter,
) -> StoreResult<AppendedMessages> {
    let mut all: Option<AppendedMessages> = None;
    for (report, part) in by_reports(messages.to_vec()) {
        let mut notes: Vec<String> = part.iter().filter_map(unreadable_note).collect();
        if let (Some(report), Some(answer)) = (&report, part.first()) {
            let answer = (answer, report, active.context_management.as_ref());
            notes.extend(record_report(
                write,
                Some(active.loop_key),
                answer,
                counter,
            )?);
        }
        let new = part.into_iter().map(Into::into).collect();
        let mut next = append_leased(write, (&active.lease, now), new, counter)?;
        record_appended_compactions(write, counter, &next.compactions)?;
        next.notes.append(&mut notes);
        all = Some(match all.take() {
            Some(before) => before.followed_by(next),
            None => next,
        });
    }
    all.ok_or_else(|| StoreError::Invalid("an append returned no result".into()))
}

/// Writes the buffered events, and the sub-agents that they name.
fn put_events(
    write: &mut dyn StoreWrite,
    active: &ActiveLoop,
    last: &AgentEvent,
    known: &StoredMessages,
) -> StoreResult<()> {
    let known = [&active.current.known, known];
    for event in active.events.iter().chain([last]) {
        write.insert_note(active.loop_key, &event_note(event, &known)?)?;
    }
    put_children(write, active)
}

/// Links the loops of sub-agents with their caller, both ways.
fn put_children(write: &mut dyn StoreWrite, active: &ActiveLoop) -> StoreResult<()> {
    if active.children.is_empty() {
        return Ok(());
    }
    edit_loop(write, active.loop_key, |record: &mut LoopRecord| {
        record
            .child_loop_refs
            .extend(active.children.iter().cloned());
    })?;
    for child in &active.children {
        link_back(write, active, child)?;
    }
    Ok(())
}

fn link_back(
    write: &mut dyn StoreWrite,
    active: &ActiveLoop,
    child: &ChildLoopRef,
) -> StoreResult<()> {
    let own = |id: &&loopstore::model::SessionId| **id != active.session_id;
    let Some(id) = child.child_session_id.as_ref().filter(own) else {
        return Ok(());
    };
    let Some(row) = write.session(id)? else {
        return Ok(());
    };
    spawned_by(write, row, |spawn| {
        spawn.parent_session_id = active.session_id.clone();
        spawn.parent_loop_id = Some(active.loop_id.clone());
        spawn.tool_call_id = child.tool_call_id.clone();
        spawn.tool_name = child.tool_name.clone();
    })?;
    Ok(())
}

/// Sets the model of a loop that began without one, from its first answer.
fn put_config(
    write: &mut dyn StoreWrite,
    active: &ActiveLoop,
    messages: &[(u32, AgentMessage)],
) -> StoreResult<()> {
    let mut stored_messages = messages.iter().filter_map(|(_, one)| one.message());
    let answer = stored_messages.find_map(|message| match message {
        Message::Assistant(answer) => Some(answer),
        _ => None,
    });
    let Some((model, provider)) = answer
        .filter(|_| !active.has_answer)
        .and_then(|answer| Some((answer.model.clone()?, answer.provider.clone())))
    else {
        return Ok(());
    };
    edit_loop(write, active.loop_key, |record| {
        if record.config.is_none() {
            record.config = Json::of(&snapshot(model, provider.unwrap_or_default())).ok();
        }
    })
}

fn snapshot(model: String, provider: String) -> LoopConfigSnapshot {
    LoopConfigSnapshot {
        model,
        provider,
        config_id: None,
        name: None,
        api: None,
        base_url: None,
        reasoning: None,
        context_window: None,
        max_tokens: None,
        thinking_level: None,
        temperature: None,
        extra: Extra::default(),
    }
}
