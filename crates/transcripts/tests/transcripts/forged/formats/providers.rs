//! The forms of providers.

use serde_json::{Value, json};

use super::{At, SECOND, Written, first, idle};

pub fn anthropic(at: At) -> Vec<Written> {
    let text = |text: String| json!({"type": "text", "text": text});
    let request = json!({"system": at("harness-system"), "messages": [
        {"role": "user", "content": [text(format!("<system-reminder>{}</system-reminder>", at("harness-reminder"))), text(first())]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": at("agent-thinking"), "signature": "c2ln"}, text(at("agent-text")),
            {"type": "tool_use", "id": "c1", "name": "find", "input": {"note": at("agent-argument")}},
            {"type": "tool_use", "id": "c2", "name": at("agent-tool-name"), "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": at("tool-output") + &idle()},
            {"type": "tool_result", "tool_use_id": "c2", "is_error": true, "content": [text(at("tool-error"))]}]},
        {"role": "assistant", "content": [
            {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": at("agent-query")}},
            {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [
                {"type": "web_search_result", "url": "https://quay.example", "title": at("tool-title"), "encrypted_content": "eA=="}]},
            text("Order BY70 is found.".into())]},
        {"role": "user", "content": SECOND},
        {"role": "assistant", "content": [text("Order BY77 is found.".into())]},
    ]});
    vec![("request.json", request.to_string())]
}

pub fn responses(at: At) -> Vec<Written> {
    let said = |kind: &str, text: String| json!([{"type": kind, "text": text}]);
    let user = |text: String| json!({"type": "message", "role": "user", "content": said("input_text", text)});
    let answer = |text: String| -> Value {
        json!({"type": "message", "role": "assistant", "content": said("output_text", text)})
    };
    let request = json!({"instructions": at("harness-instructions"), "input": [
        user(format!("<system-reminder>{}</system-reminder>", at("harness-reminder"))),
        user(first()),
        {"type": "reasoning", "id": "rs_1", "summary": said("summary_text", at("agent-summary")), "encrypted_content": "gAAA="},
        answer(at("agent-text")),
        {"type": "function_call", "call_id": "c1", "name": "find", "arguments": json!({"note": at("agent-argument")}).to_string()},
        {"type": "custom_tool_call", "call_id": "c2", "name": "write", "input": at("agent-input")},
        {"type": "function_call_output", "call_id": "c1", "output": at("tool-output") + &idle()},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": at("tool-custom")},
        {"type": "mcp_call", "id": "m1", "name": "look", "arguments": "{}", "server_label": "quay", "output": at("tool-hosted")},
        {"type": "compaction", "id": "cmp_1", "encrypted_content": "gBBB="},
        answer("Order BY70 is found.".into()),
        user(SECOND.into()),
        answer("Order BY77 is found.".into()),
    ]});
    vec![("request.json", request.to_string())]
}
