//! The adapters' own programs of Claude Code and Codex, recorded while a server on loopback is their provider: no
//! account is needed, and nothing leaves the machine.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use serde_json::{Value, json};

use super::Editor;
use crate::agents::{configure, environment, provider_answer};
use crate::commands::stage::Stage;
use crate::support::http_server::{HttpServer, ServedResponse};
use crate::support::needs;

/// Returns the program of an adapter: of Codex the one that its script starts, as a signal ends only the script.
fn program(programs: &Path, agent: &str) -> PathBuf {
    if agent == "claude-code" {
        return programs.join("claude-code-acp");
    }
    let entries = std::fs::read_dir(programs).unwrap();
    let mut entries = entries.map(|entry| entry.unwrap());
    let is_native = |name: &str| name.starts_with("codex-acp-");
    let found = entries.find(|entry| is_native(&entry.file_name().to_string_lossy()));
    found.unwrap().path()
}

/// Starts an adapter behind the command, and greets it.
fn start(stage: &Stage, agent: &str, url: &str) -> Editor {
    let programs = needs::find(&needs::ACP_ADAPTERS).unwrap();
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("loopstore"));
    command.args(["--db", "loopstore.db", "acp", "--"]);
    command.arg(program(&programs, agent));
    command.current_dir(stage.path(""));
    environment(&mut command, &stage.path("agents-home"), url);
    // Claude Code refuses some of the adapter's options to root, except in a sandbox.
    command.env("IS_SANDBOX", "1").env_remove("LOOPSTORE_DB");
    let mut editor = Editor::start(command);
    let hello = json!({"protocolVersion": 1, "clientCapabilities": {}});
    let (hello, _) = editor.call(0, "initialize", hello);
    let capabilities = &hello["result"]["agentCapabilities"];
    assert_eq!(capabilities["loadSession"], true, "{hello}");
    editor
}

/// Sends a prompt that the provider answers.
fn ping(editor: &mut Editor, id: u32, session: &str) {
    let prompt = json!([{"type": "text", "text": format!("PING {id}")}]);
    let params = json!({"sessionId": session, "prompt": prompt});
    let (done, updates) = editor.call(id, "session/prompt", params);
    assert_eq!(done["result"]["stopReason"], "end_turn", "{done}");
    let updates = Value::from(updates).to_string();
    assert!(updates.contains("PONG"), "{updates}");
}

/// Ends the adapter as an editor does: adapters do not end with their input.
fn stop(editor: Editor) {
    let id = editor.child.id().to_string();
    let killed = Command::new("kill").args(["-TERM", &id]).status();
    assert!(killed.unwrap().success());
    editor.finish();
}

#[test]
fn the_adapters_of_claude_code_and_codex_are_recorded_and_continue_their_sessions() {
    if needs::missing(&needs::ACP_ADAPTERS) {
        return;
    }
    for agent in ["claude-code", "codex"] {
        let stage = Stage::empty();
        let work = stage.path("work");
        std::fs::create_dir_all(&work).unwrap();
        let server = HttpServer::start(vec![ServedResponse::Narrates(Arc::new(provider_answer))]);
        configure(agent, &stage.path("agents-home"), &server.url);
        let mut editor = start(&stage, agent, &server.url);
        let (new, _) = editor.call(1, "session/new", json!({"cwd": work, "mcpServers": []}));
        let id = new["result"]["sessionId"].as_str();
        let id = id.unwrap_or_else(|| panic!("{agent}: {new}")).to_owned();
        ping(&mut editor, 2, &id);
        stop(editor);

        // Another process of the agent loads the session, and replays what is stored already.
        let mut editor = start(&stage, agent, &server.url);
        let load = json!({"sessionId": id, "cwd": work, "mcpServers": []});
        let (loaded, _) = editor.call(1, "session/load", load);
        assert!(loaded["error"].is_null(), "{agent}: {loaded}");
        ping(&mut editor, 3, &id);
        stop(editor);

        let query = format!(
            "SELECT role, text FROM v_messages WHERE session_id = '{id}' AND role != 'extension' \
             ORDER BY loop_id, seq"
        );
        let rows = stage.run(&["sql", "--json", &query]).json();
        let expected = json!([
            {"role": "user", "text": "PING 2"},
            {"role": "assistant", "text": "PONG"},
            {"role": "user", "text": "PING 3"},
            {"role": "assistant", "text": "PONG"},
        ]);
        assert_eq!(rows, expected, "{agent}");
        let session = &stage.json("sessions")[0];
        assert_eq!(session["project"], "FOLDER/work", "{agent}");
        assert_eq!(stage.json("verify")["ok"], true, "{agent}");
    }
}
