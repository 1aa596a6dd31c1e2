//! A runtime, a session, turns, and futures that are dropped.

use std::future::Future;
use std::ops::ControlFlow;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use loopstore::extend::{self as store, session};
use loopstore::*;
use tokio::runtime::{Builder, Runtime};

pub fn runtime() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

pub fn session_id() -> SessionId {
    SessionId::new("s").unwrap()
}

pub fn loop_id(name: &str) -> LoopId {
    LoopId::new(name).unwrap()
}

/// A store with a session that has these loops, none of which goes on from another.
pub fn store_with(loops: &[&str]) -> AsyncStore {
    let store = Store::in_memory().unwrap();
    store::write(store.database(), |write| {
        let record = Session::new(session_id(), "agent");
        let key = session::create_session(write, &record, None, None)?;
        for name in loops {
            session::create_loop(write, key, &LoopRecord::new(loop_id(name), None))?;
        }
        Ok(())
    })
    .unwrap();
    store.into()
}

/// A prompt, an answer with a call, and the call's result.
pub fn turn(loop_id: &str, at: u32) -> Vec<AgentMessage> {
    let call = Content::tool_call(format!("call-{at}"), "look", Json::null());
    let answer = Message::Assistant(AssistantMessage {
        content: vec![Content::text(format!("Answer {at}.")), call],
        ..AssistantMessage::default()
    });
    let result = Message::ToolResult(ToolResultMessage {
        tool_call_id: format!("call-{at}"),
        tool_name: "look".into(),
        content: vec![Content::text(format!("Result {at}: {}", "x".repeat(200)))],
        ..ToolResultMessage::default()
    });
    [Message::user(format!("Prompt {at}")), answer, result]
        .into_iter()
        .map(|message| AgentMessage::from(message).in_turn(TurnId::new(loop_id, at)))
        .collect()
}

/// The handle of the session.
pub fn chat(store: &AsyncStore) -> AsyncSession {
    store.session(session_id()).unwrap()
}

/// A session with one loop of turns.
pub async fn filled() -> AsyncStore {
    let store = store_with(&["l"]);
    for at in 0..30 {
        chat(&store).append(turn("l", at)).await.unwrap();
    }
    store
}

/// Returns the turn index of each message of a loop.
pub fn stored(store: &AsyncStore, name: &str) -> Vec<u32> {
    let mut found = Vec::new();
    store::read(store.blocking().database(), |read| {
        let key = read.session(&session_id())?.unwrap().key;
        let Some(row) = read.loop_by_id(key, &loop_id(name))? else {
            return Ok(());
        };
        read.messages(row.key, 0..u32::MAX, &mut |message| {
            let message = store::decode(read, message.body)?;
            found.push(message.turn_index().unwrap() as u32);
            Ok(ControlFlow::Continue(()))
        })
    })
    .unwrap();
    found
}

/// Polls a future for so long, then drops it. `None`: it was not done.
pub fn poll_for<F: Future>(future: F, time: Duration) -> Option<F::Output> {
    let mut future = pin!(future);
    let until = Instant::now() + time;
    loop {
        if let Poll::Ready(done) = future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            return Some(done);
        }
        if Instant::now() >= until {
            return None;
        }
        std::thread::sleep(Duration::from_micros(20));
    }
}
