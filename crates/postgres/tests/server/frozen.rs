//! A server process that is stopped in the middle of a transaction: it answers nothing, and its machine still
//! acknowledges every byte.

use std::time::Duration;

use loopstore::extend as store;
use loopstore::extend::sqlite::QueryLimits;
use loopstore::*;
use loopstore_postgres::{PostgresOptions, PostgresStore};

use crate::support::histories::{History, user};
use crate::support::process::signal;
use crate::support::server;

const LIMIT: Duration = Duration::from_secs(3);

/// Returns the server process of the one connection of a store.
fn process(store: &PostgresStore) -> i64 {
    let sql = "SELECT pg_backend_pid()::BIGINT";
    let rows = store.query_within(sql, QueryLimits::default()).unwrap();
    rows.rows[0][0].read().unwrap()
}

#[test]
fn a_server_that_freezes_is_given_up_in_time_and_the_next_call_connects_anew() {
    let Some(server) = server::server() else {
        return;
    };
    let options = PostgresOptions::new()
        .connections(1)
        .statement_limit(Some(LIMIT));
    let address = server.tcp_address(&server.prepared());
    let store = PostgresStore::open_with(&address, options).unwrap();
    let history = History::new(&store, "s");
    history.append(0, vec![user("hello", 0)]);
    let loop_key = history.row(0).key;
    let note = |write: &mut dyn store::StoreWrite| {
        write.insert_note(loop_key, &store::Note::Event("\"lost\"".into()))
    };
    // During a write.
    let frozen = process(&store);
    let lost = store::write(&store, |write| {
        note(write)?;
        signal("STOP", frozen);
        write.loop_by_key(loop_key).map(drop)
    });
    assert!(
        matches!(lost, Err(StoreError::StatementTimeout(LIMIT))),
        "{lost:?}"
    );
    let error = lost.unwrap_err().to_string();
    assert!(error.contains("did not answer for 3 s") && error.contains("check the server"));
    // Other connections work meanwhile.
    assert_ne!(process(&store), frozen);
    let read = store::read(&store, |read| read.loop_by_key(loop_key));
    assert_eq!(read.unwrap().totals.next_seq, 1);
    signal("CONT", frozen);
    history.append(0, vec![user("again", 1)]);
    // During a read.
    let frozen = process(&store);
    let lost = store::read(&store, |read| {
        read.loop_by_key(loop_key)?;
        signal("STOP", frozen);
        read.loop_by_key(loop_key).map(drop)
    });
    signal("CONT", frozen);
    assert!(
        matches!(lost, Err(StoreError::StatementTimeout(_))),
        "{lost:?}"
    );
    // During a commit the outcome is unknown.
    let frozen = process(&store);
    let lost = store::write(&store, |write| {
        note(write)?;
        signal("STOP", frozen);
        Ok(())
    });
    signal("CONT", frozen);
    assert!(matches!(lost, Err(StoreError::Unconfirmed(_))), "{lost:?}");
    // When an idle connection is used for the next transaction.
    let frozen = process(&store);
    signal("STOP", frozen);
    let asked = store::read(&store, |read| read.sessions());
    signal("CONT", frozen);
    assert_eq!(asked.unwrap().len(), 1);
    let notes = store::read(&store, |read| read.notes(loop_key)).unwrap();
    assert!(notes.len() <= 1, "what was given up was kept");
    let report = loopstore_verify::verify(&store).unwrap();
    assert!(report.ok, "{:?}", report.problems);
}

#[test]
fn a_query_of_ones_own_has_the_limit_that_it_brings() {
    let Some(server) = server::server() else {
        return;
    };
    let options = PostgresOptions::new()
        .patience(LIMIT)
        .statement_limit(Some(LIMIT));
    let address = server.address(&server.prepared());
    let store = PostgresStore::open_with(&address, options).unwrap();
    let slow = "SELECT pg_sleep(3.5), 1 AS one";
    let rows = store.query_within(slow, QueryLimits::default()).unwrap();
    assert_eq!(rows.rows.len(), 1);
    let limits = QueryLimits {
        time: Some(Duration::from_millis(100)),
        ..QueryLimits::default()
    };
    let stopped = store.query_within(slow, limits).unwrap_err();
    assert!(stopped.to_string().contains("timed out"), "{stopped}");
}
