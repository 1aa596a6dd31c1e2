//! `loopstore archive` and `loopstore unarchive`

use std::collections::BTreeMap;

use loopstore::retention::{
    self, ArchiveReport, ArchiveRequest, LoopStays, LoopStaysWhy, UnarchiveRequest,
};
use loopstore::{Database, LoopId, SessionId};

use super::error::CliError;
use super::output::note;
use super::prune::age;
use super::{App, Done, select, text};

/// How many loops are told one by one.
const LISTED: usize = 20;

/// Compress the content of cold loops; every command reads it as before
///
/// Cold are loops that have ended, are not the current one, and of which no context shows a message
/// itself, only summaries. Sizes, digests and what SQL tells of usage and tool calls stay in the tables;
/// the texts do not. `loopstore unarchive` brings them back.
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("which").required(true)))]
pub struct Args {
    /// The session: its id or the beginning of it.
    #[arg(group = "which")]
    session: Option<String>,
    /// All sessions.
    #[arg(long, group = "which")]
    all: bool,
    /// This loop, also if a context shows it; may be given several times.
    #[arg(long = "loop", value_name = "ID", conflicts_with = "all")]
    loops: Vec<String>,
    /// Also loops that a context shows, and the current one, if they have ended.
    #[arg(long, conflicts_with = "loops")]
    shown: bool,
    /// Only loops in which nothing happened for this long: 30d, 12h, 6w, 2y.
    #[arg(long, value_name = "AGE", value_parser = age)]
    older_than: Option<i64>,
    /// Why; it stays in the receipts.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Only tell.
    #[arg(long)]
    dry_run: bool,
}

/// Bring the content of archived loops back into the tables
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("which").required(true)))]
pub struct UnarchiveArgs {
    /// The session: its id or the beginning of it.
    #[arg(group = "which")]
    session: Option<String>,
    /// All sessions.
    #[arg(long, group = "which")]
    all: bool,
    /// Only this loop; may be given several times.
    #[arg(long = "loop", value_name = "ID", conflicts_with = "all")]
    loops: Vec<String>,
    /// Why; it stays in the receipts.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Only tell.
    #[arg(long)]
    dry_run: bool,
}

/// Archives loops and tells which.
pub fn run(app: &mut App, args: &Args) -> Result<Done, CliError> {
    let store = open(app, args.dry_run)?;
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
    tell(app, &report, done)?;
    if report.messages > 0 && !args.dry_run && store.as_sqlite().is_some() {
        note(
            "the file keeps its size, and what is free in it is used again; `loopstore backup --compact \
             DEST` writes a copy without it",
        );
    }
    Ok(Done::Well)
}

/// Brings loops back and tells which.
pub fn run_unarchive(app: &mut App, args: &UnarchiveArgs) -> Result<Done, CliError> {
    let store = open(app, args.dry_run)?;
    let (session, loops) = named(&*store, args.session.as_deref(), &args.loops)?;
    let request = UnarchiveRequest {
        session,
        loops,
        reason: args.reason.clone(),
        dry_run: args.dry_run,
    };
    let report = retention::unarchive(&*store, &request)?;
    let done = match args.dry_run {
        true => "Would bring back",
        false => "Brought back",
    };
    tell(app, &report, done)?;
    Ok(Done::Well)
}

fn open(app: &App, dry_run: bool) -> Result<Box<dyn Database>, CliError> {
    Ok(match dry_run {
        true => app.open_to_read()?,
        false => app.open_to_write()?,
    })
}

/// Finds the session and the loops that are named.
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

fn tell(app: &mut App, report: &ArchiveReport, done: &str) -> Result<(), CliError> {
    match app.json {
        true => app.out.json(report)?,
        false => app.out.text(&told(report, done))?,
    }
    Ok(())
}

fn told(report: &ArchiveReport, done: &str) -> String {
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
    lines.extend(report.loops.iter().take(LISTED).map(|one| {
        let (session, id) = (
            text::line(one.session.as_str()),
            text::line(one.loop_id.as_str()),
        );
        let messages = text::count(one.messages, "message");
        let sizes = sizes(one.bytes_before, one.bytes_after);
        format!("session {session}, loop {id}: {messages}, {sizes}")
    }));
    if report.loops.len() > LISTED {
        let more = text::number((report.loops.len() - LISTED) as u64);
        lines.push(format!("and {more} more; --json lists them all"));
    }
    lines.extend(stays(&report.kept));
    lines.join("\n")
}

/// Tells how many loops stay, by reason.
fn stays(kept: &[LoopStays]) -> impl Iterator<Item = String> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for one in kept {
        let why = match one.why {
            LoopStaysWhy::Open => "not ended",
            LoopStaysWhy::Current => "current",
            LoopStaysWhy::Shown => "shown by a context",
            LoopStaysWhy::Recent => "not old enough",
            _ => "changed meanwhile",
        };
        *counts.entry(why).or_default() += 1;
    }
    let line = |(why, count)| format!("{} left: {why}", text::count(count, "loop"));
    counts.into_iter().map(line)
}
