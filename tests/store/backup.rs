//! A backup is complete, a snapshot of one point in time, and never partial.

use std::os::unix::fs::PermissionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::histories::{History, answer, user};
use crate::support::keyed;
use loopstore::SqliteStore;
use loopstore_admin::backup::{BackupError, backup, compact_backup};
use loopstore_verify::verify;

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn fill(store: &SqliteStore, turns: u32) -> History<'_> {
    let history = History::new(store, "s");
    for turn in 0..turns {
        let text = format!("{turn} {}", "word ".repeat(400));
        history.append(0, vec![user(&text, turn), answer(&text, &[], turn)]);
    }
    history
}

fn messages(path: &Path) -> i64 {
    let store = keyed::open(path).unwrap();
    let rows = store.query("SELECT count(*) FROM v_messages").unwrap();
    rows.rows[0][0].read().unwrap()
}

#[test]
fn a_copy_made_while_a_writer_appends_is_one_moment() {
    let (work, copies) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = work.path().join("a.db");
    let store = keyed::open(&path).unwrap();
    let history = fill(&store, 400);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut turn = 1000;
            while !done.load(Ordering::Relaxed) {
                history.append(0, vec![user("more", turn), answer("yes", &[], turn)]);
                turn += 1;
            }
        });
        // Another process would reopen the file.
        let reader = keyed::open(&path).unwrap();
        let mut last = 0;
        for at in 0..5 {
            let to = copies.path().join(format!("{at}.db"));
            let mut told = Vec::new();
            let progress = &mut |copied, all| told.push((copied, all));
            let bytes = backup(&reader, &to, false, progress).unwrap();
            assert_eq!(bytes, std::fs::metadata(&to).unwrap().len());
            assert!(told.last().is_some_and(|(copied, all)| copied == all));
            let count = messages(&to);
            assert!(
                count >= last && count >= 800 && count % 2 == 0,
                "{count} after {last}"
            );
            last = count;
        }
        done.store(true, Ordering::Relaxed);
    });
    let copy = copies.path().join("4.db");
    assert!(verify(&keyed::open(&copy).unwrap()).unwrap().ok);
    let mode = std::fs::metadata(&copy).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let only: Vec<_> = (0..5).map(|at| format!("{at}.db")).collect();
    assert_eq!(names(copies.path()), only);
}

#[test]
fn a_copy_that_is_cut_off_leaves_nothing_of_its_name() {
    let (work, copies) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = keyed::open(work.path().join("a.db")).unwrap();
    fill(&store, 50);
    let to = copies.path().join("copy.db");
    for old in [None, Some("old")] {
        if let Some(old) = old {
            std::fs::write(&to, old).unwrap();
        }
        let cut_off = || backup(&store, &to, true, &mut |_, _| panic!("cut off"));
        assert!(catch_unwind(AssertUnwindSafe(cut_off)).is_err());
        assert_eq!(std::fs::read_to_string(&to).ok().as_deref(), old);
        assert_eq!(names(copies.path()).len(), usize::from(old.is_some()));
    }
    backup(&store, &to, true, &mut |_, _| {}).unwrap();
    assert_eq!(messages(&to), 100);
}

#[test]
fn nothing_is_written_over_by_mistake() {
    let work = tempfile::tempdir().unwrap();
    let path = work.path().join("a.db");
    let store = keyed::open(&path).unwrap();
    fill(&store, 2);
    let before = std::fs::read(&path).unwrap();
    let link = work.path().join("link.db");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    for own in [&path, &link, &work.path().join("a.db-wal")] {
        let error = backup(&store, own, true, &mut |_, _| {}).unwrap_err();
        assert!(matches!(error, BackupError::IsTheDatabase(_)), "{error}");
    }
    let there = work.path().join("there.db");
    std::fs::write(&there, "mine").unwrap();
    let error = backup(&store, &there, false, &mut |_, _| {}).unwrap_err();
    assert!(matches!(error, BackupError::Exists(_)), "{error}");
    // The log would be read as that of the copy.
    std::fs::write(work.path().join("there.db-wal"), "log").unwrap();
    let error = backup(&store, &there, true, &mut |_, _| {}).unwrap_err();
    assert!(matches!(error, BackupError::InUse(_)), "{error}");
    assert_eq!(std::fs::read_to_string(&there).unwrap(), "mine");
    let error = backup(&store, Path::new("/dev/null"), true, &mut |_, _| {}).unwrap_err();
    assert!(matches!(error, BackupError::NoFile(_)), "{error}");
    let error = backup(
        &store,
        &work.path().join("none/a.db"),
        false,
        &mut |_, _| {},
    )
    .unwrap_err();
    assert!(matches!(error, BackupError::Write { .. }), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn a_damaged_database_does_not_replace_an_earlier_backup() {
    let work = tempfile::tempdir().unwrap();
    let (path, to) = (work.path().join("a.db"), work.path().join("copy.db"));
    fill(&keyed::open(&path).unwrap(), 3);
    let store = keyed::open(&path).unwrap();
    backup(&store, &to, false, &mut |_, _| {}).unwrap();
    drop(store);
    let good = std::fs::read(&to).unwrap();
    let connection = keyed::raw(&path).unwrap();
    connection
        .execute_batch("UPDATE turns SET tokens = tokens + 1")
        .unwrap();
    drop(connection);
    let store = keyed::open(&path).unwrap();
    let error = backup(&store, &to, true, &mut |_, _| {}).unwrap_err();
    let BackupError::Damaged(report) = error else {
        panic!("{error}")
    };
    assert!(!report.ok && !report.problems.is_empty());
    assert_eq!(std::fs::read(&to).unwrap(), good);
}

#[test]
fn a_database_in_memory_can_be_saved() {
    if keyed::leaves_out("a_database_in_memory_can_be_saved") {
        return;
    }
    let work = tempfile::tempdir().unwrap();
    let to = work.path().join("copy.db");
    let store = SqliteStore::in_memory().unwrap();
    fill(&store, 3);
    backup(&store, &to, false, &mut |_, _| {}).unwrap();
    assert_eq!(messages(&to), 6);
}

/// Returns a message's JSON of each row, in order.
fn message_texts(path: &Path) -> Vec<String> {
    let store = keyed::open(path).unwrap();
    let rows = store
        .query("SELECT payload, tokens FROM v_messages ORDER BY session_id, loop_id, seq")
        .unwrap();
    rows.rows.iter().map(|row| format!("{row:?}")).collect()
}

#[test]
fn a_compact_copy_holds_the_same_and_less_room() {
    let work = tempfile::tempdir().unwrap();
    let (path, plain, compact) = (
        work.path().join("a.db"),
        work.path().join("plain.db"),
        work.path().join("compact.db"),
    );
    let store = keyed::open(&path).unwrap();
    fill(&store, 40);
    // Deletions leave free pages.
    let connection = keyed::raw(&path).unwrap();
    connection
        .execute_batch(
            "CREATE TABLE filler (data BLOB);
             WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500)
             INSERT INTO filler SELECT randomblob(2000) FROM n;
             DROP TABLE filler",
        )
        .unwrap();
    drop(connection);
    let whole = backup(&store, &plain, false, &mut |_, _| {}).unwrap();
    let bytes = compact_backup(&store, &compact, false).unwrap();
    assert_eq!(bytes, std::fs::metadata(&compact).unwrap().len());
    assert!(bytes + 900_000 < whole, "{bytes} of {whole}");
    let checked = |path: &Path| verify(&keyed::open(path).unwrap()).unwrap();
    assert_eq!(checked(&compact), checked(&path));
    assert!(checked(&compact).ok);
    // An encrypted copy has the pages of its original.
    let pages = keyed::pages_of(&keyed::raw(&compact).unwrap());
    assert_eq!(pages, keyed::page_bytes());
    assert_eq!(message_texts(&compact), message_texts(&path));
    let mode = std::fs::metadata(&compact).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // Existing files stay.
    let error = compact_backup(&store, &plain, false).unwrap_err();
    assert!(matches!(error, BackupError::Exists(_)), "{error}");
    assert_eq!(std::fs::metadata(&plain).unwrap().len(), whole);
    // The reading store that made the copy still only reads, and the other one still writes.
    assert_eq!(messages(&path), 80);
    History::new(&store, "t").append(0, vec![user("more", 0)]);
    assert_eq!(messages(&path), 81);
}

#[test]
fn a_compact_copy_made_while_a_writer_appends_is_one_moment() {
    let work = tempfile::tempdir().unwrap();
    let path = work.path().join("a.db");
    let store = keyed::open(&path).unwrap();
    let history = fill(&store, 200);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut turn = 1000;
            while !done.load(Ordering::Relaxed) {
                history.append(0, vec![user("more", turn), answer("yes", &[], turn)]);
                turn += 1;
            }
        });
        let reader = keyed::open(&path).unwrap();
        for at in 0..3 {
            let to = work.path().join(format!("{at}-copy.db"));
            compact_backup(&reader, &to, false).unwrap();
            let count = messages(&to);
            assert!(count >= 400 && count % 2 == 0, "{count}");
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_database_in_memory_can_be_saved_compact() {
    if keyed::leaves_out("a_database_in_memory_can_be_saved_compact") {
        return;
    }
    let work = tempfile::tempdir().unwrap();
    let to = work.path().join("copy.db");
    let store = SqliteStore::in_memory().unwrap();
    fill(&store, 3);
    compact_backup(&store, &to, false).unwrap();
    assert_eq!(messages(&to), 6);
    let error = compact_backup(&store, &work.path().join("none/a.db"), false).unwrap_err();
    assert!(matches!(error, BackupError::Write { .. }), "{error}");
}
