//! Tool calls that have started, and their idempotency keys.

use loopstore::extend::calls::idempotency_key;
use loopstore::extend::{self as store, CallRow, SessionStore, StoreRead, StoreResult, StoreWrite};
use loopstore::internal::finish_calls;
use loopstore::model::{AgentMessage, InvalidId, Json, LoopId, Message, SessionId, Time};
use serde::Serialize;

use crate::active_loop::{ActiveLoop, answered, short};
use crate::error::{RecordError, RecordResult};
use crate::event::ToolExecutionStart;

/// A tool call that has started and has no result. It is not known if the tool did its work.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StartedCall {
    /// The session.
    pub session_id: SessionId,
    /// The loop of the call.
    pub loop_id: LoopId,
    /// The id of the call.
    pub tool_call_id: String,
    /// The tool.
    pub tool_name: String,
    /// The arguments of the call.
    pub arguments: Json,
    /// The idempotency key, which is the same for each attempt of the call.
    pub idempotency_key: String,
    /// The source's index of the turn.
    pub turn_index: Option<i64>,
    /// The time of the first attempt, as ISO-8601 text.
    pub started_at: String,
    /// The number of attempts.
    pub attempts: u32,
}

/// Checks a text that names a call or is its key.
pub(crate) fn check_id(what: &'static str, text: &str) -> RecordResult<()> {
    // Calls have the bounds of loop ids.
    LoopId::new(text)
        .map(|_| ())
        .map_err(|error: InvalidId| RecordError::Id { what, error })
}

/// Stores the start of a call; a call that started before and has no result keeps its key.
pub(crate) fn start(
    write: &mut dyn StoreWrite,
    active: &ActiveLoop,
    event: &ToolExecutionStart,
    turn: i64,
) -> RecordResult<CallRow> {
    let known = write.calls(active.loop_key, &event.tool_call_id)?;
    let args = event.args.as_str();
    let open = known.iter().find(|row| {
        row.finished_at.is_none()
            && row.tool_name == event.tool_name
            && row.arguments.as_deref() == Some(args)
    });
    if let Some(row) = open {
        return start_again(write, event, row, turn);
    }
    let nth = known.len() as u32;
    let derived = || {
        let (session, loop_key) = (&active.session_id, &active.loop_id);
        idempotency_key(session, loop_key, &event.tool_call_id, nth)
    };
    let row = CallRow {
        loop_key: active.loop_key,
        call_id: event.tool_call_id.clone(),
        nth,
        tool_name: event.tool_name.clone(),
        arguments: Some(args.to_owned()),
        idempotency_key: event.idempotency_key.clone().unwrap_or_else(derived),
        turn_index: Some(turn),
        started_at: Time::now().as_str().to_owned(),
        attempts: 1,
        finished_at: None,
    };
    write.insert_call(&row)?;
    Ok(row)
}

fn start_again(
    write: &mut dyn StoreWrite,
    event: &ToolExecutionStart,
    row: &CallRow,
    turn: i64,
) -> RecordResult<CallRow> {
    let given = event.idempotency_key.as_ref();
    if given.is_some_and(|given| *given != row.idempotency_key) {
        return Err(RecordError::Contradiction {
            loop_id: event.loop_id.to_string(),
            what: format!(
                "call `{}` was already started with another idempotency key",
                short(&event.tool_call_id)
            ),
        });
    }
    let row = CallRow {
        turn_index: Some(turn),
        attempts: row.attempts.saturating_add(1),
        ..row.clone()
    };
    write.update_call(&row)?;
    Ok(row)
}

/// Marks the calls finished whose results are among `messages`: calls of this loop, and calls that
/// an earlier loop of the chain left open.
pub(crate) fn finish(
    write: &mut dyn StoreWrite,
    active: &ActiveLoop,
    messages: &[(u32, AgentMessage)],
) -> StoreResult<()> {
    let results = messages
        .iter()
        .map(|(_, message)| answered(message).to_owned());
    let results: Vec<String> = results.filter(|id| !id.is_empty()).collect();
    if results.is_empty() {
        return Ok(());
    }
    let is_stored = |id: &str| {
        let stored = active.current.messages.iter().chain(messages);
        let stored = stored.filter_map(|(_, message)| message.message());
        stored
            .flat_map(Message::tool_calls)
            .any(|call| call.id == id)
    };
    finish_calls(write, active.session, active.loop_key, &results, is_stored)
}

/// Returns started calls with their ids.
pub(crate) fn started(read: &dyn StoreRead, rows: Vec<CallRow>) -> StoreResult<Vec<StartedCall>> {
    let open_call = |row: CallRow| {
        let owner = read.loop_by_key(row.loop_key)?;
        let arguments = row.arguments.as_deref().map(Json::parse);
        Ok(StartedCall {
            session_id: read.session_by_key(owner.session)?.session_id,
            loop_id: owner.core.loop_id,
            tool_call_id: row.call_id,
            tool_name: row.tool_name,
            arguments: arguments.and_then(Result::ok).unwrap_or_default(),
            idempotency_key: row.idempotency_key,
            turn_index: row.turn_index,
            started_at: row.started_at,
            attempts: row.attempts,
        })
    };
    rows.into_iter().map(open_call).collect()
}

/// Marks a started call as settled by a person, so that [`recover`](crate::recover()) no longer lists it. Returns
/// false if no started call has this key.
///
/// # Errors
/// If the store fails.
///
/// # Examples
/// ```
/// use loopstore_recorder::event::*;
/// use loopstore_recorder::{RecoverRequest, recover, settle};
/// use loopstore::*;
/// use loopstore_recorder::{AgentEvent, RecorderOptions, SessionRecorder};
///
/// # let store = Store::in_memory()?;
/// # let (session, loop_key) = (SessionId::new("s")?, LoopId::new("s.1")?);
/// # let mut recorder = SessionRecorder::new(store.database(), RecorderOptions::default());
/// # let start = AgentStart::new(session, loop_key.clone());
/// # recorder.record(AgentEvent::AgentStart(start))?;
/// # recorder.record(AgentEvent::TurnStart(TurnStart::new(loop_key.clone(), 0)))?;
/// let call = ToolExecutionStart::new(loop_key, "c1", "pay", Json::parse(r#"{"euro": 12}"#)?);
/// recorder.record(AgentEvent::ToolExecutionStart(call))?;
/// // After a crash it is unknown whether the call was made.
/// # drop(recorder);
/// let request = RecoverRequest::default();
/// let calls = recover(store.database(), &request)?.calls;
/// assert_eq!(calls[0].tool_name, "pay");
/// // A person has asked the bank.
/// assert!(settle(store.database(), &calls[0].idempotency_key)?);
/// assert!(recover(store.database(), &request)?.calls.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn settle(store: &dyn SessionStore, idempotency_key: &str) -> StoreResult<bool> {
    store::write(store, |write| {
        let mut open = write.open_calls(None)?;
        open.retain(|row| row.idempotency_key == idempotency_key);
        for row in &mut open {
            row.finished_at = Some(Time::now().as_str().to_owned());
            write.update_call(row)?;
        }
        Ok(!open.is_empty())
    })
}
