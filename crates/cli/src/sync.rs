//! `loopstore sync`

use std::ffi::OsStr;
use std::io::{stdin, stdout};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use loopstore::{COUNTERS, Database, SessionId};
use loopstore_sync::{
    OpenRequest, RemovedSession, SyncError, SyncFilter, SyncOptions, SyncReport, SyncSide, serve,
    sync, sync_stream,
};
use loopstore_terminal::amount::{Edge, parse_time};
use loopstore_terminal::output::note;
use loopstore_terminal::server::{self, Access};
use loopstore_terminal::{App, CliError, Done, progress, text};

/// Bring two databases together, both ways: sessions, compactions, undos, pins, import marks, removals
///
/// OTHER is a file, a server (`postgres://…`), or a file on another machine (HOST:FILE), where `loopstore` runs over
/// ssh. Afterwards both have all sessions of either, byte for byte. A session that both continued gets two branches.
/// Sessions that one database erased, pruned or redacted are erased or redacted in the other one.
///
/// Each session is one transaction. Run it again after an interruption: it continues with what still differs.
#[derive(clap::Args)]
pub struct SyncArgs {
    /// The other database: FILE, HOST:FILE or `postgres://USER@HOST:PORT/NAME`. With --via, a file on its other end
    /// [default there: its own default].
    #[arg(value_name = "OTHER", required_unless_present_any = ["serve", "via"])]
    other: Option<PathBuf>,

    /// A command whose standard input and output lead to a `loopstore` elsewhere, such as 'ssh host loopstore'.
    #[arg(long, value_name = "COMMAND", conflicts_with = "serve")]
    via: Option<String>,

    /// Only sessions whose project folder has this in its path, in upper or lower case.
    #[arg(long, value_name = "TEXT", conflicts_with = "serve")]
    project: Option<String>,

    /// Only sessions active at or after this time, such as 2026-01-31 or 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "TIME", conflicts_with = "serve")]
    since: Option<String>,

    /// Write nothing; print what would change.
    #[arg(long, conflicts_with = "serve")]
    dry_run: bool,

    /// Keep the sessions of this database that the other one erased, pruned or redacted, and list them.
    #[arg(long)]
    keep_removed: bool,

    /// Answer another `loopstore sync` on standard input and output. With OTHER, only this file is opened.
    #[arg(long)]
    serve: bool,
}

/// Brings the databases together and prints the changes.
pub fn run(app: &mut App, args: &SyncArgs) -> Result<Done, CliError> {
    if args.serve {
        return answer(app, args);
    }
    let options = options_of(args)?;
    let other = args.other.clone().unwrap_or_default();
    let report = match stream_to(args, &other) {
        Some((command, file)) => {
            let here = open_here(app, &options)?;
            let mut child = start(&command)?;
            let result = over_stream(&*here, &mut child, &file, &options);
            let ended = child.wait();
            match result {
                Ok(report) => report,
                Err(error) => {
                    if let Some(status) = ended.ok().filter(|status| !status.success()) {
                        note(&format!(
                            "note: `{}` ended with {status}",
                            text::line(&command)
                        ));
                    }
                    return Err(error);
                }
            }
        }
        None => between(app, &other, &options)?,
    };
    complain(&report);
    app.print(&report, || summary(&report))?;
    Ok(match report.is_whole() {
        true => Done::Well,
        false => Done::Badly,
    })
}

fn options_of(args: &SyncArgs) -> Result<SyncOptions, CliError> {
    let since = args.since.as_deref();
    let since = since
        .map(|given| parse_time(given, Edge::Start))
        .transpose();
    let since = since.map_err(CliError::Usage)?;
    Ok(SyncOptions {
        filter: SyncFilter {
            project: args.project.clone(),
            since: since.map(|time| time.as_str().to_owned()),
        },
        dry_run: args.dry_run,
        keeps_removed: args.keep_removed,
    })
}

/// Opens this database; it is created unless nothing is to be written.
fn open_here(app: &App, options: &SyncOptions) -> Result<Box<dyn Database>, CliError> {
    Ok(match options.dry_run {
        true => app.open_to_read()?,
        false => app.open(Access::Create(COUNTERS[0]))?,
    })
}

/// Brings this database together with one that is opened here too.
fn between(app: &App, other: &Path, options: &SyncOptions) -> Result<SyncReport, CliError> {
    let here = open_here(app, options)?;
    let there = app.with_database(other.to_owned());
    let there = match options.dry_run {
        true => there.open_to_read()?,
        false => there.open(Access::Create(here.counter().name()))?,
    };
    if here.place() == there.place() {
        return Err(CliError::Usage(
            "cannot bring a database together with itself".into(),
        ));
    }
    with_bar(|progress| sync(&*here, &*there, options, progress))
}

fn over_stream(
    here: &dyn Database,
    child: &mut Child,
    file: &str,
    options: &SyncOptions,
) -> Result<SyncReport, CliError> {
    let (Some(output), Some(input)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(CliError::Usage(
            "the command has no standard input and output".into(),
        ));
    };
    with_bar(|progress| sync_stream(here, (input, output), file, options, progress))
}

fn with_bar(
    work: impl FnOnce(&mut dyn FnMut(u64, u64)) -> Result<SyncReport, SyncError>,
) -> Result<SyncReport, CliError> {
    let bar = progress::bar("sessions");
    let report = work(&mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    Ok(report?)
}

/// Returns the command that leads to the other database, and the name of the database there; `None` if it is opened
/// here.
fn stream_to(args: &SyncArgs, other: &Path) -> Option<(String, String)> {
    let name = other.to_string_lossy().into_owned();
    if let Some(command) = &args.via {
        return Some((command.clone(), name));
    }
    if server::is_address(&name) || other.exists() {
        return None;
    }
    let (host, file) = name.split_once(':')?;
    if host.is_empty() || host.contains('/') || host.starts_with('-') {
        return None;
    }
    Some((
        format!("ssh {} loopstore", text::quoted(host)),
        file.to_owned(),
    ))
}

/// Starts the command of the other side.
fn start(command: &str) -> Result<Child, CliError> {
    let child = Command::new("sh")
        .arg("-c")
        .arg(format!("exec {command} sync --serve"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    Ok(child?)
}

/// Answers a sync that was started elsewhere.
fn answer(app: &App, args: &SyncArgs) -> Result<Done, CliError> {
    let only = args.other.as_deref();
    let open = &mut |request: &OpenRequest| {
        let named = match only {
            Some(only) => Some(only.to_owned()),
            None if request.database.is_empty() => None,
            None => Some(under_home(
                &request.database,
                std::env::var_os("HOME").as_deref(),
            )),
        };
        let opened = match named {
            Some(file) => app.with_database(file),
            None => app.with_database(app.db.clone()),
        };
        let opened = match request.dry_run {
            true => opened.open_to_read(),
            false => opened.open(Access::Create(&request.counter)),
        };
        opened.map_err(|error| CliError::from(error).reason())
    };
    serve(stdin().lock(), stdout().lock(), args.keep_removed, open)?;
    Ok(Done::Well)
}

/// Returns a path whose `~` is the home folder, since no shell expands it on the way.
fn under_home(path: &str, home: Option<&OsStr>) -> PathBuf {
    match (path.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => Path::new(home).join(rest),
        _ => path.into(),
    }
}

/// Prints what was not brought together, and what a database keeps.
fn complain(report: &SyncReport) {
    for session in &report.failed {
        let id = text::line(session.session_id.as_str());
        let reason = text::line(&session.reason);
        note(&format!("error: session {id} was left as it is: {reason}"));
    }
    for kept in &report.refused {
        let id = text::line(kept.session_id.as_str());
        let (did, place) = (done_to(kept), place_of(report, kept.side));
        note(&format!(
            "note: session {id} was {did} elsewhere; {place} keeps it"
        ));
    }
}

fn done_to(session: &RemovedSession) -> &str {
    match &*session.kind {
        "erase" => "erased",
        "prune" => "pruned",
        _ => "redacted",
    }
}

fn place_of(report: &SyncReport, side: SyncSide) -> String {
    text::line(match side {
        SyncSide::Here => &report.here,
        SyncSide::There => &report.there,
    })
}

fn summary(report: &SyncReport) -> String {
    let mut lines = Vec::new();
    let mut list = |what: &str, ids: Vec<String>| {
        let shown = ids.iter().take(NAMED).map(|id| text::line(id));
        let shown = shown.collect::<Vec<_>>().join(", ");
        let more = match ids.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        if !ids.is_empty() {
            lines.push(format!("{what}: {shown}{more}"));
        }
    };
    let names = |ids: &[SessionId]| ids.iter().map(ToString::to_string).collect();
    list("Fetched", names(&report.fetched));
    list("Sent", names(&report.sent));
    list("Updated here", names(&report.updated_here));
    list("Updated there", names(&report.updated_there));
    let merged = report.merged.iter().map(|merged| {
        let branches = merged.branches.iter().map(|made| made.loop_id.to_string());
        match merged.branches.is_empty() {
            true => merged.session_id.to_string(),
            false => {
                let branches = branches.collect::<Vec<_>>().join(", ");
                format!("{} (branch {branches})", merged.session_id)
            }
        }
    });
    list("Continued on both sides", merged.collect());
    list("Completed", names(&report.completed));
    let removed = report.removed.iter().map(|removed| {
        let place = place_of(report, removed.side);
        format!("{} ({} in {place})", removed.session_id, done_to(removed))
    });
    list("Removed", removed.collect());
    lines.push(totals(report));
    lines.join("\n")
}

/// The maximum number of sessions that a line of the summary names.
const NAMED: usize = 5;

fn totals(report: &SyncReport) -> String {
    let changed = report.fetched.len()
        + report.sent.len()
        + report.updated_here.len()
        + report.updated_there.len()
        + report.merged.len()
        + report.completed.len();
    let verb = match report.dry_run {
        true => "Would bring together",
        false => "Brought together",
    };
    let bytes = match report.bytes_sent + report.bytes_received {
        0 => String::new(),
        _ => format!(
            ", {} sent, {} received",
            text::bytes(report.bytes_sent),
            text::bytes(report.bytes_received)
        ),
    };
    format!(
        "{verb} {}, {} unchanged ({:.1} s{bytes}).",
        text::count(changed as u64, "session"),
        text::number(report.unchanged),
        report.seconds
    )
}
