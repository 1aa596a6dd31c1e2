//! Items of OpenAI's Responses API: messages of the user, output of the model, results of tools.
//!
//! One answer of the model is several items in a row (reasoning, calls, a message). They are joined to one message.

use loopstore::model::{
    AgentMessage, AssistantMessage, Content, Extra, Json, Message, Text, Thinking, ToolCall,
    ToolResultMessage, UserMessage,
};
use serde_json::value::RawValue;

use super::extension::{extension, system_prompt};
use super::fields::{Fields, list, some};
use super::values::{
    arguments, as_it_is, data_image, is_encrypted, json, object_of, rest, with_extra_source,
};

/// The kind of an item.
pub(super) enum ResponseItem {
    /// A message of the user.
    Prompt(AgentMessage),
    /// A part of an answer, with the other fields of the item.
    Output(Vec<Content>, Extra),
    /// The result of a tool.
    Result(AgentMessage),
    /// An item that no model answers: instructions, and items of unknown types.
    Extension(AgentMessage),
}

/// Reads an item.
///
/// # Errors
/// If the record is not an item; the error gives the reason.
pub(super) fn item(raw: &RawValue) -> Result<ResponseItem, String> {
    let record = json(raw)?;
    let mut fields = Fields::parse(raw.get())?;
    let kind = fields.text("type").unwrap_or_default();
    let has_call = fields.text("call_id").is_some();
    match kind.as_str() {
        "" | "message" => message(fields, record),
        "reasoning" | "compaction" if is_encrypted(&fields) => Ok(ResponseItem::Output(
            vec![Content::sealed("openai", record)],
            Extra::default(),
        )),
        "reasoning" => Ok(ResponseItem::Output(
            vec![reasoning(fields)],
            Extra::default(),
        )),
        kind if has_call && kind.ends_with("_output") => {
            Ok(ResponseItem::Result(result(&mut fields)))
        }
        kind if has_call && kind.ends_with("_call") => Ok(ResponseItem::Output(
            vec![call(kind, fields)],
            Extra::default(),
        )),
        kind if kind.ends_with("_call") => Ok(ResponseItem::Output(
            as_it_is(raw).into_iter().collect(),
            Extra::default(),
        )),
        kind => Ok(ResponseItem::Extension(extension(Some(kind), record))),
    }
}

/// Joins the output items of one answer.
pub(super) fn answer(content: Vec<Content>, sources: Vec<Extra>) -> AgentMessage {
    let message = AssistantMessage {
        content,
        ..AssistantMessage::default()
    };
    let mut sources: Vec<Json> = sources
        .iter()
        .filter(|source| !source.is_empty())
        .map(object_of)
        .collect();
    let mut message = AgentMessage::from(Message::Assistant(message));
    let source = match sources.len() {
        0 => return message,
        1 => sources.remove(0),
        _ => Json::of(&sources).unwrap_or_default(),
    };
    message.extra_mut().insert("source", source);
    message
}

fn message(mut fields: Fields<'_>, record: Json) -> Result<ResponseItem, String> {
    let role = fields.text("role").ok_or("neither a type nor a role")?;
    let content = fields.take("content");
    fields.retain(|key| key != "role" && key != "type");
    match role.as_str() {
        "user" => {
            let message = UserMessage {
                content: blocks(content)?,
                timestamp: None,
                ..UserMessage::default()
            };
            let message = Message::User(message).into();
            Ok(ResponseItem::Prompt(with_extra_source(
                message,
                rest(&fields),
            )))
        }
        "assistant" => Ok(ResponseItem::Output(blocks(content)?, rest(&fields))),
        "system" | "developer" => {
            let content = content.map(json).transpose()?.unwrap_or_default();
            let mut message = system_prompt(&content)?;
            if role != "system" {
                message.extra_mut().insert("form", Json::string(&role));
            }
            Ok(ResponseItem::Extension(with_extra_source(
                message,
                rest(&fields),
            )))
        }
        role => Ok(ResponseItem::Extension(extension(Some(role), record))),
    }
}

/// Reads the content of a message or a result: a text or a list of parts.
fn blocks(content: Option<&RawValue>) -> Result<Vec<Content>, String> {
    let Some(content) = some(content) else {
        return Ok(Vec::new());
    };
    if let Ok(text) = serde_json::from_str::<String>(content.get()) {
        return Ok(nonempty_text(text));
    }
    match list(content) {
        Some(parts) => Ok(parts.into_iter().flat_map(part).collect()),
        None => Err("its content is neither text nor a list of parts".into()),
    }
}

/// Returns a text block; none for an empty text, which providers reject.
fn nonempty_text(text: String) -> Vec<Content> {
    match text.is_empty() {
        true => Vec::new(),
        false => vec![Content::text(text)],
    }
}

fn part(raw: &RawValue) -> Vec<Content> {
    if let Ok(text) = serde_json::from_str::<String>(raw.get()) {
        return nonempty_text(text);
    }
    let fields = Fields::parse(raw.get()).unwrap_or_default();
    let kind = fields.text("type").unwrap_or_default();
    let block = match kind.as_str() {
        "input_text" | "output_text" | "text" => text_block(fields, "text"),
        "refusal" => text_block(fields, "refusal"),
        "input_image" => fields.text("image_url").and_then(|url| data_image(&url)),
        _ => None,
    };
    block.or_else(|| as_it_is(raw)).into_iter().collect()
}

fn text_block(mut fields: Fields<'_>, key: &str) -> Option<Content> {
    let text = fields.text(key)?;
    // The type distinguishes a refusal from a text; `type` itself is taken.
    fields.retain(|name| name != "text" && name != "type");
    let mut extra = rest(&fields);
    if key == "refusal" {
        extra.remove("refusal");
        extra.insert("form", Json::string("refusal"));
    }
    Some(Content::Text(Text { text, extra }))
}

fn reasoning(mut fields: Fields<'_>) -> Content {
    let mut texts: Vec<String> = Vec::new();
    for key in ["summary", "content"] {
        let parts = fields.get(key).and_then(list).unwrap_or_default();
        let plain_texts = parts
            .iter()
            .filter_map(|part| Fields::parse(part.get()).ok()?.text("text"));
        texts.extend(plain_texts);
    }
    fields.retain(|key| !matches!(key, "type" | "thinking" | "signature"));
    Content::Thinking(Thinking {
        thinking: texts.join("\n\n"),
        signature: None,
        extra: rest(&fields),
    })
}

fn call(kind: &str, mut fields: Fields<'_>) -> Content {
    let id = fields.text("call_id").unwrap_or_default();
    let named = fields.text("name");
    let name = named.unwrap_or_else(|| kind.trim_end_matches("_call").to_owned());
    let mut call = ToolCall {
        id,
        name,
        arguments: object_of(&Extra::default()),
        extra: Extra::default(),
    };
    let key = ["arguments", "input", "action", "operation"]
        .into_iter()
        .find(|key| some(fields.get(key)).is_some());
    if let Some(value) = key.and_then(|key| fields.take(key)) {
        // Arguments that nest too deeply are left out.
        let _ = arguments(&mut call, Some(value));
    }
    if kind == "custom_tool_call" {
        call.extra.insert("form", Json::string("custom"));
    }
    fields.retain(|name| {
        name != "call_id" && name != "name" && !(name == "type" && kind == "function_call")
    });
    if !fields.is_empty() {
        call.extra.insert("source", object_of(&rest(&fields)));
    }
    Content::ToolCall(call)
}

fn result(fields: &mut Fields<'_>) -> AgentMessage {
    let output = some(fields.take("output"));
    let screenshot = output
        .and_then(|output| Fields::parse(output.get()).ok())
        .and_then(|output| data_image(&output.text("image_url")?));
    let content = match screenshot {
        Some(image) => vec![image],
        None => blocks(output).unwrap_or_else(|_| {
            output.map_or_else(Vec::new, |output| vec![Content::text(output.get())])
        }),
    };
    let result = ToolResultMessage {
        tool_call_id: fields.text("call_id").unwrap_or_default(),
        content,
        ..ToolResultMessage::default()
    };
    let kind = fields.text("type").unwrap_or_default();
    fields.retain(|key| key != "call_id" && !(key == "type" && kind == "function_call_output"));
    with_extra_source(Message::ToolResult(result).into(), rest(fields))
}
