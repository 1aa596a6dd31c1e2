//! Translates entries to messages.

use loopstore::model::{
    AgentMessage, AssistantMessage, Content, Extra, Image, Int, Message, Text, Thinking, ToolCall,
    ToolResultMessage, Usage,
};
use serde_json::value::RawValue;

use crate::authors::by_harness;
use crate::fields::{Fields, some};
use crate::values::{
    contents, count, json, object_in, other, redacted_thinking_of, rest_within, user, with_source,
};

/// The role of an entry in the session.
pub(super) enum PiRecord {
    /// A prompt, an answer or a result.
    Message(AgentMessage),
    /// A user message that is not a prompt.
    Added(AgentMessage),
    Compaction,
    /// An entry that no model sees.
    Extension,
}

/// The texts that pi puts before and after a summary.
const SUMMARY: (&str, &str) = (
    "The conversation history before this point was compacted into the following summary:\n\n<summary>\n",
    "\n</summary>",
);
const BRANCH: (&str, &str) = (
    "The following is a summary of a branch that this conversation came back from:\n\n<summary>\n",
    "\n</summary>",
);

/// Reads an entry.
///
/// # Errors
/// If a field that its kind requires is missing or invalid; the error gives the reason.
pub(super) fn read(entry: &str) -> Result<PiRecord, String> {
    let mut fields = Fields::parse(entry)?;
    match fields.text("type").as_deref() {
        Some("message") => message(fields),
        Some("custom_message") => {
            let content = contents(fields.take("content"), block)?;
            let source = fields.to_json().ok();
            Ok(PiRecord::Added(with_source(user(content, None), source)))
        }
        Some("branch_summary") => {
            let Some(summary) = fields.take_string("summary") else {
                return Ok(PiRecord::Extension);
            };
            let message = user(vec![wrapped(BRANCH, &summary)], None);
            Ok(PiRecord::Added(with_source(message, fields.to_json().ok())))
        }
        Some("compaction") if fields.text("summary").is_some() => Ok(PiRecord::Compaction),
        _ => Ok(PiRecord::Extension),
    }
}

/// Returns the message that replaces everything before a compaction.
pub(super) fn summary(entry: &Fields<'_>) -> AgentMessage {
    let summary = entry.text("summary").unwrap_or_default();
    by_harness(user(vec![wrapped(SUMMARY, &summary)], None))
}

fn wrapped((before, after): (&str, &str), text: &str) -> Content {
    Content::text(format!("{before}{text}{after}"))
}

fn message(mut entry: Fields<'_>) -> Result<PiRecord, String> {
    let mut message = entry
        .child("message")
        .ok_or("its message is not an object")?;
    entry.take("type");
    let role = message.text("role").unwrap_or_default();
    let timestamp = count(message.get("timestamp"));
    if !["user", "assistant", "toolResult"].contains(&role.as_str()) {
        return added(entry, &role, message, timestamp);
    }
    message.take("role");
    let read = match role.as_str() {
        "user" => {
            let content = contents(message.take("content"), block)?;
            message.take("timestamp");
            user(content, timestamp)
        }
        "assistant" => answer(&mut message, timestamp)?,
        _ => result(&mut message, timestamp)?,
    };
    let source = rest_within(&entry, "message", &message);
    Ok(PiRecord::Message(with_source(read, source)))
}

/// Reads a text that pi shows the model as a user message.
fn added(
    entry: Fields<'_>,
    role: &str,
    mut message: Fields<'_>,
    timestamp: Option<Int>,
) -> Result<PiRecord, String> {
    let is_hidden = message
        .get("excludeFromContext")
        .is_some_and(|value| value.get() == "true");
    let content = match role {
        "bashExecution" if !is_hidden => vec![bash(&mut message)],
        "custom" | "hookMessage" => contents(message.take("content"), block)?,
        "branchSummary" | "compactionSummary" => {
            let summary = message.take_string("summary").unwrap_or_default();
            let frame = [SUMMARY, BRANCH][usize::from(role == "branchSummary")];
            vec![wrapped(frame, &summary)]
        }
        _ => return Ok(PiRecord::Extension),
    };
    let source = rest_within(&entry, "message", &message);
    Ok(PiRecord::Added(with_source(
        user(content, timestamp),
        source,
    )))
}

/// Formats a command that the user ran as pi does for the model.
fn bash(message: &mut Fields<'_>) -> Content {
    let command = message.text("command").unwrap_or_default();
    let output = message.take_string("output").unwrap_or_default();
    let is = |key: &str| message.get(key).is_some_and(|value| value.get() == "true");
    let mut shown = format!("Ran `{command}`\n");
    match output.is_empty() {
        true => shown.push_str("(no output)"),
        false => shown.push_str(&format!("```\n{output}\n```")),
    }
    let code = some(message.get("exitCode")).map(RawValue::get);
    if is("cancelled") {
        shown.push_str("\n\n(command cancelled)");
    } else if let Some(code) = code.filter(|code| *code != "0") {
        shown.push_str(&format!("\n\nCommand exited with code {code}"));
    }
    if let (true, Some(path)) = (is("truncated"), message.text("fullOutputPath")) {
        shown.push_str(&format!("\n\n[Output truncated. Full output: {path}]"));
    }
    Content::text(shown)
}

fn answer(message: &mut Fields<'_>, timestamp: Option<Int>) -> Result<AgentMessage, String> {
    let provider = message.take_string("provider");
    let is_signed = provider.as_deref() == Some("anthropic");
    let content = contents(message.get("content"), |raw| match signed(raw) {
        Some(block) if is_signed => Ok(block),
        _ => block(raw),
    })?;
    message.take("content");
    let usage = some(message.get("usage")).and_then(usage);
    if usage.is_some() {
        message.take("usage");
    }
    message.take("timestamp");
    let answer = AssistantMessage {
        content,
        stop_reason: message.take_string("stopReason"),
        model: message.take_string("model"),
        provider,
        usage,
        timestamp,
        error_message: message.take_string("errorMessage"),
        ..AssistantMessage::default()
    };
    Ok(Message::Assistant(answer).into())
}

fn result(message: &mut Fields<'_>, timestamp: Option<Int>) -> Result<AgentMessage, String> {
    let content = contents(message.get("content"), block)?;
    message.take("content");
    let is_error = message
        .take("isError")
        .is_some_and(|value| value.get() == "true");
    message.take("timestamp");
    let result = ToolResultMessage {
        tool_call_id: message.take_id("toolCallId").unwrap_or_default(),
        tool_name: message.take_string("toolName").unwrap_or_default(),
        content,
        is_error,
        timestamp,
        ..ToolResultMessage::default()
    };
    Ok(Message::ToolResult(result).into())
}

fn usage(value: &RawValue) -> Option<Usage> {
    let mut fields = Fields::parse(value.get()).ok()?;
    let mut take = |key: &str| {
        let found = count(fields.get(key));
        if found.is_some() {
            fields.take(key);
        }
        found
    };
    let usage = Usage {
        input: take("input").unwrap_or_default(),
        output: take("output").unwrap_or_default(),
        reasoning: take("reasoning"),
        cache_read: take("cacheRead"),
        cache_write: take("cacheWrite"),
        total_tokens: take("totalTokens"),
        extra: extra(&fields)?,
    };
    Some(usage)
}

fn extra(fields: &Fields<'_>) -> Option<Extra> {
    let mut extra = Extra::default();
    for (key, value) in fields.iter() {
        extra.insert(key, json(value).ok()?);
    }
    Some(extra)
}

/// Reads a block; an unknown block is kept unchanged.
fn block(raw: &RawValue) -> Result<Content, String> {
    match known(raw) {
        Some(block) => Ok(block),
        None => other(raw),
    }
}

fn known(raw: &RawValue) -> Option<Content> {
    let mut fields = object_in(Some(raw))?;
    let kind = fields.take_string("type")?;
    Some(match kind.as_str() {
        "text" => Content::Text(Text {
            text: fields.take_string("text")?,
            extra: extra(&fields)?,
        }),
        "thinking" => Content::Thinking(Thinking {
            thinking: fields.take_string("thinking")?,
            signature: None,
            extra: extra(&fields)?,
        }),
        "image" => Content::Image(Image {
            data: fields.take_string("data")?,
            mime_type: fields.take_string("mimeType")?,
            extra: extra(&fields)?,
        }),
        "toolCall" => Content::ToolCall(ToolCall {
            id: fields.take_string("id")?,
            name: fields.take_string("name")?,
            arguments: fields
                .take("arguments")
                .map(json)
                .transpose()
                .ok()?
                .unwrap_or_default(),
            extra: extra(&fields)?,
        }),
        _ => return None,
    })
}

/// Reads thinking that Anthropic signed or redacted; redacted thinking has only a signature.
fn signed(raw: &RawValue) -> Option<Content> {
    let Content::Thinking(mut thinking) = known(raw)? else {
        return None;
    };
    let signature: String = thinking.extra.remove("thinkingSignature")?.read().ok()?;
    let is_redacted = thinking.extra.get("redacted");
    if is_redacted.is_some_and(|redacted| redacted.as_str() == "true") {
        return redacted_thinking_of(&signature);
    }
    thinking.signature = Some(signature);
    Some(Content::Thinking(thinking))
}
