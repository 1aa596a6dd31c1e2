//! How the tests open databases: plain, or all of them encrypted where `LOOPSTORE_TEST_KEY` holds a
//! key. The commands take it where `LOOPSTORE_KEY_ENV=LOOPSTORE_TEST_KEY` is set too.
//!
//! ```sh
//! export LOOPSTORE_TEST_KEY=$(openssl rand -hex 32) LOOPSTORE_KEY_ENV=LOOPSTORE_TEST_KEY
//! cargo test --all-features
//! ```
#![allow(dead_code)]

use std::path::Path;

use loopstore::{Key, OpenError, SqliteOptions, SqliteStore};
use rusqlite::Connection;

/// The tests that check nothing where databases are encrypted, and why.
const LEFT_OUT: [(&str, &str); 2] = [
    ("every_view_opens_in_the_plain_shell", SHELL),
    ("the_five_questions_of_the_readme_have_answers", SHELL),
];
const SHELL: &str = "the plain `sqlite3` shell reads the file";

/// Whether a test of the list above is to end here.
pub fn leaves_out(test: &str) -> bool {
    let reason = LEFT_OUT.iter().find(|(name, _)| *name == test);
    let (_, reason) = reason.unwrap_or_else(|| panic!("{test} is not in the list"));
    if key().is_some() {
        println!("NOT CHECKED: {reason}, and it is encrypted");
    }
    key().is_some()
}

/// Returns the key with which this run of the tests encrypts, if it does.
fn key() -> Option<String> {
    std::env::var("LOOPSTORE_TEST_KEY").ok()
}

/// The default options.
pub fn options() -> SqliteOptions {
    #[cfg(debug_assertions)]
    if let Ok(fault) = std::env::var("LOOPSTORE_BROKEN") {
        loopstore::broken::build_in(&fault);
    }
    match key() {
        Some(key) => SqliteOptions::new().key(Key::parse(key.into_bytes()).unwrap()),
        None => SqliteOptions::new(),
    }
}

/// Opens a store with default options.
pub fn open(path: impl AsRef<Path>) -> Result<SqliteStore, OpenError> {
    SqliteStore::open_with(path, options())
}

/// Opens a database without the store.
pub fn raw(path: impl AsRef<Path>) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    if let Some(key) = key() {
        let sql = format!("PRAGMA key = \"x'{key}'\"; PRAGMA cipher_page_size = 8192");
        connection.execute_batch(&sql)?;
    }
    Ok(connection)
}
