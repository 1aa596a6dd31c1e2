//! rig's demoting adapter: demoted messages are kept and found.

use loopstore::EntryQuery;
use loopstore_rig::LoopstoreMemory;
use rig_core::memory::{ConversationMemory, DemotionHook, InMemoryConversationMemory};
use rig_core::message::Message;
use rig_memory::{DemotingPolicyMemory, SlidingWindowMemory};

use crate::support::{fill, id, memory, turn, turn_with_tool};

type Windowed<M> = DemotingPolicyMemory<M, SlidingWindowMemory, LoopstoreMemory>;

fn windowed<M: ConversationMemory>(inner: M, hook: &LoopstoreMemory) -> Windowed<M> {
    DemotingPolicyMemory::new(inner, SlidingWindowMemory::last_messages(2), hook.clone())
}

fn stored(memory: &LoopstoreMemory) -> u64 {
    memory
        .session(&id("c"))
        .unwrap()
        .count_entries(&EntryQuery::new())
        .unwrap()
}

#[tokio::test]
async fn what_the_window_lost_is_found_no_more_or_stored_twice() {
    let memory = memory();
    fill(&memory, "c", 10).await;
    let shown = windowed(memory.clone().originals(), &memory)
        .load(&id("c"))
        .await
        .unwrap();
    assert_eq!(shown, turn(9));
    assert_eq!(stored(&memory), 20);
    let found = memory
        .recall(&id("c"), "\"place number 3\"", 2_000)
        .await
        .unwrap();
    assert!(found.to_string().contains("At place number 3"), "{found}");
}

#[tokio::test]
async fn what_another_memory_lost_is_lost() {
    let (inner, hook) = (InMemoryConversationMemory::new(), memory());
    let adapter = windowed(inner.clone(), &hook);
    let mut said = Vec::new();
    for number in 0..6 {
        adapter.append(&id("c"), turn(number)).await.unwrap();
        said.extend(turn(number));
        assert_eq!(adapter.load(&id("c")).await.unwrap(), turn(number));
    }
    assert_eq!(hook.load(&id("c")).await.unwrap(), said[..10]);
    let found = hook
        .recall(&id("c"), "\"place number 2\"", 2_000)
        .await
        .unwrap();
    assert!(found.to_string().contains("At place number 2"), "{found}");
    // A new adapter delivers all messages again, together with the new ones.
    adapter.append(&id("c"), turn_with_tool()).await.unwrap();
    let again = windowed(inner, &hook);
    again.load(&id("c")).await.unwrap();
    again.load(&id("c")).await.unwrap();
    let kept = hook.load(&id("c")).await.unwrap();
    assert_eq!(kept[..12], said);
    assert_eq!(
        kept.len(),
        15,
        "all but the answer, for a result without its call goes too"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_batch_that_is_delivered_at_once_by_several_is_stored_by_each() {
    let hook = memory();
    let deliveries = (0..8).map(|_| {
        let hook = hook.clone();
        tokio::spawn(async move { hook.on_demote(&id("c"), turn_with_tool()).await.unwrap() })
    });
    for delivery in deliveries.collect::<Vec<_>>() {
        delivery.await.unwrap();
    }
    assert_eq!(hook.load(&id("c")).await.unwrap(), turn_with_tool());
    hook.on_demote(&id("c"), vec![Message::user("Later.")])
        .await
        .unwrap();
    hook.on_demote(&id("c"), turn_with_tool()[1..3].to_vec())
        .await
        .unwrap();
    hook.on_demote(&id("c"), Vec::new()).await.unwrap();
    assert_eq!(stored(&hook), 5);
}

#[tokio::test]
async fn a_summary_that_leaves_the_window_is_stored_as_if_somebody_had_said_it() {
    let memory = memory().with_policy(loopstore::Policy::new(3_000).max_summary_tokens(500));
    fill(&memory, "c", 60).await;
    let adapter = windowed(memory.clone(), &memory);
    assert_eq!(adapter.load(&id("c")).await.unwrap(), turn(59));
    assert_eq!(stored(&memory), 120);
    // Messages that are in no record are appended.
    memory
        .on_demote(&id("c"), vec![Message::user("Said elsewhere.")])
        .await
        .unwrap();
    assert_eq!(stored(&memory), 121);
}
