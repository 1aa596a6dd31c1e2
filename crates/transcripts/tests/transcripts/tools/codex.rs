//! Rollouts of Codex.

use insta::assert_snapshot;
use loopstore::SealingProvider::OpenAi;
use loopstore::provider::{Form, MendingKind, ProviderRequest};
use loopstore::{AgentMessage, Message};
use serde_json::json;

use crate::tools::recorder::{Recorder, importer};
use crate::tools::stored::{import, is_sound, shown, shown_to, store};

fn lighthouse() -> Recorder {
    Recorder::of_fixture("codex", "lighthouse.jsonl")
}

#[test]
fn items_become_messages_and_events_notes() {
    let recorded = lighthouse();
    assert_eq!(recorded.skips(), [""; 0]);
    assert_snapshot!(recorded.outline(), @r##"
    session 0199aaaa-0000-7000-8000-000000000001
      loop t-1 Initial Completed
        - note session_meta
        - note system
        - note task_started
        - note system
        0 user # AGENTS.md instructions for /srv/lamp
        - note turn_context
        0 user Light the lamp
        0 assistant Checking the oil. [c1 c2]
        0 toolResult Chunk ID: 7 <c1 exec failed>
        - note patch_apply_end
        0 toolResult Exit code: 0 <c2 apply_patch>
        - note token_count
        - note token_count
        1 assistant It burns. [call-18]
        - note token_count
        - note task_complete
        - note task_started
      loop t-2 Default after t-1:1 Completed
        0 user <b>Louder</b>, please
        0 assistant  [c3]
        0 toolResult toot <c3 exec>
      loop t-2~2 Default after t-2:0 Aborted
        0 user And the bell
        0 assistant Ringing.
        - note turn_aborted
        1 user <turn_aborted>stopped</turn_aborted>
        - note context_compacted
        - note task_started
      loop t-3 Default after t-2~2:1 Completed
        0 user Fog?
        - note ghost_snapshot
        0 assistant None.
      ? compaction in t-2~2@4: summary of 2
    "##);
}

#[test]
fn a_rollout_without_events_has_prompts_all_the_same() {
    let recorded = Recorder::of_fixture("codex", "spawned.jsonl");
    assert_snapshot!(recorded.outline(), @r##"
    session spawned-1 from 0199aaaa-0000-7000-8000-000000000001 ? ? ?
      loop line-3 Initial Completed
        - note session_meta
        0 user <environment_context>
        0 user Count the steps
        0 assistant  [s1]
        0 toolResult {"output":"199","metadata":{"exit_code":0}} <s1 local_shell>
        1 assistant 199
      loop line-8 Default after line-3:1 Running
        0 user And windows?
        0 assistant  [s2]
      ? compaction in line-3@6: summary of 2
    "##);
}

#[test]
fn an_answer_is_joined_from_its_items_and_nothing_is_lost() {
    let recorded = lighthouse();
    let answer = recorded.json_of(2);
    assert_eq!(
        answer["usage"],
        json!({"input": 100, "output": 20, "reasoning": 5, "cache_read": 40, "total_tokens": 120})
    );
    assert_eq!(
        answer["content"][0],
        json!({"type": "sealed", "provider": "openai", "item": {
            "type": "reasoning", "id": "rs_1", "encrypted_content": "c2VhbGVk",
            "summary": [{"type": "summary_text", "text": "Oil first."}]}})
    );
    assert_eq!(
        answer["content"][2]["argumentsText"],
        "{\"cmd\": \"oil\",\"n\":1.50}"
    );
    assert_eq!(answer["content"][3]["arguments"], "*** Begin Patch\n+oil");
    assert_eq!(
        (&answer["model"], &answer["provider"]),
        (&json!("beam-5"), &json!("openai"))
    );
    // Counts that are repeated belong to one call.
    assert_eq!(recorded.json_of(5)["usage"]["input"], 110);
    let search = &recorded.json_of(5)["content"][0];
    assert_eq!(
        (&search["name"], &search["arguments"]),
        (
            &json!("web_search"),
            &json!({"type": "search", "query": "oil"})
        )
    );
    assert_eq!(recorded.json_of(1)["content"][1]["mimeType"], "image/png");
}

#[test]
fn a_search_that_the_provider_carried_out_goes_back_to_it_alone_and_awaits_no_result() {
    let answer: AgentMessage = serde_json::from_value(lighthouse().json_of(5)).unwrap();
    let messages = [Message::user("Is there oil?").into(), answer];
    let request = ProviderRequest::new(Form::OpenAiResponses, &messages);
    let written = serde_json::to_value(&request).unwrap();
    let search = &written["input"][1];
    assert_eq!(search["type"], "web_search_call");
    assert_eq!(search["action"], json!({"type": "search", "query": "oil"}));
    assert!(request.mended.is_empty(), "{:?}", request.mended);
    for form in [Form::OpenAiChat, Form::Anthropic] {
        let request = ProviderRequest::new(form, &messages);
        let text = serde_json::to_string(&request).unwrap();
        assert!(
            !text.contains("search") && !text.contains("no result"),
            "{text}"
        );
        let of_other = MendingKind::ForeignDropped;
        assert!(
            request.mended.iter().any(|m| m.kind == of_other),
            "{:?}",
            request.mended
        );
    }
}

#[test]
fn the_context_is_what_the_compaction_left_and_what_came_after() {
    let store = store();
    for (name, session, expected) in [
        (
            "lighthouse",
            "0199aaaa-0000-7000-8000-000000000001",
            vec!["Light the lamp", "", "Fog?", "None."],
        ),
        (
            "spawned",
            "spawned-1",
            // After a record with only a summary, the prompts stay.
            vec![
                "Count the steps",
                "The tower has 199 steps.",
                "And windows?",
                "s2",
            ],
        ),
    ] {
        let path = format!("../../tests/fixtures/codex/{name}.jsonl");
        let bytes = std::fs::read(&path).unwrap();
        import(&store, importer("codex"), &path, &bytes).unwrap();
        assert_eq!(shown_to(&store, session, Some(OpenAi)), expected, "{name}");
    }
    // A part that only the provider can read is shown to no other: they get the originals.
    let originals = shown(&store, "0199aaaa-0000-7000-8000-000000000001");
    assert_eq!(originals.len(), 14);
    assert_eq!(originals[10], "Ringing.");
    is_sound(&store, "codex");
}

#[test]
fn turns_that_were_taken_back_are_another_path() {
    let recorded = Recorder::of_fixture("codex", "rolled-back.jsonl");
    assert_eq!(recorded.skips(), [""; 0]);
    assert_snapshot!(recorded.outline(), @r##"
    session rolled-1
      loop r-1 Initial Completed
        - note session_meta
        - note system
        0 user # AGENTS.md instructions for /srv/weir
        - note task_started
        0 user How high is the weir?
        0 assistant  [w1]
        0 toolResult 2.10 <w1 exec>
        1 assistant 2.10 m.
        - note task_complete
        - note task_started
      loop r-2 Default after r-1:1 Completed
        0 user Open it
        0 assistant  [w2]
        0 toolResult opened <w2 exec>
        1 assistant It is open.
        - note task_complete
        - note task_started
      loop r-3 Default after r-2:1 Aborted
        0 user Wider
        0 assistant  [w3]
        0 toolResult no <w3 exec>
        - note turn_aborted
        1 user <turn_aborted>stopped</turn_aborted>
      loop line-25 {Branch:{tag:line-25}} after r-1:1 Completed
        - note thread_rolled_back
        0 user <environment_context>
        - note task_started
        0 user Open it by a hand
        0 assistant  [w4]
        0 toolResult ok <w4 exec>
        1 assistant By a hand.
        - note task_complete
      loop line-34 {Branch:{tag:line-34}} after r-1:1 Aborted
        - note thread_rolled_back
      loop line-35 {Branch:{tag:line-35}} Completed
        - note thread_rolled_back
        0 user # AGENTS.md instructions for /srv/weir
        - note task_started
        0 user Is it raining?
        0 assistant No.
        - note task_complete
    "##);
}

/// Imports the transcript up to a line, and then `more`.
fn rolled(until: &str, more: &[&str]) -> (Recorder, Vec<String>) {
    let text = std::fs::read_to_string("../../tests/fixtures/codex/rolled-back.jsonl").unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    let end = lines.iter().position(|line| line.contains(until));
    lines.truncate(end.unwrap_or(lines.len()));
    lines.extend(more);
    let bytes = lines.join("\n") + "\n";
    let store = store();
    import(&store, importer("codex"), "r.jsonl", bytes.as_bytes()).unwrap();
    is_sound(&store, "rolled back");
    let recorded = Recorder::of("codex", "r.jsonl", bytes.as_bytes());
    (recorded, shown(&store, "rolled-1"))
}

#[test]
fn the_context_is_without_the_turns_that_were_taken_back() {
    let first = ["# AGENTS.md instructions for /srv/weir\n\nOpen it slowly."];
    let gauge = ["How high is the weir?", "w1", "2.10", "2.10 m."];
    let check = |turn: &str, more: &[&str], expected: &[&[&str]]| {
        assert_eq!(rolled(turn, more).1, expected.concat(), "{turn} {more:?}");
    };
    // A rollback works at the end of the file too.
    check(
        "r-4",
        &[],
        &[
            &first,
            &gauge,
            &["<environment_context>\n<cwd>/srv/weir</cwd>\n</environment_context>"],
        ],
    );
    check("\"num_turns\":9", &[], &[&first, &gauge]);
    // If more turns are rolled back than there are, the content before the first prompt stays.
    check("r-5", &[], &[&first]);
    check("r-6", &[], &[&first, &["Is it raining?", "No."]]);
}

#[test]
fn a_rollback_without_a_number_of_turns_is_told_and_takes_nothing_back() {
    let event = |turns: &str| {
        format!(
            r#"{{"timestamp":"2026-04-02T09:00:00.000Z","type":"event_msg","payload":{{"type":"thread_rolled_back","num_turns":{turns}}}}}"#
        )
    };
    for turns in ["null", "-1", "1.5", "\"2\"", "[]"] {
        let (recorded, context) = rolled("r-2", &[&event(turns)]);
        let reason = "how many turns it takes back is not a number";
        assert_eq!(recorded.skips(), [format!("11: {reason}")], "{turns}");
        assert_eq!(context.len(), 5, "{turns}");
    }
    let (recorded, context) = rolled("r-2", &[&event("0")]);
    assert_eq!((recorded.skips().len(), context.len()), (0, 5));
    let (_, context) = rolled("r-2", &[&event("18446744073709551615")]);
    assert_eq!(context.len(), 1);
    let (_, context) = rolled(
        "AGENTS.md",
        &[
            &event("1"),
            r#"{"timestamp":"2026-04-02T09:00:00.000Z","type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"Hello"}]}}"#,
        ],
    );
    assert_eq!(context, ["Hello"]);
}

#[test]
fn a_rollout_that_begins_in_mid_session_is_known_by_its_name() {
    let text = std::fs::read_to_string("../../tests/fixtures/codex/lighthouse.jsonl").unwrap();
    let rest: Vec<&str> = text.lines().skip(11).collect();
    let path = "rollout-2026-03-02T08-00-00-0199aaaa-0000-7000-8000-000000000001.jsonl";
    let recorded = Recorder::of("codex", path, rest.join("\n").as_bytes());
    let outline = recorded.outline();
    let lines: Vec<&str> = outline.lines().take(4).collect();
    assert_eq!(
        lines,
        [
            "session 0199aaaa-0000-7000-8000-000000000001",
            "  loop line-1 Initial Completed",
            "    0 assistant  [c2]",
            "    0 toolResult Chunk ID: 7 <c1  failed>",
        ]
    );
}

/// A rollout as Codex wrote it before September 2025.
const BARE: &str = r#"{"id":"0199aaaa-0000-7000-8000-0000000000b1","timestamp":"2025-08-01T10:00:00.000Z","instructions":null,"git":{"branch":"main"}}
{"record_type":"state"}
{"type":"message","id":null,"role":"user","content":[{"type":"input_text","text":"<environment_context>\n  <cwd>/srv/lamp</cwd>\n</environment_context>"}]}
{"type":"message","id":null,"role":"user","content":[{"type":"input_text","text":"Light the lamp"}]}
{"record_type":"state"}
{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"Oil first."}],"encrypted_content":null}
{"type":"function_call","id":"fc_1","name":"shell","arguments":"{\"command\":[\"oil\"]}","call_id":"c1"}
{"type":"function_call_output","call_id":"c1","output":"{\"output\":\"full\",\"metadata\":{\"exit_code\":1}}"}
{"type":"message","id":"m1","role":"assistant","content":[{"type":"output_text","text":"It burns."}]}
{"type":"message","id":null,"role":"user","content":[{"type":"input_text","text":"Louder"}]}
{"type":"local_shell_call","id":"ls_1","call_id":"c2","status":"completed","action":{"type":"exec","command":["toot"]}}
{"type":"function_call_output","call_id":"c2","output":"toot"}
"#;

#[test]
fn a_rollout_without_envelopes_is_read_as_one_with_them() {
    let recorded = Recorder::of("codex", "r.jsonl", BARE.as_bytes());
    assert_eq!(recorded.skips(), [""; 0]);
    assert_snapshot!(recorded.outline(), @r#"
    session 0199aaaa-0000-7000-8000-0000000000b1
      loop line-4 Initial Completed
        - note session_meta
        - note state
        0 user <environment_context>
        0 user Light the lamp
        - note state
        0 assistant  [c1]
        0 toolResult {"output":"full","metadata":{"exit_code":1}} <c1 shell failed>
        1 assistant It burns.
      loop line-10 Default after line-4:1 Running
        0 user Louder
        0 assistant  [c2]
        0 toolResult toot <c2 local_shell>
    "#);
    let line = |at: usize| BARE.lines().nth(at).unwrap().as_bytes();
    for head in [line(0), line(1), &BARE.as_bytes()[..300]] {
        assert!(importer("codex").detect(std::path::Path::new("r.jsonl"), head));
    }
    // A later version continues the rollout.
    let more = r#"{"timestamp":"2025-10-01T10:00:00.000Z","type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"And the bell"}]}}
{"timestamp":"2025-10-01T10:00:01.000Z","type":"response_item","payload":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Ringing."}]}}
"#;
    let store = store();
    let first = import(&store, importer("codex"), "r.jsonl", BARE.as_bytes()).unwrap();
    let grown = import(
        &store,
        importer("codex"),
        "r.jsonl",
        format!("{BARE}{more}").as_bytes(),
    );
    let grown = grown.unwrap();
    assert_eq!((first.sessions, grown.added_messages), (grown.sessions, 2));
    is_sound(&store, "an older rollout");
}
