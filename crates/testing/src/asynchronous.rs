//! A runtime, a session, turns, and futures that are dropped.

use std::collections::BTreeSet;
use std::future::Future;
use std::ops::ControlFlow;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use loopstore::extend::{self as store, session};
use loopstore::*;
use tokio::runtime::{Builder, Runtime};

use crate::hang::HUNG;
use crate::histories::Random;

pub fn runtime() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

pub fn session_id() -> SessionId {
    SessionId::new("s").unwrap()
}

pub fn loop_id(name: &str) -> LoopId {
    LoopId::new(name).unwrap()
}

/// Returns a store with a session that has these loops, none of which continues another.
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

/// The outcomes of the turns: acknowledged, or dropped before the first poll.
#[derive(Default)]
pub struct TurnLedger {
    acknowledged: BTreeSet<u32>,
    unpolled: BTreeSet<u32>,
    dropped: BTreeSet<u32>,
}

impl TurnLedger {
    /// Polls the future of a turn for a random time, or not at all.
    pub fn drive<T, E: std::fmt::Debug>(
        &mut self,
        random: &mut Random,
        at: u32,
        future: impl Future<Output = Result<T, E>>,
    ) {
        match random.below(8) {
            0 => {
                drop(future);
                self.unpolled.insert(at);
            }
            // On a machine of any speed, some turns are acknowledged and some dropped.
            1 | 2 => self.noted(at, poll_for(future, HUNG)),
            3 => self.noted(at, poll_for(future, Duration::ZERO)),
            _ => {
                let time = Duration::from_micros(random.below(1500));
                self.noted(at, poll_for(future, time));
            }
        }
    }

    fn noted<T, E: std::fmt::Debug>(&mut self, at: u32, done: Option<Result<T, E>>) {
        match done {
            Some(done) => {
                done.unwrap();
                self.acknowledged.insert(at);
            }
            None => {
                self.dropped.insert(at);
            }
        }
    }

    /// Compares with the turn index of each stored message.
    pub fn check(&self, stored: &[u32]) {
        for at in &self.acknowledged {
            let times = stored.iter().filter(|index| *index == at).count();
            assert_eq!(times, 3, "turn {at} was acknowledged");
        }
        for turn in stored.chunks(3) {
            assert_eq!(turn, [turn[0]; 3], "a turn is whole");
            assert!(!self.unpolled.contains(&turn[0]), "turn {turn:?} is there");
        }
        let distinct: BTreeSet<&u32> = stored.iter().collect();
        assert_eq!(distinct.len() * 3, stored.len(), "no turn is there twice");
        assert!(!self.acknowledged.is_empty() && !self.dropped.is_empty());
    }
}
