//! Pins of messages: added, listed, removed.

use insta::assert_snapshot;

use crate::commands::stage::Stage;

#[test]
fn a_message_is_pinned_listed_and_taken_back() {
    let stage = Stage::new();
    let said = stage.json("pin work ask:0");
    assert_eq!(
        (said["session_id"].as_str(), said["outcome"].as_str()),
        (Some("work"), Some("pinned"))
    );
    let message = &said["messages"][0];
    assert_eq!(
        (message["turn"].as_u64(), message["changed"].as_bool()),
        (Some(0), Some(true))
    );
    let seq = message["seq"].as_u64().unwrap();
    let listed = stage.json("pin work");
    assert_eq!(listed["pins"][0]["loop_id"], "ask");
    assert_eq!(listed["pins"][0]["author"], "human");
    assert_eq!(stage.say("pin work").code, 0);
    let again = stage.say(&format!("pin work ask:0:{seq}")).out;
    assert_snapshot!(again, @"Message ask:0:0 is pinned already.");
    let row = stage.json("sql SELECT/**/pinned,author,is_last/**/FROM/**/v_pins");
    assert_eq!(
        (row[0]["pinned"].as_u64(), row[0]["author"].as_str()),
        (Some(1), Some("human"))
    );
    let ended = stage.json("unpin work ask:0");
    assert_eq!(ended["outcome"], "unpinned");
    assert_snapshot!(stage.say("pin work").out, @"Nothing is pinned in session work.");
    assert_eq!(stage.json("verify")["ok"], true);
}

#[test]
fn what_is_no_message_is_refused() {
    let stage = Stage::new();
    for (args, code, says) in [
        ("pin work nothing", 2, "expected LOOP:TURN or LOOP:TURN:SEQ"),
        ("pin work ask:x", 2, "expected LOOP:TURN or LOOP:TURN:SEQ"),
        ("pin work :1", 2, "expected LOOP:TURN or LOOP:TURN:SEQ"),
        ("pin work ask:999", 1, "has no turn 999"),
        ("pin work ask:0:999", 1, "has no message 999"),
        ("pin work nowhere:0", 1, "nowhere"),
        (
            "unpin work ask:0",
            1,
            "no message of turn 0 of loop `ask` is pinned",
        ),
    ] {
        let said = stage.say(args);
        assert_eq!(said.code, code, "{args}: {said}");
        assert!(said.err.contains(says), "{args}: {said}");
    }
}
