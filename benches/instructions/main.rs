//! Instructions of the hot paths, counted by valgrind: `cargo bench --bench instructions`.
//!
//! Times differ from run to run, instruction counts hardly do: a path that needs over 5 % more than
//! `baseline.toml` states became slower by a change of the code. Each path runs in its own process under
//! callgrind, which counts only while `measured` runs. The messages, their order and the number of rounds are
//! fixed. Salts, ids and hash seeds are random, but their bytes cost the same up to some thousandths. Another
//! compiler or processor may need a new baseline: `LOOPSTORE_BASELINE=write cargo bench --bench instructions`. `-- edited`
//! only compares the builds of a session with a thousand edits with those of one without, also with a thousand runs.

#[allow(dead_code)]
#[path = "../import/transcripts.rs"]
mod transcripts;
#[path = "../workload/mod.rs"]
mod workload;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use loopstore::extend::{ReadWork, StoreResult, WriteWork};
use loopstore::*;
use loopstore_transcripts::{ImportOptions, import_paths};
use workload::store::Recorded;
use workload::turns::{IN_A_LOOP, Turns};
use workload::{Outcome, judge};

/// The environment variable with the path of a child process; the folder is an argument.
const PATH: &str = "LOOPSTORE_BENCH_PATH";
const BASELINE: &str = "instructions/baseline.toml";
const PATHS: [&str; 6] = ["append", "build", "commit", "compact", "import", "trigger"];
/// The largest ratio of a path to its baseline.
const BOUND: f64 = 1.05;
/// The same answers with their results, appended through a handle and through the interface below it.
const DOORS: [&str; 2] = ["handle", "below"];
/// The largest ratio of a handle to the interface below it.
const HANDLE_BOUND: f64 = 1.03;

/// Builds of the same session: without edits, with edits in a few runs, and with each edit in a run of its own.
const EDITED: [&str; 3] = ["unedited", "edited", "edited-apart"];
/// The number of live edits, at least.
const EDITS: usize = 1_000;
/// The turns of one run of edits.
const EDITED_TURNS: u32 = 16;
/// The largest ratio of a build with edits to one without.
const EDITED_BOUND: f64 = 1.05;

type Result<T> = Outcome<T>;
/// Thousands of instructions of each path.
type Counts = BTreeMap<String, u64>;

/// Runs the part of a path that is counted.
#[inline(never)]
fn measured(work: &mut dyn FnMut() -> Outcome<()>) -> Outcome<()> {
    std::hint::black_box(work())
}

/// A store of which only the writes are counted.
struct CountedWrites<'a>(&'a SqliteStore);

impl SessionStore for CountedWrites<'_> {
    fn read(&self, work: ReadWork<'_>) -> StoreResult<()> {
        self.0.read(work)
    }

    fn write(&self, work: WriteWork<'_>) -> StoreResult<()> {
        let (mut work, mut done) = (Some(work), Ok(()));
        let counted = measured(&mut || {
            if let Some(work) = work.take() {
                done = self.0.write(work);
            }
            Ok(())
        });
        counted.map_err(|error| StoreError::Other(error.to_string().into()))?;
        done
    }

    fn counter(&self) -> &dyn TokenCounter {
        self.0.counter()
    }
}

/// Returns a session of a loop and a half, of which the first is compacted.
fn session(folder: &Path, turns: &mut Turns) -> Outcome<Recorded> {
    let mut recorded = Recorded::create(&folder.join("some.db"), Durability::Normal)?;
    recorded.fill((0..96).map(|_| turns.next_turn()).collect())?;
    recorded.compact(CompactionConfig::default(), CompactTrigger::Length)?;
    recorded.fill((0..40).map(|_| turns.next_turn()).collect())?;
    Ok(recorded)
}

fn path(name: &str, folder: &Path) -> Outcome<()> {
    if name == "import" {
        return import(folder);
    }
    if EDITED.contains(&name) {
        return build_again(folder);
    }
    let mut turns = Turns::new(7);
    let mut recorded = session(folder, &mut turns)?;
    if DOORS.contains(&name) {
        return door(name, recorded, &mut turns);
    }
    match name {
        "append" => {
            let next: Vec<_> = (0..20).map(|_| turns.next_turn()).collect();
            for turn in next {
                let mut turn = Some(turn);
                measured(&mut || {
                    recorded.append(turn.take().unwrap_or_default())?;
                    Ok(())
                })?;
            }
        }
        "build" => {
            // The first build opens a connection.
            recorded.build()?;
            measured(&mut || (0..5).try_for_each(|_| recorded.build().map(|_| ())))?;
        }
        "commit" => {
            let request = CompactRequest {
                trigger: CompactTrigger::Length,
                ..CompactRequest::default()
            };
            for round in 0..5 {
                recorded.fill((0..12).map(|_| turns.next_turn()).collect())?;
                // The first one prepares its statements.
                let report = match round {
                    0 => compact_session_loops(&recorded.store, &recorded.session, &request)?,
                    _ => {
                        let counted = CountedWrites(&recorded.store);
                        compact_session_loops(&counted, &recorded.session, &request)?
                    }
                };
                if report.outcome != loopstore::compact::CompactOutcome::Committed {
                    return Err(format!("not compacted: {report:?}").into());
                }
            }
        }
        "compact" => {
            let config = CompactionConfig::default();
            measured(&mut || recorded.compact(config.clone(), CompactTrigger::Length))?;
        }
        "trigger" => {
            // The trigger does not fire: only the size of the context is read.
            let window = ContextConfig {
                max_context_tokens: 1 << 40,
                ..ContextConfig::default()
            };
            let request = CompactRequest {
                policy: Policy::of(window, CompactionConfig::default()),
                ..CompactRequest::default()
            };
            measured(&mut || {
                for _ in 0..20 {
                    compact_session_loops(&recorded.store, &recorded.session, &request)?;
                }
                Ok(())
            })?;
        }
        other => return Err(format!("no path `{other}`").into()),
    }
    Ok(())
}

/// Appends turns of an answer and its results. The handle determines the turn of a message; the interface below
/// gets it from the caller.
fn door(name: &str, mut recorded: Recorded, turns: &mut Turns) -> Outcome<()> {
    let is_prompt = |message: &AgentMessage| message.role() == Role::User;
    let answers: Vec<Vec<AgentMessage>> = (0..21)
        .map(|_| turns.next_turn().into_iter())
        .map(|turn| turn.filter(|message| !is_prompt(message)).collect())
        .collect();
    if name == "below" {
        for (at, turn) in answers.into_iter().enumerate() {
            let mut turn = Some(turn);
            let mut append = || recorded.append(turn.take().unwrap_or_default()).map(drop);
            // The first one prepares its statements.
            match at {
                0 => append()?,
                _ => measured(&mut append)?,
            }
        }
        return Ok(());
    }
    let handle = Store::from(recorded.store).session(recorded.session.as_str())?;
    for (at, turn) in answers.into_iter().enumerate() {
        let bare = turn
            .into_iter()
            .filter_map(|message| message.message().cloned());
        let mut bare: Option<Vec<Message>> = Some(bare.collect());
        let mut append = || Ok(handle.append(bare.take().unwrap_or_default()).map(drop)?);
        match at {
            0 => append()?,
            _ => measured(&mut append)?,
        }
    }
    Ok(())
}

/// Creates the session of a build with edits, or without; that is not counted. The edits clear answers, arguments and
/// results.
fn before_edited(folder: &Path, name: &str) -> Outcome<()> {
    let mut turns = Turns::new(7);
    let mut recorded = Recorded::create(&folder.join("some.db"), Durability::Normal)?;
    let turns: Vec<Vec<AgentMessage>> = (0..3 * IN_A_LOOP).map(|_| turns.next_turn()).collect();
    recorded.fill(turns.clone())?;
    if name == "edited-apart" {
        return edit_apart(&recorded, &turns);
    }
    let mut edits = 0;
    let runs = (0..3).flat_map(|at| {
        let first = (0..IN_A_LOOP).step_by(EDITED_TURNS as usize);
        first.map(move |first| (at, first))
    });
    for (at, first) in runs {
        if name == "unedited" || edits >= EDITS {
            break;
        }
        let loop_id = LoopId::new(format!("loop-{at}"))?;
        let target = EditTarget::Turns(loop_id, first..=first + EDITED_TURNS - 1);
        let report = edit(
            &recorded.store,
            &recorded.session,
            &EditRequest::clear([target]),
        )?;
        edits += report.edits.len();
    }
    match name == "unedited" || edits >= EDITS {
        true => Ok(()),
        false => Err(format!("{edits} edits, not {EDITS}").into()),
    }
}

/// Clears parts of messages, each in a run of its own.
fn edit_apart(recorded: &Recorded, turns: &[Vec<AgentMessage>]) -> Outcome<()> {
    let mut parts = Vec::new();
    for (at, of_loop) in turns.chunks(IN_A_LOOP as usize).enumerate() {
        let loop_id = LoopId::new(format!("loop-{at}"))?;
        let in_turn = |(turn, messages): (u32, &Vec<AgentMessage>)| vec![turn; messages.len()];
        let of_turn: Vec<u32> = (0..).zip(of_loop).flat_map(in_turn).collect();
        for ((seq, turn), message) in (0..).zip(of_turn).zip(of_loop.iter().flatten()) {
            let count = message
                .message()
                .map_or(0, |message| message.content().len());
            let count = u32::try_from(count)?;
            parts.extend((0..count).map(|part| EditTarget::Part(loop_id.clone(), turn, seq, part)));
        }
    }
    let mut edits = 0;
    for part in parts {
        let request = EditRequest::clear([part]);
        match edit(&recorded.store, &recorded.session, &request) {
            Ok(report) => edits += report.edits.len(),
            // A part that is shorter than its marker.
            Err(StoreError::EditRefused(EditRefusal::NoMatch { .. })) => {}
            Err(error) => return Err(error.into()),
        }
        if edits >= EDITS {
            return Ok(());
        }
    }
    Err(format!("{edits} edits, not {EDITS}").into())
}

/// Builds the context of a session that exists.
fn build_again(folder: &Path) -> Outcome<()> {
    let store = SqliteStore::open(folder.join("some.db"))?;
    let recorded = Recorded::of(store, SessionId::new("session")?);
    // The first build opens a connection.
    recorded.build()?;
    measured(&mut || (0..5).try_for_each(|_| recorded.build().map(|_| ())))
}

/// Creates the files of an import that are not counted: a transcript, and the tables of a new database.
fn before_import(folder: &Path) -> Outcome<()> {
    transcripts::generate(&folder.join("transcripts"), 300_000, 300_000)?;
    SqliteStore::open(folder.join("imported.db"))?;
    Ok(())
}

/// Imports a transcript.
fn import(folder: &Path) -> Outcome<()> {
    let files = folder.join("transcripts");
    let store = SqliteStore::open(folder.join("imported.db"))?;
    let options = ImportOptions::default();
    let report = import_paths(&store, &[files], &options, &mut |_| ())?;
    match report.skipped.first() {
        None => Ok(()),
        Some(skipped) => Err(skipped.reason.clone().into()),
    }
}

/// Runs a path under callgrind; returns thousands of instructions.
fn count(name: &str) -> Outcome<u64> {
    let folder = tempfile::tempdir()?;
    if name == "import" {
        before_import(folder.path())?;
    }
    if EDITED.contains(&name) {
        before_edited(folder.path(), name)?;
    }
    let out = folder.path().join("counts");
    let process = Command::new("valgrind")
        .args(["--tool=callgrind", "-q"])
        // An import uses several threads: all of it is counted, from the start of the program.
        .args((name != "import").then_some("--toggle-collect=*measured*"))
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(std::env::current_exe()?)
        .arg(folder.path())
        .env(PATH, name)
        .stdin(Stdio::null())
        .status();
    let process = process.map_err(|error| format!("valgrind is needed: {error}"))?;
    if !process.success() {
        return Err(format!("{name} failed").into());
    }
    let text = std::fs::read_to_string(&out)?;
    let total = |line: &str| {
        let line = line
            .strip_prefix("totals:")
            .or_else(|| line.strip_prefix("summary:"))?;
        line.trim().parse::<u64>().ok()
    };
    let counts = text.lines().filter_map(total);
    let most = counts.max().filter(|count| *count > 0);
    Ok(most.ok_or("callgrind counted nothing")? / 1_000)
}

/// Compares builds with edits with one without.
fn compare_edited(edited: &[&str], met: &mut bool) -> Outcome<()> {
    let unedited = count("unedited")?;
    println!("build without edits: {unedited} thousand instructions");
    for name in edited {
        let edited = count(name)?;
        println!("build with {EDITS} edits, {name}: {edited} thousand instructions");
        let ratio = edited as f64 / unedited as f64;
        judge(&format!("{name} / without edits"), ratio, EDITED_BOUND, met);
    }
    Ok(())
}

fn run() -> Outcome<bool> {
    if let Ok(name) = std::env::var(PATH) {
        let folder = std::env::args_os().nth(1).ok_or("no folder")?;
        path(&name, Path::new(&folder))?;
        return Ok(true);
    }
    if std::env::args().any(|name| name == "edited") {
        let mut met = true;
        compare_edited(&EDITED[1..], &mut met)?;
        return Ok(met);
    }
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(BASELINE);
    let baseline: Counts = match std::fs::read_to_string(&file) {
        Ok(text) => toml::from_str(&text)?,
        Err(_) => Counts::new(),
    };
    let is_new = std::env::var("LOOPSTORE_BASELINE").is_ok_and(|word| word == "write");
    let (mut counts, mut met) = (Counts::new(), true);
    for name in PATHS {
        let thousands = count(name)?;
        println!("{name}: {thousands} thousand instructions");
        if let (Some(before), false) = (baseline.get(name), is_new) {
            let ratio = thousands as f64 / *before as f64;
            judge(&format!("{name} / baseline"), ratio, BOUND, &mut met);
        } else if !is_new {
            return Err(format!("{BASELINE} says nothing of {name}").into());
        }
        counts.insert(name.to_owned(), thousands);
    }
    let [handle, below] = DOORS.map(count);
    let (handle, below) = (handle?, below?);
    println!("handle: {handle} thousand instructions, the door below it: {below}");
    let ratio = handle as f64 / below as f64;
    judge("handle / the door below", ratio, HANDLE_BOUND, &mut met);
    // To write a thousand runs takes a while.
    compare_edited(&EDITED[1..2], &mut met)?;
    if is_new {
        let mut text = String::from("# Thousands of instructions; written by the benchmark.\n");
        for (name, thousands) in counts {
            text.push_str(&format!("{name} = {thousands}\n"));
        }
        std::fs::write(&file, text)?;
    }
    Ok(met)
}

fn main() -> ExitCode {
    workload::exit(run())
}
