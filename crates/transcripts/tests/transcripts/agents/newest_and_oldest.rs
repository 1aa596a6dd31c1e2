//! The newest form of OpenCode's sessions, and the oldest of Codex's rollouts.

use loopstore::*;
use rusqlite::{Connection, params};
use serde_json::{Value, json};

use crate::agents::stage::*;

fn texts(store: &SqliteStore) -> Vec<String> {
    let sql = "SELECT m.role || ' ' || coalesce(m.text, '-')
        FROM v_messages m JOIN v_loops l USING (session_id, loop_id)
        WHERE m.role <> 'extension' ORDER BY l.parent_loop_id IS NOT NULL, m.loop_id, m.seq";
    let rows = store.query(sql).unwrap().rows;
    let cell = |row: &Vec<Json>| row[0].read::<String>().unwrap();
    rows.iter().map(cell).collect()
}

fn shown(store: &SqliteStore, session: &SessionId) -> Vec<String> {
    let options = BuildOptions::default();
    let context = build_context_from_session(store, session, &options).unwrap();
    let messages = context.messages.iter().filter_map(AgentMessage::message);
    messages
        .map(|message| message.texts().collect::<Vec<_>>().join("\n"))
        .collect()
}

/// Returns the types and contents of the records of a session, in order.
fn records() -> Vec<(&'static str, Value)> {
    let time = |at: i64| json!({"created": 1_785_000_000_000_i64 + at});
    vec![
        ("agent-switched", json!({"agent": "build", "time": time(0)})),
        (
            "user",
            json!({"text": "When is high tide?", "time": time(1), "agents": [],
                "files": [{"uri": "data:image/png;base64,iVBORw0KGgo=", "mime": "image/png", "name": "map.png"}]}),
        ),
        (
            "assistant",
            json!({"agent": "build", "model": {"id": "m-1", "providerID": "acme", "variant": "high"},
            "time": {"created": 1_785_000_000_002_i64, "completed": 1_785_000_000_009_i64},
            "cost": 0.5, "finish": "stop", "snapshot": {"start": "s1"},
            "tokens": {"input": 10, "output": 5, "reasoning": 1, "cache": {"read": 2, "write": 0}},
            "content": [
                {"type": "reasoning", "id": "r1", "text": "The table knows."},
                {"type": "text", "id": "t1", "text": "I look."},
                {"type": "tool", "id": "call-1", "name": "read", "time": time(3),
                    "state": {"status": "completed", "input": {"path": "tides.txt"}, "structured": {"lines": 2},
                        "content": [{"type": "text", "text": "06:10"}, {"type": "text", "text": "18:35"}]}},
                {"type": "tool", "id": "call-2", "name": "read", "time": time(4),
                    "state": {"status": "error", "input": {"path": "no.txt"}, "structured": {},
                        "content": [], "error": {"type": "unknown", "message": "no such file"}}},
            ]}),
        ),
        (
            "system",
            json!({"text": "The folder changed.", "time": time(10)}),
        ),
        (
            "shell",
            json!({"callID": "sh-1", "command": "date", "output": "Monday\n", "time": time(11)}),
        ),
        (
            "assistant",
            json!({"agent": "build", "model": {"id": "m-1", "providerID": "acme"}, "time": time(12),
                "content": [{"type": "text", "id": "t2", "text": "At ten past six."},
                    {"type": "tool", "id": "call-3", "name": "read", "time": time(13),
                        "state": {"status": "running", "input": {"path": "moon.txt"}, "structured": {}, "content": []}}]}),
        ),
    ]
}

fn compaction() -> (&'static str, Value) {
    let text = json!({"reason": "auto", "summary": "High tide is at 06:10.", "recent": "Asked: the moon?",
        "time": {"created": 1_785_000_000_020_i64}});
    ("compaction", text)
}

fn write(path: &std::path::Path, records: &[(&str, Value)]) {
    let _ = std::fs::remove_file(path);
    let file = Connection::open(path).unwrap();
    file.execute_batch(
        "CREATE TABLE session (id TEXT PRIMARY KEY, project_id TEXT NOT NULL, parent_id TEXT,
             directory TEXT NOT NULL, title TEXT NOT NULL, version TEXT NOT NULL,
             time_created INTEGER, time_updated INTEGER);
         CREATE TABLE session_message (id TEXT PRIMARY KEY, session_id TEXT NOT NULL, type TEXT NOT NULL,
             seq INTEGER NOT NULL, time_created INTEGER NOT NULL, time_updated INTEGER NOT NULL,
             data TEXT NOT NULL);
         INSERT INTO session VALUES ('ses_tide', 'p1', NULL, '/w', 'Tides', '2.0.0', 1785000000000, 1785000000000)",
    )
    .unwrap();
    for (seq, (kind, data)) in records.iter().enumerate() {
        // Neither ids nor times reflect the order.
        let id = format!("evt_{}", 90 - seq);
        let row = params![id, kind, seq as i64, data.to_string()];
        let sql = "INSERT INTO session_message VALUES (?1, 'ses_tide', ?2, ?3, 7, 7, ?4)";
        file.execute(sql, row).unwrap();
    }
}

#[test]
fn records_of_newer_versions_of_opencode_become_messages() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("opencode.db");
    let mut all = records();
    write(&path, &all[..3]);
    let store = SqliteStore::in_memory().unwrap();
    let report = import_into(&store, &path);
    assert!(report.skipped.is_empty(), "{:?}", report.skipped);
    // The session grew.
    write(&path, &all);
    let report = import_into(&store, &path);
    assert!(report.skipped.is_empty(), "{:?}", report.skipped);
    assert_eq!(report.sessions.len(), 1);
    assert_eq!(
        texts(&store),
        [
            "user When is high tide?",
            "assistant I look.",
            "toolResult 06:10\n18:35",
            "toolResult no such file",
            "user $ date\nMonday",
            "assistant At ten past six.",
        ]
    );
    let found = |sql: &str| format!("{:?}", store.query(sql).unwrap().rows);
    let calls =
        found("SELECT tool_name, tool_call_id, is_error FROM v_tool_calls ORDER BY tool_call_id");
    assert!(
        calls.contains("call-1") && calls.contains("call-3"),
        "{calls}"
    );
    let notes = found("SELECT payload FROM v_messages WHERE role = 'extension'");
    for kept in ["agent-switched", "The folder changed."] {
        assert!(notes.contains(kept), "{notes}");
    }
    let session = &report.sessions[0];
    assert_eq!(session.as_str(), "ses_tide");
    let context = build_context_from_session(&store, session, &BuildOptions::default()).unwrap();
    let json = serde_json::to_string(&context.messages).unwrap();
    assert!(
        json.contains("iVBORw0KGgo=") && json.contains("The table knows."),
        "{json}"
    );
    assert_eq!(import_into(&store, &path).added_messages, 0);

    // The call ended before the compaction began.
    all[5].1["content"][1]["state"] = json!({"status": "completed", "input": {"path": "moon.txt"},
        "structured": {}, "content": [{"type": "text", "text": "full"}]});
    all.push(compaction());
    all.push((
        "user",
        json!({"text": "And the moon?", "time": {"created": 1_785_000_000_030_i64}}),
    ));
    write(&path, &all);
    assert!(import_into(&store, &path).skipped.is_empty());
    assert_eq!(
        shown(&store, session),
        [
            "High tide is at 06:10.\n\nAsked: the moon?",
            "And the moon?"
        ]
    );
    assert!(loopstore_verify::verify(&store).unwrap().ok);
}

#[test]
fn a_record_that_cannot_be_read_costs_only_itself() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("opencode.db");
    write(&path, &records());
    let raw = Connection::open(&path).unwrap();
    raw.execute(
        "UPDATE session_message SET data = 'nonsense' WHERE seq = 4",
        [],
    )
    .unwrap();
    drop(raw);
    let store = SqliteStore::in_memory().unwrap();
    let report = import_into(&store, &path);
    assert_eq!(report.skipped.len(), 1, "{:?}", report.skipped);
    assert!(
        report.skipped[0].reason.contains("evt_86"),
        "{:?}",
        report.skipped
    );
    assert_eq!(texts(&store).len(), 5);
}

/// Returns a rollout as the first Codex saved it.
fn rollout(items: &[Value]) -> String {
    let document = json!({
        "session": {"timestamp": "2025-04-20T10:00:00.000Z", "id": "5f0c9d1e-0000-4000-8000-000000000001",
            "instructions": "Be brief."},
        "items": items,
    });
    format!("{document:#}")
}

fn items() -> Vec<Value> {
    let text = |kind: &str, text: &str| json!([{"type": kind, "text": text}]);
    vec![
        json!({"type": "message", "role": "user", "content": text("input_text", "Count the boats\nin the harbour")}),
        json!({"id": "rs_1", "type": "reasoning", "summary": [], "duration_ms": 800}),
        json!({"id": "fc_1", "type": "function_call", "status": "completed", "name": "shell", "call_id": "call_1",
            "arguments": "{\"command\":[\"ls\",\"boats\"]}"}),
        json!({"type": "function_call_output", "call_id": "call_1",
            "output": "{\"output\":\"a b c\",\"metadata\":{\"exit_code\":0,\"duration_seconds\":0}}"}),
        json!({"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
            "content": text("output_text", "Three boats.")}),
        json!({"type": "message", "role": "user", "content": text("input_text", "And tomorrow?")}),
    ]
}

#[test]
fn the_oldest_rollouts_of_codex_are_documents() {
    let folder = tempfile::tempdir().unwrap();
    let name = "rollout-2025-04-20-5f0c9d1e-0000-4000-8000-000000000001.json";
    let path = folder.path().join(name);
    let all = items();
    std::fs::write(&path, rollout(&all[..4])).unwrap();
    let store = SqliteStore::in_memory().unwrap();
    // In a folder, the file is recognised by its content alone.
    let report = import_into(&store, folder.path());
    assert!(
        report.skipped.is_empty() && report.unread.is_empty(),
        "{report:?}"
    );
    assert_eq!(
        report.sessions[0].as_str(),
        "5f0c9d1e-0000-4000-8000-000000000001"
    );
    std::fs::write(&path, rollout(&all)).unwrap();
    let report = import_into(&store, &path);
    assert!(report.skipped.is_empty(), "{report:?}");
    let found = texts(&store);
    assert_eq!(found[0], "user Count the boats\nin the harbour");
    assert!(found[2].contains("a b c"), "{found:?}");
    assert_eq!(found[3..], ["assistant Three boats.", "user And tomorrow?"]);
    assert_eq!(found.len(), 5);
    assert_eq!(import_into(&store, &path).added_messages, 0);
    let rows = store.query("SELECT source FROM v_sessions").unwrap().rows;
    assert_eq!(rows[0][0].read::<String>().unwrap(), "codex");
}

#[test]
fn what_is_wrong_with_an_item_of_a_document_is_named_by_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rollout.json");
    let mut all = items();
    all.insert(1, json!(7));
    let text = rollout(&all);
    let line = 1 + text.lines().position(|line| line.trim() == "7,").unwrap();
    std::fs::write(&path, text).unwrap();
    let store = SqliteStore::in_memory().unwrap();
    let report = import_into(&store, &path);
    assert_eq!(report.skipped.len(), 1, "{:?}", report.skipped);
    assert_eq!(report.skipped[0].line, Some(line as u64));
    assert_eq!(texts(&store).len(), 5);
}
