//! One message of a chat.

use loopstore::model::{
    AgentMessage, AssistantMessage, Content, Extra, Json, Message, ToolCall, ToolResultMessage,
    UserMessage,
};
use loopstore_provider::read_call;
use loopstore_provider::reasoning;
use serde_json::value::RawValue;

use super::super::extension::system_prompt;
use super::super::fields::{Fields, list, reason, shown, some};
use super::super::values::{data_url, json, other};

/// Reads the `nth` message of a chat.
///
/// Fields without a place in the message, and fields whose exact form would be lost (an empty content, an id that is a
/// number), are kept in its extra field `source`.
///
/// # Errors
/// If the record is not a message; the error gives the reason.
pub(crate) fn read(record: &Json, nth: usize) -> Result<AgentMessage, String> {
    let mut fields = Fields::parse(record.as_str())?;
    let role = fields
        .take_string("role")
        .ok_or("its role is missing or no text")?;
    let mut message = match role.as_str() {
        "system" | "developer" => system(&role, &mut fields)?,
        "user" => {
            let content = content(&mut fields)?;
            Message::User(UserMessage {
                content,
                timestamp: None,
                ..UserMessage::default()
            })
            .into()
        }
        "assistant" => assistant(nth, &mut fields)?,
        "tool" => result(&mut fields)?,
        "function" => {
            let mut message = result(&mut fields)?;
            message.extra_mut().insert("form", Json::string("function"));
            message
        }
        other => return Err(format!("unknown role `{}`", shown(other))),
    };
    if !fields.is_empty() {
        message.extra_mut().insert("source", fields.to_json()?);
    }
    Ok(message)
}

/// Returns `fields` as an object.
///
/// # Errors
/// If the value nests too deeply.
pub(super) fn object(fields: &Extra) -> Result<Json, String> {
    let field =
        |(key, value): (&str, &Json)| format!("{}:{}", Json::string(key).as_str(), value.as_str());
    let text = format!(
        "{{{}}}",
        fields.iter().map(field).collect::<Vec<_>>().join(",")
    );
    Json::parse(&text).map_err(reason)
}

fn system(role: &str, fields: &mut Fields<'_>) -> Result<AgentMessage, String> {
    let content = fields
        .take("content")
        .map(json)
        .transpose()?
        .unwrap_or_default();
    let mut message = system_prompt(&content)?;
    if role != "system" {
        message.extra_mut().insert("form", Json::string(role));
    }
    Ok(message)
}

fn assistant(nth: usize, fields: &mut Fields<'_>) -> Result<AgentMessage, String> {
    let mut blocks = reasoning_of(fields);
    blocks.extend(content(fields)?);
    if let Some(value) = some(fields.take("tool_calls")) {
        for (place, raw) in list(value)
            .ok_or("tool_calls is not a list")?
            .into_iter()
            .enumerate()
        {
            blocks.push(tool_call(raw, || format!("call-{nth}-{place}"))?);
        }
    }
    if let Some(value) = some(fields.take("function_call")) {
        blocks.push(old_call(value, format!("function-{nth}"))?);
    }
    Ok(Message::Assistant(AssistantMessage {
        content: blocks,
        ..Default::default()
    })
    .into())
}

/// Reads the reasoning that a server returns in a separate field.
fn reasoning_of(fields: &mut Fields<'_>) -> Vec<Content> {
    let mut texts = Vec::new();
    for key in reasoning::TEXTS {
        if let Some(text) = fields.text(key).filter(|text| !text.is_empty()) {
            fields.take(key);
            texts.push((key, text));
        }
    }
    let details = fields
        .get(reasoning::DETAILS)
        .filter(|details| list(details).is_some_and(|list| !list.is_empty()));
    let details = details.and_then(|details| json(details).ok());
    if details.is_some() {
        fields.take(reasoning::DETAILS);
    }
    reasoning::thinking(texts, details)
}

/// Reads one of `tool_calls`; a call of an unknown type is kept unchanged.
fn tool_call(raw: &RawValue, id: impl Fn() -> String) -> Result<Content, String> {
    let Ok(Content::ToolCall(mut call)) = read_call(raw.get()) else {
        return other(raw);
    };
    if call.id.is_empty() {
        call.id = id();
    }
    let fields = Fields::parse(raw.get())?;
    let inner = ["function", "custom"]
        .iter()
        .find_map(|key| fields.child(key));
    keep_text(&mut call, &inner.unwrap_or(fields));
    Ok(Content::ToolCall(call))
}

/// Keeps the text of the arguments if it differs from the serialised value.
fn keep_text(call: &mut ToolCall, function: &Fields<'_>) {
    let text = ["arguments", "input"]
        .iter()
        .find_map(|key| function.read::<String>(key));
    if let Some(text) = text.filter(|text| call.arguments.as_str() != text) {
        call.extra.insert("argumentsText", Json::string(&text));
    }
}

/// Reads a call in the form that preceded `tool_calls`.
fn old_call(raw: &RawValue, id: String) -> Result<Content, String> {
    let call = format!(r#"{{"function":{}}}"#, raw.get());
    let Ok(Content::ToolCall(mut call)) = read_call(&call) else {
        return Err("its function_call cannot be read".into());
    };
    call.id = id;
    call.extra.insert("form", Json::string("function_call"));
    keep_text(&mut call, &Fields::parse(raw.get())?);
    Ok(Content::ToolCall(call))
}

fn result(fields: &mut Fields<'_>) -> Result<AgentMessage, String> {
    let message = ToolResultMessage {
        content: content(fields)?,
        tool_call_id: fields.take_id("tool_call_id").unwrap_or_default(),
        tool_name: fields.take_string("name").unwrap_or_default(),
        ..ToolResultMessage::default()
    };
    Ok(Message::ToolResult(message).into())
}

fn content(fields: &mut Fields<'_>) -> Result<Vec<Content>, String> {
    let Some(value) = some(fields.get("content")) else {
        fields.take("content");
        return Ok(Vec::new());
    };
    let blocks = match value.get().as_bytes().first() {
        // Providers reject an empty text block, so only `source` keeps it.
        Some(b'"') if value.get() == "\"\"" => return Ok(Vec::new()),
        Some(b'"') => vec![Content::text(text(value)?)],
        Some(b'[') => {
            let parts = list(value).ok_or("its content cannot be read")?;
            parts.into_iter().map(part).collect::<Result<_, _>>()?
        }
        _ => return Err("its content is neither text nor a list of parts".into()),
    };
    fields.take("content");
    Ok(blocks)
}

fn part(raw: &RawValue) -> Result<Content, String> {
    if raw.get().starts_with('"') {
        return text(raw).map(Content::text);
    }
    let fields = Fields::parse(raw.get()).unwrap_or_default();
    if let Some(kind) = fields.text("type").filter(|kind| is_foreign(kind)) {
        return Err(format!(
            "a part of the type `{kind}`, which chat completions do not have"
        ));
    }
    match image(fields) {
        Some(image) => Ok(image),
        None => other(raw),
    }
}

/// True if a part is a call, a result or opaque state of another form, which must not be read as a text.
fn is_foreign(kind: &str) -> bool {
    const FOREIGN: [&str; 5] = [
        "compaction",
        "redacted_thinking",
        "server_tool_use",
        "tool_result",
        "tool_use",
    ];
    FOREIGN.contains(&kind)
}

/// Reads an `image_url` part whose URL contains the image.
fn image(mut fields: Fields<'_>) -> Option<Content> {
    fields
        .take("type")
        .filter(|kind| kind.get() == "\"image_url\"")?;
    let mut inner = Fields::parse(fields.take("image_url")?.get()).ok()?;
    let url = inner.take_string("url")?;
    let mut image = data_url(&url)?;
    if let Content::Image(image) = &mut image {
        for (key, value) in fields.iter().chain(inner.iter()) {
            if !["data", "mimeType", "type"].contains(&key) {
                image.extra.insert(key, json(value).ok()?);
            }
        }
    }
    Some(image)
}

fn text(raw: &RawValue) -> Result<String, String> {
    serde_json::from_str(raw.get()).map_err(reason)
}
