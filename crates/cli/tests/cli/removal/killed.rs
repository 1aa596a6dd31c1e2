//! A process that is killed while it removes: running the command again finishes it.

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

/// Waits until a query on a connection of its own says 1.
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

/// Kills the command when its rows are gone and their bytes are not: a reader of the state before
/// keeps the log from being emptied.
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
