//! Qwen Code's chats.

use insta::assert_snapshot;
use loopstore::SqliteStore;
use loopstore_transcripts::{ClaudeCode, Importer, QwenCode};
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
    assert_snapshot!(outline(&import_fixture(&QwenCode, QUAY)), @r#"
    session Own(SessionId("0b6f5f4e-1111-4222-8333-444455556666")) "Zeilen zählen"
      loop u-1 after - Completed
        - attribution_snapshot {"uuid":"s-attr","parentUuid":null,"sessionId":"0b6f5f4e-111…
        0 user "Zähle die Zeilen in grüße.txt 🙂" + "\n--- Content from referenced files ---" + "\nContent from grüße.txt:\n" + "hallo\nwelt\n" + "\n--- End of content ---"
        - ui_telemetry {"uuid":"t-1","parentUuid":"u-1","sessionId":"0b6f5f4e-1111-…
        0 assistant thinking "Two lines, but I check both files." + "I look at both." + call call_1 run_shell_command {"command":"wc -l grüße.txt"} + call call_2 read_file {"absolute_path":"/home/dev/café/missing.txt"} model=qwen3-coder-plus stop=toolUse usage={"input":100,"output":20,"reasoning":5,"cache_read":800,"total_tokens":920}
        0 toolResult "2 grüße.txt" of run_shell_command call_1
        0 toolResult "File not found: /home/dev/café/missing.txt" of read_file call_2 failed
        1 assistant "Two lines." model=qwen3-coder-plus stop=stop usage={"input":100,"output":4,"reasoning":0,"cache_read":900,"total_tokens":1004}
        1 assistant " The second file is missing." model=qwen3-coder-plus stop=stop
        - turn_result {"uuid":"s-res","parentUuid":"a-2","sessionId":"0b6f5f4e-111…
      loop u-bad after u-1 Completed
        0 user "delete everything"
        0 assistant "I will not do that." model=qwen3-coder-plus stop=stop usage={"input":100,"output":20,"reasoning":5,"cache_read":800,"total_tokens":920}
        - rewind {"uuid":"s-rew","parentUuid":"s-res","sessionId":"0b6f5f4e-1…
      loop u-2 after u-1 Completed
        0 user "look at the picture" + "<qwen:user-prompt-submit-context>be brief</qwen:user-prompt-…"
        0 assistant call call_3 read_file {"absolute_path":"/home/dev/café/dot.png"} + call call_4 agent {"description":"count words","prompt":"Count the words in gr… model=qwen3-coder-plus stop=toolUse usage={"input":100,"output":20,"reasoning":5,"cache_read":800,"total_tokens":920}
        0 toolResult "Binary content provided (1 item(s))." + image image/png of read_file call_3
        0 toolResult "2 words" of agent call_4
        1 assistant "A dot; two words." model=qwen3-coder-plus stop=stop usage={"input":100,"output":20,"reasoning":5,"cache_read":800,"total_tokens":920}
        - slash_command {"uuid":"s-inv","parentUuid":"a-4","sessionId":"0b6f5f4e-111…
        compaction Summary { messages: [Llm(LlmMessage { message: User(UserMessage { content: [Text(Text { text: "<state_snapshot>grüße.txt has two lines.</state_snapshot>", extra: Extra { fields: [], absent: [] } })], timestamp: None, author: Some(Harness) }), turn_id: None, extra: Extra { fields: [], absent: [] } }), Llm(LlmMessage { message: Assistant(AssistantMessage { content: [Text(Text { text: "Got it. Thanks for the additional context!", extra: Extra { fields: [], absent: [] } })], stop_reason: None, model: None, provider: None, usage: None, timestamp: None, error_message: None, author: None }), turn_id: None, extra: Extra { fields: [], absent: [] } })], first_kept: None }
      loop u-3 after u-2 Completed
        - slash_command {"uuid":"s-out","parentUuid":"s-cmp","sessionId":"0b6f5f4e-1…
        - custom_title {"uuid":"s-title","parentUuid":"s-out","sessionId":"0b6f5f4e…
        0 user "and how many bytes?"
        0 assistant "Eleven, I believe." model=qwen3-coder-plus stop=stop usage={"input":750,"output":6,"reasoning":0,"cache_read":0,"total_tokens":756}
        - not_invented_yet {"uuid":"s-weird","parentUuid":"a-5","sessionId":"0b6f5f4e-1…
    "#);
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

/// Returns a chat in which an answer, and then a result, was generated again.
fn made_anew() -> Vec<String> {
    let record = |id: &str, parent: &str, kind: &str, parts: Value| {
        let role = if kind == "assistant" { "model" } else { "user" };
        serde_json::json!({"uuid": id, "parentUuid": (!parent.is_empty()).then_some(parent), "sessionId": "s",
            "timestamp": "2026-07-01T10:00:00.000Z", "type": kind, "provenance": "real_user",
            "message": {"role": role, "parts": parts}}).to_string()
    };
    let text = |text: &str| serde_json::json!([{"text": text}]);
    let call = serde_json::json!([{"functionCall": {"id": "c1", "name": "ls", "args": {}}}]);
    let result = |output: &str| serde_json::json!([{"functionResponse": {"id": "c1", "name": "ls", "response": {"output": output}}}]);
    vec![
        record("u1", "", "user", text("one")),
        record("a1", "u1", "assistant", text("wrong")),
        record("a2", "u1", "assistant", text("right,")),
        record("a2", "u1", "assistant", call),
        record("r1", "a2", "tool_result", result("nothing")),
        record("r2", "a2", "tool_result", result("a file")),
        record("a3", "r2", "assistant", text("there")),
        record("u2", "r2", "user", text("two")),
    ]
}

#[test]
fn a_path_that_leaves_a_turn_in_the_middle_has_what_it_shares_of_it() {
    assert_snapshot!(outline(&import(&QwenCode, &made_anew().join("\n"))), @r##"
    session Own(SessionId("s"))
      loop u1 after - Completed
        0 user "one"
        0 assistant "wrong" stop=stop
      loop a2 after - Completed
        0 user "one"
        0 assistant "right," stop=stop
        0 assistant call c1 ls {} stop=toolUse
        0 toolResult "nothing" of ls c1
      loop r2 after - Completed
        0 user "one"
        0 assistant "right," stop=stop
        0 assistant call c1 ls {} stop=toolUse
        0 toolResult "a file" of ls c1
        1 assistant "there" stop=stop
      loop u2 after r2 Running
        0 user "two"
    "##);
}

#[test]
fn a_chat_with_such_paths_ends_line_by_line_as_the_whole_does() {
    let lines = made_anew();
    let store = SqliteStore::in_memory().unwrap();
    for count in 1..=lines.len() {
        let text = lines[..count].join("\n") + "\n";
        let report = import_bytes(&store, "a.jsonl", text.as_bytes()).unwrap();
        check_store(&store, &report.sessions);
        let whole = SqliteStore::in_memory().unwrap();
        import_bytes(&whole, "a.jsonl", text.as_bytes()).unwrap();
        assert_same(&state(&store), &state(&whole), &text);
    }
}
