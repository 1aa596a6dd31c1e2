//! The SQLite backend: one file, one writer connection, readers that see snapshots.
//!
//! A write begins IMMEDIATE, so that it never fails half-way for a lock; a read opens a deferred
//! transaction on a connection of a small pool and lets go of its snapshot when the closure ends,
//! so that checkpoints can finish. A database in memory has only the writer's connection.

pub(crate) mod agents;
mod backup;
mod driving;
mod fields;
mod from_row;
mod index;
mod listing;
mod log;
mod options;
mod place;
mod query;
mod queue;
mod read;
mod recount;
mod removal;
pub(crate) mod salvage;
mod scan;
mod schema;
mod source;
mod write;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, TransactionBehavior};

pub use listing::SessionView;
pub use options::{Durability, SqliteOptions};
pub use query::{QueryLimits, QueryRows, Record, Stats};
pub use recount::{RecountError, RecountProgress, RecountReport, recount};
pub use removal::Scrubbed;
pub use schema::format_version;

use super::error::{OpenError, StoreError, StoreResult};
use super::scan::StoreScan;
use super::{SessionStore, StoreRead, StoreWrite};
use crate::tokens::TokenCounter;
use place::Place;

/// How many idle reading connections are kept.
const MAX_IDLE_READERS: usize = 8;

/// A store in one SQLite database.
pub struct SqliteStore {
    path: Option<PathBuf>,
    /// `None`: in memory.
    place: Option<Place>,
    options: SqliteOptions,
    /// Whoever writes stands in line before it locks the writer.
    queue: queue::Queue,
    log: log::Log,
    writer: Mutex<Connection>,
    readers: Mutex<Vec<Connection>>,
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
        let mut writer = schema::open_file(path, &mut options)?;
        let place = Place::of(path, options.still).map_err(|cause| OpenError::Other {
            path: path.to_owned(),
            cause: Box::new(cause),
        })?;
        Ok(Self {
            path: Some(path.to_owned()),
            options,
            queue: queue::Queue::new(Some(path)),
            log: log::Log::of(&mut writer).map_err(|error| schema::opening(path, error))?,
            place: Some(place),
            writer: Mutex::new(writer),
            readers: Mutex::default(),
        })
    }

    /// Makes an empty database in memory.
    ///
    /// # Errors
    /// If SQLite cannot be set up.
    pub fn in_memory() -> Result<Self, OpenError> {
        Self::in_memory_with(SqliteOptions::default())
    }

    /// Makes an empty database in memory with these options.
    ///
    /// # Errors
    /// If SQLite cannot be set up.
    pub fn in_memory_with(options: SqliteOptions) -> Result<Self, OpenError> {
        let mut options = options;
        let mut writer = schema::open_memory(&mut options)?;
        let log = log::Log::of(&mut writer);
        Ok(Self {
            path: None,
            place: None,
            options,
            queue: queue::Queue::new(None),
            log: log.map_err(|error| schema::opening(Path::new(":memory:"), error))?,
            writer: Mutex::new(writer),
            readers: Mutex::default(),
        })
    }

    /// Returns the file, `None` for a database in memory.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Runs `work` on a connection that can only read; in memory, on the writer's.
    fn with_reader<T>(
        &self,
        work: impl FnOnce(&mut Connection) -> StoreResult<T>,
    ) -> StoreResult<T> {
        let Some(place) = &self.place else {
            return work(&mut self.lock_writer());
        };
        place.check()?;
        let idle = self
            .readers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => schema::open_reader(place.file(), &self.options).map_err(from_open)?,
        };
        let result = work(&mut connection);
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        if readers.len() < MAX_IDLE_READERS {
            readers.push(connection);
        }
        drop(readers);
        place.check_still()?;
        result
    }

    /// Runs `work` on one snapshot of the bare connection.
    fn snapshot<T>(&self, work: impl FnOnce(&Connection) -> StoreResult<T>) -> StoreResult<T> {
        self.with_reader(|connection| {
            let transaction = connection.transaction().map_err(from_sqlite)?;
            work(&transaction)
        })
    }

    /// Runs `work` on one snapshot in which every row can be looked at.
    pub(crate) fn scan<T>(
        &self,
        work: impl FnOnce(&dyn StoreScan) -> StoreResult<T>,
    ) -> StoreResult<T> {
        self.snapshot(|connection| work(&read::Reader { connection }))
    }

    /// Runs `work` in a write transaction on the bare connection.
    fn transaction<T>(&self, work: impl FnOnce(&Connection) -> StoreResult<T>) -> StoreResult<T> {
        let _ticket = self.queue.enter(self.options.busy_timeout)?;
        let mut connection = self.lock_writer();
        let transaction = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(from_sqlite)?;
        self.check_place()?;
        let done = work(&transaction)?;
        transaction.commit().map_err(from_sqlite)?;
        if let Some(place) = &self.place {
            let open = || schema::open_reader(place.file(), &self.options);
            let timeout = self.options.busy_timeout;
            self.log.committed(&connection, timeout, open);
        }
        Ok(done)
    }

    /// Checks that what is written would be found again.
    fn check_place(&self) -> StoreResult<()> {
        self.place.as_ref().map_or(Ok(()), Place::check)
    }

    /// Removes the files of a database without sessions and receipts, as one that was just made for
    /// something that failed; returns whether it did. Whoever has it open is told at the next
    /// transaction.
    ///
    /// # Errors
    /// If the database cannot be read, or its folder refuses.
    pub fn remove_if_empty(self) -> StoreResult<bool> {
        let Some(place) = &self.place else {
            return Ok(false);
        };
        // Nobody can begin a session between the look and the removal.
        self.transaction(|connection| {
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
        })
    }

    /// A panic of another thread rolled its transaction back; the connection is still good.
    fn lock_writer(&self) -> MutexGuard<'_, Connection> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionStore for SqliteStore {
    fn read(&self, work: &mut dyn FnMut(&dyn StoreRead) -> StoreResult<()>) -> StoreResult<()> {
        self.snapshot(|connection| work(&read::Reader { connection }))
    }

    fn write(
        &self,
        work: &mut dyn FnMut(&mut dyn StoreWrite) -> StoreResult<()>,
    ) -> StoreResult<()> {
        if self.options.read_only {
            return Err(StoreError::ReadOnly);
        }
        self.transaction(|connection| {
            let mut reader = read::Reader { connection };
            schema::check_still_counts_with(connection, self.options.counter.name())?;
            work(&mut reader)
        })
    }

    fn counter(&self) -> &dyn TokenCounter {
        &*self.options.counter
    }

    fn files(&self) -> Vec<PathBuf> {
        let Some(place) = &self.place else {
            return Vec::new();
        };
        let ends = ["", "-wal", "-shm", "-journal", "-queue"];
        ends.iter()
            .map(|end| place::with_end(place.file(), end))
            .collect()
    }
}

fn from_open(error: OpenError) -> StoreError {
    match error {
        OpenError::Busy => StoreError::Busy,
        OpenError::Damaged { detail, .. } => StoreError::Damaged(detail),
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
