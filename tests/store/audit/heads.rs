//! A head that is stored elsewhere reveals that the end was removed, or that everything was recomputed.

use loopstore::*;
use loopstore_admin::retention::{EraseRequest, RedactRequest, erase, redact_session};
use loopstore_verify::{Head, ProblemKind, take_head, verify, verify_against};

use super::stage::{Stage, shell};
use crate::support::keyed;

fn session(id: &str) -> SessionId {
    SessionId::new(id).unwrap()
}

#[test]
fn a_head_holds_through_all_that_may_happen() {
    let stage = Stage::new();
    let file = stage.copy();
    let store = keyed::open(&file).unwrap();
    let head = take_head(&store, None).unwrap();
    let text = head.to_string();
    assert!(text.len() < 100, "{text}");
    assert_eq!(text.parse::<Head>(), Ok(head));
    assert_eq!(take_head(&store, None).unwrap(), head, "nothing happened");
    redact_session(&store, &RedactRequest::new(session("t"))).unwrap();
    let request = EraseRequest {
        force: true,
        ..EraseRequest::new(session("t"))
    };
    erase(&store, &request).unwrap();
    let report = verify_against(&store, &head, None).unwrap();
    assert!(report.ok, "{:#?}", report.problems);
    assert_ne!(take_head(&store, None).unwrap(), head);
}

#[test]
fn a_cut_end_is_seen_although_all_fits_together() {
    let stage = Stage::new();
    let file = stage.copy();
    let store = keyed::open(&file).unwrap();
    let before = std::fs::read(&file).unwrap();
    let chat = session("s");
    let undone = loopstore::compact::FlipRequest::default();
    let head = {
        // The copy of the file is older than the head.
        loopstore::redo(&store, &chat, &undone).unwrap();
        take_head(&store, None).unwrap()
    };
    let report = verify_against(&store, &head, None).unwrap();
    assert!(report.ok, "{:#?}", report.problems);
    drop(store);
    for end in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{end}", file.display()));
    }
    std::fs::write(&file, before).unwrap();
    let store = keyed::open(&file).unwrap();
    assert!(verify(&store).unwrap().ok, "an older state is whole");
    let report = verify_against(&store, &head, None).unwrap();
    assert!(
        report
            .problems
            .iter()
            .all(|one| one.kind == ProblemKind::Head)
    );
    assert!(!report.ok);
}

#[test]
fn a_chain_that_was_made_anew_is_seen_and_a_signature_is_checked() {
    let stage = Stage::new();
    let file = stage.copy();
    let store = keyed::open(&file).unwrap();
    let head = take_head(&store, Some(b"mine")).unwrap();
    let of = |key: Option<&[u8]>| verify_against(&store, &head, key).unwrap().ok;
    assert!(of(Some(b"mine")) && of(None));
    assert!(!of(Some(b"another")));
    let unsigned = take_head(&store, None).unwrap();
    assert!(!verify_against(&store, &unsigned, Some(b"mine")).unwrap().ok);
    drop(store);
    let connection = shell(&file);
    let refused = connection.execute_batch("DELETE FROM heads");
    let refused = refused.unwrap_err().to_string();
    assert!(
        loopstore_testing::refusals::is_of_a_trigger(&refused),
        "{refused}"
    );
    connection
        .execute_batch("DROP TRIGGER heads_no_delete; DELETE FROM heads")
        .unwrap();
    drop(connection);
    let store = keyed::open(&file).unwrap();
    let report = verify_against(&store, &head, Some(b"mine")).unwrap();
    let is_told = |kind| report.problems.iter().any(|one| one.kind == kind);
    assert!(is_told(ProblemKind::Head) && is_told(ProblemKind::Schema));
    for text in [
        "",
        "loopstore-head-1",
        "loopstore-head-1:00",
        "loopstore-head-2:00",
    ] {
        assert!(text.parse::<Head>().is_err());
    }
}
