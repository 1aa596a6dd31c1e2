//! Locks of real databases, seen by a connection of another process and of another copy of SQLite.
#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use loopstore_locks::{OwnFile, SharedFile, install, is_byte_free, lock_byte};
use loopstore_testing::{SystemConnection, SystemSqlite};
use rusqlite::{Connection, OpenFlags};

/// The environment variable with the task and the database of the child process.
const CHILD: &str = "LOOPSTORE_LOCKS_CHILD";

fn database() -> (tempfile::TempDir, PathBuf) {
    assert!(install());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("some.db");
    let connection = Connection::open(&path).unwrap();
    let sql = "PRAGMA journal_mode = wal; CREATE TABLE t (x); INSERT INTO t VALUES (1)";
    connection.execute_batch(sql).unwrap();
    (folder, path)
}

fn other(path: &Path) -> SystemConnection {
    SystemSqlite::load().unwrap().connect(path).unwrap()
}

fn can_write(connection: &SystemConnection) -> bool {
    match connection.run("BEGIN IMMEDIATE; ROLLBACK") {
        Ok(_) => true,
        Err(failure) if failure.is_busy() => false,
        Err(failure) => panic!("{failure:?}"),
    }
}

#[test]
fn two_copies_in_one_process_exclude_each_other() {
    if SystemSqlite::needed().is_none() {
        return;
    }
    let (_folder, path) = database();
    let (ours, theirs) = (Connection::open(&path).unwrap(), other(&path));
    ours.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(!can_write(&theirs));
    ours.execute_batch("COMMIT").unwrap();
    assert!(can_write(&theirs));
    theirs.run("BEGIN IMMEDIATE").unwrap();
    let refused = ours.execute_batch("BEGIN IMMEDIATE").unwrap_err();
    assert_eq!(
        refused.sqlite_error_code(),
        Some(rusqlite::ErrorCode::DatabaseBusy)
    );
}

#[test]
fn locks_outlast_the_closing_of_other_descriptors() {
    if SystemSqlite::needed().is_none() {
        return;
    }
    let (_folder, path) = database();
    let ours = Connection::open(&path).unwrap();
    ours.execute_batch("BEGIN IMMEDIATE").unwrap();
    // These closes remove the POSIX locks of a process.
    for end in ["", "-shm", "-wal"] {
        drop(std::fs::File::open(format!("{}{end}", path.display())));
    }
    drop(other(&path).run("SELECT * FROM t").unwrap());
    assert!(!can_write(&other(&path)));
    assert!(path.with_extension("db-wal").exists());
}

#[test]
fn closing_ours_leaves_the_locks_of_the_other_copy() {
    if SystemSqlite::needed().is_none() {
        return;
    }
    let (_folder, path) = database();
    let theirs = other(&path);
    theirs
        .run("BEGIN IMMEDIATE; INSERT INTO t VALUES (2)")
        .unwrap();
    for _ in 0..20 {
        let ours = Connection::open(&path).unwrap();
        ours.busy_timeout(std::time::Duration::ZERO).unwrap();
        let refused = ours.execute_batch("BEGIN IMMEDIATE").unwrap_err();
        assert_eq!(
            refused.sqlite_error_code(),
            Some(rusqlite::ErrorCode::DatabaseBusy)
        );
        drop(ours);
    }
    let open = || {
        let all = std::fs::read_dir("/proc/self/fd").unwrap();
        let targets = all.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
        targets
            .filter(|target| target.starts_with(path.parent().unwrap()))
            .count()
    };
    // Descriptors that cannot be closed are reused instead of accumulating.
    assert!(open() <= 5, "{} descriptors", open());
    theirs.run("COMMIT").unwrap();
    drop(theirs);
    let count = |c: &Connection| c.query_row("SELECT count(*) FROM t", [], |r| r.get::<_, i64>(0));
    let ours = Connection::open(&path).unwrap();
    assert_eq!(count(&ours).unwrap(), 2);
    drop(ours);
    drop(Connection::open(&path).unwrap());
    assert_eq!(
        open(),
        0,
        "descriptors are left though nobody else has the file open"
    );
}

#[test]
fn reading_a_file_leaves_the_locks_of_the_other_copy() {
    if SystemSqlite::needed().is_none() {
        return;
    }
    let (_folder, path) = database();
    let theirs = other(&path);
    // With a rollback journal the locks are on the database file itself.
    theirs
        .run("PRAGMA journal_mode = delete; BEGIN IMMEDIATE; INSERT INTO t VALUES (2)")
        .unwrap();
    let mut head = [0; 16];
    let mut file = SharedFile::open(&path).unwrap();
    file.read_exact(&mut head).unwrap();
    drop(file);
    assert_eq!(&head, b"SQLite format 3\0");
    let ours = Connection::open(&path).unwrap();
    ours.busy_timeout(std::time::Duration::ZERO).unwrap();
    assert!(ours.execute_batch("BEGIN IMMEDIATE").is_err());
    drop(ours);
    theirs.run("COMMIT").unwrap();
}

/// SQLite shares one lock between all connections of a process, whichever of them took it.
#[test]
fn a_connection_that_only_reads_hands_its_lock_to_one_that_writes() {
    if SystemSqlite::needed().is_none() {
        return;
    }
    let (_folder, path) = database();
    let only_reads = OpenFlags::SQLITE_OPEN_READ_ONLY;
    let reader = Connection::open_with_flags(&path, only_reads).unwrap();
    let count = || reader.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0));
    assert_eq!(count().unwrap(), 1);
    let writer = Connection::open(&path).unwrap();
    writer.execute_batch("INSERT INTO t VALUES (2)").unwrap();
    assert_eq!(count().unwrap(), 2);
    // The reader keeps the log from being deleted, whichever descriptor holds the lock by now.
    drop(writer);
    assert!(path.with_extension("db-wal").exists());
    assert_eq!(count().unwrap(), 2);
    let leaves_wal = Connection::open(&path).unwrap();
    let mode = |c: &Connection| c.query_row("PRAGMA journal_mode = delete", [], |r| r.get(0));
    let refused: Result<String, _> = mode(&leaves_wal);
    assert!(refused.is_err() || refused.unwrap() == "wal");
    drop(reader);
    assert_eq!(mode(&leaves_wal).unwrap(), "delete");
    let rollback = "BEGIN EXCLUSIVE; INSERT INTO t VALUES (3); COMMIT";
    leaves_wal.execute_batch(rollback).unwrap();
    let reader = Connection::open_with_flags(&path, only_reads).unwrap();
    let count: i64 = reader
        .query_row("SELECT count(*) FROM t", [], |row| row.get(0))
        .unwrap();
    assert_eq!(count, 3);
    leaves_wal.execute_batch(rollback).unwrap();
}

/// Waits until a condition is true; fails after a limit.
fn eventually(is_so: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !is_so() {
        assert!(begun.elapsed().as_secs() < 100, "it never came about");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

fn run_child(what: &str, path: &Path) -> (std::process::Child, Vec<String>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "another_process",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(CHILD, format!("{what} {}", path.display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let until_ready = output.lines().map_while(Result::ok);
    let mut lines = Vec::new();
    for line in until_ready {
        let is_ready = line.contains("ready");
        lines.push(line);
        if is_ready {
            break;
        }
    }
    (child, lines)
}

#[test]
fn a_forked_child_does_not_keep_the_locks_of_a_parent_that_was_killed() {
    if SystemSqlite::needed().is_none() {
        return;
    }
    let (_folder, path) = database();
    let theirs = other(&path);
    let (mut parent, lines) = run_child("killed", &path);
    assert!(!can_write(&theirs), "{lines:?}");
    let mut options = std::fs::File::options();
    let queue = options
        .write(true)
        .read(true)
        .open(path.with_extension("queue"))
        .unwrap();
    assert!(!is_byte_free(&queue, 7));
    parent.kill().unwrap();
    parent.wait().unwrap();
    // The forked child of the killed process still sleeps.
    let pid = lines.last().unwrap().rsplit(' ').next().unwrap().to_owned();
    assert!(Path::new(&format!("/proc/{pid}")).exists());
    // The child may not have run since the fork.
    eventually(|| can_write(&theirs));
    eventually(|| is_byte_free(&queue, 7));
    Command::new("kill").args(["-9", &pid]).status().unwrap();
}

#[test]
fn a_forked_child_cannot_release_the_locks_of_its_parent() {
    if SystemSqlite::needed().is_none() {
        return;
    }
    let (_folder, path) = database();
    let theirs = other(&path);
    let (mut parent, lines) = run_child("lives", &path);
    assert!(!can_write(&theirs), "{lines:?}");
    parent.kill().unwrap();
    parent.wait().unwrap();
    assert!(can_write(&theirs));
}

/// The child process of the two tests above; as a test it does nothing.
#[test]
fn another_process() {
    let Ok(given) = std::env::var(CHILD) else {
        return;
    };
    let (what, path) = given.split_once(' ').unwrap();
    let path = Path::new(path);
    assert!(install());
    let connection = Connection::open(path).unwrap();
    connection
        .execute_batch("BEGIN IMMEDIATE; INSERT INTO t VALUES (5)")
        .unwrap();
    let mut options = std::fs::File::options();
    options.write(true).read(true).create(true).truncate(false);
    let queue = OwnFile::new(options.open(path.with_extension("queue")).unwrap());
    assert!(lock_byte(&queue, 7));
    // SAFETY: the child calls only functions that are allowed after a fork of a process with several threads,
    // and exits with `_exit`.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        if what == "lives" {
            for fd in 3..64 {
                // SAFETY: the child uses none of them any more.
                unsafe {
                    let mut all = libc::flock {
                        l_type: libc::F_UNLCK as libc::c_short,
                        l_whence: libc::SEEK_SET as libc::c_short,
                        l_start: 0,
                        l_len: 0,
                        l_pid: 0,
                    };
                    libc::fcntl(fd, libc::F_OFD_SETLK, &mut all);
                    libc::close(fd);
                }
            }
        } else {
            std::thread::sleep(std::time::Duration::from_secs(300));
        }
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    if what == "lives" {
        let mut status = 0;
        // SAFETY: waits for the child that was forked above.
        unsafe { libc::waitpid(pid, &mut status, 0) };
    }
    println!("\nready {pid}");
    std::thread::sleep(std::time::Duration::from_secs(300));
}
