//! An agent in async code: each call runs on tokio's pool of blocking threads.
//! `cargo run --example async_agent --features tokio`.

use std::error::Error;

use loopstore::{AsyncStore, KeepRecent, Message, Policy, Prepared, Store};

/// Returns the answer of a provider.
async fn model(ready: &Prepared) -> Message {
    let tokens = ready.context.tokens;
    Message::assistant(format!(
        "I read {tokens} tokens. {}",
        "All is well. ".repeat(20)
    ))
}

async fn talk() -> Result<(), Box<dyn Error>> {
    let policy = Policy::new(900)
        .keep_recent(KeepRecent::Turns(2))
        .max_summary_tokens(200);
    let store = AsyncStore::from(Store::in_memory()?);
    let chat = store.session("watch")?.with_policy(policy);
    let mut largest = 0;
    for hour in 0..24 {
        chat.append([Message::user(format!("How is it at {hour}:00?"))])
            .await?;
        // A future that is dropped here commits no compaction.
        let ready = chat.prepare().await?;
        largest = largest.max(ready.context.tokens);
        let answer = model(&ready).await;
        // If this future is dropped, all of the messages are stored or none; with a key the append can be
        // repeated.
        chat.append_once(&format!("answer {hour}"), [answer])
            .await?;
    }
    println!("24 calls, none of more than {largest} tokens");
    assert!(largest <= 900);
    Ok(())
}

pub fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(talk())
}
