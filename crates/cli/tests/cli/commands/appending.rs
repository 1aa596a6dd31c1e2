//! Messages on stdin, from programs in any language.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use loopstore::{AgentMessage, Message, Store};
use serde_json::{Value, json};

use super::stage::Stage;
use crate::support::needs;

/// Runs `append` on these bytes.
pub fn append(stage: &Stage, args: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(assert_cmd::cargo::cargo_bin("loopstore"))
        .arg("append")
        .args(args)
        .current_dir(stage.path(""))
        .env("LOOPSTORE_DB", "loopstore.db")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The program ends at the first bad line, without reading on.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

/// Returns the printed lines and the exit code.
fn receipts(stage: &Stage, args: &[&str], input: &[u8]) -> (Vec<Value>, i32) {
    let output = append(stage, args, input);
    let lines = String::from_utf8(output.stdout).unwrap();
    let lines = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    (lines.collect(), output.status.code().unwrap())
}

fn texts(stage: &Stage, session: &str) -> Vec<String> {
    let context = Store::from(stage.store())
        .session(session)
        .unwrap()
        .context()
        .unwrap();
    let messages = context.messages.iter().filter_map(AgentMessage::message);
    messages.map(|message| message.texts().collect()).collect()
}

#[test]
fn a_line_is_one_transaction_and_one_receipt() {
    let stage = Stage::new();
    let input = "{\"role\":\"user\",\"content\":\"hi\"}\n\n\
        [{\"role\":\"assistant\",\"content\":\"hello\"},{\"role\":\"user\",\"content\":\"more\"}]\n";
    let (lines, code) = receipts(&stage, &["new", "--format", "openai"], input.as_bytes());
    assert_eq!(code, 0);
    assert_eq!(
        lines,
        [
            json!({"line": 1, "session_id": "new", "loop_id": "loop-1", "turns": [0, 0],
                "seqs": [0, 0], "tokens": 5, "duplicate": false}),
            json!({"line": 3, "session_id": "new", "loop_id": "loop-2", "turns": [0, 0],
                "seqs": [0, 0], "tokens": 11, "duplicate": false}),
        ]
    );
    assert_eq!(texts(&stage, "new"), ["hi", "hello", "more"]);
}

#[test]
fn damage_that_an_import_repairs_stops_no_stream() {
    let stage = Stage::new();
    let input = b"{\"role\":\"user\",\"content\":\"half \\ud83d\"}\n\
        \0\0\0{\"role\":\"assistant\",\"content\":\"cut \xF0\x9F\"}\r\n\
        {\"role\":\"us{\"role\":\"user\",\"content\":\"one\"}{\"role\":\"assistant\",\"content\":\"two\"}\n";
    let (lines, code) = receipts(&stage, &["new", "--format", "openai"], input);
    assert_eq!(code, 0, "{lines:?}");
    let numbers: Vec<_> = lines.iter().map(|line| line["line"].clone()).collect();
    assert_eq!(numbers, [1, 2, 3, 3]);
    assert_eq!(
        lines[0]["notes"],
        json!(["half of a surrogate pair, replaced by U+FFFD"])
    );
    assert_eq!(lines[1]["notes"].as_array().unwrap().len(), 2);
    assert!(lines[2]["notes"][0].as_str().unwrap().contains("cut off"));
    let texts = texts(&stage, "new");
    assert_eq!(texts, ["half \u{fffd}", "cut \u{fffd}", "one", "two"]);
}

#[test]
fn lines_in_utf16_are_read() {
    let stage = Stage::new();
    let text = "\u{feff}{\"role\":\"user\",\"content\":\"čaj 🍵\"}\r\n";
    let bytes: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let (lines, code) = receipts(&stage, &["new", "--format", "openai"], &bytes);
    assert_eq!((lines.len(), code), (1, 0));
    assert_eq!(texts(&stage, "new"), ["čaj 🍵"]);
}

#[test]
fn what_is_wrong_with_a_message_is_named_and_who_counted_its_tokens() {
    let stage = Stage::new();
    let robot = br#"{"role":"robot","content":"x"}"#;
    let (lines, code) = receipts(&stage, &["new"], robot);
    let error = lines[0]["error"].as_str().unwrap();
    assert!(code == 1 && error.contains("unknown role"), "{error}");
    let input = concat!(
        r#"{"role":"user","content":"Go."}"#,
        "\n",
        r#"{"role":"assistant","content":[{"type":"toolCall","id":"c1","name":"ls","arguments":{}}],"#,
        r#""usage":{"input":700,"output":77}}"#,
        "\n",
        r#"{"role":"toolResult","toolCallId":"c1","toolName":"","content":"a b","isError":false}"#,
    );
    let (lines, code) = receipts(&stage, &["new"], input.as_bytes());
    assert_eq!(code, 0, "{lines:?}");
    let shown = stage.say("context new --format text").out;
    let result = shown.lines().find(|line| line.starts_with("[2] "));
    assert!(
        result.unwrap().starts_with("[2] result (call c1)"),
        "{shown}"
    );
    let said = stage.say("compact new").out;
    // 777 tokens that the provider reported, and the result after them.
    let counted = "by the count of its provider the context has 786 tokens";
    assert!(said.contains(counted), "{said}");
    assert!(
        said.contains("By the counter of this database it has"),
        "{said}"
    );
}

#[test]
fn every_format_comes_in_and_context_is_the_way_back() {
    let stage = Stage::new();
    let call = json!([
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": 1}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": "seen"}]},
    ]);
    let line = format!("{call}\n");
    let (_, code) = receipts(&stage, &["a", "--format", "anthropic"], line.as_bytes());
    assert_eq!(code, 0);
    let own = stage.json("context a --format json")["messages"].clone();
    let bare: Vec<Value> = own.as_array().unwrap().clone();
    let line = format!("{}\n", Value::Array(bare));
    let (_, code) = receipts(&stage, &["b"], line.as_bytes());
    assert_eq!(code, 0);
    assert_eq!(
        stage.say("context a --format anthropic").out,
        stage.say("context b --format anthropic").out
    );
    let items = json!([{"type": "message", "role": "user", "content": "hi"}]);
    let (_, code) = receipts(
        &stage,
        &["c", "--format", "responses"],
        format!("{items}\n").as_bytes(),
    );
    assert_eq!((code, texts(&stage, "c")), (0, vec!["hi".to_owned()]));
}

#[test]
fn a_key_that_comes_again_appends_nothing() {
    let stage = Stage::new();
    let line = "{\"key\":\"k\",\"messages\":[{\"role\":\"user\",\"content\":\"once\"}]}\n";
    let (first, _) = receipts(&stage, &["s", "--format", "openai"], line.as_bytes());
    let (again, code) = receipts(&stage, &["s", "--format", "openai"], line.as_bytes());
    assert_eq!(code, 0);
    assert_eq!(
        (&first[0]["duplicate"], &again[0]["duplicate"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(first[0]["seqs"], again[0]["seqs"]);
    assert_eq!(texts(&stage, "s"), ["once"]);
    // Another session may use the same key, and the key is part of a copy of the session.
    receipts(&stage, &["t", "--format", "openai"], line.as_bytes());
    assert_eq!(texts(&stage, "t"), ["once"]);
    stage.say("copy --to copy.db");
    let (copied, _) = receipts(
        &stage,
        &["s", "--format", "openai", "--db", "copy.db"],
        line.as_bytes(),
    );
    assert_eq!(copied[0]["duplicate"], true);
}

#[test]
fn the_first_bad_line_ends_it_and_the_lines_before_are_kept() {
    let stage = Stage::new();
    let long = format!("{{\"role\":\"user\",\"content\":\"{}", "x".repeat(1 << 20));
    for (at, bad) in [
        &b"{\"role\":\"user\",\"content\":"[..],
        b"not json",
        b"17",
        b"\"text\"",
        b"{\"role\":\"emperor\",\"content\":\"hi\"}",
        b"{\"role\":\"user\",\"content\":{\"deep\":[]}}",
        b"{\"key\":\"\",\"messages\":[]}",
        b"{\"key\":7,\"messages\":[]}",
        b"{\"key\":\"k\",\"messages\":[],\"more\":1}",
        b"{\"key\":\"k\",\"messages\":[[[]]]}",
        long.as_bytes(),
    ]
    .into_iter()
    .enumerate()
    {
        let session = format!("bad-{at}'; DROP TABLE messages; --/../");
        let good = b"{\"role\":\"user\",\"content\":\"good\"}\n";
        let input = [&good[..], bad, b"\n", good].concat();
        let (lines, code) = receipts(&stage, &[&session, "--format", "openai"], &input);
        let shown = String::from_utf8_lossy(&bad[..bad.len().min(60)]).into_owned();
        assert_eq!((code, lines.len()), (1, 2), "{shown}");
        assert_eq!(lines[1]["line"], 2, "{shown}");
        assert!(lines[1]["error"].is_string(), "{shown}");
        assert_eq!(texts(&stage, &session), ["good"], "{shown}");
    }
    let own = b"{\"role\":\"user\",\"content\":\"hi\"}\n{\"role\":\"tool\",\"content\":\"hi\"}\n";
    let (lines, code) = receipts(&stage, &["own"], own);
    assert_eq!((code, lines.len()), (1, 2));
    let told = lines[1]["error"].as_str().unwrap();
    assert!(told.contains("name the format"), "{told}");
    assert_eq!(texts(&stage, "own"), ["hi"]);
    assert_eq!(append(&stage, &[""], b"").status.code(), Some(2));
    // `append` takes whole ids: the beginning of another session's id names a new session.
    receipts(
        &stage,
        &["wor", "--format", "openai"],
        b"{\"role\":\"user\",\"content\":\"hi\"}\n",
    );
    assert_eq!(texts(&stage, "wor"), ["hi"]);
}

#[test]
fn a_python_program_whose_appends_are_killed_loses_nothing_and_appends_nothing_twice() {
    if needs::missing(&needs::PYTHON) {
        return;
    }
    let stage = Stage::new();
    let done = Command::new("python3")
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/cli/commands/append.py"
        ))
        .arg(assert_cmd::cargo::cargo_bin("loopstore"))
        .arg(stage.path("python.db"))
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    let store = crate::support::keyed::open(stage.path("python.db")).unwrap();
    let session = Store::from(store).session("python").unwrap();
    let context = session.context().unwrap();
    let said = context.messages.iter().filter_map(AgentMessage::message);
    let said: Vec<String> = said
        .map(|message: &Message| message.texts().collect())
        .collect();
    let wanted: Vec<String> = (0..1000)
        .map(|number| format!("message {number}"))
        .collect();
    assert_eq!(said, wanted);
    let store = crate::support::keyed::open(stage.path("python.db")).unwrap();
    assert!(
        loopstore_verify::verify(&store)
            .unwrap()
            .problems
            .is_empty()
    );
}

#[test]
fn calls_as_servers_write_them_are_recorded_and_noted_in_the_receipt() {
    let stage = Stage::new();
    let input = concat!(
        r#"{"role":"user","content":"Go."}"#,
        "\n",
        r#"{"role":"assistant","content":null,"tool_calls":[{"id":"","function":{"name":"ls","arguments":{"a":1}}}]}"#,
        "\n",
        r#"{"role":"tool","content":"a b"}"#,
        "\n",
    );
    let (lines, code) = receipts(&stage, &["new", "--format", "openai"], input.as_bytes());
    assert_eq!((lines.len(), code), (3, 0), "{lines:?}");
    assert_eq!(lines[0].get("notes"), None);
    let notes = |line: usize| lines[line]["notes"][0].as_str().unwrap();
    assert!(
        notes(1).contains("`arguments`: an object, `id`: empty"),
        "{}",
        notes(1)
    );
    assert!(
        notes(2).contains("as the result of call `call-"),
        "{}",
        notes(2)
    );

    // An import completes the same calls, and reports it.
    let chat = json!([
        {"role": "user", "content": "Go."},
        {"role": "assistant", "tool_calls": [{"function": {"name": "ls", "arguments": null}}]},
        {"role": "tool", "content": "a b"},
    ]);
    std::fs::write(stage.path("chat.json"), chat.to_string()).unwrap();
    let said = stage.say("import chat.json");
    assert!(said.err.contains("`id`: missing"), "{}", said.err);
    let report = stage.json("import chat.json");
    assert_eq!(report["notes"].as_array().unwrap().len(), 1, "{report}");
    assert_eq!(report["skipped"], json!([]));
}

#[test]
fn a_turn_that_waits_is_named_where_it_does_not_fit() {
    let stage = Stage::new();
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "ls", "arguments": "{}"}});
    let huge = "a line of it\n".repeat(4_000);
    let lines = [
        json!({"role": "user", "content": "Go."}),
        json!({"role": "assistant", "tool_calls": [call("a"), call("b")]}),
        json!({"role": "tool", "tool_call_id": "a", "content": huge}),
    ];
    let input = lines.map(|line| line.to_string() + "\n").concat();
    let (_, code) = receipts(&stage, &["new", "--format", "openai"], input.as_bytes());
    assert_eq!(code, 0);
    let said = stage.say("compact new --max-tokens 4000");
    assert!(
        said.err.contains("loopstore recover new --all"),
        "{}",
        said.err
    );
    stage.say("recover new --all");
    let said = stage.say("compact new --max-tokens 4000");
    assert!(said.out.contains("committed"), "{}", said.out);
    let said = stage.say("context new --max-tokens 4000");
    assert_eq!(said.code, 0, "{}", said.err);
}

#[test]
fn a_context_of_the_past_is_not_sent_to_compact() {
    let stage = Stage::new();
    let said = stage.say("context work --as-of try:0 --max-tokens 10");
    assert!(!said.err.contains("loopstore compact"), "{}", said.err);
    assert!(
        said.err.contains("no compaction changes it"),
        "{}",
        said.err
    );
}

#[test]
fn other_messages_under_a_known_key_are_an_error_that_names_the_first() {
    let stage = Stage::new();
    let line = |text: &str| {
        let part = json!({"key": "k", "messages": [{"role": "user", "content": text}]});
        format!("{part}\n")
    };
    let args = ["s", "--format", "openai"];
    let (first, code) = receipts(&stage, &args, line("Will it rain?").as_bytes());
    assert_eq!((first[0]["duplicate"].clone(), code), (json!(false), 0));
    let (again, code) = receipts(&stage, &args, line("Will it rain?").as_bytes());
    assert_eq!((again[0]["duplicate"].clone(), code), (json!(true), 0));
    let both = line("Will it snow?") + &line("Will it rain?");
    let (other, code) = receipts(&stage, &args, both.as_bytes());
    let error = "append key `k` already belongs to message 0 of loop `loop-1`; append other messages under a \
         key of their own";
    assert_eq!(other, [json!({"line": 1, "error": error})]);
    assert_eq!(code, 1);
    assert_eq!(texts(&stage, "s"), ["Will it rain?"]);
}

#[test]
fn without_a_line_nothing_is_created() {
    let stage = Stage::empty();
    for input in [&b""[..], b"\n\n"] {
        let (lines, code) = receipts(&stage, &["new"], input);
        assert_eq!((lines, code), (Vec::new(), 0));
        assert!(!stage.path("loopstore.db").exists());
    }
}
