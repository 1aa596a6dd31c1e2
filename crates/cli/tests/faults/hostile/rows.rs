//! A database file made to do harm: any value of any type in any column. Reading returns a typed error or an answer,
//! and `verify` names the damage or can read everything.

use std::path::{Path, PathBuf};

use loopstore_admin::salvage::salvage;
use rusqlite::Connection;

use crate::damage::reading;
use crate::hostile::{InputGuard, inputs};
use crate::support::histories::{History, Random, answer, result, user};
use crate::support::plain::open;
use crate::support::process;

/// Creates a database with rows in every table that is read.
fn whole(folder: &Path) -> PathBuf {
    let file = folder.join("whole.db");
    let store = open(&file);
    for session in ["s", "t"] {
        record(&store, session);
    }
    loopstore::extend::search::index(&store, &mut |_| {}).unwrap();
    drop(store);
    let connection = crate::support::plain::raw(&file).unwrap();
    drop_guards(&connection);
    file
}

fn record(store: &loopstore::SqliteStore, session: &str) {
    let mut history = History::new(store, session);
    for turn in 0..6 {
        let call = format!("{session}-{turn}");
        let output = vec![
            loopstore::Content::text("a long line\n".repeat(60)),
            loopstore::Content::image("aGVsbG8=", "image/png"),
        ];
        let messages = vec![
            user(&format!("look at the kite {turn}"), turn),
            answer("I look", &[&call], turn),
            result(&call, output, turn),
        ];
        history.append(0, messages);
    }
    assert_eq!(history.compact(0, (1, 2), false)["outcome"], "committed");
    let mut random = Random::new(3);
    (0..10).for_each(|_| history.step(&mut random));
    let recorded = loopstore::BuildOptions {
        record: true,
        ..loopstore::BuildOptions::default()
    };
    loopstore::build_context_from_session(store, &history.session, &recorded).unwrap();
}

/// Removes the protection of the rows: triggers, and the types of columns.
fn drop_guards(connection: &Connection) {
    let triggers: Vec<String> = connection
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'trigger'")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    for name in triggers {
        connection
            .execute_batch(&format!("DROP TRIGGER {name}"))
            .unwrap();
    }
    connection
        .execute_batch(
            "PRAGMA writable_schema = on;
             UPDATE sqlite_schema SET sql = replace(sql, 'STRICT', '') WHERE type = 'table';
             PRAGMA writable_schema = off; PRAGMA journal_mode = delete; VACUUM;
             PRAGMA journal_mode = wal",
        )
        .unwrap();
}

/// Returns the columns of all tables.
fn columns(file: &Path) -> Vec<(String, String)> {
    let sql = "SELECT t.name, c.name FROM sqlite_schema t, pragma_table_info(t.name) c
        WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite%' AND t.name NOT LIKE 'refinery%'
            AND t.name NOT LIKE 'message_index%'";
    let connection = crate::support::plain::raw(file).unwrap();
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    rows.unwrap().map(Result::unwrap).collect()
}

/// Values as SQL expressions of the current value.
const VALUES: [&str; 24] = [
    "NULL",
    "0",
    "-1",
    "1",
    "9223372036854775807",
    "-9223372036854775808",
    "4294967296",
    "4294967295",
    "9999999999",
    "1e308",
    "''",
    "'\u{1b}[2J\u{202e}'",
    "x''",
    "x'ff00ff'",
    "CAST(x'7bff7d' AS TEXT)",
    "zeroblob(32)",
    "zeroblob(3000000)",
    "'{}'",
    "'[]'",
    "'[[0,99999999999],[5,1],[-1,-1]]'",
    "'{\"role\":\"user\",\"content\":9}'",
    "replace(hex(zeroblob(4000)), '0', '[')",
    "COLUMN || COLUMN",
    "(SELECT COLUMN FROM TABLE ORDER BY random() LIMIT 1)",
];

#[test]
fn any_value_in_any_column_is_an_error_or_an_answer() {
    if !process::is_alone("hostile::rows::any_value_in_any_column_is_an_error_or_an_answer") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = whole(folder.path());
    let bytes = std::fs::read(&file).unwrap();
    let columns = columns(&file);
    assert!(columns.len() > 100, "{}", columns.len());
    let trials = inputs(24);
    let (mut opened, mut named) = (0, 0);
    for seed in 1..=trials {
        let mut random = Random::new(seed);
        let path = folder.path().join("hostile.db");
        for end in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(folder.path().join(format!("hostile.db{end}")));
        }
        std::fs::write(&path, &bytes).unwrap();
        let mut done = Vec::new();
        for _ in 0..=random.below(3) {
            done.push(write_value(&path, &columns, &mut random));
        }
        let _tried = InputGuard::new(format!("seed {seed}: {done:?}"));
        let to = folder.path().join("salvaged.db");
        // Salvage may fail; a database that it writes passes its own check.
        let _ = salvage(&path, None, &to, true);
        let found = reading::read(&path);
        opened += u64::from(found.answers.is_ok());
        named += u64::from(found.is_named);
    }
    assert!(
        opened > trials / 2,
        "{opened} of {trials}: the test tests nothing"
    );
    assert!(
        named > trials / 2,
        "{named} of {trials}: `verify` finds nothing"
    );
    crate::support::proof::tally("hostile value in a row", trials, crate::hostile::INPUTS);
}

/// Writes a value into a column of one row or of all rows. Returns a description.
fn write_value(path: &Path, columns: &[(String, String)], random: &mut Random) -> String {
    let (table, column) = &columns[random.below(columns.len() as u64) as usize];
    let value = VALUES[random.below(VALUES.len() as u64) as usize];
    let value = value.replace("COLUMN", column).replace("TABLE", table);
    let which = match random.below(3) {
        0 => String::new(),
        _ => format!(
            " WHERE ({column}) IN (SELECT {column} FROM {table} LIMIT 1 OFFSET {})",
            random.below(20)
        ),
    };
    let sql = format!("UPDATE OR IGNORE {table} SET {column} = {value}{which}");
    let connection = crate::support::plain::raw(path).unwrap();
    connection
        .execute_batch(
            "PRAGMA synchronous = off; PRAGMA foreign_keys = off;
            PRAGMA ignore_check_constraints = on",
        )
        .unwrap();
    // A rowid accepts only integers, and a key may exist.
    let _ = connection.execute_batch(&sql);
    sql
}
