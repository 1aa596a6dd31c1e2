//! The session of the demonstration: an agent that repairs a web shop, always the same.
//!
//! [`record`] stores it through the public contract of the store. `loopstore demo` walks through it, and tests that
//! need a session with tool calls, errors and several loops use it too.
//!
//! The crate is data and the few lines that store it. It compacts nothing and prints nothing: `loopstore-cli` presents
//! the session.

#![warn(missing_docs)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod story;

use loopstore::extend::append::append;
use loopstore::extend::session::{create_loop, create_session};
use loopstore::extend::{self as store, StoreResult};
use loopstore::{
    AgentMessage, AssistantMessage, Content, Json, LoopId, LoopRecord, LoopStatus, Message,
    Session, SessionId, SessionStore, Time, ToolResultMessage, TurnId, UserMessage,
};

use story::{LOOPS, StoryStep};

/// 2026-01-05 09:00:00 UTC.
const BEGIN_MS: i64 = 1_767_603_600_000;
/// The time between two messages.
const STEP_MS: i64 = 20_000;

/// Records the session and returns its id.
pub fn record(store: &dyn SessionStore) -> StoreResult<SessionId> {
    let mut session = Session::new(known("demo")?, "demo-agent");
    session.created_at = Time::from_millis(BEGIN_MS);
    session.last_active_at = Time::from_millis(BEGIN_MS);
    store::write(store, |write| {
        let title = Some("Yen orders and the nightly export".to_owned());
        let key = create_session(write, &session, title, None)?;
        let mut clock = DemoClock(BEGIN_MS);
        let mut parent = None;
        for (nth, (prompt, steps)) in LOOPS.into_iter().enumerate() {
            let loop_id = LoopId::new(format!("loop-{}", nth + 1)).map_err(invalid)?;
            let mut record = LoopRecord::new(loop_id.clone(), parent.replace(loop_id.clone()));
            record.started_at = Time::from_millis(clock.0);
            record.status = LoopStatus::Completed;
            let messages = loop_messages(&mut clock, &loop_id, nth, prompt, steps);
            record.ended_at = Time::from_millis(clock.0);
            let loop_id = create_loop(write, key, &record)?;
            let messages = messages.into_iter().map(Into::into).collect();
            append(write, loop_id, messages, store.counter())?;
        }
        Ok(())
    })?;
    Ok(session.session_id)
}

fn known(id: &str) -> StoreResult<SessionId> {
    SessionId::new(id).map_err(invalid)
}

fn invalid(error: loopstore::InvalidId) -> loopstore::StoreError {
    loopstore::StoreError::Invalid(error.to_string())
}

struct DemoClock(i64);

impl DemoClock {
    fn tick(&mut self) -> i64 {
        self.0 += STEP_MS;
        self.0
    }
}

fn loop_messages(
    clock: &mut DemoClock,
    loop_id: &LoopId,
    nth: usize,
    prompt: &str,
    steps: &[(&str, StoryStep)],
) -> Vec<AgentMessage> {
    let mut messages = vec![(0, user(clock, prompt))];
    for (turn, (text, step)) in steps.iter().enumerate() {
        let mut blocks = Vec::new();
        if !text.is_empty() {
            blocks.push(Content::text(*text));
        }
        let call = format!("call-{}-{turn}", nth + 1);
        let called = step.call();
        if let Some((tool, arguments)) = &called {
            let arguments = Json::of(arguments).unwrap_or_default();
            blocks.push(Content::tool_call(&call, *tool, arguments));
        }
        messages.push((turn, answer(clock, blocks)));
        if let Some((tool, _)) = called {
            messages.push((turn, result(clock, &call, tool, step)));
        }
    }
    let place = |(turn, message): (usize, Message)| {
        let turn = u32::try_from(turn).unwrap_or(u32::MAX);
        AgentMessage::from(message).in_turn(TurnId::new(loop_id.as_str(), turn))
    };
    messages.into_iter().map(place).collect()
}

fn user(clock: &mut DemoClock, text: &str) -> Message {
    Message::User(UserMessage {
        content: vec![Content::text(text)],
        timestamp: Some(clock.tick().into()),
        ..UserMessage::default()
    })
}

fn answer(clock: &mut DemoClock, content: Vec<Content>) -> Message {
    Message::Assistant(AssistantMessage {
        content,
        model: Some("demo-model".into()),
        timestamp: Some(clock.tick().into()),
        ..AssistantMessage::default()
    })
}

fn result(clock: &mut DemoClock, call: &str, tool: &str, step: &StoryStep) -> Message {
    Message::ToolResult(ToolResultMessage {
        tool_call_id: call.into(),
        tool_name: tool.into(),
        content: vec![Content::text(step.result())],
        is_error: step.is_error(),
        timestamp: Some(clock.tick().into()),
        ..ToolResultMessage::default()
    })
}
