//! `loopstore import`

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use indicatif::ProgressBar;
use loopstore::import::{
    ImportError, ImportOptions, ImportReport, Progress, Skipped, import_paths, importers,
};
use loopstore::{COUNTERS, Database, SessionId, SqliteStore};

use super::error::CliError;
use super::output::note;
use super::{App, Done, progress, text, watch};

/// How many sessions and how many skipped records are told one by one.
const LISTED: usize = 10;

/// Bring transcripts in; again, and only what is new is added
///
/// The formats are told by the files themselves. Folders are walked. The database is created if it
/// is not there. A record that cannot be used is skipped and reported. The files themselves are kept
/// too, compressed; of one that grew, only what is new.
#[derive(clap::Args)]
pub struct Args {
    /// Files and folders.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The format of the files [default: as each file looks].
    #[arg(long, value_parser = formats())]
    format: Option<String>,
    /// Import only this session of the files.
    #[arg(long, value_name = "ID")]
    session: Option<SessionId>,
    /// Do not keep the files themselves; `export --format original` then has nothing to give back.
    #[arg(long)]
    no_source: bool,
    /// Replace secrets (keys, tokens, passwords, private keys) by markers before anything is stored.
    /// The files themselves are not kept then. What comes into these sessions later is redacted too,
    /// also without this option.
    #[arg(long)]
    redact: bool,
    /// Go on: import what the files grow by, and new files in the folders, until ctrl-c. With
    /// `--json`, one document a line.
    #[arg(long)]
    watch: bool,
}

fn formats() -> PossibleValuesParser {
    PossibleValuesParser::new(importers().iter().map(|importer| importer.format()))
}

/// Imports and tells what came in.
pub fn run(app: &mut App, args: &Args) -> Result<Done, CliError> {
    // Asked before the database is created: a mistyped path should leave nothing behind.
    for path in &args.paths {
        std::fs::metadata(path).map_err(|source| ImportError::Read {
            path: path.clone(),
            source,
        })?;
    }
    if app.address().is_some() {
        let store = app.open_or_create(COUNTERS[0])?;
        return import(app, args, &*store);
    }
    let is_new = app.db.symlink_metadata().is_err();
    let store = SqliteStore::open_with(&app.db, app.options().stored_counter())?;
    let done = import(app, args, &store);
    if done.is_err() && is_new {
        // Left behind, an empty database would pass for one that is in use. What hinders this hindered
        // the import, which is told.
        let _ = store.remove_if_empty();
    }
    done
}

fn import(app: &mut App, args: &Args, store: &dyn Database) -> Result<Done, CliError> {
    let options = ImportOptions {
        format: args.format.clone(),
        session: args.session.clone(),
        without_source: args.no_source,
        redact: args.redact,
    };
    if args.watch {
        return watch::run(app, store, &args.paths, options);
    }
    let bar = progress::bar("files");
    let result = import_paths(store, &args.paths, &options, &mut |seen| {
        show(&bar, seen);
    });
    bar.finish_and_clear();
    let report = result?;
    if app.json {
        app.out.json(&report)?;
        return Ok(Done::Well);
    }
    app.out.text(&told(&report))?;
    warn_of_unredacted(&report);
    for skipped in report.skipped.iter().take(LISTED) {
        note(&format!("skipped: {}", skipped_line(skipped)));
    }
    if report.skipped.len() > LISTED {
        let more = text::number((report.skipped.len() - LISTED) as u64);
        note(&format!("skipped: {more} more; --json lists them all"));
    }
    Ok(Done::Well)
}

/// Names the sessions that hold what came in before anybody asked for redaction.
pub(super) fn warn_of_unredacted(report: &ImportReport) {
    for session in report.unredacted.iter().take(LISTED) {
        let id = text::line(session.as_str());
        note(&format!(
            "session {id} came in before without --redact; `loopstore redact {id}` takes out what \
             was stored then"
        ));
    }
}

fn show(bar: &ProgressBar, progress: Progress<'_>) {
    bar.set_length(progress.files);
    bar.set_position(progress.file.saturating_sub(1));
    let path = text::line(&progress.path.display().to_string());
    bar.set_message(format!("{path} ({})", text::bytes(progress.bytes)));
}

fn told(report: &ImportReport) -> String {
    let mut lines = vec![format!(
        "Imported {}: {}, {}, {}, {}, {} of them new ({:.1} s).",
        text::count(report.files, "file"),
        text::count(report.sessions.len() as u64, "session"),
        text::count(report.loops, "loop"),
        text::count(report.turns, "turn"),
        text::count(report.messages, "message"),
        text::number(report.added_messages),
        report.seconds,
    )];
    if let Some(secrets) = &report.secrets {
        lines.push(text::secrets(secrets));
    }
    let sessions = report.sessions.iter().take(LISTED);
    lines.extend(sessions.map(|id| format!("session {}", text::line(id.as_str()))));
    if report.sessions.len() > LISTED {
        let more = text::number((report.sessions.len() - LISTED) as u64);
        lines.push(format!("and {more} more; `loopstore sessions` lists them"));
    }
    lines.join("\n")
}

pub(super) fn skipped_line(skipped: &Skipped) -> String {
    let line = skipped
        .line
        .map_or(String::new(), |line| format!(":{line}"));
    format!(
        "{}{line}: {}",
        text::line(&skipped.file),
        text::line(&skipped.reason)
    )
}
