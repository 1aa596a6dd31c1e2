//! Chat completions, and the items of Responses.

use serde_json::{Value, json};

use super::{image_url, one_of};
use crate::histories::Random;

pub fn chat(random: &mut Random) -> Vec<Value> {
    let mut messages = Vec::new();
    match random.below(3) {
        0 => messages.push(json!({"role": "system", "content": "Be brief."})),
        1 => messages.push(json!({"role": "developer", "content": "Be brief."})),
        _ => {}
    }
    for turn in 0..1 + random.below(4) {
        messages.push(one_of(
            random,
            vec![
                json!({"role": "user", "content": "Will it rain? é – 漢字\n\"quoted\""}),
                json!({"role": "user", "content": [{"type": "text", "text": "This?"},
                    {"type": "image_url", "image_url": {"url": image_url()}}]}),
            ],
        ));
        let calls: Vec<String> = (0..random.below(3))
            .map(|n| format!("c{turn}-{n}"))
            .collect();
        if !calls.is_empty() {
            let made: Vec<Value> = calls
                .iter()
                .map(|id| {
                    json!({"id": id, "type": "function",
                        "function": {"name": "look", "arguments": "{\"z\":1,\"a\":[1.50,null]}"}})
                })
                .collect();
            let content = one_of(random, vec![Value::Null, json!("I look.")]);
            messages.push(json!({"role": "assistant", "content": content, "tool_calls": made}));
            for id in calls {
                let content = one_of(random, vec![json!("rain"), json!("")]);
                messages.push(json!({"role": "tool", "tool_call_id": id, "content": content}));
            }
        }
        messages.push(json!({"role": "assistant", "content": "Yes."}));
    }
    messages
}

/// Items of Responses.
pub fn items(random: &mut Random) -> Vec<Value> {
    let mut items = Vec::new();
    for turn in 0..1 + random.below(4) {
        let image = json!({"type": "input_image", "detail": "auto", "image_url": image_url()});
        let close = json!({"type": "input_image", "detail": "high", "image_url": image_url()});
        items.push(one_of(
            random,
            vec![
                json!({"role": "user", "content": "Will it rain? é – 漢字\n\"quoted\""}),
                json!({"role": "user", "content": [{"type": "input_text", "text": "This?"}, image, close]}),
            ],
        ));
        for nth in 0..random.below(6) {
            let kind = random.below(KINDS);
            items.extend(piece(kind, &format!("{turn}_{nth}"), random));
        }
        items.push(json!({"role": "assistant", "content": "Yes."}));
    }
    items
}

/// The number of kinds of pieces.
pub const KINDS: u64 = 24;

/// Returns one output of the model, with the results of its calls.
pub fn piece(kind: u64, n: &str, random: &mut Random) -> Vec<Value> {
    let id = format!("call_{n}");
    let cipher = format!("gAAAAA{n}+/=");
    let given = json!([{"type": "input_text", "text": "a.rs"},
        {"type": "input_image", "detail": "auto", "image_url": image_url()}]);
    let given = one_of(random, vec![json!("a.rs"), json!(""), given]);
    match kind {
        0 => vec![json!({"role": "assistant", "content": "So far.", "phase": "commentary"})],
        1 => vec![json!({"role": "assistant", "content": "So far."})],
        2 => vec![
            json!({"type": "reasoning", "id": format!("rs_{n}"), "summary": [],
            "encrypted_content": cipher}),
        ],
        3 => vec![
            json!({"type": "reasoning", "id": format!("rs_{n}"), "status": "completed",
            "summary": [{"type": "summary_text", "text": "Hm."}],
            "content": [{"type": "reasoning_text", "text": "Hm, hm."}],
            "encrypted_content": cipher}),
        ],
        4 => vec![
            json!({"type": "function_call", "call_id": id, "name": "look",
                "arguments": "{\"z\":1,\"a\":[1.50,null]}"}),
            json!({"type": "function_call_output", "call_id": id, "output": given}),
        ],
        5 => vec![
            json!({"type": "reasoning", "id": format!("rs_{n}"), "summary": [],
                "encrypted_content": cipher}),
            json!({"type": "function_call", "call_id": id, "name": "look", "arguments": "{}",
                "namespace": "crm"}),
            json!({"type": "custom_tool_call", "call_id": format!("{id}b"), "name": "patch",
                "input": "*** Begin\n+{\"x\"}"}),
            json!({"type": "function_call_output", "call_id": id, "output": given}),
            json!({"type": "custom_tool_call_output", "call_id": format!("{id}b"), "output": "done"}),
        ],
        6 => vec![
            json!({"type": "custom_tool_call", "call_id": id, "name": "patch", "input": ""}),
            json!({"type": "custom_tool_call_output", "call_id": id, "output": given}),
        ],
        7 => vec![
            json!({"type": "web_search_call", "id": format!("ws_{n}"), "status": "completed",
            "action": {"type": "search", "query": "rain", "queries": ["rain"],
                "sources": [{"type": "url", "url": "https://a.test"}]}}),
        ],
        8 => vec![
            json!({"type": "web_search_call", "id": format!("ws_{n}"), "status": "failed",
            "action": {"type": "open_page", "url": null}}),
        ],
        9 => vec![
            json!({"type": "file_search_call", "id": format!("fs_{n}"), "status": "completed",
            "queries": ["rain"], "results": [{"file_id": "f", "filename": "a.pdf", "score": 0.5,
                "text": "rain", "attributes": {"year": 2026.0, "kind": "note"}}]}),
        ],
        10 => vec![
            json!({"type": "computer_call", "id": format!("cu_{n}"), "call_id": id,
                "status": "completed", "action": {"type": "click", "button": "left", "x": 1, "y": 2},
                "pending_safety_checks": [{"id": "sc", "code": "c", "message": "m"}]}),
            json!({"type": "computer_call_output", "call_id": id,
                "acknowledged_safety_checks": [{"id": "sc"}],
                "output": {"type": "computer_screenshot", "image_url": image_url()}}),
        ],
        11 => vec![
            json!({"type": "code_interpreter_call", "id": format!("ci_{n}"),
            "status": "completed", "code": "1 + 1", "container_id": "cn",
            "outputs": [{"type": "logs", "logs": "2"}, {"type": "image", "url": "https://a.test/b"}]}),
        ],
        12 => vec![
            json!({"type": "image_generation_call", "id": format!("ig_{n}"),
            "status": "completed", "result": super::PIXEL}),
        ],
        13 => vec![
            json!({"type": "mcp_list_tools", "id": format!("mcpl_{n}"), "server_label": "s",
            "tools": [{"name": "t", "input_schema": {"type": "object"}, "description": null,
                "annotations": null}]}),
        ],
        14 => vec![
            json!({"type": "mcp_call", "id": format!("mcp_{n}"), "server_label": "s",
            "name": "t", "arguments": "{\"z\":1}", "output": "ok", "error": null,
            "status": "completed"}),
        ],
        15 => vec![
            json!({"type": "mcp_approval_request", "id": format!("mcpr_{n}"), "server_label": "s",
                "name": "t", "arguments": "{\"z\":1}"}),
            json!({"type": "mcp_approval_response", "approval_request_id": format!("mcpr_{n}"),
                "approve": random.one_in(2), "reason": "why not"}),
        ],
        16 => vec![
            json!({"type": "local_shell_call", "id": format!("ls_{n}"), "call_id": id,
                "status": "completed", "action": {"type": "exec", "command": ["ls", "-l"],
                    "env": {"A": "b"}, "timeout_ms": 1000}}),
            json!({"type": "local_shell_call_output", "id": id, "output": "a.rs"}),
        ],
        17 => vec![
            json!({"type": "shell_call", "call_id": id, "status": "completed",
                "action": {"commands": ["ls"], "timeout_ms": null, "max_output_length": 100}}),
            json!({"type": "shell_call_output", "call_id": id, "max_output_length": 100,
                "output": [{"stdout": "a.rs", "stderr": "",
                    "outcome": {"type": "exit", "exit_code": 0}}]}),
        ],
        18 => vec![
            json!({"type": "apply_patch_call", "call_id": id, "status": "completed",
                "operation": {"type": "update_file", "path": "a.rs", "diff": "+x"}}),
            json!({"type": "apply_patch_call_output", "call_id": id, "status": "failed",
                "output": "no such line"}),
        ],
        19 => vec![
            json!({"type": "tool_search_call", "id": format!("ts_{n}"), "call_id": null,
                "execution": "server", "status": "completed", "arguments": {"query": "crm"}}),
            json!({"type": "tool_search_output", "id": format!("to_{n}"), "call_id": null,
                "execution": "server", "status": "completed", "tools": []}),
        ],
        20 => vec![
            json!({"type": "tool_search_call", "call_id": id, "execution": "client",
                "arguments": {"query": "crm"}}),
            json!({"type": "tool_search_output", "call_id": id, "execution": "client", "tools": []}),
        ],
        21 => vec![
            json!({"type": "compaction", "id": format!("cmp_{n}"), "encrypted_content": cipher}),
        ],
        22 => vec![
            json!({"type": "computer_call", "id": format!("cu_{n}"), "call_id": id,
                "status": "completed", "pending_safety_checks": [],
                "actions": [{"type": "wait"}, {"type": "scroll", "x": 1, "y": 2, "scroll_x": 0,
                    "scroll_y": 9}]}),
            json!({"type": "function_call", "call_id": format!("{id}b"), "name": "look",
                "arguments": "{}"}),
            json!({"type": "computer_call_output", "call_id": id,
                "output": {"type": "computer_screenshot", "file_id": "file_1"}}),
            json!({"type": "function_call_output", "call_id": format!("{id}b"), "output": given}),
        ],
        _ => vec![
            json!({"type": "program", "id": format!("pr_{n}"), "call_id": id, "code": "f()",
                "fingerprint": cipher}),
            json!({"type": "function_call", "call_id": format!("{id}b"), "name": "look",
                "arguments": "{}", "caller": {"type": "program", "caller_id": id}}),
            json!({"type": "function_call_output", "call_id": format!("{id}b"), "output": given}),
            json!({"type": "program_output", "id": format!("po_{n}"), "call_id": id,
                "result": "2", "status": "completed"}),
        ],
    }
}
