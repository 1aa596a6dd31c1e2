//! A process that is killed while it records: acknowledged messages are stored once, another process takes over
//! at the first attempt, and ends with the same context as a run that was never killed.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use loopstore::*;
use loopstore_recorder::{AgentEvent, Recorded, RecorderOptions, SessionRecorder};
use loopstore_recorder::{OpenTurnState, RecoverRequest, ResumedLoop, recover};

use crate::support::amount::amount;
use crate::support::events::*;
use crate::support::process;

const TURNS: u32 = 6;

/// Returns the whole script from a turn on.
fn script(from: u32) -> Vec<AgentEvent> {
    (from..TURNS).flat_map(|number| turn("a", number)).collect()
}

/// Returns the events that remain after the loop was taken over.
fn rest(resumed: &ResumedLoop) -> Vec<AgentEvent> {
    let next = resumed.last_turn_index.map_or(0, |last| last as u32 + 1);
    let open = resumed.open_turn.iter().flat_map(|open| rest_of("a", open));
    open.chain(script(next)).collect()
}

/// Records the script from the current position; calls `tell` with each event once it is recorded.
fn play(store: &SqliteStore, tell: &mut dyn FnMut(&str)) {
    let mut recorder = SessionRecorder::new(store, RecorderOptions::default());
    record_all(&mut recorder, vec![start("a")]);
    tell("began");
    go_on(recorder, script(0), tell);
}

fn go_on(mut recorder: SessionRecorder<'_>, events: Vec<AgentEvent>, tell: &mut dyn FnMut(&str)) {
    for event in events {
        let name = event.name();
        match recorder.record(event).unwrap() {
            Recorded::Message(_) => tell("message"),
            Recorded::Call {
                idempotency_key, ..
            } => tell(&format!("call {idempotency_key}")),
            _ => tell(name),
        }
    }
    record_all(&mut recorder, vec![end("a")]);
    tell("ended");
}

/// The child process that is killed.
#[test]
fn a_player_process() {
    let Some(file) = std::env::var_os("LOOPSTORE_PLAY") else {
        return;
    };
    let store = crate::support::keyed::open(file).unwrap();
    play(&store, &mut |line| {
        println!("\ntold {line}");
        std::io::stdout().flush().unwrap();
    });
}

/// Runs the script in a child process that is killed some time after `events` acknowledged events; returns the
/// events that it acknowledged.
fn killed_after(file: &Path, events: usize, moments: u64) -> Vec<String> {
    let mut child = process::test("killed::a_player_process")
        .env("LOOPSTORE_PLAY", file)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut heard = Vec::new();
    let mut listen = |most: usize| {
        let told = lines.by_ref().map_while(Result::ok);
        let told = told.filter_map(|line| line.strip_prefix("told ").map(str::to_owned));
        heard.extend(told.take(most));
    };
    listen(events);
    std::thread::sleep(Duration::from_micros(moments));
    child.kill().unwrap();
    child.wait().unwrap();
    // Events that it acknowledged while it was being killed count too.
    listen(usize::MAX);
    heard
}

fn kills() -> usize {
    amount("LOOPSTORE_KILLS", 30) as usize
}

#[test]
fn a_killed_recorder_loses_no_message_and_no_call_and_is_taken_over_at_once() {
    let unkilled = SqliteStore::in_memory().unwrap();
    play(&unkilled, &mut |_| {});
    let expected = context(&unkilled, "a");
    let length = script(0).len() + 2;
    for kill in 0..kills() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("agent.db");
        // Steps that share no factor with the length reach every event in time.
        let moments = (kill * 7919 % 1500) as u64;
        let heard = killed_after(&file, 1 + kill * 7 % length, moments);
        let store = crate::support::keyed::open(&file).unwrap();
        check(&store, &heard);
        let recorder = SessionRecorder::new(&store, RecorderOptions::default());
        if row(&store, "a").status == LoopStatus::Running {
            take_over(&store, recorder, &heard);
        } else {
            assert_eq!(row(&store, "a").status, LoopStatus::Completed);
        }
        assert_eq!(context(&store, "a"), expected, "kill {kill}");
        assert!(
            loopstore_verify::verify(&store)
                .unwrap()
                .problems
                .is_empty()
        );
        let left = recover(&store, &RecoverRequest::default()).unwrap();
        assert_eq!((left.calls, left.aborted.len()), (vec![], 0));
    }
}

/// Continues the loop of a killed process.
fn take_over(store: &SqliteStore, mut recorder: SessionRecorder<'_>, heard: &[String]) {
    let request = RecoverRequest {
        dry_run: true,
        ..RecoverRequest::default()
    };
    let dry = recover(store, &request).unwrap();
    assert_eq!((dry.aborted.len(), dry.left.len()), (1, 0));
    let resumed = recorder.resume(&session(), &id("a")).unwrap();
    assert_eq!(resumed.taken_over_from, dry.aborted[0].owner);
    assert!(resumed.taken_over_from.is_some());
    assert_eq!(resumed.calls, dry.calls);
    // A call without a stored result is reported, with the key that its tool got.
    let open: Vec<&str> = resumed
        .calls
        .iter()
        .map(|call| &*call.idempotency_key)
        .collect();
    let mut told = heard.iter().rev();
    let last = told.find_map(|line| line.strip_prefix("call "));
    let unanswered = resumed.open_turn.iter().flat_map(OpenTurnState::unanswered);
    match (last, unanswered.count()) {
        (Some(last), 1) if count(&texts(store, "a"), "paid") + 1 == calls(heard) => {
            assert_eq!(open, [last]);
        }
        (_, unanswered) => assert!(open.len() <= unanswered, "{open:?}"),
    }
    let events = rest(&resumed);
    go_on(recorder, events, &mut |_| {});
}

fn calls(heard: &[String]) -> usize {
    heard
        .iter()
        .filter(|line| line.starts_with("call "))
        .count()
}

fn count(texts: &[String], what: &str) -> usize {
    texts.iter().filter(|text| text.contains(what)).count()
}

/// Asserts that every acknowledged message is stored once and in order, with at most one more message after
/// them, and that the context is complete.
fn check(store: &SqliteStore, heard: &[String]) {
    let messages = heard.iter().filter(|line| *line == "message").count();
    let stored = texts(store, "a");
    let expected: Vec<String> = (0..TURNS)
        .flat_map(|at| ["prompt", "answer", "paid"].map(|what| format!("{at}:a {what} {at}")))
        .collect();
    assert_eq!(stored, expected[..stored.len()]);
    assert!(
        (messages..=messages + 1).contains(&stored.len()),
        "{heard:?}"
    );
    let built = build_context_from_session(store, &session(), &BuildOptions::default()).unwrap();
    assert_eq!(built.messages.len(), stored.len());
    assert_eq!(built.faults, [], "a call whose tool may still run is none");
    assert!(loopstore_verify::verify(store).unwrap().problems.is_empty());
}
