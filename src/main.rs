//! The command line. The library computes; what is here and in `cli` talks.

#![forbid(unsafe_code)]

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
