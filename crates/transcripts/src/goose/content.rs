//! Translates the items of goose's messages to content.

use loopstore::model::{Content, Message, ToolResultMessage};
use serde_json::value::RawValue;

use crate::fields::{Fields, list};
use crate::values::{arguments, call, object_in, redacted_thinking_of, text_of};

/// The contents of a message.
#[derive(Default)]
pub(super) struct GooseItems {
    /// Texts, images, thinking and calls.
    pub(super) content: Vec<Content>,
    pub(super) results: Vec<ToolResultMessage>,
}

/// Reads the items of a message. Items for the person only are left in the record.
///
/// # Errors
/// If the content is not a list.
pub(super) fn items(content: &RawValue) -> Result<GooseItems, String> {
    let mut items = GooseItems::default();
    for raw in list(content).ok_or("its content is no list")? {
        let Some(item) = object_in(Some(raw)) else {
            continue;
        };
        match item.text("type").as_deref() {
            Some("toolRequest" | "frontendToolRequest") => {
                items.content.push(Content::ToolCall(request(&item)?));
            }
            Some("toolResponse") => items.results.push(response(&item)),
            _ => items.content.extend(block(&item)),
        }
    }
    Ok(items)
}

fn block(item: &Fields<'_>) -> Option<Content> {
    if !is_for_model(item) {
        return None;
    }
    match item.text("type")?.as_str() {
        "text" => text_of(item.get("text")).map(Content::text),
        "image" => Some(Content::image(item.text("data")?, item.text("mimeType")?)),
        "thinking" => Some(Content::thinking(
            item.text("thinking")?,
            item.text("signature"),
        )),
        "reasoning" => Some(Content::thinking(item.text("text")?, None)),
        "redactedThinking" => redacted_thinking_of(&item.text("data")?),
        "resource" => item.child("resource")?.text("text").map(Content::text),
        _ => None,
    }
}

/// True if an item is for the model. The same text often exists twice, once for the model and once for the person.
fn is_for_model(item: &Fields<'_>) -> bool {
    let audience: Option<Vec<String>> = item.object("annotations").read("audience");
    audience.is_none_or(|audience| audience.iter().any(|one| one == "assistant"))
}

fn request(item: &Fields<'_>) -> Result<loopstore::model::ToolCall, String> {
    let fields = item.object("toolCall");
    let value = fields.object("value");
    // The text of the model could not be parsed as a call; the result contains the error.
    let name = value
        .text("name")
        .unwrap_or_else(|| "unreadable".to_owned());
    let mut call = call(item.text("id").unwrap_or_default(), name);
    arguments(&mut call, value.get("arguments"))?;
    Ok(call)
}

fn response(item: &Fields<'_>) -> ToolResultMessage {
    let fields = item.object("toolResult");
    let failed = fields.text("error");
    // A list or, in newer versions, an object that contains it.
    let value = fields.get("value");
    let of_object = fields.child("value");
    let parts = value
        .and_then(list)
        .or_else(|| of_object.as_ref()?.get("content").and_then(list));
    let mut content: Vec<Content> = parts
        .unwrap_or_default()
        .into_iter()
        .filter_map(|raw| block(&object_in(Some(raw))?))
        .collect();
    content.extend(failed.as_deref().map(Content::text));
    let is_error = of_object.and_then(|value| value.read::<bool>("isError"));
    ToolResultMessage {
        tool_call_id: item.text("id").unwrap_or_default(),
        content,
        is_error: failed.is_some() || is_error == Some(true),
        ..ToolResultMessage::default()
    }
}

/// Returns the joined texts of a message.
pub(super) fn text_in(content: &[Content]) -> String {
    let text = |block: &Content| match block {
        Content::Text(text) => Some(text.text.clone()),
        _ => None,
    };
    content
        .iter()
        .filter_map(text)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Returns a result as a message.
pub(super) fn result(mut result: ToolResultMessage, millis: Option<i64>) -> Message {
    result.timestamp = millis.map(Into::into);
    Message::ToolResult(result)
}
