//! What is written when a call starts, a turn ends, a loop ends: one transaction each.

use super::active_loop::ActiveLoop;
use super::begin::{edit_loop, spawned_by};
use super::calls::{self, check_id};
use super::error::{RecordError, RecordResult};
use super::event::{AgentEnd, AgentEvent, LoopConfigSnapshot, ToolExecutionStart, TurnEnd};
use super::notes::{Known, event_note, fold};
use super::{Recorded, SessionRecorder, writing};
use crate::model::{
    AgentMessage, ChildLoopRef, Extra, Json, LoopId, LoopRecord, LoopStatus, Message,
};
use crate::store::append::{Appended, append_leased, set_status_leased};
use crate::store::codec::to_json;
use crate::store::{Note, StoreError, StoreResult, StoreWrite, lease};
use crate::tokens::TokenCounter;

impl SessionRecorder<'_> {
    pub(super) fn call_start(
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
            lease::renew(write, &active.lease, now)?;
            calls::start(write, active, start, turn)
        });
        let row = match row {
            Ok(row) => row,
            Err(error) => return Err(self.unsure(&start.loop_id, error)),
        };
        active.call_started(start.tool_call_id.clone());
        active.events.push(event.clone());
        Ok(Recorded::Call {
            idempotency_key: row.idempotency_key,
            attempts: row.attempts,
        })
    }

    pub(super) fn turn_end(&mut self, end: &TurnEnd, event: &AgentEvent) -> RecordResult<Recorded> {
        let (store, now) = (self.store.clone(), (self.options.clock)());
        let active = self.active_loop(event.name(), &end.loop_id)?;
        let messages = active.turn_messages(end)?;
        let appended = writing(&*store, |write| {
            lease::renew(write, &active.lease, now)?;
            let told: Vec<AgentMessage> = [&end.message]
                .into_iter()
                .flatten()
                .chain(&end.tool_results)
                .cloned()
                .collect();
            let counter = store.counter();
            let appended = put(write, active, &messages, &told, Some(event), counter)?;
            if let Some(turn) = active.turn_note(&messages, appended.seqs.start, end) {
                write.insert_note(active.loop_key, &Note::Turn(to_json(&turn)?))?;
            }
            put_children(write, active)?;
            put_config(write, active, &messages)?;
            Ok(appended)
        });
        let appended = match appended {
            Ok(appended) => appended,
            Err(error) => return Err(self.unsure(&end.loop_id, error)),
        };
        active.turn_written(!messages.is_empty());
        Ok(Recorded::Turn(appended))
    }

    pub(super) fn agent_end(&mut self, end: &AgentEnd) -> RecordResult<Recorded> {
        let (store, now) = (self.store.clone(), (self.options.clock)());
        let active = self.active_loop("agentEnd", &end.loop_id)?;
        let messages = active.last_messages(end);
        let status = active.status_after(end);
        let rejection = end.rejection.clone().or_else(|| active.rejection.clone());
        let event = AgentEvent::AgentEnd(AgentEnd {
            messages: Vec::new(),
            ..end.clone()
        });
        let ended = writing(&*store, |write| {
            lease::renew(write, &active.lease, now)?;
            put(write, active, &messages, &[], Some(&event), store.counter())?;
            put_children(write, active)?;
            put_config(write, active, &messages)?;
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

    /// Drives a loop no more if it is not known what of it is stored: whoever resumes it finds that out.
    fn unsure(&mut self, loop_id: &LoopId, error: RecordError) -> RecordError {
        if matches!(error, RecordError::Store(StoreError::Unconfirmed(_))) {
            self.active.remove(loop_id);
        }
        error
    }

    /// Ends a loop as aborted; messages that ended are stored.
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
    /// Returns what is still to be written of a loop that ends.
    fn last_messages(&self, end: &AgentEnd) -> Vec<AgentMessage> {
        match self.collected.is_empty() && !self.has_messages {
            true => end.messages.clone(),
            false => self.stamped(self.collected.clone()),
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

/// Writes messages and the events before them, and finishes the calls that they answer. `told` are
/// messages that only the last event has.
fn put(
    write: &mut dyn StoreWrite,
    active: &ActiveLoop,
    messages: &[AgentMessage],
    told: &[AgentMessage],
    last: Option<&AgentEvent>,
    counter: &dyn TokenCounter,
) -> StoreResult<Appended> {
    let new = messages.iter().cloned().map(Into::into).collect();
    let appended = append_leased(write, active.loop_key, new, counter)?;
    calls::finish(write, active, messages)?;
    let told: Vec<AgentMessage> = active.collected.iter().chain(told).cloned().collect();
    let known = Known::of(&told, messages, appended.seqs.start)?;
    for event in active.events.iter().chain(last) {
        write.insert_note(active.loop_key, &event_note(event, &known)?)?;
    }
    Ok(appended)
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
    let own = |id: &&crate::model::SessionId| **id != active.session_id;
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

/// Notes the model of a loop that began without saying it, from its first answer.
fn put_config(
    write: &mut dyn StoreWrite,
    active: &ActiveLoop,
    messages: &[AgentMessage],
) -> StoreResult<()> {
    let answer = messages.iter().find_map(|message| match message.message() {
        Some(Message::Assistant(answer)) => Some(answer),
        _ => None,
    });
    let Some((model, provider)) = answer
        .filter(|_| !active.has_messages)
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
