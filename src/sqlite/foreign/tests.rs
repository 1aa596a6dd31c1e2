use super::*;
use crate::model::{Session, SessionId};
use crate::sqlite::SqliteStore;

fn schema_with(sql: &str) -> ForeignObjects {
    let store = SqliteStore::in_memory().unwrap();
    let made = store.transaction(|connection| connection.execute_batch(sql).map_err(from_sqlite));
    made.unwrap();
    store
        .snapshot(|connection| find(connection, migration::formats()).map_err(from_sqlite))
        .unwrap()
}

#[test]
fn each_statement_of_a_new_database_is_found_in_a_script() {
    let statements = migration::formats().statements().unwrap();
    let other: Vec<&String> = statements.iter().filter(|sql| !OWN.has(sql)).collect();
    // The tables of FTS5, of the migrations and of SQLite.
    assert!(other.len() > 5 && other.len() < 9, "{other:#?}");
    assert!(statements.len() > 200);
    let found = schema_with("");
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn a_part_of_a_statement_is_not_the_statement() {
    let view = "CREATE VIEW leaves AS SELECT 1";
    assert!(!OWN.has(view) && !OWN.has("") && !OWN.has("CREATE TABLE sessions ("));
    let whole = migration::formats().statements().unwrap();
    for sql in whole.iter().filter(|sql| OWN.has(sql)) {
        let shorter: String = sql.chars().take(sql.chars().count() - 1).collect();
        assert!(!OWN.has(&shorter), "{shorter}");
    }
}

#[test]
fn what_is_put_on_a_table_of_the_store_is_named() {
    for (sql, line) in [
        (
            "CREATE TRIGGER spy AFTER UPDATE ON messages BEGIN SELECT 1; END",
            "trigger `spy` on `messages`",
        ),
        (
            "CREATE TRIGGER /* ON x */ \"a \"\" on b\" BEFORE UPDATE OF \"on\", body ON [Messages] -- ON x
             BEGIN SELECT 1; END",
            "trigger `a \" on b` on `messages`",
        ),
        (
            "CREATE TRIGGER main.t INSTEAD OF INSERT ON v_sessions BEGIN SELECT 1; END",
            "trigger `t` on `v_sessions`",
        ),
        (
            "CREATE TRIGGER i AFTER DELETE ON message_index_data BEGIN SELECT 1; END",
            "trigger `i` on `message_index_data`",
        ),
        (
            "CREATE TRIGGER h BEFORE INSERT ON refinery_schema_history BEGIN SELECT 1; END",
            "trigger `h` on `refinery_schema_history`",
        ),
        (
            "CREATE UNIQUE INDEX one ON sessions (agent_id)",
            "index `one` on `sessions`",
        ),
        (
            "CREATE TABLE mine (s INTEGER REFERENCES Sessions (key) ON DELETE CASCADE)",
            "table `mine`, which references `sessions`",
        ),
    ] {
        let found = schema_with(sql);
        assert_eq!((found.added, found.replaced.len()), (vec![line.to_owned()], 0), "{sql}");
    }
}

#[test]
fn what_stands_in_place_of_an_object_of_the_store_is_named() {
    for (sql, line) in [
        (
            "DROP TABLE notes; CREATE VIEW Notes AS SELECT 1 AS id",
            "view `Notes`, which is not the one of this format",
        ),
        (
            "DROP TRIGGER pins_no_update; CREATE TRIGGER pins_no_update BEFORE UPDATE ON pins
             BEGIN SELECT RAISE(IGNORE); END",
            "trigger `pins_no_update`, which is not the one of this format",
        ),
        (
            "ALTER TABLE leases ADD COLUMN mine TEXT",
            "table `leases`, which is not the one of this format",
        ),
        (
            "DROP INDEX runs_open; CREATE UNIQUE INDEX runs_open ON runs (loop)",
            "index `runs_open`, which is not the one of this format",
        ),
    ] {
        let found = schema_with(sql);
        assert_eq!(
            (found.replaced, found.added.len()),
            (vec![line.to_owned()], 0),
            "{sql}"
        );
    }
}

#[test]
fn tables_of_a_user_and_views_over_ours_are_left_alone() {
    let found = schema_with(
        "CREATE TABLE my_notes (id INTEGER PRIMARY KEY, session TEXT, parent REFERENCES my_notes (id));
         CREATE INDEX my_notes_session ON my_notes (session);
         CREATE TRIGGER messages AFTER INSERT ON my_notes BEGIN SELECT count(*) FROM sessions; END;
         CREATE VIEW my_sessions AS SELECT session_id FROM v_sessions;
         CREATE TRIGGER my_view INSTEAD OF INSERT ON my_sessions BEGIN SELECT 1; END;
         CREATE VIRTUAL TABLE my_search USING fts5(text);
         ANALYZE;",
    );
    assert!(found.is_empty(), "{found:?}");
}

fn opened() -> (tempfile::TempDir, SqliteStore, Connection) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("some.db");
    let store = SqliteStore::open(&path).unwrap();
    add(&store, "first").unwrap();
    let other = Connection::open(&path).unwrap();
    (folder, store, other)
}

fn add(store: &SqliteStore, id: &str) -> StoreResult<()> {
    crate::store::write(store, |write| {
        let session = Session::new(SessionId::new(id).unwrap(), "agent");
        crate::store::session::create_session(write, &session, None, None).map(|_| ())
    })
}

fn sessions(store: &SqliteStore) -> StoreResult<usize> {
    crate::store::read(store, |read| Ok(read.sessions()?.len()))
}

#[test]
fn a_trigger_that_comes_while_the_database_is_open_is_found_before_the_next_write() {
    let (_folder, store, other) = opened();
    let endless = "CREATE TRIGGER endless AFTER INSERT ON sessions BEGIN
        INSERT INTO spent_keys WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
            SELECT 'x', i FROM n WHERE i < 0; END";
    other.execute_batch(endless).unwrap();
    for _ in 0..2 {
        let refused = add(&store, "second");
        let named = "trigger `endless` on `sessions`";
        assert!(
            matches!(&refused, Err(StoreError::ForeignSchema(list)) if list == named),
            "{refused:?}"
        );
        // Nobody reads through a trigger.
        assert_eq!(sessions(&store).unwrap(), 1);
    }
    other.execute_batch("DROP TRIGGER endless").unwrap();
    add(&store, "second").unwrap();
    assert_eq!(sessions(&store).unwrap(), 2);
}

#[test]
fn a_trigger_whose_schema_keeps_its_number_is_found_by_new_connections() {
    let (folder, store, other) = opened();
    drop(store);
    let number: i64 = other
        .pragma_query_value(None, "schema_version", |row| row.get(0))
        .unwrap();
    other
        .execute_batch("CREATE TRIGGER spy AFTER INSERT ON sessions BEGIN SELECT 1; END")
        .unwrap();
    other.pragma_update(None, "schema_version", number).unwrap();
    let store = SqliteStore::open(folder.path().join("some.db")).unwrap();
    let refused = add(&store, "second");
    assert!(
        matches!(refused, Err(StoreError::ForeignSchema(_))),
        "{refused:?}"
    );
}

#[test]
fn a_read_through_something_in_place_of_a_table_ends() {
    let (_folder, store, other) = opened();
    let endless = "DROP TABLE message_index; ALTER TABLE sessions RENAME TO away;
        CREATE VIEW sessions AS WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
            SELECT a.* FROM away a, n";
    // The views that read the table then read what is in its place.
    let settings = "PRAGMA foreign_keys = off; PRAGMA legacy_alter_table = on";
    other.execute_batch(settings).unwrap();
    other.execute_batch(endless).unwrap();
    let most = Duration::from_millis(200);
    // The connection knows the schema after the first read, and must find the view again.
    for _ in 0..3 {
        let counted: StoreResult<i64> = store.with_reader(|connection| {
            snapshot(connection, most, |connection| {
                let sql = "SELECT count(*) FROM sessions";
                let count = connection.query_row(sql, [], |row| row.get(0));
                count.map_err(from_sqlite)
            })
        });
        assert!(
            matches!(&counted, Err(StoreError::ForeignSchema(list)) if list.contains("view `sessions`")),
            "{counted:?}"
        );
    }
}

#[test]
fn any_text_is_read_without_a_panic() {
    for sql in [
        "",
        "CREATE",
        "create table",
        "CREATE TABLE \"",
        "CREATE TABLE 'a''b",
        "CREATE TRIGGER [a",
        "CREATE/**/TABLE",
        "CREATE TABLE a.",
        "CREATE TABLE IF NOT",
        "CREATE VIRTUAL x",
        "-- \u{e9}",
        "CREATE INDEX i ON",
        "CREATE TRIGGER \u{1f600} ON \u{1f600}",
        "/* ",
        "CREATE VIEW (",
        "\u{feff}CREATE",
    ] {
        let _ = CreatedObject::read(sql);
    }
    let read = |sql| CreatedObject::read(sql).map(|made| (made.kind, made.name, made.on));
    assert_eq!(
        read("create temp trigger if not exists main.\"A b\" after insert on 'X''y' begin"),
        Some((ObjectKind::Trigger, "A b".into(), Some("x'y".into())))
    );
    assert_eq!(
        read("CREATE VIRTUAL TABLE `f``t` USING x"),
        Some((ObjectKind::VirtualTable, "f`t".into(), None))
    );
}
