//! Compacts a recorded session, prints the disposition of each turn, and undoes the compaction: `cargo run
//! --example compact_and_look`.

use std::error::Error;
use std::path::Path;

use loopstore::*;
use loopstore_transcripts::{ImportOptions, import_paths};

pub fn main() -> Result<(), Box<dyn Error>> {
    let transcript = Path::new(env!("CARGO_MANIFEST_DIR"));
    let transcript = transcript.join("tests/fixtures/claude-code/kite-1.jsonl");
    let store = SqliteStore::in_memory()?;
    import_paths(
        &store,
        &[transcript],
        &ImportOptions::default(),
        &mut |_| {},
    )?;
    let id = SessionId::new("kite-1")?;
    let build = || build_context_from_session(&store, &id, &BuildOptions::default());
    let before = build()?;

    let request = CompactRequest {
        policy: Policy::of(
            ContextConfig {
                max_context_tokens: 250,
                ..ContextConfig::default()
            },
            CompactionConfig {
                keep_first_turns: 1,
                keep_recent: KeepRecent::Turns(1),
                ..CompactionConfig::default()
            },
        ),
        ..CompactRequest::default()
    };
    let report = compact_session_loops(&store, &id, &request)?;
    println!("{} -> {} tokens", report.before.tokens, report.after.tokens);
    assert!(build()?.messages != before.messages);

    // Every turn is shown or covered by a block; plain SQL shows which block.
    let sql = "SELECT loop_id, from_turn, to_turn, disposition FROM v_coverage
               WHERE session_id = 'kite-1' ORDER BY loop_id, from_turn";
    for row in store.query(sql)?.rows {
        println!("{row:?}");
    }

    undo(&store, &id, &FlipRequest::default())?;
    assert_eq!(build()?.messages, before.messages);
    println!("Taken back: the originals are read again.");
    Ok(())
}
