//! Sessions shared as pages: what is asked, written, imported and resumed.

use insta::assert_snapshot;

use loopstore::{Database, Message, Store};

use crate::commands::stage::Stage;

/// Creates a session with a secret in its second turn.
fn recorded() -> Stage {
    let stage = Stage::empty();
    let database: std::sync::Arc<dyn Database> = std::sync::Arc::new(stage.store());
    let store = Store::from(database);
    let chat = store.session("s").unwrap();
    for words in [
        "first",
        "git clone https://me:hunter2@example.org/x",
        "third",
    ] {
        chat.append([
            Message::user(words),
            Message::assistant(format!("answer to {words}")),
        ])
        .unwrap();
    }
    stage
}

#[test]
fn what_is_replaced_is_shown_first_and_nothing_is_written_without_consent() {
    let stage = recorded();
    let shown = stage.say("share s --dry-run");
    assert_eq!(shown.code, 0, "{shown}");
    for text in ["url-password", "message 0", "2 messages"] {
        assert!(shown.out.contains(text), "{text}: {shown}");
    }
    assert!(!shown.out.contains("hunter2"), "{shown}");
    // There is no terminal here.
    assert_snapshot!(stage.say("share s -o s.html"), @"
    --- stderr
    error: what is replaced is to be looked at first; see it with --dry-run, then add --yes
    --- exit 2
    ");
    assert!(!stage.path("s.html").exists());
    assert_eq!(stage.say("share s").code, 2);
}

#[test]
fn a_shared_page_is_imported_and_resumed_elsewhere() {
    let stage = recorded();
    let wrote = stage.say("share s -o s.html --yes");
    assert_eq!(wrote.code, 0, "{wrote}");
    assert!(wrote.out.contains("opens in a browser"), "{wrote}");
    assert!(
        stage
            .say("share s -o s.html --yes")
            .err
            .contains("already exists")
    );
    assert_eq!(stage.say("share s -o s.html --yes --force").code, 0);
    let report = stage.json("--db other.db import s.html");
    assert_eq!(report["sessions"], serde_json::json!(["s"]));
    assert_eq!(report["added_messages"], 6);
    let context = stage.say("--db other.db context s --format text");
    assert!(context.out.contains("[REDACTED:url-password:"), "{context}");
    assert!(!context.out.contains("hunter2"));
    assert_eq!(
        stage
            .say("--db other.db resume s --for codex -o codex.jsonl")
            .code,
        0
    );
    assert_eq!(stage.json("--db other.db verify")["ok"], true);
    // The original is as it was.
    assert!(stage.say("context s --format text").out.contains("hunter2"));
}

#[test]
fn turns_are_given_as_elsewhere() {
    let stage = recorded();
    let loops = stage.json("show s");
    let ids: Vec<&str> = loops["loops"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["loop_id"].as_str().unwrap())
        .collect();
    let (first, last) = (ids[0], ids[ids.len() - 1]);
    let all = stage.json("share s -o all.html --yes");
    assert_eq!(all["cut"], serde_json::Value::Null);
    let cut = stage.json(&format!(
        "share s -o cut.html --yes --from {last}:0 --to {last}:0"
    ));
    assert_eq!(cut["cut"]["turns"], 1, "{cut}");
    let from = stage.json(&format!(
        "share s -o from.html --yes --from {first}:0 --to 0"
    ));
    assert_eq!(from["cut"]["loops"], ids.len(), "{from}");
    for (line, why) in [
        (
            "share s -o x.html --yes --from x",
            "neither TURN nor LOOP:TURN",
        ),
        ("share s -o x.html --yes --to 9", "has no turn 9 here"),
        ("share s -o x.html --yes --loop x --to 0", "no loop `x`"),
        ("share s -o loopstore.db --yes", "it is the database"),
    ] {
        let said = stage.say(line);
        assert_ne!(said.code, 0, "{line}");
        assert!(said.err.contains(why), "{line}: {said}");
        assert!(!stage.path("x.html").exists());
    }
    let loop_alone = stage.say(&format!("share s -o x.html --yes --loop {last}"));
    assert!(
        loop_alone.err.contains("--loop needs --from or --to"),
        "{loop_alone}"
    );
}
