//! Other processes: signals to them, and tests of this program that run in a process of their own.

use std::process::{Command, Stdio};

/// Sends a process a signal, `TERM` for example.
pub fn signal(name: &str, process: impl std::fmt::Display) {
    let sent = Command::new("/bin/sh")
        .args(["-c", "kill -s \"$0\" \"$1\"", name, &process.to_string()])
        .status();
    assert!(sent.unwrap().success());
}

/// Returns true if this process runs one test alone. Any other process starts one for the test, which must
/// pass, and the caller is to end.
pub fn is_alone(name: &str) -> bool {
    const ALONE: &str = "LOOPSTORE_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    print!("{}", passed(test(name).env(ALONE, "yes")));
    false
}

/// Runs a command of [`test()`], which must pass; returns its output.
pub fn passed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}\n{errors}");
    assert!(printed.contains("1 passed"), "no such test: {printed}");
    printed
}

/// Returns a command that runs one test of this program, in a process of its own.
pub fn test(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .stdin(Stdio::null());
    command
}

/// The name of a format that no release has.
const LATER_FORMAT: &str = "later-format";

/// Returns true if the databases of this test program are in a later format, so that there is an older one to
/// migrate.
pub fn is_of_later_format() -> bool {
    let program = std::env::current_exe().unwrap();
    let name = program.file_stem().and_then(|name| name.to_str());
    name.is_some_and(|name| name == "faults" || name.starts_with("faults-"))
}

/// Returns the fault that this process is to have, and the format.
pub fn failpoints() -> String {
    let mut names: Vec<String> = std::env::var("LOOPSTORE_BROKEN").into_iter().collect();
    names.extend(is_of_later_format().then(|| LATER_FORMAT.to_owned()));
    names.join(",")
}
