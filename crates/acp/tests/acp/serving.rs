//! The store loads, lists and resumes sessions for agents that cannot, and changes nothing for those that can.

use loopstore_acp::ProxyOptions;
use serde_json::{Value, json};

use crate::stage::*;

fn done(id: u32) -> Value {
    result(id, json!({"stopReason": "end_turn"}))
}

fn kinds(updates: &[Value]) -> Vec<&str> {
    let kind = |message: &'_ Value| {
        message["params"]["update"]["sessionUpdate"]
            .as_str()
            .map(str::to_owned)
    };
    updates
        .iter()
        .map(|one| match kind(one).as_deref() {
            Some("user_message_chunk") => "user",
            Some("agent_message_chunk") => "answer",
            Some("tool_call") => "call",
            Some("plan") => "plan",
            _ => "other",
        })
        .collect()
}

/// Records a session `s` in the folder `/w`, with a call and a plan.
fn record(stage: &Stage) {
    let entries = json!([{"content": "Look", "priority": "high", "status": "completed"}]);
    let call = json!({"sessionUpdate": "tool_call", "toolCallId": "c1", "title": "`ls`", "kind": "execute",
        "status": "completed", "rawInput": {"command": "ls"}, "rawOutput": "a.rs",
        "locations": [{"path": "/w/a.rs"}]});
    let steps = [
        vec![initialized(json!({"promptCapabilities": {"image": true}}))],
        vec![result(1, json!({"sessionId": "s"}))],
        vec![
            update("s", json!({"sessionUpdate": "plan", "entries": entries})),
            update("s", call),
            chunk("s", "agent_message_chunk", "One file, a.rs."),
            done(2),
        ],
    ];
    let mut editor = stage.connect(stage.agent(&steps));
    let (hello, new) = initialize("/w".as_ref());
    editor.call(0, "initialize", hello);
    editor.call(1, "session/new", new);
    editor.call(2, "session/prompt", text_prompt("s", "What is here?"));
    assert!(editor.finish().unrecorded.is_empty());
}

#[test]
fn an_agent_without_sessions_is_offered_with_them_and_nothing_else_of_its_answer_changes() {
    let stage = Stage::new();
    let capabilities =
        json!({"promptCapabilities": {"image": true}, "sessionCapabilities": {"close": {}}});
    let own = initialized(capabilities);
    let mut editor = stage.connect(stage.agent(&[vec![own.clone()]]));
    let (mut changed, _) = editor.call(0, "initialize", initialize("/w".as_ref()).0);
    let offered = &mut changed["result"]["agentCapabilities"];
    assert_eq!(offered["loadSession"], true);
    let sessions = json!({"close": {}, "list": {}, "resume": {}});
    assert_eq!(offered["sessionCapabilities"], sessions);
    offered.as_object_mut().unwrap().remove("loadSession");
    offered["sessionCapabilities"] = json!({"close": {}});
    assert_eq!(changed, own);
    editor.finish();
}

#[test]
fn an_agent_that_can_do_all_of_it_and_one_of_another_version_pass_unchanged() {
    let all = json!({"loadSession": true, "sessionCapabilities": {"list": {}, "resume": {}}});
    let later = result(0, json!({"protocolVersion": 2, "capabilities": {}}));
    for own in [initialized(all), later] {
        let stage = Stage::new();
        let own = format!("{own} ").replace(':', " : ");
        let script = format!("read -r a\necho '{own}'\ncat");
        let mut editor = stage.connect(shell(&script));
        editor.send(&request(0, "initialize", initialize("/w".as_ref()).0));
        assert_eq!(editor.line(), format!("{own}\n"));
        let load = format!(
            "{} \n",
            request(1, "session/load", json!({"sessionId": "s"}))
        );
        editor.write(load.as_bytes());
        assert_eq!(editor.line(), load);
        editor.finish();
    }
}

#[test]
fn a_proxy_that_only_records_changes_nothing() {
    let stage = Stage::new();
    let own = initialized(json!({}));
    let options = ProxyOptions {
        record_only: true,
        ..ProxyOptions::default()
    };
    let mut editor = Editor::start(stage.agent(&[vec![own.clone()]]), options, stage.opener());
    assert_eq!(
        editor.call(0, "initialize", initialize("/w".as_ref()).0).0,
        own
    );
    editor.finish();
}

#[test]
fn a_store_that_does_not_open_offers_nothing() {
    let stage = Stage::new();
    let own = initialized(json!({}));
    let agent = stage.agent(&[vec![own.clone()]]);
    let mut editor = Editor::start(
        agent,
        ProxyOptions::default(),
        Box::new(|| Err("no disk".into())),
    );
    assert_eq!(
        editor.call(0, "initialize", initialize("/w".as_ref()).0).0,
        own
    );
    assert_eq!(editor.finish().error.as_deref(), Some("no disk"));
}

#[test]
fn a_stored_session_is_listed_loaded_and_continued_by_an_agent_that_forgets() {
    let stage = Stage::new();
    record(&stage);
    let steps = [
        vec![initialized(json!({}))],
        vec![result(
            "loopstore-1",
            json!({"sessionId": "fresh", "modes": {"currentModeId": "ask", "availableModes": []}}),
        )],
        vec![
            chunk("fresh", "agent_message_chunk", "It is Rust."),
            done(5),
        ],
        vec![done(6)],
    ];
    let mut editor = stage.connect(stage.agent(&steps));
    editor.call(0, "initialize", initialize("/w".as_ref()).0);
    let (listed, _) = editor.call(1, "session/list", json!({"cwd": "/w"}));
    let sessions = listed["result"]["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), 1);
    assert_eq!(
        (&sessions[0]["sessionId"], &sessions[0]["cwd"]),
        (&json!("s"), &json!("/w"))
    );
    assert_eq!(sessions[0]["title"], "What is here?");
    let (listed, _) = editor.call(2, "session/list", json!({"cwd": "/elsewhere"}));
    assert_eq!(listed["result"], json!({"sessions": []}));
    let load = json!({"sessionId": "nobody", "cwd": "/w", "mcpServers": []});
    let (unknown, _) = editor.call(3, "session/load", load);
    assert_eq!(unknown["error"]["code"], -32002);

    let load = json!({"sessionId": "s", "cwd": "/w", "mcpServers": [{"name": "x"}]});
    let (loaded, replay) = editor.call(4, "session/load", load);
    assert_eq!(
        loaded["result"],
        json!({"modes": {"currentModeId": "ask", "availableModes": []}})
    );
    assert_eq!(kinds(&replay), ["user", "plan", "call", "answer"]);
    assert!(replay.iter().all(|one| one["params"]["sessionId"] == "s"));
    let call = &replay[2]["params"]["update"];
    assert_eq!(
        (&call["title"], &call["status"], &call["kind"]),
        (&json!("`ls`"), &json!("completed"), &json!("execute"))
    );
    assert_eq!(call["content"][0]["content"]["text"], "a.rs");

    // The agent's own session gets the conversation once, and the editor sees only the id that it knows.
    let (_, answer) = editor.call(5, "session/prompt", text_prompt("s", "In which language?"));
    assert_eq!(answer[0]["params"]["sessionId"], "s");
    editor.call(6, "session/prompt", text_prompt("s", "Good."));
    let report = editor.finish();
    assert!(report.unrecorded.is_empty(), "{report:?}");
    let received = stage.received();
    let new = &received[1];
    assert_eq!(
        (&new["method"], &new["id"]),
        (&json!("session/new"), &json!("loopstore-1"))
    );
    assert_eq!(
        new["params"],
        json!({"cwd": "/w", "mcpServers": [{"name": "x"}]})
    );
    let prompt = &received[2]["params"];
    assert_eq!(prompt["sessionId"], "fresh");
    let context = prompt["prompt"][0]["text"].as_str().unwrap();
    for part in [
        "What is here?",
        "calls execute {\"command\":\"ls\"}",
        "a.rs",
        "One file, a.rs.",
    ] {
        assert!(context.contains(part), "{part} is not in {context}");
    }
    assert_eq!(prompt["prompt"][1]["text"], "In which language?");
    assert_eq!(received[3]["params"], text_prompt("fresh", "Good."));

    let texts: Vec<String> = stage
        .messages("s")
        .iter()
        .filter_map(|message| message.message())
        .flat_map(|message| message.texts().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    // The conversation that was handed over is not stored a second time.
    assert_eq!(
        texts
            .iter()
            .filter(|text| text.contains("What is here?"))
            .count(),
        1
    );
    assert_eq!(
        texts[texts.len() - 3..],
        ["In which language?", "It is Rust.", "Good."]
    );
    assert!(!stage.store().session("fresh").unwrap().exists().unwrap());
    stage.verify();
}

#[test]
fn a_resumed_session_is_not_replayed_and_an_agents_refusal_is_the_editors() {
    let stage = Stage::new();
    record(&stage);
    let refusal = json!({"code": -32000, "message": "Authentication required"});
    let steps = [
        vec![initialized(json!({}))],
        vec![json!({"jsonrpc": "2.0", "id": "loopstore-1", "error": refusal})],
        vec![result("loopstore-2", json!({"sessionId": "fresh"}))],
    ];
    let mut editor = stage.connect(stage.agent(&steps));
    editor.call(0, "initialize", initialize("/w".as_ref()).0);
    let resume = json!({"sessionId": "s", "cwd": "/w", "mcpServers": []});
    let (refused, _) = editor.call(1, "session/resume", resume.clone());
    assert_eq!(refused["error"], refusal);
    let (resumed, replay) = editor.call(2, "session/resume", resume);
    assert_eq!((&resumed["result"], replay.len()), (&json!({}), 0));
    editor.finish();
}

#[test]
fn an_agent_that_loads_but_does_not_resume_loads_quietly() {
    let stage = Stage::new();
    record(&stage);
    let steps = [
        vec![initialized(json!({"loadSession": true}))],
        vec![
            chunk("s", "user_message_chunk", "What is here?"),
            chunk("other", "agent_message_chunk", "x"),
            result(1, json!({"modes": null})),
            chunk("s", "agent_message_chunk", "y"),
        ],
    ];
    let mut editor = stage.connect(stage.agent(&steps));
    editor.call(0, "initialize", initialize("/w".as_ref()).0);
    let resume = json!({"sessionId": "s", "cwd": "/w", "mcpServers": []});
    let (_, before) = editor.call(1, "session/resume", resume);
    assert_eq!(before, [chunk("other", "agent_message_chunk", "x")]);
    assert_eq!(editor.receive(), chunk("s", "agent_message_chunk", "y"));
    editor.finish();
    assert_eq!(stage.received()[1]["method"], "session/load");
}

#[test]
fn a_long_session_is_handed_over_within_the_limit() {
    let stage = Stage::new();
    let chat = stage.store().session("long").unwrap();
    for number in 0..200 {
        let answer = format!("Answer {number}: {}", "it rains, ".repeat(50));
        chat.append([
            loopstore::Message::user(format!("Question {number}?")),
            loopstore::Message::assistant(answer),
        ])
        .unwrap();
    }
    chat.set_project("/w").unwrap();
    let steps = [
        vec![initialized(json!({}))],
        vec![result("loopstore-1", json!({"sessionId": "fresh"}))],
        vec![done(2)],
    ];
    let options = ProxyOptions {
        max_tokens: 5_000,
        ..ProxyOptions::default()
    };
    let mut editor = Editor::start(stage.agent(&steps), options, stage.opener());
    editor.call(0, "initialize", initialize("/w".as_ref()).0);
    editor.call(
        1,
        "session/load",
        json!({"sessionId": "long", "cwd": "/w", "mcpServers": []}),
    );
    editor.call(2, "session/prompt", text_prompt("long", "And now?"));
    editor.finish();
    let context = stage.received()[2]["params"]["prompt"][0]["text"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(context.len() < 5_000 * 5, "{} bytes", context.len());
    assert!(context.contains("Question 199?"));
    // Nothing was compacted in the store.
    assert_eq!(chat.context().unwrap().messages.len(), 401);
}
