//! OpenAI chats: lists of runs, lists of messages, lines, and invalid records.

use crate::support::recording::{
    Recording, import, import_file, import_fixture, real_transcripts, try_import,
};
use loopstore::{
    AgentMessage, Content, ContinuationKind, Json, LoopStatus, Message, Role, ToolCall,
};
use loopstore_transcripts::{Identity, ImportError, Importer, OpenAiChat};
use std::path::Path;

fn calls(message: &AgentMessage) -> Vec<&ToolCall> {
    message
        .message()
        .map(|message| message.tool_calls().collect())
        .unwrap_or_default()
}

fn extra(message: &AgentMessage, key: &str) -> Option<String> {
    message
        .clone()
        .extra_mut()
        .get(key)
        .map(|json| json.as_str().to_owned())
}

fn texts(message: &AgentMessage) -> Vec<&str> {
    message
        .message()
        .map(|message| message.texts().collect())
        .unwrap_or_default()
}

fn json(text: &str) -> Option<Json> {
    Json::parse(text).ok()
}

#[test]
fn runs_become_sessions_and_prompts_loops() {
    let found = import_fixture(&OpenAiChat, "openai-chat/runs.json");
    assert_eq!(found.reasons(), "");
    let keys: Vec<_> = found
        .sessions
        .iter()
        .map(|s| s.head.identity.clone())
        .collect();
    assert_eq!(
        keys,
        [Identity::Key("7/2".into()), Identity::Key("7/3".into())]
    );
    let first = &found.sessions[0];
    let session = &first.head.session;
    assert_eq!(session.extra.get("reward").map(Json::as_str), Some("0.50"));
    assert_eq!(
        session.extra.get("info").map(Json::as_str),
        Some(r#"{"task":{"user_id":"mia"}}"#)
    );
    assert_eq!(
        (session.extra.get("traj"), session.created_at.clone()),
        (None, None)
    );
    assert_eq!(first.loop_ids(), ["loop-0", "loop-1"]);
    assert_eq!(first.loops[0].turns(), ["uatt", "at", "a"]);
    assert_eq!(first.loops[1].turns(), ["u"]);
    let (one, two) = (&first.loops[0].record, &first.loops[1].record);
    assert_eq!((&one.parent_loop_id, &one.started_at), (&None, &None));
    assert_eq!(one.continuation_kind, Some(ContinuationKind::Initial));
    assert_eq!(one.status, LoopStatus::Completed);
    assert_eq!(two.parent_loop_id.as_ref(), Some(&one.loop_id));
    assert_eq!(two.continuation_kind, Some(ContinuationKind::Default));
    assert_eq!(two.status, LoopStatus::Running);
    assert_eq!(
        found.sessions[1].loops[0].record.status,
        LoopStatus::Completed
    );
}

#[test]
fn messages_keep_what_they_were_made_from() {
    let found = import_fixture(&OpenAiChat, "openai-chat/runs.json");
    let messages = &found.sessions[0].loops[0].messages;
    let AgentMessage::Extension(system) = &messages[0] else {
        panic!("{:?}", messages[0])
    };
    assert_eq!(
        (system.kind.as_str(), system.data.as_str()),
        ("system", r#"{"content":"Be brief."}"#)
    );
    assert_eq!(texts(&messages[1]), ["Book a table."]);
    let [a, b] = calls(&messages[2])[..] else {
        panic!("two calls")
    };
    assert_eq!(a.arguments.as_str(), r#"{"city":"Bern","n":1.0}"#);
    assert_eq!(
        a.extra.get("argumentsText"),
        Some(&Json::string(r#"{"city": "Bern", "n": 1.0}"#))
    );
    assert_eq!(
        (b.arguments.as_str(), b.extra.is_empty()),
        (r#"{"city":"Chur"}"#, true)
    );
    let Some(Message::ToolResult(krone)) = messages[4].message() else {
        panic!("a result")
    };
    assert_eq!(
        (krone.tool_call_id.as_str(), krone.tool_name.as_str()),
        ("call_b", "find")
    );
    let [c] = calls(&messages[5])[..] else {
        panic!("one call")
    };
    assert_eq!(c.arguments, Json::string("Krone, please"));
    assert_eq!(
        c.extra.get("argumentsText"),
        Some(&Json::string("Krone, please"))
    );
    assert_eq!(
        extra(&messages[5], "source").as_deref(),
        Some(r#"{"content":"","refusal":null}"#)
    );
    let raw = &found.sessions[0].loops[0].raw;
    assert_eq!(
        raw[3],
        r#"{"role":"tool","tool_call_id":"call_a","name":"find","content":"Zum Bären"}"#
    );
}

#[test]
fn a_message_list_is_one_session_with_parts_and_old_calls() {
    let found = import_fixture(&OpenAiChat, "openai-chat/messages.json");
    assert_eq!(found.reasons(), "");
    let session = &found.sessions[0];
    assert_eq!(session.head.identity, Identity::Key("0".into()));
    assert_eq!(session.loops[0].turns(), ["a"]);
    assert_eq!(session.loops[1].turns(), ["uat", "a"]);
    assert_eq!(session.loops[1].record.status, LoopStatus::Running);
    assert_eq!(
        extra(&session.loops[0].messages[0], "form").as_deref(),
        Some("\"developer\"")
    );
    let [user, old, result, new] = &session.loops[1].messages[..] else {
        panic!("four")
    };
    assert_eq!(extra(user, "source").as_deref(), Some(r#"{"name":"mia"}"#));
    let content = user.message().unwrap().content();
    let Content::Image(image) = &content[1] else {
        panic!("{content:?}")
    };
    assert_eq!(
        (image.data.as_str(), image.mime_type.as_str()),
        ("AAAA", "image/png")
    );
    assert_eq!(image.extra.get("detail"), json("\"low\"").as_ref());
    assert!(matches!(&content[2], Content::Other(part) if part.as_str().contains("example.com")));
    assert!(
        matches!(&content[3], Content::Other(part) if part.as_str() == r#"{"type":"text","text":5}"#)
    );
    let call = calls(old)[0];
    assert_eq!(
        (call.id.as_str(), call.name.as_str()),
        ("function-3", "zoom")
    );
    let Some(Message::ToolResult(found)) = result.message() else {
        panic!("a result")
    };
    assert_eq!(
        (found.tool_call_id.as_str(), found.tool_name.as_str()),
        ("function-3", "zoom")
    );
    assert_eq!(extra(result, "form").as_deref(), Some("\"function\""));
    let call = calls(new)[0];
    assert_eq!(
        (call.id.as_str(), call.arguments.as_str()),
        ("12", r#"{"by":2}"#)
    );
    let rest = |key| call.extra.get(key).map(Json::as_str);
    assert_eq!(rest("source"), Some(r#"{"index":0}"#));
    assert_eq!(rest("function"), Some(r#"{"strict":true}"#));
    let received = r#"{"arguments":"an object","id":"a number"}"#;
    assert_eq!(rest("received"), Some(received));
    let custom = calls(new)[1];
    assert_eq!((custom.id.as_str(), custom.name.as_str()), ("x", "patch"));
    assert_eq!(custom.arguments, Json::string("text"));
    assert_eq!(custom.extra.get("form"), json("\"custom\"").as_ref());
    assert!(matches!(
        &new.message().unwrap().content()[2],
        Content::Other(_)
    ));
}

#[test]
fn lines_documents_and_lists_of_lists_are_read_too() {
    let chat = r#"{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}"#;
    let roles = |found: &Recording| -> Vec<usize> {
        found
            .sessions
            .iter()
            .map(|session| session.messages().count())
            .collect()
    };
    let lines = format!("\u{feff}{chat}\n\n{chat}{chat}\r\n");
    for text in [&lines, chat] {
        assert!(OpenAiChat.detect(Path::new("x"), text.as_bytes()));
    }
    assert_eq!(roles(&import(&OpenAiChat, &lines)), [2, 2, 2]);
    assert_eq!(roles(&import(&OpenAiChat, chat)), [2]);
    let lists = r#"[[{"role":"user","content":"a"}],[{"role":"user","content":"b"}]]"#;
    assert_eq!(roles(&import(&OpenAiChat, lists)), [1, 1]);
    let lines =
        "{\"role\":\"user\",\"content\":\"a\"}\n{\"role\":\"assistant\",\"content\":\"b\"}\n";
    assert_eq!(roles(&import(&OpenAiChat, lines)), [2]);
}

#[test]
fn a_bad_message_or_run_costs_only_itself() {
    let text = r#"[
{"task_id":1,"trial":0,"traj":[{"role":"user","content":"a"},
  {"role":"wizard","content":"b"},{"content":"c"},7,{"role":"user","content":{}},
  {"role":"assistant","content":null,"tool_calls":"none"},
  {"role":"assistant","content":"d"}]},
{"task_id":2,"trial":0,"traj":"none"},
"x", nonsense, {"a":1}, {"traj":[]},
{"task_id":"../../etc'; DROP TABLE messages;--","trial":{},"traj":[{"role":"user","content":"e"}],
 "session_id":9,"scope":[],"loops":1},
{"task_id":3,"tra"#;
    let found = import(&OpenAiChat, text);
    let lines: Vec<_> = found
        .skipped
        .iter()
        .map(|(line, _)| line.unwrap())
        .collect();
    assert_eq!(
        lines,
        [3, 3, 3, 3, 4, 6, 7, 7, 7, 7, 10],
        "{}",
        found.reasons()
    );
    let ids: Vec<_> = found
        .sessions
        .iter()
        .map(|s| s.head.identity.clone())
        .collect();
    assert_eq!(
        ids,
        [Identity::Key("1/0".into()), Identity::Key("2".into())]
    );
    assert_eq!(found.sessions[0].loops[0].turns(), ["ua"]);
    let extra = &found.sessions[1].head.session.extra;
    assert_eq!(
        extra.get("source").map(Json::as_str),
        Some(r#"{"session_id":9,"scope":[],"loops":1}"#)
    );
    let written = serde_json::to_string(&found.sessions[1].head.session).unwrap();
    assert!(serde_json::from_str::<loopstore::Session>(&written).is_ok());
}

#[test]
fn nothing_to_import_is_an_error_that_says_so() {
    let utf16: Vec<u8> = "[{\"role\""
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    let latin1 = b"[{\"traj\":[{\"role\":\"user\",\"content\":\"\xE9\"}]}]".to_vec();
    let deep = "[".repeat(10_000) + &"]".repeat(10_000);
    let deep_object = "{\"a\":".repeat(10_000);
    let deep_message = format!("[{{\"traj\":[{{\"role\":\"user\",\"content\":{deep}}}]}}]");
    let deep_field = format!("[{{\"info\":{deep},\"traj\":[]}}]");
    for bytes in [
        &b""[..],
        b"[]",
        b" \n",
        b"null",
        b"[{\"traj\":[]}]",
        b"\xFF\xFE",
        b"}}]]",
        b"\"",
        b"{\"",
        &utf16,
        deep.as_bytes(),
        deep_object.as_bytes(),
        deep_message.as_bytes(),
        deep_field.as_bytes(),
    ] {
        let (found, end) = try_import(&OpenAiChat, bytes);
        assert!(
            matches!(end, Err(ImportError::NoTranscript(_))),
            "{}",
            found.reasons()
        );
        assert_eq!(found.sessions.len(), 0);
        OpenAiChat.detect(Path::new("x"), bytes);
    }
    // A line that is not UTF-8 affects no other line.
    let (found, end) = try_import(&OpenAiChat, &latin1);
    assert!(end.is_ok() && found.sessions.len() == 1, "{end:?}");
}

#[test]
fn deep_arguments_stay_text() {
    let deep = "[".repeat(10_000) + &"]".repeat(10_000);
    let text = format!(
        r#"[{{"role":"assistant","tool_calls":[{{"id":"a","function":{{"name":"f","arguments":"{{\"a\":{deep}}}"}}}}]}}]"#
    );
    let found = import(&OpenAiChat, &text);
    let message = found.sessions[0].messages().next().unwrap();
    assert_eq!(
        calls(message)[0].arguments,
        Json::string(&format!("{{\"a\":{deep}}}"))
    );
}

#[test]
fn a_late_or_nameless_result_finds_its_call() {
    let call = |id: &str, name: &str| {
        format!(
            r#"{{"role":"assistant","tool_calls":[{{"id":"{id}","function":{{"name":"{name}"}}}}]}}"#
        )
    };
    let text = format!(
        r#"[{},{},{{"role":"tool","tool_call_id":"1","content":"late"}},{{"role":"tool","content":"x"}},{{"role":"tool","content":"none"}}]"#,
        call("1", "f"),
        call("2", "g")
    );
    let found = import(&OpenAiChat, &text);
    assert_eq!(
        found.sessions[0].loops[0].record.status,
        LoopStatus::Completed
    );
    let turns: Vec<_> = found.sessions[0]
        .messages()
        .map(AgentMessage::turn_index)
        .collect();
    assert_eq!(turns, [Some(0), Some(1), Some(0), Some(1), Some(1)]);
    let names: Vec<_> = found.sessions[0]
        .messages()
        .filter_map(|message| match message.message() {
            Some(Message::ToolResult(result)) => {
                Some((result.tool_call_id.as_str(), result.tool_name.as_str()))
            }
            _ => None,
        })
        .collect();
    assert_eq!(names, [("1", "f"), ("2", "g"), ("", "")]);
}

#[test]
fn every_cut_and_every_flipped_byte_ends_without_a_panic() {
    for name in ["runs.json", "messages.json"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/openai-chat");
        let bytes = std::fs::read(folder.join(name)).unwrap();
        for at in 0..bytes.len() {
            let _ = try_import(&OpenAiChat, &bytes[..at]);
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            let (found, end) = try_import(&OpenAiChat, &flipped);
            assert!(end.is_ok() || !found.skipped.is_empty());
            OpenAiChat.detect(Path::new("x"), &flipped);
        }
    }
}

#[test]
fn other_formats_are_not_claimed() {
    for text in [
        r#"{"session_id":"a","agent_id":"b","loops":[{"messages":[{"role":"user"}]}]}"#,
        r#"{"sessionId":"a","projectHash":"b","messages":[{"id":"1","type":"user"}]}"#,
        r#"{"info":{"id":"ses"},"messages":[{"info":{"role":"user"},"parts":[]}]}"#,
        r#"{"type":"user","message":{"role":"user","content":"a"},"sessionId":"s"}"#,
        r#"{"history":[{"role":"user"}],"trajectory":[]}"#,
        r#"{"messages":[{"role":"user","content":"a"}],"kwargs":{}}"#,
    ] {
        assert!(
            !OpenAiChat.detect(Path::new("x"), text.as_bytes()),
            "{text}"
        );
    }
}

#[test]
fn recorded_runs_are_counted_right() {
    let Some(folder) = real_transcripts() else {
        return;
    };
    let found = import_file(
        &OpenAiChat,
        &folder.join("openai-chat/tau-airline-8-runs.json"),
    );
    assert_eq!((found.sessions.len(), found.reasons().as_str()), (8, ""));
    let count = |role| {
        found
            .sessions
            .iter()
            .map(|session| session.count(role))
            .sum::<usize>()
    };
    let counts = [
        Role::Extension,
        Role::User,
        Role::Assistant,
        Role::ToolResult,
    ]
    .map(count);
    assert_eq!(counts, [8, 44, 86, 50]);
    let messages = || found.sessions.iter().flat_map(|session| session.messages());
    assert_eq!(messages().flat_map(calls).count(), 50);
    assert_eq!(
        found
            .sessions
            .iter()
            .map(|session| session.loops.len())
            .sum::<usize>(),
        44
    );
    for call in messages().flat_map(calls) {
        let text = call
            .extra
            .get("argumentsText")
            .map(|text| text.read::<String>().unwrap());
        let text = text.unwrap_or_else(|| call.arguments.as_str().to_owned());
        assert!(
            messages().count() > 0
                && found.sessions.iter().any(|session| {
                    let quoted = serde_json::to_string(&text).unwrap();
                    session
                        .loops
                        .iter()
                        .any(|l| l.raw.iter().any(|raw| raw.contains(&quoted)))
                })
        );
    }
}
