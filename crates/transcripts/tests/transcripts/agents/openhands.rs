//! OpenHands' logs of model calls, and its events.

use std::path::PathBuf;

use insta::assert_snapshot;
use loopstore::SqliteStore;
use loopstore_transcripts::OpenHands;
use serde_json::{Value, json};

use crate::agents::stage::*;
use crate::support::recording::{import, import_fixture, try_import};

const EVENTS: &str = "openhands/events.jsonl";
const LOGS: [&str; 3] = [
    "openhands/llm-logs/acme-1770000001.250.json",
    "openhands/llm-logs/acme-1770000002.250.json",
    "openhands/llm-logs/acme-1770000003.250.json",
];

fn document(name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(fixture(name)).unwrap()).unwrap()
}

fn texts(store: &SqliteStore) -> String {
    let sql = "SELECT session_id, loop_id, seq, turn, role, text FROM v_messages ORDER BY 1, 2, 3";
    format!("{:?}", store.query(sql).unwrap().rows)
}

#[test]
fn a_series_of_logs_is_one_session() {
    let store = SqliteStore::in_memory().unwrap();
    let report = import_into(&store, &fixture("openhands/llm-logs"));
    check_store(&store, &report.sessions);
    assert_eq!((report.files, report.sessions.len()), (3, 1));
    let sql = "SELECT seq, turn, role, text, payload ->> '$.usage.cost' FROM v_messages";
    let rows: Vec<String> = store
        .query(sql)
        .unwrap()
        .rows
        .iter()
        .map(|row| format!("{row:?}"))
        .collect();
    assert_snapshot!(rows.join("\n"), @r#"
    [0, null, "extension", null, null]
    [1, 0, "user", "The lantern does not light.", null]
    [2, 0, "assistant", "I look.", 0.01]
    [3, 0, "toolResult", "lamp.py", null]
    [4, 1, "assistant", "I light it.", 0.02]
    [5, 1, "toolResult", "lit", null]
    [6, 2, "assistant", "It shines.", 0.03]
    "#);
    for name in LOGS {
        check_original(
            &store,
            &report.sessions[0],
            &std::fs::read(fixture(name)).unwrap(),
        );
    }
    let before = state(&store);
    let again = import_into(&store, &fixture("openhands/llm-logs"));
    assert_eq!((again.added_messages, again.revised), (0, 0));
    assert_eq!(state(&store), before);
}

#[test]
fn any_order_and_any_name_of_the_logs_gives_the_same_messages() {
    let whole = SqliteStore::in_memory().unwrap();
    import_into(&whole, &fixture("openhands/llm-logs"));
    for order in [[0, 2, 1], [1, 0, 2], [2, 1, 0], [1, 2, 0]] {
        let store = SqliteStore::in_memory().unwrap();
        for at in order {
            let bytes = std::fs::read(fixture(LOGS[at])).unwrap();
            import_bytes(&store, &format!("{at}.json"), &bytes).unwrap();
        }
        assert_eq!(texts(&store), texts(&whole), "{order:?}");
    }
}

#[test]
fn another_conversation_that_begins_alike_is_another_session() {
    let store = SqliteStore::in_memory().unwrap();
    import_into(&store, &fixture("openhands/llm-logs"));
    let mut other = document(LOGS[1]);
    other["messages"][3]["content"][0]["text"] = json!("dark");
    let report = import_bytes(&store, "x.json", other.to_string().as_bytes()).unwrap();
    assert_eq!(report.added_messages, 4);
    assert_eq!(
        store.query("SELECT 1 FROM v_sessions").unwrap().rows.len(),
        2
    );
}

#[test]
fn calls_that_a_model_is_shown_as_text_are_calls_all_the_same() {
    let mut log = document(LOGS[1]);
    log["raw_messages"] = log["messages"].clone();
    log["messages"] = json!([
        { "role": "system", "content": "You mend lanterns. Tools: …" },
        { "role": "user", "content": "The lantern does not light." },
        { "role": "assistant", "content": "I look. <function=terminal>" },
        { "role": "user", "content": "EXECUTION RESULT of [terminal]:\nlamp.py" }
    ]);
    let with_calls = import(&OpenHands, &log.to_string());
    assert_eq!(with_calls.sessions[0].loops[0].turns(), ["uat", "a"]);
    log["raw_messages"] = json!(null);
    let as_text = import(&OpenHands, &log.to_string());
    assert_eq!(as_text.sessions[0].loops[0].turns(), ["uau", "a"]);
}

#[test]
fn a_call_of_the_responses_api_has_items_for_messages() {
    let mut log = document(LOGS[0]);
    log["messages"] = json!(null);
    log["instructions"] = json!("You mend lanterns.");
    log["input"] = json!([
        { "role": "user", "content": [{ "type": "input_text", "text": "It does not light." }] },
        { "type": "function_call", "call_id": "c1", "name": "terminal", "arguments": "{}" },
        { "type": "function_call_output", "call_id": "c1", "output": "dark" }
    ]);
    log["response"] = json!({ "output": [
        { "type": "reasoning", "id": "r", "summary": [] },
        { "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "I light it." }] }
    ]});
    let found = import(&OpenHands, &log.to_string());
    assert_eq!(found.sessions[0].loops[0].turns(), ["uat", "a"]);
    assert_eq!(found.reasons(), "");
}

#[test]
fn events_are_prompts_answers_and_results() {
    let found = import_fixture(&OpenHands, EVENTS);
    assert_snapshot!(outline(&found), @r#"
    session Key("0")
      loop loop-0 after - Completed
        - system {"content":[{"cache_prompt":false,"type":"text","text":"You …
        0 user "The lantern does not light." + image image/png
        0 assistant thinking "Two places." + "I look at both." + call t1 terminal {"command":"ls"}
        0 assistant call t2 terminal {"command":"pwd"}
        0 toolResult "lamp.py" of terminal t1
        0 toolResult "Action rejected: not now" of terminal t2 failed
        - ConversationStateUpdateEvent {"id":"e7","timestamp":"2026-02-02T02:40:04","source":"envir…
        1 assistant "It shines."
        - ConversationStateUpdateEvent {"id":"e9","timestamp":"2026-02-02T02:40:06","source":"envir…
    "#);
    let (store, report) = imported(&fixture(EVENTS));
    check_original(
        &store,
        &report.sessions[0],
        &std::fs::read(fixture(EVENTS)).unwrap(),
    );
}

#[test]
fn events_that_grow_add_only_what_is_new() {
    let text = std::fs::read_to_string(fixture(EVENTS)).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let expected = SqliteStore::in_memory().unwrap();
    import_bytes(&expected, "events.jsonl", text.as_bytes()).unwrap();
    for count in 1..lines.len() {
        let store = SqliteStore::in_memory().unwrap();
        let part = lines[..count].join("\n");
        import_bytes(&store, "events.jsonl", part.as_bytes()).unwrap();
        let grown = import_bytes(&store, "events.jsonl", text.as_bytes()).unwrap();
        assert_eq!((grown.revised, grown.sessions.len()), (0, 1), "{count}");
        assert_same(
            &state(&store),
            &state(&expected),
            &format!("{count} events first"),
        );
    }
    let list = format!("[{}]", lines.join(","));
    assert_eq!(import(&OpenHands, &list).sessions[0].messages().count(), 9);
}

/// Returns a prompt, this many actions with their observations, and a condensation that hides some events.
fn condensed(actions: usize, forgotten: &[&str], summary: Value) -> String {
    let mut lines = vec![json!({
        "id": "u", "timestamp": "2026-02-02T02:40:00", "source": "user", "kind": "MessageEvent",
        "llm_message": {"role": "user", "content": [{"type": "text", "text": "Light it."}]},
    })];
    for n in 1..=actions {
        let call = format!("t{n}");
        lines.push(json!({
            "id": format!("a{n}"), "timestamp": "2026-02-02T02:41:00", "source": "agent",
            "kind": "ActionEvent", "llm_response_id": format!("r{n}"), "thought": [],
            "tool_name": "terminal", "tool_call_id": call,
            "tool_call": {"id": call, "name": "terminal", "arguments": "{}"},
        }));
        lines.push(json!({
            "id": format!("o{n}"), "timestamp": "2026-02-02T02:41:01", "source": "environment",
            "kind": "ObservationEvent", "tool_name": "terminal", "tool_call_id": call,
            "observation": {"content": [{"type": "text", "text": format!("seen {n}")}]},
        }));
        if n + 1 == actions {
            lines.push(json!({
                "id": "c", "timestamp": "2026-02-02T02:42:00", "source": "environment",
                "kind": "Condensation", "forgotten_event_ids": forgotten, "summary": summary,
            }));
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Returns the texts of the context of the only session, and its history.
fn context_of(
    store: &SqliteStore,
    report: &loopstore_transcripts::ImportReport,
) -> (String, String) {
    let context = loopstore::build_context_from_session(
        store,
        &report.sessions[0],
        &loopstore::BuildOptions::default(),
    );
    let shown: Vec<String> = context
        .unwrap()
        .messages
        .iter()
        .filter_map(|message| message.message())
        .map(|message| message.texts().collect::<Vec<_>>().join("|"))
        .collect();
    let runs = store
        .query("SELECT strategy, outcome FROM v_compaction_runs")
        .unwrap();
    (shown.join("; "), format!("{:?}", runs.rows))
}

#[test]
fn a_condensation_is_a_run_at_its_place() {
    let store = SqliteStore::in_memory().unwrap();
    let lines = condensed(4, &["a1", "o1", "a2", "o2"], json!("It was dark."));
    let report = import_bytes(&store, "s.jsonl", lines.as_bytes()).unwrap();
    check_store(&store, &report.sessions);
    let (shown, runs) = context_of(&store, &report);
    assert_snapshot!(shown, @r#"
    Light it.; It was dark.; ; seen 3; ; seen 4
    "#);
    assert_snapshot!(runs, @r#"
    [["openhands", "committed"]]
    "#);

    let before = state(&store);
    let again = import_bytes(&store, "s.jsonl", lines.as_bytes()).unwrap();
    assert_eq!((again.added_messages, again.revised), (0, 0));
    assert_eq!(state(&store), before);
    assert_eq!(context_of(&store, &report).1, runs, "the run came in twice");
}

#[test]
fn a_condensation_without_a_summary_or_of_unknown_events_loses_nothing() {
    for (forgotten, summary, wanted) in [
        (&["a1", "o1"][..], Value::Null, "no summary"),
        (&["gone", "a2"], json!(["no text"]), "no text"),
        (&["gone"], json!("It was dark."), "unknown events"),
        (&[], json!("It was dark."), "none"),
        (
            &["u", "a1", "o1", "a2", "o2", "a3", "o3"],
            json!("Dark."),
            "all",
        ),
    ] {
        let store = SqliteStore::in_memory().unwrap();
        let lines = condensed(4, forgotten, summary);
        let report = import_bytes(&store, "s.jsonl", lines.as_bytes()).unwrap();
        check_store(&store, &report.sessions);
        assert_eq!(report.messages, 9, "{wanted}");
        let said = texts(&store);
        for n in 1..=4 {
            assert!(said.contains(&format!("seen {n}")), "{wanted}: {said}");
        }
    }
}

#[test]
fn damage_is_told_and_never_panics() {
    let paths: Vec<PathBuf> = [EVENTS, LOGS[1]].map(fixture).into();
    for path in &paths {
        check_cuts(path, 701);
        check_flips(&OpenHands, &std::fs::read(path).unwrap());
    }
    check_wrong_types(&OpenHands, &document(LOGS[1]));
    let text = std::fs::read_to_string(fixture(EVENTS)).unwrap();
    let events: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    check_wrong_types(&OpenHands, &Value::from(events));
    for end in [
        &b"{\"messages\":[],\"kwargs\":{}}"[..],
        b"{}",
        b"[]",
        b"[7]",
        b"\xFF\xFE{",
    ] {
        assert!(try_import(&OpenHands, end).1.is_err());
    }
}
