//! Output of more than one JSON document: the page of a report, a conversation over stdio, a watched folder.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use serde_json::{Value, json};

use super::commands::{Both, settled};
use crate::support::command::loopstore;
use crate::support::page::Page;
use crate::support::process;

/// Compares the contents of report pages: the index, and each message and block.
pub fn report(both: &mut Both<'_>, name: &str) {
    let out = format!("{name}-WHICH.html");
    // The compressed size depends on the run ids.
    both.json_but(&["bytes"], &["report", "pair", "-o", &out]);
    let [one, two] = [0, 1].map(|which| {
        let path = both.folder.join(format!("{name}-{which}.html"));
        let page = Page::read(std::fs::read_to_string(path).unwrap());
        let mut held = json!([page.index, page.entries()]);
        settled(&mut held);
        for run in held[0]["runs"].as_array_mut().unwrap() {
            run["id"] = Value::Null;
        }
        serde_json::to_string_pretty(&held).unwrap()
    });
    assert!(one.len() > 10_000);
    for (at, (one, two)) in one.lines().zip(two.lines()).enumerate() {
        assert_eq!(one, two, "line {at} of the report {name}");
    }
    assert_eq!(one.len(), two.len());
}

/// Compares the answers to calls of all MCP tools.
pub fn mcp(both: &mut Both<'_>) {
    let hello = json!({
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    });
    let call = |name: &str, given: Value| json!({"name": name, "arguments": given});
    let asked = [
        ("initialize", hello),
        ("tools/list", json!({})),
        (
            "tools/call",
            call(
                "search_history",
                json!({"query": "part_3", "role": "assistant"}),
            ),
        ),
        ("tools/call", call("recall", json!({"question": "part_3"}))),
        ("tools/call", call("expand", json!({"first": 0, "last": 1}))),
        (
            "tools/call",
            call("context_overview", json!({"loop_id": "a-branch"})),
        ),
        ("tools/call", call("compaction_history", json!({}))),
        ("tools/call", call("expand", json!({"first": 999}))),
    ];
    let [one, two] = [0, 1].map(|which| {
        let mut child = loopstore()
            .args(["mcp", "pair"])
            .current_dir(both.folder)
            .env("LOOPSTORE_DB", &both.databases[which])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut told = Vec::new();
        for (id, (method, params)) in asked.iter().enumerate() {
            let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
            writeln!(input, "{line}").unwrap();
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            if id == 0 {
                let done = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
                writeln!(input, "{done}").unwrap();
            }
            told.push(answer_in(&line));
        }
        drop(input);
        assert!(child.wait().unwrap().success());
        told
    });
    let tools = one[1]["result"]["tools"].as_array().unwrap();
    for tool in tools {
        let name = tool["name"].as_str().unwrap();
        let is_called = asked.iter().any(|(_, given)| given["name"] == name);
        assert!(is_called, "`{name}` is not called");
    }
    for (one, two) in one.iter().zip(&two) {
        assert_eq!(one, two);
    }
    both.compared.insert("mcp".into());
}

/// Returns an answer with the JSON in its texts parsed, without values that differ from run to run.
fn answer_in(line: &str) -> Value {
    let mut said: Value = serde_json::from_str(line).unwrap();
    if let Some(content) = said["result"]["content"].as_array_mut() {
        for part in content {
            let text = part["text"].as_str().unwrap_or_default();
            if let Ok(inner) = serde_json::from_str(text) {
                part["text"] = inner;
            }
        }
    }
    settled(&mut said);
    said
}

/// Compares the output for a file that grows in a watched folder.
pub fn watch(both: &mut Both<'_>, transcript: &str) {
    let lines: Vec<&str> = transcript.lines().collect();
    let parts = [lines[..20].join("\n") + "\n", lines[20..].join("\n") + "\n"];
    let [one, two] = [0, 1].map(|which| {
        let folder = both.folder.join(format!("watching-{which}"));
        std::fs::create_dir_all(folder.join("logs")).unwrap();
        let path = folder.join("logs/watched.jsonl");
        std::fs::write(&path, &parts[0]).unwrap();
        let mut child = loopstore()
            .args(["import", "--watch", "logs", "--json"])
            .current_dir(folder)
            .env("LOOPSTORE_DB", &both.databases[which])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        // It also reports the number of watched files, before or after the imports.
        let mut next = || loop {
            let mut line = String::new();
            assert!(output.read_line(&mut line).unwrap() > 0, "it ended");
            let mut value: Value = serde_json::from_str(&line).unwrap();
            if value["event"] == "imported" {
                settled(&mut value);
                break value;
            }
        };
        let first = next();
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap();
        file.write_all(parts[1].as_bytes()).unwrap();
        let second = next();
        process::signal("INT", child.id());
        let code = child.wait().unwrap().code();
        (first, second, code)
    });
    assert_eq!(one, two);
    assert_ne!(one.0, one.1);
    both.json(&["show", "pair"]);
    both.json(&["verify"]);
}
