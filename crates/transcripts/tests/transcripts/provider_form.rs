//! Conversations in the forms of providers: detected, read unchanged, and written again as they were.

use loopstore::provider::{Form, ProviderRequest};
use loopstore::{AgentMessage, Content, Message, Role};
use loopstore_transcripts::{OpenAiChat, ProviderForm};
use serde_json::{Value, json};

use crate::support::recording::{Recording, import, import_fixture};
use loopstore_transcripts::importers;
use loopstore_transcripts::{ClaudeCode, OpenCode, PhiCore, Pi};

fn format_of(text: &str) -> Option<&'static str> {
    let mut known = importers().iter();
    let path = std::path::Path::new("some.json");
    let found = known.find(|importer| importer.detect(path, text.as_bytes()));
    found.map(|importer| importer.format())
}

fn every(found: &Recording) -> impl Iterator<Item = &AgentMessage> {
    found.sessions.iter().flat_map(|session| session.messages())
}

fn messages(found: &Recording) -> Vec<AgentMessage> {
    every(found).cloned().collect()
}

fn written(form: Form, found: &Recording) -> Value {
    serde_json::to_value(ProviderRequest::new(form, &messages(found))).unwrap()
}

fn anthropic() -> Value {
    json!({"model": "claude", "system": "Be brief.", "messages": [
        {"role": "user", "content": "Will it rain?"},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
            {"type": "redacted_thinking", "data": "c2VhbGVk"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "c1", "name": "look", "input": {"z": 1, "a": 2}},
            {"type": "tool_use", "id": "c2", "name": "look", "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": "rain"},
            {"type": "tool_result", "tool_use_id": "c2", "content": "gone", "is_error": true},
            {"type": "text", "text": "And?"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Rain."}]},
    ]})
}

fn responses() -> Value {
    json!({"instructions": "Be brief.", "input": [
        {"role": "user", "content": "Will it rain?"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA="},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{\"z\":1,\"a\":2}"},
        {"type": "function_call_output", "call_id": "c1", "output": "rain"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "compaction", "id": "cmp_1", "encrypted_content": "gBBB="},
        {"role": "assistant", "content": "Rain."},
    ]})
}

#[test]
fn each_form_is_told_from_the_others() {
    let lists = |value: &Value, key: &str| {
        let list = value[key].as_array().unwrap();
        let lines: Vec<String> = list.iter().map(Value::to_string).collect();
        [value.to_string(), value[key].to_string(), lines.join("\n")]
    };
    let [request, list, _] = lists(&anthropic(), "messages");
    assert_eq!(
        [request, list].map(|text| format_of(&text)),
        [Some("anthropic"); 2]
    );
    let forms = lists(&responses(), "input").map(|text| format_of(&text));
    assert_eq!(forms[..2], [Some("responses"); 2]);
    let chat = json!([
        {"role": "user", "content": "Use \"type\":\"tool_use\" and \"type\": \"reasoning\""},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "x"}]},
    ]);
    assert_eq!(format_of(&chat.to_string()), Some("openai-chat"));
}

#[test]
fn messages_of_anthropic_are_calls_and_results() {
    let found = import(&ProviderForm::ANTHROPIC, &anthropic().to_string());
    assert_eq!(found.reasons(), "");
    assert_eq!(found.sessions[0].loop_ids().len(), 2);
    let roles: Vec<Role> = every(&found).map(AgentMessage::role).collect();
    use Role::{Assistant, Extension, ToolResult, User};
    assert_eq!(
        roles,
        [
            Extension, User, Assistant, ToolResult, ToolResult, User, Assistant
        ]
    );
    let all = messages(&found);
    let answer = all[2].message().unwrap();
    assert!(matches!(&answer.content()[1], Content::Sealed(sealed)
        if sealed.provider == "anthropic" && sealed.kind().as_deref() == Some("redacted_thinking")));
    let call = answer.tool_calls().next().unwrap();
    assert_eq!(
        (&*call.name, call.arguments.as_str()),
        ("look", r#"{"a":2,"z":1}"#)
    );
    let Some(Message::ToolResult(failed)) = all[4].message() else {
        panic!("{:?}", all[4]);
    };
    assert!(failed.is_error && failed.tool_name == "look");
}

#[test]
fn what_is_written_is_read_as_the_same_conversation() {
    for (importer, form, request) in [
        (ProviderForm::ANTHROPIC, Form::Anthropic, anthropic()),
        (ProviderForm::RESPONSES, Form::OpenAiResponses, responses()),
    ] {
        let first = import(&importer, &request.to_string());
        assert_eq!(first.reasons(), "");
        let text = serde_json::to_string_pretty(&written(form, &first)).unwrap();
        let again = import(&importer, &text);
        assert_eq!(messages(&again), messages(&first), "{form}");
        assert_eq!(written(form, &again), written(form, &first), "{form}");
    }
}

#[test]
fn sealed_state_keeps_its_text_and_items_in_a_row_are_one_answer() {
    let reasoning = r#"{"type":"reasoning","n":1.50,"encrypted_content":"gAAA=","id":"rs"}"#;
    let lines = format!(
        "{}\n{reasoning}\n{}\n",
        r#"{"role":"user","content":"Hi"}"#, r#"{"role":"assistant","content":"Ho"}"#
    );
    let found = import(&ProviderForm::RESPONSES, &lines);
    let all = messages(&found);
    assert_eq!(all.len(), 2);
    let content = all[1].message().unwrap().content();
    assert!(matches!(&content[0], Content::Sealed(sealed) if sealed.item.as_str() == reasoning));
    assert_eq!(content.len(), 2);
}

#[test]
fn a_message_of_no_known_form_is_refused_with_the_reason() {
    let text = json!([
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "x"}]},
    ]);
    let found = import(&OpenAiChat, &text.to_string());
    assert_eq!(every(&found).count(), 1);
    assert!(
        found
            .reasons()
            .contains("`tool_use`, which chat completions do not have")
    );
    let chat = json!([{"role": "user", "content": "Hi"}, {"role": "tool", "tool_call_id": "c", "content": "x"}]);
    let found = import(&ProviderForm::ANTHROPIC, &chat.to_string());
    assert_eq!(every(&found).count(), 1);
    assert!(
        found.reasons().contains("role `tool`"),
        "{}",
        found.reasons()
    );
    let item = json!([{"role": "user", "content": "Hi"}, {"type": "tool_result", "content": "x"}]);
    let found = import(&ProviderForm::RESPONSES, &item.to_string());
    assert!(
        found.reasons().contains("item type `tool_result`"),
        "{}",
        found.reasons()
    );
}

/// Returns the opaque blocks of a recording, each as its provider and item.
fn sealed(found: &Recording) -> Vec<(String, Value)> {
    let blocks = every(found).filter_map(AgentMessage::message);
    let blocks = blocks.flat_map(|message| message.content().to_vec());
    let sealed = blocks.filter_map(|block| match block {
        Content::Sealed(sealed) => Some((sealed.provider, sealed.item.read().unwrap())),
        _ => None,
    });
    sealed.collect()
}

#[test]
fn agents_keep_redacted_thinking_sealed() {
    let redacted = json!({"type": "redacted_thinking", "data": "xyz"});
    let expected = vec![("anthropic".to_owned(), redacted.clone())];
    assert_eq!(
        sealed(&import_fixture(&ClaudeCode, "claude-code/kite-1.jsonl"))[..1],
        expected[..]
    );
    let answer = json!({"role": "assistant", "content": [redacted]});
    let phi = json!({"session_id": "s", "created_at": "2026-01-01T00:00:00Z", "loops": [
        {"loop_id": "s.a.0", "session_id": "s", "messages": [answer]}]});
    assert_eq!(sealed(&import(&PhiCore, &phi.to_string())), expected);
    let thinking = json!({"type": "thinking", "thinking": "", "thinkingSignature": "xyz",
        "redacted": true});
    let lines = [
        json!({"type": "session", "version": 3, "id": "s", "timestamp": "2026-01-01T00:00:00Z", "cwd": "/"}),
        json!({"type": "message", "id": "a", "parentId": null, "timestamp": "2026-01-01T00:00:01Z",
            "message": {"role": "user", "content": "Hi"}}),
        json!({"type": "message", "id": "b", "parentId": "a", "timestamp": "2026-01-01T00:00:02Z",
            "message": {"role": "assistant", "provider": "anthropic", "content": [thinking]}}),
    ];
    let pi = lines.map(|line| line.to_string()).join("\n");
    assert_eq!(sealed(&import(&Pi, &pi)), expected);
    let opencode = json!({"info": {"id": "s", "projectID": "p"}, "messages": [
        {"info": {"id": "a", "role": "user"}, "parts": [{"type": "text", "text": "Hi"}]},
        {"info": {"id": "b", "role": "assistant", "parentID": "a"}, "parts": [
            {"type": "reasoning", "text": "", "metadata": {"anthropic": {"redactedData": "xyz"}}},
            {"type": "text", "text": "Ho"}]}]});
    assert_eq!(sealed(&import(&OpenCode, &opencode.to_string())), expected);
}

#[test]
fn codex_keeps_what_openai_sealed() {
    let reasoning = json!({"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}],
        "content": null, "encrypted_content": "gAAA="});
    let compaction = json!({"type": "compaction", "encrypted_content": "gBBB="});
    let record = |kind: &str, payload: Value| {
        json!({"timestamp": "2026-01-01T00:00:00Z", "type": kind, "payload": payload}).to_string()
    };
    let prompt = json!({"type": "message", "role": "user", "content": [
        {"type": "input_text", "text": "Hi"}]});
    let lines = [
        record("session_meta", json!({"id": "s"})),
        record("response_item", prompt),
        record("response_item", reasoning.clone()),
        record(
            "response_item",
            json!({"type": "message", "role": "assistant", "content": [
            {"type": "output_text", "text": "Ho"}]}),
        ),
        record("response_item", compaction.clone()),
    ];
    let found = import(&loopstore_transcripts::Codex, &lines.join("\n"));
    let expected = [reasoning, compaction].map(|item| ("openai".to_owned(), item));
    assert_eq!(sealed(&found), expected);
}
