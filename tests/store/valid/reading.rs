//! Answers of providers become messages, and content without a place in a message is rejected with its position.

use loopstore::model::*;
use loopstore::provider::{self, Form, ProviderError};
use serde_json::{Value, json};

/// Returns whole answers, as in the providers' references.
pub fn answers() -> Vec<(Form, Value)> {
    let chat = json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1_741_570_283,
        "model": "gpt-5", "service_tier": "default", "system_fingerprint": "fp_1",
        "choices": [{
            "index": 0, "logprobs": null, "finish_reason": "tool_calls",
            "message": {
                "role": "assistant", "content": "I look.", "refusal": null, "annotations": [],
                "tool_calls": [
                    {"id": "c1", "type": "function",
                     "function": {"name": "forecast", "arguments": "{\"days\": 3}"}},
                    {"id": "c2", "type": "function",
                     "function": {"name": "now", "arguments": ""}},
                ],
            },
        }],
        "usage": {
            "prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120,
            "prompt_tokens_details": {"cached_tokens": 80, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 7}, "cost": 0.25,
        },
    });
    let responses = json!({
        "id": "resp_1", "object": "response", "created_at": 1_741_476_777, "status": "completed",
        "error": null, "incomplete_details": null, "instructions": null, "model": "gpt-5",
        "tools": [], "temperature": 1.0,
        "output": [
            {"type": "reasoning", "id": "rs_1", "summary": [
                {"type": "summary_text", "text": "Clouds."},
                {"type": "summary_text", "text": "Wind."},
            ]},
            {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
             "content": [{"type": "output_text", "text": "I look.", "annotations": [], "logprobs": []}]},
            {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "forecast",
             "arguments": "{\"days\":3}", "status": "completed"},
        ],
        "usage": {
            "input_tokens": 100, "input_tokens_details": {"cached_tokens": 80},
            "output_tokens": 20, "output_tokens_details": {"reasoning_tokens": 7},
            "total_tokens": 120,
        },
    });
    let anthropic = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
        "content": [
            {"type": "thinking", "thinking": "Clouds.", "signature": "c2ln"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "c1", "name": "forecast", "input": {"days": 3}},
        ],
        "stop_reason": "tool_use", "stop_sequence": null,
        "usage": {
            "input_tokens": 20, "output_tokens": 12, "cache_read_input_tokens": 80,
            "cache_creation_input_tokens": null, "service_tier": "standard",
        },
    });
    vec![
        (Form::OpenAiChat, chat),
        (Form::OpenAiResponses, responses),
        (Form::Anthropic, anthropic),
    ]
}

/// Returns requests that contain everything that can be read.
pub fn requests() -> Vec<(Form, Value)> {
    let url = "data:image/png;base64,iVBORw0KGgo=";
    let chat = json!({"messages": [
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "name": "ada", "content": [
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": url, "detail": "low"}},
        ]},
        {"role": "assistant", "tool_calls": [
            {"id": "c1", "function": {"name": "ls", "arguments": "{}"}},
        ]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "a.txt"}]},
        {"role": "assistant", "content": null, "refusal": "I cannot."},
    ]});
    let responses = json!({"instructions": "Be brief.", "input": [
        {"role": "user", "content": [
            {"type": "input_text", "text": "What is this?"},
            {"type": "input_image", "image_url": url, "detail": "low"},
        ]},
        {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1",
         "output": [{"type": "input_text", "text": "a.txt"}]},
        {"type": "message", "role": "developer", "content": "No jokes."},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "I cannot."}]},
    ]});
    let source = json!({"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="});
    let anthropic = json!({"system": [{"type": "text", "text": "Be brief."}], "messages": [
        {"role": "user", "content": [
            {"type": "text", "text": "What is this?"}, {"type": "image", "source": source},
        ]},
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "c1", "name": "ls", "input": {}},
            {"type": "tool_use", "id": "c2", "name": "cat", "input": {"file": "a"}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": "a.txt"},
            {"type": "tool_result", "tool_use_id": "c2", "is_error": true, "content": [
                {"type": "text", "text": "no such file"},
            ]},
            {"type": "text", "text": "Go on.", "cache_control": {"type": "ephemeral"}},
        ]},
        {"role": "assistant", "content": "Done."},
    ]});
    vec![
        (Form::OpenAiChat, chat),
        (Form::OpenAiResponses, responses),
        (Form::Anthropic, anthropic),
    ]
}

fn json_of(messages: &[AgentMessage]) -> Value {
    serde_json::to_value(messages).unwrap()
}

#[track_caller]
fn refused(form: Form, items: Value, at: &str) -> ProviderError {
    let error = provider::read(form, &items).unwrap_err();
    assert_eq!((error.form(), error.pointer()), (form, at), "{error}");
    error
}

#[test]
fn whole_answers_are_read_with_what_they_cost() {
    let read = answers();
    let read = read
        .iter()
        .map(|(form, answer)| json_of(&provider::read(*form, answer).unwrap()));
    let read: Vec<Value> = read.collect();
    assert_eq!(
        read[0],
        json!([{
            "role": "assistant", "model": "gpt-5", "stopReason": "toolUse",
            "timestamp": 1_741_570_283_000_i64, "responseId": "chatcmpl-1",
            "content": [
                {"type": "text", "text": "I look."},
                {"type": "toolCall", "id": "c1", "name": "forecast", "arguments": {"days": 3}},
                {"type": "toolCall", "id": "c2", "name": "now", "arguments": null},
            ],
            "usage": {
                "input": 20, "output": 20, "reasoning": 7, "cache_read": 80, "total_tokens": 120,
                "cost": 0.25, "prompt_tokens_details": {"audio_tokens": 0},
            },
        }])
    );
    assert_eq!(
        read[1],
        json!([{
            "role": "assistant", "model": "gpt-5", "stopReason": "toolUse",
            "timestamp": 1_741_476_777_000_i64, "responseId": "resp_1",
            "source": {"id": "msg_1", "status": "completed"},
            "content": [
                {"type": "thinking", "thinking": "Clouds.\n\nWind.", "source": {"id": "rs_1"}},
                {"type": "text", "text": "I look."},
                {"type": "toolCall", "id": "c1", "name": "forecast", "arguments": {"days": 3},
                 "source": {"id": "fc_1", "status": "completed"}},
            ],
            "usage": {
                "input": 20, "output": 20, "reasoning": 7, "cache_read": 80, "total_tokens": 120,
            },
        }])
    );
    assert_eq!(
        read[2],
        json!([{
            "role": "assistant", "model": "claude-sonnet-4-5", "stopReason": "toolUse",
            "responseId": "msg_1",
            "content": [
                {"type": "thinking", "thinking": "Clouds.", "signature": "c2ln"},
                {"type": "text", "text": "I look."},
                {"type": "toolCall", "id": "c1", "name": "forecast", "arguments": {"days": 3}},
            ],
            "usage": {
                "input": 20, "output": 12, "cache_read": 80,
                "source": {"service_tier": "standard"},
            },
        }])
    );
}

#[test]
fn requests_are_read_with_results_and_images() {
    for (form, request) in requests() {
        let messages = provider::read(form, &request).unwrap();
        let roles = messages.iter().map(|message| message.role().as_str());
        let expected: &[&str] = match form {
            Form::OpenAiResponses => &[
                "extension",
                "user",
                "assistant",
                "toolResult",
                "extension",
                "assistant",
            ],
            Form::Anthropic => &[
                "extension",
                "user",
                "assistant",
                "toolResult",
                "toolResult",
                "user",
                "assistant",
            ],
            _ => &["extension", "user", "assistant", "toolResult", "assistant"],
        };
        assert_eq!(roles.collect::<Vec<_>>(), expected, "{form}");
        let image = &messages[1].message().unwrap().content()[1];
        assert!(
            matches!(image, Content::Image(i) if i.data == "iVBORw0KGgo=" && i.mime_type == "image/png")
        );
        let Some(Message::ToolResult(result)) = messages[3].message() else {
            panic!("{messages:?}")
        };
        assert_eq!((&*result.tool_call_id, &*result.tool_name), ("c1", "ls"));
        assert_eq!(result.content, [Content::text("a.txt")]);
        if form == Form::Anthropic {
            let failed = json_of(&messages[4..6]);
            assert_eq!(failed[0]["isError"], true);
            assert_eq!(failed[0]["toolName"], "cat");
            assert_eq!(failed[1]["content"][0]["text"], "Go on.");
        } else {
            let refusal = json_of(&messages)[messages.len() - 1]["content"][0].clone();
            assert_eq!(
                refusal,
                json!({"type": "text", "text": "I cannot.", "form": "refusal"})
            );
        }
    }
}

#[test]
fn one_message_or_item_is_enough() {
    for form in Form::ALL {
        let one = json!({"role": "user", "content": "hi"});
        let expected = [AgentMessage::from(Message::user("hi"))];
        assert_eq!(provider::read(form, &one).unwrap(), expected);
        assert_eq!(provider::read(form, &json!([one])).unwrap(), expected);
        assert_eq!(provider::read(form, &json!([])).unwrap(), []);
    }
    let output = json!({"type": "function_call_output", "call_id": "c", "output": "done"});
    assert_eq!(
        provider::read(Form::OpenAiResponses, &output).unwrap(),
        [AgentMessage::from(Message::tool_result("c", "done"))]
    );
    let input = json!({"input": "hi"});
    assert_eq!(
        provider::read(Form::OpenAiResponses, &input).unwrap(),
        [AgentMessage::from(Message::user("hi"))]
    );
}

#[test]
fn answers_that_ended_badly_say_how() {
    let read = |answer: Value| {
        let read = provider::read(Form::OpenAiResponses, &answer).unwrap();
        let message = json_of(&read)[0].clone();
        (
            message["stopReason"].clone(),
            message["error_message"].clone(),
        )
    };
    let cut = json!({"output": [], "status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"}});
    assert_eq!(read(cut), (json!("length"), Value::Null));
    let failed = json!({"output": [], "status": "failed",
        "error": {"code": "server_error", "message": "overloaded"}});
    assert_eq!(read(failed), (json!("error"), json!("overloaded")));
    let unfinished = json!({"output": [], "status": "in_progress"});
    refused(Form::OpenAiResponses, unfinished, "/status");
}

#[test]
fn what_no_message_can_hold_is_refused() {
    use Form::{Anthropic, OpenAiChat, OpenAiResponses};
    let unsupported = |error| {
        assert!(
            matches!(error, ProviderError::Unsupported { .. }),
            "{error}"
        );
    };

    unsupported(refused(
        OpenAiResponses,
        json!({"output": [{"type": "compaction"}]}),
        "/output/0",
    ));
    for kind in [
        "tool_use",
        "web_search_tool_result",
        "input_text",
        "No Item",
    ] {
        unsupported(refused(OpenAiResponses, json!({"type": kind}), ""));
    }
    for block in [
        json!({"type": "redacted_thinking", "data": "x"}),
        json!({"type": "compaction", "content": "x"}),
        json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}),
    ] {
        let prompt = json!({"role": "user", "content": [block]});
        let error = refused(Anthropic, prompt, "/content/0");
        assert!(matches!(error, ProviderError::Invalid { .. }), "{error}");
    }

    let choice = json!({"message": {"role": "assistant", "content": "hi"}});
    let several = refused(OpenAiChat, json!({"choices": [choice, choice]}), "/choices");
    assert_eq!(
        several.to_string(),
        "openai: expected exactly one choice at `/choices`, found 2"
    );
    refused(OpenAiChat, json!({"choices": []}), "/choices");

    let audio = json!({"role": "assistant", "content": null, "audio": {"id": "a"}});
    unsupported(refused(OpenAiChat, audio, "/audio"));
    let file = json!({"role": "user", "content": [{"type": "file", "file": {}}]});
    unsupported(refused(OpenAiChat, file, "/content/0"));
    let remote = json!({"type": "image_url", "image_url": {"url": "https://a.test/b.png"}});
    let remote = json!({"role": "user", "content": [remote]});
    unsupported(refused(OpenAiChat, remote, "/content/0/image_url/url"));
    let unknown = json!({"role": "assistant", "tool_calls": [{"id": "c", "type": "browser"}]});
    unsupported(refused(OpenAiChat, unknown, "/tool_calls/0"));
    unsupported(refused(
        OpenAiChat,
        json!({"role": "critic", "content": ""}),
        "/role",
    ));
    unsupported(refused(
        OpenAiChat,
        json!({"messages": [], "model": "m"}),
        "/model",
    ));
    let image = json!({"role": "user", "content": [{"type": "input_image", "file_id": "f"}]});
    unsupported(refused(OpenAiResponses, image, "/content/0"));
    let audio = json!({"role": "user", "content": [{"type": "audio", "source": {}}]});
    unsupported(refused(Anthropic, audio, "/content/0"));
    let image = json!({"type": "image", "source": {"type": "memory"}});
    unsupported(refused(
        Anthropic,
        json!({"role": "user", "content": [image]}),
        "/content/0/source",
    ));
    unsupported(refused(
        Anthropic,
        json!({"type": "error", "error": {}}),
        "",
    ));
}

#[test]
fn what_is_missing_or_of_another_type_is_named() {
    use Form::{Anthropic, OpenAiChat, OpenAiResponses};
    let say = |form, items, at| refused(form, items, at).to_string();
    let no_role = json!({"content": [{"type": "text", "text": "n"}]});
    assert_eq!(
        say(Anthropic, no_role, "/role"),
        "anthropic: `/role` is missing"
    );
    let empty = json!({"type": "redacted_thinking", "data": ""});
    let empty = json!({"role": "assistant", "content": [empty]});
    assert_eq!(
        say(Anthropic, empty, "/content/0/data"),
        "anthropic: invalid value at `/content/0/data`: it is empty"
    );
    let number = json!([{"role": "user", "content": 12}]);
    assert_eq!(
        say(OpenAiResponses, number, "/0/content"),
        "responses: expected a text or a list at `/0/content`, found a number"
    );
    refused(
        OpenAiChat,
        json!({"role": "assistant", "tool_calls": {}}),
        "/tool_calls",
    );
    let image = json!({"role": "user", "content": [
        {"type": "input_image", "image_url": "data:image/png;base64,no base64"}]});
    refused(OpenAiResponses, image, "/content/0/image_url");
    refused(Anthropic, json!("hi"), "");
    refused(OpenAiChat, Value::Null, "");
}

/// Collects pointers to every node of a JSON value.
fn pointers(value: &Value, at: String, out: &mut Vec<String>) {
    match value {
        Value::Array(list) => {
            for (nth, value) in list.iter().enumerate() {
                pointers(value, format!("{at}/{nth}"), out);
            }
        }
        Value::Object(map) => {
            for (key, value) in map {
                pointers(value, format!("{at}/{key}"), out);
            }
        }
        _ => {}
    }
    out.push(at);
}

#[test]
fn no_value_in_the_wrong_place_is_more_than_an_error() {
    let mut deep = json!([]);
    for _ in 0..200 {
        deep = json!([deep]);
    }
    let wrong = [
        Value::Null,
        json!(true),
        json!(-1),
        json!(1e300),
        json!(u64::MAX),
        json!(""),
        json!("\u{0}\u{202e}~/\"'é".repeat(1_000)),
        json!("data:image/png;base64,"),
        json!([]),
        json!([null]),
        json!({}),
        json!({"type": "text", "text": {}}),
        deep,
    ];
    let (mut read, mut refused) = (0, 0);
    for (form, valid) in answers().into_iter().chain(requests()) {
        let mut places = Vec::new();
        pointers(&valid, String::new(), &mut places);
        for at in &places {
            for wrong in &wrong {
                let mut bad = valid.clone();
                *bad.pointer_mut(at).unwrap() = wrong.clone();
                match provider::read(form, &bad) {
                    // Messages that are read can be stored and are equal when they are loaded.
                    Ok(messages) => {
                        let text = serde_json::to_string(&messages).unwrap();
                        let again: Vec<AgentMessage> = serde_json::from_str(&text).unwrap();
                        assert_eq!(serde_json::to_string(&again).unwrap(), text, "{at} {wrong}");
                        read += 1;
                    }
                    Err(error) => {
                        assert_eq!(error.form(), form);
                        let named = error.pointer();
                        let is_near =
                            bad.pointer(named).is_some() || error.to_string().contains("missing");
                        assert!(is_near, "{error} in {bad}");
                        assert!(error.to_string().len() < 1_000, "{error}");
                        refused += 1;
                    }
                }
            }
            // Nor if the value is missing.
            let (parent, key) = at.rsplit_once('/').unwrap_or_default();
            let mut bad = valid.clone();
            if let Some(Value::Object(map)) = bad.pointer_mut(parent) {
                map.remove(key);
                let _ = provider::read(form, &bad);
            }
        }
    }
    assert!(read > 500 && refused > 1_500, "{read} {refused}");
}
