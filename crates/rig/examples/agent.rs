//! An agent of rig whose conversation loopstore keeps. `cargo run -p loopstore-rig --example agent`.

use loopstore::Store;
use loopstore_rig::LoopstoreMemory;
use rig_agent::agent::AgentBuilder;
use rig_core::id::ConversationId;
use rig_core::memory::ConversationMemory;
use rig_core::test_utils::{MockCompletionModel, MockTurn};

#[tokio::main]
pub async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = Store::in_memory()?; // Store::open("agent.db")? keeps it.
    let memory = LoopstoreMemory::new(store);
    let weather = ConversationId::new("weather");
    // A mock in place of a provider's model.
    let answers = ["From noon on.", "Until four."].map(MockTurn::text);
    let model = MockCompletionModel::from_turns(answers);
    let agent = AgentBuilder::new(model)
        .memory(memory.clone())
        .conversation("weather")
        .build();
    agent.prompt("Will it rain?").await?;
    agent.prompt("How long?").await?;
    assert_eq!(memory.load(&weather).await?.len(), 4);
    // The record stays after rig clears the conversation, and can be searched.
    memory.clear(&weather).await?;
    assert!(memory.load(&weather).await?.is_empty());
    println!("{}", memory.recall(&weather, "noon", 2_000).await?);
    Ok(())
}
