//! Agents that were set up with the promise that secrets are replaced: no hook stores one.

use super::recording::wait_for;
use super::{call, claude_code, event, logged, opencode, stage, stored};
use crate::commands::stage::Stage;

const SECRET: &str = "AKIAQ3EGTRBLWH7SXNPD";

/// True if a file of the database contains the secret.
fn is_stored(stage: &Stage) -> bool {
    let files = ["loopstore.db", "loopstore.db-wal"].map(|name| stage.path(name));
    let mut files = files.iter().filter_map(|file| std::fs::read(file).ok());
    files.any(|bytes| {
        bytes
            .windows(SECRET.len())
            .any(|found| found == SECRET.as_bytes())
    })
}

fn text() -> String {
    format!("set aws_access_key_id={SECRET}")
}

#[test]
fn hooks_that_init_installed_replace_secrets_as_its_import_did() {
    let stage = stage();
    let folder = stage.path("home/.claude/projects/-work");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("s1.jsonl"), claude_code("s1", 0..3, "please")).unwrap();
    let begun = stage.say("init --yes --install");
    assert_eq!(begun.code, 0, "{begun}");
    // A session that no import has redacted before.
    let path = folder.join("s2.jsonl");
    std::fs::write(&path, claude_code("s2", 0..3, &text())).unwrap();
    let stop = event(&path, "s2", "Stop").to_string();
    call(&stage, "claude-code", "Stop", stop.as_bytes());
    assert_eq!(stored(&stage, "s2"), 9);
    assert!(!is_stored(&stage), "the hook stored a secret");
    // A second setup without the option keeps the promise.
    assert_eq!(stage.say("install claude-code --yes").code, 0);
    std::fs::write(&path, claude_code("s2", 0..4, &text())).unwrap();
    call(&stage, "claude-code", "Stop", stop.as_bytes());
    assert_eq!(stored(&stage, "s2"), 12);
    assert!(!is_stored(&stage), "the second setup dropped the promise");
}

#[test]
fn whole_transcripts_and_sessions_of_opencode_are_redacted_too() {
    let stage = stage();
    for agent in ["claude-code", "opencode"] {
        let said = stage.say(&format!("install {agent} --redact --yes --db loopstore.db"));
        assert_eq!(said.code, 0, "{said}");
        assert!(said.out.contains("Secrets are replaced"), "{said}");
    }
    let mut export = opencode("ses_1", 2);
    export["messages"][0]["parts"][0]["text"] = text().into();
    call(
        &stage,
        "opencode",
        "session.idle",
        export.to_string().as_bytes(),
    );
    assert_eq!(
        (stored(&stage, "ses_1"), &logged(&stage)["failure"]),
        (4, &serde_json::Value::Null)
    );
    let path = stage.path("s1.jsonl");
    let large = format!("{} {}", text(), "word ".repeat(2_000));
    std::fs::write(&path, claude_code("s1", 0..150, &large)).unwrap();
    let stop = event(&path, "s1", "Stop").to_string();
    call(&stage, "claude-code", "Stop", stop.as_bytes());
    wait_for(&stage, "s1", 450);
    assert!(!is_stored(&stage));
}

#[test]
fn the_end_of_a_large_transcript_is_not_added_with_its_secrets_to_a_session_stored_before() {
    let stage = stage();
    let path = stage.path("s1.jsonl");
    std::fs::write(&path, claude_code("s1", 0..150, &"word ".repeat(2_000))).unwrap();
    assert_eq!(stage.say("import s1.jsonl").code, 0);
    assert_eq!(
        stage
            .say("install claude-code --redact --yes --db loopstore.db")
            .code,
        0
    );
    let grown =
        claude_code("s1", 0..150, &"word ".repeat(2_000)) + &claude_code("s1", 150..151, &text());
    std::fs::write(&path, grown).unwrap();
    let stop = event(&path, "s1", "Stop").to_string();
    call(&stage, "claude-code", "Stop", stop.as_bytes());
    wait_for(&stage, "s1", 453);
    assert!(!is_stored(&stage));
}
