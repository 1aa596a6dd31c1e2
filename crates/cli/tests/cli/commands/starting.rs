//! `init`: the first command.

use std::fs::File;
use std::time::{Duration, SystemTime};

use insta::assert_snapshot;

use crate::commands::stage::{AGENTS_HOMES, Stage};
use crate::face::terminal::Terminal;

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
    let answer = format!("The relay bounces. The key was aws_access_key_id={SECRET}");
    let text = record(0, "user", "The flickering lamp") + &record(1, "assistant", &answer);
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
    assert_snapshot!(stage.say("init --dry-run"), @r#"
    claude-code       1 transcript   410 bytes  FOLDER/home/.claude/projects
                 deletes transcripts 30 days after their last change, the oldest in 3 days
    Secrets are replaced with markers before anything is stored, and the transcripts themselves are not stored (--no-redact stores both).
    "#);
    assert!(!stage.path("loopstore.db").exists(), "only shown");
    let first = stage.say("init --yes");
    assert_snapshot!(first, @r#"
    claude-code       1 transcript   410 bytes  FOLDER/home/.claude/projects
                 deletes transcripts 30 days after their last change, the oldest in 3 days
    Secrets are replaced with markers before anything is stored, and the transcripts themselves are not stored (--no-redact stores both).
    Imported 1 file: 1 session, 2 new messages (N s).
    The file holds 1 loop, 1 turn and 2 messages.
    1 secret replaced: aws-access-key 1
    session s1

    All of it can be searched: loopstore search flickering

    s1, The flickering lamp, lamp, 2026-01-02
      user, 2026-01-02 03:04:05
        The «flickering» lamp
        loopstore read s1 --turn u0:0

    1 message, 0 of them not in the context.

    loopstore read @ reads the newest session, loopstore sessions lists all.
    loopstore install claude-code --redact records claude-code from now on.
    "#);
    let bytes = std::fs::read(stage.path("loopstore.db")).unwrap();
    let is_there = bytes
        .windows(SECRET.len())
        .any(|found| found == SECRET.as_bytes());
    assert!(!is_there, "the secret is stored");
    let again = stage.json("init --yes");
    assert_eq!(again["imported"]["added_messages"], 0);
    // The names of imported files are not remembered beside an encrypted database.
    let is_plain = crate::support::keyed::key().is_none();
    assert_eq!(again["imported"]["unchanged"] == 1, is_plain);
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
    assert_snapshot!(other, @r#"
    --- stderr
    error: no transcripts of codex found; `loopstore import PATH` imports those of another folder, `loopstore install AGENT` records from now on
    --- exit 1
    "#);
    let empty = Stage::empty();
    assert_snapshot!(empty.say("init --yes --json"), @r#"
    {
      "error": "no transcripts of any agent in its usual folder found; `loopstore import PATH` imports those of another folder, `loopstore install AGENT` records from now on",
      "hint": null,
      "code": 1
    }
    --- stderr
    error: no transcripts of any agent in its usual folder found; `loopstore import PATH` imports those of another folder, `loopstore install AGENT` records from now on
    --- exit 1
    "#);
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
    let typo = stage.say("init --yes --agent claude-code --agent claud");
    assert_eq!(typo.code, 2, "{typo}");
    let other = stage.say("init --dry-run --agent claude-code --agent codex");
    assert!(other.err.contains("no transcripts of codex"), "{other}");
    assert_eq!(
        stage.json("init --yes --reread")["imported"]["unchanged"],
        serde_json::Value::Null
    );
    let refused = stage.say("init --yes --install --json");
    assert_eq!(refused.code, 2, "{refused}");
}

#[test]
fn a_failed_import_leaves_no_database_and_a_failed_setup_is_no_success() {
    let stage = home();
    let settings = stage.path("home/.claude/settings.json");
    std::fs::write(&settings, "{ broken").unwrap();
    let failed = stage.say("init --yes --install");
    assert_eq!(failed.code, 1, "{failed}");
    assert!(failed.err.contains("claude-code is not set up"), "{failed}");
    let stage = home();
    std::fs::write(
        stage.path("home/.claude/projects/-work-lamp/s1.jsonl"),
        "no transcript\n",
    )
    .unwrap();
    let failed = stage.say("init --yes");
    assert_eq!(failed.code, 1, "{failed}");
    assert!(!stage.path("loopstore.db").exists(), "{failed}");
}

#[test]
fn what_the_import_left_out_is_listed() {
    let stage = home();
    let transcript = stage.path("home/.claude/projects/-work-lamp/s1.jsonl");
    let text = std::fs::read_to_string(&transcript).unwrap();
    std::fs::write(&transcript, text + "{\"type\": \n").unwrap();
    let said = stage.say("init --yes");
    assert!(
        said.err.contains("skipped: ") && said.err.contains("s1.jsonl:3"),
        "{said}"
    );
}

#[test]
fn a_deleted_transcript_is_put_back_from_the_stored_copy_and_none_is_replaced() {
    let stage = home();
    let transcript = stage.path("home/.claude/projects/-work-lamp/s1.jsonl");
    let bytes = std::fs::read(&transcript).unwrap();
    stage.say("init --yes --no-redact");
    let refused = stage.say("restore-transcript s1");
    assert_eq!(refused.code, 1);
    assert!(refused.err.contains("is not replaced"), "{refused}");
    std::fs::remove_dir_all(stage.path("home/.claude/projects")).unwrap();
    let unconfirmed = stage.say("restore-transcript s1");
    assert_eq!(unconfirmed.code, 2, "{unconfirmed}");
    assert!(
        unconfirmed.err.contains("--yes") && !transcript.exists(),
        "the path in the database is no consent: {unconfirmed}"
    );
    assert_snapshot!(stage.say("restore-transcript s1 --yes"), @r#"
    Wrote 410 bytes to FOLDER/home/.claude/projects/-work-lamp/s1.jsonl.
    "#);
    assert_eq!(std::fs::read(&transcript).unwrap(), bytes);
    assert_eq!(
        stage.json("restore-transcript s1 -o other/copy.jsonl")["file"],
        "other/copy.jsonl"
    );
    assert_eq!(
        std::fs::read(stage.path("other/copy.jsonl")).unwrap(),
        bytes
    );
    // SQLite would apply the log of another state to the restored file.
    for log in ["chat.db-wal", "chat.db-journal"] {
        std::fs::write(stage.path(log), "frames").unwrap();
        let refused = stage.say("restore-transcript s1 -o chat.db");
        assert_eq!(refused.code, 1, "{refused}");
        assert!(
            refused.err.contains(log) && !stage.path("chat.db").exists(),
            "{refused}"
        );
        std::fs::remove_file(stage.path(log)).unwrap();
    }
    // A redacted import stores no copy.
    let redacted = home();
    redacted.say("init --yes");
    let missing = redacted.say("restore-transcript s1 -o copy.jsonl");
    assert_eq!(missing.code, 1);
    assert!(
        missing.err.contains("--redact") && !redacted.path("copy.jsonl").exists(),
        "{missing}"
    );
}

#[test]
fn a_terminal_asks_before_each_step_and_says_if_something_is_wrong() {
    let stage = home();
    let run = |line: &str| {
        let unset = AGENTS_HOMES
            .map(|variable| format!("-u {variable}"))
            .join(" ");
        let line = format!(
            "env {unset} HOME=$PWD/home LOOPSTORE_DB=loopstore.db $LOOPSTORE --no-pager {line}"
        );
        Terminal::run(&stage.path(""), (60, 120), &line)
    };
    let mut terminal = run("init");
    terminal.wait_for("Import 1 transcript (410 bytes) into loopstore.db? Type `yes`");
    terminal.press("yes\r");
    terminal.wait_for("Change the configuration of claude-code?");
    terminal.press("no\r");
    let (text, _) = terminal.end();
    assert!(
        text.contains("claude-code is not set up: nothing was changed"),
        "{text}"
    );
    assert!(text.contains("All of it can be searched"), "{text}");
    let wrong = "something is wrong with the recording of agents";
    let (text, _) = run("sessions").end();
    assert!(text.contains("s1") && !text.contains(wrong), "{text}");
    assert_eq!(
        stage
            .say("install claude-code --yes --db loopstore.db")
            .code,
        0
    );
    // The transcript was changed later than its newest message, and all of it is stored.
    let (text, _) = run("sessions").end();
    assert!(!text.contains(wrong), "{text}");
    let folder = stage.path("home/.claude/projects/-work-lamp");
    let text = std::fs::read_to_string(folder.join("s1.jsonl")).unwrap();
    std::fs::write(folder.join("s2.jsonl"), text.replace("s1", "s2")).unwrap();
    let file = File::options()
        .write(true)
        .open(folder.join("s2.jsonl"))
        .unwrap();
    let day = Duration::from_secs(24 * 3600);
    file.set_modified(SystemTime::now() - day).unwrap();
    for command in ["sessions", "stats"] {
        let (text, _) = run(command).end();
        assert!(text.contains(wrong), "{command}: {text}");
    }
    assert_eq!(stage.say("sessions").err, "", "not on a terminal");
}
