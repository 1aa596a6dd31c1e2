//! `loopstore redact`

use loopstore::retention::{self, RedactReport};

use super::confirm::confirm;
use super::erase::{files_of, left};
use super::error::CliError;
use super::{App, Done, select, text};

/// Replace secrets in a stored session by markers
///
/// Keys, tokens, passwords and private keys, in messages, compaction blocks, runs, titles and all else
/// that is stored of the session. A marker is [REDACTED:type:digest]: equal secrets have equal digests,
/// keyed with the database. The kept files that the session came from go. What is imported into it
/// later is redacted first.
#[derive(clap::Args)]
pub struct Args {
    /// The session: its id or the beginning of it.
    session: String,
    /// Why; it stays in the receipt.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Do not ask.
    #[arg(long, short)]
    yes: bool,
}

/// Redacts the session and tells what was found.
pub fn run(app: &mut App, args: &Args) -> Result<Done, CliError> {
    let store = app.open_to_write()?;
    let session = select::session(&*store, &args.session)?.session_id;
    let question = format!("Replace the secrets in session {session} for good?");
    confirm(args.yes, &question)?;
    let report = retention::redact_session(&*store, &session, args.reason.as_deref())?;
    match app.json {
        true => app.out.json(&report)?,
        false => app.out.text(&told(&report))?,
    }
    Ok(left(report.leftover, "redact"))
}

fn told(report: &RedactReport) -> String {
    let id = text::line(report.session.as_str());
    let Some(receipt) = report.receipt else {
        return format!("Session {id} holds no secret that is known as one.");
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
        let files = text::count(report.sources, "kept file");
        lines.push(format!("{files} removed: a file holds the secrets too"));
    }
    lines.extend(files_of(&report.source_of));
    lines.join("\n")
}
