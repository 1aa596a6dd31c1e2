//! Many programs on one database, in one run: `cargo bench --bench crowd`.
//!
//! One writer alone, one with two readers that never pause, four writing processes, and eight threads of one
//! process each append turns with full durability for some seconds (`LOOPSTORE_SECONDS`, 3 by default), in
//! interleaved rounds. Speeds are compared with the writer alone; the longest wait for one turn and the size of
//! the log are printed.

mod workload;

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use loopstore::{BuildOptions, SqliteStore, build_context_from_session};
use workload::{Agent, judge};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const ROUNDS: usize = 3;
/// The environment variable with the writer of a child process; the database is an argument.
const WRITER: &str = "LOOPSTORE_BENCH_WRITER";
const TURNS_IN_LOOP: u32 = 96;

/// The result of a writer.
#[derive(Clone, Copy, Default)]
struct Written {
    turns: u32,
    longest: Duration,
}

impl Written {
    fn add(&mut self, other: Self) {
        self.turns += other.turns;
        self.longest = self.longest.max(other.longest);
    }
}

fn seconds() -> Duration {
    let given = std::env::var("LOOPSTORE_SECONDS").ok();
    Duration::from_secs(given.and_then(|n| n.parse().ok()).unwrap_or(3))
}

/// Appends turns until the time is over.
fn write(file: &Path, name: &str) -> Result<Written> {
    write_as(Agent::named(file, name)?)
}

fn write_as(mut agent: Agent) -> Result<Written> {
    let mut written = Written::default();
    let end = Instant::now() + seconds();
    while Instant::now() < end {
        if written.turns % TURNS_IN_LOOP == 0 {
            agent.start((written.turns / TURNS_IN_LOOP) as usize)?;
        }
        let begun = Instant::now();
        agent.turn(written.turns % TURNS_IN_LOOP)?;
        written.longest = written.longest.max(begun.elapsed());
        written.turns += 1;
    }
    Ok(written)
}

/// Builds the context of a session repeatedly.
fn read(file: &Path, session: &str, stop: &AtomicBool) -> std::result::Result<(), String> {
    let told = |error: &dyn std::error::Error| error.to_string();
    let store = SqliteStore::open(file).map_err(|e| told(&e))?;
    let id = loopstore::SessionId::new(session).map_err(|e| told(&e))?;
    while !stop.load(Ordering::Relaxed) {
        build_context_from_session(&store, &id, &BuildOptions::default()).map_err(|e| told(&e))?;
    }
    Ok(())
}

/// Measures one writer with two readers of an existing session; also returns the largest size of the log in
/// MiB.
fn with_readers(file: &Path) -> Result<(Written, f64)> {
    let mut before = Agent::named(file, "read")?;
    before.start(0)?;
    (0..40).try_for_each(|turn| before.turn(turn))?;
    let log = file.with_extension("db-wal");
    let stop = AtomicBool::new(false);
    let (written, largest) = std::thread::scope(|scope| {
        let readers = [(); 2].map(|()| scope.spawn(|| read(file, "read", &stop)));
        let watching = scope.spawn(|| {
            let mut largest = 0;
            while !stop.load(Ordering::Relaxed) {
                largest = std::fs::metadata(&log)
                    .map_or(0, |log| log.len())
                    .max(largest);
                std::thread::sleep(Duration::from_millis(5));
            }
            largest
        });
        let written = write(file, "writer").map_err(|error| error.to_string());
        stop.store(true, Ordering::Relaxed);
        let done: std::result::Result<Vec<()>, String> = readers
            .into_iter()
            .map(|reader| {
                reader
                    .join()
                    .unwrap_or_else(|_| Err("a reader died".into()))
            })
            .collect();
        (
            written.and_then(|written| done.map(|_| written)),
            watching.join(),
        )
    });
    let largest = largest.map_err(|_| "the watcher died")?;
    Ok((written?, largest as f64 / f64::from(1 << 20)))
}

/// Measures eight threads that write to one store.
fn eight(file: &Path) -> Result<Written> {
    let store = Arc::new(SqliteStore::open(file)?);
    let one = |at: u32| {
        let agent = Agent::on(Arc::clone(&store), &format!("writer-{at}"));
        let written = agent.and_then(write_as);
        written.map_err(|error| error.to_string())
    };
    let all: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|at| scope.spawn(move || one(at))).collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    let mut sum = Written::default();
    for written in all {
        sum.add(written.map_err(|_| "a writer died")??);
    }
    Ok(sum)
}

/// Measures four processes that write.
fn four(file: &Path) -> Result<Written> {
    drop(SqliteStore::open(file)?);
    let start = |at: u32| {
        Command::new(std::env::current_exe()?)
            .arg(file)
            .env(WRITER, format!("writer-{at}"))
            .stdout(Stdio::piped())
            .spawn()
    };
    let processes = (0..4).map(start).collect::<std::io::Result<Vec<_>>>()?;
    let mut all = Written::default();
    for process in processes {
        let output = process.wait_with_output()?;
        let text = String::from_utf8(output.stdout)?;
        let (turns, longest) = text.trim().split_once(' ').ok_or("a writer failed")?;
        all.add(Written {
            turns: turns.parse()?,
            longest: Duration::from_micros(longest.parse()?),
        });
    }
    Ok(all)
}

fn run() -> Result<bool> {
    if let Ok(name) = std::env::var(WRITER) {
        let file = std::env::args_os().nth(1).ok_or("no database")?;
        let written = write(Path::new(&file), &name)?;
        println!("{} {}", written.turns, written.longest.as_micros());
        return Ok(true);
    }
    let folder = tempfile::tempdir()?;
    let (mut beside_readers, mut in_sum, mut as_threads) = (Vec::new(), Vec::new(), Vec::new());
    let (mut log, mut stall) = (0f64, Duration::ZERO);
    for round in 0..ROUNDS {
        let file = |name: &str| folder.path().join(format!("{name}-{round}.db"));
        let alone = write(&file("alone"), "writer")?;
        let (read, size) = with_readers(&file("read"))?;
        let four = four(&file("four"))?;
        let eight = eight(&file("eight"))?;
        let told =
            |written: Written| format!("{} turns, longest {:.0?}", written.turns, written.longest);
        println!(
            "alone {}; beside readers {}, log {size:.0} MiB; four processes {}; eight threads {}",
            told(alone),
            told(read),
            told(four),
            told(eight)
        );
        let share = |written: Written| f64::from(written.turns) / f64::from(alone.turns);
        beside_readers.push(share(read));
        in_sum.push(share(four));
        as_threads.push(share(eight));
        log = log.max(size);
        stall = stall.max(four.longest);
    }
    let median = |shares: &mut Vec<f64>| {
        shares.sort_by(f64::total_cmp);
        shares[shares.len() / 2]
    };
    let mut met = true;
    // A writer with readers keeps 0.4 of its speed; four writers together keep the speed of one.
    judge(
        "alone / beside two readers",
        1.0 / median(&mut beside_readers),
        2.5,
        &mut met,
    );
    judge("log beside two readers, MiB", log, 64.0, &mut met);
    judge(
        "alone / four processes",
        1.0 / median(&mut in_sum),
        1.0,
        &mut met,
    );
    judge(
        "alone / eight threads",
        1.0 / median(&mut as_threads),
        1.0,
        &mut met,
    );
    judge(
        "longest wait of four, ms",
        stall.as_secs_f64() * 1e3,
        100.0,
        &mut met,
    );
    Ok(met)
}

fn main() -> ExitCode {
    workload::exit(run())
}
