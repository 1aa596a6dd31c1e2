//! Loops that are begun, ended and branched explicitly, and the state of tool calls.

use loopstore::{
    CallState, ContinuationKind, LoopId, LoopSpec, LoopStatus, SessionHandle, TurnRef,
};

use crate::errors::CallError;

/// Begins a loop, whose kind is JSON; returns its id.
pub fn begin_loop(
    session: &SessionHandle,
    id: Option<String>,
    fresh: bool,
    agent: Option<String>,
    kind: Option<&[u8]>,
) -> Result<String, CallError> {
    let mut spec = match fresh {
        true => LoopSpec::fresh(),
        false => LoopSpec::new(),
    };
    if let Some(id) = id {
        spec = spec.id(LoopId::new(id)?);
    }
    if let Some(agent) = agent {
        spec = spec.agent(agent);
    }
    if let Some(kind) = kind {
        spec = spec.kind(serde_json::from_slice::<ContinuationKind>(kind)?);
    }
    Ok(session.begin_loop(spec)?.to_string())
}

/// Ends the last loop of the handle's line.
pub fn end_loop(session: &SessionHandle, status: &str) -> Result<(), CallError> {
    match LoopStatus::from(status) {
        LoopStatus::Other(_) => Err(CallError::Input(format!(
            "unknown status `{status}`; known are Completed, Rejected, Aborted"
        ))),
        status => Ok(session.end_loop(status)?),
    }
}

/// Begins a branch after a turn, or within it after the message `seq`.
pub fn fork(
    session: &SessionHandle,
    loop_id: String,
    turn: u32,
    seq: Option<u32>,
) -> Result<SessionHandle, CallError> {
    LoopId::new(loop_id.as_str())?;
    Ok(session.fork_at(match seq {
        Some(seq) => TurnRef::within(loop_id, turn, seq),
        None => TurnRef::new(loop_id, turn),
    })?)
}

/// The state of a tool call, its idempotency key, and the message that finished it as JSON.
pub type CallStateJson = (&'static str, Option<String>, Option<Vec<u8>>);

/// Records that a tool call is about to run; returns its state.
pub fn start_call(session: &SessionHandle, call_id: &str) -> Result<CallStateJson, CallError> {
    Ok(match session.start_call(call_id)? {
        CallState::New { key } => ("new", Some(key), None),
        CallState::Started { key } => ("started", Some(key), None),
        CallState::Finished(message) => ("finished", None, Some(serde_json::to_vec(&message)?)),
    })
}
