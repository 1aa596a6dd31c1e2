//! Claude Code: records with links, sub-agents in files of their own.

use serde_json::{Value, json};

use super::{At, SECOND, Written, first, idle, jsonl};

pub fn claude_code(at: At) -> Vec<Written> {
    let mut lines: Vec<Value> = Vec::new();
    let mut parent = Value::Null;
    let mut add = |more: Value| {
        let uuid = format!("u{}", lines.len());
        let mut record = json!({"uuid": uuid, "parentUuid": parent, "sessionId": "harbour", "isSidechain": false,
            "version": "2.1.40", "timestamp": format!("2026-03-01T08:00:{:02}.000Z", lines.len()), "type": "user"});
        for (key, value) in more.as_object().unwrap() {
            record[key] = value.clone();
        }
        parent = record["uuid"].clone();
        lines.push(record);
    };
    let user = |content: Value| json!({"message": {"role": "user", "content": content}});
    let answer = |id: &str, content: Value| {
        json!({"type": "assistant", "requestId": id, "message": {"id": id, "role": "assistant", "model": "m",
            "content": content, "usage": {"input_tokens": 1, "output_tokens": 1}}})
    };
    let result = |id: &str, content: Value, is_error: bool| json!({"type": "tool_result", "tool_use_id": id, "content": content, "is_error": is_error});
    // A compaction before the records that matter.
    add(user(json!("Good morning.")));
    add(answer(
        "m0",
        json!([{"type": "text", "text": "Good morning."}]),
    ));
    add(
        json!({"type": "system", "subtype": "compact_boundary", "parentUuid": null, "logicalParentUuid": "u1",
        "content": at("harness-boundary"), "compactMetadata": {"trigger": "auto", "preTokens": 9}}),
    );
    let mut summary = user(json!(at("agent-summary")));
    summary["isCompactSummary"] = json!(true);
    summary["isVisibleInTranscriptOnly"] = json!(true);
    add(summary);
    let mut meta = user(json!(at("harness-meta")));
    meta["isMeta"] = json!(true);
    add(meta);
    let reminder = format!(
        "<system-reminder>\n{}\n</system-reminder>",
        at("harness-reminder")
    );
    add(user(
        json!([{"type": "text", "text": reminder}, {"type": "text", "text": first()}]),
    ));
    add(
        json!({"type": "progress", "data": {"type": "hook_progress", "command": at("harness-progress")}}),
    );
    add(
        json!({"type": "attachment", "attachment": {"type": "file", "content": at("tool-attachment")}}),
    );
    add(answer(
        "m1",
        json!([
            {"type": "thinking", "thinking": at("agent-thinking"), "signature": "s"},
            {"type": "text", "text": at("agent-text")},
            {"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": at("agent-argument")}},
            {"type": "tool_use", "id": "c2", "name": "Bash", "input": {"command": "make"}},
            {"type": "tool_use", "id": "c3", "name": "mcp__quay__find", "input": {}},
            {"type": "tool_use", "id": "c4", "name": "Task", "input": {"prompt": at("child-prompt"), "description": "Look"}},
            {"type": "tool_use", "id": "c5", "name": "Read", "input": {"file_path": "/quay/a.txt"}},
            {"type": "tool_use", "id": "c6", "name": at("agent-tool-name"), "input": {}},
        ]),
    ));
    let mut results = user(json!([
        result("c1", json!(at("tool-output") + &idle()), false),
        result("c2", json!(format!("Exit code 1\n{}", at("tool-error"))), true),
        result("c3", json!([{"type": "text", "text": at("tool-mcp-error")}]), true),
        result("c4", json!([{"type": "text", "text": at("child-report")}]), false),
        result("c5", json!([{"type": "text", "text": at("tool-file")}]), false),
        result("c6", json!(at("tool-unknown")), true),
        {"type": "text", "text": at("harness-beside")},
    ]));
    results["toolUseResult"] = json!({"stdout": at("tool-stdout"), "stderr": ""});
    add(results);
    for (tag, place) in [
        ("local-command-stdout", "tool-local-command"),
        ("bash-stdout", "tool-bash"),
        ("bash-input", "tool-bash-input"),
        ("user-prompt-submit-hook", "harness-hook"),
        ("session-start-hook", "harness-session-hook"),
        ("task-notification", "child-notification"),
        ("ide_selection", "tool-selection"),
        ("system-reminder", "harness-alone"),
    ] {
        add(user(json!(format!("<{tag}>{}</{tag}>", at(place)))));
    }
    let both = format!(
        "<bash-stdout>{}</bash-stdout><bash-stderr>{}</bash-stderr>",
        at("tool-stdout-text"),
        at("tool-stderr-text")
    );
    add(user(json!(both)));
    let mut notified = user(json!(at("child-notified")));
    notified["origin"] = json!({"kind": "task-notification"});
    add(notified);
    add(
        json!({"type": "attachment", "attachment": {"type": "queued_command", "commandMode": "task-notification",
        "prompt": at("child-queued")}}),
    );
    add(json!({"type": "queue-operation", "operation": "enqueue", "content": at("harness-queue")}));
    add(json!({"type": "summary", "summary": at("agent-title"), "leafUuid": "u1"}));
    let continued =
        "This session is being continued from a previous conversation that ran out of context.";
    add(user(json!(format!(
        "{continued}\n{}",
        at("agent-continued")
    ))));
    add(answer(
        "m2",
        json!([{"type": "text", "text": "Order BY70 is found."}]),
    ));
    // An older version wrote the output of a command without its exit code.
    add(answer(
        "m3",
        json!([{"type": "tool_use", "id": "c7", "name": "Bash", "input": {"command": "ls"}}]),
    ));
    let mut old = user(json!([result("c7", json!(at("tool-old-error")), true)]));
    old["version"] = json!("1.0.51");
    old["toolUseResult"] = json!(format!("Error: {}", at("tool-old-error")));
    add(old);
    add(user(json!(SECOND)));
    add(answer(
        "m4",
        json!([{"type": "text", "text": "Order BY77 is found."}]),
    ));
    let child = |uuid: &str, parent: Value, kind: &str, message: Value| {
        json!({"uuid": uuid, "parentUuid": parent, "sessionId": "harbour", "agentId": "d1", "isSidechain": true,
            "timestamp": "2026-03-01T08:01:00.000Z", "type": kind, "message": message, "version": "2.1.40"})
    };
    let child = [
        child(
            "d0",
            Value::Null,
            "user",
            json!({"role": "user", "content": at("child-prompt")}),
        ),
        child(
            "d1",
            json!("d0"),
            "assistant",
            json!({"id": "d1", "role": "assistant", "content": [
            {"type": "text", "text": at("agent-child-text")}, {"type": "tool_use", "id": "e1", "name": "Bash", "input": {}}]}),
        ),
        child(
            "d2",
            json!("d1"),
            "user",
            json!({"role": "user", "content": [result("e1", json!(at("tool-child-result") + &idle() + &idle()), false)]}),
        ),
        child(
            "d3",
            json!("d2"),
            "assistant",
            json!({"id": "d3", "role": "assistant", "content": [{"type": "text", "text": at("agent-child-report")}]}),
        ),
    ];
    vec![
        ("harbour.jsonl", jsonl(&lines)),
        ("harbour/subagents/agent-d1.jsonl", jsonl(&child)),
    ]
}
