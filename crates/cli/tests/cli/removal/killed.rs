//! A process that is killed while it removes: running the command again completes the removal.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use assert_cmd::cargo::CommandCargoExt as _;

use crate::support::removal::*;

fn begin(stage: &Stage, args: &[&str]) -> Child {
    Command::cargo_bin("loopstore")
        .unwrap()
        .args(args)
        .arg("--db")
        .arg(stage.file())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Waits until a query on a separate connection returns 1.
fn wait_for(stage: &Stage, sql: &str) {
    let connection = crate::support::keyed::raw(stage.file()).unwrap();
    for _ in 0..1000 {
        let n: i64 = connection.query_row(sql, [], |row| row.get(0)).unwrap();
        if n == 1 {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{sql}");
}

/// Kills the command when its rows are removed but their bytes are not. A reader of the earlier snapshot keeps the log
/// from being truncated.
fn killed_before_the_bytes_are_gone(args: &[&str]) {
    let stage = Stage::new();
    let store = stage.store();
    tell(&store, "s", &token());
    plain(&store, "other");
    drop(store);
    let reader = crate::support::keyed::raw(stage.file()).unwrap();
    reader
        .execute_batch("BEGIN; SELECT count(*) FROM sessions")
        .unwrap();
    let mut child = begin(&stage, args);
    wait_for(
        &stage,
        "SELECT count(*) FROM maintenance WHERE closed_at IS NOT NULL",
    );
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        stage.count(CORE.as_bytes()) > 8,
        "nothing was left to finish"
    );
    reader.execute_batch("COMMIT").unwrap();
    drop(reader);
    assert!(begin(&stage, args).wait().unwrap().success());
    assert_eq!(stage.count(CORE.as_bytes()), 0);
    let store = stage.store();
    assert!(!store.needs_scrub().unwrap());
    assert_whole(&store);
    let kept = "SELECT count(*) AS n FROM maintenance";
    assert_eq!(number(&store, kept), 1, "the receipt is not written twice");
}

#[test]
fn an_erase_that_is_killed_is_finished_by_running_it_again() {
    if crate::support::keyed::leaves_out("an_erase_that_is_killed_is_finished_by_running_it_again")
    {
        return;
    }
    killed_before_the_bytes_are_gone(&["erase", "s", "--yes", "--reason", "gone"]);
}

#[test]
fn a_redaction_that_is_killed_is_finished_by_running_it_again() {
    if crate::support::keyed::leaves_out(
        "a_redaction_that_is_killed_is_finished_by_running_it_again",
    ) {
        return;
    }
    killed_before_the_bytes_are_gone(&["redact", "s", "--yes"]);
}

#[test]
fn an_erase_that_is_killed_before_it_commits_leaves_all_as_it_was() {
    let stage = Stage::new();
    let store = stage.store();
    tell(&store, "s", &token());
    drop(store);
    let writer = crate::support::keyed::raw(stage.file()).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut child = begin(&stage, &["erase", "s", "--yes"]);
    std::thread::sleep(Duration::from_millis(300));
    child.kill().unwrap();
    child.wait().unwrap();
    writer.execute_batch("COMMIT").unwrap();
    drop(writer);
    let store = stage.store();
    assert_eq!(number(&store, "SELECT count(*) AS n FROM sessions"), 1);
    assert_eq!(number(&store, "SELECT count(*) AS n FROM maintenance"), 0);
    assert_whole(&store);
    drop(store);
    assert!(
        begin(&stage, &["erase", "s", "--yes"])
            .wait()
            .unwrap()
            .success()
    );
    assert_eq!(stage.count(CORE.as_bytes()), 0);
}

#[test]
fn bytes_that_a_killed_redaction_left_are_reported_and_go_with_the_next_write() {
    if crate::support::keyed::leaves_out(
        "bytes_that_a_killed_redaction_left_are_reported_and_go_with_the_next_write",
    ) {
        return;
    }
    let stage = Stage::new();
    let store = stage.store();
    tell(&store, "s", &token());
    plain(&store, "other");
    drop(store);
    let reader = crate::support::keyed::raw(stage.file()).unwrap();
    reader
        .execute_batch("BEGIN; SELECT count(*) FROM sessions")
        .unwrap();
    let mut child = begin(&stage, &["redact", "s", "--yes"]);
    wait_for(
        &stage,
        "SELECT count(*) FROM maintenance WHERE closed_at IS NOT NULL",
    );
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(stage.count(CORE.as_bytes()) > 8);
    reader.execute_batch("COMMIT").unwrap();
    drop(reader);
    let (code, out, _) = super::commands::run(&stage, &["verify"]);
    assert!(code == 0 && out.contains("a removal was cut off"), "{out}");
    assert_eq!(
        super::commands::json(&stage, &["verify"])["unscrubbed"],
        true
    );
    let (code, _, err) = super::commands::run(&stage, &["protect", "other"]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(stage.count(CORE.as_bytes()), 0);
    assert!(super::commands::json(&stage, &["verify"])["unscrubbed"].is_null());
}

/// Starts a command, and kills it as soon as a new file appears in a folder.
fn kill_when_something_is_written(stage: &Stage, args: &[&str], folder: &std::path::Path) {
    let names = || std::fs::read_dir(folder).unwrap().count();
    let before = names();
    let mut child = begin(stage, args);
    while names() == before && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_copy_that_a_killed_backup_left_is_named_and_removed() {
    let stage = Stage::new();
    let store = stage.store();
    tell(&store, "s", &token());
    for at in 0..40 {
        plain(&store, &format!("other-{at}"));
    }
    drop(store);
    let there = tempfile::tempdir().unwrap();
    let files = || {
        let entries = std::fs::read_dir(there.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name());
        names.collect::<Vec<_>>()
    };
    let to = there.path().join("copy.db");
    let args = ["backup", to.to_str().unwrap()];
    let left_one = || {
        for _ in 0..50 {
            let _ = std::fs::remove_file(&to);
            kill_when_something_is_written(&stage, &args, there.path());
            if !to.exists() && !files().is_empty() {
                return;
            }
        }
        panic!("no backup was killed in time: {:?}", files());
    };
    // The next command with this folder removes it.
    left_one();
    let (code, out, _) = super::commands::run(&stage, &["verify"]);
    assert!(
        code == 0 && out.contains("Unfinished copy of the database"),
        "{out}"
    );
    let (code, _, err) = super::commands::run(&stage, &args);
    assert!(code == 0 && err.contains("left half written"), "{err}");
    assert_eq!(files(), ["copy.db"]);
    // A redaction finds the file in another folder.
    left_one();
    let (code, _, err) = super::commands::run(&stage, &["redact", "s", "--yes"]);
    assert!(code == 0 && err.contains("left half written"), "{err}");
    assert_eq!(files().len(), 0);
    let (_, out, _) = super::commands::run(&stage, &["verify"]);
    assert!(!out.contains("Unfinished"), "{out}");
}

#[test]
fn a_killed_export_leaves_nothing() {
    let stage = Stage::new();
    let store = stage.store();
    for at in 0..20 {
        plain(&store, &format!("s-{at}"));
    }
    drop(store);
    let there = tempfile::tempdir().unwrap();
    let to = there.path().join("out.html");
    for wait in 0..20 {
        let mut child = begin(&stage, &["report", "-o", to.to_str().unwrap()]);
        std::thread::sleep(Duration::from_millis(wait * 5));
        child.kill().unwrap();
        child.wait().unwrap();
        let entries = std::fs::read_dir(there.path()).unwrap();
        let names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        assert!(names.is_empty() || names == ["out.html"], "{names:?}");
    }
}
