//! The command itself, in a process of its own.

use std::process::Command;

use super::process::failpoints;

/// Returns a command that runs the program on databases as this process makes them.
pub fn loopstore() -> Command {
    with_failpoints(Command::new(env!("CARGO_BIN_EXE_loopstore")))
}

/// The same for a command that runs the program itself.
pub fn with_failpoints(mut command: Command) -> Command {
    command.env("LOOPSTORE_BROKEN", failpoints());
    command
}
