//! Translates the events of ADK to messages.

use loopstore::model::{
    AgentMessage, AssistantMessage, Content, Extra, Int, Json, Message, Text, Thinking, Time,
    ToolCall, ToolResultMessage, Usage,
};
use serde_json::value::RawValue;

use crate::fields::{Fields, list, some};
use crate::values::{
    count, json, object_in, other, rest_within, text_of, unix_millis, user, with_source,
};

/// Fields that newer versions name in camel case.
pub(super) trait Keys<'a> {
    /// Returns the value of the key that is present.
    fn either(&self, snake: &str, camel: &str) -> Option<&'a RawValue>;
}

impl<'a> Keys<'a> for Fields<'a> {
    fn either(&self, snake: &str, camel: &str) -> Option<&'a RawValue> {
        self.get(snake).or_else(|| self.get(camel))
    }
}

/// Reads a time written as seconds since the epoch, or as smaller units.
pub(super) fn time(value: Option<&RawValue>) -> Option<Time> {
    Time::from_millis(seconds(value)?)
}

fn seconds(value: Option<&RawValue>) -> Option<i64> {
    let millis = unix_millis(serde_json::from_str(value?.get()).ok()?)?;
    (millis.unsigned_abs() < 10_u64.pow(16)).then_some(millis)
}

/// Reads an event: the results of tools, then its other content. Returns no message if no model sees the event. `id` is
/// used for calls without an id.
///
/// # Errors
/// If its parts cannot be read; the error gives the reason.
pub(super) fn read(mut event: Fields<'_>, id: &str) -> Result<Vec<AgentMessage>, String> {
    let is_partial = event
        .get("partial")
        .is_some_and(|value| value.get() == "true");
    let Some(mut content) = event.child("content").filter(|_| !is_partial) else {
        return Ok(Vec::new());
    };
    let Some(parts) = some(content.get("parts")).and_then(list) else {
        return Ok(Vec::new());
    };
    content.take("parts");
    let is_user = event.text("author").as_deref() == Some("user");
    let timestamp = seconds(event.get("timestamp")).map(Int::from);
    let (mut results, mut blocks) = (Vec::new(), Vec::new());
    for (nth, raw) in parts.into_iter().enumerate() {
        match result(raw, timestamp.clone()) {
            Some(result) => results.push(result),
            None => blocks.push(part(raw, &format!("{id}/{nth}"))?),
        }
    }
    if !blocks.is_empty() {
        results.push(match is_user {
            true => user(blocks, timestamp),
            false => answer(blocks, timestamp, &mut event),
        });
    }
    let mut source = rest_within(&event, "content", &content);
    // Only the first message keeps the compaction.
    Ok(results
        .into_iter()
        .map(|message| with_event(message, source.take()))
        .collect())
}

/// Reads the content of an event, except the responses of tools.
///
/// # Errors
/// If its parts cannot be read; the error gives the reason.
pub(super) fn blocks(content: &Fields<'_>, id: &str) -> Result<Vec<Content>, String> {
    let parts = some(content.get("parts")).and_then(list);
    let parts = parts.unwrap_or_default().into_iter().enumerate();
    parts
        .map(|(nth, raw)| part(raw, &format!("{id}/{nth}")))
        .collect()
}

/// Adds the other fields of the event; the other fields of a result's own part go below `part`.
fn with_event(message: AgentMessage, source: Option<Json>) -> AgentMessage {
    match (source, message_part(&message)) {
        (Some(source), Some(part)) => {
            let mut message = with_source(message, Some(source));
            message.extra_mut().insert("part", part);
            message
        }
        (source, _) => with_source(message, source),
    }
}

/// Returns the other fields of the part of a result, if they were kept.
fn message_part(message: &AgentMessage) -> Option<Json> {
    match message {
        AgentMessage::Llm(llm) => llm.extra.get("source").cloned(),
        AgentMessage::Extension(_) => None,
    }
}

fn answer(content: Vec<Content>, timestamp: Option<Int>, event: &mut Fields<'_>) -> AgentMessage {
    let calls = content
        .iter()
        .any(|block| matches!(block, Content::ToolCall(_)));
    let usage = some(event.either("usage_metadata", "usageMetadata")).and_then(usage);
    if usage.is_some() {
        event.retain(|key| key != "usage_metadata" && key != "usageMetadata");
    }
    let message = Message::Assistant(AssistantMessage {
        content,
        stop_reason: Some(if calls { "toolUse" } else { "stop" }.into()),
        model: text_of(event.either("model_version", "modelVersion")),
        provider: None,
        usage,
        timestamp,
        error_message: text_of(event.either("error_message", "errorMessage")),
        ..AssistantMessage::default()
    });
    message.into()
}

fn usage(value: &RawValue) -> Option<Usage> {
    let fields = Fields::parse(value.get()).ok()?;
    let of = |snake: &str, camel: &str| count(fields.either(snake, camel));
    let reasoning = of("thoughts_token_count", "thoughtsTokenCount");
    let usage = Usage {
        input: of("prompt_token_count", "promptTokenCount")?,
        output: of("candidates_token_count", "candidatesTokenCount").unwrap_or_default(),
        cache_read: of("cached_content_token_count", "cachedContentTokenCount"),
        cache_write: None,
        total_tokens: of("total_token_count", "totalTokenCount"),
        reasoning,
        extra: Extra::default(),
    };
    Some(usage)
}

/// Reads a part that is a tool's response.
fn result(raw: &RawValue, timestamp: Option<Int>) -> Option<AgentMessage> {
    let mut part = object_in(Some(raw))?;
    let response = object_in(some(part.either("function_response", "functionResponse")))?;
    let response_json = response.get("response").map_or("null", RawValue::get);
    let fields = Fields::parse(response_json).ok();
    let failed = |fields: &Fields<'_>| fields.get("error").is_some() && fields.iter().count() == 1;
    part.retain(|key| key != "function_response" && key != "functionResponse");
    let message = Message::ToolResult(ToolResultMessage {
        tool_call_id: response.text("id").unwrap_or_default(),
        tool_name: response.text("name").unwrap_or_default(),
        content: vec![Content::text(Json::parse(response_json).ok()?.as_str())],
        is_error: fields.as_ref().is_some_and(failed),
        timestamp,
        ..ToolResultMessage::default()
    });
    let mut other_fields = Fields::default();
    for (key, value) in response.iter() {
        if !["id", "name", "response"].contains(&key) {
            other_fields.set(key, value);
        }
    }
    let source = match part.is_empty() && other_fields.is_empty() {
        true => None,
        false => rest_within(&part, "function_response", &other_fields),
    };
    Some(with_source(message.into(), source))
}

/// Reads a part; an unknown part is kept unchanged.
fn part(raw: &RawValue, spare_id: &str) -> Result<Content, String> {
    known(raw, spare_id).map_or_else(|| other(raw), Ok)
}

fn known(raw: &RawValue, spare_id: &str) -> Option<Content> {
    let mut part = object_in(Some(raw))?;
    part.retain_some();
    if let Some(function) = part.either("function_call", "functionCall") {
        let mut function = Fields::parse(function.get()).ok()?;
        part.retain(|key| key != "function_call" && key != "functionCall");
        return call(&mut function, &part, spare_id);
    }
    if let Some(plain_text) = part.take_string("text") {
        let is_thought = part
            .get("thought")
            .is_some_and(|value| value.get() == "true");
        part.take("thought");
        let mut extra = Extra::default();
        if !part.is_empty() {
            extra.insert("source", part.to_json().ok()?);
        }
        return Some(match is_thought {
            true => Content::Thinking(Thinking {
                thinking: plain_text,
                signature: None,
                extra,
            }),
            false => Content::Text(Text {
                text: plain_text,
                extra,
            }),
        });
    }
    let data = object_in(part.either("inline_data", "inlineData"))?;
    if data.iter().count() != 2 || part.iter().count() != 1 {
        return None;
    }
    let mime_type = text_of(data.either("mime_type", "mimeType"))?;
    Some(Content::image(data.text("data")?, mime_type))
}

fn call(function: &mut Fields<'_>, part: &Fields<'_>, spare_id: &str) -> Option<Content> {
    let name = function.take_string("name")?;
    let id = function.take_id("id").filter(|id| !id.is_empty());
    let mut call = ToolCall {
        id: id.unwrap_or_else(|| spare_id.to_owned()),
        name,
        arguments: function
            .take("args")
            .map(json)
            .transpose()
            .ok()?
            .unwrap_or_default(),
        extra: Extra::default(),
    };
    function.retain_some();
    if let Some(source) = rest_within(part, "function_call", function) {
        call.extra.insert("source", source);
    }
    Some(Content::ToolCall(call))
}
