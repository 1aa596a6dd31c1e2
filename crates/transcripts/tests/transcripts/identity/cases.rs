//! Single cases: stubs, two conversations in one file, redacted sessions, and the contents of the report.

use std::path::{Path, PathBuf};

use loopstore::*;
use loopstore_transcripts::{ImportOptions, ImportReport, import_paths};
use serde_json::{Value, json};

use super::{ids, rows, sessions, shown};

fn import_with(store: &Store, path: &Path, options: &ImportOptions) -> ImportReport {
    import_paths(
        store.database(),
        &[PathBuf::from(path)],
        options,
        &mut |_| (),
    )
    .unwrap_or_else(|error| panic!("{error}"))
}

fn import(store: &Store, path: &Path) -> ImportReport {
    import_with(store, path, &ImportOptions::default())
}

/// Writes a file below a folder.
fn file(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, text).unwrap();
    path
}

fn lines(records: &[Value]) -> String {
    records.iter().map(|record| format!("{record}\n")).collect()
}

fn gemini(name: &str, minute: u32, messages: &[(&str, &str)]) -> String {
    let time = |second: usize| format!("2026-06-22T13:{minute}:{second:02}.000Z");
    let head = json!({"sessionId": "harbour-7", "projectHash": "5ea", "startTime": time(0), "lastUpdated": time(0), "kind": "main"});
    let message = |(nth, (kind, text)): (usize, &(&str, &str))| json!({"id": format!("{name}{nth}"), "timestamp": time(nth), "type": kind, "content": [{"text": text}]});
    let messages = messages.iter().enumerate().map(message);
    lines(&std::iter::once(head).chain(messages).collect::<Vec<_>>())
}

const CONTEXT: (&str, &str) = (
    "user",
    "<session_context>\nToday is Monday\n</session_context>",
);

#[test]
fn a_stub_changes_no_context_whichever_comes_first() {
    let folder = tempfile::tempdir().unwrap();
    let messages = [
        CONTEXT,
        ("user", "Count the boats"),
        ("gemini", "Seven boats."),
    ];
    let long = file(
        folder.path(),
        "a/session-1.jsonl",
        &gemini("m", 10, &messages),
    );
    let stub = file(
        folder.path(),
        "b/session-2.jsonl",
        &gemini("n", 50, &messages[..1]),
    );
    for order in [[&long, &stub], [&stub, &long]] {
        let store = Store::in_memory().unwrap();
        for path in order {
            import(&store, path);
        }
        assert_eq!(sessions(&store), ["harbour-7"]);
        let texts = shown(&store, "harbour-7", None);
        assert_eq!(texts.last().map(String::as_str), Some("Seven boats."));
        assert_eq!(texts.len(), 3);
        for path in order {
            assert_eq!(import(&store, path).added_messages, 0);
        }
        assert_eq!(shown(&store, "harbour-7", None), texts);
    }
}

fn adk(conversations: &[&[&str]]) -> String {
    let session = |messages: &&[&str]| {
        let events = messages.iter().enumerate().map(|(nth, text)| {
            let author = if nth % 2 == 0 { "user" } else { "root" };
            json!({"id": format!("e{nth}"), "invocation_id": format!("v{}", nth / 2), "author": author,
                "timestamp": 1_785_578_400 + nth, "content": {"role": author, "parts": [{"text": text}]}})
        });
        json!({"id": "orchard-1", "context": {}, "events": events.collect::<Vec<_>>()})
    };
    Value::from(conversations.iter().map(session).collect::<Vec<_>>()).to_string()
}

#[test]
fn two_conversations_of_one_id_in_one_file_are_two_sessions() {
    let folder = tempfile::tempdir().unwrap();
    let (apples, pears) = (["Pick apples", "Picked."], ["Prune the pears", "Pruned."]);
    let path = file(folder.path(), "both.json", &adk(&[&apples, &pears]));
    let store = Store::in_memory().unwrap();
    let report = import(&store, &path);
    let loops = ids(
        &store,
        "SELECT session_id, loop_id FROM v_loops ORDER BY 1, 2",
    );
    let mut chains: Vec<Vec<String>> = loops
        .iter()
        .map(|of| shown(&store, &of[0], Some(&of[1])))
        .collect();
    chains.sort();
    assert_eq!(
        chains,
        [
            apples.map(String::from).to_vec(),
            pears.map(String::from).to_vec()
        ]
    );
    assert_eq!(report.added_messages, 4);
    assert_eq!(import(&store, &path).added_messages, 0);
}

#[test]
fn what_an_id_and_a_branch_became_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let (apples, pears) = (["Pick apples", "Picked."], ["Prune the pears", "Pruned."]);
    let store = Store::in_memory().unwrap();
    let first = file(folder.path(), "one/s.json", &adk(&[&apples]));
    let second = file(folder.path(), "two/s.json", &adk(&[&pears]));
    let report = import(&store, &first);
    assert!(report.separated.is_empty() && report.branches.is_empty());
    let report = import(&store, &second);
    let [separated] = &report.separated[..] else {
        panic!("{report:?}");
    };
    assert_eq!(
        (separated.id.as_str(), separated.session.as_str()),
        ("orchard-1", "orchard-1-2")
    );
    assert_eq!(report.sessions, std::slice::from_ref(&separated.session));
    assert_eq!(shown(&store, "orchard-1-2", None), pears);
    // The same file, rewritten.
    file(
        folder.path(),
        "one/s.json",
        &adk(&[&["Pick apples", "The tree is bare."]]),
    );
    let report = import(&store, &first);
    let [branch] = &report.branches[..] else {
        panic!("{report:?}");
    };
    assert_eq!(branch.session.as_str(), "orchard-1");
    assert_eq!(
        shown(&store, "orchard-1", None),
        ["Pick apples", "The tree is bare."]
    );
    let kept = "SELECT 1 FROM v_messages WHERE text = 'Picked.'";
    assert_eq!(rows(&store, kept).len(), 1);
}

#[test]
fn a_session_that_is_asked_for_is_found_under_both_of_its_ids() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::in_memory().unwrap();
    let (apples, pears) = (["Pick apples", "Picked."], ["Prune the pears", "Pruned."]);
    import(&store, &file(folder.path(), "one/s.json", &adk(&[&apples])));
    let path = file(folder.path(), "two/s.json", &adk(&[&pears]));
    for id in ["orchard-1", "orchard-1-2"] {
        let options = ImportOptions {
            session: Some(SessionId::new(id).unwrap()),
            ..ImportOptions::default()
        };
        let report = import_with(&store, &path, &options);
        assert_eq!(report.sessions[0].as_str(), "orchard-1-2");
    }
}

#[test]
fn a_redacted_session_is_known_again_and_what_leaves_it_is_redacted() {
    let folder = tempfile::tempdir().unwrap();
    let key = ["gh", "p_7Hq2LmZx9RtV4bNc8KdWy3PfSj6TgAu1Ee5Q"].concat();
    let text = format!("The key is {key}, keep it");
    let path = file(folder.path(), "one/s.json", &adk(&[&[&text, "Kept."]]));
    let store = Store::in_memory().unwrap();
    let options = ImportOptions {
        redact: true,
        ..ImportOptions::default()
    };
    import_with(&store, &path, &options);
    assert_eq!(import(&store, &path).added_messages, 0);
    let other = format!("Not kept, {key} is gone");
    let path = file(folder.path(), "one/s.json", &adk(&[&[&text, &other]]));
    assert_eq!(import(&store, &path).branches.len(), 1);
    assert_eq!(import(&store, &path).added_messages, 0);
    assert_eq!(sessions(&store), ["orchard-1"]);
    let kept = rows(&store, "SELECT payload FROM v_messages");
    assert_eq!(kept.len(), 3);
    assert!(!format!("{kept:?}").contains(&key[10..30]), "{kept:?}");
}

fn goose(messages: &[(&str, &str, i64)]) -> String {
    let head = json!({"working_dir": "/w", "description": "work", "message_count": messages.len()});
    let message = |(role, text, at): &(&str, &str, i64)| json!({"role": role, "created": 1_767_340_700 + at, "content": [{"type": "text", "text": text}]});
    lines(
        &std::iter::once(head)
            .chain(messages.iter().map(message))
            .collect::<Vec<_>>(),
    )
}

#[test]
fn conversations_that_begin_with_the_same_words_at_other_times_are_two_sessions() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::in_memory().unwrap();
    let monday = [
        ("user", "Hello", 0),
        ("assistant", "Hello! What shall I do?", 1),
        ("user", "Mend the gate", 9),
    ];
    let tuesday = [
        ("user", "Hello", 86_400),
        ("assistant", "Hello! What shall I do?", 86_401),
        ("user", "Paint it", 86_409),
    ];
    for (nth, messages) in [&monday[..], &tuesday[..]].into_iter().enumerate() {
        import(
            &store,
            &file(
                folder.path(),
                &format!("{nth}/20260102_1.jsonl"),
                &goose(messages),
            ),
        );
    }
    assert_eq!(sessions(&store), ["20260102_1", "20260102_1-2"]);
    assert_eq!(
        shown(&store, "20260102_1", None).last().unwrap(),
        "Mend the gate"
    );
    assert_eq!(
        shown(&store, "20260102_1-2", None).last().unwrap(),
        "Paint it"
    );
}

#[test]
fn what_was_appended_here_stays_the_current_conversation() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::in_memory().unwrap();
    let messages = [
        ("user", "Mend the gate", 0),
        ("assistant", "Mended.", 1),
        ("user", "Paint it", 9),
        ("assistant", "Painted.", 10),
    ];
    let path = file(folder.path(), "20260102_1.jsonl", &goose(&messages[..2]));
    import(&store, &path);
    let later = Message::User(UserMessage {
        content: vec![Content::text("And the fence?")],
        timestamp: Some(1_900_000_000_000.into()),
        author: None,
    });
    store
        .session("20260102_1")
        .unwrap()
        .append([later])
        .unwrap();
    file(folder.path(), "20260102_1.jsonl", &goose(&messages));
    assert_eq!(import(&store, &path).added_messages, 2);
    let texts = shown(&store, "20260102_1", None);
    assert_eq!(texts.last().map(String::as_str), Some("And the fence?"));
}
