//! The SQLite backend: one file, one connection that writes, readers that see snapshots.
//!
//! A write begins with `BEGIN IMMEDIATE`, so that it never fails for a lock in the middle. A read opens a deferred
//! transaction on a connection of a small pool and ends its snapshot with the closure, so that checkpoints can
//! finish. A database in memory has only the writer's connection. A write waits for the disk after its transaction,
//! while the next one may begin.

mod backup;
mod connections;
mod database;
mod disk;
mod edits;
mod encryption;
mod error;
mod foreign;
mod holders;
mod index;
mod length;
mod listing;
mod log;
mod migration;
mod needed;
mod old_format;
mod options;
mod packs;
mod place;
mod query;
mod queue;
mod read;
mod reader;
mod recording;
mod recount;
mod removal;
mod row;
pub(crate) mod salvage;
mod scan;
pub(crate) mod schema;
mod source;
mod statements;
mod totals;
mod write;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::Connection;

pub use crate::store::listing::SessionView;
pub use crate::store::query::{QueryLimits, QueryRows, Record};
pub use crate::store::recount::{RecountError, RecountProgress, RecountReport};
pub use crate::store::removal::ScrubState;
pub use crate::store::stats::Stats;
pub use migration::format_version;
pub use options::{Durability, SqliteOptions};
pub use recount::recount;
pub(crate) use removal::content;

use crate::store::error::{OpenError, StoreError, StoreResult};
use crate::store::scan::StoreScan;
use crate::store::{Key, ReadWork, SessionStore, WriteWork};
use crate::tokens::TokenCounter;
use connections::Connections;
use error::{from_open, from_sqlite};
use length::FileLength;
use place::OpenFiles;
use writer::Writer;

/// The SQLite backend: a store in one database file, or in memory.
pub struct SqliteStore {
    path: Option<PathBuf>,
    options: SqliteOptions,
    /// The queue of writers, entered before the writer is locked.
    queue: queue::Queue,
    /// Locks that show which holders of leases live.
    holders: holders::LeaseLocks,
    length: FileLength,
    connections: Arc<Connections>,
    /// True once a removal that was cut off before was looked for.
    has_looked_for_removal: AtomicBool,
}

impl SqliteStore {
    /// Opens the database at `path` with default options. The file is created if it does not exist.
    ///
    /// # Errors
    /// If the file is not a loopstore database, is damaged, was written by a newer version, or cannot be opened.
    ///
    /// # Examples
    /// ```
    /// let folder = tempfile::tempdir()?;
    /// let store = loopstore::SqliteStore::open(folder.path().join("agent.db"))?;
    /// # drop(store);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_with(path, SqliteOptions::default())
    }

    /// Opens the database at `path` with these options.
    ///
    /// # Errors
    /// As [`SqliteStore::open`].
    pub fn open_with(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, OpenError> {
        let mut options = options;
        let path = &*schema::real_path(path.as_ref(), &options)?;
        connections::retire_stale(path, options.busy_timeout).map_err(|_| OpenError::Busy)?;
        let first = schema::open_file(path, &mut options)?;
        let place = OpenFiles::of(path, options.immutable).map_err(|cause| OpenError::Other {
            path: path.to_owned(),
            cause: Box::new(cause),
        })?;
        Ok(Self {
            path: Some(path.to_owned()),
            options,
            queue: queue::Queue::new(Some(path)),
            holders: holders::LeaseLocks::new(schema::network_of(path).is_none().then_some(path)),
            length: FileLength::of(path),
            connections: Connections::to_file(place, first),
            has_looked_for_removal: AtomicBool::new(false),
        })
    }

    /// Returns `true` if another copy of SQLite in this process (Python's `sqlite3`, a plugin) may open the same
    /// database. The locks of the store then belong to its open files and not to the process.
    ///
    /// On systems other than Linux it returns `false`: no other copy of SQLite in this process may open the database
    /// while a store has it open. When that copy closes the file, the system drops the locks of the store, and with
    /// them the protection from other processes. Other processes may open the database on every system.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(loopstore::SqliteStore::allows_other_copies(), cfg!(target_os = "linux"));
    /// ```
    pub fn allows_other_copies() -> bool {
        loopstore_locks::install()
    }

    /// Creates an empty database in memory.
    ///
    /// # Errors
    /// If SQLite cannot be set up.
    ///
    /// # Examples
    /// ```
    /// let store = loopstore::SqliteStore::in_memory()?;
    /// assert_eq!(store.path(), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn in_memory() -> Result<Self, OpenError> {
        Self::in_memory_with(SqliteOptions::default())
    }

    /// Creates an empty database in memory with these options.
    ///
    /// # Errors
    /// If SQLite cannot be set up.
    pub fn in_memory_with(options: SqliteOptions) -> Result<Self, OpenError> {
        let mut options = options;
        let writer = schema::open_memory(&mut options)?;
        let writer = Writer::of(writer, None, options.durability)
            .map_err(|error| schema::opening(Path::new(":memory:"), error))?;
        Ok(Self {
            path: None,
            options,
            queue: queue::Queue::new(None),
            holders: holders::LeaseLocks::new(None),
            length: FileLength::default(),
            connections: Connections::of_memory(writer),
            has_looked_for_removal: AtomicBool::new(true),
        })
    }

    /// Returns the path of the file; `None` for a database in memory.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Returns the key with which the file is encrypted.
    #[doc(hidden)]
    pub fn key(&self) -> Option<&Key> {
        self.options.key.as_ref()
    }

    /// Runs `work` on a connection that can only read; in memory, on the writer's.
    fn with_reader<T>(
        &self,
        work: impl FnOnce(&mut Connection) -> StoreResult<T>,
    ) -> StoreResult<T> {
        let Some(place) = self.connections.place() else {
            return work(&mut self.lock_writer()?.1);
        };
        let mut lent = self.connections.lend(|| {
            let connection = self.one_more()?;
            schema::only_read(&connection).map_err(from_sqlite)?;
            Ok(connection)
        })?;
        let result = work(lent.connection()?);
        if result.as_ref().is_err_and(|error| self.spoils(error)) {
            lent.spoiled();
            return result;
        }
        drop(lent);
        place.check_still()?;
        result
    }

    /// Runs `work` on one snapshot of the bare connection.
    fn snapshot<T>(&self, work: impl FnOnce(&Connection) -> StoreResult<T>) -> StoreResult<T> {
        self.with_reader(|connection| foreign::snapshot(connection, foreign::MOST_READING, work))
    }

    fn reader<'a>(&'a self, connection: &'a Connection) -> reader::SqliteReader<'a> {
        reader::SqliteReader::new(connection).with_holders(&self.holders)
    }

    /// Runs `work` on one snapshot in which every row can be looked at.
    pub(crate) fn scan<T>(
        &self,
        work: impl FnOnce(&dyn StoreScan) -> StoreResult<T>,
    ) -> StoreResult<T> {
        self.snapshot(|connection| work(&self.reader(connection)))
    }

    /// Removes the files of a database without sessions and receipts, and returns `true` if it did. Use it for a
    /// database that was just created for an operation that failed. The next transaction of any other connection
    /// fails.
    ///
    /// # Errors
    /// If the database cannot be read, or its files cannot be removed.
    ///
    /// # Examples
    /// ```
    /// use loopstore::SqliteStore;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let path = folder.path().join("agent.db");
    /// assert!(SqliteStore::open(&path)?.remove_if_empty()?);
    /// assert!(!path.exists());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remove_if_empty(self) -> StoreResult<bool> {
        let Some(place) = self.connections.place() else {
            return Ok(false);
        };
        // Nobody can begin a session between the look and the removal, after which the files are gone.
        let work = |connection: &Connection| {
            let sql =
                "SELECT EXISTS (SELECT 1 FROM sessions) OR EXISTS (SELECT 1 FROM maintenance)";
            let is_used: bool = connection
                .query_row(sql, [], |row| row.get(0))
                .map_err(from_sqlite)?;
            if !is_used {
                place
                    .remove()
                    .map_err(|error| StoreError::Io(Box::new(error)))?;
            }
            Ok(!is_used)
        };
        self.transaction_then(work, || Ok(()))
    }

    /// Returns a connection that nobody has: the first, or a new one.
    fn one_more(&self) -> StoreResult<Connection> {
        match (self.connections.take_first(), self.connections.place()) {
            (Some(first), _) => Ok(first),
            (None, Some(place)) => {
                let opened = schema::open_more(place.file(), &self.options).map_err(from_open)?;
                // At this path another file may lie by now.
                self.connections.check()?;
                Ok(opened)
            }
            (None, None) => Err(StoreError::Invalid("the database is in memory".into())),
        }
    }
}

impl SessionStore for SqliteStore {
    fn read(&self, work: ReadWork<'_>) -> StoreResult<()> {
        self.snapshot(|connection| work(&self.reader(connection)))
    }

    fn write(&self, work: WriteWork<'_>) -> StoreResult<()> {
        if self.options.read_only {
            return Err(StoreError::ReadOnly);
        }
        let mut was_cut_off = false;
        self.transaction(|connection| {
            let mut reader = self.reader(connection);
            schema::check_still_counts_with(connection, self.options.counter.name())?;
            if !self.has_looked_for_removal.swap(true, Ordering::Relaxed) {
                was_cut_off = removal::scrub::mark(connection)?.is_some();
            }
            work(&mut reader)
        })?;
        if was_cut_off {
            self.finish_removal();
        }
        Ok(())
    }

    fn counter(&self) -> &dyn TokenCounter {
        &*self.options.counter
    }

    fn files(&self) -> Vec<PathBuf> {
        let Some(place) = self.connections.place() else {
            return Vec::new();
        };
        let ends = ["", "-wal", "-shm", "-journal", "-queue", "-copies"];
        ends.iter()
            .map(|end| place::with_end(place.file(), end))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::writer::execute;
    use super::*;
    use crate::model::{Session, SessionId};

    fn opened() -> (tempfile::TempDir, SqliteStore) {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(folder.path().join("some.db")).unwrap();
        (folder, store)
    }

    fn add(store: &SqliteStore, id: &str) -> StoreResult<()> {
        crate::store::write(store, |write| {
            let session = Session::new(SessionId::new(id).unwrap(), "agent");
            crate::store::session::create_session(write, &session, None, None).map(|_| ())
        })
    }

    fn count(store: &SqliteStore) -> usize {
        crate::store::read(store, |read| Ok(read.sessions()?.len())).unwrap()
    }

    fn connections(store: &SqliteStore) -> (bool, bool, usize) {
        store.connections.counted()
    }

    #[test]
    fn who_only_reads_or_only_writes_needs_one_connection() {
        let (_folder, store) = opened();
        assert_eq!(connections(&store), (true, false, 0));
        assert_eq!(count(&store), 0);
        assert_eq!(connections(&store), (false, false, 1));
        add(&store, "a").unwrap();
        assert_eq!(connections(&store), (false, true, 0));
        assert_eq!((count(&store), connections(&store)), (1, (false, true, 1)));
        let (_folder, store) = opened();
        add(&store, "a").unwrap();
        assert_eq!(connections(&store), (false, true, 0));
        assert_eq!((count(&store), connections(&store)), (1, (false, true, 1)));
    }

    #[test]
    fn threads_that_come_first_together_share_the_writer() {
        let (_folder, store) = opened();
        std::thread::scope(|scope| {
            for id in ["a", "b", "c", "d"] {
                let store = &store;
                scope.spawn(move || {
                    add(store, id).unwrap();
                    count(store)
                });
            }
        });
        assert_eq!(count(&store), 4);
    }

    #[test]
    fn a_reader_cannot_write_also_if_it_was_there_first() {
        let (_folder, store) = opened();
        let refused = store.snapshot(|connection| execute(connection, "DELETE FROM store_meta"));
        assert!(matches!(refused, Err(StoreError::ReadOnly)), "{refused:?}");
        // The failed statement left no transaction behind.
        assert_eq!(count(&store), 0);
    }

    #[test]
    fn a_writer_that_was_opened_only_for_reading_is_opened_anew() {
        let (folder, store) = opened();
        add(&store, "a").unwrap();
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
        let path = folder.path().join("some.db");
        let only_reads = Connection::open_with_flags(path, flags).unwrap();
        // The log goes with the last connection that can write.
        let _old = std::mem::replace(&mut *store.lock_writer().unwrap().1, only_reads);
        add(&store, "b").unwrap();
        assert_eq!(count(&store), 2);
    }

    #[test]
    fn the_first_write_to_a_file_that_was_replaced_is_refused() {
        let (folder, store) = opened();
        assert_eq!(count(&store), 0);
        let path = folder.path().join("some.db");
        std::fs::remove_file(&path).unwrap();
        drop(SqliteStore::open(&path).unwrap());
        assert!(matches!(add(&store, "a"), Err(StoreError::FileReplaced)));
    }
}
