//! Random conversations with every kind of item are exported from one store and imported into another unchanged. Items
//! that belong together stay together, and items of another form are rejected.

use std::collections::HashMap;
use std::sync::Arc;

use loopstore::provider::{self, Form};
use loopstore::{AgentMessage, Database, Message, Policy, SessionId, SqliteStore, Store};
use loopstore_export::{ExportForm, export};
use loopstore_transcripts::{ImportOptions, import_paths};
use serde_json::{Value, json};

use crate::support::conversations::{KINDS, list, piece, request, reversed};
use crate::support::histories::Random;

/// Returns the stored messages of a session, each with the positions of its loop and turn, its role and its content.
fn stored(store: &SqliteStore) -> Vec<(usize, String, String, Value)> {
    let sql = "SELECT loop_id, turn, role, payload FROM v_messages ORDER BY loop_id, seq";
    let mut loops: HashMap<String, usize> = HashMap::new();
    let rows = store.query(sql).unwrap().rows;
    let rows = rows.iter().map(|row| {
        let row: Vec<Value> = serde_json::from_value(json!(row)).unwrap();
        let next = loops.len();
        let nth = *loops.entry(row[0].to_string()).or_insert(next);
        let payload = row[3].as_str().unwrap();
        let message: AgentMessage = serde_json::from_str(payload).unwrap();
        let said = match &message {
            AgentMessage::Llm(message) => json!(message.message.content()),
            AgentMessage::Extension(note) => json!(note.data),
        };
        let failed =
            matches!(message.message(), Some(Message::ToolResult(result)) if result.is_error);
        (
            nth,
            row[1].to_string(),
            format!("{} {failed}", row[2]),
            said,
        )
    });
    rows.collect()
}

fn texts(store: &SqliteStore) -> String {
    let rows = store.query("SELECT payload FROM v_messages").unwrap().rows;
    let texts = rows
        .iter()
        .map(|row| json!(row)[0].as_str().unwrap().to_owned());
    texts.collect()
}

/// Collects items and blocks with state that only the provider can read.
fn sealed(value: &Value, out: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            let kind = map.get("type").and_then(Value::as_str).unwrap_or_default();
            if ["reasoning", "compaction", "redacted_thinking"].contains(&kind) {
                out.push(reversed(value));
            }
            map.values().for_each(|value| sealed(value, out));
        }
        Value::Array(list) => list.iter().for_each(|value| sealed(value, out)),
        _ => {}
    }
}

#[test]
fn what_goes_out_and_in_again_is_the_same_conversation() {
    let folder = tempfile::tempdir().unwrap();
    let mut count = 0;
    for seed in 100..140 {
        for form in Form::ALL {
            let request = request(form, &mut Random::new(seed));
            let first = Arc::new(SqliteStore::in_memory().unwrap());
            let database: Arc<dyn Database> = first.clone();
            let chat = Store::from(database).session("s").unwrap();
            // The reversed keys are in an order that no map produces, so they show that the text itself is kept.
            let messages = provider::read_str(form, &reversed(&request)).unwrap();
            chat.append(messages).unwrap();
            let mut kept = Vec::new();
            sealed(&request, &mut kept);
            count += kept.len();
            let id = SessionId::new("s").unwrap();
            let mut out = Vec::new();
            export(&*first, &id, None, ExportForm::Request(form), &mut out).unwrap();
            let path = folder.path().join(format!("{form}-{seed}.json"));
            std::fs::write(&path, &out).unwrap();

            let second = SqliteStore::in_memory().unwrap();
            let options = ImportOptions::default();
            let report = import_paths(&second, &[path], &options, &mut |_| {}).unwrap();
            assert_eq!(report.sessions.len(), 1, "{form} {seed}");
            assert_eq!(stored(&second), stored(&first), "{form} {seed} {request:#}");
            for text in kept {
                assert!(texts(&first).contains(&text), "{form} {seed} {text}");
                assert!(texts(&second).contains(&text), "{form} {seed} {text}");
            }
            let mut again = Vec::new();
            let id = &report.sessions[0];
            export(&second, id, None, ExportForm::Request(form), &mut again).unwrap();
            assert_eq!(again, out, "{form} {seed}");
        }
    }
    assert!(count >= 50, "{count}");
}

/// Checks that each call is followed by its result, and each result has a call.
fn are_paired(request: &Value) {
    let mut open: Vec<&str> = Vec::new();
    for item in list(request) {
        let text = |key: &str| item[key].as_str();
        if let Some(program) = item["caller"]["caller_id"].as_str() {
            assert!(open.contains(&program), "{item} in {request:#}");
        }
        match text("type").unwrap_or_default() {
            "mcp_approval_request" => open.extend(text("id")),
            "mcp_approval_response" | "local_shell_call_output" => {
                let id = text("approval_request_id").or(text("id"));
                let at = open.iter().position(|call| Some(*call) == id);
                open.remove(at.unwrap_or_else(|| panic!("{item} in {request:#}")));
            }
            kind if kind.ends_with("_output") && text("call_id").is_some() => {
                let at = open.iter().position(|call| Some(*call) == text("call_id"));
                open.remove(at.unwrap_or_else(|| panic!("{item} in {request:#}")));
            }
            kind if kind.ends_with("_call") || kind == "program" => open.extend(text("call_id")),
            _ => {}
        }
    }
    assert!(open.is_empty(), "{open:?} in {request:#}");
}

#[test]
fn no_compaction_parts_a_call_from_what_came_of_it() {
    for seed in 0..4 {
        let mut random = Random::new(seed);
        let store = Store::in_memory().unwrap();
        let chat = store.session("s").unwrap().with_policy(Policy::new(4_000));
        let mut compactions = 0;
        for turn in 0..60 {
            if turn % 3 == 0 {
                chat.append([Message::user(format!("do {turn} {}", "word ".repeat(80)))])
                    .unwrap();
            }
            // As an agent does: the answer first, and its results when they exist.
            let items = piece(random.below(KINDS), &format!("{seed}_{turn}"), &mut random);
            for item in items {
                chat.append(provider::read(Form::OpenAiResponses, &item).unwrap())
                    .unwrap();
            }
            let ready = chat.prepare().unwrap();
            compactions += usize::from(!ready.compactions.is_empty());
            are_paired(&ready.to(Form::OpenAiResponses).unwrap());
        }
        assert!(compactions > 0, "{seed}");
    }
}

#[test]
fn a_program_goes_out_with_what_came_of_it_or_not_at_all() {
    let asked = json!({"role": "user", "content": "Go"});
    let program = json!({"type": "program", "id": "pr_1", "call_id": "p", "code": "look()",
        "fingerprint": "gAAA"});
    let call = json!({"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}",
        "caller": {"type": "program", "caller_id": "p"}});
    let result = json!({"type": "function_call_output", "call_id": "c", "output": "dark"});
    let output = json!({"type": "program_output", "id": "po_1", "call_id": "p", "result": "2",
        "status": "completed"});
    let said = json!({"role": "assistant", "content": "It is dark."});
    let direct =
        json!({"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"});
    let written = |items: &[&Value]| {
        let read = provider::read(Form::OpenAiResponses, &json!(items)).unwrap();
        let request = provider::ProviderRequest::new(Form::OpenAiResponses, &read);
        let parted = provider::MendingKind::PartedDropped;
        let left_out = request.mended.iter().filter(|m| m.kind == parted);
        let left_out: Vec<String> = left_out.filter_map(|m| m.item.clone()).collect();
        (
            serde_json::to_value(&request).unwrap()["input"].clone(),
            left_out,
        )
    };
    let none = Vec::<String>::new();
    // The call is complete, or its result is still awaited.
    for items in [
        vec![&asked, &program, &call, &result, &output, &said],
        vec![&asked, &program, &call, &result],
    ] {
        assert_eq!(written(&items), (json!(items), none.clone()));
    }
    // The program was compacted, or belongs to an abandoned branch.
    assert_eq!(
        written(&[&call, &result, &output, &said]),
        (
            json!([direct, result, said]),
            vec!["program_output".to_owned()]
        )
    );
    assert_eq!(
        written(&[&asked, &program, &call, &result, &asked]),
        (
            json!([asked, direct, result, asked]),
            vec!["program".to_owned()]
        )
    );
    // Other providers never see it.
    let read = provider::read(
        Form::OpenAiResponses,
        &json!([asked, program, output, said]),
    )
    .unwrap();
    let chat = provider::ProviderRequest::new(Form::OpenAiChat, &read);
    assert!(!serde_json::to_string(&chat).unwrap().contains("gAAA"));
}

#[test]
fn a_result_without_its_server_tool_goes_to_nobody() {
    let served = json!({"type": "web_search_tool_result", "tool_use_id": "s1", "content": []});
    let used = json!({"type": "server_tool_use", "id": "s2", "name": "web_search", "input": {}});
    let text = json!({"type": "text", "text": "So."});
    let messages = json!([
        {"role": "user", "content": [{"type": "text", "text": "Go"}]},
        {"role": "assistant", "content": [served, text, used]},
        {"role": "user", "content": [{"type": "text", "text": "And?"}]},
        {"role": "assistant", "content": [used]},
    ]);
    let read = provider::read(Form::Anthropic, &messages).unwrap();
    let request = provider::ProviderRequest::new(Form::Anthropic, &read);
    let kinds: Vec<_> = request.mended.iter().map(|m| (m.kind, m.message)).collect();
    let dropped = provider::MendingKind::BlockDropped;
    assert_eq!(kinds, [(dropped, 1), (dropped, 1)]);
    let written = serde_json::to_value(request).unwrap();
    assert_eq!(written["messages"][1]["content"], json!([text]));
    assert_eq!(written["messages"][3]["content"], json!([used]));
}

#[test]
fn only_the_newest_cache_marks_go_back() {
    let mark = json!({"type": "ephemeral"});
    let marked = |text: &str| json!({"type": "text", "text": text, "cache_control": mark});
    let answer = json!({"role": "assistant", "content": [{"type": "text", "text": "So."}]});
    let user = |block: Value| json!({"role": "user", "content": [block]});
    let document = json!({"type": "document", "source": {"type": "file", "file_id": "f"},
        "cache_control": mark});
    let messages = json!([
        user(document),
        answer,
        user(marked("1")),
        answer,
        user(marked("2")),
        answer,
        user(marked("3"))
    ]);
    let read = provider::read(Form::Anthropic, &messages).unwrap();
    let request = provider::ProviderRequest::new(Form::Anthropic, &read);
    let written = serde_json::to_value(request).unwrap();
    let at = |nth: usize| written["messages"][nth]["content"][0]["cache_control"].clone();
    assert_eq!(
        [at(0), at(2), at(4), at(6)],
        [Value::Null, Value::Null, mark.clone(), mark]
    );
    assert_eq!(
        written["messages"][0]["content"][0]["source"]["file_id"],
        "f"
    );
}

#[test]
fn what_is_of_another_form_is_refused_with_a_reason() {
    use Form::{Anthropic, OpenAiChat, OpenAiResponses};
    let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let chat = json!({"role": "assistant", "content": "I look.", "tool_calls": [call]});
    let tool = json!({"role": "tool", "tool_call_id": "c", "content": "x"});
    let used = json!({"role": "assistant", "content": [
        {"type": "tool_use", "id": "c", "name": "f", "input": {}}]});
    let result = json!({"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "c", "content": "x"}]});
    let item = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"});
    let output = json!({"type": "function_call_output", "call_id": "c", "output": "x"});
    let part = json!({"role": "user", "content": [{"type": "input_text", "text": "x"}]});
    let unknown = json!({"role": "assistant", "content": [{"type": "no_such_block"}]});
    let cases = [
        (
            Anthropic,
            vec![&chat, &tool, &item, &output, &part, &unknown],
        ),
        (
            OpenAiResponses,
            vec![&chat, &tool, &used, &result, &unknown],
        ),
        (
            OpenAiChat,
            vec![&used, &result, &item, &output, &part, &unknown],
        ),
    ];
    for (form, values) in cases {
        for value in values {
            let error = provider::read(form, value).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("{form}: ")) && error.len() > 20,
                "{error}"
            );
        }
    }
    for bad in [
        json!({"type": "computer_call", "call_id": 1, "action": {}}),
        json!({"type": "computer_call_output", "call_id": ""}),
        json!({"type": "shell_call_output", "call_id": "c", "output": [1]}),
        json!({"type": "shell_call_output", "call_id": "c", "output": [{"stdout": 1}]}),
        json!({"type": "mcp_approval_response", "approval_request_id": "m", "approve": "yes"}),
        json!({"type": "mcp_approval_request"}),
        json!({"role": "assistant", "content": "x", "phase": 1}),
        json!({"role": "user", "content": [{"type": "input_image", "detail": [],
            "image_url": "data:image/png;base64,iVBORw0KGgo="}]}),
    ] {
        provider::read(OpenAiResponses, &bad).unwrap_err();
    }
}

#[test]
fn a_text_that_is_cut_off_or_nests_too_deep_is_refused() {
    for form in Form::ALL {
        let text = request(form, &mut Random::new(3)).to_string();
        let ends = (0..text.len()).filter(|end| text.is_char_boundary(*end));
        for end in ends.step_by(13) {
            let error = provider::read_str(form, &text[..end]).unwrap_err();
            assert!(error.to_string().contains("not JSON"), "{form} {error}");
        }
        let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
        provider::read_str(form, &deep).unwrap_err();
        let input = format!(r#"{{"type":"future_item","x":{deep}}}"#);
        provider::read_str(form, &input).unwrap_err();
    }
}
