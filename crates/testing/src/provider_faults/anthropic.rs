//! Messages in Anthropic's form.

use serde_json::Value;

use super::{FoundFaults, ProviderFaultKind, is_word, text};

/// The maximum length of a tool name, in characters.
const NAME: usize = 128;

pub(super) fn check<'a>(messages: &'a [Value], found: &mut FoundFaults<'a>) {
    let mut before = "assistant";
    for (at, message) in messages.iter().enumerate() {
        found.at = at;
        let role = text(message, "role");
        if role == before && at == 0 {
            found.add(
                ProviderFaultKind::RoleOrder,
                "the first message is not a user's",
            );
        } else if role == before {
            let detail = format!("two messages of role `{role}` follow each other");
            found.add(ProviderFaultKind::RoleOrder, detail);
        }
        before = role;
        match role {
            "user" => prompt(message, found, at + 1 == messages.len()),
            "assistant" => answer(message, found),
            _ => found.form(format!("`{role}` is not a role")),
        }
    }
    the_last_answer(messages, found);
}

/// Returns the blocks; a plain text is checked here and has none.
fn blocks<'a>(message: &'a Value, found: &mut FoundFaults<'a>) -> &'a [Value] {
    match message.get("content") {
        Some(Value::String(text)) => check_text(text, found),
        Some(Value::Array(blocks)) if blocks.is_empty() => {
            found.add(ProviderFaultKind::EmptyContent, "the message is empty");
        }
        Some(Value::Array(blocks)) => return blocks,
        _ => found.form("the content is neither a text nor a list"),
    }
    &[]
}

fn check_text(text: &str, found: &mut FoundFaults<'_>) {
    if text.trim().is_empty() {
        found.add(
            ProviderFaultKind::EmptyContent,
            "a text is empty or white space",
        );
    }
}

fn prompt<'a>(message: &'a Value, found: &mut FoundFaults<'a>, is_last: bool) {
    let mut is_behind = false;
    let blocks = blocks(message, found);
    for block in blocks {
        if text(block, "type") == "tool_result" {
            result(block, found);
            if is_behind {
                let detail = "a tool result stands behind something else";
                found.add(ProviderFaultKind::LateResult, detail);
            }
        } else {
            is_behind = true;
            shown(block, found);
        }
    }
    if !is_last || is_behind || blocks.is_empty() {
        found.close_calls();
    }
}

/// Checks a text or an image.
fn shown(block: &Value, found: &mut FoundFaults<'_>) {
    match text(block, "type") {
        "text" => check_text(text(block, "text"), found),
        "image" => image(block, found),
        other => found.form(format!("a block of type `{other}` does not belong here")),
    }
}

fn image(block: &Value, found: &mut FoundFaults<'_>) {
    let source = block.get("source").unwrap_or(&Value::Null);
    match text(source, "type") {
        "base64" => found.image(text(source, "media_type"), text(source, "data")),
        "url" if text(source, "url").starts_with("http") => {}
        _ => found.add(ProviderFaultKind::Image, "an image has no source"),
    }
}

fn result(block: &Value, found: &mut FoundFaults<'_>) {
    let id = text(block, "tool_use_id");
    found.result(id);
    let parts = match block.get("content") {
        None | Some(Value::String(_)) => return,
        Some(Value::Array(parts)) => parts,
        Some(_) => return found.form("a result is neither a text nor a list"),
    };
    let failed = block.get("is_error") == Some(&Value::Bool(true));
    for part in parts {
        shown(part, found);
        if failed && text(part, "type") != "text" {
            let detail = format!("the result of the failed call `{id}` is not all text");
            found.form(detail);
        }
    }
}

fn answer<'a>(message: &'a Value, found: &mut FoundFaults<'a>) {
    let blocks = blocks(message, found);
    // A user message between them closed the calls of the answer before.
    for block in blocks {
        match text(block, "type") {
            "text" => check_text(text(block, "text"), found),
            "tool_use" => call(block, found),
            "thinking" if text(block, "signature").is_empty() => {
                found.add(ProviderFaultKind::Thinking, "thinking has no signature");
            }
            "redacted_thinking" if text(block, "data").is_empty() => {
                found.add(ProviderFaultKind::Thinking, "redacted thinking has no data");
            }
            "thinking" | "redacted_thinking" => {}
            other => found.form(format!("a block of type `{other}` does not belong here")),
        }
    }
    if blocks.last().is_some_and(is_thinking) {
        found.add(ProviderFaultKind::Thinking, "an answer ends in thinking");
    }
}

fn call<'a>(block: &'a Value, found: &mut FoundFaults<'a>) {
    let id = text(block, "id");
    if !is_word(id) {
        let detail = format!("the call id `{id}` is not of a-z, A-Z, 0-9, _, -");
        found.add(ProviderFaultKind::CallId, detail);
    }
    found.call(id);
    found.name(text(block, "name"), NAME);
    if !block.get("input").is_some_and(Value::is_object) {
        let detail = format!("the arguments of call `{id}` are not an object");
        found.add(ProviderFaultKind::Arguments, detail);
    }
}

fn is_thinking(block: &Value) -> bool {
    matches!(text(block, "type"), "thinking" | "redacted_thinking")
}

/// Checks the rules that apply to the last answer only.
fn the_last_answer(messages: &[Value], found: &mut FoundFaults<'_>) {
    let is_answer = |message: &Value| text(message, "role") == "assistant";
    let Some(at) = messages.iter().rposition(is_answer) else {
        return;
    };
    found.at = at;
    let content = messages[at].get("content").unwrap_or(&Value::Null);
    let blocks = content.as_array().map_or(&[][..], Vec::as_slice);
    if blocks.iter().any(is_thinking) && !blocks.first().is_some_and(is_thinking) {
        let detail = "the thinking of the last answer does not come first";
        found.add(ProviderFaultKind::Thinking, detail);
    }
    let last = blocks.last().map(|block| text(block, "text"));
    let end = last.or(content.as_str()).unwrap_or_default();
    if at + 1 == messages.len() && end.ends_with(char::is_whitespace) {
        let detail = "the last answer ends in white space";
        found.add(ProviderFaultKind::TrailingSpace, detail);
    }
}
