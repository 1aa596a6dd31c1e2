//! An answer's report of cleared content is a run of edits, with the setting of the recorded request.

use loopstore::context::AsOf;
use loopstore::model::{AppliedEdit, AppliedEdits, ClearedToolUses};
use loopstore::*;
use loopstore_recorder::{AgentEvent, Recorded, RecorderOptions, SessionRecorder};

use crate::support::events::*;

const REQUEST: &str = r#"{"type":"turnRequest","loop_id":"a","turn_index":2,"request_payload":{"model":"claude",
    "context_management":{"edits":[{"type":"clear_tool_uses_20250919",
        "keep":{"type":"tool_uses","value":1},"clear_tool_inputs":true}]}}}"#;

/// Records two turns with a call each, and the beginning of a third.
fn worked(recorder: &mut SessionRecorder<'_>) {
    let prompt = user("Look.");
    record_all(
        recorder,
        vec![
            start("a"),
            turn_start("a", 0),
            begins("a", &prompt),
            ends("a", &prompt),
        ],
    );
    for (number, call) in (0u32..).zip(["c1", "c2"]) {
        let (made, found) = (answer("", &[call]), result(call, &"line ".repeat(200)));
        if number > 0 {
            record_all(recorder, vec![turn_start("a", number)]);
        }
        record_all(
            recorder,
            vec![
                begins("a", &made),
                ends("a", &made),
                call_start("a", call, r#"{"path":"a.rs"}"#),
                call_end("a", call),
                begins("a", &found),
                ends("a", &found),
                turn_end("a"),
            ],
        );
    }
    record_all(recorder, vec![turn_start("a", 2)]);
}

/// An answer that reports this number of cleared tool uses.
fn reporting(count: u32) -> AgentMessage {
    let mut last = answer("done", &[]);
    let edits = vec![AppliedEdit::ClearedToolUses(ClearedToolUses::new(count))];
    let report = AppliedEdits::new("provider:anthropic", edits);
    last.set_applied_edits(&report).unwrap();
    last
}

fn notes(recorder: &mut SessionRecorder<'_>, last: &AgentMessage) -> Vec<String> {
    record_all(recorder, vec![begins("a", last)]);
    match recorder.record(ends("a", last)).unwrap() {
        Recorded::Message(appended) => appended.notes,
        other => panic!("{other:?}"),
    }
}

/// The texts and the arguments of the calls as contexts show them.
fn shown(context: &Context) -> Vec<String> {
    let messages = context.messages.iter().filter_map(AgentMessage::message);
    let line = |message: &Message| {
        let calls = message.tool_calls().map(|call| call.arguments.as_str());
        let texts = message
            .texts()
            .map(|text| text.split(' ').next().unwrap_or_default());
        calls
            .chain(texts.filter(|text| !text.is_empty()))
            .collect::<Vec<_>>()
            .join(" ")
    };
    messages.map(line).collect()
}

#[test]
fn the_context_of_the_answer_is_what_its_model_read() {
    let store = Store::in_memory().unwrap();
    let mut recorder = SessionRecorder::new(store.database(), RecorderOptions::default());
    worked(&mut recorder);
    recorder
        .record(AgentEvent::parse(REQUEST).unwrap())
        .unwrap();
    assert_eq!(notes(&mut recorder, &reporting(1)), [""; 0]);
    let chat = store.session(session()).unwrap();
    let before = AsOf::Before {
        loop_id: id("a"),
        seq: 5,
    };
    let context = chat.context_as_of(before).unwrap();
    let seen = shown(&context);
    assert_eq!((seen[1].as_str(), seen[2].as_str()), ("{}", "[cleared:"));
    assert_ne!(seen[3], "{}");
    assert_eq!(seen[4], "line");
    let sqlite = SqliteStore::downcast(store.database()).unwrap();
    let runs = sqlite
        .query("SELECT strategy, config FROM v_compaction_runs")
        .unwrap();
    let run = runs.rows[0]
        .iter()
        .map(Json::as_str)
        .collect::<Vec<_>>()
        .join(" ");
    assert!(
        run.contains("provider:anthropic") && run.contains("the setting of the request"),
        "{run}"
    );
    assert!(
        loopstore_verify::verify(sqlite)
            .unwrap()
            .problems
            .is_empty()
    );
}

#[test]
fn a_report_that_cannot_be_resolved_is_a_note() {
    let store = Store::in_memory().unwrap();
    let mut recorder = SessionRecorder::new(store.database(), RecorderOptions::default());
    worked(&mut recorder);
    let notes = notes(&mut recorder, &reporting(9));
    assert_eq!(notes.len(), 1);
    assert!(
        notes[0].contains("reports 7 tool uses more as cleared"),
        "{notes:?}"
    );
    let chat = store.session(session()).unwrap();
    assert!(!shown(&chat.context().unwrap()).contains(&"[cleared:".to_owned()));
}
