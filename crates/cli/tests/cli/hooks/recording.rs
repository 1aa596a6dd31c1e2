//! The messages that hooks record, and the output that agents get.

use std::io::Write;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::commands::stage::Stage;

use super::{call, claude_code, event, logged, opencode, pi, stage, stored, transcript};

#[test]
fn a_turn_is_recorded_when_the_agent_stops_and_the_next_one_is_added() {
    let stage = stage();
    let path = stage.path("s1.jsonl");
    std::fs::write(&path, claude_code("s1", 0..3, "please")).unwrap();
    let stop = event(&path, "s1", "Stop").to_string();
    let said = call(&stage, "claude-code", "Stop", stop.as_bytes());
    assert_eq!(said.out, "");
    assert_eq!(stored(&stage, "s1"), 9);
    assert_eq!(logged(&stage)["added_messages"], 9);
    let mut file = std::fs::File::options().append(true).open(&path).unwrap();
    file.write_all(claude_code("s1", 3..4, "please").as_bytes())
        .unwrap();
    // The writer has not finished the last line.
    file.write_all(b"{\"parentUuid\":\"u11\",\"isSide").unwrap();
    call(&stage, "claude-code", "Stop", stop.as_bytes());
    assert_eq!(
        (stored(&stage, "s1"), &logged(&stage)["added_messages"]),
        (12, &json!(3))
    );
    assert_eq!(logged(&stage)["failure"], Value::Null);
    assert_eq!(stage.say("verify").code, 0);
}

#[test]
fn the_working_state_comes_back_after_claude_code_and_codex_compacted() {
    for agent in ["claude-code", "codex"] {
        let stage = stage();
        let (session, path) = match agent {
            "codex" => {
                let id = "0199aaaa-0000-7000-8000-000000000001";
                (
                    id,
                    transcript(&stage, "codex/lighthouse.jsonl", "rollout-1.jsonl"),
                )
            }
            _ => {
                let path = stage.path("s1.jsonl");
                std::fs::write(&path, claude_code("s1", 0..30, "please")).unwrap();
                ("s1", path)
            }
        };
        let mut input = event(&path, session, "SessionStart");
        for source in ["startup", "resume", "clear"] {
            input["source"] = json!(source);
            let said = call(&stage, agent, "SessionStart", input.to_string().as_bytes());
            assert_eq!(said.out, "", "{agent} {source}");
        }
        input["source"] = json!("compact");
        let said = call(&stage, agent, "SessionStart", input.to_string().as_bytes());
        assert_eq!(logged(&stage)["failure"], Value::Null);
        let output = &said.json()["hookSpecificOutput"];
        assert_eq!(output["hookEventName"], "SessionStart");
        let text = output["additionalContext"].as_str().unwrap();
        assert!(text.contains("[Working state"), "{text}");
        if agent == "claude-code" {
            assert!(
                text.contains("src/part2") && text.contains("just compacted"),
                "{text}"
            );
        }
        // 1,000 tokens, as the default counter estimates them.
        assert!(text.len() <= 4_000, "{}", text.len());
    }
}

/// Returns a compaction as Claude Code writes it: a boundary, and the summary after it.
fn compacted(at: usize, summary: &str) -> String {
    let boundary = json!({"parentUuid": null, "logicalParentUuid": format!("u{at}"), "isSidechain": false,
        "type": "system", "subtype": "compact_boundary", "content": "Conversation compacted",
        "cwd": "/work", "sessionId": "s1", "version": "2.1.300", "level": "info", "uuid": "b1",
        "compactMetadata": {"trigger": "auto", "preTokens": 155_000},
        "timestamp": "2026-03-01T12:00:00.000Z"});
    let said = json!({"parentUuid": "b1", "isSidechain": false, "cwd": "/work", "sessionId": "s1",
        "version": "2.1.300", "type": "user", "isCompactSummary": true,
        "isVisibleInTranscriptOnly": true, "message": {"role": "user", "content": summary},
        "uuid": "c1", "timestamp": "2026-03-01T12:00:01.000Z"});
    format!("{boundary}\n{said}\n")
}

#[test]
fn what_the_newest_summary_says_is_not_handed_back_and_an_older_one_does_not_count() {
    let stage = stage();
    let path = stage.path("s1.jsonl");
    let mut input = event(&path, "s1", "SessionStart");
    input["source"] = json!("compact");
    let handed_back = |transcript: &str| {
        std::fs::write(&path, transcript).unwrap();
        let said = call(
            &stage,
            "claude-code",
            "SessionStart",
            input.to_string().as_bytes(),
        );
        assert_eq!(logged(&stage)["failure"], Value::Null);
        let text = &said.json()["hookSpecificOutput"]["additionalContext"];
        text.as_str().unwrap().to_owned()
    };
    let work = claude_code("s1", 0..30, "please");
    let summary = compacted(
        89,
        "This session is continued. The file /work/src/part29.rs was changed last.",
    );
    let back = handed_back(&(work.clone() + &summary));
    assert!(
        !back.contains("part29") && back.contains("part28"),
        "{back}"
    );
    assert!(back.contains("what the summary leaves out"), "{back}");
    // The agent continues and compacts again: the summary that it now has is not in its transcript yet.
    let later = claude_code("s1", 30..45, "please").replacen("\"u89\"", "\"c1\"", 1);
    let back = handed_back(&(work + &summary + &later));
    assert!(back.contains("part44") && back.contains("part29"), "{back}");
}

#[test]
fn pi_gets_the_working_state_for_its_compaction() {
    let stage = stage();
    let path = stage.path("p1.jsonl");
    std::fs::write(&path, pi("p1", 30)).unwrap();
    let input = event(&path, "p1", "agent_end").to_string();
    assert_eq!(call(&stage, "pi", "agent_end", input.as_bytes()).out, "");
    // The facts about the session in the input are stored too.
    assert_eq!(stored(&stage, "p1"), 61);
    let said = call(&stage, "pi", "session_before_compact", input.as_bytes());
    assert_eq!(logged(&stage)["failure"], Value::Null);
    let text = said.json()["summary"].as_str().unwrap().to_owned();
    assert!(
        text.starts_with("[Working state") && text.contains("/srv/part20.rs"),
        "{text}"
    );
    assert!(text.len() <= 16_000, "{}", text.len());
    // pi sends the same again at its end; a session without a file has nothing to record.
    let none = json!({"session_id": "p2"}).to_string();
    call(&stage, "pi", "session_shutdown", none.as_bytes());
    assert_eq!(logged(&stage)["failure"], Value::Null);
}

#[test]
fn opencode_gets_the_working_state_for_its_compaction() {
    let stage = stage();
    let export = opencode("ses_1", 30).to_string();
    let said = call(&stage, "opencode", "session.idle", export.as_bytes());
    assert_eq!(said.out, "");
    assert_eq!(stored(&stage, "ses_1"), 60);
    let event = "experimental.session.compacting";
    let said = call(&stage, "opencode", event, export.as_bytes());
    assert_eq!(logged(&stage)["failure"], Value::Null);
    let text = said.json()["context"].as_str().unwrap().to_owned();
    assert!(
        text.starts_with("[Working state") && text.contains("/srv/part20.rs"),
        "{text}"
    );
}

#[test]
fn a_session_with_little_in_it_is_left_to_the_agent() {
    let stage = stage();
    let path = stage.path("p1.jsonl");
    std::fs::write(&path, pi("p1", 3)).unwrap();
    let input = event(&path, "p1", "session_before_compact").to_string();
    let said = call(&stage, "pi", "session_before_compact", input.as_bytes());
    assert_eq!((&*said.out, &logged(&stage)["failure"]), ("", &Value::Null));
    assert!(stored(&stage, "p1") > 5);
}

#[test]
fn codex_names_a_session_and_its_transcript_is_found() {
    let stage = stage();
    let day = stage.path("home/.codex/sessions/2026/03/02");
    std::fs::create_dir_all(&day).unwrap();
    let id = "0199aaaa-0000-7000-8000-000000000001";
    let name = format!("home/.codex/sessions/2026/03/02/rollout-2026-03-02T08-00-00-{id}.jsonl");
    transcript(&stage, "codex/lighthouse.jsonl", &name);
    let notice =
        json!({"type": "agent-turn-complete", "thread-id": id, "turn-id": "1"}).to_string();
    let said = stage.run(&["hook", "codex", "notify", &notice]);
    assert_eq!((said.code, &*said.out), (0, ""));
    assert_eq!(logged(&stage)["failure"], Value::Null);
    assert!(stored(&stage, id) > 5);
}

/// Waits until another process, which no hook waits for, has stored this number of messages.
pub(super) fn wait_for(stage: &Stage, session: &str, messages: u64) {
    let begun = Instant::now();
    while stored(stage, session) < messages {
        assert!(
            begun.elapsed() < Duration::from_secs(100),
            "{}",
            stored(stage, session)
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(stored(stage, session), messages);
}

#[test]
fn a_large_transcript_is_recorded_without_the_agent_waiting_for_it() {
    let stage = stage();
    let path = stage.path("s1.jsonl");
    std::fs::write(&path, claude_code("s1", 0..300, &"word ".repeat(2_000))).unwrap();
    let stop = event(&path, "s1", "Stop").to_string();
    // Several hooks at once record each message exactly once.
    for _ in 0..3 {
        call(&stage, "claude-code", "Stop", stop.as_bytes());
    }
    wait_for(&stage, "s1", 900);
}

#[test]
fn of_a_large_transcript_that_grew_only_the_end_is_read() {
    let stage = stage();
    let path = stage.path("s1.jsonl");
    std::fs::write(&path, claude_code("s1", 0..300, &"word ".repeat(2_000))).unwrap();
    assert_eq!(stage.say("import s1.jsonl").code, 0);
    let mut file = std::fs::File::options().append(true).open(&path).unwrap();
    file.write_all(claude_code("s1", 300..301, "please").as_bytes())
        .unwrap();
    let stop = event(&path, "s1", "Stop").to_string();
    call(&stage, "claude-code", "Stop", stop.as_bytes());
    // The hook itself recorded the messages, not another process.
    assert_eq!(logged(&stage)["added_messages"], 3);
    assert_eq!(stored(&stage, "s1"), 903);
    assert!(!stage.path("home/.local/state/loopstore/recording").exists());
    // At its end, a session is read whole again, and its file is stored.
    let end = event(&path, "s1", "SessionEnd").to_string();
    call(&stage, "claude-code", "SessionEnd", end.as_bytes());
    let begun = Instant::now();
    let original = stage.path("original.jsonl");
    loop {
        let _ = std::fs::remove_file(&original);
        stage.say("export s1 --format original -o original.jsonl");
        if std::fs::read(&original).unwrap_or_default() == std::fs::read(&path).unwrap() {
            break;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(100),
            "the file is not kept"
        );
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(stored(&stage, "s1"), 903);
    assert_eq!(stage.say("verify").code, 0);
}
