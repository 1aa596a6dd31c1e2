//! Tool calls and results with missing or wrong fields, as some servers return them: without an id or a name, or with
//! arguments that are an object instead of a text.
//!
//! They are accepted, since an agent that cannot record an answer stops. Missing fields are completed when the message
//! is stored, and noted in the extra field `received` of the message.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{AgentMessage, Content, Extra, Json, Message, ToolCall};

/// The extra field with the notes on a call or a result.
const RECEIVED: &str = "received";

/// The wrong fields of a call or a result, each with the value or defect received.
#[derive(Debug, Default)]
#[doc(hidden)]
pub struct Received(BTreeMap<&'static str, &'static str>);

impl Received {
    /// Notes the defect of a field.
    #[doc(hidden)]
    pub fn note(&mut self, field: &'static str, what: &'static str) {
        self.0.insert(field, what);
    }

    /// Stores the notes in the extra fields of the call or the result.
    #[doc(hidden)]
    pub fn keep(self, extra: &mut Extra) {
        if let (false, Ok(json)) = (self.0.is_empty(), Json::of(&self.0)) {
            extra.insert(RECEIVED, json);
        }
    }
}

fn received(extra: &Extra) -> BTreeMap<String, String> {
    let notes = extra.get(RECEIVED).and_then(|notes| notes.read().ok());
    notes.unwrap_or_default()
}

/// True if the id of a call was made up.
fn has_made_up_id(call: &ToolCall) -> bool {
    received(&call.extra).contains_key("id")
}

/// Gives each call without an id an id made of `prefix` and the index of the call.
#[doc(hidden)]
pub fn name_calls(message: &mut AgentMessage, prefix: &str) {
    let Some(Message::Assistant(answer)) = message.message_mut() else {
        return;
    };
    let calls = answer.content.iter_mut().filter_map(|block| match block {
        Content::ToolCall(call) => Some(call),
        _ => None,
    });
    for (place, call) in calls.enumerate() {
        if call.id.is_empty() {
            call.id = format!("{prefix}-{place}");
            let mut notes = received(&call.extra);
            notes.entry("id".into()).or_insert_with(|| "missing".into());
            call.extra
                .insert(RECEIVED, Json::of(&notes).unwrap_or_default());
        }
    }
}

/// Sets the call id of a result without one: the first of the `open` calls of its tool, preferably one whose id was
/// made up.
#[doc(hidden)]
pub fn pair_result(message: &mut AgentMessage, open: &[ToolCall]) {
    let Some(Message::ToolResult(result)) = message.message_mut() else {
        return;
    };
    let is_of_tool =
        |call: &&ToolCall| result.tool_name.is_empty() || call.name == result.tool_name;
    let of_tool: Vec<&ToolCall> = open.iter().filter(is_of_tool).collect();
    let of_tool = if of_tool.is_empty() {
        open.iter().collect()
    } else {
        of_tool
    };
    let made_up = of_tool.iter().find(|call| has_made_up_id(call));
    let Some(call) = made_up.or(of_tool.first()) else {
        return;
    };
    result.tool_call_id.clone_from(&call.id);
    if result.tool_name.is_empty() {
        result.tool_name.clone_from(&call.name);
    }
    let extra = message.extra_mut();
    let mut notes = received(extra);
    notes
        .entry("tool_call_id".into())
        .or_insert_with(|| "missing".into());
    extra.insert(RECEIVED, Json::of(&notes).unwrap_or_default());
}

/// Completes the calls or the result of a message from the stored message: each call or result without an id gets the
/// id, name and notes of its counterpart.
#[doc(hidden)]
pub fn complete_as(message: &mut AgentMessage, stored: &AgentMessage) {
    let lacks_call = |message: &Message| matches!(message, Message::ToolResult(result) if result.tool_call_id.is_empty());
    let lacks_call = message.message().is_some_and(lacks_call);
    match (message.message_mut(), stored.message()) {
        (Some(Message::Assistant(answer)), Some(model)) => {
            let calls = answer.content.iter_mut().filter_map(|block| match block {
                Content::ToolCall(call) => Some(call),
                _ => None,
            });
            for (call, of) in calls.zip(model.tool_calls()) {
                if call.id.is_empty() {
                    call.id.clone_from(&of.id);
                    call.extra.clone_from(&of.extra);
                }
            }
        }
        (Some(Message::ToolResult(result)), Some(Message::ToolResult(of))) if lacks_call => {
            result.tool_call_id.clone_from(&of.tool_call_id);
            result.tool_name.clone_from(&of.tool_name);
        }
        _ => {}
    }
    if let (true, AgentMessage::Llm(stored)) = (lacks_call, stored)
        && let Some(notes) = stored.extra.get(RECEIVED)
    {
        message.extra_mut().insert(RECEIVED, notes.clone());
    }
}

/// Returns a sentence for each call or result of a message that was completed.
#[doc(hidden)]
pub fn notes(message: &AgentMessage) -> Vec<String> {
    let Some(inner) = message.message() else {
        return Vec::new();
    };
    if let (Message::ToolResult(result), AgentMessage::Llm(message)) = (inner, message) {
        let notes = received(&message.extra);
        let id = &result.tool_call_id;
        let of = match id.is_empty() {
            true => "no call waits for it".to_owned(),
            false => format!("recorded as the result of call `{id}`"),
        };
        return sentence("a tool result", &notes, &of).into_iter().collect();
    }
    let of_call = |call: &ToolCall| {
        let tool = match call.name.as_str() {
            "" => "a tool call".to_owned(),
            name => format!("a call of tool `{name}`"),
        };
        let as_call = format!("recorded as call `{}`", call.id);
        sentence(&tool, &received(&call.extra), &as_call)
    };
    inner.tool_calls().filter_map(of_call).collect()
}

fn sentence(what: &str, notes: &BTreeMap<String, String>, done: &str) -> Option<String> {
    if notes.is_empty() {
        return None;
    }
    let mut text = format!("{what} came with ");
    for (at, (field, came)) in notes.iter().enumerate() {
        let comma = if at > 0 { ", " } else { "" };
        let _ = write!(text, "{comma}`{field}`: {came}");
    }
    let _ = write!(text, "; {done}");
    Some(text)
}
