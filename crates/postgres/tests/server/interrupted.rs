//! Errors with which a database asks for a transaction to be run again: it is, if nothing was returned yet.

use loopstore::extend as store;
use loopstore::extend::sqlite::QueryLimits;
use loopstore::*;
use loopstore_postgres::{PostgresOptions, PostgresStore};

use crate::support::histories::{History, user};
use crate::support::server;

/// A function that fails twice in each connection, as an interrupted transaction does. It counts with locks of
/// the session, which outlive the transaction.
const FLAKY: &str = "CREATE FUNCTION flaky() RETURNS BIGINT LANGUAGE plpgsql AS $$
    DECLARE
        tries BIGINT := (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()
            AND classid = 4711);
    BEGIN
        IF tries < 2 THEN
            PERFORM pg_advisory_lock(4711, tries::INT);
            RAISE EXCEPTION 'could not serialize access' USING ERRCODE = '40001';
        END IF;
        RETURN tries;
    END $$";

#[test]
fn what_promised_nothing_is_tried_again() {
    let Some(server) = server::server() else {
        return;
    };
    let name = server.prepared();
    let mut client = server.client(&name);
    client.batch_execute(FLAKY).unwrap();
    let options = PostgresOptions::new().connections(1);
    let store = PostgresStore::open_with(&server.address(&name), options).unwrap();
    let rows = store.query_within("SELECT flaky()", QueryLimits::default());
    assert_eq!(rows.unwrap().rows.len(), 1);
    // A closure runs once, as it may have used what it read; its caller gets the error.
    let mut client = server.client(&name);
    let history = History::new(&store, "s");
    history.append(0, vec![user("hello", 0)]);
    client
        .batch_execute(
            "CREATE FUNCTION interrupted() RETURNS TRIGGER LANGUAGE plpgsql AS $$
             BEGIN
                 RAISE EXCEPTION 'could not serialize access' USING ERRCODE = '40001';
             END $$;
             CREATE TRIGGER interrupted BEFORE INSERT ON notes
             FOR EACH ROW EXECUTE FUNCTION interrupted()",
        )
        .unwrap();
    let loop_key = history.row(0).key;
    let mut runs = 0;
    let done = store::write(&store, |write| {
        runs += 1;
        write.insert_note(loop_key, &store::Note::Event("\"x\"".into()))
    });
    assert!(
        matches!(done, Err(StoreError::SerializationFailure)),
        "{done:?}"
    );
    assert_eq!(runs, 1);
}

#[test]
fn a_transaction_that_is_refused_at_its_beginning_begins_again() {
    let Some(server) = server::server() else {
        return;
    };
    let name = server.prepared();
    let store = PostgresStore::open(&server.address(&name)).unwrap();
    let history = History::new(&store, "s");
    // A sequence keeps a number that a rolled back transaction took.
    server
        .client(&name)
        .batch_execute(
            "CREATE SEQUENCE tries;
             CREATE OR REPLACE FUNCTION loopstore_counts_with(counter TEXT) RETURNS VOID
             LANGUAGE plpgsql AS $$
             BEGIN
                 IF nextval('tries') < 3 THEN
                     RAISE EXCEPTION 'could not serialize access' USING ERRCODE = '40001';
                 END IF;
             END $$",
        )
        .unwrap();
    history.append(0, vec![user("hello", 0)]);
    assert_eq!(history.row(0).totals.next_seq, 1);
}

#[test]
fn tables_are_made_again_when_others_came_between() {
    let Some(server) = server::server() else {
        return;
    };
    let name = server.database();
    let mut client = server.client(&name);
    let flaky = |until: u32| {
        format!(
            "CREATE SEQUENCE IF NOT EXISTS tries;
             CREATE OR REPLACE FUNCTION flaky_ddl() RETURNS event_trigger LANGUAGE plpgsql AS $$
             BEGIN
                 IF nextval('tries') < {until} THEN
                     RAISE EXCEPTION 'catalog version mismatch' USING ERRCODE = '40001';
                 END IF;
             END $$"
        )
    };
    let trigger = "CREATE EVENT TRIGGER flaky_ddl ON ddl_command_start WHEN TAG IN ('CREATE VIEW')
        EXECUTE FUNCTION flaky_ddl()";
    client.batch_execute(&flaky(3)).unwrap();
    client.batch_execute(trigger).unwrap();
    let store = PostgresStore::open(&server.address(&name)).unwrap();
    History::new(&store, "s");
    drop(store);
    // The number of repetitions is limited.
    let name = server.database();
    let mut client = server.client(&name);
    client.batch_execute(&flaky(1_000_000)).unwrap();
    client.batch_execute(trigger).unwrap();
    let Err(error) = PostgresStore::open(&server.address(&name)) else {
        panic!("it opened");
    };
    assert!(matches!(error, OpenError::Busy), "{error}");
}
