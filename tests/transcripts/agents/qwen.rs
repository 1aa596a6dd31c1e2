//! Qwen Code's chats.

use insta::assert_snapshot;
use loopstore::SqliteStore;
use loopstore::extend::import::{ClaudeCode, Importer, QwenCode};
use serde_json::Value;

use crate::agents::stage::*;
use crate::support::recording::{import, import_fixture, try_import};

const QUAY: &str = "qwen-code/chats/0b6f5f4e-1111-4222-8333-444455556666.jsonl";
const CHILD: &str = "qwen-code/subagents/agent-9.jsonl";

fn lines() -> Vec<String> {
    let text = std::fs::read_to_string(fixture(QUAY)).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn records_become_turns_with_their_results_and_a_compression_a_run() {
    assert_snapshot!(outline(&import_fixture(&QwenCode, QUAY)), @"");
}

#[test]
fn the_file_of_a_sub_agent_is_a_session_of_its_own() {
    assert_snapshot!(outline(&import_fixture(&QwenCode, CHILD)), @r#"
    session Own(SessionId("0b6f5f4e-1111-4222-8333-444455556666/agent-general-purpose-ab12"))
      loop sa-1 after - Completed
        0 user "Count the words in grüße.txt."
        0 assistant "Counting." stop=stop
        1 assistant call sub_1 run_shell_command {"command":"wc -w grüße.txt"} stop=toolUse
        1 toolResult "2 grüße.txt" of run_shell_command sub_1
        2 assistant "2 words" stop=stop
    "#);
}

#[test]
fn the_store_holds_it_once_and_gives_the_file_back() {
    for name in [QUAY, CHILD] {
        let path = fixture(name);
        let (store, report) = imported(&path);
        assert_eq!(report.sessions.len(), 1);
        check_original(&store, &report.sessions[0], &std::fs::read(&path).unwrap());
    }
}

#[test]
fn a_chat_that_went_on_adds_only_what_is_new() {
    let lines = lines();
    let expected = SqliteStore::in_memory().unwrap();
    import_bytes(&expected, "a.jsonl", (lines.join("\n") + "\n").as_bytes()).unwrap();
    let store = SqliteStore::in_memory().unwrap();
    for count in 1..=lines.len() {
        let text = lines[..count].join("\n") + "\n";
        let _ = import_bytes(&store, "a.jsonl", text.as_bytes());
    }
    assert_same(&state(&store), &state(&expected), "line by line");
}

#[test]
fn cuts_and_flipped_bits_cost_no_more_than_their_records() {
    check_cuts(&fixture(QUAY), 97);
    let bytes = std::fs::read(fixture(QUAY)).unwrap();
    for at in (0..bytes.len()).step_by(499) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        let store = SqliteStore::in_memory().unwrap();
        let report = import_bytes(&store, "a.jsonl", &flipped).unwrap();
        check_store(&store, &report.sessions);
    }
}

#[test]
fn odd_records_are_told_and_nothing_panics() {
    for line in lines() {
        let mut record: Value = serde_json::from_str(&line).unwrap();
        for odd in [
            Value::Null,
            Value::from(-7.5e300),
            Value::from("../../etc/passwd"),
            serde_json::json!([7, {}]),
        ] {
            for key in [
                "uuid",
                "parentUuid",
                "type",
                "message",
                "timestamp",
                "systemPayload",
                "toolCallResult",
                "usageMetadata",
            ] {
                let before = record[key].take();
                record[key] = odd.clone();
                let _ = try_import(&QwenCode, record.to_string().as_bytes());
                record[key] = before;
            }
        }
    }
}

#[test]
fn its_records_are_not_taken_for_claude_codes_and_the_other_way_round() {
    let text = std::fs::read(fixture(QUAY)).unwrap();
    assert!(QwenCode.detect(std::path::Path::new("a.jsonl"), &text));
    assert!(!ClaudeCode.detect(std::path::Path::new("a.jsonl"), &text));
    let claude = r#"{"type":"user","uuid":"a","parentUuid":null,"sessionId":"s","message":{"role":"user","content":"Hi"}}"#;
    assert!(!QwenCode.detect(std::path::Path::new("a.jsonl"), claude.as_bytes()));
}

#[test]
fn what_a_rewind_dropped_is_another_path() {
    let record = |id: &str, parent: &str, kind: &str, text: &str| {
        let role = if kind == "user" { "user" } else { "model" };
        serde_json::json!({"uuid": id, "parentUuid": (!parent.is_empty()).then_some(parent), "sessionId": "s",
            "timestamp": "2026-07-01T10:00:00.000Z", "type": kind, "provenance": "real_user",
            "message": {"role": role, "parts": [{"text": text}]}}).to_string()
    };
    let rewind = r#"{"uuid":"r","parentUuid":"a1","sessionId":"s","type":"system","subtype":"rewind","systemPayload":{"truncatedCount":2}}"#;
    let lines = [
        record("u1", "", "user", "one"),
        record("a1", "u1", "assistant", "first"),
        record("u2", "a1", "user", "two"),
        record("a2", "u2", "assistant", "wrong"),
        rewind.to_owned(),
        record("u3", "r", "user", "three"),
        record("a3", "u3", "assistant", "right"),
    ];
    assert_snapshot!(outline(&import(&QwenCode, &lines.join("\n"))), @r#"
    session Own(SessionId("s"))
      loop u1 after - Completed
        0 user "one"
        0 assistant "first" stop=stop
      loop u2 after u1 Completed
        0 user "two"
        0 assistant "wrong" stop=stop
        - rewind {"uuid":"r","parentUuid":"a1","sessionId":"s","type":"system…
      loop u3 after u1 Completed
        0 user "three"
        0 assistant "right" stop=stop
    "#);
}
