//! Search and display of messages that a compaction hides.

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::commands::stage::{Stage, add_loop, answer, session};
use loopstore::*;

fn compacted() -> Stage {
    let stage = Stage::new();
    assert_eq!(
        stage.json("compact work --max-tokens 9000")["outcome"],
        "committed"
    );
    stage
}

#[test]
fn hits_say_what_became_of_them() {
    let stage = compacted();
    assert_snapshot!(stage.run(&["search", "\"turn 1 of\""]), @r"
    work, Repair the build, 2026-01-05
      assistant, 2026-01-05 09:01:00
        «Turn 1 of»: try it
        loopstore read work --turn try:1

    work, Repair the build, 2026-01-05
      assistant, 2026-01-05 09:01:00; summarised by block 1 of run RUN
        «Turn 1 of»: build it
        loopstore read work --turn build:1

    work, Repair the build, 2026-01-05
      assistant, 2026-01-05 09:01:00; summarised by block 1 of run RUN
        «Turn 1 of»: ask what is broken
        loopstore read work --turn ask:1

    work, Repair the build, 2026-01-05
      assistant, 2026-01-05 09:01:00
        «Turn 1 of»: test it
        loopstore read work --turn test:1

    4 messages, 2 of them not in the context.
    ");
    assert_snapshot!(stage.run(&["search", "line 80", "--session", "work", "--limit", "2", "--hidden"]), @r"
    work, Repair the build, 2026-01-05
      tool-result, 2026-01-05 09:01:00; summarised by block 1 of run RUN
        …73 of the file «line» 74 of the file «line» 75 of the file «line» 76 of the file «line» 77 of the file «line» 78 of the file «line» 79 of the file «line» «80» of the file
        also in 10 more messages
        loopstore read work --turn build:3

    1 message, 1 of them not in the context.
    ");
    assert_snapshot!(stage.run(&["search", "kite"]), @"Nothing found.");
}

#[test]
fn a_hit_as_json() {
    let stage = compacted();
    let found = stage.run(&[
        "search",
        "src/2.rs",
        "--tool",
        "read_file",
        "--hidden",
        "--limit",
        "1",
        "--json",
    ]);
    assert_snapshot!(found, @r#"
    {
      "hits": [
        {
          "session_id": "work",
          "loop_id": "build",
          "turn": 2,
          "seq": 5,
          "role": "assistant",
          "created_at": "2026-01-05T09:01:00Z",
          "snippet": "read_file path: «src/2.rs»",
          "score": 19.948555,
          "relevance": 1.0,
          "hidden": true,
          "run_id": "RUN",
          "block_loop_id": "build",
          "generation": 1,
          "disposition": "summarised",
          "also": []
        }
      ],
      "indexed": 63,
      "next": 1
    }
    "#);
    let none = stage.json("search kite");
    assert_eq!(none, json!({"hits": [], "indexed": 63, "next": null}));
}

#[test]
fn what_is_asked_for_is_narrowed() {
    let stage = compacted();
    let count = |line: &str| {
        let found = stage.json(line);
        let hits = found["hits"].as_array().unwrap().iter();
        hits.map(|hit| 1 + hit["also"].as_array().unwrap().len())
            .sum::<usize>()
    };
    let all = count("search read_file --limit 200");
    let hidden = count("search read_file --limit 200 --hidden");
    let visible = count("search read_file --limit 200 --visible");
    assert!(hidden > 0 && visible > 0 && hidden + visible == all);
    let calls = count("search read_file --limit 200 --role assistant");
    let results = count("search read_file --limit 200 --role tool-result");
    assert_eq!(
        (
            calls + results,
            count("search read_file --role toolResult --limit 200")
        ),
        (all, results)
    );
    assert_eq!(count("search kind --role extension"), 1);
    assert_eq!(count("search read_file --tool read_fil"), 0);
    assert_eq!(count("search build --session work --role user"), 1);
    assert_eq!(
        stage.say("search build --session wor").code,
        1,
        "it fits two"
    );
}

#[test]
fn times_are_days_or_moments() {
    let stage = Stage::new();
    let count = |since: &str, until: &str| {
        let args = [
            "search", "turn", "--limit", "100", "--json", "--since", since, "--until", until,
        ];
        stage.run(&args).json()["hits"].as_array().unwrap().len()
    };
    let all = count("2026-01-05", "2026-01-05");
    assert!(all > 20);
    assert_eq!(count("2026-01-05T09:01:00Z", "2026-01-05T09:01:00Z"), all);
    assert_eq!(count("2026-01-06", "2027-01-01"), 0);
    assert_eq!(count("2025-01-01", "2026-01-05T09:00:59.999Z"), 0);
    assert_snapshot!(stage.say("search turn --since soon"), @r"
    --- stderr
    error: invalid time `soon`; expected 2026-01-31, NOW, yesterday, or 7d for seven days ago
    --- exit 2
    ");
}

#[test]
fn a_query_that_cannot_be_asked_says_why() {
    let stage = Stage::new();
    assert_snapshot!(stage.run(&["search", "an \"open quote"]), @r#"
    --- stderr
    error: the quote at character 4 is never closed; add a `"`, or remove it
    --- exit 2
    "#);
    assert_snapshot!(stage.run(&["search", ""]), @"
    --- stderr
    error: the query has no letter or digit to look for
    --- exit 2
    ");
    assert_snapshot!(stage.run(&["search", "--", "-this"]), @"
    --- stderr
    error: the query only excludes words; add one to look for
    --- exit 2
    ");
    assert_snapshot!(stage.run(&["search", "OR this"]), @"
    --- stderr
    error: the `OR` at character 1 needs a word or phrase on both sides; quote it to look for the word
    --- exit 2
    ");
    assert_snapshot!(stage.run(&["search", "this", "--limit", "0"]), @"
    --- stderr
    error: invalid value '0' for '--limit <N>': 0 is not in 1..=4294967295

    For more information, try '--help'.
    --- exit 2
    ");
}

#[test]
fn what_was_found_cannot_steer_the_terminal() {
    let stage = Stage::new();
    assert_snapshot!(stage.run(&["search", "see OR one OR kind"]), @r"
    mess'; DROP TABL, <b>\u{1b}[31mred\u{7}</b>, 2026-01-05
      user, 2026-01-05 09:01:00
        «one» \u{202e}two
        loopstore read 'mess'\''; DROP TABL' --turn 'a:b\u{1b}[2J:0'

    mess'; DROP TABL, <b>\u{1b}[31mred\u{7}</b>, 2026-01-05
      tool-result, 2026-01-05 09:01:00
        «see» [1m
        loopstore read 'mess'\''; DROP TABL' --turn 'a:b\u{1b}[2J:3'

    mess'; DROP TABL, <b>\u{1b}[31mred\u{7}</b>, 2026-01-05
      extension, NOW; not in the context
        Be «kind».
        loopstore read 'mess'\''; DROP TABL' --loop 'a:b\u{1b}[2J' --full

    3 messages, 1 of them not in the context.
    ");
}

#[test]
fn an_index_is_brought_up_to_date_and_made_anew() {
    let stage = Stage::new();
    assert_snapshot!(stage.say("index"), @"63 of 63 messages indexed.");
    assert_eq!(stage.json("index"), json!({"indexed": 63, "total": 63}));
    assert_eq!(
        stage.json("index --rebuild"),
        json!({"indexed": 63, "total": 63})
    );
    let shell = crate::support::keyed::raw(stage.path("loopstore.db")).unwrap();
    shell.execute("DELETE FROM message_index_data", []).unwrap();
    assert_snapshot!(stage.say("search turn"), @r#"
    --- stderr
    error: the search index is damaged (fts5: corruption found reading blob 10 from table "message_index"); rebuild it
    hint: `loopstore index --rebuild` rebuilds it
    --- exit 1
    "#);
    assert_snapshot!(stage.say("verify"), @r#"
    No damage found.
    Checked: audit 0, blobs 1, block messages 0, blocks 0, coverage 0, flips 0, hides 0, loops 5, manifests 0, messages 63, pins 0, receipts 0, runs 0, sessions 3, sources 0, turns 33.
    The search index is damaged (fts5: corruption found reading blob 10 from table "message_index"); `loopstore index --rebuild` rebuilds it.
    "#);
    assert_eq!(stage.say("index --rebuild").code, 0);
    assert_eq!(stage.say("search turn").code, 0);
}

#[test]
fn words_of_two_characters_are_found() {
    let stage = Stage::empty();
    let store = stage.store();
    let key = session(&store, "shop", "Returns");
    let spec = crate::commands::stage::LoopSpec {
        id: "a",
        parent: None,
        kind: ContinuationKind::Initial,
        status: LoopStatus::Completed,
    };
    let said = vec![
        Message::user("我要申请退款，谢谢。").into(),
        answer(vec![Content::text("好的。")]).into(),
    ];
    add_loop(&store, key, spec, said);
    drop(store);
    assert_snapshot!(stage.say("search 退款"), @r"
    shop, Returns, 2026-11-28
      user, NOW
        我要申请«退款»，谢谢。
        loopstore read shop --turn a:0

    1 message, 0 of them not in the context.
    ");
}

#[test]
fn expand_reads_what_a_block_replaced() {
    let stage = compacted();
    let block = stage.json("expand work --loop test --block 1");
    assert_eq!(
        (&block["section"], &block["turns"]),
        (&json!("compacted"), &json!([2, 3]))
    );
    let turns = stage.json("expand work --loop test --turns 2..3");
    assert_eq!(block["messages"], turns["messages"]);
    assert_eq!(
        turns.as_object().unwrap().keys().collect::<Vec<_>>(),
        ["messages", "next", "tokens"]
    );
    let first = stage.json("expand work --loop test --block 1 --section first");
    assert_eq!(first["turns"], json!([0, 1]));
    let recent = stage.json("expand work --block 1 --section recent --max-tokens 2000");
    assert_eq!(recent["turns"], json!([4, 13]));
    let next = recent["next"]["seq"].as_u64().unwrap();
    assert!((9..30).contains(&next), "{next}");
    let text = stage
        .say("expand work --loop ask --block 1 --max-tokens 600")
        .out;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        "── loop ask, turns 0-2: covered by the compacted section of block 1"
    );
    assert_eq!(
        lines.last(),
        Some(
            &"Continue with `loopstore expand work --loop ask --turns 0..2 --max-tokens 600 --from 4`."
        )
    );
}

#[test]
fn expand_reads_what_a_run_replaced() {
    let stage = compacted();
    let run = stage.store().run_rows(None).unwrap()[0]
        .text("run_id")
        .unwrap();
    let on_ask = stage.json(&format!("expand work --run {run} --loop ask"));
    assert_eq!(
        on_ask["messages"],
        stage.json("expand work --loop ask --turns 0..2")["messages"]
    );
    assert_eq!(on_ask["covers"][0]["disposition"], "summarised");
    assert_snapshot!(stage.say(&format!("expand work --run {}", &run)), @"
    --- stderr
    error: run `RUN` wrote a block on each of the loops `ask`, `build`, `test`; name one of them
    --- exit 1
    ");
    for (line, why) in [
        ("--block 1 --loop try", "loop `try` has no block"),
        (
            "--block 9 --loop test",
            "loop `test` has no block 9; the last one is 1",
        ),
        (
            "--block 1 --loop ask --section first",
            "block 1 has no first section",
        ),
        ("--run nothing", "no run `nothing`"),
    ] {
        let said = stage.say(&format!("expand work {line}"));
        assert!(said.code == 1 && said.err.contains(why), "{line}: {said}");
    }
    let said = stage.say(&format!("expand work --run {run} --loop try"));
    assert!(said.err.contains("wrote no block on loop `try`"), "{said}");
    for usage in [
        "expand work",
        "expand work --turns 1 --block 1",
        "expand work --turns 1 --section first",
    ] {
        assert_eq!(stage.say(usage).code, 2, "{usage}");
    }
}

#[test]
fn a_rollup_tells_of_the_loops_that_it_stands_for() {
    let stage = Stage::new();
    let compact =
        "compact work --max-tokens 9000 --scope fixed:0 --keep-recent 2 --recent-window loop";
    assert_eq!(stage.json(compact)["outcome"], "committed");
    let hit = &stage.run(&["search", "\"turn 1 of ask\"", "--json"]).json()["hits"][0];
    let hidden =
        ["hidden", "disposition", "block_loop_id", "generation"].map(|key| hit[key].clone());
    assert_eq!(
        hidden,
        [json!(true), json!("rolled_up"), json!("build"), json!(1)]
    );
    let rollup = stage.json("expand work --loop build --block 1");
    let loops: Vec<&Value> = rollup["covers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| &c["loop_id"])
        .collect();
    assert_eq!(loops, ["ask", "build"]);
    assert_eq!(rollup["turns"], json!([0, 5]));
}
