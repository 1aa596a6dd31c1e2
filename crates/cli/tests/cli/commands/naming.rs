//! Ids as people use them: short prefixes in what is printed, `@` for the newest session, and lines to paste.

use insta::assert_snapshot;
use loopstore::*;
use serde_json::json;

use crate::commands::stage::Stage;

/// Creates sessions with ids of a program, of which two begin alike, and one with a sub-agent.
fn named() -> Stage {
    let stage = Stage::empty();
    let store = Store::from(stage.store());
    let ids = [
        ("9f3c1b2a-1d1e-4000-8000-000000000001", "Mend the lamp"),
        ("9f3c1b2a-1d1e-5000-8000-000000000002", "Mend the roof"),
        ("7c3c1b2b-1d1e-4000-8000-000000000003", "Mend the door"),
    ];
    for (id, title) in ids {
        let chat = store.session(id).unwrap();
        chat.set_title(title).unwrap();
        chat.append([Message::user(title), Message::assistant("I mend it.")])
            .unwrap();
    }
    let newest = store.session(ids[2].0).unwrap();
    let call = json!({"task": "paint"});
    let ask = Message::assistant("").with_tool_call("c1", "agent", call);
    newest.append([Message::user("And paint it"), ask]).unwrap();
    let agent = newest.child("c1", "painter").unwrap();
    agent.append([Message::user("Paint")]).unwrap();
    stage
}

fn ids(said: &str) -> Vec<&str> {
    let lines = said.lines().skip(1);
    lines
        .filter_map(|line| line.split_whitespace().next())
        .collect()
}

#[test]
fn tables_show_ids_that_work() {
    let stage = named();
    let said = stage.run(&["sessions", "--grep", "mend"]).out;
    let shown = ids(&said);
    assert!(
        shown.contains(&"9f3c1b2a-1d1e-4") && shown.contains(&"9f3c1b2a-1d1e-5"),
        "{said}"
    );
    for id in shown {
        let found = stage.json(&format!("show {id}"));
        assert!(
            found["session_id"].as_str().unwrap().starts_with(id),
            "{id}"
        );
    }
    // A narrow terminal cuts titles.
    let narrow = stage
        .command(&["sessions", "--grep", "mend"])
        .env("COLUMNS", "62")
        .output()
        .unwrap();
    let narrow = String::from_utf8(narrow.stdout).unwrap();
    assert!(narrow.contains("9f3c1b2a-1d1e-4 "), "{narrow}");
    assert_eq!(
        stage.json("sessions --grep lamp")[0]["session_id"],
        "9f3c1b2a-1d1e-4000-8000-000000000001",
        "scripts get whole ids"
    );
}

#[test]
fn the_newest_session_has_a_sign() {
    let stage = named();
    let title = |given: &str| {
        let shown = stage.json(&format!("show {given}"));
        shown["title"].as_str().unwrap().to_owned()
    };
    assert_eq!(title("@"), "Mend the door");
    assert_eq!(title("@-"), "Mend the roof");
    assert_eq!(title("@--"), "Mend the lamp");
    let said = stage.say("show @---");
    assert_eq!(said.code, 1, "{said}");
    assert!(said.err.contains("no session `@---`"), "{said}");
    // A session may have this id.
    let store = Store::from(stage.store());
    store
        .session("@")
        .unwrap()
        .append([Message::user("I am it")])
        .unwrap();
    assert_eq!(title("@"), "I am it");
    assert_eq!(stage.say("show @x").code, 1);
}

#[test]
fn a_hit_names_its_session_and_how_to_read_it() {
    let stage = Stage::new();
    let project = Store::from(stage.store()).session("work").unwrap();
    project.set_project("/home/kite").unwrap();
    let said = stage.run(&["search", "\"turn 1 of\"", "--limit", "1"]);
    assert_snapshot!(said, @r"
    work, Repair the build, kite, 2026-01-05
      assistant, 2026-01-05 09:01:00
        «Turn 1 of»: try it
        loopstore read work --turn try:1

    1 message, 0 of them not in the context.
    Use --offset 1 for more.
    ");
    let command = said
        .out
        .lines()
        .find(|line| line.contains("loopstore read "))
        .unwrap();
    let read = stage.paste(command.trim());
    assert_eq!(read.code, 0, "{read}");
    assert!(read.out.contains("Turn 1 of"), "{read}");
}

#[test]
fn hints_repeat_what_is_known() {
    let stage = Stage::new();
    assert_snapshot!(stage.say("context work --loop nope"), @r"
    --- stderr
    error: no loop `nope` in this session
    hint: `loopstore show work` lists the loops
    --- exit 1
    ");
    assert_snapshot!(stage.say("context work --loop build --max-tokens 700"), @r"
    --- stderr
    error: the context has 3930 tokens and 700 fit; compact it first
    hint: `loopstore compact work --loop build --max-tokens 700` makes it fit
    --- exit 1
    ");
    let said = stage.run(&[]);
    let last = said.out.lines().last().unwrap();
    assert!(last.starts_with("`loopstore read "), "{said}");
}

#[test]
fn an_error_is_json_too() {
    let stage = Stage::new();
    let said = stage.say("show nobody --json");
    assert_eq!(said.code, 1);
    assert_eq!(
        said.json(),
        json!({"error": "no session `nobody`", "hint": "`loopstore sessions` lists the sessions", "code": 1})
    );
    assert!(said.err.contains("no session `nobody`"), "{said}");
    let said = stage.say("show --json");
    assert_eq!(said.code, 2);
    let error = said.json();
    assert_eq!((&error["code"], &error["hint"]), (&json!(2), &json!(null)));
    assert!(
        error["error"].as_str().unwrap().contains("required"),
        "{error}"
    );
    assert_eq!(stage.say("show nobody").out, "");
    // Of a document that has begun there is no second one.
    let said = stage.say("search x --since soon --json");
    assert_eq!(said.json()["code"], 2, "{said}");
}

#[test]
fn the_current_loop_changes_when_it_is_asked_to() {
    let stage = Stage::new();
    let current = || stage.json("show work")["current_loop_id"].clone();
    assert_snapshot!(stage.say("fork work --loop build --turn 2 --id aside"), @r"
    Loop aside continues from turn 2 of build.
    `loopstore switch work aside` makes it the current loop.
    ");
    assert_eq!(current(), "test");
    assert_eq!(
        stage.json("switch work asi"),
        json!({"session_id": "work", "loop_id": "aside", "previous_loop_id": "test"})
    );
    assert_eq!(current(), "aside");
    assert_eq!(stage.json("context work")["loop_id"], "aside");
    assert_snapshot!(stage.say("switch work aside"), @"Loop aside is the current loop already.");
    assert_snapshot!(stage.say("switch work test"), @"Loop test is now the current loop; before it was aside.");
    assert_eq!(stage.say("switch work nope").code, 1);
    assert_eq!(stage.json("verify")["ok"], true);
}

#[test]
fn what_is_shown_now_has_a_mark() {
    let stage = Stage::new();
    stage.say("compact work --max-tokens 9000");
    assert_eq!(stage.say("drop work ask:0:1 --loop try").code, 0);
    let marked = |said: &str| {
        let marked = said
            .lines()
            .filter(|line| line.contains("▶ block") || line.contains("▶ edits"));
        marked.count()
    };
    let shown = stage.say("show work").out;
    assert_eq!(marked(&shown), 3, "{shown}");
    assert!(
        shown.ends_with("▶ in the context of the current loop now\n"),
        "{shown}"
    );
    stage.say("undo work");
    let shown = stage.say("show work").out;
    assert_eq!(marked(&shown), 0, "{shown}");
}

#[test]
fn a_loop_that_waits_is_idle() {
    let stage = Stage::empty();
    let store = Store::from(stage.store());
    let chat = store.session("lamp").unwrap();
    chat.append([Message::user("On?"), Message::assistant("On.")])
        .unwrap();
    assert!(stage.say("show lamp").out.contains("loop-1  Idle: 1 turn"));
    assert_snapshot!(stage.say("recover"), @"Left 1 idle loop, which no agent drives; --all aborts them.");
    let call = Message::assistant("").with_tool_call("c1", "pay", json!({"euro": 3}));
    chat.append([Message::user("Pay"), call]).unwrap();
    chat.start_call("c1").unwrap();
    let said = stage.say("recover").out;
    assert!(said.contains("1 started call without a result:"), "{said}");
}

#[test]
fn the_help_lists_ten_commands_and_then_all() {
    let stage = Stage::empty();
    let lines = |said: &str| {
        let lines = said.split("\nOptions").next().unwrap().lines();
        let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
        names.count()
    };
    assert_eq!(lines(&stage.say("-h").out), 10);
    let all = stage.say("--help").out;
    for group in [
        "Read:",
        "Compact and edit:",
        "Move:",
        "Remove:",
        "Operate:",
        "Agents:",
    ] {
        assert!(all.contains(&format!("\n{group}\n")), "{group}\n{all}");
    }
    assert!(!all.contains("\nOther:"), "{all}");
    // A screen of options, and the rest where it is asked for.
    let some = stage.say("compact --help").out;
    assert!(
        some.contains("--help-all") && !some.contains("--max-rollup-tokens"),
        "{some}"
    );
    let whole = stage.say("compact --help-all").out;
    assert!(whole.contains("--max-rollup-tokens") && whole.lines().count() > some.lines().count());
    assert_eq!(
        stage.say("compact work --max-rollup-tokens 1").code,
        1,
        "it can be given"
    );
    assert!(stage.say("show --help-all").out.contains("Usage"));
}
