//! Recorders that compete for the lease of one loop: the periods for which each was told that it holds the lease.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use loopstore::*;
use loopstore_postgres::PostgresStore;
use loopstore_recorder::event::AgentStart;
use loopstore_recorder::{AgentEvent, RecordError, RecorderOptions, SessionRecorder};

use super::writers::{open, transient_name};

/// A period in which a recorder held the lease, as far as it was told.
struct LeasePeriod {
    asked: Instant,
    taken: Instant,
    /// The beginning of the last acknowledged renewal.
    last: Instant,
}

/// All holdings of one lease.
#[derive(Default)]
pub struct LeasePeriods(Mutex<Vec<LeasePeriod>>);

const TERM: Duration = Duration::from_secs(2);

fn place(name: &str) -> (SessionId, LoopId) {
    let session = SessionId::new(format!("{name}-leased")).unwrap();
    (session, LoopId::new("one").unwrap())
}

fn options() -> RecorderOptions {
    RecorderOptions {
        ttl: TERM,
        ..RecorderOptions::default()
    }
}

/// Begins the loop.
pub fn begin(store: &PostgresStore, name: &str) {
    let (session, loop_id) = place(name);
    let mut recorder = SessionRecorder::new(store, options());
    let start = AgentStart::new(session, loop_id.clone());
    recorder.record(AgentEvent::AgentStart(start)).unwrap();
    recorder.release(&loop_id).unwrap();
}

impl LeasePeriods {
    /// Takes the lease repeatedly, renews it for a while, and releases or forgets it.
    pub fn contend(&self, name: &str, address: &str, stop: &AtomicBool) {
        let store = open(address);
        let (session, loop_id) = place(name);
        let mut turn = 0;
        while !stop.load(Ordering::Relaxed) {
            let asked = Instant::now();
            match SessionRecorder::open(&store, options(), &session, &loop_id) {
                Ok((recorder, _)) => {
                    let taken = Instant::now();
                    turn += 1;
                    self.hold(recorder, &loop_id, (asked, taken), turn % 3 == 0, stop);
                }
                Err(error) => self.is_passing(&error),
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn is_passing(&self, error: &RecordError) {
        let RecordError::Store(cause) = error else {
            panic!("{error:?}");
        };
        let is_known = matches!(
            cause,
            StoreError::LeaseHeld { .. } | StoreError::LeaseLost { .. }
        );
        assert!(is_known || transient_name(cause).is_some(), "{error:?}");
    }

    fn hold(
        &self,
        mut recorder: SessionRecorder<'_>,
        loop_id: &LoopId,
        (asked, taken): (Instant, Instant),
        forgets: bool,
        stop: &AtomicBool,
    ) {
        let mut last = taken;
        for _ in 0..10 {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            std::thread::sleep(Duration::from_millis(200));
            let begun = Instant::now();
            match recorder.heartbeat(loop_id) {
                Ok(()) => last = begun,
                Err(RecordError::Store(StoreError::LeaseLost { .. })) => break,
                Err(error) => self.is_passing(&error),
            }
        }
        let held = LeasePeriod { asked, taken, last };
        self.0.lock().unwrap().push(held);
        if forgets {
            // As if its process died: the lease expires.
            std::mem::forget(recorder);
        }
    }

    /// Panics if a recorder was told that it holds the lease after another one had taken it. Returns the number of
    /// changes of the holder.
    pub fn check(&self) -> usize {
        let all = self.0.lock().unwrap();
        for before in all.iter() {
            for after in all.iter() {
                let overlaps = before.taken < after.asked && before.last > after.taken;
                assert!(!overlaps, "two had the lease");
            }
        }
        all.len()
    }
}

#[test]
#[should_panic(expected = "two had the lease")]
fn a_lease_that_two_have_at_once_is_found_out() {
    let begun = Instant::now();
    let at = |ms| begun + Duration::from_millis(ms);
    let holding = |asked, taken, last| LeasePeriod {
        asked: at(asked),
        taken: at(taken),
        last: at(last),
    };
    let all = vec![holding(0, 10, 300), holding(100, 200, 200)];
    LeasePeriods(Mutex::new(all)).check();
}
