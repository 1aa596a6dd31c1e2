//! A stored conversation as the updates of the protocol.

use std::collections::HashMap;

use loopstore::model::{AgentMessage, Content, Json, Message, ToolCall, ToolResultMessage};
use serde_json::{Value, json};

use crate::record::{DETAILS, PLAN_TOOL};

/// Returns the lines that replay a conversation.
pub(crate) fn replay(session_id: &str, messages: &[AgentMessage]) -> Vec<u8> {
    let results = results_of(messages);
    let mut lines = Vec::new();
    for message in messages {
        let updates = match message.message() {
            Some(message @ Message::User(_)) if message.is_prompt() => {
                chunks("user_message_chunk", message.content())
            }
            Some(Message::Assistant(answer)) => answer_updates(&answer.content, &results),
            _ => Vec::new(),
        };
        for update in updates {
            let line = json!({
                "jsonrpc": "2.0",
                "method": "session/update",
                "params": {"sessionId": session_id, "update": update},
            });
            lines.extend_from_slice(line.to_string().as_bytes());
            lines.push(b'\n');
        }
    }
    lines
}

fn results_of(messages: &[AgentMessage]) -> HashMap<&str, &ToolResultMessage> {
    let results = messages
        .iter()
        .filter_map(|message| match message.message() {
            Some(Message::ToolResult(result)) => Some((result.tool_call_id.as_str(), result)),
            _ => None,
        });
    results.collect()
}

fn chunks(kind: &str, content: &[Content]) -> Vec<Value> {
    let blocks = content.iter().filter_map(block);
    blocks
        .map(|block| json!({"sessionUpdate": kind, "content": block}))
        .collect()
}

/// Returns a block as the protocol writes it; `None` if the protocol has no such block.
fn block(content: &Content) -> Option<Value> {
    match content {
        Content::Text(text) => Some(json!({"type": "text", "text": text.text})),
        Content::Image(image) => {
            Some(json!({"type": "image", "data": image.data, "mimeType": image.mime_type}))
        }
        _ => None,
    }
}

fn answer_updates(content: &[Content], results: &HashMap<&str, &ToolResultMessage>) -> Vec<Value> {
    let mut updates = Vec::new();
    for block in content {
        match block {
            Content::Thinking(thinking) => updates.push(json!({
                "sessionUpdate": "agent_thought_chunk",
                "content": {"type": "text", "text": thinking.thinking},
            })),
            Content::ToolCall(call) => {
                let result = results.get(call.id.as_str()).copied();
                updates.push(plan(call).unwrap_or_else(|| tool_call(call, result)));
            }
            other => updates.extend(chunks("agent_message_chunk", std::slice::from_ref(other))),
        }
    }
    updates
}

/// Returns the details of a call that the recorder stored.
fn details(call: &ToolCall) -> Value {
    let details = call.extra.get(DETAILS);
    details
        .and_then(|details| details.read().ok())
        .unwrap_or_default()
}

fn value(json: &Json) -> Value {
    json.read().unwrap_or_default()
}

/// Returns the plan that a call of the recorder stands for.
fn plan(call: &ToolCall) -> Option<Value> {
    let is_plan = call.name == PLAN_TOOL && details(call)["sessionUpdate"] == "plan";
    let entries = value(&call.arguments)["entries"].take();
    is_plan.then(|| json!({"sessionUpdate": "plan", "entries": entries}))
}

fn tool_call(call: &ToolCall, result: Option<&ToolResultMessage>) -> Value {
    let details = details(call);
    let text = |name: &str| details[name].as_str().map(str::to_owned);
    let (status, content) = match result {
        Some(result) => {
            let status = if result.is_error {
                "failed"
            } else {
                "completed"
            };
            (status, result.content.iter().filter_map(block).collect())
        }
        None => {
            let note = json!({"type": "text", "text": "[no result was recorded]"});
            ("failed", vec![note])
        }
    };
    let content = content
        .into_iter()
        .map(|block: Value| json!({"type": "content", "content": block}));
    let content: Vec<Value> = content.collect();
    let mut update = json!({
        "sessionUpdate": "tool_call",
        "toolCallId": call.id,
        "title": text("title").unwrap_or_else(|| call.name.clone()),
        "kind": text("kind").unwrap_or_else(|| "other".into()),
        "status": status,
        "content": content,
        "rawInput": value(&call.arguments),
    });
    if details["locations"].is_array() {
        update["locations"] = details["locations"].clone();
    }
    update
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_is_replayed_in_order_with_the_results_of_its_calls() {
        let call = Message::assistant("I look.")
            .with_thinking("Hm.", None)
            .with_tool_call("c1", "forecast", json!({"days": 3}))
            .with_tool_call("c2", "wind", json!({}));
        let reminder = Message::user("It is noon.").with_author(loopstore::model::Author::Harness);
        let messages = [
            Message::user("Will it rain?").into(),
            reminder.into(),
            call.into(),
            Message::tool_result("c1", "Rain.").into(),
        ];
        let lines = String::from_utf8(replay("s", &messages)).unwrap();
        let updates: Vec<Value> = lines
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["params"]["update"].take())
            .collect();
        let kinds: Vec<_> = updates
            .iter()
            .map(|one| one["sessionUpdate"].as_str().unwrap())
            .collect();
        assert_eq!(
            kinds,
            [
                "user_message_chunk",
                "agent_thought_chunk",
                "agent_message_chunk",
                "tool_call",
                "tool_call"
            ]
        );
        assert_eq!(updates[3]["status"], "completed");
        assert_eq!(updates[3]["content"][0]["content"]["text"], "Rain.");
        assert_eq!(updates[4]["status"], "failed");
    }
}
