//! Agents that keep one folder per task.

use serde_json::{Value, json};

use super::{At, SECOND, Written, first, idle};

fn text(text: String) -> Value {
    json!({"type": "text", "text": text})
}

fn message(nth: u64, role: &str, content: Value) -> Value {
    json!({"role": role, "content": content, "ts": 1_770_000_000_000_u64 + nth})
}

fn call(id: &str, name: &str, input: Value) -> Value {
    json!({"type": "tool_use", "id": id, "name": name, "input": input})
}

fn state(at: At) -> Value {
    let inner = at("harness-environment");
    text(format!(
        "<environment_details>\n{inner}\n</environment_details>"
    ))
}

/// Returns the first prompt, with the text that the mention of a file appends.
fn first_prompt(at: At) -> Value {
    let file = at("tool-mentioned");
    let words = first();
    text(format!(
        "<task>\n{words}\n</task>\n\n<file_content path=\"a.txt\">\n{file}\n</file_content>"
    ))
}

pub fn cline(at: At) -> Vec<Written> {
    let task = json!([
        message(0, "user", json!([first_prompt(at), state(at)])),
        message(
            1,
            "assistant",
            json!([
                {"type": "thinking", "thinking": at("agent-thought"), "signature": "x"}, text(at("agent-text")),
                call("c1", "read_file", json!({"path": at("agent-argument")})), call("c2", "execute_command", json!({"command": "make"})),
            ])
        ),
        message(
            2,
            "user",
            json!([
                text(format!(
                    "[read_file for 'a.txt'] Result:\n{}{}",
                    at("tool-output"),
                    idle()
                )),
                text(format!(
                    "[execute_command for 'make'] Result:\nThe tool execution failed with the following error:\n<error>\n{}\n</error>",
                    at("tool-error")
                )),
                state(at),
            ])
        ),
        message(
            3,
            "assistant",
            json!([call("c3", "execute_command", json!({"command": "x"}))])
        ),
        message(
            4,
            "user",
            json!([
                {"type": "tool_result", "tool_use_id": "c3", "content": [text(at("tool-result"))]}, text(at("harness-beside")), state(at),
            ])
        ),
        message(
            5,
            "assistant",
            json!([text(format!(
                "{}\n<search_files>\n<path>.</path>\n<regex>{}</regex>\n</search_files>",
                "I look.",
                at("agent-regex").replace('<', "")
            ))])
        ),
        message(
            6,
            "user",
            json!([
                text("[search_files for 'x'] Result:".into()),
                text(at("tool-bare")),
                text(at("harness-after")),
                state(at)
            ])
        ),
        message(7, "assistant", json!([text("Order BY70 is found.".into())])),
        message(
            8,
            "user",
            json!([
                text(format!(
                    "[TASK RESUMPTION] It was interrupted.\n<user_message>\n{SECOND}\n</user_message>\n{}",
                    at("harness-resumed")
                )),
                state(at)
            ])
        ),
        message(9, "assistant", json!([text("Order BY77 is found.".into())])),
    ]);
    vec![(
        "tasks/1770000000000/api_conversation_history.json",
        task.to_string(),
    )]
}

pub fn roo_code(at: At) -> Vec<Written> {
    let task = json!([
        message(0, "user", json!([first_prompt(at), state(at)])),
        message(
            1,
            "assistant",
            json!([
                {"type": "reasoning", "text": at("agent-thought"), "summary": []}, text(at("agent-text")),
                call("c1", "read_file", json!({"path": at("agent-argument")})), call("c2", "new_task", json!({"message": at("agent-task")})),
            ])
        ),
        message(
            2,
            "user",
            json!([
                {"type": "tool_result", "tool_use_id": "c1", "content": format!("{}{}", at("tool-output"), idle())},
                {"type": "tool_result", "tool_use_id": "c2", "content": json!({"status": "denied", "feedback": at("child-report")}).to_string()},
                state(at),
            ])
        ),
        message(3, "assistant", json!([text("Order BY70 is found.".into())])),
        message(
            4,
            "user",
            json!([
                text(format!("<user_message>\n{SECOND}\n</user_message>")),
                state(at)
            ])
        ),
        message(5, "assistant", json!([text("Order BY77 is found.".into())])),
    ]);
    let child = json!([
        message(
            10,
            "user",
            json!([
                text(format!("<task>\n{}\n</task>", at("child-prompt"))),
                state(at)
            ])
        ),
        message(
            11,
            "assistant",
            json!([text(at("agent-child-text") + &idle() + &idle())])
        ),
    ]);
    let item = |id: &str, parent: Option<&str>| {
        json!({"id": id, "task": at("harness-title"), "parentTaskId": parent, "workspace": "/quay"})
            .to_string()
    };
    const ROOT: &str = "01980000-aaaa-7bbb-8ccc-000000000001";
    const CHILD: &str = "01980000-aaaa-7bbb-8ccc-000000000002";
    vec![
        (
            "tasks/01980000-aaaa-7bbb-8ccc-000000000001/api_conversation_history.json",
            task.to_string(),
        ),
        (
            "tasks/01980000-aaaa-7bbb-8ccc-000000000001/history_item.json",
            item(ROOT, None),
        ),
        (
            "tasks/01980000-aaaa-7bbb-8ccc-000000000002/api_conversation_history.json",
            child.to_string(),
        ),
        (
            "tasks/01980000-aaaa-7bbb-8ccc-000000000002/history_item.json",
            item(CHILD, Some(ROOT)),
        ),
    ]
}
