//! `loopstore repair`

use loopstore::{RepairReport, SealingProvider, repair_session};
use loopstore_terminal::{App, CliError, Done, select, text};

use super::compact;

/// The options of a compaction of the originals, and of the compactions that are undone before it.
#[derive(clap::Args)]
#[group(skip)]
pub struct RepairArgs {
    /// Undo only the compactions of this provider [default: of all].
    #[arg(id = "for", long = "for", value_name = "PROVIDER", value_parser = select::provider)]
    sealed_by: Option<SealingProvider>,
    #[command(flatten)]
    compact: compact::CompactArgs,
}

/// Undoes the compactions of providers and compacts the originals.
pub fn run(app: &mut App, args: &RepairArgs) -> Result<Done, CliError> {
    let (store, session, mut request) = args.compact.opened(app)?;
    request.policy.provider = args.sealed_by;
    let report = repair_session(&*store, &session.session_id, &request)?;
    app.print(&report, || summary(&report, request.dry_run))?;
    let is_well = report.compaction.as_ref().is_none_or(compact::went_well);
    Ok(if is_well { Done::Well } else { Done::Badly })
}

/// Returns the result of a repair.
fn summary(report: &RepairReport, dry_run: bool) -> String {
    if report.undone.is_empty() {
        return "Nothing to repair: no compaction of a provider is active.".to_owned();
    }
    let done = if dry_run {
        "would be undone"
    } else {
        "is undone"
    };
    let mut lines: Vec<String> = report
        .undone
        .iter()
        .map(|run| format!("Run {} {done}", text::line(run)))
        .collect();
    if report.missing > 0 {
        let count = text::count(report.missing, "compaction");
        lines.push(format!(
            "Nothing is stored of what {count} stood for: it is lost, unless a transcript that has it \
             is imported"
        ));
    }
    if let Some(from) = &report.originals {
        lines.push(format!(
            "The originals are those of loop {} of session {}, from an earlier import",
            text::line(from.loop_id.as_str()),
            text::line(&from.session_id)
        ));
    }
    if let Some(compaction) = &report.compaction {
        lines.push(compact::summary(compaction, false, None));
    }
    lines.join("\n")
}
