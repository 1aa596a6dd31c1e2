//! History, undo and redo of named runs, diffs, forks and manifests.

use std::sync::Arc;

use insta::assert_snapshot;
use loopstore::*;
use serde_json::json;

use crate::commands::appending::append;
use crate::commands::stage::Stage;

const TIGHT: &str = "compact work --max-tokens 9000";

struct No;

impl CompactionHook for No {
    fn before(&self, _: &CompactionStarted) -> Decision {
        Decision::Veto("the agent is not to be stopped now".into())
    }
}

/// Runs a compaction that a hook vetoes.
fn vetoed(stage: &Stage) {
    let mut request = CompactRequest {
        trigger: CompactTrigger::Force,
        ..CompactRequest::default()
    };
    request.policy.hooks.push(Arc::new(No));
    let session = SessionId::new("work").unwrap();
    compact_session_loops(&stage.store(), &session, &request).unwrap();
}

fn run_ids(stage: &Stage) -> Vec<String> {
    let rows = stage.store().run_rows(None).unwrap();
    rows.iter().map(|row| row.text("run_id").unwrap()).collect()
}

#[test]
fn history_shows_every_attempt_with_its_error() {
    let stage = Stage::new();
    vetoed(&stage);
    let said = stage.say("compact work --max-tokens 1");
    assert_eq!(said.code, 1, "{said}");
    stage.say(TIGHT);
    let rows = stage.json("history work");
    let outcomes: Vec<&str> = (0..3)
        .map(|at| rows[at]["outcome"].as_str().unwrap())
        .collect();
    assert_eq!(outcomes, ["committed", "failed", "vetoed"]);
    assert_eq!(rows[2]["error"], "the agent is not to be stopped now");
    assert!(
        rows[1]["error"]
            .as_str()
            .unwrap()
            .contains("not even the last turn")
    );
    assert_eq!(rows[2]["flips"], json!([]));
    let told = stage.say("history work").out;
    assert!(told.contains("the agent is"), "{told}");
    // A run that was never active cannot be undone.
    let said = stage.say(&format!("undo work --run {}", run_ids(&stage)[2]));
    assert_snapshot!(said, @"
    --- stderr
    error: run `RUN` ended as vetoed and was never active
    --- exit 1
    ");
}

#[test]
fn a_diff_tells_turn_by_turn() {
    let stage = Stage::new();
    stage.say(TIGHT);
    assert_snapshot!(stage.say("diff work"), @"
    from  before RUN: 10,012 tokens, 49 messages (turns: 23 raw)
    to    now: 4,116 tokens, 28 messages (turns: 2 kept, 11 summarised, 10 truncated)

    ask
      0-2        raw -> summarised
    build
      0-5        raw -> summarised
    test
      0-1        raw -> kept
      2-3        raw -> summarised
      4-13       raw -> truncated
    ");
    let found = stage.json("diff work --from raw --to now");
    assert_eq!(found["tokens"], json!([10012, 4116]));
    assert_eq!(
        found["changes"][0],
        json!({"loop_id": "ask", "from_turn": 0, "to_turn": 2, "before": "raw", "after": "summarised"})
    );
    let run = &run_ids(&stage)[0][..14];
    assert_eq!(
        stage.json(&format!("diff work --from {run}"))["changes"],
        json!([])
    );
    let early = stage.json("diff work --from build:2 --to te:0");
    assert_eq!(early["from"], "build:2");
    assert_eq!(early["changes"][0]["before"], json!(null));
    assert_eq!(early["changes"][0]["after"], "raw");
    let lines = stage.say("diff work --text").out;
    assert!(
        lines.lines().any(|line| line.starts_with("@@ -")),
        "{lines}"
    );
    assert!(
        lines.contains("\n-── loop ask, turns 0-2: verbatim"),
        "{lines}"
    );
    assert!(
        lines.contains("\n+── loop ask, turns 0-2: summary"),
        "{lines}"
    );
}

#[test]
fn a_diff_of_what_is_not_there_is_an_error() {
    let stage = Stage::new();
    assert!(stage.say("diff work").out.ends_with("No differences.\n"));
    for line in [
        "diff work --from nope",
        "diff work --to test:99",
        "diff work --loop nope",
    ] {
        assert_eq!(stage.say(line).code, 1, "{line}");
    }
    for line in ["diff work --from a:b", "diff work --text --json"] {
        assert_eq!(stage.say(line).code, 2, "{line}");
    }
}

#[test]
fn a_fork_may_go_on_from_within_a_turn() {
    let stage = Stage::empty();
    let said = concat!(
        r#"{"role":"user","content":"Who mends it?"}"#,
        "\n",
        r#"{"role":"assistant","content":"I do."}"#,
        "\n",
        r#"{"role":"user","content":"When?"}"#,
        "\n",
    );
    let output = append(&stage, &["s", "--format", "openai"], said.as_bytes());
    assert!(output.status.success(), "{output:?}");
    let told = stage.json("fork s --loop loop-1 --turn 0:0 --id cut --switch");
    assert_eq!(
        told,
        json!({"session_id": "s", "loop_id": "cut", "parent_loop_id": "loop-1",
            "parent_turn": 0, "parent_seq": 0})
    );
    let context = stage.say("context s --format openai").out;
    assert!(
        context.contains("Who mends it?") && !context.contains("I do."),
        "{context}"
    );
    let shown = stage.say("show s").out;
    let origin = "after message 0 of turn 0 of loop-1";
    assert!(shown.contains(origin), "{shown}");
    let page = stage.say("export s --format markdown").out;
    assert!(page.contains("after message 0 of turn 0"), "{page}");
    assert_snapshot!(stage.say("fork s --loop loop-1 --turn 0:1 --id whole --switch"), @"Loop whole continues from message 1 of turn 0 of loop-1 and is now the current loop.");
    for line in ["1:", ":2", "1:x", "0:1:2", "-1:0", "0:-1", "0:99999999999"] {
        let said = stage.say(&format!("fork s --loop loop-1 --turn={line}"));
        assert_eq!(said.code, 2, "{line}: {said}");
        assert!(
            said.to_string().contains("a message of it such as 3:7"),
            "{said}"
        );
    }
    assert_snapshot!(stage.say("fork s --loop loop-1 --turn 0:9"), @"
    --- stderr
    error: turn 0 of loop `loop-1` has no message 9
    --- exit 1
    ");
}

#[test]
fn a_fork_becomes_the_current_loop_if_asked() {
    let stage = Stage::new();
    stage.say(TIGHT);
    let told = stage.json("fork work --loop bu --turn 2 --tag again --id other --switch");
    assert_eq!(
        told,
        json!({"session_id": "work", "loop_id": "other", "parent_loop_id": "build", "parent_turn": 2})
    );
    let row = &stage.json("show work")["loops"][4];
    assert_eq!(row["continuation_kind"], "Branch:again");
    assert_eq!(row["messages"], 0);
    let context = stage.json("context work");
    assert_eq!(context["loop_id"], "other");
    // The run was made after that turn, so it is not part of this context.
    assert_eq!(context["parts"][0]["section"], "raw");
    assert_snapshot!(stage.say("fork work --loop test --turn 14"), @"
    --- stderr
    error: loop `test` has no turn 14; its last turn is 13
    --- exit 1
    ");
    assert_eq!(stage.say("fork work --loop nope --turn 0").code, 1);
    assert_eq!(
        stage.say("fork work --loop test --turn 0 --id other").code,
        1
    );
    assert_eq!(stage.say("fork work --loop test --turn -1").code, 2);
    assert_snapshot!(stage.say("fork work --loop test --turn 13 --id last --switch"), @"Loop last continues from turn 13 of test and is now the current loop.");
    assert_eq!(stage.json("context work")["tokens"], 4116);
}

#[test]
fn a_recorded_context_leaves_a_manifest() {
    let stage = Stage::new();
    stage.say(TIGHT);
    let plain = stage.json("context work");
    assert!(plain.get("manifest_id").is_none());
    let recorded = stage.json("context work --record");
    assert_eq!(recorded["messages"], plain["messages"]);
    assert_eq!(recorded["manifest_id"], "RUN");
    let past = stage.say("context work --as-of ask:1 --record");
    assert_eq!((past.code, &*past.err), (0, "Manifest RUN recorded.\n"));
    let sql = [
        "sql",
        "SELECT loop_id, messages, tokens FROM v_manifests",
        "--json",
    ];
    assert_eq!(
        stage.run(&sql).json(),
        json!([{"loop_id": "test", "messages": 28, "tokens": 4116},
               {"loop_id": "ask", "messages": 5, "tokens": 883}])
    );
    stage.say("undo work");
    // The stage hides ids, but not their digits.
    let digits = "SELECT hex(manifest_id) AS id FROM v_manifests ORDER BY messages DESC";
    let digits = stage.run(&["sql", digits, "--json"]).json();
    let digits = digits[0]["id"].as_str().unwrap().as_bytes().chunks(2);
    let byte = |two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap();
    let id = String::from_utf8(digits.map(byte).collect()).unwrap();
    let again = stage.json(&format!("context work --as-of {id}"));
    assert_eq!(again["messages"], recorded["messages"]);
    assert_ne!(again["messages"], stage.json("context work")["messages"]);
    let report = stage.json("verify");
    assert_eq!(
        (&report["ok"], &report["checked"]["manifests"]),
        (&json!(true), &json!(2))
    );
}
