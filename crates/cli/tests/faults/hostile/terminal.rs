//! No command sends the terminal anything but text, whatever a transcript contains.

use std::path::Path;

use serde_json::{Value, json};

/// Control characters that clear the screen, set the title, ring the bell, change the direction, end the line, or hide
/// a letter.
const HOSTILE: &str = "kite \u{1b}[2J\u{1b}]0;x\u{7}\u{9b}31m\u{202e}\u{2028}\r\u{8}\u{7f}a\u{200b}b\u{feff}\u{e0041}\u{2066}";

fn transcript() -> Value {
    let call = json!({"id": HOSTILE, "type": "function",
        "function": {"name": HOSTILE, "arguments": json!({HOSTILE: HOSTILE}).to_string()}});
    let mut messages = Vec::new();
    for _ in 0..12 {
        messages.push(json!({"role": "user", "content": HOSTILE}));
        messages.push(json!({"role": "assistant", "content": HOSTILE, "tool_calls": [call]}));
        messages.push(json!({"role": "tool", "tool_call_id": HOSTILE, "content": HOSTILE}));
    }
    json!([{"id": HOSTILE, "title": HOSTILE, "model": HOSTILE, "messages": messages}])
}

fn run(folder: &Path, args: &[&str]) -> String {
    let mut command = crate::support::command::loopstore();
    command
        .args(args)
        .current_dir(folder)
        .env("LOOPSTORE_DB", "loopstore.db");
    let output = command.output().unwrap();
    let told = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(
        output.status.code().is_some_and(|code| code < 2),
        "{args:?}: {told}"
    );
    told
}

/// Returns the characters of an output that a terminal would interpret.
fn steering(told: &str) -> Vec<char> {
    let steers = |c: &char| {
        (c.is_control() && !matches!(c, '\n' | '\t'))
            || matches!(
                c,
                '\u{202e}' | '\u{2028}' | '\u{200b}' | '\u{feff}' | '\u{e0041}' | '\u{2066}'
            )
    };
    told.chars().filter(steers).collect()
}

#[test]
fn no_command_sends_a_terminal_anything_but_text() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let file = format!("{}.json", &HOSTILE.replace('/', ""));
    std::fs::write(at.join(&file), transcript().to_string()).unwrap();
    let mut told = run(at, &["import", &file]);
    let sessions: Value = serde_json::from_str(&run(at, &["sessions", "--json"])).unwrap();
    let id = sessions[0]["session_id"].as_str().unwrap();
    for line in [
        "sessions",
        "show ID",
        "context ID",
        "compact ID --force --strategy one-liner --keep-recent 1",
        "compact ID --force --keep-first 0 --keep-recent 1",
        "context ID",
        "history ID",
        "history",
        "diff ID --text",
        "search kite",
        "recall kite",
        "undo ID",
        "replay ID --instant --contexts",
        "verify",
        "stats",
        "sql SELECT\u{a0}*\u{a0}FROM\u{a0}v_messages",
        "show \u{1b}[31m",
        "search \u{1b}[31m",
    ] {
        let args: Vec<String> = line
            .split(' ')
            .map(|word| word.replace("ID", id).replace('\u{a0}', " "))
            .collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let said = run(at, &args);
        assert!(steering(&said).is_empty(), "{line}: {said}");
        told += &said;
    }
    assert!(steering(&told).is_empty());
    let shown = told.matches("\\u{1b}[2J").count();
    assert!(shown > 100, "{shown} times: the test tests nothing");
}

#[test]
#[cfg(debug_assertions)]
fn an_escape_that_is_not_neutralised_is_found_out() {
    let test = "hostile::terminal::no_command_sends_a_terminal_anything_but_text";
    crate::support::proof::catches(
        test,
        "raw-escape",
        &[],
        "panicked at crates/cli/tests/faults/hostile/terminal",
    );
}
