//! The PostgreSQL backend compared with bare statements, in one run: `cargo bench --features postgres --bench
//! postgres`.
//!
//! It starts a server of its own, as the tests do, which never waits for the disk: so the work that a program
//! adds to the server's becomes visible. The ceiling (`bare.rs`) sends the same rows with the same statements
//! and reads nothing before it writes. Both alternate; only the ratios are meaningful. `LOOPSTORE_QUICK=1` is a
//! short run, `LOOPSTORE_LONG=1` continues to 100,000 sessions; with names of parts (`-- append size`) only
//! these run.

mod bare;
#[path = "../ceiling/plain.rs"]
#[allow(dead_code)]
mod plain;
#[path = "../workload/mod.rs"]
mod workload;

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use bare::{Reader, Turn, Writer, turns_of};
use loopstore::extend::{self as store, LoopKey, append, session};
use loopstore::*;
use loopstore_postgres::{PostgresOptions, PostgresStore};
use loopstore_testing::server::PostgresServer;
use postgres::Client;
use workload::growth::{self, Aged};
use workload::store::Recorded;
use workload::turns::{IN_A_LOOP, Turns};
use workload::{Outcome, is_long, is_quick, judge, median};

/// The numbers of connections.
const CONNECTIONS: [usize; 3] = [1, 8, 64];

/// The number of rounds in which both sides alternate.
const ROUNDS: usize = 5;

/// The times of many connections at once.
#[derive(Default)]
struct Done {
    /// The time of each operation.
    times: Vec<Duration>,
    /// The time of all of them together.
    wall: Duration,
}

impl Done {
    fn middle(&self) -> f64 {
        median(self.times.iter().copied())
    }

    fn late(&self) -> f64 {
        let mut times = self.times.clone();
        times.sort();
        let late = times.get(times.len() * 99 / 100);
        late.map_or(0.0, |time| time.as_secs_f64() * 1e3)
    }

    fn a_second(&self) -> f64 {
        self.times.len() as f64 / self.wall.as_secs_f64()
    }

    fn summary(&self) -> String {
        let (middle, late, a_second) = (self.middle(), self.late(), self.a_second());
        format!("{a_second:.0} a second, {middle:.3} ms, p99 {late:.3}")
    }
}

/// Runs an operation `times` times in each of several workers at once.
fn at_once<W: Send>(
    workers: &mut [W],
    times: usize,
    done: &mut Done,
    work: impl Fn(&mut W) -> bare::Outcome<()> + Sync,
) -> Outcome<()> {
    let begun = Instant::now();
    let all = thread::scope(|scope| {
        let mut threads = Vec::new();
        for worker in workers.iter_mut() {
            let work = &work;
            threads.push(scope.spawn(move || {
                let mut took = Vec::new();
                for _ in 0..times {
                    let begun = Instant::now();
                    work(worker).map_err(|error| error.to_string())?;
                    took.push(begun.elapsed());
                }
                Ok::<_, String>(took)
            }));
        }
        let all = threads.into_iter().map(|thread| thread.join());
        all.collect::<Vec<_>>()
    });
    done.wall += begun.elapsed();
    for took in all {
        done.times.extend(took.map_err(|_| "a thread died")??);
    }
    Ok(())
}

fn compare(what: &str, connections: usize, ours: &Done, bare: &Done, bound: f64, met: &mut bool) {
    println!("{what}, {connections} connections: {}", ours.summary());
    println!(
        "{what}, {connections} connections, bare: {}",
        bare.summary()
    );
    let named = |figure: &str| format!("{what}, {connections} connections, {figure} / bare");
    judge(&named("median"), ours.middle() / bare.middle(), bound, met);
    judge(&named("p99"), ours.late() / bare.late(), 2.0 * bound, met);
    let ratio = bare.a_second() / ours.a_second();
    judge(&named("time for all"), ratio, bound, met);
}

/// Begins a session with a loop.
fn begin(store: &PostgresStore, name: &str) -> Outcome<LoopKey> {
    let record = Session::new(SessionId::new(name)?, "agent");
    let first = LoopRecord::new(LoopId::new("loop-0")?, None);
    Ok(store::write(store, |write| {
        let key = session::create_session(write, &record, None, None)?;
        session::create_loop(write, key, &first)
    })?)
}

/// Returns the keys of a session and its only loop as the tables have them.
fn key_of(client: &mut Client, name: &str) -> Outcome<[i64; 2]> {
    let sql = "SELECT l.session, l.key FROM session_names n JOIN loops l ON l.session = n.session
         WHERE n.session_id = $1";
    let row = client.query_one(sql, &[&name])?;
    Ok([row.get(0), row.get(1)])
}

/// A simulated agent.
struct Worker<'a> {
    store: &'a PostgresStore,
    loop_key: LoopKey,
    turns: Vec<Vec<AgentMessage>>,
}

impl Worker<'_> {
    fn append(&mut self) -> bare::Outcome<()> {
        let turn = self.turns.pop().ok_or("no turn")?;
        let turn = turn.into_iter().map(Into::into).collect();
        store::write(self.store, |write| {
            append::append(write, self.loop_key, turn, &HeuristicTokenCounter)
        })?;
        Ok(())
    }
}

/// A worker that does the same with bare statements.
struct Follower {
    writer: Writer,
    turns: Vec<Turn>,
}

impl Follower {
    fn append(&mut self) -> bare::Outcome<()> {
        let turn = self.turns.pop().ok_or("no turn")?;
        self.writer.append(&turn)
    }
}

/// Returns the number of turns that each connection appends in a round.
fn turns_of_each(connections: usize) -> usize {
    let all = if is_quick() { 96 } else { 640 };
    (all / connections).clamp(4, 96 * 2)
}

fn append_at(server: &PostgresServer, connections: usize, met: &mut bool) -> Outcome<()> {
    let names: Vec<String> = (0..connections).map(|at| format!("session-{at}")).collect();
    let databases = [server.prepared(), server.prepared()];
    let [ours_at, bare_at] = databases.each_ref().map(|name| server.address(name));
    let store =
        PostgresStore::open_with(&ours_at, PostgresOptions::new().connections(connections))?;
    let other = PostgresStore::open(&bare_at)?;
    let [mut ours_rows, mut bare_rows] = databases.each_ref().map(|name| server.client(name));
    let (mut workers, mut followers, mut keys) = (Vec::new(), Vec::new(), Vec::new());
    for name in &names {
        workers.push(Worker {
            store: &store,
            loop_key: begin(&store, name)?,
            turns: Vec::new(),
        });
        begin(&other, name)?;
        let key = key_of(&mut bare_rows, name)?;
        let writer = Writer::new(&bare_at, key).map_err(|error| error.to_string())?;
        followers.push(Follower {
            writer,
            turns: Vec::new(),
        });
        keys.push(key_of(&mut ours_rows, name)?);
    }
    let of_each = turns_of_each(connections);
    let mut generators: Vec<Turns> = (0..connections as u64).map(Turns::new).collect();
    let (mut ours, mut bare) = (Done::default(), Done::default());
    for round in 0..=ROUNDS {
        for (worker, turns) in workers.iter_mut().zip(&mut generators) {
            worker.turns = (0..of_each).map(|_| turns.next_turn()).collect();
            worker.turns.reverse();
        }
        at_once(&mut workers, of_each, &mut ours, Worker::append)?;
        for (follower, key) in followers.iter_mut().zip(&keys) {
            let first = (round * of_each) as i64;
            let turns = turns_of(&mut ours_rows, *key, first);
            follower.turns = turns.map_err(|error| error.to_string())?;
            follower.turns.reverse();
        }
        at_once(&mut followers, of_each, &mut bare, Follower::append)?;
        if round == 0 {
            // From here on, connections, statements and caches exist.
            (ours, bare) = Default::default();
        }
    }
    compare("append", connections, &ours, &bare, 1.6, met);
    Ok(())
}

fn appends(server: &PostgresServer, met: &mut bool) -> Outcome<()> {
    let all = CONNECTIONS.iter();
    all.copied()
        .try_for_each(|connections| append_at(server, connections, met))
}

/// Returns a session whose context is the last 40 turns and the summaries of three loops.
fn compacted(store: PostgresStore) -> Outcome<Recorded<PostgresStore>> {
    let mut ours = Recorded::within(store, "session")?;
    let mut turns = Turns::new(2);
    let kept = 40;
    ours.fill(
        (0..3 * IN_A_LOOP + kept)
            .map(|_| turns.next_turn())
            .collect(),
    )?;
    let config = CompactionConfig {
        keep_recent: KeepRecent::Turns(kept),
        recent_window: RecentWindow::CurrentLoop,
        ..CompactionConfig::default()
    };
    ours.compact(config, CompactTrigger::Length)?;
    Ok(ours)
}

fn builds(server: &PostgresServer, met: &mut bool) -> Outcome<()> {
    let address = server.address(&server.prepared());
    for connections in CONNECTIONS {
        let options = PostgresOptions::new().connections(connections);
        let store = PostgresStore::open_with(&address, options)?;
        let ours = match connections {
            1 => compacted(store)?,
            _ => Recorded::of(store, SessionId::new("session")?),
        };
        let context = ours.build()?;
        let mut readers = Vec::new();
        for _ in 0..connections {
            readers.push(Reader::new(&address).map_err(|error| error.to_string())?);
        }
        let read = readers.first_mut().map(|reader| reader.build("session"));
        let read = read
            .ok_or("no reader")?
            .map_err(|error| error.to_string())?;
        if context.messages.len() != read.len() {
            return Err("the ceiling reads other messages".into());
        }
        let mut builders: Vec<&Recorded<PostgresStore>> = vec![&ours; connections];
        let times = turns_of_each(connections) / 4;
        let (mut done, mut bare) = (Done::default(), Done::default());
        for round in 0..=ROUNDS {
            at_once(&mut builders, times.max(1), &mut done, |ours| {
                ours.build()
                    .map(drop)
                    .map_err(|error| error.to_string().into())
            })?;
            at_once(&mut readers, times.max(1), &mut bare, |reader| {
                reader.build("session").map(drop)
            })?;
            if round == 0 {
                (done, bare) = Default::default();
            }
        }
        compare("build", connections, &done, &bare, 2.0, met);
    }
    Ok(())
}

/// Fills a database with small sessions, which are copies of one.
fn crowd(server: &PostgresServer, database: &str, sessions: usize) -> Outcome<()> {
    let store = PostgresStore::open(&server.address(database))?;
    let mut one = Recorded::within(store, "other")?;
    let mut turns = Turns::new(3);
    one.fill((0..2).map(|_| turns.next_turn()).collect())?;
    let mut client = server.client(database);
    // Triggers and foreign keys would check each row; all rows are copies of checked ones.
    client.batch_execute("SET session_replication_role = replica")?;
    let born = "(t.session - n)";
    for (table, more) in [
        (
            "sessions",
            "'session_id', 'other-' || n, 'current_loop', NULL",
        ),
        ("session_names", "'session_id', 'other-' || n"),
        ("loops", "'key', KEY"),
        ("turns", "'loop', LOOP"),
        ("messages", "'loop', LOOP"),
    ] {
        let moved = |column: &str| format!("({born} << 23) + (t.{column} & ((1 << 23) - 1))");
        let more = more
            .replace("KEY", &moved("key"))
            .replace("LOOP", &moved("loop"));
        client.batch_execute(&format!(
            "INSERT INTO {table} SELECT r.* FROM {table} t, generate_series(1, {sessions} - 1) n,
                 LATERAL jsonb_populate_record(t, jsonb_build_object('session', {born}, {more})) r;
             ANALYZE {table}"
        ))?;
    }
    let there: i64 = client
        .query_one("SELECT count(*) FROM sessions", &[])?
        .get(0);
    match there == sessions as i64 {
        true => Ok(()),
        false => Err(format!("there are {there} sessions").into()),
    }
}

/// Measures the cost of more sessions.
fn growths(server: &PostgresServer, met: &mut bool) -> Outcome<()> {
    let (few, many) = (100, if is_long() { 100_000 } else { 2_000 });
    let aged = |sessions: usize| -> Outcome<Aged<PostgresStore>> {
        let database = server.prepared();
        crowd(server, &database, sessions)?;
        Aged::within(PostgresStore::open(&server.address(&database))?)
    };
    let (mut young, mut old) = (aged(few)?, aged(many)?);
    let rounds = if is_quick() { 8 } else { 24 };
    let ratios = growth::compare(&mut young, &mut old, rounds)?;
    println!("{few} and {many} sessions");
    judge("append, many sessions / few", ratios.append, 1.2, met);
    judge("build, many sessions / few", ratios.build, 1.2, met);
    judge("compaction, many sessions / few", ratios.compact, 1.2, met);
    Ok(())
}

/// Measures the size of a turn: as lines of JSON, in a file of SQLite, on a server's disk and in its log.
/// Random texts compress better than those of people, so both are printed.
fn sizes(server: &PostgresServer, _met: &mut bool) -> Outcome<()> {
    let loops = if is_quick() { 4 } else { 40 };
    let mut turns = Turns::new(6);
    let all: Vec<_> = (0..loops * IN_A_LOOP).map(|_| turns.next_turn()).collect();
    let (mut lines, mut messages) = (0, 0);
    for message in all.iter().flatten() {
        lines += serde_json::to_string(message)?.len() + 1;
        messages += 1;
    }
    let each = |bytes: i64| bytes as f64 / all.len() as f64;
    println!("{} turns, {messages} messages", all.len());
    println!("a turn: {:.0} bytes of JSON lines", each(lines as i64));
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("size.db");
    one_by_one(Recorded::create(&file, Durability::Normal)?, all.clone())?;
    let stored = std::fs::metadata(&file)?.len();
    println!("a turn: {:.0} bytes in SQLite", each(stored as i64));
    for storage in ["EXTENDED", "EXTERNAL"] {
        let grown = grown(server, storage, all.clone())?;
        let [disk, log, table, indexes] = grown.map(each);
        println!(
            "a turn: {disk:.0} bytes in PostgreSQL with texts {storage}, {log:.0} in its log; messages \
             {table:.0}, their index {indexes:.0}"
        );
    }
    Ok(())
}

/// Returns the growth of the database, the log and the table of messages with its indexes by the turns.
fn grown(
    server: &PostgresServer,
    storage: &str,
    turns: Vec<Vec<AgentMessage>>,
) -> Outcome<[i64; 4]> {
    let database = server.prepared();
    let mut client = server.client(&database);
    client.batch_execute(&format!(
        "ALTER TABLE messages ALTER head SET STORAGE {storage}, ALTER body SET STORAGE {storage};
         CHECKPOINT"
    ))?;
    let sql = "SELECT pg_database_size(current_database()),
             (pg_current_wal_lsn() - '0/0')::BIGINT,
             pg_table_size('messages'), pg_indexes_size('messages')";
    let mut figures = || -> Outcome<[i64; 4]> {
        let row = client.query_one(sql, &[])?;
        Ok([0, 1, 2, 3].map(|at| row.get(at)))
    };
    let before = figures()?;
    let store = PostgresStore::open(&server.address(&database))?;
    one_by_one(Recorded::within(store, "session")?, turns)?;
    let log = figures()?[1];
    server.client(&database).batch_execute("VACUUM ANALYZE")?;
    let mut after = figures()?;
    // The log of the vacuum is not caused by the turns.
    after[1] = log;
    Ok([0, 1, 2, 3].map(|at| after[at] - before[at]))
}

/// Appends turn by turn, as an agent does.
fn one_by_one<S: SessionStore>(
    mut ours: Recorded<S>,
    turns: Vec<Vec<AgentMessage>>,
) -> Outcome<()> {
    for (at, turn) in turns.into_iter().enumerate() {
        if (at as u32).is_multiple_of(IN_A_LOOP) {
            ours.start()?;
        }
        ours.append(turn)?;
    }
    Ok(())
}

type Part = fn(&PostgresServer, &mut bool) -> Outcome<()>;
const PARTS: [(&str, Part); 4] = [
    ("append", appends),
    ("build", builds),
    ("growth", growths),
    ("size", sizes),
];

fn run() -> Outcome<bool> {
    let server = loopstore_testing::server::server().ok_or("PostgreSQL is not installed")?;
    let mut met = true;
    let parts: Vec<String> = std::env::args().skip(1).collect();
    let parts: Vec<_> = parts.iter().filter(|arg| !arg.starts_with('-')).collect();
    for (name, part) in PARTS {
        if parts.is_empty() || parts.iter().any(|part| name.contains(&***part)) {
            part(server, &mut met)?;
        }
    }
    Ok(met)
}

fn main() -> ExitCode {
    workload::exit(run())
}
