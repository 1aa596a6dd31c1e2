//! The cost of a longer history: `cargo bench --bench growth`.
//!
//! Two databases do the same alternately: one with 10,000 messages, one with 100,000, then 1,000,000
//! (`LOOPSTORE_MESSAGES=10000000`: this number instead; `LOOPSTORE_QUICK=1`: 1,000 and 10,000), as a single
//! giant session, as up to 10,000 sessions, and with the feature `postgres` as sessions of 100 messages in 16
//! partitions of a server that it starts. An append, a build and a compaction may take at most 1.2 times as
//! long in the larger one, and any other operation at most 1.3 times; an operation whose cost grows with the
//! size, as the guide states, is printed and not judged. Compactions that were undone repeatedly, and sessions
//! of many small loops, may cost at most in proportion to their number (`LOOPSTORE_LONG=1`: of 500,000 loops).
//! `-- giant` (`many`, `partitions`, `overlays`) runs only these.

mod overlays;
#[cfg(feature = "postgres")]
mod partitions;
mod upkeep;
#[path = "../workload/mod.rs"]
mod workload;

use std::path::Path;
use std::process::ExitCode;

use loopstore::extend::Database;
use workload::growth::{Aged, compare};
use workload::{Outcome, is_quick, judge};

const BOUND: f64 = 1.2;
const UPKEEP_BOUND: f64 = 1.3;

/// Operations whose cost grows with the content: a word of a tenth of all messages is looked up in all of them.
const NOT_JUDGED: [&str; 1] = ["recall, words of a tenth of all"];

/// Returns a number of messages, and the numbers that are compared with it.
fn sizes() -> Outcome<(usize, Vec<usize>)> {
    let given = std::env::var("LOOPSTORE_MESSAGES").ok();
    Ok(match (is_quick(), given) {
        (true, _) => (1_000, vec![10_000]),
        (false, Some(given)) => (10_000, vec![given.parse()?]),
        (false, None) => (10_000, vec![100_000, 1_000_000]),
    })
}

/// Compares two databases of one kind and prints the result.
fn judge_growth<S: Database>(
    name: &str,
    [young, old]: [&mut Aged<S>; 2],
    met: &mut bool,
) -> Outcome<()> {
    let rounds = if is_quick() { 8 } else { 30 };
    let ratios = compare(young, old, rounds)?;
    for (what, ratio) in [
        ("append", ratios.append),
        ("build", ratios.build),
        ("compaction", ratios.compact),
    ] {
        judge(&format!("{what}, {name}"), ratio, BOUND, met);
    }
    let [young, old] = [&young.recorded.store, &old.recorded.store];
    let begun = std::time::Instant::now();
    upkeep::furnish(young)?;
    upkeep::furnish(old)?;
    println!(
        "    furnished and indexed in {:.0} s",
        begun.elapsed().as_secs_f64()
    );
    for (what, ratio) in upkeep::compare(young, old)? {
        match NOT_JUDGED.contains(&what) {
            true => println!("{what}, {name}: {ratio:.2} (goes with the size)"),
            false => judge(&format!("{what}, {name}"), ratio, UPKEEP_BOUND, met),
        }
    }
    Ok(())
}

type Make = fn(&Path, usize) -> Outcome<Aged>;

fn on_sqlite(name: &str, make: Make, (few, many): (usize, usize), met: &mut bool) -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    let begun = std::time::Instant::now();
    let mut young = make(&folder.path().join("young"), few)?;
    let mut old = make(&folder.path().join("old"), many)?;
    println!(
        "{name}: {many} messages / {few}; filled in {:.0} s",
        begun.elapsed().as_secs_f64()
    );
    judge_growth(name, [&mut young, &mut old], met)?;
    let bytes = |aged: &Aged| {
        aged.recorded
            .store
            .stats()
            .map(|stats| stats.file_bytes as f64)
    };
    let [less, more] = [bytes(&young)?, bytes(&old)?];
    println!("    {:.1} MB, {:.1} MB", less / 1e6, more / 1e6);
    // The scrub writes the file again, through a second file of that size.
    if more < 4e9 {
        let ratio = upkeep::scrub(&young.recorded.store, &old.recorded.store)?;
        let of_a_byte = ratio * less / more;
        println!(
            "scrub, {name}: {ratio:.2}, for each byte of the file {of_a_byte:.2} (goes with the size)"
        );
    }
    Ok(())
}

fn run() -> Outcome<bool> {
    let (few, all) = sizes()?;
    let parts: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    let is_asked = |name: &str| parts.is_empty() || parts.iter().any(|arg| arg == name);
    let mut met = true;
    if is_asked("overlays") {
        overlays::run(&mut met)?;
    }
    for many in all {
        if is_asked("giant") {
            on_sqlite("one session", Aged::giant, (few, many), &mut met)?;
        }
        if is_asked("many") {
            on_sqlite("many sessions", Aged::among_others, (few, many), &mut met)?;
        }
        #[cfg(feature = "postgres")]
        if is_asked("partitions") {
            partitions::run((few, many), &mut met)?;
        }
    }
    Ok(met)
}

fn main() -> ExitCode {
    workload::exit(run())
}
