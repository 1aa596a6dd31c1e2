//! Chat completions.

use super::Result;
use super::blocks::{
    UsageNames, arguments, as_refusal, content, data_image, openai_usage, refusal, result, system,
    text, with_rest,
};
use super::node::{JsonNode, NodeFields};
use crate::model::{
    AgentMessage, AssistantMessage, Content, Extra, Json, Message, ToolCall, UserMessage,
};

const USAGE: UsageNames = UsageNames {
    input: "prompt_tokens",
    input_details: "prompt_tokens_details",
    output: "completion_tokens",
    output_details: "completion_tokens_details",
};

pub(super) fn read(root: &JsonNode<'_>) -> Result<Vec<AgentMessage>> {
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
fn completion(mut fields: NodeFields<'_>) -> Result<AgentMessage> {
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
pub(super) fn message(node: &JsonNode<'_>) -> Result<AgentMessage> {
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
        "tool" => {
            let id = fields.need("tool_call_id")?.id()?;
            let mut message = result(id, content(&fields.need("content")?, part)?, false);
            message.tool_name = fields.text("name")?.unwrap_or_default();
            Message::ToolResult(message)
        }
        other => return Err(role.unsupported("role", other)),
    };
    with_rest(message, &fields)
}

fn answer(fields: &mut NodeFields<'_>) -> Result<Message> {
    fields.refuse("audio")?;
    fields.refuse("function_call")?;
    let given = fields.take("content");
    let given = given.map(|node| content(&node, plain_text)).transpose()?;
    let mut blocks = given.unwrap_or_default();
    if let Some(refusal) = fields.text("refusal")? {
        blocks.push(as_refusal(Content::text(refusal)));
    }
    if let Some(calls) = fields.take("tool_calls") {
        for node in calls.list()? {
            blocks.push(call(&node)?);
        }
    }
    Ok(Message::Assistant(AssistantMessage {
        content: blocks,
        ..AssistantMessage::default()
    }))
}

/// Reads a part of what a user or a tool said.
fn part(node: &JsonNode<'_>) -> Result<Content> {
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

fn plain_text(node: &JsonNode<'_>) -> Result<Content> {
    let mut fields = node.fields()?;
    match fields.need("type")?.text()? {
        "text" => text(fields, "text"),
        "refusal" => refusal(fields),
        other => Err(node.unsupported("content part", other)),
    }
}

fn call(node: &JsonNode<'_>) -> Result<Content> {
    let mut fields = node.fields()?;
    // Some servers leave the type out.
    if let Some(kind) = fields.take("type")
        && kind.text()? != "function"
    {
        return Err(node.unsupported("tool call", kind.text()?));
    }
    let id = fields.need("id")?.id()?;
    let mut function = fields.need("function")?.fields()?;
    let name = function.need("name")?.id()?;
    let arguments = arguments(function.need("arguments")?.text()?);
    let mut extra = Extra::default();
    function.keep_rest_as("function", &mut extra)?;
    fields.keep_rest(&mut extra)?;
    Ok(Content::ToolCall(ToolCall {
        id,
        name,
        arguments,
        extra,
    }))
}

fn stop_reason(word: String) -> String {
    match word.as_str() {
        "tool_calls" => "toolUse".into(),
        _ => word,
    }
}
