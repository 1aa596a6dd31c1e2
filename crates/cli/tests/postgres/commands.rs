//! Every command on both backends prints the same JSON, except for values that differ from run to run.

use std::collections::BTreeSet;
use std::path::Path;

use assert_cmd::Command;
use serde_json::Value;

use super::parity;
use crate::support::server::{self, PASSWORD};

/// Returns a transcript of two prompts with tool calls, in the form of Claude Code.
pub fn transcript() -> String {
    let mut lines = Vec::new();
    let mut before = Value::Null;
    let mut line = |mut value: Value| {
        value["parentUuid"] = std::mem::replace(&mut before, value["uuid"].clone());
        lines.push(value.to_string());
    };
    for turn in 0..14 {
        let at = |second: u32| format!("2026-01-05T09:{turn:02}:{second:02}.000Z");
        let id = |name: &str| format!("{name}-{turn}");
        if turn % 5 == 0 {
            line(serde_json::json!({
                "type": "user", "uuid": id("u"), "sessionId": "pair", "timestamp": at(0),
                "message": {"role": "user", "content": format!("Please mend part {turn} of the parser")}
            }));
        }
        line(serde_json::json!({
            "type": "assistant", "uuid": id("a"), "sessionId": "pair", "timestamp": at(1),
            "message": {
                "role": "assistant", "model": "a-model", "id": id("m"),
                "content": [
                    {"type": "text", "text": format!("Step {turn}: I read the file. ").repeat(12)},
                    {"type": "tool_use", "id": id("call"), "name": "Read", "input": {"path": format!("src/part_{turn}.rs")}}
                ],
                "usage": {"input_tokens": 100 + turn, "output_tokens": 20, "cache_read_input_tokens": 7}
            }
        }));
        line(serde_json::json!({
            "type": "user", "uuid": id("r"), "sessionId": "pair", "timestamp": at(2),
            "message": {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": id("call"), "content": format!("fn part_{turn}() {{}}\n").repeat(30)}
            ]}
        }));
    }
    lines.join("\n") + "\n"
}

/// Returns a transcript that writes a file and commits it.
pub fn writing_transcript() -> String {
    let write =
        serde_json::json!({"file_path": "/repo/lamp.py", "content": "def on():\n    pass\n"});
    let commit = serde_json::json!({"command": "git commit -am lamp"});
    let calls = [
        ("Write", write, "File created successfully"),
        ("Bash", commit, "[main 1a2b3c4] Add a lamp\n 1 file changed"),
    ];
    let mut lines = vec![serde_json::json!({
        "type": "user", "uuid": "u", "parentUuid": null, "sessionId": "lamp", "cwd": "/repo",
        "timestamp": "2026-01-05T10:00:00.000Z", "message": {"role": "user", "content": "Write a lamp"}
    })];
    for (nth, (tool, input, result)) in calls.into_iter().enumerate() {
        let parent = lines.last().unwrap()["uuid"].clone();
        let (call, answer) = (format!("w{nth}"), format!("a{nth}"));
        lines.push(serde_json::json!({
            "type": "assistant", "uuid": answer, "parentUuid": parent, "sessionId": "lamp",
            "timestamp": format!("2026-01-05T10:00:{:02}.000Z", nth * 2 + 1),
            "message": {"role": "assistant", "model": "a-model", "id": format!("m{nth}"),
                "content": [{"type": "tool_use", "id": call, "name": tool, "input": input}]}
        }));
        lines.push(serde_json::json!({
            "type": "user", "uuid": format!("r{nth}"), "parentUuid": answer, "sessionId": "lamp",
            "timestamp": format!("2026-01-05T10:00:{:02}.000Z", nth * 2 + 2),
            "message": {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": call, "content": result}]}
        }));
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Runs a command on a database. Returns its exit code and its output on both streams.
pub fn command(folder: &Path, database: &str, args: &[&str]) -> (Option<i32>, String, String) {
    command_reading(folder, database, args, "")
}

fn command_reading(
    folder: &Path,
    database: &str,
    args: &[&str],
    stdin: &'static str,
) -> (Option<i32>, String, String) {
    let output = Command::cargo_bin("loopstore")
        .unwrap()
        .current_dir(folder)
        .args(args)
        .env("LOOPSTORE_DB", database)
        .env("COLUMNS", "110")
        .write_stdin(stdin)
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

/// Commands that are not compared, with the reason.
const EXCUSED: [(&str, &str); 16] = [
    (
        "restore-transcript",
        "writes the file of `export --format original`, which is compared",
    ),
    ("init", "finds files of the machine; its import is compared"),
    ("acp", "tests of its own: a recorder, and a context"),
    ("watch", "it is `import --watch`, which is compared"),
    ("demo", "makes a database of its own"),
    ("doctor", "speaks of the machine"),
    ("hook", "tests of its own: an import, and a context"),
    ("install", "writes no database"),
    (
        "backup",
        "copies a file; on a server it says so, which is tested below",
    ),
    (
        "copy",
        "reads one and writes the other; `moving.rs` compares both",
    ),
    ("sync", "reads and writes both; `syncing.rs` compares both"),
    ("schema", "is for a server only"),
    ("browse", "is for people"),
    ("completions", "reads no database"),
    ("man", "reads no database"),
    ("help", "reads no database"),
];

/// Items of Responses: messages, and a compaction that only OpenAI can read.
const SEALED: &str = r#"{"role":"user","content":"Who mends the roof?"}
{"type":"message","role":"assistant","content":[{"type":"output_text","text":"I mend it."}]}
{"type":"compaction","id":"cmp_1","encrypted_content":"gAAAAABkeepthis"}
{"role":"user","content":"And the door?"}
"#;

/// Returns the commands that the program lists.
fn listed(folder: &Path) -> Vec<String> {
    let (_, help, _) = command(folder, "none.db", &["--help"]);
    let lines = help.split("\nOptions").next().unwrap().lines();
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let first = |line: &str| line.split_whitespace().next().unwrap().to_owned();
    names.map(first).collect()
}

pub struct Both<'a> {
    pub folder: &'a Path,
    /// The databases: a file and an address.
    pub databases: [String; 2],
    /// The commands that were compared.
    pub compared: BTreeSet<String>,
    /// Run ids in order, for each database.
    runs: [Vec<String>; 2],
    /// The new id of the session that was hidden last, for each database.
    hidden: [String; 2],
}

/// Keys whose values differ from run to run.
const DIFFERS: [&str; 24] = [
    "run",
    "run_id",
    "duration_ms",
    "seconds",
    "started_at",
    "timestamp",
    "created_at",
    "made_at",
    "at",
    "path",
    "file_bytes",
    "wal_bytes",
    "recorded_at",
    "manifest",
    "manifest_id",
    "score",
    "receipt",
    "receipts",
    "leftover",
    "protected_at",
    "last_active_at",
    "database",
    "from",
    "to",
];

/// Replaces values that differ from run to run.
pub fn settled(value: &mut Value) {
    without(value, &DIFFERS);
}

/// Replaces the values of some keys.
fn without(value: &mut Value, keys: &[&str]) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                // Keys of receipts are lists.
                let is_masked = !value.is_array() || name == "receipts";
                if keys.contains(&name.as_str()) && is_masked {
                    *value = Value::Null;
                } else {
                    without(value, keys);
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| without(value, keys)),
        _ => {}
    }
}

impl Both<'_> {
    fn output(&self, which: usize, args: &[&str]) -> (Option<i32>, String, String) {
        // Run ids differ between the databases.
        let args: Vec<String> = args
            .iter()
            .map(|arg| match arg.strip_prefix("RUN") {
                Some(number) => self.runs[which][number.parse::<usize>().unwrap()].clone(),
                None => arg
                    .replace("WHICH", &which.to_string())
                    .replace("HIDDEN", &self.hidden[which]),
            })
            .collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        command(self.folder, &self.databases[which], &args)
    }

    /// Runs a command on both databases. Returns the output, which must be the same.
    pub fn json(&mut self, args: &[&str]) -> Value {
        self.json_but(&[], args)
    }

    /// Runs a command on both databases. Returns the output, which must be the same except for some keys.
    pub fn json_but(&mut self, differs: &[&str], args: &[&str]) -> Value {
        self.compared.insert(args[0].to_owned());
        let args = [args, &["--json"]].concat();
        let mut said = [0, 1].map(|which| {
            let (code, out, err) = self.output(which, &args);
            let out = out.replace(&format!("-{which}.html"), "-WHICH.html");
            assert!(
                !err.contains(PASSWORD) && !out.contains(PASSWORD),
                "{args:?}"
            );
            let value: Value = serde_json::from_str(&out)
                .unwrap_or_else(|_| panic!("{args:?} on {which}: {code:?} {out} {err}"));
            (code, value)
        });
        for (which, (_, value)) in said.iter_mut().enumerate() {
            if let Some(run) = value["run_id"].as_str() {
                self.runs[which].push(run.to_owned());
            }
            if let Some(id) = value["hidden_as"].as_str() {
                self.hidden[which] = id.to_owned();
            }
            settled(value);
            without(value, differs);
            // Each backend has its own ranking.
            if let Some(Value::Array(hits)) = value.get_mut("hits") {
                hits.sort_by_key(ToString::to_string);
            }
        }
        let [one, two] = said;
        assert_eq!(one, two, "{args:?}");
        one.1
    }

    /// Runs a command that reads lines on both databases.
    fn lines(&mut self, args: &[&str], stdin: &'static str) {
        self.compared.insert(args[0].to_owned());
        let [one, two] =
            [0, 1].map(|which| command_reading(self.folder, &self.databases[which], args, stdin));
        assert_eq!(one.0, Some(0), "{args:?} {one:?}");
        assert_eq!(one, two, "{args:?}");
    }

    /// Runs `recount`, for all tenants where there are any.
    fn recount(&mut self, args: &[&str]) {
        let user = self.databases[1].clone();
        if std::env::var_os("LOOPSTORE_AS_TENANT").is_some() {
            let (_, place) = user.split_once('@').unwrap();
            self.databases[1] = format!("postgres://postgres@{place}");
        }
        self.json(args);
        self.databases[1] = user;
    }

    /// Runs a command that prints text on both databases.
    fn text(&mut self, args: &[&str]) {
        self.compared.insert(args[0].to_owned());
        let [one, two] = [0, 1].map(|which| self.output(which, args));
        assert_eq!(one, two, "{args:?}");
    }
}

#[test]
fn every_command_says_the_same_on_both_backends() {
    let Some(server) = server::server() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("pair.jsonl"), transcript()).unwrap();
    let file = folder.path().join("loopstore.db");
    let mut both = Both {
        folder: folder.path(),
        databases: [file.to_str().unwrap().to_owned(), server.openable_address()],
        compared: BTreeSet::new(),
        runs: Default::default(),
        hidden: Default::default(),
    };
    both.json(&["import", "pair.jsonl"]);
    both.json(&["import", "pair.jsonl"]);
    std::fs::write(folder.path().join("lamp.jsonl"), writing_transcript()).unwrap();
    both.json(&["import", "lamp.jsonl"]);
    // A block contains the time of its creation, which differs.
    for format in ["phi-core", "original"] {
        both.text(&["export", "pair", "--format", format]);
    }
    parity::report(&mut both, "raw");
    let compacted = both.json(&["compact", "pair", "--max-tokens", "2000", "--force"]);
    assert_eq!(compacted["outcome"], "committed");
    let loops = both.json(&["show", "pair"]);
    let leaf = loops["loops"].as_array().unwrap().last().unwrap()["loop_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let turn = format!("{leaf}:1");
    for args in [
        &["sessions"] as &[&str],
        &["show", "pair"],
        &["read", "pair"],
        &["read", "lamp", "--turn", "0"],
        &["stats", "--by", "model"],
        &["stats", "--by", "session"],
        &["context", "pair"],
        &["context", "pair", "--format", "openai"],
        &["context", "pair", "--format", "anthropic"],
        &["context", "pair", "--as-of", &turn],
        &["context", "pair", "--as-of", "RUN0"],
        &["history", "pair"],
        &["history"],
        &["diff", "pair"],
        &["undo", "pair"],
        &["history", "pair"],
        &["redo", "pair"],
        &["search", "parser"],
        &["search", "part_3"],
        &["recall", "part_3", "--max-tokens", "900"],
        &["blame", "/repo/lamp.py"],
        &["blame", "lamp.py:2"],
        &["index"],
        &["expand", "pair", "--loop", &leaf, "--turns", "0..1"],
        &["replay", "pair", "--instant"],
        &["replay", "pair", "--instant", "--contexts"],
        &["replay", "pair", "--instant", "--as", "openai"],
        &["eval", "retention", "pair.jsonl", "--budget", "0.5"],
        &["stats"],
        &["verify"],
        &["recover", "pair"],
        &["pin", "pair", &format!("{leaf}:0")],
        &["pin", "pair"],
        &["unpin", "pair", &format!("{leaf}:0")],
        &["protect", "pair"],
        &["protect", "pair", "--off"],
        &[
            "sql",
            "SELECT session_id, turns, messages FROM v_sessions ORDER BY session_id",
        ],
        &[
            "sql",
            "SELECT loop_id, turn, tool_name, arguments, result_seq, is_error FROM v_tool_calls ORDER BY call_seq, loop_id",
        ],
        &["sql", "SELECT * FROM v_file_changes ORDER BY call_seq"],
        &["sql", "SELECT * FROM v_commits ORDER BY call_seq"],
        &["sql", "SELECT * FROM v_usage ORDER BY loop_id"],
        &["archive", "pair", "--shown", "--dry-run"],
        &["archive", "pair", "--shown"],
        &["context", "pair"],
        &["search", "parser"],
        &["verify"],
        &["unarchive", "pair"],
        &["prune", "--keep-last", "5", "--dry-run"],
        &["share", "pair", "--dry-run"],
        &["redact", "pair", "--yes"],
    ] {
        both.json(args);
    }
    let prompt = format!("{leaf}:0:0");
    for args in [
        // The reports of edits name the runs that they make stale, which differ.
        &["undo", "pair", "--run", "RUN0"] as &[&str],
        &["drop", "pair", &turn, "--dry-run"],
        &["drop", "pair", &turn, "--reason", "a detour"],
        &["context", "pair"],
        &["show", "pair"],
        &[
            "sql",
            "SELECT loop_id, from_turn, to_seq, part, action, text, is_live FROM v_edits ORDER BY from_seq, part",
        ],
        &["restore", "pair", &turn],
        &["clear", "pair", "--tool", "Read", "--older-than", "2-turns"],
        &["replace", "pair", &prompt, "--text", "Mend it all"],
        &["context", "pair"],
        &["verify"],
        &["undo", "pair"],
        &["undo", "pair"],
        &["redo", "pair", "--run", "RUN0"],
        &["context", "pair"],
    ] {
        both.json(args);
    }
    both.lines(
        &["append", "told", "--format", "openai"],
        r#"{"role":"user","content":"Who mends it?"}
{"key":"k","messages":[{"role":"assistant","content":"I do."},{"role":"user","content":"When?"}]}
{"key":"k","messages":[{"role":"assistant","content":"I do."},{"role":"user","content":"When?"}]}
"#,
    );
    both.json(&["context", "told"]);
    // The session is hidden, another session has its id, and it is shown again under a new id.
    both.json_but(&["hidden_as"], &["hide", "told"]);
    both.json(&["sessions"]);
    let hidden = both.json_but(&["session_id", "hidden_at"], &["sessions", "--hidden"]);
    assert_eq!(hidden.as_array().map(Vec::len), Some(1), "{hidden}");
    both.json(&["search", "mends"]);
    both.lines(&["append", "told", "--format", "responses"], SEALED);
    both.json_but(&["hidden_as"], &["unhide", "HIDDEN", "--as", "told before"]);
    for args in [
        &["sessions"] as &[&str],
        &["search", "mends"],
        &["context", "told before"],
        &["context", "told", "--for", "openai"],
        &["history", "told"],
        &["repair", "told"],
        &["context", "told", "--for", "openai"],
        &["repair", "told", "--for", "anthropic"],
        &["history", "told"],
        &["verify"],
        &["erase", "told before", "--yes"],
    ] {
        both.json(args);
    }
    both.json(&["erase", "told", "--yes"]);
    for format in ["openai", "anthropic", "markdown"] {
        both.text(&["export", "pair", "--format", format]);
    }
    // Each file has its own id and path.
    let own = ["file", "agent_session_id", "start"];
    for agent in ["claude-code", "codex", "pi", "opencode"] {
        let file = format!("WHICH-{agent}.jsonl");
        let args = ["resume", "pair", "--for", agent, "-o", &file];
        both.json_but(&own, &args);
        let small = format!("WHICH-{agent}-small.jsonl");
        let args = ["resume", "pair", "--for", agent, "-o", &small];
        both.json_but(&own, &[&args[..], &["--max-tokens", "2000"]].concat());
    }
    both.text(&[
        "sql",
        "SELECT role, text, payload FROM v_messages ORDER BY loop_id, seq",
    ]);
    // A fork has a new time, which an export would contain.
    let fork = [
        "fork", "pair", "--loop", &leaf, "--turn", "1", "--id", "a-branch", "--switch",
    ];
    both.json(&fork);
    both.json(&["show", "pair"]);
    both.json(&["switch", "pair", &leaf]);
    both.json(&["switch", "pair", "a-branch"]);
    both.json(&["context", "pair", "--loop", "a-branch", "--record"]);
    parity::report(&mut both, "compacted");
    parity::mcp(&mut both);
    if cfg!(feature = "tiktoken") {
        for counter in ["tiktoken:o200k_base", "heuristic"] {
            both.recount(&["recount", "--counter", counter]);
            for args in [
                &["show", "pair"] as &[&str],
                &["history"],
                &["stats"],
                &["verify"],
            ] {
                both.json(args);
            }
        }
    }
    both.recount(&["recount"]);
    both.json(&["erase", "pair", "--yes"]);
    both.json(&["erase", "lamp", "--yes"]);
    let removed = both.json_but(&["opened_at", "closed_at", "detail"], &["receipts"]);
    assert!(
        removed.as_array().is_some_and(|rows| rows.len() > 1),
        "{removed}"
    );
    assert_eq!(both.json(&["sessions"]), serde_json::json!([]));
    assert_eq!(both.json(&["verify"])["ok"], true);
    parity::watch(&mut both, &transcript());
    for name in listed(folder.path()) {
        let is_excused = EXCUSED.iter().any(|(known, _)| *known == name);
        let is_compared = both.compared.contains(&name);
        assert!(
            is_excused != is_compared,
            "`{name}` is to be compared or excused"
        );
    }
}

#[test]
fn what_cannot_be_done_on_a_server_is_told_and_a_password_never() {
    let Some(server) = server::server() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let said = |address: &str, args: &[&str]| {
        let output = Command::cargo_bin("loopstore")
            .unwrap()
            .current_dir(folder.path())
            .args(args)
            .args(["--db", address])
            .output()
            .unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(!text.contains(PASSWORD), "{text}");
        (output.status.code(), text)
    };
    let address = server.tcp_address(&server.prepared());
    let (code, text) = said(&address, &["backup", "copy.db"]);
    assert_eq!(code, Some(2), "{text}");
    let (code, text) = said(&server.tcp_address("nowhere"), &["sessions"]);
    assert_eq!(code, Some(1));
    assert!(text.contains("createdb"), "{text}");
    let (code, _) = said(&address, &["sql", "DELETE FROM messages"]);
    assert_eq!(code, Some(1));
    for sql in [
        "SELECT 1; DELETE FROM store_meta",
        "COMMIT",
        "WITH gone AS (DELETE FROM store_meta RETURNING 1) SELECT * FROM gone",
        "SET TRANSACTION READ WRITE",
        "EXPLAIN ANALYZE DELETE FROM store_meta",
    ] {
        let (code, text) = said(&address, &["sql", sql]);
        assert_eq!(code, Some(1), "{sql}: {text}");
    }
    let (_, text) = said(&address, &["stats"]);
    assert!(text.contains("postgres://127.0.0.1"), "{text}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
