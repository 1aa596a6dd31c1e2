//! The context of the next model call.

use insta::assert_snapshot;
use serde_json::Value;

use crate::commands::stage::Stage;

#[test]
fn the_text_names_section_loop_and_turn_of_each_message() {
    let stage = Stage::new();
    let said = stage.say("context work --loop try").out;
    let short: Vec<&str> = said
        .lines()
        .filter(|line| !line.starts_with("> line "))
        .collect();
    assert_snapshot!(short.join("\n"), @r#"
    Context of session work, loop try: 8 messages, 572 tokens, 3.3 KiB

    ── loop ask, turn 0: verbatim (3 messages, 446 tokens)

    [0] user, ask:0
    > ask what is broken

    [1] assistant, ask:0
    > Turn 0 of: ask what is broken
    > (call ask-0) read_file {"path":"src/0.rs"}

    [2] result of read_file (call ask-0), ask:0

    ── loop try, turns 0-1: verbatim (5 messages, 126 tokens)

    [3] user, try:0
    > try it

    [4] assistant, try:0
    > Turn 0 of: try it
    > (call try-0) read_file {"path":"src/0.rs"}

    [5] result of read_file (call try-0), try:0

    [6] assistant, try:1
    > Turn 1 of: try it
    > (call try-1) read_file {"path":"src/1.rs"}

    [7] result of read_file (call try-1), try:1
    "#);
}

#[test]
fn faults_and_steering_characters_are_shown() {
    let stage = Stage::new();
    assert_snapshot!(stage.say("context mess"), @r#"
    Context of session mess'; DROP TABLE sessions;--, loop a:b\u{1b}[2J: 8 messages, 169 tokens, 1.1 KiB
    Requests for a provider begin with the system prompt, 7 tokens more.

    ── loop a:b\u{1b}[2J, turns 0-7: verbatim (8 messages, 169 tokens)

    [0] user, a:b\u{1b}[2J:0
    > one\u{d}> \u{202e}two

    [1] user, a:b\u{1b}[2J:1
    > three

    [2] assistant, a:b\u{1b}[2J:2
    > (thinking) hm
    > (thinking) unsigned
    > I look.
    > (call c.1) ls\u{1b}]0;x\u{7} null
    > (call c.2) ls [1.50]

    [3] result of read_file (call c.1), a:b\u{1b}[2J:3
    > see\u{1b}[1m
    > (image image/png, 6 bytes)

    [4] result of read_file (call c.9), a:b\u{1b}[2J:4
    > lost

    [5] assistant, a:b\u{1b}[2J:5
    >

    [6] assistant, a:b\u{1b}[2J:6
    > done

    [7] user, a:b\u{1b}[2J:7
    > thanks

    ── faults in the recorded messages
    [2] a tool call without its result (c.2)
    [4] a tool result without its call (c.9)
    [5] an empty message
    "#);
}

#[test]
fn faults_are_in_the_json() {
    let stage = Stage::new();
    assert_snapshot!(stage.json("context mess")["faults"], @r#"[{"kind":"call_without_result","message":2,"tool_call_id":"c.2"},{"kind":"result_without_call","message":4,"tool_call_id":"c.9"},{"kind":"empty_content","message":5}]"#);
}

#[test]
fn sections_of_a_block_have_headings() {
    let stage = Stage::new();
    stage.say("compact work --max-tokens 9000 --keep-recent 2");
    let said = stage.say("context work").out;
    let headings: Vec<&str> = said.lines().filter(|line| line.starts_with("──")).collect();
    assert_snapshot!(headings.join("\n"), @"
    ── loop ask, turns 0-2: summary (1 message, 98 tokens)
    ── loop build, turns 0-5: summary (1 message, 157 tokens)
    ── loop test, turns 0-1: first turns, verbatim (5 messages, 874 tokens)
    ── loop test, turns 2-11: summary (1 message, 208 tokens)
    ── loop test, turns 12-13: recent turns, long outputs cut (4 messages, 584 tokens)
    ");
}

#[test]
fn the_json_has_the_documented_keys() {
    let stage = Stage::new();
    let context = stage.json("context work --loop try");
    let keys: Vec<&String> = context.as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        [
            "bytes",
            "faults",
            "loop_id",
            "messages",
            "parts",
            "session_id",
            "tokens"
        ]
    );
    assert_snapshot!(serde_json::to_string_pretty(&context["parts"]).unwrap(), @r#"
    [
      {
        "from_turn": 0,
        "loop_id": "ask",
        "messages": 3,
        "section": "raw",
        "to_turn": 0,
        "tokens": 446
      },
      {
        "from_turn": 0,
        "loop_id": "try",
        "messages": 5,
        "section": "raw",
        "to_turn": 1,
        "tokens": 126
      }
    ]
    "#);
    let plain = stage.say("context work --loop try --format json");
    assert_eq!(plain.json(), context);
}

#[test]
fn a_window_that_is_too_small_is_an_error() {
    let stage = Stage::new();
    assert_snapshot!(stage.say("context work --max-tokens 100"), @r"
    --- stderr
    error: the context has 10012 tokens and 100 fit; compact it first
    hint: `loopstore compact work --max-tokens 100` makes it fit
    --- exit 1
    ");
    assert_eq!(
        stage
            .say("context work --max-tokens 18446744073709551615")
            .code,
        0
    );
    assert_eq!(stage.say("context worker --max-tokens 0").code, 1);
    // The recorded system prompt uses a part of the window.
    let tokens = stage.json("context mess")["tokens"].as_u64().unwrap();
    assert_eq!(
        stage
            .say(&format!("context mess --max-tokens {tokens}"))
            .code,
        1
    );
    assert_eq!(
        stage
            .say(&format!("context mess --max-tokens {}", tokens + 50))
            .code,
        0
    );
}

fn loops(context: &Value) -> Vec<String> {
    let parts = context["parts"].as_array().unwrap();
    parts
        .iter()
        .map(|part| part["loop_id"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn older_loops_are_skipped_if_asked() {
    let stage = Stage::new();
    let read = |flags: &str| loops(&stage.json(&format!("context work {flags}")));
    assert_eq!(read(""), ["ask", "build", "test"]);
    assert_eq!(
        read("--older-loops skip --scope fixed:1"),
        ["build", "test"]
    );
    assert_eq!(read("--older-loops skip --scope fixed:0"), ["test"]);
    assert_eq!(
        read("--older-loops rollup --scope fixed:0"),
        ["ask", "build", "test"]
    );
    assert_eq!(read("--loop build"), ["ask", "build"]);
    let tokens = stage.json("context work --loop test --older-loops skip --scope fixed:0");
    let window = tokens["tokens"].as_u64().unwrap() + 10;
    let flags = format!("--older-loops skip --scope token-budget --max-tokens {window}");
    assert_eq!(read(&flags), ["test"]);
}

#[test]
fn a_moment_is_a_run_or_a_turn() {
    let stage = Stage::new();
    let raw = stage.json("context work");
    stage.json("compact work --max-tokens 9000");
    let compacted = stage.json("context work");
    stage.json("undo work");
    assert_eq!(stage.json("context work"), raw);
    let run = stage.store().run_rows(None).unwrap()[0]
        .text("run_id")
        .unwrap();
    assert_eq!(
        stage.json(&format!("context work --as-of {}", &run[..18])),
        compacted
    );
    let early = stage.json("context work --as-of te:0");
    assert_eq!(early["loop_id"], "test");
    assert_eq!(early["parts"][2]["to_turn"], 0);
    assert_eq!(stage.json("context work --as-of te:0 --loop test"), early);
    assert_snapshot!(stage.say("context work --as-of test:0 --loop ask"), @r#"
    --- stderr
    error: --as-of names a moment of loop `test`, but --loop is `ask`; omit --loop
    --- exit 2
    "#);
    assert_snapshot!(stage.say("context work --as-of test:99"), @"
    --- stderr
    error: loop `test` has no turn 99: it has 14
    --- exit 1
    ");
    assert_snapshot!(stage.say("context work --as-of nope"), @r#"
    --- stderr
    error: no run `nope`
    hint: `loopstore history` lists the runs
    --- exit 1
    "#);
    assert_snapshot!(stage.say("context work --as-of test:x"), @r#"
    --- stderr
    error: invalid value 'test:x' for '--as-of <RUN|LOOP:TURN|TIME|MANIFEST>': `x` is not a turn; expected a run, a manifest, LOOP:TURN or a time

    For more information, try '--help'.
    --- exit 2
    "#);
    // A date selects the last turn or run before it; an undo is neither.
    assert_eq!(stage.json("context work --as-of 2999-01-01"), compacted);
    assert_snapshot!(stage.say("context work --as-of 1999-01-01"), @"
    --- stderr
    error: nothing is recorded of `work` until 1999-01-01T23:59:59.999999999
    --- exit 1
    ");
    // The id of the loop contains a colon.
    assert_eq!(
        stage.json("context mess --as-of a:b:0")["parts"][0]["to_turn"],
        0
    );
}
