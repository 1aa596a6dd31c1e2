//! Commands that only read.

use insta::assert_snapshot;

use crate::commands::stage::Stage;

#[test]
fn sessions_are_listed() {
    let stage = Stage::new();
    assert_snapshot!(stage.say("sessions"), @r"
    SESSION           LAST ACTIVE          PROJECT  LOOPS  TURNS  TOKENS  MESSAGES  TITLE
    mess'; DROP TABL  2026-01-05 09:01:00               1      8     169         8  <b>\u{1b}[31mred\u{7}</b>
    work              2026-01-05 09:01:00               4     25  10,138        54  Repair the build
    worker            2026-01-05 09:00:00               0      0       0         0  Another one
    ");
    let rows = stage.json("sessions");
    assert_snapshot!(serde_json::to_string_pretty(&rows[1]).unwrap(), @r#"
    {
      "agent_id": "agent",
      "created_at": "2026-01-05T09:00:00.000Z",
      "current_loop_id": "test",
      "hidden_at": null,
      "last_active_at": "2026-01-05T09:01:00.000Z",
      "loops": 4,
      "messages": 54,
      "project": null,
      "prompt": "ask what is broken",
      "session_id": "work",
      "source": null,
      "title": "Repair the build",
      "tokens": 10138,
      "turns": 25
    }
    "#);
}

#[test]
fn an_empty_database_says_what_to_do_next() {
    let stage = Stage::empty();
    drop(stage.store());
    assert_snapshot!(stage.say("sessions"), @r#"
    No sessions yet; `loopstore import` adds some.
    "#);
    assert_snapshot!(stage.say("history"), @r#"
    No compactions or edits yet; `loopstore compact` makes a compaction.
    "#);
    assert_eq!(stage.json("sessions"), serde_json::json!([]));
}

#[test]
fn a_narrow_table_is_cut_and_then_turned() {
    let stage = Stage::new();
    let narrow = |width: &str| {
        let output = stage.command(&["sessions"]).env("COLUMNS", width).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    assert_snapshot!(narrow("64"), @r"
    SESSION           TURNS  TOKENS  TITLE
    mess'; DROP TABL      8     169  <b>\u{1b}[31mred\u{7}</b>
    work                 25  10,138  Repair the build
    worker                0       0  Another one
    ");
    assert_snapshot!(narrow("30"), @r"
    SESSION      mess'; DROP TABL
    LAST ACTIVE  2026-01-05 09:01…
    PROJECT
    SOURCE
    LOOPS        1
    TURNS        8
    TOKENS       169
    MESSAGES     8
    TITLE        <b>\u{1b}[31mred…

    SESSION      work
    LAST ACTIVE  2026-01-05 09:01…
    PROJECT
    SOURCE
    LOOPS        4
    TURNS        25
    TOKENS       10,138
    MESSAGES     54
    TITLE        Repair the build

    SESSION      worker
    LAST ACTIVE  2026-01-05 09:00…
    PROJECT
    SOURCE
    LOOPS        0
    TURNS        0
    TOKENS       0
    MESSAGES     0
    TITLE        Another one
    ");
}

#[test]
fn show_draws_the_tree_with_blocks() {
    let stage = Stage::new();
    stage.say("compact work --max-tokens 9000");
    assert_snapshot!(stage.say("show work"), @r"
    Session work: Repair the build
    First prompt: ask what is broken
    agent agent, created 2026-01-05 09:00:00, last active 2026-01-05 09:01:00
    4 loops, 25 turns, 54 messages, 10,138 tokens

    ○ ask  Completed: 3 turns, 7 messages, 1,320 tokens
        “ask what is broken”
      ▶ block 1 (earlier, active): compacted 0-2; 98 of 1,320 tokens; run RUN
      │ ○ try  Completed, Branch:other: 2 turns, 5 messages, 126 tokens; after turn 0 of ask
      │     “try it”
    ○ build  Completed: 6 turns, 13 messages, 2,610 tokens
        “build it”
      ▶ block 1 (earlier, active): compacted 0-5; 157 of 2,610 tokens; run RUN
    ● test  Completed: 14 turns, 29 messages, 6,082 tokens
        “test it”
      ▶ block 1 (current, active): first 0-1, compacted 2-3, recent 4-13; 3,861 of 6,082 tokens; run RUN

    ▶ in the context of the current loop now
    ");
    let shown = stage.json("show work");
    assert_eq!(shown["session_id"], "work");
    assert_eq!(shown["current_loop_id"], "test");
    assert_eq!(shown["loops"].as_array().unwrap().len(), 4);
    assert_eq!(shown["loops"][3]["blocks"][0]["kind"], "current");
    assert_eq!(shown["loops"][1]["blocks"], serde_json::json!([]));
}

#[test]
fn show_neutralises_what_could_steer_a_terminal() {
    let stage = Stage::new();
    let said = stage.say("show mess");
    assert!(!said.out.contains(|c: char| c.is_control() && c != '\n'));
    assert_snapshot!(said, @r"
    Session mess'; DROP TABLE sessions;--: <b>\u{1b}[31mred\u{7}</b>
    First prompt: one \u{202e}two
    agent agent, created 2026-01-05 09:00:00, last active 2026-01-05 09:01:00
    1 loop, 8 turns, 8 messages, 169 tokens

    ● a:b\u{1b}[2J  Completed: 8 turns, 8 messages, 169 tokens
        “one \u{202e}two”
    ");
}

#[test]
fn sql_answers_in_a_table_and_as_json() {
    let stage = Stage::new();
    let query = "SELECT loop_id, turns, turns / 2.0 AS half, parent_loop_id FROM v_loops
        WHERE session_id = 'work'";
    assert_snapshot!(stage.run(&["sql", query]), @r#"
    loop_id  turns  half  parent_loop_id
    ask          3   1.5  NULL
    build        6   3.0  ask
    test        14   7.0  build
    try          2   1.0  ask
    (4 rows)
    "#);
    assert_snapshot!(stage.run(&[
        "sql",
        "--max-rows",
        "2",
        "SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3"
    ]), @r#"
    1
    1
    2
    (2 rows)
    --- stderr
    note: there are more rows; raise --max-rows to see them
    "#);
    let twice = stage.run(&["--json", "sql", "SELECT 1 AS a, 'x' AS a, NULL AS a_2"]);
    assert_eq!(
        twice.json(),
        serde_json::json!([{"a": 1, "a_3": "x", "a_2": null}])
    );
}

#[test]
fn stats_count() {
    let stage = Stage::new();
    assert_snapshot!(stage.say("stats"), @r#"
    database         loopstore.db
    sessions         3
    loops            5
    turns            33
    messages         62
    extensions       1
    tokens           10,307
    message size SIZE
    compaction runs  0
    blocks           0
    blobs            1
    blob size        5 bytes
    file size SIZE
    log size SIZE
    "#);
    let stats = stage.json("stats");
    assert_eq!(stats["sessions"], 3);
    assert!(stats["file_bytes"].is_i64());
}

#[test]
fn there_is_a_manual_page_for_each_command() {
    let stage = Stage::empty();
    let said = stage.say("man pages");
    assert_eq!(said.code, 0, "{said}");
    assert!(said.out.lines().count() > 25, "{said}");
    for line in said.out.lines() {
        let page = std::fs::read_to_string(stage.path(line)).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{line}");
    }
    let page = std::fs::read_to_string(stage.path("pages/loopstore-undo.1")).unwrap();
    assert!(page.contains("Undo a compaction"), "{page}");
    assert!(stage.say("man").out.contains(".TH loopstore 1"));
}

#[test]
fn without_a_command_the_sessions_are_shown_or_how_to_begin() {
    let stage = Stage::empty();
    assert_snapshot!(stage.run(&[]), @r#"
    There is no database at loopstore.db yet. To start:

      loopstore init           find and import the transcripts of agents on this machine
      loopstore demo           walk through a generated session
      loopstore import PATH…   import transcripts, such as ~/.claude/projects

    `loopstore --help` lists all commands; --db names another database.
    "#);
    assert!(!stage.path("loopstore.db").exists());
    assert_eq!(stage.run(&["--json"]).code, 1);
    let stage = Stage::new();
    let said = stage.run(&[]);
    assert!(said.out.contains("SESSION"), "{said}");
    assert!(said.out.contains("loopstore --help"), "{said}");
}

#[test]
fn completions_are_made_for_each_shell() {
    let stage = Stage::empty();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let said = stage.run(&["completions", shell]);
        assert_eq!(
            (said.code, said.out.contains("loopstore")),
            (0, true),
            "{shell}"
        );
    }
}

#[test]
fn global_options_stand_before_or_after_the_command() {
    let stage = Stage::new();
    let path = stage.path("loopstore.db");
    let path = path.to_str().unwrap();
    let before = stage.run(&["--db", path, "--json", "sessions"]);
    let after = stage.run(&["sessions", "--json", "--db", path]);
    assert_eq!(before.json(), after.json());
    let by_env = stage
        .command(&["sessions", "--json"])
        .current_dir("/")
        .env("LOOPSTORE_DB", path)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(by_env.stdout).unwrap(), after.out);
}

#[test]
fn a_closed_pipe_is_quiet() {
    use std::process::{Command, Stdio};
    let stage = Stage::new();
    for args in [
        &["context", "work"][..],
        &["sql", "SELECT * FROM v_messages"],
        &["--help"],
    ] {
        let mut child = Command::new(assert_cmd::cargo::cargo_bin("loopstore"))
            .args(args)
            .current_dir(stage.path(""))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "{args:?}");
        assert_eq!(output.status.code(), Some(0), "{args:?}");
    }
}

#[test]
fn expand_gives_back_what_a_compaction_hid() {
    let stage = Stage::new();
    stage.say("compact work --max-tokens 9000");
    let all = stage.json("expand work --loop build --turns 0..5");
    assert_eq!(all["messages"].as_array().unwrap().len(), 13);
    assert_eq!(all["next"], serde_json::Value::Null);
    let one = stage.json("expand work --loop build --turns 0");
    // Each line of the text has a mark.
    let tokens = one["tokens"].as_u64().unwrap() + 60;
    let some = stage.json(&format!(
        "expand work --loop build --turns 0..5 --max-tokens {tokens}"
    ));
    assert_eq!(one["messages"], some["messages"]);
    let next = serde_json::json!({"seq": 3, "offset": 0});
    assert_eq!(some["next"], next, "whole messages, then where to go on");
    let dashed = stage.json("expand work --loop build --turns 0-5");
    assert_eq!(dashed["messages"], all["messages"]);
    let small = stage.json("expand work --loop build --turns 0..5 --max-tokens 8k");
    assert_eq!(small["messages"], all["messages"]);
    for (wrong, code) in [
        ("9..12", 1),
        ("5..0", 1),
        ("x", 2),
        ("0..y", 2),
        ("-1..2", 2),
    ] {
        let said = stage.say(&format!("expand work --loop build --turns={wrong}"));
        assert_eq!(said.code, code, "{wrong}\n{said}");
    }
    let text = stage.say("expand work --loop build --turns 0..5 --max-tokens 700");
    let command = "loopstore expand work --loop build --turns 0..5 --max-tokens 700 --from 4";
    let last = text.out.lines().last().unwrap();
    assert_eq!(last, format!("Continue with `{command}`."));
    let none = stage.say("expand work --loop build --turns 0..5 --max-tokens 1");
    assert!(
        none.code == 1 && none.err.contains("needs at least"),
        "{none}"
    );
}
