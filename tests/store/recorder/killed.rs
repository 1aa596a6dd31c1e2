//! A process that is killed while it records: what was acknowledged is there, once, and who goes on
//! ends with the context of a run that was never killed.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;

use loopstore::recorder::{RecoverRequest, recover};
use loopstore::*;

use crate::support::amount::amount;
use crate::support::events::*;
use crate::support::process;

const TURNS: u32 = 6;

/// The whole script as it is played from a turn on.
fn script(from: u32) -> Vec<AgentEvent> {
    (from..TURNS).flat_map(|number| turn("a", number)).collect()
}

/// Records the script from where it stands; tells each event once it is recorded.
fn play(store: &SqliteStore, tell: &mut dyn FnMut(&str)) {
    let mut recorder = SessionRecorder::new(store, RecorderOptions::default());
    let known = store.query("SELECT 1 FROM loops").unwrap().records();
    let from = if known.is_empty() {
        record_all(&mut recorder, vec![start("a")]);
        tell("began");
        0
    } else {
        let resumed = recorder.resume(&session(), &id("a")).unwrap();
        resumed.last_turn_index.map_or(0, |last| last as u32 + 1)
    };
    for event in script(from) {
        let name = event.name();
        match recorder.record(event).unwrap() {
            Recorded::Turn(done) => tell(&format!("turn {}", done.turns)),
            Recorded::Call {
                idempotency_key, ..
            } => tell(&format!("call {idempotency_key}")),
            _ => tell(name),
        }
    }
    record_all(&mut recorder, vec![end("a")]);
    tell("ended");
}

/// The process that is killed.
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

/// Plays in a process that is killed after `events` acknowledged events; returns what it told.
fn killed_after(file: &Path, events: usize) -> Vec<String> {
    let mut child = process::test("recorder::killed::a_player_process")
        .env("LOOPSTORE_PLAY", file)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let told = lines.map_while(Result::ok);
    let told = told.filter_map(|line| line.strip_prefix("told ").map(str::to_owned));
    let heard: Vec<String> = told.take(events).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    heard
}

fn kills() -> usize {
    amount("LOOPSTORE_KILLS", 30) as usize
}

#[test]
fn a_killed_recorder_loses_no_turn_that_ended_and_no_call_that_started() {
    let unkilled = SqliteStore::in_memory().unwrap();
    play(&unkilled, &mut |_| {});
    let expected = context(&unkilled, "a");
    let length = script(0).len() + 2;
    for kill in 0..kills() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("agent.db");
        // Steps that share no factor with the length reach every event in time.
        let heard = killed_after(&file, 1 + kill * 7 % length);
        let store = crate::support::keyed::open(&file).unwrap();
        check(&store, &heard);
        let request = RecoverRequest {
            all: true,
            ..RecoverRequest::default()
        };
        let report = recover(&store, &request).unwrap();
        let turns = turns_of(&heard);
        let open: Vec<&str> = report
            .calls
            .iter()
            .map(|call| &*call.idempotency_key)
            .collect();
        if let Some(last) = heard
            .iter()
            .rev()
            .find_map(|line| line.strip_prefix("call "))
        {
            let answered =
                row(&store, "a").totals.turns as usize > turns || turns_after(&heard, last);
            assert!(answered || open == [last], "kill {kill}: {open:?} {last}");
        }
        assert!(open.len() <= 1, "kill {kill}: {open:?}");
        if heard.last().map(String::as_str) != Some("ended")
            && row(&store, "a").status == LoopStatus::Aborted
        {
            play(&store, &mut |_| {});
        }
        assert_eq!(context(&store, "a"), expected, "kill {kill}");
        assert!(inspect::verify(&store).unwrap().problems.is_empty());
        assert_eq!(recover(&store, &request).unwrap().calls, []);
    }
}

fn turns_of(heard: &[String]) -> usize {
    heard
        .iter()
        .filter(|line| line.starts_with("turn "))
        .count()
}

/// Whether a turn ended after a call.
fn turns_after(heard: &[String], call: &str) -> bool {
    let at = heard.iter().position(|line| line.ends_with(call)).unwrap();
    turns_of(&heard[at..]) > 0
}

/// Every acknowledged turn is there, once, and what came before the kill arrived is whole.
fn check(store: &SqliteStore, heard: &[String]) {
    let turns = turns_of(heard);
    let stored = row(store, "a").totals.turns as usize;
    assert!(stored >= turns, "{stored} turns, {turns} told");
    let expected: Vec<String> = (0..stored)
        .flat_map(|at| ["prompt", "answer", "paid"].map(|what| format!("{at}:a {what} {at}")))
        .collect();
    assert_eq!(texts(store, "a"), expected);
}
