//! Random sessions are restored unchanged.

use std::path::PathBuf;

use loopstore::{SessionId, SqliteStore};
use loopstore_transcripts::{ImportOptions, import_paths};

use crate::session_jsonl::stage::{all_that_is_seen, exported, grown, imported, rows, sound};
use crate::support::amount::amount;
use crate::support::edited_histories::play;
use crate::support::histories::Random;

#[test]
fn a_random_session_comes_back_as_it_was() {
    let histories = amount("LOOPSTORE_HISTORIES", 15);
    for seed in 0..histories {
        println!("seed {seed}");
        let store = SqliteStore::in_memory().unwrap();
        let history = grown(&store, &mut Random::new(seed), 50);
        let (id, loops) = (history.session.clone(), history.loops);
        let text = exported(&store, &id);
        let (counted, seen) = (rows(&store), all_that_is_seen(&store, &id, loops));

        let report = imported(&store, &text).unwrap();
        assert_eq!((report.added_messages, report.sessions.len()), (0, 1));
        assert_eq!(rows(&store), counted);
        assert!(exported(&store, &id) == text, "changed where it comes from");

        let other = SqliteStore::in_memory().unwrap();
        let report = imported(&other, &text).unwrap();
        assert_eq!(report.added_messages, report.messages);
        assert!(exported(&other, &id) == text, "changed in another database");
        assert_eq!(all_that_is_seen(&other, &id, loops), seen);
        assert_eq!(rows(&other), counted);
        sound(&other);
    }
}

#[test]
fn a_session_with_edits_comes_back_as_it_was() {
    for seed in 0..amount("LOOPSTORE_HISTORIES", 10) {
        println!("seed {seed}");
        let store = SqliteStore::in_memory().unwrap();
        play(&store, seed, 40);
        let id = SessionId::new(format!("s{seed}")).unwrap();
        let text = exported(&store, &id);
        assert_eq!(imported(&store, &text).unwrap().added_messages, 0);
        let loops = store
            .query("SELECT loop_id FROM v_loops")
            .unwrap()
            .rows
            .len();
        let other = SqliteStore::in_memory().unwrap();
        imported(&other, &text).unwrap();
        assert!(exported(&other, &id) == text, "changed in another database");
        let seen = all_that_is_seen(&store, &id, loops);
        assert_eq!(all_that_is_seen(&other, &id, loops), seen);
        assert_eq!(rows(&other), rows(&store));
        sound(&other);
    }
}

/// Transcripts contain what no random history has: foreign compactions, recorded turns, sub-agents, configurations,
/// broken blocks.
#[test]
fn imported_transcripts_come_back_as_they_were() {
    let store = SqliteStore::in_memory().unwrap();
    let other = SqliteStore::in_memory().unwrap();
    let paths = ["claude-code", "openai-chat", "phi-core"].map(|name| {
        PathBuf::from(format!(
            "{}/../../tests/fixtures/{name}",
            env!("CARGO_MANIFEST_DIR")
        ))
    });
    let options = ImportOptions::default();
    import_paths(&store, &paths, &options, &mut |_| {}).unwrap();
    let ids: Vec<String> = store
        .query("SELECT session_id FROM v_sessions ORDER BY session_id")
        .unwrap()
        .rows
        .iter()
        .map(|row| row[0].read().unwrap())
        .collect();
    assert!(ids.len() > 5);
    let mut all = String::new();
    for id in &ids {
        let id = SessionId::new(id).unwrap();
        let text = exported(&store, &id);
        assert_eq!(imported(&store, &text).unwrap().added_messages, 0);
        imported(&other, &text).unwrap();
        assert!(exported(&other, &id) == text, "{id}");
        all.push_str(&text);
    }
    sound(&other);
    // A file may contain several sessions.
    let third = SqliteStore::in_memory().unwrap();
    assert_eq!(imported(&third, &all).unwrap().sessions.len(), ids.len());
    // A transcript cannot be compared with restored lines, and must not be imported a second time.
    let counted = rows(&other);
    let again = import_paths(&other, &paths[..1], &options, &mut |_| {});
    let reason = again.unwrap_err().to_string();
    assert!(reason.contains("came in from an export"), "{reason}");
    assert_eq!(rows(&other), counted);
}
