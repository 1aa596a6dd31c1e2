//! Chat completions.

use super::ReadResult;
use super::blocks::{
    UsageNames, as_refusal, content, data_image, openai_usage, refusal, result, system, text,
    with_rest,
};
use super::calls::PartReader;
use super::node::{JsonNode, NodeFields};
use crate::reasoning;
use loopstore_model::{
    AgentMessage, AssistantMessage, Content, Extra, Json, Message, ToolCall, UserMessage,
};

const USAGE: UsageNames = UsageNames {
    input: "prompt_tokens",
    input_details: "prompt_tokens_details",
    output: "completion_tokens",
    output_details: "completion_tokens_details",
};

pub(super) fn read(root: &JsonNode<'_>) -> ReadResult<Vec<AgentMessage>> {
    if root.is_list() {
        return root.list()?.iter().map(message).collect();
    }
    let mut fields = root.fields()?;
    if fields.has("choices") {
        return Ok(vec![completion(fields)?]);
    }
    if fields.has("messages") {
        let list = fields.need("messages")?.list()?;
        fields.refuse_rest()?;
        return list.iter().map(message).collect();
    }
    Ok(vec![message(root)?])
}

/// Reads a whole answer.
fn completion(mut fields: NodeFields<'_>) -> ReadResult<AgentMessage> {
    let node = fields.need("choices")?;
    let choices = node.list()?;
    let [choice] = &choices[..] else {
        return Err(node.choices(choices.len()));
    };
    let mut choice = choice.fields()?;
    let node = choice.need("message")?;
    let mut message = message(&node)?;
    let Some(Message::Assistant(answer)) = message.message_mut() else {
        return Err(node.invalid("an answer is of the role `assistant`"));
    };
    answer.stop_reason = choice.text("finish_reason")?.map(stop_reason);
    answer.model = fields.text("model")?;
    let usage = fields.take("usage");
    answer.usage = usage.map(|node| openai_usage(&node, &USAGE)).transpose()?;
    if let Some(created) = fields.take("created") {
        answer.timestamp = created.seconds()?.map(Into::into);
    }
    if let Some(id) = fields.text("id")? {
        message.extra_mut().insert("responseId", Json::string(&id));
    }
    Ok(message)
}

/// Reads a message.
pub(super) fn message(node: &JsonNode<'_>) -> ReadResult<AgentMessage> {
    let mut fields = node.fields()?;
    let role = fields.need("role")?;
    let message = match role.text()? {
        role @ ("system" | "developer") => {
            let mut message = system(role, &fields.need("content")?, plain_text)?;
            fields.keep_rest(message.extra_mut())?;
            return Ok(message);
        }
        "user" => Message::User(UserMessage {
            content: content(&fields.need("content")?, part)?,
            timestamp: None,
            ..UserMessage::default()
        }),
        "assistant" => answer(&mut fields)?,
        role @ ("tool" | "function") => return tool_result(role, fields),
        other => return Err(role.unsupported("role", other)),
    };
    with_rest(message, &fields)
}

/// Reads a tool result; the role `function` is that of results without an id.
fn tool_result(role: &str, mut fields: NodeFields<'_>) -> ReadResult<AgentMessage> {
    let mut parts = PartReader::default();
    let id = match role {
        "tool" => parts.answered(&mut fields, "tool_call_id"),
        _ => String::new(),
    };
    let given = fields.take("content");
    let given = given.map(|node| content(&node, part)).transpose()?;
    let mut message = result(id, given.unwrap_or_default(), false);
    message.tool_name = fields.text("name")?.unwrap_or_default();
    let mut message = with_rest(Message::ToolResult(message), &fields)?;
    if role == "function" {
        message.extra_mut().insert("form", Json::string(role));
    }
    parts.received.keep(message.extra_mut());
    Ok(message)
}

fn answer(fields: &mut NodeFields<'_>) -> ReadResult<Message> {
    fields.refuse("audio")?;
    let given = fields.take("content");
    let given = given.map(|node| content(&node, plain_text)).transpose()?;
    let mut blocks = reasoning_of(fields)?;
    blocks.extend(given.unwrap_or_default());
    if let Some(refusal) = fields.text("refusal")? {
        blocks.push(as_refusal(Content::text(refusal)));
    }
    if let Some(calls) = fields.take("tool_calls") {
        for node in calls.list()? {
            blocks.push(call(&node)?);
        }
    }
    if let Some(function) = fields.take("function_call") {
        blocks.push(old_call(&function)?);
    }
    Ok(Message::Assistant(AssistantMessage {
        content: blocks,
        ..AssistantMessage::default()
    }))
}

/// Reads the reasoning that a server returns next to the content. An empty text is left among the unknown fields.
fn reasoning_of(fields: &mut NodeFields<'_>) -> ReadResult<Vec<Content>> {
    let mut texts = Vec::new();
    for key in reasoning::TEXTS {
        texts.extend(fields.text_if_any(key).map(|text| (key, text)));
    }
    let details = fields.list_if_any(reasoning::DETAILS);
    let details = details.map(|node| node.json()).transpose()?;
    Ok(reasoning::thinking(texts, details))
}

/// Reads a part of the content of a user message or a tool result.
fn part(node: &JsonNode<'_>) -> ReadResult<Content> {
    let mut fields = node.fields()?;
    match fields.need("type")?.text()? {
        "image_url" => {
            let mut inner = fields.need("image_url")?.fields()?;
            let url = inner.need("url")?;
            let mut extra = Extra::default();
            inner.keep_rest_as("image_url", &mut extra)?;
            fields.keep_rest(&mut extra)?;
            data_image(&url, extra)
        }
        _ => plain_text(node),
    }
}

fn plain_text(node: &JsonNode<'_>) -> ReadResult<Content> {
    let mut fields = node.fields()?;
    match fields.need("type")?.text()? {
        "text" => text(fields, "text"),
        "refusal" => refusal(fields),
        other => Err(node.unsupported("content part", other)),
    }
}

/// Reads a call in the form before `tool_calls`: it has no id, and its result names the tool.
fn old_call(node: &JsonNode<'_>) -> ReadResult<Content> {
    let (mut parts, mut extra) = (PartReader::default(), Extra::default());
    let mut function = node.fields()?;
    let (name, arguments) = of_function(&mut parts, &mut function, false)?;
    function.keep_rest(&mut extra)?;
    extra.insert("form", Json::string("function_call"));
    parts.received.keep(&mut extra);
    Ok(Content::ToolCall(ToolCall {
        id: String::new(),
        name,
        arguments,
        extra,
    }))
}

/// Reads a call of a function, or of a custom tool, whose input is any text. Some servers omit the type, or write the
/// fields of the function next to the id.
pub(super) fn call(node: &JsonNode<'_>) -> ReadResult<Content> {
    let mut fields = node.fields()?;
    let kind = fields.take("type");
    let kind = kind.map_or(Ok(""), |kind| kind.text())?;
    let is_custom = kind == "custom" || kind.is_empty() && fields.has("custom");
    if !is_custom && !matches!(kind, "" | "function") {
        return Err(node.unsupported("tool call", kind));
    }
    let mut parts = PartReader::default();
    let id = parts.id(&mut fields, "id");
    let form = if is_custom { "custom" } else { "function" };
    let mut extra = Extra::default();
    let (name, arguments) = match fields.take(form) {
        Some(function) => {
            let mut function = function.fields()?;
            let read = of_function(&mut parts, &mut function, is_custom)?;
            function.keep_rest_as("function", &mut extra)?;
            read
        }
        None => of_function(&mut parts, &mut fields, is_custom)?,
    };
    fields.keep_rest(&mut extra)?;
    if is_custom {
        extra.insert("form", Json::string(form));
    }
    parts.received.keep(&mut extra);
    Ok(Content::ToolCall(ToolCall {
        id,
        name,
        arguments,
        extra,
    }))
}

fn of_function(
    parts: &mut PartReader,
    function: &mut NodeFields<'_>,
    is_custom: bool,
) -> ReadResult<(String, Json)> {
    let name = parts.name(function);
    let key = if is_custom { "input" } else { "arguments" };
    let given = function.take(key);
    let arguments = match given {
        Some(given) if is_custom && given.is_text() => Json::string(given.text()?),
        given => parts.arguments(given, key)?,
    };
    Ok((name, arguments))
}

fn stop_reason(word: String) -> String {
    match word.as_str() {
        "tool_calls" => "toolUse".into(),
        _ => word,
    }
}
