//! State that only a provider can read, and items without a place in a message, are written as they were read, and
//! never for another provider.

use loopstore::model::*;
use loopstore::provider::{self, Form, MendingKind, ProviderRequest};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

const OPENAI: &str = "only-openai-reads-this";
const ANTHROPIC: &str = "only-anthropic-reads-this";

fn written(form: Form, messages: &[AgentMessage]) -> Value {
    serde_json::to_value(ProviderRequest::new(form, messages)).unwrap()
}

/// Numbers the outputs of the parts, so that every call has an id of its own.
fn numbered(parts: Vec<fn(usize) -> Vec<Value>>) -> Vec<Value> {
    let parts = parts.into_iter().enumerate();
    parts.flat_map(|(nth, part)| part(nth)).collect()
}

/// Generates items of Responses: outputs of the model, and results of tools.
fn outputs() -> impl Strategy<Value = Vec<Value>> {
    let parts: Vec<fn(usize) -> Vec<Value>> = vec![
        |_| vec![json!({"type": "message", "role": "assistant", "content": "So."})],
        |n| {
            vec![
                json!({"type": "reasoning", "id": format!("rs_{n}"), "summary": [],
                "encrypted_content": OPENAI}),
            ]
        },
        |n| {
            vec![
                json!({"type": "reasoning", "id": format!("rs_{n}"), "content": null,
                "summary": [{"type": "summary_text", "text": "Hm."}], "status": null,
                "encrypted_content": format!("{OPENAI}/+=")}),
            ]
        },
        |_| vec![json!({"type": "compaction", "id": "cmp_1", "encrypted_content": OPENAI})],
        |n| {
            vec![
                json!({"type": "function_call", "call_id": format!("c{n}"), "name": "ls",
                    "arguments": "{\"n\":1}"}),
                json!({"type": "function_call_output", "call_id": format!("c{n}"),
                    "output": "a.rs"}),
            ]
        },
        |n| {
            vec![
                json!({"type": "custom_tool_call", "call_id": format!("c{n}"),
                    "name": "apply_patch", "input": "*** Begin\n+{\"x\"}"}),
                json!({"type": "function_call", "call_id": format!("d{n}"), "name": "ls",
                    "arguments": "{}"}),
                json!({"type": "custom_tool_call_output", "call_id": format!("c{n}"),
                    "output": ""}),
                json!({"type": "function_call_output", "call_id": format!("d{n}"),
                    "output": [{"type": "input_text", "text": "a"},
                        {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,iVBORw0KGgo="}]}),
            ]
        },
        |n| {
            vec![
                json!({"type": "web_search_call", "id": format!("ws_{n}{OPENAI}"),
                "status": "completed", "action": {"type": "search", "query": "rain"}}),
            ]
        },
        |n| {
            vec![
                json!({"type": "computer_call", "call_id": format!("c{n}"), "id": OPENAI,
                    "action": {"type": "screenshot"}, "pending_safety_checks": []}),
                json!({"type": "computer_call_output", "call_id": format!("c{n}"),
                    "output": {"type": "computer_screenshot", "file_id": OPENAI}}),
            ]
        },
        |n| vec![json!({"type": "a_future_item", "id": format!("{n}{OPENAI}"), "x": [1.5, null]})],
    ];
    prop::collection::vec(select(parts), 1..6).prop_map(numbered)
}

/// Generates a request of Responses.
fn responses() -> impl Strategy<Value = Value> {
    let prompt = select(vec![
        json!("Will it rain?"),
        json!([{"type": "input_text", "text": "This?"},
            {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,iVBORw0KGgo="}]),
    ]);
    let prompt = prompt.prop_map(|content| json!({"role": "user", "content": content}));
    let turn = (prompt, outputs());
    let turns = prop::collection::vec(turn, 0..4);
    (outputs(), turns, any::<bool>()).prop_map(|(first, turns, instructed)| {
        let turns = turns
            .into_iter()
            .enumerate()
            .flat_map(|(nth, (prompt, outputs))| {
                let own = move |item: Value| renamed(item, nth);
                std::iter::once(prompt).chain(outputs.into_iter().map(own))
            });
        let items: Vec<Value> = first.into_iter().chain(turns).map(plain_message).collect();
        match instructed {
            true => json!({"instructions": "Be brief.", "input": items}),
            false => json!({"input": items}),
        }
    })
}

/// Removes the type of messages, which is not written.
fn plain_message(mut item: Value) -> Value {
    if item["type"] == "message" {
        item.as_object_mut().unwrap().remove("type");
    }
    item
}

/// Renames the ids of calls in a later turn.
fn renamed(mut item: Value, turn: usize) -> Value {
    for key in ["call_id", "tool_use_id", "id"] {
        if let Some(Value::String(id)) = item.get_mut(key) {
            *id = format!("{id}_{turn}");
        }
    }
    item
}

/// Generates an answer of Anthropic after its thinking, and the results.
fn exchanges() -> impl Strategy<Value = (Vec<Value>, Vec<Value>)> {
    let parts: Vec<fn(usize) -> Vec<Value>> = vec![
        |_| vec![json!({"type": "text", "text": "So."})],
        |n| {
            vec![
                json!({"type": "server_tool_use", "id": format!("s{n}"), "name": "web_search",
                    "input": {"query": ANTHROPIC}}),
                json!({"type": "web_search_tool_result", "tool_use_id": format!("s{n}"),
                    "content": [{"type": "web_search_result", "url": "https://a.test",
                        "encrypted_content": ANTHROPIC, "page_age": null}]}),
            ]
        },
        |n| {
            vec![
                json!({"type": "tool_use", "id": format!("c{n}"), "name": "ls", "input": {"n": 1}}),
            ]
        },
    ];
    let thinking = select(vec![
        vec![],
        vec![json!({"type": "thinking", "thinking": "Hm.", "signature": "c2ln"})],
        vec![json!({"type": "redacted_thinking", "data": ANTHROPIC})],
        vec![
            json!({"type": "redacted_thinking", "data": format!("{ANTHROPIC}==")}),
            json!({"type": "thinking", "thinking": "", "signature": "c2ln"}),
        ],
    ]);
    let given = select(vec![
        json!([]),
        json!([{"type": "text", "text": "seen"}]),
        json!([{"type": "search_result", "title": ANTHROPIC, "source": "a", "content": []}]),
        json!([{"type": "image", "source": {"type": "url", "url": format!("https://{ANTHROPIC}")}},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png",
                "data": "iVBORw0KGgo="}}]),
    ]);
    let prompt = select(vec![
        json!({"type": "text", "text": "And?"}),
        json!({"type": "document", "source": {"type": "file", "file_id": ANTHROPIC}}),
        json!({"type": "image", "source": {"type": "file", "file_id": ANTHROPIC}}),
    ]);
    let parts = prop::collection::vec(select(parts), 1..5).prop_map(numbered);
    (thinking, parts, given, prompt).prop_map(|(mut answer, parts, given, prompt)| {
        answer.extend(parts);
        let calls = answer.iter().filter(|block| block["type"] == "tool_use");
        let mut back: Vec<Value> = calls
            .map(|call| json!({"type": "tool_result", "tool_use_id": call["id"], "content": given}))
            .collect();
        back.push(prompt);
        (answer, back)
    })
}

/// Generates a request of Anthropic; a compaction comes first.
fn anthropic() -> impl Strategy<Value = Value> {
    let exchanges = prop::collection::vec(exchanges(), 1..4);
    (any::<bool>(), any::<bool>(), exchanges).prop_map(|(compacted, instructed, exchanges)| {
        let mut messages = vec![json!({"role": "user", "content": [
            {"type": "text", "text": "Will it rain?"}]})];
        for (nth, (mut answer, back)) in exchanges.into_iter().enumerate() {
            if nth == 0 && compacted {
                messages.clear();
                let block = json!({"type": "compaction", "content": format!("So far {ANTHROPIC}"),
                    "encrypted_content": null});
                answer.insert(0, block);
            }
            let [answer, back] = [answer, back].map(|blocks| {
                blocks
                    .into_iter()
                    .map(|block| renamed(block, nth))
                    .collect::<Vec<_>>()
            });
            messages.push(json!({"role": "assistant", "content": answer}));
            messages.push(json!({"role": "user", "content": back}));
        }
        match instructed {
            true => json!({"system": "Be brief.", "messages": messages}),
            false => json!({"messages": messages}),
        }
    })
}

/// Generates a request of chat completions.
fn chat() -> impl Strategy<Value = Value> {
    let parts: Vec<fn(usize) -> Vec<Value>> = vec![
        |_| vec![json!({"role": "user", "content": "Will it rain?"})],
        |_| vec![json!({"role": "assistant", "content": "So."})],
        |n| {
            vec![
                json!({"role": "assistant", "content": null, "tool_calls": [{"id": format!("c{n}"),
                    "type": "function", "function": {"name": "ls", "arguments": "{\"n\":1}"}}]}),
                json!({"role": "tool", "tool_call_id": format!("c{n}"), "content": "a.rs"}),
            ]
        },
    ];
    let messages = prop::collection::vec(select(parts), 1..8).prop_map(numbered);
    messages.prop_map(|messages| json!({"messages": messages}))
}

/// True if `request` contains state that only another provider than `form`'s reads.
fn holds_foreign(form: Form, request: &Value) -> bool {
    let text = request.to_string();
    match form {
        Form::Anthropic => text.contains(OPENAI),
        Form::OpenAiResponses => text.contains(ANTHROPIC),
        _ => text.contains(ANTHROPIC) || text.contains(OPENAI),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_a_form_holds_comes_back_as_it_was(
        (form, request) in prop_oneof![
            responses().prop_map(|request| (Form::OpenAiResponses, request)),
            anthropic().prop_map(|request| (Form::Anthropic, request)),
            chat().prop_map(|request| (Form::OpenAiChat, request)),
        ],
    ) {
        let messages = provider::read(form, &request).unwrap();
        let again = ProviderRequest::new(form, &messages);
        prop_assert_eq!(&again.mended, &vec![]);
        let again = serde_json::to_value(again).unwrap();
        prop_assert_eq!(&again, &request);
        prop_assert_eq!(provider::read(form, &again).unwrap(), messages);
    }

    #[test]
    fn nothing_of_one_provider_is_written_for_another(
        (from, request) in prop_oneof![
            responses().prop_map(|request| (Form::OpenAiResponses, request)),
            anthropic().prop_map(|request| (Form::Anthropic, request)),
        ],
    ) {
        let messages = provider::read(from, &request).unwrap();
        for form in Form::ALL.into_iter().filter(|form| *form != from) {
            let other = ProviderRequest::new(form, &messages);
            let value = serde_json::to_value(&other).unwrap();
            prop_assert!(!holds_foreign(form, &value), "{}", value);
            let named = |mending: &&provider::Mending| mending.kind == MendingKind::ForeignDropped;
            let owner = if from == Form::Anthropic { "anthropic" } else { "openai" };
            for mending in other.mended.iter().filter(named) {
                prop_assert_eq!(mending.provider.as_deref(), Some(owner));
                prop_assert!(mending.item.is_some());
            }
            let is_foreign = request.to_string().contains("only-");
            prop_assert_eq!(other.mended.iter().any(|m| named(&m)), is_foreign);
            // The remaining state belongs to that form.
            let read = provider::read(form, &value).unwrap();
            prop_assert_eq!(written(form, &read), value);
        }
    }
}

fn answer(content: Vec<Content>) -> AgentMessage {
    let message = AssistantMessage {
        content,
        ..AssistantMessage::default()
    };
    Message::Assistant(message).into()
}

fn compaction(text: &str) -> Content {
    let block = json!({"type": "compaction", "content": text});
    Content::sealed("anthropic", block.into())
}

#[test]
fn a_compaction_of_anthropics_stands_first_and_alone() {
    let call = Content::tool_call("c1", "ls", Json::parse("{}").unwrap());
    let messages = [
        Message::user("one").into(),
        answer(vec![compaction("old"), Content::text("1"), call]),
        Message::tool_result("c1", "x").into(),
        AgentMessage::extension("system", Json::string("Be brief.")),
        answer(vec![
            Content::text("2"),
            compaction("new"),
            Content::text("3"),
        ]),
        Message::user("two").into(),
    ];
    let request = ProviderRequest::new(Form::Anthropic, &messages);
    let kinds = request.mended.iter().map(|m| (m.kind, m.message));
    let dropped = [0, 1, 2, 4].map(|at| (MendingKind::CompactedDropped, at));
    let moved = (MendingKind::SystemMoved, 3);
    let mut expected = dropped.to_vec();
    expected.insert(3, moved);
    assert_eq!(kinds.collect::<Vec<_>>(), expected);
    let text = |text: &str| json!({"type": "text", "text": text});
    assert_eq!(
        serde_json::to_value(request).unwrap(),
        json!({"system": "Be brief.", "messages": [
            {"role": "assistant", "content": [{"type": "compaction", "content": "new"}, text("3")]},
            {"role": "user", "content": [text("two")]},
        ]})
    );
    // Other providers get the originals.
    let request = ProviderRequest::new(Form::OpenAiResponses, &messages);
    assert_eq!(request.len(), 7);
    let foreign = request
        .mended
        .iter()
        .filter(|m| m.kind == MendingKind::ForeignDropped);
    let foreign: Vec<_> = foreign.map(|m| (m.message, m.item.as_deref())).collect();
    assert_eq!(foreign, [(1, Some("compaction")), (4, Some("compaction"))]);
}

#[test]
fn the_whole_item_is_kept_and_readable_reasoning_stays_thinking() {
    let sealed = json!({"type": "reasoning", "id": "rs_1", "encrypted_content": "x",
        "summary": [{"type": "summary_text", "text": "Hm."}]});
    let open = json!({"type": "reasoning", "id": "rs_2", "encrypted_content": null,
        "summary": [{"type": "summary_text", "text": "Ah."}]});
    let search = json!({"type": "web_search_call", "id": "ws_1", "status": "completed"});
    let output = json!({"output": [sealed, open, search], "status": "completed"});
    let read = provider::read(Form::OpenAiResponses, &output).unwrap();
    let content = read[0].message().unwrap().content();
    assert_eq!(content[0], Content::sealed("openai", sealed.into()));
    assert!(matches!(&content[1], Content::Thinking(thinking) if thinking.thinking == "Ah."));
    let kept = json!({"type": "providerItem", "form": "responses", "item": search});
    assert_eq!(serde_json::to_value(&content[2]).unwrap(), kept);
}

#[test]
fn a_custom_call_is_a_call_to_every_provider() {
    let items = json!([
        {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c1", "name": "patch", "input": "a b"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "done"},
    ]);
    let messages = provider::read(Form::OpenAiResponses, &items).unwrap();
    let call = messages[0].message().unwrap().tool_calls().next().unwrap();
    assert_eq!(call.arguments.as_str(), "\"a b\"");
    assert_eq!(call.extra.get("form").map(Json::as_str), Some("\"custom\""));
    let request = written(Form::Anthropic, &messages);
    let input = &request["messages"][1]["content"][0]["input"];
    assert_eq!(input, &json!({"arguments": "a b"}));
    let request = written(Form::OpenAiResponses, &messages);
    assert_eq!(request["input"][1]["type"], "custom_tool_call_output");
}
