//! Triggers, indexes and views that another program added to the tables of the store, or replaced.

use loopstore::search::{SearchQuery, search};
use loopstore::*;
use loopstore_admin::retention::{RedactRequest, redact_session};
use loopstore_verify::verify;
use rusqlite::Connection;

use crate::support::keyed;

const TOKEN: &str = "ghp_16C7e42F292c6912E7710c838347Ae178B4a";

fn stage() -> (tempfile::TempDir, Store, Connection) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agent.db");
    let store = Store::from(keyed::open(&file).unwrap());
    let chat = store.session("s").unwrap();
    chat.append([Message::user(format!("The key is {TOKEN}"))])
        .unwrap();
    chat.append([Message::assistant("I noted the key.")])
        .unwrap();
    let raw = keyed::raw(&file).unwrap();
    (folder, store, raw)
}

fn is_foreign(error: &StoreError, object: &str) -> bool {
    matches!(error, StoreError::ForeignSchema(list) if list.contains(object))
}

#[test]
fn nothing_is_written_or_removed_where_a_foreign_trigger_would_see_it() {
    for (sql, object) in [
        (
            "CREATE TABLE loot (text); CREATE TRIGGER spy BEFORE UPDATE ON messages
             BEGIN INSERT INTO loot VALUES (OLD.head || OLD.body); END",
            "trigger `spy` on `messages`",
        ),
        (
            "CREATE TRIGGER swallows BEFORE INSERT ON pins BEGIN SELECT RAISE(IGNORE); END",
            "trigger `swallows` on `pins`",
        ),
        (
            "CREATE TRIGGER protects BEFORE INSERT ON session_flags BEGIN SELECT RAISE(IGNORE); END",
            "trigger `protects` on `session_flags`",
        ),
        (
            "CREATE TRIGGER endless AFTER INSERT ON messages BEGIN
                 SELECT max(i) FROM (WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
                     SELECT i FROM n); END",
            "trigger `endless` on `messages`",
        ),
        (
            "CREATE UNIQUE INDEX one ON messages (role)",
            "index `one` on `messages`",
        ),
        (
            "CREATE TABLE child (s REFERENCES sessions (key) ON DELETE RESTRICT)",
            "table `child`, which references `sessions`",
        ),
    ] {
        let (_folder, store, raw) = stage();
        raw.execute_batch(sql).unwrap();
        let chat = store.session("s").unwrap();
        let refused = chat.append([Message::user("more")]).unwrap_err();
        let told = refused.to_string();
        assert!(told.contains(object) && told.contains("drop"), "{sql}: {told}");
        let redacted = redact_session(store.database(), &RedactRequest::new(chat.id().clone()));
        assert!(redacted.as_ref().is_err_and(|error| is_foreign(error, object)), "{redacted:?}");
        // The record can be read and searched, and is unchanged.
        let text = serde_json::to_string(&chat.context().unwrap().messages).unwrap();
        assert!(text.contains(TOKEN) && !text.contains("more"), "{text}");
        let found = search(store.database(), &SearchQuery::new("noted")).unwrap();
        assert_eq!(found.hits.len(), 1);
        let report = verify(store.database()).unwrap();
        let named: Vec<_> = report.problems.iter().map(|problem| &problem.detail).collect();
        assert!(!report.ok && named.len() == 1 && named[0].contains(object), "{named:?}");
        let name = object.split('`').nth(1).unwrap();
        let kind = object.split(' ').next().unwrap();
        raw.execute_batch(&format!("DROP {kind} {name}")).unwrap();
        chat.append([Message::user("more")]).unwrap();
        redact_session(store.database(), &RedactRequest::new(chat.id().clone())).unwrap();
        assert!(verify(store.database()).unwrap().ok);
    }
}

#[test]
fn a_view_that_never_ends_in_place_of_a_table_ends_the_check_in_time() {
    let (_folder, store, raw) = stage();
    raw.execute_batch(
        "DROP TABLE flips; CREATE VIEW flips AS
         WITH RECURSIVE n (key) AS (SELECT 1 UNION ALL SELECT key + 1 FROM n)
         SELECT key, 1 AS session, 1 AS run, 1 AS tick, 'undo' AS kind, 1 AS loop, 0 AS turns,
             NULL AS at, NULL AS reason, x'00' AS digest FROM n WHERE key < 0",
    )
    .unwrap();
    let report = verify(store.database()).unwrap();
    let named: Vec<_> = report
        .problems
        .iter()
        .map(|problem| &*problem.detail)
        .collect();
    assert!(
        named
            .iter()
            .any(|detail| detail.contains("table flips is missing or another one")),
        "{named:?}"
    );
    assert!(
        named
            .iter()
            .any(|detail| detail.contains("could not be read in time")),
        "{named:?}"
    );
    let chat = store.session("s").unwrap();
    assert!(chat.append([Message::user("more")]).is_err());
}

#[test]
fn tables_that_a_user_adds_are_no_matter() {
    let (_folder, store, raw) = stage();
    raw.execute_batch(
        "CREATE TABLE ratings (session TEXT, stars INTEGER);
         CREATE INDEX ratings_session ON ratings (session);
         CREATE TRIGGER ratings_once BEFORE INSERT ON ratings BEGIN SELECT 1; END;
         CREATE VIEW rated AS SELECT * FROM v_sessions JOIN ratings ON session = session_id;",
    )
    .unwrap();
    let chat = store.session("s").unwrap();
    chat.append([Message::user("more")]).unwrap();
    redact_session(store.database(), &RedactRequest::new(chat.id().clone())).unwrap();
    assert!(verify(store.database()).unwrap().ok);
}
