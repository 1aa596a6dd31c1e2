//! The state after a clear, and of an erased or redacted conversation.

use loopstore::{EntryQuery, LoopSpec};
use loopstore_admin::retention::{EraseRequest, erase};
use loopstore_rig::OnClear;
use rig_core::memory::ConversationMemory;

use crate::support::{fill, id, memory, turn};

#[tokio::test]
async fn what_was_cleared_is_lost() {
    let memory = memory();
    fill(&memory, "c", 3).await;
    memory.clear(&id("c")).await.unwrap();
    memory.clear(&id("c")).await.unwrap();
    let session = memory.session(&id("c")).unwrap();
    assert_eq!(
        session.entries(&EntryQuery::whole_session()).unwrap().len(),
        6
    );
    assert_eq!(
        session.load().unwrap().loops.len(),
        4,
        "an empty conversation was cleared again"
    );
    let found = memory
        .recall(&id("c"), "\"place number 2\"", 2_000)
        .await
        .unwrap();
    assert!(found.to_string().contains("place number 2"), "{found}");
}

#[tokio::test]
async fn what_was_to_be_erased_stays() {
    let memory = memory().on_clear(OnClear::Erase);
    fill(&memory, "c", 3).await;
    memory.clear(&id("c")).await.unwrap();
    memory.clear(&id("c")).await.unwrap();
    assert!(!memory.session(&id("c")).unwrap().exists().unwrap());
    assert!(
        memory
            .recall(&id("c"), "rains", 2_000)
            .await
            .unwrap()
            .parts
            .is_empty()
    );
    memory.append(&id("c"), turn(9)).await.unwrap();
    assert_eq!(memory.load(&id("c")).await.unwrap(), turn(9));
}

#[tokio::test]
async fn a_conversation_that_somebody_erased_cannot_go_on() {
    let memory = memory();
    fill(&memory, "c", 2).await;
    let session = memory.session(&id("c")).unwrap();
    erase(
        session.store().database(),
        &EraseRequest::new(session.id().clone()),
    )
    .unwrap();
    assert_eq!(memory.load(&id("c")).await.unwrap(), []);
    memory.append(&id("c"), turn(1)).await.unwrap();
    assert_eq!(memory.load(&id("c")).await.unwrap(), turn(1));
}

#[tokio::test]
async fn a_memory_stays_on_a_line_that_somebody_left() {
    let memory = memory();
    fill(&memory, "c", 2).await;
    memory
        .session(&id("c"))
        .unwrap()
        .begin_loop(LoopSpec::fresh())
        .unwrap();
    assert_eq!(memory.load(&id("c")).await.unwrap(), []);
    memory.append(&id("c"), turn(5)).await.unwrap();
    assert_eq!(memory.load(&id("c")).await.unwrap(), turn(5));
}
