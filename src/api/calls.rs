//! The start of tool calls, and the sub-agents that calls start.

use std::ops::ControlFlow;

use super::error::{Error, Result};
use super::line::LoopLineage;
use crate::model::{
    AgentMessage, ChildLoopRef, Extra, LoopId, LoopRecord, LoopStatus, Message, ParentSpawnRef,
    Session, SessionId, Time, ToolCall,
};
use crate::store::{
    self, CallRow, Cut, LoopCore, LoopKey, LoopRow, SessionKey, SessionStore, StoreError,
    StoreRead, StoreResult, StoreWrite,
    calls::{finish_calls, idempotency_key},
    session::{self, edit_loop},
};

/// The state of a tool call.
#[derive(Clone, Debug, PartialEq)]
pub enum CallState {
    /// The call was not started before.
    New {
        /// The idempotency key of the call.
        key: String,
    },
    /// The call was started and has no result: the tool may have done its work or not.
    Started {
        /// The same idempotency key as before.
        key: String,
    },
    /// The result of the call is stored.
    Finished(Box<AgentMessage>),
}

/// A call on a line of loops.
enum CallOnLine {
    /// The loop that made it, and the call, which has no result.
    Open(Box<LoopRow>, ToolCall),
    Answered(Box<AgentMessage>),
}

/// Marks started calls finished whose results are stored now.
pub(super) fn finish(
    write: &mut dyn StoreWrite,
    session: SessionKey,
    leaf: LoopKey,
    answered: &[String],
) -> StoreResult<()> {
    if answered.is_empty() {
        return Ok(());
    }
    // The arguments are in the message that makes the call.
    finish_calls(write, session, leaf, answered, |_| true)
}

/// Notes that a call starts.
pub(super) fn start(
    backend: &dyn SessionStore,
    line: &LoopLineage,
    id: &SessionId,
    call_id: &str,
) -> Result<CallState> {
    let found = store::write(backend, |write| {
        let (row, call) = match find(write, line, id, call_id)? {
            None => return Ok(None),
            Some(CallOnLine::Answered(result)) => return Ok(Some(CallState::Finished(result))),
            Some(CallOnLine::Open(row, call)) => (row, call),
        };
        let known = write.calls(row.key, call_id)?;
        if let Some(open) = known.iter().find(|row| row.finished_at.is_none()) {
            let again = CallRow {
                attempts: open.attempts.saturating_add(1),
                ..open.clone()
            };
            write.update_call(&again)?;
            let key = again.idempotency_key;
            return Ok(Some(CallState::Started { key }));
        }
        let nth = u32::try_from(known.len()).unwrap_or(u32::MAX);
        let key = idempotency_key(id, &row.loop_id, call_id, nth);
        write.insert_call(&CallRow {
            loop_key: row.key,
            call_id: call_id.to_owned(),
            nth,
            tool_name: call.name,
            arguments: Some(call.arguments.as_str().to_owned()),
            idempotency_key: key.clone(),
            turn_index: row.progress.last_turn_index,
            started_at: Time::now().as_str().to_owned(),
            attempts: 1,
            finished_at: None,
        })?;
        Ok(Some(CallState::New { key }))
    })?;
    found.ok_or_else(|| Error::not_found("call", call_id))
}

/// Begins the session of a sub-agent that a call starts, if it is not there, and links both sessions.
pub(super) fn spawn(
    backend: &dyn SessionStore,
    line: &LoopLineage,
    id: &SessionId,
    call_id: &str,
    child: &SessionId,
) -> Result<()> {
    let is_linked = store::write(backend, |write| {
        let Some(CallOnLine::Open(row, call)) = find(write, line, id, call_id)? else {
            return Ok(false);
        };
        if write.session(child)?.is_none() {
            begin_child(write, id, &row, &call, child)?;
        }
        let reference = ChildLoopRef {
            tool_call_id: Some(call.id),
            tool_name: Some(call.name),
            child_loop_id: LoopId::of("loop-1"),
            child_session_id: Some(child.clone()),
            extra: Extra::default(),
        };
        edit_loop(write, row.key, |record| {
            if !record.child_loop_refs.contains(&reference) {
                record.child_loop_refs.push(reference);
            }
        })?;
        Ok(true)
    })?;
    match is_linked {
        true => Ok(()),
        false => Err(Error::not_found("open call", call_id)),
    }
}

fn begin_child(
    write: &mut dyn StoreWrite,
    id: &SessionId,
    parent: &LoopCore,
    call: &ToolCall,
    child: &SessionId,
) -> StoreResult<()> {
    let begun = Session {
        agent_id: None,
        parent_spawn_ref: Some(ParentSpawnRef {
            parent_session_id: id.clone(),
            parent_loop_id: Some(parent.loop_id.clone()),
            tool_call_id: Some(call.id.clone()),
            tool_name: Some(call.name.clone()),
            extra: Extra::default(),
        }),
        ..Session::new(child.clone(), "")
    };
    let key = session::create_session(write, &begun, None, None)?;
    let first = LoopRecord {
        status: LoopStatus::Pending,
        ..LoopRecord::new(LoopId::of("loop-1"), None)
    };
    session::create_loop(write, key, &first).map(drop)
}

/// Finds a call on the line, the nearest to its end.
fn find(
    read: &dyn StoreRead,
    line: &LoopLineage,
    id: &SessionId,
    call_id: &str,
) -> StoreResult<Option<CallOnLine>> {
    let position = line.find(read, id)?;
    let position = position.ok_or_else(|| StoreError::NoSession(id.to_string()))?;
    let Some(leaf) = position.leaf else {
        return Ok(None);
    };
    let (mut found, mut cut) = (None, Cut::NONE);
    read.walk(leaf, &mut |row| {
        let below = row.parent_cut();
        found = in_loop(read, row, cut, call_id)?;
        cut = below;
        Ok(match found {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        })
    })?;
    Ok(found)
}

/// Finds a call in a loop, as far as it belongs to the line.
fn in_loop(
    read: &dyn StoreRead,
    row: LoopRow,
    cut: Cut,
    call_id: &str,
) -> StoreResult<Option<CallOnLine>> {
    let open = row.progress.open_calls.get(call_id).copied();
    let open = open.filter(|made| *made < cut.turns());
    let next = read.turn(row.key, cut.turns().min(row.totals.turns))?;
    let end = match (cut.part, next) {
        (Some(last), _) => last.saturating_add(1),
        (None, Some(next)) => next.first_seq,
        (None, None) => row.totals.next_seq,
    };
    let from = match open {
        Some(made) => read.turn(row.key, made)?.map_or(0, |turn| turn.first_seq),
        None => 0,
    };
    let (mut call, mut result) = (None, None);
    read.messages(row.key, from..end, &mut |stored| {
        let message = store::decode(read, stored.body)?;
        let mut calls = message.message().into_iter().flat_map(Message::tool_calls);
        if let Some(made) = calls.find(|made| made.id == call_id) {
            call = Some(made.clone());
        }
        drop(calls);
        if matches!(message.message(), Some(Message::ToolResult(one)) if one.tool_call_id == call_id)
        {
            result = Some(Box::new(message));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    let is_open = open.is_some() || cut.part.is_some() && result.is_none();
    Ok(match (is_open, call, result) {
        (true, Some(call), None) => Some(CallOnLine::Open(Box::new(row), call)),
        (false, _, Some(result)) => Some(CallOnLine::Answered(result)),
        _ => None,
    })
}
