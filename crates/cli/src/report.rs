//! `loopstore report`

use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use loopstore::{Database, SessionId, extend as store};
use loopstore_files::WholeFile;
use loopstore_report::{
    Prices, ReportError, ReportLine, ReportOptions, file_name, write_overview, write_report,
};
use loopstore_terminal::output::{Counted, cannot_write, check_target, remove_unfinished_copies};
use loopstore_terminal::{App, CliError, Done, select, text};
use serde_json::json;

/// Write a session as one HTML page
///
/// The page is self-contained: the loop tree, the size of the context over time, each turn with its
/// summary beside the originals, tool calls, usage, and a search over all messages. With --all, writes a
/// page for each session of the database, and `index.html`.
///
/// Prices are JSON, per million tokens in any currency:
/// {"claude-sonnet-4": {"input": 3, "output": 15, "cache_read": 0.3, "cache_write": 3.75}}.
/// A name also matches models that begin with it; cache tokens without a price cost as much as input.
/// Without prices the cost is that of the transcript.
#[derive(clap::Args)]
pub struct ReportArgs {
    /// The session: its id or a unique prefix.
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    session: Option<String>,
    /// Report every session of the database, into a folder.
    #[arg(long, requires = "output")]
    all: bool,
    /// The file, `-` for stdout; with --all the folder [default: named after the session].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The chain that ends in this loop [default: the current one].
    #[arg(long = "loop", value_name = "LOOP", conflicts_with = "all")]
    loop_id: Option<String>,
    /// The prices of tokens, by model.
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
    /// Replace existing files.
    #[arg(long)]
    force: bool,
}

/// A report that was written.
struct WrittenReport {
    file: String,
    bytes: u64,
    line: ReportLine,
}

/// Writes the pages.
pub fn run(app: &mut App, args: &ReportArgs) -> Result<Done, CliError> {
    let prices = args.prices.as_deref().map(read_prices).transpose()?;
    let store = app.open_to_read()?;
    match &args.session {
        Some(session) => one(app, &*store, session, prices, args)?,
        None => all(app, &*store, prices, args)?,
    }
    Ok(Done::Well)
}

pub(super) fn read_prices(path: &Path) -> Result<Prices, CliError> {
    let failed = |why: &dyn std::fmt::Display| {
        let shown = text::line(&path.display().to_string());
        CliError::Failed(format!("cannot read the prices in {shown}: {why}").into())
    };
    let text = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
    Prices::from_json(&text).map_err(|error| failed(&error))
}

fn one(
    app: &mut App,
    store: &dyn Database,
    given: &str,
    prices: Option<Prices>,
    args: &ReportArgs,
) -> Result<(), CliError> {
    let session = select::session(store, given)?;
    let options = ReportOptions {
        leaf: select::loop_id(store, &session, args.loop_id.as_deref())?,
        prices,
        ..ReportOptions::default()
    };
    let id = &session.session_id;
    if args.output.as_deref() == Some(Path::new("-")) {
        if app.json {
            let why = "--json needs -o FILE: the page is not a JSON document";
            return Err(CliError::Usage(why.into()));
        }
        write_report(store, id, &options, app.out.writer())?;
        return Ok(());
    }
    let named = || PathBuf::from(file_name(id));
    let path = args.output.clone().unwrap_or_else(named);
    check_target(app, &path, args.force)?;
    let (bytes, line) = to_file(&path, |out| write_report(store, id, &options, out))?;
    let file = path.display().to_string();
    print(
        app,
        &file,
        bytes,
        &[WrittenReport {
            file: file.clone(),
            bytes,
            line,
        }],
    )
}

fn all(
    app: &mut App,
    store: &dyn Database,
    prices: Option<Prices>,
    args: &ReportArgs,
) -> Result<(), CliError> {
    let folder = args.output.clone().unwrap_or_default();
    if folder == Path::new("-") {
        return Err(CliError::Usage(
            "--all writes to a folder, not to stdout".into(),
        ));
    }
    let sessions = store::read(store, store::session::shown_sessions)?;
    let name = |id: &SessionId| (id.clone(), file_name(id));
    let files: BTreeMap<SessionId, String> =
        sessions.iter().map(|row| name(&row.session_id)).collect();
    let index = folder.join("index.html");
    for path in files
        .values()
        .map(|file| folder.join(file))
        .chain([index.clone()])
    {
        check_target(app, &path, args.force)?;
    }
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder);
    made.map_err(|error| cannot_write(&folder, &error))?;
    let options = ReportOptions {
        prices,
        overview: Some("index.html".into()),
        others: files.clone(),
        ..ReportOptions::default()
    };
    let mut written = Vec::with_capacity(files.len());
    for row in &sessions {
        let (id, file) = name(&row.session_id);
        let path = folder.join(&file);
        let (bytes, line) = to_file(&path, |out| write_report(store, &id, &options, out))?;
        written.push(WrittenReport { file, bytes, line });
    }
    let rows: Vec<(String, ReportLine)> = written
        .iter()
        .map(|w| (w.file.clone(), w.line.clone()))
        .collect();
    let database = app.place();
    let (bytes, ()) = to_file(&index, |out| write_overview(&database, &rows, out))?;
    let total = bytes + written.iter().map(|w| w.bytes).sum::<u64>();
    print(app, &index.display().to_string(), total, &written)
}

fn to_file<T>(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<T, ReportError>,
) -> Result<(u64, T), CliError> {
    remove_unfinished_copies(path);
    let file = WholeFile::create(path).map_err(|error| cannot_write(path, &error))?;
    let mut out = Counted::new(BufWriter::with_capacity(64 << 10, file));
    let made = match write(&mut out) {
        Err(ReportError::Write(error)) => return Err(cannot_write(path, &error)),
        made => made?,
    };
    let (out, bytes) = out.into_parts();
    let file = out
        .into_inner()
        .map_err(|error| cannot_write(path, error.error()))?;
    file.finish().map_err(|error| cannot_write(path, &error))?;
    Ok((bytes, made))
}

fn print(app: &mut App, file: &str, bytes: u64, written: &[WrittenReport]) -> Result<(), CliError> {
    let page = |w: &WrittenReport| json!({"session_id": w.line.session_id, "file": w.file, "bytes": w.bytes});
    let sessions: Vec<_> = written.iter().map(page).collect();
    let json = json!({"file": file, "bytes": bytes, "sessions": sessions});
    app.print(&json, || {
        let (size, shown) = (text::bytes(bytes), text::line(file));
        let count = text::count(written.len(), "session");
        format!("Wrote {count}, {size}, to {shown}.")
    })
}
