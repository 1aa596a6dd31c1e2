//! `init`: the first command.

use std::fs::File;
use std::time::{Duration, SystemTime};

use insta::assert_snapshot;

use crate::commands::stage::Stage;

const SECRET: &str = "AKIAQ3EGTRBLWH7SXNPD";

/// Creates a home with a transcript of Claude Code that was last changed 27 days ago.
fn home() -> Stage {
    let stage = Stage::empty();
    let projects = stage.path("home/.claude/projects/-work-lamp");
    std::fs::create_dir_all(&projects).unwrap();
    let record = |number: usize, kind: &str, text: &str| {
        let parent = number.checked_sub(1).map(|parent| format!("u{parent}"));
        let message = serde_json::json!({"role": kind, "content": text});
        serde_json::json!({"sessionId": "s1", "uuid": format!("u{number}"), "parentUuid": parent,
            "cwd": "/work/lamp", "timestamp": "2026-01-02T03:04:05Z", "type": kind, "message": message})
        .to_string()
            + "\n"
    };
    let text = record(
        0,
        "user",
        &format!("The flickering lamp: aws_access_key_id={SECRET}"),
    ) + &record(1, "assistant", "The relay bounces.");
    let transcript = projects.join("s1.jsonl");
    std::fs::write(&transcript, text).unwrap();
    let day = Duration::from_secs(24 * 3600);
    let file = File::options().write(true).open(transcript).unwrap();
    file.set_modified(SystemTime::now() - day * 27).unwrap();
    stage
}

#[test]
fn transcripts_are_found_imported_without_secrets_and_searched() {
    let stage = home();
    assert_snapshot!(stage.say("init --dry-run"), @"");
    assert!(!stage.path("loopstore.db").exists(), "only shown");
    let first = stage.say("init --yes");
    assert_snapshot!(first, @"");
    let bytes = std::fs::read(stage.path("loopstore.db")).unwrap();
    let is_there = bytes
        .windows(SECRET.len())
        .any(|found| found == SECRET.as_bytes());
    assert!(!is_there, "the secret is stored");
    let again = stage.json("init --yes");
    assert_eq!(again["imported"]["added_messages"], 0);
    assert_eq!(again["imported"]["unchanged"], 1);
    assert_eq!(again["redacted"], true);
    assert_eq!(again["agents"][0]["oldest_deleted_in_days"], 3);
    assert_eq!(again["search"]["hits"][0]["session_id"], "s1");
    assert_eq!(again["not_installed"][0], "claude-code");
}

#[test]
fn nothing_is_imported_without_a_yes_and_nothing_found_is_an_error() {
    let stage = home();
    let refused = stage.say("init");
    assert_eq!(refused.code, 2, "{refused}");
    assert!(refused.err.contains("--yes"), "{refused}");
    assert!(!stage.path("loopstore.db").exists());
    let other = stage.say("init --agent codex --yes");
    assert_snapshot!(other, @"");
    let empty = Stage::empty();
    assert_snapshot!(empty.say("init --yes --json"), @"");
}

#[test]
fn agents_are_set_up_only_when_asked_for() {
    let stage = home();
    let settings = stage.path("home/.claude/settings.json");
    stage.say("init --yes");
    assert!(!settings.exists());
    let kept = stage.say("init --yes --install --no-redact");
    assert_eq!(kept.code, 0, "{kept}");
    assert!(
        std::fs::read_to_string(&settings)
            .unwrap()
            .contains("hook claude-code")
    );
    let refused = stage.say("init --yes --install --json");
    assert_eq!(refused.code, 2, "{refused}");
}
