//! An attempt that is killed while it runs a user's code leaves a row, which the next compaction closes.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::sync::Arc;

use loopstore::*;
use loopstore_recorder::{RecoverRequest, recover};
use loopstore_verify::verify;

use crate::support::{keyed, process};

/// Signals that it was called, and never returns.
struct Hangs;

impl BlockCompactionStrategy for Hangs {
    fn name(&self) -> &str {
        "hangs"
    }

    fn keep_compacted(
        &self,
        _: &LoopSlice<'_>,
        _: Turns,
        _: &CompactionConfig,
    ) -> Result<Summary, StrategyError> {
        println!("\nasked");
        std::io::stdout().flush().unwrap();
        loop {
            std::thread::park();
        }
    }
}

fn forced() -> CompactRequest {
    CompactRequest {
        trigger: CompactTrigger::Force,
        ..CompactRequest::default()
    }
}

/// The process that is killed.
#[test]
fn a_process_that_compacts() {
    let Some(file) = std::env::var_os("LOOPSTORE_HANGS") else {
        return;
    };
    let store = keyed::open(file).unwrap();
    let mut request = forced();
    request.policy.compaction.block_strategy = Some(Arc::new(Hangs));
    compact_session_loops(&store, &SessionId::new("s").unwrap(), &request).unwrap();
}

/// Returns the outcomes of all runs in order.
fn outcomes(store: &SqliteStore) -> Vec<String> {
    let rows = store.query("SELECT outcome FROM v_compaction_runs ORDER BY run_id");
    let rows = rows.unwrap().records();
    rows.iter().filter_map(|row| row.text("outcome")).collect()
}

#[test]
#[cfg(target_os = "linux")]
fn an_attempt_that_was_killed_is_closed_as_interrupted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agent.db");
    let store = keyed::open(&file).unwrap();
    let history = crate::support::histories::History::new(&store, "s");
    for turn in 0..40 {
        let text = format!("Hour {turn}: {}", "rain, ".repeat(50));
        let messages = [Message::user("How is it?"), Message::assistant(text)];
        history.append(0, messages.map(AgentMessage::from).to_vec());
    }
    for finish in ["compact", "recover"] {
        let mut child = process::test("audit::killed::a_process_that_compacts")
            .env("LOOPSTORE_HANGS", &file)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "asked"));
        // The run is unfinished, valid, and not active.
        assert_eq!(outcomes(&store).last().map(String::as_str), Some("running"));
        let report = verify(&store).unwrap();
        assert!(report.ok, "{:#?}", report.problems);
        let asked = RecoverRequest::default();
        assert_eq!(recover(&store, &asked).unwrap().interrupted.len(), 0);
        child.kill().unwrap();
        child.wait().unwrap();
        match finish {
            "compact" => {
                let id = SessionId::new("s").unwrap();
                let report = compact_session_loops(&store, &id, &forced()).unwrap();
                assert_eq!(
                    report.outcome.clone(),
                    loopstore::compact::CompactOutcome::Committed
                );
            }
            _ => assert_eq!(recover(&store, &asked).unwrap().interrupted.len(), 1),
        }
        assert!(!outcomes(&store).contains(&"running".to_owned()));
        let report = verify(&store).unwrap();
        assert!(report.ok, "{:#?}", report.problems);
    }
    assert_eq!(
        outcomes(&store),
        ["interrupted", "committed", "interrupted"]
    );
    history.append(0, vec![AgentMessage::from(Message::user("and now?"))]);
}
