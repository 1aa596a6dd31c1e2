//! Translates the records of Qwen Code to messages.

use loopstore::model::{
    AgentMessage, AssistantMessage, Content, Extra, Int, Message, Time, ToolResultMessage, Usage,
};
use serde_json::value::RawValue;

use crate::authors::by_harness;
use crate::fields::{Fields, list, some};
use crate::gemini::messages::{part, prompt, response};
use crate::values::{
    arguments, call, contents, count, millis_of, object_in, text_of, user, with_source,
};

/// Kinds of prompts that no person typed.
const BY_HARNESS: [&str; 3] = ["cron", "goal_runtime", "notification"];

/// The role of a record in the session.
pub(super) enum QwenRecord {
    Prompt(AgentMessage),
    /// A user message that is not by a person.
    Added(AgentMessage),
    Answer(AgentMessage),
    Results(Vec<AgentMessage>),
    /// These messages replaced the history.
    Compaction(Vec<AgentMessage>),
    /// A record that no model sees.
    Extension,
}

/// Reads a record.
///
/// # Errors
/// If a field that its kind requires is missing or invalid; the error gives the reason.
pub(super) fn read(mut record: Fields<'_>) -> Result<QwenRecord, String> {
    let time = record.text("timestamp").map(Time::from_text);
    let timestamp = millis_of(time.as_ref());
    let kind = record.text("type").unwrap_or_default();
    let subtype = record.text("subtype").unwrap_or_default();
    let message = record.object("message");
    let parts = message.get("parts").and_then(list);
    match (kind.as_str(), parts) {
        ("user", Some(_)) => {
            let payload = record.object("systemPayload");
            let shown = contents(payload.get("displayText"), part)?;
            let content = prompt(contents(message.get("parts"), part)?, &shown);
            let is_harness = BY_HARNESS.contains(&subtype.as_str())
                || record.text("provenance").as_deref() == Some("system");
            record.take("message");
            let source = record.to_json().ok();
            let message = with_source(user(content, timestamp), source);
            Ok(match is_harness {
                true => QwenRecord::Added(by_harness(message)),
                false => QwenRecord::Prompt(message),
            })
        }
        ("assistant", Some(parts)) => {
            let content = parts.into_iter().map(answered).collect::<Result<_, _>>()?;
            answer(record, content, timestamp).map(QwenRecord::Answer)
        }
        ("tool_result", Some(parts)) if subtype.is_empty() => {
            results(record, &parts, timestamp).map(QwenRecord::Results)
        }
        ("system", _) if subtype == "chat_compression" => Ok(compaction(&record)?),
        ("user" | "assistant" | "tool_result", None) if subtype.is_empty() => {
            Err("its message has no parts".into())
        }
        _ => Ok(QwenRecord::Extension),
    }
}

fn answer(
    mut record: Fields<'_>,
    content: Vec<Content>,
    timestamp: Option<Int>,
) -> Result<AgentMessage, String> {
    let usage = some(record.get("usageMetadata")).and_then(usage);
    let is_call = |block: &Content| matches!(block, Content::ToolCall(_));
    let stop = match content.iter().any(is_call) {
        true => "toolUse",
        false => "stop",
    };
    record.take("message");
    if usage.is_some() {
        record.take("usageMetadata");
    }
    let message = Message::Assistant(AssistantMessage {
        content,
        stop_reason: Some(stop.into()),
        model: record.take_string("model"),
        usage,
        timestamp,
        ..AssistantMessage::default()
    });
    Ok(with_source(message.into(), record.to_json().ok()))
}

/// Reads a part of an answer.
fn answered(raw: &RawValue) -> Result<Content, String> {
    let fields = object_in(Some(raw)).unwrap_or_default();
    if let Some(function) = fields.child("functionCall") {
        let name = function.text("name").ok_or("a call without a name")?;
        let id = function.text("id").unwrap_or_default();
        let mut call = call(id, name);
        arguments(&mut call, function.get("args"))?;
        return Ok(Content::ToolCall(call));
    }
    match (fields.text("text"), fields.read::<bool>("thought")) {
        (Some(text), Some(true)) => Ok(Content::thinking(text, fields.text("thoughtSignature"))),
        (Some(text), _) => Ok(Content::text(text)),
        _ => part(raw),
    }
}

/// Reads the results of tools for the model.
fn results(
    mut record: Fields<'_>,
    parts: &[&RawValue],
    timestamp: Option<Int>,
) -> Result<Vec<AgentMessage>, String> {
    let result = record.object("toolCallResult");
    record.take("message");
    let other_fields = record.to_text();
    let status = result.text("status");
    let mut results = Vec::new();
    for raw in parts {
        let fields = object_in(Some(raw)).unwrap_or_default();
        let Some(function) = fields.child("functionResponse") else {
            continue;
        };
        let (mut content, _) = response(raw)?;
        content.extend(contents(function.get("parts"), attached)?);
        let is_error = matches!(status.as_deref(), Some("error" | "cancelled"))
            || function.object("response").get("error").is_some();
        let id = text_of(function.get("id")).or_else(|| text_of(result.get("callId")));
        let message = Message::ToolResult(ToolResultMessage {
            tool_call_id: id.unwrap_or_default(),
            tool_name: function.text("name").unwrap_or_default(),
            content,
            is_error,
            timestamp: timestamp.clone(),
            ..ToolResultMessage::default()
        });
        let source = Fields::parse(&other_fields).and_then(|fields| fields.to_json());
        results.push(with_source(message.into(), source.ok()));
    }
    match results.is_empty() {
        true => Err("a result without a function's response".into()),
        false => Ok(results),
    }
}

/// Reads an attachment of a result: an image may have a name.
fn attached(raw: &RawValue) -> Result<Content, String> {
    let data = object_in(Some(raw)).and_then(|fields| fields.child("inlineData"));
    let image =
        data.and_then(|data| Some(Content::image(data.text("data")?, data.text("mimeType")?)));
    image.map_or_else(|| part(raw), Ok)
}

/// Reads the messages that replace the history; a failed attempt is not a compaction.
fn compaction(record: &Fields<'_>) -> Result<QwenRecord, String> {
    let payload = record.object("systemPayload");
    let status = payload.object("info").read::<i64>("compressionStatus");
    let history = payload.get("compressedHistory").and_then(list);
    let (Some(history), None | Some(1)) = (history, status) else {
        return Ok(QwenRecord::Extension);
    };
    let mut messages = Vec::new();
    for raw in history {
        let of = Fields::parse(raw.get())?;
        // Calls that are still open are in the record itself.
        let texts: Vec<Content> = contents(of.get("parts"), answered)?
            .into_iter()
            .filter(|block| matches!(block, Content::Text(_) | Content::Image(_)))
            .collect();
        if texts.is_empty() {
            continue;
        }
        messages.push(match of.text("role").as_deref() {
            Some("model") => Message::Assistant(AssistantMessage {
                content: texts,
                ..AssistantMessage::default()
            })
            .into(),
            _ => by_harness(user(texts, None)),
        });
    }
    Ok(QwenRecord::Compaction(messages))
}

/// Reads the token usage of an answer. Cached tokens are part of the prompt; thoughts are part of the answer unless the
/// total shows otherwise.
fn usage(value: &RawValue) -> Option<Usage> {
    let fields = Fields::parse(value.get()).ok()?;
    let of = |key: &str| count(fields.get(key));
    let number = |key: &str| of(key).map_or(0, |count| count.get());
    let (prompt, cached) = (
        of("promptTokenCount")?.get(),
        number("cachedContentTokenCount"),
    );
    let (answer, thoughts) = (number("candidatesTokenCount"), number("thoughtsTokenCount"));
    let total = of("totalTokenCount");
    let is_beside = total.as_ref().is_some_and(|total| {
        thoughts > 0 && total.get() == prompt.saturating_add(answer).saturating_add(thoughts)
    });
    let output = if is_beside {
        answer.saturating_add(thoughts)
    } else {
        answer
    };
    Some(Usage {
        input: prompt.saturating_sub(cached).max(0).into(),
        output: output.into(),
        reasoning: of("thoughtsTokenCount"),
        cache_read: of("cachedContentTokenCount"),
        cache_write: None,
        total_tokens: total,
        extra: Extra::default(),
    })
}
