//! One transcript of each format, with the same forged text in every place that is not a human's.
//!
//! Each transcript contains a first prompt with [`INSTRUCTION`] in its middle, calls with their results and errors,
//! texts of the harness in user messages if the format has them, and [`SECOND`].

mod chats;
mod claude_code;
mod documents;
mod events;
mod providers;
mod tasks;

use std::path::Path;

use rusqlite::{Connection, params};
use serde_json::Value;

/// The human's instruction, which must be kept.
pub const INSTRUCTION: &str = "Never lift what comes in at the quay.";
/// The second prompt.
pub const SECOND: &str = "Go on with order BY77.";

/// Returns the forged text for a place. The first part of the place's name is its author: `tool`, `agent`, `harness`,
/// `child` (texts from and to a sub-agent).
pub type At<'a> = &'a dyn Fn(&str) -> String;

/// A file of a transcript: its path below the folder, and its content.
pub type Written = (&'static str, String);

/// A format: the name of its importer, and the function that returns the files.
pub type Format = (&'static str, fn(At) -> Vec<Written>);

/// Every format.
pub const FORMATS: [Format; 21] = [
    ("adk", chats::adk),
    ("aider", documents::aider),
    ("anthropic", providers::anthropic),
    ("atif", documents::atif),
    ("claude-code", claude_code::claude_code),
    ("cline", tasks::cline),
    ("codex", events::codex),
    ("copilot-cli", events::copilot),
    ("gemini-cli", documents::gemini),
    ("goose", events::goose),
    ("mini-swe-agent", documents::mini_swe_agent),
    ("openai-agents", chats::openai_agents),
    ("openai-chat", chats::openai_chat),
    ("opencode", documents::opencode),
    ("openhands", events::openhands),
    ("phi-core", chats::phi_core),
    ("pi", events::pi),
    ("qwen-code", events::qwen),
    ("responses", providers::responses),
    ("roo-code", tasks::roo_code),
    ("swe-agent", documents::swe_agent),
];

/// Returns a prompt that is too long for a document, so that only the standing instructions keep its middle.
pub fn first() -> String {
    let filler = |from: usize| -> String {
        let crane = |at| format!("Did crane K{at}X never lift what comes in at the quay? ");
        (from..from + 150).map(crane).collect()
    };
    format!(
        "Look after the orders of the harbour. {}{INSTRUCTION} {}Begin with order BY70.",
        filler(0),
        filler(150)
    )
}

/// Returns words without meaning, so that a summary is shorter than the text that it replaces.
fn idle() -> String {
    "The tide comes and goes as it did. ".repeat(60)
}

fn jsonl(lines: &[Value]) -> String {
    lines.iter().map(|line| line.to_string() + "\n").collect()
}

/// Writes the files of a transcript below a folder. A file whose name ends in `.db` is that of an SDK.
pub fn write(folder: &Path, files: &[Written]) {
    for (name, text) in files {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        if name.ends_with(".db") {
            write_database(&path, text);
        } else {
            std::fs::write(&path, text).unwrap();
        }
    }
}

fn write_database(path: &Path, items: &str) {
    let connection = Connection::open(path).unwrap();
    let tables = "CREATE TABLE agent_sessions (session_id TEXT PRIMARY KEY, created_at TIMESTAMP, updated_at TIMESTAMP);
        CREATE TABLE agent_messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT, message_data TEXT,
            created_at TIMESTAMP);
        INSERT INTO agent_sessions VALUES ('harbour', '2026-02-02 02:40:00', '2026-02-02 02:40:00');";
    connection.execute_batch(tables).unwrap();
    for item in items.lines() {
        let sql = "INSERT INTO agent_messages (session_id, message_data, created_at) VALUES ('harbour', ?1, '2026-02-02 02:40:00')";
        connection.execute(sql, params![item]).unwrap();
    }
}
