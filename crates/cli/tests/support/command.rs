//! The command in a separate process.

use std::process::Command;

use super::process::failpoints;

/// Returns a command that runs the program with the settings of this process's databases: the program that was built
/// with the tests, or a copy that the environment names.
pub fn loopstore() -> Command {
    let program = std::env::var_os("CARGO_BIN_EXE_loopstore");
    let built = || env!("CARGO_BIN_EXE_loopstore").into();
    with_failpoints(Command::new(program.unwrap_or_else(built)))
}

/// Enables failpoints for a command that runs the program itself.
pub fn with_failpoints(mut command: Command) -> Command {
    command.env("LOOPSTORE_BROKEN", failpoints());
    command
}
