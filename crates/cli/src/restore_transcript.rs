//! `loopstore restore-transcript`

use std::fs::DirBuilder;
use std::io::BufWriter;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use loopstore::Database;
use loopstore::extend::SourceRow;
use loopstore_export::{ExportError, export_source};
use loopstore_files::WholeFile;
use loopstore_terminal::output::remove_unfinished_copies;
use loopstore_terminal::{App, CliError, Done, confirm, select, text};
use serde::Serialize;

use super::export::source_file;

const REFUSAL: &str = "the path is the one that the import recorded; add --yes to write there, or name another file \
    with -o FILE";
/// The endings of the logs that SQLite applies to the database beside them.
const LOGS: [&str; 2] = ["-wal", "-journal"];

/// Put a deleted transcript of a session back, from the stored copy of its file
///
/// The file is written byte for byte to the path at which it was imported, where its agent finds it again. The path is
/// shown and asked for first. No file is ever replaced. Of a transcript that is a SQLite database (OpenCode, goose), the
/// main file is restored as the import found it, without what was only in its write-ahead log then.
#[derive(clap::Args)]
pub struct RestoreTranscriptArgs {
    /// The session: its id or a unique prefix.
    session: String,
    /// Another file, which must not exist [default: the path at which it was imported].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// If the session has several files: the file, by its path or the end of its path.
    #[arg(long, value_name = "PATH")]
    source: Option<String>,
    /// Write to the recorded path without asking.
    #[arg(long)]
    yes: bool,
}

/// The JSON of the command.
#[derive(Serialize)]
struct RestoredTranscript<'a> {
    session_id: &'a str,
    file: String,
    bytes: u64,
}

/// Writes the file.
pub fn run(app: &mut App, args: &RestoreTranscriptArgs) -> Result<Done, CliError> {
    let store = app.open_to_read()?;
    let session = select::session(&*store, &args.session)?;
    let row = source_file(&*store, &session, args.source.as_deref())?;
    let path = match &args.output {
        Some(path) => path.clone(),
        None => PathBuf::from(&row.path),
    };
    check_absent(&path)?;
    if args.output.is_none() {
        // Whoever wrote the database chose the path.
        let question = || {
            let (bytes, path) = (text::bytes(row.bytes), text::line(&row.path));
            Ok(format!("Write {bytes} to {path}?"))
        };
        confirm::ask(args.yes, REFUSAL, "nothing was written", question)?;
    }
    let bytes = write(&*store, &row, &path)?;
    let restored = RestoredTranscript {
        session_id: session.session_id.as_str(),
        file: path.display().to_string(),
        bytes,
    };
    app.print(&restored, || {
        let file = text::line(&restored.file);
        format!("Wrote {} to {file}.", text::bytes(bytes))
    })?;
    Ok(Done::Well)
}

/// Fails if the file exists, or a log that SQLite would apply to it.
fn check_absent(path: &Path) -> Result<(), CliError> {
    let exists = |path: &Path| path.symlink_metadata().is_ok();
    let shown = |path: &Path| text::line(&path.display().to_string());
    if exists(path) {
        let text = format!(
            "{} exists and is not replaced; -o FILE names another file",
            shown(path)
        );
        return Err(CliError::Failed(text.into()));
    }
    for ending in LOGS {
        let mut log = path.as_os_str().to_owned();
        log.push(ending);
        if exists(Path::new(&log)) {
            let text = format!(
                "{} exists, and SQLite would apply it to the restored file; move it away, or -o FILE names another file",
                shown(Path::new(&log))
            );
            return Err(CliError::Failed(text.into()));
        }
    }
    Ok(())
}

fn write(store: &dyn Database, row: &SourceRow, path: &Path) -> Result<u64, CliError> {
    let shown = text::line(&path.display().to_string());
    let failed = |why: &dyn std::fmt::Display| {
        CliError::Failed(format!("cannot write {shown}: {why}").into())
    };
    if let Some(folder) = path.parent() {
        let mut made = DirBuilder::new();
        let made = made.recursive(true).mode(0o700).create(folder);
        made.map_err(|error| failed(&error))?;
    }
    remove_unfinished_copies(path);
    let file = WholeFile::create_new(path).map_err(|error| failed(&error))?;
    let mut out = BufWriter::with_capacity(64 << 10, file);
    let bytes = match export_source(store, row, &mut out) {
        Err(ExportError::Write(error)) => return Err(failed(&error)),
        written => written?,
    };
    let file = out.into_inner().map_err(|error| failed(error.error()))?;
    file.finish().map_err(|error| failed(&error))?;
    Ok(bytes)
}
