//! Messages about stored source files, before and after content is removed.

use serde_json::Value;

use super::commands::{json, run};
use crate::face::terminal::Terminal;
use crate::support::needs;
use crate::support::removal::*;

/// Creates a database with an imported file of three chats, the second with a secret.
fn stage() -> (Stage, Vec<String>) {
    let stage = Stage::new();
    let line = |words: &str| {
        format!(
            r#"{{"messages":[{{"role":"user","content":"{words}"}},{{"role":"assistant","content":"yes"}}]}}"#
        )
    };
    let secret = format!("the key is {}", token());
    let lines: Vec<String> = ["one", &secret, "three"].into_iter().map(line).collect();
    let path = stage.path("chats.jsonl");
    std::fs::write(&path, lines.join("\n") + "\n").unwrap();
    let report = json(&stage, &["import", path.to_str().unwrap()]);
    let ids = report["sessions"].as_array().unwrap().iter();
    let ids = ids.map(|id| id.as_str().unwrap().to_owned()).collect();
    (stage, ids)
}

#[test]
fn an_erasure_tells_before_which_files_stay_and_for_whom() {
    let (stage, ids) = stage();
    let told = json(&stage, &["erase", &ids[0], "--dry-run"]);
    assert_eq!(
        (&told["dry_run"], &told["receipt"]),
        (&Value::Bool(true), &Value::Null)
    );
    assert_eq!(told["files"][0]["goes"], false);
    assert_eq!(told["files"][0]["sessions"], serde_json::json!(ids[1..]));
    if !needs::missing(&needs::SCRIPT) {
        let line = format!("$LOOPSTORE --db loopstore.db erase {}; echo ended", ids[0]);
        let folder = stage.file().parent().unwrap().to_owned();
        let mut terminal = Terminal::run(&folder, (30, 200), &line);
        let screen = terminal.wait_for("Permanently erase session").contents();
        assert!(
            screen.contains("chats.jsonl: kept, as it also belongs to"),
            "{screen}"
        );
        assert!(screen.contains("--with-files removes it"), "{screen}");
        terminal.press("no\n");
        terminal.wait_for("nothing was removed");
    }
    let (code, out, err) = run(&stage, &["erase", &ids[0], "--yes"]);
    assert_eq!(code, 0, "{err}");
    assert!(
        out.contains(&format!("also belongs to sessions {}, {}", ids[1], ids[2])),
        "{out}"
    );
    assert!(err.contains("still contains the removed text"), "{err}");
    for id in &ids[1..] {
        let (code, _, err) = run(&stage, &["export", id, "--format", "original"]);
        assert_eq!(code, 0, "{err}");
    }
    let report = json(&stage, &["erase", &ids[1], "--yes", "--with-files"]);
    assert_eq!(
        (&report["sources"], &report["leftover"]),
        (&1.into(), &"none".into())
    );
    let (code, _, err) = run(&stage, &["export", &ids[2], "--format", "original"]);
    assert_eq!(code, 1);
    let why = format!("the erasure of session {} of ", ids[1]);
    assert!(
        err.contains(&why) && err.contains("removed it (receipt 2)"),
        "{err}"
    );
}

#[test]
fn a_redaction_is_told_before_and_takes_no_file_where_nothing_is_found() {
    let (stage, ids) = stage();
    let (code, out, _) = run(&stage, &["redact", &ids[0], "--yes"]);
    assert_eq!(
        (code, out),
        (0, format!("Found no secrets in session {}.\n", ids[0]))
    );
    let (code, _, err) = run(&stage, &["export", &ids[0], "--format", "original"]);
    assert_eq!(code, 0, "{err}");

    let (code, out, err) = run(&stage, &["redact", &ids[1], "--dry-run"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.starts_with("Would redact session "), "{out}");
    assert!(
        out.contains("github-pat 1") && out.contains(", message 0"),
        "{out}"
    );
    let told = json(&stage, &["redact", &ids[1], "--dry-run", "--with-files"]);
    assert_eq!(
        (&told["places"][0]["seq"], &told["files"][0]["goes"]),
        (&0.into(), &true.into())
    );
    assert!(stage.count(CORE.as_bytes()) > 0 || crate::support::keyed::key().is_some());

    // The file stays for the other sessions, so the command fails.
    let (code, _, err) = run(&stage, &["redact", &ids[1], "--yes"]);
    assert_eq!(code, 1);
    assert!(err.contains("still there: sources"), "{err}");
    let (_, _, err) = run(&stage, &["export", &ids[1], "--format", "original"]);
    assert!(
        err.contains("the redaction of ") && err.contains("removed it"),
        "{err}"
    );
    let report = json(&stage, &["erase", &ids[1], "--yes"]);
    assert_eq!(report["files"], serde_json::json!([]));
}
