//! `read`: a session as people read it.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use insta::assert_snapshot;
use loopstore::*;
use serde_json::json;

use crate::commands::stage::{Stage, answer, result};

/// Creates a session with an edit, a failed call, thinking, a late result and text of a harness.
fn lamp() -> Stage {
    let stage = Stage::empty();
    let store = Store::from(stage.store());
    let chat = store.session("lamp").unwrap();
    chat.set_title("Mend the lamp").unwrap();
    chat.set_project("/work/lamp").unwrap();
    let edit = json!({"file_path": "lamp.py", "old_string": "a\nb\nc", "new_string": "a\nB\nc"});
    let test = json!({"command": "cargo test\n-p lamp", "timeout": 5});
    let prompt = "<system-reminder>Be brief.</system-reminder>\nMend the *lamp*,\n  please";
    let failed =
        Message::tool_result("c2", "error: no lamp\nsee the log\nthird\nfourth").with_error();
    let done = "## Done\n\n- **first** `a`\n- second\n\n```py\nprint('on')\n```";
    chat.append([
        Message::user(prompt),
        Message::assistant("I edit.")
            .with_thinking("What is broken?\nThe switch.", None)
            .with_tool_call("c1", "Edit", edit),
        Message::tool_result("c1", "The file was changed."),
        Message::assistant("").with_tool_call("c2", "Bash", test),
        failed,
        Message::assistant(done),
        Message::user("Thanks"),
    ])
    .unwrap();
    stage
}

/// The times of this session are those of the test.
fn untimed(said: &impl std::fmt::Display) -> String {
    let lines = said.to_string();
    let line = |line: &str| match line.split_once(", NOW") {
        Some((before, after)) => format!("{before}, NOW{after}\n"),
        None => format!("{line}\n"),
    };
    lines.lines().map(line).collect()
}

#[test]
fn words_are_whole_calls_are_folded_and_edits_are_diffs() {
    let stage = lamp();
    assert_snapshot!(untimed(&stage.say("read lamp")), @r"
    Session lamp: Mend the lamp
    /work/lamp, NOW

    ── loop-1:0, NOW
    ▸ harness: <system-reminder>Be brief.</system-reminder> (45 bytes)

    user
      Mend the *lamp*,
        please
    ▸ thinking: What is broken? (27 bytes)

    assistant
      I edit.
    ▸ Edit lamp.py: 1 line, 21 bytes
        edited lamp.py
          a
        - b
        + B
          c

    ── loop-1:1, NOW
    ▸ Bash cargo test -p lamp: failed, 4 lines, 39 bytes
        error: no lamp
        see the log
        third

    ── loop-1:2, NOW

    assistant
      ## Done

      - **first** `a`
      - second

      ```py
      print('on')
      ```

    ── loop-2:0, NOW

    user
      Thanks
    ");
}

#[test]
fn nothing_is_folded_with_full() {
    let stage = lamp();
    assert_snapshot!(untimed(&stage.say("read lamp --full --turn loop-1:1")), @r"
    ── loop-1:1, NOW
    ▸ Bash cargo test -p lamp: failed, 4 lines, 39 bytes
        command:
          cargo test
          -p lamp
        timeout: 5
        error: no lamp
        see the log
        third
        fourth
    ");
    let whole = stage.say("read lamp --full").out;
    for part in [
        "Be brief.",
        "The switch.",
        "fourth",
        "The file was changed.",
    ] {
        assert!(whole.contains(part), "{part}\n{whole}");
    }
}

#[test]
fn what_is_left_out_is_counted() {
    let stage = Stage::new();
    let said = stage.say("read mess");
    assert!(!said.out.contains(|c: char| c.is_control() && c != '\n'));
    assert!(
        said.out.ends_with("Not shown: 1 note; --full shows all.\n"),
        "{said}"
    );
    assert!(said.out.contains("▸ result of read_file"), "{said}");
    assert!(stage.say("read mess --full").out.contains("Be kind."));
    let empty = stage.say("read worker");
    assert!(empty.out.contains("no turns yet"), "{empty}");
    assert_eq!(stage.json("read worker"), json!([]));
}

#[test]
fn turns_are_chosen_by_number_range_and_address() {
    let stage = Stage::new();
    let turns = |line: &str| {
        let found = stage.json(line);
        let found = found.as_array().unwrap().iter();
        let name = |turn: &serde_json::Value| {
            format!("{}:{}", turn["loop_id"].as_str().unwrap(), turn["turn"])
        };
        found.map(name).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(turns("read work --turn 3"), "test:3");
    assert_eq!(turns("read work --turn 3..4"), "test:3 test:4");
    assert_eq!(turns("read work --turn try:1"), "try:1");
    assert_eq!(turns("read work --loop build --turn 5"), "build:5");
    assert_eq!(turns("read work --last 2"), "test:12 test:13");
    assert_eq!(turns("read work --loop try"), "ask:0 try:0 try:1");
    assert_eq!(
        turns("read work --loop build --last 8").split(' ').next(),
        Some("ask:1")
    );
    assert_eq!(turns("read work --last 1000"), turns("read work"));
    let said = stage.say("read work --turn 14");
    assert_snapshot!(said, @r"
    --- stderr
    error: turn 14 of loop test not found: the loop has 14 turns, counted from 0
    --- exit 1
    ");
    assert_eq!(stage.say("read work --turn x").code, 2);
    assert_eq!(stage.say("read work --turn ask:x").code, 2);
}

#[test]
fn compactions_stand_where_they_took_effect() {
    let stage = Stage::new();
    stage.say("compact work --max-tokens 9000");
    let said = stage.say("read work --last 1");
    let end = said.out.lines().last().unwrap();
    assert!(
        end.starts_with("── compacted by digest: 10,012 to "),
        "{said}"
    );
    assert!(end.contains("; run RUN, "), "{said}");
}

#[test]
fn the_json_has_the_whole_texts() {
    let stage = lamp();
    let turns = stage.json("read lamp");
    let entries = turns[0]["entries"].as_array().unwrap();
    let kinds: Vec<_> = entries
        .iter()
        .map(|entry| entry["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["text", "text", "thinking", "text", "call"]);
    assert_eq!(entries[0]["author"], "harness");
    let call = &entries[4];
    assert_eq!(call["description"], "Edit lamp.py");
    assert_eq!(call["changes"][0]["diff"], json!([" a", "-b", "+B", " c"]));
    assert_eq!(call["result"]["text"], "The file was changed.");
}

#[test]
fn further_turns_are_printed_as_they_are_stored() {
    let stage = lamp();
    let store = Store::from(stage.store());
    let chat = store.session("lamp").unwrap();
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("loopstore"))
        .args(["read", "lamp", "--follow", "--last", "1"])
        .current_dir(stage.path(""))
        .env("LOOPSTORE_DB", "loopstore.db")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut until = |end: &str| {
        let lines = lines.by_ref().map(Result::unwrap);
        let mut found = Vec::new();
        for line in lines {
            found.push(line);
            if found.last().is_some_and(|line| line.trim() == end) {
                return found;
            }
        }
        panic!("no `{end}` in {found:?}");
    };
    until("Thanks");
    let call = Content::tool_call("c9", "ls", Json::parse("{}").unwrap());
    chat.append([answer(vec![Content::text("I look."), call])])
        .unwrap();
    let grown = until("▸ ls: no result");
    assert!(
        !grown.iter().any(|line| line.starts_with("──")),
        "the same turn: {grown:?}"
    );
    chat.append([result("c9", "a\nb"), Message::assistant("Two files.")])
        .unwrap();
    let grown = until("Two files.");
    assert!(
        grown
            .iter()
            .any(|line| line == "▸ result of read_file: 2 lines, 3 bytes"),
        "{grown:?}"
    );
    child.kill().unwrap();
    child.wait().unwrap();
}
