//! The connection that writes, and its transactions.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, MAIN_DB};

use super::disk::Disk;
use super::error::{from_open, from_sqlite};
use super::place::OpenFiles;
use super::{Durability, SqliteStore, foreign, log, schema};
use crate::failpoints::{self, Failpoint};
use crate::store::error::{StoreError, StoreResult};

/// The connection that writes, and the log that it writes to.
pub(super) struct Writer {
    pub(super) log: log::Log,
    /// `None`: nobody waits for it.
    disk: Option<Disk>,
    pub(super) connection: Mutex<Connection>,
    /// The connection is to be opened anew.
    is_spoiled: AtomicBool,
    /// The connection is not to the file any more: the store is stale.
    pub(super) is_closed: AtomicBool,
}

impl Writer {
    /// Makes a connection the one that writes; `place` are its files, `None` in memory.
    pub(super) fn of(
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
    pub(super) fn wait_for_disk(&self, commits: u64) -> StoreResult<()> {
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
    pub(super) fn into_connection(self) -> Connection {
        self.log.stop();
        let connection = self.connection.into_inner();
        connection.unwrap_or_else(PoisonError::into_inner)
    }
}

impl SqliteStore {
    /// Runs `work` in a write transaction on the bare connection.
    pub(super) fn transaction<T>(
        &self,
        work: impl FnOnce(&Connection) -> StoreResult<T>,
    ) -> StoreResult<T> {
        self.transaction_then(work, || self.connections.check())
    }

    /// Runs `work` in a write transaction, and `confirm` after its commit: without that nothing is acknowledged,
    /// and the log is left alone.
    pub(super) fn transaction_then<T>(
        &self,
        work: impl FnOnce(&Connection) -> StoreResult<T>,
        confirm: impl FnOnce() -> StoreResult<()>,
    ) -> StoreResult<T> {
        let ticket = self.queue.enter(self.options.busy_timeout)?;
        let (writer, mut connection) = self.lock_writer()?;
        let mut begun = begin_writing(&connection);
        // If a file cannot be opened for writing, be it only that the disk failed once, SQLite opens it
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
        let length = self.connections.checked_length()?;
        if let (Some(place), Some(length)) = (self.connections.place(), length) {
            self.length.check(connection, place.file(), length)?;
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

    /// True if a connection is of no use after this error: one that could not decrypt a page, be it only
    /// that the disk failed once, refuses everything from then on.
    pub(super) fn spoils(&self, error: &StoreError) -> bool {
        use StoreError as E;
        let is_of_reading = matches!(error, E::Damaged(_) | E::Io(_) | E::Other(_));
        is_of_reading && self.options.key.is_some()
    }

    /// Returns the connection that writes, once nobody else has it.
    pub(super) fn lock_writer(&self) -> StoreResult<(&Writer, MutexGuard<'_, Connection>)> {
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

    pub(super) fn writer(&self) -> StoreResult<&Writer> {
        let writer = &self.connections.writer;
        if let Some(writer) = writer.get() {
            return Ok(writer);
        }
        let place = self.connections.place();
        // A process that reads once and then writes needs no second connection: SQLite parses the whole schema
        // for each, which was a tenth of an import of 300 KB.
        let connection = match self.connections.take_idle_reader() {
            Some(reader) => {
                schema::allow_writing(&reader).map_err(from_sqlite)?;
                reader
            }
            None => self.one_more()?,
        };
        let opened = Writer::of(connection, place, self.options.durability);
        let opened = opened.map_err(from_sqlite)?;
        Ok(writer.get_or_init(|| opened))
    }
}

/// A panic of another thread rolled its transaction back; a connection is still good.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
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
            // If even this fails, SQLite rolls back with the connection.
            let _ = execute(self.0, "ROLLBACK");
        }
    }
}

pub(super) fn execute(connection: &Connection, sql: &str) -> StoreResult<()> {
    let mut statement = connection.prepare_cached(sql).map_err(from_sqlite)?;
    statement.execute([]).map_err(from_sqlite)?;
    Ok(())
}
