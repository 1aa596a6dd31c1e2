//! A worker of a Citus cluster is killed under writers and restarted: no acknowledged row is lost or
//! duplicated, and sessions on the other worker continue. `.ci/citus` restarts nodes that are killed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use loopstore::*;
use loopstore_postgres::PostgresStore;
use postgres::{Client, NoTls};

use crate::support::hang;
use crate::support::server::{self, PostgresServer};

/// The number of sessions of each writer.
const SESSIONS: usize = 6;

/// Returns the cluster whose nodes may be killed.
fn cluster() -> Option<(&'static PostgresServer, PathBuf)> {
    let folder = std::env::var_os("LOOPSTORE_CITUS_LOGS")?;
    let server = server::server().filter(|server| server.is_cluster())?;
    Some((server, folder.into()))
}

/// Returns the ports of the workers, each with its address.
fn workers(server: &PostgresServer, database: &str) -> Vec<(u16, String)> {
    let addresses = server.workers(database).into_iter();
    let named = addresses.map(|address| {
        let address = address.replace("{role}", "postgres");
        let port = address.rsplit_once(':').unwrap().1;
        let port = port.split('/').next().unwrap().parse().unwrap();
        (port, address)
    });
    named.collect()
}

/// The results of a writer.
#[derive(Default)]
struct Written {
    /// The acknowledged texts, by session.
    acknowledged: BTreeMap<String, Vec<String>>,
    /// The texts whose append failed; they are appended again under the same key.
    pending: Vec<(String, String)>,
    /// The number of errors by kind.
    errors: BTreeMap<&'static str, usize>,
}

impl Written {
    fn append(&mut self, store: &Store, session: &str, text: &str) -> bool {
        let chat = store.session(session).unwrap();
        match chat.append_once(text, [Message::user(text)]) {
            Ok(_) => {
                let acknowledged = self.acknowledged.entry(session.to_owned()).or_default();
                acknowledged.push(text.to_owned());
                return true;
            }
            Err(Error::Busy) => *self.errors.entry("busy").or_default() += 1,
            Err(Error::Store(error)) => {
                let kind = match &error {
                    StoreError::Connection(_) => "connection",
                    StoreError::Unconfirmed(_) => "unconfirmed",
                    StoreError::SerializationFailure => "serialization",
                    _ => panic!("{error:?}"),
                };
                *self.errors.entry(kind).or_default() += 1;
            }
            Err(error) => panic!("{error:?}"),
        }
        self.pending.push((session.to_owned(), text.to_owned()));
        false
    }
}

/// Writes to sessions in turn, and begins new ones, until stopped; then repeats the failed appends.
fn write(
    store: &Store,
    writer: usize,
    stop: &AtomicBool,
    stages: &[AtomicBool; 2],
) -> [Written; 2] {
    let (mut before, mut away) = (Written::default(), Written::default());
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let is_away = stages[0].load(Ordering::Relaxed) && !stages[1].load(Ordering::Relaxed);
        let written = if is_away { &mut away } else { &mut before };
        let session = format!("w{writer}-{}", number % SESSIONS + number / 20);
        if !written.append(store, &session, &format!("{writer}.{number}")) {
            std::thread::sleep(Duration::from_millis(10));
        }
        number += 1;
    }
    for written in [&mut before, &mut away] {
        let pending = std::mem::take(&mut written.pending);
        for (session, text) in pending {
            hang::until("what failed is written", || {
                let done = written.append(store, &session, &text);
                written.pending.clear();
                done
            });
        }
    }
    [before, away]
}

#[test]
fn what_was_acknowledged_outlives_a_worker_that_is_killed_and_other_sessions_go_on() {
    let Some((server, folder)) = cluster() else {
        return;
    };
    let name = server.prepared();
    let workers = workers(server, &name);
    let (port, _) = workers[0];
    let stores: Vec<Store> = (0..4)
        .map(|_| loopstore_postgres::connect(&server.address(&name)).unwrap())
        .collect();
    let (stop, stages) = (AtomicBool::new(false), [false, false].map(AtomicBool::new));
    let away = folder.join(format!("{port}.away"));
    let pid = folder.join(port.to_string()).join("postmaster.pid");
    let mut written = Vec::new();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|at| {
                let (store, stop, stages) = (&stores[at], &stop, &stages);
                scope.spawn(move || write(store, at, stop, stages))
            })
            .collect();
        std::thread::sleep(Duration::from_secs(2));
        std::fs::write(&away, "").unwrap();
        let pid = std::fs::read_to_string(pid).unwrap();
        let killed = Command::new("kill")
            .args(["-9", pid.lines().next().unwrap()])
            .status();
        assert!(killed.unwrap().success());
        stages[0].store(true, Ordering::Relaxed);
        std::thread::sleep(Duration::from_secs(3));
        stages[1].store(true, Ordering::Relaxed);
        std::fs::remove_file(&away).unwrap();
        hang::until("the worker is back", || {
            Client::connect(&workers[0].1, NoTls).is_ok()
        });
        std::thread::sleep(Duration::from_secs(1));
        stop.store(true, Ordering::Relaxed);
        written = writers
            .into_iter()
            .flat_map(|writer| writer.join().unwrap())
            .collect();
    });
    let errors = written.iter().flat_map(|one| &one.errors);
    let mut kinds: BTreeMap<_, usize> = BTreeMap::new();
    errors.for_each(|(kind, count)| *kinds.entry(kind).or_default() += count);
    let meanwhile: usize = written
        .iter()
        .skip(1)
        .step_by(2)
        .flat_map(|one| one.acknowledged.values())
        .map(Vec::len)
        .sum();
    let mut acknowledged: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (session, texts) in written.iter().flat_map(|one| &one.acknowledged) {
        let all = acknowledged.entry(session).or_default();
        all.extend(texts.iter().map(String::as_str));
    }
    let total: usize = acknowledged.values().map(Vec::len).sum();
    println!("{total} turns, {meanwhile} of them while a worker was away; errors: {kinds:?}");
    assert!(kinds.values().sum::<usize>() > 0, "nobody noticed");
    // All failed appends were repeated, so each session has each of its texts once.
    for (session, mut texts) in acknowledged {
        let context = stores[0].session(session).unwrap().context().unwrap();
        let mut stored: Vec<String> = context.messages.iter().map(text_of).collect();
        stored.sort();
        texts.sort();
        assert_eq!(stored, texts, "{session}");
    }
    assert!(meanwhile > 20, "{meanwhile} turns while a worker was away");
    let store = PostgresStore::open(&server.address(&name)).unwrap();
    let report = loopstore_verify::verify(&store).unwrap();
    assert!(report.ok, "{:?}", report.problems);
    let mut coordinator = server.client(&name);
    coordinator
        .query("SELECT recover_prepared_transactions()", &[])
        .unwrap();
    for address in
        std::iter::once(server.address(&name)).chain(workers.into_iter().map(|one| one.1))
    {
        let mut node = Client::connect(&address, NoTls).unwrap();
        let sql = "SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()";
        let prepared: i64 = node.query_one(sql, &[]).unwrap().get(0);
        assert_eq!(prepared, 0, "{address}");
    }
}

/// Returns the text of a prompt.
fn text_of(message: &AgentMessage) -> String {
    let value = serde_json::to_value(message).unwrap();
    let text = value["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("{value}")).to_owned()
}
