//! `loopstore erase`

use loopstore::extend::StoreError;
use loopstore::{Database, SessionId};
use loopstore_admin::retention::{self, EraseReport, EraseRequest, Leftover};
use loopstore_terminal::confirm::confirm;
use loopstore_terminal::output::{note, note_copies};
use loopstore_terminal::{App, CliError, Done, select, text};

use super::kept_files::{self, Removal};

/// Permanently remove a session; only a receipt remains
///
/// Removes its rows, its words in the search index, the stored copies of its files that contain no other session, and
/// their bytes in the database file and its log. The files themselves are not touched. The receipt holds ids, digests, counts and the reason. If interrupted,
/// run it again to finish. The file is rewritten, so other writers wait meanwhile.
#[derive(clap::Args)]
pub struct EraseArgs {
    /// The session: its id or a unique prefix.
    session: String,
    /// The reason, stored in the receipt.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Erase even while an agent holds a lease on one of its loops; the agent's next write then fails.
    #[arg(long)]
    force: bool,
    /// Also remove stored copies of files that contain other sessions.
    #[arg(long)]
    with_files: bool,
    /// Only report what would be removed.
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation.
    #[arg(long, short)]
    yes: bool,
}

/// Erases the session and prints what was removed.
pub fn run(app: &mut App, args: &EraseArgs) -> Result<Done, CliError> {
    let store = app.open_for(!args.dry_run)?;
    let (session, unknown) = match select::session(&*store, &args.session) {
        Ok(row) => (row.session_id, None),
        // The session may be erased already with only its bytes left.
        Err(unknown) => match (SessionId::new(args.session.clone()), &unknown.error) {
            (Ok(id), StoreError::NoSession(_)) => (id, Some(unknown)),
            _ => return Err(unknown.into()),
        },
    };
    let request = EraseRequest {
        reason: args.reason.clone(),
        force: args.force,
        with_files: args.with_files,
        dry_run: args.dry_run,
        ..EraseRequest::new(session)
    };
    if !args.dry_run {
        confirm(args.yes, || question(&*store, &request))?;
    }
    let report = match (retention::erase(&*store, &request), unknown) {
        (Err(StoreError::NoSession(_)), Some(unknown)) => return Err(unknown.into()),
        (report, _) => report?,
    };
    app.print(&report, || summary(&report))?;
    note_copies(&report.copies);
    Ok(report_leftover(report.leftover, "erase"))
}

/// Returns the question before an erasure, with the source files that are removed with the session.
fn question(store: &dyn Database, request: &EraseRequest) -> Result<String, CliError> {
    let request = EraseRequest {
        dry_run: true,
        ..request.clone()
    };
    let mut lines = match retention::erase(store, &request) {
        Ok(report) => kept_files::lines(&report.files, Removal::Planned),
        Err(StoreError::NoSession(_)) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    let id = text::line(request.session.as_str());
    lines.push(format!("Permanently erase session {id}?"));
    Ok(lines.join("\n"))
}

/// Prints whether bytes are left, and returns the exit status of the command.
pub fn report_leftover(leftover: Leftover, command: &str) -> Done {
    let what = match leftover {
        Leftover::None => return Done::Well,
        Leftover::InLog => {
            "its bytes are still in the write-ahead log: another program is reading an older snapshot"
        }
        Leftover::InFile => "its bytes are still in the database file: other programs kept writing",
        Leftover::OnServer => {
            note(
                "note: all rows are removed; the server's log, backups and unused pages may still hold \
                 its bytes",
            );
            return Done::Well;
        }
        Leftover::InContent => {
            note(
                "note: the stored copy of a file that other sessions need still contains the removed text",
            );
            return Done::Well;
        }
    };
    note(&format!(
        "error: {what}\nhint: run `loopstore {command}` again when they are done"
    ));
    Done::Badly
}

fn summary(report: &EraseReport) -> String {
    let id = text::line(report.session_id.as_str());
    let receipt = report
        .receipt
        .map_or(String::new(), |key| format!(" (receipt {key})"));
    if report.dry_run && !report.was_erased {
        let mut lines = vec![format!("Would erase session {id}.")];
        lines.extend(kept_files::lines(&report.files, Removal::Planned));
        return lines.join("\n");
    }
    let mut lines = vec![match report.was_erased {
        true => format!("Session {id} was already erased{receipt}."),
        false => format!("Erased session {id}{receipt}."),
    }];
    let count = |table: &str| report.counts.get(table).copied().unwrap_or(0);
    lines.push(format!(
        "{}, {}, {}, {}, {}",
        text::count(count("loops"), "loop"),
        text::count(count("messages"), "message"),
        text::count(count("runs"), "run"),
        text::count(count("blobs"), "blob"),
        text::count(report.sources, "stored file"),
    ));
    if report.shared > 0 {
        let stay = text::count(report.shared, "blob or part of a file");
        lines.push(format!("{stay} kept: other sessions use it too"));
    }
    lines.extend(kept_files::lines(&report.files, Removal::Done));
    for other in &report.named_by {
        lines.push(format!(
            "session {} refers to it",
            text::line(other.as_str())
        ));
    }
    lines.join("\n")
}
