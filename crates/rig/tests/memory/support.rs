//! Memories and turns for the tests.

use loopstore::{Store, StoreError};
use loopstore_rig::{Error, LoopstoreMemory};
use rig_core::id::ConversationId;
use rig_core::memory::{ConversationMemory, MemoryError};
use rig_core::message::{
    AssistantContent, Message, ToolCall, ToolFunction, ToolName, ToolResultContent, UserContent,
};
use serde_json::json;

pub fn memory() -> LoopstoreMemory {
    LoopstoreMemory::new(Store::in_memory().unwrap())
}

pub fn id(id: &str) -> ConversationId {
    ConversationId::new(id)
}

/// A prompt and its answer.
pub fn turn(number: usize) -> Vec<Message> {
    vec![
        Message::user(format!("How is the weather at place number {number}?")),
        Message::assistant(format!(
            "At place number {number} it rains. {}",
            "So it goes on. ".repeat(40)
        )),
    ]
}

/// A prompt, a call with its result, and an answer.
pub fn turn_with_tool() -> Vec<Message> {
    let name = ToolName::new("forecast").unwrap();
    let call = ToolCall::from_wire(
        "call-1",
        ToolFunction::new(name, json!({"place": "Oslo", "days": 3})),
    );
    let result = call.result(vec![ToolResultContent::json(
        json!({"rain": true, "from": "noon"}),
    )]);
    vec![
        Message::user("Will it rain?"),
        Message::from(AssistantContent::ToolCall(call)),
        Message::from(UserContent::ToolResult(result)),
        Message::assistant("From noon on."),
    ]
}

pub async fn fill(memory: &LoopstoreMemory, conversation: &str, turns: usize) -> Vec<Message> {
    let mut all = Vec::new();
    for number in 0..turns {
        memory
            .append(&id(conversation), turn(number))
            .await
            .unwrap();
        all.extend(turn(number));
    }
    all
}

/// Returns the error that rig received.
pub fn source(error: &MemoryError) -> &Error {
    match error {
        MemoryError::Backend(source) => source.downcast_ref().unwrap(),
        other => panic!("not of the backend: {other}"),
    }
}

pub fn refusal(error: &MemoryError) -> &StoreError {
    match source(error) {
        Error::Store(loopstore::Error::Store(refusal)) => refusal,
        other => panic!("not of the store: {other:?}"),
    }
}
