//! Imports transcripts and replays a session as it happened, compactions included: `cargo run --example
//! import_then_replay`.

use std::error::Error;
use std::path::Path;

use loopstore::*;
use loopstore_admin::replay::{Replay, ReplayStep};
use loopstore_transcripts::{ImportOptions, import_paths};

pub fn main() -> Result<(), Box<dyn Error>> {
    let transcript = Path::new(env!("CARGO_MANIFEST_DIR"));
    let transcript = transcript.join("tests/fixtures/claude-code/compactions.jsonl");
    let store = SqliteStore::in_memory()?;
    let report = import_paths(
        &store,
        &[transcript],
        &ImportOptions::default(),
        &mut |_| {},
    )?;
    for id in &report.sessions {
        println!("session {id}");
        for step in Replay::new(&store, id, None)?.with_contexts(true) {
            match step? {
                ReplayStep::Turn(turn) => {
                    let seen = turn.context.map_or(0, |context| context.tokens);
                    println!(
                        "  {}:{}  the model saw {seen} tokens",
                        turn.loop_id, turn.turn
                    );
                }
                ReplayStep::Change(change) => println!(
                    "  {}: {} -> {} tokens",
                    change.strategy, change.tokens_before, change.tokens_after
                ),
            }
        }
    }
    assert!(!report.sessions.is_empty());
    Ok(())
}
