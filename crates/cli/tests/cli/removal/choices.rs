//! The options that select which of the found secrets are replaced.

use assert_cmd::Command;
use serde_json::Value;

use super::commands::{json, run};
use crate::support::histories::{History, answer, user};
use crate::support::removal::*;

const PASSWORD: &str = "QuietRiverStone";
const PATH: &str = "crates/server9/src/auth2/token_store4.rs";

fn stage() -> Stage {
    let stage = Stage::new();
    let store = stage.store();
    let history = History::new(&store, "s");
    let text = format!(
        "DB_PASSWORD={PASSWORD} with {} by the password: {PATH}",
        token()
    );
    history.append(0, vec![user(&text, 0), answer("yes", &[], 0)]);
    stage
}

/// Returns true for each of the password, the token and the path that is still stored.
fn still_stored(stage: &Stage) -> [bool; 3] {
    let store = stage.store();
    [PASSWORD, CORE, PATH].map(|text| {
        let sql = format!("SELECT count(*) AS n FROM messages WHERE coalesce(head, '') || coalesce(body, '') LIKE '%{text}%'");
        number(&store, &sql) > 0
    })
}

fn review(stage: &Stage, answers: &str) -> (i32, String, String) {
    let mut command = Command::cargo_bin("loopstore").unwrap();
    let output = command
        .args(["redact", "s", "--review", "--db"])
        .arg(stage.file())
        .write_stdin(answers.to_owned())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn a_dry_run_lists_what_is_replaced_and_what_is_only_reported() {
    let stage = stage();
    let (code, out, _) = run(&stage, &["redact", "s", "--dry-run"]);
    assert_eq!(code, 0);
    for part in [
        "Would redact session s: 1 message",
        "github-pat (high) ghp_…j5, 40 characters, 1 time: loop loop-0, message 0, id ",
        "password (medium) Q…e, 15 characters",
        "1 possible secret of low confidence",
        "password (low) crat…rs, 40 characters",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    assert!(
        ![PASSWORD, CORE, PATH].iter().any(|text| out.contains(text)),
        "{out}"
    );
    let told = json(&stage, &["redact", "s", "--dry-run"]);
    assert_eq!(told["findings"].as_array().unwrap().len(), 3);
    assert_eq!(told["findings"][0]["places"][0]["seq"], 0);
    assert_eq!(still_stored(&stage), [true; 3]);
}

#[test]
fn options_allow_restrict_and_extend() {
    let stage_with = |args: &[&str]| {
        let stage = stage();
        let (code, _, err) = run(&stage, &[&["redact", "s", "--yes"], args].concat());
        assert_eq!(code, 0, "{err}");
        still_stored(&stage)
    };
    assert_eq!(stage_with(&[]), [false, false, true]);
    assert_eq!(stage_with(&["--allow", PASSWORD]), [true, false, true]);
    assert_eq!(stage_with(&["--only", "password"]), [false, true, true]);
    assert_eq!(stage_with(&["--min-confidence", "low"]), [false; 3]);
    assert_eq!(
        stage_with(&["--min-confidence", "high"]),
        [true, false, true]
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("# known\n{PASSWORD}\n{}\n", token())).unwrap();
    let path = file.path().to_str().unwrap();
    assert_eq!(stage_with(&["--allow-file", path]), [true; 3]);
    let stage = stage();
    for (args, hint) in [
        (["--only", "pasword"], "did you mean `password`?"),
        (["--only", "zzzzzz"], "--dry-run"),
        (
            ["--allow-file", "/nowhere/file"],
            "cannot read /nowhere/file",
        ),
        (["--min-confidence", "certain"], "medium"),
    ] {
        let (code, _, err) = run(&stage, &[&["redact", "s", "--yes"], &args[..]].concat());
        assert!(code == 2 && err.contains(hint), "{args:?}: {err}");
    }
}

#[test]
fn a_review_replaces_what_was_chosen() {
    let stage = stage();
    // Nothing is replaced if the answers end early or the user quits.
    for answers in ["", "y\n", "y\nq\n", "n\nn\nn\n"] {
        let (code, _, err) = review(&stage, answers);
        assert!(code == 0 && err.contains("nothing was replaced"), "{err}");
        assert_eq!(still_stored(&stage), [true; 3], "{answers:?}");
    }
    // The token stays; the password and the path, which has a low confidence, are replaced.
    let (code, _, err) = review(&stage, "n\nwhat\ny\na\n");
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("1 of 3") && err.contains("3 of 3"), "{err}");
    assert_eq!(still_stored(&stage), [false, true, false]);
    let (code, _, err) = run(&stage, &["redact", "s", "--review", "--yes"]);
    assert_eq!(code, 2, "{err}");
}

#[test]
fn an_import_takes_them_too() {
    let stage = Stage::new();
    let chat = format!(
        r#"[{{"role":"user","content":"DB_PASSWORD={PASSWORD} {} the password: {PATH}"}},
        {{"role":"assistant","content":"ok"}}]"#,
        token()
    );
    let file = stage.path("chat.json");
    std::fs::write(&file, chat).unwrap();
    let file = file.to_str().unwrap();
    let told: Value = json(&stage, &["import", file, "--redact", "--allow", PASSWORD]);
    assert_eq!(told["secrets"]["github-pat"], 1);
    assert_eq!(told["held_back"]["password"], 1);
    assert_eq!(still_stored(&stage), [true, false, true]);
}
