//! OpenAI's Responses.

use serde_json::Value;

use super::{FoundFaults, ProviderFaultKind, text};

/// The maximum length of a call id and of a tool name, in characters.
const ID: usize = 64;

pub(super) fn check<'a>(items: &'a [Value], found: &mut FoundFaults<'a>) {
    for (at, item) in items.iter().enumerate() {
        found.at = at;
        let kind = text(item, "type");
        if kind.is_empty() && text(item, "role") == "user" {
            found.close_calls();
        }
        match kind {
            "" | "message" => message(item, found),
            "function_call" => call(item, found),
            "custom_tool_call" => {
                let id = text(item, "call_id");
                found.id(id, ID);
                found.call(id);
                found.name(text(item, "name"), ID);
            }
            "function_call_output" | "custom_tool_call_output" => {
                found.result(text(item, "call_id"));
                content(item.get("output"), found, "input_text", true);
            }
            "reasoning" | "compaction" if !text(item, "encrypted_content").is_empty() => {}
            "web_search_call" => {
                let is_whole = !text(item, "id").is_empty() && item["action"]["type"].is_string();
                if !is_whole || text(item, "status") != "completed" {
                    found.form("a search without its id, its status or what it did".to_owned());
                }
            }
            other => found.form(format!("`{other}` is no item")),
        }
    }
}

fn message(item: &Value, found: &mut FoundFaults<'_>) {
    let part = match text(item, "role") {
        "user" | "system" | "developer" => "input_text",
        "assistant" => "output_text",
        other => return found.form(format!("`{other}` is no role")),
    };
    content(item.get("content"), found, part, false);
}

fn content(
    content: Option<&Value>,
    found: &mut FoundFaults<'_>,
    of_text: &str,
    may_be_empty: bool,
) {
    match content {
        Some(Value::String(text)) if text.is_empty() && !may_be_empty => {
            found.add(ProviderFaultKind::EmptyContent, "the message is empty");
        }
        Some(Value::String(_)) => {}
        Some(Value::Array(parts)) if parts.is_empty() => {
            found.add(ProviderFaultKind::EmptyContent, "the list is empty");
        }
        Some(Value::Array(parts)) => parts.iter().for_each(|part| shown(part, found, of_text)),
        _ => found.form("the content is neither a text nor a list"),
    }
}

fn shown(part: &Value, found: &mut FoundFaults<'_>, of_text: &str) {
    match text(part, "type") {
        kind if kind == of_text && text(part, "text").is_empty() => {
            found.add(ProviderFaultKind::EmptyContent, "a text part is empty");
        }
        kind if kind == of_text => {}
        "input_image" if of_text == "input_text" => found.image_url(text(part, "image_url")),
        other => found.form(format!("a part of type `{other}` does not belong here")),
    }
}

fn call<'a>(item: &'a Value, found: &mut FoundFaults<'a>) {
    let id = text(item, "call_id");
    found.id(id, ID);
    found.call(id);
    found.name(text(item, "name"), ID);
    found.arguments(id, text(item, "arguments"));
}
