//! A store that writes without confirming it, after which nothing may be stored twice. And a store that counts
//! its transactions: a message costs one.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use loopstore::extend::{ReadWork, StoreResult, WriteWork};
use loopstore::*;
use loopstore_recorder::{AgentEvent, RecordError, SessionRecorder};

use crate::support::events::*;

struct Silent<'a> {
    store: &'a SqliteStore,
    is_silent: AtomicBool,
    reads: AtomicU32,
    writes: AtomicU32,
}

impl<'a> Silent<'a> {
    fn new(store: &'a SqliteStore) -> Self {
        Self {
            store,
            is_silent: AtomicBool::new(false),
            reads: AtomicU32::new(0),
            writes: AtomicU32::new(0),
        }
    }
}

impl SessionStore for Silent<'_> {
    fn read(&self, work: ReadWork<'_>) -> StoreResult<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.store.read(work)
    }

    fn write(&self, work: WriteWork<'_>) -> StoreResult<()> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.store.write(work)?;
        match self.is_silent.load(Ordering::Relaxed) {
            true => Err(StoreError::Unconfirmed("the disk failed".into())),
            false => Ok(()),
        }
    }

    fn counter(&self) -> &dyn TokenCounter {
        self.store.counter()
    }
}

/// Records events, of which the one at `unsure` is not confirmed; after that error the recorder resumes.
fn record_with(store: &SqliteStore, events: &[AgentEvent], unsure: usize) {
    let silent = Silent::new(store);
    let hand = Hand::at(1);
    let mut recorder = SessionRecorder::new(&silent, hand.options("one", 1_000));
    for (at, event) in events.iter().enumerate() {
        silent.is_silent.store(at == unsure, Ordering::Relaxed);
        let done = recorder.record(event.clone());
        silent.is_silent.store(false, Ordering::Relaxed);
        let Err(error) = done else { continue };
        assert!(at == unsure, "{}: {error}", event.name());
        let is_unconfirmed = matches!(error, RecordError::Store(StoreError::Unconfirmed(_)));
        assert!(is_unconfirmed, "{error}");
        // The recorder has stopped driving the loop, so that the same event is refused.
        let again = recorder.record(event.clone()).unwrap_err();
        match event {
            AgentEvent::AgentStart(_) => {}
            _ => assert!(matches!(again, RecordError::NotBegun { .. }), "{again}"),
        }
        // The unused lease expires first.
        hand.set(1_002);
        match recorder.resume(&session(), &id("a")) {
            Ok(_) => {}
            Err(RecordError::Ended { .. }) if matches!(event, AgentEvent::AgentEnd(_)) => {}
            Err(error) => panic!("{}: {error}", event.name()),
        }
    }
}

#[test]
fn an_event_that_is_not_confirmed_comes_in_once() {
    let mut events = vec![start("a")];
    events.extend(turn("a", 0));
    events.extend(turn("a", 1));
    events.push(end("a"));
    let is_written = |event: &AgentEvent| {
        matches!(
            event,
            AgentEvent::AgentStart(_)
                | AgentEvent::MessageEnd(_)
                | AgentEvent::TurnEnd(_)
                | AgentEvent::AgentEnd(_)
        )
    };
    let writes = (0..events.len()).filter(|at| is_written(&events[*at]));
    for unsure in writes {
        let store = SqliteStore::in_memory().unwrap();
        record_with(&store, &events, unsure);
        assert_eq!(texts(&store, "a").len(), 6, "{}", events[unsure].name());
        assert_eq!(row(&store, "a").status, LoopStatus::Completed);
    }
}

/// A message costs only its own append: no second transaction and no read before it. The lease is only compared
/// until half of its time has passed.
#[test]
fn a_message_costs_one_transaction_and_writes_no_lease() {
    let store = SqliteStore::in_memory().unwrap();
    let counted = Silent::new(&store);
    let hand = Hand::at(0);
    let mut recorder = SessionRecorder::new(&counted, hand.options("one", 1_000));
    record_all(&mut recorder, vec![start("a"), turn_start("a", 0)]);
    let key = row(&store, "a").key;
    let renewed = || {
        let lease = loopstore::extend::read(&store, |read| read.lease(key));
        lease.unwrap().unwrap().renewed_at
    };
    let begun = counted.writes.load(Ordering::Relaxed);
    let said = [
        user("one"),
        answer("two", &["c", "d"]),
        result("c", "three"),
        result("d", "four"),
    ];
    for (at, message) in (1..).zip(&said) {
        hand.set(100 * i64::from(at));
        record_all(
            &mut recorder,
            vec![begins("a", message), ends("a", message)],
        );
        assert_eq!(counted.writes.load(Ordering::Relaxed), begun + at);
        assert_eq!(renewed(), 0);
    }
    hand.set(500);
    record_all(&mut recorder, vec![turn_end("a")]);
    assert_eq!(counted.writes.load(Ordering::Relaxed), begun + 5);
    assert_eq!(renewed(), 500);
    assert_eq!(counted.reads.load(Ordering::Relaxed), 0);
}
