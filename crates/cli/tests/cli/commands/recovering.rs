//! Recovery after a crash.

use std::sync::Arc;
use std::time::Duration;

use insta::assert_snapshot;
use loopstore::*;
use loopstore_recorder::event::*;
use loopstore_recorder::{AgentEvent, RecorderOptions, SessionRecorder};

use crate::commands::stage::Stage;

/// Starts a session whose agent pays at `now`. Dropping the returned recorder is the crash before the receipt.
fn paying(stage: &Stage, name: &str, now: i64) -> SessionRecorder<'static> {
    let store = Arc::new(stage.store());
    let options = RecorderOptions {
        owner: "host/agent\u{1b}[31m".into(),
        ttl: Duration::from_secs(60),
        clock: Arc::new(move || now),
        ..RecorderOptions::default()
    };
    let mut recorder = SessionRecorder::shared(store, options);
    let loop_key = LoopId::new(format!("{name}.1")).unwrap();
    let start = AgentStart::new(SessionId::new(name).unwrap(), loop_key.clone());
    recorder.record(AgentEvent::AgentStart(start)).unwrap();
    let turn = TurnStart::new(loop_key.clone(), 0);
    recorder.record(AgentEvent::TurnStart(turn)).unwrap();
    let args = Json::parse("{\"euro\":12}").unwrap();
    let call = ToolExecutionStart::new(loop_key, "c1", "pay", args);
    recorder
        .record(AgentEvent::ToolExecutionStart(call))
        .unwrap();
    recorder
}

/// Returns the output without the time of the start.
fn output_without_time(stage: &Stage, line: &str) -> String {
    let said = stage.say(line).to_string();
    let lines = said
        .lines()
        .map(|line| match line.split_once(", started ") {
            Some((before, after)) => {
                format!("{before}, started{}", &after[after.find(" (").unwrap()..])
            }
            None => line.to_owned(),
        });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn loops_without_a_driver_are_aborted_and_their_calls_listed() {
    let stage = Stage::empty();
    drop(paying(&stage, "gone", 1_000));
    let _alive = paying(&stage, "alive", 32_503_680_000_000);
    assert_snapshot!(output_without_time(&stage, "recover gone --dry-run"), @r#"
    Would abort gone.1 of session gone (Running, leased by host/agent\u{1b}[31m until 1970-01-01T00:01:01Z; 0 turns kept)

    1 started call without a result:
    pay c1 in loop gone.1 of session gone, started (attempts: 1)
      arguments {"euro":12}
      key 32f30e5f4a1cfc8dc8d8d92f391096f4feb81125c8734ce5363f30142f2e54fb
    "#);
    let report = stage.json("recover gone");
    assert_eq!(report["aborted"][0]["loop_id"], "gone.1");
    assert_eq!(report["calls"][0]["arguments"]["euro"], 12);
    assert_eq!(
        report["calls"][0]["idempotency_key"]
            .as_str()
            .unwrap()
            .len(),
        64
    );
    assert_eq!(
        stage.json("recover alive --dry-run")["left"][0]["owner"],
        "host/agent\u{1b}[31m"
    );
    assert_eq!(
        stage.json("recover --all")["aborted"][0]["loop_id"],
        "alive.1"
    );
    let again = stage.json("recover");
    assert_eq!(
        (
            again["aborted"].as_array().unwrap().len(),
            again["calls"].as_array().unwrap().len()
        ),
        (0, 2)
    );
    assert_snapshot!(stage.say("recover nobody"), @r#"
    --- stderr
    error: no session `nobody`
    hint: `loopstore sessions` lists the sessions
    --- exit 1
    "#);
}

#[test]
fn where_nothing_runs_nothing_is_done() {
    let stage = Stage::empty();
    drop(stage.store());
    assert_snapshot!(stage.say("recover"), @"No loop is pending or running.");
}
