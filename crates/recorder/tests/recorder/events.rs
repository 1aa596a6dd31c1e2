//! Events in their order, and events that are invalid at their place.

use loopstore::extend as store;
use loopstore::*;
use loopstore_recorder::event::*;
use loopstore_recorder::{AgentEvent, RecordError, Recorded, RecorderOptions, SessionRecorder};
use loopstore_recorder::{RecoverRequest, idempotency_key, recover};

use crate::support::events::*;

fn store() -> SqliteStore {
    SqliteStore::in_memory().unwrap()
}

fn recorder(store: &SqliteStore) -> SessionRecorder<'_> {
    SessionRecorder::new(store, RecorderOptions::default())
}

/// Returns the error of the last event; the events before it must pass.
fn refused(events: Vec<AgentEvent>) -> RecordError {
    let store = store();
    let mut recorder = recorder(&store);
    let (last, before) = events.split_last().unwrap();
    record_all(&mut recorder, before.to_vec());
    let dump = |store: &SqliteStore| {
        let loops = store.query("SELECT * FROM loops").unwrap().records();
        let calls = store
            .query("SELECT * FROM started_calls")
            .unwrap()
            .records();
        serde_json::to_string(&(loops, calls)).unwrap()
    };
    let stood = dump(&store);
    let error = recorder.record(last.clone()).unwrap_err();
    assert_eq!(dump(&store), stood, "a refused event left a trace");
    error
}

#[test]
fn a_message_is_durable_when_it_is_complete_and_there_once() {
    let store = store();
    let mut recorder = recorder(&store);
    record_all(&mut recorder, vec![start("a")]);
    let mut stored = 0;
    for event in turn("a", 0) {
        let is_message = matches!(event, AgentEvent::MessageEnd(_));
        match recorder.record(event).unwrap() {
            Recorded::Message(done) => {
                assert!(is_message);
                assert_eq!(done.seqs, stored..stored + 1);
                assert_eq!((done.turns, done.complete), (1, u32::from(stored == 2)));
                stored += 1;
            }
            Recorded::Turn(done) => {
                assert_eq!((done.seqs, done.turns, done.complete), (3..3, 1, 1));
            }
            _ => assert!(!is_message),
        }
        assert_eq!(texts(&store, "a").len(), stored as usize);
    }
    record_all(&mut recorder, turn("a", 1));
    record_all(&mut recorder, vec![end("a")]);
    insta::assert_snapshot!(texts(&store, "a").join("\n"), @"
    0:a prompt 0
    0:a answer 0
    0:a paid 0
    1:a prompt 1
    1:a answer 1
    1:a paid 1
    ");
    assert_eq!(row(&store, "a").status, LoopStatus::Completed);
    assert!(
        loopstore_verify::verify(&store)
            .unwrap()
            .problems
            .is_empty()
    );
}

#[test]
fn a_report_of_cleared_content_is_stored_with_its_answer() {
    use loopstore::model::{AppliedEdit, AppliedEdits, ClearedToolUses};
    let cleared = ClearedToolUses::of_calls(vec!["c1".into()]).with_tokens(300);
    let edits = vec![AppliedEdit::ClearedToolUses(cleared)];
    let report = AppliedEdits::new("phi", edits);
    let mut said = answer("two", &[]);
    said.set_applied_edits(&report).unwrap();
    let store = store();
    let mut recorder = recorder(&store);
    let mut events = vec![start("a"), turn_start("a", 0)];
    for message in [user("one"), said] {
        events.extend([begins("a", &message), ends("a", &message)]);
    }
    events.extend([turn_end("a"), end("a")]);
    record_all(&mut recorder, events);
    let context = build_context_from_session(&store, &session(), &BuildOptions::default());
    let messages = context.unwrap().messages;
    assert_eq!(messages[1].applied_edits(), Some(report));
}

#[test]
fn what_only_the_end_of_a_turn_has_is_stored_too() {
    let store = store();
    let mut recorder = recorder(&store);
    let mut last = TurnEnd::new(id("a"));
    last.message = Some(answer("two", &["c"]));
    last.tool_results = vec![result("c", "three")];
    let prompt = user("one");
    record_all(
        &mut recorder,
        vec![
            start("a"),
            begins("a", &prompt),
            ends("a", &prompt),
            turn_start("a", 0),
            AgentEvent::TurnEnd(last),
            end("a"),
        ],
    );
    assert_eq!(texts(&store, "a"), ["0:one", "0:two", "0:three"]);
}

#[test]
fn an_end_alone_brings_its_messages() {
    let store = store();
    let mut recorder = recorder(&store);
    let mut last = AgentEnd::new(id("a"));
    last.messages = vec![user("one"), answer("two", &[])];
    record_all(&mut recorder, vec![start("a"), AgentEvent::AgentEnd(last)]);
    assert_eq!(texts(&store, "a"), ["0:one", "1:two"]);
}

#[test]
fn events_out_of_order_are_errors() {
    let said = user("x");
    let asked = answer("x", &[]);
    let update =
        AgentEvent::parse(r#"{"type":"messageUpdate","loop_id":"a","delta":"x"}"#).unwrap();
    let mut other = TurnEnd::new(id("a"));
    other.message = Some(answer("y", &[]));
    let mut wrong = TurnEnd::new(id("a"));
    wrong.turn_index = Some(7.into());
    let call = || call_start("a", "c", "{}");
    let cases = vec![
        vec![turn_end("a")],
        vec![start("a"), turn_end("a")],
        vec![start("a"), start("a")],
        vec![start("a"), end("a"), start("a")],
        vec![start("a"), end("a"), turn_start("a", 0)],
        vec![start_after("a", "a")],
        vec![start("a"), turn_start("a", 0), turn_start("a", 1)],
        vec![
            start("a"),
            turn_start("a", 3),
            turn_end("a"),
            turn_start("a", 3),
        ],
        vec![start("a"), ends("a", &said)],
        vec![start("a"), begins("a", &said), begins("a", &said)],
        vec![start("a"), begins("a", &said), ends("a", &asked)],
        vec![start("a"), update],
        vec![start("a"), call()],
        vec![start("a"), turn_start("a", 0), call(), call()],
        vec![start("a"), turn_start("a", 0), call_end("a", "c")],
        vec![
            start("a"),
            turn_start("a", 0),
            begins("a", &asked),
            ends("a", &asked),
            AgentEvent::TurnEnd(other),
        ],
        vec![start("a"), turn_start("a", 0), AgentEvent::TurnEnd(wrong)],
    ];
    let told: Vec<String> = cases
        .into_iter()
        .map(|case| refused(case).to_string())
        .collect();
    insta::assert_snapshot!(told.join("\n"), @"
    `turnEnd` for loop `a`, which has not begun or has ended
    `turnEnd` for loop `a` outside a turn
    loop `a` has already begun; resume it, or use another id
    loop `a` has already begun; resume it, or use another id
    `turnStart` for loop `a`, which has not begun or has ended
    loop `a`: it cannot be its own parent
    a turn of loop `a` begins before turn 0 has ended
    loop `a` cannot have a turn 3 now; its last one is 3
    `messageEnd` for a user message of loop `a` that never began
    a user message of loop `a` begins before the previous one has ended
    `messageEnd` for an answer of loop `a` that never began
    `messageUpdate` for a message of loop `a` that never began
    `toolExecutionStart` for loop `a` outside a turn
    call `c` of loop `a` has already started in this turn
    `toolExecutionEnd` for call `c` of loop `a`, which is not running
    loop `a`: the answer in `turnEnd` differs from the one that ended
    loop `a`: `turnEnd` is for turn 7, but turn 0 is open
    ");
}

#[test]
fn huge_and_hostile_values_are_errors() {
    let huge = "x".repeat(513);
    let bad = [
        "".to_owned(),
        "[]".into(),
        "{}".into(),
        r#"{"type":7}"#.into(),
        r#"{"type":"agentStart"}"#.into(),
        r#"{"type":"agentStart","session_id":"","loop_id":"a"}"#.into(),
        format!(r#"{{"type":"agentStart","session_id":"s","loop_id":"{huge}"}}"#),
        r#"{"type":"turnStart","loop_id":"a","turn_index":"0"}"#.into(),
        r#"{"type":"messageEnd","loop_id":"a","message":{"role":"king","content":[]}}"#.into(),
        format!(
            r#"{{"type":"toolExecutionStart","loop_id":"a","tool_call_id":"c","args":{}1{}}}"#,
            "[".repeat(200),
            "]".repeat(200)
        ),
    ];
    let store = store();
    let mut recorder = recorder(&store);
    for text in &bad {
        let error = recorder.record_json(text).unwrap_err();
        assert!(
            matches!(error, RecordError::NotAnEvent(_)),
            "{text}: {error}"
        );
    }
    for index in ["-1", "4294967296", "1e300", "-9223372036854775808"] {
        let text = format!(r#"{{"type":"turnStart","loop_id":"a","turn_index":{index}}}"#);
        let error = refused(vec![start("a"), AgentEvent::parse(&text).unwrap()]);
        assert!(matches!(error, RecordError::TurnIndex { .. }), "{error}");
    }
    for call in ["", &huge] {
        let error = refused(vec![
            start("a"),
            turn_start("a", 0),
            call_start("a", call, "{}"),
        ]);
        assert!(matches!(error, RecordError::Id { .. }), "{error}");
    }
    // Unusual names are accepted.
    for name in ["'; DROP TABLE loops; --", "\u{202e}\u{0}\n", "💥:0"] {
        record_all(&mut recorder, vec![start(name)]);
        record_all(&mut recorder, turn(name, 0));
    }
    assert!(
        loopstore_verify::verify(&store)
            .unwrap()
            .problems
            .is_empty()
    );
}

#[test]
fn events_are_json_with_unknown_fields_kept() {
    let texts = [
        r#"{"type":"turnStart","loop_id":"a","turn_index":0,"timestamp":"2026-01-02T03:04:05.10Z","mood":1.50}"#,
        r#"{"type":"toolExecutionStart","loop_id":"a","tool_call_id":"c","tool_name":"pay","args":{"x":1e2}}"#,
        r#"{"type":"compactionStarted","loop_id":"a","estimated_tokens":7}"#,
        r#"{"type":"somethingNew","loop_id":"a","n":[1,2]}"#,
    ];
    for text in texts {
        let event = AgentEvent::parse(text).unwrap();
        assert_eq!(serde_json::to_string(&event).unwrap(), text);
    }
    let event = AgentEvent::parse(r#"{"type":"PrunApplied","loop_id":"a"}"#).unwrap();
    assert_eq!(event.name(), "pruneApplied");
}

#[test]
fn turns_and_events_are_kept_without_second_copies_and_without_pieces() {
    let store = store();
    let mut recorder = recorder(&store);
    record_all(&mut recorder, vec![start("a"), turn_start("a", 0)]);
    let prompt = user("the prompt");
    let reply = answer("the reply", &["c"]);
    record_all(
        &mut recorder,
        vec![
            begins("a", &prompt),
            ends("a", &prompt),
            begins("a", &reply),
        ],
    );
    for text in [
        r#"{"type":"messageUpdate","loop_id":"a","delta":{"Text":{"delta":"piece"}}}"#,
        r#"{"type":"turnRequest","loop_id":"a","request_payload":{"copy":"of everything"}}"#,
        r#"{"type":"progress","loop_id":"a","text":"half","$seq":3}"#,
        r#"{"type":"revertApplied","loop_id":"a","to":{"$seq":3}}"#,
    ] {
        recorder.record_json(text).unwrap();
    }
    let mut last = TurnEnd::new(id("a"));
    last.message = Some(reply.clone());
    record_all(
        &mut recorder,
        vec![ends("a", &reply), AgentEvent::TurnEnd(last), end("a")],
    );
    let history = store.query("SELECT history FROM loops").unwrap().records()[0]
        .text("history")
        .unwrap();
    for absent in ["piece", "the prompt", "the reply", "of everything"] {
        assert!(!history.contains(absent), "{absent}: {history}");
    }
    let restored = loopstore::internal::restore_history(&history, &mut |seq| {
        Json::of(&format!("message {seq}")).map_err(|e| StoreError::Invalid(e.to_string()))
    });
    let value: serde_json::Value = serde_json::from_str(&restored.unwrap()).unwrap();
    let kinds: Vec<&str> = value["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["event"]["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds.join(" "),
        "agentStart turnStart messageEnd turnRequest progress revertApplied messageEnd turnEnd agentEnd"
    );
    assert_eq!(value["events"][5]["event"]["to"]["$seq"], 3);
    assert_eq!(value["events"][7]["event"]["message"], "message 1");
    assert_eq!(value["turns"][0]["output_message"], "message 1");
    assert_eq!(value["turns"][0]["input_messages"][0], "message 0");
    let left = store
        .query("SELECT count(*) AS n FROM notes")
        .unwrap()
        .records();
    assert_eq!(left[0].number("n"), Some(0));
}

#[test]
fn a_refused_input_ends_a_loop_as_rejected() {
    let store = store();
    let mut recorder = recorder(&store);
    let rejected = r#"{"type":"inputRejected","loop_id":"a","reason":"no"}"#;
    record_all(
        &mut recorder,
        vec![start("a"), AgentEvent::parse(rejected).unwrap(), end("a")],
    );
    assert_eq!(row(&store, "a").status, LoopStatus::Rejected);
    record_all(&mut recorder, vec![start("b")]);
    recorder.abort(&id("b")).unwrap();
    assert_eq!(row(&store, "b").status, LoopStatus::Aborted);
}

#[test]
fn a_started_call_is_durable_before_its_tool_runs_and_finished_with_its_turn() {
    let store = store();
    let hand = Hand::at(1_000);
    let mut first = SessionRecorder::new(&store, hand.options("first", 100));
    let mut events = turn("a", 0);
    let last = events.split_off(6);
    record_all(&mut first, vec![start("a")]);
    record_all(&mut first, events);
    let report = recover(&store, &RecoverRequest::default()).unwrap();
    assert_eq!(report.aborted.len(), 1, "its lease ended in 1970");
    assert_eq!(report.calls.len(), 1);
    let call = &report.calls[0];
    assert_eq!(call.arguments.as_str(), "{\"euro\":12}");
    let key = idempotency_key(&session(), &id("a"), "a-call-0", 0);
    assert_eq!((&call.idempotency_key, call.attempts), (&key, 1));
    // The old driver is overtaken.
    let error = first.record(last.last().unwrap().clone()).unwrap_err();
    assert!(
        matches!(error, RecordError::Store(StoreError::LeaseLost { .. })),
        "{error}"
    );

    let options = RecorderOptions::default();
    let (mut second, resumed) =
        SessionRecorder::open(&store, options, &session(), &id("a")).unwrap();
    // The resumed state shows the progress of the turn: the prompt, and an answer whose call may have run.
    let open = resumed.open_turn.unwrap();
    assert_eq!((open.turn_index, open.messages.len()), (0, 2));
    assert_eq!(open.unanswered(), ["a-call-0"]);
    assert_eq!((resumed.turns, resumed.calls.len()), (1, 1));
    assert_eq!(resumed.calls[0].idempotency_key, key);
    let mut again = turn("a", 0);
    let rest = again.split_off(6);
    let Recorded::Call {
        idempotency_key,
        attempts,
    } = second.record(again[5].clone()).unwrap()
    else {
        panic!("a call");
    };
    assert_eq!((idempotency_key, attempts), (key, 2));
    record_all(&mut second, rest);
    assert_eq!(
        texts(&store, "a"),
        ["0:a prompt 0", "0:a answer 0", "0:a paid 0"]
    );
    let report = recover(&store, &RecoverRequest::default()).unwrap();
    assert_eq!(report.calls, []);
    // The arguments are only in the message now.
    let calls = store
        .query("SELECT * FROM started_calls")
        .unwrap()
        .records();
    assert_eq!(calls[0].text("arguments"), None);
}

#[test]
fn a_call_id_that_comes_again_gets_another_key() {
    let store = store();
    let mut recorder = recorder(&store);
    record_all(&mut recorder, vec![start("a")]);
    let mut keys = Vec::new();
    for turn in 0..3 {
        let reply = answer("x", &["call_0"]);
        let paid = result("call_0", "y");
        record_all(
            &mut recorder,
            vec![
                turn_start("a", turn),
                begins("a", &reply),
                ends("a", &reply),
            ],
        );
        let Recorded::Call {
            idempotency_key, ..
        } = recorder.record(call_start("a", "call_0", "{}")).unwrap()
        else {
            panic!("a call");
        };
        keys.push(idempotency_key);
        record_all(
            &mut recorder,
            vec![begins("a", &paid), ends("a", &paid), turn_end("a")],
        );
    }
    keys.dedup();
    assert_eq!(keys.len(), 3);
}

#[test]
fn another_call_with_the_id_of_an_open_one_is_another_payment() {
    let store = store();
    let hand = Hand::at(0);
    let mut first = SessionRecorder::new(&store, hand.options("first", 10));
    record_all(
        &mut first,
        vec![
            start("a"),
            turn_start("a", 0),
            call_start("a", "c", "{\"euro\":1}"),
        ],
    );
    hand.set(10);
    let mut second = SessionRecorder::new(&store, hand.options("second", 10));
    second.resume(&session(), &id("a")).unwrap();
    record_all(
        &mut second,
        vec![turn_start("a", 0), call_start("a", "c", "{\"euro\":2}")],
    );
    let open = store::read(&store, |read| read.open_calls(None)).unwrap();
    assert_eq!(open.len(), 2);
    assert_ne!(open[0].idempotency_key, open[1].idempotency_key);
    assert!(loopstore_recorder::settle(&store, &open[0].idempotency_key).unwrap());
    assert!(!loopstore_recorder::settle(&store, &open[0].idempotency_key).unwrap());
    assert_eq!(
        store::read(&store, |read| read.open_calls(None))
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn a_key_of_the_caller_is_kept() {
    let store = store();
    let mut recorder = recorder(&store);
    let mut call = ToolExecutionStart::new(id("a"), "c", "pay", Json::null());
    call.idempotency_key = Some("mine".into());
    record_all(&mut recorder, vec![start("a"), turn_start("a", 0)]);
    let recorded = recorder
        .record(AgentEvent::ToolExecutionStart(call))
        .unwrap();
    let expected = Recorded::Call {
        idempotency_key: "mine".into(),
        attempts: 1,
    };
    assert_eq!(recorded, expected);
}
