//! Making sure that what was removed is not in the file either.
//!
//! A deleted row leaves its bytes in pages that are free or half full, in the log beside the file, and
//! its words in the index until that merges. So the index is merged, the file is written anew, and
//! the log is emptied. `secure_delete` alone would not do: it does not reach copies that SQLite left
//! when it moved rows between pages.
//!
//! A mark in `store_meta` asks for this from the removal on. If the process is killed in between, the next
//! scrub finishes the work: that of the same command, or that of the first write after the file is opened.

use rusqlite::{Connection, OptionalExtension};

use super::super::reader::SqliteReader;
use super::super::{SqliteStore, from_sqlite};
use crate::store::error::{StoreError, StoreResult};
use crate::store::removal::ScrubState;

/// The name of the mark.
const MARK: &str = "scrub";

/// The prefix of the mark once the file is written anew and only the log is left.
const IN_LOG: &str = "log:";

impl SqliteStore {
    /// Merges the search index and rewrites the database file, so that neither contains bytes of removed content,
    /// then empties the write-ahead log. Other writers wait meanwhile.
    ///
    /// # Errors
    /// [`StoreError::Busy`] if other writers hold the database for longer than the timeout. The call can be repeated.
    pub fn scrub(&self) -> StoreResult<ScrubState> {
        let Some(first) = self.snapshot(mark)? else {
            return Ok(ScrubState::Clean);
        };
        if !first.starts_with(IN_LOG) {
            self.transaction(merge_index)?;
        }
        let place = self.queue.enter(self.options.busy_timeout)?;
        let (writer, connection) = self.lock_writer()?;
        let alone = writer.log.alone();
        // Another process may have done it meanwhile, all of it or all but the log.
        let Some(mut mark) = mark(&connection)? else {
            return Ok(ScrubState::Done);
        };
        if !mark.starts_with(IN_LOG) {
            rewrite(&connection)?;
            mark = note_rewritten(&connection, &mark)?;
        }
        self.connections.check()?;
        if !empty_log(&connection)? {
            return Ok(ScrubState::InLog);
        }
        drop((alone, connection, place));
        self.transaction(|connection| {
            let reader = SqliteReader::new(connection);
            let sql = "DELETE FROM store_meta WHERE name = ?1 AND value = ?2";
            reader.run(sql, [MARK, &mark])
        })?;
        Ok(ScrubState::Done)
    }

    /// Finishes a removal that was cut off before this store was opened. It is tried once: who reads an older
    /// state, or writes all the time, is not waited for again.
    pub(in crate::sqlite) fn finish_removal(&self) {
        // A failed scrub is tried again when the file is next opened; `verify` reports it meanwhile.
        let _ = self.scrub();
    }

    /// Returns `true` if removed bytes may still be in the file or its log.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn needs_scrub(&self) -> StoreResult<bool> {
        Ok(self.snapshot(mark)?.is_some())
    }
}

pub(in crate::sqlite) fn mark(connection: &Connection) -> StoreResult<Option<String>> {
    connection
        .prepare_cached("SELECT value FROM store_meta WHERE name = ?1")
        .and_then(|mut sql| sql.query_row([MARK], |row| row.get(0)).optional())
        .map_err(from_sqlite)
}

/// Remembers that the file is to be scrubbed. Each mark is another one, so that nobody takes away one
/// that came after his own.
pub(super) fn note(reader: &SqliteReader<'_>) -> StoreResult<()> {
    let mark = crate::clock::new_uuid().to_string();
    let sql = "UPDATE store_meta SET value = ?2 WHERE name = ?1";
    if reader.run(sql, [MARK, &mark])? == 0 {
        let sql = "INSERT INTO store_meta (name, value) VALUES (?1, ?2)";
        reader.run(sql, [MARK, &mark])?;
    }
    Ok(())
}

/// Notes that only the log is left, and returns the mark. Nobody else writes meanwhile.
fn note_rewritten(connection: &Connection, mark: &str) -> StoreResult<String> {
    let new = format!("{IN_LOG}{mark}");
    let reader = SqliteReader::new(connection);
    let sql = "UPDATE store_meta SET value = ?2 WHERE name = ?1";
    reader.run(sql, [MARK, &new])?;
    Ok(new)
}

/// Writes the index anew: it keeps words of removed messages until it does.
fn merge_index(connection: &Connection) -> StoreResult<()> {
    let reader = SqliteReader::new(connection);
    let sql = "INSERT INTO message_index (message_index) VALUES ('optimize')";
    match reader.run(sql, []) {
        // A damaged index is made anew; the next search fills it.
        Err(StoreError::Damaged(_)) => reader.throw_away(),
        done => done.map(|_| ()),
    }
}

/// Writes the whole file anew. What is left is sorted through a file without a name: in memory a large
/// database would not fit.
fn rewrite(connection: &Connection) -> StoreResult<()> {
    connection
        .pragma_update(None, "temp_store", "file")
        .map_err(from_sqlite)?;
    let done = connection.execute_batch("VACUUM").map_err(from_sqlite);
    connection
        .pragma_update(None, "temp_store", "memory")
        .map_err(from_sqlite)?;
    done
}

/// Moves the log into the file and makes it empty; returns whether that worked.
fn empty_log(connection: &Connection) -> StoreResult<bool> {
    let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
    let busy: i64 = connection
        .query_row(sql, [], |row| row.get(0))
        .map_err(from_sqlite)?;
    Ok(busy == 0)
}
