//! `loopstore backup`

use std::path::{Path, PathBuf};
use std::time::Instant;

use loopstore::SqliteStore;
use loopstore_admin::backup::{BackupError, backup, compact_backup};
use loopstore_terminal::output::{note, remove_unfinished_copies};
use loopstore_terminal::{App, CliError, Done, progress, text};
use serde_json::json;

/// Copy the database while others keep writing, and check the copy
///
/// The copy is a snapshot. It is written to a temporary file, checked as by `verify`, synced to disk and
/// only then renamed, so a finished copy is complete. If the database is damaged, so is the copy: it
/// then replaces nothing, and the exit code is 3.
#[derive(clap::Args)]
pub struct BackupArgs {
    /// The file to write, with mode 0600.
    #[arg(value_name = "DEST")]
    to: PathBuf,
    /// Replace an existing file.
    #[arg(long)]
    force: bool,
    /// Leave out the space of deleted rows: smaller, but slower, as every row is rewritten.
    #[arg(long)]
    compact: bool,
}

/// Makes the copy.
pub fn run(app: &mut App, args: &BackupArgs) -> Result<Done, CliError> {
    let begun = Instant::now();
    let store = app.open_to_read()?;
    let Some(store) = SqliteStore::downcast(&*store) else {
        return Err(CliError::Usage(
            "backup copies a database file; use `pg_dump` for a database on a server".into(),
        ));
    };
    remove_unfinished_copies(&args.to);
    let made = copy(store, args);
    let seconds = begun.elapsed().as_secs_f64();
    let report = |ok: bool, bytes: Option<u64>| {
        let file = ok.then(|| args.to.display().to_string());
        json!({"file": file, "bytes": bytes, "seconds": seconds, "ok": ok,
            "compact": args.compact})
    };
    match made {
        Ok(bytes) if app.json => app.out.json(&report(true, Some(bytes)))?,
        Ok(bytes) => app.out.text(&line(&args.to, bytes, seconds))?,
        Err(error @ BackupError::Damaged(_)) => {
            if app.json {
                app.out.json(&report(false, None))?;
            }
            note(&format!("error: {}", text::line(&error.to_string())));
            note("hint: `loopstore verify` lists the damage; restore an earlier backup");
            return Ok(Done::Damaged);
        }
        Err(error) => return Err(error.into()),
    }
    Ok(Done::Well)
}

fn copy(store: &SqliteStore, args: &BackupArgs) -> Result<u64, BackupError> {
    if args.compact {
        let line = progress::waiting("writing and checking the copy");
        let made = compact_backup(store, &args.to, args.force);
        line.finish_and_clear();
        return made;
    }
    let bar = progress::slow_bar("pages");
    let made = backup(store, &args.to, args.force, &mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
        if done == all {
            bar.set_message("checking the copy");
        }
        progress::show_if_slow(&bar);
    });
    bar.finish_and_clear();
    made
}

fn line(to: &Path, bytes: u64, seconds: f64) -> String {
    format!(
        "Wrote {}, {}, checked ({seconds:.1} s).",
        text::line(&to.display().to_string()),
        text::bytes(bytes)
    )
}
