//! The messages of newer versions of OpenCode, one per row of the table `session_message`. Each is converted to the
//! form of `opencode export`.
//!
//! A row of a type without a counterpart is kept under the name of its type. A compaction becomes a request and a
//! summary, as in an export.

use serde_json::{Map, Value, json};

use super::database::OpencodeRecord;
use crate::decode::repaired;

/// Converts the rows of one session to messages.
pub(super) struct Projection<'a> {
    session: &'a str,
    /// The id of the last message of the user, which an answer refers to.
    prompt: Option<String>,
}

impl<'a> Projection<'a> {
    pub(super) fn new(session: &'a str) -> Self {
        Self {
            session,
            prompt: None,
        }
    }

    /// Returns the messages of a row.
    ///
    /// # Errors
    /// If the row cannot be read; the error gives the reason.
    pub(super) fn messages(&mut self, record: &OpencodeRecord) -> Result<Vec<String>, String> {
        let (text, _) = repaired(record.data.as_bytes());
        let mut data: Map<String, Value> =
            serde_json::from_str(&text).map_err(|error| error.to_string())?;
        if let (None, Some(created)) = (data.get("time"), record.created) {
            data.insert("time".into(), json!({"created": created}));
        }
        for key in ["id", "type", "sessionID"] {
            data.remove(key);
        }
        Ok(match record.kind.as_str() {
            "user" => vec![self.user(&record.id, data, false)],
            "synthetic" => vec![self.user(&record.id, data, true)],
            "shell" => vec![self.shell(&record.id, data)],
            "assistant" => vec![self.assistant(&record.id, data)],
            "compaction" if has_text(&data, "summary") => self.compaction(&record.id, data),
            kind => vec![self.message(&record.id, kind, data, Vec::new())],
        })
    }

    /// Writes a message: its fields and its parts.
    fn message(
        &self,
        id: &str,
        role: &str,
        mut info: Map<String, Value>,
        mut parts: Vec<Value>,
    ) -> String {
        info.insert("id".into(), id.into());
        info.insert("sessionID".into(), self.session.into());
        info.insert("role".into(), role.into());
        for (nth, part) in parts.iter_mut().enumerate() {
            if let Value::Object(part) = part {
                let name = format!("{id}-{nth}");
                part.entry("id").or_insert_with(|| name.into());
                part.insert("messageID".into(), id.into());
                part.insert("sessionID".into(), self.session.into());
            }
        }
        json!({"info": info, "parts": parts}).to_string()
    }

    fn user(&mut self, id: &str, mut data: Map<String, Value>, is_synthetic: bool) -> String {
        let mut parts = Vec::new();
        if let Some(text) = data.remove("text") {
            let mut part = json!({"type": "text", "text": text});
            if is_synthetic {
                part["synthetic"] = true.into();
            }
            parts.push(part);
        }
        parts.extend(list(data.remove("files")).into_iter().map(file));
        self.prompt = Some(id.to_owned());
        self.message(id, "user", data, parts)
    }

    /// Converts a command that the person ran, which the model sees as a message of the user.
    fn shell(&mut self, id: &str, mut data: Map<String, Value>) -> String {
        let mut word = |key: &str| match data.remove(key) {
            Some(Value::String(text)) => text,
            _ => String::new(),
        };
        let (command, output) = (word("command"), word("output"));
        let text = format!("$ {command}\n{output}");
        data.insert("text".into(), text.trim_end().into());
        self.user(id, data, false)
    }

    fn assistant(&mut self, id: &str, mut data: Map<String, Value>) -> String {
        let parts = list(data.remove("content")).into_iter().map(part).collect();
        if let Some(Value::Object(mut model)) = data.remove("model") {
            for (from, to) in [("id", "modelID"), ("providerID", "providerID")] {
                if let Some(value) = model.remove(from) {
                    data.insert(to.into(), value);
                }
            }
            if !model.is_empty() {
                data.insert("model".into(), model.into());
            }
        }
        if let Some(prompt) = &self.prompt {
            data.insert("parentID".into(), prompt.as_str().into());
        }
        self.message(id, "assistant", data, parts)
    }

    /// Converts a compaction to its request and its summary, which ends with the newest messages as a text.
    fn compaction(&mut self, id: &str, mut data: Map<String, Value>) -> Vec<String> {
        let mut text = |key: &str| match data.remove(key) {
            Some(Value::String(text)) if !text.is_empty() => Some(text),
            _ => None,
        };
        let texts = [text("summary"), text("recent")];
        let texts: Vec<String> = texts.into_iter().flatten().collect();
        let is_automatic = data.get("reason").is_some_and(|reason| reason == "auto");
        let mut times = Map::new();
        times.extend(
            data.get("time")
                .map(|time| ("time".to_owned(), time.clone())),
        );
        let request = json!({"type": "compaction", "auto": is_automatic});
        let request = self.message(id, "user", times, vec![request]);
        // The row is written when the summary is complete.
        if let Some(Value::Object(time)) = data.get_mut("time")
            && let Some(created) = time.get("created").cloned()
        {
            time.entry("completed").or_insert(created);
        }
        data.insert("parentID".into(), id.into());
        data.insert("summary".into(), true.into());
        let summary = json!({"type": "text", "text": texts.join("\n\n")});
        let name = format!("{id}-summary");
        vec![
            request,
            self.message(&name, "assistant", data, vec![summary]),
        ]
    }
}

fn has_text(data: &Map<String, Value>, key: &str) -> bool {
    data.get(key)
        .and_then(Value::as_str)
        .is_some_and(|text| !text.is_empty())
}

fn list(value: Option<Value>) -> Vec<Value> {
    match value {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    }
}

/// Renames the fields of a file to those of an export.
fn file(mut file: Value) -> Value {
    if let Value::Object(fields) = &mut file {
        for (from, to) in [("uri", "url"), ("name", "filename")] {
            if let Some(value) = fields.remove(from) {
                fields.insert(to.into(), value);
            }
        }
        fields.insert("type".into(), "file".into());
    }
    file
}

/// Converts a content of an answer to a part.
fn part(mut part: Value) -> Value {
    let kind = part.get("type").and_then(Value::as_str).map(str::to_owned);
    let Value::Object(fields) = &mut part else {
        return part;
    };
    match kind.as_deref() {
        Some("reasoning") => {
            if let Some(metadata) = fields.remove("providerMetadata") {
                fields.insert("metadata".into(), metadata);
            }
        }
        Some("tool") => tool(fields),
        _ => {}
    }
    part
}

/// Converts a call to the form of an export: its id and name, and its output as a text.
fn tool(fields: &mut Map<String, Value>) {
    let id = fields.remove("callID").or_else(|| fields.remove("id"));
    fields.extend(id.map(|id| ("callID".to_owned(), id)));
    let name = fields.remove("name");
    fields.extend(name.map(|name| ("tool".to_owned(), name)));
    let times = fields.remove("time");
    let Some(Value::Object(state)) = fields.get_mut("state") else {
        return;
    };
    let status = state
        .get("status")
        .and_then(Value::as_str)
        .map(str::to_owned);
    if let Some(text) = state
        .get("input")
        .and_then(Value::as_str)
        .map(str::to_owned)
    {
        // The arguments are incomplete.
        let whole = serde_json::from_str::<Value>(&text)
            .ok()
            .filter(Value::is_object);
        state.insert(
            "input".into(),
            whole.unwrap_or_else(|| json!({"text": text})),
        );
    }
    let (mut texts, mut files) = (Vec::new(), Vec::new());
    for item in list(state.remove("content")) {
        match item.get("text").and_then(Value::as_str) {
            Some(text) => texts.push(text.to_owned()),
            None => files.push(file(item)),
        }
    }
    files.extend(list(state.remove("attachments")).into_iter().map(file));
    if let Some(metadata) = state.remove("structured") {
        state.insert("metadata".into(), metadata);
    }
    match status.as_deref() {
        Some("completed") => {
            state.insert("output".into(), texts.join("\n").into());
        }
        Some("error") => {
            let message = state
                .remove("error")
                .map(|error| match error.get("message") {
                    Some(message) => message.clone(),
                    None => error,
                });
            state.insert(
                "error".into(),
                message.unwrap_or_else(|| texts.join("\n").into()),
            );
        }
        _ => {}
    }
    if !files.is_empty() {
        state.insert("attachments".into(), files.into());
    }
    if let Some(Value::Object(times)) = times {
        let mut own = Map::new();
        for (from, to) in [
            ("created", "start"),
            ("ran", "start"),
            ("completed", "end"),
            ("pruned", "compacted"),
        ] {
            own.extend(times.get(from).map(|time| (to.to_owned(), time.clone())));
        }
        state.insert("time".into(), own.into());
    }
}
