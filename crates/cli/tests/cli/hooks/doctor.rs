//! `doctor`: its report on the installation, and on the errors that hooks did not show.

use std::fs::File;
use std::time::{Duration, UNIX_EPOCH};

use insta::assert_snapshot;

use super::{call, claude_code, event, stage};
use crate::commands::stage::Stage;

/// Runs `doctor`, and replaces values that differ from run to run.
fn doctor(stage: &Stage) -> (i32, String) {
    let said = stage.say("doctor");
    assert_eq!(said.err, "");
    let mut text = said.out;
    for (from, to) in [("last called at ", "TIME"), ("last at ", "TIME")] {
        text = replaced(
            &text,
            from,
            |c| c.is_ascii_digit() || "-T:.+Z".contains(c),
            to,
        );
    }
    text = replaced(&text, "which went well in ", |c| c.is_ascii_digit(), "N");
    text = replaced(&text, "which failed in ", |c| c.is_ascii_digit(), "N");
    text = replaced(&text, "db opens, ", |c| c != '\n', "SIZE");
    (said.code, text)
}

fn replaced(text: &str, from: &str, varies: fn(char) -> bool, to: &str) -> String {
    let mut parts = text.split(from);
    let mut made = parts.next().unwrap().to_owned();
    for part in parts {
        made.push_str(from);
        made.push_str(to);
        made.push_str(part.trim_start_matches(varies));
    }
    made
}

#[test]
fn nothing_is_wrong_where_nothing_is_set_up() {
    let stage = stage();
    let (code, text) = doctor(&stage);
    assert_eq!(code, 0, "{text}");
    assert_snapshot!(text);
    assert!(
        !stage.path("home").exists(),
        "doctor must leave nothing behind"
    );
}

#[test]
fn failures_that_hooks_kept_silent_are_told_until_they_are_made_good() {
    let stage = stage();
    assert_eq!(
        stage
            .say("install claude-code --yes --db loopstore.db")
            .code,
        0
    );
    call(&stage, "claude-code", "Stop", b"nonsense");
    call(&stage, "claude-code", "Stop", b"nonsense");
    call(&stage, "pi", "agent_end", b"{\"session_id\": \"../x\"}");
    let (code, text) = doctor(&stage);
    assert_eq!(code, 1, "{text}");
    assert_snapshot!(text);
    let path = stage.path("s1.jsonl");
    std::fs::write(&path, claude_code("s1", 0..3, "please")).unwrap();
    let input = event(&path, "s1", "Stop").to_string();
    call(&stage, "claude-code", "Stop", input.as_bytes());
    let report = stage.run(&["doctor", "--json"]).json();
    assert_eq!(report["ok"], false);
    let failures = report["failures"].as_array().unwrap();
    assert_eq!(
        (failures[0]["agent"].as_str(), &failures[0]["made_good"]),
        (Some("pi"), &false.into())
    );
    assert_eq!(
        (&failures[1]["times"], &failures[1]["made_good"]),
        (&2.into(), &true.into())
    );
    call(&stage, "pi", "session_shutdown", b"{}");
    let (code, text) = doctor(&stage);
    assert_eq!(code, 0, "{text}");
}

#[test]
fn what_no_longer_fits_is_told_with_what_to_do() {
    let stage = stage();
    for agent in ["claude-code", "codex", "pi", "opencode"] {
        assert_eq!(
            stage
                .say(&format!("install {agent} --yes --db loopstore.db"))
                .code,
            0
        );
    }
    assert_eq!(doctor(&stage).0, 0);
    std::fs::write(stage.path("home/.claude/settings.json"), "{}").unwrap();
    std::fs::write(stage.path("home/.codex/config.toml"), "model = ").unwrap();
    std::fs::remove_file(stage.path("home/.pi/agent/extensions/loopstore.ts")).unwrap();
    let install = stage.path("home/.local/state/loopstore/install");
    for entry in std::fs::read_dir(install).unwrap() {
        let path = entry.unwrap().path().join("record.json");
        let mut record: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        if record["agent"] == "opencode" {
            record["program"] = "/no/such/loopstore".into();
            std::fs::write(&path, record.to_string()).unwrap();
        }
    }
    std::fs::remove_file(stage.path("loopstore.db")).unwrap();
    let (code, text) = doctor(&stage);
    assert_eq!(code, 1, "{text}");
    assert_snapshot!(text);
}

#[test]
fn transcripts_that_are_not_stored_are_a_problem_until_they_are() {
    let stage = stage();
    let folder = stage.path("home/.claude/projects/-work");
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("s1.jsonl");
    std::fs::write(&path, claude_code("s1", 0..3, "please")).unwrap();
    // The time of its last record.
    let changed = UNIX_EPOCH + Duration::from_secs(1_772_359_208);
    let file = File::options().write(true).open(&path).unwrap();
    file.set_modified(changed).unwrap();
    let (code, text) = doctor(&stage);
    assert_eq!(code, 1, "{text}");
    let due = "claude-code deletes its oldest transcript at its next start, and none is stored";
    assert!(text.contains(due), "{text}");
    assert_eq!(
        stage
            .say("install claude-code --yes --db loopstore.db")
            .code,
        0
    );
    let (code, text) = doctor(&stage);
    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains("1 transcript of claude-code not stored, or longer than what is stored"),
        "{text}"
    );
    assert_eq!(
        stage.json("import home/.claude/projects")["added_messages"],
        9
    );
    let (code, text) = doctor(&stage);
    assert_eq!(code, 0, "{text}");
    assert_snapshot!(text);
    // The newest transcript is stored, and an earlier one is not; a file without a conversation does not count.
    let old = folder.join("s0.jsonl");
    let empty = folder.join("empty.jsonl");
    std::fs::write(&old, claude_code("s0", 0..3, "please")).unwrap();
    std::fs::write(
        &empty,
        "{\"type\":\"summary\",\"summary\":\"None\",\"leafUuid\":\"u\"}\n",
    )
    .unwrap();
    for path in [&old, &empty] {
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(changed - Duration::from_secs(3600))
            .unwrap();
    }
    let (code, text) = doctor(&stage);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("s0.jsonl"), "{text}");
    stage.say("import home/.claude/projects");
    let (code, text) = doctor(&stage);
    assert_eq!(code, 0, "{text}");
    // A later time of an unchanged file is no news; more content is.
    let file = File::options().append(true).open(&path).unwrap();
    let day = Duration::from_secs(24 * 3600);
    file.set_modified(changed + day).unwrap();
    assert_eq!(doctor(&stage).0, 0);
    std::fs::write(&path, claude_code("s1", 0..4, "please")).unwrap();
    file.set_modified(changed + day).unwrap();
    let (code, text) = doctor(&stage);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("s1.jsonl"), "{text}");
    stage.say("import home/.claude/projects");
    assert_eq!(doctor(&stage).0, 0);
}
