//! Translates the parts of messages to content.

use loopstore::model::{
    AgentMessage, AssistantMessage, Author, Content, Extra, Json, LoopId, Message, SessionId, Text,
    Thinking, ToolCall, ToolResultMessage, Usage, UserMessage,
};
use loopstore_digest::activity::outcome::refusal_words;
use serde_json::value::RawValue;

use super::super::authors::mark_injected;
use super::super::fields::{Fields, list, some};
use super::super::values::{
    add_cost, as_it_is, data_image, json, loop_id, millis, object_of, redacted_thinking_of, rest,
    session_id, usage, with_extra_source,
};
use super::words::{OWN_WORDS, REFUSED};

/// A call of a tool, with its result.
pub(super) struct ToolPart {
    pub(super) id: String,
    pub(super) tool: String,
    /// The loop and session that the call started.
    pub(super) child: Option<(LoopId, SessionId)>,
    /// `None` while the tool runs.
    pub(super) result: Option<AgentMessage>,
    /// The text by which a later export is compared.
    pub(super) raw: String,
}

/// An answer of the model, with the calls in it.
pub(super) struct OpencodeAnswer {
    pub(super) message: AgentMessage,
    pub(super) called: Vec<ToolPart>,
}

/// Splits the parts of a message at the beginning of each model call: older versions wrote a whole run as one message.
pub(super) fn steps<'a>(parts: &[&'a RawValue]) -> Vec<Vec<&'a RawValue>> {
    let mut steps: Vec<Vec<&RawValue>> = vec![Vec::new()];
    let mut says = false;
    for part in parts {
        let kind = kind(part);
        if says && kind == "step-start" {
            steps.push(Vec::new());
            says = false;
        }
        says |= matches!(kind.as_str(), "text" | "reasoning" | "tool");
        if let Some(step) = steps.last_mut() {
            step.push(part);
        }
    }
    steps
}

fn kind(part: &RawValue) -> String {
    let fields = Fields::parse(part.get()).unwrap_or_default();
    fields.text("type").unwrap_or_default()
}

/// The contents of a message, made from its parts.
#[derive(Default)]
struct AnswerBlocks {
    content: Vec<Content>,
    /// Parts that no model sees or that cannot be read.
    rest: Vec<Json>,
    called: Vec<ToolPart>,
    /// The tokens and the cost of the model call, from its last part.
    usage: Option<Usage>,
}

impl AnswerBlocks {
    fn of(parts: &[&RawValue], name: &str) -> Self {
        let mut blocks = Self::default();
        for (at, part) in parts.iter().enumerate() {
            let Ok(fields) = Fields::parse(part.get()) else {
                blocks.keep(part);
                continue;
            };
            let block = match fields.text("type").as_deref() {
                Some("text") => text_block(fields),
                Some("reasoning") => thinking(fields),
                Some("file") => file(part, fields),
                Some("tool") => blocks.tool(fields, part, &format!("{name}-{at}")),
                Some("step-finish") => {
                    blocks.usage = usage_of(&fields);
                    None
                }
                _ => None,
            };
            match block {
                Some(block) => blocks.content.push(block),
                None => blocks.keep(part),
            }
        }
        blocks
    }

    fn keep(&mut self, part: &RawValue) {
        self.rest.extend(json(part).ok());
    }

    fn tool(&mut self, mut fields: Fields<'_>, part: &RawValue, name: &str) -> Option<Content> {
        let tool = fields.text("tool")?;
        let id = fields.text("callID").unwrap_or_else(|| name.to_owned());
        let mut state = fields.object("state");
        let is_object = some(fields.get("state")).is_some_and(|s| s.get().starts_with('{'));
        if is_object {
            fields.take("state");
        }
        let arguments = state.take("input").and_then(|input| json(input).ok());
        let child = state.object("metadata").text("sessionId");
        let child =
            child.and_then(|child| Some((loop_id(child.clone())?, session_id(Some(child))?)));
        let result = result(&id, &tool, &mut state);
        let mut source = other_fields(fields, &["type", "tool", "callID"]);
        if result.is_none() && !state.is_empty() {
            source.insert("state", object_of(&rest(&state)));
        }
        let mut call = ToolCall {
            id: id.clone(),
            name: tool.clone(),
            arguments: arguments.unwrap_or_else(empty),
            extra: Extra::default(),
        };
        if !source.is_empty() {
            call.extra.insert("source", object_of(&source));
        }
        self.called.push(ToolPart {
            id,
            tool,
            child,
            result,
            raw: part.get().to_owned(),
        });
        Some(Content::ToolCall(call))
    }
}

/// Returns the arguments of a call without arguments.
fn empty() -> Json {
    object_of(&Extra::default())
}

/// Returns the other fields of a part.
fn other_fields(mut fields: Fields<'_>, taken: &[&str]) -> Extra {
    // Both are fields of the message.
    fields.retain(|key| !taken.contains(&key) && key != "sessionID" && key != "messageID");
    rest(&fields)
}

fn text_block(fields: Fields<'_>) -> Option<Content> {
    // Ignored parts are for the person; providers reject empty texts.
    if fields.read("ignored") == Some(true) {
        return None;
    }
    let text = fields.text("text")?;
    let is_synthetic = fields.read("synthetic") == Some(true);
    let extra = other_fields(fields, &["type", "text"]);
    let mut block = Content::Text(Text { text, extra });
    if is_synthetic {
        mark_injected(&mut block);
    }
    Some(block)
}

fn thinking(fields: Fields<'_>) -> Option<Content> {
    let thinking = fields.read("text")?;
    let anthropic = fields.object("metadata").object("anthropic");
    let data = anthropic.text("redactedData");
    if let Some(Content::Sealed(mut sealed)) = data.as_deref().and_then(redacted_thinking_of) {
        sealed.extra = other_fields(fields, &["type", "provider", "item", "metadata"]);
        return Some(Content::Sealed(sealed));
    }
    let signature = anthropic.text("signature");
    let mut extra = other_fields(fields, &["type", "text"]);
    for key in ["thinking", "signature"] {
        extra.remove(key);
    }
    Some(Content::Thinking(Thinking {
        thinking,
        signature,
        extra,
    }))
}

/// Reads a file: an image if the part contains it, else unchanged.
fn file(part: &RawValue, fields: Fields<'_>) -> Option<Content> {
    let image = fields.text("url").and_then(|url| data_image(&url));
    match image {
        Some(Content::Image(mut image)) => {
            image.extra = other_fields(fields, &["type", "url", "data", "mimeType"]);
            Some(Content::Image(image))
        }
        _ => as_it_is(part),
    }
}

/// Reads the result of a call, if there is one.
fn result(id: &str, tool: &str, state: &mut Fields<'_>) -> Option<AgentMessage> {
    let status = state.text("status").unwrap_or_default();
    let is_error = status == "error";
    let key = ["output", "error"][usize::from(is_error)];
    if !is_error && status != "completed" && state.get("output").is_none() {
        return None;
    }
    let mut content: Vec<Content> = some(state.get(key))
        .map(output)
        .into_iter()
        .flatten()
        .collect();
    if let Some(attachments) = state.get("attachments").and_then(list) {
        let parts = attachments
            .into_iter()
            .filter_map(|raw| file(raw, Fields::parse(raw.get()).ok()?));
        content.extend(parts);
        state.take("attachments");
    }
    state.take(key);
    let times = state.object("time");
    let timestamp = millis(&times, "end").or_else(|| millis(&times, "start"));
    let is_refusal = is_error && is_refusal(tool, state, &content);
    let result = ToolResultMessage {
        author: is_refusal.then_some(Author::Human),
        tool_call_id: id.to_owned(),
        tool_name: tool.to_owned(),
        content,
        is_error,
        timestamp: timestamp.map(Into::into),
    };
    Some(with_extra_source(
        Message::ToolResult(result).into(),
        rest(state),
    ))
}

/// True if an error is the text of a person who refused the call. OpenCode records only the text; but it asks before a
/// tool starts, and a call that has started has a state of its own.
fn is_refusal(tool: &str, state: &Fields<'_>, content: &[Content]) -> bool {
    let has_begun = !state.object("metadata").is_empty();
    let says_so = |block: &Content| {
        matches!(block, Content::Text(text)
            if text.text.starts_with(REFUSED) && refusal_words(&text.text).is_some())
    };
    OWN_WORDS.contains(&tool) && !has_begun && content.iter().any(says_so)
}

fn output(raw: &RawValue) -> Option<Content> {
    match serde_json::from_str::<String>(raw.get()) {
        Ok(text) if text.is_empty() => None,
        Ok(text) => Some(Content::text(text)),
        Err(_) => Some(Content::text(raw.get())),
    }
}

/// Reads a message of the user.
pub(super) fn user(mut info: Fields<'_>, parts: &[&RawValue]) -> AgentMessage {
    let blocks = AnswerBlocks::of(parts, "user");
    let timestamp = millis(&info.object("time"), "created");
    info.retain(|key| !matches!(key, "role" | "sessionID" | "summary"));
    let message = UserMessage {
        content: blocks.content,
        timestamp: timestamp.map(Into::into),
        ..UserMessage::default()
    };
    with_extra_source(
        Message::User(message).into(),
        with_parts(rest(&info), blocks.rest),
    )
}

fn with_parts(mut source: Extra, parts: Vec<Json>) -> Extra {
    if let (false, Ok(parts)) = (parts.is_empty(), Json::of(&parts)) {
        source.insert("parts", parts);
    }
    source
}

/// Reads an answer. If `alone`, the message is one model call; else its tokens are those of its last part. The first
/// step of a message keeps the fields of `info`.
pub(super) fn answer(
    info: &Fields<'_>,
    parts: &[&RawValue],
    alone: bool,
    first: bool,
    name: &str,
) -> OpencodeAnswer {
    let blocks = AnswerBlocks::of(parts, name);
    let times = info.object("time");
    let error = info.object("error");
    let stated = error
        .object("data")
        .text("message")
        .or_else(|| error.text("message"));
    let error_message = stated.or_else(|| error.text("name"));
    let stop = match (&error_message, error.text("name").as_deref()) {
        (Some(_), Some("MessageAbortedError")) => Some("aborted".to_owned()),
        (Some(_), _) => Some("error".to_owned()),
        (None, _) => info.text("finish").map(stop_reason),
    };
    let message = AssistantMessage {
        content: blocks.content,
        stop_reason: stop,
        model: info.text("modelID"),
        provider: info.text("providerID"),
        usage: if alone { usage_of(info) } else { blocks.usage },
        timestamp: millis(&times, "created").map(Into::into),
        error_message,
        ..AssistantMessage::default()
    };
    let mut source = match first {
        true => rest(info),
        false => Extra::default(),
    };
    for key in ["role", "sessionID", "modelID", "providerID"] {
        source.remove(key);
    }
    if alone && message.usage.is_some() {
        source.remove("tokens");
        source.remove("cost");
    }
    OpencodeAnswer {
        message: with_extra_source(
            Message::Assistant(message).into(),
            with_parts(source, blocks.rest),
        ),
        called: blocks.called,
    }
}

/// Reads `{tokens: {input, output, reasoning, cache: {read, write}, total}, cost}`.
fn usage_of(fields: &Fields<'_>) -> Option<Usage> {
    let mut tokens = fields.object("tokens");
    let cache = tokens.object("cache");
    for (key, place) in [("cache_read", "read"), ("cache_write", "write")] {
        if let Some(count) = some(cache.get(place)) {
            tokens.set(key, count);
        }
    }
    let places = [
        "input",
        "output",
        "reasoning",
        "cache_read",
        "cache_write",
        "total",
    ];
    tokens.take("cache");
    let mut usage = usage(tokens, places);
    add_cost(&mut usage, fields.get("cost"));
    usage
}

fn stop_reason(word: String) -> String {
    match word.as_str() {
        "tool-calls" => "toolUse".into(),
        _ => word,
    }
}
