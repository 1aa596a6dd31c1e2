//! `loopstore redo`

use super::error::CliError;
use super::undo::{FlipArgs, flip};
use super::{App, Done};

/// Redo an undone compaction: activate its blocks again
///
/// Without --run, the last one undone, unless another compaction was made since.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    flip: FlipArgs,
}

/// Redoes a run.
pub fn run(app: &mut App, args: &Args) -> Result<Done, CliError> {
    flip(app, &args.flip, true)
}
