//! One message of a chat.

use serde_json::value::RawValue;

use super::super::extension::system_prompt;
use super::super::fields::{Fields, list, reason, shown, some};
use super::super::values::{arguments, call, data_url, json, other};
use crate::model::{
    AgentMessage, AssistantMessage, Content, Extra, Json, Message, ToolCall, ToolResultMessage,
    UserMessage,
};

/// Reads the `nth` message of a chat.
///
/// Fields that have no place in the message, and those whose exact form would be lost (an empty
/// content, an id that is a number), stand in its extra field `source`.
///
/// # Errors
/// Says why it is no message.
pub(in crate::import) fn read(record: &Json, nth: usize) -> Result<AgentMessage, String> {
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

/// Returns the object that `fields` are.
///
/// # Errors
/// If it nests too deep.
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
    let mut blocks = content(fields)?;
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
        let mut function = Fields::parse(value.get())?;
        let mut call = function_call(&mut function, format!("function-{nth}"))?;
        call.extra.insert("form", Json::string("function_call"));
        keep_rest(&mut call, &function)?;
        blocks.push(Content::ToolCall(call));
    }
    Ok(Message::Assistant(AssistantMessage {
        content: blocks,
        ..Default::default()
    })
    .into())
}

/// Reads one of `tool_calls`; one of an unknown type stays as it is.
fn tool_call(raw: &RawValue, id: impl Fn() -> String) -> Result<Content, String> {
    let Ok(mut fields) = Fields::parse(raw.get()) else {
        return other(raw);
    };
    let call_id = fields
        .take_id("id")
        .filter(|id| !id.is_empty())
        .unwrap_or_else(id);
    let form = ["function", "custom"]
        .into_iter()
        .find(|form| fields.get(form).is_some());
    let Some((form, Ok(mut inner))) =
        form.and_then(|form| Some((form, Fields::parse(fields.take(form)?.get()))))
    else {
        return other(raw);
    };
    let Ok(mut call) = function_call(&mut inner, call_id) else {
        return other(raw);
    };
    if fields
        .get("type")
        .is_some_and(|kind| kind.get().trim_matches('"') == form)
    {
        fields.take("type");
    }
    if form == "custom" {
        call.extra.insert("form", Json::string(form));
    }
    let mut rest = Extra::default();
    for (key, value) in fields.iter() {
        rest.insert(key, json(value)?);
    }
    if !inner.is_empty() {
        rest.insert(form, inner.to_json()?);
    }
    if !rest.is_empty() {
        call.extra.insert("source", object(&rest)?);
    }
    Ok(Content::ToolCall(call))
}

fn keep_rest(call: &mut ToolCall, function: &Fields<'_>) -> Result<(), String> {
    if !function.is_empty() {
        call.extra.insert("source", function.to_json()?);
    }
    Ok(())
}

fn function_call(fields: &mut Fields<'_>, id: String) -> Result<ToolCall, String> {
    let name = fields.take_string("name").ok_or("a call without a name")?;
    let mut call = call(id, name);
    if let Some(value) = fields.take("arguments") {
        arguments(&mut call, Some(value))?;
    } else if let Some(text) = fields.take_string("input") {
        call.arguments = Json::string(&text);
        call.extra.insert("argumentsText", Json::string(&text));
    }
    Ok(call)
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
        // An empty text block is what providers refuse, so only `source` tells of it.
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

/// Whether a part is a call, a result or sealed state of another form, which must not be taken for what
/// somebody said.
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

/// Reads an `image_url` part whose URL holds the image itself.
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
