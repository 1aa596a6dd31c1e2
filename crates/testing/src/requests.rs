//! The checks that every request must pass.

use loopstore::context::FaultKind;
use loopstore::extend::context::faults_of;
use loopstore::model::{AgentMessage, Content, Message};
use loopstore::provider::{Form, ProviderRequest};
use serde_json::Value;

use crate::provider_faults::{ProviderFault, ProviderFaultKind, provider_faults};

/// Checks the requests of the messages for every provider.
pub fn is_valid(messages: &[AgentMessage]) -> Result<(), String> {
    for form in Form::ALL {
        let request = ProviderRequest::new(form, messages);
        let value = serde_json::to_value(&request).unwrap();
        let mut faults = provider_faults(&value, form);
        // Of an answer in pieces, a piece may precede another piece that has its results.
        let is_open = |fault: &ProviderFault| fault.kind == ProviderFaultKind::CallWithoutResult;
        if faults.iter().filter(|fault| is_open(fault)).count() <= open_calls(messages) {
            faults.retain(|fault| !is_open(fault));
        }
        if !faults.is_empty() {
            return Err(format!("{form} {faults:#?}\n{value:#}"));
        }
        nothing_said_is_lost(messages, &value).map_err(|text| format!("{text} in {value:#}"))?;
        if form == Form::Anthropic {
            signed_thinking_is_kept(messages, &value)?;
            what_is_mended_is_told(messages, &request)?;
        }
    }
    Ok(())
}

/// Returns the number of calls that may still get their results.
fn open_calls(messages: &[AgentMessage]) -> usize {
    let without = |in_flight| {
        let faults = faults_of(messages, in_flight).into_iter();
        let calls = faults.filter(|fault| fault.kind == FaultKind::CallWithoutResult);
        calls.count()
    };
    without(false) - without(true)
}

/// An empty request is always valid, so the texts of all prompts and answers must be in the request, in order.
fn nothing_said_is_lost(messages: &[AgentMessage], request: &Value) -> Result<(), String> {
    let mut written = Vec::new();
    for message in items(request) {
        if message["role"] != "tool" {
            texts(&message["content"], &mut written);
        }
    }
    let mut rest = written.into_iter();
    let messages = messages.iter().filter_map(AgentMessage::message);
    let spoken = messages.filter(|message| !matches!(message, Message::ToolResult(_)));
    for text in spoken.flat_map(Message::texts).map(str::trim) {
        if !text.is_empty() && !rest.any(|written| written == text) {
            return Err(format!("{text:?} is not"));
        }
    }
    Ok(())
}

fn items(request: &Value) -> &[Value] {
    let messages = request.get("messages").or(request.get("input"));
    messages.unwrap().as_array().unwrap()
}

fn texts(content: &Value, out: &mut Vec<String>) {
    match content {
        Value::String(text) => out.push(text.trim().to_owned()),
        Value::Array(blocks) => {
            let texts = blocks.iter().filter_map(|block| block["text"].as_str());
            out.extend(texts.map(|text| text.trim().to_owned()));
        }
        _ => {}
    }
}

/// Signed thinking is sent back together with its calls.
fn signed_thinking_is_kept(messages: &[AgentMessage], request: &Value) -> Result<(), String> {
    let blocks = items(request).iter();
    let blocks = blocks
        .filter_map(|message| message["content"].as_array())
        .flatten();
    let mut written = blocks.filter_map(|block| block["thinking"].as_str());
    for message in messages.iter().filter_map(AgentMessage::message) {
        let is_call = |block: &Content| matches!(block, Content::ToolCall(_));
        let Some(last) = message.content().iter().rposition(is_call) else {
            continue;
        };
        for block in &message.content()[..last] {
            if let (Message::Assistant(_), Content::Thinking(thinking)) = (message, block)
                && thinking.signature.as_ref().is_some_and(|s| !s.is_empty())
                && !written.any(|text| text == thinking.thinking)
            {
                return Err(format!("thinking {:?} is lost", thinking.thinking));
            }
        }
    }
    Ok(())
}

/// Every fault of the context that is mended must be reported.
fn what_is_mended_is_told(
    messages: &[AgentMessage],
    request: &ProviderRequest,
) -> Result<(), String> {
    // The calls of the last answer may be open.
    for fault in faults_of(messages, true) {
        let is_told = request.mended.iter().any(|mending| {
            mending.message == fault.message
                || fault.kind == FaultKind::LateResult
                || fault.kind == FaultKind::ThinkingParted
        });
        if !is_told {
            return Err(format!("{fault:?} is not among {:?}", request.mended));
        }
    }
    Ok(())
}
