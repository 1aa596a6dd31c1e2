//! Opens databases that stay plain, whatever `LOOPSTORE_TEST_KEY` is: for tests that know the bytes of a page,
//! and for tests that run the plain `sqlite3` shell.

use std::path::Path;

use loopstore::{Durability, OpenError, SqliteOptions, SqliteStore};
use rusqlite::Connection;

/// The default options, and the fault that `LOOPSTORE_BROKEN` names.
pub fn options() -> SqliteOptions {
    super::proof::activate();
    SqliteOptions::new()
}

/// Opens a file that need not survive a power loss.
pub fn open(path: &Path) -> SqliteStore {
    SqliteStore::open_with(path, options().durability(Durability::Normal)).unwrap()
}

/// Opens a store with default options.
pub fn try_open(path: impl AsRef<Path>) -> Result<SqliteStore, OpenError> {
    SqliteStore::open_with(path, options())
}

/// Opens a database without the store.
pub fn raw(path: impl AsRef<Path>) -> rusqlite::Result<Connection> {
    Connection::open(path)
}
