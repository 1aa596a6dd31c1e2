//! The examples run without an error; each checks its own result.

#[cfg(feature = "tokio")]
#[path = "../../examples/async_agent.rs"]
mod async_agent;
#[path = "../../examples/chat.rs"]
#[allow(dead_code)]
mod chat;
#[path = "../../examples/compact_and_look.rs"]
mod compact_and_look;
#[path = "../../examples/custom_strategy.rs"]
mod custom_strategy;
#[path = "../../examples/import_then_replay.rs"]
mod import_then_replay;
#[path = "../../examples/own_summariser.rs"]
mod own_summariser;
#[path = "../../examples/record_and_resume.rs"]
mod record_and_resume;
#[path = "../../examples/recorded_agent.rs"]
mod recorded_agent;
#[path = "../../examples/sql_only.rs"]
mod sql_only;

#[test]
fn recorded_agent_runs_to_its_end() {
    recorded_agent::main().unwrap();
}

#[cfg(feature = "tokio")]
#[test]
fn async_agent_runs_to_its_end() {
    async_agent::main().unwrap();
}

#[test]
fn compact_and_look_runs_to_its_end() {
    compact_and_look::main().unwrap();
}

#[test]
fn custom_strategy_runs_to_its_end() {
    custom_strategy::main().unwrap();
}

#[test]
fn import_then_replay_runs_to_its_end() {
    import_then_replay::main().unwrap();
}

#[test]
fn own_summariser_runs_to_its_end() {
    own_summariser::main().unwrap();
}

#[test]
fn record_and_resume_runs_to_its_end() {
    record_and_resume::main().unwrap();
}

#[test]
fn sql_only_runs_to_its_end() {
    sql_only::main().unwrap();
}

/// The environment variable that names the database of a chat.
const CHAT: &str = "LOOPSTORE_CHAT";

/// The chat of the example, in the process that the next test starts.
#[test]
fn a_chat_on_the_database_that_is_named() {
    if let Ok(file) = std::env::var(CHAT) {
        chat::talk(&file).unwrap();
    }
}

/// Runs the chat example on a database.
fn start_chat(file: &std::path::Path, prompts: &str) -> std::process::Child {
    use std::io::Write as _;
    let mut child = crate::support::process::test("examples::a_chat_on_the_database_that_is_named")
        .env(CHAT, file)
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(prompts.as_bytes())
        .unwrap();
    child
}

#[test]
fn a_chat_that_is_killed_while_its_tool_runs_goes_on_and_stays_within_its_window() {
    use loopstore::{AgentMessage, Policy, Role, Store};
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("chat.db");
    let prompts: String = (0..40)
        .map(|city| format!("Rain in city {city}?\n"))
        .collect();
    let mut child = start_chat(&file, &prompts);
    // Until a call has started and has no result yet.
    let request = loopstore_recorder::RecoverRequest {
        dry_run: true,
        all: true,
        ..Default::default()
    };
    let mut has_started = false;
    while child.try_wait().unwrap().is_none() && !has_started {
        let Ok(store) = Store::open(&file) else {
            continue;
        };
        has_started = !loopstore_recorder::recover(store.database(), &request)
            .unwrap()
            .calls
            .is_empty();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let store = Store::open(&file).unwrap();
    let session = store.session("weather").unwrap();
    assert!(has_started, "it was killed while the tool ran");
    let prompts_before = store.search("city").unwrap().hits.len();
    assert!(prompts_before > 0);
    drop(store);
    assert!(start_chat(&file, &prompts).wait().unwrap().success());
    let ready = session.with_policy(Policy::new(8_000)).prepare().unwrap();
    assert!(ready.context.tokens <= 8_000 && ready.context.faults.is_empty());
    assert_eq!(
        ready.messages().last().map(AgentMessage::role),
        Some(Role::Assistant)
    );
    let store = loopstore::SqliteStore::open(&file).unwrap();
    assert!(
        loopstore_verify::verify(&store)
            .unwrap()
            .problems
            .is_empty()
    );
}
