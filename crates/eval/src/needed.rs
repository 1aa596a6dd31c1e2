//! The values that the rest of a session takes from its beginning.

use std::collections::HashSet;
use std::fmt::Write;

use serde_json::Value;

use loopstore::compaction::LoopMessage;
use loopstore::model::{AgentMessage, Content};

/// Returns the values that calls in `after` took from `before`, each once. Such a value is a string of 3 to 120
/// characters or a number of three or more digits that is a leaf of the arguments of a call, occurs verbatim in
/// `before`, and does not occur in `after` before the call.
///
/// ```
/// use loopstore_eval::needed_values;
/// use loopstore::*;
///
/// let placed = |seq, message: Message| LoopMessage { turn: seq, seq, message: message.into() };
/// let before = [placed(0, Message::user("Please close ticket A17B."))];
/// let content = vec![Content::tool_call("c1", "close", Json::parse(r#"{"ticket": "A17B"}"#)?)];
/// let answer = Message::Assistant(AssistantMessage { content, ..AssistantMessage::default() });
/// assert_eq!(needed_values(&before, &[placed(1, answer)]), ["A17B"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn needed_values(before: &[LoopMessage], after: &[LoopMessage]) -> Vec<String> {
    let known = context_text(before.iter().map(|placed| &placed.message));
    let (mut fresh, mut tried, mut needed) = (String::new(), HashSet::new(), Vec::new());
    for content in after
        .iter()
        .filter_map(|p| p.message.message())
        .map(|m| m.content())
    {
        for block in content {
            if let Content::ToolCall(call) = block
                && let Ok(arguments) = call.arguments.read::<Value>()
            {
                candidates(&arguments, &mut |value| {
                    if tried.insert(value.clone())
                        && known.contains(&value)
                        && !fresh.contains(&value)
                    {
                        needed.push(value);
                    }
                });
            }
            write_block(&mut fresh, block);
        }
    }
    needed
}

fn candidates(value: &Value, each: &mut dyn FnMut(String)) {
    match value {
        Value::Object(fields) => fields.values().for_each(|value| candidates(value, each)),
        Value::Array(items) => items.iter().for_each(|value| candidates(value, each)),
        Value::String(text) if (3..=120).contains(&text.chars().count()) => each(text.clone()),
        Value::Number(number) => {
            let text = number.to_string();
            if text.chars().filter(char::is_ascii_digit).count() >= 3 {
                each(text);
            }
        }
        _ => {}
    }
}

/// Returns the text of messages, in which values are searched: texts, thinking, and for each tool call its name, its
/// arguments as JSON and each text in them.
///
/// ```
/// use loopstore_eval::context_text;
/// use loopstore::{AgentMessage, Message};
///
/// let prompt = |text| AgentMessage::from(Message::user(text));
/// let messages = ["Will it rain?", "And tomorrow?"].map(prompt);
/// assert_eq!(context_text(&messages), "Will it rain?\nAnd tomorrow?\n");
/// ```
pub fn context_text<'a>(messages: impl IntoIterator<Item = &'a AgentMessage>) -> String {
    let mut text = String::new();
    let content = messages.into_iter().filter_map(AgentMessage::message);
    content
        .flat_map(|message| message.content())
        .for_each(|block| write_block(&mut text, block));
    text
}

fn write_block(text: &mut String, block: &Content) {
    let mut line = |part: &str| {
        text.push_str(part);
        text.push('\n');
    };
    match block {
        Content::Text(block) => line(&block.text),
        Content::Thinking(block) => line(&block.thinking),
        Content::ToolCall(call) => {
            line(&call.name);
            line(call.arguments.as_str());
            if let Ok(arguments) = call.arguments.read::<Value>() {
                write_leaves(text, &arguments);
            }
        }
        Content::Image(_) | Content::Sealed(_) => {}
        Content::Other(json) => line(&json.readable()),
    }
}

fn write_leaves(text: &mut String, value: &Value) {
    match value {
        Value::Object(fields) => fields.values().for_each(|value| write_leaves(text, value)),
        Value::Array(items) => items.iter().for_each(|value| write_leaves(text, value)),
        // Writing to a string cannot fail.
        Value::String(leaf) => drop(writeln!(text, "{leaf}")),
        Value::Number(leaf) => drop(writeln!(text, "{leaf}")),
        Value::Bool(_) | Value::Null => {}
    }
}
