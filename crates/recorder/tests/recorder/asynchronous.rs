//! Recording from async code: futures that are dropped, a refused event, a panic, and the last clone.

use loopstore::Error;
use loopstore_recorder::event::*;
use loopstore_recorder::{AgentEvent, AsyncRecorder, RecordError, Recorded, RecorderOptions};

use crate::support::asynchronous::*;
use crate::support::histories::Random;

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
    let recorder = AsyncRecorder::new(&store, RecorderOptions::default());
    let start = AgentEvent::AgentStart(AgentStart::new(session_id(), loop_id("r")));
    runtime.block_on(recorder.record(start)).unwrap();
    let (mut random, mut ledger) = (Random::new(11), TurnLedger::default());
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
    let recorder = AsyncRecorder::new(&store, RecorderOptions::default());
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
    let recorder = AsyncRecorder::new(&store, RecorderOptions::default());
    let other = recorder.clone();
    let start = AgentEvent::AgentStart(AgentStart::new(session_id(), loop_id("r")));
    runtime.block_on(recorder.record(start)).unwrap();
    let resume = |runtime: &tokio::runtime::Runtime| {
        let next = AsyncRecorder::new(&store, RecorderOptions::default());
        let resumed = next.call(|next| next.resume(&session_id(), &loop_id("r")));
        runtime.block_on(resumed)
    };
    drop(recorder);
    assert!(resume(&runtime).unwrap().is_err(), "a clone is left");
    runtime.block_on(async move { drop(other) });
    // A runtime waits for its pool.
    drop(runtime);
    let resumed = resume(&crate::support::asynchronous::runtime()).unwrap();
    assert_eq!(resumed.unwrap().turns, 0);
}

#[test]
fn a_refused_event_and_a_panic_leave_the_recorder_usable() {
    let store = store_with(&[]);
    let recorder = AsyncRecorder::new(&store, RecorderOptions::default());
    runtime().block_on(async {
        let early = AgentEvent::TurnStart(TurnStart::new(loop_id("r"), 0));
        let refused = recorder.record(early.clone()).await;
        assert!(matches!(refused, Err(RecordError::NotBegun { .. })));
        let panicked = recorder.call(|_| -> () { panic!("plain") });
        assert!(matches!(panicked.await, Err(Error::Panicked(told)) if told == "plain"));
        let start = AgentStart::new(session_id(), loop_id("r"));
        recorder
            .record(AgentEvent::AgentStart(start))
            .await
            .unwrap();
        recorder.record(early).await.unwrap();
    });
}
