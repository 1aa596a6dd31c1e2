//! The hot paths compared with the bare ceiling, in one run: `cargo bench --bench ceiling`.
//!
//! The ceiling (`bare.rs`) writes the same bytes with plain rusqlite: the same tables, rows, counters, digests
//! and indexes, prepared statements, no model, no triggers. Both sides alternate, turn by turn or build by
//! build, so that a machine that becomes slower slows both. Only the ratios are meaningful. `LOOPSTORE_QUICK=1`
//! is a short run, `LOOPSTORE_LONG=1` continues to a million messages; with names of parts (`-- build size`)
//! only these run.

mod bare;
mod plain;

#[path = "../workload/mod.rs"]
mod workload;

use std::fs::File;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bare::{Bare, Form, Reader};
use loopstore::extend::{self as store, ReadWork, StoreResult, WriteWork};
use loopstore::*;
use loopstore_admin::retention::{ArchiveRequest, archive};
use plain::{Plain, timed};
use workload::growth::{self, Aged};
use workload::store::Recorded;
use workload::turns::{IN_A_LOOP, Turns, of_messages};
use workload::{Outcome, is_long, is_quick, judge, median};

/// Returns the number of turns that are appended, and of rounds of the other parts.
fn rounds() -> usize {
    if is_quick() { 60 } else { 400 }
}

/// The store against one or two others, turn by turn.
struct Race {
    ours: Vec<Duration>,
    bare: Vec<Duration>,
    lines: Vec<Duration>,
}

/// Appends the same turns to a store, to a bare database and to a file of JSON lines.
fn append(folder: &Path, durability: Durability, form: Form) -> Outcome<Race> {
    let word = if durability == Durability::Full {
        "full"
    } else {
        "normal"
    };
    let file = |name: &str| folder.join(format!("{name}-{word}"));
    let mut ours = Recorded::create(&file("ours"), durability)?;
    let mut bare = Bare::create(&file("bare"), &file("ours"), word, form)?;
    let mut lines = File::create(file("lines"))?;
    let mut race = Race {
        ours: Vec::new(),
        bare: Vec::new(),
        lines: Vec::new(),
    };
    let mut turns = Turns::new(1);
    // Until the logs of both have restarted, and much longer.
    for round in 0..4 * rounds() {
        if turns.begins() {
            ours.start()?;
            bare.start()?;
        }
        let turn = turns.next_turn();
        let plain: Vec<Plain> = turn.iter().map(Plain::of).collect::<Outcome<_>>()?;
        let copy = plain.clone();
        // After a wait for the disk the processor's caches are cold. So the lines are written only if the
        // others wait too, and each side goes first equally often.
        if durability == Durability::Full {
            race.lines.push(timed(|| write_lines(&mut lines, &copy))?.0);
        }
        if round % 2 == 0 {
            race.ours.push(ours.append(turn)?);
            race.bare.push(timed(|| bare.append(vec![plain]))?.0);
        } else {
            race.bare.push(timed(|| bare.append(vec![plain]))?.0);
            race.ours.push(ours.append(turn)?);
        }
    }
    Ok(race)
}

/// Appends lines, and syncs them to the disk.
fn write_lines(file: &mut File, turn: &[Plain]) -> Outcome<()> {
    let mut bytes = Vec::new();
    for message in turn {
        serde_json::to_writer(&mut bytes, message)?;
        bytes.push(b'\n');
    }
    file.write_all(&bytes)?;
    Ok(file.sync_data()?)
}

fn appends(folder: &Path, met: &mut bool) -> Outcome<()> {
    let race = append(folder, Durability::Full, Form::Packed)?;
    let [ours, bare, lines] = [&race.ours, &race.bare, &race.lines].map(|of| middle(of));
    println!("append, FULL: {ours:.3} ms, packed {bare:.3}, JSON lines {lines:.3}");
    judge("1 append FULL / packed", ours / bare, 1.25, met);
    judge("1 append FULL / JSON lines", ours / lines, 1.05, met);
    let race = append(folder, Durability::Normal, Form::Split)?;
    let (ours, bare) = (middle(&race.ours), middle(&race.bare));
    println!("append, NORMAL: {ours:.3} ms, split {bare:.3}");
    judge("2 append NORMAL / split", ours / bare, 1.4, met);
    let mut sorted = race.ours;
    sorted.sort();
    let late = sorted[sorted.len() * 99 / 100].as_secs_f64() * 1e3;
    judge("2 append NORMAL, p99 / median", late / ours, 10.0, met);
    Ok(())
}

/// Returns an answer with two calls, and their results.
fn open_turn(number: usize) -> [Message; 3] {
    let calls = ["a", "b"].map(|letter| format!("call-{number}-{letter}"));
    let output = |call: &str| {
        let lines = (0..24).map(|line| format!("{call}: {line:04} rows read, no errors found\n"));
        Message::tool_result(call, lines.collect::<String>())
    };
    let arguments = |path: &str| serde_json::json!({ "path": path });
    let answer = Message::assistant("I look at both files before I change either of them.")
        .with_tool_call(&*calls[0], "read", arguments("src/main.rs"))
        .with_tool_call(&*calls[1], "read", arguments("src/lib.rs"));
    [answer, output(&calls[0]), output(&calls[1])]
}

/// Appends turns message by message through a handle, each acknowledged separately, and the same messages in as
/// many commits to a bare database.
fn opened(folder: &Path, met: &mut bool) -> Outcome<()> {
    let (file, bare_file) = (folder.join("open"), folder.join("open-bare"));
    let store = Store::options().durability(Durability::Full).open(&file)?;
    let chat = store.session("session")?;
    let mut bare = Bare::create(&bare_file, &file, "full", Form::Packed)?;
    let (mut times, mut bare_times) = (Vec::new(), Vec::new());
    for round in 0..rounds() {
        if round % IN_A_LOOP as usize == 0 {
            chat.append([Message::user("Go through the files.")])?;
            bare.start()?;
        }
        let turn = open_turn(round);
        let plain = turn
            .iter()
            .cloned()
            .map(|message| Plain::of(&message.into()));
        let plain = plain.collect::<Outcome<Vec<_>>>()?;
        let ours = || {
            timed(|| {
                for message in turn.clone() {
                    chat.append([message])?;
                }
                Ok(())
            })
        };
        let mut alone = || {
            timed(|| {
                for message in plain.clone() {
                    bare.append(vec![vec![message]])?;
                }
                Ok(())
            })
        };
        if round % 2 == 0 {
            times.push(ours()?.0);
            bare_times.push(alone()?.0);
        } else {
            bare_times.push(alone()?.0);
            times.push(ours()?.0);
        }
    }
    let (all, alone) = (middle(&times), middle(&bare_times));
    println!("an open turn, message by message, FULL: {all:.3} ms, three commits {alone:.3}");
    judge("14 open turn / three commits", all / alone, 1.3, met);
    Ok(())
}

/// Appends whole loops, each in one transaction.
fn bulk(folder: &Path, met: &mut bool) -> Outcome<()> {
    let file = folder.join("bulk");
    let mut ours = Recorded::create(&file, Durability::Normal)?;
    let mut bare = Bare::create(&folder.join("bulk-bare"), &file, "normal", Form::Split)?;
    let mut turns = Turns::new(3);
    let (mut times, mut bare_times) = (Vec::new(), Vec::new());
    for round in 0..rounds() / 8 {
        let of_loop: Vec<_> = (0..IN_A_LOOP).map(|_| turns.next_turn()).collect();
        let plain = |turn: &Vec<_>| turn.iter().map(Plain::of).collect::<Outcome<_>>();
        let plain = of_loop.iter().map(plain).collect::<Outcome<Vec<_>>>()?;
        ours.start()?;
        bare.start()?;
        let messages = of_loop.into_iter().flatten().collect();
        if round % 2 == 0 {
            times.push(ours.append(messages)?);
            bare_times.push(timed(|| bare.append(plain))?.0);
        } else {
            bare_times.push(timed(|| bare.append(plain))?.0);
            times.push(ours.append(messages)?);
        }
    }
    let (all, alone) = (middle(&times), middle(&bare_times));
    println!("{IN_A_LOOP} turns at once: {all:.3} ms, split {alone:.3}");
    judge("8 many turns at once / split", all / alone, 1.4, met);
    Ok(())
}

fn middle(times: &[Duration]) -> f64 {
    median(times.iter().copied())
}

/// Returns a session whose context is the last 40 turns and the summaries of three loops.
fn session(file: &Path) -> Outcome<Recorded> {
    let mut ours = Recorded::create(file, Durability::Normal)?;
    let mut turns = Turns::new(2);
    let kept = 40;
    let all = 3 * IN_A_LOOP + kept;
    ours.fill((0..all).map(|_| turns.next_turn()).collect())?;
    let config = CompactionConfig {
        keep_recent: KeepRecent::Turns(kept),
        recent_window: RecentWindow::CurrentLoop,
        ..CompactionConfig::default()
    };
    ours.compact(config, CompactTrigger::Length)?;
    Ok(ours)
}

/// Reads the rows of the context without parsing them.
fn raw(ours: &Recorded) -> Outcome<Vec<(String, String)>> {
    let mut messages = Vec::new();
    store::read(&ours.store, |read| {
        let owner = read.session(&ours.session)?;
        let leaf = owner.and_then(|owner| owner.current_loop);
        let leaf = leaf.ok_or_else(|| StoreError::Invalid("no loop".into()))?;
        let chain = store::active_blocks::chain(read, leaf, Default::default())?;
        let mut keep = |said: &store::StoredMessageRef<'_>| {
            let of = |text: Option<&str>| text.unwrap_or_default().to_owned();
            messages.push((of(said.head), of(said.text)));
        };
        for link in chain {
            let block = link.block.filter(|block| block.layout.recent.is_none());
            if let Some(block) = block {
                let own = read.block_messages(block.key)?;
                let bodies = own.iter().filter_map(|m| m.body.as_ref());
                bodies.for_each(|body| keep(&body.as_stored_ref()));
                continue;
            }
            read.message_refs(link.row.key, 0..link.end_seq, false, &mut |row| {
                keep(&row.message);
                Ok(ControlFlow::Continue(()))
            })?;
        }
        Ok(())
    })?;
    Ok(messages)
}

fn builds(folder: &Path, met: &mut bool) -> Outcome<()> {
    let file = folder.join("build");
    let ours = session(&file)?;
    let bare = Reader::open(&file)?;
    let mut times: [Vec<Duration>; 7] = Default::default();
    for _ in 0..rounds() {
        let (took, context) = timed(|| ours.build())?;
        let (bare_took, messages) = timed(|| bare.build())?;
        same(context.messages.len(), messages.len())?;
        let (raw_took, messages) = timed(|| raw(&ours))?;
        let (bytes_took, bytes) = timed(|| bare.raw())?;
        same(messages.len(), bytes.len())?;
        let (total_took, ()) = timed(|| total(&ours))?;
        for (times, took) in times
            .iter_mut()
            .zip([took, bare_took, raw_took, bytes_took, total_took])
        {
            times.push(took);
        }
    }
    let (bytes, messages) = (ours.build()?.bytes, ours.build()?.messages.len());
    drop((ours, bare));
    for _ in 0..rounds() / 4 {
        times[5].push(cold(&file, || {
            Recorded::of(open(&file)?, id()?).build().map(|_| ())
        })?);
        times[6].push(cold(&file, || Reader::open(&file)?.build().map(|_| ()))?);
    }
    let [build, split, raw, alone, total, cold, cold_split] = times.map(|times| middle(&times));
    println!(
        "build of {messages} messages, {} KB: {build:.3} ms, split {split:.3}; raw {raw:.3}, bytes \
         {alone:.3}; cold {cold:.3}, split {cold_split:.3}",
        bytes / 1_000
    );
    judge("4 build, parsed / split", build / split, 1.3, met);
    judge("5 build, raw / bytes alone", raw / alone, 1.5, met);
    judge(
        "10 open and build, cold / split",
        cold / cold_split,
        1.3,
        met,
    );
    println!("token total of a context: {:.1} us", total * 1e3);
    judge("13 token total / build, parsed", total / build, 0.06, met);
    Ok(())
}

/// Compares a context that is kept from turn to turn with one that is built each time.
fn live(folder: &Path, _: &mut bool) -> Outcome<()> {
    let mut ours = session(&folder.join("live"))?;
    let mut turns = Turns::new(6);
    let chat = Store::open(folder.join("live"))?.session(id()?)?;
    let chat = chat.with_policy(Policy::new(1 << 40));
    chat.prepare()?;
    let (mut kept, mut built) = (Vec::new(), Vec::new());
    for _ in 0..rounds() / 4 {
        ours.append(turns.next_turn())?;
        let (took, messages) = timed(|| Ok(chat.prepare()?.messages().len()))?;
        let (build_took, context) = timed(|| ours.build())?;
        same(messages, context.messages.len())?;
        kept.push(took);
        built.push(build_took);
    }
    let (kept, built) = (middle(&kept), middle(&built));
    println!("after another turn: a kept context {kept:.3} ms, a build {built:.3}");
    Ok(())
}

fn id() -> Outcome<SessionId> {
    Ok(SessionId::new("session")?)
}

fn open(file: &Path) -> Outcome<SqliteStore> {
    let options = SqliteOptions::new().durability(Durability::Normal);
    Ok(SqliteStore::open_with(file, options)?)
}

fn same(ours: usize, bare: usize) -> Outcome<()> {
    match ours == bare {
        true => Ok(()),
        false => Err(format!("{ours} messages, the ceiling reads {bare}").into()),
    }
}

/// Evaluates the trigger, which does not fire: only the size of the context is read.
fn total(ours: &Recorded) -> Outcome<()> {
    let window = ContextConfig {
        max_context_tokens: 1 << 40,
        ..ContextConfig::default()
    };
    let request = CompactRequest {
        policy: Policy::of(window, CompactionConfig::default()),
        ..CompactRequest::default()
    };
    let report = compact_session_loops(&ours.store, &ours.session, &request)?;
    match report.outcome == compact::CompactOutcome::NotNeeded {
        true => Ok(()),
        false => Err("the trigger fired".into()),
    }
}

/// Runs `work` after the system has dropped the file from its cache.
fn cold(file: &Path, work: impl FnOnce() -> Outcome<()>) -> Outcome<Duration> {
    let opened = File::open(file)?;
    opened.sync_all()?;
    rustix::fs::fadvise(&opened, 0, None, rustix::fs::Advice::DontNeed)?;
    Ok(timed(work)?.0)
}

/// A store that measures the duration of its last write in nanoseconds.
struct Watched<'a>(&'a SqliteStore, AtomicU64);

impl SessionStore for Watched<'_> {
    fn read(&self, work: ReadWork<'_>) -> StoreResult<()> {
        self.0.read(work)
    }

    fn write(&self, work: WriteWork<'_>) -> StoreResult<()> {
        let begun = Instant::now();
        self.0.write(work)?;
        let took = begun.elapsed().as_nanos() as u64;
        self.1.store(took, Ordering::Relaxed);
        Ok(())
    }

    fn counter(&self) -> &dyn TokenCounter {
        self.0.counter()
    }
}

/// Compacts repeatedly, and writes the same rows to the bare database.
fn compactions(folder: &Path, met: &mut bool) -> Outcome<()> {
    let (file, bare_file) = (folder.join("compact"), folder.join("compact-bare"));
    let mut ours = session(&file)?;
    let mut bare = Bare::create(&bare_file, &file, "normal", Form::Split)?;
    bare.start()?;
    let reader = Reader::open(&file)?;
    let request = CompactRequest {
        trigger: CompactTrigger::Length,
        ..CompactRequest::default()
    };
    let mut turns = Turns::new(4);
    // The texts of a compaction fill the processor's caches. So the bare rows are written after texts were made
    // too, those of the next compaction.
    let only_texts = CompactRequest {
        dry_run: true,
        ..request.clone()
    };
    let (mut times, mut bare_times) = (Vec::new(), Vec::new());
    let mut rows: Option<Vec<_>> = None;
    for _ in 0..=rounds() / 4 {
        ours.fill((0..12).map(|_| turns.next_turn()).collect())?;
        if let Some(rows) = rows.take() {
            compact_session_loops(&ours.store, &ours.session, &only_texts)?;
            bare_times.push(timed(|| bare.insert(&rows))?.0);
        }
        let before = reader.newest()?;
        let watched = Watched(&ours.store, AtomicU64::new(0));
        let report = compact_session_loops(&watched, &ours.session, &request)?;
        if report.outcome != compact::CompactOutcome::Committed {
            return Err(format!("not compacted: {report:?}").into());
        }
        times.push(Duration::from_nanos(watched.1.into_inner()));
        rows = Some(reader.since(&before)?);
    }
    let (write, alone) = (middle(&times), middle(&bare_times));
    println!("compaction write: {write:.3} ms, the same rows {alone:.3}");
    judge("7 compaction write / same rows", write / alone, 1.3, met);
    Ok(())
}

/// Compares a small database with a large one.
fn growth(folder: &Path, met: &mut bool) -> Outcome<()> {
    let (few, many) = match (is_quick(), is_long()) {
        (true, _) => (1_000, 10_000),
        (false, true) => (10_000, 1_000_000),
        (false, false) => (10_000, 100_000),
    };
    let rounds = if is_quick() { 8 } else { 24 };
    let mut young = Aged::giant(&folder.join("young"), few)?;
    let mut old = Aged::giant(&folder.join("old"), many)?;
    let ratios = growth::compare(&mut young, &mut old, rounds)?;
    println!("{few} and {many} messages");
    judge("3 append, many messages / few", ratios.append, 1.2, met);
    judge("6 build, many messages / few", ratios.build, 1.15, met);
    judge(
        "7 compaction, many messages / few",
        ratios.compact,
        1.2,
        met,
    );
    let loops = if is_quick() { 1_000 } else { 10_000 };
    let few = Aged::of_loops(&folder.join("few-loops"), 8)?;
    let many = Aged::of_loops(&folder.join("loops"), loops)?;
    let ratio = growth::builds(&few, &many, rounds)?;
    judge("6 build, many loops / few", ratio, 1.15, met);
    let once = Aged::of_generations(&folder.join("once"), 1)?;
    let often = Aged::of_generations(&folder.join("often"), 200)?;
    let ratio = growth::builds(&once, &often, rounds)?;
    judge("6 build, 200 generations / 1", ratio, 1.15, met);
    Ok(())
}

/// Compares the size of the database with that of the same messages as JSON lines.
fn size(folder: &Path, met: &mut bool) -> Outcome<()> {
    let file = folder.join("size");
    let mut turns = Turns::new(5);
    let turns = of_messages(&mut turns, 10_000);
    let mut lines = 0;
    for message in turns.iter().flatten() {
        lines += serde_json::to_string(message)?.len() + 1;
    }
    let mut ours = Recorded::create(&file, Durability::Normal)?;
    ours.fill(turns)?;
    let archived = archived(&ours, &folder.join("archived"))? as f64 / lines as f64;
    drop(ours);
    let stored = std::fs::metadata(&file)?.len();
    judge(
        "9 size / JSON lines",
        stored as f64 / lines as f64,
        1.08,
        met,
    );
    judge("9 archived / JSON lines", archived, 0.40, met);
    Ok(())
}

/// Archives all loops of a copy, and returns its size without the free space.
fn archived(ours: &Recorded, to: &Path) -> Outcome<u64> {
    let all = to.with_extension("all");
    loopstore_admin::backup::backup(&ours.store, &all, false, &mut |_, _| {})?;
    let copy = SqliteStore::open(&all)?;
    store::write(&copy, |write| {
        let session = write.session(&ours.session)?;
        let loops = session.map(|row| write.loops(row.key)).transpose()?;
        for row in loops.into_iter().flatten() {
            store::append::set_status(write, row.key, LoopStatus::Completed)?;
        }
        Ok(())
    })?;
    let request = ArchiveRequest {
        shown: true,
        ..ArchiveRequest::default()
    };
    archive(&copy, &request)?;
    Ok(loopstore_admin::backup::compact_backup(&copy, to, false)?)
}

type Part = fn(&Path, &mut bool) -> Outcome<()>;
const PARTS: [(&str, Part); 8] = [
    ("append", appends),
    ("open", opened),
    ("bulk", bulk),
    ("build", builds),
    ("live", live),
    ("compaction", compactions),
    ("size", size),
    ("growth", growth),
];

fn run() -> Outcome<bool> {
    let folder = tempfile::tempdir()?;
    let mut met = true;
    let parts: Vec<String> = std::env::args().skip(1).collect();
    let parts: Vec<_> = parts.iter().filter(|arg| !arg.starts_with('-')).collect();
    for (name, part) in PARTS {
        if parts.is_empty() || parts.iter().any(|part| name.contains(&***part)) {
            part(folder.path(), &mut met)?;
        }
    }
    Ok(met)
}

fn main() -> ExitCode {
    workload::exit(run())
}
