//! `recall` within a token limit, and `expand` of long texts.

use insta::assert_snapshot;
use loopstore::*;
use serde_json::{Value, json};

use crate::commands::stage::{CommandOutput, LoopSpec, Stage, add_loop, answer, result, session};

fn compacted() -> Stage {
    let stage = Stage::new();
    let done = stage.json("compact work --max-tokens 9000");
    assert_eq!(done["outcome"], "committed");
    stage
}

/// Creates a session whose first turn has 100 KB.
fn huge() -> (Stage, Vec<String>) {
    let stage = Stage::empty();
    let lines = (0..2500).map(|n| format!("{n}: row of a table {}", "x".repeat(n % 40)));
    let lines: Vec<String> = lines.collect();
    let store = stage.store();
    let key = session(&store, "it's huge", "A table");
    let spec = LoopSpec {
        id: "a loop",
        parent: None,
        kind: ContinuationKind::Initial,
        status: LoopStatus::Completed,
    };
    let call = Content::tool_call("c1", "read_file", Json::parse(r#"{"path":"t"}"#).unwrap());
    let messages = [
        Message::user("Read it."),
        answer(vec![call]),
        result("c1", &lines.join("\n")),
        answer(vec![Content::text("It is a table.")]),
    ];
    let turn = TurnId::new("source", 0);
    let messages = messages.map(|m| AgentMessage::from(m).in_turn(turn.clone()));
    add_loop(&store, key, spec, messages.into());
    (stage, lines)
}

fn tokens(said: &CommandOutput) -> u64 {
    assert_eq!(said.code, 0, "{said}");
    HeuristicTokenCounter.text_tokens(said.out.trim_end())
}

#[test]
fn an_answer_says_where_it_stands() {
    let stage = compacted();
    assert_snapshot!(stage.run(&["recall", "\"turn 1 of build\""]), @"
    Session work

    ── loop build, turn 1, message 3, assistant; not in the context
    prompt: build it
    > Turn 1 of: build it
    > (call build-1) read_file path: src/1.rs
    ");
    assert_snapshot!(stage.say("recall kite"), @"Nothing found.");
    let (stage, _) = huge();
    let said = stage.say("recall 2040 --max-tokens 110");
    let beginning = "Session it's huge\n\n\
                     ── loop a loop, turn 0, message 2, result of read_file (call c1)\n\
                     call: read_file path: t\n> …\n> 203";
    assert!(
        said.out.starts_with(beginning) && said.out.ends_with("\n> …\n"),
        "{said}"
    );
    assert!(
        said.out.contains("\n> 2040: row of a table \n> 2041: row"),
        "{said}"
    );
}

#[test]
fn an_answer_as_json() {
    let stage = compacted();
    let answer = stage
        .run(&["recall", "\"turn 1 of build\"", "--json"])
        .json();
    let part = &answer["parts"][0];
    let expected = json!({
        "session_id": "work",
        "loop_id": "build",
        "turn": 1,
        "seqs": [0, 3],
        "role": "assistant",
        "created_at": "2026-01-05T09:01:00Z",
        "lead": "prompt: build it",
        "text": "Turn 1 of: build it\n(call build-1) read_file path: src/1.rs",
        "tokens": part["tokens"],
        "score": part["score"],
        "hidden": true,
        "cut": false,
    });
    assert_eq!(part, &expected);
    assert_eq!(answer["left_out"], Value::Null);
    let none = json!({"question": "kite", "tokens": 4, "parts": [], "left_out": null});
    assert_eq!(stage.json("recall kite"), none);
}

/// Creates a session with a dozen notes on one subject, each in different words.
fn notes() -> Stage {
    let stage = Stage::empty();
    let store = stage.store();
    let key = session(&store, "notes", "Notes");
    let spec = LoopSpec {
        id: "l",
        parent: None,
        kind: ContinuationKind::Initial,
        status: LoopStatus::Completed,
    };
    let note = |n: u32| {
        let words = (0..60).map(|word| format!("word{}", n * 1000 + word));
        let text = format!("The kite of {n}: {}", words.collect::<Vec<_>>().join(" "));
        AgentMessage::from(Message::user(text)).in_turn(TurnId::new("source", n))
    };
    add_loop(&store, key, spec, (0..12).map(note).collect());
    stage
}

#[test]
fn an_answer_has_its_tokens_and_goes_on() {
    let stage = notes();
    let ask = |more: &str| stage.say(&format!("recall kite --session notes {more}"));
    for most in [100, 150, 400, 1000, 3000] {
        let said = ask(&format!("--max-tokens {most}"));
        assert!(tokens(&said) <= most, "{most}: {said}");
        let last = said.out.lines().last().unwrap();
        let goes_on = last.starts_with("left out: ") && last.contains("; add --offset ");
        assert!(
            goes_on || said.out.matches("── loop").count() == 12,
            "{said}"
        );
    }
    let mut seen = Vec::new();
    let mut offset = 0;
    while offset < 12 {
        let answer = ask(&format!("--max-tokens 300 --json --offset {offset}")).json();
        for part in answer["parts"].as_array().unwrap() {
            assert!(!seen.contains(&part["turn"]), "{part} twice");
            seen.push(part["turn"].clone());
        }
        offset = answer["left_out"]["offset"].as_u64().unwrap_or(12);
    }
    assert_eq!(seen.len(), 12);
}

#[test]
fn a_question_that_cannot_be_answered_is_refused() {
    let stage = Stage::new();
    assert_snapshot!(stage.run(&["recall", ""]), @"
    --- stderr
    error: the query has no letter or digit to look for
    --- exit 2
    ");
    assert_snapshot!(stage.run(&["recall", "\"turn 1 of build\"", "--max-tokens", "20"]), @"
    --- stderr
    error: an answer needs at least 50 tokens here, and 20 are allowed
    --- exit 1
    ");
    for (most, code) in [
        ("0", 1),
        ("1", 1),
        ("many", 2),
        ("-1", 2),
        ("18446744073709551615", 0),
    ] {
        let said = stage.run(&["recall", "turn", &format!("--max-tokens={most}")]);
        assert_eq!(said.code, code, "{most}: {said}");
    }
    // Of a long pasted query, the first words are searched for.
    assert_eq!(stage.run(&["recall", &"w ".repeat(60_000)]).code, 0);
    assert_eq!(stage.run(&["recall", &"+w ".repeat(40_000)]).code, 0);
    assert_eq!(stage.say("recall turn --session nobody").code, 1);
}

#[test]
fn what_is_recalled_cannot_steer_the_terminal() {
    let stage = Stage::new();
    let said = stage.say("recall one --max-tokens 120");
    assert!(tokens(&said) <= 120, "{said}");
    assert!(
        said.out
            .contains("loop a:b\\u{1b}[2J, turn 0, message 1, user"),
        "{said}"
    );
    assert!(said.out.contains("\n> one\\u{d}> \\u{202e}two\n"), "{said}");
}

#[test]
fn a_turn_of_100_kilobytes_is_read_by_the_commands_that_are_told() {
    let (stage, lines) = huge();
    let mut said = stage.run(&["expand", "it's", "--turns", "0..0", "--max-tokens", "2k"]);
    let mut read: Vec<String> = Vec::new();
    for _ in 0..99 {
        assert!(tokens(&said) <= 2000, "{} tokens", tokens(&said));
        let rows = said.out.lines().filter(|line| line.contains(": row of"));
        read.extend(rows.map(|row| row.strip_prefix("> ").unwrap().to_owned()));
        let last = said.out.lines().last().unwrap();
        let Some(command) = last.strip_prefix("Continue with `") else {
            assert_eq!(read, lines);
            assert!(
                said.out.ends_with("assistant\n> It is a table.\n"),
                "{said}"
            );
            return;
        };
        said = stage.paste(command.strip_suffix("`.").unwrap());
    }
    panic!("it never ends");
}

#[test]
fn pages_as_json_say_what_they_hold() {
    let (stage, lines) = huge();
    let page = |more: &[&str]| {
        let mut args = vec![
            "expand",
            "it's",
            "--turns",
            "0",
            "--max-tokens",
            "2k",
            "--json",
        ];
        args.extend(more);
        stage.run(&args).json()
    };
    let first = page(&[]);
    let cut = &first["cut"][0];
    assert_eq!(
        (&cut["message"], &cut["seq"], &cut["lines"]),
        (&json!(2), &json!(2), &json!(2500))
    );
    let text = first["messages"][2]["content"][0]["text"].as_str().unwrap();
    let count = text.lines().count();
    assert_eq!(text.trim_end(), lines[..count].join("\n"));
    assert_eq!(cut["shown"][0]["lines"], json!([1, count]));
    let offset = text.chars().count();
    assert_eq!(cut["shown"][0]["chars"], json!([0, offset - 1]));
    assert_eq!(first["next"], json!({"seq": 2, "offset": offset}));
    let second = page(&["--from", &format!("2:{offset}")]);
    let text = second["messages"][0]["content"][0]["text"]
        .as_str()
        .unwrap();
    assert_eq!(text.lines().next(), Some(&*lines[count]));
}

#[test]
fn of_a_turn_only_what_fits_is_shown() {
    let (stage, _) = huge();
    assert_snapshot!(stage.run(&["expand", "it's", "--turns", "0", "--match", "2040"]), @"
    result of read_file (call c1), message 2
    … left out: lines 1-2037, characters 0-83369 …
    > 2037: row of a table xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
    > 2038: row of a table xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
    > 2039: row of a table xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
    > 2040: row of a table 
    > 2041: row of a table x
    > 2042: row of a table xx
    > 2043: row of a table xxx
    … left out: lines 2045-2500, characters 83643-102438 …
    ");
    assert_snapshot!(stage.run(&["expand", "it's", "--turns", "0", "--match", "kite"]), @"Nothing found.");
    assert_snapshot!(stage.run(&["expand", "it's", "--turns", "0", "--from", "9"]), @"
    --- stderr
    error: message 9 is not in the turns 0..0, which hold the messages 0..3
    --- exit 1
    ");
    let few = stage.run(&["expand", "it's", "--turns", "0", "--max-tokens", "10"]);
    assert!(
        few.code == 1 && few.err.contains("an answer needs at least "),
        "{few}"
    );
    for (option, given, code) in [
        ("--match", "", 2),
        ("--match", "\"open", 0),
        ("--from", "x", 2),
        ("--from", "1:", 2),
        ("--from", "2:99999999", 0),
        ("--max-tokens", "0", 1),
        ("--max-tokens", "18446744073709551615", 0),
    ] {
        let said = stage.run(&["expand", "it's", "--turns", "0", option, given]);
        assert_eq!(said.code, code, "{option} {given}: {said}");
    }
}
