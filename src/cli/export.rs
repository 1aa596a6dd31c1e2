//! `loopstore export`

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use loopstore::backup::is_part_of;
use loopstore::export::{ExportError, ExportForm, WholeFile, export, export_source, sources};
use loopstore::provider::{Form, Mending};
use loopstore::store::{SessionRow, SourceRow};
use loopstore::{Database, LoopId};
use serde_json::json;

use super::context::tell_mended;
use super::error::CliError;
use super::output::Counted;
use super::{App, Done, select, text};

/// How many files an error names.
const NAMED: usize = 5;

/// Write a session out in another form
///
/// To stdout, or with -o to a file, which is written beside its place and then renamed: a file of
/// that name is never half a one. An import of the form phi-core brings the session back with what
/// is in force; one of the form jsonl with all that is stored: digests, runs, blocks, undos.
/// The forms openai, responses, anthropic and markdown hold the originals, whatever was compacted; for
/// what the model sees there is `loopstore context`.
#[derive(clap::Args)]
pub struct Args {
    /// The session: its id or the beginning of it.
    session: String,
    /// The form.
    #[arg(long, value_name = "FORM")]
    format: Format,
    /// The file, which is replaced [default: stdout].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Only the chain that ends in this loop [default: all loops; in a request, the chain of the
    /// current one].
    #[arg(long = "loop", value_name = "LOOP")]
    loop_id: Option<String>,
    /// With --format original: which file, by its path or the end of it.
    #[arg(long, value_name = "PATH")]
    source: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// One JSON document of the whole session, blocks in force included.
    PhiCore,
    /// The messages of a chat completions request.
    Openai,
    /// The items of a Responses request.
    Responses,
    /// The messages of an Anthropic request.
    Anthropic,
    /// For people.
    Markdown,
    /// Lines of JSON, one for each record of the session; with --loop, for each message of the chain.
    Jsonl,
    /// The file that the session was imported from, byte for byte.
    Original,
}

/// What is written.
enum What {
    Form(ExportForm, Option<LoopId>),
    Source(SourceRow),
}

/// Writes the session.
pub fn run(app: &mut App, args: &Args) -> Result<Done, CliError> {
    check(app, args)?;
    let store = app.open_to_read()?;
    let session = select::session(&*store, &args.session)?;
    let what = what(&*store, &session, args)?;
    let mended = match &args.output {
        None => write_what(&*store, &session, &what, app.out.writer())?,
        Some(path) => to_file(app, &*store, &session, &what, path)?,
    };
    tell_mended(&mended);
    Ok(Done::Well)
}

fn check(app: &App, args: &Args) -> Result<(), CliError> {
    let usage = |text: &str| Err(CliError::Usage(text.into()));
    let is_whole = matches!(args.format, Format::PhiCore | Format::Original);
    if is_whole && args.loop_id.is_some() {
        return usage("phi-core and original are of whole sessions; leave --loop away");
    }
    if args.source.is_some() && args.format != Format::Original {
        return usage("--source is for --format original");
    }
    let is_document = matches!(
        args.format,
        Format::PhiCore | Format::Openai | Format::Responses | Format::Anthropic
    );
    if app.json && args.output.is_none() && !is_document {
        return usage("with --json this form needs -o FILE: it is not one JSON document");
    }
    Ok(())
}

fn what(store: &dyn Database, session: &SessionRow, args: &Args) -> Result<What, CliError> {
    let form = match args.format {
        Format::PhiCore => ExportForm::PhiCore,
        Format::Openai => ExportForm::Request(Form::OpenAiChat),
        Format::Responses => ExportForm::Request(Form::OpenAiResponses),
        Format::Anthropic => ExportForm::Request(Form::Anthropic),
        Format::Markdown => ExportForm::Markdown,
        Format::Jsonl => ExportForm::Lines,
        Format::Original => {
            let found = sources(store, &session.session_id)?;
            return chosen(found, session, args.source.as_deref()).map(What::Source);
        }
    };
    let leaf = select::loop_id(store, session, args.loop_id.as_deref())?;
    Ok(What::Form(form, leaf))
}

/// Returns the only file, or the only one whose path ends as given.
fn chosen(
    mut found: Vec<SourceRow>,
    session: &SessionRow,
    given: Option<&str>,
) -> Result<SourceRow, CliError> {
    let id = text::line(session.session_id.as_str());
    if found.is_empty() {
        return Err(CliError::Failed(
            format!(
                "no file is kept for session {id}: it was recorded here, or imported with \
                 --no-source, with --session or before files were kept; import its file again"
            )
            .into(),
        ));
    }
    let paths: Vec<&str> = found
        .iter()
        .map(|row| row.path.as_str())
        .take(NAMED)
        .collect();
    let names = text::line(&paths.join(", "));
    found.retain(|row| given.is_none_or(|given| row.path.ends_with(given)));
    match (found.len(), found.pop()) {
        (1, Some(row)) => Ok(row),
        (0, _) => Err(CliError::Failed(
            format!("session {id} has no such file; it has {names}").into(),
        )),
        (count, _) => Err(CliError::Failed(
            format!("session {id} came from {count} files; choose with --source: {names}").into(),
        )),
    }
}

fn write_what(
    store: &dyn Database,
    session: &SessionRow,
    what: &What,
    out: &mut dyn Write,
) -> Result<Vec<Mending>, ExportError> {
    match what {
        What::Form(form, leaf) => export(store, &session.session_id, leaf.as_ref(), *form, out),
        What::Source(row) => export_source(store, row, out).map(|_| Vec::new()),
    }
}

fn to_file(
    app: &mut App,
    store: &dyn Database,
    session: &SessionRow,
    what: &What,
    path: &Path,
) -> Result<Vec<Mending>, CliError> {
    let shown = path.display().to_string();
    let failed = |why: &dyn std::fmt::Display| {
        CliError::Failed(format!("cannot write {}: {why}", text::line(&shown)).into())
    };
    if is_part_of(path, &app.db) {
        return Err(failed(&"it is the database"));
    }
    let file = WholeFile::create(path).map_err(|error| failed(&error))?;
    let mut out = Counted::new(BufWriter::with_capacity(64 << 10, file));
    let mended = match write_what(store, session, what, &mut out) {
        Err(ExportError::Write(error)) => return Err(failed(&error)),
        written => written?,
    };
    let (out, bytes) = out.into_parts();
    let file = out.into_inner().map_err(|error| failed(error.error()))?;
    file.finish().map_err(|error| failed(&error))?;
    if app.json {
        app.out.json(&json!({"file": shown, "bytes": bytes}))?;
    } else {
        let (size, shown) = (text::bytes(bytes), text::line(&shown));
        app.out.text(&format!("Wrote {size} to {shown}."))?;
    }
    Ok(mended)
}
