//! `loopstore browse` without a terminal. The tests of the screens are in `crates/browse`.

use assert_cmd::Command;
use loopstore::SqliteStore;

fn browse(arguments: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    drop(SqliteStore::open(folder.path().join("loopstore.db")).unwrap());
    let mut command = Command::cargo_bin("loopstore").unwrap();
    command.arg("browse").args(arguments);
    command
        .current_dir(folder.path())
        .env("LOOPSTORE_DB", "loopstore.db");
    let output = command.output().unwrap();
    assert!(!output.stdout.contains(&0x1b), "nothing may steer a pipe");
    let code = output.status.code().unwrap();
    format!("{}exit {code}", String::from_utf8(output.stderr).unwrap())
}

#[test]
fn without_a_terminal_it_names_what_prints_the_same() {
    insta::assert_snapshot!(browse(&[]), @r"
    error: `browse` needs a terminal for input and output
    hint: `loopstore sessions` and `loopstore show SESSION` print the same
    exit 1
    ");
    insta::assert_snapshot!(browse(&["--json"]), @r"
    error: `browse` does not support --json; use `loopstore show SESSION --json`
    exit 2
    ");
}
