//! An older format is brought up to date, also by several at once; what does not fit is refused.

use std::path::PathBuf;

use super::super::options::SqliteOptions;
use super::super::place::with_end;
use super::super::schema::{connect, opening, prepare_with};
use super::*;

/// A file in the format before the made-up one, with a row.
fn old_file(folder: &Path) -> PathBuf {
    let file = folder.join("old.db");
    std::fs::write(&file, []).unwrap();
    open(&file, &Formats::embedded()).unwrap();
    let row = "INSERT INTO sessions (session_id, meta) VALUES ('s', '{}');
        INSERT INTO loops (session, loop_id, kind, status, tick, chain, meta)
        VALUES (1, 'l', '{}', 'Running', 0, x'', '{}');
        INSERT INTO leases (loop, owner, token, ttl, renewed_at, expires_at, released)
        VALUES (1, 'before', 1, 1, 1, 1, 0)";
    raw(&file).execute_batch(row).unwrap();
    file
}

fn raw(file: &Path) -> Connection {
    Connection::open(file).unwrap()
}

fn format_of(file: &Path) -> i64 {
    let read = |row: &rusqlite::Row<'_>| row.get(0);
    raw(file)
        .pragma_query_value(None, "user_version", read)
        .unwrap()
}

fn open_as(file: &Path, formats: &Formats, mut options: SqliteOptions) -> Result<(), OpenError> {
    let mut connection = connect(file, &options)?;
    prepare_with(&mut connection, &mut options, formats).map_err(|error| opening(file, error))?
}

fn open(file: &Path, formats: &Formats) -> Result<(), OpenError> {
    open_as(file, formats, SqliteOptions::new())
}

fn later(rewrites: bool) -> Formats {
    Formats::later(rewrites)
}

/// Returns the owners of leases, each with what the made-up format says of it.
fn leases(file: &Path) -> Vec<String> {
    let sql = "SELECT owner || ' ' || made_up FROM leases";
    let connection = raw(file);
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}

#[test]
fn an_edit_of_v1_raises_the_format() {
    let checksum = Formats::embedded().migrations.scripts()[0].checksum();
    assert_eq!(
        (FIRST_FORMAT, checksum),
        (29, 16_333_760_471_141_183_734),
        "V1 was edited: raise FIRST_FORMAT, then note both here"
    );
}

#[test]
fn a_further_migration_is_counted() {
    assert_eq!(Formats::embedded().migrations.newest(), MIGRATIONS);
}

#[test]
fn a_file_of_an_older_format_is_brought_up_to_date_with_what_it_holds() {
    let folder = tempfile::tempdir().unwrap();
    let file = old_file(folder.path());
    let reading = open_as(&file, &later(false), SqliteOptions::new().read_only(true));
    let (found, known) = (FIRST_FORMAT, FIRST_FORMAT + 1);
    assert!(
        matches!(reading, Err(OpenError::Older { found: f, known: k, .. }) if (f, k) == (found, known))
    );
    open(&file, &later(false)).unwrap();
    assert_eq!(format_of(&file), known);
    assert_eq!(leases(&file), ["before later"]);
    // Nor is it done twice.
    open(&file, &later(false)).unwrap();
    let applied: i64 = raw(&file)
        .query_row("SELECT count(*) FROM refinery_schema_history", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert_eq!(applied, 2);

    let before = std::fs::read(&file).unwrap();
    let refused = open(&file, &Formats::embedded()).unwrap_err();
    assert!(
        matches!(refused, OpenError::Newer { found: f, known: k, .. } if (f, k) == (known, found)),
        "{refused}"
    );
    assert_eq!(std::fs::read(&file).unwrap(), before);
}

#[test]
fn a_migration_that_fails_leaves_the_file_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let file = old_file(folder.path());
    // Its last statement cannot be done.
    raw(&file)
        .execute_batch("CREATE TABLE made_up (x)")
        .unwrap();
    let refused = open(&file, &later(false)).unwrap_err();
    assert!(matches!(refused, OpenError::Damaged { .. }), "{refused}");
    assert_eq!(format_of(&file), FIRST_FORMAT);
    raw(&file).execute_batch("DROP TABLE made_up").unwrap();
    open(&file, &Formats::embedded()).unwrap();
    open(&file, &later(false)).unwrap();
    assert_eq!(leases(&file), ["before later"]);
}

#[test]
fn two_that_migrate_at_once_both_succeed() {
    let folder = tempfile::tempdir().unwrap();
    let file = old_file(folder.path());
    std::thread::scope(|scope| {
        let opening = || open(&file, &later(false)).unwrap();
        (0..4).for_each(|_| drop(scope.spawn(opening)));
    });
    assert_eq!(leases(&file), ["before later"]);
}

#[test]
fn a_history_that_does_not_fit_is_refused() {
    let cases = [
        ("UPDATE refinery_schema_history SET checksum = '1'", true),
        ("UPDATE refinery_schema_history SET name = 'other'", true),
        ("DELETE FROM refinery_schema_history", false),
        ("DROP TABLE refinery_schema_history", false),
        ("UPDATE refinery_schema_history SET version = 7", false),
        ("UPDATE refinery_schema_history SET version = 0", false),
        ("UPDATE refinery_schema_history SET checksum = 'x'", true),
        ("UPDATE refinery_schema_history SET checksum = NULL", false),
        ("UPDATE refinery_schema_history SET applied_on = ''", false),
    ];
    for (sql, is_unreleased) in cases {
        for cut_off in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let file = old_file(folder.path());
            raw(&file).execute_batch(sql).unwrap();
            if cut_off {
                raw(&file).execute_batch("PRAGMA user_version = 0").unwrap();
            }
            let begun = Instant::now();
            let refused = open(&file, &later(false)).unwrap_err();
            assert!(begun.elapsed() < SqliteOptions::new().busy_timeout);
            let is_typed = match is_unreleased {
                true => matches!(refused, OpenError::Unreleased { .. }),
                false => matches!(refused, OpenError::Damaged { .. }),
            };
            assert!(is_typed, "{sql}: {refused:?}");
            assert_eq!(format_of(&file), if cut_off { 0 } else { FIRST_FORMAT });
        }
    }
}

#[test]
fn a_file_is_copied_before_its_rows_are_rewritten_and_only_then() {
    let folder = tempfile::tempdir().unwrap();
    let file = old_file(folder.path());
    let copy = with_end(&file, &format!(".format-{FIRST_FORMAT}"));
    open(&file, &later(false)).unwrap();
    assert!(!copy.exists());

    let folder = tempfile::tempdir().unwrap();
    let file = old_file(folder.path());
    let copy = with_end(&file, &format!(".format-{FIRST_FORMAT}"));
    let before = std::fs::read(&file).unwrap();
    open(&file, &later(true)).unwrap();
    assert_eq!(format_of(&copy), FIRST_FORMAT);
    assert_eq!(format_of(&file), FIRST_FORMAT + 1);
    let mode = std::os::unix::fs::PermissionsExt::mode(&copy.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    // The copy is the file as it was, and can be upgraded itself.
    assert_eq!(std::fs::read(&copy).unwrap().len(), before.len());
    open(&copy, &later(false)).unwrap();
    assert_eq!(leases(&copy), ["before later"]);
}

#[test]
fn where_no_copy_can_be_written_nothing_is_rewritten() {
    let folder = tempfile::tempdir().unwrap();
    let file = old_file(folder.path());
    let part = format!(".format-{FIRST_FORMAT}.part");
    std::fs::create_dir(with_end(&file, &part)).unwrap();
    let before = std::fs::read(&file).unwrap();
    let refused = open(&file, &later(true)).unwrap_err();
    assert!(matches!(refused, OpenError::Other { .. }), "{refused}");
    assert_eq!(std::fs::read(&file).unwrap(), before);
}

#[test]
fn a_schema_is_compared_whatever_bytes_and_encoding_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wide.db");
    let wide = raw(&file);
    wide.execute_batch("PRAGMA encoding = 'UTF-16le'; CREATE TABLE t (x); DROP TABLE t")
        .unwrap();
    drop(wide);
    open(&file, &Formats::embedded()).unwrap();
    let wide = raw(&file);
    assert_eq!(differences(&wide).unwrap(), [""; 0]);
    wide.execute_batch("DROP VIEW v_context").unwrap();
    let missing = ["the view v_context is missing or another one"];
    assert_eq!(differences(&wide).unwrap(), missing);

    let file = folder.path().join("broken.db");
    std::fs::write(&file, []).unwrap();
    open(&file, &Formats::embedded()).unwrap();
    let broken = raw(&file);
    let damage = "PRAGMA writable_schema = ON;
        UPDATE sqlite_schema SET sql = CAST(x'ff00fe' AS TEXT) WHERE name = 'v_context'";
    broken.execute_batch(damage).unwrap();
    assert_eq!(differences(&broken).unwrap(), missing);
}

#[test]
fn databases_in_memory_have_nothing_of_each_other_and_the_newest_format() {
    let row = "INSERT INTO sessions (session_id, meta) VALUES ('s', '{}')";
    let rows = |of: &Connection| -> i64 {
        let sql = "SELECT count(*) FROM sessions";
        of.query_row(sql, [], |row| row.get(0)).unwrap()
    };
    let later = later(false);
    let first = later.in_memory().unwrap();
    first.execute_batch(row).unwrap();
    let second = later.in_memory().unwrap();
    assert_eq!((rows(&first), rows(&second)), (1, 0));
    let made_up = "SELECT count(made_up) FROM leases";
    second.execute_batch(made_up).unwrap();
    let embedded = Formats::embedded().in_memory().unwrap();
    assert!(embedded.execute_batch(made_up).is_err());
    let format = |of: &Connection| -> i64 {
        of.pragma_query_value(None, "user_version", |row| row.get(0))
            .unwrap()
    };
    assert_eq!(format(&embedded), FIRST_FORMAT);
    assert_eq!(format(&second), FIRST_FORMAT + 1);
}

#[test]
fn a_database_in_memory_that_nobody_may_write_would_stay_empty() {
    let mut options = SqliteOptions::new().read_only(true);
    let refused = super::super::schema::open_memory(&mut options);
    assert!(
        matches!(refused, Err(OpenError::Missing { .. })),
        "{refused:?}"
    );
}
