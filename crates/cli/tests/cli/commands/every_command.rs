//! Every command prints JSON with `--json`, and the queries of the guide return rows.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::commands::stage::Stage;
use crate::support::needs;

/// A line for each command. The lines run in order on one database.
const LINES: &[(&str, &str)] = &[
    ("init", "init --dry-run"),
    ("import", "import chat.json"),
    ("sessions", "sessions"),
    ("show", "show work"),
    ("read", "read work"),
    ("compact", "compact work --max-tokens 9000"),
    ("context", "context work --record"),
    ("history", "history work"),
    ("undo", "undo work"),
    ("redo", "redo work"),
    ("repair", "repair work"),
    ("search", "search build"),
    ("recall", "recall build --max-tokens 500"),
    ("blame", "blame lamp.txt"),
    ("diff", "diff work --from raw"),
    ("fork", "fork work --loop ask --turn 0 --id aside"),
    ("switch", "switch work aside"),
    ("switch", "switch work test"),
    ("expand", "expand work --loop ask --turns 0..1"),
    ("index", "index"),
    ("replay", "replay work --instant --contexts"),
    ("export", "export work --format phi-core"),
    ("export", "export work --format openai"),
    ("export", "export work --format jsonl -o work.jsonl"),
    ("export", "export work --format atif -o work.atif.json"),
    ("resume", "resume work --for codex -o work.codex.jsonl"),
    (
        "restore-transcript",
        "restore-transcript chat-0 -o restored.json",
    ),
    ("report", "report work"),
    ("report", "report --all -o pages"),
    ("share", "share work -o shared.html --yes"),
    ("share", "share work --dry-run --without-images"),
    ("sql", "sql SELECT/**/*/**/FROM/**/v_sessions"),
    ("stats", "stats"),
    ("stats", "stats --by day"),
    ("stats", "stats --by session --since 7d"),
    ("verify", "verify"),
    ("backup", "backup copy.db"),
    ("backup", "backup small.db --compact"),
    ("copy", "copy --to other.db"),
    ("sync", "sync synced.db"),
    ("recount", "recount"),
    ("recover", "recover"),
    ("man", "man pages-of-man"),
    ("eval", "eval retention chat.json --budget 0.5"),
    ("demo", "demo"),
    ("archive", "archive --all"),
    ("unarchive", "unarchive work"),
    ("pin", "pin work ask:0"),
    ("pin", "pin work"),
    ("unpin", "unpin work ask:0"),
    ("drop", "drop work ask:0:1"),
    ("restore", "restore work ask:0:1"),
    ("clear", "clear work --larger 1k --dry-run"),
    ("replace", "replace work ask:0:0 --text again"),
    ("protect", "protect work"),
    ("hide", "hide work"),
    ("unhide", "unhide work"),
    ("redact", "redact work --yes"),
    ("receipts", "receipts"),
    ("install", "install claude-code --dry-run"),
    ("install", "install opencode --uninstall"),
    ("doctor", "doctor"),
    ("prune", "prune --keep-last 100 --dry-run"),
    ("erase", "erase work --yes"),
];

/// The keys that scripts may rely on: the command, a place in its JSON, the keys there.
const KEYS: &[(&str, &str, &str)] = &[
    (
        "import",
        "",
        "files sessions loops turns messages added_messages skipped bytes seconds",
    ),
    (
        "sessions",
        "/0",
        "session_id title agent_id source created_at last_active_at loops tokens",
    ),
    ("show", "", "session_id loops"),
    (
        "show",
        "/loops/0",
        "session_id loop_id parent_loop_id blocks",
    ),
    (
        "compact",
        "",
        "run_id outcome strategy fallback tokens_before tokens_after messages_before",
    ),
    (
        "compact",
        "",
        "messages_after loops_compacted blocks duration_ms error",
    ),
    (
        "compact",
        "/blocks/0",
        "loop_id generation kind keep_first keep_compacted keep_recent",
    ),
    (
        "compact",
        "/blocks/0/coverage",
        "kept truncated summarised dropped rolled_up sealed",
    ),
    (
        "context",
        "",
        "session_id loop_id messages tokens bytes parts faults manifest_id",
    ),
    (
        "context",
        "/parts/0",
        "loop_id section from_turn to_turn messages tokens",
    ),
    (
        "history",
        "/0",
        "run_id session_id loop_id outcome events flips",
    ),
    (
        "drop",
        "",
        "run_id edits paired bound skipped stale tokens_before tokens_after messages_before messages_after",
    ),
    (
        "drop",
        "/edits/0",
        "loop_id turn seq action tokens_before tokens_after",
    ),
    ("restore", "/0", "run_id outcome tokens_before tokens_after"),
    ("undo", "", "run_id outcome tokens_before tokens_after"),
    ("redo", "", "run_id outcome tokens_before tokens_after"),
    ("repair", "", "session_id undone run_id missing originals"),
    (
        "resume",
        "",
        "session_id agent agent_session_id file messages tokens left_out mended start",
    ),
    ("search", "", "hits indexed"),
    (
        "search",
        "/hits/0",
        "session_id loop_id turn seq role snippet score hidden run_id",
    ),
    ("recall", "", "question tokens parts left_out"),
    (
        "recall",
        "/parts/0",
        "session_id loop_id turn seqs text tokens hidden",
    ),
    (
        "blame",
        "",
        "file paths on_disk deleted lines ranges changes unfollowed unplaced_lines sessions",
    ),
    (
        "blame",
        "/ranges/0",
        "from_line to_line attribution session_id loop_id turn time agent model prompt commit",
    ),
    (
        "blame",
        "/changes/0",
        "session_id loop_id turn path action moved_from lines unfollowed",
    ),
    ("diff", "", "from to tokens changes"),
    (
        "diff",
        "/changes/0",
        "loop_id from_turn to_turn before after",
    ),
    ("read", "/0", "loop_id turn seqs at entries"),
    ("fork", "", "session_id loop_id parent_loop_id parent_turn"),
    ("switch", "", "session_id loop_id previous_loop_id"),
    ("install", "", "agent dry_run files"),
    ("doctor", "", "ok agents databases failures problems log"),
    (
        "doctor",
        "/agents/0",
        "agent installed root program database mcp calls last_call",
    ),
    (
        "receipts",
        "/0",
        "session_id receipt kind opened_at closed_at reason messages sources",
    ),
    ("expand", "", "messages next"),
    ("verify", "", "ok checked problems"),
    ("eval", "", "cases needed results"),
    ("eval", "/results/0", "strategy budget recall tokens"),
];

/// Keys that must not contain an id: an id has one name in all commands.
const NOT_FOR_IDS: [&str; 5] = ["session", "loop", "run", "parent_loop", "manifest"];

/// Commands that print no JSON document, with the reason.
const WITHOUT: &[(&str, &str)] = &[
    ("acp", "an editor reads what the agent writes"),
    (
        "append",
        "it prints a line of JSON for each of its lines, always",
    ),
    ("browse", "people look at it; feature `browse`"),
    ("completions", "a shell reads it"),
    ("help", "people read it"),
    (
        "hook",
        "an agent reads it: nothing, or what that agent takes",
    ),
    (
        "watch",
        "it is `import --watch`: a document a line, until it is stopped",
    ),
    ("schema", "psql reads it; feature `postgres`"),
    ("mcp", "it speaks a protocol of its own; feature `mcp`"),
];

/// Returns the commands that the program lists.
pub fn commands(stage: &Stage) -> Vec<String> {
    let help = stage.say("--help").out;
    let listed = help.split("\nOptions").next().unwrap().lines();
    let names = listed.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let first = |line: &str| line.split_whitespace().next().unwrap().to_owned();
    names.map(first).collect()
}

#[test]
fn every_command_prints_one_json_document() {
    let stage = Stage::new();
    let names = commands(&stage);
    assert!(names.len() > 20, "{names:?}");
    for name in &names {
        let known = LINES.iter().chain(WITHOUT).any(|(known, _)| known == name);
        assert!(known, "`{name}` has no line here");
    }
    for (name, _) in LINES {
        assert!(names.iter().any(|known| known == name), "no `{name}`");
    }
    std::fs::write(stage.path("chat.json"), chat()).unwrap();
    std::fs::create_dir_all(stage.path("home/.codex/sessions")).unwrap();
    std::fs::write(stage.path("home/.codex/sessions/found.jsonl"), "{}").unwrap();
    for (_, line) in LINES {
        let said = stage.say(&format!("{line} --json"));
        assert_eq!(said.code, 0, "{line}\n{said}");
        let json: Value = said.json();
        assert!(json.is_object() || json.is_array(), "{line}\n{said}");
        assert!(!said.out.trim().is_empty());
        check_keys(line, &json);
    }
}

fn check_keys(line: &str, json: &Value) {
    refuse_other_keys(line, json);
    let name = line.split(' ').next();
    for (_, place, keys) in KEYS.iter().filter(|(of, ..)| Some(*of) == name) {
        let found = json.pointer(place);
        let found = found.unwrap_or_else(|| panic!("{line}: nothing at {place}\n{json}"));
        for key in keys.split(' ') {
            assert!(
                found.get(key).is_some(),
                "{line}: no `{key}` at {place}\n{found}"
            );
        }
    }
}

fn refuse_other_keys(line: &str, json: &Value) {
    match json {
        Value::Object(fields) => {
            for (key, value) in fields {
                let is_id = value.is_string() && NOT_FOR_IDS.contains(&key.as_str());
                assert!(!is_id, "{line}: `{key}` is the key of {value}");
                refuse_other_keys(line, value);
            }
        }
        Value::Array(values) => values
            .iter()
            .for_each(|value| refuse_other_keys(line, value)),
        _ => {}
    }
}

/// Returns a transcript with a call after the cut of `eval retention`.
fn chat() -> String {
    let mut messages =
        vec![serde_json::json!({"role": "user", "content": "Read file alpha-77.txt"})];
    for turn in 0..10 {
        let path = format!("alpha-{}.txt", 77 - turn % 2);
        let call = serde_json::json!({"id": format!("c{turn}"), "type": "function",
            "function": {"name": "read", "arguments": format!("{{\"path\":\"{path}\"}}")}});
        messages.push(
            serde_json::json!({"role": "assistant", "content": "I read.", "tool_calls": [call]}),
        );
        messages.push(serde_json::json!({"role": "tool", "tool_call_id": format!("c{turn}"), "content": "text 12345"}));
    }
    let arguments = r#"{"path":"lamp.txt","content":"on\noff\n"}"#;
    let call = serde_json::json!({"id": "w1", "type": "function",
        "function": {"name": "write", "arguments": arguments}});
    messages.push(
        serde_json::json!({"role": "assistant", "content": "I write.", "tool_calls": [call]}),
    );
    messages.push(serde_json::json!({"role": "tool", "tool_call_id": "w1", "content": "ok"}));
    messages.push(serde_json::json!({"role": "assistant", "content": "Done."}));
    serde_json::json!({ "messages": messages }).to_string()
}

/// Runs a query in the `sqlite3` program and returns the rows.
fn query_rows(database: &Path, query: &str) -> Vec<Value> {
    let output = Command::new("sqlite3")
        .args(["-readonly", "-json"])
        .arg(database)
        // A query may begin with a comment, which would be read as an option.
        .arg(format!(" {query}"))
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && told.is_empty(),
        "{query}\n{told}"
    );
    match said.trim() {
        "" => Vec::new(),
        rows => serde_json::from_str(rows).unwrap(),
    }
}

#[test]
fn the_five_questions_of_the_guide_have_answers() {
    if needs::missing(&needs::SQLITE3) {
        return;
    }
    if crate::support::keyed::leaves_out("the_five_questions_of_the_guide_have_answers") {
        return;
    }
    let guide = include_str!("../../../../../docs/guide.md");
    let section = guide.split("\n### Five questions\n").nth(1).unwrap();
    let code = section.split("```").nth(1).unwrap();
    let queries: Vec<&str> = code.strip_prefix("sql\n").unwrap().split("\n\n").collect();
    assert_eq!(queries.len(), 5);
    let stage = Stage::empty();
    assert_eq!(stage.say("demo --keep demo.db").code, 0);
    for query in queries {
        let rows = query_rows(&stage.path("demo.db"), query);
        assert!(!rows.is_empty(), "no rows:\n{query}");
    }
}

#[test]
fn every_view_opens_in_the_plain_shell() {
    if needs::missing(&needs::SQLITE3) {
        return;
    }
    if crate::support::keyed::leaves_out("every_view_opens_in_the_plain_shell") {
        return;
    }
    let stage = Stage::new();
    stage.say("compact work --max-tokens 9000");
    stage.say("context work --record");
    stage.say("pin work ask:0");
    assert_eq!(stage.say("clear work --larger 100").code, 0);
    let database = stage.path("loopstore.db");
    let views = query_rows(
        &database,
        "SELECT name FROM sqlite_schema WHERE type = 'view' ORDER BY name",
    );
    let names = views.iter().map(|row| row["name"].as_str().unwrap());
    let names: Vec<&str> = names.filter(|name| name.starts_with("v_")).collect();
    assert_eq!(names.len(), 19);
    for view in names {
        let rows = query_rows(&database, &format!("SELECT * FROM {view}"));
        // No answer here has a provider's token count, nothing was removed, and no call writes a file.
        let empty = ["v_usage", "v_receipts", "v_file_changes", "v_commits"];
        let is_empty = empty.contains(&view);
        assert_eq!(rows.is_empty(), is_empty, "{view}");
        let counted = &query_rows(&database, &format!("SELECT count(*) AS n FROM {view}"))[0]["n"];
        assert_eq!(*counted, rows.len(), "{view}");
    }
}
