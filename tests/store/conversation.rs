//! Reads of an agent that runs its own loop: open calls, late results, its system prompt, and answers in the forms that
//! servers really produce.

use loopstore::compact::CompactOutcome;
use loopstore::context::SystemPrompts;
use loopstore::provider::{self, Form, MendingKind, NO_RESULT, ProviderRequest};
use loopstore::*;
use loopstore_export::{ExportForm, export};
use loopstore_transcripts::{ImportOptions, import_paths};
use serde_json::{Value, json};

const FORMS: [Form; 3] = Form::ALL;

fn session() -> SessionHandle {
    Store::in_memory().unwrap().session("s").unwrap()
}

/// Returns a prompt, and an answer that calls tools.
fn with_calls(calls: &[&str]) -> [Message; 2] {
    let mut answer = Message::assistant("I look.");
    for id in calls {
        answer = answer.with_tool_call(*id, "look", Json::parse("{}").unwrap());
    }
    [Message::user("Go on."), answer]
}

fn request(chat: &SessionHandle, form: Form) -> ProviderRequest {
    ProviderRequest::of_context(form, &chat.context().unwrap()).unwrap()
}

fn written(chat: &SessionHandle, form: Form) -> String {
    serde_json::to_string(&request(chat, form)).unwrap()
}

fn kinds(request: &ProviderRequest) -> Vec<MendingKind> {
    request.mended.iter().map(|mending| mending.kind).collect()
}

fn open(chat: &SessionHandle) -> Vec<String> {
    let calls = chat.open_calls().unwrap();
    calls.into_iter().map(|call| call.id).collect()
}

#[test]
fn a_call_that_waits_is_open_until_something_follows_it() {
    for form in FORMS {
        let chat = session();
        chat.append(with_calls(&["a", "b"])).unwrap();
        assert_eq!(open(&chat), ["a", "b"]);
        chat.append([Message::tool_result("b", "second")]).unwrap();
        assert_eq!(open(&chat), ["a"]);
        assert!(!chat.context().unwrap().awaits_answer());
        let (text, mended) = (written(&chat, form), kinds(&request(&chat, form)));
        assert!(
            !text.contains(NO_RESULT) && mended.is_empty(),
            "{form} {text}"
        );
        assert!(text.contains("second"), "{form} {text}");
        let prepared = chat.prepare().unwrap().to(form).unwrap().to_string();
        assert!(!prepared.contains(NO_RESULT), "{form} {prepared}");

        chat.append([Message::user("It was interrupted.")]).unwrap();
        assert_eq!(open(&chat), [""; 0]);
        assert!(chat.context().unwrap().awaits_answer());
        assert!(written(&chat, form).contains(NO_RESULT), "{form}");
        assert!(kinds(&request(&chat, form)).contains(&MendingKind::ResultAdded));
        // A result that arrives later still belongs to its call.
        chat.append([Message::tool_result("a", "first")]).unwrap();
        let text = written(&chat, form);
        assert!(
            text.contains("first") && !text.contains(NO_RESULT),
            "{form} {text}"
        );
    }
}

#[test]
fn no_call_of_an_ended_loop_is_open() {
    let chat = session();
    chat.append(with_calls(&["a"])).unwrap();
    chat.end_loop(LoopStatus::Aborted).unwrap();
    assert_eq!(open(&chat), [""; 0]);
    for form in FORMS {
        assert!(written(&chat, form).contains(NO_RESULT), "{form}");
        assert_eq!(kinds(&request(&chat, form)), [MendingKind::ResultAdded]);
    }
}

#[test]
fn pieces_of_one_answer_keep_their_calls_open() {
    let chat = session();
    let piece = |id| {
        let call = Message::assistant("").with_tool_call(id, "look", Json::parse("{}").unwrap());
        AgentMessage::from(call).in_turn(TurnId::new("loop-1", 0))
    };
    chat.append([Message::user("Go on.")]).unwrap();
    chat.append([piece("a"), piece("b")]).unwrap();
    assert_eq!(open(&chat), ["a", "b"]);
    let faults = chat.context().unwrap().faults;
    assert!(faults.is_empty(), "{faults:?}");
}

#[test]
fn the_newest_result_before_the_conversation_goes_on_replaces_the_first() {
    for form in FORMS {
        let chat = session();
        chat.append(with_calls(&["a", "b"])).unwrap();
        let results =
            ["pending", "at work", "done: A-12"].map(|text| Message::tool_result("a", text));
        chat.append(results).unwrap();
        chat.append([Message::tool_result("b", "other")]).unwrap();
        let (text, request) = (written(&chat, form), request(&chat, form));
        assert!(
            text.contains("A-12") && text.contains("other"),
            "{form} {text}"
        );
        assert!(
            !text.contains("pending") && !text.contains("at work"),
            "{form} {text}"
        );
        let dropped: Vec<_> = request
            .mended
            .iter()
            .map(|one| (one.kind, one.message))
            .collect();
        let kind = MendingKind::ResultDropped;
        assert_eq!(dropped, [(kind, 2), (kind, 3)], "{form}");
        // The record contains all messages.
        assert_eq!(chat.context().unwrap().messages.len(), 6);
    }
}

#[test]
fn a_result_after_the_conversation_went_on_is_told_where_it_came() {
    for form in FORMS {
        let chat = session();
        chat.append(with_calls(&["a"])).unwrap();
        chat.append([Message::tool_result("a", "pending")]).unwrap();
        chat.append([Message::assistant("I asked for it.")])
            .unwrap();
        chat.append([Message::tool_result("a", "done: A-12")])
            .unwrap();
        let text = written(&chat, form);
        let place = |what: &str| {
            text.find(what)
                .unwrap_or_else(|| panic!("{form} {what}: {text}"))
        };
        assert!(place("pending") < place("I asked") && place("I asked") < place("A-12"));
        assert!(text.contains("Result of tool call a"), "{form} {text}");
        assert_eq!(
            kinds(&request(&chat, form)),
            [MendingKind::ResultTold],
            "{form}"
        );
        assert!(chat.context().unwrap().awaits_answer());
        // Repeating a result adds nothing.
        chat.append([Message::tool_result("a", "pending")]).unwrap();
        assert_eq!(written(&chat, form), text);
    }
}

#[test]
fn a_later_result_does_not_stand_behind_an_open_call() {
    for form in FORMS {
        let chat = session();
        chat.append(with_calls(&["a"])).unwrap();
        chat.append([Message::tool_result("a", "pending")]).unwrap();
        let next =
            Message::assistant("And:").with_tool_call("b", "look", Json::parse("{}").unwrap());
        chat.append([next, Message::tool_result("a", "done: A-12")])
            .unwrap();
        assert_eq!(open(&chat), ["b"]);
        let text = written(&chat, form);
        assert!(text.find("A-12") < text.find("And:"), "{form} {text}");
        chat.append([Message::tool_result("b", "other")]).unwrap();
        let text = written(&chat, form);
        assert!(text.find("A-12") > text.find("And:"), "{form} {text}");
    }
}

/// Returns a call in the forms that servers use, with the expected result.
fn chat_calls() -> Vec<Value> {
    let call = |id: Value, name: Value, arguments: Value| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    let args = || json!("{\"a\":1}");
    vec![
        call(json!(""), json!("look"), args()),
        call(Value::Null, json!("look"), args()),
        json!({"function": {"name": "look", "arguments": "{}"}}),
        json!({"type": "", "id": "", "function": {"name": "look"}}),
        call(json!(17), json!("look"), args()),
        call(json!("c"), json!("look"), json!({"a": 1})),
        call(json!("c"), json!("look"), Value::Null),
        call(json!("c"), json!("look"), json!(["a"])),
        call(json!("c"), json!(""), args()),
        call(json!("c"), Value::Null, args()),
        json!({"id": "c", "name": "look", "arguments": {"a": 1}}),
        json!({"id": "c", "type": "custom", "custom": {"name": "look", "input": "free text"}}),
    ]
}

#[test]
fn calls_as_servers_write_them_are_recorded_and_paired() {
    for call in chat_calls() {
        let chat = session();
        let answer = json!({"role": "assistant", "content": null, "tool_calls": [call, call]});
        chat.append([Message::user("Go on.")]).unwrap();
        let done = chat
            .append(provider::read(Form::OpenAiChat, &answer).unwrap())
            .unwrap();
        let is_custom = call["type"] == "custom";
        assert_eq!(
            done.notes.len(),
            if is_custom { 0 } else { 2 },
            "{call} {:?}",
            done.notes
        );
        let ids = open(&chat);
        assert_eq!(ids.len(), 2, "{call}");
        assert!(ids.iter().all(|id| !id.is_empty()), "{call}");
        for (id, text) in ids.iter().zip(["one", "two"]) {
            let has_id = call.get("id").is_some_and(|id| !id.is_null() && id != "");
            let result = match has_id {
                true => json!({"role": "tool", "tool_call_id": id, "content": text}),
                false => json!({"role": "tool", "tool_call_id": "", "content": text}),
            };
            chat.append(provider::read(Form::OpenAiChat, &result).unwrap())
                .unwrap();
        }
        assert_eq!(open(&chat), [""; 0], "{call}");
        for form in FORMS {
            let text = written(&chat, form);
            assert!(
                !text.contains("is not shown") && !text.contains(NO_RESULT),
                "{call} {text}"
            );
            assert!(text.find("one") < text.find("two"), "{call} {text}");
        }
    }
}

#[test]
fn every_form_takes_calls_and_results_without_ids() {
    let given = [
        (
            Form::OpenAiResponses,
            json!([
                {"type": "function_call", "name": "look", "arguments": {"a": 1}},
                {"type": "function_call", "call_id": "", "name": "", "arguments": null},
                {"type": "function_call_output", "output": "one"},
                {"type": "function_call_output", "call_id": "", "output": "two"},
            ]),
        ),
        (
            Form::Anthropic,
            json!([
                {"role": "assistant", "content": [
                    {"type": "tool_use", "id": "", "name": "look", "input": "{\"a\":1}"},
                    {"type": "tool_use", "name": "", "input": null},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "content": "one"},
                    {"type": "tool_result", "tool_use_id": "", "content": "two"},
                ]},
            ]),
        ),
        (
            Form::OpenAiChat,
            json!([
                {"role": "assistant", "function_call": {"name": "look", "arguments": "{\"a\":1}"}},
                {"role": "function", "name": "look", "content": "one"},
                {"role": "assistant", "function_call": {"name": "", "arguments": ""}},
                {"role": "function", "content": "two"},
            ]),
        ),
    ];
    for (form, items) in given {
        let chat = session();
        chat.append([Message::user("Go on.")]).unwrap();
        let done = chat.append(provider::read(form, &items).unwrap()).unwrap();
        assert!(done.notes.len() >= 3, "{form} {:?}", done.notes);
        assert_eq!(open(&chat), [""; 0]);
        for form in FORMS {
            let text = written(&chat, form);
            assert!(
                !text.contains("is not shown") && !text.contains(NO_RESULT),
                "{form} {text}"
            );
            assert!(
                text.contains("one") && text.contains("two"),
                "{form} {text}"
            );
        }
        let context = chat.context().unwrap();
        let calls = context.messages.iter().filter_map(AgentMessage::message);
        let calls: Vec<&ToolCall> = calls.flat_map(Message::tool_calls).collect();
        assert_eq!(calls[0].arguments.as_str(), r#"{"a":1}"#);
    }
}

#[test]
fn a_result_for_nobody_is_recorded_and_told() {
    let chat = session();
    let result = json!({"role": "tool", "content": "lost"});
    let done = chat
        .append(provider::read(Form::OpenAiChat, &result).unwrap())
        .unwrap();
    assert!(
        done.notes[0].contains("no call waits for it"),
        "{:?}",
        done.notes
    );
    assert!(written(&chat, Form::OpenAiChat).contains("lost"));
}

#[test]
fn reasoning_goes_back_to_the_form_that_it_came_in() {
    let details = json!([{"type": "reasoning.text", "text": "I must look.", "signature": "s"}]);
    let given = [
        json!({"reasoning_content": "I must look."}),
        json!({"reasoning": "I must look."}),
        json!({"reasoning_content": "I must look.", "reasoning": "I must look."}),
        json!({"reasoning": "I must look.", "reasoning_details": details}),
        json!({"reasoning_details": details}),
        json!({"reasoning_content": ""}),
    ];
    for fields in given {
        let chat = session();
        let mut answer = json!({"role": "assistant", "content": "So:", "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}]});
        for (key, value) in fields.as_object().unwrap() {
            answer[key] = value.clone();
        }
        chat.append([Message::user("Go on.")]).unwrap();
        chat.append(provider::read(Form::OpenAiChat, &answer).unwrap())
            .unwrap();
        chat.append([Message::tool_result("a", "found")]).unwrap();
        let back = provider::write(Form::OpenAiChat, &chat.context().unwrap()).unwrap();
        assert_eq!(back["messages"][1], answer, "{fields}");
        assert!(
            request(&chat, Form::OpenAiChat).mended.is_empty(),
            "{fields}"
        );
        let is_empty = fields["reasoning_content"] == "";
        for form in [Form::OpenAiResponses, Form::Anthropic] {
            assert!(!written(&chat, form).contains("reasoning"), "{fields}");
            let kinds = kinds(&request(&chat, form));
            assert_eq!(
                kinds.contains(&MendingKind::ThinkingDropped),
                !is_empty,
                "{fields}"
            );
        }
        // Reasoning is counted, since it is sent.
        let tokens = chat.context().unwrap().tokens;
        assert!(is_empty || tokens > session_tokens(), "{fields}: {tokens}");
    }
}

/// Returns the tokens of the same conversation without reasoning.
fn session_tokens() -> u64 {
    let chat = session();
    let answer = Message::assistant("So:").with_tool_call("a", "look", Json::parse("{}").unwrap());
    chat.append([Message::user("Go on."), answer]).unwrap();
    chat.append([Message::tool_result("a", "found")]).unwrap();
    chat.context().unwrap().tokens
}

#[test]
fn an_image_goes_out_as_what_it_is() {
    for form in FORMS {
        let chat = session();
        // A JPEG declared as PNG, and an error page.
        let prompt = Message::user("Look.").with_image("/9j/4AAQSkZJRg==", "image/png");
        chat.append([prompt]).unwrap();
        chat.append([with_calls(&["a"])[1].clone()]).unwrap();
        let page = "PCFET0NUWVBFIGh0bWw+";
        chat.append([Message::tool_result("a", "").with_image(page, "image/png")])
            .unwrap();
        let text = written(&chat, form);
        assert!(
            text.contains("image/jpeg") && !text.contains(page),
            "{form} {text}"
        );
        assert!(
            text.contains("are not PNG, JPEG, GIF or WebP"),
            "{form} {text}"
        );
        let expected = [MendingKind::ImageRetyped, MendingKind::ImageReplaced];
        assert_eq!(kinds(&request(&chat, form)), expected, "{form}");
    }
}

/// Returns a session with two parallel calls, one with a huge result, the other without one.
fn interrupted() -> SessionHandle {
    let chat = session();
    for turn in 0..3 {
        chat.append([
            Message::user(format!("question {turn}")),
            Message::assistant("yes"),
        ])
        .unwrap();
    }
    chat.append(with_calls(&["a", "b"])).unwrap();
    chat.append([Message::tool_result("a", "a line of it\n".repeat(6_000))])
        .unwrap();
    chat
}

#[test]
fn an_interrupted_batch_does_not_hold_its_turn_open_for_ever() {
    let chat = interrupted().with_policy(Policy::new(6_000));
    let request = chat.policy().request();
    let report = chat.compact(&request).unwrap();
    // The agent of the loop may still be running.
    assert!(
        report.too_small.is_some() && report.in_flight,
        "{:?}",
        report.error
    );
    chat.append([Message::user("It was interrupted, go on.")])
        .unwrap();
    let report = chat.compact(&request).unwrap();
    assert_eq!(
        report.outcome,
        CompactOutcome::Committed,
        "{:?}",
        report.error
    );
    assert!(chat.prepare().unwrap().context.tokens < 6_000);
    // The next prompt begins a loop, whatever is open in this one.
    chat.append([Message::assistant("I go on.")]).unwrap();
    let done = chat.append([Message::user("And now?")]).unwrap();
    assert_eq!(done.begun.len(), 1);
}

#[test]
fn what_a_harness_says_within_a_batch_belongs_to_its_turn() {
    let chat = session();
    chat.append(with_calls(&["a", "b"])).unwrap();
    let reminder =
        Message::user("<system-reminder>be brief</system-reminder>").with_author(Author::Harness);
    let done = chat
        .append([Message::tool_result("a", "one"), reminder])
        .unwrap();
    assert_eq!(done.turns, 0..1);
    assert_eq!(
        chat.append([Message::tool_result("b", "two")])
            .unwrap()
            .turns,
        0..1
    );
}

#[test]
fn a_count_far_below_our_own_is_not_believed() {
    let spoken = |reported: u64| {
        let chat = session();
        for turn in 0..20 {
            let answer = AssistantMessage {
                content: vec![Content::text("the weather in Oslo ".repeat(200))],
                usage: serde_json::from_value(json!({"input": reported, "output": 0})).unwrap(),
                ..AssistantMessage::default()
            };
            let prompt = Message::user(format!("question {turn}"));
            chat.append([prompt, Message::Assistant(answer)]).unwrap();
        }
        let tokens = chat.context().unwrap().tokens;
        (chat, tokens)
    };
    for (reported, fits) in [(15, false), (17_000, true), (0, false)] {
        // The reported count decides within the window, and never makes a context fail.
        for window in [6_000, spoken(reported).1 + 2_000] {
            let (chat, tokens) = spoken(reported);
            let request = Policy::new(window).request();
            let report = chat.compact(&request).unwrap();
            let is_needed = window < tokens || !fits;
            let outcome = report.outcome;
            assert_eq!(
                outcome == CompactOutcome::Committed,
                is_needed,
                "{reported} {window} {report:?}"
            );
            let options = BuildOptions {
                budget: Some(window),
                ..BuildOptions::default()
            };
            let store = chat.store().database();
            assert!(build_context_from_session(store, chat.id(), &options).is_ok());
        }
    }
}

fn one_message(role: &str, text: &str) -> Vec<AgentMessage> {
    let message = json!({"role": role, "content": text});
    provider::read(Form::OpenAiChat, &message).unwrap()
}

#[test]
fn a_request_begins_with_the_newest_prompt_that_the_agent_appended() {
    for form in FORMS {
        let chat = session();
        chat.append(one_message("system", "Be brief.")).unwrap();
        chat.append(one_message("user", "Go on.")).unwrap();
        chat.append(one_message("developer", "Speak German."))
            .unwrap();
        chat.append(one_message("assistant", "Ja.")).unwrap();
        let text = written(&chat, form);
        assert!(
            text.find("Be brief.") < text.find("Go on."),
            "{form} {text}"
        );
        assert!(
            text.find("Speak German.") < text.find("Go on."),
            "{form} {text}"
        );
        assert!(request(&chat, form).mended.is_empty(), "{form}");
        assert_eq!(chat.prepare().unwrap().to(form).unwrap().to_string(), {
            let value: Value = serde_json::from_str(&text).unwrap();
            value.to_string()
        });

        // A newer system prompt replaces it, also for a handle that has read the older one.
        chat.append(one_message("user", "More.")).unwrap();
        chat.append(one_message("system", "Be long.")).unwrap();
        let prepared = chat.prepare().unwrap().to(form).unwrap().to_string();
        for text in [prepared, written(&chat, form)] {
            assert!(
                text.contains("Be long.") && !text.contains("Be brief."),
                "{form} {text}"
            );
        }
        assert_eq!(
            kinds(&request(&chat, form)),
            [MendingKind::SystemDropped],
            "{form}"
        );
        // Appending the same prompt again leaves nothing out.
        chat.append(one_message("system", "Be long.")).unwrap();
        assert!(request(&chat, form).mended.is_empty(), "{form}");
    }
}

#[test]
fn a_system_prompt_counts_and_no_compaction_covers_it() {
    let chat = session();
    let prompt = "Always be careful. ".repeat(200);
    chat.append(one_message("system", &prompt)).unwrap();
    for turn in 0..30 {
        let answer = Message::assistant(format!("{turn} {}", "the weather ".repeat(100)));
        chat.append([Message::user(format!("question {turn}")), answer])
            .unwrap();
    }
    let tokens = chat.context().unwrap().system.tokens;
    assert!(tokens > 900);
    let chat = chat.with_policy(Policy::new(4_000));
    let ready = chat.prepare().unwrap();
    assert!(ready.was_compacted());
    assert!(
        ready.context.tokens + tokens <= 4_000,
        "{} {tokens}",
        ready.context.tokens
    );
    for form in FORMS {
        assert!(
            ready.to(form).unwrap().to_string().contains(&prompt),
            "{form}"
        );
    }
    // A fork has the prompt from before it.
    let fork = chat.fork_at(TurnRef::new("loop-1", 0)).unwrap();
    assert_eq!(fork.context().unwrap().system.messages.len(), 1);
    let without = chat.with_policy(Policy::new(4_000).system_prompts(SystemPrompts::None));
    let ready = without.prepare().unwrap();
    assert!(
        !ready
            .to(Form::Anthropic)
            .unwrap()
            .to_string()
            .contains("careful")
    );
    assert!(ready.context.system.is_partial);
}

#[test]
fn a_prompt_after_the_moment_belongs_to_no_context_of_it() {
    let chat = session();
    chat.append(one_message("system", "Be brief.")).unwrap();
    chat.append([Message::user("one"), Message::assistant("1")])
        .unwrap();
    chat.append(one_message("system", "Be long.")).unwrap();
    chat.append([Message::user("two"), Message::assistant("2")])
        .unwrap();
    let then = chat.context_as_of(AsOf::turn("loop-1", 0)).unwrap();
    let text = provider::write(Form::OpenAiChat, &then)
        .unwrap()
        .to_string();
    assert!(
        text.contains("Be brief.") && !text.contains("Be long."),
        "{text}"
    );
}

#[test]
fn prompts_of_transcripts_are_left_out_unless_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chat.json");
    let transcript = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Go on."},
        {"role": "assistant", "content": "Yes."},
    ]);
    std::fs::write(&path, transcript.to_string()).unwrap();
    let store = Store::in_memory().unwrap();
    let options = ImportOptions::default();
    let report = import_paths(store.database(), &[path], &options, &mut |_| {}).unwrap();
    let id = report.sessions[0].clone();
    let left_out = |store: &Store, id: &SessionId| {
        let chat = store.session(id).unwrap();
        assert!(!written(&chat, Form::OpenAiChat).contains("Be brief."));
        assert_eq!(
            kinds(&request(&chat, Form::OpenAiChat)),
            [MendingKind::SystemDropped]
        );
        let all = chat.with_policy(Policy::default().system_prompts(SystemPrompts::All));
        assert!(written(&all, Form::OpenAiChat).contains("Be brief."));
        assert!(request(&all, Form::OpenAiChat).mended.is_empty());
    };
    left_out(&store, &id);

    // Nor does an export turn it into a prompt of the agent itself.
    let lines = folder.path().join("chat.jsonl");
    let mut file = std::fs::File::create(&lines).unwrap();
    export(store.database(), &id, None, ExportForm::Lines, &mut file).unwrap();
    let other = Store::in_memory().unwrap();
    import_paths(other.database(), &[lines], &options, &mut |_| {}).unwrap();
    left_out(&other, &id);

    // An agent that continues appends its own prompt.
    let chat = store.session(&id).unwrap();
    chat.append(one_message("system", "Be long.")).unwrap();
    assert!(written(&chat, Form::OpenAiChat).contains("Be long."));
}

#[test]
fn settings_say_which_prompts_go_out() {
    let settings = serde_json::from_str::<Settings>(r#"{"system_prompts": "none"}"#).unwrap();
    let policy = settings.policy().unwrap();
    assert_eq!(policy.system_prompts, SystemPrompts::None);
    let error = serde_json::from_str::<Settings>(r#"{"system_prompts": "some"}"#).unwrap_err();
    assert!(error.to_string().contains("appended, all, none"), "{error}");
}
