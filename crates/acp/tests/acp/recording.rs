//! A conversation is recorded as sessions, loops, turns and messages, as far as it has come.

use std::process::Command;

use loopstore::model::{AgentMessage, Content, LoopStatus, Message};
use loopstore::{SessionFilter, Store};
use loopstore_acp::{ProxyOptions, Unrecorded};
use serde_json::{Value, json};

use crate::stage::*;

/// Returns a line for each message: its role, turn and text or calls.
fn outline(messages: &[AgentMessage]) -> Vec<String> {
    let line = |message: &AgentMessage| match message {
        AgentMessage::Extension(note) => format!("note {}", note.kind),
        AgentMessage::Llm(llm) => {
            let turn = message.turn_index().unwrap();
            let blocks = llm.message.content().iter().map(|block| match block {
                Content::Text(text) => text.text.clone(),
                Content::Thinking(thinking) => format!("({})", thinking.thinking),
                Content::ToolCall(call) => format!("{}{}", call.name, call.arguments.as_str()),
                Content::Image(_) => "image".to_owned(),
                other => format!("{other:?}"),
            });
            let blocks: Vec<String> = blocks.collect();
            format!("{turn} {} {}", message.role().as_str(), blocks.join(" "))
        }
    };
    messages.iter().map(line).collect()
}

fn new_session(session: &str) -> Vec<Value> {
    vec![result(
        1,
        json!({"sessionId": session, "models": {"currentModelId": "m-1"}}),
    )]
}

fn done(id: u32, reason: &str) -> Value {
    result(id, json!({"stopReason": reason}))
}

fn tool_call(session: &str, id: &str, title: &str, input: Value) -> Value {
    let call = json!({"sessionUpdate": "tool_call", "toolCallId": id, "title": title,
        "kind": "execute", "status": "pending", "rawInput": input});
    update(session, call)
}

fn tool_result(session: &str, id: &str, status: &str, text: &str) -> Value {
    let content = json!([{"type": "content", "content": {"type": "text", "text": text}}]);
    let call = json!({"sessionUpdate": "tool_call_update", "toolCallId": id, "status": status, "content": content});
    update(session, call)
}

#[test]
fn a_prompt_is_a_loop_whose_answers_calls_results_plans_and_permissions_are_found_again() {
    let stage = Stage::new();
    let entries = json!([{"content": "Look", "priority": "high", "status": "in_progress"}]);
    let ask = json!({"jsonrpc": "2.0", "id": 7, "method": "session/request_permission", "params": {
        "sessionId": "s", "toolCall": {"toolCallId": "c2"},
        "options": [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}]}});
    let usage = json!({"sessionUpdate": "usage_update", "used": 900, "size": 1000});
    let steps = [
        vec![initialized(json!({"loadSession": true}))],
        new_session("s"),
        vec![
            chunk("s", "agent_thought_chunk", "Where "),
            chunk("s", "agent_thought_chunk", "is it?"),
            chunk("s", "agent_message_chunk", "I lo"),
            chunk("s", "agent_message_chunk", "ok."),
            update("s", json!({"sessionUpdate": "plan", "entries": entries})),
            tool_call("s", "c1", "`ls`", json!({"command": "ls"})),
            tool_result("s", "c1", "completed", "weather.txt"),
            tool_call(
                "s",
                "c2",
                "`rm weather.txt`",
                json!({"command": "rm weather.txt"}),
            ),
            ask,
        ],
        vec![
            tool_result("s", "c2", "failed", "not allowed"),
            update("s", usage),
            update(
                "s",
                json!({"sessionUpdate": "session_info_update", "title": "The weather"}),
            ),
            chunk("s", "agent_message_chunk", "It stays."),
            result(
                2,
                json!({"stopReason": "end_turn", "usage": {"totalTokens": 12, "inputTokens": 9, "outputTokens": 3}}),
            ),
        ],
        vec![
            chunk("s", "agent_message_chunk", "Gladly."),
            done(3, "max_tokens"),
        ],
    ];
    let mut editor = stage.connect(stage.agent(&steps));
    let (hello, new) = initialize(&stage.path("garden"));
    editor.call(0, "initialize", hello);
    editor.call(1, "session/new", new);
    editor.send(&request(
        2,
        "session/prompt",
        text_prompt("s", "Clean up the garden."),
    ));
    while editor.receive()["id"] != 7 {}
    let outcome = json!({"outcome": {"outcome": "selected", "optionId": "yes"}});
    editor.send(&result(7, outcome));
    while editor.receive()["id"] != 2 {}
    editor.call(3, "session/prompt", text_prompt("s", "Thank you."));
    let report = editor.finish();
    assert_eq!((report.prompts, report.unrecorded), (2, Vec::new()));

    let messages = stage.messages("s");
    assert_eq!(
        outline(&messages),
        [
            "0 user Clean up the garden.",
            &format!(
                "0 assistant (Where is it?) I look. update_plan{{\"entries\":{entries}}} execute{{\"command\":\"ls\"}}"
            ),
            "0 toolResult Plan updated",
            "0 toolResult weather.txt",
            "1 assistant execute{\"command\":\"rm weather.txt\"}",
            "note acp.permission",
            "1 toolResult not allowed",
            "2 assistant It stays.",
            "note acp.usage",
            "0 user Thank you.",
            "0 assistant Gladly.",
        ]
    );
    let store = stage.store();
    let session = store.session("s").unwrap().load().unwrap();
    let loops = &session.loops;
    assert_eq!(loops.len(), 2);
    assert!(loops.iter().all(|one| one.status == LoopStatus::Completed));
    assert_eq!(loops[1].parent_loop_id, Some(loops[0].loop_id.clone()));
    assert_eq!(loops[0].usage.as_ref().unwrap().input.get(), 9);
    let listed = &store.sessions(&SessionFilter::default()).unwrap()[0];
    assert_eq!(listed.title.as_deref(), Some("The weather"));
    assert_eq!(listed.project.as_deref(), stage.path("garden").to_str());
    assert_eq!(listed.agent_id.as_deref(), Some("scripted"));
    assert_eq!(
        store.search("weather.txt").unwrap().hits[0].session_id,
        session.session_id
    );
    let answer = messages.last().unwrap().message().unwrap();
    assert!(matches!(answer, Message::Assistant(answer)
        if answer.stop_reason.as_deref() == Some("length") && answer.model.as_deref() == Some("m-1")));
    let AgentMessage::Extension(permission) = &messages[5] else {
        panic!()
    };
    assert_eq!(
        permission.data.read::<Value>().unwrap()["kind"],
        "allow_once"
    );
    stage.verify();
}

#[test]
fn an_agent_that_is_killed_leaves_all_that_was_complete_in_an_aborted_loop() {
    let stage = Stage::new();
    let steps = [
        new_session("s"),
        vec![
            chunk("s", "agent_message_chunk", "I look."),
            tool_call("s", "c1", "`ls`", json!({"command": "ls"})),
            tool_result("s", "c1", "completed", "a.rs"),
            chunk("s", "agent_message_chunk", "I see"),
        ],
    ];
    let script = stage.agent(&steps);
    let script = format!(
        "{} kill -9 $$",
        script.get_args().nth(1).unwrap().to_str().unwrap()
    );
    let mut editor = stage.connect(shell(&script));
    editor.call(1, "session/new", json!({"cwd": "/w", "mcpServers": []}));
    editor.send(&request(2, "session/prompt", text_prompt("s", "Look.")));
    editor.finish();
    assert_eq!(
        outline(&stage.messages("s")),
        [
            "0 user Look.",
            "0 assistant I look. execute{\"command\":\"ls\"}",
            "0 toolResult a.rs",
            "1 assistant I see",
        ]
    );
    let session = stage.store().session("s").unwrap().load().unwrap();
    assert_eq!(session.loops[0].status, LoopStatus::Aborted);
    stage.verify();
}

#[test]
fn the_prompt_and_a_complete_answer_are_stored_while_their_tool_runs() {
    let stage = Stage::new();
    let mut steps = vec![new_session("s")];
    steps.push(vec![
        chunk("s", "agent_message_chunk", "I look."),
        tool_call("s", "c1", "`sleep`", json!({"command": "sleep"})),
    ]);
    steps.push(vec![done(2, "end_turn")]);
    let mut editor = stage.connect(stage.agent(&steps));
    editor.call(1, "session/new", json!({"cwd": "/w", "mcpServers": []}));
    editor.send(&request(2, "session/prompt", text_prompt("s", "Look.")));
    editor.receive();
    let store = stage.store();
    while messages(&store, "s").len() < 2 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let found = outline(&messages(&store, "s"));
    assert_eq!(
        found[1],
        "0 assistant I look. execute{\"command\":\"sleep\"}"
    );
    editor.finish();
}

#[test]
fn a_session_with_a_known_id_that_the_agent_begins_anew_is_another_session() {
    let stage = Stage::new();
    for text in ["First.", "Second."] {
        let steps = [new_session("1"), vec![done(2, "end_turn")]];
        let mut editor = stage.connect(stage.agent(&steps));
        editor.call(1, "session/new", json!({"cwd": "/w", "mcpServers": []}));
        editor.call(2, "session/prompt", text_prompt("1", text));
        editor.finish();
    }
    assert_eq!(outline(&stage.messages("1")), ["0 user First."]);
    assert_eq!(outline(&stage.messages("1-2")), ["0 user Second."]);
}

#[test]
fn a_session_that_the_agent_loads_itself_is_continued_and_its_replay_is_not_recorded_twice() {
    let stage = Stage::new();
    let steps = [
        new_session("s"),
        vec![
            chunk("s", "agent_message_chunk", "Yes."),
            done(2, "end_turn"),
        ],
    ];
    let mut editor = stage.connect(stage.agent(&steps));
    editor.call(1, "session/new", json!({"cwd": "/w", "mcpServers": []}));
    editor.call(2, "session/prompt", text_prompt("s", "Rain?"));
    editor.finish();
    let steps = [
        vec![
            chunk("s", "user_message_chunk", "Rain?"),
            chunk("s", "agent_message_chunk", "Yes."),
            result(1, json!({})),
        ],
        vec![
            chunk("s", "agent_message_chunk", "No."),
            done(2, "end_turn"),
        ],
    ];
    let mut editor = stage.connect(stage.agent(&steps));
    editor.call(
        1,
        "session/load",
        json!({"sessionId": "s", "cwd": "/w", "mcpServers": []}),
    );
    editor.call(2, "session/prompt", text_prompt("s", "Snow?"));
    let report = editor.finish();
    assert_eq!(
        outline(&stage.messages("s")),
        [
            "0 user Rain?",
            "0 assistant Yes.",
            "0 user Snow?",
            "note acp.unrecorded",
            "0 assistant No."
        ]
    );
    let counts: Vec<_> = report
        .unrecorded
        .iter()
        .map(|one| (one.reason, one.count))
        .collect();
    assert_eq!(counts, [(Unrecorded::Repeated, 2)]);
}

#[test]
fn what_cannot_be_recorded_is_counted_and_the_next_message_is_recorded() {
    let stage = Stage::new();
    let mut agent = String::from("IFS= read -r line\nprintf 'Starting up\\n[1]\\n'\n");
    agent += &format!("printf '%s\\n' '{}'\n", new_session("s")[0]);
    agent += "IFS= read -r line\n";
    let lines = [
        json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s"}}),
        json!({"jsonrpc": "2.0", "method": "_vendor/thing"}),
        update("s", json!({"sessionUpdate": "a_later_kind", "x": 1})),
        chunk("other", "agent_message_chunk", "Nobody asked."),
        tool_result("s", "c1", "completed", "ok"),
        tool_result("s", "c1", "failed", "late"),
        done(2, "refusal"),
    ];
    for line in lines {
        agent += &format!("printf '%s\\n' '{line}'\n");
    }
    let mut editor = stage.connect(shell(&agent));
    editor.send(&request(
        1,
        "session/new",
        json!({"cwd": "/w", "mcpServers": []}),
    ));
    assert_eq!([editor.line(), editor.line()], ["Starting up\n", "[1]\n"]);
    // An editor knows the session before it prompts.
    assert!(editor.line().contains("\"id\":1"));
    editor.call(2, "session/prompt", text_prompt("s", "Go."));
    let report = editor.finish();
    let counts: Vec<_> = report
        .unrecorded
        .iter()
        .map(|one| (one.reason, one.count))
        .collect();
    assert_eq!(
        counts,
        [
            (Unrecorded::NotJson, 2),
            (Unrecorded::UnknownMethod, 1),
            (Unrecorded::Malformed, 1),
            (Unrecorded::OutsidePrompt, 1),
            (Unrecorded::LateUpdate, 1),
        ]
    );
    assert_eq!(
        outline(&stage.messages("s")),
        [
            "0 user Go.",
            "note acp.update",
            "0 assistant tool{\"title\":\"\"}",
            "0 toolResult ok",
            "note acp.unrecorded",
        ]
    );
}

#[test]
fn a_failed_prompt_is_recorded_with_its_error_and_secrets_are_replaced_if_asked() {
    let stage = Stage::new();
    let error =
        json!({"jsonrpc": "2.0", "id": 2, "error": {"code": -32603, "message": "overloaded"}});
    let steps = [new_session("s"), vec![error]];
    let options = ProxyOptions {
        redact: true,
        ..ProxyOptions::default()
    };
    let mut editor = Editor::start(stage.agent(&steps), options, stage.opener());
    editor.call(1, "session/new", json!({"cwd": "/w", "mcpServers": []}));
    let key = format!("ghp_{}", "Ab1Cd2Ef3Gh4Ij5Kl6Mn7Op8Qr9St0Uv1Wx2");
    editor.call(
        2,
        "session/prompt",
        text_prompt("s", &format!("My key is {key}.")),
    );
    editor.finish();
    let messages = stage.messages("s");
    assert!(!outline(&messages)[0].contains(&key), "{messages:?}");
    assert!(
        matches!(messages[1].message(), Some(Message::Assistant(answer))
        if answer.error_message.as_deref() == Some("overloaded"))
    );
    // The agent got the key.
    assert!(stage.received()[1].to_string().contains(&key));
}

#[test]
fn two_sessions_of_a_connection_are_kept_apart() {
    let stage = Stage::new();
    let new = |id: u32, session: &str| vec![result(id, json!({"sessionId": session}))];
    let steps = [
        new(1, "a"),
        new(2, "b"),
        vec![chunk("a", "agent_message_chunk", "A1")],
        vec![
            chunk("b", "agent_message_chunk", "B1"),
            chunk("a", "agent_message_chunk", "A2"),
            done(4, "end_turn"),
            done(3, "cancelled"),
        ],
    ];
    let mut editor = stage.connect(stage.agent(&steps));
    editor.call(1, "session/new", json!({"cwd": "/a", "mcpServers": []}));
    editor.call(2, "session/new", json!({"cwd": "/b", "mcpServers": []}));
    editor.send(&request(3, "session/prompt", text_prompt("a", "To a")));
    editor.receive();
    editor.call(4, "session/prompt", text_prompt("b", "To b"));
    editor.finish();
    assert_eq!(
        outline(&stage.messages("a")),
        ["0 user To a", "0 assistant A1A2"]
    );
    assert_eq!(
        outline(&stage.messages("b")),
        ["0 user To b", "0 assistant B1"]
    );
    let status = |id: &str| {
        stage.store().session(id).unwrap().load().unwrap().loops[0]
            .status
            .clone()
    };
    assert_eq!(status("a"), LoopStatus::Aborted);
    assert_eq!(status("b"), LoopStatus::Completed);
}

#[test]
fn an_agent_that_speaks_no_protocol_leaves_no_session() {
    let stage = Stage::new();
    let mut editor = stage.connect(Command::new("cat"));
    editor.write(b"hello\n");
    assert_eq!(editor.line(), "hello\n");
    editor.finish();
    let store: Store = stage.store();
    assert!(
        store
            .sessions(&SessionFilter::default())
            .unwrap()
            .is_empty()
    );
}
