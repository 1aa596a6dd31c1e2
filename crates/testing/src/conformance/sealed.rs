//! A provider's compaction is a run that applies to that provider alone.

use std::path::Path;

use loopstore::extend::Database;
use loopstore::model::SessionId;
use loopstore::{
    BuildOptions, CompactRequest, Context, FlipRequest, SealingProvider,
    build_context_from_session, redo, repair_session, undo,
};
use loopstore_transcripts::{ImportOptions, import_paths};
use loopstore_verify::verify;

const REQUEST: &str = r#"{"input":[
    {"role":"user","content":"Will it rain?"},
    {"type":"reasoning","id":"rs_1","encrypted_content":"bound","summary":[]},
    {"type":"message","role":"assistant","content":[{"type":"output_text","text":"Yes.","annotations":[]}]},
    {"role":"user","content":"And tomorrow?"},
    {"type":"compaction","id":"cmp_1","encrypted_content":"sealed bytes"},
    {"type":"message","role":"assistant","content":[{"type":"output_text","text":"Hail.","annotations":[]}]},
    {"role":"user","content":"Thanks."}]}"#;

fn imported(store: &dyn Database, folder: &Path) -> SessionId {
    let path = folder.join("rain.json");
    std::fs::write(&path, REQUEST).unwrap();
    let options = ImportOptions::default();
    let report = import_paths(store, &[path], &options, &mut |_| {}).unwrap();
    report.sessions[0].clone()
}

fn context(store: &dyn Database, id: &SessionId, provider: Option<SealingProvider>) -> Context {
    let options = BuildOptions {
        provider,
        ..BuildOptions::default()
    };
    build_context_from_session(store, id, &options).unwrap()
}

pub fn a_providers_compaction_counts_for_it_alone(store: &dyn Database) {
    let folder = tempfile::tempdir().unwrap();
    let id = imported(store, folder.path());
    let own = Some(SealingProvider::OpenAi);
    let sealed = context(store, &id, own);
    assert_eq!((sealed.messages.len(), sealed.compaction), (2, Some(0)));
    for reader in [None, Some(SealingProvider::Anthropic)] {
        let open = context(store, &id, reader);
        assert_eq!((open.messages.len(), open.compaction), (5, None));
    }
    // A second import of the same file adds nothing.
    let path = folder.path().join("rain.json");
    let again = import_paths(store, &[path], &ImportOptions::default(), &mut |_| {}).unwrap();
    assert_eq!(again.added_messages, 0);
    let rows = store.run_rows(Some(&id)).unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].text("strategy").unwrap(), "provider:openai");

    let flip = FlipRequest::default();
    undo(store, &id, &flip).unwrap();
    assert_eq!(context(store, &id, own).messages.len(), 5);
    redo(store, &id, &flip).unwrap();
    assert_eq!(context(store, &id, own).messages, sealed.messages);
    let repaired = repair_session(store, &id, &CompactRequest::default()).unwrap();
    assert_eq!((repaired.undone.len(), repaired.missing), (1, 0));
    assert_eq!(context(store, &id, own).compaction, None);
    let again = repair_session(store, &id, &CompactRequest::default()).unwrap();
    assert_eq!(again.undone, [""; 0]);
    let report = verify(store).unwrap();
    assert!(report.ok, "{:?}", report.problems);
}
