//! Conversations as the runs of SWE-agent, mini-swe-agent and OpenHands, as trajectories in ATIF, and as the tasks of Roo
//! Code.

use serde_json::{Value, json};

use super::forms::{
    ID, Line, LineContent, anthropic_messages, call_id, iso, lines_of, millis, openai_chat,
};

pub fn swe_agent(lines: &[Line]) -> String {
    let history = chat(lines).into_iter().map(|mut message| {
        message["agent"] = "main".into();
        message["message_type"] = match message["role"].as_str() {
            Some("assistant") => "action",
            _ => "observation",
        }
        .into();
        if let Some(id) = message.get("tool_call_id").cloned() {
            message.as_object_mut().unwrap().remove("tool_call_id");
            message["tool_call_ids"] = json!([id]);
        }
        message
    });
    json!({"environment": "main", "trajectory": [], "history": history.collect::<Vec<_>>(), "info": {}})
        .to_string()
}

pub fn mini_swe_agent(lines: &[Line]) -> String {
    json!({"info": {"mini_version": "2.1.0", "config": {}}, "messages": chat(lines),
        "trajectory_format": "mini-swe-agent-1.1"})
    .to_string()
}

pub fn atif(lines: &[Line]) -> String {
    let mut steps: Vec<Value> = Vec::new();
    for (nth, line) in lines.iter().enumerate() {
        let text = line.content.text();
        if let (LineContent::Result(_), Some(step)) = (&line.content, steps.last_mut()) {
            step["observation"] =
                json!({"results": [{"source_call_id": call_id(nth - 1), "content": text}]});
            continue;
        }
        let source = match &line.content {
            LineContent::Prompt(_) => "user",
            _ => "agent",
        };
        let mut step = json!({"step_id": steps.len() + 1, "timestamp": iso(line.at), "source": source,
            "message": text});
        if matches!(line.content, LineContent::Call(_)) {
            step["tool_calls"] = json!([{"tool_call_id": call_id(nth), "function_name": "read", "arguments": {"path": "a"}}]);
        }
        steps.push(step);
    }
    json!({"schema_version": "ATIF-v1.8", "session_id": ID,
        "agent": {"name": "heron", "version": "1"}, "steps": steps})
    .to_string()
}

/// Returns the messages of an OpenAI chat.
fn chat(lines: &[Line]) -> Vec<Value> {
    serde_json::from_str(&openai_chat(lines)).unwrap()
}

pub fn openhands_events(lines: &[Line]) -> String {
    lines_of(lines.iter().enumerate().map(|(nth, line)| {
        let text = json!([{"type": "text", "text": line.content.text()}]);
        let (source, kind) = match &line.content {
            LineContent::Prompt(_) => ("user", "MessageEvent"),
            LineContent::Answer(_) => ("agent", "MessageEvent"),
            LineContent::Call(_) => ("agent", "ActionEvent"),
            LineContent::Result(_) => ("environment", "ObservationEvent"),
        };
        let mut event = json!({"id": format!("e{nth}"), "timestamp": iso(line.at).trim_end_matches('Z'),
            "source": source, "kind": kind});
        match &line.content {
            LineContent::Prompt(_) => event["llm_message"] = json!({"role": "user", "content": text}),
            LineContent::Answer(_) => {
                event["llm_message"] = json!({"role": "assistant", "content": text});
                event["llm_response_id"] = format!("r{nth}").into();
            }
            LineContent::Call(_) => {
                event["thought"] = text;
                event["action"] = json!({"command": "ls", "kind": "TerminalAction"});
                event["tool_name"] = "terminal".into();
                event["tool_call_id"] = call_id(nth).into();
                event["tool_call"] = json!({"id": call_id(nth), "name": "terminal", "arguments": "{}"});
                event["llm_response_id"] = format!("r{nth}").into();
            }
            LineContent::Result(_) => {
                event["tool_name"] = "terminal".into();
                event["tool_call_id"] = call_id(nth - 1).into();
                event["action_id"] = format!("e{}", nth - 1).into();
                event["observation"] =
                    json!({"content": text, "is_error": false, "kind": "TerminalObservation"});
            }
        }
        event
    }))
}

/// Returns the log of the newest model call: all messages before it, and its answer.
pub fn openhands_log(lines: &[Line]) -> String {
    let mut messages = chat(lines);
    let mut log =
        json!({"kwargs": {}, "latency_sec": 1.0, "cost": 0.01, "timestamp": 1_770_000_001.25});
    if messages
        .last()
        .is_some_and(|last| last["role"] == "assistant")
    {
        let answer = messages.pop();
        log["response"] = json!({"id": "chatcmpl-1", "model": "acme/otter", "object": "chat.completion",
            "choices": [{"index": 0, "finish_reason": "stop", "message": answer}]});
    }
    log["messages"] = messages.into();
    log.to_string()
}

pub fn roo_code(lines: &[Line]) -> String {
    let mut messages = anthropic_messages(lines);
    for (message, line) in messages.as_array_mut().unwrap().iter_mut().zip(lines) {
        message["ts"] = millis(line.at).into();
    }
    messages.to_string()
}
