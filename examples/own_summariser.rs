//! A custom summariser for the strategy `summarize`: here a function, in practice a local model. `cargo run
//! --example own_summariser`.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use loopstore::*;
use loopstore_transcripts::{ImportOptions, import_paths};

/// Any text is accepted; omitted sections, files and exact values are added from the record.
const ANSWER: &str = "## Done, decided and found\nTwo kites; one is red.";

struct Local;

impl Summarizer for Local {
    fn name(&self) -> &str {
        "local"
    }

    fn summarize(&self, request: &SummaryRequest) -> Result<SummaryAnswer, SummarizerError> {
        println!(
            "asked for about {} tokens, given {} bytes",
            request.asked_tokens,
            request.prompt.len()
        );
        Ok(SummaryAnswer {
            text: ANSWER.into(),
            model: Some("made-up".into()),
            usage: None,
            duration: Duration::from_millis(3),
        })
    }
}

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
    let request = CompactRequest {
        policy: Policy::of(
            ContextConfig {
                max_context_tokens: 250,
                ..ContextConfig::default()
            },
            CompactionConfig {
                keep_first_turns: 0,
                keep_recent: KeepRecent::Turns(1),
                // After an empty answer the digest is used, and the audit row has the reason.
                block_strategy: Some(Arc::new(SummarizeCompaction::new(Arc::new(Local)))),
                ..CompactionConfig::default()
            },
        ),
        ..CompactRequest::default()
    };
    let report = compact_session_loops(&store, &id, &request)?;
    println!("{} -> {} tokens", report.before.tokens, report.after.tokens);
    assert!(report.after.tokens < report.before.tokens);
    assert_eq!(report.error, None);
    Ok(())
}
