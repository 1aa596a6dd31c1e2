//! Futures dropped at random moments: a whole turn or none, and each acknowledged turn once.

use std::collections::BTreeSet;
use std::time::Duration;

use loopstore::recorder::event::*;
use loopstore::*;

use super::stage::*;
use crate::support::hang::HUNG;
use crate::support::histories::Random;

/// What became of the turns: which were acknowledged, which were dropped before the first poll.
#[derive(Default)]
struct Ledger {
    acknowledged: BTreeSet<u32>,
    unpolled: BTreeSet<u32>,
    dropped: BTreeSet<u32>,
}

impl Ledger {
    /// Polls the future of a turn for a random time, or not at all.
    fn drive<T, E: std::fmt::Debug>(
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
            // However fast or slow the machine is, some are acknowledged and some dropped.
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
    fn check(&self, stored: &[u32]) {
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

#[test]
fn a_dropped_append_leaves_a_whole_turn_or_none() {
    let (store, runtime) = (store_with(&["l"]), runtime());
    let (mut random, mut ledger) = (Random::new(7), Ledger::default());
    {
        let (_inside, chat) = (runtime.enter(), chat(&store));
        for at in 0..200 {
            let append = chat.append(turn("l", at));
            ledger.drive(&mut random, at, append);
        }
    }
    // Waits for what still runs on the pool.
    drop(runtime);
    ledger.check(&stored(&store, "l"));
}

#[test]
fn a_runtime_that_ends_leaves_whole_turns() {
    let store = store_with(&["l"]);
    for round in 0..20 {
        let runtime = runtime();
        let inside = runtime.enter();
        let chat = chat(&store);
        for at in 0..5 {
            let append = chat.append(turn("l", round * 5 + at));
            let _ = poll_for(append, Duration::ZERO);
        }
        drop(inside);
        runtime.shutdown_background();
    }
    // A write waits for those that were left running.
    runtime()
        .block_on(chat(&store).append(turn("l", 1000)))
        .unwrap();
    let stored = stored(&store, "l");
    assert!(stored.chunks(3).all(|turn| turn == [turn[0]; 3]));
    assert!(stored.contains(&1000));
}

fn told(at: u32) -> Vec<AgentEvent> {
    let mut events = vec![AgentEvent::TurnStart(TurnStart::new(loop_id("r"), at))];
    for message in turn("r", at) {
        events.push(AgentEvent::MessageStart(MessageStart::new(
            loop_id("r"),
            message.clone(),
        )));
        events.push(AgentEvent::MessageEnd(MessageEnd::new(
            loop_id("r"),
            message,
        )));
    }
    events.push(AgentEvent::TurnEnd(TurnEnd::new(loop_id("r"))));
    events
}

#[test]
fn dropped_records_stay_whole_and_in_order() {
    let (store, runtime) = (store_with(&[]), runtime());
    let recorder = store.recorder(RecorderOptions::default());
    let start = AgentEvent::AgentStart(AgentStart::new(session_id(), loop_id("r")));
    runtime.block_on(recorder.record(start)).unwrap();
    let (mut random, mut ledger) = (Random::new(11), Ledger::default());
    {
        let _inside = runtime.enter();
        for at in 0..150 {
            let record = recorder.call(move |recorder| {
                let mut events = told(at).into_iter();
                events.try_for_each(|event| recorder.record(event).map(drop))
            });
            let record = async { record.await.unwrap() };
            ledger.drive(&mut random, at, record);
        }
    }
    // The end waits for all before it.
    let end = AgentEvent::AgentEnd(AgentEnd::new(loop_id("r")));
    runtime.block_on(recorder.record(end)).unwrap();
    let stored = stored(&store, "r");
    ledger.check(&stored);
    assert!(stored.is_sorted(), "{stored:?}");
}

#[test]
fn events_recorded_one_by_one_are_durable_as_soon_as_a_message_is_complete() {
    let (store, runtime) = (store_with(&[]), runtime());
    let recorder = store.recorder(RecorderOptions::default());
    let start = AgentEvent::AgentStart(AgentStart::new(session_id(), loop_id("r")));
    let mut messages = 0;
    runtime.block_on(async {
        recorder.record(start).await.unwrap();
        for event in told(0) {
            let is_message = matches!(event, AgentEvent::MessageEnd(_));
            let recorded = recorder.record(event).await.unwrap();
            assert_eq!(matches!(recorded, Recorded::Message(_)), is_message);
            messages += usize::from(is_message);
            assert_eq!(stored(&store, "r").len(), messages);
        }
    });
    assert_eq!(messages, 3);
}

#[test]
fn the_last_clone_lets_its_loops_go() {
    let (store, runtime) = (store_with(&[]), runtime());
    let recorder = store.recorder(RecorderOptions::default());
    let other = recorder.clone();
    let start = AgentEvent::AgentStart(AgentStart::new(session_id(), loop_id("r")));
    runtime.block_on(recorder.record(start)).unwrap();
    let resume = |runtime: &tokio::runtime::Runtime| {
        let next = store.recorder(RecorderOptions::default());
        let resumed = next.call(|next| next.resume(&session_id(), &loop_id("r")));
        runtime.block_on(resumed)
    };
    drop(recorder);
    assert!(resume(&runtime).unwrap().is_err(), "a clone is left");
    runtime.block_on(async move { drop(other) });
    // A runtime waits for its pool.
    drop(runtime);
    let resumed = resume(&super::stage::runtime()).unwrap();
    assert_eq!(resumed.unwrap().turns, 0);
}
