//! The removing commands: their questions, output and refusals.

use assert_cmd::Command;
use loopstore::LoopStatus;
use loopstore::extend::{self as store, append};
use serde_json::Value;

use crate::support::removal::*;

pub fn run(stage: &Stage, args: &[&str]) -> (i32, String, String) {
    let mut command = Command::cargo_bin("loopstore").unwrap();
    let output = command
        .args(args)
        .arg("--db")
        .arg(stage.file())
        .write_stdin("yes\n")
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

pub fn json(stage: &Stage, args: &[&str]) -> Value {
    let (code, out, err) = run(stage, &[args, &["--json"]].concat());
    assert_eq!(code, 0, "{err}");
    serde_json::from_str(&out).unwrap()
}

fn stage() -> Stage {
    let stage = Stage::new();
    let store = stage.store();
    tell(&store, "session-with-it", &token());
    plain(&store, "other");
    let ended = |write: &mut dyn store::StoreWrite| {
        let key = write.session(&session("other"))?.unwrap().key;
        for row in write.loops(key)? {
            append::set_status(write, row.key, LoopStatus::Completed)?;
        }
        Ok(())
    };
    store::write(&store, ended).unwrap();
    stage
}

#[test]
fn without_a_terminal_yes_must_be_said() {
    let stage = stage();
    for args in [
        &["erase", "other"][..],
        &["redact", "other"],
        &["prune", "--keep-last", "0"],
    ] {
        let (code, _, err) = run(&stage, args);
        assert_eq!(code, 2, "{args:?}: {err}");
        assert!(err.contains("add --yes"), "{err}");
    }
    assert_eq!(
        number(&stage.store(), "SELECT count(*) AS n FROM sessions"),
        2
    );
}

#[test]
fn redact_and_erase_tell_what_they_did() {
    let stage = stage();
    let told = json(&stage, &["redact", "session", "--yes"]);
    assert_eq!(told["session_id"], "session-with-it");
    assert!(
        told["secrets"]["github-pat"].as_u64().unwrap() > 20,
        "{told}"
    );
    let (_, out, _) = run(&stage, &["redact", "session-with-it", "-y"]);
    assert_eq!(out, "Found no secrets in session session-with-it.\n");
    let (_, out, _) = run(
        &stage,
        &["erase", "session-with-it", "-y", "--reason", "old"],
    );
    assert!(
        out.starts_with("Erased session session-with-it (receipt 2).\n2 loops, "),
        "{out}"
    );
    let again = json(&stage, &["erase", "session-with-it", "-y"]);
    assert_eq!(again["was_erased"], true);
    assert_eq!(json(&stage, &["verify"])["ok"], true);
}

#[test]
fn a_protected_session_stays_and_a_dry_run_changes_nothing() {
    let stage = stage();
    assert!(json(&stage, &["protect", "other"])["protected_at"].is_string());
    let all = ["prune", "--keep-last", "0"];
    let told = json(&stage, &[&all[..], &["--dry-run"]].concat());
    assert_eq!(told["dry_run"], true);
    assert_eq!(told["kept"][0]["session_id"], "session-with-it", "{told}");
    assert_eq!(told["kept"][0]["why"], "open");
    assert_eq!(told["kept"][1]["why"], "protected");
    assert!(json(&stage, &["protect", "other", "--off"])["protected_at"].is_null());
}

#[test]
fn what_makes_no_sense_is_refused() {
    let stage = stage();
    for args in [
        &["prune"][..],
        &["prune", "--dry-run"],
        &["prune", "--older-than", "30"],
        &["prune", "--older-than", "-3d"],
        &["prune", "--older-than", "99999999999999999999d"],
        &["prune", "--keep-last", "-1"],
        &["prune", "--keep-last", "99999999999999999999999"],
        &["erase"],
        &["erase", "a", "b", "--yes"],
    ] {
        let (code, _, err) = run(&stage, args);
        assert_eq!(code, 2, "{args:?}: {err}");
    }
    for id in ["nobody", "x'; DROP TABLE sessions; --", "%", "\u{1b}[31m"] {
        for command in ["erase", "redact"] {
            let (code, _, err) = run(&stage, &[command, id, "--yes"]);
            assert_eq!(code, 1, "{id}: {err}");
            assert!(
                err.contains("no session") && !err.contains('\u{1b}'),
                "{err}"
            );
        }
    }
    assert_eq!(json(&stage, &["verify"])["ok"], true);
}

#[test]
fn a_hidden_session_is_in_no_list_and_comes_back() {
    let stage = stage();
    let told = json(&stage, &["hide", "other"]);
    assert_eq!(told["session_id"], "other");
    let hidden = told["hidden_as"].as_str().unwrap().to_owned();
    let listed = |args: &[&str]| {
        let rows = json(&stage, args);
        let ids = rows.as_array().unwrap().iter();
        ids.map(|row| row["session_id"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(listed(&["sessions"]), ["session-with-it"]);
    assert_eq!(listed(&["sessions", "--hidden"]), [hidden.as_str()]);
    // These commands need the whole id.
    for args in [&["show", "other"], &["hide", "other"], &["unhide", "oth"]] {
        let (code, _, err) = run(&stage, args);
        assert!(code == 1 && err.contains("no session"), "{args:?}: {err}");
    }
    assert_eq!(
        json(&stage, &["show", &hidden])["session_id"],
        hidden.as_str()
    );
    let (code, _, err) = run(&stage, &["hide", &hidden]);
    assert!(code == 1 && err.contains("hidden already"), "{err}");
    let (code, _, err) = run(&stage, &["unhide", "other", "--as", "session-with-it"]);
    assert!(code == 1 && err.contains("session-with-it"), "{err}");
    let (code, _, err) = run(&stage, &["unhide", "other", "--as", ""]);
    assert!(code == 2 && err.contains("--as"), "{err}");
    assert_eq!(json(&stage, &["unhide", "other"])["session_id"], "other");
    let (code, _, err) = run(&stage, &["unhide", "other"]);
    assert!(code == 1 && err.contains("not hidden"), "{err}");
    let mut all = listed(&["sessions"]);
    all.sort();
    assert_eq!(all, ["other", "session-with-it"]);
    assert_eq!(json(&stage, &["verify"])["ok"], true);
}
