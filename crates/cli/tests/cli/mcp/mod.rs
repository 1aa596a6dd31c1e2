//! `loopstore mcp`: what an agent is told of its own history, line by line, and through the official
//! client of the protocol.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::support::histories::{History, answer, open, user};
use crate::support::needs;
use serde_json::{Value, json};

const LIMIT: usize = 500 * 4;

fn program() -> PathBuf {
    assert_cmd::cargo::cargo_bin("loopstore")
}

/// A session whose needle was compacted away, and another with a secret of its own.
fn stage(file: &Path) {
    let store = open(file);
    let mut history = History::new(&store, "mine");
    let hay = "hay and \u{1b}[31mmore\u{1b}[0m hay <b>é</b> ".repeat(40);
    for turn in 0..12 {
        let word = if turn == 3 { "needle" } else { "straw" };
        let messages = vec![
            user(&format!("prompt {turn}"), turn),
            answer(&format!("{word} {turn} {hay}"), &[], turn),
        ];
        history.append(0, messages);
    }
    assert_eq!(history.compact(0, (1, 2), true)["outcome"], "committed");
    let other = History::new(&store, "theirs");
    other.append(0, vec![user("a needle of theirs", 0)]);
}

/// A client that writes the lines of the protocol itself.
struct Client {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    asked: u64,
}

impl Client {
    fn new(file: &Path, args: &[&str]) -> Self {
        let mut child = Command::new(program())
            .arg("--db")
            .arg(file)
            .arg("mcp")
            .args(args)
            .args(["--max-tokens", "500"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut client = Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
            asked: 0,
        };
        let hello = json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        });
        let told = client.ask("initialize", hello);
        assert_eq!(told["result"]["serverInfo"]["name"], "loopstore");
        client.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    fn say(&mut self, line: &Value) {
        writeln!(self.input, "{line}").unwrap();
        self.input.flush().unwrap();
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.asked += 1;
        let id = self.asked;
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "it ended");
            let told: Value = serde_json::from_str(&line).unwrap();
            if told["id"] == id {
                return told;
            }
        }
    }

    /// Calls a tool; returns its text, and whether it is an error.
    fn call(&mut self, tool: &str, given: Value) -> (String, bool) {
        let told = self.ask("tools/call", json!({"name": tool, "arguments": given}));
        let result = &told["result"];
        let text = result["content"][0]["text"].as_str();
        let text = text.unwrap_or_else(|| panic!("{told}")).to_owned();
        assert!(text.len() <= LIMIT, "{} bytes", text.len());
        (text, result["isError"] == true)
    }

    fn json(&mut self, tool: &str, given: Value) -> Value {
        let (text, is_error) = self.call(tool, given);
        assert!(!is_error, "{text}");
        serde_json::from_str(&text).unwrap()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn staged() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("loopstore.db");
    stage(&file);
    (folder, file)
}

#[test]
fn what_was_compacted_away_is_found_and_read() {
    let (_folder, file) = staged();
    let mut client = Client::new(&file, &["mine"]);
    let tools = client.ask("tools/list", json!({}));
    let tools = tools["result"]["tools"].as_array().unwrap().clone();
    assert_eq!(tools.len(), 4);
    for tool in &tools {
        assert_eq!(tool["annotations"]["readOnlyHint"], true, "{tool}");
        assert!(
            tool["inputSchema"]["properties"]
                .get("session_id")
                .is_none()
        );
    }
    let found = client.json("search_history", json!({"query": "needle"}));
    assert_eq!(found["hits"].as_array().unwrap().len(), 1);
    let hit = &found["hits"][0];
    assert_eq!((&hit["turn"], &hit["hidden"]), (&json!(3), &json!(true)));
    let parts = client.json("context_overview", json!({}));
    assert_eq!(parts["parts"][0]["section"], "first");
    let runs = client.json("compaction_history", json!({}));
    assert_eq!(runs["runs"][0]["outcome"], "committed");
    assert_eq!(runs["next"], Value::Null);
}

#[test]
fn a_long_turn_comes_page_by_page_and_nothing_is_lost() {
    let (_folder, file) = staged();
    let mut client = Client::new(&file, &["mine"]);
    let (mut whole, mut given) = (String::new(), json!({"first": 3}));
    for _ in 0..20 {
        let (text, is_error) = client.call("expand", given.clone());
        assert!(!is_error, "{text}");
        let Some((shown, rest)) = text.rsplit_once("\n[go on with ") else {
            whole.push_str(&text);
            assert!(whole.contains("needle 3 hay and \u{1b}[31mmore"));
            assert_eq!(whole.matches("hay and").count(), 40);
            return;
        };
        whole.push_str(shown);
        let offset = rest.rsplit_once("offset ").unwrap().1;
        let offset: u64 = offset.trim_end_matches(']').parse().unwrap();
        given = json!({"first": 3, "last": 3, "offset": offset});
    }
    panic!("it never ends");
}

#[test]
fn one_session_is_all_that_is_seen_unless_all_are_allowed() {
    let (_folder, file) = staged();
    let mut one = Client::new(&file, &["mine"]);
    let (why, is_error) = one.call(
        "search_history",
        json!({"query": "theirs", "session_id": "theirs"}),
    );
    assert!(is_error && why.contains("session"), "{why}");
    let found = one.json("search_history", json!({"query": "theirs"}));
    assert_eq!(found["hits"], json!([]));
    let mut all = Client::new(&file, &["--all"]);
    let (why, is_error) = all.call("search_history", json!({"query": "theirs"}));
    assert!(is_error && why.contains("`session_id` is missing"), "{why}");
    let given = json!({"query": "theirs", "session_id": "theirs"});
    assert_eq!(
        all.json("search_history", given)["hits"][0]["session_id"],
        "theirs"
    );
}

#[test]
fn what_is_asked_wrongly_is_told_and_nothing_changes() {
    let (_folder, file) = staged();
    let before = std::fs::read(&file).unwrap();
    let mut client = Client::new(&file, &["mine"]);
    for (tool, given) in [
        ("expand", json!({})),
        ("expand", json!({"first": 900})),
        ("expand", json!({"first": -1})),
        ("expand", json!({"first": 5, "last": 2})),
        (
            "expand",
            json!({"first": 0, "loop_id": "'; DROP TABLE messages; --"}),
        ),
        ("search_history", json!({"query": "\""})),
        ("search_history", json!({"query": "a", "role": "king"})),
        ("search_history", json!({"query": 7})),
        ("compaction_history", json!({"limit": "many"})),
    ] {
        let (why, is_error) = client.call(tool, given.clone());
        assert!(is_error, "{tool} {given}: {why}");
    }
    let told = client.ask("tools/call", json!({"name": "erase", "arguments": {}}));
    let why = told["error"]["message"].as_str().unwrap();
    assert!(why.contains("search_history"), "{why}");
    drop(client);
    assert!(std::fs::read(&file).unwrap() == before);
}

#[test]
fn the_official_client_is_served() {
    let Some(python) = needs::find(&needs::MCP_CLIENT) else {
        return;
    };
    let (_folder, file) = staged();
    let output = Command::new(python)
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/cli/mcp/client.py"
        ))
        .arg(program())
        .arg(&file)
        .arg("mine")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        told["hit"],
        json!({"loop_id": "loop-0", "turn": 3, "hidden": true})
    );
    assert!(
        told["turn"].as_str().unwrap().contains("needle 3"),
        "{told}"
    );
    assert_eq!(
        (&told["overview"], &told["runs"]),
        (&json!("first"), &json!(1))
    );
    assert!(told["wrong"].as_str().unwrap().contains("0..11"), "{told}");
}
