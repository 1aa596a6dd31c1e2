//! `loopstore redo`

use super::error::CliError;
use super::undo::{FlipArgs, flip};
use super::{App, Done};

/// Put a compaction back into force
///
/// Without --run the one that was undone last, unless another was made since.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    flip: FlipArgs,
}

/// Redoes a run.
pub fn run(app: &mut App, args: &Args) -> Result<Done, CliError> {
    flip(app, &args.flip, true)
}
