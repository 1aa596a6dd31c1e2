//! Short constructors of events, and the content of a store.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use loopstore::extend::{self as store, LoopRow};
use loopstore::*;
use loopstore_recorder::OpenTurnState;
use loopstore_recorder::event::*;
use loopstore_recorder::{AgentEvent, RecorderOptions, SessionRecorder};

pub fn session() -> SessionId {
    SessionId::new("s").unwrap()
}

pub fn id(name: &str) -> LoopId {
    LoopId::new(name).unwrap()
}

/// A clock that a test sets.
#[derive(Clone)]
pub struct Hand(pub Arc<AtomicI64>);

impl Hand {
    pub fn at(now: i64) -> Self {
        Self(Arc::new(AtomicI64::new(now)))
    }

    pub fn set(&self, now: i64) {
        self.0.store(now, Ordering::SeqCst);
    }

    pub fn options(&self, owner: &str, ttl_ms: u64) -> RecorderOptions {
        let hand = Arc::clone(&self.0);
        RecorderOptions {
            owner: owner.into(),
            ttl: Duration::from_millis(ttl_ms),
            clock: Arc::new(move || hand.load(Ordering::SeqCst)),
            ..RecorderOptions::default()
        }
    }
}

pub fn start(name: &str) -> AgentEvent {
    AgentEvent::AgentStart(AgentStart::new(session(), id(name)))
}

pub fn start_after(name: &str, parent: &str) -> AgentEvent {
    let mut start = AgentStart::new(session(), id(name));
    start.parent_loop_id = Some(id(parent));
    AgentEvent::AgentStart(start)
}

pub fn end(name: &str) -> AgentEvent {
    AgentEvent::AgentEnd(AgentEnd::new(id(name)))
}

pub fn turn_start(name: &str, turn: u32) -> AgentEvent {
    AgentEvent::TurnStart(TurnStart::new(id(name), turn))
}

pub fn turn_end(name: &str) -> AgentEvent {
    AgentEvent::TurnEnd(TurnEnd::new(id(name)))
}

pub fn begins(name: &str, message: &AgentMessage) -> AgentEvent {
    AgentEvent::MessageStart(MessageStart::new(id(name), message.clone()))
}

pub fn ends(name: &str, message: &AgentMessage) -> AgentEvent {
    AgentEvent::MessageEnd(MessageEnd::new(id(name), message.clone()))
}

pub fn call_start(name: &str, call: &str, args: &str) -> AgentEvent {
    let args = Json::parse(args).unwrap();
    AgentEvent::ToolExecutionStart(ToolExecutionStart::new(id(name), call, "pay", args))
}

pub fn call_end(name: &str, call: &str) -> AgentEvent {
    AgentEvent::ToolExecutionEnd(ToolExecutionEnd::new(id(name), call, "pay"))
}

pub fn user(text: &str) -> AgentMessage {
    Message::user(text).into()
}

pub fn answer(text: &str, calls: &[&str]) -> AgentMessage {
    let args = || Json::parse("{\"euro\":12}").unwrap();
    let calls = calls
        .iter()
        .map(|id| Content::tool_call(*id, "pay", args()));
    Message::Assistant(AssistantMessage {
        content: std::iter::once(Content::text(text)).chain(calls).collect(),
        ..AssistantMessage::default()
    })
    .into()
}

pub fn result(call: &str, text: &str) -> AgentMessage {
    Message::ToolResult(ToolResultMessage {
        tool_call_id: call.into(),
        tool_name: "pay".into(),
        content: vec![Content::text(text)],
        ..ToolResultMessage::default()
    })
    .into()
}

/// The events of a turn: a prompt, an answer with a call, its result.
pub fn turn(name: &str, turn: u32) -> Vec<AgentEvent> {
    let call = format!("{name}-call-{turn}");
    let messages = [
        user(&format!("{name} prompt {turn}")),
        answer(&format!("{name} answer {turn}"), &[&call]),
        result(&call, &format!("{name} paid {turn}")),
    ];
    let message_events = |at: usize| [begins(name, &messages[at]), ends(name, &messages[at])];
    let mut events = vec![turn_start(name, turn)];
    events.extend(message_events(0));
    events.extend(message_events(1));
    events.push(call_start(name, &call, "{\"euro\":12}"));
    events.push(call_end(name, &call));
    events.extend(message_events(2));
    events.push(turn_end(name));
    events
}

/// Returns the remaining events of a turn that had not ended: messages that are not stored, and the result of a
/// call.
pub fn rest_of(name: &str, open: &OpenTurnState) -> Vec<AgentEvent> {
    let (stored, mut messages) = (open.messages.len(), 0);
    let mut is_left = |event: &AgentEvent| match event {
        AgentEvent::TurnStart(_) => false,
        AgentEvent::MessageStart(_) => messages >= stored,
        AgentEvent::MessageEnd(_) => {
            messages += 1;
            messages > stored
        }
        AgentEvent::ToolExecutionStart(_) | AgentEvent::ToolExecutionEnd(_) => stored < 3,
        _ => true,
    };
    let mut events = turn(name, open.turn_index as u32);
    events.retain(|event| is_left(event));
    events
}

pub fn record_all(recorder: &mut SessionRecorder<'_>, events: Vec<AgentEvent>) {
    for event in events {
        let name = event.name();
        recorder
            .record(event)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

pub fn row(store: &dyn SessionStore, name: &str) -> LoopRow {
    store::read(store, |read| {
        let key = read.session(&session())?.unwrap().key;
        Ok(read.loop_by_id(key, &id(name))?.unwrap())
    })
    .unwrap()
}

/// The texts of the messages of a loop, with their turns.
pub fn texts(store: &dyn SessionStore, name: &str) -> Vec<String> {
    let row = row(store, name);
    store::read(store, |read| {
        let mut all = Vec::new();
        read.messages(row.key, 0..row.totals.next_seq, &mut |message| {
            let turn = message.turn;
            let message = store::decode(read, message.body)?;
            let text = match message.message() {
                Some(one) => one.texts().collect::<Vec<_>>().join("|"),
                None => "note".into(),
            };
            all.push(format!("{}:{text}", turn.map_or(-1, i64::from)));
            Ok(std::ops::ControlFlow::Continue(()))
        })?;
        Ok(all)
    })
    .unwrap()
}

pub fn context(store: &dyn SessionStore, name: &str) -> String {
    let options = BuildOptions {
        leaf: Some(id(name)),
        ..BuildOptions::default()
    };
    let context = build_context_from_session(store, &session(), &options).unwrap();
    serde_json::to_string_pretty(&context.messages).unwrap()
}
