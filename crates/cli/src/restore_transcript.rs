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
use loopstore_terminal::{App, CliError, Done, select, text};
use serde::Serialize;

use super::export::source_file;

/// Put a deleted transcript of a session back, from the stored copy of its file
///
/// The file is written byte for byte to the path at which it was imported, where its agent finds it again. No file
/// is ever replaced.
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
    let path = args
        .output
        .clone()
        .unwrap_or_else(|| row.path.clone().into());
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

fn write(store: &dyn Database, row: &SourceRow, path: &Path) -> Result<u64, CliError> {
    let shown = text::line(&path.display().to_string());
    if path.symlink_metadata().is_ok() {
        let text = format!("{shown} exists and is not replaced; -o FILE names another file");
        return Err(CliError::Failed(text.into()));
    }
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
