//! `loopstore erase`

use loopstore::SessionId;
use loopstore::admin::retention::{self, EraseReport, EraseRequest, Leftover};
use loopstore::extend::StoreError;

use super::confirm::confirm;
use super::error::CliError;
use super::output::note;
use super::{App, Done, select, text};

/// Permanently remove a session; only a receipt remains
///
/// Removes its rows, its words in the search index, its stored source files, and their bytes in the
/// database file and its log. The receipt holds ids, digests, counts and the reason. If interrupted,
/// run it again to finish. The file is rewritten, so other writers wait meanwhile.
#[derive(clap::Args)]
pub struct Args {
    /// The session: its id or a unique prefix.
    session: String,
    /// Why; kept in the receipt.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Even while an agent holds a lease on one of its loops; its next write then fails.
    #[arg(long)]
    force: bool,
    /// Do not ask for confirmation.
    #[arg(long, short)]
    yes: bool,
}

/// Erases the session and prints what was removed.
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
    confirm(args.yes, &format!("Permanently erase session {session}?"))?;
    let request = EraseRequest {
        session,
        reason: args.reason.clone(),
        force: args.force,
    };
    let report = match (retention::erase(&*store, &request), unknown) {
        (Err(StoreError::NoSession(_)), Some(unknown)) => return Err(unknown.into()),
        (report, _) => report?,
    };
    app.print(&report, || summary(&report))?;
    Ok(left(report.leftover, "erase"))
}

/// Prints whether bytes are left, and returns how the command ended.
pub fn left(leftover: Leftover, command: &str) -> Done {
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
    };
    note(&format!(
        "error: {what}\nhint: run `loopstore {command}` again when they are done"
    ));
    Done::Badly
}

fn summary(report: &EraseReport) -> String {
    let id = text::line(report.session_id.as_str());
    let mut lines = vec![match report.was_erased {
        true => format!(
            "Session {id} was already erased (receipt {}).",
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
        text::count(report.sources, "source file"),
    ));
    if report.shared > 0 {
        let stay = text::count(report.shared, "blob or part of a file");
        lines.push(format!("{stay} kept: other sessions use it too"));
    }
    lines.extend(files_of(&report.source_of));
    for other in &report.named_by {
        lines.push(format!(
            "session {} refers to it",
            text::line(other.as_str())
        ));
    }
    lines.join("\n")
}

/// Says which other sessions lost their source file.
pub fn files_of(sessions: &[SessionId]) -> impl Iterator<Item = String> {
    sessions.iter().map(|other| {
        let id = text::line(other.as_str());
        format!("the source file of session {id} was removed too: it held both")
    })
}
