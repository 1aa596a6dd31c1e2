//! `loopstore redact`

use loopstore::admin::retention::{self, LeftPlace, Leftover, RedactReport, RedactRequest};

use super::confirm::confirm;
use super::erase::left;
use super::error::CliError;
use super::output::note;
use super::{App, Done, kept_files, select, text};

/// How many places are listed.
const LISTED: usize = 20;

/// Replace secrets in a stored session with markers
///
/// Replaces keys, tokens, passwords and private keys in messages, compaction blocks, runs, titles and
/// everything else stored of the session; also parts of them, from eight characters on, where a summary
/// or a shortened output cut the rest off. A marker is [REDACTED:type:digest]: equal secrets have equal
/// digests, keyed by the database. If something is found, the source files of the session are removed.
/// Later imports into it are redacted first.
#[derive(clap::Args)]
pub struct Args {
    /// The session: its id or a unique prefix.
    session: String,
    /// Why; kept in the receipt.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Also remove source files that hold other sessions too.
    #[arg(long)]
    with_files: bool,
    /// Only report what would be replaced, and where.
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation.
    #[arg(long, short)]
    yes: bool,
}

/// Redacts the session and prints what was found.
pub fn run(app: &mut App, args: &Args) -> Result<Done, CliError> {
    let store = app.open_for(!args.dry_run)?;
    let session = select::session(&*store, &args.session)?.session_id;
    let mut request = RedactRequest::new(session.clone());
    request.reason.clone_from(&args.reason);
    request.with_files = args.with_files;
    let tell = || {
        let (dry_run, request) = (true, request.clone());
        retention::redact_session(&*store, &RedactRequest { dry_run, ..request })
    };
    if args.dry_run {
        let report = tell()?;
        app.print(&report, || summary(&report))?;
        return Ok(Done::Well);
    }
    confirm(args.yes, || {
        let id = text::line(session.as_str());
        Ok(format!(
            "{}\nPermanently replace the secrets in session {id}?",
            summary(&tell()?)
        ))
    })?;
    let report = retention::redact_session(&*store, &request)?;
    app.print(&report, || summary(&report))?;
    if report.leftover == Leftover::InContent {
        return Ok(still_there(&report));
    }
    Ok(left(report.leftover, "redact"))
}

fn summary(report: &RedactReport) -> String {
    let id = text::line(report.session_id.as_str());
    if report.secrets.is_empty() {
        return format!("Found no secrets in session {id}.");
    }
    let texts: u64 = report.texts.values().sum();
    let done = match report.receipt {
        Some(receipt) => format!("Redacted session {id} (receipt {receipt})"),
        None => format!("Would redact session {id}"),
    };
    let mut lines = vec![
        format!(
            "{done}: {}, {}.",
            text::count(report.messages, "message"),
            text::count(texts, "other text"),
        ),
        text::secrets(&report.secrets),
    ];
    if report.pieces > 0 {
        let pieces = text::count(report.pieces, "part");
        lines.push(format!(
            "{pieces} of secrets replaced where the rest was cut off"
        ));
    }
    if report.dry_run {
        let places = report.places.iter().map(|place| {
            let of = place.generation;
            let of = of.map_or(String::new(), |number| format!(", block {number}"));
            let id = text::line(place.loop_id.as_str());
            format!("loop {id}{of}, message {}", place.seq)
        });
        lines.extend(text::at_most(places, LISTED));
        lines.extend(
            report
                .texts
                .iter()
                .map(|(place, count)| format!("{place}: {count}")),
        );
    }
    lines.extend(kept_files::lines(&report.files));
    lines.join("\n")
}

/// Says where secrets still stand, and returns how the command ended: other sessions are redacted by
/// themselves.
fn still_there(report: &RedactReport) -> Done {
    let is_other = |place: &LeftPlace| {
        let own = &report.session_id;
        place.session_id.as_ref().is_some_and(|id| id != own)
    };
    for place in report.left.iter().take(LISTED) {
        let of = place.session_id.as_ref();
        let of = of.map_or(String::new(), |id| {
            format!(" of session {}", text::line(id.as_str()))
        });
        let count = text::count(place.count, "time");
        note(&format!("still there: {}{of}, {count}", place.place));
    }
    if report.left.iter().any(is_other) {
        note("hint: redact the other sessions too");
    }
    match report.left.iter().all(is_other) {
        true => Done::Well,
        false => Done::Badly,
    }
}
