//! `loopstore completions`

use clap::CommandFactory;

use super::error::CliError;
use super::{App, Cli, Done};

/// Print a completion script for a shell
#[derive(clap::Args)]
pub struct Args {
    /// The shell.
    shell: clap_complete::Shell,
}

/// Prints the script.
pub fn run(app: &mut App, args: &Args) -> Result<Done, CliError> {
    // Made in memory first: the generator panics if it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "loopstore", &mut script);
    app.out.bytes(&script)?;
    Ok(Done::Well)
}
