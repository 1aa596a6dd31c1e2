//! phi-core sessions: everything is kept, parents come first, and an invalid part affects no other part.

use crate::support::recording::{
    FoundSession, Recording, import, import_file, import_fixture, real_transcripts, try_import,
};
use loopstore::{Json, LoopId, LoopRecord, LoopStatus, Session, SessionId};
use loopstore_transcripts::{FoundEffect, Identity, ImportError, Importer, PhiCore};
use serde_json::Value;
use std::path::Path;

/// Returns the session as its document would be written again.
fn rebuilt(found: &FoundSession) -> Session {
    let mut session = found.head.session.clone();
    for found in &found.loops {
        let compaction_block = match found.compactions.first().map(|c| &c.effect) {
            Some(FoundEffect::Block(block)) => Some(*block.clone()),
            _ => None,
        };
        let messages = found.messages.clone();
        session.loops.push(LoopRecord {
            messages,
            compaction_block,
            ..found.record.clone()
        });
    }
    session
}

fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn written(session: &Session) -> Value {
    value(&serde_json::to_string(session).unwrap())
}

fn session(loops: &str) -> String {
    format!("{{\"session_id\":\"s\",\"loops\":[{loops}]}}")
}

fn parents(found: &Recording) -> Vec<(&str, Option<&str>)> {
    found.sessions[0]
        .loops
        .iter()
        .map(|found| {
            let parent = found.record.parent_loop_id.as_ref().map(LoopId::as_str);
            (found.record.loop_id.as_str(), parent)
        })
        .collect()
}

#[test]
fn a_session_comes_with_all_its_fields_and_its_parents_first() {
    let found = import_fixture(&PhiCore, "phi-core/tree.json");
    let session = &found.sessions[0];
    assert_eq!(
        session.head.identity,
        Identity::Own(SessionId::new("tree").unwrap())
    );
    assert_eq!(
        parents(&found),
        [("root", Some("elsewhere")), ("late", Some("root"))]
    );
    let mood = session.head.session.extra.get("mood").map(Json::as_str);
    assert_eq!(mood, Some(r#"{"n":1.50}"#));
    let root = &session.loops[0];
    assert_eq!(root.messages.len(), 3);
    assert_eq!(
        root.raw[2],
        r#"{"role":"extension","kind":"note","data":[1,2]}"#
    );
    assert_eq!((root.record.turns.len(), root.record.events.len()), (1, 1));
    assert_eq!(
        root.record.extra.get("weather"),
        Some(&Json::string("fair"))
    );
    assert_eq!(root.record.compaction_block, None);
    let [block] = &root.compactions[..] else {
        panic!("one block")
    };
    assert_eq!(
        (block.strategy.as_str(), &block.trigger),
        ("phi-core", &None)
    );
    assert_eq!(
        block.at.as_ref().map(|at| at.as_str()),
        Some("2026-01-02T03:04:06Z")
    );
    assert!(
        block
            .record
            .as_str()
            .starts_with(r#"{"keep_compacted":{"range""#)
    );
    assert_eq!(session.loops[1].record.status, LoopStatus::Aborted);
}

#[test]
fn of_a_loop_listed_twice_the_longer_one_is_kept() {
    let found = import_fixture(&PhiCore, "phi-core/tree.json");
    let reason = "loop `root` is listed twice: the one with 3 messages replaces the one with 1";
    assert_eq!(found.skipped, [(Some(37), reason.to_owned())]);
    let message = r#"{"role":"user","content":[]}"#;
    let text = session(&format!(
        r#"{{"loop_id":"a","n":1}},{{"loop_id":"b"}},{{"loop_id":"a","n":2,"messages":[{message}]}}"#
    ));
    let found = import(&PhiCore, &text);
    assert_eq!(found.sessions[0].loop_ids(), ["a", "b"]);
    assert_eq!(found.sessions[0].loops[0].messages.len(), 1);
    assert_eq!(found.skipped.len(), 1);
}

#[test]
fn a_cycle_of_parents_is_cut_and_said() {
    let text = session(
        r#"{"loop_id":"x","parent_loop_id":"b"},{"loop_id":"self","parent_loop_id":"self"},
        {"loop_id":"a","parent_loop_id":"b"},{"loop_id":"b","parent_loop_id":"a"}"#,
    );
    let found = import(&PhiCore, &text);
    let links = [
        ("a", None),
        ("b", Some("a")),
        ("x", Some("b")),
        ("self", None),
    ];
    assert_eq!(parents(&found), links);
    let cut = found.sessions[0].loops[3]
        .record
        .extra
        .get("parent_loop_id_cut");
    assert_eq!(cut, Some(&Json::string("self")));
    assert_eq!(found.skipped.len(), 2);
    assert!(
        found.reasons().contains("Some(1) loop `self`"),
        "{}",
        found.reasons()
    );
}

#[test]
fn a_bad_part_costs_only_itself() {
    let text = r#"{"session_id":"s","created_at":5,"scope":"x","loops":[
7,
{"no":"id"},
{"loop_id":8},
{"loop_id":""},
{"loop_id":"a","status":[],"usage":"much","messages":[
{"role":"user","content":[]},
{"role":"user","content":"text"},
"m",
{"role":"queen","content":[]},
{"role":"toolResult","content":[]}
]},
{"loop_id":"b","messages":{}},
{"loop_id":"../../c'; DROP TABLE loops;--","messages":null,"compaction_block":{"keep_first":5}}
]}"#;
    let found = import(&PhiCore, text);
    let lines: Vec<_> = found
        .skipped
        .iter()
        .map(|(line, _)| line.unwrap())
        .collect();
    assert_eq!(
        lines,
        [1, 2, 3, 4, 5, 13, 6, 6, 8, 9, 10, 11, 14],
        "{}",
        found.reasons()
    );
    assert_eq!(
        found.sessions[0].loop_ids(),
        ["a", "b", "../../c'; DROP TABLE loops;--"]
    );
    let unreadable = |at: usize| {
        found.sessions[0].loops[at]
            .record
            .extra
            .get("unreadable")
            .cloned()
    };
    assert_eq!(
        unreadable(0),
        Json::parse(r#"{"status":[],"usage":"much"}"#).ok()
    );
    assert_eq!(
        unreadable(2),
        Json::parse(r#"{"compaction_block":{"keep_first":5}}"#).ok()
    );
    assert!(
        found
            .reasons()
            .contains("loop `../../c'; DROP TABLE loops;--`")
    );
    assert_eq!(found.sessions[0].loops[0].messages.len(), 1);
    let session = &found.sessions[0].head.session;
    assert_eq!(
        session.extra.get("unreadable").map(Json::as_str),
        Some(r#"{"created_at":5}"#)
    );
    let again = serde_json::to_string(&rebuilt(&found.sessions[0])).unwrap();
    assert!(serde_json::from_str::<Session>(&again).is_ok(), "{again}");
}

#[test]
fn lines_and_lists_of_sessions_are_read() {
    let one = |id: &str| format!("{{\"session_id\":\"{id}\",\"agent_id\":null,\"loops\":[]}}");
    let ids = |found: &Recording| -> Vec<String> {
        found
            .sessions
            .iter()
            .map(|s| s.head.session.session_id.to_string())
            .collect()
    };
    let lines = format!("\u{feff}{}\n{}\n{{\"session_id\":\"cut", one("a"), one("b"));
    let found = import(&PhiCore, &lines);
    assert_eq!(ids(&found), ["a", "b"]);
    assert_eq!(found.skipped, [(Some(3), "cut off".to_owned())]);
    let list = format!("[ {},\n5, {} ]", one("a"), one("b"));
    let found = import(&PhiCore, &list);
    assert_eq!(
        (ids(&found), found.skipped.len()),
        (vec!["a".into(), "b".into()], 1)
    );
    for text in [&lines, &list, &one("a")] {
        assert!(PhiCore.detect(Path::new("x"), text.as_bytes()), "{text}");
    }
    let cut = format!("{{\"session_id\":\"cut\n{}\n", one("b"));
    assert_eq!(ids(&import(&PhiCore, &cut)), ["b"]);
}

#[test]
fn nothing_to_import_is_an_error_that_says_so() {
    let utf16: Vec<u8> = session("")
        .encode_utf16()
        .flat_map(u16::to_be_bytes)
        .collect();
    let deep = "[".repeat(10_000) + &"]".repeat(10_000);
    for bytes in [
        &b""[..],
        b"{}",
        b"[]",
        b"null",
        b"{\"session_id\":5,\"loops\":[]}",
        b"{\"session_id\":\"\"}",
        b"{\"session_id\":\"a\",\"loops\":[{",
        deep.as_bytes(),
    ] {
        let (found, end) = try_import(&PhiCore, bytes);
        assert!(
            matches!(end, Err(ImportError::NoTranscript(_))),
            "{}",
            found.reasons()
        );
        assert_eq!(found.sessions.len(), 0);
        PhiCore.detect(Path::new("x"), bytes);
    }
    let (found, end) = try_import(&PhiCore, &utf16);
    assert!(end.is_ok() && found.sessions.len() == 1, "{end:?}");
}

#[test]
fn deep_nesting_costs_the_field_it_is_in() {
    let deep = "[".repeat(10_000) + &"]".repeat(10_000);
    let text = format!(
        r#"{{"session_id":"s","deep":{deep},"loops":[{{"loop_id":"a","metadata":{deep},"messages":[
        {{"role":"extension","kind":"k","data":{deep}}},{{"role":"user","content":[]}}]}}]}}"#
    );
    let found = import(&PhiCore, &text);
    assert_eq!(found.skipped.len(), 3, "{}", found.reasons());
    assert_eq!(found.sessions[0].loops[0].messages.len(), 1);
    let found = import(&PhiCore, &session(&deep));
    assert_eq!((found.sessions[0].loops.len(), found.skipped.len()), (0, 1));
}

#[test]
fn every_cut_of_a_document_ends_without_a_panic() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/phi-core/tree.json");
    let bytes = std::fs::read(path).unwrap();
    for end in 0..bytes.len() {
        let (found, _) = try_import(&PhiCore, &bytes[..end]);
        assert!(end == 0 || found.sessions.len() + found.skipped.len() > 0);
        PhiCore.detect(Path::new("x"), &bytes[..end]);
    }
}

#[test]
fn recorded_sessions_are_counted_right_and_can_be_written_again() {
    let Some(folder) = real_transcripts() else {
        return;
    };
    for (name, loops, messages, blocks) in [
        ("compacted-one-loop", 1, 54, 1),
        ("compacted-four-loops", 4, 91, 4),
        ("tree-branches-rerun", 6, 39, 0),
        ("child7", 1, 13, 0),
    ] {
        let path = folder.join("phi-core").join(format!("{name}.json"));
        let found = import_file(&PhiCore, &path);
        assert_eq!((found.sessions.len(), found.reasons().as_str()), (1, ""));
        let session = &found.sessions[0];
        let compactions = session
            .loops
            .iter()
            .map(|found| found.compactions.len())
            .sum::<usize>();
        let counts = (session.loops.len(), session.messages().count(), compactions);
        assert_eq!(counts, (loops, messages, blocks), "{name}");
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(written(&rebuilt(session)), value(&text), "{name}");
    }
}
