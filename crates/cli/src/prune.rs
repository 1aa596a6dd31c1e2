//! `loopstore prune`

use loopstore_admin::retention::{self, KeepReason, PruneReport, PruneRequest};
use loopstore_terminal::confirm::confirm;
use loopstore_terminal::output::note_copies;
use loopstore_terminal::{App, CliError, Done, amount, text};

use super::erase::report_leftover;
use super::kept_files::{self, Removal};

/// The maximum number of sessions in the list.
const LISTED: usize = 20;

/// Permanently remove old sessions, each with a receipt
///
/// Keeps protected sessions (`loopstore protect`) and those with a running loop. Sessions that started or
/// continue each other are removed together or not at all.
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("which").required(true).multiple(true)))]
pub struct PruneArgs {
    /// Sessions whose newest message is at least this old: 30d, 12h, 6w, 2y, or a date.
    #[arg(long, value_name = "AGE", value_parser = amount::age, group = "which")]
    older_than: Option<i64>,
    /// Keep the N newest, however old they are.
    #[arg(long, value_name = "N", group = "which")]
    keep_last: Option<usize>,
    /// Only sessions of this agent.
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    /// The reason, stored in the receipts.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Also remove stored copies of files that contain sessions that are kept.
    #[arg(long)]
    with_files: bool,
    /// Only report what would be done.
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation.
    #[arg(long, short)]
    yes: bool,
}

/// Prunes and prints what was removed.
pub fn run(app: &mut App, args: &PruneArgs) -> Result<Done, CliError> {
    let store = app.open_for(!args.dry_run)?;
    let request = PruneRequest {
        older_than: args.older_than,
        keep_last: args.keep_last,
        agent: args.agent.clone(),
        reason: args.reason.clone(),
        with_files: args.with_files,
        dry_run: true,
    };
    let mut report = retention::prune(&*store, &request)?;
    if !args.dry_run {
        if !report.pruned.is_empty() {
            let sessions = text::count(report.pruned.len() as u64, "session");
            confirm(args.yes, || {
                let mut lines = kept_files::lines(&report.files, Removal::Planned);
                lines.push(format!("Permanently remove {sessions}?"));
                Ok(lines.join("\n"))
            })?;
        }
        let dry_run = false;
        report = retention::prune(&*store, &PruneRequest { dry_run, ..request })?;
    }
    app.print(&report, || summary(&report))?;
    note_copies(&report.copies);
    Ok(report_leftover(report.leftover, "prune"))
}

fn summary(report: &PruneReport) -> String {
    let done = if report.dry_run {
        "Would remove"
    } else {
        "Removed"
    };
    let sessions = text::count(report.pruned.len() as u64, "session");
    let messages: u64 = report.pruned.iter().map(|one| one.messages).sum();
    let bytes: u64 = report.pruned.iter().map(|one| one.bytes).sum();
    let mut lines = vec![format!(
        "{done} {sessions}: {}, {}.",
        text::count(messages, "message"),
        text::bytes(bytes),
    )];
    let pruned = report.pruned.iter().map(|one| {
        let at = one.last_active_at.as_deref();
        let at = at.map_or_else(|| "unknown".into(), text::time);
        let receipt = one
            .receipt
            .map_or(String::new(), |key| format!(", receipt {key}"));
        let id = text::line(one.session_id.as_str());
        format!("{id} (last active {at}{receipt})")
    });
    lines.extend(text::at_most(pruned, LISTED));
    let kept = report.kept.iter().map(|one| {
        let why = match one.why {
            KeepReason::Protected => "it is protected",
            KeepReason::Open => {
                "one of its loops has not ended, and it was active within the last day"
            }
            KeepReason::Undated => "no time of it is known; `erase` removes it",
            KeepReason::Linked => "it is linked to a session that is kept",
            _ => "it changed in the meantime",
        };
        format!("{} kept: {why}", text::line(one.session_id.as_str()))
    });
    lines.extend(text::at_most(kept, LISTED));
    let removal = match report.dry_run {
        true => Removal::Planned,
        false => Removal::Done,
    };
    lines.extend(kept_files::lines(&report.files, removal));
    lines.join("\n")
}
