//! Lists of sessions: titles, prompts, projects and filters.

use insta::assert_snapshot;
use loopstore::extend::sqlite::Record;
use loopstore::{Json, Message, SessionHandle, Store};

use super::stage::Stage;

fn begin(store: &Store, id: &str, prompt: &str) -> SessionHandle {
    let session = store.session(id).unwrap();
    let call =
        Message::assistant("I look.").with_tool_call("c1", "task", Json::parse("{}").unwrap());
    session.append([Message::user(prompt), call]).unwrap();
    session
}

/// Creates sessions of two projects, one of them a sub-agent's.
fn stage() -> Stage {
    let stage = Stage::empty();
    let store = Store::from(stage.store());
    // No two sessions may be last active in the same millisecond.
    let pause = || std::thread::sleep(std::time::Duration::from_millis(3));
    let kite = begin(&store, "0197-kite", "Mend\n the build, please");
    kite.set_project("/work/Kite").unwrap();
    let helper = kite.child("c1", "0197-kite/agent-a").unwrap();
    let task = Message::user("Look for the fault.").with_author(loopstore::Author::Agent);
    helper.append([task]).unwrap();
    pause();
    kite.append([
        Message::tool_result("c1", "Found."),
        Message::assistant("Done."),
    ])
    .unwrap();
    kite.append([Message::user("And the tests")]).unwrap();
    pause();
    let lark = begin(&store, "lark", "Bake a cake");
    lark.set_title("A cake for Ann").unwrap();
    lark.set_project("/work/kitchen/").unwrap();
    pause();
    begin(&store, "owl", "100% of 'all'; DROP TABLE sessions;--");
    stage
}

fn ids(stage: &Stage, args: &[&str]) -> Vec<String> {
    let all = [&["sessions", "--json"], args].concat();
    let rows = stage.run(&all).json();
    let ids = rows.as_array().unwrap().iter();
    let mut ids: Vec<_> = ids
        .map(|row| row["session_id"].as_str().unwrap().to_owned())
        .collect();
    ids.sort();
    ids
}

#[test]
fn sessions_show_their_titles_and_projects() {
    let stage = stage();
    assert_snapshot!(stage.say("sessions"), @"
    SESSION            LAST ACTIVE          PROJECT  LOOPS  TURNS  TOKENS  MESSAGES  TITLE
    owl                NOW               1      1      30         2  100% of 'all'; DROP TABLE se…
    lark               NOW  kitchen      1      1      23         2  A cake for Ann
    0197-kite          NOW  Kite         2      3      50         5  Mend the build, please
    0197-kite/agent-a  NOW               1      1       9         1  Look for the fault.
    ");
    assert_snapshot!(stage.say("sessions --project KIT --limit 1"), @"
    SESSION  LAST ACTIVE          PROJECT  SOURCE  LOOPS  TURNS  TOKENS  MESSAGES  TITLE
    lark     NOW  kitchen              1      1      23         2  A cake for Ann
    ");
    assert_snapshot!(stage.say("show lark"), @"
    Session lark: A cake for Ann
    First prompt: Bake a cake
    Project: /work/kitchen/
    created NOW, last active NOW
    1 loop, 1 turn, 2 messages, 23 tokens

    ● loop-1  Running: 1 turn, 2 messages, 23 tokens
        “Bake a cake”
    ");
    // The sub-agent is not listed.
    assert_snapshot!(stage.say("show 0197"), @"
    Session 0197-kite: Mend the build, please
    Project: /work/Kite
    created NOW, last active NOW
    2 loops, 3 turns, 5 messages, 50 tokens

    ○ loop-1  Completed: 2 turns, 4 messages, 42 tokens
        “Mend the build, please”
    ● loop-2  Running: 1 turn, 1 message, 8 tokens
        “And the tests”
    ");
    let shown = stage.json("show 0197");
    assert_eq!(shown["title"], "Mend the build, please");
    assert_eq!(shown["project"], "/work/Kite");
    assert_eq!(shown["loops"][1]["prompt"], "And the tests");
    let rows = stage.json("sessions --grep cake");
    assert_eq!(
        (&rows[0]["title"], &rows[0]["prompt"], &rows[0]["project"]),
        (
            &"A cake for Ann".into(),
            &"Bake a cake".into(),
            &"/work/kitchen/".into()
        )
    );
}

#[test]
fn lists_are_filtered_by_what_people_remember() {
    let stage = stage();
    assert_eq!(ids(&stage, &[]).len(), 4);
    assert_eq!(ids(&stage, &["--limit", "3"]).len(), 3);
    for (args, found) in [
        (&["--project", "kitchen"] as &[&str], &["lark"] as &[&str]),
        (&["--project", "WORK/KIT"], &["0197-kite", "lark"]),
        (&["--grep", "the"], &["0197-kite", "0197-kite/agent-a"]),
        (&["--grep", "BAKE"], &["lark"]),
        (&["--grep", "agent-a"], &["0197-kite/agent-a"]),
        (&["--grep", "'all'; drop table sessions;--"], &["owl"]),
        (&["--grep", "100%"], &["owl"]),
        (&["--grep", "%"], &["owl"]),
        (&["--grep", "_"], &[]),
        (&["--grep", "--"], &["owl"]),
        (&["--source", "claude-code"], &[]),
        (&["--since", "2001-01-01", "--grep", "cake"], &["lark"]),
        (&["--since", "2999-01-01T00:00:00Z"], &[]),
        (&["--after", "owl", "--limit", "1"], &["lark"]),
        (&["--after", "lark"], &["0197-kite", "0197-kite/agent-a"]),
        (
            &["--after", "owl", "--grep", "agent-a"],
            &["0197-kite/agent-a"],
        ),
        (&["--after", "0197-kite/agent-a"], &[]),
    ] {
        assert_eq!(ids(&stage, args), found, "{args:?}");
    }
    assert_snapshot!(stage.say("sessions --project nowhere"), @"No session fits.");
    assert_snapshot!(stage.say("sessions --since soon"), @r"
    --- stderr
    error: invalid time `soon`; expected 2026-01-31, NOW, yesterday, or 7d for seven days ago
    --- exit 2
    ");
    let refused = stage.say("sessions --after nobody").to_string();
    assert!(
        refused.contains("nobody") && refused.contains("--- exit"),
        "{refused}"
    );
    assert_snapshot!(stage.say("sessions --limit 0"), @"
    --- stderr
    error: invalid value '0' for '--limit <N>': 0 is not in 1..=4294967295

    For more information, try '--help'.
    --- exit 2
    ");
    let store = stage.store();
    let rows: Vec<Record> = store.session_rows(&Default::default()).unwrap();
    assert_eq!(rows.len(), 4, "no table was dropped");
}

#[test]
fn titles_fit_the_terminal_and_go_whole_into_a_pipe() {
    let stage = stage();
    let store = Store::from(stage.store());
    let long = "word ".repeat(60);
    store
        .session("owl")
        .unwrap()
        .set_title(long.trim())
        .unwrap();
    let lines = |width: Option<&str>| -> Vec<String> {
        let mut command = stage.command(&["sessions"]);
        match width {
            Some(width) => command.env("COLUMNS", width),
            None => command.env_remove("COLUMNS"),
        };
        let output = String::from_utf8(command.output().unwrap().stdout).unwrap();
        output.lines().map(str::to_owned).collect()
    };
    for line in lines(Some("90")) {
        assert!(line.chars().count() <= 90 && !line.ends_with(' '), "{line}");
    }
    let whole = lines(None);
    assert!(whole.iter().any(|line| line.contains(long.trim())));
    for line in whole.iter().filter(|line| !line.contains("word")) {
        assert!(line.chars().count() < 150 && !line.ends_with(' '), "{line}");
    }
}

#[test]
fn prompts_and_titles_may_be_anything() {
    let stage = Stage::empty();
    let store = Store::from(stage.store());
    let pause = || std::thread::sleep(std::time::Duration::from_millis(3));
    begin(&store, "huge", &"word ".repeat(1 << 18));
    pause();
    begin(&store, "wide", &"請".repeat(1 << 18));
    pause();
    begin(
        &store,
        "raw",
        "\u{1b}[31mred\u{7}\u{0} <b>&amp;</b>\r\n\u{202e}end",
    );
    pause();
    begin(&store, "none", " \n\t ");
    pause();
    begin(&store, "mb", "Small")
        .set_title("T".repeat(1 << 20))
        .unwrap();
    let rows = stage.json("sessions");
    let titles = rows.as_array().unwrap().iter();
    for row in titles.filter(|row| row["session_id"] != "mb") {
        let chars = row["title"]
            .as_str()
            .map_or(0, |title| title.chars().count());
        assert!(chars <= 100, "{}", row["title"]);
    }
    let said = stage.say("sessions");
    assert!(!said.out.contains(|c: char| c.is_control() && c != '\n'));
    assert_snapshot!(said, @r"
    SESSION  LAST ACTIVE          PROJECT  SOURCE  LOOPS  TURNS   TOKENS  MESSAGES  TITLE
    mb       NOW                       1      1       22         2  TTTTTTTTTTTTTTTTTTTTTTTTTTTTT…
    none     NOW                       1      1       21         2
    raw      NOW                       1      1       28         2  [31mred <b>&amp;</b> \u{202e}…
    wide     NOW                       1      1  196,628         2  請請請請請請請請請請請請請請…
    huge     NOW                       1      1  327,700         2  word word word word word word…
    ");
    assert_snapshot!(stage.say("show raw"), @r"
    Session raw: [31mred <b>&amp;</b> \u{202e}end
    created NOW, last active NOW
    1 loop, 1 turn, 2 messages, 28 tokens

    ● loop-1  Running: 1 turn, 2 messages, 28 tokens
        “[31mred <b>&amp;</b> \u{202e}end”
    ");
    assert_snapshot!(stage.say("show none"), @"
    Session none
    created NOW, last active NOW
    1 loop, 1 turn, 2 messages, 21 tokens

    ● loop-1  Running: 1 turn, 2 messages, 21 tokens
    ");
    assert!(stage.say("show mb").out.len() < 1000);
    let page = stage.say("report mb -o mb.html");
    assert_eq!(page.code, 0, "{page}");
}
