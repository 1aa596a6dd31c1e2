//! Opens the databases of tests: plain, or all of them encrypted if `LOOPSTORE_TEST_KEY` has a key. Commands
//! use the key if `LOOPSTORE_KEY_ENV=LOOPSTORE_TEST_KEY` is set too.
//!
//! ```sh
//! export LOOPSTORE_TEST_KEY=$(openssl rand -hex 32) LOOPSTORE_KEY_ENV=LOOPSTORE_TEST_KEY
//! cargo test --all-features
//! ```

use std::path::Path;

use loopstore::{Key, OpenError, SqliteOptions, SqliteStore};
use rusqlite::Connection;
use rusqlite::types::Value;

/// The tests that check nothing on encrypted databases, each with its reason.
const LEFT_OUT: [(&str, &str); 14] = [
    (
        "a_bit_flipped_anywhere_is_never_a_silent_wrong_answer",
        BYTES,
    ),
    ("a_database_in_memory_can_be_saved", MEMORY),
    ("a_database_in_memory_can_be_saved_compact", MEMORY),
    ("a_flipped_bit_in_a_text_is_always_found", BYTES),
    ("a_plain_shell_can_read_a_file_with_an_index", SHELL),
    (
        "bytes_that_a_killed_redaction_left_are_reported_and_go_with_the_next_write",
        BYTES,
    ),
    (
        "a_redaction_that_is_killed_is_finished_by_running_it_again",
        BYTES,
    ),
    (
        "an_erase_that_is_killed_is_finished_by_running_it_again",
        BYTES,
    ),
    (
        "an_import_into_a_session_that_was_redacted_later_brings_nothing_back",
        BYTES,
    ),
    (
        "an_unchanged_file_is_read_again_only_if_its_session_is_gone_or_it_is_asked_for",
        FILES,
    ),
    ("every_view_opens_in_the_plain_shell", SHELL),
    ("no_byte_of_a_secret_is_left_and_the_record_is_whole", BYTES),
    ("no_byte_of_an_erased_session_is_left", BYTES),
    ("the_five_questions_of_the_guide_have_answers", SHELL),
];
const SHELL: &str = "the plain `sqlite3` shell reads the file";
const BYTES: &str = "words are looked for in the raw bytes";
const FILES: &str = "the names of imported files are remembered outside the database";
const MEMORY: &str = "a database in memory has no key, nor has its copy";

/// Returns true if a test of the list above is to end here.
pub fn leaves_out(test: &str) -> bool {
    let reason = LEFT_OUT.iter().find(|(name, _)| *name == test);
    let (_, reason) = reason.unwrap_or_else(|| panic!("{test} is not in the list"));
    if key().is_some() {
        println!("NOT CHECKED: {reason}, and it is encrypted");
    }
    key().is_some()
}

/// Returns the key of this run, if it has one.
fn digits() -> Option<String> {
    std::env::var("LOOPSTORE_TEST_KEY").ok()
}

/// Returns the key in the type that the options of a store take.
pub fn key() -> Option<Key> {
    digits().map(|digits| Key::parse(digits.into_bytes()).unwrap())
}

/// The default options.
pub fn options() -> SqliteOptions {
    let options = super::plain::options();
    match key() {
        Some(key) => options.key(key),
        None => options,
    }
}

/// Opens a store with default options.
pub fn open(path: impl AsRef<Path>) -> Result<SqliteStore, OpenError> {
    SqliteStore::open_with(path, options())
}

/// Attaches a second database of the same kind as `today`.
pub fn attach_today(connection: &Connection, path: &Path) {
    let path = path.to_str().unwrap();
    match digits() {
        Some(digits) => {
            let key = format!("x'{digits}'");
            connection.execute("ATTACH ?1 AS today KEY ?2", [path, &key])
        }
        None => connection.execute("ATTACH ?1 AS today", [path]),
    }
    .unwrap();
}

/// Returns the size of the pages of a database that the store makes.
pub fn page_bytes() -> usize {
    if key().is_some() { 8192 } else { 4096 }
}

/// Returns the size of the pages of a database that is open.
pub fn pages_of(connection: &Connection) -> usize {
    let size = connection.pragma_query_value(None, "page_size", |row| row.get(0));
    match size.unwrap() {
        Value::Integer(size) => usize::try_from(size).unwrap(),
        // The value is SQLCipher's.
        Value::Text(size) => size.parse().unwrap(),
        size => panic!("{size:?}"),
    }
}

/// Opens a database without the store.
pub fn raw(path: impl AsRef<Path>) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    if let Some(digits) = digits() {
        // The default applies to other files that are attached.
        let sql = format!(
            "PRAGMA key = \"x'{digits}'\"; PRAGMA cipher_page_size = 8192;
             PRAGMA cipher_default_page_size = 8192"
        );
        connection.execute_batch(&sql)?;
    }
    Ok(connection)
}
