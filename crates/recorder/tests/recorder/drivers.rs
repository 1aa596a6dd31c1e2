//! One driver per loop.

use std::process::Stdio;

use loopstore::extend::{self as store, append};
use loopstore::*;
use loopstore_recorder::event::AgentStart;
use loopstore_recorder::{AgentEvent, RecordError, RecorderOptions, SessionRecorder};
use loopstore_recorder::{RecoverRequest, recover};

use crate::support::events::*;
use crate::support::process;

fn error_of(result: Result<impl std::fmt::Debug, RecordError>) -> StoreError {
    match result.unwrap_err() {
        RecordError::Store(error) => error,
        other => panic!("{other}"),
    }
}

#[test]
fn a_live_lease_is_refused_and_an_ended_one_taken_over() {
    let store = SqliteStore::in_memory().unwrap();
    let hand = Hand::at(5_000);
    let mut first = SessionRecorder::new(&store, hand.options("first", 1_000));
    record_all(&mut first, vec![start("a")]);
    record_all(&mut first, turn("a", 0));
    let mut second = SessionRecorder::new(&store, hand.options("second", 1_000));
    hand.set(5_999);
    let held = error_of(second.resume(&session(), &id("a")));
    insta::assert_snapshot!(held, @"loop `a` is leased by `first` until 1970-01-01T00:00:06Z");
    // The heartbeat renews the lease from now on.
    first.heartbeat(&id("a")).unwrap();
    hand.set(6_998);
    error_of(second.resume(&session(), &id("a")));
    hand.set(6_999);
    second.resume(&session(), &id("a")).unwrap();
    for event in turn("a", 1) {
        if matches!(event, AgentEvent::ToolExecutionStart(_)) {
            let lost = error_of(first.record(event));
            insta::assert_snapshot!(lost, @"the lease of loop `a` (token 1) was lost to `second`; rebuild the context before continuing");
        } else if !matches!(event, AgentEvent::ToolExecutionEnd(_)) {
            // The end of the turn is refused too; the remaining events wait for it.
            let _ = first.record(event);
        }
    }
    assert!(matches!(
        error_of(first.heartbeat(&id("a"))),
        StoreError::LeaseLost { .. }
    ));
    record_all(&mut second, turn("a", 1));
    assert_eq!(texts(&store, "a").len(), 6);
    // The old driver cannot end the loop either.
    assert!(matches!(
        error_of(first.record(end("a"))),
        StoreError::LeaseLost { .. }
    ));
    record_all(&mut second, vec![end("a")]);
    let ended = second.resume(&session(), &id("a")).unwrap_err();
    assert!(matches!(ended, RecordError::Ended { .. }), "{ended}");
}

#[test]
fn a_lease_that_ended_still_holds_until_somebody_takes_it() {
    let store = SqliteStore::in_memory().unwrap();
    let hand = Hand::at(0);
    let mut first = SessionRecorder::new(&store, hand.options("first", 10));
    record_all(&mut first, vec![start("a")]);
    hand.set(1_000_000);
    record_all(&mut first, turn("a", 0));
    let mut second = SessionRecorder::new(&store, hand.options("second", 10));
    error_of(second.resume(&session(), &id("a")));
    first.release(&id("a")).unwrap();
    assert_eq!(second.resume(&session(), &id("a")).unwrap().turns, 1);
}

#[test]
fn a_clock_that_goes_back_frees_no_lease_early_and_holds_none_for_ever() {
    let store = SqliteStore::in_memory().unwrap();
    let hand = Hand::at(1_000_000);
    let mut first = SessionRecorder::new(&store, hand.options("first", 100));
    record_all(&mut first, vec![start("a")]);
    let mut second = SessionRecorder::new(&store, hand.options("second", 100));
    hand.set(500);
    error_of(second.resume(&session(), &id("a")));
    // After a clock went back, the time counts from the first request for the lease.
    hand.set(599);
    error_of(second.resume(&session(), &id("a")));
    // The holder continues as before.
    record_all(&mut first, turn("a", 0));
    hand.set(698);
    error_of(second.resume(&session(), &id("a")));
    hand.set(699);
    second.resume(&session(), &id("a")).unwrap();
}

#[test]
fn a_writer_without_a_lease_passes_only_where_nobody_drives() {
    let store = SqliteStore::in_memory().unwrap();
    let mut driver = SessionRecorder::new(&store, RecorderOptions::default());
    record_all(&mut driver, vec![start("a")]);
    let key = row(&store, "a").key;
    let add = || {
        store::write(&store, |write| {
            append::append(
                write,
                key,
                vec![user("mine").into()],
                &HeuristicTokenCounter,
            )
        })
    };
    assert!(matches!(add().unwrap_err(), StoreError::LeaseHeld { .. }));
    let ended = store::write(&store, |write| {
        append::set_status(write, key, LoopStatus::Completed)
    });
    assert!(matches!(ended.unwrap_err(), StoreError::LeaseHeld { .. }));
    driver.release(&id("a")).unwrap();
    add().unwrap();
    // An append after a lease has expired overtakes its holder.
    let mut late = SessionRecorder::new(&store, Hand::at(0).options("late", 10));
    late.resume(&session(), &id("a")).unwrap();
    add().unwrap();
    assert!(matches!(
        error_of(late.heartbeat(&id("a"))),
        StoreError::LeaseLost { .. }
    ));
}

#[test]
fn recovery_aborts_what_nobody_drives_and_leaves_the_rest() {
    let store = SqliteStore::in_memory().unwrap();
    let mut gone = SessionRecorder::new(&store, Hand::at(0).options("gone", 10));
    record_all(&mut gone, vec![start("a")]);
    record_all(&mut gone, turn("a", 0));
    let mut alive = SessionRecorder::new(&store, RecorderOptions::default());
    record_all(&mut alive, vec![start("b")]);
    let ask = |all, dry_run| {
        let session = Some(session());
        recover(
            &store,
            &RecoverRequest {
                session,
                all,
                dry_run,
            },
        )
        .unwrap()
    };
    let dry = ask(false, true);
    assert_eq!(dry.aborted.len(), 1);
    assert_eq!(row(&store, "a").status, LoopStatus::Running);
    let done = ask(false, false);
    assert_eq!((done.aborted, done.left), (dry.aborted, dry.left.clone()));
    assert_eq!(dry.left[0].loop_id, id("b"));
    assert_eq!(row(&store, "a").status, LoopStatus::Aborted);
    assert_eq!(ask(false, false).aborted, []);
    assert_eq!(ask(true, false).aborted.len(), 1);
    let lost = error_of(alive.record(end("b")));
    assert!(matches!(lost, StoreError::LeaseLost { .. }), "{lost}");
    let missing = RecoverRequest {
        session: Some(SessionId::new("nobody").unwrap()),
        ..RecoverRequest::default()
    };
    assert!(matches!(
        recover(&store, &missing).unwrap_err(),
        StoreError::NoSession(_)
    ));
    // An aborted loop can be resumed.
    let mut again = SessionRecorder::new(&store, RecorderOptions::default());
    let resumed = again.resume(&session(), &id("a")).unwrap();
    assert_eq!((resumed.turns, resumed.last_turn_index), (1, Some(0)));
    record_all(&mut again, turn("a", 1));
    record_all(&mut again, vec![end("a")]);
    assert_eq!(texts(&store, "a").len(), 6);
    let history = store
        .query("SELECT history FROM loops WHERE loop_id = 'a'")
        .unwrap();
    let history = history.records()[0].text("history").unwrap();
    assert_eq!(history.matches("triggered_by").count(), 0);
    assert_eq!(history.matches("\"turn_id\"").count(), 2, "{history}");
}

#[test]
fn a_recorder_that_is_dropped_lets_its_loops_go_also_in_a_panic() {
    let store = SqliteStore::in_memory().unwrap();
    let mut first = SessionRecorder::new(&store, RecorderOptions::default());
    record_all(&mut first, vec![start("a")]);
    record_all(&mut first, turn("a", 0));
    drop(first);
    let options = RecorderOptions::default();
    let (mut second, resumed) =
        SessionRecorder::open(&store, options.clone(), &session(), &id("a")).unwrap();
    assert_eq!((resumed.taken_over_from, resumed.open_turn), (None, None));
    record_all(&mut second, turn("a", 1)[..3].to_vec());
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let _second = second;
        panic!("on purpose");
    }));
    assert!(panicked.is_err());
    let (_third, resumed) = SessionRecorder::open(&store, options, &session(), &id("a")).unwrap();
    assert_eq!(resumed.open_turn.unwrap().messages.len(), 1);
}

/// The kernel knows whether the holder lives: a lease without a living holder is free at once.
#[test]
#[cfg(target_os = "linux")]
fn a_lease_whose_holder_is_gone_is_free_whatever_time_it_has_left() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agent.db");
    let (ours, theirs) = (
        crate::support::keyed::open(&file).unwrap(),
        crate::support::keyed::open(&file).unwrap(),
    );
    let mut first = SessionRecorder::new(&ours, RecorderOptions::default());
    record_all(&mut first, vec![start("a")]);
    let key = row(&ours, "a").key;
    first.release(&id("a")).unwrap();
    let take = |owner: &str| {
        let now = Time::now().millis().unwrap();
        let taken = store::write(&ours, |write| {
            store::lease::acquire(write, key, owner, 60_000, now)
        });
        match taken.unwrap() {
            store::lease::Acquire::Acquired(lease) => lease,
            store::lease::Acquire::Held(error) => panic!("{error}"),
        }
    };
    let held = take("one");
    let mut next = SessionRecorder::new(&theirs, RecorderOptions::default());
    error_of(next.resume(&session(), &id("a")));
    let recovered = recover(&theirs, &RecoverRequest::default()).unwrap();
    assert_eq!((recovered.aborted.len(), recovered.left.len()), (0, 1));
    let append = || {
        store::write(&theirs, |write| {
            append::append(write, key, vec![user("x").into()], &HeuristicTokenCounter)
        })
    };
    assert!(matches!(append(), Err(StoreError::LeaseHeld { .. })));
    // The lease stays in its row; its holder is gone.
    drop(held);
    let resumed = next.resume(&session(), &id("a")).unwrap();
    assert_eq!(resumed.taken_over_from.as_deref(), Some("one"));
    next.release(&id("a")).unwrap();
    drop(take("two"));
    append().unwrap();
    let recovered = recover(&theirs, &RecoverRequest::default()).unwrap();
    assert_eq!((recovered.aborted.len(), recovered.left.len()), (1, 0));
}

#[test]
fn a_loop_continues_the_current_one_unless_it_is_to_begin_anew() {
    let store = SqliteStore::in_memory().unwrap();
    let mut recorder = SessionRecorder::new(&store, RecorderOptions::default());
    for name in ["a", "b", "c"] {
        record_all(&mut recorder, vec![start(name)]);
        record_all(&mut recorder, turn(name, 0));
        record_all(&mut recorder, vec![end(name)]);
    }
    let built = |leaf: &str| {
        let options = BuildOptions {
            leaf: Some(id(leaf)),
            ..BuildOptions::default()
        };
        build_context_from_session(&store, &session(), &options)
            .unwrap()
            .messages
            .len()
    };
    assert_eq!(built("c"), 9);
    let child = row(&store, "c");
    assert_eq!(child.parent_loop_id, Some(id("b")));
    assert_eq!(child.kind, "\"Default\"");
    let start = AgentStart::new(session(), id("d")).fresh_start();
    record_all(&mut recorder, vec![AgentEvent::AgentStart(start)]);
    record_all(&mut recorder, turn("d", 0));
    assert_eq!(built("d"), 3);
    assert_eq!(row(&store, "d").kind, "\"Initial\"");
}

const TURNS: u32 = 12;

/// The child process of the tests below: drives a loop of its own, or competes for one.
#[test]
fn a_driver_process() {
    let Some(file) = std::env::var_os("LOOPSTORE_DRIVE") else {
        return;
    };
    let name = std::env::var("LOOPSTORE_LOOP").unwrap();
    let store = crate::support::keyed::open(file).unwrap();
    let mut options = RecorderOptions::default();
    if name == "fought" {
        options.ttl = std::time::Duration::from_millis(30);
        return fight(&store, options);
    }
    let mut recorder = SessionRecorder::new(&store, options);
    record_all(&mut recorder, vec![start(&name)]);
    for number in 0..TURNS {
        record_all(&mut recorder, turn(&name, number));
    }
    record_all(&mut recorder, vec![end(&name)]);
}

/// Takes the loop whenever its lease has ended, writes a turn or two, and stops renewing.
fn fight(store: &SqliteStore, options: RecorderOptions) {
    let (mut turns, mut taken, mut lost) = (0, 0, 0);
    while turns < TURNS {
        let mut recorder = SessionRecorder::new(store, options.clone());
        match recorder.resume(&session(), &id("fought")) {
            Ok(resumed) => {
                taken += 1;
                let next = resumed.last_turn_index.map_or(0, |last| last as u32 + 1);
                // An overtaken driver left a partial turn.
                let open = resumed.open_turn.iter().map(|open| rest_of("fought", open));
                let scripts = open.chain((next..next + 3).map(|number| turn("fought", number)));
                for (at, events) in scripts.enumerate() {
                    std::thread::sleep(std::time::Duration::from_millis(20 * at as u64));
                    let done = events
                        .into_iter()
                        .try_for_each(|event| recorder.record(event).map(|_| ()));
                    match done {
                        Ok(()) => turns += 1,
                        Err(RecordError::Store(StoreError::LeaseLost { .. })) => {
                            lost += 1;
                            break;
                        }
                        Err(other) => panic!("{other}"),
                    }
                }
            }
            Err(RecordError::Store(StoreError::LeaseHeld { .. })) => {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            Err(other) => panic!("{other}"),
        }
    }
    println!("fought: {turns} turns, {taken} taken, {lost} lost");
}

#[test]
fn eight_processes_drive_eight_loops_and_two_fight_for_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agent.db");
    let store = crate::support::keyed::open(&file).unwrap();
    let mut first = SessionRecorder::new(&store, RecorderOptions::default());
    record_all(&mut first, vec![start("fought")]);
    first.release(&id("fought")).unwrap();
    let names: Vec<String> = (0..8).map(|at| format!("own-{at}")).collect();
    let all = names.iter().map(String::as_str).chain(["fought", "fought"]);
    let children: Vec<_> = all
        .map(|name| {
            process::test("drivers::a_driver_process")
                .env("LOOPSTORE_DRIVE", &file)
                .env("LOOPSTORE_LOOP", name)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut fought = 0;
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let turns = said
            .split("fought: ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        fought += turns.map_or(0, |turns| turns.parse::<usize>().unwrap());
    }
    for name in &names {
        assert_whole_turns(&store, name, TURNS as usize);
    }
    assert_whole_turns(&store, "fought", fought);
    assert!(
        loopstore_verify::verify(&store)
            .unwrap()
            .problems
            .is_empty()
    );
}

/// Asserts that each turn is stored once, in order, and not nested.
fn assert_whole_turns(store: &SqliteStore, name: &str, turns: usize) {
    let expected: Vec<String> = (0..turns)
        .flat_map(|at| ["prompt", "answer", "paid"].map(|what| format!("{at}:{name} {what} {at}")))
        .collect();
    assert_eq!(texts(store, name), expected);
}
