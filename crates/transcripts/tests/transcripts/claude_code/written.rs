//! Hand-written transcripts, each with the expected result.

use loopstore::{AgentMessage, Message};
use loopstore_transcripts::{FoundEffect, Identity};
use serde_json::{Value, json};

use crate::claude_code::recorder::Recorder;

fn check(name: &str, expected: &str, skips: &[&str]) -> Recorder {
    let recorded = Recorder::of_fixture(name);
    assert_eq!(
        recorded.outline(),
        expected.trim_start_matches('\n'),
        "{name}"
    );
    assert_eq!(recorded.skips(), skips, "{name}");
    recorded
}

fn json_of(recorded: &Recorder, at: usize) -> Value {
    let messages = recorded
        .messages()
        .filter(|(message, _)| message.message().is_some());
    serde_json::to_value(messages.map(|(message, _)| message).nth(at).unwrap()).unwrap()
}

#[test]
fn a_run_with_parallel_calls_commands_and_an_interrupt_keeps_its_turns() {
    check(
        "kite-1.jsonl",
        r#"
session kite-1 "A red kite"
  loop p1 Initial Completed
    - note summary
    - note file-history-snapshot
    - note progress
    - note progress
    0 user Build the kite
    0 assistant Looking. [c1 c2]
    - note progress
    0 toolResult carbon <c1 Read>
    0 toolResult no such file <c2 Bash failed>
    1 user Make it red
    1 assistant A red one.
    - note system-record
    - note queue-operation
  loop p2 Default after p1:1 Aborted
    0 user <ide_opened_file>tail.txt</ide_opened_file> | And a tail
    0 assistant  [c3]
    0 toolResult denied <c3 Bash failed>
    1 user [Request interrupted by user for tool use]
    1 user <local-command-caveat>Caveat: local</local-command-caveat>
    1 user <command-name>/model</command-name>
    1 user <local-command-stdout>Set model</local-command-stdout>
    - note pr-link
  loop p3 Default after p2:1 Completed
    0 user Try again
    0 assistant API Error: 529 overloaded
    1 user <command-name>/review</command-name>
    1 user Review the tail.
    1 assistant Fine
    - note summary
  loop p4 Default after p3:1 Running
    0 user One more
"#,
        &[],
    );
}

#[test]
fn an_answer_is_joined_from_its_records_and_nothing_is_lost() {
    let recorded = Recorder::of_fixture("kite-1.jsonl");
    let answer = json_of(&recorded, 1);
    assert_eq!(answer["content"][0]["signature"], "sig==");
    assert_eq!(answer["stopReason"], "toolUse");
    assert_eq!(
        answer["usage"],
        json!({"input": 10, "output": 42, "cache_read": 500, "cache_write": 7, "service_tier": "standard"})
    );
    assert_eq!(answer["timestamp"], 1_772_359_204_000_i64);
    let sources = answer["source"].as_array().unwrap();
    let uuids: Vec<_> = sources
        .iter()
        .map(|source| source["uuid"].as_str().unwrap())
        .collect();
    assert_eq!(uuids, ["a1", "a2", "a3", "a4"]);
    assert_eq!(sources[0]["message"]["usage"]["output_tokens"], 3);
    assert_eq!(
        sources[3]["message"],
        json!({"id": "msg_1", "type": "message", "stop_sequence": null})
    );
    let raw = recorded
        .messages()
        .find(|(m, _)| m.message().is_some_and(|m| m.tool_calls().count() == 2));
    let (message, raw) = raw.unwrap();
    assert_eq!(raw.split(|byte| *byte == b'\n').count(), 4);
    let arguments = message
        .message()
        .unwrap()
        .tool_calls()
        .next()
        .unwrap()
        .arguments
        .as_str();
    assert_eq!(arguments, r#"{"path":"spar.txt","count":1.50}"#);
}

#[test]
fn an_answer_carries_what_the_provider_cleared_and_its_record_stays_whole() {
    let record = |uuid: &str, parent: Value, message: Value| {
        let kind = message["role"].clone();
        json!({"uuid": uuid, "parentUuid": parent, "sessionId": "s", "type": kind, "message": message,
            "timestamp": "2026-03-01T10:00:00.000Z"})
        .to_string()
    };
    let answer = |uuid: &str, parent: &str, report: &Value| {
        let text = json!([{"type": "text", "text": uuid}]);
        let message = json!({"role": "assistant", "id": "msg_1", "model": "claude", "content": text,
            "context_management": report});
        record(uuid, json!(parent), message)
    };
    let edit = json!({"type": "clear_tool_uses_20250919", "cleared_tool_uses": 8,
        "cleared_input_tokens": 50_000});
    let report = json!({"applied_edits": [edit]});
    for (report, edits) in [
        (report, 1),
        (json!({"applied_edits": []}), 0),
        (Value::Null, 0),
    ] {
        let lines = [
            record("u", Value::Null, json!({"role": "user", "content": "go"})),
            answer("a1", "u", &Value::Null),
            answer("a2", "a1", &report),
        ];
        let recorded = Recorder::of("s.jsonl", lines.join("\n").as_bytes());
        assert_eq!(recorded.error, None);
        let written = json_of(&recorded, 1);
        assert_eq!(written["content"].as_array().unwrap().len(), 2);
        assert_eq!(
            written["source"][1]["message"]["context_management"],
            report
        );
        let (message, _) = recorded.messages().nth(1).unwrap();
        let read = message.applied_edits();
        assert_eq!(read.as_ref().map_or(0, |read| read.edits.len()), edits);
        let strategy = read.map(|read| read.strategy);
        assert!(strategy.is_none_or(|name| name == "provider:anthropic"));
    }
}

#[test]
fn results_keep_their_images_errors_and_what_stands_beside_them() {
    let recorded = Recorder::of_fixture("kite-1.jsonl");
    let failed = json_of(&recorded, 3);
    assert_eq!(failed["isError"], true);
    assert_eq!(
        failed["content"][1],
        json!({"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"})
    );
    assert_eq!(
        failed["content"][2],
        json!({"type": "tool_reference", "name": "Sew"})
    );
    assert_eq!(
        failed["source"]["toolUseResult"],
        json!({"stderr": "no such file"})
    );
    let mixed = json_of(&recorded, 8);
    assert_eq!(
        mixed["source"]["block"],
        json!({"cache_control": {"type": "ephemeral"}})
    );
    assert_eq!(json_of(&recorded, 9)["source"], json!({"uuid": "r3"}));
}

#[test]
fn a_made_up_answer_is_an_error() {
    let recorded = Recorder::of_fixture("kite-1.jsonl");
    let answer = json_of(&recorded, 14);
    assert_eq!(answer["stopReason"], "error");
    assert_eq!(answer["error_message"], "API Error: 529 overloaded");
    assert_eq!(answer["source"]["isApiErrorMessage"], true);
    assert_eq!(answer["source"]["message"]["stop_reason"], "stop_sequence");
}

#[test]
fn blocks_of_unknown_type_stay_as_they_are_and_redacted_thinking_is_sealed() {
    let content = &json_of(&Recorder::of_fixture("kite-1.jsonl"), 17)["content"];
    assert_eq!(
        content[0],
        json!({"type": "sealed", "provider": "anthropic",
            "item": {"type": "redacted_thinking", "data": "xyz"}})
    );
    assert_eq!(content[2]["type"], "server_tool_use");
}

#[test]
fn a_rewind_is_a_branch_and_parallel_results_are_none() {
    check(
        "rewinds.jsonl",
        r#"
session rewinds
  loop root Initial Completed
    0 user one
    0 assistant  [c1]
    0 toolResult ok <c1 Bash>
    1 assistant done one
    - note progress
  loop two-first-way Default after root:1 Completed
    0 user two
    0 assistant done two
  loop two-other-way {Branch:{tag:two-othe}} after root:1 Completed
    0 user two, differently
    0 assistant done two differently
  loop from-the-middle {Branch:{tag:from-the}} after root:0 Completed
    0 user one, cut short
    0 assistant short
  loop from-the-start {Branch:{tag:from-the}} Completed
    0 user zero
    0 assistant done zero
  loop back-to-two Default after two-other-way:0 Completed
    0 user three
    0 assistant done three
  loop x1 {Branch:{tag:x1}} after root:1 Completed
    0 user <command-name>/init</command-name>
    0 user Init it.
    0 assistant inited
  loop orphan Default after x1:0 Running
    0 user after a gap
"#,
        &[],
    );
}

#[test]
fn compactions_stand_where_they_happened_and_what_they_kept_stands_once() {
    let skips = [
        "19: repeats the record of line 14",
        "20: repeats the record of line 15",
        "21: repeats the record of line 16",
        "24: a compaction without its summary",
    ];
    let recorded = check(
        "compactions.jsonl",
        r#"
session compactions
  loop p1 Initial Completed
    0 user plan
    0 assistant  [c1]
    0 toolResult old output <c1 Bash>
    1 assistant planned
  loop p2 Default after p1:1 Completed
    0 user go on
    0 assistant  [c2]
    0 toolResult out <c2 Bash>
    - note file-history-snapshot
    1 assistant going on
  loop p3 Default after p2:1 Completed
    0 user and on
    0 assistant on it
  loop p4 Default after p3:0 Completed
    0 user more
    0 assistant more it is
  loop p5 Default after p4:0 Completed
    0 user the end
    0 assistant fin
  auto compaction in p1@4: cleared c1
  manual compaction in p2@4: summary of 1
  auto compaction in p4@2: summary of 1 keeps p3:0
"#,
        &skips,
    );
    let compactions = &recorded.sessions[0].compactions;
    let FoundEffect::EditedResults { replaced, .. } = &compactions[0].0.effect else {
        panic!()
    };
    assert!(replaced.is_empty());
    let FoundEffect::Summary { messages, .. } = &compactions[1].0.effect else {
        panic!()
    };
    let [AgentMessage::Llm(summary)] = messages.as_slice() else {
        panic!()
    };
    assert!(matches!(&summary.message, Message::User(_)) && summary.turn_id.is_none());
    let source: Value = summary.extra.get("source").unwrap().read().unwrap();
    assert_eq!(source["uuid"], "cs1");
    let record: Value = compactions[1].0.record.read().unwrap();
    assert_eq!(record["compactMetadata"]["preTokens"], 100);
    assert_eq!(compactions[1].0.strategy, "claude-code");
    assert!(compactions[1].0.at.is_some());
}

#[test]
fn a_resumed_copy_is_one_session_and_agents_within_it_are_their_own() {
    let skips = ["13: repeats the record of line 12"];
    let recorded = check(
        "resumed-1.0.jsonl",
        r#"
session new-session
  loop p1 Initial Completed
    0 user survey
    0 assistant  [t1 t2]
    0 toolResult only sand <t2 Task>
    0 toolResult snow <t1 Task>
    1 assistant North is cold
  loop p2 Default after p1:1 Running
    0 user thanks
session new-session/sidechain-s1 from new-session p1 t2 Task
  loop s1 Initial Completed
    0 user look south
    0 assistant  [sc1]
    0 toolResult sand <sc1 Bash>
    1 assistant only sand
session new-session/sidechain-n1 from new-session p1 t1 Task
  loop n1 Initial Completed
    0 user look north
    0 assistant snow
"#,
        &skips,
    );
    let refs = &recorded.sessions[0].find("p1").record.child_loop_refs;
    let refs: Vec<_> = refs
        .iter()
        .map(|child| (child.tool_call_id.as_deref(), child.child_loop_id.as_str()))
        .collect();
    assert_eq!(refs, [(Some("t2"), "s1"), (Some("t1"), "n1")]);
}

#[test]
fn an_agent_with_its_own_file_knows_its_call_if_the_parent_is_beside_it() {
    check(
        "project/parent-7.jsonl",
        r#"
session parent-7
  loop p1 Initial Completed
    0 user delegate
    0 assistant  [t9]
    - note progress
    0 toolResult dug <t9 Task>
    1 assistant all dug
"#,
        &[],
    );
    let agent = "project/parent-7/subagents/agent-d1g.jsonl";
    let recorded = check(
        agent,
        r#"
session parent-7/agent-d1g from parent-7 p1 t9 Task
  loop d1 Initial Completed
    0 user dig
    - note progress
    0 assistant dug
"#,
        &[],
    );
    let id = &recorded.sessions[0].head.session.session_id;
    assert_eq!(
        recorded.sessions[0].head.identity,
        Identity::Own(id.clone())
    );
    check(
        "project/parent-7/subagents/agent-acompact-77.jsonl",
        r#"
session parent-7/agent-acompact-77 from parent-7 p1 ? ?
  loop k1 Initial Completed
    0 user Summarise
    0 assistant <summary>dug</summary>
"#,
        &[],
    );
    let bytes = std::fs::read(format!("../../tests/fixtures/claude-code/{agent}")).unwrap();
    let alone = Recorder::of("elsewhere/agent-d1g.jsonl", &bytes);
    let first = alone.outline();
    assert!(
        first.starts_with("session parent-7/agent-d1g from parent-7 ? ? Task\n"),
        "{first}"
    );
}
