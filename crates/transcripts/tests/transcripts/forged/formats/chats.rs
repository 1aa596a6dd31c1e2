//! Chats, and the sessions of toolkits.

use serde_json::{Value, json};

use super::{At, SECOND, Written, first, idle, jsonl};

pub fn adk(at: At) -> Vec<Written> {
    let event = |id: usize, author: &str, role: &str, parts: Value| {
        json!({"id": format!("n{id}"), "invocation_id": "v1", "author": author, "timestamp": 1785578400.0 + id as f64,
            "content": {"role": role, "parts": parts}})
    };
    let events = json!([
        event(1, "user", "user", json!([{"text": first()}])),
        event(
            2,
            "root_agent",
            "model",
            json!([
            {"text": at("agent-thought"), "thought": true}, {"text": at("agent-text")},
            {"function_call": {"name": "find", "args": {"note": at("agent-argument")}}},
            {"function_call": {"name": "send", "args": {}}},
            {"function_call": {"name": "ask", "args": {}}}])
        ),
        event(
            3,
            "root_agent",
            "user",
            json!([
            {"function_response": {"name": "find", "response": {"result": at("tool-result"), "rows": [at("tool-structured")]}}},
            {"function_response": {"name": "send", "response": {"error": at("tool-error")}}},
            {"function_response": {"name": "ask", "response": {"output": at("tool-output") + &idle()}}},
            {"text": at("agent-beside")}])
        ),
        event(
            4,
            "helper_agent",
            "user",
            json!([{"text": at("agent-helper")}])
        ),
        event(
            5,
            "root_agent",
            "model",
            json!([{"text": "Order BY70 is found."}])
        ),
        event(6, "user", "user", json!([{"text": SECOND}])),
        event(
            7,
            "root_agent",
            "model",
            json!([{"text": "Order BY77 is found."}])
        ),
    ]);
    vec![(
        "adk.json",
        json!({"id": "harbour", "events": events}).to_string(),
    )]
}

pub fn openai_agents(at: At) -> Vec<Written> {
    let items = [
        json!({"role": "developer", "content": at("harness-developer")}),
        json!({"role": "user", "content": format!("<environment_context>{}</environment_context>", at("harness-environment"))}),
        json!({"role": "user", "content": first()}),
        json!({"type": "reasoning", "id": "r1", "summary": [{"type": "summary_text", "text": at("agent-reasoning")}]}),
        json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": at("agent-text")}, {"type": "refusal", "refusal": at("agent-refusal")}]}),
        json!({"type": "function_call", "call_id": "c1", "name": "find", "arguments": json!({"note": at("agent-argument")}).to_string()}),
        json!({"type": "function_call", "call_id": "c2", "name": at("agent-tool-name"), "arguments": "{}"}),
        json!({"type": "function_call_output", "call_id": "c1", "output": at("tool-output") + &idle()}),
        json!({"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": at("tool-list")}]}),
        json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Order BY70 is found."}]}),
        json!({"role": "user", "content": SECOND}),
        json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Order BY77 is found."}]}),
    ];
    vec![("chats.db", jsonl(&items))]
}

pub fn openai_chat(at: At) -> Vec<Written> {
    let call = |id: &str, name: String, arguments: Value| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments.to_string()}});
    let traj = json!([
        {"role": "system", "content": at("harness-system")},
        {"role": "user", "content": format!("<system-reminder>{}</system-reminder>", at("harness-reminder"))},
        {"role": "user", "content": first()},
        {"role": "assistant", "content": at("agent-text"), "reasoning_content": at("agent-reasoning"), "tool_calls": [
            call("c1", "find".into(), json!({"note": at("agent-argument")})), call("c2", at("agent-tool-name"), json!({}))]},
        {"role": "tool", "tool_call_id": "c1", "name": "find", "content": at("tool-output") + &idle()},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": at("tool-parts")}]},
        {"role": "assistant", "content": null, "function_call": {"name": "look", "arguments": "{}"}},
        {"role": "function", "name": "look", "content": json!({"rows": [at("tool-structured")]}).to_string()},
        {"role": "assistant", "content": "Order BY70 is found."},
        {"role": "user", "content": SECOND},
        {"role": "assistant", "content": "Order BY77 is found."},
    ]);
    vec![("runs.json", json!([{"task_id": 7, "trial": 0, "reward": 1, "info": {"note": at("harness-info")}, "traj": traj}]).to_string())]
}

pub fn phi_core(at: At) -> Vec<Written> {
    let mut turn = 0;
    let mut in_turn = |mut message: Value, opens: bool| {
        turn += u32::from(opens);
        message["turnId"] = json!({"loopId": "harbour.0", "turnIndex": turn});
        message["timestamp"] = json!(turn);
        message
    };
    let text = |text: String| json!([{"type": "text", "text": text}]);
    let messages = json!([
        in_turn(json!({"role": "user", "author": "harness", "content": text(at("harness-text"))}), false),
        in_turn(json!({"role": "user", "content": text(first())}), false),
        in_turn(json!({"role": "assistant", "content": [
            {"type": "thinking", "thinking": at("agent-thinking")}, {"type": "text", "text": at("agent-text")},
            {"type": "toolCall", "id": "c1", "name": "find", "arguments": {"note": at("agent-argument")}},
            {"type": "toolCall", "id": "c2", "name": at("agent-tool-name"), "arguments": {}}]}), false),
        in_turn(json!({"role": "toolResult", "toolCallId": "c1", "toolName": "find", "isError": false, "content": text(at("tool-output") + &idle())}), false),
        in_turn(json!({"role": "toolResult", "toolCallId": "c2", "toolName": "x", "isError": true, "content": text(at("tool-error"))}), false),
        {"role": "extension", "kind": "note", "data": at("harness-extension")},
        in_turn(json!({"role": "user", "author": "agent", "content": text(at("child-prompt"))}), true),
        in_turn(json!({"role": "assistant", "content": text("Order BY70 is found.".into())}), false),
        in_turn(json!({"role": "user", "content": text(SECOND.into())}), true),
        in_turn(json!({"role": "assistant", "content": text("Order BY77 is found.".into())}), false),
    ]);
    let before = json!([
        {"role": "user", "content": text("Good morning.".into()), "timestamp": 0, "turnId": {"loopId": "harbour.z", "turnIndex": 0}},
        {"role": "assistant", "content": text("Good morning. ".repeat(200)), "timestamp": 0, "turnId": {"loopId": "harbour.z", "turnIndex": 0}},
    ]);
    let summary = json!({"role": "user", "content": text(at("agent-summary")), "timestamp": 0});
    vec![("harbour.json", json!({"session_id": "harbour", "agent_id": "a", "loops": [
        {"loop_id": "harbour.z", "session_id": "harbour", "status": "Completed", "messages": before, "compaction_block": {
            "keep_compacted": {"range": {"startTurn": 0, "endTurn": 0}, "messages": [summary]}, "createdAt": "2026-01-02T03:04:06Z"}},
        {"loop_id": "harbour.0", "session_id": "harbour", "parent_loop_id": "harbour.z", "continuation_kind": "Default", "status": "Completed", "messages": messages},
    ]}).to_string())]
}
