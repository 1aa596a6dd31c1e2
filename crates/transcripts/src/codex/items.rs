//! Translates items to messages.

use loopstore::model::{
    AgentMessage, AssistantMessage, Content, Extra, Int, Json, Message, Role, Time, ToolCall,
    ToolResultMessage, Usage,
};
use serde_json::value::RawValue;

use super::words::{HOSTED, OWN};
use crate::fields::{Fields, list};
use crate::values::{
    arguments, call, contents, count, data_url, exit_code_failed, is_encrypted, json, millis_of,
    object_in, other, reports_failure, rest_within, text_of, user, with_source,
};

/// True if an item is part of an answer.
pub(super) fn is_answer(kind: &str, role: &str) -> bool {
    kind == "message" && role == "assistant"
        || matches!(kind, "reasoning" | "compaction")
        || kind.ends_with("_call")
}

/// True if an item is the output of a tool.
pub(super) fn is_result(kind: &str) -> bool {
    kind.ends_with("_output")
}

/// Reads the token usage of one call.
pub(super) fn usage(value: &RawValue) -> Option<Usage> {
    let fields = Fields::parse(value.get()).ok()?;
    let of = |key: &str| count(fields.get(key));
    let (input, output) = (of("input_tokens")?, of("output_tokens").unwrap_or_default());
    let sum = input.get().saturating_add(output.get());
    Some(Usage {
        total_tokens: of("total_tokens").or_else(|| Some(Int::from(sum))),
        input,
        output,
        reasoning: of("reasoning_output_tokens"),
        cache_read: of("cached_input_tokens"),
        cache_write: None,
        extra: Extra::default(),
    })
}

/// A record and its item.
pub(super) struct CodexRecord<'a> {
    record: Fields<'a>,
    pub(super) item: Fields<'a>,
    pub(super) time: Option<Time>,
}

impl<'a> CodexRecord<'a> {
    /// Reads a record of an item, a message or any other payload.
    pub(super) fn of(mut record: Fields<'a>) -> Result<Self, String> {
        let item = record
            .child("payload")
            .ok_or("its payload is not an object")?;
        record.take("type");
        let time = record.text("timestamp").map(Time::from_text);
        Ok(Self { record, item, time })
    }

    /// Returns a record of an item without an envelope.
    fn bare(item: Fields<'a>) -> Self {
        Self {
            record: Fields::default(),
            item,
            time: None,
        }
    }

    /// Returns the remaining fields of the item and of the record around it.
    pub(super) fn rest(&self) -> Option<Json> {
        rest_within(&self.record, "payload", &self.item)
    }

    fn millis(&self) -> Option<Int> {
        millis_of(self.time.as_ref())
    }

    /// Reads a user item.
    pub(super) fn user(mut self) -> Result<AgentMessage, String> {
        let content = self.content()?;
        let message = user(content, self.millis());
        Ok(with_source(message, self.rest()))
    }

    /// Removes and returns the content of the item.
    pub(super) fn content(&mut self) -> Result<Vec<Content>, String> {
        let blocks = contents(self.item.get("content"), part)?;
        for key in ["type", "role", "content"] {
            self.item.take(key);
        }
        Ok(blocks)
    }

    /// Reads the output of a tool.
    pub(super) fn result(mut self) -> Result<AgentMessage, String> {
        let output = ["output", "tools"]
            .iter()
            .find_map(|key| self.item.get(key).map(|value| (*key, value)));
        let (content, is_error) = match output {
            Some((key, value)) => {
                let read = (contents(Some(value), part)?, failed(value));
                self.item.take(key);
                read
            }
            None => (Vec::new(), false),
        };
        let tool_call_id = self.item.take_id("call_id").unwrap_or_default();
        self.item.take("type");
        let message = Message::ToolResult(ToolResultMessage {
            tool_call_id,
            content,
            is_error,
            timestamp: self.millis(),
            ..ToolResultMessage::default()
        });
        Ok(with_source(message.into(), self.rest()))
    }

    /// Adds the blocks of an item of an answer to `blocks`; `id` names a call that has no id.
    fn answer(&mut self, blocks: &mut Vec<Content>, id: String) -> Result<(), String> {
        let kind = self.item.text("type").unwrap_or_default();
        match kind.as_str() {
            "message" => {
                let mut content = self.content()?;
                if let Some(phase) = self.item.text("phase") {
                    for block in &mut content {
                        if let Content::Text(text) = block {
                            text.extra.insert("phase", Json::string(&phase));
                        }
                    }
                }
                blocks.extend(content);
            }
            "reasoning" | "compaction" if is_encrypted(&self.item) => {
                let own = self.item.take(OWN);
                blocks.push(Content::sealed("openai", self.item.to_json()?));
                self.item.retain(|_| false);
                if let Some(own) = own {
                    self.item.set(OWN, own);
                }
            }
            "reasoning" => blocks.extend(self.reasoning()),
            _ => {
                let block = match self.call(&kind, id)? {
                    Some(call) => Content::ToolCall(call),
                    None => {
                        let whole = self.item.to_json()?;
                        self.item.retain(|_| false);
                        Content::Other(whole)
                    }
                };
                blocks.push(block);
            }
        }
        Ok(())
    }

    /// Reads the reasoning of the model.
    fn reasoning(&mut self) -> Option<Content> {
        let mut plain_text = Vec::new();
        for key in ["summary", "content"] {
            let parts = self.item.get(key).and_then(list).unwrap_or_default();
            let texts: Vec<Option<String>> = parts
                .into_iter()
                .map(|part| text_of(object_in(Some(part))?.get("text")))
                .collect();
            if texts.iter().all(Option::is_some) {
                plain_text.extend(texts.into_iter().flatten());
                self.item.take(key);
            }
        }
        self.item.take("type");
        (!plain_text.is_empty()).then(|| Content::thinking(plain_text.join("\n\n"), None))
    }

    /// Reads a call; `None` if it has no arguments. A web search has no id, and its result stays with the provider.
    fn call(&mut self, kind: &str, id: String) -> Result<Option<ToolCall>, String> {
        let input = ["arguments", "input", "action"]
            .into_iter()
            .find(|key| self.item.get(key).is_some());
        let found = self.item.text("call_id");
        let named = self.item.text("name");
        if found.is_none() && named.is_none() && input.is_none() {
            return Ok(None);
        }
        let name = named.unwrap_or_else(|| kind.trim_end_matches("_call").to_owned());
        let id = found.or_else(|| self.item.text("id")).unwrap_or(id);
        let mut call = call(id, name);
        if kind == "custom_tool_call" {
            call.extra.insert("form", Json::string("custom"));
        } else if kind == HOSTED {
            call.extra.insert("form", Json::string(HOSTED));
        }
        if let Some(key) = input {
            arguments(&mut call, self.item.get(key))?;
            self.item.take(key);
        }
        for key in ["call_id", "name"] {
            self.item.take_string(key);
        }
        if ["function_call", "custom_tool_call", HOSTED].contains(&kind) {
            self.item.take("type");
        }
        Ok(Some(call))
    }
}

/// Joins the records of one answer, each with its line; `skip` receives those that cannot be read.
pub(super) fn answer(
    records: Vec<(u64, CodexRecord<'_>)>,
    model: Option<String>,
    provider: Option<String>,
    usage: Option<Usage>,
    skip: &mut dyn FnMut(u64, String),
) -> AgentMessage {
    let timestamp = records.first().and_then(|(_, record)| record.millis());
    let (mut content, mut sources) = (Vec::new(), Vec::new());
    for (line, mut record) in records {
        let id = format!("call-{line}");
        if let Err(reason) = record.answer(&mut content, id) {
            skip(line, reason);
        }
        sources.extend(record.rest());
    }
    let calls = content
        .iter()
        .any(|block| matches!(block, Content::ToolCall(_)));
    let source = match sources.len() {
        0 => None,
        1 => sources.pop(),
        _ => Json::of(&sources).ok(),
    };
    let message = Message::Assistant(AssistantMessage {
        content,
        stop_reason: Some(if calls { "toolUse" } else { "stop" }.into()),
        model,
        provider,
        usage,
        timestamp,
        error_message: None,
        ..AssistantMessage::default()
    });
    with_source(message.into(), source)
}

/// Reads the items that a compaction kept, without those that no model reads.
pub(super) fn history(items: &RawValue) -> Vec<AgentMessage> {
    let mut messages = Vec::new();
    let mut names: Vec<(String, String)> = Vec::new();
    for item in list(items).unwrap_or_default() {
        let Ok(fields) = Fields::parse(item.get()) else {
            continue;
        };
        if let Some(message) = one(item, fields, &mut names) {
            join(&mut messages, message);
        }
    }
    messages
}

fn one(
    item: &RawValue,
    fields: Fields<'_>,
    names: &mut Vec<(String, String)>,
) -> Option<AgentMessage> {
    let kind = fields.text("type").unwrap_or_default();
    let role = fields.text("role").unwrap_or_default();
    let record = CodexRecord::bare(fields);
    match (kind.as_str(), role.as_str()) {
        ("message", "user") => record.user().ok(),
        ("message", "developer" | "system") => None,
        _ if is_answer(&kind, &role) => {
            let answer = answer(vec![(0, record)], None, None, None, &mut |_, _| {});
            let calls = answer.message().into_iter().flat_map(Message::tool_calls);
            names.extend(calls.map(|call| (call.id.clone(), call.name.clone())));
            Some(answer)
        }
        _ if is_result(&kind) => {
            let mut message = record.result().ok()?;
            if let Some(Message::ToolResult(result)) = message.message_mut() {
                let call = names
                    .iter()
                    .rev()
                    .find(|(id, _)| *id == result.tool_call_id);
                result.tool_name = call.map(|(_, name)| name.clone()).unwrap_or_default();
            }
            Some(message)
        }
        _ => {
            let message = Message::Assistant(AssistantMessage {
                content: vec![Content::Other(json(item).ok()?)],
                ..AssistantMessage::default()
            });
            Some(message.into())
        }
    }
}

/// Adds a message; items of one answer are joined.
fn join(messages: &mut Vec<AgentMessage>, message: AgentMessage) {
    let is_answer = message.role() == Role::Assistant;
    if let Some(last) = messages.last_mut().filter(|_| is_answer)
        && let (Some(Message::Assistant(last)), Some(next)) =
            (last.message_mut(), message.message())
    {
        last.content.extend(next.content().iter().cloned());
        return;
    }
    messages.push(message);
}

fn part(raw: &RawValue) -> Result<Content, String> {
    let known = || {
        let part = object_in(Some(raw))?;
        match part.text("type")?.as_str() {
            "input_text" | "output_text" | "text" if part.iter().count() == 2 => {
                let plain_text: String = serde_json::from_str(part.get("text")?.get()).ok()?;
                Some(Content::text(plain_text))
            }
            "input_image" if part.iter().count() == 2 => data_url(&part.text("image_url")?),
            _ => None,
        }
    };
    match known() {
        Some(block) => Ok(block),
        None => annotated(raw).map_or_else(|| other(raw), Ok),
    }
}

/// Reads a text or image with additional fields, which stay with the block.
fn annotated(raw: &RawValue) -> Option<Content> {
    let mut part = object_in(Some(raw))?;
    let kind = part.take_string("type")?;
    let (mut block, key) = match kind.as_str() {
        "input_text" | "output_text" | "text" => {
            (Content::text(part.take_string("text")?), "annotations")
        }
        "input_image" => (data_url(&part.take_string("image_url")?)?, "detail"),
        _ => return None,
    };
    let rest = match part.get(key) {
        Some(value) if value.get() == "[]" && part.iter().count() == 1 => None,
        _ => Some(part.to_json().ok()?),
    };
    let extra = match &mut block {
        Content::Text(text) => &mut text.extra,
        Content::Image(image) => &mut image.extra,
        _ => return Some(block),
    };
    if let Some(rest) = rest {
        extra.insert("source", rest);
    }
    Some(block)
}

/// True if the output of a tool reports a failure.
fn failed(output: &RawValue) -> bool {
    if let Some(fields) = object_in(Some(output)) {
        return fields.get("success").is_some_and(|v| v.get() == "false")
            || exit_code_failed(&fields);
    }
    let first_part = || text_of(object_in(Some(list(output)?.first()?))?.get("text"));
    let plain_text = text_of(Some(output)).or_else(first_part);
    plain_text.is_some_and(|plain_text| reports_failure(&plain_text))
}
