//! Chat completions.

use serde_json::Value;

use super::{FoundFaults, ProviderFaultKind, text};

/// The maximum length of a call id, in characters.
const ID: usize = 40;
/// The maximum length of a tool name, in characters.
const NAME: usize = 64;

pub(super) fn check<'a>(messages: &'a [Value], found: &mut FoundFaults<'a>) {
    // The calls of the earlier pieces of an answer.
    let (mut pieces, mut before) = (Vec::new(), "");
    for (at, message) in messages.iter().enumerate() {
        found.at = at;
        let role = text(message, "role");
        if role == "assistant" && before == "assistant" {
            pieces.append(&mut found.open);
        } else if role != "tool" {
            found.open.append(&mut pieces);
            found.close_calls();
        }
        before = role;
        match role {
            "user" => content(message, found, true),
            "system" | "developer" => content(message, found, false),
            "assistant" => answer(message, found),
            "tool" => result(message, found),
            _ => found.form(format!("`{role}` is not a role")),
        }
    }
}

/// Checks content that must not be empty.
fn content(message: &Value, found: &mut FoundFaults<'_>, images: bool) {
    match message.get("content") {
        Some(Value::String(text)) if text.is_empty() => {
            found.add(ProviderFaultKind::EmptyContent, "the message is empty");
        }
        Some(Value::String(_)) => {}
        Some(Value::Array(parts)) => list(parts, found, images),
        _ => found.form("the content is neither a text nor a list"),
    }
}

fn list(parts: &[Value], found: &mut FoundFaults<'_>, images: bool) {
    if parts.is_empty() {
        found.add(
            ProviderFaultKind::EmptyContent,
            "the list of parts is empty",
        );
    }
    for part in parts {
        match text(part, "type") {
            "text" if text(part, "text").is_empty() => {
                found.add(ProviderFaultKind::EmptyContent, "a text part is empty");
            }
            "text" => {}
            "image_url" if images => image(part, found),
            other => found.form(format!("a part of type `{other}` does not belong here")),
        }
    }
}

fn image(part: &Value, found: &mut FoundFaults<'_>) {
    let url = part.pointer("/image_url/url").and_then(Value::as_str);
    found.image_url(url.unwrap_or_default());
}

fn answer<'a>(message: &'a Value, found: &mut FoundFaults<'a>) {
    let calls = match message.get("tool_calls") {
        None => &[][..],
        Some(Value::Array(calls)) if !calls.is_empty() => calls,
        Some(_) => return found.form("`tool_calls` is not a list of calls"),
    };
    match message.get("content") {
        None | Some(Value::Null) if calls.is_empty() => {
            found.add(ProviderFaultKind::EmptyContent, "the answer is empty");
        }
        None | Some(Value::Null) => {}
        Some(Value::String(text)) if text.is_empty() && !calls.is_empty() => {}
        Some(_) => content(message, found, false),
    }
    calls.iter().for_each(|made| call(made, found));
}

fn call<'a>(call: &'a Value, found: &mut FoundFaults<'a>) {
    let id = text(call, "id");
    found.id(id, ID);
    found.call(id);
    if text(call, "type") != "function" {
        found.form("a call is not of type `function`");
    }
    let function = call.get("function").unwrap_or(&Value::Null);
    found.name(text(function, "name"), NAME);
    found.arguments(id, text(function, "arguments"));
}

/// Checks the result of a call; it may be empty.
fn result(message: &Value, found: &mut FoundFaults<'_>) {
    found.result(text(message, "tool_call_id"));
    match message.get("content") {
        Some(Value::String(_)) => {}
        _ => content(message, found, false),
    }
}
