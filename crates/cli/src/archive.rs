//! `loopstore archive` and `loopstore unarchive`

use std::collections::BTreeMap;

use loopstore::{Database, LoopId, SessionId, SqliteStore};
use loopstore_admin::retention::{
    self, ArchiveReport, ArchiveRequest, SkipReason, SkippedLoop, UnarchiveRequest,
};
use loopstore_terminal::output::note;
use loopstore_terminal::{App, CliError, Done, amount, select, text};

/// The maximum number of loops in the list.
const LISTED: usize = 20;

/// Compress the content of cold loops; every command still reads it
///
/// A loop is cold if it has ended, is not the current one, and no context shows its messages, only
/// summaries of them. Sizes, digests, usage and tool calls stay in the tables and can be queried; the
/// texts move out of them. `loopstore unarchive` brings them back.
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("which").required(true)))]
pub struct ArchiveArgs {
    /// The session: its id or a unique prefix.
    #[arg(group = "which")]
    session: Option<String>,
    /// All sessions.
    #[arg(long, group = "which")]
    all: bool,
    /// This loop, even if a context shows it; may be repeated.
    #[arg(long = "loop", value_name = "ID", conflicts_with = "all")]
    loops: Vec<String>,
    /// Also ended loops that a context shows, including the current one.
    #[arg(long, conflicts_with = "loops")]
    shown: bool,
    /// Only loops inactive for this long: 30d, 12h, 6w, 2y.
    #[arg(long, value_name = "AGE", value_parser = amount::age)]
    older_than: Option<i64>,
    /// The reason, stored in the receipts.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Only report what would be done.
    #[arg(long)]
    dry_run: bool,
}

/// Move the content of archived loops back into the tables
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("which").required(true)))]
pub struct UnarchiveArgs {
    /// The session: its id or a unique prefix.
    #[arg(group = "which")]
    session: Option<String>,
    /// All sessions.
    #[arg(long, group = "which")]
    all: bool,
    /// Only this loop; may be repeated.
    #[arg(long = "loop", value_name = "ID", conflicts_with = "all")]
    loops: Vec<String>,
    /// The reason, stored in the receipts.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Only report what would be done.
    #[arg(long)]
    dry_run: bool,
}

/// Archives loops and lists them.
pub fn run(app: &mut App, args: &ArchiveArgs) -> Result<Done, CliError> {
    let store = app.open_for(!args.dry_run)?;
    let (session, loops) = named(&*store, args.session.as_deref(), &args.loops)?;
    let request = ArchiveRequest {
        session,
        loops,
        shown: args.shown,
        older_than: args.older_than,
        reason: args.reason.clone(),
        dry_run: args.dry_run,
    };
    let report = retention::archive(&*store, &request)?;
    let done = match args.dry_run {
        true => "Would archive",
        false => "Archived",
    };
    app.print(&report, || summary(&report, done))?;
    if report.messages > 0 && !args.dry_run && SqliteStore::downcast(&*store).is_some() {
        note(
            "note: the file keeps its size and reuses the freed space; `loopstore backup --compact \
             DEST` writes a smaller copy",
        );
    }
    Ok(Done::Well)
}

/// Unarchives loops and lists them.
pub fn run_unarchive(app: &mut App, args: &UnarchiveArgs) -> Result<Done, CliError> {
    let store = app.open_for(!args.dry_run)?;
    let (session, loops) = named(&*store, args.session.as_deref(), &args.loops)?;
    let request = UnarchiveRequest {
        session,
        loops,
        reason: args.reason.clone(),
        dry_run: args.dry_run,
    };
    let report = retention::unarchive(&*store, &request)?;
    let done = match args.dry_run {
        true => "Would unarchive",
        false => "Unarchived",
    };
    app.print(&report, || summary(&report, done))?;
    Ok(Done::Well)
}

/// Finds the named session and loops.
fn named(
    store: &dyn Database,
    session: Option<&str>,
    loops: &[String],
) -> Result<(Option<SessionId>, Vec<LoopId>), CliError> {
    let Some(given) = session else {
        return Ok((None, Vec::new()));
    };
    let row = select::session(store, given)?;
    let find = |given: &String| select::loop_id(store, &row, Some(given));
    let found = loops.iter().map(find).collect::<Result<Vec<_>, _>>()?;
    Ok((Some(row.session_id), found.into_iter().flatten().collect()))
}

fn summary(report: &ArchiveReport, done: &str) -> String {
    let sizes = |before, after| {
        format!(
            "{} before, {} after",
            text::bytes(before),
            text::bytes(after)
        )
    };
    let mut lines = vec![match report.messages {
        0 => format!("{done} nothing."),
        messages => format!(
            "{done} {}: {}, {}.",
            text::count(report.loops.len() as u64, "loop"),
            text::count(messages, "message"),
            sizes(report.bytes_before, report.bytes_after),
        ),
    }];
    let moved = report.loops.iter().map(|one| {
        let (session, id) = (
            text::line(one.session_id.as_str()),
            text::line(one.loop_id.as_str()),
        );
        let messages = text::count(one.messages, "message");
        let sizes = sizes(one.bytes_before, one.bytes_after);
        format!("session {session}, loop {id}: {messages}, {sizes}")
    });
    lines.extend(text::at_most(moved, LISTED));
    lines.extend(kept_loops(&report.kept));
    lines.join("\n")
}

/// Returns a line for each reason why loops are not archived.
fn kept_loops(kept: &[SkippedLoop]) -> impl Iterator<Item = String> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for one in kept {
        let why = match one.why {
            SkipReason::Open => "not ended",
            SkipReason::Current => "current",
            SkipReason::Shown => "shown by a context",
            SkipReason::Recent => "too recent",
            _ => "changed in the meantime",
        };
        *counts.entry(why).or_default() += 1;
    }
    let line = |(why, count)| format!("{} left: {why}", text::count(count, "loop"));
    counts.into_iter().map(line)
}
