//! Import, and the demonstration.

use insta::assert_snapshot;

use crate::commands::stage::Stage;

fn fixture(name: &str) -> String {
    let path = crate::support::root::fixture(name);
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_transcript_comes_in_once() {
    let stage = Stage::empty();
    std::fs::copy(
        fixture("openai-chat/messages.json"),
        stage.path("chat.json"),
    )
    .unwrap();
    assert_snapshot!(stage.say("import chat.json"), @r#"
    Imported 1 file: 1 session, 2 loops, 3 turns, 5 messages, 5 of them new (N s).
    session chat-0
    "#);
    let again = stage.json("import chat.json --format openai-chat");
    assert_eq!(again["added_messages"], 0);
    assert_eq!(again["files"], 1);
}

#[test]
fn skipped_records_are_told_on_stderr() {
    let stage = Stage::empty();
    std::fs::copy(fixture("phi-core/tree.json"), stage.path("tree.json")).unwrap();
    assert_snapshot!(stage.say("import ."), @r#"
    Imported 1 file: 1 session, 2 loops, 1 turn, 2 messages, 2 of them new (N s).
    session tree
    --- stderr
    skipped: ./tree.json:37: loop `root` is listed twice: the one with 3 messages replaces the one with 1
    "#);
}

#[test]
fn one_session_can_be_chosen() {
    let stage = Stage::empty();
    let path = fixture("phi-core/tree.json");
    let said = stage.run(&["import", &path, "--session", "tree"]);
    assert_eq!(said.code, 0, "{said}");
    let said = stage.run(&["import", &path, "--session", "nope"]);
    assert_eq!(said.code, 1, "{said}");
}

#[test]
fn a_path_that_is_not_there_leaves_nothing_behind() {
    let stage = Stage::empty();
    assert_snapshot!(stage.say("import nope.jsonl"), @r#"
    --- stderr
    error: cannot read nope.jsonl: No such file or directory (os error 2)
    hint: check the path and its permissions
    --- exit 1
    "#);
    assert!(!stage.path("loopstore.db").exists());
    assert_eq!(stage.say("import").code, 2);
    assert_eq!(stage.say("import . --format nope").code, 2);
    assert_eq!(stage.run(&["import", ".", "--session", ""]).code, 2);
}

#[test]
fn the_demo_tells_the_whole_story() {
    let stage = Stage::empty();
    assert_snapshot!(stage.say("demo"), @"
    1. Recorded an agent at work: 4 loops, 40 turns, 80 messages.

    2. The context before, for a window of 64,000 tokens:
    LOOP    SECTION  TURNS  MESSAGES  TOKENS
    loop-1  raw      0-7          16  10,787
    loop-2  raw      0-8          18  13,872
    loop-3  raw      0-8          18  13,326
    loop-4  raw      0-13         28  22,632
    all                           80  60,617

    3. loopstore compact demo --max-tokens 64000
    Run RUN: committed
    tokens    60,617 -> 17,244 (28 %)
    messages  80 -> 28
    strategy  digest, N ms
    LOOP    BLOCK  KIND     FIRST  COMPACTED  RECENT  KEPT  TRUNCATED  SUMMARISED  DROPPED  ROLLED UP
    loop-1      1  earlier  -      0-7        -          0          0          16        0          0
    loop-2      1  earlier  -      0-8        -          0          0          18        0          0
    loop-3      1  earlier  -      0-8        -          0          0          18        0          0
    loop-4      1  current  0-1    2-3        4-13      15          9           4        0          0

    4. The context after:
    LOOP    SECTION    TURNS  MESSAGES  TOKENS
    loop-1  compacted  0-7           1   1,992
    loop-2  compacted  0-8           1   1,992
    loop-3  compacted  0-8           1   1,992
    loop-4  first      0-1           5   3,450
    loop-4  compacted  2-3           1   1,229
    loop-4  recent     4-13         19   6,589
    all                             28  17,244

    5. loopstore undo demo; loopstore redo demo
    Run RUN is undone: 17,244 -> 60,617 tokens
    Run RUN is redone: 60,617 -> 17,244 tokens

    6. All originals are still there, including those hidden from the context:
       SELECT tool_name, count(*) AS calls, sum(is_error) AS failed,
           max(length(result_text)) AS longest FROM v_tool_calls
           GROUP BY tool_name ORDER BY calls DESC
    tool_name  calls  failed  longest
    read_file     14       1     7699
    grep           9       1     7864
    run_tests      8       0     8084
    shell          5       0     8029
    ");
    assert_eq!(std::fs::read_dir(stage.path("")).unwrap().count(), 0);
    let story = stage.json("demo");
    assert_eq!(story["before"]["tokens"], story["undo"]["tokens_after"]);
    assert_eq!(story["after"]["tokens"], story["redo"]["tokens_after"]);
}

#[test]
fn the_demo_keeps_its_database_if_asked() {
    let stage = Stage::empty();
    assert_eq!(stage.say("demo --keep kept.db").code, 0);
    assert_eq!(stage.json("sessions --db kept.db")[0]["session_id"], "demo");
    assert_snapshot!(stage.say("demo --keep kept.db"), @r#"
    --- stderr
    error: kept.db already exists; name a new file
    --- exit 1
    "#);
}
