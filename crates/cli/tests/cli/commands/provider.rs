//! Contexts in the form of a provider's request.

use insta::assert_snapshot;

use crate::commands::stage::{CommandOutput, Stage};

/// Replaces bidirectional control characters, which the compiler rejects in a source file.
fn plain(said: CommandOutput) -> String {
    said.to_string().replace('\u{202e}', "")
}

#[test]
fn openai_gets_text_calls_and_results() {
    let stage = Stage::new();
    assert_snapshot!(plain(stage.say("context mess --format openai")), @r#"
    {
      "messages": [
        {
          "role": "system",
          "content": "Be kind."
        },
        {
          "role": "user",
          "content": "one\rtwo"
        },
        {
          "role": "user",
          "content": "three"
        },
        {
          "role": "assistant",
          "content": "I look.",
          "tool_calls": [
            {
              "id": "c.1",
              "type": "function",
              "function": {
                "name": "ls__0_x_",
                "arguments": "{}"
              }
            },
            {
              "id": "c.2",
              "type": "function",
              "function": {
                "name": "ls",
                "arguments": "[1.50]"
              }
            }
          ]
        },
        {
          "role": "tool",
          "tool_call_id": "c.1",
          "content": [
            {
              "type": "text",
              "text": "see\u001b[1m"
            },
            {
              "type": "text",
              "text": "[image left out: its 5 bytes, declared as image/png, are not PNG, JPEG, GIF or WebP]"
            }
          ]
        },
        {
          "role": "tool",
          "tool_call_id": "c.2",
          "content": "[no result recorded]"
        },
        {
          "role": "user",
          "content": [
            {
              "type": "text",
              "text": "Result of tool call c.9 (read_file), which is not shown here:"
            },
            {
              "type": "text",
              "text": "lost"
            }
          ]
        },
        {
          "role": "assistant",
          "content": "done"
        },
        {
          "role": "user",
          "content": "thanks"
        }
      ]
    }
    --- stderr
    note: a call has no result; `[no result recorded]` stands in for it (message 2)
    note: a tool result was written as text, as its call is not in the context or the conversation went on (message 4)
    note: the name of a tool was changed, as the provider refuses it (message 2)
    note: an empty message was left out (message 5)
    note: thinking that the provider does not accept was left out (2 times, messages 2, 2)
    note: an image that is not PNG, JPEG, GIF or WebP was replaced by a text (message 3)
    "#);
}

#[test]
fn anthropic_gets_alternating_roles_and_signed_thinking() {
    let stage = Stage::new();
    assert_snapshot!(plain(stage.say("context mess --format anthropic")), @r#"
    {
      "system": "Be kind.",
      "messages": [
        {
          "role": "user",
          "content": [
            {
              "type": "text",
              "text": "one\rtwo"
            },
            {
              "type": "text",
              "text": "three"
            }
          ]
        },
        {
          "role": "assistant",
          "content": [
            {
              "type": "thinking",
              "thinking": "hm",
              "signature": "c2ln"
            },
            {
              "type": "text",
              "text": "I look."
            },
            {
              "type": "tool_use",
              "id": "c_1",
              "name": "ls__0_x_",
              "input": {}
            },
            {
              "type": "tool_use",
              "id": "c_2",
              "name": "ls",
              "input": {"arguments":[1.50]}
            }
          ]
        },
        {
          "role": "user",
          "content": [
            {
              "type": "tool_result",
              "tool_use_id": "c_1",
              "content": [
                {
                  "type": "text",
                  "text": "see\u001b[1m"
                },
                {
                  "type": "text",
                  "text": "[image left out: its 5 bytes, declared as image/png, are not PNG, JPEG, GIF or WebP]"
                }
              ]
            },
            {
              "type": "tool_result",
              "tool_use_id": "c_2",
              "content": [
                {
                  "type": "text",
                  "text": "[no result recorded]"
                }
              ],
              "is_error": true
            },
            {
              "type": "text",
              "text": "Result of tool call c.9 (read_file), which is not shown here:"
            },
            {
              "type": "text",
              "text": "lost"
            }
          ]
        },
        {
          "role": "assistant",
          "content": [
            {
              "type": "text",
              "text": "done"
            }
          ]
        },
        {
          "role": "user",
          "content": [
            {
              "type": "text",
              "text": "thanks"
            }
          ]
        }
      ]
    }
    --- stderr
    note: a call has no result; `[no result recorded]` stands in for it (message 2)
    note: a tool result was written as text, as its call is not in the context or the conversation went on (message 4)
    note: the id of a call was changed, as the provider refuses it (2 times, messages 2, 2)
    note: the name of a tool was changed, as the provider refuses it (message 2)
    note: an empty message was left out (message 5)
    note: a message was merged into the previous one of the same role (message 1)
    note: thinking that the provider does not accept was left out (message 2)
    note: an image that is not PNG, JPEG, GIF or WebP was replaced by a text (message 3)
    "#);
}

#[test]
fn responses_gets_items() {
    let stage = Stage::new();
    let request = stage.json("context mess --format responses");
    let expected = serde_json::json!([
        {"role": "user", "content": "one\r\u{202e}two"},
        {"role": "user", "content": "three"},
        {"role": "assistant", "content": "I look."},
        {"type": "function_call", "call_id": "c.1", "name": "ls__0_x_", "arguments": "{}"},
        {"type": "function_call", "call_id": "c.2", "name": "ls", "arguments": "[1.50]"},
        {"type": "function_call_output", "call_id": "c.1", "output": [
            {"type": "input_text", "text": "see\u{1b}[1m"},
            {"type": "input_text", "text": "[image left out: its 5 bytes, declared as image/png, are not PNG, JPEG, GIF or WebP]"},
        ]},
        {"type": "function_call_output", "call_id": "c.2", "output": "[no result recorded]"},
        {"role": "user", "content": [
            {"type": "input_text", "text": "Result of tool call c.9 (read_file), which is not shown here:"},
            {"type": "input_text", "text": "lost"},
        ]},
        {"role": "assistant", "content": "done"},
        {"role": "user", "content": "thanks"},
    ]);
    assert_eq!(request["input"], expected);
    let mut kinds: Vec<&str> = Vec::new();
    for mending in request["mended"].as_array().unwrap() {
        kinds.push(mending["kind"].as_str().unwrap());
    }
    let expected = [
        "tool_renamed",
        "result_added",
        "thinking_dropped",
        "thinking_dropped",
        "image_replaced",
        "result_told",
        "empty_dropped",
    ];
    assert_eq!(kinds, expected);
}

#[test]
fn mendings_are_in_the_json() {
    let stage = Stage::new();
    let request = stage.json("context mess --format anthropic");
    assert_snapshot!(request["mended"], @r#"
    [{"kind":"merged","message":1},{"kind":"call_renamed","message":2,"tool_call_id":"c.1"},{"kind":"tool_renamed","message":2,"tool_call_id":"c.1"},{"kind":"call_renamed","message":2,"tool_call_id":"c.2"},{"kind":"result_added","message":2,"tool_call_id":"c.2"},{"kind":"thinking_dropped","message":2},{"kind":"image_replaced","message":3},{"kind":"result_told","message":4,"tool_call_id":"c.9"},{"kind":"empty_dropped","message":5}]
    "#);
    let clean = stage.json("context work --loop try --format openai");
    assert_eq!(clean["mended"], serde_json::json!([]));
}

mod lists {
    use insta::assert_snapshot;
    use loopstore::provider::{Form, ProviderRequest};
    use loopstore::{AgentMessage, Content, Json, Message};

    use crate::commands::stage::{answer, result};

    fn call(id: &str) -> Message {
        let arguments = Json::parse("{\"z\":1.0,\"a\":12345678901234567890123}").unwrap();
        answer(vec![Content::tool_call(id, "ls", arguments)])
    }

    fn request_lines(messages: Vec<Message>, form: Form) -> String {
        let messages: Vec<AgentMessage> = messages.into_iter().map(Into::into).collect();
        let request = ProviderRequest::new(form, &messages);
        let text = serde_json::to_string_pretty(&request.with_mended()).unwrap();
        let lines = text.lines().map(str::trim);
        lines.collect::<Vec<_>>().join(" ").replace("}, {", "},\n{")
    }

    #[test]
    fn a_result_without_its_call_is_told_though_a_later_call_has_its_id() {
        let messages = vec![
            result("a", "of the call before"),
            Message::user("go"),
            call("a"),
            result("a", "of this call"),
        ];
        assert_snapshot!(request_lines(messages, Form::OpenAiChat), @r#"
        { "messages": [ { "role": "user", "content": [ { "type": "text", "text": "Result of tool call a (read_file), which is not shown here:" },
        { "type": "text", "text": "of the call before" } ] },
        { "role": "user", "content": "go" },
        { "role": "assistant", "content": null, "tool_calls": [ { "id": "a", "type": "function", "function": { "name": "ls", "arguments": "{\"z\":1.0,\"a\":12345678901234567890123}" } } ] },
        { "role": "tool", "tool_call_id": "a", "content": "of this call" } ], "mended": [ { "kind": "result_told", "message": 0, "tool_call_id": "a" } ] }
        "#);
    }

    #[test]
    fn a_late_result_moves_and_a_second_id_is_changed() {
        let messages = vec![
            Message::user("go"),
            call("a"),
            Message::user("wait"),
            result("a", "late"),
            call("a"),
            result("a", "second"),
            result("a", "third"),
        ];
        assert_snapshot!(request_lines(messages.clone(), Form::OpenAiChat), @r#"
        { "messages": [ { "role": "user", "content": "go" },
        { "role": "assistant", "content": null, "tool_calls": [ { "id": "a", "type": "function", "function": { "name": "ls", "arguments": "{\"z\":1.0,\"a\":12345678901234567890123}" } } ] },
        { "role": "tool", "tool_call_id": "a", "content": "late" },
        { "role": "user", "content": "wait" },
        { "role": "assistant", "content": null, "tool_calls": [ { "id": "a_2", "type": "function", "function": { "name": "ls", "arguments": "{\"z\":1.0,\"a\":12345678901234567890123}" } } ] },
        { "role": "tool", "tool_call_id": "a_2", "content": "third" } ], "mended": [ { "kind": "result_moved", "message": 3, "tool_call_id": "a" },
        { "kind": "call_renamed", "message": 4, "tool_call_id": "a" },
        { "kind": "result_dropped", "message": 5, "tool_call_id": "a" } ] }
        "#);
        assert_snapshot!(request_lines(messages, Form::Anthropic), @r#"
        { "messages": [ { "role": "user", "content": [ { "type": "text", "text": "go" } ] },
        { "role": "assistant", "content": [ { "type": "tool_use", "id": "a", "name": "ls", "input": {"z":1.0,"a":12345678901234567890123} } ] },
        { "role": "user", "content": [ { "type": "tool_result", "tool_use_id": "a", "content": [ { "type": "text", "text": "late" } ] },
        { "type": "text", "text": "wait" } ] },
        { "role": "assistant", "content": [ { "type": "tool_use", "id": "a_2", "name": "ls", "input": {"z":1.0,"a":12345678901234567890123} } ] },
        { "role": "user", "content": [ { "type": "tool_result", "tool_use_id": "a_2", "content": [ { "type": "text", "text": "third" } ] } ] } ], "mended": [ { "kind": "result_moved", "message": 3, "tool_call_id": "a" },
        { "kind": "call_renamed", "message": 4, "tool_call_id": "a" },
        { "kind": "result_dropped", "message": 5, "tool_call_id": "a" } ] }
        "#);
    }

    #[test]
    fn an_answer_never_comes_first_for_anthropic() {
        let messages = vec![answer(vec![Content::text(" ")]), call("a")];
        assert_snapshot!(request_lines(messages, Form::Anthropic), @r#"
        { "messages": [ { "role": "user", "content": [ { "type": "text", "text": "[what came before is not included]" } ] },
        { "role": "assistant", "content": [ { "type": "tool_use", "id": "a", "name": "ls", "input": {"z":1.0,"a":12345678901234567890123} } ] } ], "mended": [ { "kind": "empty_dropped", "message": 0 },
        { "kind": "user_added", "message": 1 } ] }
        "#);
        assert_snapshot!(request_lines(Vec::new(), Form::Anthropic), @r#"
        { "messages": [], "mended": [] }
        "#);
    }
}
