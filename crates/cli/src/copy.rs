//! `loopstore copy`

use std::path::PathBuf;
use std::time::Duration;

use loopstore_copy::{CopyReport, copy, copy_at_rest};
use loopstore_terminal::output::note;
use loopstore_terminal::server::Access;
use loopstore_terminal::{App, CliError, Done, progress, text};

/// Copy all sessions to another database, from or to a file or a server
///
/// Each session is copied with all its runs, blocks, undos, source files and receipts, then compared
/// byte for byte. Run it again to resume after an interruption or to copy what is new. The other
/// database is created if it does not exist, and keeps its own sessions.
///
/// Agents may keep working: each session is copied as a snapshot. --final makes both databases the
/// same. Leases are not copied, nor the keys by which `import` recognises a transcript: keep importing
/// a transcript into the database where it was first imported.
#[derive(clap::Args)]
pub struct CopyArgs {
    /// The other database: a file, or `postgres://USER@HOST:PORT/NAME`.
    #[arg(long, value_name = "PATH|URL")]
    to: PathBuf,

    /// Finally copy each session once more while no agent runs it: wait for its agents, lease its loops,
    /// copy what is new, compare, and release them. Writes leases to this database; if killed, the last
    /// one stays for up to 30 seconds.
    #[arg(long = "final")]
    is_final: bool,

    /// The total time that --final waits for agents; then the command fails and lists the agents still running.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 60,
        requires = "is_final"
    )]
    wait: u32,
}

/// Copies and prints the counts.
pub fn run(app: &mut App, args: &CopyArgs) -> Result<Done, CliError> {
    let from = app.open_for(args.is_final)?;
    let (to, key) = (Some(args.to.clone()), app.key.clone());
    let other = App::new(to, key, Vec::new(), app.json, super::Out::plain());
    let to = other.open(Access::Create(from.counter().name()))?;
    if from.place() == to.place() {
        return Err(CliError::Usage("cannot copy a database to itself".into()));
    }
    let bar = progress::bar("sessions");
    let progress = &mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    };
    let folder = std::env::temp_dir();
    let copied = match args.is_final {
        true => {
            let patience = Duration::from_secs(args.wait.into());
            copy_at_rest(&*from, &*to, &folder, patience, progress)
        }
        false => copy(&*from, &*to, &folder, progress),
    };
    bar.finish_and_clear();
    let report = copied?;
    complain(&report, &other.place());
    app.print(&report, || summary(&report))?;
    Ok(match report.is_whole() {
        true => Done::Well,
        false => Done::Badly,
    })
}

fn complain(report: &CopyReport, place: &str) {
    for differing in &report.differ {
        let id = text::line(differing.session_id.as_str());
        note(&match &differing.reason {
            Some(reason) => format!("error: session {id} differs in the copy: {reason}"),
            None => format!("error: session {id} differs in the copy"),
        });
    }
    for at_work in &report.at_work {
        note(&format!("error: {}", text::line(&at_work.to_string())));
    }
    if !report.at_work.is_empty() {
        note("hint: stop these agents or wait longer (--wait), then run the command again");
    }
    for id in &report.erased {
        let (id, place) = (text::line(id.as_str()), text::line(place));
        note(&format!(
            "error: session {id} was erased here but is still in the copy; run `loopstore --db {place} erase {id}`"
        ));
    }
}

fn summary(report: &CopyReport) -> String {
    let receipts = match report.receipts {
        0 => String::new(),
        count => format!(", {}", text::count(count, "receipt")),
    };
    format!(
        "Copied {}, {} already there{receipts} ({}, {:.1} s).",
        text::count(report.copied, "session"),
        text::number(report.same),
        text::bytes(report.bytes),
        report.seconds
    )
}
