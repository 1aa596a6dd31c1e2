//! The spans and events of sessions.

use std::collections::{BTreeMap, BTreeSet};

use loopstore::compact::FlipRequest;
use loopstore::*;
use loopstore_export::{OtlpContent, OtlpGap};
use loopstore_transcripts::{ImportOptions, import_paths};
use serde_json::{Value, json};

use crate::stage::{attribute, json_attribute, traces, traces_of};
use crate::support::histories::{History, Random, answer, loop_id, result, user};

/// Returns an answer of a model, with usage and a time.
fn of_model(message: Message, at: i64) -> Message {
    let Message::Assistant(mut answer) = message else {
        panic!("no answer");
    };
    answer.model = Some("claude-9".into());
    answer.provider = Some("anthropic".into());
    answer.stop_reason = Some("toolUse".into());
    answer.timestamp = Some(at.into());
    let usage = r#"{"input":10,"output":7,"cache_read":100,"cache_write":5}"#;
    answer.usage = Some(serde_json::from_str(usage).unwrap());
    Message::Assistant(answer)
}

fn at(message: Message, time: i64) -> Message {
    let mut message = message;
    match &mut message {
        Message::User(one) => one.timestamp = Some(time.into()),
        Message::Assistant(one) => one.timestamp = Some(time.into()),
        Message::ToolResult(one) => one.timestamp = Some(time.into()),
    }
    message
}

const START: i64 = 1_760_000_000_000;

#[test]
fn a_turn_is_an_agent_a_call_and_its_tools() {
    let store = Store::in_memory().unwrap();
    let chat = store.session("weather").unwrap();
    let call = Message::assistant("I look.")
        .with_thinking("Clouds?", None)
        .with_tool_call("c1", "forecast", json!({"days": 3}))
        .with_tool_call("c2", "radar", json!({}));
    let failed = at(
        Message::tool_result("c2", "no radar").with_error(),
        START + 2_500,
    );
    chat.append([
        at(
            Message::user("Will it rain?").with_image("aGVsbG8=", "image/png"),
            START,
        ),
        of_model(call, START + 1_000),
        at(Message::tool_result("c1", "Rain."), START + 2_000),
        failed,
        of_model(Message::assistant("It will."), START + 4_000),
    ])
    .unwrap();
    let traces = traces(store.database(), chat.id(), OtlpContent::Included);

    let [agent] = traces.of("invoke_agent")[..] else {
        panic!("{}", traces.text);
    };
    let chats = traces.of("chat");
    let tools = traces.of("execute_tool");
    assert_eq!((chats.len(), tools.len()), (2, 2));
    for span in chats.iter().chain(&tools) {
        assert_eq!(span["traceId"], agent["traceId"]);
        assert_eq!(span["parentSpanId"], agent["spanId"]);
        assert_eq!(
            attribute(span, "gen_ai.conversation.id").unwrap(),
            "weather"
        );
    }
    let first = chats[0];
    assert_eq!(first["name"], "chat claude-9");
    assert_eq!(first["kind"], 3);
    assert_eq!(first["startTimeUnixNano"], "1760000000000000000");
    assert_eq!(first["endTimeUnixNano"], "1760000001000000000");
    for (key, value) in [
        ("gen_ai.provider.name", "anthropic"),
        ("gen_ai.response.model", "claude-9"),
        // The cached tokens are part of the input.
        ("gen_ai.usage.input_tokens", "115"),
        ("gen_ai.usage.output_tokens", "7"),
        ("gen_ai.usage.cache_read.input_tokens", "100"),
        ("gen_ai.usage.cache_write.input_tokens", "5"),
    ] {
        assert_eq!(attribute(first, key).as_deref(), Some(value), "{key}");
    }
    assert!(
        first["attributes"]
            .to_string()
            .contains(r#""values":[{"stringValue":"tool_call"}]"#)
    );
    assert_eq!(
        json_attribute(first, "gen_ai.input.messages"),
        json!([{"role": "user", "parts": [
            {"type": "text", "content": "Will it rain?"},
            {"type": "blob", "mime_type": "image/png", "modality": "image", "content": "aGVsbG8="},
        ]}])
    );
    assert_eq!(
        json_attribute(first, "gen_ai.output.messages"),
        json!([{"role": "assistant", "parts": [
            {"type": "reasoning", "content": "Clouds?"},
            {"type": "text", "content": "I look."},
            {"type": "tool_call", "id": "c1", "name": "forecast", "arguments": {"days": 3}},
            {"type": "tool_call", "id": "c2", "name": "radar", "arguments": {}},
        ]}])
    );
    // The second call has only what came since the first.
    assert_eq!(
        json_attribute(chats[1], "gen_ai.input.messages"),
        json!([
            {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "Rain."}]},
            {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c2", "response": "no radar"}]},
        ])
    );
    assert_eq!(tools[0]["name"], "execute_tool forecast");
    assert_eq!(tools[0]["kind"], 1);
    assert_eq!(tools[0]["startTimeUnixNano"], "1760000001000000000");
    assert_eq!(tools[0]["endTimeUnixNano"], "1760000002000000000");
    assert_eq!(attribute(tools[0], "gen_ai.tool.call.id").unwrap(), "c1");
    assert_eq!(
        attribute(tools[0], "gen_ai.tool.call.arguments").unwrap(),
        r#"{"days":3}"#
    );
    assert_eq!(
        attribute(tools[0], "gen_ai.tool.call.result").unwrap(),
        "Rain."
    );
    assert_eq!(tools[0].get("status"), None);
    assert_eq!(tools[1]["status"], json!({"code": 2}));
    assert_eq!(attribute(tools[1], "error.type").unwrap(), "tool_error");
    assert_eq!(
        attribute(agent, "gen_ai.usage.input_tokens").unwrap(),
        "230"
    );
    assert_eq!(traces.report.gaps, BTreeMap::new());
}

#[test]
fn what_is_not_recorded_is_counted() {
    let store = SqliteStore::in_memory().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("chat.json");
    // Neither times, models nor usage; one call without a result, one result without a call.
    let chat = json!([
        {"role": "user", "content": "Will it rain?"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c9", "content": "Rain."},
        {"role": "assistant", "content": "It will."},
        {"role": "user", "content": "And then?"},
    ]);
    std::fs::write(&file, chat.to_string()).unwrap();
    let report = import_paths(&store, &[file], &ImportOptions::default(), &mut |_| {}).unwrap();
    let traces = traces(&store, &report.sessions[0], OtlpContent::Included);
    let gaps = &traces.report.gaps;
    for (gap, count) in [
        (OtlpGap::TimeMissing, 5),
        (OtlpGap::ProviderMissing, 2),
        (OtlpGap::ModelMissing, 2),
        (OtlpGap::UsageMissing, 2),
        (OtlpGap::ResultMissing, 1),
        (OtlpGap::CallMissing, 1),
        (OtlpGap::InputUnanswered, 1),
    ] {
        assert_eq!(gaps.get(&gap), Some(&count), "{gap:?} in {gaps:?}");
    }
    // The words of the prompt without an answer are not lost, and the span says what is missing.
    let [event] = traces.events("loopstore.unanswered_input")[..] else {
        panic!("{}", traces.text);
    };
    assert!(
        attribute(event, "gen_ai.input.messages")
            .unwrap()
            .contains("And then?")
    );
    let agents = traces.of("invoke_agent");
    let missing: u64 = agents
        .iter()
        .filter_map(|agent| attribute(agent, "loopstore.gap.time_missing"))
        .map(|count| count.parse::<u64>().unwrap())
        .sum();
    assert_eq!(missing, 5);
    let unanswered = traces.of("execute_tool");
    assert!(unanswered.iter().any(|span| {
        attribute(span, "loopstore.tool.result_missing").as_deref() == Some("true")
            && span["startTimeUnixNano"] == span["endTimeUnixNano"]
    }));
}

#[test]
fn compactions_edits_undos_and_redos_are_events() {
    let store = SqliteStore::in_memory().unwrap();
    let mut history = History::new(&store, "s");
    for turn in 0..6 {
        history.append(
            0,
            vec![
                user(&format!("question {turn}"), turn),
                answer(&"plain words ".repeat(40), &["c"], turn),
                result("c", vec![Content::text("long ".repeat(50))], turn),
            ],
        );
    }
    assert_eq!(history.compact(0, (1, 1), true)["outcome"], "committed");
    history.append(0, vec![user("after", 6), answer("compacted", &[], 6)]);
    undo(&store, &history.session, &FlipRequest::default()).unwrap();
    history.append(0, vec![user("again", 7), answer("whole", &[], 7)]);
    redo(&store, &history.session, &FlipRequest::default()).unwrap();
    let target = EditTarget::Message(loop_id(0), 7, history.row(0).totals.next_seq - 2);
    edit(
        &store,
        &history.session,
        &EditRequest::replace(target, "something else"),
    )
    .unwrap();
    history.append(0, vec![user("last", 8), answer("compacted again", &[], 8)]);

    let traces = traces(&store, &history.session, OtlpContent::Included);
    let [event] = traces.events("loopstore.compaction")[..] else {
        panic!("{}", traces.text);
    };
    assert_eq!(
        attribute(event, "loopstore.run.outcome").unwrap(),
        "committed"
    );
    let number = |key| attribute(event, key).unwrap().parse::<u64>().unwrap();
    assert!(number("loopstore.run.tokens_after") < number("loopstore.run.tokens_before"));
    let shown = json_attribute(event, "loopstore.run.messages");
    assert_eq!(shown[0]["role"], "user");
    assert_eq!(traces.events("loopstore.undo").len(), 1);
    assert_eq!(traces.events("loopstore.redo").len(), 1);
    assert_eq!(traces.events("loopstore.edits").len(), 1);
    let [edit] = traces.events("loopstore.edit")[..] else {
        panic!("{}", traces.text);
    };
    assert_eq!(
        attribute(edit, "loopstore.edit.action").unwrap(),
        "replaced"
    );
    assert_eq!(
        attribute(edit, "loopstore.edit.text").unwrap(),
        "something else"
    );
    // The calls that saw a compacted context are marked, and only those.
    let marked = traces.of("chat").into_iter().filter_map(|span| {
        attribute(span, "gen_ai.conversation.compacted")?;
        attribute(span, "loopstore.turn")
    });
    assert_eq!(marked.collect::<Vec<_>>(), ["6", "8"]);
    assert!(!traces.text.contains(r#""boolValue":false"#));
}

#[test]
fn a_sub_agent_is_in_the_trace_of_its_tool_and_a_loop_links_to_its_parent() {
    let store = Store::in_memory().unwrap();
    let chat = store.session("main").unwrap();
    chat.append([
        Message::user("Split it."),
        Message::assistant("").with_tool_call("task-1", "agent", json!({})),
    ])
    .unwrap();
    let child = chat.child("task-1", "helper").unwrap();
    child
        .append([
            Message::user("Your part."),
            Message::assistant("").with_tool_call("task-2", "agent", json!({})),
        ])
        .unwrap();
    let grandchild = child.child("task-2", "helper of helper").unwrap();
    grandchild
        .append([Message::user("A detail."), Message::assistant("Done.")])
        .unwrap();
    chat.append([
        Message::tool_result("task-1", "Done."),
        Message::assistant("All done."),
    ])
    .unwrap();
    let next = chat.append([Message::user("And now?"), Message::assistant("Rest.")]);
    next.unwrap();
    let of = |id: &SessionId| traces(store.database(), id, OtlpContent::Included);
    let (parent, inner, innermost) = (of(chat.id()), of(child.id()), of(grandchild.id()));
    let tool = parent.of("execute_tool")[0];
    let helper = inner.of("invoke_agent")[0];
    assert_eq!(helper["traceId"], tool["traceId"]);
    assert_eq!(helper["parentSpanId"], tool["spanId"]);
    let helper_tool = inner.of("execute_tool")[0];
    let detail = innermost.of("invoke_agent")[0];
    assert_eq!(detail["traceId"], tool["traceId"]);
    assert_eq!(detail["parentSpanId"], helper_tool["spanId"]);
    let [first, second] = parent.of("invoke_agent")[..] else {
        panic!("{}", parent.text);
    };
    assert_ne!(first["traceId"], second["traceId"]);
    assert_eq!(second["links"][0]["traceId"], first["traceId"]);
    assert_eq!(second["links"][0]["spanId"], first["spanId"]);
}

#[test]
fn a_result_in_the_next_loop_ends_the_span_of_its_call() {
    let store = SqliteStore::in_memory().unwrap();
    let mut history = History::new(&store, "s");
    history.append(0, vec![user("start", 0), answer("", &["c1"], 0)]);
    history.end_loop(0);
    history.start_loop(Some(0), None);
    history.append(
        1,
        vec![
            result("c1", vec![Content::text("late")], 0),
            answer("done", &[], 0),
        ],
    );
    let traces = traces(&store, &history.session, OtlpContent::Included);
    let [tool] = traces.of("execute_tool")[..] else {
        panic!("{}", traces.text);
    };
    assert_eq!(attribute(tool, "gen_ai.tool.call.result").unwrap(), "late");
    assert_eq!(
        attribute(tool, "loopstore.loop.id").unwrap(),
        loop_id(0).as_str()
    );
    assert_eq!(traces.report.gaps.get(&OtlpGap::ResultMissing), None);
    // Of the chain of the first loop, the call has no result.
    let content = OtlpContent::Included;
    let cut = traces_of(&store, &history.session, Some(&loop_id(0)), content);
    assert_eq!(cut.report.gaps[&OtlpGap::ResultMissing], 1);
    assert!(!cut.text.contains("late"));
}

#[test]
fn ids_are_unique_and_two_exports_are_equal() {
    for seed in 0..6 {
        let store = SqliteStore::in_memory().unwrap();
        let mut history = History::new(&store, "s");
        let mut random = Random::new(seed);
        (0..40).for_each(|_| history.step(&mut random));
        let content = [OtlpContent::Included, OtlpContent::Omitted][seed as usize % 2];
        let one = traces(&store, &history.session, content);
        assert_eq!(one.text, traces(&store, &history.session, content).text);
        let ids: BTreeSet<String> = one
            .spans
            .iter()
            .map(|span| hex(span, "spanId", 16))
            .collect();
        assert_eq!(ids.len(), one.spans.len(), "seed {seed}");
        for span in &one.spans {
            hex(span, "traceId", 32);
            if span.get("parentSpanId").is_some() {
                assert!(ids.contains(&hex(span, "parentSpanId", 16)));
            }
            let time = |key: &str| span[key].as_str().unwrap().parse::<u64>().unwrap();
            assert!(time("startTimeUnixNano") <= time("endTimeUnixNano"));
        }
    }
}

fn hex(span: &Value, key: &str, length: usize) -> String {
    let id = span[key].as_str().unwrap();
    assert!(
        id.len() == length && id.chars().all(|c| c.is_ascii_hexdigit()),
        "{id}"
    );
    id.to_owned()
}

#[test]
fn long_sessions_are_lines_that_a_collector_reads() {
    let store = Store::in_memory().unwrap();
    let chat = store.session("long").unwrap();
    for turn in 0..40 {
        let id = format!("c{turn}");
        chat.append([
            Message::user(format!("Question {turn}")),
            Message::assistant("").with_tool_call(&id, "read", json!({})),
            Message::tool_result(&id, "0123456789".repeat(5_000)),
            Message::assistant("Read."),
        ])
        .unwrap();
    }
    let small = traces(store.database(), chat.id(), OtlpContent::Included);
    assert!(small.text.lines().count() > 4);
    assert!(small.text.lines().all(|line| line.len() <= 1 << 20));
    // A single huge text is whole, in a line of its own span.
    let huge = "ab\"\n\u{1f680}".repeat(1 << 20);
    chat.append([Message::user(&huge), Message::assistant("Long.")])
        .unwrap();
    let traces = traces(store.database(), chat.id(), OtlpContent::Included);
    let chats = traces.of("chat");
    let messages = json_attribute(chats[chats.len() - 1], "gen_ai.input.messages");
    assert_eq!(messages[0]["parts"][0]["content"], huge);
}
