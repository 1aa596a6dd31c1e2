//! A blame as a record of Agent Trace, version 0.1.0 (<https://agent-trace.dev>).
//!
//! A record has files, a file has conversations, and a conversation has the ranges of lines that it wrote. Here a
//! conversation is a session. Lines that no recorded turn wrote are a conversation whose contributor is unknown. The
//! turns, for which the form has no field, are in `metadata` under `dev.loopstore`.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::report::{Blame, BlameRange, TurnEntry};

/// The version of the specification.
const VERSION: &str = "0.1.0";
/// The longest id of a model that the specification allows, in characters.
const LONGEST_MODEL: usize = 250;

/// Values that a record may contain and a blame does not know.
#[derive(Clone, Debug, Default)]
pub struct AgentTraceOptions {
    /// The path of the file relative to the root of its repository; the given path if `None`.
    pub path: Option<String>,
    /// The whole id of the git commit whose file has the attributed lines.
    pub revision: Option<String>,
    /// The time of the record, as RFC 3339 text.
    pub timestamp: String,
    /// The text whose lines are attributed, for their hashes.
    pub text: Option<String>,
}

/// Returns the record of a blame. The same blame and options give the same record: its id is made of its content.
pub fn agent_trace(blame: &Blame, options: &AgentTraceOptions) -> Value {
    let lines: Vec<&str> = options.text.iter().flat_map(|text| text.lines()).collect();
    let mut by_session: BTreeMap<Option<&str>, Vec<&BlameRange>> = BTreeMap::new();
    for range in &blame.ranges {
        let session = range.turn.as_ref().map(|turn| turn.session_id.as_str());
        by_session.entry(session).or_default().push(range);
    }
    let conversations = by_session
        .into_iter()
        .map(|(session, ranges)| conversation(session, &ranges, &lines));
    let path = options.path.as_deref().unwrap_or(&blame.file);
    let mut record = json!({
        "version": VERSION,
        "timestamp": options.timestamp,
        "tool": {"name": "loopstore", "version": env!("CARGO_PKG_VERSION")},
        "files": [{"path": path, "conversations": conversations.collect::<Vec<_>>()}],
        "metadata": {"dev.loopstore": {
            "turns": turns(blame),
            "unfollowed_changes": blame.unfollowed,
            "unplaced_lines": blame.unplaced_lines,
        }},
    });
    if let Some(fields) = record.as_object_mut() {
        if let Some(revision) = &options.revision {
            fields.insert("vcs".into(), json!({"type": "git", "revision": revision}));
        }
        let id = content_id(fields);
        fields.insert("id".into(), id.into());
    }
    record
}

/// Returns a UUID of version 8 that is made of the content of a record.
fn content_id(fields: &Map<String, Value>) -> String {
    let text = serde_json::to_string(fields).unwrap_or_default();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&Sha256::digest(text.as_bytes())[..16]);
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let text = hex::encode(bytes);
    let parts = [
        &text[..8],
        &text[8..12],
        &text[12..16],
        &text[16..20],
        &text[20..],
    ];
    parts.join("-")
}

fn conversation(session: Option<&str>, ranges: &[&BlameRange], lines: &[&str]) -> Value {
    let first = ranges.iter().find_map(|range| range.turn.as_ref());
    let own = contributor(first);
    let ranges: Vec<Value> = ranges
        .iter()
        .map(|range| range_value(range, &own, lines))
        .collect();
    let mut found = json!({"contributor": own, "ranges": ranges});
    if let (Some(session), Some(fields)) = (session, found.as_object_mut()) {
        fields.insert("url".into(), session_url(session).into());
    }
    found
}

fn range_value(range: &BlameRange, own: &Value, lines: &[&str]) -> Value {
    let mut value = json!({"start_line": range.from_line, "end_line": range.to_line});
    let Some(fields) = value.as_object_mut() else {
        return value;
    };
    let within = range.from_line as usize - 1..range.to_line as usize;
    if let Some(lines) = lines.get(within) {
        let hash = Sha256::digest(lines.join("\n").as_bytes());
        fields.insert(
            "content_hash".into(),
            format!("sha256:{}", hex::encode(hash)).into(),
        );
    }
    // Another model of the same session.
    let contributor = contributor(range.turn.as_ref());
    if contributor != *own {
        fields.insert("contributor".into(), contributor);
    }
    value
}

fn contributor(turn: Option<&TurnEntry>) -> Value {
    let Some(turn) = turn else {
        return json!({"type": "unknown"});
    };
    let model = turn.model.as_deref().map(|model| match &turn.provider {
        Some(provider) if !model.contains('/') => format!("{provider}/{model}"),
        _ => model.to_owned(),
    });
    match model.filter(|model| model.chars().count() <= LONGEST_MODEL) {
        Some(model) => json!({"type": "ai", "model_id": model}),
        None => json!({"type": "ai"}),
    }
}

/// Returns a URI for a session. It names the session and is no address: a database has none.
fn session_url(session: &str) -> String {
    let mut url = "loopstore:session/".to_owned();
    for byte in session.bytes() {
        match byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            true => url.push(char::from(byte)),
            false => url.push_str(&format!("%{byte:02X}")),
        }
    }
    url
}

fn turns(blame: &Blame) -> Vec<Value> {
    let turn = |range: &BlameRange| {
        let turn = range.turn.as_ref()?;
        Some(json!({
            "start_line": range.from_line,
            "end_line": range.to_line,
            "session_id": turn.session_id,
            "loop_id": turn.loop_id,
            "turn": turn.turn,
            "time": turn.time,
            "commit_id": turn.commit.as_ref().map(|commit| &commit.commit_id),
        }))
    };
    blame.ranges.iter().filter_map(turn).collect()
}
