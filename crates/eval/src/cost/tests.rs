use loopstore::model::{AgentMessage, Message};
use loopstore::{HeuristicTokenCounter, Json, Store};

use super::meter::Meter;
use super::reads::FileReads;
use super::*;

fn message(text: &str) -> AgentMessage {
    Message::user(text.repeat(40)).into()
}

#[test]
fn a_common_beginning_is_read_from_the_cache() {
    let (prices, counter) = (TokenPrices::default(), HeuristicTokenCounter);
    let mut meter = Meter::new("any", &prices, &counter);
    let all = ["one ", "two ", "three "].map(message);
    for one in &all {
        meter.appended(one, false);
    }
    meter.call(&all[..2], false);
    meter.call(&all, false);
    // The second of them was replaced: everything after it is written again.
    let changed = [message("one "), message("new "), message("three ")];
    meter.call(&changed, true);
    let tokens =
        |one: &AgentMessage| loopstore::tokens::TokenCounter::message_tokens(&counter, one);
    let [one, two, three] = [0, 1, 2].map(|at| tokens(&all[at]));
    let result = meter.result();
    assert_eq!(result.cached, one + two + one);
    assert_eq!(
        result.written,
        one + two + three + tokens(&changed[1]) + three
    );
    assert_eq!((result.calls, result.compactions), (3, 1));
    assert!((result.broken - 1.15 * (tokens(&changed[1]) + three) as f64).abs() < 1e-6);
}

/// Returns a read of a file and its result.
fn read(id: &str, path: &str) -> [AgentMessage; 2] {
    let call = Message::assistant("").with_tool_call(id, "Read", file(path));
    [call.into(), Message::tool_result(id, "fn a() {}").into()]
}

fn file(path: &str) -> Json {
    Json::parse(&format!(r#"{{"file_path": "{path}"}}"#)).unwrap()
}

#[test]
fn a_hidden_file_is_read_again_once_and_within_five_turns() {
    let counter = HeuristicTokenCounter;
    let note = |reads: &mut FileReads, messages: &[AgentMessage], turn| {
        messages
            .iter()
            .map(|one| reads.note(one, turn, &counter).len())
            .sum::<usize>()
    };
    for (turn, times) in [(3, 1), (7, 1), (8, 0)] {
        let mut reads = FileReads::default();
        let (a, b) = (read("1", "/a.rs"), read("2", "/b.rs"));
        assert_eq!(note(&mut reads, &a, 0), 0);
        assert_eq!(note(&mut reads, &b, 1), 0);
        // The context still shows what was read of the second.
        reads.compacted(&b, 3);
        assert_eq!(note(&mut reads, &read("3", "/a.rs"), turn), times);
        assert_eq!(note(&mut reads, &read("4", "/b.rs"), turn), 0);
        assert_eq!(note(&mut reads, &read("5", "/a.rs"), turn), 0);
    }
}

/// A session that reads a file, works for a while, and changes the file.
fn session(store: &Store) -> SessionId {
    let chat = store.session("work").unwrap();
    for step in 0..60 {
        let id = format!("c{step}");
        let prompt = Message::user(format!("Do step {step}."));
        let call = Message::assistant("I look.").with_tool_call(&id, "Read", file("/a.rs"));
        let result = Message::tool_result(&id, format!("step {step} {}", "line ".repeat(200)));
        let done = Message::assistant(format!("Step {step} is done."));
        chat.append([prompt, call, result, done]).unwrap();
    }
    chat.id().clone()
}

#[test]
fn every_policy_answers_the_same_calls_and_only_shortening_has_a_bill() {
    let store = Store::in_memory().unwrap();
    let sessions = [session(&store)];
    let database = store.database();
    let report = cost(database, &sessions, None, &TokenPrices::default()).unwrap();
    assert_eq!((report.sessions, report.skipped), (1, 0));
    assert!(report.recorded.is_empty());
    let names: Vec<&str> = report.policies();
    assert_eq!(
        names,
        ["never", "headroom", "target", "clear", "clear-first"]
    );
    let [never, others @ ..] = &report.results[..] else {
        panic!("no results");
    };
    assert_eq!((never.bill(), never.compactions), (0.0, 0));
    for one in others {
        assert_eq!(
            (one.calls, one.output),
            (never.calls, never.output),
            "{one:?}"
        );
        assert!(one.compactions > 0 && one.broken > 0.0, "{one:?}");
        assert!(one.cached < never.cached && one.own == 0.0, "{one:?}");
    }
    let again = cost(database, &sessions, None, &TokenPrices::default()).unwrap();
    assert_eq!(again, report, "the measure is deterministic");
}

#[test]
fn a_short_session_is_skipped_and_counted() {
    let store = Store::in_memory().unwrap();
    let chat = store.session("short").unwrap();
    chat.append([Message::user("Hi."), Message::assistant("Hello.")])
        .unwrap();
    let sessions = [chat.id().clone()];
    let report = cost(
        store.database(),
        &sessions,
        Some(9),
        &TokenPrices::default(),
    )
    .unwrap();
    assert_eq!((report.sessions, report.skipped), (0, 1));
}
