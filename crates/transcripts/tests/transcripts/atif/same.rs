//! A session that is written as a trajectory and read again is the same session.

use std::path::PathBuf;

use loopstore::extend::SessionStore;
use loopstore::{SessionId, SqliteStore, Store};
use loopstore_transcripts::{ImportOptions, import_paths};
use loopstore_verify::verify;
use serde_json::Value;

use super::stage::{lines, odd_session, parsed, read, written};
use crate::session_jsonl::stage::{all_that_is_seen, grown, rows, sound};
use crate::support::amount::amount;
use crate::support::edited_histories::play;
use crate::support::histories::Random;
use crate::support::root::fixture;

/// Writes a session, reads it into an empty store, and compares everything that is stored.
fn comes_back(store: &dyn SessionStore, id: &SessionId) -> (SqliteStore, String) {
    let (text, _) = written(store, id);
    let other = SqliteStore::in_memory().unwrap();
    let report = read(&other, text.as_bytes()).unwrap_or_else(|error| panic!("{id}: {error}"));
    assert!(report.sessions.contains(id) && report.skipped.is_empty());
    assert!(lines(&other, id) == lines(store, id), "{id} changed");
    assert!(verify(&other).unwrap().ok);
    let (again, _) = written(&other, id);
    assert!(again == text, "{id} is written differently");
    (other, text)
}

#[test]
fn a_random_session_comes_back_with_its_compactions() {
    let (mut runs, mut contexts, mut branches) = (0, 0, 0);
    for seed in 0..amount("LOOPSTORE_HISTORIES", 12) {
        println!("seed {seed}");
        let store = SqliteStore::in_memory().unwrap();
        let history = grown(&store, &mut Random::new(seed), 50);
        let (id, loops) = (history.session.clone(), history.loops);
        let (counted, seen) = (rows(&store), all_that_is_seen(&store, &id, loops));
        let (other, text) = comes_back(&store, &id);
        assert_eq!(all_that_is_seen(&other, &id, loops), seen);
        assert_eq!(rows(&other), counted);
        assert_eq!(read(&store, text.as_bytes()).unwrap().added_messages, 0);
        let document = parsed(&text);
        runs += text.matches("\"compaction\":{\"run\"").count();
        contexts += usize::from(document["continued_trajectory_ref"].is_string());
        branches += text.matches("\"branch\":{").count();
    }
    assert!(
        runs > 0 && contexts > 0 && branches > 0,
        "{runs} {contexts} {branches}"
    );
}

#[test]
fn a_session_with_edits_comes_back() {
    for seed in 0..amount("LOOPSTORE_HISTORIES", 8) {
        println!("seed {seed}");
        let store = SqliteStore::in_memory().unwrap();
        play(&store, seed, 40);
        let id = SessionId::new(format!("s{seed}")).unwrap();
        let (other, _) = comes_back(&store, &id);
        assert_eq!(rows(&other), rows(&store));
        sound(&other);
    }
}

#[test]
fn content_that_the_format_has_no_place_for_comes_back() {
    let store = Store::in_memory().unwrap();
    let id = odd_session(&store);
    let (_, text) = comes_back(store.database(), &id);
    let document = parsed(&text);
    let steps = document["steps"].as_array().unwrap();
    let sources: Vec<&str> = steps
        .iter()
        .map(|s| s["source"].as_str().unwrap())
        .collect();
    assert_eq!(
        sources,
        [
            "system", "system", "user", "agent", "user", "system", "agent", "user", "agent"
        ]
    );
    let answer = &steps[3];
    assert_eq!(answer["reasoning_content"], "I think.\n\nClouds.");
    assert_eq!(answer["metrics"]["prompt_tokens"], 50);
    assert_eq!(answer["metrics"]["cached_tokens"], 20);
    assert_eq!(answer["metrics"]["cost_usd"], 0.025);
    assert_eq!(answer["tool_calls"][1]["arguments"], serde_json::json!({}));
    assert_eq!(
        answer["observation"]["results"][0]["extra"]["is_error"],
        true
    );
    assert_eq!(steps[2]["timestamp"], "2026-05-28T20:26:40.000Z");
    // A message of which a step says everything is stored without its text.
    let last = &steps[8]["extra"]["loopstore"]["messages"][0];
    assert!(last.get("message").is_none() && last.get("content").is_none());
    assert_eq!(document["final_metrics"]["total_completion_tokens"], 7);
}

/// Transcripts contain what no random history has: foreign compactions, sub-agents, configurations.
#[test]
fn imported_transcripts_come_back_with_their_subagents() {
    let formats = [
        "adk",
        "claude-code",
        "cline",
        "codex",
        "copilot-cli",
        "gemini-cli",
        "opencode",
        "openai-chat",
        "phi-core",
        "pi",
        "qwen-code",
        "roo-code",
    ];
    all_come_back(formats.map(fixture).to_vec());
}

#[test]
fn shared_transcripts_come_back() {
    let Some(folder) = std::env::var_os("LOOPSTORE_REAL_TRANSCRIPTS").map(PathBuf::from) else {
        return;
    };
    let folders = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    all_come_back(folders.filter(|path| path.is_dir()).collect());
}

fn all_come_back(folders: Vec<PathBuf>) {
    let mut embedded = 0;
    for folder in folders {
        let store = SqliteStore::in_memory().unwrap();
        let options = ImportOptions::default();
        // A folder may contain only files that other tests expect to be rejected.
        let Ok(report) = import_paths(&store, &[folder], &options, &mut |_| {}) else {
            continue;
        };
        for id in &report.sessions {
            let (text, _) = written(&store, id);
            let other = SqliteStore::in_memory().unwrap();
            let restored = read(&other, text.as_bytes()).unwrap_or_else(|e| panic!("{id}: {e}"));
            for one in &restored.sessions {
                assert!(lines(&other, one) == lines(&store, one), "{one} changed");
            }
            embedded += restored.sessions.len() - 1;
            sound(&other);
        }
    }
    assert!(embedded > 0, "no sub-agent");
}

#[test]
fn a_call_refers_to_the_session_of_its_subagent() {
    let store = SqliteStore::in_memory().unwrap();
    let report = read(&store, &std::fs::read(fixture("atif/quay.json")).unwrap()).unwrap();
    assert_eq!(report.sessions.len(), 2);
    let id = SessionId::new("quay-7").unwrap();
    let (other, text) = comes_back(&store, &id);
    let document = parsed(&text);
    let refs = |value: &Value| {
        let steps = value["steps"].as_array().unwrap();
        let results = steps
            .iter()
            .flat_map(|s| s["observation"]["results"].as_array());
        let refs = results
            .flatten()
            .filter_map(|r| r["subagent_trajectory_ref"][0]["trajectory_id"].as_str());
        refs.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(refs(&document), ["quay-7/barrels"]);
    let child = SessionId::new("quay-7/barrels").unwrap();
    assert!(lines(&other, &child) == lines(&store, &child));
}

#[test]
fn several_documents_in_one_file_come_back() {
    let mut texts = Vec::new();
    for seed in [3, 4] {
        let store = SqliteStore::in_memory().unwrap();
        play(&store, seed, 20);
        texts.push(written(&store, &SessionId::new(format!("s{seed}")).unwrap()).0);
    }
    for text in [format!("[{}]", texts.join(",")), texts.join("\n")] {
        let other = SqliteStore::in_memory().unwrap();
        assert_eq!(read(&other, text.as_bytes()).unwrap().sessions.len(), 2);
        sound(&other);
    }
}

#[test]
fn another_writer_may_order_the_fields_anew() {
    let store = Store::in_memory().unwrap();
    let id = odd_session(&store);
    // `Value` sorts the fields, and this writer adds absent ones.
    let mut document = parsed(&written(store.database(), &id).0);
    for step in document["steps"].as_array_mut().unwrap() {
        for key in ["tool_calls", "observation", "is_copied_context", "metrics"] {
            if step.get(key).is_none() {
                step[key] = Value::Null;
            }
        }
    }
    let other = SqliteStore::in_memory().unwrap();
    // Numbers of messages are lines of the document, not values: only they must keep their text.
    let text = serde_json::to_string_pretty(&document).unwrap();
    match read(&other, text.as_bytes()) {
        Ok(report) => assert_eq!(report.sessions, [id]),
        Err(reason) => assert!(reason.contains("does not fit its digest"), "{reason}"),
    }
}
