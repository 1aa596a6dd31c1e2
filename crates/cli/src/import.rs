//! `loopstore import`

use std::path::PathBuf;
use std::sync::Arc;

use clap::builder::PossibleValuesParser;
use indicatif::ProgressBar;
use loopstore::{COUNTERS, Database, SessionId};
use loopstore_agents::imported::ImportMemory;
use loopstore_redact::RedactionPolicy;
use loopstore_terminal::output::note;
use loopstore_terminal::server::Access;
use loopstore_terminal::{App, CliError, Done, progress, text};
use loopstore_transcripts::{
    FileProgress, FileRepair, ImportError, ImportOptions, ImportReport, ImportedFiles, Skipped,
    import_paths, importers,
};

use super::redaction::RedactionArgs;
use super::watch;

/// The maximum number of sessions, and of skipped records, in the lists.
const LISTED: usize = 10;

/// Import transcripts; run again, it adds only what is new
///
/// Formats are detected and folders walked. The database is created if it does not exist. Files compressed
/// with zstd or gzip and UTF-16 are decoded, and damaged JSON is repaired where that loses nothing else
/// (half of an emoji becomes U+FFFD). Records that cannot be used are skipped. What was skipped, repaired or
/// not read is reported, and counted in the last line; with a path that could not be imported the others
/// are imported and the exit code is 1. The source files are stored too, compressed; of a file that grew,
/// only what is new.
#[derive(clap::Args, Clone)]
pub struct ImportArgs {
    /// Files and folders.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The format of the files [default: detected for each file].
    #[arg(long, value_parser = formats())]
    format: Option<String>,
    /// Import only this session of the files.
    #[arg(long, value_name = "ID")]
    session: Option<SessionId>,
    /// Do not store the source files; `export --format original` then has nothing to return.
    #[arg(long)]
    no_source: bool,
    /// Replace secrets (keys, tokens, passwords, private keys) with markers before anything is stored.
    /// The source files are then not stored. Later imports into these sessions are redacted too, even
    /// without this option.
    #[arg(long)]
    redact: bool,
    /// Read files too that are unchanged since an earlier import, by size, times and inode.
    #[arg(long)]
    reread: bool,
    #[command(flatten)]
    redaction: RedactionArgs,
    /// Keep running: import what is added to the files, and new files in the folders, until Ctrl-C.
    /// With --json, prints one document per line.
    #[arg(long)]
    watch: bool,
}

/// Import transcripts, and what is added to them until Ctrl-C; the same as `import --watch`
#[derive(clap::Args)]
#[command(mut_arg("watch", |arg| arg.hide(true)))]
pub struct WatchArgs {
    #[command(flatten)]
    args: ImportArgs,
}

fn formats() -> PossibleValuesParser {
    PossibleValuesParser::new(importers().iter().map(|importer| importer.format()))
}

/// Imports existing content, and later additions.
pub fn run_watch(app: &mut App, args: &WatchArgs) -> Result<Done, CliError> {
    let mut args = args.args.clone();
    args.watch = true;
    run(app, &args)
}

/// Imports and prints what was added.
pub fn run(app: &mut App, args: &ImportArgs) -> Result<Done, CliError> {
    let redaction = args.redaction.policy()?;
    // Checked before the database is created, so that a mistyped path leaves nothing behind.
    let mut missing = None;
    for path in &args.paths {
        match std::fs::metadata(path) {
            Ok(_) => {
                missing = None;
                break;
            }
            Err(source) => {
                let path = path.clone();
                missing.get_or_insert(ImportError::Read { path, source });
            }
        }
    }
    if let Some(error) = missing {
        return Err(error.into());
    }
    with_database(app, |app, store| import(app, args, redaction, store))
}

/// Runs an import into the database, which is created if it does not exist, and removed again if the import fails.
pub(super) fn with_database<T>(
    app: &mut App,
    import: impl FnOnce(&mut App, &dyn Database) -> Result<T, CliError>,
) -> Result<T, CliError> {
    let access = Access::Create(COUNTERS[0]);
    if app.address().is_some() {
        let store = app.open(access)?;
        return import(app, &*store);
    }
    let is_new = app.db.symlink_metadata().is_err();
    let store = app.open_file(access)?;
    let done = import(app, &store);
    if done.is_err() && is_new {
        // An empty database left behind would look like one in use. If it cannot be removed, the same cause made the
        // import fail, which is reported.
        let _ = store.remove_if_empty();
    }
    done
}

fn import(
    app: &mut App,
    args: &ImportArgs,
    redaction: RedactionPolicy,
    store: &dyn Database,
) -> Result<Done, CliError> {
    let mut options = ImportOptions {
        format: args.format.clone(),
        session: args.session.clone(),
        without_source: args.no_source,
        redact: args.redact,
        redaction,
        ..ImportOptions::default()
    };
    let memory = match args.reread {
        true => None,
        false => memory(app, store, &mut options)?,
    };
    if args.watch {
        return watch::run(app, store, &args.paths, options);
    }
    let bar = progress::bar("files");
    let result = import_paths(store, &args.paths, &options, &mut |seen| {
        show(&bar, seen);
    });
    bar.finish_and_clear();
    if let Some(memory) = memory {
        // Without the memory, the next import reads the files again.
        let _ = memory.save();
    }
    let report = result?;
    let done = match report.failed.is_empty() {
        true => Done::Well,
        false => Done::Badly,
    };
    if app.json {
        app.out.json(&report)?;
        return Ok(done);
    }
    app.out.text(&summary(&report))?;
    warn_of_unredacted(&report);
    note_other_conversations(&report);
    note_failed(&report);
    note_left_out(&report);
    Ok(done)
}

/// Lists what was skipped, repaired, not read and completed, unless an earlier import listed it.
pub(super) fn note_left_out(report: &ImportReport) {
    if is_known(report) {
        return;
    }
    let notes: [(&str, Vec<String>); 3] = [
        ("skipped", report.skipped.iter().map(skipped_line).collect()),
        (
            "repaired",
            report.repaired.iter().map(repaired_line).collect(),
        ),
        ("not read", report.unread.iter().map(skipped_line).collect()),
    ];
    for (what, lines) in notes {
        for line in text::at_most(lines.into_iter(), LISTED) {
            note(&format!("{what}: {line}"));
        }
    }
    let completed = report
        .notes
        .iter()
        .map(|one| format!("{}: {}", text::line(&one.file), text::line(&one.note)));
    for line in text::at_most(completed, LISTED) {
        note(&format!("note: {line}"));
    }
}

/// Returns the memory of earlier imports, which the options then have too. An encrypted database has none: the memory
/// would hold the names of its sessions in the clear.
pub(super) fn memory(
    app: &App,
    store: &dyn Database,
    options: &mut ImportOptions,
) -> Result<Option<Arc<ImportMemory>>, CliError> {
    if app.key.is_some() {
        return Ok(None);
    }
    let memory = ImportMemory::open(store, options)?.map(Arc::new);
    options.known = memory
        .clone()
        .map(|memory| memory as Arc<dyn ImportedFiles>);
    Ok(memory)
}

/// True if the files were imported before and contain nothing new. What was skipped and repaired is only counted then;
/// the first import listed it.
fn is_known(report: &ImportReport) -> bool {
    !report.sessions.is_empty() && report.added_messages == 0 && report.revised == 0
}

/// Lists the sessions that were first imported without redaction.
pub(super) fn warn_of_unredacted(report: &ImportReport) {
    for session in report.unredacted.iter().take(LISTED) {
        let id = text::line(session.as_str());
        note(&format!(
            "warning: session {id} was imported before without --redact; `loopstore redact {id}` \
             removes the secrets stored then"
        ));
    }
}

/// Lists the paths that could not be imported.
pub(super) fn note_failed(report: &ImportReport) {
    for line in text::at_most(report.failed.iter().map(skipped_line), LISTED) {
        note(&format!("not imported: {line}"));
    }
}

/// Lists the conversations that were stored as branches or under another id, since their id or file belonged to another
/// conversation before.
pub(super) fn note_other_conversations(report: &ImportReport) {
    let separated = report.separated.iter().map(|one| {
        let (file, id) = (text::line(&one.file), text::line(one.id.as_str()));
        let session = text::line(one.session.as_str());
        format!("{file}: id {id} belongs to another conversation here; stored as session {session}")
    });
    let branches = report.branches.iter().map(|one| {
        let (file, session) = (text::line(&one.file), text::line(one.session.as_str()));
        let branch = text::line(one.loop_id.as_str());
        format!(
            "{file}: differs from what is stored of session {session}; both are kept, the \
             difference as loop {branch} (`loopstore show {session}`)"
        )
    });
    let lines: Vec<String> = separated.chain(branches).collect();
    for line in text::at_most(lines.into_iter(), LISTED) {
        note(&line);
    }
}

fn show(bar: &ProgressBar, progress: FileProgress<'_>) {
    bar.set_length(progress.files);
    bar.set_position(progress.file.saturating_sub(1));
    let path = text::line(&progress.path.display().to_string());
    bar.set_message(format!("{path} ({})", text::bytes(progress.bytes)));
}

/// Returns the counts of an import, its sessions, and what was left out.
pub(super) fn summary(report: &ImportReport) -> String {
    let held = match report.files {
        1 => "The file holds",
        _ => "The files hold",
    };
    let mut lines = vec![
        format!(
            "Imported {}: {}, {} ({:.1} s).",
            text::count(report.files, "file"),
            text::count(report.sessions.len() as u64, "session"),
            text::count(report.added_messages, "new message"),
            report.seconds,
        ),
        // A record in two files is counted in each.
        format!(
            "{held} {}, {} and {}.",
            text::count(report.loops, "loop"),
            text::count(report.turns, "turn"),
            text::count(report.messages, "message"),
        ),
    ];
    if report.unchanged > 0 {
        lines.push(format!(
            "{} unchanged since an earlier import and not read again (--reread reads all).",
            text::count(report.unchanged, "file")
        ));
    }
    if let Some(secrets) = &report.secrets {
        lines.push(text::secrets(secrets));
        let held_back: u64 = report.held_back.values().sum();
        if held_back > 0 {
            let possible = text::count(held_back, "possible secret");
            let session = match report.sessions.as_slice() {
                [one] => text::quoted(&text::line(one.as_str())),
                _ => "SESSION".to_owned(),
            };
            lines.push(format!(
                "{possible} of low confidence not replaced; `loopstore redact --dry-run {session}` shows each"
            ));
        }
    }
    let sessions = report.sessions.iter();
    let sessions = sessions.map(|id| format!("session {}", text::line(id.as_str())));
    let more = sessions.len().saturating_sub(LISTED);
    lines.extend(sessions.take(LISTED));
    if more > 0 {
        lines.push(format!(
            "and {} more; `loopstore sessions` lists all with their titles",
            text::number(more)
        ));
    }
    lines.extend(left_out(report));
    lines.join("\n")
}

/// Returns the counts of skipped and repaired content; `None` if there is none.
fn left_out(report: &ImportReport) -> Option<String> {
    let repaired = report.repaired.iter().map(|one| one.count).sum::<u64>();
    let unread = report.unread.len() as u64;
    let others = report.unknown_files.saturating_sub(unread);
    let counts = [
        (report.failed.len() as u64, "path", "not imported"),
        (report.skipped.len() as u64, "item", "skipped"),
        (repaired, "place", "repaired"),
        (unread, "file", "not read that may hold a conversation"),
        (others, "other file", "not read"),
    ];
    let counts = counts.iter().filter(|(count, ..)| *count > 0);
    let counts = counts.map(|(count, what, done)| format!("{} {done}", text::count(*count, what)));
    let counts: Vec<String> = counts.collect();
    (!counts.is_empty()).then(|| format!("Left out or repaired: {}.", counts.join(", ")))
}

pub(super) fn repaired_line(repaired: &FileRepair) -> String {
    let line = repaired
        .line
        .map_or(String::new(), |line| format!(":{line}"));
    let count = match repaired.count {
        1 => String::new(),
        count => format!(" ({} times)", text::number(count as usize)),
    };
    format!(
        "{}{line}: {}{count}",
        text::line(&repaired.file),
        text::line(&repaired.what)
    )
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
