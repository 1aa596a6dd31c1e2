//! Records two turns, closes the database, and continues as another process would: `cargo run --example
//! record_and_resume`.

use std::error::Error;

use loopstore::extend::{self as store, append::append, session};
use loopstore::*;

/// Adds a turn to a loop: the user's prompt and the answer, in one transaction.
fn turn(store: &SqliteStore, id: &SessionId, prompt: &str, answer: &str) -> Result<(), StoreError> {
    store::write(store, |write| {
        let owner = store::lookup::session(write, id.as_str())?;
        let loop_key = match write.loops(owner.key)?.pop() {
            Some(last) => last.key,
            None => {
                let first = LoopRecord::new(LoopId::generate(), None);
                session::create_loop(write, owner.key, &first)?
            }
        };
        let messages = [Message::user(prompt), Message::assistant(answer)];
        let messages = messages.map(AgentMessage::from).map(Into::into).into();
        append(write, loop_key, messages, &HeuristicTokenCounter).map(drop)
    })
}

pub fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("agent.db");
    let id = SessionId::new("weather")?;

    let store = SqliteStore::open(&file)?;
    store::write(&store, |write| {
        session::create_session(write, &Session::new(id.clone(), "agent"), None, None)
    })?;
    turn(&store, &id, "Will it rain?", "Yes, from four o'clock on.")?;
    drop(store);

    let store = SqliteStore::open(&file)?;
    turn(&store, &id, "And tomorrow?", "Tomorrow the sun shines.")?;
    let context = build_context_from_session(&store, &id, &BuildOptions::default())?;
    for message in context.messages.iter().filter_map(AgentMessage::message) {
        println!("{}", message.texts().collect::<String>());
    }
    assert_eq!(context.messages.len(), 4);
    Ok(())
}
