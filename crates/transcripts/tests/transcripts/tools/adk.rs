//! Sessions of ADK.

use insta::assert_snapshot;

use serde_json::{Value, json};

use crate::tools::recorder::{Recorder, importer};
use crate::tools::stored::{content_of, import, is_sound, shown, store};

#[test]
fn responses_are_paired_by_name_and_order() {
    let recorded = Recorder::of_fixture("adk", "orchard.json");
    assert_eq!(recorded.skips(), [""; 0]);
    assert_snapshot!(recorded.outline(), @r##"
    session orchard-1
      loop o1 Initial Completed
        0 user Pick apples
        0 assistant Picking. [o2/1 o2/2 o2/3]
        0 toolResult {"error":"no scale"} <o2/3 weigh failed>
        0 toolResult {"apples":3} <o2/1 pick>
        0 toolResult {} <o2/2 pick>
        1 assistant Three apples.
      loop o5 Default after o1:1 Running
        0 user Pears?
        - note event
    "##);
}

#[test]
fn newer_versions_name_their_calls() {
    let recorded = Recorder::of_fixture("adk", "vineyard.json");
    assert_eq!(recorded.skips(), [""; 0]);
    assert_snapshot!(recorded.outline(), @r##"
    session vineyard-1
      loop n1 Initial Completed
        0 user Taste it
        - note event
        0 assistant  [f-1]
        0 toolResult {"result":"dry"} <f-1 sip>
        1 assistant Dry.
    "##);
}

#[test]
fn an_invocation_that_was_taken_back_is_another_path_and_a_summary_a_compaction() {
    let recorded = Recorder::of_fixture("adk", "press.json");
    assert_eq!(recorded.skips(), [""; 0]);
    assert_snapshot!(recorded.outline(), @r##"
    session press-1
      loop p1 Initial Completed
        0 user Press the grapes
        0 assistant Pressed.
      loop p3 Default after p1:0 Completed
        0 user Sell the juice
        0 assistant Sold.
      loop p5 {Branch:{tag:p5}} after p1:0 Completed
        - note event
        0 user Keep the juice
        0 assistant Kept.
      loop p9 Default after p5:0 Completed
        0 user How much?
        0 assistant Nine litres.
      ? compaction in p5@3: summary of 1 keeps p5:0
      ? compaction in p9@2: summary of 2 keeps p9:0
    "##);
}

fn press() -> Value {
    serde_json::from_str(&std::fs::read_to_string("../../tests/fixtures/adk/press.json").unwrap())
        .unwrap()
}

/// Imports the first `count` events and `more`, and returns the context.
fn context_of(count: usize, more: &[Value]) -> (Recorder, Vec<String>) {
    let mut document = press();
    let events = document["events"].as_array_mut().unwrap();
    events.truncate(count);
    events.extend(more.iter().cloned());
    let bytes = document.to_string();
    let store = store();
    import(&store, importer("adk"), "a.json", bytes.as_bytes()).unwrap();
    is_sound(&store, &bytes);
    let recorded = Recorder::of("adk", "a.json", bytes.as_bytes());
    (recorded, shown(&store, "press-1"))
}

#[test]
fn the_context_is_what_rewinds_and_summaries_leave() {
    let until = |count: usize| context_of(count, &[]).1;
    let first = ["Press the grapes", "Pressed."];
    assert_eq!(
        until(4),
        [&first[..], &["Sell the juice", "Sold."]].concat()
    );
    assert_eq!(until(5), first);
    assert_eq!(
        until(7),
        [&first[..], &["Keep the juice", "Kept."]].concat()
    );
    let kept = ["Grapes were pressed.", "Keep the juice", "Kept."];
    assert_eq!(until(8), kept);
    // Each summary stays, and so do the messages between their ranges.
    let both = [
        "Grapes were pressed.",
        "Juice was kept.",
        "How much?",
        "Nine litres.",
    ];
    assert_eq!(until(11), both);
}

fn acts(actions: Value) -> Value {
    json!({"invocation_id": "w1", "author": "user", "id": "q1", "timestamp": 1785578500.0, "actions": actions})
}

#[test]
fn a_rewind_to_nowhere_takes_nothing_back_and_one_to_the_first_all() {
    let rewind = |target: Value| acts(json!({"rewind_before_invocation_id": target}));
    for target in [json!("v9"), json!(""), json!(7), json!(null), json!(["v1"])] {
        let (recorded, context) = context_of(4, &[rewind(target.clone())]);
        assert_eq!((recorded.skips().len(), context.len()), (0, 4), "{target}");
    }
    assert_eq!(context_of(4, &[rewind(json!("v1"))]).1.len(), 0);
    // Reverted messages cannot be the target of another rewind.
    let again = [rewind(json!("v2"))];
    assert_eq!(context_of(7, &again).1.len(), 4);
    let camel = [acts(json!({"rewindBeforeInvocationId": "v2"}))];
    assert_eq!(context_of(4, &camel).1, ["Press the grapes", "Pressed."]);
}

#[test]
fn a_summary_that_cannot_stand_is_told() {
    let summary = |start: Value, end: Value, content: Value| {
        acts(
            json!({"compaction": {"start_timestamp": start, "end_timestamp": end, "compacted_content": content}}),
        )
    };
    let says = json!({"parts": [{"text": "All of it."}]});
    let (first, second, last) = (
        json!(1785578400.25),
        json!(1785578402.0),
        json!(1785578403.0),
    );
    for (odd, reason) in [
        (
            summary(json!(null), last.clone(), says.clone()),
            "a summary without the times",
        ),
        (
            summary(first.clone(), json!("x"), says.clone()),
            "a summary without the times",
        ),
        (
            summary(first.clone(), last.clone(), json!(null)),
            "a summary that says nothing",
        ),
        (
            summary(first.clone(), last.clone(), json!({"parts": []})),
            "a summary that says nothing",
        ),
        (
            summary(second.clone(), last.clone(), says.clone()),
            "a summary that does not stand for all",
        ),
    ] {
        let (recorded, context) = context_of(4, &[odd]);
        assert!(
            recorded.skips()[0].contains(reason),
            "{:?}",
            recorded.skips()
        );
        assert_eq!(context.len(), 4);
    }
    let all = summary(first.clone(), last, says);
    assert_eq!(context_of(4, std::slice::from_ref(&all)).1, ["All of it."]);
    // A summary within the range of another adds nothing.
    let part = summary(first, second, json!({"parts": [{"text": "A part."}]}));
    assert_eq!(
        context_of(4, &[all.clone(), part.clone()]).1,
        ["All of it."]
    );
    // A summary replaces one within its range.
    assert_eq!(context_of(4, &[part.clone(), all]).1, ["All of it."]);
    // A summary that ends between a prompt and its answer.
    assert_eq!(context_of(4, &[part]).1, ["A part.", "Sold."]);
}

#[test]
fn a_session_that_grows_event_by_event_ends_as_the_whole_does() {
    let (grown, document) = (store(), press());
    let count = document["events"].as_array().unwrap().len();
    for end in 1..=count {
        let mut part = document.clone();
        part["events"].as_array_mut().unwrap().truncate(end);
        let bytes = part.to_string();
        import(&grown, importer("adk"), "a.json", bytes.as_bytes()).unwrap();
        let whole = store();
        import(&whole, importer("adk"), "a.json", bytes.as_bytes()).unwrap();
        assert_eq!(content_of(&grown), content_of(&whole), "{end}");
        assert_eq!(shown(&grown, "press-1"), shown(&whole, "press-1"), "{end}");
        is_sound(&grown, &bytes);
    }
}
