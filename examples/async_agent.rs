//! An agent in async code: each call runs on tokio's pool of blocking threads.
//! `cargo run --example async_agent --features tokio`.

use std::error::Error;

use loopstore::extend::{StoreError, session};
use loopstore::*;

/// What a provider would answer.
async fn model(seen: &Context) -> AgentMessage {
    let text = format!(
        "I read {} tokens. {}",
        seen.tokens,
        "All is well. ".repeat(20)
    );
    Message::assistant(text).into()
}

async fn talk() -> Result<(), Box<dyn Error>> {
    let store = AsyncDatabase::new(SqliteStore::in_memory()?);
    let id = SessionId::new("watch")?;
    let new = Session::new(id.clone(), "agent");
    let begin = move |store: &dyn SessionStore| -> Result<(), StoreError> {
        loopstore::extend::write(store, |write| {
            let key = session::create_session(write, &new, None, None)?;
            let first = LoopRecord::new(LoopId::generate(), None);
            session::create_loop(write, key, &first).map(drop)
        })
    };
    store.call(begin).await?;
    let window = ContextConfig {
        max_context_tokens: 900,
        ..ContextConfig::default()
    };
    let mut largest = 0;
    for hour in 0..24 {
        let prompt = Message::user(format!("How is it at {hour}:00?")).into();
        store.append(&id, None, vec![prompt]).await?;
        let config = CompactionConfig {
            keep_recent: KeepRecent::Turns(2),
            max_summary_tokens: 200,
            ..CompactionConfig::default()
        };
        let next = store
            .maybe_compact(&id, None, config, window.clone())
            .await?;
        largest = largest.max(next.context.tokens);
        let answer = model(&next.context).await;
        // A future that is dropped here leaves the whole turn or none of it.
        store.append(&id, None, vec![answer]).await?;
    }
    println!("24 calls, none of more than {largest} tokens");
    assert!(largest <= 900);
    Ok(())
}

pub fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(talk())
}
