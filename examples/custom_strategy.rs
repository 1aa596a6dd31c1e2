//! A custom strategy: the first line of each answer replaces its turn. `cargo run --example custom_strategy`.

use std::collections::BTreeSet;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use loopstore::*;
use loopstore_transcripts::{ImportOptions, import_paths};

struct FirstLines;

impl BlockCompactionStrategy for FirstLines {
    fn name(&self) -> &str {
        "first-lines"
    }

    /// The plan determines the turns kept at both ends; only the text for the others is made here.
    fn keep_compacted(
        &self,
        slice: &LoopSlice<'_>,
        turns: Turns,
        config: &CompactionConfig,
    ) -> Result<Summary, StrategyError> {
        let (mut lines, mut covered) = (Vec::new(), BTreeSet::new());
        for placed in slice.messages(turns)? {
            let Some(answer @ Message::Assistant(_)) = placed.message.message() else {
                continue;
            };
            if let Some(line) = answer.texts().flat_map(str::lines).next() {
                lines.push(format!("{} (t{})", line, placed.turn));
                covered.insert(placed.turn);
            }
        }
        let message = AgentMessage::from(Message::user(lines.join("\n")));
        let fits = slice.counter().message_tokens(&message) <= config.max_summary_tokens;
        if lines.is_empty() || !fits {
            // Turns without a text are dropped, and the audit row records it.
            return Ok(Summary::default());
        }
        Ok(Summary {
            messages: vec![message],
            turns: covered,
            ..Summary::default()
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
                block_strategy: Some(Arc::new(FirstLines)),
                ..CompactionConfig::default()
            },
        ),
        ..CompactRequest::default()
    };
    let report = compact_session_loops(&store, &id, &request)?;
    println!("{} -> {} tokens", report.before.tokens, report.after.tokens);
    let context = build_context_from_session(&store, &id, &BuildOptions::default())?;
    for message in context.messages.iter().filter_map(AgentMessage::message) {
        println!("{}", message.texts().collect::<String>());
    }
    assert!(report.after.tokens < report.before.tokens);
    Ok(())
}
