//! The agents' own programs call the installed hooks: a session is recorded while it runs, and after a compaction by
//! the agent its model gets the working state. A server on loopback is the provider.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use super::stored;
use crate::agents::{commands, configure, program, provider_answer_with};
use crate::commands::stage::Stage;
use crate::support::http_server::{HttpServer, ServedResponse};
use crate::support::needs;

/// Returns the provider's answer; if the prompt asks for it, its usage has so many tokens that the agent compacts.
fn provider_answer(request: &str) -> String {
    let body = request.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    let list = body.get("messages").or(body.get("input"));
    let last = list.and_then(Value::as_array).and_then(|list| list.last());
    let last = last.unwrap_or(&Value::Null).to_string();
    let fills = last.contains("FILL") && !last.to_lowercase().contains("summary");
    provider_answer_with(request, if fills { 50_000 } else { 5 })
}

/// Configures an agent to compact early, and small sessions too.
fn compact_early(agent: &str, home: &Path) {
    let change = |file: &str, from: &str, to: &str| {
        let path = home.join(file);
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(text.contains(from), "{text}");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text.replacen(from, to, 1)).unwrap();
    };
    match agent {
        "codex" => change(
            ".codex/config.toml",
            "",
            "model_auto_compact_token_limit = 30000\n",
        ),
        "pi" => {
            let settings = json!({"compaction": {"keepRecentTokens": 10, "reserveTokens": 100}});
            change(".pi/agent/settings.json", "", &settings.to_string());
        }
        "opencode" => {
            let limit = "{\"models\":{\"claude-sonnet-4-5\":{\"limit\":{\"context\":30000,\"output\":1000}}},";
            change(
                ".config/opencode/opencode.json",
                "{\"options\"",
                &format!("{limit}\"options\""),
            );
        }
        _ => {}
    }
}

/// Returns the commands that make an agent compact its session, and continue it.
fn compactions(agent: &str, goes_on: &str) -> Vec<String> {
    let say = |what: &str| goes_on.replace("PING", what);
    match agent {
        "claude-code" => vec![say("/compact"), say("'PING AFTER'")],
        "codex" | "opencode" => vec![say("'PING FILL'"), say("'PING AFTER'")],
        _ => {
            let rpc = goes_on.replace(" -p ", " --mode rpc ").replace("PING", "");
            let compact = format!("(echo '{{\"type\":\"compact\"}}'; sleep 8) | {rpc}");
            vec![compact, say("'PING AFTER'")]
        }
    }
}

#[test]
fn every_agent_records_through_its_hooks_and_gets_the_working_state_when_it_compacts() {
    if needs::missing(&needs::AGENTS) {
        return;
    }
    let stage = Stage::new();
    let (home, work) = (stage.path("agents-home"), stage.path("agents-work"));
    std::fs::create_dir_all(&work).unwrap();
    let command = |line: &str| {
        let args: Vec<&str> = line.split(' ').collect();
        let output = stage.command(&args).env("HOME", &home).output().unwrap();
        assert!(output.status.success(), "{line}\n{}", stage.said(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let json = |line: &str| serde_json::from_str::<Value>(&command(line)).unwrap();
    for agent in ["claude-code", "codex", "pi", "opencode"] {
        let server = HttpServer::start(vec![ServedResponse::Narrates(Arc::new(provider_answer))]);
        configure(agent, &home, &server.url);
        compact_early(agent, &home);
        command(&format!("install {agent} --yes --db loopstore.db"));
        let told = json(&format!(
            "resume work --for {agent} --cwd agents-work --json"
        ));
        let run = |line: &str| {
            let output = program(line, &work, &home, &server.url).output().unwrap();
            let texts = [&output.stdout, &output.stderr];
            let texts = texts.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            assert!(
                output.status.success(),
                "{line}\n{}",
                texts.join("--- stderr\n")
            );
        };
        // Codex runs hooks that nobody reviewed only with this flag.
        let trust = "codex exec --dangerously-bypass-hook-trust";
        let lines = commands(agent, &told);
        let lines: Vec<String> = lines
            .iter()
            .map(|line| line.replace("codex exec", trust))
            .collect();
        lines.iter().for_each(|line| run(line));
        let id = told["agent_session_id"].as_str().unwrap();
        let before = stored(&stage, id);
        assert!(before > 10, "{agent} recorded {before} messages");
        compactions(agent, lines.last().unwrap())
            .iter()
            .for_each(|line| run(line));
        assert!(stored(&stage, id) > before, "{agent}");
        let requests = server.requests();
        let gets_it = requests
            .iter()
            .any(|request| request.contains("[Working state"));
        assert!(gets_it, "{agent}: its model never got the working state");
        let report = json("doctor --json");
        assert_eq!(report["ok"], true, "{report}");
    }
}
