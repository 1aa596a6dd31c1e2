//! Damaged and hostile documents: a clear error, and nothing is written.

use loopstore::{SessionId, SqliteStore, Store};
use loopstore_transcripts::{Atif, Importer as _, SessionLines};
use serde_json::{Value, json};

use super::stage::{odd_session, parsed, read, written};
use crate::session_jsonl::stage::{grown, rows, sound};
use crate::support::histories::Random;
use crate::support::recording::try_import;

fn rich() -> String {
    let has = |text: &String| {
        let parts = [
            "\"compaction\":{",
            "\"branch\":{",
            "\"record\":\"flip\"",
            "-context\"",
        ];
        parts.iter().all(|part| text.contains(part))
    };
    let text = |seed| {
        let store = SqliteStore::in_memory().unwrap();
        let history = grown(&store, &mut Random::new(seed), 40);
        written(&store, &history.session).0
    };
    (0..200).map(text).find(has).unwrap()
}

#[test]
fn a_document_that_is_cut_off_leaves_nothing() {
    let text = rich();
    let store = SqliteStore::in_memory().unwrap();
    let empty = rows(&store);
    for cut in (1..text.len() - 2).step_by(text.len() / 60) {
        let cut = text.floor_char_boundary(cut);
        assert!(read(&store, &text.as_bytes()[..cut]).is_err(), "{cut}");
        assert_eq!(rows(&store), empty);
    }
    read(&store, text.as_bytes()).unwrap();
    sound(&store);
}

/// Applies a change to a document, and returns the reason why it is refused.
fn refused(text: &str, change: impl FnOnce(&mut Value)) -> String {
    let mut document = parsed(text);
    change(&mut document);
    let store = SqliteStore::in_memory().unwrap();
    let empty = rows(&store);
    let reason = read(&store, document.to_string().as_bytes()).unwrap_err();
    assert_eq!(rows(&store), empty, "{reason}");
    reason
}

#[test]
fn an_altered_document_is_refused() {
    let store = Store::in_memory().unwrap();
    let chat = store.session("plain").unwrap();
    let messages = ["Will it rain?", "And tomorrow?"].map(loopstore::Message::user);
    chat.append(messages).unwrap();
    let text = written(store.database(), chat.id()).0;
    read(&SqliteStore::in_memory().unwrap(), text.as_bytes()).unwrap();
    let reasons = [
        refused(&text, |d| d["steps"][0]["message"] = json!("Will it snow?")),
        refused(&text, |d| d["steps"][0]["source"] = json!("agent")),
        refused(&text, |d| d["steps"][0]["source"] = json!(7)),
        refused(&text, |d| drop(d["steps"].as_array_mut().unwrap().pop())),
        refused(&text, |d| d["steps"] = json!(5)),
        refused(&text, |d| {
            let step = d["steps"][0].clone();
            d["steps"].as_array_mut().unwrap().push(step);
        }),
        refused(&text, |d| d["extra"]["loopstore"]["form"] = json!(2)),
        refused(&text, |d| d["extra"]["loopstore"]["lines"] = json!("x")),
        refused(&text, |d| {
            drop(d["extra"].as_object_mut().unwrap().remove("loopstore"));
        }),
        refused(&text, |d| {
            d["extra"]["loopstore"]["lines"]
                .as_array_mut()
                .unwrap()
                .pop();
        }),
        refused(&text, |d| {
            d["steps"][0]["extra"]["loopstore"]["loop"] = json!("elsewhere");
        }),
        refused(&text, |d| {
            d["steps"][0]["extra"]["loopstore"]["messages"][0]["result"] = json!(4);
        }),
        refused(&text, |d| {
            d["steps"][0]["extra"]["loopstore"]["messages"][0]["digest"] = json!("00");
        }),
        refused(&text, |d| {
            d["steps"][0]["extra"]["loopstore"]["messages"][0]["seq"] = json!(-1);
        }),
        refused(&text, |d| {
            d["steps"][0]["extra"]["loopstore"]["messages"][0]["removed"] = json!(true);
        }),
    ];
    for reason in reasons {
        assert!(reason.contains("line ") && reason.len() < 600, "{reason}");
    }
}

#[test]
fn damage_anywhere_is_an_error_or_changes_nothing_that_is_stored() {
    let store = Store::in_memory().unwrap();
    let id = odd_session(&store);
    let text = written(store.database(), &id).0.into_bytes();
    let mut random = Random::new(11);
    for _ in 0..150 {
        let mut bytes = text.clone();
        for _ in 0..=random.below(2) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = match random.below(3) {
                0 => b'"',
                1 => b'7',
                _ => 0xff,
            };
        }
        let other = SqliteStore::in_memory().unwrap();
        if read(&other, &bytes).is_ok() {
            sound(&other);
        }
    }
}

#[test]
fn foreign_documents_that_are_hostile_end_with_a_reason() {
    let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    let nested = (0..60).fold("null".to_owned(), |inner, _| {
        format!(
            r#"[{{"trajectory_id":"x","steps":[{{"source":"user","message":"Hi"}}],"subagent_trajectories":{inner}}}]"#
        )
    });
    let step = |message: &str| {
        format!(
            r#"{{"schema_version":"ATIF-v1.8","steps":[{{"step_id":1,"source":"user","message":{message}}}]}}"#
        )
    };
    let many = format!(
        "[{}]",
        vec![r#"{"type":"text","text":"x"}"#; 20_000].join(",")
    );
    for text in [
        step(&deep(100_000)),
        step("\"Hi\"").replace("]}", &format!("],\"subagent_trajectories\":{nested}}}")),
        step(&many),
        step("\"Hi\"").replace("\"user\"", "\"user\",\"source\":\"agent\""),
        format!(
            r#"{{"schema_version":"ATIF-v1.8","steps":{}}}"#,
            deep(5_000)
        ),
        "{\"schema_version\":\"ATIF-v1.8\",\"steps\":[".repeat(2_000),
    ] {
        let store = SqliteStore::in_memory().unwrap();
        let _ = read(&store, text.as_bytes());
        sound(&store);
        let (_, _) = try_import(&Atif, text.as_bytes());
    }
    // Deeply nested rows of loopstore.
    let own = (0..60).fold("null".to_owned(), |inner, _| {
        format!(
            r#"[{{"schema_version":"ATIF-v1.8","extra":{{"loopstore":{{"form":1,"lines":[]}}}},"subagent_trajectories":{inner}}}]"#
        )
    });
    let store = SqliteStore::in_memory().unwrap();
    let reason = read(&store, own.as_bytes()).unwrap_err();
    assert!(reason.contains("nested too deeply"), "{reason}");
}

#[test]
fn other_encodings_are_read() {
    let store = Store::in_memory().unwrap();
    let id = odd_session(&store);
    let text = written(store.database(), &id).0;
    let mut utf16 = vec![0xff, 0xfe];
    utf16.extend(text.encode_utf16().flat_map(u16::to_le_bytes));
    let mut marked = b"\xEF\xBB\xBF".to_vec();
    marked.extend(text.as_bytes());
    for bytes in [utf16, marked] {
        let other = SqliteStore::in_memory().unwrap();
        assert_eq!(
            read(&other, &bytes).unwrap().sessions,
            std::slice::from_ref(&id)
        );
    }
}

#[test]
fn only_the_importer_of_rows_takes_a_document_with_rows() {
    let store = Store::in_memory().unwrap();
    let id: SessionId = odd_session(&store);
    let text = written(store.database(), &id).0;
    let path = std::path::Path::new("x.json");
    assert!(SessionLines.detect(path, text.as_bytes()));
    assert!(!Atif.detect(path, text.as_bytes()));
    // With `--format atif` its steps are read, and the report says that the rows are not.
    let (found, end) = try_import(&Atif, text.as_bytes());
    end.unwrap();
    assert!(
        found.reasons().contains("the rows of loopstore"),
        "{}",
        found.reasons()
    );
    assert!(!format!("{:?}", found.sessions).contains("digest"));
}
