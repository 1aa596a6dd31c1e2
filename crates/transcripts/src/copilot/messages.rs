//! Translates events to messages.

use loopstore::model::{
    AgentMessage, AssistantMessage, Content, Extra, Int, Json, Message, Time, ToolResultMessage,
    Usage,
};
use serde_json::value::RawValue;

use crate::authors;
use crate::extension::system_prompt;
use crate::fields::{Fields, list, some};
use crate::values::{
    arguments, call, contents, count, json, millis_of, object_in, other, rest_within, text_of,
    user, with_source,
};

/// The role of an event in the session.
pub(super) enum CopilotRecord {
    Message(AgentMessage),
    /// The message that replaces those before a compaction.
    Compaction(AgentMessage),
    /// The run was aborted.
    Abort,
    /// An event that no model sees.
    Extension,
}

/// An event with its data.
struct CopilotEvent<'a> {
    event: Fields<'a>,
    data: Fields<'a>,
    line: u64,
}

/// Reads the event on `line`.
///
/// # Errors
/// If a field that its kind requires is missing or invalid; the error gives the reason.
pub(super) fn read(mut event: Fields<'_>, line: u64) -> Result<CopilotRecord, String> {
    let kind = event.text("type").unwrap_or_default();
    let Some(data) = event.child("data") else {
        return Ok(CopilotRecord::Extension);
    };
    event.take("type");
    let event = CopilotEvent { event, data, line };
    match kind.as_str() {
        "system.message" => event.system(),
        "user.message" => event.prompt(),
        "assistant.message" => event.answer(),
        "tool.execution_complete" => event.result(),
        "session.compaction_complete" => Ok(event.compaction()),
        "abort" => Ok(CopilotRecord::Abort),
        _ => Ok(CopilotRecord::Extension),
    }
}

impl CopilotEvent<'_> {
    fn source(&self) -> Option<Json> {
        rest_within(&self.event, "data", &self.data)
    }

    fn millis(&self) -> Option<Int> {
        let time = self.event.text("timestamp").map(Time::from_text);
        millis_of(time.as_ref())
    }

    fn system(mut self) -> Result<CopilotRecord, String> {
        let content = self.data.take("content").map(json).transpose()?;
        let message = system_prompt(&content.unwrap_or_default())?;
        Ok(CopilotRecord::Message(with_source(message, self.source())))
    }

    /// Reads a prompt as it was sent; the text as it was typed is kept too.
    fn prompt(mut self) -> Result<CopilotRecord, String> {
        let sent = self.data.text("transformedContent");
        let key = match sent {
            Some(_) => "transformedContent",
            None => "content",
        };
        let mut content = contents(self.data.get(key), block)?;
        self.data.take(key);
        let typed = self.data.text("content");
        if typed.is_some() && typed == sent {
            self.data.take("content");
        }
        if let (Some(typed), [Content::Text(text)]) = (&typed, content.as_slice())
            && let Some(at) = text.text.find(typed.as_str())
        {
            content = authors::split_around(text, at..at + typed.len());
        }
        let mut message = user(content, self.millis());
        // A text that a skill or a hook added names its source.
        let origin = self.data.text("source").filter(|origin| !origin.is_empty());
        if let (Some(origin), Some(Message::User(prompt))) = (origin, message.message_mut()) {
            prompt.author = Some(authors::of_origin(&origin));
        }
        Ok(CopilotRecord::Message(with_source(message, self.source())))
    }

    fn answer(mut self) -> Result<CopilotRecord, String> {
        let mut content = Vec::new();
        if let Some(thought) = self
            .data
            .take_string("reasoningText")
            .filter(|t| !t.is_empty())
        {
            content.push(Content::thinking(thought, None));
        }
        content.extend(contents(self.data.get("content"), block)?);
        self.data.take("content");
        let requests = some(self.data.get("toolRequests")).and_then(list);
        for (nth, raw) in requests.iter().flatten().enumerate() {
            let id = format!("call-{}-{nth}", self.line);
            content.push(request(raw, id).map_or_else(|_| other(raw), Ok)?);
        }
        if requests.is_some() {
            self.data.take("toolRequests");
        }
        let usage = count(self.data.get("outputTokens")).map(|output| Usage {
            input: Int::default(),
            output,
            reasoning: None,
            cache_read: None,
            cache_write: None,
            total_tokens: None,
            extra: Extra::default(),
        });
        if usage.is_some() {
            self.data.take("outputTokens");
        }
        let calls = content
            .iter()
            .any(|block| matches!(block, Content::ToolCall(_)));
        let message = Message::Assistant(AssistantMessage {
            content,
            stop_reason: Some(if calls { "toolUse" } else { "stop" }.into()),
            model: self.data.take_string("model"),
            provider: None,
            usage,
            timestamp: self.millis(),
            error_message: None,
            ..AssistantMessage::default()
        });
        Ok(CopilotRecord::Message(with_source(
            message.into(),
            self.source(),
        )))
    }

    fn result(mut self) -> Result<CopilotRecord, String> {
        let is_error = self.data.get("success").is_some_and(|v| v.get() == "false");
        self.data.take("success");
        let content = self.take_output()?;
        let message = Message::ToolResult(ToolResultMessage {
            tool_call_id: self.data.take_id("toolCallId").unwrap_or_default(),
            tool_name: self.data.take_string("toolName").unwrap_or_default(),
            content,
            is_error,
            timestamp: self.millis(),
            ..ToolResultMessage::default()
        });
        Ok(CopilotRecord::Message(with_source(
            message.into(),
            self.source(),
        )))
    }

    /// Removes and returns the output of a tool: its content, or its error.
    fn take_output(&mut self) -> Result<Vec<Content>, String> {
        let Some(raw) = some(self.data.get("result")) else {
            let error = some(self.data.get("error"));
            let plain_text = error.and_then(|error| {
                let fields = object_in(Some(error));
                let inner = fields.and_then(|fields| fields.text("message"));
                inner.or_else(|| text_of(Some(error)))
            });
            return Ok(plain_text.map(Content::text).into_iter().collect());
        };
        let Some(result) = object_in(Some(raw)) else {
            self.data.take("result");
            return contents(Some(raw), block);
        };
        let content = contents(result.get("content"), block)?;
        let is_all = result
            .iter()
            .all(|(key, value)| key == "content" || value.get() == "null");
        if is_all {
            self.data.take("result");
        }
        Ok(content)
    }

    fn compaction(self) -> CopilotRecord {
        let failed = self.data.get("success").is_some_and(|v| v.get() == "false");
        match self.data.text("summaryContent").filter(|_| !failed) {
            Some(summary) => {
                let summary = user(vec![Content::text(summary)], None);
                CopilotRecord::Compaction(authors::by_harness(summary))
            }
            None => CopilotRecord::Extension,
        }
    }
}

fn request(raw: &RawValue, spare_id: String) -> Result<Content, String> {
    let mut fields = Fields::parse(raw.get())?;
    let name = fields
        .take_string("name")
        .ok_or("a request without a name")?;
    let id = fields.take_id("toolCallId").filter(|id| !id.is_empty());
    let mut call = call(id.unwrap_or(spare_id), name);
    arguments(&mut call, fields.take("arguments"))?;
    if fields.text("type").as_deref() == Some("function") {
        fields.take("type");
    }
    if !fields.is_empty() {
        call.extra.insert("source", fields.to_json()?);
    }
    Ok(Content::ToolCall(call))
}

fn block(raw: &RawValue) -> Result<Content, String> {
    let plain = || {
        let part = object_in(Some(raw))?;
        let is_text = part.text("type")? == "text" && part.iter().count() == 2;
        let plain_text: String = serde_json::from_str(part.get("text")?.get()).ok()?;
        is_text.then(|| Content::text(plain_text))
    };
    plain().map_or_else(|| other(raw), Ok)
}
