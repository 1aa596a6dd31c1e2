//! rig's compacting adapter over a conversation, and the overlay that it writes.

use std::sync::Arc;

use loopstore::{EntryQuery, Message as Stored};
use loopstore_rig::{Error, LoopstoreMemory, WorkingState, WorkingStateCompactor};
use rig_core::memory::{Compactor, ConversationMemory, InMemoryConversationMemory};
use rig_core::message::Message;
use rig_memory::{CompactingMemory, SlidingWindowMemory};

use crate::support::{fill, id, memory, source, turn};

type Windowed = CompactingMemory<LoopstoreMemory, SlidingWindowMemory, WorkingStateCompactor>;

fn windowed(memory: &LoopstoreMemory, messages: usize) -> Windowed {
    let window = SlidingWindowMemory::last_messages(messages);
    let (originals, compactor) = memory.clone().compacting();
    CompactingMemory::new(originals, window, compactor)
}

fn compactor(memory: &LoopstoreMemory) -> WorkingStateCompactor {
    memory.clone().compacting().1
}

/// Returns the number of committed compactions.
fn runs(memory: &LoopstoreMemory) -> usize {
    let session = memory.session(&id("c")).unwrap();
    let mut runs = 0;
    loopstore::extend::read(session.store().database(), |read| {
        let row = read.session(session.id())?.unwrap();
        read.runs(row.key, &mut |run| {
            runs += usize::from(run.outcome == loopstore::extend::Outcome::Committed);
            Ok(std::ops::ControlFlow::Continue(()))
        })
    })
    .unwrap();
    runs
}

#[tokio::test]
async fn what_the_window_lost_is_in_no_summary_and_the_rest_is_not_word_for_word() {
    let memory = memory();
    let said = fill(&memory, "c", 30).await;
    let shown = windowed(&memory, 6).load(&id("c")).await.unwrap();
    assert_eq!(shown.len(), 7);
    assert_eq!(shown[1..], said[54..]);
    let text = shown[0].rag_text().unwrap();
    assert!(text.contains("## Task"), "{text}");
    for number in [0, 13, 26] {
        assert!(
            text.contains(&format!("place number {number}")),
            "{number} is missing in {text}"
        );
    }
    // Another reader of the session sees the same context, as an overlay; the originals are unchanged.
    let session = memory.session(&id("c")).unwrap();
    let context = session.context().unwrap();
    assert!(context.messages.len() < 20, "{}", context.messages.len());
    assert_eq!(session.count_entries(&EntryQuery::new()).unwrap(), 60);
    assert_eq!(
        memory.load(&id("c")).await.unwrap()[context.messages.len() - 6..],
        said[54..]
    );
    session.undo().unwrap();
    assert_eq!(memory.load(&id("c")).await.unwrap(), said);
}

#[tokio::test]
async fn later_compactions_lose_what_earlier_ones_carried() {
    let memory = memory();
    let windowed = windowed(&memory, 4);
    fill(&memory, "c", 20).await;
    windowed.load(&id("c")).await.unwrap();
    for number in 20..40 {
        windowed.append(&id("c"), turn(number)).await.unwrap();
        let shown = windowed.load(&id("c")).await.unwrap();
        assert_eq!(shown.len(), 5);
        assert_eq!(shown[3..], turn(number));
    }
    let shown = windowed.load(&id("c")).await.unwrap();
    let text = shown[0].rag_text().unwrap();
    assert!(
        text.contains("place number 0") && text.contains("place number 37"),
        "{text}"
    );
}

#[tokio::test]
async fn a_restart_compacts_what_is_compacted() {
    let memory = memory();
    fill(&memory, "c", 30).await;
    let before = windowed(&memory, 6).load(&id("c")).await.unwrap();
    let runs_before = runs(&memory);
    assert_eq!(runs_before, 1);
    assert_eq!(windowed(&memory, 6).load(&id("c")).await.unwrap(), before);
    assert_eq!(runs(&memory), runs_before);
}

#[tokio::test]
async fn a_few_short_messages_are_lost_where_a_summary_is_not_worth_it() {
    let memory = memory();
    let said = [
        "My name is Ann.",
        "Hello Ann.",
        "I live in Oslo.",
        "A fine town.",
    ];
    for pair in said.chunks(2) {
        let turn = vec![Message::user(pair[0]), Message::assistant(pair[1])];
        memory.append(&id("c"), turn).await.unwrap();
    }
    for size in 0..=4 {
        let shown = windowed(&memory, size).load(&id("c")).await.unwrap();
        let text: String = shown.iter().map(|message| format!("{message:?}")).collect();
        for words in said {
            assert!(
                text.contains(words),
                "{words} is missing with {size}: {text}"
            );
        }
    }
}

#[tokio::test]
async fn a_window_that_cuts_a_turn_loses_its_beginning() {
    let memory = memory();
    fill(&memory, "c", 12).await;
    // Only the answer of the last turn is left.
    let shown = windowed(&memory, 1).load(&id("c")).await.unwrap();
    assert_eq!(shown[1..], turn(11)[1..]);
    let text = shown[0].rag_text().unwrap();
    assert!(text.contains("place number 11"), "{text}");
    assert_eq!(text.matches("place number 10?").count(), 1, "{text}");
}

#[tokio::test]
async fn messages_of_nobody_are_compacted() {
    let memory = memory();
    fill(&memory, "c", 3).await;
    let evicted = [Message::user("This was never said.")];
    let error = compactor(&memory)
        .compact(&id("c"), &evicted, None)
        .await
        .unwrap_err();
    assert!(matches!(source(&error), Error::NotInRecord { conversation } if conversation == "c"));
    assert!(error.to_string().contains("compacting()"), "{error}");
    // A memory of another kind has no store for an overlay.
    let other = InMemoryConversationMemory::new();
    other.append(&id("x"), turn(1)).await.unwrap();
    let window = SlidingWindowMemory::last_messages(1);
    let wrong = CompactingMemory::new(other, window, compactor(&memory));
    let error = wrong.load(&id("x")).await.unwrap_err();
    assert!(
        matches!(source(&error), Error::NotInRecord { .. }),
        "{error}"
    );
    assert!(!memory.session(&id("x")).unwrap().exists().unwrap());
}

#[tokio::test]
async fn words_that_were_said_twice_are_taken_for_one_another() {
    let memory = memory();
    for _ in 0..3 {
        memory
            .append(
                &id("c"),
                vec![Message::user("yes"), Message::assistant("Done.")],
            )
            .await
            .unwrap();
    }
    let pair = [Message::user("yes"), Message::assistant("Done.")];
    let first: WorkingState = compactor(&memory)
        .compact(&id("c"), &pair, None)
        .await
        .unwrap();
    assert_eq!(first.covered(), 2);
    let second = compactor(&memory)
        .compact(&id("c"), &pair, Some(&first))
        .await
        .unwrap();
    assert_eq!(second.covered(), 4);
    assert_eq!(second.as_str().matches("yes").count(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_compactors_at_once_fail_or_lose_messages() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.db");
    let memory = LoopstoreMemory::open(&path).unwrap();
    let said = fill(&memory, "c", 30).await;
    let windows =
        [6, 10].map(|size| Arc::new(windowed(&LoopstoreMemory::open(&path).unwrap(), size)));
    let loads = windows
        .into_iter()
        .map(|window| tokio::spawn(async move { window.load(&id("c")).await.unwrap() }));
    for load in loads.collect::<Vec<_>>() {
        let shown = load.await.unwrap();
        assert_eq!(shown[1..], said[60 - (shown.len() - 1)..]);
        let text = shown[0].rag_text().unwrap();
        assert!(
            text.contains("place number 0") && text.contains("place number 24"),
            "{text}"
        );
    }
    assert_eq!(memory.originals().load(&id("c")).await.unwrap(), said);
}

#[tokio::test]
async fn what_a_tool_said_is_told_with_the_authority_of_the_system() {
    let memory = memory();
    fill(&memory, "c", 3).await;
    let session = memory.session(&id("c")).unwrap();
    session
        .append([Stored::user("From another program.")])
        .unwrap();
    let said = memory.load(&id("c")).await.unwrap();
    let state = compactor(&memory)
        .compact(&id("c"), &said[..4], None)
        .await
        .unwrap();
    assert!(matches!(Message::from(state), Message::User { .. }));
}
