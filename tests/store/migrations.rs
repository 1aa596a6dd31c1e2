//! Old files open, newer and strange ones are refused with an error that says which they are.

use std::path::{Path, PathBuf};

use crate::support::histories::{History, answer, loop_id, open, result, user};
use crate::support::keyed;
use loopstore::inspect::verify;
use loopstore::model::{Content, SessionId};
use loopstore::search::{SearchQuery, search};
use loopstore::store;
use loopstore::{BuildOptions, OpenError, SqliteStore, build_context_from_session};
use refinery::Target;
use rusqlite::Connection;

mod embedded {
    refinery::embed_migrations!("migrations/sqlite");
}

/// `LOOP` in ASCII.
const APPLICATION_ID: i64 = 0x4C4F_4F50;

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agent.db");
    (folder, file)
}

fn schema(file: &Path) -> Vec<(String, String, Option<String>)> {
    let connection = keyed::raw(file).unwrap();
    let mut statement = connection
        .prepare("SELECT type, name, sql FROM sqlite_schema ORDER BY type, name")
        .unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
    rows.unwrap().collect::<Result<_, _>>().unwrap()
}

/// Makes a file as version `version` made it.
fn make_old(file: &Path, version: i32) -> Connection {
    let mut connection = keyed::raw(file).unwrap();
    connection
        .pragma_update(None, "application_id", APPLICATION_ID)
        .unwrap();
    embedded::migrations::runner()
        .set_target(Target::Version(version))
        .run(&mut connection)
        .unwrap();
    connection
        .pragma_update(None, "user_version", version)
        .unwrap();
    connection
}

/// Rows as the first version wrote them: a session, a forked loop, a block, an undone run, a blob.
/// They are copied from a file of today table by table, with the columns of that version.
fn fill(old: &Connection, today: &Path) {
    keyed::attach_today(old, today);
    note_digests_without_events(old, today);
    let tables: Vec<String> = old
        .prepare("SELECT name FROM main.sqlite_schema WHERE type = 'table' AND name NOT LIKE 'refinery%' AND name NOT LIKE 'sqlite%' AND name NOT LIKE 'message_index%'")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    for table in tables {
        let columns: String = old
            .query_row(
                "SELECT group_concat(name) FROM pragma_table_info(?1, 'main')",
                [&table],
                |row| row.get(0),
            )
            .unwrap();
        let mut values = columns.clone();
        if table == "runs" && !columns.contains("events") {
            values = columns.replace(
                "digest",
                "(SELECT digest FROM temp.without_events w WHERE w.run = run_id)",
            );
        }
        old.execute_batch(&format!(
            "INSERT INTO main.{table} ({columns}) SELECT {values} FROM today.{table}"
        ))
        .unwrap();
    }
    old.execute_batch("DETACH today").unwrap();
}

/// Runs of a format that knew no events had digests of what they held.
fn note_digests_without_events(old: &Connection, today: &Path) {
    old.execute_batch("CREATE TEMP TABLE without_events (run TEXT PRIMARY KEY, digest BLOB)")
        .unwrap();
    store::read(&open(today), |read| {
        let session = read.session(&SessionId::new("s").unwrap())?.unwrap();
        read.runs(session.key, &mut |mut run| {
            run.events = None;
            old.execute(
                "INSERT INTO temp.without_events VALUES (?1, ?2)",
                (&run.run_id, store::digest::run(&run)),
            )
            .unwrap();
            Ok(std::ops::ControlFlow::Continue(()))
        })
    })
    .unwrap();
}

fn tell(file: &Path) {
    let store = open(file);
    let mut history = History::new(&store, "s");
    for turn in 0..6 {
        let call = format!("call-{turn}");
        let output = vec![
            Content::text("line\n".repeat(40)),
            Content::image("aGVsbG8=", "image/png"),
        ];
        let messages = vec![
            user("please", turn),
            answer(&"words ".repeat(30), &[&call], turn),
            result(&call, output, turn),
        ];
        history.append(0, messages);
    }
    assert_eq!(history.compact(0, (1, 2), false)["outcome"], "committed");
    history.start_loop(Some(0), Some(3));
    history.append(1, vec![user("a fork", 0), answer("yes", &[], 0)]);
    assert!(history.flip(0, false));
}

/// What the store answers: the context of both loops.
fn contexts(store: &SqliteStore) -> Vec<String> {
    let session = SessionId::new("s").unwrap();
    let context = |at| {
        let options = BuildOptions {
            leaf: Some(loop_id(at)),
            ..BuildOptions::default()
        };
        let context = build_context_from_session(store, &session, &options).unwrap();
        serde_json::to_string(&context.messages).unwrap()
    };
    vec![context(0), context(1)]
}

/// Returns how many messages hold a word.
fn found(store: &SqliteStore, word: &str) -> usize {
    search(store, &SearchQuery::new(word)).unwrap().hits.len()
}

#[test]
fn a_file_of_each_old_version_opens_with_all_that_it_holds() {
    let (folder, today) = folder();
    tell(&today);
    let expected = contexts(&open(&today));
    let newest = loopstore::store::sqlite::format_version();
    for version in 1..=newest {
        let file = folder.path().join(format!("v{version}.db"));
        let old = make_old(&file, i32::try_from(version).unwrap());
        fill(&old, &today);
        drop(old);
        let store = open(&file);
        assert_eq!(contexts(&store), expected, "version {version}");
        let report = verify(&store).unwrap();
        assert!(report.ok, "version {version}: {:#?}", report.problems);
        assert_eq!(found(&store, "fork"), 1, "version {version}");
        assert_eq!(found(&store, "please"), 6, "version {version}");
        drop(store);
        assert_eq!(schema(&file), schema(&today), "version {version}");
        let connection = keyed::raw(&file).unwrap();
        let found: i64 = connection
            .pragma_query_value(None, "user_version", |row| row.get(0))
            .unwrap();
        assert_eq!(found, newest);
    }
}

#[test]
fn a_newer_file_is_refused_and_left_alone() {
    let (_folder, file) = folder();
    tell(&file);
    let newer = loopstore::store::sqlite::format_version() + 1;
    let connection = keyed::raw(&file).unwrap();
    connection
        .pragma_update(None, "user_version", newer)
        .unwrap();
    drop(connection);
    let before = std::fs::read(&file).unwrap();
    match keyed::open(&file) {
        Err(OpenError::Newer { found, known, .. }) => {
            assert_eq!((found, known), (newer, newer - 1));
        }
        other => panic!("{:?}", other.err()),
    }
    let options = keyed::options().read_only(true);
    let reading = SqliteStore::open_with(&file, options);
    assert!(matches!(reading, Err(OpenError::Newer { .. })));
    assert_eq!(std::fs::read(&file).unwrap(), before);
}

/// Opens a file that holds nothing yet, and uses it.
fn opens_empty(file: &Path, case: &str) {
    let store = keyed::open(file).unwrap_or_else(|error| panic!("{case}: {error}"));
    let sessions = store::read(&store, |read| read.sessions()).unwrap();
    assert!(sessions.is_empty(), "{case}");
    assert!(verify(&store).unwrap().ok, "{case}");
    let history = History::new(&store, "s");
    history.append(0, vec![user("hello", 0)]);
    assert!(verify(&store).unwrap().ok, "{case}");
}

#[test]
fn a_file_whose_creation_was_cut_off_opens_as_empty() {
    let stages: [(&str, &str); 5] = [
        ("no byte", ""),
        ("page size", "PRAGMA page_size = 8192; VACUUM;"),
        (
            "write-ahead log",
            "PRAGMA page_size = 8192; PRAGMA journal_mode = wal;",
        ),
        (
            "application id",
            "PRAGMA journal_mode = wal; PRAGMA application_id = 0x4C4F4F50;",
        ),
        (
            "no migration",
            "PRAGMA application_id = 0x4C4F4F50;
             CREATE TABLE refinery_schema_history (version int4 PRIMARY KEY, name VARCHAR(255),
                 applied_on VARCHAR(255), checksum VARCHAR(255));",
        ),
    ];
    for (case, sql) in stages {
        let (_folder, file) = folder();
        std::fs::write(&file, []).unwrap();
        let connection = keyed::raw(&file).unwrap();
        connection.execute_batch(sql).unwrap();
        drop(connection);
        opens_empty(&file, case);
    }
}

#[test]
fn a_file_cut_off_between_the_migrations_and_their_mark_opens_as_empty() {
    let (_folder, file) = folder();
    drop(keyed::open(&file).unwrap());
    let connection = keyed::raw(&file).unwrap();
    connection.pragma_update(None, "user_version", 0).unwrap();
    drop(connection);
    opens_empty(&file, "no mark");
}

#[test]
fn a_file_without_what_it_is_written_with_gets_it() {
    let (_folder, file) = folder();
    drop(make_old(&file, 1));
    opens_empty(&file, "no store_meta");
}

#[test]
fn other_files_are_no_loopstore_databases() {
    let (folder, _) = folder();
    let text = folder.path().join("notes.txt");
    std::fs::write(&text, "some notes, longer than a header of sixteen bytes").unwrap();
    let short = folder.path().join("short.txt");
    std::fs::write(&short, "x").unwrap();
    let other = folder.path().join("other.db");
    let connection = keyed::raw(&other).unwrap();
    connection.execute_batch("CREATE TABLE t (a)").unwrap();
    drop(connection);
    let named = folder.path().join("named.db");
    let connection = keyed::raw(&named).unwrap();
    connection
        .execute_batch("PRAGMA application_id = 77; CREATE TABLE t (a)")
        .unwrap();
    drop(connection);
    for path in [&text, &short, &other, &named, &folder.path().to_owned()] {
        let before = std::fs::read(path).ok();
        let refused = keyed::open(path);
        let is_typed = matches!(refused, Err(OpenError::NotADatabase { .. }));
        assert!(is_typed, "{}: {:?}", path.display(), refused.err());
        assert_eq!(std::fs::read(path).ok(), before, "{}", path.display());
    }
}

#[test]
fn a_file_that_is_not_there_is_missing_where_it_must_be() {
    let (folder, file) = folder();
    let missing = |options| {
        let refused = SqliteStore::open_with(&file, options);
        assert!(matches!(refused, Err(OpenError::Missing { .. })));
        assert!(!file.exists());
    };
    missing(keyed::options().create(false));
    missing(keyed::options().read_only(true));
    let nowhere = folder.path().join("no folder").join("agent.db");
    let refused = keyed::open(nowhere);
    assert!(refused.is_err());
}

#[test]
fn a_truncated_file_is_damaged_wherever_it_ends() {
    let (folder, file) = folder();
    tell(&file);
    let whole = std::fs::read(&file).unwrap();
    let cut = folder.path().join("cut.db");
    for length in [
        17,
        99,
        100,
        1000,
        8191,
        8192,
        8193,
        40_000,
        100_000,
        whole.len() - 8192,
    ] {
        let _ = std::fs::remove_file(folder.path().join("cut.db-wal"));
        let _ = std::fs::remove_file(folder.path().join("cut.db-shm"));
        std::fs::write(&cut, &whole[..length]).unwrap();
        match keyed::open(&cut) {
            Err(OpenError::Damaged { .. } | OpenError::NotADatabase { .. }) => {}
            Err(error) => panic!("{length} bytes: {error:?}"),
            Ok(store) => {
                let report = verify(&store).unwrap();
                assert!(!report.ok, "{length} bytes pass for the whole");
            }
        }
    }
}

#[test]
fn an_older_file_is_not_read_as_if_it_were_new() {
    let (_folder, file) = folder();
    drop(make_old(&file, 1));
    let read_only = || SqliteStore::open_with(&file, keyed::options().read_only(true));
    match read_only() {
        Err(OpenError::Older { found, known, .. }) => assert!(found == 1 && known > 1),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("the views of today are not in it"),
    }
    drop(keyed::open(&file).unwrap());
    assert!(read_only().is_ok());
}
