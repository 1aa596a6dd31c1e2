//! Summaries by a command: processes that answer, and processes that fail.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::summarize::stage::{ANSWER, Stage};
use crate::support::hang;
use loopstore::compact::CompactOutcome;
use loopstore::*;

fn by(command: &str) -> SummarizeCompaction {
    SummarizeCompaction::new(Arc::new(CommandSummarizer::new(command)))
}

/// Compacts with a command that gives no answer, and returns the reason in the audit row.
fn falls_back(strategy: SummarizeCompaction) -> String {
    let stage = Stage::new(10);
    let report = stage.compact(strategy);
    assert_eq!(report.outcome, CompactOutcome::Committed);
    assert_eq!(report.fallback.as_deref(), Some("digest"));
    assert_eq!(Some(stage.run("error")), report.error);
    stage.run("error")
}

fn timeout(timeout: Duration) -> SummarizeOptions {
    SummarizeOptions {
        timeout,
        ..SummarizeOptions::default()
    }
}

fn lives(pid: &str) -> bool {
    let zero = Command::new("kill").args(["-0", pid]).output().unwrap();
    zero.status.success()
}

fn written(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    text.ends_with('\n').then(|| text.trim().to_owned())
}

#[test]
fn a_command_answers_the_system_text_and_the_prompt() {
    let folder = tempfile::tempdir().unwrap();
    let (prompt, answer) = (folder.path().join("prompt"), folder.path().join("answer"));
    std::fs::write(&answer, ANSWER).unwrap();
    let command = format!("cat > {} && cat {}", prompt.display(), answer.display());
    let stage = Stage::new(10);
    let report = stage.compact(by(&command));
    assert_eq!((report.fallback, report.error), (None, None));
    assert!(stage.summary().contains("## Plan\n* [ ] docs\n"));
    let prompt = std::fs::read_to_string(prompt).unwrap();
    assert!(prompt.starts_with("You keep the working state"), "{prompt}");
    assert!(
        prompt.contains("\n\n## First prompt\nprompt 0, please\n"),
        "{prompt}"
    );
    let usage: serde_json::Value = serde_json::from_str(&stage.run("usage")).unwrap();
    let name = usage["model"].as_str().unwrap();
    // The arguments are left out: they may contain a key.
    assert!(
        name.starts_with("command cat ") && !name.contains("prompt"),
        "{name}"
    );
}

#[test]
fn a_command_need_not_read_its_prompt() {
    let stage = Stage::new(10);
    let report = stage.compact(by("echo '## Plan'; echo 'Go on.'"));
    assert_eq!((report.fallback, report.error), (None, None));
    assert!(stage.summary().contains("## Plan\nGo on.\n"));
}

#[test]
fn a_command_that_fails_says_why_with_its_last_line() {
    assert_eq!(
        falls_back(by(
            "echo begun; echo first >&2; echo 'no model' >&2; exit 3"
        )),
        "the command exited with 3: no model"
    );
    assert_eq!(falls_back(by("exit 1")), "the command exited with 1");
    assert_eq!(falls_back(by("kill -9 $$")), "the command was killed");
    assert_eq!(falls_back(by("true")), "the answer is empty");
}

#[test]
fn a_command_that_hangs_is_killed_with_all_that_it_started() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let command = format!("sleep 1000 & echo $! > {}; wait", file.display());
    let strategy = by(&command).options(timeout(Duration::from_millis(500)));
    assert_eq!(
        falls_back(strategy),
        "the summariser did not answer in time"
    );
    hang::until("the command is dead", || {
        written(&file).is_none_or(|pid| !lives(&pid))
    });
}

#[test]
fn a_cancelled_command_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let command = format!("sleep 1000 & echo $! > {}; wait", file.display());
    let (flag, begun) = (CancelFlag::new(), file.clone());
    let other = flag.clone();
    std::thread::spawn(move || {
        hang::until("the command runs", || written(&begun).is_some());
        other.cancel();
    });
    assert_eq!(
        falls_back(by(&command).cancel(flag)),
        "the summary was cancelled"
    );
    let pid = written(&file).unwrap();
    hang::until("the command is dead", || !lives(&pid));
}

#[test]
fn a_command_that_floods_is_stopped() {
    let floods = CommandSummarizer::new("yes 'more and more'").max_answer_bytes(100_000);
    let strategy = SummarizeCompaction::new(Arc::new(floods)).options(timeout(hang::HUNG));
    assert_eq!(
        falls_back(strategy),
        "the answer is longer than 100000 bytes"
    );
    // Only the beginning of stderr is read, but a full pipe must not block the command.
    let stage = Stage::new(10);
    let noisy = "head -c 1000000 /dev/zero >&2; echo 'It holds.'";
    let report = stage.compact(by(noisy).options(timeout(hang::HUNG)));
    assert_eq!((report.fallback, report.error), (None, None));
}

#[test]
fn a_command_that_writes_broken_characters_is_read_even_so() {
    let stage = Stage::new(10);
    let report = stage.compact(by(r"printf 'It h\377lds.\n'"));
    assert_eq!((report.fallback, report.error), (None, None));
    assert!(stage.summary().contains("It h\u{FFFD}lds."));
}

#[test]
fn what_a_command_leaves_running_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let stage = Stage::new(10);
    let command = format!(
        "sleep 1000 & echo $! > {}; echo 'It holds.'",
        file.display()
    );
    let report = stage.compact(by(&command).options(timeout(hang::HUNG)));
    assert_eq!((report.fallback, report.error), (None, None));
    let pid = written(&file).unwrap();
    hang::until("what it left is dead", || !lives(&pid));
}
