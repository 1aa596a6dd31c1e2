//! Kept source files: a file is removed with the last session that has content in it, and each report announces
//! it.

use loopstore::extend::source::sources;
use loopstore::*;
use loopstore_admin::retention::*;
use loopstore_transcripts::{ImportOptions, import_paths};

use crate::removal::*;

/// Imports a file of several sessions, of which the second has a secret.
fn import(stage: &Stage, store: &dyn Database) -> Vec<SessionId> {
    let line = |words: &str| {
        format!(
            r#"{{"messages":[{{"role":"user","content":"{words}"}},{{"role":"assistant","content":"yes"}}]}}"#
        )
    };
    let secret = format!("the key is {}", token());
    let lines: Vec<String> = ["one", &secret, "three"].into_iter().map(line).collect();
    let path = stage.path("chats.jsonl");
    std::fs::write(&path, lines.join("\n") + "\n").unwrap();
    let report = import_paths(store, &[path], &ImportOptions::default(), &mut |_| {}).unwrap();
    assert_eq!(report.sessions.len(), 3, "{:?}", report.skipped);
    report.sessions
}

fn files(store: &dyn Database, session: &SessionId) -> usize {
    sources(store, session).unwrap().len()
}

pub fn a_file_goes_with_its_last_session(store: &dyn Database) {
    let stage = Stage::new();
    let ids = import(&stage, store);
    let request = |at: usize| EraseRequest::new(ids[at].clone());
    let preview = erase(
        store,
        &EraseRequest {
            dry_run: true,
            ..request(0)
        },
    )
    .unwrap();
    assert_eq!((preview.receipt, preview.files.len()), (None, 1));
    assert_eq!(files(store, &ids[0]), 1, "it was only told");
    let report = erase(store, &request(0)).unwrap();
    assert_eq!(report.files, preview.files);
    assert!(!report.files[0].goes);
    assert_eq!(report.files[0].sessions, ids[1..]);
    assert_eq!((report.sources, report.leftover), (0, Leftover::InContent));
    assert_eq!((files(store, &ids[1]), files(store, &ids[2])), (1, 1));
    erase(store, &request(1)).unwrap();
    let last = erase(store, &request(2)).unwrap();
    assert_eq!((last.sources, last.files[0].goes), (1, true));
    assert_ne!(last.leftover, Leftover::InContent);
    assert!(loopstore_verify::verify(store).unwrap().ok);
}

pub fn a_file_of_several_goes_at_once_if_that_is_asked_for(store: &dyn Database) {
    let stage = Stage::new();
    let ids = import(&stage, store);
    let mut request = EraseRequest::new(ids[0].clone());
    request.with_files = true;
    let report = erase(store, &request).unwrap();
    assert_eq!((report.sources, &report.source_of[..]), (1, &ids[1..]));
    assert_eq!(files(store, &ids[1]), 0);
    let why = files_removed(store, &ids[1]).unwrap().unwrap();
    assert_eq!((why.kind.as_str(), &why.session_id), ("erase", &ids[0]));
    assert_eq!(Some(why.receipt), report.receipt);
}

pub fn a_redaction_tells_of_a_file_that_still_holds_the_secret(store: &dyn Database) {
    let stage = Stage::new();
    let ids = import(&stage, store);
    let request = RedactRequest::new(ids[1].clone());
    let report = redact_session(store, &request).unwrap();
    assert_eq!((report.sources, report.files.len()), (0, 1));
    assert_eq!(report.leftover, Leftover::InContent);
    assert_eq!(report.left[0].place, "sources");
    assert_eq!((files(store, &ids[0]), files(store, &ids[1])), (1, 0));
    assert_eq!(
        files_removed(store, &ids[1]).unwrap().unwrap().kind,
        "redact"
    );
    // A second redaction finds nothing and removes nothing.
    let again = RedactRequest {
        with_files: true,
        ..request
    };
    assert_eq!(redact_session(store, &again).unwrap().receipt, None);
    assert_eq!(files(store, &ids[0]), 1);
}

pub fn a_file_goes_when_all_its_sessions_are_pruned(store: &dyn Database) {
    let stage = Stage::new();
    let ids = import(&stage, store);
    set_protected(store, &ids[2], true).unwrap();
    let request = PruneRequest {
        keep_last: Some(0),
        ..PruneRequest::default()
    };
    let preview = prune(
        store,
        &PruneRequest {
            dry_run: true,
            ..request.clone()
        },
    )
    .unwrap();
    let report = prune(store, &request).unwrap();
    assert_eq!(report.files, preview.files);
    assert_eq!((report.pruned.len(), report.files[0].goes), (2, false));
    assert_eq!(report.files[0].sessions, ids[2..]);
    set_protected(store, &ids[2], false).unwrap();
    assert_eq!(prune(store, &request).unwrap().sources, 1);
    assert!(loopstore_verify::verify(store).unwrap().ok);
}
