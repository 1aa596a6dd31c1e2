//! The command line at a terminal: completions, messages for mistyped ids, the pager, and `browse`, the last two in a
//! pseudo-terminal.

#[cfg(feature = "browse")]
mod browsing;
mod completing;
mod database;
mod mistyped;
mod paging;
mod parts;
pub mod terminal;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::keyed;
use loopstore::extend::append::append;
use loopstore::extend::session::{create_loop, create_session};
use loopstore::extend::write;
use loopstore::*;

/// A folder with a database.
pub struct Stage {
    folder: tempfile::TempDir,
}

impl Stage {
    /// Creates a folder with a database of sessions, each with one loop of one turn.
    pub fn of(ids: &[&str]) -> Self {
        let stage = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        let store = keyed::open(stage.folder().join("loopstore.db")).unwrap();
        ids.iter().for_each(|id| record(&store, id));
        stage
    }

    /// Creates a folder with the session of the demonstration, and returns the id of its newest run.
    pub fn demo() -> (Self, String) {
        let stage = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        assert!(
            stage
                .run(&["demo", "--keep", "loopstore.db"])
                .status
                .success()
        );
        let runs = stage.run(&["history", "--json"]).stdout;
        let runs: serde_json::Value = serde_json::from_slice(&runs).unwrap();
        let run = runs[0]["run_id"].as_str().unwrap().to_owned();
        (stage, run)
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs the program in the folder.
    pub fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(program());
        command.args(arguments).current_dir(self.folder());
        command
            .env("LOOPSTORE_DB", "loopstore.db")
            .output()
            .unwrap()
    }

    /// Runs a line that must fail, and returns its message.
    pub fn refused(&self, line: &str) -> String {
        let output = self.run(&line.split(' ').collect::<Vec<_>>());
        assert!(!output.status.success() && output.stdout.is_empty());
        String::from_utf8(output.stderr).unwrap()
    }
}

/// Returns the path of the program.
pub fn program() -> PathBuf {
    assert_cmd::cargo::cargo_bin("loopstore")
}

fn record(store: &SqliteStore, id: &str) {
    let session = Session::new(SessionId::new(id).unwrap(), "agent");
    write(store, |write| {
        let key = create_session(write, &session, Some(format!("About {id}")), None)?;
        let record = LoopRecord::new(LoopId::new(format!("{id}.p1")).unwrap(), None);
        let loop_key = create_loop(write, key, &record)?;
        let said = AgentMessage::from(Message::user("Will it rain?"));
        append(write, loop_key, vec![said.into()], &HeuristicTokenCounter)
    })
    .unwrap();
}
