//! Recount, and databases that were written with another token counter.

use std::sync::Arc;

use insta::assert_snapshot;
use loopstore::*;
use serde_json::json;

use crate::commands::stage::{LoopSpec, Stage, add_loop, session, turns};
use crate::support::letters::LETTERS;

/// Creates a folder with a database whose token counter counts letters.
fn letters() -> Stage {
    let stage = Stage::empty();
    let options = crate::support::keyed::options().counter(Arc::new(LETTERS));
    let store = SqliteStore::open_with(stage.path("loopstore.db"), options).unwrap();
    let key = session(&store, "work", "Counted otherwise");
    let spec = LoopSpec {
        id: "ask",
        parent: None,
        kind: ContinuationKind::Initial,
        status: LoopStatus::Completed,
    };
    add_loop(&store, key, spec, turns("ask it", 3, 5));
    stage
}

#[test]
fn a_database_of_an_unknown_counter_names_the_way_out() {
    let stage = letters();
    let commands = [
        "sessions",
        "show work",
        "context work",
        "compact work",
        "compact work --dry-run",
        "history",
        "undo work",
        "redo work",
        "expand work --turns 0",
        "expand --blob 1",
        "sql x",
        "stats",
        "verify",
    ];
    for line in commands {
        let said = stage.say(line);
        assert_eq!(said.code, 1, "{line}: {said}");
        assert!(said.err.contains("`loopstore recount`"), "{line}: {said}");
    }
    std::fs::write(
        stage.path("chat.json"),
        r#"[{"role": "user", "content": "hi"}]"#,
    )
    .unwrap();
    let said = stage.say("import chat.json");
    assert!(said.err.contains("`loopstore recount`"), "{said}");
    assert_snapshot!(stage.say("sessions"), @"
    --- stderr
    error: this database counts tokens with `letters`, not `heuristic`; open it with that counter, or recount it
    hint: `loopstore recount` changes to another counter
    --- exit 1
    ");
}

#[test]
fn a_recount_makes_it_readable() {
    let stage = letters();
    assert_snapshot!(stage.say("recount"), @"Recounted: 7 messages, 0 blocks; letters -> heuristic");
    assert_eq!(stage.json("sessions")[0]["tokens"], 186);
    assert_eq!(stage.json("verify")["ok"], true);
    assert_snapshot!(stage.say("recount --counter estimate"), @"Nothing to do: the database already counts with heuristic.");
    let report = json!({"from": "heuristic", "to": "heuristic", "messages": 0, "blocks": 0,
        "resumed": false});
    assert_eq!(stage.json("recount --counter heuristic"), report);
}

#[test]
fn a_recount_that_was_cut_off_is_finished() {
    let stage = Stage::new();
    let before = stage.json("sessions");
    let connection = crate::support::keyed::raw(stage.path("loopstore.db")).unwrap();
    let sql = "INSERT INTO store_meta (name, value) VALUES ('recount', '{\"to\":\"heuristic\"}')";
    connection.execute(sql, []).unwrap();
    drop(connection);
    assert_snapshot!(stage.say("sessions"), @"
    --- stderr
    error: a recount with `heuristic` was interrupted and must be finished first
    hint: run `loopstore recount` to finish it
    --- exit 1
    ");
    let report = stage.json("recount");
    assert_eq!(
        (&report["to"], &report["resumed"]),
        (&"heuristic".into(), &true.into())
    );
    assert_eq!(stage.json("sessions"), before);
}

#[test]
fn what_cannot_be_counted_with_is_refused() {
    let stage = Stage::new();
    let said = stage.say("recount --counter abacus");
    assert!(said.err.contains("expected one of heuristic"), "{said}");
    for counter in ["abacus", "", "tiktoken", "HEURISTIC", "tiktoken:p50k_base"] {
        let said = stage.run(&["recount", "--counter", counter]);
        assert_eq!(said.code, 2, "{counter}: {said}");
    }
    let empty = Stage::empty();
    assert_eq!(empty.say("recount").code, 1);
    assert!(!empty.path("loopstore.db").exists());
}

#[cfg(not(feature = "tiktoken"))]
#[test]
fn a_tokenizer_that_was_not_built_in_says_how_to_get_it() {
    let stage = Stage::new();
    let said = stage.say("recount --counter tiktoken:o200k_base");
    assert_eq!(said.code, 2);
    assert!(said.err.contains("`--features tiktoken`"), "{said}");
    let connection = crate::support::keyed::raw(stage.path("loopstore.db")).unwrap();
    let sql = "UPDATE store_meta SET value = 'tiktoken:o200k_base' WHERE name = 'token_counter'";
    connection.execute(sql, []).unwrap();
    drop(connection);
    let said = stage.say("sessions");
    assert_eq!(said.code, 1);
    assert!(
        said.err.contains("`loopstore recount`") && said.err.contains("`--features tiktoken`"),
        "{said}"
    );
}

#[cfg(feature = "tiktoken")]
#[test]
fn every_command_works_on_a_database_counted_with_tiktoken() {
    let stage = Stage::new();
    let before = stage.json("sessions");
    assert_snapshot!(stage.say("recount --counter tiktoken:o200k_base"), @"Recounted: 63 messages, 0 blocks; heuristic -> tiktoken:o200k_base");
    let tokens = |rows: &serde_json::Value| rows[0]["tokens"].as_u64().unwrap();
    assert!(tokens(&stage.json("sessions")) != tokens(&before));
    let run = stage.json("compact work --max-tokens 9000 --force");
    assert_eq!(run["outcome"], "committed");
    let context = stage.json("context work");
    assert_eq!(context["tokens"], run["tokens_after"]);
    assert_eq!(stage.json("verify")["ok"], true);
    assert_eq!(stage.say("undo work").code, 0);
    assert_eq!(stage.say("expand work --turns 0").code, 0);
    std::fs::write(
        stage.path("chat.json"),
        r#"[{"role": "user", "content": "hello world"}]"#,
    )
    .unwrap();
    assert_eq!(stage.json("import chat.json")["added_messages"], 1);
    let new = stage.json("sessions");
    let new = new.as_array().unwrap().iter();
    let chat = new
        .clone()
        .find(|row| row["session_id"] == "chat-0")
        .unwrap();
    // "hello world" has two tokens in this vocabulary, three by the estimate; a message adds 4.
    assert_eq!(chat["tokens"], 6);
    stage.json("recount --counter estimate");
    let again = stage.json("sessions");
    let work = |rows: &serde_json::Value| {
        let rows = rows.as_array().unwrap().iter();
        let mut rows = rows.filter(|row| row["session_id"] == "work");
        rows.next().unwrap()["tokens"].clone()
    };
    assert_eq!(work(&again), work(&before));
}
