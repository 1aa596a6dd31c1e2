//! OpenAI's Responses: messages, outputs of the model and tool results as items.
//!
//! An answer of the model is several consecutive items (reasoning, messages, calls), which are joined to one message.

use super::ReadResult;
use super::blocks::{
    UsageNames, content, data_image, openai_usage, refusal, result, system, text, with_rest,
};
use super::calls::PartReader;
use super::hosted::{hosted_call, hosted_output, is_hosted_call, is_hosted_output};
use super::node::{JsonNode, NodeFields};
use loopstore_model::{
    AgentMessage, AssistantMessage, Content, Extra, Json, Message, Role, Thinking, ToolCall,
    UserMessage,
};

const USAGE: UsageNames = UsageNames {
    input: "input_tokens",
    input_details: "input_tokens_details",
    output: "output_tokens",
    output_details: "output_tokens_details",
};

pub(super) fn read(root: &JsonNode<'_>) -> ReadResult<Vec<AgentMessage>> {
    let mut reader = AnswerReader::default();
    if root.is_list() {
        reader.items(root)?;
        return Ok(reader.finish());
    }
    let mut fields = root.fields()?;
    // The result of a call has an `output` too.
    let is_item = fields.has("type") || fields.has("role");
    if !is_item && fields.has("output") {
        return response(fields);
    }
    if !is_item && (fields.has("input") || fields.has("instructions")) {
        if let Some(content) = fields.take("instructions") {
            let instructions = system("system", &content, input_text)?;
            reader.out.push(instructions);
        }
        match fields.take("input") {
            Some(input) if input.is_text() => reader.prompt(content(&input, part)?),
            Some(input) => reader.items(&input)?,
            None => {}
        }
        fields.refuse_rest()?;
    } else {
        reader.item_of(root, fields)?;
    }
    Ok(reader.finish())
}

/// Reads a whole answer: one message, or several if the provider ran a tool itself and returned its result.
fn response(mut fields: NodeFields<'_>) -> ReadResult<Vec<AgentMessage>> {
    let output = fields.need("output")?;
    let mut reader = AnswerReader::default();
    reader.items(&output)?;
    let mut messages = reader.finish();
    if !(messages.iter()).any(|message| message.role() == Role::Assistant) {
        messages.push(Message::Assistant(AssistantMessage::default()).into());
    }
    if !messages.iter().all(is_output) {
        return Err(output.invalid("an answer holds only what the model put out"));
    }
    if let Some(id) = fields.text("id")? {
        for message in &mut messages {
            message.extra_mut().insert("responseId", Json::string(&id));
        }
    }
    let mut answers = messages.iter_mut().rev();
    let answer = answers.find_map(|message| match message.message_mut() {
        Some(Message::Assistant(answer)) => Some(answer),
        _ => None,
    });
    if let Some(answer) = answer {
        envelope(answer, &mut fields)?;
    }
    Ok(messages)
}

/// True if a message is an output of the model or of its provider.
fn is_output(message: &AgentMessage) -> bool {
    match message.message() {
        Some(Message::Assistant(_)) => true,
        Some(Message::ToolResult(result)) => {
            (result.content.iter()).any(|block| matches!(block, Content::Other(_)))
        }
        _ => false,
    }
}

/// Reads the metadata of an answer.
fn envelope(answer: &mut AssistantMessage, fields: &mut NodeFields<'_>) -> ReadResult<()> {
    let has_calls = (answer.content.iter()).any(|block| matches!(block, Content::ToolCall(_)));
    let reason = match fields.take("incomplete_details") {
        Some(details) => details.fields()?.text("reason")?,
        None => None,
    };
    if let Some(status) = fields.take("status") {
        answer.stop_reason = Some(match status.text()? {
            "completed" if has_calls => "toolUse".to_owned(),
            "completed" => "stop".to_owned(),
            "incomplete" => match reason.as_deref() {
                Some("max_output_tokens") => "length".to_owned(),
                _ => reason.unwrap_or_else(|| "incomplete".to_owned()),
            },
            "failed" => "error".to_owned(),
            "cancelled" => "aborted".to_owned(),
            other => return Err(status.unsupported("an answer with the status", other)),
        });
    }
    if let Some(error) = fields.take("error") {
        answer.error_message = error.fields()?.text("message")?;
    }
    answer.model = fields.text("model")?;
    let usage = fields.take("usage");
    answer.usage = usage.map(|node| openai_usage(&node, &USAGE)).transpose()?;
    if let Some(created) = fields.take("created_at") {
        answer.timestamp = created.seconds()?.map(Into::into);
    }
    Ok(())
}

/// Joins the items of an answer to a message.
#[derive(Default)]
pub(super) struct AnswerReader {
    out: Vec<AgentMessage>,
    answer: Option<PartialAnswer>,
}

/// The content of an answer's items so far.
#[derive(Default)]
struct PartialAnswer {
    content: Vec<Content>,
    /// The unknown fields of its message items.
    rest: Vec<Json>,
}

impl PartialAnswer {
    fn into_message(self) -> AgentMessage {
        let mut message = AgentMessage::from(Message::Assistant(AssistantMessage {
            content: self.content,
            ..AssistantMessage::default()
        }));
        let source = match &self.rest[..] {
            [] => return message,
            [only] => only.clone(),
            // A list nests deeper than its elements, possibly too deep.
            several => Json::of(several).unwrap_or_else(|_| Json::string(&format!("{several:?}"))),
        };
        message.extra_mut().insert("source", source);
        message
    }
}

impl AnswerReader {
    fn items(&mut self, list: &JsonNode<'_>) -> ReadResult<()> {
        list.list()?.iter().try_for_each(|node| self.item(node))
    }

    /// Reads an item.
    pub(super) fn item(&mut self, node: &JsonNode<'_>) -> ReadResult<()> {
        self.item_of(node, node.fields()?)
    }

    fn item_of(&mut self, node: &JsonNode<'_>, mut fields: NodeFields<'_>) -> ReadResult<()> {
        let kind = fields.take("type");
        match kind.as_ref().map_or(Ok("message"), JsonNode::text)? {
            "message" => self.message(fields)?,
            "reasoning" | "compaction" if fields.has("encrypted_content") => {
                fields.need("encrypted_content")?.id()?;
                self.output(vec![node.sealed()?]);
            }
            "reasoning" => self.output(vec![reasoning(fields)?]),
            "function_call" => self.output(vec![call(fields, "arguments")?]),
            "custom_tool_call" => self.output(vec![call(fields, "input")?]),
            "function_call_output" | "custom_tool_call_output" => {
                let mut parts = PartReader::default();
                let id = parts.answered(&mut fields, "call_id");
                let given = fields.take("output");
                let given = given.map(|node| content(&node, part)).transpose()?;
                let message = Message::ToolResult(result(id, given.unwrap_or_default(), false));
                let mut message = with_rest(message, &fields)?;
                parts.received.keep(message.extra_mut());
                self.push(message);
            }
            kind if is_hosted_call(kind, &fields) => {
                self.output(vec![hosted_call(node, kind, fields)?]);
            }
            kind if is_hosted_output(kind, &fields) => {
                self.push(hosted_output(node, kind, fields)?);
            }
            other if is_item(other) => self.output(vec![node.whole()?]),
            other => return Err(node.unsupported("item type", other)),
        }
        Ok(())
    }

    fn message(&mut self, mut fields: NodeFields<'_>) -> ReadResult<()> {
        let role = fields.need("role")?;
        let body = fields.need("content")?;
        match role.text()? {
            "user" => {
                let message = Message::User(UserMessage {
                    content: content(&body, part)?,
                    timestamp: None,
                    ..UserMessage::default()
                });
                self.push(with_rest(message, &fields)?);
            }
            "assistant" => {
                // Calls in the form of chat completions: as unknown fields they would be lost.
                fields.refuse("tool_calls")?;
                fields.refuse("function_call")?;
                let mut blocks = content(&body, output_part)?;
                let phase = fields.text("phase")?;
                // When the answer is written, each text is an item again.
                for block in &mut blocks {
                    if let (Content::Text(text), Some(phase)) = (block, &phase) {
                        text.extra.insert("phase", Json::string(phase));
                    }
                }
                let mut extra = Extra::default();
                fields.keep_rest(&mut extra)?;
                let rest = extra.remove("source");
                self.answer.get_or_insert_default().rest.extend(rest);
                self.output(blocks);
            }
            role @ ("system" | "developer") => {
                let mut message = system(role, &body, input_text)?;
                fields.keep_rest(message.extra_mut())?;
                self.push(message);
            }
            other => return Err(role.unsupported("role", other)),
        }
        Ok(())
    }

    fn prompt(&mut self, content: Vec<Content>) {
        let message = UserMessage {
            content,
            timestamp: None,
            ..UserMessage::default()
        };
        self.out.push(Message::User(message).into());
    }

    fn output(&mut self, blocks: Vec<Content>) {
        let answer = self.answer.get_or_insert_default();
        answer.content.extend(blocks);
    }

    fn push(&mut self, message: AgentMessage) {
        self.close();
        self.out.push(message);
    }

    fn close(&mut self) {
        let answer = self.answer.take();
        self.out.extend(answer.map(PartialAnswer::into_message));
    }

    fn finish(mut self) -> Vec<AgentMessage> {
        self.close();
        self.out
    }
}

/// True if an unknown type may be an item of the API, which has many hosted tools and adds more. Parts of content and
/// blocks of other forms are no items.
fn is_item(kind: &str) -> bool {
    const OTHERS: [&str; 15] = [
        "audio",
        "compaction",
        "document",
        "error",
        "image",
        "image_url",
        "redacted_thinking",
        "refusal",
        "response",
        "server_tool_use",
        "text",
        "thinking",
        "tool_result",
        "tool_use",
        "search_result",
    ];
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let is_part = ["input_", "output_"].iter().any(|at| kind.starts_with(at))
        || ["_text", "_tool_result"]
            .iter()
            .any(|at| kind.ends_with(at));
    !kind.is_empty() && kind.chars().all(is_word) && !is_part && !OTHERS.contains(&kind)
}

/// Reads a part of the content of a user message or a tool result.
fn part(node: &JsonNode<'_>) -> ReadResult<Content> {
    let mut fields = node.fields()?;
    match fields.need("type")?.text()? {
        "input_image" => {
            let url = fields.take("image_url");
            let url = url.ok_or_else(|| node.unsupported("image by", "file_id"))?;
            let mut extra = Extra::default();
            if let Some(detail) = fields.take("detail")
                && detail.text()? != "auto"
            {
                extra.insert("detail", detail.json()?);
            }
            fields.keep_rest(&mut extra)?;
            data_image(&url, extra)
        }
        _ => input_text(node),
    }
}

fn input_text(node: &JsonNode<'_>) -> ReadResult<Content> {
    let mut fields = node.fields()?;
    match fields.need("type")?.text()? {
        "input_text" => text(fields, "text"),
        other => Err(node.unsupported("content part", other)),
    }
}

/// Reads a part of the content of an answer.
fn output_part(node: &JsonNode<'_>) -> ReadResult<Content> {
    let mut fields = node.fields()?;
    match fields.need("type")?.text()? {
        "output_text" => text(fields, "text"),
        "refusal" => refusal(fields),
        other => Err(node.unsupported("content part", other)),
    }
}

/// Reads readable reasoning. It may be empty: then it is identified by the id of the item.
fn reasoning(mut fields: NodeFields<'_>) -> ReadResult<Content> {
    let mut texts = Vec::new();
    for (key, kind) in [("summary", "summary_text"), ("content", "reasoning_text")] {
        let Some(parts) = fields.take(key) else {
            continue;
        };
        for node in parts.list()? {
            let mut part = node.fields()?;
            match part.need("type")?.text()? {
                found if found == kind => texts.push(part.need("text")?.text()?),
                other => return Err(node.unsupported("content part", other)),
            }
            part.refuse_rest()?;
        }
    }
    let mut extra = Extra::default();
    fields.keep_rest(&mut extra)?;
    Ok(Content::Thinking(Thinking {
        thinking: texts.join("\n\n"),
        signature: None,
        extra,
    }))
}

/// Reads a call of a function, whose arguments are JSON, or of a custom tool, whose input is any text.
fn call(mut fields: NodeFields<'_>, key: &'static str) -> ReadResult<Content> {
    let mut parts = PartReader::default();
    let id = parts.id(&mut fields, "call_id");
    let name = parts.name(&mut fields);
    let is_custom = key == "input";
    let arguments = match fields.take(key) {
        Some(given) if is_custom && given.is_text() => Json::string(given.text()?),
        given => parts.arguments(given, key)?,
    };
    let mut extra = Extra::default();
    fields.keep_rest(&mut extra)?;
    if is_custom {
        extra.insert("form", Json::string("custom"));
    }
    parts.received.keep(&mut extra);
    Ok(Content::ToolCall(ToolCall {
        id,
        name,
        arguments,
        extra,
    }))
}
