//! Edits of messages: dropped, cleared, replaced and brought back.

use insta::assert_snapshot;

use crate::commands::stage::Stage;

fn texts(stage: &Stage) -> String {
    stage.json("context work")["messages"].to_string()
}

#[test]
fn what_is_dropped_is_shown_first_and_comes_back() {
    let stage = Stage::new();
    let before = texts(&stage);
    let preview = stage.say("drop work ask:0:2 --dry-run").out;
    assert_snapshot!(preview, @r"
    message    action          author                            tokens  after  text
    ask:0:2    removed         result of read_file (call ask-0)     409      0  line 1 of the file\nline 2 of the…
    ask:0:1:1  removed (pair)  assistant                             16      0  Turn 0 of: ask what is broken\n(c…
    Would remove 1 message, 1 part of pairs with them: 10,012 -> 9,587 tokens, 49 -> 48 messages
    Nothing was written.
    ");
    assert_eq!(texts(&stage), before);
    assert_snapshot!(stage.say("drop work ask:0:2 --reason noise").out, @r"
    Removed 1 message, 1 part of pairs with them: 10,012 -> 9,587 tokens, 49 -> 48 messages
    `loopstore undo work --run RUN` takes it back.
    ");
    assert_ne!(texts(&stage), before);
    assert_snapshot!(stage.say("history work").out, @r"
    RUN            LOOP  STARTED              TRIGGER  STRATEGY  OUTCOME    STATE   BEFORE  AFTER
    RUN  test  NOW  edit     edit      committed  active  10,012  9,587

    RUN            REASON
    RUN  noise
    ");
    let row = stage.json("sql SELECT/**/action,from_turn,is_live/**/FROM/**/v_edits");
    assert_eq!(
        (row[0]["action"].as_str(), row[0]["from_turn"].as_u64()),
        (Some("removed"), Some(0))
    );
    assert_snapshot!(stage.say("restore work ask:0:2").out, @"Run RUN is undone: 9,587 -> 10,012 tokens");
    assert_eq!(texts(&stage), before);
    assert_eq!(stage.json("verify")["ok"], true);
}

#[test]
fn filters_select_what_is_cleared_and_an_undo_takes_it_back() {
    let stage = Stage::new();
    let before = texts(&stage);
    let report = stage.json("clear work --tool read_file --larger 100 --older-than 1-turns");
    let edits = report["edits"].as_array().unwrap();
    assert!(edits.len() > 3, "{report}");
    assert!(report["tokens_after"].as_u64() < report["tokens_before"].as_u64());
    let shown = texts(&stage);
    assert_eq!(shown.matches("[cleared: ").count(), edits.len());
    assert_eq!(stage.say("undo work").code, 0);
    assert_eq!(texts(&stage), before);
}

#[test]
fn a_text_is_replaced_from_an_option_a_file_or_stdin() {
    let stage = Stage::new();
    std::fs::write(stage.path("new.txt"), "from a file").unwrap();
    assert_eq!(stage.say("replace work ask:0:0 --file new.txt").code, 0);
    assert!(texts(&stage).contains("from a file"));
    assert_eq!(
        stage
            .run(&["replace", "work", "ask:0:0", "--text", "as I meant it"])
            .code,
        0
    );
    assert!(texts(&stage).contains("as I meant it"));
    let mut piped = stage.command(&["replace", "work", "ask:0:0", "-"]);
    let said = stage.said(&piped.write_stdin("from stdin").output().unwrap());
    assert_eq!(said.code, 0, "{said}");
    assert!(texts(&stage).contains("from stdin"));
    std::fs::write(stage.path("bad.txt"), [0xff, 0xfe]).unwrap();
    assert_eq!(stage.say("replace work ask:0:0 --file bad.txt").code, 2);
}

#[test]
fn what_cannot_be_edited_is_refused() {
    let stage = Stage::new();
    stage.json("pin work ask:0:1");
    for (args, code, says) in [
        ("drop work", 2, "TARGET"),
        ("drop work ask:0 --tool bash", 2, "cannot be used with"),
        ("drop work ask:x", 2, "expected LOOP:TURN"),
        ("drop work :1", 2, "expected LOOP:TURN"),
        ("drop work ask:3..1", 2, "ends before it begins"),
        ("drop work ask:99999999999", 2, "expected LOOP:TURN"),
        ("drop work ask:999", 1, "999"),
        ("drop work nowhere:0", 1, "nowhere"),
        ("drop work no-such-call", 1, "no-such-call"),
        ("drop work ask:0:1", 1, "pinned"),
        ("drop work --match nobody-wrote-this", 1, "no message"),
        ("drop work --larger x", 2, "--larger"),
        (
            "clear work --older-than 20-days",
            2,
            "expected 20 or 20-turns",
        ),
        ("replace work ask:0:0", 2, "--text"),
        ("replace work ask:0:0 --file nowhere.txt", 2, "nowhere.txt"),
        ("restore work ask:0:0", 1, "edit"),
        ("restore nowhere ask:0:0", 1, "nowhere"),
    ] {
        let said = stage.say(args);
        assert_eq!(said.code, code, "{args}: {said}");
        assert!(said.err.contains(says), "{args}: {said}");
    }
    assert_eq!(
        stage.json("sql SELECT/**/count(*)/**/AS/**/n/**/FROM/**/v_edits")[0]["n"],
        0
    );
}

#[test]
fn every_view_names_what_was_edited_and_why() {
    let stage = Stage::new();
    stage.json("drop work ask:0:2 --reason noise");
    stage.json("clear work ask:1 --reason size");
    let lines = |args: &str, wanted: &[&str]| {
        let said = stage.say(args);
        for text in wanted {
            assert!(said.out.contains(text), "{args}, {text}: {said}");
        }
    };
    let edits = [
        ": noise",
        "   removed ask:0:1:1 (16 -> 0 tokens)",
        "   removed ask:0:2 (409 -> 0 tokens)",
        ": size",
        "   cleared ask:1:3:1 (16 -> 12 tokens)",
        "   cleared ask:1:4:0 (398 -> 22 tokens)",
    ];
    lines("context work", &edits);
    lines(
        "context work",
        &["verbatim (6 messages, 515 tokens), with edits", "── edits"],
    );
    lines("replay work", &edits);
    lines("replay work", &["── edited from loop "]);
    lines("diff work --from raw", &edits);
    lines(
        "diff work --from raw",
        &["0-1        raw -> edited", "edits of `to` only, run "],
    );
    lines(
        "diff work --from now --to raw",
        &["edits of `from` only, run "],
    );
    // By default, what the newest run changed.
    lines("diff work", &["1          raw -> edited", ": size"]);
    assert!(!stage.say("diff work").out.contains("noise"));
    // A turn of which nothing is left is no longer shown as recorded.
    stage.json("drop work ask:2");
    lines("diff work", &["2          raw -> removed"]);
    let shown = stage.json("context work");
    assert_eq!(shown["edits"].as_array().map(Vec::len), Some(3));
    assert_eq!(shown["edits"][0]["reason"], "noise");
    let found = stage.json("diff work --from raw");
    assert_eq!(found["counts"]["removed"], serde_json::json!([0, 1]));
    assert_eq!(found["edited"].as_array().map(Vec::len), Some(3));
    // An undo is replayed with what it brings back, and its reason.
    let undone = stage.run(&["undo", "work", "--reason", "needed"]);
    assert_eq!(undone.code, 0, "{undone}");
    let steps = stage.json("replay work");
    let steps = steps.as_array().unwrap().iter();
    let changes: Vec<&str> = steps.filter_map(|step| step["change"].as_str()).collect();
    assert_eq!(changes, ["edited", "edited", "edited", "undone"]);
    lines("replay work", &["── undone from loop ", ": needed"]);
    lines("history work", &["needed", "noise"]);
}
