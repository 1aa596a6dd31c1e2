//! The documented contract of `ConversationMemory`, tested on rig's own memory and on this one.

use std::sync::Arc;

use loopstore_rig::Error;
use rig_agent::agent::AgentBuilder;
use rig_agent::completion::PromptError;
use rig_core::memory::{ConversationMemory, InMemoryConversationMemory};
use rig_core::message::Message;
use rig_core::test_utils::{MockCompletionModel, MockTurn};

use crate::support::{id, memory, source, turn, turn_with_tool};

fn memories() -> Vec<Arc<dyn ConversationMemory>> {
    vec![
        Arc::new(InMemoryConversationMemory::new()),
        Arc::new(memory()),
        Arc::new(memory().originals()),
        Arc::new(memory().with_policy(loopstore::Policy::new(128_000))),
    ]
}

#[tokio::test]
async fn a_conversation_without_messages_is_not_empty() {
    for memory in memories() {
        assert_eq!(memory.load(&id("c")).await.unwrap(), []);
        memory.append(&id("c"), Vec::new()).await.unwrap();
        assert_eq!(memory.load(&id("c")).await.unwrap(), []);
    }
}

#[tokio::test]
async fn messages_come_back_in_another_order_or_from_another_conversation() {
    for memory in memories() {
        let mut said = turn_with_tool();
        memory.append(&id("c"), said.clone()).await.unwrap();
        memory.append(&id("d"), turn(7)).await.unwrap();
        memory.append(&id("c"), turn(1)).await.unwrap();
        said.extend(turn(1));
        assert_eq!(memory.load(&id("c")).await.unwrap(), said);
        assert_eq!(memory.load(&id("d")).await.unwrap(), turn(7));
    }
}

#[tokio::test]
async fn the_same_turn_said_twice_is_kept_once() {
    for memory in memories() {
        for _ in 0..3 {
            memory
                .append(
                    &id("c"),
                    vec![Message::user("yes"), Message::assistant("Done.")],
                )
                .await
                .unwrap();
        }
        assert_eq!(memory.load(&id("c")).await.unwrap().len(), 6);
    }
}

#[tokio::test]
async fn a_clear_leaves_messages_or_takes_those_of_others() {
    for memory in memories() {
        memory.clear(&id("c")).await.unwrap();
        memory.append(&id("c"), turn(1)).await.unwrap();
        memory.append(&id("d"), turn(2)).await.unwrap();
        memory.clear(&id("c")).await.unwrap();
        assert_eq!(memory.load(&id("c")).await.unwrap(), []);
        assert_eq!(memory.load(&id("d")).await.unwrap(), turn(2));
        memory.append(&id("c"), turn(3)).await.unwrap();
        assert_eq!(memory.load(&id("c")).await.unwrap(), turn(3));
    }
}

#[tokio::test]
async fn an_agent_forgets_what_was_said_in_its_last_run() {
    let memory = memory();
    let model =
        MockCompletionModel::from_turns(["From noon on.", "Until four."].map(MockTurn::text));
    let agent = AgentBuilder::new(model.clone())
        .memory(memory.clone())
        .conversation("c")
        .build();
    agent.prompt("Will it rain?").await.unwrap();
    agent.prompt("How long?").await.unwrap();
    let sent = serde_json::to_string(&model.requests()[1].chat_history).unwrap();
    for said in ["Will it rain?", "From noon on.", "How long?"] {
        assert_eq!(sent.matches(said).count(), 1, "{sent}");
    }
    let kept = memory.load(&id("c")).await.unwrap();
    assert_eq!(kept.len(), 4);
    // Each run is a loop of its own.
    let session = memory.session(&id("c")).unwrap();
    assert_eq!(session.load().unwrap().loops.len(), 2);
}

#[tokio::test]
async fn a_load_that_fails_lets_the_model_be_called_all_the_same() {
    let model = MockCompletionModel::text("From noon on.");
    // The id is longer than a session id may be.
    let long = "c".repeat(600);
    let agent = AgentBuilder::new(model.clone()).memory(memory()).build();
    let error = agent
        .prompt("Will it rain?")
        .conversation(long.as_str())
        .await
        .unwrap_err();
    assert!(
        matches!(&error, PromptError::Memory(error) if error.to_string().contains("512")),
        "{error}"
    );
    assert_eq!(model.request_count(), 0);
}

#[test]
fn without_tokio_a_call_panics_or_waits_for_ever() {
    let memory = memory();
    let said = turn(1);
    futures_lite(memory.append(&id("c"), said.clone())).unwrap();
    assert_eq!(futures_lite(memory.load(&id("c"))).unwrap(), said);
}

#[test]
fn a_runtime_that_was_shut_down_panics_or_acknowledges_an_append() {
    let memory = memory();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let handle = runtime.handle().clone();
    drop(runtime);
    let said = turn(1);
    {
        let _inside = handle.enter();
        let error = futures_lite(memory.append(&id("c"), said.clone())).unwrap_err();
        assert!(matches!(source(&error), Error::Stopped), "{error:?}");
    }
    assert_eq!(futures_lite(memory.load(&id("c"))).unwrap(), []);
    futures_lite(memory.append(&id("c"), said.clone())).unwrap();
    assert_eq!(futures_lite(memory.load(&id("c"))).unwrap(), said);
}

/// Runs a future on an executor that is not tokio's.
fn futures_lite<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        if let std::task::Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return done;
        }
        std::thread::park();
    }
}
