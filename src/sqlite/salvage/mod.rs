//! Copies the readable rows of a damaged file, row by row and under the same keys.
//!
//! The rows are copied unchanged, and are not checked. Archived content is moved back into its rows if its packs can
//! be opened. [`Mender`] then removes the rows that are inconsistent; `loopstore_admin::salvage` decides which.

mod mend;
mod rows;

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

pub use mend::{Mender, Removable};

use super::encryption::{bear_damage, unlock};
use super::reader::SqliteReader;
use super::schema::open_locked;
use super::{SqliteOptions, SqliteStore, from_open, from_sqlite, index, migration, schema};
use crate::store::Key;
use crate::store::error::{OpenError, StoreError, StoreResult};

/// Rows of a table that cannot be read.
#[derive(Clone, Debug)]
pub struct LostRows {
    /// The table.
    pub table: String,
    /// The first and the last key of the range that contains the rows; `None` if it is not known.
    pub keys: Option<(i64, i64)>,
    /// The reason why the rows cannot be read.
    pub reason: String,
}

/// Tables whose rows are made anew or are no part of the record.
fn is_made_anew(table: &str) -> bool {
    index::is_index(table)
        || table.starts_with("sqlite_")
        || table.starts_with("refinery_")
        || [
            "packed_heads",
            "index_pages",
            "indexed_loops",
            "index_state",
        ]
        .contains(&table)
}

/// Returns the real path of a file that exists.
pub fn place_of(file: &Path) -> Result<PathBuf, OpenError> {
    let options = SqliteOptions::new().create(false).allow_network(true);
    schema::real_path(file, &options)
}

/// Returns the name of the token counter that a damaged file was written with, if it can be read.
pub fn counter_of(file: &Path, key: Option<&Key>) -> StoreResult<Option<String>> {
    let connection = open(file, key)?;
    let sql = "SELECT value FROM store_meta WHERE name = 'token_counter'";
    match connection.query_row(sql, [], |row| row.get(0)) {
        Ok(name) => Ok(Some(name)),
        Err(rusqlite::Error::QueryReturnedNoRows) => Ok(None),
        Err(error) => match from_sqlite(error) {
            StoreError::Damaged(_) => Ok(None),
            other => Err(other),
        },
    }
}

/// Opens a damaged file for reading only, and begins a snapshot.
fn open(file: &Path, key: Option<&Key>) -> StoreResult<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = open_locked(file, flags).map_err(from_sqlite)?;
    unlock(&connection, key).map_err(from_open)?;
    // With a schema that may be written, what of it cannot be read does not keep the rest from being read.
    let begin =
        "PRAGMA writable_schema = ON; PRAGMA busy_timeout = 10000; PRAGMA trusted_schema = OFF;
        PRAGMA cell_size_check = ON; PRAGMA query_only = ON; BEGIN";
    connection.execute_batch(begin).map_err(from_sqlite)?;
    if key.is_some() {
        bear_damage(&connection).map_err(from_sqlite)?;
    }
    Ok(connection)
}

impl SqliteStore {
    /// Copies the readable rows of `file` into this empty store, calls `mend` with them, and commits the result. The
    /// triggers are disabled meanwhile. Returns the rows that cannot be read.
    ///
    /// # Errors
    /// If the tables of `file` cannot be read, or `mend` fails; then nothing is kept. Also if the disk fails at the
    /// end.
    pub fn take_over(
        &self,
        file: &Path,
        mend: &mut dyn FnMut(&mut Mender<'_>) -> StoreResult<()>,
    ) -> StoreResult<Vec<LostRows>> {
        let from = open(file, self.key())?;
        let (writer, mut connection) = self.lock_writer()?;
        // Within a transaction the pragma does nothing.
        connection
            .pragma_update(None, "foreign_keys", false)
            .map_err(from_sqlite)?;
        let transaction = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(from_sqlite)?;
        let triggers = drop_triggers(&transaction).map_err(from_sqlite)?;
        let lost = copy(&from, &transaction)?;
        SqliteReader::new(&transaction).empty_packs()?;
        mend(&mut Mender {
            rows: SqliteReader::new(&transaction),
        })?;
        for sql in triggers {
            transaction.execute_batch(&sql).map_err(from_sqlite)?;
        }
        transaction.commit().map_err(from_sqlite)?;
        connection
            .pragma_update(None, "foreign_keys", true)
            .map_err(from_sqlite)?;
        drop(connection);
        writer.wait_for_disk(writer.log.commits())?;
        Ok(lost)
    }
}

fn copy(from: &Connection, to: &Connection) -> StoreResult<Vec<LostRows>> {
    // The tables of the new database say what is looked for; those of the file must be the same.
    let mut lost = Vec::new();
    to.execute_batch("DELETE FROM store_meta; DELETE FROM receipt_chain")
        .map_err(from_sqlite)?;
    let other = migration::differences(from).map_err(from_sqlite)?;
    let tables = index::tables(to).map_err(from_sqlite)?;
    for table in tables.iter().filter(|table| !is_made_anew(table)) {
        if other.contains(&format!("the table {table} is missing or another one")) {
            lost.push(LostRows {
                table: table.clone(),
                keys: None,
                reason: "the table is missing or another one".into(),
            });
            continue;
        }
        rows::copy_table(from, to, table, &mut lost)?;
    }
    // A recount that was not finished goes on nowhere, and nothing was removed from this file.
    let notes = "DELETE FROM store_meta WHERE name NOT IN
        ('token_counter', 'import_key', 'created_at')";
    to.execute(notes, []).map_err(from_sqlite)?;
    let chain = "INSERT OR IGNORE INTO receipt_chain (session, audit_seq, audit)
        VALUES (0, 0, zeroblob(32))";
    to.execute(chain, []).map_err(from_sqlite)?;
    Ok(lost)
}

/// Removes the triggers and returns what makes them again.
fn drop_triggers(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement =
        connection.prepare("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let triggers: Vec<(String, String)> = rows.collect::<rusqlite::Result<_>>()?;
    for (name, _) in &triggers {
        connection.execute(&format!("DROP TRIGGER \"{name}\""), [])?;
    }
    Ok(triggers.into_iter().map(|(_, sql)| sql).collect())
}
