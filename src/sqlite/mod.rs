//! The SQLite backend: one file, one connection that writes, readers that see snapshots.
//!
//! A write begins IMMEDIATE, so that it never fails half-way for a lock; a read opens a deferred
//! transaction on a connection of a small pool and lets go of its snapshot when the closure ends,
//! so that checkpoints can finish. A database in memory has only the writer's connection. A write
//! waits for the disk after its transaction, when the next one may begin.

mod backup;
mod connections;
mod database;
mod disk;
mod encryption;
mod foreign;
mod holders;
mod index;
mod length;
mod listing;
mod log;
mod migration;
mod old_format;
mod options;
mod packs;
mod place;
mod query;
mod queue;
mod read;
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

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, MAIN_DB};

pub use crate::store::listing::SessionView;
pub use crate::store::query::{QueryLimits, QueryRows, Record};
pub use crate::store::recount::{RecountError, RecountProgress, RecountReport};
pub use crate::store::removal::Scrubbed;
pub use crate::store::stats::Stats;
pub use migration::format_version;
pub use options::{Durability, SqliteOptions};
pub use recount::recount;
pub(crate) use removal::content;

use crate::failpoints::{self, Failpoint};
use crate::store::error::{OpenError, StoreError, StoreResult};
use crate::store::scan::StoreScan;
use crate::store::{Key, ReadWork, SessionStore, WriteWork};
use crate::tokens::TokenCounter;
use connections::Connections;
use disk::Disk;
use length::FileLength;
use place::OpenFiles;

/// The connection that writes, and the log that it writes to.
struct Writer {
    log: log::Log,
    /// `None`: nobody waits for it.
    disk: Option<Disk>,
    connection: Mutex<Connection>,
    /// The connection is to be opened anew.
    is_spoiled: AtomicBool,
    /// The connection is not to the file any more: the store is stale.
    is_closed: AtomicBool,
}

impl Writer {
    /// Makes a connection the one that writes; `place` are its files, `None` in memory.
    fn of(
        connection: Connection,
        place: Option<&Arc<OpenFiles>>,
        durability: Durability,
    ) -> rusqlite::Result<Self> {
        let waits = place.filter(|_| durability == Durability::Full);
        let writer = Self {
            log: log::Log::new(place.cloned()),
            disk: waits.map(|place| Disk::below(place.log().to_owned())),
            connection: Mutex::new(connection),
            is_spoiled: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
        };
        writer.prepare(&mut locked(&writer.connection))?;
        Ok(writer)
    }

    /// Makes a connection the one that writes.
    fn prepare(&self, connection: &mut Connection) -> rusqlite::Result<()> {
        if self.disk.is_some() {
            // A commit does not wait for the disk, but whoever made it does: `disk`.
            connection.pragma_update(None, "synchronous", "normal")?;
        }
        self.log.count(connection)
    }

    /// Waits until what was committed outlasts a power loss.
    fn wait_for_disk(&self, commits: u64) -> StoreResult<()> {
        let Some(disk) = &self.disk else {
            return Ok(());
        };
        disk.wait_for(
            commits,
            || self.log.commits(),
            || {
                let (connection, _alone) = (locked(&self.connection), self.log.alone());
                self.log.check()?;
                log::move_all(&connection)
            },
        )
    }

    /// Returns the connection; nobody moves pages any more.
    fn into_connection(self) -> Connection {
        self.log.stop();
        let connection = self.connection.into_inner();
        connection.unwrap_or_else(PoisonError::into_inner)
    }
}

/// A store in one SQLite database.
pub struct SqliteStore {
    path: Option<PathBuf>,
    options: SqliteOptions,
    /// Whoever writes stands in line before it locks the writer.
    queue: queue::Queue,
    /// Which holders of leases live.
    holders: holders::Holders,
    length: FileLength,
    connections: Arc<Connections>,
    /// True once a removal that was cut off before was looked for.
    has_looked_for_removal: AtomicBool,
}

impl SqliteStore {
    /// Opens the database at `path` with default options; creates it if it is not there.
    ///
    /// # Errors
    /// If the file is no loopstore database, is damaged, was written by a newer version, or
    /// cannot be opened.
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
            holders: holders::Holders::new(schema::network_of(path).is_none().then_some(path)),
            length: FileLength::of(path),
            connections: Connections::to_file(place, first),
            has_looked_for_removal: AtomicBool::new(false),
        })
    }

    /// Returns `true` if another copy of SQLite in this process (Python's `sqlite3`, a plugin) may have the same
    /// database open: the locks of this store then belong to its open files and not to the process.
    ///
    /// Where it returns `false` (any other system than Linux), no other copy of SQLite in this process may open
    /// the database while a store has it open: when it closes the file, it would take the locks of the store away,
    /// and with them what others must not do meanwhile. Other processes may, everywhere.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(loopstore::SqliteStore::allows_other_copies(), cfg!(target_os = "linux"));
    /// ```
    pub fn allows_other_copies() -> bool {
        loopstore_locks::install()
    }

    /// Makes an empty database in memory.
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

    /// Makes an empty database in memory with these options.
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
            holders: holders::Holders::new(None),
            length: FileLength::default(),
            connections: Connections::of_memory(writer),
            has_looked_for_removal: AtomicBool::new(true),
        })
    }

    /// Returns the file, `None` for a database in memory.
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

    fn reader<'a>(&'a self, connection: &'a Connection) -> read::SqliteReader<'a> {
        read::SqliteReader::new(connection).with_holders(&self.holders)
    }

    /// Runs `work` on one snapshot in which every row can be looked at.
    pub(crate) fn scan<T>(
        &self,
        work: impl FnOnce(&dyn StoreScan) -> StoreResult<T>,
    ) -> StoreResult<T> {
        self.snapshot(|connection| work(&self.reader(connection)))
    }

    /// Runs `work` in a write transaction on the bare connection.
    fn transaction<T>(&self, work: impl FnOnce(&Connection) -> StoreResult<T>) -> StoreResult<T> {
        self.transaction_then(work, || self.connections.check())
    }

    /// Runs `work` in a write transaction, and `confirm` after its commit: without that nothing is acknowledged,
    /// and the log is left alone.
    fn transaction_then<T>(
        &self,
        work: impl FnOnce(&Connection) -> StoreResult<T>,
        confirm: impl FnOnce() -> StoreResult<()>,
    ) -> StoreResult<T> {
        let ticket = self.queue.enter(self.options.busy_timeout)?;
        let (writer, mut connection) = self.lock_writer()?;
        let mut begun = begin_writing(&connection);
        // Where a file cannot be opened for writing, be it only that the disk failed once, SQLite opens it
        // for reading, and the connection stays so.
        if matches!(begun, Err(StoreError::ReadOnly)) && self.connections.place().is_some() {
            self.open_writer_anew(writer, &mut connection)?;
            begun = begin_writing(&connection);
        }
        let done = begun
            .and_then(|()| self.transaction_on(&connection, work))
            .and_then(|done| confirm().map(|()| done));
        match &done {
            Ok(_) => self.keep_log_short(writer, &connection),
            Err(error) if self.spoils(error) => writer.is_spoiled.store(true, Ordering::Relaxed),
            Err(_) => {}
        }
        let commits = writer.log.commits();
        // Whoever comes next may write while this one waits.
        drop((connection, ticket));
        if matches!(done, Err(StoreError::FileReplaced)) {
            // Closes the writer too, now that nobody has it.
            self.connections.check()?;
        }
        let done = done?;
        writer.wait_for_disk(commits)?;
        Ok(done)
    }

    /// Runs `work` in the transaction that was begun on the connection.
    fn transaction_on<T>(
        &self,
        connection: &Connection,
        work: impl FnOnce(&Connection) -> StoreResult<T>,
    ) -> StoreResult<T> {
        let transaction = SqliteTransaction(connection);
        // And once more after the commit: the files may be replaced in between.
        self.connections.check()?;
        if let Some(place) = self.connections.place() {
            self.length.check(connection, place.file())?;
        }
        foreign::refuse(connection)?;
        let done = work(connection)?;
        if failpoints::is_active(Failpoint::LostWrite)
            && connection.total_changes().is_multiple_of(5)
        {
            return Ok(done);
        }
        transaction.commit()?;
        Ok(done)
    }

    fn keep_log_short(&self, writer: &Writer, connection: &Connection) {
        if let Some(place) = self.connections.place() {
            let open = || schema::open_reader(place.file(), &self.options);
            let timeout = self.options.busy_timeout;
            writer.log.committed(connection, timeout, open);
        }
    }

    /// Whether a connection is of no use after this error: one that could not decrypt a page, be it only
    /// that the disk failed once, refuses everything from then on.
    fn spoils(&self, error: &StoreError) -> bool {
        use StoreError as E;
        let is_of_reading = matches!(error, E::Damaged(_) | E::Io(_) | E::Other(_));
        is_of_reading && self.options.key.is_some()
    }

    /// Removes the files of a database without sessions and receipts, as one that was just made for
    /// something that failed; returns whether it did. Whoever has it open is told at the next
    /// transaction.
    ///
    /// # Errors
    /// If the database cannot be read, or its folder refuses.
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

    /// Returns the connection that writes, once nobody else has it.
    fn lock_writer(&self) -> StoreResult<(&Writer, MutexGuard<'_, Connection>)> {
        let writer = self.writer()?;
        let mut connection = locked(&writer.connection);
        if writer.is_closed.load(Ordering::Acquire) {
            return Err(StoreError::FileReplaced);
        }
        if writer.is_spoiled.load(Ordering::Relaxed) {
            self.open_writer_anew(writer, &mut connection)?;
        }
        Ok((writer, connection))
    }

    /// Opens the writing connection anew. The old one is closed after that: with the last connection SQLite
    /// removes the log, and what was opened would be another file.
    fn open_writer_anew(&self, writer: &Writer, connection: &mut Connection) -> StoreResult<()> {
        let Some(place) = self.connections.place() else {
            return Ok(());
        };
        let mut new = schema::open_more(place.file(), &self.options).map_err(from_open)?;
        self.connections.check()?;
        writer.prepare(&mut new).map_err(from_sqlite)?;
        *connection = new;
        writer.is_spoiled.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn writer(&self) -> StoreResult<&Writer> {
        let writer = &self.connections.writer;
        if let Some(writer) = writer.get() {
            return Ok(writer);
        }
        let place = self.connections.place();
        let opened = Writer::of(self.one_more()?, place, self.options.durability);
        let opened = opened.map_err(from_sqlite)?;
        Ok(writer.get_or_init(|| opened))
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

/// A panic of another thread rolled its transaction back; a connection is still good.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins a transaction that writes. On a connection that can only read SQLite would begin one that reads.
fn begin_writing(connection: &Connection) -> StoreResult<()> {
    match connection.is_readonly(MAIN_DB).map_err(from_sqlite)? {
        true => Err(StoreError::ReadOnly),
        false => execute(connection, "BEGIN IMMEDIATE"),
    }
}

/// A transaction whose own statements stay prepared; it is rolled back if nobody commits it.
struct SqliteTransaction<'c>(&'c Connection);

impl<'c> SqliteTransaction<'c> {
    fn commit(self) -> StoreResult<()> {
        execute(self.0, "COMMIT")
    }
}

impl Drop for SqliteTransaction<'_> {
    fn drop(&mut self) {
        if !self.0.is_autocommit() {
            // Where even this fails SQLite rolls back with the connection.
            let _ = execute(self.0, "ROLLBACK");
        }
    }
}

fn execute(connection: &Connection, sql: &str) -> StoreResult<()> {
    let mut statement = connection.prepare_cached(sql).map_err(from_sqlite)?;
    statement.execute([]).map_err(from_sqlite)?;
    Ok(())
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

fn from_open(error: OpenError) -> StoreError {
    match error {
        OpenError::Busy => StoreError::Busy,
        OpenError::Damaged { detail, .. } => StoreError::Damaged(detail),
        OpenError::ReadOnly { .. } => StoreError::ReadOnly,
        other => StoreError::Other(Box::new(other)),
    }
}

/// Sorts an error of the driver by what the caller can do.
fn from_sqlite(error: rusqlite::Error) -> StoreError {
    use rusqlite::ErrorCode as Code;
    let message = error.to_string();
    match error.sqlite_error_code() {
        Some(Code::DatabaseBusy | Code::DatabaseLocked) => StoreError::Busy,
        Some(Code::ReadOnly) => StoreError::ReadOnly,
        Some(Code::DiskFull) => StoreError::Full,
        Some(Code::SystemIoFailure | Code::CannotOpen) => StoreError::Io(Box::new(error)),
        Some(Code::DatabaseCorrupt | Code::NotADatabase) => StoreError::Damaged(message),
        Some(Code::ConstraintViolation) => StoreError::Invalid(message),
        _ if is_misfit(&error) => StoreError::Damaged(message),
        _ => StoreError::Other(Box::new(error)),
    }
}

/// Whether a statement of this program does not fit the tables, or a value not its column.
fn is_misfit(error: &rusqlite::Error) -> bool {
    use rusqlite::Error as E;
    let is_plain = |failure: &rusqlite::ffi::Error| failure.extended_code == 1;
    error.sqlite_error().is_some_and(is_plain)
        || matches!(
            error,
            E::SqlInputError { .. }
                | E::Utf8Error(..)
                | E::FromSqlConversionFailure(..)
                | E::InvalidColumnType(..)
                | E::IntegralValueOutOfRange(..)
        )
}

#[cfg(test)]
mod tests {
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
        // What failed left no transaction behind.
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
