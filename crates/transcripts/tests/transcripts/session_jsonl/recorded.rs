//! The rows of a recorder are exported too: notes, started calls, history, manifests, sub-agents.

use loopstore::*;
use loopstore_recorder::event::*;
use loopstore_recorder::{AgentEvent, RecorderOptions, SessionRecorder};

use crate::session_jsonl::stage::{exported, imported, rows, sound};

fn id(name: &str) -> LoopId {
    LoopId::new(name).unwrap()
}

fn answer(calls: &[&str]) -> AgentMessage {
    let args = || Json::parse("{\"euro\":12}").unwrap();
    let calls = calls
        .iter()
        .map(|call| Content::tool_call(*call, "pay", args()));
    Message::Assistant(AssistantMessage {
        content: std::iter::once(Content::text("I pay."))
            .chain(calls)
            .collect(),
        ..AssistantMessage::default()
    })
    .into()
}

fn turn(name: &str, number: u32, call: &str) -> Vec<AgentEvent> {
    let args = Json::parse("{\"euro\":12}").unwrap();
    let said = [Message::user("pay").into(), answer(&[call])];
    let mut events = vec![AgentEvent::TurnStart(TurnStart::new(id(name), number))];
    for message in said {
        let begins = MessageStart::new(id(name), message.clone());
        events.push(AgentEvent::MessageStart(begins));
        events.push(AgentEvent::MessageEnd(MessageEnd::new(id(name), message)));
    }
    let start = ToolExecutionStart::new(id(name), call, "pay", args);
    events.push(AgentEvent::ToolExecutionStart(start));
    events
}

#[test]
fn a_loop_that_is_being_recorded_comes_along() {
    let store = SqliteStore::in_memory().unwrap();
    let session = SessionId::new("s").unwrap();
    let mut recorder = SessionRecorder::new(&store, RecorderOptions::default());
    let start = AgentStart::new(session.clone(), id("a"));
    recorder.record(AgentEvent::AgentStart(start)).unwrap();
    for event in turn("a", 0, "c1") {
        recorder.record(event).unwrap();
    }
    let other = SqliteStore::in_memory().unwrap();
    let step = |what: &str| {
        let text = exported(&store, &session);
        imported(&other, &text).unwrap();
        assert!(exported(&other, &session) == text, "{what}");
        assert_eq!(rows(&other), rows(&store), "{what}");
        sound(&other);
        text
    };
    let started = step("a started call");
    assert!(started.contains(r#""record":"call""#), "{started}");
    recorder
        .record(AgentEvent::TurnEnd(TurnEnd::new(id("a"))))
        .unwrap();
    let noted = step("notes");
    assert!(noted.contains(r#""record":"note""#), "{noted}");
    let manifest = BuildOptions {
        record: true,
        ..BuildOptions::default()
    };
    build_context_from_session(&store, &session, &manifest).unwrap();
    step("a manifest");
    recorder
        .record(AgentEvent::AgentEnd(AgentEnd::new(id("a"))))
        .unwrap();
    let ended = step("the end of the loop");
    assert!(!ended.contains(r#""record":"note""#), "{ended}");
    // An export from before the end of the loop does not make the loop run again.
    imported(&other, &noted).unwrap();
    imported(&other, &started).unwrap();
    assert!(exported(&other, &session) == ended);
}
