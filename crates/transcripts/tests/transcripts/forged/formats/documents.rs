//! Agents that write one document for a session.

use serde_json::{Value, json};

use super::{At, SECOND, Written, first, idle};

pub fn gemini(at: At) -> Vec<Written> {
    let mut messages: Vec<Value> = Vec::new();
    let mut add = |kind: &str, more: Value| {
        let at = messages.len();
        let mut message = json!({"id": format!("m{at}"), "type": kind, "timestamp": format!("2026-05-01T05:00:{at:02}.000Z")});
        for (key, value) in more.as_object().unwrap() {
            message[key] = value.clone();
        }
        messages.push(message);
    };
    let setup = "This is the Gemini CLI. We are setting up the context for our chat.";
    add(
        "user",
        json!({"content": format!("{setup}\n{}", at("harness-setup"))}),
    );
    add(
        "user",
        json!({"content": format!("<session_context>{}</session_context>", at("harness-context"))}),
    );
    add("info", json!({"content": at("harness-info")}));
    let parts = json!([
        {"text": first()},
        {"text": "\n--- Content from referenced files ---"},
        {"text": "\nContent from @quay/a.txt:\n"}, {"text": at("tool-file")},
        {"text": "\nContent from @quay/b.txt:\n"}, {"text": at("tool-other-file")},
        {"text": "\n--- End of content ---"},
        {"text": format!("<hook_context>{}</hook_context>", at("harness-hook"))},
    ]);
    add("user", json!({"content": parts}));
    let result = |id: &str, name: &str, response: Value| json!([{"functionResponse": {"id": id, "name": name, "response": response}}]);
    add(
        "gemini",
        json!({"content": at("agent-text"), "thoughts": [{"subject": at("agent-subject"), "description": at("agent-thought")}], "toolCalls": [
            {"id": "c1", "name": "read", "args": {"path": at("agent-argument")}, "status": "success", "resultDisplay": at("tool-display"),
                "result": result("c1", "read", json!({"output": at("tool-output") + &idle()}))},
            {"id": "c2", "name": "run_shell_command", "args": {"command": "make"}, "status": "error", "result": result("c2", "run_shell_command", json!({"error": at("tool-error")}))},
            {"id": "c3", "name": at("agent-tool-name"), "args": {}, "status": "success", "result": result("c3", "x", json!({"rows": [at("tool-structured")]}))},
            {"id": "c4", "name": "stop", "args": {}, "status": "cancelled", "result": result("c4", "stop", json!({"error": at("tool-cancelled")}))},
            {"id": "c5", "name": "look", "args": {}, "status": "success", "result": [{"text": at("tool-text-part")}]},
        ]}),
    );
    add("gemini", json!({"content": "Order BY70 is found."}));
    add(
        "user",
        json!({"content": format!("{SECOND}\n--- Content from referenced files ---\nContent from @quay/c.txt:\n{}\n--- End of content ---", at("tool-third-file"))}),
    );
    add(
        "user",
        json!({"content": [{"text": at("harness-before")}, {"text": format!("And order BY78.\n{}", at("tool-expanded"))}],
            "displayContent": [{"text": "And order BY78."}]}),
    );
    add("gemini", json!({"content": "Order BY77 is found."}));
    let document = |id: &str, kind: &str, messages: &[Value]| {
        json!({"sessionId": id, "projectHash": "x", "kind": kind, "startTime": "2026-05-01T05:00:00.000Z",
            "lastUpdated": "2026-05-01T06:00:00.000Z", "messages": messages}).to_string()
    };
    let child = [
        json!({"id": "h1", "type": "user", "timestamp": "2026-05-01T05:00:00.000Z", "content": at("child-prompt")}),
        json!({"id": "h2", "type": "gemini", "timestamp": "2026-05-01T05:00:01.000Z", "content": at("agent-child-text") + &idle() + &idle()}),
    ];
    vec![
        ("session-1.json", document("harbour", "main", &messages)),
        ("session-2.json", document("harbour-2", "subagent", &child)),
    ]
}

pub fn aider(at: At) -> Vec<Written> {
    let lines = |mark: &str, text: &str| -> String {
        let line = |line: &str| format!("{mark} {}  \n", line.trim_end());
        text.split('\n').map(line).collect()
    };
    let chat = [
        "# aider chat started at 2031-04-01 09:00:00\n\n".to_owned(),
        lines(">", &at("harness-setup")),
        format!("\n{}\n", lines("####", &first())),
        format!("{}\n\n{}\n", at("agent-text"), idle()),
        lines(">", "Tokens: 5.2k sent, 130 received."),
        lines(">", &at("harness-edit")),
        format!("\n{}\n", lines("####", "/run make")),
        lines(">", &at("tool-output")),
        format!("\n{}\n", lines("####", "/ask Which order?")),
        "Order BY70 is found.\n\n".to_owned(),
        format!("\n{}\n", lines("####", SECOND)),
        "Order BY77 is found.\n\n".to_owned(),
        lines(">", &at("harness-end")),
    ];
    vec![(".aider.chat.history.md", chat.concat())]
}

pub fn mini_swe_agent(at: At) -> Vec<Written> {
    let messages = json!([
        {"role": "system", "content": at("harness-system")},
        {"role": "user", "content": first()},
        {"role": "assistant", "content": format!("{}\n\n```bash\nls\n```", at("agent-text")), "reasoning_content": at("agent-reasoning")},
        {"role": "user", "content": format!("<returncode>0</returncode>\n<output>\n{}{}</output>", at("tool-output"), idle())},
        {"role": "assistant", "content": "```bash\nmake\n```"},
        {"role": "user", "content": at("tool-plain")},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "bash", "arguments": json!({"command": at("agent-argument")}).to_string()}}]},
        {"role": "tool", "tool_call_id": "c1", "content": at("tool-result")},
        {"role": "assistant", "content": "Order BY70 is found."},
        {"role": "user", "content": SECOND, "extra": {"interrupt_type": "UserNewTask"}},
        {"role": "assistant", "content": "Order BY77 is found."},
        {"role": "exit", "content": at("tool-exit"), "extra": {"exit_status": "Submitted"}},
    ]);
    let run = json!({"trajectory_format": "mini-swe-agent-1.1", "info": {"exit_status": "Submitted", "submission": at("tool-submission")}, "messages": messages});
    vec![("run.traj.json", run.to_string())]
}

pub fn atif(at: At) -> Vec<Written> {
    let reference = json!([{"trajectory_id": "child", "session_id": "harbour"}]);
    let steps = json!([
        {"step_id": 1, "source": "system", "message": at("harness-system")},
        {"step_id": 2, "source": "user", "message": first()},
        {"step_id": 3, "source": "agent", "message": at("agent-text"), "reasoning_content": at("agent-reasoning"),
            "tool_calls": [
                {"tool_call_id": "c1", "function_name": "bash", "arguments": {"command": at("agent-argument")}},
                {"tool_call_id": "c2", "function_name": "delegate", "arguments": {"task": at("agent-task")}}],
            "observation": {"results": [
                {"source_call_id": "c1", "content": format!("{}{}", at("tool-result"), idle()), "extra": {"is_error": true, "x": at("tool-extra")}},
                {"source_call_id": "c2", "content": at("child-result"), "subagent_trajectory_ref": reference},
                {"content": at("tool-plain")}]}},
        {"step_id": 4, "source": "system", "message": "", "observation": {"results": [{"content": at("harness-event")}]}},
        {"step_id": 5, "source": "agent", "message": "Order BY70 is found."},
        {"step_id": 6, "source": "user", "message": SECOND},
        {"step_id": 7, "source": "agent", "message": [{"type": "text", "text": "Order BY77 is found."}], "extra": {"x": at("agent-extra")}},
    ]);
    let child = json!({"trajectory_id": "child", "agent": {"name": at("agent-name")}, "steps": [
        {"step_id": 1, "source": "user", "message": at("child-task")},
        {"step_id": 2, "source": "agent", "message": at("agent-of-child")}]});
    let document = json!({"schema_version": "ATIF-v1.8", "session_id": "harbour", "agent": {"name": "heron", "version": "1"},
        "steps": steps, "notes": at("harness-notes"), "extra": {"x": at("harness-extra")}, "subagent_trajectories": [child]});
    vec![("trajectory.json", document.to_string())]
}

pub fn opencode(at: At) -> Vec<Written> {
    let message = |id: usize, role: &str, parts: Value| {
        let info = json!({"id": format!("msg_{id:02}"), "sessionID": "ses_harbour", "role": role, "modelID": "m", "providerID": "p",
            "finish": "stop", "time": {"created": 1770000000000_u64 + id as u64 * 1000, "completed": 1770000000500_u64 + id as u64 * 1000}});
        json!({"info": info, "parts": parts})
    };
    let tool = |id: &str, name: String, state: Value| json!({"type": "tool", "tool": name, "callID": id, "state": state});
    let mut summary = message(
        2,
        "assistant",
        json!([{"type": "text", "text": at("agent-summary")}]),
    );
    summary["info"]["summary"] = json!(true);
    let messages = json!([
        message(
            0,
            "user",
            json!([{"type": "text", "text": "Good morning."}])
        ),
        message(
            1,
            "assistant",
            json!([{"type": "text", "text": "Good morning."}])
        ),
        summary,
        message(
            3,
            "user",
            json!([
                {"type": "text", "text": first()},
                {"type": "text", "synthetic": true, "text": at("tool-file")},
                {"type": "file", "mime": "text/plain", "filename": "a.txt", "url": "file:///quay/a.txt", "source": {"type": "file", "path": "a.txt", "text": {"value": at("tool-file-source"), "start": 0, "end": 1}}},
                {"type": "text", "ignored": true, "text": at("harness-ignored")},
                {"type": "agent", "name": at("agent-name")},
                {"type": "subtask", "prompt": at("child-subtask"), "description": "x", "agent": "build"},
            ])
        ),
        message(
            4,
            "assistant",
            json!([
                {"type": "step-start"}, {"type": "reasoning", "text": at("agent-reasoning")}, {"type": "text", "text": at("agent-text")},
                tool("c1", "bash".into(), json!({"status": "completed", "input": {"command": at("agent-argument")}, "output": at("tool-output") + &idle(), "title": at("agent-title"), "metadata": {"output": at("tool-metadata")}, "time": {"start": 1, "end": 2}})),
                tool("c2", "bash".into(), json!({"status": "error", "input": {}, "error": at("tool-error"), "metadata": {"output": ""}, "time": {"start": 1, "end": 2}})),
                tool("c5", "quay_find".into(), json!({"status": "error", "input": {}, "error": at("server-error"), "time": {"start": 1, "end": 2}})),
                tool("c6", "task".into(), json!({"status": "error", "input": {}, "error": at("child-error"), "time": {"start": 1, "end": 2}})),
                tool("c3", "task".into(), json!({"status": "completed", "input": {"prompt": at("child-prompt")}, "output": at("child-report"), "metadata": {"sessionId": "ses_harbour2"}, "time": {"start": 1, "end": 2}})),
                tool("c4", at("agent-tool-name"), json!({"status": "completed", "input": {}, "output": {"rows": [at("tool-structured")]}, "time": {"start": 1, "end": 2}})),
                {"type": "step-finish", "reason": "tool-calls"},
            ])
        ),
        message(
            5,
            "user",
            json!([{"type": "text", "synthetic": true, "text": at("harness-synthetic")}])
        ),
        message(
            6,
            "assistant",
            json!([{"type": "text", "text": "Order BY70 is found."}])
        ),
        message(7, "user", json!([{"type": "text", "text": SECOND}])),
        message(
            8,
            "assistant",
            json!([{"type": "text", "text": "Order BY77 is found."}])
        ),
    ]);
    let head = |id: &str, parent: Value| json!({"id": id, "parentID": parent, "directory": "/quay", "version": "1.14.30", "title": at("agent-session-title"), "time": {"created": 1770000000000_u64}});
    let child = json!([
        message(
            10,
            "user",
            json!([{"type": "text", "text": at("child-prompt")}])
        ),
        message(
            11,
            "assistant",
            json!([{"type": "text", "text": at("agent-child-text") + &idle() + &idle()}])
        ),
    ]);
    vec![
        (
            "harbour.json",
            json!({"info": head("ses_harbour", Value::Null), "messages": messages}).to_string(),
        ),
        (
            "harbour-2.json",
            json!({"info": head("ses_harbour2", json!("ses_harbour")), "messages": child})
                .to_string(),
        ),
    ]
}

pub fn swe_agent(at: At) -> Vec<Written> {
    let message = |role: &str, kind: &str, content: String| json!({"role": role, "content": content, "agent": "main", "message_type": kind});
    let mut demonstration = message("user", "demonstration", at("harness-demonstration"));
    demonstration["is_demo"] = json!(true);
    let mut called = message("assistant", "action", at("agent-called"));
    called["tool_calls"] = json!([{"id": "c1", "type": "function", "function": {"name": "bash", "arguments": json!({"command": at("agent-argument")}).to_string()}}]);
    let mut given = message("tool", "observation", at("tool-given"));
    given["tool_call_ids"] = json!(["c1"]);
    let history = json!([
        message("system", "system_prompt", at("harness-system")),
        demonstration,
        {"role": "user", "content": first(), "agent": "main"},
        message("assistant", "action", format!("{}\n```\nls\n```", at("agent-text"))),
        message("user", "observation", at("tool-output") + &idle()),
        message("assistant", "action", "I build.\n```\nmake\n```".into()),
        {"role": "user", "content": at("tool-untyped"), "agent": "main"},
        called, given,
        message("assistant", "action", "Order BY70 is found.\n```\nsubmit\n```".into()),
    ]);
    let steps = json!([{"action": at("agent-action"), "observation": at("tool-observation"), "response": "Order BY70 is found.", "thought": at("agent-thought"), "state": {"open_file": at("tool-state")}}]);
    let only_steps = json!([
        {"query": [{"role": "system", "content": at("harness-query")}, {"role": "user", "content": first()}],
            "action": "ls", "observation": at("tool-step-output") + &idle(), "response": at("agent-response"), "thought": "", "state": {}},
        {"action": "make", "observation": at("tool-step-error"), "response": "I build.", "thought": "", "state": {}},
    ]);
    let info = json!({"exit_status": "submitted", "submission": at("tool-submission")});
    vec![
        (
            "history.traj",
            json!({"environment": "main", "trajectory": steps, "history": history, "info": info})
                .to_string(),
        ),
        (
            "steps.traj",
            json!({"environment": "main", "trajectory": only_steps, "history": [], "info": info})
                .to_string(),
        ),
    ]
}
