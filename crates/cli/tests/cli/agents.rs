//! The agents' own programs continue from the files that `resume` wrote for them. Their provider is a server on
//! loopback that answers `PONG`: no account is needed, and nothing leaves the machine.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::commands::stage::{AGENTS_HOMES, Stage};
use crate::support::http_server::{HttpServer, ServedResponse};
use crate::support::needs;

/// The maximum duration of an agent's run, in seconds.
const MAX_SECONDS: &str = "300";

/// Returns the provider's answer to a request.
pub fn provider_answer(request: &str) -> String {
    provider_answer_with(request, 5)
}

/// Returns the provider's answer to a request, with this number of input tokens in its usage.
pub fn provider_answer_with(request: &str, tokens: u64) -> String {
    let path = request.split(' ').nth(1).unwrap_or_default();
    let events = match path.split('?').next().unwrap_or_default() {
        "/v1/messages" => anthropic(tokens),
        "/v1/responses" => responses(tokens),
        _ => return "{}".to_owned(),
    };
    let event = |event: &Value| {
        let kind = event["type"].as_str().unwrap();
        format!("event: {kind}\ndata: {event}\n\n")
    };
    events.iter().map(event).collect()
}

fn anthropic(tokens: u64) -> Vec<Value> {
    let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m",
        "content": [], "stop_reason": null, "stop_sequence": null,
        "usage": {"input_tokens": tokens, "output_tokens": 1}});
    vec![
        json!({"type": "message_start", "message": message}),
        json!({"type": "content_block_start", "index": 0,
            "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0,
            "delta": {"type": "text_delta", "text": "PONG"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "usage": {"output_tokens": 2},
            "delta": {"stop_reason": "end_turn", "stop_sequence": null}}),
        json!({"type": "message_stop"}),
    ]
}

fn responses(tokens: u64) -> Vec<Value> {
    let item = json!({"type": "message", "id": "m1", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": "PONG", "annotations": []}]});
    let usage = json!({"input_tokens": tokens, "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 2, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": tokens + 2});
    vec![
        json!({"type": "response.created", "response": {"id": "r1"}}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
        json!({"type": "response.completed", "response": {"id": "r1", "status": "completed",
            "output": [item], "usage": usage}}),
    ]
}

/// Configures an agent to use the server.
pub fn configure(agent: &str, home: &Path, url: &str) {
    let (file, text) = match agent {
        "codex" => (
            ".codex/config.toml",
            format!(
                "model = \"gpt-5.5\"\nmodel_provider = \"loopback\"\n[model_providers.loopback]\n\
                 name = \"loopback\"\nbase_url = \"{url}/v1\"\nwire_api = \"responses\"\n\
                 env_key = \"OPENAI_API_KEY\"\n"
            ),
        ),
        "pi" => (
            ".pi/agent/models.json",
            json!({"providers": {"anthropic": {"baseUrl": url}}}).to_string(),
        ),
        "opencode" => {
            let (base, model) = (format!("{url}/v1"), "anthropic/claude-sonnet-4-5");
            let options = json!({"baseURL": base, "apiKey": "x"});
            let config = json!({"provider": {"anthropic": {"options": options}}, "model": model,
                "small_model": model, "autoupdate": false, "share": "disabled"});
            (".config/opencode/opencode.json", config.to_string())
        }
        _ => return,
    };
    let file = home.join(file);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, text).unwrap();
}

/// Returns the commands that continue a session without a terminal.
pub fn commands(agent: &str, told: &Value) -> Vec<String> {
    let (id, file) = (&told["agent_session_id"], &told["file"]);
    let (id, file) = (id.as_str().unwrap(), file.as_str().unwrap());
    match agent {
        "claude-code" => vec![format!("claude -p --resume {id} PING")],
        "codex" => vec![format!("codex exec --skip-git-repo-check resume {id} PING")],
        "pi" => vec![format!(
            "pi --session {file} -p --provider anthropic --model claude-sonnet-4-5 PING"
        )],
        _ => vec![
            format!("opencode import {file}"),
            format!("opencode run -s {id} -m anthropic/claude-sonnet-4-5 PING"),
        ],
    }
}

/// Returns a command that runs an agent's own program, with this folder and home.
pub fn program(line: &str, work: &Path, home: &Path, url: &str) -> Command {
    let programs = needs::find(&needs::AGENTS).unwrap();
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", programs.display());
    let mut command = Command::new("timeout");
    command.args([MAX_SECONDS, "sh", "-c", line]);
    command.current_dir(work);
    // OpenCode uses this as its working folder.
    command.env("PWD", work).env("PATH", path);
    environment(&mut command, home, url);
    command.stdin(std::process::Stdio::null());
    command
}

/// Sets the home of an agent, and the server as its provider.
pub fn environment(command: &mut Command, home: &Path, url: &str) {
    for variable in AGENTS_HOMES {
        command.env_remove(variable);
    }
    command
        .env("HOME", home)
        .env("ANTHROPIC_BASE_URL", url)
        .env("ANTHROPIC_API_KEY", "x")
        .env("OPENAI_API_KEY", "x")
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        .env("DISABLE_AUTOUPDATER", "1");
}

/// Collects all texts of a request, in order.
fn texts(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) => found.push(text.clone()),
        Value::Array(values) => values.iter().for_each(|value| texts(value, found)),
        Value::Object(fields) => fields.values().for_each(|value| texts(value, found)),
        _ => {}
    }
}

/// Returns the texts of the last conversation that the server received.
fn received_texts(server: &HttpServer) -> Vec<String> {
    let requests = server.requests();
    let bodies = requests.iter().rev();
    let bodies = bodies.filter_map(|request| request.split_once("\r\n\r\n"));
    let mut bodies = bodies.filter_map(|(_, body)| serde_json::from_str::<Value>(body).ok());
    let talks = |body: &Value| {
        let list = body.get("messages").or(body.get("input"));
        list.filter(|list| list.to_string().contains("PING"))
            .cloned()
    };
    let list = bodies.find_map(|body| talks(&body)).unwrap();
    let mut found = Vec::new();
    texts(&list, &mut found);
    found
}

#[test]
fn every_agent_goes_on_with_the_conversation_that_was_stored() {
    if needs::missing(&needs::AGENTS) {
        return;
    }
    let stage = Stage::new();
    let original = stage.json("export work --format openai");
    // Of a call only the name: its arguments are JSON in a text, or an object.
    let mut said = Vec::new();
    for message in original["messages"].as_array().unwrap() {
        texts(&message["content"], &mut said);
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            texts(&call["function"]["name"], &mut said);
        }
    }
    assert!(said.len() > 10, "{said:?}");
    let (home, work) = (stage.path("agents-home"), stage.path("agents-work"));
    std::fs::create_dir_all(&work).unwrap();
    for agent in ["claude-code", "codex", "pi", "opencode"] {
        let server = HttpServer::start(vec![ServedResponse::Narrates(Arc::new(provider_answer))]);
        configure(agent, &home, &server.url);
        let args = [
            "resume",
            "work",
            "--for",
            agent,
            "--cwd",
            "agents-work",
            "--json",
        ];
        let output = stage.command(&args).env("HOME", &home).output().unwrap();
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        for line in commands(agent, &told) {
            let output = program(&line, &work, &home, &server.url).output().unwrap();
            let (out, err) = (&output.stdout, &output.stderr);
            let told = [out, err].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            let told = told.join("--- stderr\n");
            assert!(output.status.success(), "{line}: {}\n{told}", output.status);
        }
        let sent = received_texts(&server);
        let mut sent = sent.iter();
        for text in &said {
            let is_sent = sent.any(|sent| sent.contains(text.as_str()));
            assert!(is_sent, "{agent} did not send, or not in its place: {text}");
        }
    }
}
