//! Conversations written for other agents: the file for each agent is read again as the same conversation.

mod generated;
mod real;
mod written;

use loopstore::{AgentMessage, Author, Content, Image, Message, SessionId, SqliteStore};
use loopstore_export::{NativeAgent, NativeReport, NativeSession, originals, write_native};
use loopstore_transcripts::{ImportOptions, import_paths};
use serde_json::{Value, json};

/// A base64 image of one pixel.
const PIXEL: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=";

/// The text that Codex puts before the output of a failed call.
const FAILED: &str = "Exit code: 1\nOutput:\n";

/// A written file, and the messages that are read from it.
struct WrittenFile {
    report: NativeReport,
    file: String,
    messages: Vec<AgentMessage>,
    loops: i64,
}

/// Writes messages for an agent, and imports the file.
fn write_and_read(agent: NativeAgent, messages: &[AgentMessage]) -> WrittenFile {
    let folder = tempfile::tempdir().unwrap();
    let session = NativeSession::new(agent, "/work/app").with_title(Some("Kite \"1\"".into()));
    let mut file = Vec::new();
    let report = write_native(&session, messages, &mut file).unwrap();
    let path = folder.path().join(session.file_name());
    std::fs::write(&path, &file).unwrap();
    let store = SqliteStore::in_memory().unwrap();
    let options = ImportOptions::default();
    let read = import_paths(&store, &[path], &options, &mut |_| {}).unwrap();
    let name = agent.as_str();
    assert!(read.skipped.is_empty(), "{name}: {:?}", read.skipped);
    let id = SessionId::new(session.id()).unwrap();
    assert_eq!(read.sessions, std::slice::from_ref(&id), "{name}");
    let rows = store.query("SELECT source, project, loops FROM v_sessions");
    let row = json!(rows.unwrap().rows[0]);
    assert_eq!(row[0], name);
    assert_eq!(row[1], "/work/app", "{name}");
    WrittenFile {
        report,
        file: String::from_utf8(file).unwrap(),
        messages: originals(&store, &id, None).unwrap(),
        loops: row[2].as_i64().unwrap(),
    }
}

fn image() -> Content {
    Content::image(PIXEL, "image/png")
}

/// Returns the content of messages, block by block. The texts of a result are joined, since some agents have only one.
fn content_of(messages: &[AgentMessage]) -> Vec<Value> {
    let messages = messages.iter().filter_map(AgentMessage::message);
    messages.flat_map(blocks).collect()
}

fn blocks(message: &Message) -> Vec<Value> {
    let role = message.role().as_str();
    let images = |content: &[Content]| {
        let image = |block: &Content| match block {
            Content::Image(Image { data, .. }) => Some(json!(["image", data])),
            _ => None,
        };
        content.iter().filter_map(image).collect::<Vec<_>>()
    };
    if let Message::ToolResult(result) = message {
        let text = message.texts().collect::<Vec<_>>().join("\n");
        let text = match text.strip_prefix(FAILED) {
            Some(own) => own.strip_prefix('\n').unwrap_or(own),
            None => &text,
        };
        let (id, tool) = (&result.tool_call_id, &result.tool_name);
        let result = json!([role, id, tool, result.is_error, text]);
        let images = images(message.content());
        return std::iter::once(result).chain(images).collect();
    }
    let block = |block: &Content| match block {
        Content::Text(text) if text.text.trim().is_empty() => None,
        Content::Text(text) => Some(json!([role, text.text])),
        Content::Image(image) => Some(json!([role, "image", image.data])),
        Content::Thinking(thinking) => Some(json!(["thinking", thinking.thinking])),
        Content::ToolCall(call) => {
            let arguments: Value = call.arguments.read().unwrap();
            Some(json!(["call", call.id, call.name, arguments]))
        }
        Content::Sealed(sealed) => Some(json!(["sealed", sealed.provider])),
        Content::Other(_) => None,
    };
    message.content().iter().filter_map(block).collect()
}

/// Returns the content without thinking and opaque state.
fn plain(messages: &[AgentMessage]) -> Vec<Value> {
    let is_plain = |block: &Value| !["thinking", "sealed"].contains(&block[0].as_str().unwrap());
    let mut content = content_of(messages);
    content.retain(is_plain);
    content
}

/// Returns the number of prompts.
fn prompts(messages: &[AgentMessage]) -> usize {
    let messages = messages.iter().filter_map(AgentMessage::message);
    messages.filter(|message| message.is_prompt()).count()
}

fn harness(text: &str) -> AgentMessage {
    Message::user(text).with_author(Author::Harness).into()
}
