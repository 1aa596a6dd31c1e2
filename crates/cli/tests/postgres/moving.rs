//! Sessions copied from a file to a server and back: equal byte for byte, also while an agent continues the session,
//! and when the copy is killed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use loopstore::extend::{SessionFlags, lease, source};
use loopstore::{extend as store, *};
use loopstore_copy::{CopyReport, copy, copy_at_rest};
use loopstore_export::{ExportForm, export};
use loopstore_postgres::{PostgresOptions, PostgresStore};
use loopstore_recorder::{RecorderOptions, SessionRecorder};
use loopstore_verify::verify;

use crate::support::amount::{amount, is_long};
use crate::support::events::{end, record_all, start, start_after, turn};
use crate::support::hang::HUNG;
use crate::support::histories::{History, Random};
use crate::support::server::PostgresServer;
use crate::support::{events, keyed, process, server, views};

/// Fills a store with three random histories.
fn fill(store: &dyn SessionStore) {
    for seed in 40..43 {
        let mut history = History::new(store, &format!("session-{seed}"));
        let mut random = Random::new(seed);
        (0..15).for_each(|_| history.step(&mut random));
    }
}

/// Opens a database by its address or its file.
fn open(place: &str) -> Box<dyn Database> {
    match place.starts_with("postgres:") {
        true => Box::new(PostgresStore::open(place).unwrap()),
        false => Box::new(keyed::open(place).unwrap()),
    }
}

/// Returns the copies to test: file to server, server to file, file to file.
fn pairs(server: &PostgresServer, folder: &Path) -> [(String, String); 3] {
    let file = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let address = || server.address(&server.prepared());
    [
        (file("a.db"), address()),
        (address(), file("b.db")),
        (file("c.db"), file("d.db")),
    ]
}

fn lines(store: &dyn SessionStore, id: &SessionId) -> Vec<u8> {
    let mut out = Vec::new();
    export(store, id, None, ExportForm::Lines, &mut out).unwrap();
    out
}

fn assert_same(from: &dyn Database, to: &dyn Database) {
    let sessions = store::read(from, |read| read.sessions()).unwrap();
    let there = store::read(to, |read| read.sessions()).unwrap();
    assert_eq!(sessions.len(), there.len());
    for row in sessions {
        assert!(lines(from, &row.session_id) == lines(to, &row.session_id));
    }
    assert_whole(to);
}

fn assert_whole(store: &dyn Database) {
    let report = verify(store).unwrap();
    assert!(report.ok, "{:?}", report.problems);
}

fn moved(from: &dyn Database, to: &dyn Database) -> CopyReport {
    let folder = tempfile::tempdir().unwrap();
    let report = copy(from, to, folder.path(), &mut |_, _| {}).unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    report
}

fn copy_resting(from: &dyn Database, to: &dyn Database, patience: Duration) -> CopyReport {
    let folder = tempfile::tempdir().unwrap();
    copy_at_rest(from, to, folder.path(), patience, &mut |_, _| {}).unwrap()
}

#[test]
fn a_copy_is_the_same_there_and_back_goes_on_and_brings_what_is_new() {
    let Some(server) = server::store() else {
        return;
    };
    let file = SqliteStore::in_memory().unwrap();
    fill(&file);
    let moved = |from: &dyn Database, to: &dyn Database| {
        let report = moved(from, to);
        assert!(report.is_whole(), "{report:?}");
        (report.copied, report.same)
    };
    assert_eq!(moved(&file, &server), (3, 0));
    assert_eq!(moved(&file, &server), (0, 3));
    for row in store::read(&file, |read| read.sessions()).unwrap() {
        views::compare(&file, &server, &row.session_id);
    }
    let mut grown = History::new(&file, "session-new");
    let mut random = Random::new(7);
    (0..6).for_each(|_| grown.step(&mut random));
    assert_eq!(moved(&file, &server), (1, 3));
    let back = SqliteStore::in_memory().unwrap();
    assert_eq!(moved(&server, &back), (4, 0));
    for report in [verify(&server).unwrap(), verify(&back).unwrap()] {
        assert!(report.ok, "{:?}", report.problems);
    }
}

/// The number of turns in a loop of the recorder's process.
const IN_A_LOOP: u32 = 3;

fn name_of(at: u32) -> String {
    format!("loop-{at}")
}

/// The process that records, until its input ends.
#[test]
fn a_recorder_process() {
    let Ok(place) = std::env::var("LOOPSTORE_MOVED") else {
        return;
    };
    let input = std::thread::spawn(|| std::io::stdin().read_line(&mut String::new()));
    let store = open(&place);
    let options = RecorderOptions {
        owner: "the agent".into(),
        ..RecorderOptions::default()
    };
    let mut recorder = SessionRecorder::new(&*store, options);
    for at in 0.. {
        let name = name_of(at);
        let begun = match at.checked_sub(1) {
            None => start(&name),
            Some(before) => start_after(&name, &name_of(before)),
        };
        record_all(&mut recorder, vec![begun]);
        println!("\nbegan");
        for number in 0..IN_A_LOOP {
            record_all(&mut recorder, turn(&name, number));
            std::thread::sleep(Duration::from_millis(10));
        }
        record_all(&mut recorder, vec![end(&name)]);
        if input.is_finished() {
            return;
        }
        // The time in which a person reads the answer.
        std::thread::sleep(Duration::from_millis(250));
    }
}

fn recorder_on(place: &str) -> Child {
    let mut child = process::test("moving::a_recorder_process")
        .env("LOOPSTORE_MOVED", place)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let mut told = out.lines().map_while(Result::ok);
    assert!(told.any(|line| line == "began"));
    // Its later output must not block it.
    std::thread::spawn(move || told.for_each(drop));
    child
}

#[test]
fn a_copy_beside_a_recorder_is_whole_at_each_moment_and_equal_when_it_rests() {
    let Some(server) = server::server() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    for (from, to) in pairs(server, folder.path()) {
        let (source, target) = (open(&from), open(&to));
        fill(&*source);
        let mut recorder = recorder_on(&from);
        let begun = Instant::now();
        let mut grown = 0;
        while grown < 3 {
            assert!(begun.elapsed() < HUNG, "the recorder does nothing");
            let report = moved(&*source, &*target);
            assert!(report.is_whole(), "{report:?}");
            grown += u64::from(report.copied > 0);
        }
        assert_whole(&*target);
        let report = copy_resting(&*source, &*target, HUNG);
        assert!(report.is_whole(), "{report:?}");
        drop(recorder.stdin.take());
        assert!(recorder.wait().unwrap().success(), "a lease was in its way");
        let report = copy_resting(&*source, &*target, Duration::ZERO);
        assert!(report.is_whole(), "{report:?}");
        assert_same(&*source, &*target);
    }
}

#[test]
fn a_last_copy_waits_for_the_driver_names_it_and_lets_go() {
    let Some(server) = server::server() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    for (from, to) in pairs(server, folder.path()) {
        let (source, target) = (open(&from), open(&to));
        fill(&*source);
        let options = |owner: &str| RecorderOptions {
            owner: owner.into(),
            ..RecorderOptions::default()
        };
        let mut recorder = SessionRecorder::new(&*source, options("the agent"));
        record_all(&mut recorder, vec![start("a")]);
        record_all(&mut recorder, turn("a", 0));
        let begun = Instant::now();
        let report = copy_resting(&*source, &*target, Duration::from_millis(300));
        assert!(begun.elapsed() >= Duration::from_millis(300));
        let [held] = &report.at_work[..] else {
            panic!("{report:?}");
        };
        assert_eq!(held.owner.as_deref(), Some("the agent"));
        assert!(held.to_string().contains("driven by `the agent` until 2"));
        assert!(!report.is_whole() && report.differ.is_empty());
        // The recorder continues as usual; everything that the copy wrote before it waited is complete.
        record_all(&mut recorder, turn("a", 1));
        assert_whole(&*target);
        recorder.release(&events::id("a")).unwrap();
        let report = copy_resting(&*source, &*target, Duration::ZERO);
        assert!(report.is_whole() && report.copied == 1, "{report:?}");
        assert_same(&*source, &*target);
        let taken = store::read(&*source, |read| {
            let key = read.current(&events::session())?.unwrap().1;
            read.lease(key)
        });
        let taken = taken.unwrap().unwrap();
        assert!(taken.owner.starts_with("copy/") && taken.released);
        // The source changes afterwards: the next copy writes the change.
        let (mut other, _) = SessionRecorder::open(
            &*source,
            options("another agent"),
            &events::session(),
            &events::id("a"),
        )
        .unwrap();
        record_all(&mut other, turn("a", 2));
        record_all(&mut other, vec![end("a")]);
        let report = moved(&*source, &*target);
        assert_eq!((report.copied, report.same), (1, 3));
        assert_same(&*source, &*target);
    }
}

#[test]
fn a_loop_that_never_had_a_driver_is_not_taken_for_one_whose_driver_died() {
    let (from, to) = (
        SqliteStore::in_memory().unwrap(),
        SqliteStore::in_memory().unwrap(),
    );
    let history = History::new(&from, "session");
    history.append(0, vec![crate::support::histories::user("hello", 0)]);
    assert!(copy_resting(&from, &to, Duration::ZERO).is_whole());
    let recovered =
        loopstore_recorder::recover(&from, &loopstore_recorder::RecoverRequest::default()).unwrap();
    assert_eq!(recovered.aborted, []);
    let key = history.row(0).key;
    assert!(
        store::read(&from, |read| read.lease(key))
            .unwrap()
            .is_none()
    );
    let mut held = None;
    store::write(&from, |write| {
        held = Some(lease::acquire(write, key, "me", 60_000, lease_now())?);
        Ok(())
    })
    .unwrap();
    let report = copy_resting(&from, &to, Duration::ZERO);
    assert_eq!(report.at_work[0].owner.as_deref(), Some("me"));
}

fn lease_now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap().as_millis() as i64
}

/// Returns a copy command with a folder of its own for temporary files.
fn command(from: &str, to: &str, temporary: &Path) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("loopstore"));
    command
        .args(["copy", "--to", to, "--json"])
        .env("LOOPSTORE_DB", from)
        .env("TMPDIR", temporary);
    command
}

#[test]
fn a_copy_that_is_killed_leaves_no_file_and_is_finished_by_the_next() {
    let Some(server) = server::server() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random::new(99);
    let kills = amount("LOOPSTORE_KILLS", 3);
    for (from, to) in pairs(server, folder.path()) {
        let temporary = tempfile::tempdir().unwrap();
        fill(&*open(&from));
        // Each round has something new to copy. If a copy finishes, the next one gets less time.
        let (mut killed, mut most) = (0, 250);
        for attempt in 0.. {
            let source = open(&from);
            let mut more = History::new(&*source, &format!("more-{attempt}"));
            (0..6).for_each(|_| more.step(&mut random));
            let mut child = command(&from, &to, temporary.path())
                .args(["--final", "--wait", "30"])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            std::thread::sleep(Duration::from_millis(random.below(most)));
            match child.try_wait().unwrap() {
                Some(_) => most = (most * 2 / 3).max(20),
                None => killed += 1,
            }
            child.kill().unwrap();
            child.wait().unwrap();
            for left in std::fs::read_dir(temporary.path()).unwrap() {
                // Killed before it could remove the name: nothing had been written.
                assert_eq!(left.unwrap().metadata().unwrap().len(), 0);
            }
            if killed == kills {
                break;
            }
        }
        let output = command(&from, &to, temporary.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_same(&*open(&from), &*open(&to));
        assert_whole(&*open(&from));
    }
}

#[test]
fn what_is_there_already_is_compared_without_a_write() {
    let Some(server) = server::server() else {
        return;
    };
    let address = server.address(&server.prepared());
    let file = SqliteStore::in_memory().unwrap();
    fill(&file);
    let id = SessionId::new("session-40").unwrap();
    store::write(&file, |write| {
        let key = write.session(&id)?.unwrap().key;
        let bytes = &mut std::io::Cursor::new(b"the transcript".repeat(200_000));
        source::keep(write, bytes, "openai-chat", "/a/b.jsonl", &[key]).unwrap();
        let protected_at = Some("2026-01-01T00:00:00Z".to_owned());
        write.put_flags(
            key,
            &SessionFlags {
                protected_at,
                redacts: false,
            },
        )
    })
    .unwrap();
    assert!(moved(&file, &open_with(&address, false)).is_whole());
    let reading = open_with(&address, true);
    let report = moved(&file, &reading);
    assert_eq!((report.same, report.copied), (3, 0));
    store::read(&reading, |read| {
        let key = read.session(&id)?.unwrap().key;
        assert!(read.flags(key)?.protected_at.is_some());
        assert_eq!(read.sources(key)?[0].path, "/a/b.jsonl");
        Ok(())
    })
    .unwrap();
    // A session that must be written fails with an error.
    History::new(&file, "new").append(0, vec![crate::support::histories::user("hello", 0)]);
    let folder = tempfile::tempdir().unwrap();
    let refused = copy(&file, &reading, folder.path(), &mut |_, _| {});
    assert!(
        matches!(
            refused,
            Err(loopstore_copy::CopyError::Import(
                loopstore_transcripts::ImportError::Store(StoreError::ReadOnly)
            ))
        ),
        "{refused:?}"
    );
}

fn open_with(address: &str, read_only: bool) -> PostgresStore {
    PostgresStore::open_with(address, PostgresOptions::new().read_only(read_only)).unwrap()
}

#[test]
fn receipts_come_along_and_what_was_erased_since_is_told() {
    let Some(server) = server::server() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    for (from, to) in pairs(server, folder.path()) {
        let (source, target) = (open(&from), open(&to));
        fill(&*source);
        let secret = format!("ghp_{}", "zq7xw8e9r1t2y3u4i5o6p7a8s9d1f2g3h4j5");
        History::new(&*source, "redacted")
            .append(0, vec![crate::support::histories::user(&secret, 0)]);
        let erase = |store: &dyn Database, id: &str| {
            let request =
                loopstore_admin::retention::EraseRequest::new(SessionId::new(id).unwrap());
            loopstore_admin::retention::erase(store, &request).unwrap();
        };
        erase(&*source, "session-40");
        run(&from, &["redact", "redacted", "--yes"]);
        let report = moved(&*source, &*target);
        assert!(report.is_whole(), "{report:?}");
        assert_eq!((report.copied, report.receipts), (3, 2));
        assert_eq!(moved(&*source, &*target).receipts, 0);
        let told = receipts(&*target);
        assert!(
            told.iter()
                .any(|(kind, said)| kind == "erase" && said.contains("session-40"))
        );
        assert!(
            told.iter()
                .any(|(kind, said)| kind == "redact" && said.contains("github"))
        );
        assert_whole(&*target);
        // A session with the same name is a new one, also for the receipt.
        History::new(&*target, "session-40");
        assert_whole(&*target);
        erase(&*source, "session-41");
        let report = moved(&*source, &*target);
        assert_eq!(report.erased.len(), 1);
        assert_eq!(report.erased[0].as_str(), "session-41");
        let output = command(&from, &to, folder.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("session session-41 was erased here but is still in the copy"));
        erase(&*target, "session-41");
        assert!(moved(&*source, &*target).is_whole());
        assert_whole(&*target);
    }
}

fn run(place: &str, args: &[&str]) {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("loopstore"));
    let output = command
        .args(args)
        .env("LOOPSTORE_DB", place)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn receipts(store: &dyn Database) -> Vec<(String, String)> {
    let mut all = Vec::new();
    store
        .scan(Box::new(|scan| {
            let rows = scan.receipts()?.into_iter();
            all = rows.map(|row| (row.kind, row.detail)).collect();
            Ok(())
        }))
        .unwrap();
    all
}

#[test]
fn a_session_larger_than_the_memory_is_copied() {
    if !is_long() {
        return;
    }
    let Some(server) = server::server() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let [to_server, to_file, _] = pairs(server, folder.path());
    let (messages, bytes) = (1_024, 64 << 10);
    let first = open(&to_server.0);
    let history = History::new(&*first, "huge");
    let mut random = Random::new(5);
    for turn in 0..messages / 64 {
        let said = (0..64).map(|_| {
            let number = random.below(1 << 40);
            crate::support::histories::user(&format!("{number:x} ").repeat(bytes / 11), turn)
        });
        history.append(0, said.collect());
    }
    // The first of the two copies creates the session on the server.
    for (from, to) in [&to_server, &(to_server.1.clone(), to_file.1)] {
        // The limit for data and stacks, in KiB: half of the session.
        let mut limited = Command::new("sh");
        limited
            .args(["-c", "ulimit -d 32768 && exec \"$0\" \"$@\""])
            .arg(assert_cmd::cargo::cargo_bin("loopstore"))
            .args(["copy", "--to", to, "--json"])
            .env("LOOPSTORE_DB", from);
        let output = limited.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(told["copied"], 1);
        assert!(told["bytes"].as_u64().unwrap() > 60 << 20);
    }
}
