//! `loopstore completions`

use clap_complete::env::Shells;
use loopstore_terminal::{App, CliError, Done};

use super::complete::VARIABLE;

/// Print a completion script for a shell
///
/// It completes commands, options, and the ids of sessions, loops and runs in the database named on the
/// command line. It runs `loopstore`, which must be in the PATH. For bash:
/// `loopstore completions bash > ~/.local/share/bash-completion/completions/loopstore`.
#[derive(clap::Args)]
pub struct CompletionsArgs {
    /// The shell.
    shell: clap_complete::Shell,
}

/// Prints the script.
pub fn run(app: &mut App, args: &CompletionsArgs) -> Result<Done, CliError> {
    let shells = Shells::builtins();
    let mut script = Vec::new();
    if let Some(shell) = shells.completer(&args.shell.to_string()) {
        shell.write_registration(VARIABLE, "loopstore", "loopstore", "loopstore", &mut script)?;
    }
    app.out.bytes(&script)?;
    Ok(Done::Well)
}
