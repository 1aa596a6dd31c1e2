//! The strict conversion of a provider's JSON to messages.
//!
//! `node` is a JSON value with its position, which every error names; `blocks` has the readers that the forms share,
//! `hosted` those of the tools that OpenAI defines; each of the other modules reads one form. Their readers of a single
//! element (`anthropic::block`, `openai_chat::message`, `responses::AnswerReader::item`) take a [`JsonNode`] and do not
//! depend on the list around it, so a lenient importer can call them and keep the elements that they reject.

mod anthropic;
mod blocks;
mod calls;
mod hosted;
mod node;
mod openai_chat;
mod responses;

use std::collections::HashMap;

use serde_json::Value;

use super::{Form, ProviderError};
use loopstore_model::{AgentMessage, Content, Message};
use node::JsonNode;

type ReadResult<T, E = ProviderError> = std::result::Result<T, E>;

/// Reads a value, or a list of them. `text` is the JSON that it was parsed from, if that is known.
pub(super) fn read(form: Form, items: &Value, text: Option<&str>) -> ReadResult<Vec<AgentMessage>> {
    let root = JsonNode::root(form, items, text);
    let mut messages = match form {
        Form::OpenAiChat => openai_chat::read(&root)?,
        Form::OpenAiResponses => responses::read(&root)?,
        Form::Anthropic => anthropic::read(&root)?,
    };
    name_results(&mut messages);
    Ok(messages)
}

/// Reads one of the calls of a chat message.
pub(super) fn read_call(call: &str) -> ReadResult<Content> {
    let form = Form::OpenAiChat;
    let value = serde_json::from_str(call);
    let value: Value = value.map_err(|source| ProviderError::Unreadable { form, source })?;
    openai_chat::call(&JsonNode::root(form, &value, Some(call)))
}

/// Sets the tool names of results, which the forms have only in the call.
fn name_results(messages: &mut [AgentMessage]) {
    let is_unnamed = |message: &AgentMessage| match message.message() {
        Some(Message::ToolResult(result)) => result.tool_name.is_empty(),
        _ => false,
    };
    if !messages.iter().any(is_unnamed) {
        return;
    }
    let mut names: HashMap<String, String> = HashMap::new();
    for message in messages.iter_mut().filter_map(AgentMessage::message_mut) {
        for call in message.tool_calls() {
            // Calls and results without an id are paired when they are stored.
            if !call.id.is_empty() {
                names.insert(call.id.clone(), call.name.clone());
            }
        }
        if let Message::ToolResult(result) = message
            && result.tool_name.is_empty()
            && let Some(name) = names.get(&result.tool_call_id)
        {
            result.tool_name.clone_from(name);
        }
    }
}
