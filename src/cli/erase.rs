//! `loopstore erase`

use loopstore::SessionId;
use loopstore::retention::{self, EraseReport, EraseRequest, Leftover};
use loopstore::store::StoreError;

use super::confirm::confirm;
use super::error::CliError;
use super::output::note;
use super::{App, Done, select, text};

/// Remove a session for good: nothing of it is left but a receipt
///
/// Its rows, its words in the search index, the kept files that it came from, and their bytes in the
/// database and its log. The receipt tells ids, digests, counts and the reason. Cut off, it is finished
/// by running it again. The file is written anew, so others wait meanwhile.
#[derive(clap::Args)]
pub struct Args {
    /// The session: its id or the beginning of it.
    session: String,
    /// Why; it stays in the receipt.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Also while an agent drives one of its loops; its next write then fails.
    #[arg(long)]
    force: bool,
    /// Do not ask.
    #[arg(long, short)]
    yes: bool,
}

/// Erases the session and tells what went.
pub fn run(app: &mut App, args: &Args) -> Result<Done, CliError> {
    let store = app.open_to_write()?;
    let (session, unknown) = match select::session(&*store, &args.session) {
        Ok(row) => (row.session_id, None),
        // It may be gone already and only its bytes left.
        Err(unknown) => match (SessionId::new(args.session.clone()), &unknown.error) {
            (Ok(id), StoreError::NoSession(_)) => (id, Some(unknown)),
            _ => return Err(unknown.into()),
        },
    };
    confirm(args.yes, &format!("Erase session {session} for good?"))?;
    let request = EraseRequest {
        session,
        reason: args.reason.clone(),
        force: args.force,
    };
    let report = match (retention::erase(&*store, &request), unknown) {
        (Err(StoreError::NoSession(_)), Some(unknown)) => return Err(unknown.into()),
        (report, _) => report?,
    };
    match app.json {
        true => app.out.json(&report)?,
        false => app.out.text(&told(&report))?,
    }
    Ok(left(report.leftover, "erase"))
}

/// Tells if bytes are left, and returns how the command ended.
pub fn left(leftover: Leftover, command: &str) -> Done {
    let what = match leftover {
        Leftover::None => return Done::Well,
        Leftover::InLog => {
            "its bytes are still in the log beside the database: another program reads an older state"
        }
        Leftover::InFile => {
            "its bytes are still in the database file: other programs wrote all the time"
        }
        Leftover::OnServer => {
            note(
                "it is in no row any more; the server's log and backups, and pages that it has not used \
                 again, may still hold bytes of it",
            );
            return Done::Well;
        }
    };
    note(&format!(
        "error: {what}\nhint: run `loopstore {command}` again when they are done"
    ));
    Done::Badly
}

fn told(report: &EraseReport) -> String {
    let id = text::line(report.session.as_str());
    let mut lines = vec![match report.was_erased {
        true => format!(
            "Session {id} was erased before (receipt {}).",
            report.receipt
        ),
        false => format!("Erased session {id} (receipt {}).", report.receipt),
    }];
    let count = |table: &str| report.counts.get(table).copied().unwrap_or(0);
    lines.push(format!(
        "{}, {}, {}, {}, {}",
        text::count(count("loops"), "loop"),
        text::count(count("messages"), "message"),
        text::count(count("runs"), "run"),
        text::count(count("blobs"), "blob"),
        text::count(report.sources, "kept file"),
    ));
    if report.shared > 0 {
        let stay = text::count(report.shared, "blob or part of a file");
        lines.push(format!("{stay} stays: other sessions show it too"));
    }
    lines.extend(files_of(&report.source_of));
    for other in &report.named_by {
        lines.push(format!("session {} names it", text::line(other.as_str())));
    }
    lines.join("\n")
}

/// Tells which sessions lost their kept file.
pub fn files_of(sessions: &[SessionId]) -> impl Iterator<Item = String> {
    sessions.iter().map(|other| {
        let id = text::line(other.as_str());
        format!("the kept file of session {id} is gone too: it held both")
    })
}
