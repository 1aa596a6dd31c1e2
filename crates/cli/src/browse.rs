//! `loopstore browse`

use loopstore_terminal::{App, CliError, Done};

/// Look through sessions, loops, turns and compactions in the terminal
///
/// Arrows or hjkl move, Enter opens, q goes back, ? lists the keys. Nothing is written, unless an
/// undo or redo is confirmed.
#[derive(clap::Args)]
pub struct BrowseArgs {
    /// The session to begin with: its id or a unique prefix [default: the list of sessions].
    session: Option<String>,
}

/// Browses until the user quits.
pub fn run(app: &mut App, args: &BrowseArgs) -> Result<Done, CliError> {
    loopstore_browse::run(app, args.session.as_deref())
}
