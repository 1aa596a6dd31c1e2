//! Anthropic's messages.

use super::ReadResult;
use super::blocks::{content, image, result, system, text, usage_extra, with_rest};
use super::calls::PartReader;
use super::node::{JsonNode, NodeFields};
use crate::context_management::read_report;
use loopstore_model::{
    AgentMessage, AssistantMessage, Content, Extra, Json, Message, Thinking, ToolCall, Usage,
    UserMessage,
};

pub(super) fn read(root: &JsonNode<'_>) -> ReadResult<Vec<AgentMessage>> {
    let mut out = Vec::new();
    if root.is_list() {
        messages(root, &mut out)?;
        return Ok(out);
    }
    let mut fields = root.fields()?;
    if fields.has("messages") {
        if let Some(content) = fields.take("system") {
            out.push(system("system", &content, plain_text)?);
        }
        messages(&fields.need("messages")?, &mut out)?;
        // A setting of the call, as the model is; what it cleared is in the report of the answer.
        fields.take("context_management");
        fields.refuse_rest()?;
    } else {
        message(root, &mut out)?;
    }
    Ok(out)
}

fn messages(list: &JsonNode<'_>, out: &mut Vec<AgentMessage>) -> ReadResult<()> {
    list.list()?.iter().try_for_each(|node| message(node, out))
}

/// Reads a message; a user message with tool results becomes several.
fn message(node: &JsonNode<'_>, out: &mut Vec<AgentMessage>) -> ReadResult<()> {
    let mut fields = node.fields()?;
    if let Some(kind) = fields.take("type")
        && kind.text()? != "message"
    {
        return Err(node.unsupported("type", kind.text()?));
    }
    let role = fields.need("role")?;
    match role.text()? {
        "user" => prompt(fields, out)?,
        "assistant" => out.push(answer(fields)?),
        "system" => {
            let mut message = system("system", &fields.need("content")?, plain_text)?;
            fields.keep_rest(message.extra_mut())?;
            out.push(message);
        }
        other => return Err(role.unsupported("role", other)),
    }
    Ok(())
}

fn prompt(mut fields: NodeFields<'_>, out: &mut Vec<AgentMessage>) -> ReadResult<()> {
    let body = fields.need("content")?;
    let first = out.len();
    if body.is_list() {
        let mut waiting = Vec::new();
        for node in body.list()? {
            match block(&node)? {
                ReadBlock::Text(block) | ReadBlock::Input(block) => waiting.push(block),
                ReadBlock::Result(message) => {
                    flush(&mut waiting, out);
                    out.push(*message);
                }
                ReadBlock::Output(_) => return Err(misplaced(&node)),
            }
        }
        flush(&mut waiting, out);
    } else {
        flush(&mut content(&body, plain_text)?, out);
    }
    if out.len() == first {
        out.push(Message::User(UserMessage::default()).into());
    }
    if let Some(last) = out.last_mut() {
        fields.keep_rest(last.extra_mut())?;
    }
    Ok(())
}

/// Returns a user message of the blocks that are not empty.
fn flush(blocks: &mut Vec<Content>, out: &mut Vec<AgentMessage>) {
    blocks.retain(|block| !matches!(block, Content::Text(text) if text.text.is_empty()));
    if !blocks.is_empty() {
        let message = UserMessage {
            content: std::mem::take(blocks),
            timestamp: None,
            ..UserMessage::default()
        };
        out.push(Message::User(message).into());
    }
}

fn answer(mut fields: NodeFields<'_>) -> ReadResult<AgentMessage> {
    // Calls in the form of chat completions: as unknown fields of the message they would be lost.
    fields.refuse("tool_calls")?;
    fields.refuse("function_call")?;
    let answered = |node: &JsonNode<'_>| match block(node)? {
        ReadBlock::Text(block) | ReadBlock::Output(block) => Ok(block),
        _ => Err(misplaced(node)),
    };
    let message = AssistantMessage {
        content: content(&fields.need("content")?, answered)?,
        stop_reason: fields.text("stop_reason")?.map(stop_reason),
        model: fields.text("model")?,
        usage: fields.take("usage").map(|node| usage(&node)).transpose()?,
        ..AssistantMessage::default()
    };
    let id = fields.text("id")?;
    // Any other value stays among the unknown fields.
    let report = fields.take_if("context_management", |node| read_report(&node.json().ok()?));
    let mut message = with_rest(Message::Assistant(message), &fields)?;
    if let Some(id) = id {
        message.extra_mut().insert("responseId", Json::string(&id));
    }
    if let Some(report) = report.filter(|report| !report.is_empty()) {
        let set = message.set_applied_edits(&report);
        set.map_err(|error| fields.node.invalid(error.to_string()))?;
    }
    Ok(message)
}

/// The result of reading a block, by the roles that may have it.
pub(super) enum ReadBlock {
    Text(Content),
    /// Content that only a user or a tool may have.
    Input(Content),
    /// Content that only the model may have.
    Output(Content),
    Result(Box<AgentMessage>),
}

/// Reads a block of any role.
pub(super) fn block(node: &JsonNode<'_>) -> ReadResult<ReadBlock> {
    use ReadBlock::{Input, Output, Text};
    let mut fields = node.fields()?;
    Ok(match fields.need("type")?.text()? {
        "text" => Text(text(fields, "text")?),
        "image" => Input(picture(fields)?),
        "document" | "search_result" | "container_upload" | "tool_reference" => {
            Input(node.whole()?)
        }
        "thinking" => Output(thinking(fields)?),
        "tool_use" => Output(call(fields)?),
        "redacted_thinking" => {
            fields.need("data")?.id()?;
            Output(node.sealed()?)
        }
        "compaction" => {
            fields.text("content")?;
            fields.text("encrypted_content")?;
            Output(node.sealed()?)
        }
        "server_tool_use" | "mcp_tool_use" => {
            fields.need("id")?.id()?;
            Output(node.whole()?)
        }
        "tool_result" => ReadBlock::Result(Box::new(tool_result(fields)?)),
        kind if kind.ends_with("_tool_result") => {
            fields.need("tool_use_id")?.id()?;
            Output(node.whole()?)
        }
        other => return Err(node.unsupported("block type", other)),
    })
}

fn misplaced(node: &JsonNode<'_>) -> crate::ProviderError {
    node.invalid("a block of this type does not belong here")
}

fn plain_text(node: &JsonNode<'_>) -> ReadResult<Content> {
    match block(node)? {
        ReadBlock::Text(block) => Ok(block),
        _ => Err(misplaced(node)),
    }
}

fn picture(mut fields: NodeFields<'_>) -> ReadResult<Content> {
    let node = fields.need("source")?;
    let mut source = node.fields()?;
    match source.need("type")?.text()? {
        "base64" => {}
        by @ ("url" | "file") => {
            source
                .need(if by == "url" { "url" } else { "file_id" })?
                .id()?;
            return fields.node.whole();
        }
        other => return Err(node.unsupported("image by", other)),
    }
    let (data, media_type) = (source.need("data")?, source.need("media_type")?);
    source.refuse_rest()?;
    let mut extra = Extra::default();
    fields.keep_rest(&mut extra)?;
    image(&data, &media_type, extra)
}

fn thinking(mut fields: NodeFields<'_>) -> ReadResult<Content> {
    let thinking = fields.need("thinking")?.text()?.to_owned();
    let signature = fields.text("signature")?;
    let mut extra = Extra::default();
    fields.keep_rest(&mut extra)?;
    Ok(Content::Thinking(Thinking {
        thinking,
        signature,
        extra,
    }))
}

fn call(mut fields: NodeFields<'_>) -> ReadResult<Content> {
    let mut parts = PartReader::default();
    let id = parts.id(&mut fields, "id");
    let name = parts.name(&mut fields);
    let arguments = parts.object(fields.take("input"), "input")?;
    let mut extra = Extra::default();
    fields.keep_rest(&mut extra)?;
    parts.received.keep(&mut extra);
    Ok(Content::ToolCall(ToolCall {
        id,
        name,
        arguments,
        extra,
    }))
}

fn tool_result(mut fields: NodeFields<'_>) -> ReadResult<AgentMessage> {
    let shown = |node: &JsonNode<'_>| match block(node)? {
        ReadBlock::Text(block) | ReadBlock::Input(block) => Ok(block),
        _ => Err(misplaced(node)),
    };
    let mut parts = PartReader::default();
    let id = parts.answered(&mut fields, "tool_use_id");
    let given = fields.take("content");
    let given = given.map(|node| content(&node, shown)).transpose()?;
    let is_error = fields.take("is_error");
    let is_error = is_error.map(|node| node.flag()).transpose()?;
    let message = result(id, given.unwrap_or_default(), is_error.unwrap_or_default());
    let mut message = with_rest(Message::ToolResult(message), &fields)?;
    parts.received.keep(message.extra_mut());
    Ok(message)
}

fn usage(node: &JsonNode<'_>) -> ReadResult<Usage> {
    let mut fields = node.fields()?;
    let input = fields.need("input_tokens")?.count()?;
    let output = fields.need("output_tokens")?.count()?;
    let cache_read = fields.count("cache_read_input_tokens")?;
    let cache_write = fields.count("cache_creation_input_tokens")?;
    Ok(Usage {
        input: input.into(),
        output: output.into(),
        reasoning: None,
        cache_read: cache_read.map(Into::into),
        cache_write: cache_write.map(Into::into),
        total_tokens: None,
        extra: usage_extra(fields, Extra::default())?,
    })
}

fn stop_reason(word: String) -> String {
    match word.as_str() {
        "end_turn" => "stop".into(),
        "max_tokens" => "length".into(),
        "tool_use" => "toolUse".into(),
        _ => word,
    }
}
