//! Trajectories of other writers.

use insta::assert_snapshot;
use loopstore::{SessionId, SqliteStore};
use loopstore_transcripts::{Atif, Importer as _};
use serde_json::{Value, json};

use super::stage::{parsed, read};
use crate::agents::stage::*;
use crate::support::recording::{import, import_fixture};

fn quay() -> Value {
    parsed(&std::fs::read_to_string(fixture("atif/quay.json")).unwrap())
}

#[test]
fn a_trajectory_becomes_loops_calls_a_run_and_a_subagent() {
    let found = import_fixture(&Atif, "atif/quay.json");
    assert_eq!(found.reasons(), "");
    assert_snapshot!(outline(&found), @r#"
    session Own(SessionId("quay-7")) "Crates and barrels"
      loop loop-0 after - Completed
        - system {"content":"You look after the quay."}
        0 user "Count the crates."
        0 assistant thinking "Two places to look at." + "I count." + call c1 bash {"command":"ls crates"} + call c2 delegate {"task":"Count the barrels."} model=otter-1 usage={"input":320,"output":80,"reasoning":12,"cache_read":200,"cost":0.00045}
        0 toolResult "crate-1\ncrate-2" of bash c1
        0 toolResult "Nine barrels." of delegate c2
        1 assistant "Two crates and nine barrels." usage={"input":640,"output":9}
        compaction Summary { messages: [Llm(LlmMessage { message: User(UserMessage { content: [Text(Text { text: "The crates were counted: two. The barrels: nine.", extra: Extra { fields: [], absent: [] } })], timestamp: None, author: Some(Harness) }), turn_id: None, extra: Extra { fields: [], absent: [] } })], first_kept: None }
      loop loop-1 after loop-0 Running
        0 user "And this one?" + image image/png + image 
        0 assistant call c3 look {}
        0 toolResult "A crate." of look c3
        0 user "The light is low."
        1 assistant "It is a third crate."
    session Own(SessionId("quay-7/barrels"))
      loop loop-0 after - Completed
        0 user "Count the barrels."
        0 assistant "Nine barrels."
    session Own(SessionId("quay-7")) "Crates and barrels"
      loop loop-0 after - Completed started loop-0 by c2
      loop loop-1 after loop-0 Completed
    "#);
    let main = &found.sessions[0].head;
    assert_eq!(main.title.as_deref(), Some("Crates and barrels"));
    let session = &main.session;
    assert_eq!(session.agent_id.as_deref(), Some("heron"));
    let agent = session.extra.get("agent").unwrap().as_str();
    assert!(agent.contains("tool_definitions"), "{agent}");
    let part = session.extra.get("continued_trajectory_ref").unwrap();
    assert_eq!(part.as_str(), "\"trajectory.cont-1.json\"");
    let messages: Vec<_> = found.sessions[0].messages().collect();
    let answer = source(messages[2]);
    assert_eq!(answer["reasoning_effort"], "high");
    assert_eq!(answer["metrics"]["logprobs"], json!([-0.5, -0.25]));
}

#[test]
fn a_repeated_import_adds_nothing_and_a_grown_one_its_steps() {
    let (store, report) = imported(&fixture("atif/quay.json"));
    assert_eq!(report.sessions.len(), 2);
    let mut grown = quay();
    let step = json!({"step_id": 9, "source": "user", "message": "Good."});
    grown["steps"].as_array_mut().unwrap().push(step);
    let again = read(&store, grown.to_string().as_bytes()).unwrap();
    assert_eq!(again.added_messages, 1);
    check_store(&store, &again.sessions);
    check_cuts(&fixture("atif/quay.json"), 131);
}

#[test]
fn lists_and_lines_have_a_session_each() {
    let (first, mut second) = (quay(), quay());
    second["session_id"] = json!("quay-8");
    let texts = [
        format!("[{first},\n{second}]"),
        format!("{first}\n{second}\n"),
    ];
    for text in texts {
        let store = SqliteStore::in_memory().unwrap();
        let report = read(&store, text.as_bytes()).unwrap();
        assert_eq!((report.sessions.len(), report.skipped.len()), (4, 0));
    }
}

#[test]
fn segments_of_one_session_stay_apart() {
    let store = SqliteStore::in_memory().unwrap();
    read(&store, quay().to_string().as_bytes()).unwrap();
    let next = json!({"schema_version": "ATIF-v1.7", "session_id": "quay-7",
        "agent": {"name": "heron", "version": "2"}, "steps": [
            {"step_id": 1, "source": "system", "message": "A summary.", "is_copied_context": true},
            {"step_id": 2, "source": "user", "message": "Count the nets.", "is_copied_context": true},
            {"step_id": 3, "source": "agent", "message": "Four."}]});
    let report = read(&store, next.to_string().as_bytes()).unwrap();
    assert_eq!(report.added_messages, 2);
    let ids: Vec<&str> = report.sessions.iter().map(SessionId::as_str).collect();
    assert_eq!(ids.len(), 1);
    check_store(&store, &report.sessions);
}

#[test]
fn a_field_that_cannot_be_read_is_named_and_kept() {
    let text = json!({"schema_version": "ATIF-v1.6", "agent": {"name": 7}, "extra": [1], "steps": [
        {"step_id": "x", "source": "user", "message": "Hi", "timestamp": 5},
        {"source": "agent", "message": null, "tool_calls": [{"tool_call_id": "c", "function_name": "f"}],
         "metrics": {"prompt_tokens": "many"}, "observation": {"results": 3}},
        {"source": "agent", "message": {"odd": true}, "reasoning_content": ["x"], "tool_calls": {}},
        {"source": "wind", "message": "Whoo"},
        {"message": "Nobody"}, {"source": "user"}, 7,
        {"source": "system", "message": "", "observation": {"results": [{"content": "An event."}]}},
    ], "subagent_trajectories": [5, {"steps": 1}, {"steps": [
        {"source": "user", "message": "Again", "is_copied_context": true}]}]});
    let found = import(&Atif, &text.to_string());
    assert_snapshot!(outline(&found), @r#"
    session Key("0")
      loop loop-0 after - Completed
        0 user "Hi"
        0 assistant 
        1 assistant other {"odd":true}
        - wind {"message":"Whoo","source":"wind"}
        1 user "An event."
    skipped Some(1) step 2: field `observation`: invalid type: integer `3`, expected a sequence
    skipped Some(1) step 2: a tool call: missing field `arguments`
    skipped Some(1) step 2: field `metrics`: invalid type: string "many", expected i64
    skipped Some(1) step 3: field `tool_calls`: no list
    skipped Some(1) step 5: its `source` is missing or no text
    skipped Some(1) step 6: it has no `message`
    skipped Some(1) step 7: invalid type: integer `7`, expected an object
    skipped Some(1) embedded trajectory 1: invalid type: integer `5`, expected an object
    skipped Some(1) embedded trajectory 2: its `steps` are missing or no list
    skipped Some(1) embedded trajectory 3: it only repeats context
    "#);
    let messages: Vec<_> = found.sessions[0].messages().collect();
    assert_eq!(source(messages[1])["metrics"]["prompt_tokens"], "many");
}

#[test]
fn the_format_is_recognised_by_its_fields() {
    let head = |value: Value| value.to_string().into_bytes();
    let path = std::path::Path::new("x.json");
    for (value, is_atif) in [
        (
            json!({"schema_version": "ATIF-v1.2", "session_id": "a", "agent": {}}),
            true,
        ),
        (json!([{"schema_version": "ATIF-v1.2", "steps": []}]), true),
        (json!({"steps": [{"step_id": 1, "source": "user"}]}), true),
        (json!({"steps": [{"step_id": 1}]}), false),
        (json!({"schema_version": 3, "messages": []}), false),
    ] {
        assert_eq!(Atif.detect(path, &head(value.clone())), is_atif, "{value}");
    }
}
