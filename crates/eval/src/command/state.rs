//! `loopstore eval state`

use std::path::PathBuf;

use crate::state;
use loopstore_terminal::output::note;
use loopstore_terminal::{App, CliError, Done, text};

use super::{Share, chosen, imported, names, shares};

/// Measure the share of the state of the work that survives each strategy at each budget
///
/// Each session is cut at 60 % of its messages. The facts come from the structure of the calls before the cut:
/// changed files with the last change of each; the items of the last plan with their states; failed commands with
/// their later outcome; running calls; and the words of every prompt of a person. The result is the share of each
/// kind that the compacted context states: a path, or a unique end of it, with a word for the change on the same
/// line; the words of an item with its state; a command with its outcome. The transcripts are imported into memory;
/// the database of --db is not touched.
#[derive(clap::Args)]
pub struct EvalStateArgs {
    /// The transcripts: files and folders, as for `import`.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// A strategy to measure; may be repeated [default: all].
    #[arg(long = "strategy", value_name = "NAME", value_parser = names())]
    strategies: Vec<String>,
    /// A budget as a share of the tokens before the cut, such as 0.2 or 20%; may be repeated.
    #[arg(long = "budget", value_name = "SHARE", default_values = ["1%", "3%", "5%"])]
    budgets: Vec<Share>,
}

/// Measures and prints.
pub fn run(app: &mut App, args: &EvalStateArgs) -> Result<Done, CliError> {
    let (store, sessions) = imported(&args.paths)?;
    let strategies = chosen(&args.strategies);
    let report = state(&store, &sessions, &shares(&args.budgets), &strategies)?;
    if report.cases == 0 {
        let sessions = text::count(sessions.len() as u64, "session");
        let why = format!("{sessions} imported, and none is long enough to cut");
        return Err(CliError::Failed(why.into()));
    }
    app.print(&report, || report.table().trim_end().to_owned())?;
    if report.is_empty() {
        note("note: there is nothing to state before the cuts, so the figures say nothing");
    }
    Ok(Done::Well)
}
