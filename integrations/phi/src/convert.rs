//! Conversions of values from phi-core to loopstore and back.
//!
//! Both read and write the same JSON, so a conversion is a document; loopstore's importer and
//! exporter do the rest. phi-core insists on fields that loopstore does not need (times, models,
//! usage): fields that a session does not have are filled in here.

use std::io::Cursor;
use std::path::Path;

use loopstore::compaction::CompactionConfig;
use loopstore::extend::{SessionStore, StoreWrite};
use loopstore::model::{AgentMessage, Session, SessionId};
use loopstore_export::{ExportForm, export};
use loopstore_recorder::AgentEvent;
use loopstore_transcripts::{ImportReport, Importer, Origin, PhiCore, Source, StoreSink};
use phi_core::context as theirs;
use serde_json::{Map, Value, json};

use super::error::PhiError;

/// The time of values without a recorded time.
const NO_TIME: &str = "1970-01-01T00:00:00Z";

/// Returns a message of phi-core as a message of loopstore.
///
/// # Errors
/// If the value nests too deeply.
pub fn recorded_message(message: &phi_core::AgentMessage) -> serde_json::Result<AgentMessage> {
    serde_json::from_str(&serde_json::to_string(message)?)
}

/// Returns a message of loopstore as a message of phi-core, for an agent's context.
///
/// # Errors
/// If the message has content that phi-core does not support.
///
/// # Examples
/// ```
/// use loopstore_phi::{context_message, recorded_message};
/// use loopstore::{AgentMessage, Message};
///
/// let prompt = AgentMessage::from(Message::user("Will it rain?"));
/// let theirs = context_message(&prompt)?;
/// let ours = recorded_message(&theirs)?;
/// assert_eq!(ours.message().map(Message::content), prompt.message().map(Message::content));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn context_message(message: &AgentMessage) -> serde_json::Result<phi_core::AgentMessage> {
    let mut json = serde_json::to_value(message)?;
    complete_message(&mut json);
    serde_json::from_value(json)
}

/// Returns an event of phi-core for a [`SessionRecorder`](loopstore_recorder::SessionRecorder).
///
/// If the id of a parent loop does not begin with the session's id, the loop belongs to another session, whose id is
/// the part before the first dot. The same applies to the loop of a sub-agent.
///
/// # Errors
/// If the value nests too deeply.
pub fn recorded_event(event: &phi_core::AgentEvent) -> serde_json::Result<AgentEvent> {
    let mut event = AgentEvent::parse(&serde_json::to_string(event)?)?;
    match &mut event {
        AgentEvent::AgentStart(start) => {
            let parent = start.parent_loop_id.as_ref().map(|id| id.as_str());
            let own = format!("{}.", start.session_id);
            let foreign = parent.filter(|parent| !parent.starts_with(&own));
            start.parent_session_id = foreign.and_then(session_in);
        }
        AgentEvent::ToolExecutionEnd(end) => {
            let child = end.child_loop_id.as_ref();
            end.child_session_id = child.and_then(|child| session_in(child.as_str()));
        }
        _ => {}
    }
    Ok(event)
}

/// Returns the session that a loop's id names.
fn session_in(loop_id: &str) -> Option<SessionId> {
    let (session, _) = loop_id.split_once('.')?;
    SessionId::new(session).ok()
}

/// Imports a session; messages that are stored already are recognised.
pub(super) fn import_session(
    write: &mut dyn StoreWrite,
    store: &dyn SessionStore,
    session: &phi_core::Session,
) -> Result<ImportReport, PhiError> {
    // Written by loopstore, so that a message has one text, whatever its origin.
    let session: Session = serde_json::from_slice(&serde_json::to_vec(session)?)?;
    let path = format!("{}.json", session.session_id);
    let mut text = Cursor::new(serde_json::to_vec(&session)?);
    let mut source = Source {
        path: Path::new(&path),
        reader: &mut text,
    };
    let origin = Origin::new(PhiCore.format(), source.path);
    let mut sink = StoreSink::new(write, store.counter(), origin, Some(session.session_id))?;
    PhiCore.import(&mut source, &mut sink)?;
    Ok(sink.finish()?)
}

/// Returns a stored session.
pub(super) fn export_session(
    store: &dyn SessionStore,
    session: &SessionId,
) -> Result<phi_core::Session, PhiError> {
    let mut text = Vec::new();
    export(store, session, None, ExportForm::PhiCore, &mut text)?;
    let mut json = serde_json::from_slice(&text)?;
    complete_session(&mut json);
    Ok(serde_json::from_value(json)?)
}

/// Returns the part of a configuration that shapes a block.
pub(super) fn config_out(config: &CompactionConfig) -> theirs::CompactionConfig {
    let number = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    theirs::CompactionConfig {
        keep_first_turns: config.keep_first_turns as usize,
        keep_recent_turns: config.keep_recent.count() as usize,
        max_summary_tokens: number(config.max_summary_tokens),
        tool_output_max_lines: config.tool_output_max_lines,
        ..theirs::CompactionConfig::default()
    }
}

fn fields(json: &mut Value) -> Option<&mut Map<String, Value>> {
    json.as_object_mut()
}

fn items<'a>(map: &'a mut Map<String, Value>, key: &str) -> impl Iterator<Item = &'a mut Value> {
    let list = map.get_mut(key).and_then(Value::as_array_mut);
    list.into_iter().flatten()
}

fn field(map: &Map<String, Value>, key: &str) -> Value {
    map.get(key).cloned().unwrap_or_default()
}

/// Sets a field that is missing or null.
fn fill(map: &mut Map<String, Value>, key: &str, value: impl Into<Value>) {
    let field = map.entry(key).or_insert(Value::Null);
    if field.is_null() {
        *field = value.into();
    }
}

fn fill_all(map: &mut Map<String, Value>, keys: &[&str], value: &Value) {
    keys.iter().for_each(|key| fill(map, key, value.clone()));
}

fn no_usage() -> Value {
    json!({"input": 0, "output": 0})
}

fn complete_session(json: &mut Value) {
    let Some(session) = fields(json) else { return };
    fill(session, "agent_id", "");
    fill(session, "created_at", NO_TIME);
    let since = field(session, "created_at");
    fill(session, "last_active_at", since.clone());
    fill(
        session,
        "formation",
        json!({"Explicit": {"timestamp": since}}),
    );
    fill(session, "scope", "persistent");
    fill(session, "loops", json!([]));
    if let Some(spawn) = session.get_mut("parent_spawn_ref").and_then(fields) {
        let ids = [
            "parent_session_id",
            "parent_loop_id",
            "tool_call_id",
            "tool_name",
        ];
        fill_all(spawn, &ids, &json!(""));
    }
    let owner = (field(session, "session_id"), field(session, "agent_id"));
    items(session, "loops").for_each(|record| complete_loop(record, &owner, &since));
}

fn complete_loop(json: &mut Value, owner: &(Value, Value), since: &Value) {
    let Some(record) = fields(json) else { return };
    fill(record, "session_id", owner.0.clone());
    fill(record, "agent_id", owner.1.clone());
    fill(record, "started_at", since.clone());
    fill(record, "status", "Completed");
    fill(record, "usage", no_usage());
    let lists = ["messages", "turns", "children_loop_ids", "child_loop_refs"];
    fill_all(record, &lists, &json!([]));
    if let Some(config) = record.get_mut("config").and_then(fields) {
        fill_all(config, &["model", "provider"], &json!(""));
    }
    for child in items(record, "child_loop_refs").filter_map(fields) {
        let ids = [
            "tool_call_id",
            "tool_name",
            "child_loop_id",
            "child_session_id",
        ];
        fill_all(child, &ids, &json!(""));
    }
    if let Some(usage) = record.get_mut("usage").and_then(fields) {
        fill_all(usage, &["input", "output"], &json!(0));
    }
    items(record, "messages").for_each(complete_message);
    let since = field(record, "started_at");
    if let Some(block) = record.get_mut("compaction_block").and_then(fields) {
        complete_block(block, &since);
    }
    if let Some(turns) = record.get_mut("turns").and_then(Value::as_array_mut) {
        // A turn of phi-core has an answer and a name.
        turns.retain(|turn| turn["output_message"].is_object() && turn["turn_id"].is_object());
        turns
            .iter_mut()
            .for_each(|turn| complete_turn(turn, &since));
    }
}

fn complete_block(block: &mut Map<String, Value>, since: &Value) {
    fill(block, "createdAt", since.clone());
    for section in ["keep_compacted", "keep_recent"] {
        if let Some(section) = block.get_mut(section).and_then(fields) {
            items(section, "messages").for_each(complete_message);
        }
    }
}

fn complete_turn(json: &mut Value, since: &Value) {
    let Some(turn) = fields(json) else { return };
    fill(turn, "triggered_by", "User");
    fill(turn, "usage", no_usage());
    fill_all(turn, &["input_messages", "tool_results"], &json!([]));
    fill_all(turn, &["started_at", "ended_at"], since);
    if let Some(answer) = turn.get_mut("output_message") {
        complete_message(answer);
    }
    for list in ["input_messages", "tool_results"] {
        items(turn, list).for_each(complete_message);
    }
}

fn complete_message(json: &mut Value) {
    let Some(message) = fields(json) else { return };
    match message.get("role").and_then(Value::as_str) {
        Some("assistant") => {
            fill_all(message, &["model", "provider"], &json!(""));
            fill(message, "stopReason", "stop");
            fill(message, "usage", no_usage());
            if let Some(usage) = message.get_mut("usage").and_then(fields) {
                fill_all(usage, &["input", "output"], &json!(0));
            }
        }
        Some("toolResult") => {
            fill(message, "toolName", "");
            fill(message, "isError", false);
        }
        Some("user") => {}
        _ => return,
    }
    fill(message, "timestamp", 0);
    fill(message, "content", json!([]));
}
