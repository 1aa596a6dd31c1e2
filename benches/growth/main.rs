//! What more history costs: `cargo bench --bench growth`.
//!
//! Two databases do the same in turns: one with 10,000 messages, one with 100,000, then 1,000,000
//! (`LOOPSTORE_LONG=1`: 10,000,000 too, which takes 35 GB; `LOOPSTORE_QUICK=1`: 1,000 and 10,000), once as
//! a single giant session, once as up to 10,000 sessions. Neither an append nor a build nor a compaction
//! may take more than 1.2 times as long in the larger one.

#[path = "../workload/mod.rs"]
mod workload;

use std::path::Path;
use std::process::ExitCode;

use workload::growth::{Aged, compare};
use workload::{Outcome, is_long, is_quick, judge};

const BOUND: f64 = 1.2;

/// A number of messages, and those that are compared with it.
fn sizes() -> (usize, &'static [usize]) {
    match (is_quick(), is_long()) {
        (true, _) => (1_000, &[10_000]),
        (false, true) => (10_000, &[100_000, 1_000_000, 10_000_000]),
        (false, false) => (10_000, &[100_000, 1_000_000]),
    }
}

type Make = fn(&Path, usize) -> Outcome<Aged>;
const KINDS: [(&str, Make); 2] = [
    ("one session", Aged::giant),
    ("many sessions", Aged::among_others),
];

fn run() -> Outcome<bool> {
    let (few, all) = sizes();
    let rounds = if is_quick() { 8 } else { 30 };
    let mut met = true;
    for many in all {
        for (name, make) in KINDS {
            let folder = tempfile::tempdir()?;
            let mut young = make(&folder.path().join("young"), few)?;
            let mut old = make(&folder.path().join("old"), *many)?;
            let ratios = compare(&mut young, &mut old, rounds)?;
            println!("{name}: {many} messages / {few}");
            for (what, ratio) in [
                ("append", ratios.append),
                ("build", ratios.build),
                ("compaction", ratios.compact),
            ] {
                judge(&format!("{what}, {name}"), ratio, BOUND, &mut met);
            }
        }
    }
    Ok(met)
}

fn main() -> ExitCode {
    workload::exit(run())
}
