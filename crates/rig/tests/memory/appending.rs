//! An append takes effect completely and once.

use std::time::{Duration, Instant};

use loopstore::{
    EntryQuery, Policy, Store, Summarizer, SummarizerError, SummaryAnswer, SummaryRequest,
};
use loopstore_rig::{Error, LoopstoreMemory};
use rig_core::memory::ConversationMemory;
use rig_core::message::Message;

use crate::support::{id, memory, source, turn, turn_with_tool};

#[tokio::test]
async fn a_turn_is_stored_as_anything_but_a_loop_with_its_turns() {
    let memory = memory();
    memory.append(&id("c"), turn_with_tool()).await.unwrap();
    let session = memory.session(&id("c")).unwrap();
    let entries = session.entries(&EntryQuery::new()).unwrap();
    let places: Vec<_> = entries
        .iter()
        .map(|entry| (entry.loop_id.as_str(), entry.turn))
        .collect();
    assert_eq!(
        places,
        [
            ("loop-1", Some(0)),
            ("loop-1", Some(0)),
            ("loop-1", Some(0)),
            ("loop-1", Some(1))
        ]
    );
    assert_eq!(session.context().unwrap().faults, []);
    // One append under one key.
    assert_eq!(
        session
            .append_keys(&loopstore::KeyQuery::new())
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_that_failed_and_comes_again_is_there_twice() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.db");
    let memory = LoopstoreMemory::open(&path).unwrap();
    memory.append(&id("c"), turn(0)).await.unwrap();
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = memory.append(&id("c"), turn(1)).await.unwrap_err();
    assert!(
        matches!(source(&error), Error::Store(loopstore::Error::Busy)),
        "{error}"
    );
    other.execute_batch("COMMIT").unwrap();
    for _ in 0..2 {
        memory.append(&id("c"), turn(1)).await.unwrap();
    }
    // The second append is another one: the first had been acknowledged.
    assert_eq!(memory.load(&id("c")).await.unwrap().len(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_that_was_dropped_and_comes_again_is_there_twice_or_in_parts() {
    let memory = memory();
    for number in 0..60 {
        let (wait, conversation) = (
            Duration::from_micros(number * 15),
            id(&format!("c{number}")),
        );
        let appended =
            tokio::time::timeout(wait, memory.append(&conversation, turn_with_tool())).await;
        if appended.is_err() {
            let found = memory.load(&conversation).await.unwrap().len();
            assert!([0, 4].contains(&found), "{found} messages");
            memory
                .append(&conversation, turn_with_tool())
                .await
                .unwrap();
        }
        assert_eq!(memory.load(&conversation).await.unwrap(), turn_with_tool());
    }
}

#[tokio::test]
async fn after_a_restart_a_named_append_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.db");
    for is_again in [false, true] {
        let memory = LoopstoreMemory::open(&path).unwrap();
        let done = memory
            .append_once(&id("c"), "request 17", turn(0))
            .await
            .unwrap();
        assert_eq!(done.duplicate, is_again);
        assert_eq!(memory.load(&id("c")).await.unwrap(), turn(0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_agents_on_one_conversation_tear_each_others_turns() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.db");
    let memories = [
        LoopstoreMemory::open(&path).unwrap(),
        LoopstoreMemory::open(&path).unwrap(),
    ];
    let agents = memories
        .clone()
        .into_iter()
        .enumerate()
        .map(|(agent, memory)| {
            tokio::spawn(async move {
                for number in 0..20 {
                    let name = format!("{agent}/{number}");
                    let said = ["a", "b", "c"].map(|part| Message::user(format!("{name}{part}")));
                    memory.append(&id("c"), said.to_vec()).await.unwrap();
                    memory.load(&id("c")).await.unwrap();
                }
            })
        });
    for agent in agents.collect::<Vec<_>>() {
        agent.await.unwrap();
    }
    let all = memories[0].load(&id("c")).await.unwrap();
    assert_eq!(all.len(), 120);
    for turn in all.chunks(3) {
        let said: Vec<String> = turn.iter().filter_map(Message::rag_text).collect();
        let name = said[0].trim_end_matches('a');
        assert_eq!(said, ["a", "b", "c"].map(|part| format!("{name}{part}")));
    }
    assert_eq!(memories[1].load(&id("c")).await.unwrap(), all);
}

#[tokio::test]
async fn a_load_under_a_policy_is_larger_than_the_window() {
    let policy = Policy::new(3_000).max_summary_tokens(500);
    let memory = memory().with_policy(policy);
    let said = crate::support::fill(&memory, "c", 60).await;
    let shown = memory.load(&id("c")).await.unwrap();
    assert!(
        shown.len() < said.len() / 2,
        "{} of {}",
        shown.len(),
        said.len()
    );
    let session = memory.session(&id("c")).unwrap();
    assert!(session.context().unwrap().tokens < 3_000);
    // The context begins with a summary and ends with the original messages.
    assert!(
        shown[0].rag_text().unwrap().contains("## Task"),
        "{:?}",
        shown[0]
    );
    assert_eq!(shown.last(), said.last());
    assert_eq!(
        memory.clone().originals().load(&id("c")).await.unwrap(),
        said
    );
    session.undo().unwrap();
    let plain = LoopstoreMemory::new(session.store().clone());
    assert_eq!(plain.load(&id("c")).await.unwrap(), said);
}

#[tokio::test]
async fn a_window_that_nothing_fits_into_is_told_as_a_damaged_store() {
    let memory = LoopstoreMemory::new(Store::in_memory().unwrap()).with_policy(Policy::new(10));
    crate::support::fill(&memory, "c", 1).await;
    let error = memory.load(&id("c")).await.unwrap_err();
    assert!(
        matches!(&error, rig_core::memory::MemoryError::Policy(why) if why.contains("10 fit")),
        "{error}"
    );
}

/// A model that never answers.
struct Silent;

impl Summarizer for Silent {
    fn name(&self) -> &str {
        "silent"
    }

    fn summarize(&self, request: &SummaryRequest) -> Result<SummaryAnswer, SummarizerError> {
        while !request.cancel.is_cancelled() && Instant::now() < request.deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(SummarizerError::Cancelled)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_that_was_dropped_compacts_all_the_same() {
    let plain = memory();
    let said = crate::support::fill(&plain, "c", 60).await;
    let policy = Policy::new(3_000)
        .max_summary_tokens(500)
        .summarizer(Silent);
    let store = plain.session(&id("c")).unwrap().store().clone();
    let slow = LoopstoreMemory::new(store).with_policy(policy);
    let conversation = id("c");
    let load = slow.load(&conversation);
    tokio::time::timeout(Duration::from_millis(100), load)
        .await
        .unwrap_err();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(plain.load(&conversation).await.unwrap(), said);
}

#[tokio::test]
async fn what_was_appended_compacted_and_cleared_does_not_pass_the_stores_own_check() {
    let memory = memory().with_policy(Policy::new(3_000).max_summary_tokens(500));
    crate::support::fill(&memory, "c", 60).await;
    memory.load(&id("c")).await.unwrap();
    memory.append(&id("c"), turn_with_tool()).await.unwrap();
    memory.clear(&id("c")).await.unwrap();
    memory.append(&id("c"), turn_with_tool()).await.unwrap();
    let session = memory.session(&id("c")).unwrap();
    let report = loopstore_verify::verify(session.store().database()).unwrap();
    assert!(report.ok, "{:?}", report.problems);
}
