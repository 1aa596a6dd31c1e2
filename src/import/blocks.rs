//! What records of several formats have in common: texts, images, arguments, and what is kept
//! besides.

use serde_json::value::RawValue;

use super::fields::{Fields, list, reason};
use crate::model::{AgentMessage, Content, Extra, Int, Json, Message, Time, ToolCall, UserMessage};

/// The key under which a message keeps what its record says besides.
const SOURCE: &str = "source";

/// Returns a value as it is.
pub(super) fn json(raw: &RawValue) -> Result<Json, String> {
    Json::parse(raw.get()).map_err(reason)
}

/// Returns a string that is not empty.
pub(super) fn text(value: Option<&RawValue>) -> Option<String> {
    let text: String = serde_json::from_str(value?.get()).ok()?;
    (!text.is_empty()).then_some(text)
}

/// Reads an object.
pub(super) fn object(value: Option<&RawValue>) -> Option<Fields<'_>> {
    Fields::parse(value?.get()).ok()
}

/// Reads a count of tokens.
pub(super) fn count(value: Option<&RawValue>) -> Option<Int> {
    serde_json::from_str(value?.get()).ok()
}

/// Returns the milliseconds of a time written as ISO-8601 text.
pub(super) fn millis(time: Option<&Time>) -> Option<Int> {
    time.and_then(Time::millis).map(Int::from)
}

/// A message in the user's name.
pub(super) fn user(content: Vec<Content>, timestamp: Option<Int>) -> AgentMessage {
    Message::User(UserMessage { content, timestamp }).into()
}

/// Keeps what a message's record says besides.
pub(super) fn with_source(mut message: AgentMessage, source: Option<Json>) -> AgentMessage {
    if let Some(source) = source.filter(|source| !source.is_null()) {
        message.extra_mut().insert(SOURCE, source);
    }
    message
}

/// What is left of a record: `outer` without `taken`, where `inner` is what is left of the value
/// of that field. `None` if nothing is.
pub(super) fn rest(outer: &Fields<'_>, taken: &str, inner: &Fields<'_>) -> Option<Json> {
    let field =
        |(key, value): (&str, &RawValue)| format!("{}:{}", Json::string(key).as_str(), value.get());
    let fields = outer.iter().filter(|(key, _)| *key != taken);
    let mut fields: Vec<String> = fields.map(field).collect();
    if !inner.is_empty() {
        let key = Json::string(taken);
        fields.push(format!("{}:{}", key.as_str(), inner.to_text()));
    }
    match fields.is_empty() {
        true => None,
        false => Json::parse(&format!("{{{}}}", fields.join(","))).ok(),
    }
}

/// A system prompt.
pub(super) fn system(content: &Json, source: Option<Json>) -> AgentMessage {
    let data = format!("{{\"content\":{}}}", content.as_str());
    let message = AgentMessage::extension("system", Json::parse(&data).unwrap_or_default());
    with_source(message, source)
}

/// Keeps a record that no model sees, whole; `kind` is what it calls itself.
pub(super) fn note(kind: Option<&str>, record: &str) -> AgentMessage {
    let kind = match kind {
        // The kind `system` stands for system prompts.
        Some("system") => "system-record",
        Some(kind) if !kind.is_empty() => kind,
        _ => "unknown",
    };
    AgentMessage::extension(kind, Json::parse(record).unwrap_or_default())
}

/// Keeps what is no record.
pub(super) fn unreadable(raw: &[u8]) -> AgentMessage {
    let read = std::str::from_utf8(raw).ok();
    let data = read.and_then(|text| Json::parse(text).ok());
    let data = data.filter(|data| !data.is_null());
    let lossy = || Json::string(&String::from_utf8_lossy(raw));
    AgentMessage::extension("unreadable", data.unwrap_or_else(lossy))
}

/// Reads a call's arguments: the object that a text holds, else the text itself.
pub(super) fn arguments(call: &mut ToolCall, value: Option<&RawValue>) -> Result<(), String> {
    let Some(value) = value else { return Ok(()) };
    let Ok(text) = serde_json::from_str::<String>(value.get()) else {
        call.arguments = json(value)?;
        return Ok(());
    };
    call.arguments = match Json::parse(&text) {
        Ok(object) if object.as_str().starts_with('{') => object,
        _ => Json::string(&text),
    };
    if call.arguments.as_str() != text {
        call.extra.insert("argumentsText", Json::string(&text));
    }
    Ok(())
}

/// A call without arguments so far.
pub(super) fn call(id: String, name: String) -> ToolCall {
    ToolCall {
        id,
        name,
        arguments: Json::null(),
        extra: Extra::default(),
    }
}

/// Reads the image that a `data:` URL holds.
pub(super) fn data_url(url: &str) -> Option<Content> {
    let (mime_type, data) = url.strip_prefix("data:")?.split_once(";base64,")?;
    Some(Content::image(data, mime_type))
}

/// Takes a block as it is.
pub(super) fn other(raw: &RawValue) -> Result<Content, String> {
    json(raw)?.read().map_err(reason)
}

/// Reads a content: a text, or a list of blocks that `block` reads. An empty text is no block.
pub(super) fn contents(
    value: Option<&RawValue>,
    block: impl Fn(&RawValue) -> Result<Content, String>,
) -> Result<Vec<Content>, String> {
    let Some(value) = value.filter(|value| value.get() != "null") else {
        return Ok(Vec::new());
    };
    if let Ok(text) = serde_json::from_str::<String>(value.get()) {
        return Ok(match text.is_empty() {
            true => Vec::new(),
            false => vec![Content::text(text)],
        });
    }
    match list(value) {
        Some(blocks) => blocks.into_iter().map(block).collect(),
        None => Ok(vec![block(value)?]),
    }
}
