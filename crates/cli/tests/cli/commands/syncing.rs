//! Two databases brought together: files, a command that leads to another `loopstore`, and kills at any moment.

use std::process::{Command, Stdio};
use std::time::Duration;

use loopstore::{Database, Message, SqliteStore, Store};
use loopstore_export::{ExportForm, export};
use loopstore_verify::verify;

use super::stage::Stage;
use crate::support::amount::{amount, is_long};
use crate::support::histories::{History, Random};
use crate::support::keyed;

fn say(stage: &Stage, file: &str, id: &str, text: &str) {
    let store = Store::from(keyed::open(stage.path(file)).unwrap());
    let chat = store.session(id).unwrap();
    chat.append([Message::user(text), Message::assistant("yes")])
        .unwrap();
}

/// Returns all sessions of a file as their lines.
fn all(store: &SqliteStore) -> Vec<String> {
    let rows = loopstore::extend::read(store, |read| read.sessions()).unwrap();
    let mut all: Vec<String> = rows
        .iter()
        .map(|row| {
            let mut out = Vec::new();
            export(store, &row.session_id, None, ExportForm::Lines, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        })
        .collect();
    all.sort();
    all
}

fn assert_same(stage: &Stage, a: &str, b: &str) {
    let [a, b] = [a, b].map(|file| keyed::open(stage.path(file)).unwrap());
    assert_eq!(all(&a), all(&b));
    for store in [&a, &b] {
        let report = verify(store as &dyn Database).unwrap();
        assert!(report.ok, "{:?}", report.problems);
    }
}

#[test]
fn sync_brings_files_together_and_says_what_it_did() {
    let stage = Stage::empty();
    say(&stage, "loopstore.db", "weather", "Will it rain?");
    say(&stage, "other.db", "dinner", "What is there?");
    let dry = stage.json("sync other.db --dry-run");
    assert_eq!(
        (&dry["sent"][0], &dry["dry_run"]),
        (&"weather".into(), &true.into())
    );
    let said = stage.say("sync other.db");
    assert_eq!(said.code, 0, "{said}");
    assert!(
        said.out.contains("Fetched: dinner\nSent: weather\n"),
        "{said}"
    );
    assert_same(&stage, "loopstore.db", "other.db");
    say(&stage, "loopstore.db", "weather", "And tomorrow?");
    say(&stage, "other.db", "weather", "And on Sunday?");
    let report = stage.json("sync other.db");
    assert_eq!(report["merged"][0]["session_id"], "weather");
    assert_same(&stage, "loopstore.db", "other.db");
    assert_eq!(stage.json("sync other.db")["unchanged"], 2);
    assert_eq!(stage.say("sync loopstore.db").code, 2);
}

#[test]
fn sync_reaches_a_database_through_any_command() {
    let stage = Stage::empty();
    say(&stage, "loopstore.db", "weather", "Will it rain?");
    let program = assert_cmd::cargo::cargo_bin("loopstore");
    let via = program.to_str().unwrap();
    let said = stage.run(&["sync", "--via", via, "there.db", "--json"]);
    assert_eq!(said.code, 0, "{said}");
    assert!(said.json()["bytes_sent"].as_u64().unwrap() > 0);
    assert_same(&stage, "loopstore.db", "there.db");
    // A command that is no loopstore, and one that fails.
    let said = stage.run(&["sync", "--via", "echo Welcome;", "there.db"]);
    assert_eq!(said.code, 1, "{said}");
    assert!(said.err.contains("Welcome"), "{said}");
    let said = stage.run(&["sync", "--via", "false", "there.db"]);
    assert!(said.err.contains("note: `false` ended with"), "{said}");
    // `--serve FILE` opens only its file.
    let via = format!("sh -c '{via} sync --serve only.db' --");
    let said = stage.run(&["sync", "--via", &via, "there.db"]);
    assert_eq!(said.code, 0, "{said}");
    assert_same(&stage, "loopstore.db", "only.db");
}

#[test]
fn a_sync_that_is_killed_at_any_moment_leaves_nothing_half() {
    let stage = Stage::empty();
    let names = ["loopstore.db", "there.db"];
    let continue_all = |round: u64| {
        for (at, name) in (0..).zip(names) {
            let store = keyed::open(stage.path(name)).unwrap();
            let mut random = Random::new(round * 2 + at);
            for session in 0..3 {
                let id = format!("{name}-{round}-{session}");
                let mut history = History::new(&store, &id);
                (0..6).for_each(|_| history.step(&mut random));
            }
        }
    };
    let program = assert_cmd::cargo::cargo_bin("loopstore");
    let kills = match is_long() {
        true => 300,
        false => amount("LOOPSTORE_SYNC_KILLS", 8),
    };
    let mut random = Random::new(1);
    for round in 0..kills {
        continue_all(round);
        say(&stage, names[0], "both", &format!("here {round}"));
        say(&stage, names[1], "both", &format!("there {round}"));
        let mut child = Command::new(&program)
            .args(["sync", "--via", program.to_str().unwrap(), "there.db"])
            .current_dir(stage.path(""))
            .env_remove("LOOPSTORE_DB")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(random.below(400)));
        // It may have ended.
        let _ = child.kill();
        child.wait().unwrap();
        for name in names {
            let store = keyed::open(stage.path(name)).unwrap();
            let report = verify(&store as &dyn Database).unwrap();
            assert!(report.ok, "{round}: {:?}", report.problems);
        }
    }
    let report = stage.json("sync there.db");
    assert_eq!(report["failed"], serde_json::json!([]));
    assert_same(&stage, names[0], names[1]);
}
