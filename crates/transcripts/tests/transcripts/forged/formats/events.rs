//! Agents that write one line per event.

use serde_json::{Value, json};

use super::{At, SECOND, Written, first, idle, jsonl};

pub fn codex(at: At) -> Vec<Written> {
    let line = |kind: &str, payload: Value| json!({"timestamp": "2026-03-02T08:00:00.000Z", "type": kind, "payload": payload});
    let item = |payload: Value| line("response_item", payload);
    let user = |text: String| {
        item(
            json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}),
        )
    };
    let prompt = |text: &str| {
        line(
            "event_msg",
            json!({"type": "user_message", "message": text}),
        )
    };
    let answer = |text: String| {
        item(
            json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}),
        )
    };
    let call = |id: &str, name: &str, arguments: String| {
        item(json!({"type": "function_call", "name": name, "arguments": arguments, "call_id": id}))
    };
    let output = |id: &str, output: Value| {
        item(json!({"type": "function_call_output", "call_id": id, "output": output}))
    };
    let framed = |tag: &str, place: &str| user(format!("<{tag}>{}</{tag}>", at(place)));
    let lines = [
        line(
            "session_meta",
            json!({"id": "harbour", "cwd": "/quay", "cli_version": "0.140.0", "source": "cli"}),
        ),
        item(
            json!({"type": "message", "role": "developer", "content": [{"type": "input_text", "text": at("harness-developer")}]}),
        ),
        user(format!(
            "# AGENTS.md instructions for /quay\n\n<INSTRUCTIONS>\n{}\n</INSTRUCTIONS>",
            at("tool-agents-file")
        )),
        framed("environment_context", "harness-environment"),
        line("compacted", json!({"message": at("agent-summary")})),
        user(first()),
        prompt(&first()),
        item(
            json!({"type": "reasoning", "summary": [{"type": "summary_text", "text": at("agent-reasoning")}]}),
        ),
        answer(at("agent-text")),
        call(
            "c1",
            "exec",
            json!({"cmd": at("agent-argument")}).to_string(),
        ),
        call("c2", "exec", "{}".into()),
        call("c3", &at("agent-tool-name"), "{}".into()),
        item(
            json!({"type": "custom_tool_call", "call_id": "c4", "name": "apply_patch", "input": at("agent-patch")}),
        ),
        output(
            "c1",
            json!(format!(
                "Process exited with code 0\nOutput:\n{}{}",
                at("tool-output"),
                idle()
            )),
        ),
        output(
            "c2",
            json!(json!({"output": at("tool-error"), "metadata": {"exit_code": 1}}).to_string()),
        ),
        output(
            "c3",
            json!({"content": at("tool-structured"), "success": false}),
        ),
        item(json!({"type": "custom_tool_call_output", "call_id": "c4", "output": at("tool-raw")})),
        framed("turn_aborted", "harness-aborted"),
        framed("subagent_notification", "child-notification"),
        framed("user_shell_command", "tool-shell"),
        framed("hook_prompt", "harness-hook"),
        user(at("harness-plain")),
        answer("Order BY70 is found.".into()),
        line(
            "event_msg",
            json!({"type": "agent_message", "message": at("agent-event")}),
        ),
        user(SECOND.into()),
        prompt(SECOND),
        answer("Order BY77 is found.".into()),
    ];
    let child = [
        line(
            "session_meta",
            json!({"id": "harbour-2", "cwd": "/quay", "cli_version": "0.140.0", "source": {"subagent": "review"}}),
        ),
        user(at("child-prompt")),
        prompt(&at("child-prompt")),
        call("c1", "exec", "{}".into()),
        output("c1", json!(at("tool-child-output") + &idle() + &idle())),
        answer(at("agent-child-text")),
    ];
    // An older version without events: a text that is only frame is not a prompt.
    let old = [
        line(
            "session_meta",
            json!({"id": "harbour-3", "cwd": "/quay", "cli_version": "0.50.0"}),
        ),
        framed("user_instructions", "tool-old-instructions"),
        framed("environment_context", "harness-old-environment"),
        user(first()),
        answer(at("agent-old-text") + &idle()),
        framed("user_shell_command", "tool-old-shell"),
        answer("Order BY70 is found.".into()),
        user(SECOND.into()),
        answer("Order BY77 is found.".into()),
    ];
    vec![
        ("rollout-1.jsonl", jsonl(&lines)),
        ("rollout-2.jsonl", jsonl(&child)),
        ("rollout-3.jsonl", jsonl(&old)),
    ]
}

pub fn copilot(at: At) -> Vec<Written> {
    let mut lines: Vec<Value> = Vec::new();
    let mut add = |kind: &str, data: Value| {
        let at = lines.len();
        let parent = at.checked_sub(1).map(|at| format!("e{at}"));
        lines.push(
            json!({"type": kind, "data": data, "id": format!("e{at}"), "parentId": parent,
            "timestamp": format!("2026-07-01T09:00:{at:02}.000Z")}),
        );
    };
    add(
        "session.start",
        json!({"sessionId": "harbour", "version": 1, "producer": "copilot-agent", "copilotVersion": "1.0.64"}),
    );
    add(
        "system.message",
        json!({"role": "system", "content": at("harness-system")}),
    );
    add("user.message", json!({"content": "Good morning."}));
    add("assistant.message", json!({"content": "Good morning."}));
    add(
        "session.compaction_complete",
        json!({"success": true, "summaryContent": at("agent-summary")}),
    );
    let sent = format!(
        "<current_datetime>{}</current_datetime>\n\n{}\n\n{}\n\n<system_reminder>\n{}\n</system_reminder>",
        at("harness-time"),
        first(),
        at("harness-added"),
        at("harness-reminder")
    );
    add(
        "user.message",
        json!({"content": first(), "transformedContent": sent}),
    );
    add("hook.start", json!({"input": at("harness-hook")}));
    add(
        "assistant.message",
        json!({"content": at("agent-text"), "reasoningText": at("agent-reasoning"), "toolRequests": [
        {"toolCallId": "c1", "name": "task", "arguments": {"prompt": at("child-prompt")}},
        {"toolCallId": "c2", "name": "bash", "arguments": {"command": at("agent-argument")}},
        {"toolCallId": "c3", "name": at("agent-tool-name"), "arguments": {}}]}),
    );
    add(
        "user.message",
        json!({"content": at("child-prompt"), "parentToolCallId": "c1"}),
    );
    add(
        "assistant.message",
        json!({"content": at("agent-child-text"), "parentToolCallId": "c1"}),
    );
    add(
        "tool.execution_complete",
        json!({"toolCallId": "c1", "success": true, "result": {"content": at("child-report"), "detailedContent": at("child-detailed")}}),
    );
    add(
        "tool.execution_complete",
        json!({"toolCallId": "c2", "success": true, "result": {"content": at("tool-output") + &idle()}}),
    );
    add(
        "tool.execution_complete",
        json!({"toolCallId": "c3", "success": false, "error": {"message": at("tool-error"), "code": "denied"}}),
    );
    add(
        "user.message",
        json!({"content": at("harness-skill"), "source": "skill-quay"}),
    );
    add(
        "user.message",
        json!({"content": format!("<system_reminder>{}</system_reminder>", at("harness-alone"))}),
    );
    add(
        "assistant.message",
        json!({"content": "Order BY70 is found."}),
    );
    add("user.message", json!({"content": SECOND}));
    add(
        "assistant.message",
        json!({"content": "Order BY77 is found."}),
    );
    vec![("events.jsonl", jsonl(&lines))]
}

pub fn openhands(at: At) -> Vec<Written> {
    let mut lines: Vec<Value> = Vec::new();
    let mut add = |kind: &str, source: &str, more: Value| {
        let at = lines.len();
        let mut event = json!({"id": format!("o{at}"), "timestamp": format!("2026-02-02T02:40:{at:02}"), "source": source, "kind": kind});
        for (key, value) in more.as_object().unwrap() {
            event[key] = value.clone();
        }
        lines.push(event);
    };
    let texts = |text: String| json!([{"type": "text", "text": text}]);
    let call = |id: &str, name: &str, arguments: Value| {
        json!({"thought": texts(at("agent-thought")), "reasoning_content": at("agent-reasoning"), "tool_name": name, "tool_call_id": id,
        "tool_call": {"id": id, "name": name, "arguments": arguments.to_string()}, "action": {"command": at("agent-action"), "kind": "TerminalAction"}, "llm_response_id": id})
    };
    add(
        "SystemPromptEvent",
        "agent",
        json!({"system_prompt": {"type": "text", "text": at("harness-system")}, "tools": []}),
    );
    add(
        "MessageEvent",
        "user",
        json!({"llm_message": {"role": "user", "content": texts(first())}, "extended_content": texts(at("tool-extended"))}),
    );
    add(
        "ActionEvent",
        "agent",
        call("c1", "terminal", json!({"command": at("agent-argument")})),
    );
    add(
        "ObservationEvent",
        "environment",
        json!({"tool_name": "terminal", "tool_call_id": "c1", "action_id": "o2",
        "observation": {"content": texts(at("tool-output") + &idle()), "kind": "TerminalObservation", "command": at("tool-command")}}),
    );
    add("ActionEvent", "agent", call("c2", "terminal", json!({})));
    add(
        "ObservationEvent",
        "environment",
        json!({"tool_name": "terminal", "tool_call_id": "c2", "action_id": "o4",
        "observation": {"content": texts(at("tool-error")), "is_error": true, "kind": "TerminalObservation"}, "extended_content": texts(at("tool-beside"))}),
    );
    add("ActionEvent", "agent", call("c3", "terminal", json!({})));
    add(
        "AgentErrorEvent",
        "agent",
        json!({"tool_name": "terminal", "tool_call_id": "c3", "error": at("tool-agent-error")}),
    );
    add("ActionEvent", "agent", call("c4", "terminal", json!({})));
    add(
        "UserRejectObservation",
        "environment",
        json!({"tool_name": "terminal", "tool_call_id": "c4", "action_id": "o8",
            "rejection_reason": at("harness-rejection"), "rejection_source": "hook"}),
    );
    add("ActionEvent", "agent", call("c5", "terminal", json!({})));
    add(
        "UserRejectObservation",
        "environment",
        json!({"tool_name": "terminal", "tool_call_id": "c5", "action_id": "o10", "rejection_reason": "Not tonight.",
            "extended_content": texts(at("harness-beside-rejection"))}),
    );
    add(
        "MessageEvent",
        "environment",
        json!({"llm_message": {"role": "user", "content": texts(at("harness-message"))}, "extended_content": []}),
    );
    add(
        "Condensation",
        "environment",
        json!({"summary": at("agent-condensed"), "forgotten_event_ids": []}),
    );
    add(
        "ConversationErrorEvent",
        "environment",
        json!({"detail": at("harness-error")}),
    );
    add(
        "MessageEvent",
        "agent",
        json!({"llm_message": {"role": "assistant", "content": texts(at("agent-text"))}, "extended_content": []}),
    );
    add(
        "MessageEvent",
        "user",
        json!({"llm_message": {"role": "user", "content": texts(SECOND.into())}, "extended_content": []}),
    );
    add(
        "MessageEvent",
        "agent",
        json!({"llm_message": {"role": "assistant", "content": texts("Order BY77 is found.".into())}, "extended_content": []}),
    );
    let shown_as_text = json!({"messages": [
        {"role": "system", "content": at("harness-log-system")},
        {"role": "user", "content": [{"type": "text", "text": first() + " It is a log."}, {"type": "text", "text": format!("<EXTRA_INFO>{}</EXTRA_INFO>", at("tool-extra-info"))}]},
        {"role": "assistant", "content": at("agent-log-text")},
        {"role": "user", "content": texts(format!("EXECUTION RESULT of [terminal]:\n{}{}", at("tool-as-text"), idle()))},
        {"role": "assistant", "content": "Order BY70 is found."},
        {"role": "user", "content": SECOND},
    ], "kwargs": {}, "latency_sec": 1.0, "cost": 0.1, "timestamp": 1770000001.25,
        "response": {"id": "r", "model": "m", "choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": "Order BY77 is found."}}]}});
    vec![
        ("events.jsonl", jsonl(&lines)),
        ("log.json", shown_as_text.to_string()),
    ]
}

pub fn goose(at: At) -> Vec<Written> {
    let mut lines =
        vec![json!({"working_dir": "/quay", "description": at("agent-title"), "message_count": 9})];
    let mut add = |role: &str, content: Value, metadata: Value| {
        let created = 1_780_000_000 + lines.len();
        lines.push(json!({"id": format!("g{created}"), "role": role, "created": created, "content": content, "metadata": metadata}));
    };
    let text = |text: String| json!([{"type": "text", "text": text}]);
    let (both, agent) = (
        json!({}),
        json!({"userVisible": false, "agentVisible": true}),
    );
    let person = json!({"userVisible": true, "agentVisible": false});
    add("user", text("Good morning.".into()), person.clone());
    add(
        "assistant",
        text("Good morning. ".repeat(100)),
        person.clone(),
    );
    add("user", text(at("agent-summary")), agent.clone());
    add(
        "assistant",
        text("Your context was compacted. Go on.".into()),
        agent.clone(),
    );
    add(
        "assistant",
        json!([{"type": "systemNotification", "notificationType": "inlineMessage", "msg": at("harness-notice")}]),
        person,
    );
    add("user", text(first()), both.clone());
    add(
        "user",
        text(format!(
            "<turn-context>{}</turn-context>",
            at("harness-context")
        )),
        json!({"userVisible": false, "agentVisible": true, "turnContext": true}),
    );
    let call = |id: &str, name: String, arguments: Value| json!({"type": "toolRequest", "id": id, "toolCall": {"status": "success", "value": {"name": name, "arguments": arguments}}});
    add(
        "assistant",
        json!([{"type": "thinking", "thinking": at("agent-thinking"), "signature": "x"}, {"type": "text", "text": at("agent-text")},
        call("c1", "run".into(), json!({"command": at("agent-argument")})), call("c2", at("agent-tool-name"), json!({}))]),
        both.clone(),
    );
    add(
        "user",
        json!([{"type": "toolResponse", "id": "c1", "toolResult": {"status": "success", "value": {"isError": false, "content": [{"type": "text", "text": at("tool-output") + &idle()}]}}},
        {"type": "toolResponse", "id": "c2", "toolResult": {"status": "error", "error": at("tool-error")}}]),
        both.clone(),
    );
    add("user", text(at("harness-told")), agent);
    add(
        "assistant",
        text("Order BY70 is found.".into()),
        both.clone(),
    );
    add("user", text(SECOND.into()), both.clone());
    add("assistant", text("Order BY77 is found.".into()), both);
    vec![("20260701_060000.jsonl", jsonl(&lines))]
}

pub fn qwen(at: At) -> Vec<Written> {
    let mut lines: Vec<Value> = Vec::new();
    let mut add = |kind: &str, more: Value| {
        let at = lines.len();
        let parent = at.checked_sub(1).map(|before| format!("q{before}"));
        let mut record = json!({"uuid": format!("q{at}"), "parentUuid": parent, "sessionId": "harbour", "type": kind,
            "timestamp": format!("2026-07-01T06:00:{at:02}.000Z"), "cwd": "/quay"});
        for (key, value) in more.as_object().unwrap() {
            record[key] = value.clone();
        }
        lines.push(record);
    };
    let user = |parts: Value| json!({"provenance": "real_user", "message": {"role": "user", "parts": parts}});
    let model = |parts: Value| json!({"model": "m", "message": {"role": "model", "parts": parts}});
    let result = |id: &str, response: Value, status: &str| {
        json!({"message": {"role": "user", "parts": [{"functionResponse": {"id": id, "name": "run", "response": response}}]},
            "toolCallResult": {"callId": id, "status": status, "resultDisplay": at("tool-display")}})
    };
    let system =
        |subtype: &str, payload: Value| json!({"subtype": subtype, "systemPayload": payload});
    add("user", user(json!([{"text": "Good morning."}])));
    add(
        "assistant",
        model(json!([{"text": "Good morning. ".repeat(100)}])),
    );
    let history = json!([{"role": "user", "parts": [{"text": at("agent-summary")}]}, {"role": "model", "parts": [{"text": "Good."}]}]);
    add(
        "system",
        system(
            "chat_compression",
            json!({"info": {"compressionStatus": 1}, "compressedHistory": history}),
        ),
    );
    add(
        "system",
        system(
            "ui_telemetry",
            json!({"uiEvent": {"text": at("harness-telemetry")}}),
        ),
    );
    add(
        "user",
        user(json!([
            {"text": first()}, {"text": "\n--- Content from referenced files ---"}, {"text": "\nContent from quay/a.txt:\n"},
            {"text": at("tool-file")}, {"text": "\n--- End of content ---"},
            {"text": format!("<qwen:user-prompt-submit-context>{}</qwen:user-prompt-submit-context>", at("harness-hook"))},
        ])),
    );
    add(
        "assistant",
        model(json!([
            {"text": at("agent-thought"), "thought": true}, {"text": at("agent-text")},
            {"functionCall": {"id": "c1", "name": "run", "args": {"command": at("agent-argument")}}},
            {"functionCall": {"id": "c2", "name": at("agent-tool-name"), "args": {}}},
        ])),
    );
    add(
        "tool_result",
        result(
            "c1",
            json!({"output": at("tool-output") + &idle()}),
            "success",
        ),
    );
    add(
        "tool_result",
        result("c2", json!({"error": at("tool-error")}), "error"),
    );
    let mut notice = user(
        json!([{"text": format!("<task-notification>{}</task-notification>", at("harness-notice"))}]),
    );
    notice["subtype"] = json!("notification");
    notice["provenance"] = json!("system");
    add("user", notice);
    add(
        "assistant",
        model(json!([{"text": "Order BY70 is found."}])),
    );
    add("user", user(json!([{"text": SECOND}])));
    add(
        "assistant",
        model(json!([{"text": "Order BY77 is found."}])),
    );
    let child = [
        json!({"uuid": "h1", "parentUuid": null, "sessionId": "harbour", "isSidechain": true, "agentId": "h", "type": "user",
            "timestamp": "2026-07-01T06:00:00.000Z", "message": {"role": "user", "parts": [{"text": at("child-prompt")}]}}),
        json!({"uuid": "h2", "parentUuid": "h1", "sessionId": "harbour", "isSidechain": true, "agentId": "h", "type": "assistant",
            "timestamp": "2026-07-01T06:00:01.000Z", "message": {"role": "model", "parts": [{"text": at("agent-child-text") + &idle() + &idle()}]}}),
    ];
    vec![
        ("chats/harbour.jsonl", jsonl(&lines)),
        ("subagents/agent-h.jsonl", jsonl(&child)),
    ]
}

pub fn pi(at: At) -> Vec<Written> {
    let mut lines: Vec<Value> = vec![
        json!({"type": "session", "version": 3, "id": "harbour", "timestamp": "2026-01-01T06:00:00.000Z", "cwd": "/quay"}),
    ];
    let mut add = |kind: &str, more: Value| {
        let at = lines.len();
        let parent = (at > 1).then(|| format!("p{}", at - 1));
        let mut entry = json!({"type": kind, "id": format!("p{at}"), "parentId": parent, "timestamp": format!("2026-01-01T06:00:{at:02}.000Z")});
        for (key, value) in more.as_object().unwrap() {
            entry[key] = value.clone();
        }
        lines.push(entry);
    };
    let text = |text: String| json!([{"type": "text", "text": text}]);
    let user = |content: String| json!({"message": {"role": "user", "content": content, "timestamp": 1767247201000_u64}});
    let answer = |content: Value| json!({"message": {"role": "assistant", "content": content, "provider": "p", "model": "m", "stopReason": "stop", "usage": {"input": 1, "output": 1}}});
    let result = |id: &str, content: Value, is_error: bool| json!({"message": {"role": "toolResult", "toolCallId": id, "toolName": "bash", "content": content, "isError": is_error, "details": {"note": at("tool-details")}}});
    add("message", user("Good morning.".into()));
    add("message", answer(text("Good morning. ".repeat(100))));
    add(
        "compaction",
        json!({"summary": at("agent-summary"), "firstKeptEntryId": "p3", "tokensBefore": 300}),
    );
    add("message", user(first()));
    add(
        "message",
        answer(
            json!([{"type": "thinking", "thinking": at("agent-thinking")}, {"type": "text", "text": at("agent-text")},
        {"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"command": at("agent-argument")}},
        {"type": "toolCall", "id": "c2", "name": at("agent-tool-name"), "arguments": {}}]),
        ),
    );
    add(
        "message",
        result("c1", text(at("tool-output") + &idle()), false),
    );
    add("message", result("c2", text(at("tool-error")), true));
    add(
        "message",
        json!({"message": {"role": "bashExecution", "command": at("harness-command"), "output": at("tool-bash"), "exitCode": 1}}),
    );
    add(
        "custom_message",
        json!({"customType": "hint", "content": at("harness-custom"), "display": true}),
    );
    add(
        "message",
        json!({"message": {"role": "hookMessage", "content": at("harness-hook")}}),
    );
    add(
        "message",
        json!({"message": {"role": "branchSummary", "summary": at("agent-branch")}}),
    );
    add(
        "branch_summary",
        json!({"fromId": "p1", "summary": at("agent-other-branch")}),
    );
    add("message", answer(text("Order BY70 is found.".into())));
    add("session_info", json!({"name": at("agent-title")}));
    add("message", user(SECOND.into()));
    add("message", answer(text("Order BY77 is found.".into())));
    vec![("harbour.jsonl", jsonl(&lines))]
}
