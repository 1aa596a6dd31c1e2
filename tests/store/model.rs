//! The interchange form: written as it was read.

use loopstore::{AgentMessage, Session};
use proptest::prelude::*;
use serde_json::Value;

/// A session with every field of the form, unknown fields, and unusual times and numbers.
const EVERYTHING: &str = r#"{
  "session_id": "s-1", "agent_id": "a", "created_at": "2026-01-02T03:04:05.123456789Z",
  "last_active_at": "2026-01-02T03:04:05+02:00", "formation": {"InactivityTimeout":
    {"threshold_secs": 1e3, "previous_session_id": null, "timestamp": "2026-01-01T00:00:00Z"}},
  "parent_spawn_ref": {"parent_session_id": "p", "parent_loop_id": "p.0", "tool_call_id": "c",
    "tool_name": "task", "depth": 2},
  "scope": "persistent", "a field of tomorrow": [1.0, {"b": null}],
  "loops": [{
    "loop_id": "s-1.main.0", "session_id": "s-1", "agent_id": "a", "parent_loop_id": null,
    "continuation_kind": {"Rerun": {"tag": "again"}}, "started_at": "2026-01-02T03:04:05Z",
    "ended_at": null, "status": "Paused", "rejection": null,
    "config": {"model": "m", "temperature": 0.50, "thinking_level": "high"},
    "messages": [
      {"role": "user", "content": [{"type": "text", "text": "hé \ud83d\ude00", "lang": "fr"}],
       "timestamp": 1.7e12, "turnId": {"loopId": "x", "turnIndex": 0}, "nodeId": "n",
       "parentId": null, "tags": ["a"], "provenanceHint": {"k": 1}},
      {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "toolCall", "id": "c1", "name": "ls", "arguments": {"n": 12345678901234567890, "f": 1.0}},
        {"type": "video", "url": "v"}], "stopReason": "toolUse", "model": "m", "provider": "p",
       "usage": {"input": 1, "output": 2, "tier": "gold"}, "timestamp": 2, "error_message": null},
      {"role": "toolResult", "toolCallId": "c1", "toolName": "ls", "isError": false, "timestamp": 3,
       "content": [{"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"}]},
      {"role": "extension", "kind": "progress", "data": {"percent": 40.0}}
    ],
    "turns": [{"turn_id": {"loop_id": "x", "turn_index": 0}, "triggered_by": "User",
      "input_messages": [], "output_message": null, "tool_results": [], "started_at": "soon"}],
    "usage": {"input": 0, "output": 0, "reasoning": 0}, "metadata": {"n": 1}, "events":
      [{"sequence": 0, "event": {"type": "AgentStart"}}], "children_loop_ids": ["s-1.main.1"],
    "child_loop_refs": [{"tool_call_id": "c", "tool_name": "t", "child_loop_id": "l",
      "child_session_id": "d"}],
    "parallel_group": {"all_loop_ids": ["s-1.main.0"], "is_selected": true},
    "compaction_block": {"keep_first": {"startTurn": 0, "endTurn": 0}, "keep_compacted":
      {"range": {"startTurn": 1, "endTurn": 2}, "messages": [{"role": "user", "content": [],
       "timestamp": 9}]}, "createdAt": "2026-01-02T03:04:05Z", "by": "hand"}
  }]
}"#;

fn assert_round_trip(text: &str) {
    let session: Session = serde_json::from_str(text).unwrap();
    let written = serde_json::to_string(&session).unwrap();
    let (before, after): (Value, Value) = (
        serde_json::from_str(text).unwrap(),
        serde_json::from_str(&written).unwrap(),
    );
    assert_eq!(before, after);
    // Values compare as numbers; the text of each number must be the same too.
    for number in ["1e3", "0.50", "1.7e12", "12345678901234567890", "40.0"] {
        assert_eq!(text.contains(number), written.contains(number), "{number}");
    }
}

#[test]
fn every_field_comes_back() {
    assert_round_trip(EVERYTHING);
}

#[test]
fn what_is_absent_stays_absent() {
    assert_round_trip(r#"{"session_id": "s", "loops": [{"loop_id": "l", "messages": []}]}"#);
    assert_round_trip(r#"{"session_id": "s"}"#);
}

#[test]
fn recorded_sessions_come_back() {
    let Some(folder) = std::env::var_os("LOOPSTORE_REAL_TRANSCRIPTS") else {
        println!("LOOPSTORE_REAL_TRANSCRIPTS is not set: nothing checked");
        return;
    };
    let folder = std::path::PathBuf::from(folder).join("phi-core");
    let mut files = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        assert_round_trip(&std::fs::read_to_string(entry.unwrap().path()).unwrap());
        files += 1;
    }
    assert!(files > 0);
}

#[test]
fn wrong_shapes_are_errors_and_no_panic() {
    for text in [
        "",
        "null",
        "[]",
        "{}",
        r#"{"session_id": 5}"#,
        r#"{"session_id": ""}"#,
        r#"{"session_id": "s", "loops": {}}"#,
        r#"{"session_id": "s", "loops": [{}]}"#,
        r#"{"session_id": "s", "loops": [{"loop_id": "l", "messages": [{"role": "king"}]}]}"#,
        r#"{"session_id": "s", "loops": [{"loop_id": "l", "messages": [{"role": "user"}]}]}"#,
    ] {
        assert!(serde_json::from_str::<Session>(text).is_err(), "{text}");
    }
}

/// Any JSON value, nested a little.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map("[a-z]{1,5}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_message_comes_back(
        text in any::<String>(),
        extra in any_json(),
        arguments in any_json(),
        role in prop_oneof![Just("user"), Just("assistant")],
    ) {
        let message = serde_json::json!({
            "role": role, "noted": extra,
            "content": [
                {"type": "text", "text": text},
                {"type": "toolCall", "id": "c", "name": "n", "arguments": arguments},
                {"type": "odd", "of": extra},
            ],
        });
        let read: AgentMessage = serde_json::from_str(&message.to_string()).unwrap();
        let back: Value = serde_json::from_str(&serde_json::to_string(&read).unwrap()).unwrap();
        prop_assert_eq!(back, message);
    }
}

#[test]
fn a_note_without_data_says_so_once() {
    for given in [
        r#"{"role":"extension","kind":"k","data":null}"#,
        r#"{"role":"extension","kind":"k"}"#,
        r#"{"role":"extension","data":null,"kind":"k","content":null}"#,
    ] {
        let message: AgentMessage = serde_json::from_str(given).unwrap();
        let written = serde_json::to_string(&message).unwrap();
        assert_eq!(written.matches("\"data\"").count(), 1, "{written}");
        let again: AgentMessage = serde_json::from_str(&written).unwrap();
        assert_eq!(again, message, "{written}");
    }
}
