//! Compaction, undo and redo.

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::commands::stage::Stage;

const TIGHT: &str = "compact work --max-tokens 9000";

#[test]
fn a_context_with_headroom_is_left_alone() {
    let stage = Stage::new();
    assert_snapshot!(stage.say("compact work"), @"Nothing to do: the context has 10,012 tokens, which leaves enough headroom in the window of 128,000. --max-tokens N names a smaller window, --force compacts all the same.");
    assert_eq!(stage.json("compact work")["outcome"], "not_needed");
    assert_eq!(stage.json("history"), json!([]));
}

#[test]
fn a_compaction_prints_its_audit_row() {
    let stage = Stage::new();
    assert_snapshot!(stage.say(TIGHT), @"
    Run RUN: committed
    tokens    10,012 -> 4,116 (41 %)
    messages  49 -> 28
    strategy  digest, N ms

    LOOP   BLOCK  KIND     FIRST  COMPACTED  RECENT  KEPT  TRUNCATED  SUMMARISED  DROPPED  ROLLED UP
    ask        1  earlier  -      0-2        -          0          0           7        0          0
    build      1  earlier  -      0-5        -          0          0          13        0          0
    test       1  current  0-1    2-3        4-13      15         10           4        0          0
    ");
    assert_snapshot!(Stage::new().say(&format!("{TIGHT} --json")), @r#"
    {
      "run_id": "RUN",
      "outcome": "committed",
      "strategy": "digest",
      "fallback": null,
      "asked_about": {
        "tokens": 10012,
        "source": "estimate"
      },
      "tokens_before": 10012,
      "tokens_after": 4116,
      "bytes_before": 48492,
      "bytes_after": 20760,
      "messages_before": 49,
      "messages_after": 28,
      "turn_tokens": 435,
      "room": 3534,
      "loops_compacted": 3,
      "blocks": [
        {
          "loop_id": "ask",
          "generation": 1,
          "kind": "earlier",
          "keep_first": null,
          "keep_compacted": [
            0,
            2
          ],
          "keep_recent": null,
          "coverage": {
            "kept": 0,
            "truncated": 0,
            "summarised": 7,
            "dropped": 0,
            "rolled_up": 0,
            "sealed": 0
          }
        },
        {
          "loop_id": "build",
          "generation": 1,
          "kind": "earlier",
          "keep_first": null,
          "keep_compacted": [
            0,
            5
          ],
          "keep_recent": null,
          "coverage": {
            "kept": 0,
            "truncated": 0,
            "summarised": 13,
            "dropped": 0,
            "rolled_up": 0,
            "sealed": 0
          }
        },
        {
          "loop_id": "test",
          "generation": 1,
          "kind": "current",
          "keep_first": [
            0,
            1
          ],
          "keep_compacted": [
            2,
            3
          ],
          "keep_recent": [
            4,
            13
          ],
          "coverage": {
            "kept": 15,
            "truncated": 10,
            "summarised": 4,
            "dropped": 0,
            "rolled_up": 0,
            "sealed": 0
          }
        }
      ],
      "duration_ms": 0,
      "usage": null,
      "error": null,
      "reached": null
    }
    "#);
}

#[test]
fn a_dry_run_writes_nothing() {
    let stage = Stage::new();
    assert_snapshot!(stage.say(&format!("{TIGHT} --dry-run")), @"
    Dry run: would be committed
    tokens    10,012 -> 4,116 (41 %)
    messages  49 -> 28
    strategy  digest, N ms

    LOOP   BLOCK  KIND     FIRST  COMPACTED  RECENT  KEPT  TRUNCATED  SUMMARISED  DROPPED  ROLLED UP
    ask        -  earlier  -      0-2        -          0          0           7        0          0
    build      -  earlier  -      0-5        -          0          0          13        0          0
    test       -  current  0-1    2-3        4-13      15         10           4        0          0
    ");
    assert_eq!(stage.json("history"), json!([]));
}

/// Returns the plan of a dry run of `compact work`.
fn plan(stage: &Stage, flags: &str) -> Value {
    let mut report = stage.json(&format!("compact work --dry-run {flags}"));
    report.as_object_mut().unwrap().remove("duration_ms");
    report
}

#[test]
fn each_flag_changes_what_is_done() {
    let stage = Stage::new();
    let tight = plan(&stage, "--max-tokens 9000");
    assert_eq!(tight["outcome"], "committed");
    for flags in [
        "--loop build",
        "--keep-first 1",
        "--keep-recent 3",
        "--keep-prompts 2k",
        "--max-summary-tokens 20",
        "--tool-output-lines 10",
        "--scope fixed:0",
        "--scope fixed:1",
        "--recent-window loop --keep-recent 16",
        "--older-loops skip --scope fixed:0",
        "--force --keep-first 0",
    ] {
        let other = plan(&stage, &format!("--max-tokens 9000 {flags}"));
        assert_ne!(tight, other, "{flags}");
    }
    let chain = plan(&stage, "--max-tokens 9000 --keep-recent 16");
    let own = plan(
        &stage,
        "--max-tokens 9000 --keep-recent 16 --recent-window loop",
    );
    assert_ne!(chain, own);
    let budget = plan(
        &stage,
        "--max-tokens 9000 --scope token-budget --max-summary-tokens 5000",
    );
    assert_ne!(budget["blocks"], tight["blocks"]);
    let lines = plan(&stage, "--max-tokens 9000 --strategy one-liner");
    assert_ne!(lines["messages_after"], tight["messages_after"]);
    assert_eq!(plan(&stage, "--max-tokens 9000 --strategy digest"), tight);
    let rolled = plan(&stage, "--max-tokens 9000 --scope fixed:0 --keep-recent 3");
    assert_eq!(rolled["blocks"][0]["kind"], "rollup");
    let raw = plan(
        &stage,
        "--max-tokens 9000 --scope fixed:0 --keep-recent 3 --max-rollup-tokens 0",
    );
    assert_ne!(raw["blocks"][0]["kind"], "rollup");
}

#[test]
fn the_trigger_looks_at_the_window_and_the_system_prompt() {
    let stage = Stage::new();
    let outcome = |flags: &str| plan(&stage, flags)["outcome"].clone();
    assert_eq!(outcome("--max-tokens 20000"), "not_needed");
    assert_eq!(
        outcome("--max-tokens 20000 --system-tokens 15000"),
        "committed"
    );
    assert_eq!(outcome("--max-tokens 20000 --force"), "committed");
    let settled = "compact work --max-tokens 9000";
    stage.json(settled);
    assert_eq!(stage.json(settled)["outcome"], "not_needed");
}

#[test]
fn numbers_of_any_size_are_taken() {
    let stage = Stage::new();
    let (most, most_turns) = (u64::MAX, u32::MAX);
    for flags in [
        format!("--max-tokens {most} --force"),
        format!("--max-tokens 9000 --keep-first {most_turns} --keep-recent {most_turns}"),
        format!("--max-tokens 9000 --max-summary-tokens {most} --scope token-budget"),
        format!("--max-tokens 9000 --tool-output-lines {most} --scope fixed:{most}"),
        "--max-tokens 200 --keep-first 0 --keep-recent 0 --max-summary-tokens 0".into(),
        "--max-tokens 200 --tool-output-lines 0 --scope fixed:0".into(),
    ] {
        let said = stage.say(&format!("compact work --dry-run {flags}"));
        assert_eq!(said.code, 0, "{flags}\n{said}");
    }
    for flags in [
        "--max-tokens 1".to_owned(),
        format!("--max-tokens 9000 --system-tokens {most}"),
    ] {
        let said = stage.say(&format!("compact work --dry-run {flags}"));
        assert_eq!(said.code, 1, "{flags}\n{said}");
        assert!(said.out.contains("not even the last turn fits"), "{said}");
    }
}

#[test]
fn undo_and_redo_flip_a_run_and_leave_rows() {
    let stage = Stage::new();
    stage.say(TIGHT);
    let before = stage.json("context work");
    assert_snapshot!(stage.say("undo work --reason too-short"), @"Run RUN is undone: 4,116 -> 10,012 tokens, from loop test");
    assert_eq!(stage.say("redo work --loop ask").code, 1);
    let run = stage.json("history work")[0]["run_id"]
        .as_str()
        .unwrap()
        .to_owned();
    // The stage replaces run ids, so the beginning of the id comes from the store.
    assert_eq!(run, "RUN");
    let store = stage.store();
    let run = store.run_rows(None).unwrap()[0].text("run_id").unwrap();
    let line = format!("redo work --loop te --run {} --json", &run[..13]);
    assert_snapshot!(stage.say(&line), @r#"
    {
      "run_id": "RUN",
      "outcome": "redone",
      "tokens_before": 10012,
      "tokens_after": 4116
    }
    "#);
    assert_eq!(stage.json("context work"), before);
    assert_snapshot!(stage.say("history"), @r"
    RUN            SESSION  LOOP  STARTED              TRIGGER   STRATEGY  OUTCOME    STATE   BEFORE  AFTER
    RUN  work     test  NOW  headroom  digest    committed  active  10,012  4,116

    RUN            WHAT  LOOP  TURNS  WHEN                 REASON
    RUN  redo  test     14  NOW
    RUN  undo  test     14  NOW  too-short
    ");
}

#[test]
fn nothing_to_undo_is_an_error() {
    let stage = Stage::new();
    assert_snapshot!(stage.say("undo work"), @r#"
    --- stderr
    error: there is no active compaction or edit to undo
    --- exit 1
    "#);
    assert_snapshot!(stage.say("redo work"), @r#"
    --- stderr
    error: there is no compaction or edit to redo
    --- exit 1
    "#);
    assert_snapshot!(stage.say("undo work --run nope"), @r#"
    --- stderr
    error: no run `nope`
    hint: `loopstore history` lists the runs
    --- exit 1
    "#);
}

#[test]
fn policies_take_their_parameters_by_name() {
    let stage = Stage::new();
    let tried = |params: &str| {
        let line = format!("compact work --max-tokens 20000 --dry-run {params}");
        stage.json(&line)["outcome"].clone()
    };
    assert_eq!(tried(""), "not_needed");
    assert_eq!(tried("--policy-param compact_at_pct=0.5"), "committed");
    assert_eq!(
        tried("--policy target --policy-param trigger=0.9"),
        "not_needed"
    );
    let line = "--policy target --policy-param trigger=0.4 --policy-param target=0.3";
    assert_eq!(tried(line), "committed");
    let reserves = "--policy reserves --policy-param system=0 --policy-param output=0";
    assert_eq!(tried(reserves), "not_needed");
    assert_eq!(
        tried(&format!("{reserves} --policy-param share=0.5")),
        "committed"
    );
    for (param, said) in [
        ("trigge=1", "`headroom` has no parameter `trigge`"),
        ("compact-at=1", "compact_at_pct"),
        ("share", "NAME=VALUE"),
        ("share=much", "not a number"),
    ] {
        let refused = stage.say(&format!("compact work --policy-param {param}"));
        assert_eq!(refused.code, 2, "{param}");
        assert!(refused.err.contains(said), "{}", refused.err);
    }
}

/// A program in place of an editor.
fn with_editor(stage: &Stage, editor: &str, line: &str) -> (bool, String) {
    let args: Vec<&str> = line.split(' ').collect();
    let output = stage.command(&args).env("VISUAL", editor).output().unwrap();
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[test]
fn a_preview_prints_the_context_and_writes_nothing() {
    let stage = Stage::new();
    for (line, runs) in [
        (TIGHT.to_owned(), 0),
        (format!("{TIGHT} --force --keep-recent 2"), 1),
    ] {
        let preview = stage.json(&format!("{line} --preview"));
        assert_eq!(preview["run_id"], Value::Null);
        assert_eq!(stage.json("history").as_array().unwrap().len(), runs);
        stage.say(&line);
        assert_eq!(
            preview["messages"],
            stage.json("context work")["messages"],
            "{line}"
        );
    }
}

#[test]
fn an_edited_text_is_committed_as_what_a_person_wrote() {
    let stage = Stage::new();
    let edit = format!("{TIGHT} --edit");
    let (went_well, said) = with_editor(
        &stage,
        "sed -i 's/^\\[Working state.*/What I know:/'",
        &edit,
    );
    assert!(went_well, "{said}");
    let context = stage.json("context work").to_string();
    assert!(
        context.contains("What I know:") && !context.contains("[Working state"),
        "{context}"
    );
    assert_eq!(stage.json("history")[0]["fallback"], "person");
}

#[test]
fn an_emptied_file_and_a_failing_editor_stop_the_compaction() {
    let stage = Stage::new();
    for editor in ["false", "truncate -s 0", "sed -i s/block.0/block.9/"] {
        let (went_well, said) = with_editor(&stage, editor, &format!("{TIGHT} --edit"));
        assert!(
            !went_well && said.contains("postponed: "),
            "{editor}: {said}"
        );
    }
    // What was postponed is proposed again; without a change it is committed as it is.
    let (went_well, said) = with_editor(&stage, "true", &format!("{TIGHT} --edit"));
    assert!(went_well, "{said}");
    let outcomes: Vec<Value> = stage
        .json("history")
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["outcome"].clone())
        .collect();
    assert_eq!(
        outcomes
            .iter()
            .filter(|outcome| **outcome == "vetoed")
            .count(),
        3
    );
    assert_eq!(stage.json("history")[0]["fallback"], Value::Null);
}

#[test]
fn tool_results_are_cleared_before_anything_is_compacted() {
    let stage = Stage::new();
    let line = "compact work --max-tokens 11500 --clear-tool-results 1 --clear-at-least 100";
    let report = stage.json(&format!("{line} --dry-run"));
    assert_eq!(report["outcome"], "not_needed", "{report}");
    assert_eq!(report["cleared"]["run_id"], serde_json::Value::Null);
    let said = stage.say(line);
    let lines: Vec<&str> = said.out.lines().collect();
    assert!(
        lines[0].starts_with("cleared   ") && lines[0].contains(" tool results, 10,012 -> "),
        "{said}"
    );
    assert!(
        lines[1].starts_with("Nothing to compact: the context has "),
        "{said}"
    );
    let runs = stage.json("history work");
    assert_eq!(
        (&runs[0]["strategy"], runs.as_array().unwrap().len()),
        (&"clear".into(), 1)
    );
    // Excluded are all: nothing is cleared, and the report says why.
    let stage = Stage::new();
    let tools = "--clear-exclude-tool other --clear-exclude-tool read_file";
    let report = stage.json(&format!("{line} {tools} --dry-run"));
    assert_eq!(report["outcome"], "committed", "{report}");
    assert!(report["not_cleared"].is_string(), "{report}");
    for (wrong, why) in [
        ("--clear-tool-results many", "many"),
        ("--clear-tool-results -1", "-1"),
        ("--clear-at-least 5", "--clear-tool-results"),
        ("--clear-exclude-tool bash", "--clear-tool-results"),
        ("--clear-tool-results 1 --clear-at-least x", "x"),
        ("--clear-tool-results 1 --force", "--force"),
    ] {
        let refused = stage.say(&format!("compact work {wrong}"));
        assert_eq!(refused.code, 2, "{refused}");
        assert!(refused.err.contains(why), "{refused}");
    }
}
