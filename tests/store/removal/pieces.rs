//! Pieces of secrets: of a secret that a compaction truncated, or that was truncated before, nothing is left either.

use loopstore_admin::backup::backup;
use loopstore_admin::retention::*;
use loopstore_testing::pieces::{SecretSession, found_in, redact_all};

use crate::support::amount::amount;
use crate::support::histories::{History, Random, answer, user};
use crate::support::removal::*;

#[test]
fn no_piece_of_a_random_secret_is_left_in_any_file() {
    let stage = Stage::new();
    let store = stage.store();
    let mut random = Random::new(amount("LOOPSTORE_SEED", 1));
    let holders = redact_all(&store, &mut random, amount("LOOPSTORE_HOLDERS", 40));
    assert_whole(&store);
    let copy = stage.path("copy.db");
    backup(&store, &copy, false, &mut |_, _| {}).unwrap();
    let log = format!("{}-wal", stage.file().display());
    let windows = holders.iter().flat_map(SecretSession::windows).collect();
    for file in [stage.file(), log.into(), copy] {
        let bytes = std::fs::read(&file).unwrap_or_default();
        assert_eq!(found_in(&bytes, &windows), [""; 0], "{}", file.display());
    }
}

#[test]
fn what_holds_a_secret_besides_is_told() {
    let stage = Stage::new();
    let store = stage.store();
    let told = |id: &str, text: &str| {
        let history = History::new(&store, id);
        history.append(0, vec![user(text, 0), answer("yes", &[], 0)]);
    };
    told("a", &format!("with {}", token()));
    told("b", &format!("it began with {}…", &CORE[..12]));
    told("c", "nothing at all");
    let report = redact_session(&store, &RedactRequest::new(session("a"))).unwrap();
    assert_eq!(report.leftover, Leftover::InContent);
    let left: Vec<_> = report
        .left
        .iter()
        .map(|one| (one.session_id.clone(), one.place.as_str(), one.count))
        .collect();
    assert_eq!(left, [(Some(session("b")), "messages", 1)]);

    // An id stays, since every reference to it would break.
    let id = format!("s-{CORE}");
    told(&id, &format!("with {}", token()));
    let report = redact_session(&store, &RedactRequest::new(session(&id))).unwrap();
    let places: Vec<&str> = report.left.iter().map(|one| one.place.as_str()).collect();
    let own = ["maintenance.detail", "sessions.meta", "sessions.session_id"];
    assert_eq!(places, [&["messages"], &own[..]].concat());
    assert_whole(&store);
}

#[test]
fn where_nothing_is_found_nothing_changes() {
    let stage = Stage::new();
    let store = stage.store();
    plain(&store, "s");
    let before = store.query("SELECT * FROM messages").unwrap().records();
    let report = redact_session(&store, &RedactRequest::new(session("s"))).unwrap();
    assert_eq!((report.receipt, report.leftover), (None, Leftover::None));
    assert_eq!(number(&store, "SELECT count(*) AS n FROM maintenance"), 0);
    let after = store.query("SELECT * FROM messages").unwrap().records();
    assert_eq!(format!("{before:?}"), format!("{after:?}"));
    let redacts = "SELECT redacts AS n FROM session_flags";
    assert_eq!(number(&store, redacts), 1, "what comes later is redacted");
}
