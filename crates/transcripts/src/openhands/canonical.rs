//! The content of a message, independent of its form: in the log of the next call an answer has a list of parts instead
//! of a text, lacks the fields that the provider added, and has other cache marks.

use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::super::fields::{Fields, list, some};

/// Returns the content of a message as text to compare.
pub(super) fn canonical(raw: &RawValue) -> String {
    let fields = Fields::parse(raw.get()).unwrap_or_default();
    let mut parts = vec![fields.text("role").unwrap_or_default()];
    parts.push(fields.text("tool_call_id").unwrap_or_default());
    let text = texts(fields.get("content"));
    let calls = some(fields.get("tool_calls")).and_then(list);
    match calls.filter(|calls| !calls.is_empty()) {
        // The text of an answer may be trimmed in the next log, and its arguments reformatted. The ids of calls do not
        // identify an answer: some servers number them.
        Some(calls) => {
            parts.push(text.trim().to_owned());
            parts.extend(calls.into_iter().map(one_call));
        }
        None => parts.push(text),
    }
    let is_item = fields.get("role").is_none();
    if is_item {
        parts.push(raw.get().to_owned());
    }
    serde_json::Value::from(parts).to_string()
}

fn one_call(raw: &RawValue) -> String {
    let fields = Fields::parse(raw.get()).unwrap_or_default();
    let function = fields.object("function");
    let name = function.text("name").unwrap_or_default();
    match fields.text("id") {
        Some(id) => format!("{id} {name}"),
        None => raw.get().to_owned(),
    }
}

/// Joins the texts of a content; other parts are kept unchanged.
fn texts(content: Option<&RawValue>) -> String {
    let Some(content) = some(content) else {
        return String::new();
    };
    if let Ok(text) = serde_json::from_str::<String>(content.get()) {
        return text.trim_end().to_owned();
    }
    let Some(parts) = list(content) else {
        return content.get().to_owned();
    };
    let part = |raw: &RawValue| {
        let fields = Fields::parse(raw.get()).unwrap_or_default();
        let stated = fields
            .text("text")
            .or_else(|| serde_json::from_str(raw.get()).ok());
        let empty = fields.get("text").is_some_and(|text| text.get() == "\"\"");
        match stated {
            Some(text) => text,
            None if empty => String::new(),
            None => raw.get().to_owned(),
        }
    };
    let parts: Vec<String> = parts.into_iter().map(part).collect();
    parts.join("\n").trim_end().to_owned()
}

/// Returns a short fingerprint of the first message of the user: short enough not to reveal its content, and long
/// enough that few sessions are compared with each other.
pub(super) fn fingerprint<'a>(messages: impl Iterator<Item = &'a RawValue>) -> String {
    let is_user = |raw: &&RawValue| {
        let fields = Fields::parse(raw.get()).unwrap_or_default();
        fields.text("role").as_deref() == Some("user")
    };
    let mut messages = messages;
    let first = messages.find(is_user).map(canonical).unwrap_or_default();
    let digest = Sha256::digest(first);
    format!("{:02x}{:02x}", digest[0], digest[1])
}
