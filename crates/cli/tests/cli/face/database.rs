//! The database of a command that names none.

use std::path::Path;
use std::process::{Command, Output};

use super::program;

struct Home {
    folder: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("work/deep")).unwrap();
        std::fs::create_dir_all(folder.path().join("home")).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the command in one of the folders.
    fn command(&self, folder: &str, line: &str) -> Command {
        let mut command = Command::new(program());
        command
            .args(line.split(' '))
            .current_dir(self.path(folder))
            .env("HOME", self.path("home"))
            .env_remove("XDG_DATA_HOME")
            .env_remove("LOOPSTORE_DB")
            .env_remove("LOOPSTORE_CONFIG");
        command
    }

    fn run(&self, folder: &str, line: &str) -> Output {
        self.command(folder, line).output().unwrap()
    }

    /// Appends a prompt to a new session.
    fn append(&self, folder: &str, options: &str, session: &str) -> Output {
        let prompt = self.path("prompt.jsonl");
        std::fs::write(&prompt, r#"{"role":"user","content":"Will it rain?"}"#).unwrap();
        let mut command = self.command(folder, &format!("append {session}{options}"));
        command.stdin(std::fs::File::open(prompt).unwrap());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output
    }

    /// Returns the ids of the sessions that a command sees.
    fn sessions(&self, folder: &str) -> Vec<String> {
        let output = self.run(folder, "sessions --json");
        assert!(output.status.success(), "{output:?}");
        let rows: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let id = |row: &serde_json::Value| row["session_id"].as_str().unwrap().to_owned();
        rows.as_array().unwrap().iter().map(id).collect()
    }
}

fn said(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

#[test]
fn the_user_has_one_database_in_every_folder() {
    let home = Home::new();
    let begun = home.append("work", "", "first");
    let own = home.path("home/.local/share/loopstore/loopstore.db");
    assert!(own.is_file());
    assert!(said(&begun).contains(own.to_str().unwrap()), "{begun:?}");
    // Only the command that creates it says where it is.
    assert_eq!(said(&home.append("work/deep", "", "second")), "");
    for folder in ["work", "work/deep", "home"] {
        let mut found = home.sessions(folder);
        found.sort();
        assert_eq!(found, ["first", "second"], "{folder}");
    }
}

#[test]
fn a_database_in_a_folder_above_comes_first() {
    let home = Home::new();
    home.append("work", "", "of-the-user");
    home.append("work", " --db loopstore.db", "of-the-project");
    for folder in ["work", "work/deep"] {
        assert_eq!(home.sessions(folder), ["of-the-project"], "{folder}");
    }
    assert_eq!(home.sessions("home"), ["of-the-user"]);
    home.append("work/deep", " --db loopstore.db", "nearest");
    assert_eq!(home.sessions("work/deep"), ["nearest"]);
}

#[test]
fn a_variable_comes_before_what_is_found() {
    let home = Home::new();
    home.append("work", " --db loopstore.db", "found");
    home.append("work", " --db other.db", "named");
    let mut command = home.command("work", "sessions --json");
    let output = command.env("LOOPSTORE_DB", "other.db").output().unwrap();
    assert!(
        String::from_utf8(output.stdout)
            .unwrap()
            .contains("\"named\"")
    );
    // An empty variable is none.
    let mut command = home.command("work", "sessions --json");
    let output = command.env("LOOPSTORE_DB", "").output().unwrap();
    assert!(
        String::from_utf8(output.stdout)
            .unwrap()
            .contains("\"found\"")
    );
}

#[test]
fn without_a_home_the_database_is_in_the_current_folder() {
    let home = Home::new();
    let prompt = home.path("prompt.jsonl");
    std::fs::write(&prompt, r#"{"role":"user","content":"Will it rain?"}"#).unwrap();
    let mut command = home.command("work", "append alone");
    command
        .env_remove("HOME")
        .stdin(std::fs::File::open(prompt).unwrap());
    assert!(command.output().unwrap().status.success());
    assert!(Path::is_file(&home.path("work/loopstore.db")));
}

#[test]
fn a_missing_database_is_named_with_a_way_out() {
    let home = Home::new();
    let output = home.run("work", "show nothing");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said(&output).contains("home/.local/share/loopstore/loopstore.db"),
        "{output:?}"
    );
    assert!(
        !home.path("home/.local").exists(),
        "a command that reads creates nothing"
    );
}
