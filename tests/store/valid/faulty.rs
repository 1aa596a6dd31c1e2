//! Requests that a provider rejects, each for a different reason.

use loopstore::provider::Form;
use serde_json::{Value, json};

use crate::support::provider_faults::{ProviderFaultKind as Kind, provider_faults};

fn kinds(messages: &Value, form: Form) -> Vec<(usize, Kind)> {
    let faults = provider_faults(messages, form).into_iter();
    faults.map(|fault| (fault.message, fault.kind)).collect()
}

#[track_caller]
fn openai(messages: Value, expected: &[(usize, Kind)]) {
    assert_eq!(kinds(&messages, Form::OpenAiChat), expected, "{messages:#}");
}

#[track_caller]
fn anthropic(messages: Value, expected: &[(usize, Kind)]) {
    assert_eq!(kinds(&messages, Form::Anthropic), expected, "{messages:#}");
}

mod of_openai {
    use super::*;

    fn call(id: &str) -> Value {
        let function = json!({"name": "ls", "arguments": "{}"});
        json!({"id": id, "type": "function", "function": function})
    }

    fn calls(calls: &[Value]) -> Value {
        json!({"role": "assistant", "content": null, "tool_calls": calls})
    }

    fn result(id: &str) -> Value {
        json!({"role": "tool", "tool_call_id": id, "content": ""})
    }

    fn user(content: Value) -> Value {
        json!({"role": "user", "content": content})
    }

    #[test]
    fn what_is_right_has_no_fault() {
        openai(json!([]), &[]);
        let image = json!({"type": "image_url", "image_url": {"url": "https://a.test/b.png"}});
        let messages = json!([
            {"role": "system", "content": "Be brief."},
            user(json!("hi")),
            user(json!([{"type": "text", "text": "see"}, image])),
            calls(&[call("a"), call("b")]),
            result("b"),
            result("a"),
            {"role": "assistant", "content": "done "},
        ]);
        openai(json!({"model": "m", "messages": messages}), &[]);
    }

    #[test]
    fn calls_and_results_that_are_apart() {
        openai(
            json!([
                calls(&[call("a"), call("b")]),
                result("a"),
                user(json!("?")),
                result("b")
            ]),
            &[(2, Kind::CallWithoutResult), (3, Kind::LateResult)],
        );
        openai(json!([calls(&[call("a"), call("b")]), result("b")]), &[]);
        openai(
            json!([calls(&[call("a")]), user(json!("?"))]),
            &[(1, Kind::CallWithoutResult)],
        );
        openai(
            json!([result("a"), calls(&[call("a")]), result("a"), result("a")]),
            &[(0, Kind::ResultWithoutCall), (3, Kind::LateResult)],
        );
        openai(
            json!([
                calls(&[call("a")]),
                result("a"),
                calls(&[call("a")]),
                result("a")
            ]),
            &[(2, Kind::DuplicateCallId)],
        );
    }

    #[test]
    fn content_that_is_missing() {
        let empty = (0, Kind::EmptyContent);
        openai(json!([user(json!(""))]), &[empty]);
        openai(json!([user(json!([]))]), &[empty]);
        openai(
            json!([user(json!([{"type": "text", "text": ""}]))]),
            &[empty],
        );
        openai(json!([{"role": "assistant", "content": null}]), &[empty]);
        openai(json!([{"role": "assistant"}]), &[empty]);
        openai(json!([{"role": "assistant", "content": ""}]), &[empty]);
    }

    #[test]
    fn ids_names_and_arguments() {
        let long = "é".repeat(41);
        let messages = json!([calls(&[call(&long), call("")]), result(&long), result("")]);
        openai(messages, &[(0, Kind::CallId), (0, Kind::CallId)]);
        let named = |name: &str, arguments: Value| {
            let mut made = call("a");
            made["function"] = json!({"name": name, "arguments": arguments});
            json!([calls(&[made]), result("a")])
        };
        openai(named("l s", json!("{}")), &[(0, Kind::ToolName)]);
        openai(named(&"n".repeat(65), json!("{}")), &[(0, Kind::ToolName)]);
        openai(named("ls", json!("{broken")), &[(0, Kind::Arguments)]);
        openai(named("ls", json!({})), &[(0, Kind::Arguments)]);
        openai(named("ls", json!("")), &[(0, Kind::Arguments)]);
    }

    #[test]
    fn images_that_are_not_read() {
        let image = |url: &str| {
            let image = json!({"type": "image_url", "image_url": {"url": url}});
            json!([user(json!([image]))])
        };
        openai(image("data:image/png;base64,iVBORw0KGgo="), &[]);
        openai(
            image("data:image/svg+xml;base64,iVBORw0KGgo="),
            &[(0, Kind::Image)],
        );
        openai(
            image("data:image/png;base64,no base64"),
            &[(0, Kind::Image)],
        );
        openai(image("data:image/png;base64,"), &[(0, Kind::Image)]);
        openai(image("cat.png"), &[(0, Kind::Image)]);
    }

    #[test]
    fn another_form() {
        let form = (0, Kind::Form);
        openai(json!("hello"), &[form]);
        openai(json!(["hello"]), &[form]);
        openai(json!([{"role": "toolResult", "content": "x"}]), &[form]);
        openai(json!([user(json!(7))]), &[form]);
        openai(json!([user(json!([{"type": "tool_result"}]))]), &[form]);
        openai(
            json!([{"role": "assistant", "content": "x", "tool_calls": []}]),
            &[form],
        );
    }
}

mod of_anthropic {
    use super::*;

    fn user(blocks: &[Value]) -> Value {
        json!({"role": "user", "content": blocks})
    }

    fn answer(blocks: &[Value]) -> Value {
        json!({"role": "assistant", "content": blocks})
    }

    fn text(text: &str) -> Value {
        json!({"type": "text", "text": text})
    }

    fn call(id: &str) -> Value {
        json!({"type": "tool_use", "id": id, "name": "ls", "input": {}})
    }

    fn result(id: &str) -> Value {
        json!({"type": "tool_result", "tool_use_id": id, "content": []})
    }

    fn thinking() -> Value {
        json!({"type": "thinking", "thinking": "hm", "signature": "c2ln"})
    }

    fn go() -> Value {
        json!({"role": "user", "content": "go"})
    }

    #[test]
    fn what_is_right_has_no_fault() {
        anthropic(json!([]), &[]);
        let source =
            json!({"type": "base64", "media_type": "image/webp", "data": "UklGRgAAAABXRUJQ"});
        let image = json!({"type": "image", "source": source});
        let mut failed = result("b");
        failed["is_error"] = json!(true);
        failed["content"] = json!([text("no")]);
        anthropic(
            json!([
                go(),
                answer(&[text("first"), thinking(), call("a"), call("b")]),
                user(&[failed, result("a"), text("and"), image]),
                answer(&[thinking(), text("so")]),
            ]),
            &[],
        );
    }

    #[test]
    fn roles_that_do_not_alternate() {
        anthropic(json!([answer(&[text("hi")])]), &[(0, Kind::RoleOrder)]);
        anthropic(json!([go(), go()]), &[(1, Kind::RoleOrder)]);
        anthropic(
            json!([go(), {"role": "system", "content": "x"}]),
            &[(1, Kind::Form)],
        );
    }

    #[test]
    fn calls_and_results_that_are_apart() {
        let calls = answer(&[call("a"), call("b")]);
        anthropic(
            json!([go(), calls, user(&[result("a"), text("wait"), result("b")])]),
            &[(2, Kind::LateResult)],
        );
        anthropic(
            json!([
                go(),
                calls,
                user(&[result("a")]),
                answer(&[text("?")]),
                user(&[result("b")])
            ]),
            &[(2, Kind::CallWithoutResult), (4, Kind::LateResult)],
        );
        anthropic(
            json!([go(), calls, go()]),
            &[(2, Kind::CallWithoutResult); 2],
        );
        // The agent runs the calls before the next request.
        anthropic(json!([go(), calls]), &[]);
        anthropic(json!([go(), calls, user(&[result("a")])]), &[]);
        anthropic(
            json!([user(&[result("a")])]),
            &[(0, Kind::ResultWithoutCall)],
        );
        let twice = answer(&[call("a"), call("a")]);
        let results = user(&[result("a"), result("a")]);
        anthropic(json!([go(), twice, results]), &[(1, Kind::DuplicateCallId)]);
    }

    #[test]
    fn content_that_is_missing() {
        anthropic(json!([user(&[])]), &[(0, Kind::EmptyContent)]);
        anthropic(json!([user(&[text(" \n")])]), &[(0, Kind::EmptyContent)]);
        anthropic(
            json!([{"role": "user", "content": " "}]),
            &[(0, Kind::EmptyContent)],
        );
        let mut result = result("a");
        result["content"] = json!([text("")]);
        anthropic(
            json!([go(), answer(&[call("a")]), user(&[result])]),
            &[(2, Kind::EmptyContent)],
        );
    }

    #[test]
    fn ids_names_and_arguments() {
        let with = |key: &str, value: Value| {
            let mut made = call("a");
            made[key] = value;
            let id = made["id"].clone();
            let result = json!({"type": "tool_result", "tool_use_id": id});
            json!([go(), answer(&[made]), user(&[result])])
        };
        anthropic(with("id", json!("a.b")), &[(1, Kind::CallId)]);
        anthropic(with("id", json!("")), &[(1, Kind::CallId)]);
        anthropic(with("name", json!("server.ls")), &[(1, Kind::ToolName)]);
        anthropic(with("name", json!("n".repeat(129))), &[(1, Kind::ToolName)]);
        anthropic(with("input", json!([1])), &[(1, Kind::Arguments)]);
        anthropic(with("input", json!(null)), &[(1, Kind::Arguments)]);
    }

    #[test]
    fn thinking_where_it_is_refused() {
        let done = |blocks: &[Value]| json!([go(), answer(blocks)]);
        anthropic(
            done(&[text("so"), thinking(), text("x")]),
            &[(1, Kind::Thinking)],
        );
        anthropic(done(&[thinking()]), &[(1, Kind::Thinking)]);
        let unsigned = json!({"type": "thinking", "thinking": "hm"});
        anthropic(done(&[unsigned, text("x")]), &[(1, Kind::Thinking)]);
        let sealed = json!({"type": "redacted_thinking"});
        anthropic(done(&[sealed, text("x")]), &[(1, Kind::Thinking)]);
        anthropic(json!([user(&[thinking(), text("x")])]), &[(0, Kind::Form)]);
    }

    #[test]
    fn the_end_of_the_last_answer() {
        let space = text("Once upon ");
        anthropic(
            json!([go(), answer(std::slice::from_ref(&space))]),
            &[(1, Kind::TrailingSpace)],
        );
        anthropic(json!([go(), answer(&[space]), go()]), &[]);
    }

    #[test]
    fn images_where_they_are_refused() {
        let image = |media_type: &str, data: &str| {
            let source = json!({"type": "base64", "media_type": media_type, "data": data});
            json!({"type": "image", "source": source})
        };
        let svg = image("image/svg+xml", "iVBORw0KGgo=");
        anthropic(json!([user(&[svg])]), &[(0, Kind::Image)]);
        anthropic(
            json!([user(&[image("image/png", "x")])]),
            &[(0, Kind::Image)],
        );
        let mut failed = result("a");
        failed["is_error"] = json!(true);
        failed["content"] = json!([image("image/png", "iVBORw0KGgo=")]);
        anthropic(
            json!([go(), answer(&[call("a")]), user(&[failed])]),
            &[(2, Kind::Form)],
        );
        anthropic(
            json!([go(), answer(&[image("image/png", "iVBORw0KGgo=")])]),
            &[(1, Kind::Form)],
        );
    }
}
