//! The types in the providers' own Python packages validate every request that is written, over recorded and generated
//! conversations, and a request that is read and written again is unchanged.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use loopstore::provider::context_management::{
    ClearThinking, ClearToolInputs, ClearToolUses, ClearTrigger, ContextManagement, KeptThinking,
};
use loopstore::provider::{self, Form, ProviderRequest};
use loopstore::{
    BuildOptions, Database, Policy, SessionHandle, SessionId, SqliteStore, Store,
    build_context_from_session,
};
use loopstore_export::{ExportForm, export};
use loopstore_transcripts::{ImportOptions, import_paths};
use serde_json::{Value, json};

use crate::support::conversations::{self, list, piece, request};
use crate::support::histories::Random;
use crate::support::needs::{PROVIDER_TYPES, find};
use crate::support::validated_lines::ValidatedLines;

/// The requests to validate, one per line.
pub struct Requests {
    lines: ValidatedLines,
    count: u64,
}

impl Requests {
    pub fn new() -> Self {
        let lines = ValidatedLines::new();
        Self { lines, count: 0 }
    }

    pub fn add(&mut self, name: &str, form: Form, kind: &str, value: &Value) {
        let line = json!({"name": name, "form": form.as_str(), "kind": kind, "value": value});
        self.lines.add(&format!("{line}\n"));
        self.count += 1;
    }

    /// Validates the requests with the interpreter: each is accepted and is returned unchanged.
    pub fn validate(self, python: &Path) {
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts/provider_types.py");
        let last = self.lines.validate(python, &script);
        assert_eq!(last, json!({"judged": self.count}));
    }
}

fn exported(store: &dyn Database, id: &SessionId, form: Form) -> Value {
    let mut out = Vec::new();
    export(store, id, None, ExportForm::Request(form), &mut out).unwrap();
    serde_json::from_slice(&out).unwrap()
}

/// Adds the output of `export` and `context` for every session of a store.
fn add_sessions(requests: &mut Requests, store: &SqliteStore, sessions: &[SessionId]) {
    for id in sessions {
        let context = build_context_from_session(store, id, &BuildOptions::default()).unwrap();
        for form in Form::ALL {
            let exported = exported(store, id, form);
            requests.add(id.as_str(), form, "request", &exported);
            let built = ProviderRequest::new(form, &context.messages);
            let built = serde_json::to_value(built).unwrap();
            if built != exported {
                requests.add(id.as_str(), form, "request", &built);
            }
        }
    }
}

#[test]
fn the_providers_types_take_what_is_written_of_every_transcript() {
    let Some(python) = find(&PROVIDER_TYPES) else {
        return;
    };
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures")];
    let real = std::env::var_os("LOOPSTORE_REAL_TRANSCRIPTS").map(PathBuf::from);
    folders.extend(real);
    let (mut requests, mut count) = (Requests::new(), 0);
    for folder in &folders {
        for format in std::fs::read_dir(folder).unwrap() {
            let path = format.unwrap().path();
            if !path.is_dir() {
                continue;
            }
            let store = SqliteStore::in_memory().unwrap();
            let options = ImportOptions::default();
            // A folder may contain only files that other tests expect to be rejected.
            if let Ok(report) = import_paths(&store, &[path], &options, &mut |_| {}) {
                count += report.sessions.len();
                add_sessions(&mut requests, &store, &report.sessions);
            }
        }
    }
    assert!(count >= 50, "{count}");
    requests.validate(&python);
}

#[test]
fn the_providers_types_take_every_kind_of_item_and_dump_what_was_stored() {
    let Some(python) = find(&PROVIDER_TYPES) else {
        return;
    };
    let mut requests = Requests::new();
    let mut every = Vec::new();
    for kind in 0..conversations::KINDS {
        let mut input = vec![json!({"role": "user", "content": "Will it rain?"})];
        input.extend(piece(kind, &kind.to_string(), &mut Random::new(kind)));
        every.push((Form::OpenAiResponses, json!({"input": input})));
    }
    for seed in 0..40 {
        for form in Form::ALL {
            every.push((form, request(form, &mut Random::new(seed))));
        }
    }
    for (nth, (form, request)) in every.iter().enumerate() {
        let name = format!("{form} {nth}");
        requests.add(&name, *form, "request", request);
        let database: Arc<dyn Database> = Arc::new(SqliteStore::in_memory().unwrap());
        let chat = Store::from(Arc::clone(&database)).session("s").unwrap();
        chat.append(provider::read(*form, request).unwrap())
            .unwrap();
        let exported = exported(&*database, chat.id(), *form);
        for (exported, given) in list(&exported).iter().zip(list(request)) {
            assert_eq!(exported, given, "{name}");
        }
        assert_eq!(&exported, request, "{name}");
        // The system prompt is not part of a context.
        let own = of_provider(&chat, *form).context().unwrap();
        let written = provider::write(*form, &own).unwrap();
        assert!(list(request).ends_with(list(&written)), "{name}");
        requests.add(&name, *form, "request", &written);
        let context = chat.context().unwrap();
        for other in Form::ALL.into_iter().filter(|other| other != form) {
            let written = provider::write(other, &context).unwrap();
            requests.add(&format!("{name} as {other}"), other, "request", &written);
        }
    }
    requests.validate(&python);
}

/// Returns the session as an agent of the form's provider sees it.
fn of_provider(chat: &SessionHandle, form: Form) -> SessionHandle {
    let policy = Policy::new(1_000_000);
    let policy = match form.sealing_provider() {
        Some(provider) => policy.provider(provider),
        None => policy,
    };
    chat.clone().with_policy(policy)
}

/// Returns settings of context editing: without a field, with every field, and with every kind of value.
fn settings() -> Vec<ContextManagement> {
    let of = |clear_tool_uses, clear_thinking| ContextManagement {
        clear_tool_uses,
        clear_thinking,
    };
    let uses = |trigger, clear_tool_inputs| ClearToolUses {
        trigger: Some(trigger),
        keep: Some(5),
        clear_at_least: Some(5_000),
        exclude_tools: vec!["web_search".into()],
        clear_tool_inputs,
    };
    let tokens = uses(ClearTrigger::InputTokens(30_000), ClearToolInputs::All);
    let named = ClearToolInputs::Of(vec!["look".into()]);
    let count = uses(ClearTrigger::ToolUses(20), named);
    let turns = NonZeroU32::new(2).map(KeptThinking::Turns);
    let keeps = [None, turns, Some(KeptThinking::All)];
    let [newest, two, all] = keeps.map(|keep| Some(ClearThinking { keep }));
    vec![
        of(None, None),
        of(Some(ClearToolUses::default()), newest),
        of(Some(tokens), two),
        of(Some(count), None),
        of(None, all),
    ]
}

#[test]
fn the_providers_types_take_the_setting_of_context_editing() {
    let Some(python) = find(&PROVIDER_TYPES) else {
        return;
    };
    let mut requests = Requests::new();
    let messages = [loopstore::Message::user("Will it rain?").into()];
    for (form, setting) in Form::ALL
        .into_iter()
        .flat_map(|form| settings().into_iter().map(move |setting| (form, setting)))
    {
        let request = ProviderRequest::new(form, &messages).with_context_management(setting);
        let request = serde_json::to_value(request).unwrap();
        requests.add("setting", form, "request", &request);
    }
    requests.validate(&python);
}

/// Returns whole answers as the providers' APIs return them.
fn answers() -> Vec<(Form, Value)> {
    let completion = json!({"id": "chatcmpl-1", "object": "chat.completion", "created": 1_760_000_000,
        "model": "gpt-5", "choices": [{"index": 0, "finish_reason": "tool_calls", "logprobs": null,
            "message": {"role": "assistant", "content": "I look.", "refusal": null,
                "annotations": [], "tool_calls": [{"id": "c1", "type": "function",
                    "function": {"name": "look", "arguments": "{\"z\":1}"}}]}}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}});
    let mut output = vec![
        json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
            "phase": "commentary", "content": [{"type": "output_text", "text": "I look.",
                "annotations": [], "logprobs": []}]}),
        json!({"type": "shell_call", "id": "sh_1", "call_id": "sh", "status": "completed",
            "action": {"commands": ["ls"]}, "environment": {"type": "container_reference",
                "container_id": "cn"}}),
        json!({"type": "shell_call_output", "id": "so_1", "call_id": "sh", "status": "completed",
            "max_output_length": 100, "output": [{"stdout": "a.rs", "stderr": "",
                "outcome": {"type": "exit", "exit_code": 0}}]}),
        json!({"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look",
            "arguments": "{\"z\":1}", "status": "completed"}),
    ];
    // Calls that only the provider executes, and opaque state.
    for kind in [2, 3, 7, 9, 11, 12, 13, 14] {
        output.extend(piece(kind, &kind.to_string(), &mut Random::new(1)));
    }
    let response = json!({"id": "resp_1", "object": "response", "created_at": 1_760_000_000,
        "model": "gpt-5", "status": "completed", "output": output, "error": null,
        "incomplete_details": null, "instructions": null, "metadata": {}, "parallel_tool_calls": true,
        "temperature": 1.0, "tool_choice": "auto", "tools": [], "top_p": 1.0});
    let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "claude",
        "content": [
            {"type": "compaction", "content": "So far.", "encrypted_content": null},
            {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
            {"type": "redacted_thinking", "data": "c2VhbGVk"},
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search",
                "input": {"query": "rain"}},
            {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1",
                "content": [{"type": "web_search_result", "title": "Rain", "url": "https://a.test",
                    "encrypted_content": "gAAA=", "page_age": null}]},
            {"type": "text", "text": "Rain.", "citations": [{"type": "web_search_result_location",
                "cited_text": "rain", "encrypted_index": "gBBB=", "title": "Rain",
                "url": "https://a.test"}]},
            {"type": "tool_use", "id": "c1", "name": "look", "input": {"z": 1}}],
        "stop_reason": "tool_use", "stop_sequence": null,
        "context_management": {"applied_edits": [
            {"type": "clear_thinking_20251015", "cleared_thinking_turns": 1,
                "cleared_input_tokens": 200},
            {"type": "clear_tool_uses_20250919", "cleared_tool_uses": 8,
                "cleared_input_tokens": 50_000}]},
        "usage": {"input_tokens": 9, "output_tokens": 2}});
    vec![
        (Form::OpenAiChat, completion),
        (Form::OpenAiResponses, response),
        (Form::Anthropic, message),
    ]
}

#[test]
fn an_answer_of_the_providers_types_goes_back_as_a_request_of_theirs() {
    let mut requests = Requests::new();
    for (form, answer) in answers() {
        requests.add("answer", form, "answer", &answer);
        let store = Store::in_memory().unwrap();
        let chat = of_provider(&store.session("s").unwrap(), form);
        if form != Form::Anthropic {
            chat.append([loopstore::Message::user("Will it rain?")])
                .unwrap();
        }
        let appended = chat.append(provider::read(form, &answer).unwrap()).unwrap();
        assert_eq!(appended.turns.len(), 1, "{form}: one answer is one turn");
        chat.append([loopstore::Message::tool_result("c1", "rain")])
            .unwrap();
        let context = chat.context().unwrap();
        let reports = context
            .messages
            .iter()
            .filter_map(|one| one.applied_edits());
        let reported: usize = reports.map(|report| report.edits.len()).sum();
        assert_eq!(reported, if form == Form::Anthropic { 2 } else { 0 });
        let written = provider::write(form, &context).unwrap();
        requests.add("request", form, "request", &written);
        assert_eq!(written.get("context_management"), None);
        // All opaque state and every item of a hosted tool is unchanged.
        let text = written.to_string();
        let blocks = answer.get("output").or(answer.get("content"));
        for block in blocks.and_then(Value::as_array).into_iter().flatten() {
            let kind = block["type"].as_str().unwrap();
            if !["message", "function_call", "text", "tool_use"].contains(&kind) {
                assert!(
                    text.contains(&block.to_string()),
                    "{form} {block} in {written:#}"
                );
            }
        }
    }
    if let Some(python) = find(&PROVIDER_TYPES) {
        requests.validate(&python);
    }
}
