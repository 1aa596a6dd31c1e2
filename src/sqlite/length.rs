//! Finds a file that another program truncated in place.
//!
//! SQLite goes on writing to such a file: what it holds in memory and in the log is enough for some commits, which
//! nobody could read afterwards. A file becomes shorter of itself only where it was written anew without its free
//! pages. So its length is compared at each write, and one that became shorter with what it should hold.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::Connection;
use rusqlite::types::Value;

use super::from_sqlite;
use super::place::with_end;
use crate::store::error::{StoreError, StoreResult};

/// Bytes of a frame of the log beside its page.
const FRAME_HEADER: u64 = 24;

/// The length of the file when it was last looked at.
#[derive(Debug, Default)]
pub(super) struct FileLength(AtomicU64);

impl FileLength {
    /// The length of a file that was just opened.
    pub(super) fn of(file: &Path) -> Self {
        Self(AtomicU64::new(
            file.metadata().map_or(0, |found| found.len()),
        ))
    }

    /// Checks that the file, which has this length now, was not cut off; in a write transaction, so that nobody
    /// else makes it shorter.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if it was.
    pub(super) fn check(
        &self,
        connection: &Connection,
        file: &Path,
        length: u64,
    ) -> StoreResult<()> {
        let before = self.0.load(Ordering::Relaxed);
        if length < before && is_cut_off(connection, file, length).map_err(from_sqlite)? {
            return Err(StoreError::Damaged(format!(
                "another program cut the file off at {length} bytes while it was open; nothing was written"
            )));
        }
        if length != before {
            self.0.store(length, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// True if pages are neither in the file nor in its log.
fn is_cut_off(connection: &Connection, file: &Path, length: u64) -> rusqlite::Result<bool> {
    let number = |pragma: &str| -> rusqlite::Result<u64> {
        connection.pragma_query_value(None, pragma, |row| {
            Ok(match row.get(0)? {
                Value::Integer(number) => u64::try_from(number).unwrap_or(0),
                // SQLCipher answers with a text.
                Value::Text(number) => number.parse().unwrap_or(0),
                _ => 0,
            })
        })
    };
    let (pages, page) = (number("page_count")?, number("page_size")?.max(1));
    let missing = pages.saturating_sub(length / page);
    if missing == 0 {
        return Ok(false);
    }
    let log = with_end(file, "-wal").metadata().map_or(0, |log| log.len());
    if missing > log / (page + FRAME_HEADER) {
        return Ok(true);
    }
    // The log may hold them, or something older.
    let mut lines = connection.prepare("PRAGMA quick_check(1)")?;
    let found: String = lines.query_row([], |row| row.get(0))?;
    Ok(found != "ok")
}

#[cfg(test)]
mod tests {
    use crate::model::{Session, SessionId};
    use crate::sqlite::SqliteStore;
    use crate::store::error::{StoreError, StoreResult};

    fn add(store: &SqliteStore, number: usize) -> StoreResult<()> {
        crate::store::write(store, |write| {
            let id = SessionId::new(format!("session-{number}")).unwrap();
            let session = Session::new(id, "agent");
            let title = Some("x".repeat(900));
            crate::store::session::create_session(write, &session, title, None).map(drop)
        })
    }

    fn filled() -> (tempfile::TempDir, SqliteStore) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("some.db");
        let store = SqliteStore::open(&path).unwrap();
        for number in 0..300 {
            add(&store, number).unwrap();
        }
        drop(store);
        let store = SqliteStore::open(&path).unwrap();
        add(&store, 300).unwrap();
        (folder, store)
    }

    #[test]
    fn nothing_is_written_to_a_file_that_was_cut_off() {
        for keep in [0, 1, 4096, 100 << 10] {
            let (folder, store) = filled();
            let path = folder.path().join("some.db");
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.set_len(keep).unwrap();
            // Closing the file drops the locks of the process, as another program would.
            for number in 0..2 {
                let refused = add(&store, 400 + number);
                assert!(
                    matches!(refused, Err(StoreError::Damaged(_))),
                    "{keep}: {refused:?}"
                );
            }
        }
    }

    #[test]
    fn a_file_that_was_written_anew_without_free_pages_is_whole() {
        let (folder, store) = filled();
        let other = rusqlite::Connection::open(folder.path().join("some.db")).unwrap();
        other
            .execute_batch(
                "CREATE TABLE filler (data); INSERT INTO filler VALUES (zeroblob(9000000));",
            )
            .unwrap();
        other
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
            .unwrap();
        add(&store, 301).unwrap();
        other.execute_batch("DROP TABLE filler; VACUUM").unwrap();
        other
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
            .unwrap();
        for number in 302..310 {
            add(&store, number).unwrap();
        }
    }
}
