//! Newer, unreleased and foreign files are rejected with an error that names the reason; a file whose creation was
//! interrupted opens as empty. Upgrades of older formats have unit tests with a format that does not exist outside of
//! them.

use std::path::{Path, PathBuf};

use crate::support::histories::{History, answer, open, result, user};
use crate::support::keyed;
use loopstore::extend as store;
use loopstore::model::Content;
use loopstore::{OpenError, SqliteStore};
use loopstore_verify::verify;

mod embedded {
    refinery::embed_migrations!("migrations/sqlite");
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agent.db");
    (folder, file)
}

fn record(file: &Path) {
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

/// Checks that the file is rejected, for writing and for reading.
fn assert_rejected(file: &Path, case: &str, is_expected: impl Fn(&OpenError) -> bool) {
    let before = std::fs::read(file).unwrap();
    for read_only in [false, true] {
        let options = keyed::options().read_only(read_only);
        let refused = SqliteStore::open_with(file, options).err();
        let refused = refused.unwrap_or_else(|| panic!("{case}: it opens"));
        assert!(is_expected(&refused), "{case}: {refused:?}");
    }
    assert_eq!(std::fs::read(file).unwrap(), before, "{case}");
}

#[test]
fn a_file_of_a_format_that_was_never_released_is_refused_and_left_alone() {
    let newest = loopstore::extend::sqlite::format_version();
    for format in (-1..newest).filter(|format| *format != 0) {
        let (_folder, file) = folder();
        record(&file);
        let connection = keyed::raw(&file).unwrap();
        connection
            .pragma_update(None, "user_version", format)
            .unwrap();
        drop(connection);
        assert_rejected(&file, &format!("format {format}"), |error| {
            let says = error.to_string();
            assert!(says.contains("with the program that wrote it"), "{says}");
            matches!(error, OpenError::Unreleased { .. })
        });
    }
}

/// A file with several migrations, as unreleased programs created it, without the mark of a finished creation.
#[test]
fn a_history_of_other_migrations_is_refused() {
    let (_folder, file) = folder();
    drop(keyed::open(&file).unwrap());
    let connection = keyed::raw(&file).unwrap();
    connection
        .execute_batch(
            "UPDATE refinery_schema_history SET checksum = '77';
             INSERT INTO refinery_schema_history (version, name, applied_on, checksum)
             SELECT 2, 'views', applied_on, '78' FROM refinery_schema_history;
             PRAGMA user_version = 0",
        )
        .unwrap();
    drop(connection);
    let refused = keyed::open(&file).err();
    assert!(
        matches!(refused, Some(OpenError::Unreleased { .. })),
        "{refused:?}"
    );
}

#[test]
fn a_history_that_lost_its_rows_is_refused() {
    for sql in [
        "DELETE FROM refinery_schema_history",
        "DROP TABLE refinery_schema_history",
        "UPDATE refinery_schema_history SET version = 7",
        "UPDATE refinery_schema_history SET checksum = NULL",
        "UPDATE refinery_schema_history SET applied_on = 'yesterday'",
    ] {
        let (_folder, file) = folder();
        drop(keyed::open(&file).unwrap());
        let connection = keyed::raw(&file).unwrap();
        connection
            .execute_batch(&format!("{sql}; PRAGMA user_version = 0"))
            .unwrap();
        drop(connection);
        let refused = keyed::open(&file).err();
        assert!(
            matches!(refused, Some(OpenError::Damaged { .. })),
            "{sql}: {refused:?}"
        );
    }
}

#[test]
fn a_newer_file_is_refused_and_left_alone() {
    let (_folder, file) = folder();
    record(&file);
    let newer = loopstore::extend::sqlite::format_version() + 1;
    let connection = keyed::raw(&file).unwrap();
    connection
        .pragma_update(None, "user_version", newer)
        .unwrap();
    drop(connection);
    assert_rejected(&file, "newer", |error| {
        let known_format = newer - 1;
        matches!(error, OpenError::Newer { found, known, .. }
            if (*found, *known) == (newer, known_format))
    });
}

/// Opens a file without content, and uses it.
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
    let sized = |sql| format!("PRAGMA page_size = {}; {sql}", keyed::page_bytes());
    let stages: [(&str, &str); 5] = [
        ("no byte", ""),
        ("page size", &sized("VACUUM;")),
        ("write-ahead log", &sized("PRAGMA journal_mode = wal;")),
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
fn a_file_with_larger_pages_keeps_them() {
    let (_folder, file) = folder();
    let connection = keyed::raw(&file).unwrap();
    connection
        .execute_batch("PRAGMA page_size = 8192; VACUUM;")
        .unwrap();
    drop(connection);
    opens_empty(&file, "larger pages");
    drop(keyed::open(&file).unwrap());
    assert_eq!(keyed::pages_of(&keyed::raw(&file).unwrap()), 8192);
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
    let mut connection = keyed::raw(&file).unwrap();
    embedded::migrations::runner().run(&mut connection).unwrap();
    connection
        .execute_batch("PRAGMA application_id = 0x4C4F4F50")
        .unwrap();
    drop(connection);
    // Its creation is not finished: there is nothing to read, and no damage.
    let read = SqliteStore::open_with(&file, keyed::options().read_only(true));
    assert!(matches!(read.err(), Some(OpenError::Missing { .. })));
    opens_empty(&file, "no store_meta");
}

/// The mark of a finished file is written last: a file with the mark has everything that opening needs.
#[test]
fn a_file_that_is_being_made_is_finished_or_not_there() {
    let (_folder, file) = folder();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| keyed::open(&file).map(drop).unwrap());
        }
        for _ in 0..200 {
            match SqliteStore::open_with(&file, keyed::options().read_only(true)) {
                Ok(_) | Err(OpenError::Missing { .. } | OpenError::Busy) => {}
                Err(error) => panic!("{error}"),
            }
        }
    });
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
    record(&file);
    let whole = std::fs::read(&file).unwrap();
    let (cut, page) = (folder.path().join("cut.db"), keyed::page_bytes());
    for length in [
        17,
        99,
        100,
        1000,
        page - 1,
        page,
        page + 1,
        40_000,
        100_000,
        whole.len() - page,
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
