//! A process of the crowd: two threads, each with a session.

use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use loopstore::search::{SearchQuery, search};
use loopstore::*;
use loopstore_admin::backup::backup;

use crate::crowd::load;
use crate::support::hang::HUNG;
use crate::support::histories::{History, Random, answer, loop_id, open, result, user};
use crate::support::keyed;

/// The maximum memory of a worker, in KiB, and the maximum number of open files.
const MOST_MEMORY: u64 = 200 << 10;
const MOST_FILES: usize = 64;

#[test]
fn a_worker_process() {
    let Some(file) = std::env::var_os("LOOPSTORE_CROWD") else {
        return;
    };
    let number = std::env::var("LOOPSTORE_CROWD_NUMBER").unwrap();
    let number: u64 = number.parse().unwrap();
    let file = Path::new(&file);
    let store = open(file);
    std::thread::scope(|scope| {
        let work = |thread: u64| Member::new(&store, file, number * 10 + thread).work();
        let threads = [0, 1].map(|thread| scope.spawn(move || work(thread)));
        for took in threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
        {
            println!("\ntook {}", took.as_micros());
        }
    });
    assert!(memory() < MOST_MEMORY, "{} KiB", memory());
    let files = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    assert!(files < MOST_FILES, "{files} open files");
}

#[test]
fn a_process_that_writes_until_it_is_told() {
    let Some(file) = std::env::var_os("LOOPSTORE_CROWD") else {
        return;
    };
    let number = std::env::var("LOOPSTORE_CROWD_NUMBER").unwrap();
    let options = keyed::options().durability(Durability::Normal);
    let store = SqliteStore::open_with(&file, options.busy_timeout(HUNG)).unwrap();
    let mut member = Member::new(&store, Path::new(&file), number.parse().unwrap());
    let told = std::thread::spawn(|| std::io::stdin().read_to_end(&mut Vec::new()));
    while !told.is_finished() {
        member.append();
    }
    member.check();
    for took in member.took {
        println!("\ntook {}", took.as_micros());
    }
}

/// Returns the peak memory of this process, in KiB.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let digits = line.and_then(|line| line.split_whitespace().next());
    digits.map_or(0, |digits| digits.parse().unwrap())
}

struct Member<'a> {
    store: &'a SqliteStore,
    file: &'a Path,
    number: u64,
    history: History<'a>,
    random: Random,
    /// The acknowledged texts of each loop's messages.
    said: Vec<Vec<String>>,
    /// The number of turns of each loop.
    turns: Vec<u32>,
    took: Vec<Duration>,
}

impl<'a> Member<'a> {
    fn new(store: &'a SqliteStore, file: &'a Path, number: u64) -> Self {
        Self {
            store,
            file,
            number,
            history: History::new(store, &format!("session-{number}")),
            random: Random::new(number),
            said: vec![Vec::new()],
            turns: vec![0],
            took: Vec::new(),
        }
    }

    fn work(mut self) -> Vec<Duration> {
        let end = Instant::now() + load();
        self.append();
        while Instant::now() < end {
            let at = self.said.len() - 1;
            match self.random.below(60) {
                0..=44 => self.append(),
                45..=48 => {
                    let outcome = &self.history.compact(at, (1, 2), true)["outcome"];
                    assert_ne!(*outcome, "failed");
                }
                49..=51 => {
                    self.history.flip(at, false);
                }
                52 | 53 => {
                    self.history.flip(at, true);
                }
                54 | 55 => self.fork(),
                56 | 57 => self.search(),
                58 => self.build(),
                _ if self.random.one_in(20) => self.copy(),
                _ => self.check(),
            }
        }
        self.check();
        self.took
    }

    /// Appends a turn to the newest loop.
    fn append(&mut self) {
        let at = self.said.len() - 1;
        let turn = self.turns[at];
        let name = format!("n{}x{}x{turn}", self.number, at);
        let long = "plain words ".repeat(self.random.below(400) as usize);
        let texts = [
            format!("prompt {name}"),
            format!("answer {name}"),
            format!("output {name} {long}"),
        ];
        let call = format!("call-{name}");
        let messages = vec![
            user(&texts[0], turn),
            answer(&texts[1], &[&call], turn),
            result(&call, vec![Content::text(texts[2].clone())], turn),
        ];
        let begun = Instant::now();
        self.history.append(at, messages);
        self.took.push(begun.elapsed());
        self.said[at].extend(texts);
        self.turns[at] += 1;
    }

    fn fork(&mut self) {
        let from = self.random.below(self.said.len() as u64) as usize;
        let Some(last) = self.turns[from].checked_sub(1) else {
            return;
        };
        let turn = self.random.below(u64::from(last) + 1) as u32;
        self.history.start_loop(Some(from), Some(turn));
        self.said.push(Vec::new());
        self.turns.push(0);
        // A fork of a fork without turns would have no turn to continue from.
        self.append();
    }

    /// Finds a message by a word that no other message contains.
    fn search(&mut self) {
        let at = self.random.below(self.said.len() as u64) as usize;
        let turn = self.random.below(u64::from(self.turns[at])) as u32;
        let query = SearchQuery::new(format!("n{}x{at}x{turn}", self.number));
        let found = search(self.store, &query).unwrap();
        assert_eq!(found.hits.len(), 3, "{}", query.text);
    }

    fn build(&self) {
        let options = BuildOptions::default();
        let context = build_context_from_session(self.store, &self.history.session, &options);
        assert!(context.unwrap().faults.is_empty());
    }

    /// Copies the database while the others write; the copy has at least everything that was acknowledged to this
    /// worker.
    fn copy(&self) {
        let folder = tempfile::tempdir_in(self.file.parent().unwrap()).unwrap();
        let copy = folder.path().join("copy.db");
        backup(self.store, &copy, false, &mut |_, _| ()).unwrap();
        self.check_in(&open(&copy));
    }

    fn check(&self) {
        self.check_in(self.store);
    }

    fn check_in(&self, store: &SqliteStore) {
        for (at, said) in self.said.iter().enumerate() {
            let sql = format!(
                "SELECT text FROM v_messages WHERE session_id = '{}' AND loop_id = '{}'
                 ORDER BY seq",
                self.history.session,
                loop_id(at)
            );
            let found = store.query(&sql).unwrap().records();
            let found: Vec<String> = found.iter().map(|row| row.text("text").unwrap()).collect();
            assert!(found == *said, "loop {at} of {}", self.history.session);
        }
    }
}
