//! Conversations as the files of each format.

use std::path::{Path, PathBuf};

use super::agents;
use rusqlite::{Connection, params};
use serde_json::{Value, json};

/// A message of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum LineContent {
    Prompt(String),
    Answer(String),
    /// An answer with a call.
    Call(String),
    /// The result of the call before it.
    Result(String),
}

impl LineContent {
    pub fn text(&self) -> &str {
        match self {
            Self::Prompt(text) | Self::Answer(text) | Self::Call(text) | Self::Result(text) => text,
        }
    }
}

/// A message with its time, in seconds since the epoch.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    pub content: LineContent,
    pub at: i64,
}

/// A format.
pub struct Form {
    pub format: &'static str,
    /// The path of the file below its folder.
    pub file: &'static str,
    pub has_tools: bool,
    pub has_times: bool,
    /// True if the transcript contains the id of its session.
    pub has_id: bool,
    pub text: fn(&[Line]) -> String,
}

impl Form {
    /// Writes a conversation into a folder and returns the file.
    pub fn write(&self, folder: &Path, lines: &[Line]) -> PathBuf {
        let path = folder.join(self.file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        if self.format == "openai-agents" {
            database(&path, &[("user_1", lines)]);
        } else {
            std::fs::write(&path, (self.text)(lines)).unwrap();
        }
        path
    }
}

pub const ID: &str = "0198aaaa-bbbb-7ccc-8ddd-eeeeffff0001";

pub const FORMS: [Form; 22] = [
    own(
        "claude-code",
        "0198aaaa-bbbb-7ccc-8ddd-eeeeffff0001.jsonl",
        claude_code,
    ),
    own(
        "codex",
        "rollout-2026-01-05T09-00-00-0198aaaa-bbbb-7ccc-8ddd-eeeeffff0001.jsonl",
        codex,
    ),
    own("copilot-cli", "events.jsonl", copilot),
    own("gemini-cli", "session.json", gemini_document),
    own("gemini-cli", "session.jsonl", gemini_lines),
    own("goose", "20260102_1.jsonl", goose),
    own("opencode", "ses_1.json", opencode),
    own("pi", "pi.jsonl", pi),
    own("adk", "adk.json", adk),
    own("atif", "trajectory.json", agents::atif),
    own(
        "qwen-code",
        "0198aaaa-bbbb-7ccc-8ddd-eeeeffff0001.jsonl",
        qwen,
    ),
    own("phi-core", "phi.json", phi_core),
    own("openai-agents", "chats.db", nothing),
    Form {
        has_times: false,
        ..own(
            "cline",
            "tasks/1780000000001/api_conversation_history.json",
            cline,
        )
    },
    keyed("openai-chat", "chat.json", openai_chat),
    keyed("anthropic", "anthropic.json", anthropic),
    Form {
        has_tools: false,
        ..keyed("aider", ".aider.chat.history.md", aider)
    },
    keyed("swe-agent", "run.traj", agents::swe_agent),
    keyed("mini-swe-agent", "run.traj.json", agents::mini_swe_agent),
    Form {
        has_id: false,
        ..own("openhands", "events.jsonl", agents::openhands_events)
    },
    keyed("openhands", "call.json", agents::openhands_log),
    own(
        "roo-code",
        "tasks/0198aaaa-bbbb-7ccc-8ddd-eeeeffff0001/api_conversation_history.json",
        agents::roo_code,
    ),
];

const fn own(format: &'static str, file: &'static str, text: fn(&[Line]) -> String) -> Form {
    Form {
        format,
        file,
        has_tools: true,
        has_times: true,
        has_id: true,
        text,
    }
}

const fn keyed(format: &'static str, file: &'static str, text: fn(&[Line]) -> String) -> Form {
    Form {
        has_times: false,
        has_id: false,
        ..own(format, file, text)
    }
}

fn nothing(_: &[Line]) -> String {
    String::new()
}

pub fn iso(at: i64) -> String {
    let (minutes, seconds) = (at / 60, at % 60);
    format!(
        "2026-01-{:02}T{:02}:{:02}:{seconds:02}.000Z",
        1 + minutes / 1440,
        minutes / 60 % 24,
        minutes % 60
    )
}

pub fn millis(at: i64) -> i64 {
    1_767_225_600_000 + at * 1_000
}

/// Returns the id of a call, derived from its position: two machines have the same ids.
pub fn call_id(nth: usize) -> String {
    format!("call-{nth}")
}

pub fn lines_of(values: impl IntoIterator<Item = Value>) -> String {
    values
        .into_iter()
        .map(|value| format!("{value}\n"))
        .collect()
}

fn claude_code(lines: &[Line]) -> String {
    lines_of(claude_code_records(lines, ID, ""))
}

/// Returns the records of a conversation; the prefix of its ids separates it from others in the same file.
pub fn claude_code_records(lines: &[Line], session: &str, tag: &str) -> Vec<Value> {
    let records = lines.iter().enumerate().map(|(nth, line)| {
        let parent = nth.checked_sub(1).map(|before| format!("{tag}u{before}"));
        let call_id = |nth: usize| format!("{tag}{}", call_id(nth));
        let text = line.content.text();
        let (kind, message) = match &line.content {
            LineContent::Prompt(_) => ("user", json!({"role": "user", "content": text})),
            LineContent::Answer(_) => (
                "assistant",
                json!({"id": format!("{tag}m{nth}"), "role": "assistant",
                "content": [{"type": "text", "text": text}]}),
            ),
            LineContent::Call(_) => (
                "assistant",
                json!({"id": format!("{tag}m{nth}"), "role": "assistant", "content": [
                {"type": "text", "text": text},
                {"type": "tool_use", "id": call_id(nth), "name": "read", "input": {"path": "a"}}]}),
            ),
            LineContent::Result(_) => (
                "user",
                json!({"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": call_id(nth - 1), "content": text}]}),
            ),
        };
        json!({"sessionId": session, "uuid": format!("{tag}u{nth}"), "parentUuid": parent, "type": kind,
            "timestamp": iso(line.at), "message": message, "cwd": "/w", "version": "2.1.0"})
    });
    records.collect()
}

fn codex(lines: &[Line]) -> String {
    let record = |at: i64, kind: &str, payload: Value| json!({"timestamp": iso(at), "type": kind, "payload": payload});
    let meta = record(
        0,
        "session_meta",
        json!({"id": ID, "cwd": "/w", "originator": "codex_cli_rs", "cli_version": "0.140.0"}),
    );
    let mut all = vec![meta];
    for (nth, line) in lines.iter().enumerate() {
        let text = line.content.text();
        let message = |role: &str, kind: &str| {
            record(
                line.at,
                "response_item",
                json!({"type": "message", "role": role, "content": [{"type": kind, "text": text}]}),
            )
        };
        match &line.content {
            LineContent::Prompt(_) => {
                all.push(message("user", "input_text"));
                all.push(record(
                    line.at,
                    "event_msg",
                    json!({"type": "user_message", "message": text}),
                ));
            }
            LineContent::Answer(_) => all.push(message("assistant", "output_text")),
            LineContent::Call(_) => {
                all.push(message("assistant", "output_text"));
                all.push(record(
                    line.at,
                    "response_item",
                    json!({"type": "function_call",
                    "call_id": call_id(nth), "name": "read", "arguments": "{\"path\":\"a\"}"}),
                ));
            }
            LineContent::Result(_) => all.push(record(
                line.at,
                "response_item",
                json!({"type": "function_call_output",
                "call_id": call_id(nth - 1), "output": text}),
            )),
        }
    }
    lines_of(all)
}

fn copilot(lines: &[Line]) -> String {
    let event = |nth: usize, at: i64, kind: &str, data: Value| {
        let parent = nth.checked_sub(1).map(|before| format!("e{before}"));
        json!({"type": kind, "data": data, "id": format!("e{nth}"), "timestamp": iso(at), "parentId": parent})
    };
    let start = json!({"sessionId": "harbour-1", "version": 1, "producer": "copilot-agent",
        "copilotVersion": "1.0.64", "startTime": iso(0), "context": {"cwd": "/w"}});
    let mut all = vec![event(0, 0, "session.start", start)];
    for (nth, line) in lines.iter().enumerate() {
        let text = line.content.text();
        let calls = match &line.content {
            LineContent::Call(_) => {
                json!([{"toolCallId": call_id(nth), "name": "read", "arguments": {"path": "a"}, "type": "function"}])
            }
            _ => json!([]),
        };
        let (kind, data) = match &line.content {
            LineContent::Prompt(_) => (
                "user.message",
                json!({"content": text, "transformedContent": text, "attachments": []}),
            ),
            LineContent::Answer(_) | LineContent::Call(_) => (
                "assistant.message",
                json!({"messageId": format!("m{nth}"),
                "model": "m", "content": text, "toolRequests": calls}),
            ),
            LineContent::Result(_) => (
                "tool.execution_complete",
                json!({"toolCallId": call_id(nth - 1), "success": true,
                "result": {"content": text}}),
            ),
        };
        all.push(event(nth + 1, line.at, kind, data));
    }
    lines_of(all)
}

fn gemini(lines: &[Line]) -> Vec<Value> {
    let mut all = Vec::new();
    for (nth, line) in lines.iter().enumerate() {
        let text = line.content.text();
        let id = format!("m{nth}");
        match &line.content {
            LineContent::Prompt(_) => all.push(json!({"id": id, "timestamp": iso(line.at), "type": "user", "content": [{"text": text}]})),
            LineContent::Answer(_) => all.push(json!({"id": id, "timestamp": iso(line.at), "type": "gemini", "content": text, "thoughts": [], "model": "g"})),
            LineContent::Call(_) => {
                let mut call = json!({"id": call_id(nth), "name": "read", "args": {"path": "a"}, "status": "executing"});
                if let Some(LineContent::Result(output)) = lines.get(nth + 1).map(|line| &line.content) {
                    call["status"] = "success".into();
                    call["result"] = json!([{"functionResponse": {"id": call_id(nth), "name": "read", "response": {"output": output}}}]);
                }
                all.push(json!({"id": id, "timestamp": iso(line.at), "type": "gemini", "content": text, "thoughts": [],
                    "model": "g", "toolCalls": [call]}));
            }
            LineContent::Result(_) => {}
        }
    }
    all
}

fn gemini_head() -> Value {
    json!({"sessionId": "f74e-1", "projectHash": "5ea", "startTime": iso(0), "lastUpdated": iso(0), "kind": "main"})
}

fn gemini_document(lines: &[Line]) -> String {
    let mut document = gemini_head();
    document["messages"] = gemini(lines).into();
    format!("{document:#}")
}

fn gemini_lines(lines: &[Line]) -> String {
    lines_of(std::iter::once(gemini_head()).chain(gemini(lines)))
}

pub fn goose(lines: &[Line]) -> String {
    let head = json!({"working_dir": "/w", "description": "work", "message_count": lines.len()});
    let messages = lines.iter().enumerate().map(|(nth, line)| {
        let text = line.content.text();
        let content = json!({"type": "text", "text": text});
        let (role, content) = match &line.content {
            LineContent::Prompt(_) => ("user", json!([content])),
            LineContent::Answer(_) => ("assistant", json!([content])),
            LineContent::Call(_) => ("assistant", json!([content, {"type": "toolRequest", "id": call_id(nth),
                "toolCall": {"status": "success", "value": {"name": "read", "arguments": {"path": "a"}}}}])),
            LineContent::Result(_) => ("user", json!([{"type": "toolResponse", "id": call_id(nth - 1),
                "toolResult": {"status": "success", "value": [content]}}])),
        };
        json!({"role": role, "created": millis(line.at) / 1_000, "content": content})
    });
    lines_of(std::iter::once(head).chain(messages))
}

pub fn opencode(lines: &[Line]) -> String {
    let mut messages = Vec::new();
    let mut asked = String::new();
    for (nth, line) in lines.iter().enumerate() {
        let id = format!("msg_{nth:03}");
        let text = json!({"type": "text", "text": line.content.text(), "id": format!("prt_{nth:03}a"), "sessionID": "ses_1", "messageID": id});
        let at = millis(line.at);
        let answer = |parts: Value| {
            json!({"info": {"parentID": asked, "role": "assistant", "agent": "build", "modelID": "m",
            "providerID": "p", "time": {"created": at, "completed": at}, "id": id, "sessionID": "ses_1"}, "parts": parts})
        };
        match &line.content {
            LineContent::Prompt(_) => {
                asked = id.clone();
                messages.push(json!({"info": {"role": "user", "time": {"created": at}, "agent": "build", "id": id,
                    "sessionID": "ses_1"}, "parts": [text]}));
            }
            LineContent::Answer(_) => messages.push(answer(json!([text]))),
            LineContent::Call(_) => {
                let state = match lines.get(nth + 1).map(|line| &line.content) {
                    Some(LineContent::Result(output)) => {
                        json!({"status": "completed", "input": {"path": "a"}, "output": output,
                        "title": "a", "metadata": {}, "time": {"start": at, "end": at}})
                    }
                    _ => {
                        json!({"status": "running", "input": {"path": "a"}, "time": {"start": at}})
                    }
                };
                messages.push(answer(json!([text, {"type": "tool", "tool": "read", "callID": call_id(nth), "state": state,
                    "id": format!("prt_{nth:03}b"), "sessionID": "ses_1", "messageID": id}])));
            }
            LineContent::Result(_) => {}
        }
    }
    json!({"info": {"id": "ses_1", "slug": "work", "projectID": "p1", "directory": "/w", "title": "Work",
        "version": "1.14.30", "time": {"created": millis(0), "updated": millis(0)}}, "messages": messages})
    .to_string()
}

fn pi(lines: &[Line]) -> String {
    let head = json!({"type": "session", "version": 3, "id": "garden-1", "timestamp": iso(0), "cwd": "/w"});
    let entries = lines.iter().enumerate().map(|(nth, line)| {
        let text = json!({"type": "text", "text": line.content.text()});
        let message = match &line.content {
            LineContent::Prompt(_) => json!({"role": "user", "content": [text], "timestamp": millis(line.at)}),
            LineContent::Answer(_) => json!({"role": "assistant", "content": [text], "stopReason": "stop", "timestamp": millis(line.at)}),
            LineContent::Call(_) => json!({"role": "assistant", "content": [text, {"type": "toolCall", "id": call_id(nth),
                "name": "read", "arguments": {"path": "a"}}], "stopReason": "toolUse", "timestamp": millis(line.at)}),
            LineContent::Result(_) => json!({"role": "toolResult", "toolCallId": call_id(nth - 1), "toolName": "read",
                "content": [text], "isError": false, "timestamp": millis(line.at)}),
        };
        let parent = nth.checked_sub(1).map(|before| format!("p{before}"));
        json!({"type": "message", "id": format!("p{nth}"), "parentId": parent, "timestamp": iso(line.at), "message": message})
    });
    lines_of(std::iter::once(head).chain(entries))
}

fn adk(lines: &[Line]) -> String {
    let mut turn = 0;
    let events: Vec<Value> = lines.iter().enumerate().map(|(nth, line)| {
        let text = json!({"text": line.content.text()});
        turn += u32::from(matches!(line.content, LineContent::Prompt(_)));
        let (author, role, parts) = match &line.content {
            LineContent::Prompt(_) => ("user", "user", json!([text])),
            LineContent::Answer(_) => ("root", "model", json!([text])),
            LineContent::Call(_) => ("root", "model", json!([text, {"function_call": {"id": call_id(nth), "name": "read", "args": {"path": "a"}}}])),
            LineContent::Result(output) => ("root", "user", json!([{"function_response": {"id": call_id(nth - 1), "name": "read", "response": {"output": output}}}])),
        };
        json!({"id": format!("o{nth}"), "invocation_id": format!("v{turn}"), "author": author,
            "timestamp": millis(line.at) / 1_000, "content": {"role": role, "parts": parts}})
    }).collect();
    json!({"id": "orchard-1", "context": {}, "events": events}).to_string()
}

fn qwen(lines: &[Line]) -> String {
    lines_of(qwen_records(lines, ID, ""))
}

/// Returns the records of a conversation, as [`claude_code_records`] does.
pub fn qwen_records(lines: &[Line], session: &str, tag: &str) -> Vec<Value> {
    let records = lines.iter().enumerate().map(|(nth, line)| {
        let text = json!({"text": line.content.text()});
        let call_id = |nth: usize| format!("{tag}{}", call_id(nth));
        let parent = nth.checked_sub(1).map(|before| format!("{tag}q{before}"));
        let (kind, role, parts) = match &line.content {
            LineContent::Prompt(_) => ("user", "user", json!([text])),
            LineContent::Answer(_) => ("assistant", "model", json!([text])),
            LineContent::Call(_) => ("assistant", "model", json!([text, {"functionCall": {"id": call_id(nth), "name": "read", "args": {"path": "a"}}}])),
            LineContent::Result(output) => ("tool_result", "user", json!([{"functionResponse": {"id": call_id(nth - 1), "name": "read", "response": {"output": output}}}])),
        };
        json!({"uuid": format!("{tag}q{nth}"), "parentUuid": parent, "sessionId": session, "timestamp": iso(line.at),
            "type": kind, "cwd": "/w", "version": "0.24.4", "message": {"role": role, "parts": parts}})
    });
    records.collect()
}

fn phi_core(lines: &[Line]) -> String {
    let mut loops: Vec<Value> = Vec::new();
    let mut turn = 0;
    for (nth, line) in lines.iter().enumerate() {
        if matches!(line.content, LineContent::Prompt(_)) {
            let parent = loops.last().map(|of| of["loop_id"].clone());
            loops.push(json!({"loop_id": format!("s.{}", loops.len()), "parent_loop_id": parent, "status": "Completed", "messages": []}));
            turn = 0;
        }
        let text = json!({"type": "text", "text": line.content.text()});
        let of = loops.last_mut().unwrap();
        let id = of["loop_id"].clone();
        let mut message = match &line.content {
            LineContent::Prompt(_) => json!({"role": "user", "content": [text]}),
            LineContent::Answer(_) => {
                json!({"role": "assistant", "content": [text], "stopReason": "stop"})
            }
            LineContent::Call(_) => {
                json!({"role": "assistant", "content": [text, {"type": "toolCall", "id": call_id(nth), "name": "read",
                "arguments": {"path": "a"}}], "stopReason": "toolUse"})
            }
            LineContent::Result(_) => {
                json!({"role": "toolResult", "toolCallId": call_id(nth - 1), "toolName": "read", "content": [text], "isError": false})
            }
        };
        message["timestamp"] = millis(line.at).into();
        message["turnId"] = json!({"loopId": id, "turnIndex": turn});
        turn += u32::from(matches!(line.content, LineContent::Result(_)));
        of["messages"].as_array_mut().unwrap().push(message);
    }
    json!({"session_id": "s", "agent_id": "a", "created_at": iso(0), "last_active_at": iso(0),
        "formation": {"Explicit": {"timestamp": iso(0)}}, "scope": "persistent", "loops": loops})
    .to_string()
}

/// Writes the conversations of these sessions, whose rows alternate.
pub fn database(path: &Path, sessions: &[(&str, &[Line])]) {
    let _ = std::fs::remove_file(path);
    let connection = Connection::open(path).unwrap();
    connection
        .execute_batch(crate::agents::openai_agents::TABLES)
        .unwrap();
    for (session, _) in sessions {
        let sql = "INSERT INTO agent_sessions VALUES (?1, ?2, ?2)";
        connection
            .execute(sql, params![session, "2026-01-01 00:00:00"])
            .unwrap();
    }
    let items = |(session, lines): &(&str, &[Line])| {
        let items = responses(lines).into_iter();
        items.map(|item| (session.to_string(), item)).collect()
    };
    for (session, (item, at)) in alternating(sessions.iter().map(items).collect()) {
        let at = iso(at).replace('T', " ").replace(".000Z", "");
        let sql =
            "INSERT INTO agent_messages (session_id, message_data, created_at) VALUES (?1, ?2, ?3)";
        connection
            .execute(sql, params![session, item.to_string(), at])
            .unwrap();
    }
}

/// Interleaves the lists: the first of each, then the second of each, and so on.
pub fn alternating<T>(lists: Vec<Vec<T>>) -> Vec<T> {
    let mut lists: Vec<_> = lists.into_iter().map(Vec::into_iter).collect();
    let mut all = Vec::new();
    loop {
        let before = all.len();
        all.extend(lists.iter_mut().filter_map(Iterator::next));
        if all.len() == before {
            return all;
        }
    }
}

fn responses(lines: &[Line]) -> Vec<(Value, i64)> {
    let mut all = Vec::new();
    for (nth, line) in lines.iter().enumerate() {
        let text = line.content.text();
        let content = json!({"type": "message", "role": "assistant", "status": "completed", "id": format!("msg_{nth}"),
            "content": [{"type": "output_text", "text": text, "annotations": []}]});
        match &line.content {
            LineContent::Prompt(_) => all.push((json!({"role": "user", "content": text}), line.at)),
            LineContent::Answer(_) => all.push((content, line.at)),
            LineContent::Call(_) => {
                all.push((content, line.at));
                all.push((json!({"type": "function_call", "id": format!("fc_{nth}"), "call_id": call_id(nth), "name": "read",
                    "arguments": "{}", "status": "completed"}), line.at));
            }
            LineContent::Result(_) => all.push((json!({"type": "function_call_output", "call_id": call_id(nth - 1), "output": text}), line.at)),
        }
    }
    all
}

fn cline(lines: &[Line]) -> String {
    anthropic_messages(lines).to_string()
}

fn anthropic(lines: &[Line]) -> String {
    json!({"model": "claude", "messages": anthropic_messages(lines)}).to_string()
}

pub fn anthropic_messages(lines: &[Line]) -> Value {
    let messages: Vec<Value> = lines.iter().enumerate().map(|(nth, line)| {
        let text = json!({"type": "text", "text": line.content.text()});
        let (role, content) = match &line.content {
            LineContent::Prompt(_) => ("user", json!([text])),
            LineContent::Answer(_) => ("assistant", json!([text])),
            LineContent::Call(_) => ("assistant", json!([text, {"type": "tool_use", "id": call_id(nth), "name": "read", "input": {"path": "a"}}])),
            LineContent::Result(output) => ("user", json!([{"type": "tool_result", "tool_use_id": call_id(nth - 1), "content": output}])),
        };
        json!({"role": role, "content": content})
    }).collect();
    messages.into()
}

pub fn openai_chat(lines: &[Line]) -> String {
    let messages: Vec<Value> = lines.iter().enumerate().map(|(nth, line)| {
        let text = line.content.text();
        match &line.content {
            LineContent::Prompt(_) => json!({"role": "user", "content": text}),
            LineContent::Answer(_) => json!({"role": "assistant", "content": text}),
            LineContent::Call(_) => json!({"role": "assistant", "content": text, "tool_calls": [{"id": call_id(nth), "type": "function",
                "function": {"name": "read", "arguments": "{}"}}]}),
            LineContent::Result(_) => json!({"role": "tool", "tool_call_id": call_id(nth - 1), "content": text}),
        }
    }).collect();
    Value::from(messages).to_string()
}

fn aider(lines: &[Line]) -> String {
    let mut text =
        "\n# aider chat started at 2031-04-01 09:00:00\n\n> Aider v0.86.1  \n\n".to_owned();
    for line in lines {
        let content = line.content.text();
        text += &match &line.content {
            LineContent::Prompt(_) => format!("#### {content}  \n\n"),
            _ => format!("{content}\n\n"),
        };
    }
    text
}
