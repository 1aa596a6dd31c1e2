//! `loopstore eval retention`

use std::path::PathBuf;

use crate::{EvalStrategy, RetentionReport, recall_svg, retention};
use loopstore_terminal::output::{note, write_file};
use loopstore_terminal::{App, CliError, Done, text};

use super::{ByCommand, Share, chosen, imported, names, note_fallbacks, shares};

/// Measure the share of later needed values that survives each strategy at each budget
///
/// Each session is cut at 60 % of its messages, and the part before the cut is compacted without
/// looking at the rest. The values needed are those (strings of 3 to 120 characters, numbers of three
/// or more digits) that a later tool call takes from before the cut; the result is the share of them
/// that survives verbatim. Sessions too short to cut are left out. The transcripts are imported into
/// memory; the database of --db is not touched.
#[derive(clap::Args)]
pub struct EvalRetentionArgs {
    /// The transcripts: files and folders, as for `import`.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// A strategy to measure; may be repeated [default: all].
    #[arg(long = "strategy", value_name = "NAME", value_parser = names())]
    strategies: Vec<String>,
    #[command(flatten)]
    by_command: ByCommand,
    /// A budget as a share of the tokens before the cut, such as 0.2 or 20%; may be repeated.
    #[arg(
        long = "budget",
        value_name = "SHARE",
        default_values = ["1%", "3%", "5%", "10%", "20%"]
    )]
    budgets: Vec<Share>,
    /// Also plot the figures into this file, replacing it.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Measures and prints.
pub fn run(app: &mut App, args: &EvalRetentionArgs) -> Result<Done, CliError> {
    let report = args.measured()?;
    app.print(&report, || report.table().trim_end().to_owned())?;
    if report.needed == 0 {
        note("note: no value after the cuts comes from before them, so the figures say nothing");
    }
    if let Some(path) = &args.svg {
        write_file(app, path, recall_svg(&report).as_bytes())?;
    }
    Ok(Done::Well)
}

impl EvalRetentionArgs {
    fn measured(&self) -> Result<RetentionReport, CliError> {
        let (store, sessions) = imported(&self.paths)?;
        let by_command = self.by_command.strategy();
        let mut strategies = chosen(&self.strategies);
        strategies.extend(
            by_command
                .iter()
                .map(|strategy| strategy as &dyn EvalStrategy),
        );
        let report = retention(&store, &sessions, &shares(&self.budgets), &strategies)?;
        note_fallbacks(by_command.as_ref());
        if report.cases == 0 {
            let sessions = text::count(sessions.len() as u64, "session");
            let why = format!("{sessions} imported, and none is long enough to cut");
            return Err(CliError::Failed(why.into()));
        }
        Ok(report)
    }
}
