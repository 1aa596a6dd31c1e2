//! The common part of tests that search for losses: each is shown to detect a deliberate fault, and each can
//! report the number of its trials.

use std::io::Write as _;

/// Runs one test of this program with a deliberate fault. The test must fail with this message.
#[cfg(debug_assertions)]
pub fn catches(test: &str, fault: &str, more: &[(&str, &str)], says: &str) {
    let mut command = super::process::test(test);
    command
        .env("LOOPSTORE_BROKEN", fault)
        .env("RUST_BACKTRACE", "0")
        .env_remove("LOOPSTORE_TALLY");
    command.envs(more.iter().copied());
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let output_text = text(&output.stdout) + &text(&output.stderr);
    assert!(
        output_text.contains("running 1 test"),
        "no test `{test}`: {output_text}"
    );
    assert!(
        !output.status.success(),
        "{fault} is not caught: {output_text}"
    );
    assert!(
        output_text.contains(says),
        "not for this reason: {output_text}"
    );
}

/// Builds in the fault that this process is to have.
pub fn activate() {
    #[cfg(debug_assertions)]
    loopstore::failpoints::activate(&super::process::failpoints());
}

/// Records, in the file named by `LOOPSTORE_TALLY`, that so many trials ended without a loss, a wrong answer or
/// a panic: each of these would have ended the test before. `crates/cli/tests/cli/readme.rs` makes the table of
/// the guide from it.
pub fn tally(kind: &str, trials: u64, command: &str) {
    let Some(file) = std::env::var_os("LOOPSTORE_TALLY") else {
        return;
    };
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)
        .unwrap();
    writeln!(file, "{kind}\t{trials}\t0\t0\t0\t{command}").unwrap();
}
