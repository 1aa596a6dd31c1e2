//! Stores of this program and connections of another copy of SQLite on one database, in one process and in
//! several.
//!
//! Record locks of the system belong to the process. Without `loopstore-locks`, two copies of SQLite in one
//! process take each other's locks away: the log is deleted under an open store, and acknowledged messages
//! vanish or the file is destroyed. In random histories all messages that either copy acknowledged must be
//! stored at the end, in a database without damage.
//!
//! `LOOPSTORE_TWO_COPIES=2000` plays that number of histories; `LOOPSTORE_SEED=17` plays one.
#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use loopstore::{AgentMessage, Error, Message, SqliteOptions, SqliteStore, Store};
use loopstore_testing::histories::Random;
use loopstore_testing::{SystemConnection, SystemSqlite};
use loopstore_verify::verify;

/// The environment variable that makes this test the second process of a history.
const CHILD: &str = "LOOPSTORE_TWO_COPIES_CHILD";
const HISTORIES: u64 = 40;

/// Returns the numbers of the next messages or notes.
fn numbers(from: u64) -> impl Iterator<Item = u64> {
    from..
}

/// The acknowledged texts of messages and numbers of notes.
#[derive(Default)]
struct Kept {
    messages: Vec<String>,
    notes: Vec<u64>,
}

impl Kept {
    fn join(&mut self, other: Self) {
        self.messages.extend(other.messages);
        self.notes.extend(other.notes);
    }
}

/// A connection of the other copy, and the notes of its open transaction.
struct Other {
    connection: SystemConnection,
    uncommitted: Option<Vec<u64>>,
}

/// An actor on the database, with stores of this program and connections of the other copy.
struct Actor {
    path: PathBuf,
    name: String,
    patience: Duration,
    random: Random,
    ours: Vec<Option<Store>>,
    others: Vec<Option<Other>>,
    children: Vec<Child>,
    numbers: Box<dyn Iterator<Item = u64> + Send>,
    kept: Kept,
    /// True if acknowledged rows are printed, for the parent process.
    reports: bool,
}

impl Actor {
    fn new(path: &Path, name: &str, seed: u64, [ours, others]: [usize; 2]) -> Self {
        Self {
            path: path.to_owned(),
            name: name.to_owned(),
            patience: Duration::from_millis(15),
            random: Random::new(seed),
            ours: (0..ours).map(|_| None).collect(),
            others: (0..others).map(|_| None).collect(),
            children: Vec::new(),
            numbers: Box::new(numbers(seed.wrapping_mul(1000) & 0xFFFF_FFFF)),
            kept: Kept::default(),
            reports: false,
        }
    }

    fn act(&mut self, times: usize) {
        for _ in 0..times {
            let stores = self.ours.len();
            let who = self.random.below((stores + self.others.len()) as u64) as usize;
            match who.checked_sub(stores) {
                None => self.act_with_store(who),
                Some(other) => self.act_with_other(other),
            }
        }
    }

    fn act_with_store(&mut self, at: usize) {
        let Some(store) = &self.ours[at] else {
            let options = SqliteOptions::default().busy_timeout(self.patience);
            match SqliteStore::open_with(&self.path, options) {
                Ok(store) => self.ours[at] = Some(store.into()),
                Err(loopstore::OpenError::Busy) => {}
                Err(error) => panic!("a store is not opened: {error}"),
            }
            return;
        };
        let session = format!("{}-{at}", self.name);
        match self.random.below(8) {
            0 | 1 => self.ours[at] = None,
            2 => {
                let read = store.session(&session).unwrap().context();
                allowed(read.map(|_| ()), "context");
            }
            _ => {
                let text = format!("m{}", self.numbers.next().unwrap());
                let message = Message::user(text.clone());
                let appended = store.session(&session).unwrap().append([message]);
                if allowed(appended.map(|_| ()), "append") {
                    if self.reports {
                        println!("kept {text}");
                    }
                    self.kept.messages.push(text);
                }
            }
        }
    }

    fn act_with_other(&mut self, at: usize) {
        let Some(other) = &mut self.others[at] else {
            let library = SystemSqlite::load().unwrap();
            let connection = library.connect(&self.path).unwrap();
            connection.set_busy_timeout(self.patience.as_millis() as i32);
            self.others[at] = Some(Other {
                connection,
                uncommitted: None,
            });
            return;
        };
        let run = |other: &Other, sql: &str| match other.connection.run(sql) {
            Ok(_) => true,
            Err(failure) if failure.is_busy() => false,
            Err(failure) => panic!("the other copy: {sql}: {failure:?}"),
        };
        match (self.random.below(9), other.uncommitted.is_some()) {
            (0 | 1, _) => self.others[at] = None,
            (2 | 3, false) => {
                if run(other, "BEGIN IMMEDIATE") {
                    other.uncommitted = Some(Vec::new());
                }
            }
            (4, false) => {
                run(other, "VACUUM");
            }
            (5, false) => {
                let how = ["PASSIVE", "FULL", "RESTART", "TRUNCATE"][self.random.below(4) as usize];
                run(other, &format!("PRAGMA wal_checkpoint({how})"));
            }
            (2..=5, true) => {
                let note = self.numbers.next().unwrap();
                if run(other, &format!("INSERT INTO own_notes VALUES ({note})")) {
                    other.uncommitted.as_mut().unwrap().push(note);
                }
            }
            (6, true) => {
                if run(other, "COMMIT") {
                    let notes = other.uncommitted.take().unwrap();
                    if self.reports {
                        notes.iter().for_each(|note| println!("note {note}"));
                    }
                    self.kept.notes.extend(notes);
                }
            }
            (7, true) => {
                if run(other, "ROLLBACK") {
                    other.uncommitted = None;
                }
            }
            _ => {
                run(other, "SELECT count(*) FROM v_messages");
            }
        }
    }

    /// Starts a process that acts too.
    fn begin_process(&mut self) {
        let seed = self.random.below(1 << 30);
        let child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "another_process",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(CHILD, format!("{seed} {}", self.path.display()))
            .stdout(Stdio::piped())
            .spawn();
        self.children.push(child.unwrap());
    }

    /// Ends the processes, some by `kill -9`, and adds the rows that they acknowledged.
    fn end_processes(&mut self) {
        for mut child in std::mem::take(&mut self.children) {
            let kill_after = self
                .random
                .one_in(2)
                .then(|| self.random.below(12) as usize);
            let output = BufReader::new(child.stdout.take().unwrap());
            for (at, line) in output.lines().enumerate() {
                if Some(at) == kill_after {
                    let _ = child.kill();
                }
                let line = line.unwrap();
                // The test runner prints before the first line without a line end.
                if let Some((_, text)) = line.rsplit_once("kept ") {
                    self.kept.messages.push(text.to_owned());
                } else if let Some((_, note)) = line.rsplit_once("note ") {
                    self.kept.notes.push(note.parse().unwrap());
                }
            }
            let ended = child.wait().unwrap();
            assert!(ended.success() || kill_after.is_some(), "{ended}");
        }
    }
}

/// Returns true if an operation succeeded; fails on an error that no lock explains.
fn allowed(done: Result<(), Error>, what: &str) -> bool {
    match done {
        Ok(()) => true,
        Err(Error::Busy | Error::NotFound { .. }) => false,
        Err(error) => panic!("{what}: {error}"),
    }
}

/// Creates an empty database with a table of the user's own.
fn template() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("template.db");
    drop(Store::open(&path).unwrap());
    let other = SystemSqlite::load().unwrap().connect(&path).unwrap();
    other
        .run("CREATE TABLE own_notes (n INTEGER PRIMARY KEY)")
        .unwrap();
    drop(other);
    (folder, path)
}

fn begin(template: &Path) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shared.db");
    std::fs::copy(template, &path).unwrap();
    (folder, path)
}

/// Checks the database with both copies after all have closed it.
fn check(path: &Path, mut kept: Kept, seed: u64) {
    let other = SystemSqlite::load().unwrap().connect(path).unwrap();
    let rows = |sql: &str| {
        other
            .run(sql)
            .unwrap_or_else(|e| panic!("seed {seed}: {sql}: {e:?}"))
    };
    assert_eq!(rows("PRAGMA integrity_check"), [["ok"]], "seed {seed}");
    let mut notes: Vec<u64> = rows("SELECT n FROM own_notes")
        .iter()
        .map(|row| row[0].parse().unwrap())
        .collect();
    let mut messages: Vec<String> = rows("SELECT text FROM v_messages")
        .into_iter()
        .flatten()
        .collect();
    drop(other);
    for list in [&mut notes, &mut kept.notes] {
        list.sort_unstable();
    }
    for list in [&mut messages, &mut kept.messages] {
        list.sort_unstable();
    }
    // A killed process may have committed rows that it did not report.
    notes.retain(|note| kept.notes.binary_search(note).is_ok());
    messages.retain(|text| kept.messages.binary_search(text).is_ok());
    assert_eq!(notes, kept.notes, "seed {seed}: notes of the other copy");
    assert_eq!(messages, kept.messages, "seed {seed}: messages of ours");
    let store = SqliteStore::open(path).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    let report = verify(&store).unwrap();
    assert!(
        report.problems.is_empty(),
        "seed {seed}: {:?}",
        report.problems
    );
}

fn seeds() -> Vec<u64> {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().unwrap());
    match number("LOOPSTORE_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("LOOPSTORE_TWO_COPIES").unwrap_or(HISTORIES)).collect(),
    }
}

fn amounts(random: &mut Random) -> [usize; 2] {
    [2 + random.below(3) as usize, 2]
}

#[test]
fn nothing_is_lost_where_one_thread_uses_both_copies() {
    if SystemSqlite::needed().is_none() {
        return;
    }
    let (_folder, template) = template();
    for seed in seeds() {
        let (_folder, path) = begin(&template);
        let mut random = Random::new(seed);
        let mut actor = Actor::new(&path, "a", seed, amounts(&mut random));
        for _ in 0..4 {
            actor.act(10);
            if random.one_in(6) {
                actor.begin_process();
                actor.act(random.below(8) as usize);
            }
            if random.one_in(2) {
                actor.end_processes();
            }
        }
        actor.end_processes();
        let kept = std::mem::take(&mut actor.kept);
        drop(actor);
        check(&path, kept, seed);
    }
}

#[test]
fn nothing_is_lost_where_threads_use_both_copies() {
    if SystemSqlite::needed().is_none() {
        return;
    }
    let (_folder, template) = template();
    for seed in seeds() {
        let (_folder, path) = begin(&template);
        let mut random = Random::new(seed);
        let [ours, others] = amounts(&mut random);
        let amounts = (0..ours).map(|_| [1, 0]).chain((0..others).map(|_| [0, 1]));
        let actors: Vec<_> = amounts
            .enumerate()
            .map(|(at, amounts)| {
                let seed = seed.wrapping_mul(16) + at as u64 + 1;
                Actor::new(&path, &format!("t{at}"), seed, amounts)
            })
            .collect();
        let mut kept = Kept::default();
        std::thread::scope(|scope| {
            let threads: Vec<_> = actors
                .into_iter()
                .map(|mut actor| {
                    scope.spawn(move || {
                        actor.act(25);
                        actor.kept
                    })
                })
                .collect();
            for thread in threads {
                kept.join(thread.join().unwrap());
            }
        });
        check(&path, kept, seed);
    }
}

/// The second process of a history; as a test it does nothing.
#[test]
fn another_process() {
    let Ok(given) = std::env::var(CHILD) else {
        return;
    };
    let (seed, path) = given.split_once(' ').unwrap();
    let seed: u64 = seed.parse().unwrap();
    let mut actor = Actor::new(Path::new(path), &format!("p{seed}"), seed, [2, 1]);
    actor.reports = true;
    actor.act(30);
}

/// Without the locks of `loopstore-locks`, these histories lose acknowledged rows: the test must detect it.
#[test]
fn a_log_that_the_other_copy_deletes_is_found_out() {
    if SystemSqlite::needed().is_none() {
        return;
    }
    let (_folder, template) = template();
    let (_folder, path) = begin(&template);
    let store = Store::open(&path).unwrap();
    let chat = store.session("a").unwrap();
    chat.append([AgentMessage::from(Message::user("one"))])
        .unwrap();
    let other = SystemSqlite::load().unwrap().connect(&path).unwrap();
    other.run("SELECT count(*) FROM v_messages").unwrap();
    drop(other);
    let log = path.with_extension("db-wal");
    assert!(
        log.exists(),
        "the other copy deleted the log of an open store"
    );
    chat.append([AgentMessage::from(Message::user("two"))])
        .unwrap();
    std::fs::remove_file(&log).unwrap();
    let refused = chat.append([AgentMessage::from(Message::user("three"))]);
    assert!(refused.is_err());
    let again = Store::open(&path).unwrap();
    again
        .session("a")
        .unwrap()
        .append([AgentMessage::from(Message::user("four"))])
        .unwrap();
    drop((chat, store));
    drop(again);
    check(
        &path,
        Kept {
            messages: vec!["four".into()],
            notes: Vec::new(),
        },
        0,
    );
}
