//! The program `loopstore`: all that it does is in the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(loopstore_cli::run(std::env::args_os().collect()))
}
