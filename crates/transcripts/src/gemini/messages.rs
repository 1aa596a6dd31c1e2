//! Translates the records of Gemini CLI to messages.

use std::ops::Range;

use loopstore::model::{
    AgentMessage, AssistantMessage, Content, Extra, Int, Json, Message, Thinking, Time,
    ToolResultMessage, Usage,
};
use loopstore_model::author::own_words;
use serde_json::value::RawValue;

use crate::authors::{mark_injected, split_around};
use crate::fields::{Fields, list, some};
use crate::values::{
    arguments, call, contents, count, millis_of, object_in, other, user, with_source,
};

/// The role of a record in the session.
pub(super) enum GeminiRecord {
    Prompt(Box<AgentMessage>),
    Answer(Box<GeminiAnswer>),
    /// The results of tools, each with the JSON that it was made from.
    Responses(Vec<(AgentMessage, String)>),
    /// A record that no model sees.
    Extension,
}

/// An answer with the results of its tools.
pub(super) struct GeminiAnswer {
    pub(super) message: AgentMessage,
    /// The JSON of the record, without the fields that change while its tools run.
    pub(super) raw: String,
    /// The result of each call that has one, with its JSON.
    pub(super) results: Vec<(AgentMessage, String)>,
}

/// Reads a record.
///
/// # Errors
/// If a field that its kind requires is missing or invalid; the error gives the reason.
pub(super) fn read(mut fields: Fields<'_>) -> Result<GeminiRecord, String> {
    let time = fields.text("timestamp").map(Time::from_text);
    let timestamp = millis_of(time.as_ref());
    match fields.text("type").as_deref() {
        Some("user") => {
            if let Some(responses) = responses(&fields, &timestamp) {
                return Ok(GeminiRecord::Responses(responses));
            }
            let shown = contents(fields.get("displayContent"), part)?;
            let content = prompt(contents(fields.get("content"), part)?, &shown);
            fields.take("content");
            fields.take("type");
            let source = fields.to_json().ok();
            Ok(GeminiRecord::Prompt(Box::new(with_source(
                user(content, timestamp),
                source,
            ))))
        }
        Some("gemini" | "model" | "assistant") => answer(fields, timestamp),
        _ => Ok(GeminiRecord::Extension),
    }
}

/// Returns the results in a user message, if it contains nothing else.
fn responses(fields: &Fields<'_>, timestamp: &Option<Int>) -> Option<Vec<(AgentMessage, String)>> {
    let parts = some(fields.get("content")).and_then(list)?;
    let read = |raw: &RawValue| {
        let function = object_in(Some(raw))?.child("functionResponse")?;
        let (mut content, _) = response(raw).ok()?;
        content.extend(contents(function.get("parts"), part).ok()?);
        let response_json = function.object("response");
        let id = function.text("id").unwrap_or_default();
        // The same text as in the record of the call.
        let made_from = format!("{id}\n[{}]", Json::parse(raw.get()).ok()?.as_str());
        let message = Message::ToolResult(ToolResultMessage {
            tool_call_id: id,
            tool_name: function.text("name").unwrap_or_default(),
            content,
            is_error: response_json.get("error").is_some() && response_json.iter().count() == 1,
            timestamp: timestamp.clone(),
            ..ToolResultMessage::default()
        });
        Some((message.into(), made_from))
    };
    let read: Option<Vec<_>> = parts.into_iter().map(read).collect();
    read.filter(|responses| !responses.is_empty())
}

/// The line before the files that a prompt names, whose contents are added after the prompt.
const FILES: &str = "--- Content from referenced files ---";

/// Separates the words of a prompt from added texts. `shown` is the part that the person saw.
pub(crate) fn prompt(content: Vec<Content>, shown: &[Content]) -> Vec<Content> {
    let text_of = |block: &Content| match block {
        Content::Text(text) => Some(text.text.clone()),
        _ => None,
    };
    let shown = shown.iter().find_map(text_of).filter(|shown| {
        let contains_shown =
            |block: &Content| text_of(block).is_some_and(|text| text.contains(shown));
        !shown.trim().is_empty() && content.iter().any(contains_shown)
    });
    let shown = shown.as_deref();
    let own_of = |block: &Content| match block {
        Content::Text(text) => typed_range(&text.text, shown),
        _ => None,
    };
    let Some(at) = content.iter().position(|block| own_of(block).is_some()) else {
        return content;
    };
    let mut parts = Vec::new();
    for (nth, mut block) in content.into_iter().enumerate() {
        match (own_of(&block).filter(|_| nth == at), &block) {
            (Some(own), Content::Text(text)) => parts.extend(split_around(text, own)),
            _ => {
                if nth > at || shown.is_some() {
                    mark_injected(&mut block);
                }
                parts.push(block);
            }
        }
    }
    parts
}

/// Returns the range of the person's words in a text with additions.
fn typed_range(text: &str, shown: Option<&str>) -> Option<Range<usize>> {
    if let Some(shown) = shown {
        return text.find(shown).map(|at| at..at + shown.len());
    }
    let own = own_words(text);
    let at = own.start + text[own].find(FILES)?;
    (at == 0 || text[..at].ends_with('\n')).then_some(0..at)
}

fn answer(mut fields: Fields<'_>, timestamp: Option<Int>) -> Result<GeminiRecord, String> {
    let mut content = Vec::new();
    if let Some(thoughts) = fields.get("thoughts").and_then(list) {
        for thought in thoughts {
            content.push(thinking(thought)?);
        }
        fields.take("thoughts");
    }
    content.extend(contents(fields.get("content"), part)?);
    fields.take("content");
    let mut made_from: Vec<String> = content
        .iter()
        .filter_map(|block| Some(Json::of(block).ok()?.as_str().to_owned()))
        .collect();
    let id = fields.text("id").unwrap_or_default();
    let (mut results, mut odd) = (Vec::new(), Vec::new());
    let calls = some(fields.get("toolCalls")).and_then(list);
    for (nth, raw) in calls.iter().flatten().enumerate() {
        match tool_call(raw, &format!("{id}/{nth}")) {
            Ok((block, result)) => {
                made_from.extend(Json::of(&block).ok().map(|json| json.as_str().to_owned()));
                content.push(block);
                results.extend(result);
            }
            Err(_) => odd.push(*raw),
        }
    }
    if calls.is_some() {
        fields.take("toolCalls");
    }
    for raw in odd {
        content.push(other(raw)?);
    }
    let usage = some(fields.get("tokens")).and_then(usage);
    if usage.is_some() {
        fields.take("tokens");
    }
    fields.take("type");
    let has_calls = content
        .iter()
        .any(|block| matches!(block, Content::ToolCall(_)));
    let message = Message::Assistant(AssistantMessage {
        content,
        stop_reason: Some(if has_calls { "toolUse" } else { "stop" }.into()),
        model: fields.take_string("model"),
        provider: Some("google".into()),
        usage,
        timestamp,
        error_message: None,
        ..AssistantMessage::default()
    });
    Ok(GeminiRecord::Answer(Box::new(GeminiAnswer {
        message: with_source(message.into(), fields.to_json().ok()),
        raw: format!("{id}\n{}", made_from.join("\n")),
        results,
    })))
}

/// Reads a thought of the model: a subject and a description.
fn thinking(raw: &RawValue) -> Result<Content, String> {
    let Some(mut fields) = object_in(Some(raw)) else {
        return other(raw);
    };
    let thought = ["subject", "description"].map(|key| fields.take_string(key));
    let thought: Vec<String> = thought
        .into_iter()
        .flatten()
        .filter(|t| !t.is_empty())
        .collect();
    if thought.is_empty() {
        return other(raw);
    }
    let mut extra = Extra::default();
    if !fields.is_empty() {
        extra.insert("source", fields.to_json()?);
    }
    Ok(Content::Thinking(Thinking {
        thinking: thought.join("\n"),
        signature: None,
        extra,
    }))
}

type CallAndResult = (Content, Option<(AgentMessage, String)>);

fn tool_call(raw: &RawValue, spare_id: &str) -> Result<CallAndResult, String> {
    let mut fields = Fields::parse(raw.get())?;
    let name = fields.take_string("name").ok_or("a call without a name")?;
    let id = fields.take_id("id").filter(|id| !id.is_empty());
    let mut call = call(id.unwrap_or_else(|| spare_id.to_owned()), name);
    arguments(&mut call, fields.take("args"))?;
    let result = result(&call.id, &call.name, fields)?;
    let id = call.id.clone();
    let result = result.map(|message| {
        // The text for the person may be rewritten; the text for the model is not.
        let content = message.message().map(Message::content).unwrap_or_default();
        let content = Json::of(content).unwrap_or_default();
        let raw = format!("{id}\n{}", content.as_str());
        (message, raw)
    });
    Ok((Content::ToolCall(call), result))
}

/// Reads the result of a call; `None` if there is none yet.
fn result(id: &str, name: &str, mut fields: Fields<'_>) -> Result<Option<AgentMessage>, String> {
    let status = fields.text("status");
    let ended = ["success", "error", "cancelled"];
    let is_over = status
        .as_deref()
        .is_some_and(|status| ended.contains(&status));
    let output = some(fields.get("result"));
    if output.is_none() && !is_over {
        return Ok(None);
    }
    let content = match output {
        None => Vec::new(),
        Some(output) => {
            let (mut content, is_all) = response(output)?;
            // Images are inside the response, next to its text.
            for raw in list(output).unwrap_or_else(|| vec![output]) {
                let of = object_in(Some(raw)).and_then(|of| of.child("functionResponse"));
                let parts = of.as_ref().and_then(|of| of.get("parts"));
                content.extend(contents(parts, part)?);
            }
            if is_all {
                fields.take("result");
            }
            content
        }
    };
    let time = fields.text("timestamp").map(Time::from_text);
    let message = Message::ToolResult(ToolResultMessage {
        tool_call_id: id.to_owned(),
        tool_name: name.to_owned(),
        content,
        is_error: matches!(status.as_deref(), Some("error" | "cancelled")),
        timestamp: millis_of(time.as_ref()),
        ..ToolResultMessage::default()
    });
    let source = fields.to_json().ok().filter(|_| !fields.is_empty());
    Ok(Some(with_source(message.into(), source)))
}

/// Reads the parts of a result. The flag is true if the parts contain everything in the response.
pub(crate) fn response(value: &RawValue) -> Result<(Vec<Content>, bool), String> {
    let parts = list(value).unwrap_or_else(|| vec![value]);
    let (mut content, mut is_all) = (Vec::new(), true);
    for raw in parts {
        let (block, whole) = match response_text(raw) {
            Some(found) => found,
            None => (part(raw)?, false),
        };
        content.push(block);
        is_all &= whole;
    }
    Ok((content, is_all))
}

/// Returns the text of a function's response, with the same flag.
fn response_text(raw: &RawValue) -> Option<(Content, bool)> {
    let part = object_in(Some(raw))?;
    let function = part.child("functionResponse")?;
    let response_json = function.get("response")?;
    let response = object_in(Some(response_json));
    let only = response
        .as_ref()
        .filter(|fields| fields.iter().count() == 1);
    let text = only.and_then(|fields| {
        let value = fields.get("output").or_else(|| fields.get("error"))?;
        serde_json::from_str::<String>(value.get()).ok()
    });
    let known =
        |fields: &Fields<'_>, keys: &[&str]| fields.iter().all(|(key, _)| keys.contains(&key));
    let is_plain = known(&part, &["functionResponse"])
        && known(&function, &["id", "name", "response"])
        && only.is_some_and(|fields| fields.get("output").is_some());
    Some(match text {
        Some(text) => (Content::text(text), is_plain),
        None => (
            Content::text(Json::parse(response_json.get()).ok()?.as_str()),
            false,
        ),
    })
}

fn usage(value: &RawValue) -> Option<Usage> {
    let fields = Fields::parse(value.get()).ok()?;
    let of = |key: &str| count(fields.get(key));
    let (input, output) = (of("input")?, of("output").unwrap_or_default());
    let mut extra = Extra::default();
    if let Some(tool) = of("tool").filter(|tool| tool.get() != 0) {
        extra.insert("tool", Json::of(&tool).ok()?);
    }
    let reasoning = of("thoughts");
    let sum = [&input, &output].into_iter().chain(&reasoning);
    let sum = sum.fold(0_i64, |sum, count| sum.saturating_add(count.get()));
    Some(Usage {
        total_tokens: of("total").or_else(|| Some(Int::from(sum))),
        input,
        output,
        reasoning,
        cache_read: of("cached"),
        cache_write: None,
        extra,
    })
}

/// Reads a part; an unknown part is kept unchanged.
pub(crate) fn part(raw: &RawValue) -> Result<Content, String> {
    let known = || {
        let part = object_in(Some(raw))?;
        if part.iter().count() != 1 {
            return None;
        }
        if let Some(value) = part.get("text") {
            return serde_json::from_str::<String>(value.get())
                .ok()
                .map(Content::text);
        }
        let data = part.child("inlineData")?;
        if data.iter().count() != 2 {
            return None;
        }
        Some(Content::image(data.text("data")?, data.text("mimeType")?))
    };
    match serde_json::from_str::<String>(raw.get()) {
        Ok(text) => Ok(Content::text(text)),
        Err(_) => known().map_or_else(|| other(raw), Ok),
    }
}
