//! Litestream next to a database that is written to, with the configuration of the guide. Whenever Litestream is
//! killed, the database that it restores passes `verify`, and contains each turn that was acknowledged before the last
//! segment but one was read. The write-ahead log stays short, although the replicator reads it all the time.
//!
//! `LOOPSTORE_REPLICA_KILLS=200` kills it more often. The time of a segment is the time at which its frames had been
//! read; segments are read one after the other.
#![cfg(unix)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use loopstore::SqliteStore;
use loopstore_verify::verify;

use crate::support::amount::{amount, from_variable};
use crate::support::command::loopstore;
use crate::support::histories::Random;
use crate::support::{hang, keyed, needs};

/// The command for a long run.
const KILLS: &str = "LOOPSTORE_REPLICA_KILLS=200 cargo test --test faults replica";
/// The maximum size of the log with this writer: its growth between two checks of the replicator.
const MOST_LOG: u64 = 8 << 20;

/// Returns the configuration of the guide for a database and a folder.
fn configuration(database: &Path, replica: &Path) -> String {
    let guide = std::fs::read_to_string(crate::support::root::path("docs/guide.md")).unwrap();
    let (_, after) = guide.split_once("### Replication of one machine").unwrap();
    let (_, block) = after.split_once("```yaml\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let filled = block
        .replace("/var/lib/agent/agent.db", database.to_str().unwrap())
        .replace("/mnt/replica/agent.db", replica.to_str().unwrap());
    assert!(filled.contains("min-checkpoint-page-count") && !filled.contains("/mnt/"));
    filled
}

/// A database that is written to, its transcript, and the path of its replica.
struct ReplicatedDatabase {
    folder: tempfile::TempDir,
    litestream: PathBuf,
    /// The time at which each turn was acknowledged, by its number.
    acknowledged: Mutex<Vec<SystemTime>>,
    longest_log: AtomicU64,
}

impl ReplicatedDatabase {
    fn new(litestream: PathBuf) -> Self {
        let stage = Self {
            folder: tempfile::tempdir().unwrap(),
            litestream,
            acknowledged: Mutex::default(),
            longest_log: AtomicU64::new(0),
        };
        let text = configuration(&stage.path("a.db"), &stage.path("replica"));
        std::fs::write(stage.path("litestream.yml"), text).unwrap();
        stage.add_turn();
        stage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn acknowledged(&self) -> MutexGuard<'_, Vec<SystemTime>> {
        self.acknowledged.lock().unwrap()
    }

    /// Adds a turn to the transcript, and imports it in a separate process.
    fn add_turn(&self) {
        let nth = self.acknowledged().len();
        let line = |role: &str, text: String| {
            serde_json::json!({"role": role, "content": text}).to_string() + "\n"
        };
        let text = line("user", format!("question {nth}"))
            + &line(
                "assistant",
                format!("answer {nth} {}", "because ".repeat(100)),
            );
        let file = self.path("chat.jsonl");
        let before = std::fs::read_to_string(&file).unwrap_or_default();
        std::fs::write(&file, before + &text).unwrap();
        let output = import(&self.path("a.db"), &file);
        assert!(output.status.success(), "{output:?}");
        self.acknowledged().push(SystemTime::now());
        let log = self.path("a.db-wal").metadata().map_or(0, |log| log.len());
        self.longest_log.fetch_max(log, Ordering::Relaxed);
    }

    fn replicator(&self) -> Replicator {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.path("log"))
            .unwrap();
        let mut command = Command::new(&self.litestream);
        command
            .arg("replicate")
            .arg("-config")
            .arg(self.path("litestream.yml"));
        let child = command.stdout(log.try_clone().unwrap()).stderr(log).spawn();
        Replicator(child.unwrap())
    }

    /// Returns the times at which the segments of the replica had been read, in order.
    fn segments(&self) -> Vec<SystemTime> {
        let Ok(folder) = std::fs::read_dir(self.path("replica/ltx/0")) else {
            return Vec::new();
        };
        let files = folder.map(|file| file.unwrap());
        let whole = files.filter(|file| file.path().extension().is_some_and(|end| end == "ltx"));
        let mut segments: Vec<_> = whole
            .map(|file| {
                (
                    file.file_name(),
                    file.metadata().unwrap().modified().unwrap(),
                )
            })
            .collect();
        segments.sort();
        segments.into_iter().map(|(_, read)| read).collect()
    }

    /// Restores the replica; `None` if nothing was replicated yet.
    fn restore(&self) -> Option<PathBuf> {
        let file = self.path("restored.db");
        for end in ["", "-wal", "-shm", "-queue"] {
            let _ = std::fs::remove_file(self.path(&format!("restored.db{end}")));
        }
        let output = Command::new(&self.litestream)
            .args(["restore", "-if-replica-exists", "-config"])
            .arg(self.path("litestream.yml"))
            .arg("-o")
            .args([&file, &self.path("a.db")])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        file.exists().then_some(file)
    }
}

/// A running replicator, which is killed on drop.
struct Replicator(Child);

impl Drop for Replicator {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn import(database: &Path, file: &Path) -> std::process::Output {
    let mut command = loopstore();
    command.arg("--db").arg(database).arg("import").arg(file);
    command.stdin(Stdio::null()).output().unwrap()
}

/// Checks that a database is valid and has the first turns; returns their number.
fn turns(file: &Path, case: &str) -> usize {
    let store = keyed::open(file).unwrap_or_else(|error| panic!("{case}: {error}"));
    let report = verify(&store).unwrap();
    assert!(
        report.ok && report.index.is_empty(),
        "{case}: {:#?}",
        report.problems
    );
    let texts = texts(&store);
    for (nth, pair) in texts.chunks(2).enumerate() {
        assert_eq!(pair[0], format!("question {nth}"), "{case}");
        assert!(pair[1].starts_with(&format!("answer {nth} ")), "{case}");
    }
    texts.len() / 2
}

fn texts(store: &SqliteStore) -> Vec<String> {
    let sql = "SELECT text FROM v_messages JOIN loops USING (loop_id)
        WHERE role <> 'extension' ORDER BY loops.key, seq";
    let rows = store.query(sql).unwrap().rows;
    rows.iter().map(|row| row[0].read().unwrap()).collect()
}

#[test]
fn what_a_killed_replicator_shipped_is_whole_and_lacks_only_what_came_since() {
    let Some(litestream) = needs::find(&needs::LITESTREAM) else {
        return;
    };
    let stage = ReplicatedDatabase::new(litestream);
    if keyed::key().is_some() {
        return check_without_key(&stage);
    }
    let kills = amount("LOOPSTORE_REPLICA_KILLS", 4);
    let mut random = Random::new(from_variable("LOOPSTORE_SEED").unwrap_or(1));
    let (ended, mut demanded) = (AtomicBool::new(false), 0);
    let (mut furthest, mut longest_ago) = (0, Duration::ZERO);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                stage.add_turn();
            }
        });
        // An error here must not leave the writer running.
        let _end = EndsWith(&ended);
        for kill in 0..kills {
            let replicator = stage.replicator();
            std::thread::sleep(Duration::from_millis(400 + random.below(1_600)));
            drop(replicator);
            let case = format!("kill {kill} of {kills}");
            let segments = stage.segments();
            let told = stage.acknowledged().clone();
            let Some(file) = stage.restore() else {
                assert!(segments.is_empty(), "{case}: nothing is restored");
                continue;
            };
            let found = turns(&file, &case);
            let last_but_one = segments.len().checked_sub(2).map(|at| segments[at]);
            let is_due = |at: &&SystemTime| last_but_one.is_some_and(|read| **at < read);
            let due = told.iter().filter(is_due).count();
            assert!(
                found >= due,
                "{case}: {found} turns of {due} that were shipped"
            );
            demanded += due;
            furthest = furthest.max(told.len().saturating_sub(found));
            if let (Some(lacks), Some(last)) = (told.get(found), told.last()) {
                longest_ago = longest_ago.max(last.duration_since(*lacks).unwrap_or_default());
            }
            assert!(!writer.is_finished(), "{case}: the writer gave up");
        }
    });
    assert!(demanded > 0, "nothing was shipped at all");
    check_complete(&stage);
    let (told, longest) = (
        stage.acknowledged().len(),
        stage.longest_log.load(Ordering::Relaxed),
    );
    println!(
        "{kills} kills, {told} turns, at most {furthest} and {longest_ago:?} behind, log at most {longest} bytes"
    );
    assert!(longest < MOST_LOG, "the log grew to {longest} bytes");
    crate::support::proof::tally(
        "Litestream beside a writer, killed and restored",
        kills,
        KILLS,
    );
}

#[test]
fn an_erase_beside_the_replicator_says_that_it_waits_and_ends_when_that_is_stopped() {
    let Some(litestream) = needs::find(&needs::LITESTREAM) else {
        return;
    };
    if keyed::key().is_some() {
        return;
    }
    let stage = ReplicatedDatabase::new(litestream);
    let replicator = stage.replicator();
    hang::until("something is shipped", || !stage.segments().is_empty());
    stage.add_turn();
    let erase = || {
        let mut command = loopstore();
        command.arg("--db").arg(stage.path("a.db"));
        command.args(["erase", "chat-0", "--yes"]).output().unwrap()
    };
    let refused = erase();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success(), "{said}");
    assert!(
        said.contains("another program is reading an older snapshot"),
        "{said}"
    );
    drop(replicator);
    let finished = erase();
    assert!(finished.status.success(), "{finished:?}");
    for name in ["a.db", "a.db-wal"] {
        let bytes = std::fs::read(stage.path(name)).unwrap_or_default();
        let is_left = bytes.windows(10).any(|bytes| bytes == b"question 0");
        assert!(!is_left, "{name}");
    }
}

struct EndsWith<'a>(&'a AtomicBool);

impl Drop for EndsWith<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Once writing has ended, the replica is complete, and a restored file can be continued.
fn check_complete(stage: &ReplicatedDatabase) {
    let _replicator = stage.replicator();
    let told = stage.acknowledged().len();
    hang::until("everything is shipped", || {
        let restored = stage.restore();
        restored.is_some_and(|file| turns(&file, "at rest") == told)
    });
    let file = stage.path("restored.db");
    stage.add_turn();
    assert!(import(&file, &stage.path("chat.jsonl")).status.success());
    assert_eq!(turns(&file, "restored, and gone on"), told + 1);
}

/// A replicator without the key reports that it cannot read, replicates nothing, and does not disturb the writer.
fn check_without_key(stage: &ReplicatedDatabase) {
    let mut replicator = stage.replicator();
    hang::until("it says so", || {
        let log = std::fs::read_to_string(stage.path("log")).unwrap();
        log.contains("file is not a database")
    });
    (0..3).for_each(|_| stage.add_turn());
    assert!(replicator.0.try_wait().unwrap().is_none(), "it ended");
    drop(replicator);
    assert!(stage.segments().is_empty() && stage.restore().is_none());
    assert_eq!(turns(&stage.path("a.db"), "encrypted"), 4);
}
