//! Checks that apply to every format.

use std::path::{Path, PathBuf};

use loopstore::extend::source::sources;
use loopstore::provider::Form;
use loopstore::{AgentMessage, Content, Json, Message, SessionId, SqliteStore};
use loopstore_export::{ExportForm, export, export_source};
use loopstore_transcripts::{ImportOptions, ImportReport, Importer, import_paths, importers};
use loopstore_verify::verify;
use serde_json::Value;

use crate::support::provider_faults::provider_faults;
use crate::support::recording::{FoundSession, Recording, try_import};

pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/fixtures")
        .join(name)
}

/// Returns the only importer that recognises the beginning of a file.
pub fn importer_of(path: &Path) -> Option<&'static dyn Importer> {
    let bytes = std::fs::read(path).unwrap();
    let head = &bytes[..bytes.len().min(64 << 10)];
    let mut known = importers()
        .iter()
        .filter(|importer| importer.detect(path, head));
    let first = known.next().copied();
    let more: Vec<&str> = known.map(|importer| importer.format()).collect();
    assert!(more.is_empty(), "{} is also {more:?}", path.display());
    first
}

pub fn import_all(store: &SqliteStore, paths: &[PathBuf]) -> ImportReport {
    let options = ImportOptions::default();
    import_paths(store, paths, &options, &mut |_| {}).unwrap_or_else(|error| panic!("{error}"))
}

pub fn import_into(store: &SqliteStore, path: &Path) -> ImportReport {
    import_all(store, &[path.to_owned()])
}

/// Imports `bytes` as a file of this name.
pub fn import_bytes(store: &SqliteStore, name: &str, bytes: &[u8]) -> Result<ImportReport, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    let options = ImportOptions::default();
    import_paths(store, &[path], &options, &mut |_| {}).map_err(|error| error.to_string())
}

/// Returns everything that a repeated import must leave unchanged.
pub fn state(store: &SqliteStore) -> Vec<String> {
    let sql =
        "SELECT session_id, loop_id, seq, turn, role, payload FROM v_messages ORDER BY 1, 2, 3";
    let messages = store.query(sql).unwrap().rows;
    let sql = "SELECT session_id, loop_id, status, turns FROM v_loops ORDER BY 1, 2";
    let loops = store.query(sql).unwrap().rows;
    messages
        .iter()
        .chain(&loops)
        .map(|row| format!("{row:?}"))
        .collect()
}

/// Compares two states, and reports the difference.
pub fn assert_same(left: &[String], right: &[String], what: &str) {
    let differs = left.iter().zip(right).find(|(left, right)| left != right);
    assert_eq!(differs, None, "{what}");
    assert_eq!(left.len(), right.len(), "{what}");
}

/// Imports a file into a new store, and checks the promises of every import.
pub fn imported(path: &Path) -> (SqliteStore, ImportReport) {
    let store = SqliteStore::in_memory().unwrap();
    let report = import_into(&store, path);
    check_store(&store, &report.sessions);
    let before = state(&store);
    let again = import_into(&store, path);
    assert_eq!(
        (again.added_messages, again.revised),
        (0, 0),
        "{}",
        path.display()
    );
    assert_eq!(again.sessions, report.sessions);
    assert_eq!(state(&store), before);
    (store, report)
}

/// Checks that the store is valid, and that the contexts of its sessions are valid requests.
pub fn check_store(store: &SqliteStore, sessions: &[SessionId]) {
    let found = verify(store).unwrap();
    assert!(found.problems.is_empty(), "{:?}", found.problems);
    for id in sessions {
        for form in Form::ALL {
            let mut out = Vec::new();
            export(store, id, None, ExportForm::Request(form), &mut out).unwrap();
            let request: Value = serde_json::from_slice(&out).unwrap();
            assert_eq!(provider_faults(&request, form), [], "{id}");
        }
    }
}

/// Checks that the stored copy of the file is the file that was imported.
pub fn check_original(store: &SqliteStore, session: &SessionId, bytes: &[u8]) {
    let kept = sources(store, session).unwrap();
    let same = kept.iter().any(|source| {
        let mut out = Vec::new();
        export_source(store, source, &mut out).unwrap();
        out == bytes
    });
    assert!(same, "{} sources, none as it was", kept.len());
}

/// A file truncated anywhere is rejected with a reason or yields a part; the whole file then yields the rest.
pub fn check_cuts(path: &Path, step: usize) {
    let bytes = std::fs::read(path).unwrap();
    let name = path.file_name().unwrap().to_str().unwrap();
    let (whole, _) = imported(path);
    let whole = state(&whole);
    let importer = importer_of(path).unwrap();
    for end in (1..bytes.len()).step_by(step) {
        let (found, result) = try_import(importer, &bytes[..end]);
        let silent = found.skipped.is_empty() && result.is_ok();
        assert!(!silent || found.sessions.len() == 1, "cut at {end}");
        let store = SqliteStore::in_memory().unwrap();
        if import_bytes(&store, name, &bytes[..end]).is_ok() {
            let _ = import_bytes(&store, name, &bytes).unwrap();
            assert_same(&state(&store), &whole, &format!("cut at {end}"));
        }
    }
}

/// Sets each field of a document to each wrong type, one at a time. Nothing panics, and every field that is not used is
/// reported.
pub fn check_wrong_types(importer: &dyn Importer, document: &Value) {
    let odd = [
        serde_json::json!(null),
        serde_json::json!(-7.5e300),
        serde_json::json!("'; DROP TABLE messages; --"),
        serde_json::json!("../../etc/passwd\u{0}"),
        serde_json::json!(["x", 7, null, {}]),
        serde_json::json!({ "type": [], "text": 7, "role": "user" }),
    ];
    let mut paths = Vec::new();
    paths_of(document, String::new(), &mut paths);
    for path in paths {
        for odd in &odd {
            let mut changed = document.clone();
            *changed.pointer_mut(&path).unwrap() = odd.clone();
            let text = changed.to_string();
            let (found, end) = try_import(importer, text.as_bytes());
            let is_reported =
                !found.sessions.is_empty() || end.is_err() || !found.skipped.is_empty();
            assert!(is_reported, "{path} as {odd}");
        }
    }
}

fn paths_of(value: &Value, at: String, paths: &mut Vec<String>) {
    paths.push(at.clone());
    match value {
        Value::Array(values) => {
            for (nth, value) in values.iter().enumerate() {
                paths_of(value, format!("{at}/{nth}"), paths);
            }
        }
        Value::Object(fields) => {
            for (key, value) in fields {
                let key = key.replace('~', "~0").replace('/', "~1");
                paths_of(value, format!("{at}/{key}"), paths);
            }
        }
        _ => {}
    }
}

/// Neither a truncation nor a flipped bit causes a panic.
pub fn check_flips(importer: &dyn Importer, bytes: &[u8]) {
    for at in (0..bytes.len()).step_by(29) {
        let mut flipped = bytes.to_vec();
        flipped[at] ^= 1 << (at % 8);
        let (found, end) = try_import(importer, &flipped);
        assert!(end.is_ok() || !found.skipped.is_empty() || found.sessions.is_empty());
        importer.detect(Path::new("x"), &flipped);
    }
}

/// Returns the recorded calls of the sink, as a text to compare.
pub fn outline(found: &Recording) -> String {
    let mut out = String::new();
    for session in &found.sessions {
        outline_session(session, &mut out);
    }
    for (line, reason) in &found.skipped {
        out += &format!("skipped {line:?} {reason}\n");
    }
    out
}

fn outline_session(session: &FoundSession, out: &mut String) {
    let head = &session.head;
    *out += &format!("session {:?}", head.identity);
    if let Some(title) = &head.title {
        *out += &format!(" \"{title}\"");
    }
    *out += "\n";
    for found in &session.loops {
        let record = &found.record;
        let parent = record.parent_loop_id.as_ref().map_or("-", |id| id.as_str());
        let status = record.status.as_str();
        *out += &format!("  loop {} after {parent} {status}", record.loop_id);
        for child in &record.child_loop_refs {
            let call = child.tool_call_id.as_deref().unwrap_or("-");
            *out += &format!(" started {} by {call}", child.child_loop_id);
        }
        *out += "\n";
        for message in &found.messages {
            *out += &format!("    {}\n", line(message));
        }
        for compaction in &found.compactions {
            *out += &format!("    compaction {:?}\n", compaction.effect);
        }
    }
}

fn line(message: &AgentMessage) -> String {
    let AgentMessage::Llm(llm) = message else {
        let AgentMessage::Extension(note) = message else {
            return String::new();
        };
        return format!("- {} {}", note.kind, shortened(note.data.as_str()));
    };
    let blocks: Vec<String> = llm.message.content().iter().map(block).collect();
    let turn = message.turn_index().map_or(-1, |turn| turn);
    let mut text = format!("{turn} {} {}", message.role().as_str(), blocks.join(" + "));
    match &llm.message {
        Message::Assistant(answer) => {
            for (name, value) in [
                ("model", &answer.model),
                ("stop", &answer.stop_reason),
                ("error", &answer.error_message),
            ] {
                if let Some(value) = value {
                    text += &format!(" {name}={value}");
                }
            }
            if let Some(usage) = &answer.usage {
                text += &format!(" usage={}", Json::of(usage).unwrap().as_str());
            }
        }
        Message::ToolResult(result) => {
            let error = if result.is_error { " failed" } else { "" };
            text += &format!(" of {} {}{error}", result.tool_name, result.tool_call_id);
        }
        Message::User(_) => {}
    }
    text
}

fn block(block: &Content) -> String {
    match block {
        Content::Text(text) => format!("{:?}", shortened(&text.text)),
        Content::Image(image) => format!("image {}", image.mime_type),
        Content::Thinking(thinking) => format!(
            "thinking {:?}{}",
            shortened(&thinking.thinking),
            thinking.signature.as_ref().map_or("", |_| " signed")
        ),
        Content::ToolCall(call) => format!(
            "call {} {} {}",
            call.id,
            call.name,
            shortened(call.arguments.as_str())
        ),
        Content::Sealed(sealed) => format!("{sealed}"),
        Content::Other(json) => format!("other {}", shortened(json.as_str())),
    }
}

fn shortened(text: &str) -> String {
    match text.chars().count() {
        0..=60 => text.to_owned(),
        _ => text.chars().take(60).chain("…".chars()).collect(),
    }
}

/// Returns the extra field `source` of a message.
pub fn source(message: &AgentMessage) -> Value {
    let json = serde_json::to_value(message).unwrap();
    json.get("source").cloned().unwrap_or_default()
}
