//! Bulk import compared with the bare ceiling, in one run: `cargo bench --bench import`.
//!
//! A folder of transcripts in the form of Claude Code is generated (`LOOPSTORE_MEGABYTES`, 100 by default, in
//! files of `LOOPSTORE_FILE_MEGABYTES`, 8 by default) and imported, with and without keeping the files. The
//! ceiling stores the same lines with plain SQLite, alternately with the import, and the speeds are compared.

mod ceiling;
mod transcripts;

#[path = "../workload/mod.rs"]
mod workload;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use loopstore::SqliteStore;
use loopstore_transcripts::{ImportOptions, import_paths};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const ROUNDS: usize = 3;

/// Reads a number of megabytes; returns bytes.
fn megabytes(name: &str, default: u64) -> u64 {
    let given = std::env::var(name).ok();
    given.and_then(|n| n.parse().ok()).unwrap_or(default) << 20
}

/// Imports the folder into a new database; returns the seconds.
fn import(folder: &Path, db: &Path, without_source: bool) -> Result<f64> {
    let store = SqliteStore::open(db)?;
    let options = ImportOptions {
        without_source,
        ..ImportOptions::default()
    };
    let begun = Instant::now();
    let report = import_paths(&store, &[folder.to_owned()], &options, &mut |_| ())?;
    let took = begun.elapsed().as_secs_f64();
    if let Some(skipped) = report.skipped.first() {
        return Err(format!("{}: {}", skipped.file, skipped.reason).into());
    }
    Ok(took)
}

fn run() -> Result<bool> {
    let folder = tempfile::tempdir()?;
    let transcripts = folder.path().join("transcripts");
    let all = megabytes("LOOPSTORE_MEGABYTES", 100);
    let each = megabytes("LOOPSTORE_FILE_MEGABYTES", 8);
    let bytes = transcripts::generate(&transcripts, all, each)?;
    let files = transcripts::files(&transcripts)?;
    let speed = |seconds: f64| bytes as f64 / seconds / f64::from(1 << 20);
    println!("{} files, {:.0} MB", files.len(), speed(1.0));
    let db =
        |name: &str, round: usize| -> PathBuf { folder.path().join(format!("{name}-{round}.db")) };
    let (mut ratios, mut kept_ratios) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let bare = ceiling::import(&files, &db("ceiling", round))?;
        let ours = import(&transcripts, &db("ours", round), true)?;
        let kept = import(&transcripts, &db("kept", round), false)?;
        println!(
            "ceiling {:.1} MB/s, import {:.1} MB/s, keeping the files too {:.1} MB/s",
            speed(bare),
            speed(ours),
            speed(kept)
        );
        ratios.push(ours / bare);
        kept_ratios.push(kept / bare);
        for name in ["ceiling", "ours", "kept"] {
            std::fs::remove_file(db(name, round))?;
        }
    }
    ratios.sort_by(f64::total_cmp);
    kept_ratios.sort_by(f64::total_cmp);
    let (middle, mut met) = (ROUNDS / 2, true);
    // At least 0.6 of the ceiling's speed, and 0.45 with the files.
    workload::judge("import / ceiling", ratios[middle], 1.0 / 0.6, &mut met);
    let kept = kept_ratios[middle];
    workload::judge("import and keep / ceiling", kept, 1.0 / 0.45, &mut met);
    let memory = workload::peak_memory();
    workload::judge("memory of all, MiB", memory, 200.0, &mut met);
    Ok(met)
}

fn main() -> ExitCode {
    workload::exit(run())
}
