//! The sources of the encryption key, and the errors for a wrong one.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use loopstore::{Key, OpenError, SqliteStore};

use crate::support::command::loopstore;
use crate::support::encryption::{fill, key, options};

const SECRET: &str = "open 'sesame'; --";

fn opened(path: &Path, key: Option<&Key>) -> Result<SqliteStore, OpenError> {
    let options = match key {
        Some(key) => options().create(false).key(key.clone()),
        None => options().create(false),
    };
    SqliteStore::open_with(path, options)
}

fn secret() -> Key {
    Key::parse(SECRET.into()).unwrap()
}

#[test]
fn what_is_wrong_with_a_key_is_said_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let (plain, locked) = (
        folder.path().join("plain.db"),
        folder.path().join("locked.db"),
    );
    fill(&SqliteStore::open_with(&plain, options()).unwrap(), "s");
    fill(
        &SqliteStore::open_with(&locked, options().key(key())).unwrap(),
        "s",
    );
    let before = (
        std::fs::read(&plain).unwrap(),
        std::fs::read(&locked).unwrap(),
    );

    let wrong = opened(&locked, Some(&secret())).err().unwrap();
    assert!(matches!(wrong, OpenError::WrongKey { .. }), "{wrong}");
    let missing = opened(&locked, None).err().unwrap();
    assert!(matches!(missing, OpenError::KeyMissing { .. }), "{missing}");
    let needless = opened(&plain, Some(&key())).err().unwrap();
    assert!(
        matches!(needless, OpenError::NotEncrypted { .. }),
        "{needless}"
    );
    for error in [wrong, missing, needless] {
        assert!(!format!("{error} {error:?}").contains("sesame"));
    }

    assert_eq!(
        before,
        (
            std::fs::read(&plain).unwrap(),
            std::fs::read(&locked).unwrap()
        )
    );
    opened(&plain, None).unwrap();
    opened(&locked, Some(&key())).unwrap();
}

#[test]
fn a_passphrase_may_hold_anything() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.db");
    fill(
        &SqliteStore::open_with(&path, options().key(secret())).unwrap(),
        "s",
    );
    opened(&path, Some(&secret())).unwrap();
    let other = Key::parse(b"open 'sesame".to_vec()).unwrap();
    assert!(opened(&path, Some(&other)).is_err());
}

/// Returns a command that runs the program in a folder, without a key in its environment.
fn program(folder: &Path, args: &[&str]) -> Command {
    let mut command = loopstore();
    command
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::null())
        .env("LOOPSTORE_DB", "loopstore.db")
        .env_remove("LOOPSTORE_KEY_ENV")
        .env_remove("LOOPSTORE_KEY_COMMAND");
    command
}

fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(!said.contains("sesame"), "{said}");
    said
}

fn ends_well(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    said(&output)
}

fn ends_badly(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(!output.status.success(), "{}", said(&output));
    said(&output)
}

/// Creates a folder with a database `loopstore.db` that this key encrypts, and a file with the key.
fn folder(key: &str) -> tempfile::TempDir {
    let parsed = Key::parse(key.into()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("loopstore.db");
    fill(
        &SqliteStore::open_with(path, options().key(parsed)).unwrap(),
        "s",
    );
    std::fs::write(folder.path().join("key"), format!("{key}\n")).unwrap();
    folder
}

#[test]
fn the_key_comes_from_a_descriptor_a_variable_or_a_command() {
    let folder = folder(SECRET);
    let at = folder.path();
    let file = std::fs::File::open(at.join("key")).unwrap();
    let by_descriptor = ["--key-fd", "0", "verify"];
    ends_well(program(at, &by_descriptor).stdin(OwnedFd::from(file)));
    ends_well(program(at, &["verify", "--key-env", "MINE"]).env("MINE", SECRET));
    ends_well(&mut program(at, &["--key-command", "cat key", "verify"]));
    ends_well(
        program(at, &["verify"])
            .env("LOOPSTORE_KEY_ENV", "MINE")
            .env("MINE", SECRET),
    );
    ends_well(program(at, &["verify"]).env("LOOPSTORE_KEY_COMMAND", "cat key"));
}

#[test]
fn every_way_out_of_the_database_takes_the_key() {
    let folder = folder(&"5c".repeat(32));
    let at = folder.path();
    let keyed = |line: &str| {
        let args: Vec<&str> = line.split(' ').collect();
        ends_well(program(at, &args).env("LOOPSTORE_KEY_COMMAND", "cat key"))
    };
    keyed("backup copy.db");
    keyed("backup compact.db --compact");
    keyed("verify --salvage salvaged.db");
    keyed("report s -o page.html");
    keyed("demo --keep demo.db");
    for copy in ["copy.db", "compact.db", "salvaged.db", "demo.db"] {
        let refused = ends_badly(&mut program(at, &["--db", copy, "sessions"]));
        assert!(refused.contains("a key is needed"), "{refused}");
        keyed(&format!("--db {copy} verify"));
    }
}

#[test]
fn errors_name_the_remedy_and_not_the_key() {
    let folder = folder(SECRET);
    let at = folder.path();
    drop(SqliteStore::open(at.join("plain.db")).unwrap());
    insta::assert_snapshot!(ends_badly(&mut program(at, &["sessions"])), @r"
    error: loopstore.db: this is an encrypted database, or none at all; a key is needed to tell
    hint: give the key with --key-fd, --key-env or --key-command
    ");
    let mut wrong = program(at, &["--key-env", "MINE", "sessions"]);
    insta::assert_snapshot!(ends_badly(wrong.env("MINE", "sesame 2")), @r"
    error: loopstore.db: wrong key; or this is not a database, or its first page is damaged
    hint: check the key; nothing can be read without the right one
    ");
    let mut needless = program(
        at,
        &["--key-command", "cat key", "--db", "plain.db", "sessions"],
    );
    insta::assert_snapshot!(ends_badly(&mut needless), @r"
    error: plain.db: this database is not encrypted; open it without a key
    hint: omit --key-fd, --key-env and --key-command, and unset LOOPSTORE_KEY_ENV and LOOPSTORE_KEY_COMMAND
    ");
    // The value of `--key-env` is the key itself instead of a variable's name.
    insta::assert_snapshot!(ends_badly(&mut program(at, &["--key-env", SECRET, "sessions"])), @"error: the environment variable for the key is not set");
    insta::assert_snapshot!(ends_badly(&mut program(at, &["--key-fd", SECRET, "sessions"])), @"error: --key-fd expects a number");
    insta::assert_snapshot!(ends_badly(&mut program(at, &["--key-fd", "77", "sessions"])), @"error: cannot read a key from file descriptor 77: No such file or directory (os error 2)");
    let failing = ["--key-command", "cat key; exit 4", "sessions"];
    insta::assert_snapshot!(ends_badly(&mut program(at, &failing)), @"error: the key command failed (exit status: 4)");
    let empty = ["--key-command", "true", "sessions"];
    insta::assert_snapshot!(ends_badly(&mut program(at, &empty)), @"error: the key is empty");
}
