//! `loopstore export`

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use loopstore::extend::source::sources;
use loopstore::extend::{SessionRow, SourceRow};
use loopstore::provider::Form;
use loopstore::{Database, LoopId};
use loopstore_admin::backup::is_part_of;
use loopstore_admin::retention::files_removed;
use loopstore_export::{
    ExportError, ExportForm, ExportReport, Omission, OtlpContent, OtlpReport, export, export_source,
};
use loopstore_files::WholeFile;
use loopstore_terminal::output::{Counted, note, remove_unfinished_copies};
use loopstore_terminal::{App, CliError, Done, select, text};
use serde_json::json;

use super::context::note_mended;

/// The maximum number of files that an error lists.
const NAMED: usize = 5;

/// Export a session in another format
///
/// Writes to stdout, or with -o to a file, which is renamed into place and so never incomplete.
/// Importing phi-core restores the session with its active blocks; jsonl and atif restore everything: digests,
/// runs, blocks, undos. With atif, stderr lists what the format has no place for; it is in `extra.loopstore`.
/// The formats openai, responses, anthropic and markdown hold the originals, compacted or
/// not; `loopstore context` prints what the model sees. otlp-json holds traces by OpenTelemetry's conventions for
/// generative AI; what was guessed is reported on stderr.
#[derive(clap::Args)]
pub struct ExportArgs {
    /// The session: its id or a unique prefix.
    session: String,
    /// The format.
    #[arg(long, value_name = "FORMAT")]
    format: ExportFormat,
    /// The file, replaced if it exists [default: stdout].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Only the chain that ends in this loop [default: all loops; for openai and anthropic the chain
    /// of the current one].
    #[arg(long = "loop", value_name = "LOOP")]
    loop_id: Option<String>,
    /// With --format otlp-json: no texts, only ids, times, models, usage and names of tools.
    #[arg(long)]
    without_content: bool,
    /// With --format original: the file, by its path or the end of its path.
    #[arg(long, value_name = "PATH")]
    source: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ExportFormat {
    /// One JSON document of the whole session with its active blocks.
    PhiCore,
    /// The messages of a Chat Completions request.
    Openai,
    /// The items of a Responses request.
    Responses,
    /// The messages of an Anthropic request.
    Anthropic,
    /// For people.
    Markdown,
    /// One line of JSON for each record of the session; with --loop, for each message of the chain.
    Jsonl,
    /// Traces of OpenTelemetry, one ExportTraceServiceRequest a line.
    OtlpJson,
    /// A trajectory in Harbor's ATIF 1.8, with the sessions of sub-agents; with --loop, only the chain.
    Atif,
    /// The file from which the session was imported, byte for byte.
    Original,
}

/// The content of the export.
enum What {
    Form(ExportForm, Option<LoopId>),
    Source(SourceRow),
}

/// Writes the session.
pub fn run(app: &mut App, args: &ExportArgs) -> Result<Done, CliError> {
    check(app, args)?;
    let store = app.open_to_read()?;
    let session = select::session(&*store, &args.session)?;
    let what = what(&*store, &session, args)?;
    let report = match &args.output {
        None => write_what(&*store, &session, &what, app.out.writer())?,
        Some(path) => to_file(app, &*store, &session, &what, path)?,
    };
    note_mended(&report.mended);
    note_omitted(&report.omitted);
    report.traces.iter().for_each(note_gaps);
    Ok(Done::Well)
}

/// Prints the completeness report to stderr, a line for each kind.
fn note_omitted(omitted: &[Omission]) {
    for omission in omitted {
        note(&format!("note: {omission}"));
    }
}

fn check(app: &App, args: &ExportArgs) -> Result<(), CliError> {
    let usage = |text: &str| Err(CliError::Usage(text.into()));
    let is_whole = matches!(args.format, ExportFormat::PhiCore | ExportFormat::Original);
    if is_whole && args.loop_id.is_some() {
        return usage("phi-core and original export whole sessions; omit --loop");
    }
    if args.source.is_some() && args.format != ExportFormat::Original {
        return usage("--source needs --format original");
    }
    if args.without_content && args.format != ExportFormat::OtlpJson {
        return usage("--without-content needs --format otlp-json");
    }
    let is_document = matches!(
        args.format,
        ExportFormat::PhiCore
            | ExportFormat::Openai
            | ExportFormat::Responses
            | ExportFormat::Anthropic
            | ExportFormat::Atif
    );
    if app.json && args.output.is_none() && !is_document {
        return usage("--json needs -o FILE with this format: it is not one JSON document");
    }
    Ok(())
}

fn what(store: &dyn Database, session: &SessionRow, args: &ExportArgs) -> Result<What, CliError> {
    let form = match args.format {
        ExportFormat::PhiCore => ExportForm::PhiCore,
        ExportFormat::Openai => ExportForm::Request(Form::OpenAiChat),
        ExportFormat::Responses => ExportForm::Request(Form::OpenAiResponses),
        ExportFormat::Anthropic => ExportForm::Request(Form::Anthropic),
        ExportFormat::Markdown => ExportForm::Markdown,
        ExportFormat::Jsonl => ExportForm::Lines,
        ExportFormat::OtlpJson => ExportForm::Otlp(match args.without_content {
            true => OtlpContent::Omitted,
            false => OtlpContent::Included,
        }),
        ExportFormat::Atif => ExportForm::Atif,
        ExportFormat::Original => {
            return source_file(store, session, args.source.as_deref()).map(What::Source);
        }
    };
    let leaf = select::loop_id(store, session, args.loop_id.as_deref())?;
    Ok(What::Form(form, leaf))
}

/// Returns the stored copy of a file that the session was imported from: the only one, or the only one whose path ends
/// with the given text.
pub(super) fn source_file(
    store: &dyn Database,
    session: &SessionRow,
    given: Option<&str>,
) -> Result<SourceRow, CliError> {
    let found = sources(store, &session.session_id)?;
    if found.is_empty() {
        return Err(no_source(store, session)?);
    }
    chosen(found, session, given)
}

/// Returns the error for a session without a source file.
fn no_source(store: &dyn Database, session: &SessionRow) -> Result<CliError, CliError> {
    let id = text::line(session.session_id.as_str());
    let Some(removed) = files_removed(store, &session.session_id)? else {
        let why = "it was recorded here, or imported with --no-source, --redact or --session";
        let text = format!("session {id} has no source file: {why}; import its file again");
        return Ok(CliError::Failed(text.into()));
    };
    let what = match removed.kind.as_str() {
        "redact" => "redaction",
        "prune" => "pruning",
        _ => "erasure",
    };
    let of = match removed.session_id == session.session_id {
        true => String::new(),
        false => format!(" of session {}", text::line(removed.session_id.as_str())),
    };
    let (at, receipt) = (text::time(&removed.at), removed.receipt);
    let text = format!(
        "session {id} has no source file: the {what}{of} of {at} removed it (receipt {receipt})"
    );
    Ok(CliError::Failed(text.into()))
}

/// Returns the only file, or the only one whose path ends with the given text.
fn chosen(
    mut found: Vec<SourceRow>,
    session: &SessionRow,
    given: Option<&str>,
) -> Result<SourceRow, CliError> {
    let id = text::line(session.session_id.as_str());
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
            format!("session {id} has no such source file; it has {names}").into(),
        )),
        (count, _) => Err(CliError::Failed(
            format!("session {id} has {count} source files; choose one with --source: {names}")
                .into(),
        )),
    }
}

fn write_what(
    store: &dyn Database,
    session: &SessionRow,
    what: &What,
    out: &mut dyn Write,
) -> Result<ExportReport, ExportError> {
    match what {
        What::Form(form, leaf) => export(store, &session.session_id, leaf.as_ref(), *form, out),
        What::Source(row) => export_source(store, row, out).map(|_| ExportReport::default()),
    }
}

/// Reports what traces lack or had to guess.
fn note_gaps(report: &OtlpReport) {
    for (gap, count) in &report.gaps {
        note(&format!("{} {}", text::number(*count), gap.describe()));
    }
}

fn to_file(
    app: &mut App,
    store: &dyn Database,
    session: &SessionRow,
    what: &What,
    path: &Path,
) -> Result<ExportReport, CliError> {
    let shown = path.display().to_string();
    let failed = |why: &dyn std::fmt::Display| {
        CliError::Failed(format!("cannot write {}: {why}", text::line(&shown)).into())
    };
    if is_part_of(path, &app.db) {
        return Err(failed(&"it is the database"));
    }
    remove_unfinished_copies(path);
    let file = WholeFile::create(path).map_err(|error| failed(&error))?;
    let mut out = Counted::new(BufWriter::with_capacity(64 << 10, file));
    let report = match write_what(store, session, what, &mut out) {
        Err(ExportError::Write(error)) => return Err(failed(&error)),
        written => written?,
    };
    let (out, bytes) = out.into_parts();
    let file = out.into_inner().map_err(|error| failed(error.error()))?;
    file.finish().map_err(|error| failed(&error))?;
    let mut result = json!({"file": shown, "bytes": bytes});
    if matches!(what, What::Form(ExportForm::Atif, _)) {
        result["omitted"] = json!(report.omitted);
    }
    if let Some(traces) = &report.traces {
        result["traces"] = json!(traces);
    }
    app.print(&result, || {
        format!("Wrote {} to {}.", text::bytes(bytes), text::line(&shown))
    })?;
    Ok(report)
}
