//! Many processes and threads on one database: they append, compact, search, fork, undo and copy at once, and each
//! keeps a list of what must be stored.
//!
//! `LOOPSTORE_LOAD_SECONDS=600` runs for ten minutes, and prints the latencies (`-- --nocapture`).

mod append_processes;
mod worker;

use std::io::Read;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::support::amount::amount;
use crate::support::histories::{History, open, user};
use crate::support::{hang, process, proof};
use loopstore::extend as store;
use loopstore_verify::verify;

const PROCESSES: usize = 3;

fn load() -> Duration {
    Duration::from_secs(amount("LOOPSTORE_LOAD_SECONDS", 2))
}

fn start(file: &Path, number: usize) -> Child {
    process::test("crowd::worker::a_worker_process")
        .env("LOOPSTORE_CROWD", file)
        .env("LOOPSTORE_CROWD_NUMBER", number.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Ends a worker. Returns the latencies of its appends in microseconds.
fn finish(mut child: Child) -> Vec<u64> {
    drop(child.stdin.take());
    let mut text = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert!(child.wait().unwrap().success(), "{text}");
    let told = text.lines().filter_map(|line| line.strip_prefix("took "));
    told.map(|number| number.parse().unwrap()).collect()
}

#[test]
fn what_many_were_told_is_stored_is_there_and_nobody_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("crowd.db");
    let store = open(&file);
    let log = folder.path().join("crowd.db-wal");
    let workers: Vec<Child> = (0..PROCESSES).map(|number| start(&file, number)).collect();
    // Meanwhile a reader holds one snapshot for long: the log cannot restart until it ends.
    store::read(&store, |read| {
        let before = read.sessions()?.len();
        std::thread::sleep(load() / 2);
        assert_eq!(read.sessions()?.len(), before);
        Ok(())
    })
    .unwrap();
    let mut took: Vec<u64> = workers.into_iter().flat_map(finish).collect();
    took.sort_unstable();
    assert!(took.len() > PROCESSES, "{took:?}");
    let command = "LOOPSTORE_LOAD_SECONDS=600 cargo test --test faults crowd";
    proof::tally("turn appended in a crowd", took.len() as u64, command);
    let at = |share: usize| Duration::from_micros(took[(took.len() - 1) * share / 100]);
    let length = std::fs::metadata(&log).map_or(0, |log| log.len());
    println!(
        "{} appends: median {:.1?}, 99 % {:.1?}, longest {:.1?}; log {} KiB",
        took.len(),
        at(50),
        at(99),
        at(100),
        length >> 10
    );
    let report = verify(&store).unwrap();
    assert!(report.ok, "{:#?}", report.problems);
    assert!(report.index.is_empty(), "{:?}", report.index);
}

#[test]
#[cfg(debug_assertions)]
fn a_commit_that_is_acknowledged_and_not_made_is_found_out() {
    let test = "crowd::what_many_were_told_is_stored_is_there_and_nobody_is_refused";
    proof::catches(test, "lost-write", &[], "panicked");
}

/// The number of turns that each of four writers appends while the other three write too.
const TURNS: usize = 60;

/// `cargo bench --bench crowd` measures the waiting times.
#[test]
fn nobody_starves_while_four_write_all_the_time() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("four.db");
    let store = open(&file);
    let start = |number: usize| {
        process::test("crowd::worker::a_process_that_writes_until_it_is_told")
            .env("LOOPSTORE_CROWD", &file)
            .env("LOOPSTORE_CROWD_NUMBER", number.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let writers: Vec<Child> = (0..4).map(start).collect();
    let sql = format!(
        "SELECT session_id FROM v_messages GROUP BY session_id HAVING count(*) >= {}",
        3 * TURNS
    );
    hang::until("each writes", || store.query(&sql).unwrap().rows.len() == 4);
    for writer in writers {
        // Closing its input ends the writer.
        assert!(finish(writer).len() >= TURNS);
    }
}

/// A long-lived reader keeps the log from being truncated; once it is gone, the log is short again.
#[test]
fn a_log_that_a_reader_made_long_is_short_once_it_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("long.db");
    let log = folder.path().join("long.db-wal");
    let store = open(&file);
    let history = History::new(&store, "s");
    let long = "words ".repeat(100_000);
    let write = |turns: std::ops::Range<u32>| {
        turns.for_each(|turn| history.append(0, vec![user(&long, turn)]));
    };
    let length = || std::fs::metadata(&log).unwrap().len();
    std::thread::scope(|scope| {
        let (held, hold) = std::sync::mpsc::channel::<()>();
        let (begun, begin) = std::sync::mpsc::channel();
        let store = &store;
        scope.spawn(move || {
            store::read(store, |read| {
                let sessions = read.sessions()?.len();
                begun.send(sessions).unwrap();
                let _ = hold.recv();
                Ok(())
            })
        });
        begin.recv().unwrap();
        write(0..90);
        assert!(length() > 40 << 20, "{}", length());
        drop(held);
    });
    // A writer waits for a while after a failed attempt to truncate the log.
    let mut turn = 90;
    hang::until("the log is short", || {
        write(turn..turn + 1);
        turn += 1;
        length() <= 32 << 20
    });
    let report = verify(&store).unwrap();
    assert!(report.ok, "{:#?}", report.problems);
}
