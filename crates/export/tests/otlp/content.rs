//! Without content, no text of a session is in its traces.

use loopstore::*;
use loopstore_export::OtlpContent;
use serde_json::json;

use crate::stage::{attribute, traces};
use crate::support::removal::{self, CORE, session, token};

#[test]
fn no_text_of_any_place_is_in_an_export_without_content() {
    let store = SqliteStore::in_memory().unwrap();
    removal::tell(&store, "s", &token());
    let with = traces(&store, &session("s"), OtlpContent::Included);
    assert!(with.text.contains(CORE));
    let without = traces(&store, &session("s"), OtlpContent::Omitted);
    let text = without.text.to_ascii_lowercase();
    assert!(!text.contains(CORE), "{}", without.text);
    // Ids, times, models and usage are still there.
    assert_eq!(without.spans.len(), with.spans.len());
    for (one, other) in without.spans.iter().zip(&with.spans) {
        for key in ["traceId", "spanId", "startTimeUnixNano", "endTimeUnixNano"] {
            assert_eq!(one[key], other[key]);
        }
    }
    assert!(!without.events("loopstore.compaction").is_empty());
}

#[test]
fn every_attribute_without_content_is_known() {
    const ALLOWED: [&str; 9] = [
        "gen_ai.operation.name",
        "gen_ai.provider.name",
        "gen_ai.conversation.",
        "gen_ai.agent.name",
        "gen_ai.response.",
        "gen_ai.usage.",
        "gen_ai.tool.name",
        "gen_ai.tool.call.id",
        "error.type",
    ];
    let store = Store::in_memory().unwrap();
    let chat = store.session("s").unwrap();
    let Message::Assistant(mut failed) = Message::assistant("words-of-answer") else {
        unreachable!();
    };
    failed.stop_reason = Some("gave up: words-of-reason".into());
    failed.error_message = Some("words-of-error".into());
    let system = AgentMessage::extension("system", Json::string("words-of-system"));
    let note = AgentMessage::extension("note", Json::string("words-of-note"));
    chat.append([
        system,
        note,
        Message::user("words-of-prompt")
            .with_image("d29yZHM=", "image/png")
            .into(),
        Message::assistant("words-of-text")
            .with_thinking("words-of-thinking", Some("words-of-signature"))
            .with_tool_call("c1", "tool", json!({"words-of-key": "words-of-value"}))
            .into(),
        Message::tool_result("c1", "words-of-result").into(),
        Message::Assistant(failed).into(),
    ])
    .unwrap();
    chat.edit(&EditRequest::replace(
        EditTarget::Message(chat.context().unwrap().leaf, 0, 2),
        "words-of-edit",
    ))
    .unwrap();
    let traces = traces(store.database(), chat.id(), OtlpContent::Omitted);
    assert!(!traces.text.contains("words-of"), "{}", traces.text);
    assert!(!traces.text.contains("d29yZHM"));
    let events = traces
        .spans
        .iter()
        .flat_map(|span| span["events"].as_array());
    for one in traces.spans.iter().chain(events.flatten()) {
        for attribute in one["attributes"].as_array().unwrap() {
            let key = attribute["key"].as_str().unwrap();
            let is_own = key.starts_with("loopstore.");
            assert!(
                is_own || ALLOWED.iter().any(|known| key.starts_with(known)),
                "{key}"
            );
        }
    }
    let failed = traces.of("chat")[1];
    assert_eq!(attribute(failed, "error.type").unwrap(), "_OTHER");
    assert_eq!(failed["status"], json!({"code": 2}));
    assert!(
        failed["attributes"]
            .to_string()
            .contains(r#""values":[{"stringValue":"other"}]"#)
    );
}
