//! `loopstore undo`

use loopstore::compact::{FlipReport, FlipRequest};

use super::error::CliError;
use super::{App, Done, select, text};

/// Take a compaction out of force; the originals are read again
///
/// Without --run the last one that is in force. Nothing is deleted: `loopstore redo` puts it back.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    flip: FlipArgs,
}

/// Which run is undone or redone.
#[derive(clap::Args)]
pub struct FlipArgs {
    /// The session: its id or the beginning of it.
    session: String,
    /// The loop to look from [default: the current one].
    #[arg(long = "loop", value_name = "LOOP")]
    loop_id: Option<String>,
    /// The run: its id or the beginning of it.
    #[arg(long)]
    run: Option<String>,
    /// Why; kept with the row.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Undoes a run.
pub fn run(app: &mut App, args: &Args) -> Result<Done, CliError> {
    flip(app, &args.flip, false)
}

/// Undoes or redoes a run and tells what that did.
pub fn flip(app: &mut App, args: &FlipArgs, redo: bool) -> Result<Done, CliError> {
    let store = app.open_to_write()?;
    let session = select::session(&*store, &args.session)?;
    let request = FlipRequest {
        leaf: select::loop_id(&*store, &session, args.loop_id.as_deref())?,
        run: select::run_id(&*store, &session, args.run.as_deref())?,
        reason: args.reason.clone(),
    };
    let report = if redo {
        loopstore::redo(&*store, &session.session_id, &request)?
    } else {
        loopstore::undo(&*store, &session.session_id, &request)?
    };
    if app.json {
        app.out.json(&report)?;
    } else {
        app.out.text(&told(&report))?;
    }
    Ok(Done::Well)
}

/// Says what a flip did.
pub fn told(report: &FlipReport) -> String {
    format!(
        "Run {} is {}: {} -> {} tokens",
        text::line(&report.run),
        report.outcome,
        text::number(report.tokens_before),
        text::number(report.tokens_after)
    )
}
