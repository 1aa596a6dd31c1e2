//! Questions in SQL, and nothing else: the views are a contract, so any program with SQLite can ask.
//! `cargo run --example sql_only`.

use std::error::Error;
use std::path::Path;

use loopstore::SqliteStore;
use loopstore_transcripts::{ImportOptions, import_paths};

const QUESTIONS: [(&str, &str); 4] = [
    (
        "Which tools were called, and how often did they fail?",
        "SELECT tool_name, count(*), sum(is_error) FROM v_tool_calls GROUP BY 1 ORDER BY 2 DESC, 1",
    ),
    (
        "What did each compaction save?",
        "SELECT session_id, strategy, tokens_before - tokens_after FROM v_compaction_runs
         WHERE outcome = 'committed' ORDER BY 3 DESC",
    ),
    (
        "What does the next call of a session see?",
        "SELECT loop_id, section, messages, tokens FROM v_context
         WHERE session_id = 'compactions' LIMIT 5",
    ),
    (
        "Which sessions are largest?",
        "SELECT session_id, tokens FROM v_sessions ORDER BY tokens DESC LIMIT 3",
    ),
];

pub fn main() -> Result<(), Box<dyn Error>> {
    let transcripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/claude-code");
    let store = SqliteStore::in_memory()?;
    import_paths(
        &store,
        &[transcripts],
        &ImportOptions::default(),
        &mut |_| {},
    )?;
    for (question, sql) in QUESTIONS {
        println!("{question}");
        let found = store.query(sql)?;
        assert!(!found.rows.is_empty(), "{question}");
        for row in found.rows {
            println!("  {row:?}");
        }
    }
    Ok(())
}
