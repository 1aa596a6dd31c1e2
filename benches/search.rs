//! Search over many messages: `cargo bench --bench search`.
//!
//! 1,000,000 messages (`LOOPSTORE_MESSAGES` for another number) are recorded and indexed while another thread
//! continues to record. The catch-up must not delay an append for longer than a batch takes, its memory must
//! not grow with the content, and queries must take milliseconds. A query of common words is compared with the
//! time of FTS5 for the same words joined by `OR`.

mod workload;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use loopstore::extend::search::index;
use loopstore::extend::{self as store, append, session};
use loopstore::search::{SearchQuery, search};
use loopstore::*;
use workload::{Random, judge, median};

const IN_A_LOOP: usize = 1_000;

/// A word in one message of each session.
const MARK: &str = "xylophone";

fn messages() -> usize {
    let given = std::env::var("LOOPSTORE_MESSAGES").ok();
    given.and_then(|n| n.parse().ok()).unwrap_or(1_000_000)
}

/// Words, each in 10 % to 30 % of the messages.
const COMMON: [&str; 8] = [
    "anchor", "barrel", "candle", "dragon", "ember", "falcon", "garden", "harbor",
];

/// Returns a text that may contain each of the common words.
fn text(random: &mut Random, bytes: usize) -> String {
    let mut text = random.text(bytes);
    for (at, word) in (0..).zip(COMMON) {
        if random.below(100) < 10 + at * 3 {
            text.push_str(word);
            text.push(' ');
        }
    }
    text
}

/// Returns the time of FTS5 for the best of the messages with any of the common words.
fn plain_or(file: &std::path::Path) -> Result<Duration, rusqlite::Error> {
    let connection = rusqlite::Connection::open(file)?;
    let mut statement = connection.prepare(
        "SELECT rowid FROM message_index WHERE message_index MATCH ?1 ORDER BY rank LIMIT 20",
    )?;
    let words = COMMON.join(" OR ");
    let begun = Instant::now();
    let rows = statement.query_map([words], |row| row.get::<_, i64>(0))?;
    let found = rows.count();
    let took = begun.elapsed();
    println!(
        "FTS5 by itself: {found} rows, {:.1} ms",
        took.as_secs_f64() * 1e3
    );
    Ok(took)
}

/// Records loops of a session, each with 1,000 messages.
fn record(store: &SqliteStore, name: &str, loops: usize) -> Result<(), StoreError> {
    let mut random = Random(0x9E37_79B9_7F4A_7C15 ^ name.len() as u64);
    let id = |text: String| LoopId::new(text).map_err(|e| StoreError::Invalid(e.to_string()));
    for at in 0..loops {
        let loop_key = store::write(store, |write| {
            let session = SessionId::new(format!("{name}-{}", at / 50));
            let session = session.map_err(|e| StoreError::Invalid(e.to_string()))?;
            let key = match write.session(&session)? {
                Some(row) => row.key,
                None => {
                    let record = Session::new(session, "agent");
                    session::create_session(write, &record, None, None)?
                }
            };
            let record = LoopRecord::new(id(format!("{name}-{at}"))?, None);
            session::create_loop(write, key, &record)
        })?;
        let turns: Vec<_> = (0..IN_A_LOOP)
            .map(|turn| {
                let mut text = text(&mut random, 150);
                if at % 50 == 0 && turn == 0 {
                    text.push_str(MARK);
                }
                let message = match turn % 3 {
                    0 => Message::user(text),
                    _ => Message::Assistant(AssistantMessage {
                        content: vec![Content::text(text)],
                        ..AssistantMessage::default()
                    }),
                };
                let place = TurnId::new("l", turn as u32 / 3);
                AgentMessage::from(message).in_turn(place).into()
            })
            .collect();
        store::write(store, |write| {
            append::append(write, loop_key, turns, &HeuristicTokenCounter)?;
            append::set_status(write, loop_key, LoopStatus::Completed)
        })?;
    }
    Ok(())
}

/// Appends one turn after another until stopped; returns the duration of each append.
fn keep_recording(
    store: &SqliteStore,
    name: &str,
    stop: &AtomicBool,
) -> Result<Vec<Duration>, StoreError> {
    let session = SessionId::new(name).map_err(|e| StoreError::Invalid(e.to_string()))?;
    let key = store::write(store, |write| {
        let record = Session::new(session.clone(), "agent");
        let key = session::create_session(write, &record, None, None)?;
        session::create_loop(write, key, &LoopRecord::new(LoopId::generate(), None))
    })?;
    let mut random = Random(7);
    let mut times = Vec::new();
    for turn in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let message = AgentMessage::from(Message::user(random.text(600)));
        let message = message.in_turn(TurnId::new("l", turn));
        let begun = Instant::now();
        store::write(store, |write| {
            append::append(write, key, vec![message.into()], &HeuristicTokenCounter)
        })?;
        times.push(begun.elapsed());
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(times)
}

/// Appends while `work` runs; returns the duration of `work`, and the longest append.
fn append_during(
    store: &SqliteStore,
    name: &str,
    work: impl FnOnce() -> Result<(), StoreError>,
) -> Result<(Duration, Vec<Duration>), StoreError> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let recorder = scope.spawn(|| keep_recording(store, name, &stop));
        let begun = Instant::now();
        let done = work();
        let took = begun.elapsed();
        stop.store(true, Ordering::Relaxed);
        let times = recorder
            .join()
            .map_err(|_| StoreError::Invalid("the recorder panicked".into()))??;
        done.map(|()| (took, times))
    })
}

fn run() -> Result<bool, Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let options = SqliteOptions::new().durability(Durability::Normal);
    let file = folder.path().join("search.db");
    let store = SqliteStore::open_with(&file, options)?;
    let total = messages();
    record(&store, "first", total / IN_A_LOOP)?;
    let memory = workload::peak_memory();
    let wait = || {
        std::thread::sleep(Duration::from_secs(3));
        Ok(())
    };
    let (_, alone) = append_during(&store, "alone", wait)?;
    let (took, during_index) =
        append_during(&store, "beside", || index(&store, &mut |_| ()).map(|_| ()))?;
    let grown = workload::peak_memory() - memory;
    let longest = |times: &[Duration]| times.iter().max().map_or(0.0, Duration::as_secs_f64) * 1e3;
    println!("{total} messages indexed in {:.1} s", took.as_secs_f64());
    println!(
        "append alone: median {:.2} ms, longest {:.1} ms; meanwhile: {:.2} ms, {:.1} ms",
        median(alone.iter().copied()),
        longest(&alone),
        median(during_index.iter().copied()),
        longest(&during_index)
    );
    let mut met = true;
    judge("memory of the catch-up, MiB", grown, 64.0, &mut met);
    judge(
        "longest append meanwhile, ms",
        longest(&during_index),
        100.0,
        &mut met,
    );
    let rare = MARK.to_owned();
    let common = COMMON.join(" ");
    let queries = [
        "file_77",
        "\"quick brown\" mod_3",
        "id OR fox -mod_1",
        "file_1*",
        "nowhere",
        &rare,
        &common,
    ];
    for text in queries {
        let query = SearchQuery::new(text);
        search(&store, &query)?;
        let times = (0..5).map(|_| {
            let begun = Instant::now();
            let found = search(&store, &query).map_or(0, |found| found.hits.len());
            (begun.elapsed(), found)
        });
        let times: Vec<(Duration, usize)> = times.collect();
        let hits = times.first().map_or(0, |(_, hits)| *hits);
        let took = median(times.into_iter().map(|(time, _)| time));
        println!("query {text:?}: {hits} hits, {took:.2} ms");
        if text == rare {
            judge("a rare word, ms", took, 5.0, &mut met);
        }
        if text == common {
            let plain = plain_or(&file)?.as_secs_f64() * 1e3;
            judge(
                "a question of common words / FTS5",
                took / plain,
                0.1,
                &mut met,
            );
        }
    }
    Ok(met)
}

fn main() -> ExitCode {
    workload::exit(run())
}
