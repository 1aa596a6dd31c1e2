//! What more history costs: `cargo bench --bench growth`.
//!
//! Two databases do the same in turns: one with 10,000 messages, one with 100,000
//! (`LOOPSTORE_LONG=1`: 1,000,000; `LOOPSTORE_QUICK=1`: 1,000 and 10,000), once as a single giant
//! session, once as up to 10,000 sessions. Neither an append nor a build nor a compaction may take
//! more than 1.2 times as long in the larger one.

#[path = "../workload/mod.rs"]
mod workload;

use std::process::ExitCode;

use workload::growth::{Aged, compare};
use workload::{Outcome, is_long, is_quick, judge};

const BOUND: f64 = 1.2;

fn sizes() -> (usize, usize) {
    match (is_quick(), is_long()) {
        (true, _) => (1_000, 10_000),
        (false, true) => (10_000, 1_000_000),
        (false, false) => (10_000, 100_000),
    }
}

fn run() -> Outcome<bool> {
    let (few, many) = sizes();
    let rounds = if is_quick() { 8 } else { 30 };
    let mut met = true;
    for (name, aged) in [
        (
            "one session",
            Aged::giant as fn(&std::path::Path, usize) -> _,
        ),
        ("many sessions", Aged::among_others),
    ] {
        let folder = tempfile::tempdir()?;
        let mut young: Aged = aged(&folder.path().join("young"), few)?;
        let mut old: Aged = aged(&folder.path().join("old"), many)?;
        let ratios = compare(&mut young, &mut old, rounds)?;
        println!("{name}: {many} messages / {few}");
        judge(&format!("append, {name}"), ratios.append, BOUND, &mut met);
        judge(&format!("build, {name}"), ratios.build, BOUND, &mut met);
        judge(
            &format!("compaction, {name}"),
            ratios.compact,
            BOUND,
            &mut met,
        );
    }
    Ok(met)
}

fn main() -> ExitCode {
    workload::exit(run())
}
