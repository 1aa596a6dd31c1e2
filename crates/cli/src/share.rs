//! `loopstore share`

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::{Path, PathBuf};

use loopstore::extend::{self, SessionRow};
use loopstore::{Database, LoopId};
use loopstore_admin::retention::RedactReport;
use loopstore_files::WholeFile;
use loopstore_report::ReportError;
use loopstore_share::{CutReport, ShareCut, ShareError, ShareReport, ShareRequest, SharedSession};
use loopstore_terminal::confirm::ask;
use loopstore_terminal::output::{
    Counted, cannot_write, check_target, note, remove_unfinished_copies,
};
use loopstore_terminal::{App, CliError, Done, select, text};
use serde::Serialize;

use super::address;
use super::redact::finding_lines;
use super::redaction::RedactionArgs;

/// Write a session as one redacted file for another person
///
/// The file is a page for a browser, as `report` writes it, and `loopstore import` reads the session from it, so that
/// the other person can search it, read it and resume it in an agent. Secrets are replaced in a copy; the session
/// itself does not change. First lists what would be replaced and asks; the file is read again after it was written.
///
/// With --from or --to only some turns of a chain are shared: their messages with all edits applied, and no
/// compactions, whose summaries may tell of other turns.
#[derive(clap::Args)]
pub struct ShareArgs {
    /// The session: its id or a unique prefix.
    session: String,
    /// The file.
    #[arg(short, long, value_name = "FILE", required_unless_present = "dry_run")]
    output: Option<PathBuf>,
    /// The first turn to share, counted from 0: of the loop, or of another one of its chain.
    #[arg(long, value_name = "[LOOP:]TURN")]
    from: Option<String>,
    /// The last turn to share: of the loop, or of another one, whose chain is then shared.
    #[arg(long, value_name = "[LOOP:]TURN")]
    to: Option<String>,
    /// The loop whose chain is cut [default: the current one].
    #[arg(long = "loop", value_name = "LOOP")]
    loop_id: Option<String>,
    /// Replace images and other attached files by a line of text.
    #[arg(long)]
    without_images: bool,
    /// Only print what would be replaced.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    redaction: RedactionArgs,
    /// Do not ask for confirmation.
    #[arg(long, short)]
    yes: bool,
    /// Replace an existing file.
    #[arg(long)]
    force: bool,
}

/// The result as JSON.
#[derive(Serialize)]
struct SharedJson<'a> {
    file: String,
    bytes: u64,
    #[serde(flatten)]
    report: &'a ShareReport,
}

/// Writes the file, or prints what would be replaced.
pub fn run(app: &mut App, args: &ShareArgs) -> Result<Done, CliError> {
    let policy = args.redaction.policy()?;
    let store = app.open_to_read()?;
    let session = select::session(&*store, &args.session)?;
    let request = ShareRequest {
        cut: cut(&*store, &session, args)?,
        policy,
        without_images: args.without_images,
        ..ShareRequest::new(session.session_id.clone())
    };
    if let Some(path) = &args.output
        && !args.dry_run
    {
        check_target(app, path, args.force)?;
    }
    let mut shared = SharedSession::prepare(&*store, &request)?;
    let Some(path) = args.output.as_ref().filter(|_| !args.dry_run) else {
        let preview = shared.preview()?;
        app.print(&preview, || listed(&preview))?;
        return Ok(Done::Well);
    };
    let refusal =
        "what is replaced is to be looked at first; see it with --dry-run, then add --yes";
    ask(args.yes, refusal, "nothing was written", || {
        let preview = shared.preview()?;
        let shown = text::line(&path.display().to_string());
        Ok(format!("{}\nWrite {shown}?", listed(&preview)))
    })?;
    let report = shared.redact()?;
    let bytes = write(&shared, path)?;
    let file = path.display().to_string();
    let json = SharedJson {
        file: file.clone(),
        bytes,
        report: &report,
    };
    app.print(&json, || written(&report, &file, bytes))?;
    Ok(Done::Well)
}

/// Reads the cut; `None` for the whole session.
fn cut(
    store: &dyn Database,
    session: &SessionRow,
    args: &ShareArgs,
) -> Result<Option<ShareCut>, CliError> {
    if args.from.is_none() && args.to.is_none() {
        return match &args.loop_id {
            None => Ok(None),
            Some(_) => Err(CliError::Usage("--loop needs --from or --to".into())),
        };
    }
    let mut leaf = select::loop_id(store, session, args.loop_id.as_deref())?;
    let mut to = None;
    if let Some(given) = &args.to {
        let (loop_id, turn) = turn(store, session, "--to", given)?;
        if let Some(loop_id) = loop_id {
            if leaf.as_ref().is_some_and(|leaf| *leaf != loop_id) {
                return Err(CliError::Usage(
                    "--to names another loop than --loop".into(),
                ));
            }
            leaf = Some(loop_id);
        }
        to = Some(turn);
    }
    let mut from = None;
    if let Some(given) = &args.from {
        let (loop_id, turn) = turn(store, session, "--from", given)?;
        let loop_id = match (loop_id, &leaf) {
            (Some(loop_id), _) => loop_id,
            (None, Some(leaf)) => leaf.clone(),
            (None, None) => current(store, session)?,
        };
        from = Some((loop_id, turn));
    }
    Ok(Some(ShareCut { leaf, from, to }))
}

/// Returns the current loop of a session.
fn current(store: &dyn Database, session: &SessionRow) -> Result<LoopId, CliError> {
    let leaf = extend::read(store, |read| extend::leaf_of(read, session, None))?;
    Ok(leaf.core.loop_id)
}

/// Reads `TURN` or `LOOP:TURN`.
fn turn(
    store: &dyn Database,
    session: &SessionRow,
    option: &str,
    given: &str,
) -> Result<(Option<LoopId>, u32), CliError> {
    if let Ok(turn) = given.parse() {
        return Ok((None, turn));
    }
    let found = address::find(store, session, given, 1)?;
    let turn = found.and_then(|found| Some((found.row.core.loop_id, *found.numbers.first()?)));
    let (loop_id, turn) = turn.ok_or_else(|| {
        let given = text::line(given);
        CliError::Usage(format!("{option}: `{given}` is neither TURN nor LOOP:TURN"))
    })?;
    Ok((Some(loop_id), turn))
}

/// Writes the page and reads it again. A page that does not hold the session is removed.
fn write(shared: &SharedSession, path: &Path) -> Result<u64, CliError> {
    remove_unfinished_copies(path);
    let file = WholeFile::create(path).map_err(|error| cannot_write(path, &error))?;
    let mut out = Counted::new(BufWriter::with_capacity(64 << 10, file));
    match shared.write(&mut out) {
        Err(ShareError::Report(ReportError::Write(error))) => {
            return Err(cannot_write(path, &error));
        }
        made => made?,
    }
    let (out, bytes) = out.into_parts();
    let file = out
        .into_inner()
        .map_err(|error| cannot_write(path, error.error()))?;
    file.finish().map_err(|error| cannot_write(path, &error))?;
    let checked = File::open(path)
        .map_err(|error| cannot_write(path, &error))
        .and_then(|file| Ok(shared.check(path, &mut BufReader::new(file))?));
    if let Err(error) = checked {
        if let Err(left) = std::fs::remove_file(path) {
            let shown = text::line(&path.display().to_string());
            note(&format!("cannot remove {shown}: {left}; do not share it"));
        }
        return Err(error);
    }
    Ok(bytes)
}

/// Lists what would be replaced.
fn listed(preview: &RedactReport) -> String {
    let id = text::line(preview.session_id.as_str());
    let mut lines = Vec::new();
    if preview.secrets.is_empty() {
        lines.push(format!("Found no secrets to replace in session {id}."));
    } else {
        let texts: u64 = preview.texts.values().sum();
        lines.push(format!(
            "In the copy of session {id}, secrets are replaced in {} and {}:",
            text::count(preview.messages, "message"),
            text::count(texts, "other text"),
        ));
        lines.push(text::secrets(&preview.secrets));
        let replaced = preview.findings.iter().filter(|one| one.finding.replaced);
        lines.extend(replaced.flat_map(finding_lines));
    }
    lines.extend(images(preview));
    let possible: u64 = preview.held_back.values().sum();
    if possible > 0 {
        let possible = text::count(possible, "possible secret");
        lines.push(format!(
            "{possible} of low confidence not replaced without --min-confidence low:"
        ));
        let held = preview.findings.iter().filter(|one| !one.finding.replaced);
        lines.extend(held.flat_map(finding_lines));
    }
    lines.join("\n")
}

fn images(report: &RedactReport) -> Option<String> {
    let files = text::count(report.images, "attached image");
    (report.images > 0).then(|| format!("{files} replaced by a line of text"))
}

fn written(report: &ShareReport, file: &str, bytes: u64) -> String {
    let id = text::line(report.session_id.as_str());
    let (size, shown) = (text::bytes(bytes), text::line(file));
    let redaction = &report.redaction;
    let secrets: u64 = redaction.secrets.values().sum();
    let mut lines = vec![format!(
        "Wrote session {id}, {size}, to {shown}: {} replaced.",
        text::count(secrets, "secret")
    )];
    lines.extend(report.cut.as_ref().map(cut_line));
    lines.extend(images(redaction));
    let possible: u64 = redaction.held_back.values().sum();
    if possible > 0 {
        let possible = text::count(possible, "possible secret");
        lines.push(format!(
            "{possible} of low confidence not replaced; --dry-run shows each"
        ));
    }
    lines.push(format!(
        "It opens in a browser; `loopstore import {shown}` reads the session."
    ));
    lines.join("\n")
}

fn cut_line(cut: &CutReport) -> String {
    let mut line = format!(
        "Shared {} of {}, {}",
        text::count(cut.turns, "turn"),
        text::count(cut.loops, "loop"),
        text::count(cut.messages, "message"),
    );
    if cut.edited > 0 {
        let messages = text::count(cut.edited, "message");
        line.push_str(&format!("; {messages} changed or removed by edits"));
    }
    if cut.compactions_left_out > 0 {
        let loops = text::count(cut.compactions_left_out, "loop");
        line.push_str(&format!("; {loops} without the compaction that was active"));
    }
    if cut.notes_left_out > 0 {
        let notes = text::count(cut.notes_left_out, "note");
        line.push_str(&format!("; {notes} that no context shows left out"));
    }
    line + "."
}
