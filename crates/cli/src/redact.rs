//! `loopstore redact`

mod review;

use std::collections::BTreeSet;

use loopstore::SessionId;
use loopstore_admin::retention::{
    self, ContentRemnant, FindingPlace, FoundSecret, Leftover, RedactReport, RedactRequest,
};
use loopstore_redact::FoundBy;
use loopstore_terminal::confirm::confirm;
use loopstore_terminal::output::{note, note_copies};
use loopstore_terminal::{App, CliError, Done, select, text};

use super::erase::report_leftover;
use super::kept_files::{self, Removal};
use super::redaction::RedactionArgs;

/// The maximum number of places in the list.
const LISTED: usize = 20;

/// Replace secrets in a stored session with markers
///
/// Replaces keys, tokens, passwords and private keys in messages, compaction blocks, runs, titles and
/// everything else stored of the session; also parts of them, from eight characters on, where a summary
/// or a shortened output cut the rest off. A marker is [REDACTED:type:digest]: equal secrets have equal
/// digests, keyed by the database. If something is replaced, the source files of the session are removed.
/// Later imports into it are redacted first.
///
/// --dry-run shows each secret masked, with its rule, confidence and context. What is found with low
/// confidence, such as a path after `key =`, is reported and not replaced.
#[derive(clap::Args)]
pub struct RedactArgs {
    /// The session: its id or a unique prefix.
    session: String,
    /// The reason, stored in the receipt.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Also remove source files that contain other sessions.
    #[arg(long)]
    with_files: bool,
    /// Only report the secrets that would be replaced, with their places.
    #[arg(long)]
    dry_run: bool,
    /// Decide about each secret, also those of low confidence, then replace those that you chose. Reads the
    /// answers from standard input.
    #[arg(long, conflicts_with_all = ["dry_run", "yes"])]
    review: bool,
    #[command(flatten)]
    redaction: RedactionArgs,
    /// Do not ask for confirmation.
    #[arg(long, short)]
    yes: bool,
}

/// Redacts the session and prints what was found.
pub fn run(app: &mut App, args: &RedactArgs) -> Result<Done, CliError> {
    let policy = args.redaction.policy()?;
    let store = app.open_for(!args.dry_run)?;
    let session = select::session(&*store, &args.session)?.session_id;
    let mut request = RedactRequest::new(session.clone());
    request.reason.clone_from(&args.reason);
    request.with_files = args.with_files;
    request.policy = policy;
    let preview = |request: &RedactRequest| {
        let request = RedactRequest {
            dry_run: true,
            ..request.clone()
        };
        retention::redact_session(&*store, &request)
    };
    if args.dry_run {
        let report = preview(&request)?;
        app.print(&report, || summary(&report))?;
        return Ok(Done::Well);
    }
    if args.review {
        let found = preview(&request)?.findings;
        if !review::choose(&mut request.policy, &found)? {
            note("nothing was replaced");
            return Ok(Done::Well);
        }
    } else {
        confirm(args.yes, || {
            let id = text::line(session.as_str());
            Ok(format!(
                "{}\nPermanently replace the secrets in session {id}?",
                summary(&preview(&request)?)
            ))
        })?;
    }
    let report = retention::redact_session(&*store, &request)?;
    app.print(&report, || summary(&report))?;
    note_copies(&report.copies);
    if report.leftover == Leftover::InContent {
        return Ok(still_there(&report));
    }
    Ok(report_leftover(report.leftover, "redact"))
}

fn summary(report: &RedactReport) -> String {
    let id = text::line(report.session_id.as_str());
    if report.secrets.is_empty() {
        let mut lines = vec![match report.held_back.is_empty() {
            true => format!("Found no secrets in session {id}."),
            false => format!("Replaced nothing in session {id}."),
        }];
        lines.extend(held_back(report));
        return lines.join("\n");
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
    let replaced = report.findings.iter().filter(|one| one.finding.replaced);
    lines.extend(replaced.flat_map(finding_lines));
    lines.extend(held_back(report));
    let removal = match report.receipt {
        Some(_) => Removal::Done,
        None => Removal::Planned,
    };
    lines.extend(kept_files::lines(&report.files, removal));
    lines.join("\n")
}

/// Lists the secrets that were found and are not replaced.
fn held_back(report: &RedactReport) -> Vec<String> {
    let count: u64 = report.held_back.values().sum();
    if count == 0 {
        return Vec::new();
    }
    let possible = text::count(count, "possible secret");
    let mut lines = vec![match report.dry_run {
        true => format!(
            "{possible} of low confidence not replaced without --min-confidence low or --review:"
        ),
        false => format!(
            "{possible} of low confidence not replaced; --dry-run shows, --review asks about each"
        ),
    }];
    let held = report.findings.iter().filter(|one| !one.finding.replaced);
    lines.extend(held.flat_map(finding_lines));
    lines
}

/// Describes a secret with its place, and the text around it.
pub(super) fn finding_lines(one: &FoundSecret) -> [String; 2] {
    let of = &one.finding;
    let part = match of.found_by {
        FoundBy::Part => "part of ",
        _ => "",
    };
    let place = one.places.first().map_or_else(String::new, place);
    let head = format!(
        "  {part}{} ({}) {}, {}, {}: {place}, id {}",
        text::line(&of.rule),
        of.confidence.name(),
        text::line(&of.masked),
        text::count(of.length as u64, "character"),
        text::count(one.count, "time"),
        of.id,
    );
    [head, format!("    {}", text::line(&of.context))]
}

fn place(place: &FindingPlace) -> String {
    match place {
        FindingPlace::Message {
            loop_id,
            generation,
            seq,
        } => {
            let of = generation.map_or(String::new(), |number| format!(", block {number}"));
            let id = text::line(loop_id.as_str());
            format!("loop {id}{of}, message {seq}")
        }
        FindingPlace::Text { text } => text.clone(),
    }
}

/// Lists the other sessions that contain replaced values, with the next step. No rule finds a value there that lacks
/// the name or the form by which it was recognised here.
fn other_sessions(ids: &BTreeSet<&str>) -> Vec<String> {
    let (hold, it) = match ids.len() {
        1 => ("1 other session holds", "it"),
        count => (
            &*format!("{} other sessions hold", text::number(count)),
            "each",
        ),
    };
    let named = ids.iter().map(|id| text::line(id));
    let mut lines = vec![format!("{hold} a value that was replaced here:")];
    lines.extend(text::at_most(named.map(|id| format!("  {id}")), LISTED));
    let session = match ids.first().filter(|_| ids.len() == 1) {
        Some(one) => text::quoted(&text::line(one)),
        None => "SESSION".to_owned(),
    };
    lines.push(format!(
        "hint: `loopstore redact --dry-run {session}` shows whether a rule finds the value in {it}; a session in \
         which it stands bare, without its name, is only rid of it by `loopstore erase {session}`"
    ));
    lines
}

/// Lists the remaining places of secrets, and returns the exit status of the command: other sessions are redacted
/// separately.
fn still_there(report: &RedactReport) -> Done {
    let is_other = |place: &ContentRemnant| {
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
    let others = report.left.iter().filter(|place| is_other(place));
    let others: BTreeSet<&str> = others
        .filter_map(|place| place.session_id.as_ref().map(SessionId::as_str))
        .collect();
    if !others.is_empty() {
        other_sessions(&others).iter().for_each(|line| note(line));
    }
    match report.left.iter().all(is_other) {
        true => Done::Well,
        false => Done::Badly,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_sessions_are_counted_and_listed() {
        let one = other_sessions(&BTreeSet::from(["a"]));
        assert_eq!(
            one[..2],
            [
                "1 other session holds a value that was replaced here:",
                "  a"
            ]
        );
        assert!(one[2].contains("redact --dry-run a`") && one[2].contains("erase a`"));
        let ids: Vec<String> = (0..25).map(|number| format!("s-{number:02}")).collect();
        let many = other_sessions(&ids.iter().map(String::as_str).collect());
        assert!(many[0].starts_with("25 other sessions hold"), "{many:?}");
        assert_eq!(many[1], "  s-00");
        assert_eq!(many[21], "and 5 more; --json lists all");
    }
}
