//! `loopstore redact`

use loopstore::admin::retention::{self, RedactReport};

use super::confirm::confirm;
use super::erase::{files_of, left};
use super::error::CliError;
use super::{App, Done, select, text};

/// Replace secrets in a stored session with markers
///
/// Replaces keys, tokens, passwords and private keys in messages, compaction blocks, runs, titles and
/// everything else stored of the session. A marker is [REDACTED:type:digest]: equal secrets have equal
/// digests, keyed by the database. The source files of the session are removed. Later imports into it
/// are redacted first.
#[derive(clap::Args)]
pub struct Args {
    /// The session: its id or a unique prefix.
    session: String,
    /// Why; kept in the receipt.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Do not ask for confirmation.
    #[arg(long, short)]
    yes: bool,
}

/// Redacts the session and prints what was found.
pub fn run(app: &mut App, args: &Args) -> Result<Done, CliError> {
    let store = app.open_to_write()?;
    let session = select::session(&*store, &args.session)?.session_id;
    let question = format!("Permanently replace the secrets in session {session}?");
    confirm(args.yes, &question)?;
    let report = retention::redact_session(&*store, &session, args.reason.as_deref())?;
    app.print(&report, || summary(&report))?;
    Ok(left(report.leftover, "redact"))
}

fn summary(report: &RedactReport) -> String {
    let id = text::line(report.session_id.as_str());
    let Some(receipt) = report.receipt else {
        return format!("Found no secrets in session {id}.");
    };
    let texts: u64 = report.texts.values().sum();
    let mut lines = vec![
        format!(
            "Redacted session {id} (receipt {receipt}): {}, {}.",
            text::count(report.messages, "message"),
            text::count(texts, "other text"),
        ),
        text::secrets(&report.secrets),
    ];
    if report.sources > 0 {
        let files = text::count(report.sources, "source file");
        lines.push(format!("{files} removed, as it holds the secrets too"));
    }
    lines.extend(files_of(&report.source_of));
    lines.join("\n")
}
