//! The completeness report: everything that the format has no place for is counted and named.

use insta::assert_snapshot;
use loopstore::{SessionId, SqliteStore, Store};
use loopstore_export::{ExportForm, ExportReport, export};
use loopstore_transcripts::{ImportOptions, import_paths};

use super::stage::{odd_session, parsed, read, written};
use crate::support::edited_histories::play;
use crate::support::root::fixture;

fn report(report: &ExportReport) -> String {
    let line = |of: &loopstore_export::Omission| {
        let kept = if of.kept { "kept" } else { "lost" };
        format!("{} {} ({kept})\n", of.count, of.kind.label())
    };
    report.omitted.iter().map(line).collect()
}

#[test]
fn each_kind_is_counted() {
    let store = Store::in_memory().unwrap();
    let id = odd_session(&store);
    let (text, found) = written(store.database(), &id);
    assert!(found.mended.is_empty());
    assert_snapshot!(report(&found), @"
    1 signatures of thinking (kept)
    1 items that only their provider can read (kept)
    1 images of a type that the format does not have, or without their bytes (kept)
    1 blocks of unknown types (kept)
    1 blocks with fields that the format does not have (kept)
    9 messages with fields that the format does not have (kept)
    1 arguments of calls that are not objects (kept)
    1 results that do not follow the answer with their call (kept)
    2 records that no model sees (kept)
    3 loops with their status, times and metadata (kept)
    1 versions of agents (lost)
    ");
    let notes = parsed(&text)["notes"].as_str().unwrap().to_owned();
    assert!(
        notes.contains("signatures of thinking: 1, only in extra.loopstore."),
        "{notes}"
    );
}

#[test]
fn overlays_are_counted() {
    let store = SqliteStore::in_memory().unwrap();
    play(&store, 5, 40);
    let id = SessionId::new("s5").unwrap();
    let (_, found) = written(&store, &id);
    let text = report(&found);
    for word in ["runs of compaction", "edits of messages", "loops with"] {
        assert!(text.contains(word), "{text}");
    }
}

#[test]
fn a_chain_alone_has_no_rows_and_says_that_content_is_lost() {
    let store = Store::in_memory().unwrap();
    let id = odd_session(&store);
    let chat = store.session("harbour").unwrap();
    let leaf = chat.leaf().unwrap().unwrap();
    let mut bytes = Vec::new();
    let found = export(
        store.database(),
        &id,
        Some(&leaf),
        ExportForm::Atif,
        &mut bytes,
    )
    .unwrap();
    assert!(found.omitted.iter().all(|of| !of.kept));
    let text = String::from_utf8(bytes).unwrap();
    assert!(!text.contains("loopstore\":"), "{text}");
    // It is a foreign trajectory then.
    let other = SqliteStore::in_memory().unwrap();
    let imported = read(&other, text.as_bytes()).unwrap();
    assert_eq!((imported.sessions.len(), imported.skipped.len()), (1, 0));
}

#[test]
fn a_subagent_that_is_not_stored_is_named() {
    let store = SqliteStore::in_memory().unwrap();
    let path = fixture("atif/quay.json");
    read(&store, &std::fs::read(&path).unwrap()).unwrap();
    let id = SessionId::new("quay-7").unwrap();
    let (_, found) = written(&store, &id);
    assert!(!report(&found).contains("not embedded"));
    // Only the session of the caller is imported.
    let other = SqliteStore::in_memory().unwrap();
    let options = ImportOptions {
        session: Some(id.clone()),
        ..ImportOptions::default()
    };
    import_paths(&other, &[path], &options, &mut |_| {}).unwrap();
    let (_, found) = written(&other, &id);
    assert!(report(&found).contains("1 sub-agents that are not embedded (lost)"));
}

#[test]
fn an_agent_is_written_with_the_version_and_the_tools_that_are_stored() {
    let store = SqliteStore::in_memory().unwrap();
    let agent = |file: &str, id: &str| {
        let options = ImportOptions::default();
        import_paths(&store, &[fixture(file)], &options, &mut |_| {}).unwrap();
        let (text, found) = written(&store, &SessionId::new(id).unwrap());
        let is_lost = report(&found).contains("versions of agents");
        (parsed(&text)["agent"].take(), is_lost)
    };
    let quay = parsed(&std::fs::read_to_string(fixture("atif/quay.json")).unwrap());
    assert_eq!(
        agent("atif/quay.json", "quay-7"),
        (quay["agent"].clone(), false)
    );
    let id = "0199aaaa-0000-7000-8000-000000000001";
    let (codex, is_lost) = agent("codex/lighthouse.jsonl", id);
    assert_eq!(
        (codex["version"].as_str(), is_lost),
        (Some("0.140.0"), false)
    );
}
