//! Peak memory of operations on much content: `cargo bench --bench memory`.
//!
//! Each task runs in its own process over one giant session of 20,000 messages, 70 MB (`LOOPSTORE_MESSAGES` for
//! another number), and reports its peak memory. The result of a task counts; the content that it reads must
//! not. A search, an export in lines, an import, a verification and the first compaction stay under a bound for
//! any size; a build may hold its context three times.

#[path = "../workload/mod.rs"]
mod workload;

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use loopstore::extend::search::index;
use loopstore::search::{SearchQuery, search};
use loopstore::*;
use loopstore_export::{ExportForm, export};
use loopstore_transcripts::{ImportOptions, import_paths};
use loopstore_verify::verify;
use workload::store::Recorded;
use workload::turns::{Turns, of_messages};
use workload::{Outcome, judge, peak_memory};

/// The environment variable with the task of a child process; the folder is an argument.
const TASK: &str = "LOOPSTORE_BENCH_TASK";
const TASKS: [&str; 7] = [
    "nothing", "build", "search", "export", "import", "verify", "compact",
];
/// The bound in MiB above the memory of a process that does nothing.
const BOUND: f64 = 100.0;
/// The bound of a compaction, which holds the texts that it may use.
const COMPACT_BOUND: f64 = 200.0;

fn messages() -> usize {
    let given = std::env::var("LOOPSTORE_MESSAGES").ok();
    given.and_then(|n| n.parse().ok()).unwrap_or(20_000)
}

fn id() -> Outcome<SessionId> {
    Ok(SessionId::new("session")?)
}

/// Runs one task in this process; returns the size of its result in bytes.
fn task(name: &str, folder: &Path) -> Outcome<u64> {
    let lines = folder.join("lines").join("session.jsonl");
    if name == "import" {
        let store = SqliteStore::open(folder.join("imported.db"))?;
        let options = ImportOptions::default();
        let report = import_paths(&store, &[lines], &options, &mut |_| ())?;
        return match report.skipped.first() {
            None => Ok(0),
            Some(skipped) => Err(skipped.reason.clone().into()),
        };
    }
    let store = SqliteStore::open(folder.join("giant.db"))?;
    match name {
        "build" => {
            let raw = BuildOptions::default();
            return Ok(build_context_from_session(&store, &id()?, &raw)?.bytes);
        }
        "search" => {
            index(&store, &mut |_| ())?;
            search(&store, &SearchQuery::new("quick mod_7"))?;
        }
        "export" => {
            let mut out = std::io::BufWriter::new(std::fs::File::create(lines)?);
            export(&store, &id()?, None, ExportForm::Lines, &mut out)?;
        }
        "compact" => {
            let request = CompactRequest {
                trigger: CompactTrigger::Length,
                ..CompactRequest::default()
            };
            compact_session_loops(&store, &id()?, &request)?;
        }
        "verify" => {
            let report = verify(&store)?;
            if let Some(problem) = report.problems.first() {
                return Err(format!("{problem:?}").into());
            }
        }
        _ => {}
    }
    Ok(0)
}

/// Runs a task in a child process; returns its peak in MiB, and the size of its result.
fn peak(name: &str, folder: &Path) -> Outcome<(f64, f64)> {
    let process = Command::new(std::env::current_exe()?)
        .arg(folder)
        .env(TASK, name)
        .stderr(Stdio::inherit())
        .output()?;
    let text = String::from_utf8(process.stdout)?;
    let (peak, bytes) = text.trim().split_once(' ').ok_or("a task failed")?;
    Ok((peak.parse()?, bytes.parse::<f64>()? / f64::from(1 << 20)))
}

fn run() -> Outcome<bool> {
    if let Ok(name) = std::env::var(TASK) {
        let folder = std::env::args_os().nth(1).ok_or("no folder")?;
        let bytes = task(&name, Path::new(&folder))?;
        println!("{} {bytes}", peak_memory());
        return Ok(true);
    }
    let folder = tempfile::tempdir()?;
    std::fs::create_dir(folder.path().join("lines"))?;
    let mut turns = Turns::new(6);
    let file = folder.path().join("giant.db");
    let mut giant = Recorded::create(&file, Durability::Normal)?;
    for _ in 0..20 {
        giant.fill(of_messages(&mut turns, messages() / 20))?;
    }
    drop(giant);
    let size = std::fs::metadata(&file)?.len() as f64 / f64::from(1 << 20);
    println!("one session, {size:.0} MiB");
    let (mut met, mut nothing) = (true, 0.0);
    for name in TASKS {
        let (peak, returned) = peak(name, folder.path())?;
        if name == "nothing" {
            nothing = peak;
        }
        let bound = match name {
            "build" => 3.0 * returned,
            "compact" => COMPACT_BOUND,
            _ => BOUND,
        };
        judge(
            &format!("{name}, MiB"),
            peak - nothing,
            bound.ceil(),
            &mut met,
        );
    }
    Ok(met)
}

fn main() -> ExitCode {
    workload::exit(run())
}
