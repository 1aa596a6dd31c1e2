//! Translates blocks to content: texts, images, thinking, calls and results of tools.

use loopstore::model::{Content, ToolResultMessage};
use serde_json::value::RawValue;

use super::words::FAILED;
use super::xml::calls_in;
use crate::fields::{Fields, list, some};
use crate::values::{arguments, call, is_encrypted, json, object_in, other, redacted_thinking_of};

/// A block of a message.
pub(super) enum TaskBlock<'a> {
    Text(String),
    Result(Fields<'a>),
    Other(Content),
}

/// Reads the content of a message: a text, or a list of blocks.
///
/// # Errors
/// If the content is neither text nor a list.
pub(super) fn blocks<'a>(content: Option<&'a RawValue>) -> Result<Vec<TaskBlock<'a>>, String> {
    let Some(content) = some(content) else {
        return Err("it has no content".into());
    };
    if let Ok(text) = serde_json::from_str::<String>(content.get()) {
        return Ok(vec![TaskBlock::Text(text)]);
    }
    let blocks = list(content).ok_or("its content is neither a text nor a list of blocks")?;
    let mut found = Vec::new();
    for raw in blocks {
        let Some(fields) = object_in(Some(raw)) else {
            return Err("a block of it is no object".into());
        };
        let kind = fields.text("type").unwrap_or_default();
        match kind.as_str() {
            "text" => found.extend(fields.text("text").map(TaskBlock::Text)),
            "tool_result" => found.push(TaskBlock::Result(fields)),
            _ => found.extend(block(&kind, &fields, raw)?.map(TaskBlock::Other)),
        }
    }
    Ok(found)
}

fn block(kind: &str, fields: &Fields<'_>, raw: &RawValue) -> Result<Option<Content>, String> {
    Ok(Some(match kind {
        "image" => match image(fields) {
            Some(image) => image,
            None => return other(raw).map(Some),
        },
        "thinking" => Content::thinking(
            fields.text("thinking").unwrap_or_default(),
            fields.text("signature"),
        ),
        "redacted_thinking" => {
            return Ok(fields
                .text("data")
                .and_then(|data| redacted_thinking_of(&data)));
        }
        "reasoning" if is_encrypted(fields) => Content::sealed("openai", json(raw)?),
        "reasoning" => {
            return Ok(fields
                .text("text")
                .map(|text| Content::thinking(text, None)));
        }
        // The signature is kept with the record.
        "thoughtSignature" => return Ok(None),
        "file" => {
            let path = fields.text("path").unwrap_or_default();
            let content = fields.text("content").unwrap_or_default();
            Content::text(format!(
                "<file_content path={path:?}>\n{content}\n</file_content>"
            ))
        }
        "tool_use" => {
            let name = fields.text("name").ok_or("a call without a name")?;
            let mut call = call(fields.text("id").unwrap_or_default(), name);
            arguments(&mut call, fields.get("input"))?;
            Content::ToolCall(call)
        }
        _ => return other(raw).map(Some),
    }))
}

/// Reads an image in Anthropic's form or in the form of newer sessions.
fn image(fields: &Fields<'_>) -> Option<Content> {
    let source = fields.object("source");
    match (source.text("data"), source.text("media_type")) {
        (Some(data), Some(media)) => Some(Content::image(data, media)),
        _ => Some(Content::image(
            fields.text("data")?,
            fields.text("mediaType")?,
        )),
    }
}

/// Reads the content of an answer. If the answer has no call blocks, the calls in its text are parsed; their ids begin
/// with `name`.
///
/// # Errors
/// If a part cannot be read; the error names it.
pub(super) fn answer(content: Option<&RawValue>, name: &str) -> Result<Vec<Content>, String> {
    let blocks = blocks(content)?;
    let is_call = |block: &TaskBlock<'_>| matches!(block, TaskBlock::Other(Content::ToolCall(_)));
    let is_native = blocks.iter().any(is_call);
    let mut found = Vec::new();
    for (nth, block) in blocks.into_iter().enumerate() {
        match block {
            TaskBlock::Text(text) if is_native => found.push(Content::text(text)),
            TaskBlock::Text(text) => {
                let name = match nth {
                    0 => name.to_owned(),
                    nth => format!("{name}.{nth}"),
                };
                found.extend(calls_in(&text, &name));
            }
            TaskBlock::Other(content) => found.push(content),
            TaskBlock::Result(_) => {}
        }
    }
    Ok(found)
}

/// Reads the result of a tool.
pub(super) fn result(fields: &Fields<'_>) -> Result<ToolResultMessage, String> {
    let mut content = Vec::new();
    for block in blocks(fields.get("content")).unwrap_or_default() {
        match block {
            TaskBlock::Text(text) => content.push(Content::text(text)),
            TaskBlock::Other(other) => content.push(other),
            TaskBlock::Result(_) => return Err("a result within a result".into()),
        }
    }
    let id = fields
        .text("tool_use_id")
        .or_else(|| fields.text("call_id"));
    let is_error = fields.read("is_error").unwrap_or(false);
    Ok(ToolResultMessage {
        tool_call_id: id.ok_or("a result that names no call")?,
        is_error: is_error || is_failure(&content),
        content,
        ..ToolResultMessage::default()
    })
}

/// True if a result reports a failure.
pub(super) fn is_failure(content: &[Content]) -> bool {
    let Some(Content::Text(text)) = content.first() else {
        return false;
    };
    let text = text.text.trim_start();
    // Roo reports it in JSON.
    let status = Fields::parse(text)
        .ok()
        .and_then(|fields| fields.text("status"));
    FAILED.iter().any(|words| text.starts_with(words))
        || matches!(status.as_deref(), Some("error" | "denied"))
}
