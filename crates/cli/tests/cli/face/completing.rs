//! The completions that a shell gets while a line is typed.

use std::process::Command;

use super::terminal::Terminal;
use super::{Stage, program};
use crate::support::needs;

const IDS: [&str; 5] = ["kite-1", "kite-2", "worker", "$(reboot)", "two words"];

/// Calls the program as the completion script for bash does; the last word is the incomplete one.
fn completed(stage: &Stage, words: &[&str]) -> (Vec<String>, String) {
    let mut command = Command::new(program());
    command.arg("--").arg("loopstore").args(words);
    command
        .current_dir(stage.folder())
        .env("LOOPSTORE_DB", "loopstore.db")
        .env("LOOPSTORE_COMPLETE", "bash")
        .env("_CLAP_IFS", "\n")
        .env("_CLAP_COMPLETE_INDEX", words.len().to_string());
    let output = command.output().unwrap();
    assert!(output.status.success());
    let out = String::from_utf8(output.stdout).unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    // In the place of an id there may also be an option.
    let words = out.lines().filter(|word| !word.starts_with('-'));
    (words.map(str::to_owned).collect(), said)
}

fn ids(stage: &Stage, words: &[&str]) -> Vec<String> {
    let (ids, said) = completed(stage, words);
    assert_eq!(said, "", "{words:?}");
    ids
}

#[test]
fn sessions_loops_and_runs_are_completed() {
    let stage = Stage::of(&IDS);
    assert_eq!(ids(&stage, &["show", "ki"]), ["kite-1", "kite-2"]);
    assert_eq!(ids(&stage, &["search", "x", "--session", "w"]), ["worker"]);
    assert_eq!(
        ids(&stage, &["context", "kite-1", "--loop", "k"]),
        ["kite-1.p1"]
    );
    assert_eq!(ids(&stage, &["sess"]), ["sessions"]);
    let (stage, run) = Stage::demo();
    // The compaction, and the edit.
    let runs = ids(&stage, &["undo", "demo", "--run", "0"]);
    assert!(runs.len() == 2 && runs.contains(&run), "{runs:?}");
    let moments = ids(&stage, &["context", "demo", "--as-of", ""]);
    assert_eq!(moments.len(), 6);
    assert!(moments.contains(&run) && moments.contains(&"loop-4:".to_owned()));
    let sides = ids(&stage, &["diff", "demo", "--from", ""]);
    assert!(sides.contains(&"raw".to_owned()) && sides.contains(&run));
}

#[test]
fn what_a_shell_would_read_otherwise_is_left_out() {
    let stage = Stage::of(&IDS);
    assert!(ids(&stage, &["show", "$"]).is_empty());
    assert!(ids(&stage, &["show", "two"]).is_empty());
}

#[test]
fn another_database_is_the_one_that_is_named() {
    let (here, there) = (Stage::of(&["kite-1"]), Stage::of(&["kind"]));
    let other = there.folder().join("loopstore.db");
    let other = other.to_str().unwrap();
    assert_eq!(ids(&here, &["--db", other, "show", "ki"]), ["kind"]);
    assert_eq!(ids(&here, &["show", "--db", other, "ki"]), ["kind"]);
}

#[test]
fn nothing_is_made_and_nothing_is_said_where_there_is_nothing() {
    let empty = tempfile::tempdir().unwrap();
    let stage = Stage { folder: empty };
    assert!(ids(&stage, &["show", ""]).is_empty());
    std::fs::write(stage.folder().join("text.db"), "no database at all").unwrap();
    assert!(ids(&stage, &["--db", "text.db", "show", ""]).is_empty());
    assert!(ids(&stage, &["--db", "postgres://localhost:1/none", "show", ""]).is_empty());
    assert!(ids(&stage, &["context", "nobody", "--loop", ""]).is_empty());
    let files = std::fs::read_dir(stage.folder()).unwrap().count();
    assert_eq!(files, 1, "only the one that was there");
}

#[test]
fn no_command_for_a_key_is_run() {
    let stage = Stage::of(&["kite-1"]);
    let command = ["--key-command", "touch asked", "show", ""];
    ids(&stage, &command);
    assert!(!stage.folder().join("asked").exists());
}

#[test]
fn bash_completes_an_id_at_tab() {
    if needs::missing(&needs::SCRIPT) || needs::missing(&needs::BASH) {
        return;
    }
    let stage = Stage::of(&["kite-1", "worker"]);
    let line = "PATH=$(dirname $LOOPSTORE):$PATH PS1='> ' bash --norc --noprofile -i";
    let mut terminal = Terminal::run(stage.folder(), (20, 100), line);
    terminal.wait_for(">");
    terminal.press("source <(loopstore completions bash)\n");
    terminal.press("loopstore show wo\t");
    terminal.wait_for("loopstore show worker");
    terminal.press("--js\t\nexit\n");
    let (text, _) = terminal.end();
    assert!(text.contains("\"session_id\": \"worker\""), "{text}");
}
