//! `loopstore redo`

use loopstore_terminal::{App, CliError, Done};

use super::undo::{FlipArgs, flip};

/// Redo an undone compaction or edit: make it active again
///
/// Without --run, the last one undone, unless another compaction or edit was made since.
#[derive(clap::Args)]
pub struct RedoArgs {
    #[command(flatten)]
    flip: FlipArgs,
}

/// Redoes a run.
pub fn run(app: &mut App, args: &RedoArgs) -> Result<Done, CliError> {
    flip(app, &args.flip, true)
}
