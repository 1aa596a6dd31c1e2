//! The program `loopstore`; its code is in the library of this crate.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(loopstore_cli::run(std::env::args_os().collect()))
}
