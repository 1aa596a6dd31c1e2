//! `loopstore drop`, `loopstore clear`, `loopstore replace` and `loopstore restore`

mod summary;
mod targets;

use std::io::Read as _;
use std::path::PathBuf;

use loopstore::model::EditAction;
use loopstore::{EditFilter, EditRequest, EditTarget};
use loopstore_terminal::runs::flip_summary;
use loopstore_terminal::{App, CliError, Done, amount, select};

use targets::GivenTargets;

/// The longest replacement in bytes.
const MAX_TEXT: u64 = 64 << 20;

/// Take messages out of the context; the record keeps them
///
/// The next model call does not see them. A result goes with its call and a call with its results, and signed
/// thinking goes with the answer that it belongs to. Nothing is deleted: `loopstore undo` or `loopstore restore`
/// brings them back. A summary that was made from a removed message is not used any more; `loopstore compact` makes
/// a new one.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  loopstore drop SESSION LOOP:4..7                               a failed detour
  loopstore drop SESSION LOOP:3:12                               one message
  loopstore drop SESSION --tool bash --larger 4k --dry-run       show what would go")]
pub struct DropArgs {
    #[command(flatten)]
    edit: EditArgs,
}

/// Show a marker in place of messages; the record keeps their texts
///
/// The marker names the size of the text and its turn, which `loopstore expand` prints. A cleared tool result keeps
/// its call; cleared arguments of a call become `{}`. `loopstore undo` or `loopstore restore` brings the texts back.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  loopstore clear SESSION call_7                                 the result of a tool call
  loopstore clear SESSION --larger 4k --older-than 20-turns      large and old messages")]
pub struct ClearArgs {
    #[command(flatten)]
    edit: EditArgs,
}

/// The messages to drop or clear.
#[derive(clap::Args)]
struct EditArgs {
    /// The session: its id or a unique prefix.
    session: String,
    /// Turns, a message, a part of it, or the id of a tool call: LOOP:TURN, LOOP:TURN..TURN, LOOP:TURN:SEQ,
    /// LOOP:TURN:SEQ:PART or CALL. LOOP is an id or a unique prefix.
    #[arg(value_name = "TARGET", required_unless_present_any = FILTERS)]
    targets: Vec<String>,
    /// Messages that contain each of these words, in any case.
    #[arg(
        long = "match",
        value_name = "WORDS",
        allow_hyphen_values = true,
        conflicts_with = "targets"
    )]
    matching: Option<String>,
    /// Results of this tool.
    #[arg(long, value_name = "NAME", conflicts_with = "targets")]
    tool: Option<String>,
    /// Messages of more bytes than this: 4000 or 4k.
    #[arg(long, value_name = "BYTES", value_parser = amount::bytes, conflicts_with = "targets")]
    larger: Option<u64>,
    /// Messages after whose turn at least N turns were completed: 20 or 20-turns.
    #[arg(long, value_name = "N", value_parser = targets::age, conflicts_with = "targets")]
    older_than: Option<u32>,
    /// Show what would be edited and what it frees, and write nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    run: RunArgs,
}

/// The options of which one replaces the targets.
const FILTERS: [&str; 4] = ["matching", "tool", "larger", "older_than"];

/// The run of an edit.
#[derive(clap::Args)]
struct RunArgs {
    /// The loop in whose context the edit counts, and in those that continue it [default: the current one].
    #[arg(long = "loop", value_name = "LOOP")]
    loop_id: Option<String>,
    /// The reason, stored with the run.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Show another text in place of a message; the record keeps the message
///
/// The text of a tool result replaces what the tool returned; that of a call is its arguments, a JSON object.
/// `loopstore undo` or `loopstore restore` brings the message back.
#[derive(clap::Args)]
#[command(
    group(clap::ArgGroup::new("source").required(true)),
    after_help = "Examples:
  loopstore replace SESSION LOOP:2:7 --text \"the corrected paste\"
  git diff | loopstore replace SESSION LOOP:2:7 -"
)]
pub struct ReplaceArgs {
    /// The session: its id or a unique prefix.
    session: String,
    /// A message, a part of it, or the id of a tool call: LOOP:TURN:SEQ, LOOP:TURN:SEQ:PART or CALL. LOOP is an id
    /// or a unique prefix.
    target: String,
    /// Read the text from stdin.
    #[arg(value_name = "-", value_parser = ["-"], hide_possible_values = true, group = "source")]
    stdin: Option<String>,
    /// The text.
    #[arg(
        long,
        value_name = "TEXT",
        group = "source",
        allow_hyphen_values = true
    )]
    text: Option<String>,
    /// Read the text from this file.
    #[arg(long, value_name = "FILE", group = "source")]
    file: Option<PathBuf>,
    /// Show what would be replaced, and write nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    run: RunArgs,
}

/// Bring edited messages back: undo the edits that have these targets
///
/// A part is brought back alone: edits of other parts of its message stay. An edit with other targets too is not
/// undone, and the error names them; `loopstore undo SESSION --run RUN` undoes it. Backups need no
/// command: a backup is a database that `--db BACKUP` reads.
#[derive(clap::Args)]
pub struct RestoreArgs {
    /// The session: its id or a unique prefix.
    session: String,
    /// Turns, a message, a part of it, or the id of a tool call: LOOP:TURN, LOOP:TURN..TURN, LOOP:TURN:SEQ,
    /// LOOP:TURN:SEQ:PART or CALL. LOOP is an id or a unique prefix.
    #[arg(value_name = "TARGET", required = true)]
    targets: Vec<String>,
    /// The loop in whose context the messages are restored [default: the current one].
    #[arg(long = "loop", value_name = "LOOP")]
    loop_id: Option<String>,
}

/// Removes messages from contexts.
pub fn run_drop(app: &mut App, args: &DropArgs) -> Result<Done, CliError> {
    run_filtered(app, &args.edit, EditAction::Removed)
}

/// Clears messages in contexts.
pub fn run_clear(app: &mut App, args: &ClearArgs) -> Result<Done, CliError> {
    run_filtered(app, &args.edit, EditAction::Cleared)
}

fn run_filtered(app: &mut App, args: &EditArgs, action: EditAction) -> Result<Done, CliError> {
    let mut request = EditRequest::new(action, []);
    if args.targets.is_empty() {
        request.targets.push(EditTarget::Matching(EditFilter {
            words: args.matching.clone(),
            tool: args.tool.clone(),
            larger: args.larger,
            older_than: args.older_than,
        }));
    }
    request.dry_run = args.dry_run;
    run(app, &args.session, (&args.targets, request), &args.run)
}

/// Replaces a message in contexts.
pub fn run_replace(app: &mut App, args: &ReplaceArgs) -> Result<Done, CliError> {
    let mut request = EditRequest::new(EditAction::Replaced, []);
    request.text = Some(replacement(args)?);
    request.dry_run = args.dry_run;
    let target = std::slice::from_ref(&args.target);
    run(app, &args.session, (target, request), &args.run)
}

fn replacement(args: &ReplaceArgs) -> Result<String, CliError> {
    let (name, source): (_, Box<dyn std::io::Read>) = match (&args.text, &args.file) {
        (Some(text), _) => return Ok(text.clone()),
        (None, Some(file)) => {
            let name = file.display().to_string();
            let opened = std::fs::File::open(file);
            let failed = |error| CliError::Usage(format!("--file: {name}: {error}"));
            (name.clone(), Box::new(opened.map_err(failed)?))
        }
        (None, None) => ("stdin".to_owned(), Box::new(std::io::stdin().lock())),
    };
    let mut text = String::new();
    let failed = |error| CliError::Usage(format!("{name}: {error}"));
    let read = source.take(MAX_TEXT + 1).read_to_string(&mut text);
    if read.map_err(failed)? as u64 > MAX_TEXT {
        return Err(CliError::Usage(format!(
            "{name}: longer than {MAX_TEXT} bytes"
        )));
    }
    Ok(text)
}

fn run(
    app: &mut App,
    session: &str,
    (given, mut request): (&[String], EditRequest),
    args: &RunArgs,
) -> Result<Done, CliError> {
    let store = app.open_to_write()?;
    let session = select::session(&*store, session)?;
    request.leaf = select::loop_id(&*store, &session, args.loop_id.as_deref())?;
    request.reason.clone_from(&args.reason);
    let found = GivenTargets::find(&*store, &session, given)?;
    request.targets.extend(found.targets.iter().cloned());
    let report = loopstore::edit(&*store, &session.session_id, &request);
    let report = report.map_err(|error| found.explain(error))?;
    if app.json {
        app.out.json(&report)?;
        return Ok(Done::Well);
    }
    if request.dry_run {
        let table = summary::table(&*store, &session.session_id, &report)?;
        app.out.table(&table)?;
    }
    for line in summary::lines(session.session_id.as_str(), &report, request.action) {
        app.out.text(&line)?;
    }
    Ok(Done::Well)
}

/// Undoes the edits of messages.
pub fn run_restore(app: &mut App, args: &RestoreArgs) -> Result<Done, CliError> {
    let store = app.open_to_write()?;
    let session = select::session(&*store, &args.session)?;
    let leaf = select::loop_id(&*store, &session, args.loop_id.as_deref())?;
    let found = GivenTargets::find(&*store, &session, &args.targets)?;
    let id = &session.session_id;
    let reports = loopstore::restore(&*store, id, leaf.as_ref(), &found.targets);
    let reports = reports.map_err(|error| found.explain(error))?;
    app.print(&reports, || {
        let lines: Vec<String> = reports.iter().map(flip_summary).collect();
        lines.join("\n")
    })?;
    Ok(Done::Well)
}
