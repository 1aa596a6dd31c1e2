//! Tests on a server that other crates run on files.

use loopstore::SqliteStore;
use loopstore::extend::SessionStore;
use loopstore::search::{SessionHit, search_sessions};
use loopstore_copy::copy;

use crate::example;
use crate::support::amount::amount;
use crate::support::conformance::pins;
use crate::support::histories::{Random, open};
use crate::support::questions::ExamQuestion;
use crate::support::whole::assert_whole;
use crate::support::{pieces, questions, server};

#[test]
fn a_copy_on_a_server_and_back_keeps_pins_and_quotes() {
    let Some(server) = server::store() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("agent.db"));
    let id = pins::pinned(&store, "s").session;
    let before = pins::seen(&store, &id);
    let report = copy(&store, &server, folder.path(), &mut |_, _| {}).unwrap();
    assert!(report.is_whole());
    assert_eq!(pins::seen(&server, &id), before);
    assert_whole(&server);
    let back = open(&folder.path().join("back.db"));
    let report = copy(&server, &back, folder.path(), &mut |_, _| {}).unwrap();
    assert!(report.is_whole());
    assert_eq!(pins::seen(&back, &id), before);
    assert_whole(&back);
}

/// Both backends give the same hits in the same order.
#[test]
fn both_backends_have_the_same_order() {
    let Some((folder, asked)) = questions::material() else {
        return;
    };
    let Some(other) = server::store() else {
        return;
    };
    let store = questions::imported(SqliteStore::in_memory().unwrap(), &folder);
    let other = questions::imported(other, &folder);
    for ExamQuestion { id, question, .. } in asked {
        let one = questions::ask(&store, &question);
        assert!(one == questions::ask(&other, &question), "{id}: {question}");
        let sessions = |store: &dyn SessionStore| {
            let query = question.as_str().into();
            let found = search_sessions(store, &query).unwrap();
            let pair = |hit: SessionHit| (hit.session_id, hit.score, hit.hits);
            found.sessions.into_iter().map(pair).collect::<Vec<_>>()
        };
        assert!(sessions(&store) == sessions(&other), "{id}: {question}");
    }
}

#[test]
fn no_piece_of_a_random_secret_is_left_on_a_server() {
    if let Some(store) = server::store() {
        let mut random = Random::new(amount("LOOPSTORE_SEED", 2));
        pieces::redact_all(&store, &mut random, amount("LOOPSTORE_HOLDERS", 40) / 2);
    }
}

#[test]
fn postgres_runs_to_its_end() {
    if let Some(server) = server::server() {
        // The example creates the tables.
        let address = server.address(&server.database());
        example::on(&address).unwrap();
        example::on(&address).unwrap();
    }
}
