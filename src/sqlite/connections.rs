//! The connections of one open database, and when they must not write any more.
//!
//! A store is *stale* when its file or its write-ahead log is no longer the one at its path. What it commits
//! then goes to a file that nobody will read, and moving its log into the database would write pages over
//! those that others wrote since. So a connection of ours never moves or deletes the log when it is closed;
//! only the last connection of a store does, after a look at the files. A store that finds itself stale closes
//! its connections at once: SQLite has the connections of one process share the index of the log, and a store
//! that is opened again must not share that of a log that is gone.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, TryLockError, Weak};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use super::place::OpenFiles;
use super::writer::{Writer, locked};
use crate::store::error::{StoreError, StoreResult};

/// Idle reading connections that are kept.
const MAX_IDLE_READERS: usize = 8;
/// The interval at which a wait for the connections of a stale store looks at them.
const STEP: Duration = Duration::from_millis(2);

/// Every store that this process has open on a file.
static OPEN: Mutex<Vec<Weak<Connections>>> = Mutex::new(Vec::new());

/// The connections of one store.
pub(super) struct Connections {
    /// `None`: in memory.
    place: Option<Arc<OpenFiles>>,
    /// The first write opens it.
    pub(super) writer: OnceLock<Writer>,
    readers: Mutex<Vec<Connection>>,
    /// The connection that the file was opened with: for whoever comes first. Most of what opening
    /// costs is to parse the schema, and who only reads or only writes so pays for it once.
    first: Mutex<Option<Connection>>,
    /// The number of reading connections in use.
    lent: AtomicUsize,
    /// True once the store was found stale.
    is_retired: AtomicBool,
}

impl Connections {
    /// Holds the first connection to a file.
    pub(super) fn to_file(place: OpenFiles, first: Connection) -> Arc<Self> {
        let place = Some(Arc::new(place));
        let connections = Arc::new(Self::new(place, Some(first), OnceLock::new()));
        let mut open = locked(&OPEN);
        open.retain(|other| other.strong_count() > 0);
        open.push(Arc::downgrade(&connections));
        connections
    }

    /// Holds the connection to a database in memory.
    pub(super) fn of_memory(writer: Writer) -> Arc<Self> {
        Arc::new(Self::new(None, None, OnceLock::from(writer)))
    }

    fn new(
        place: Option<Arc<OpenFiles>>,
        first: Option<Connection>,
        writer: OnceLock<Writer>,
    ) -> Self {
        Self {
            place,
            writer,
            readers: Mutex::default(),
            first: Mutex::new(first),
            lent: AtomicUsize::new(0),
            is_retired: AtomicBool::new(false),
        }
    }

    /// Returns the files of the database; `None` in memory.
    pub(super) fn place(&self) -> Option<&Arc<OpenFiles>> {
        self.place.as_ref()
    }

    /// Checks that the files are those that were opened.
    ///
    /// # Errors
    /// [`StoreError::FileReplaced`] if they are not; from then on always.
    pub(super) fn check(&self) -> StoreResult<()> {
        self.checked_length().map(drop)
    }

    /// Checks the files as [`check`](Self::check) does, and returns the length of the database in bytes; `None` if it
    /// is in memory.
    ///
    /// # Errors
    /// As for [`check`](Self::check).
    pub(super) fn checked_length(&self) -> StoreResult<Option<u64>> {
        let Some(place) = &self.place else {
            return Ok(None);
        };
        if !self.is_retired.load(Ordering::Acquire)
            && let Ok(length) = place.check()
        {
            return Ok(Some(length));
        }
        self.retire();
        Err(StoreError::FileReplaced)
    }

    /// Returns a connection that nobody has, if there is one.
    pub(super) fn take_first(&self) -> Option<Connection> {
        locked(&self.first).take()
    }

    /// Returns a reading connection that nobody uses, if there is one; it is no longer one of the pool.
    pub(super) fn take_idle_reader(&self) -> Option<Connection> {
        locked(&self.readers).pop()
    }

    /// Lends an idle reading connection; with `open` where there is none.
    pub(super) fn lend(
        &self,
        open: impl FnOnce() -> StoreResult<Connection>,
    ) -> StoreResult<Lent<'_>> {
        // Counted before it is looked whether the store is stale: `retire_stale` waits for those who are counted.
        let mut lent = Lent {
            of: self,
            connection: None,
        };
        self.lent.fetch_add(1, Ordering::AcqRel);
        self.check()?;
        let idle = locked(&self.readers).pop();
        lent.connection = Some(idle.map_or_else(open, Ok)?);
        Ok(lent)
    }

    /// Closes all connections that nobody uses; those in use are closed when they come back.
    fn retire(&self) {
        self.is_retired.store(true, Ordering::Release);
        let readers = std::mem::take(&mut *locked(&self.readers));
        drop((readers, self.take_first()));
        if let Some(writer) = self.writer.get() {
            writer.log.stop();
            let connection = match writer.connection.try_lock() {
                Ok(connection) => Some(connection),
                Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                // Whoever uses it finds the store stale before acknowledging anything, and comes here.
                Err(TryLockError::WouldBlock) => None,
            };
            // No statement of ours fits an empty database, and none is run: `check` comes before.
            if let (Some(mut connection), Ok(nothing)) = (connection, Connection::open_in_memory())
            {
                *connection = nothing;
                writer.is_closed.store(true, Ordering::Release);
            }
        }
    }

    /// Returns whether there is a first connection and a writing one, and how many idle ones read.
    #[cfg(test)]
    pub(super) fn counted(&self) -> (bool, bool, usize) {
        let readers = locked(&self.readers).len();
        (
            locked(&self.first).is_some(),
            self.writer.get().is_some(),
            readers,
        )
    }

    /// Returns `true` if no connection to the file is left.
    fn is_closed(&self) -> bool {
        self.retire();
        let is_closed = |writer: &Writer| writer.is_closed.load(Ordering::Acquire);
        self.lent.load(Ordering::Acquire) == 0 && self.writer.get().is_none_or(is_closed)
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        let writer = self.writer.take().map(Writer::into_connection);
        let first = self.take_first();
        let readers = std::mem::take(&mut *locked(&self.readers));
        let mut all = readers.into_iter().chain(first).chain(writer);
        // The one that writes, if there is one, comes last.
        let last = all.by_ref().reduce(|_closed, next| next);
        let is_retired = *self.is_retired.get_mut();
        if let (Some(last), Some(place)) = (last, &self.place)
            && !is_retired
            && place.check().is_ok()
        {
            let _ = last.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false);
        }
    }
}

/// A reading connection in use.
pub(super) struct Lent<'c> {
    of: &'c Connections,
    connection: Option<Connection>,
}

impl Lent<'_> {
    pub(super) fn connection(&mut self) -> StoreResult<&mut Connection> {
        self.connection.as_mut().ok_or(StoreError::FileReplaced)
    }

    /// Closes the connection, which is of no use any more.
    pub(super) fn spoiled(mut self) {
        self.connection = None;
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            let mut readers = locked(&self.of.readers);
            if readers.len() < MAX_IDLE_READERS {
                readers.push(connection);
            }
        }
        self.of.lent.fetch_sub(1, Ordering::AcqRel);
        // Not before it is given back: who retires the store either finds it, or is seen here.
        if self.of.is_retired.load(Ordering::Acquire) {
            self.of.retire();
        }
    }
}

/// Keeps a connection from moving and deleting the log when it is closed.
pub(super) fn keep_log_at_close(connection: &Connection) -> rusqlite::Result<()> {
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
        .map(|_| ())
}

/// Closes the connections of all stale stores that this process has open on the file at `path`, before it is
/// opened again.
///
/// # Errors
/// [`StoreError::Busy`] if one of them is in use for longer than `patience`.
pub(super) fn retire_stale(path: &Path, patience: Duration) -> StoreResult<()> {
    let open: Vec<_> = locked(&OPEN).iter().filter_map(Weak::upgrade).collect();
    let is_stale = |store: &Arc<Connections>| {
        let place = store.place.as_ref();
        place.is_some_and(|place| place.is_of(path)) && store.check().is_err()
    };
    let deadline = Instant::now() + patience;
    for store in open.into_iter().filter(is_stale) {
        while !store.is_closed() {
            if Instant::now() >= deadline {
                return Err(StoreError::Busy);
            }
            std::thread::sleep(STEP);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::SqliteStore;
    use super::super::place::with_end;
    use super::*;
    use crate::model::{Session, SessionId};

    fn add(store: &SqliteStore, id: &str) -> StoreResult<()> {
        crate::store::write(store, |write| {
            let session = Session::new(SessionId::new(id).unwrap(), "agent");
            crate::store::session::create_session(write, &session, None, None).map(|_| ())
        })
    }

    fn count(store: &SqliteStore) -> StoreResult<usize> {
        crate::store::read(store, |read| Ok(read.sessions()?.len()))
    }

    fn checked(path: &Path) -> String {
        let connection = Connection::open(path).unwrap();
        let sql = "PRAGMA integrity_check";
        connection.query_row(sql, [], |row| row.get(0)).unwrap()
    }

    /// A store whose log was removed under it, and what each way of finding that out leaves behind.
    fn lose_log(notice: impl FnOnce(&SqliteStore), close_old_first: bool) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("some.db");
        let old = SqliteStore::open(&path).unwrap();
        add(&old, "in the file").unwrap();
        drop(SqliteStore::open(&path).unwrap());
        // All of it is in the file, and the log that is removed holds one session more.
        old.copy_to(&folder.path().join("copy.db"), &mut |_, _| ())
            .unwrap();
        let checkpoint = Connection::open(&path).unwrap();
        checkpoint
            .query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(()))
            .unwrap();
        drop(checkpoint);
        add(&old, "in the log").unwrap();
        std::fs::remove_file(with_end(&path, "-wal")).unwrap();
        notice(&old);

        let new = SqliteStore::open(&path).unwrap();
        for id in ["a", "b", "c", "d", "e"] {
            add(&new, id).unwrap();
            assert!(matches!(add(&old, "x"), Err(StoreError::FileReplaced)));
            assert!(matches!(count(&old), Err(StoreError::FileReplaced)));
        }
        let (first, second) = if close_old_first {
            (old, new)
        } else {
            (new, old)
        };
        drop(first);
        drop(second);
        assert_eq!(checked(&path), "ok");
        assert_eq!(count(&SqliteStore::open(&path).unwrap()).unwrap(), 6);
    }

    #[test]
    fn a_stale_store_writes_nothing_and_is_opened_again_beside_it() {
        for close_old_first in [true, false] {
            lose_log(|_| (), close_old_first);
            lose_log(|old| assert!(add(old, "x").is_err()), close_old_first);
            lose_log(|old| assert!(count(old).is_err()), close_old_first);
        }
    }

    #[test]
    fn a_commit_to_a_log_that_is_gone_is_not_acknowledged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("some.db");
        let store = SqliteStore::open(&path).unwrap();
        add(&store, "a").unwrap();
        let refused = store.transaction(|connection| {
            std::fs::remove_file(with_end(&path, "-wal")).unwrap();
            connection
                .execute_batch("CREATE TABLE of_a_user (x); DROP TABLE of_a_user")
                .unwrap();
            Ok(())
        });
        assert!(
            matches!(refused, Err(StoreError::FileReplaced)),
            "{refused:?}"
        );
        assert!(matches!(count(&store), Err(StoreError::FileReplaced)));
        assert_eq!(store.connections.counted(), (false, true, 0));
    }

    #[test]
    fn a_stale_store_in_use_keeps_its_file_from_being_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("some.db");
        let options = super::super::SqliteOptions::default();
        let options = options.busy_timeout(Duration::from_millis(20));
        let old = SqliteStore::open(&path).unwrap();
        add(&old, "a").unwrap();
        old.snapshot(|_| {
            std::fs::remove_file(with_end(&path, "-wal")).unwrap();
            let refused = SqliteStore::open_with(&path, options.clone());
            assert!(matches!(refused, Err(crate::store::OpenError::Busy)));
            Ok(())
        })
        .unwrap();
        SqliteStore::open_with(&path, options).unwrap();
    }

    /// Whoever closes last, no log is left that holds all that was committed.
    #[test]
    fn the_last_store_moves_the_log_into_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("some.db");
        let stores = [(); 3].map(|()| SqliteStore::open(&path).unwrap());
        for (store, id) in stores.iter().zip(["a", "b", "c"]) {
            add(store, id).unwrap();
            assert!(count(store).is_ok());
        }
        let log = with_end(&path, "-wal");
        for store in stores {
            assert!(log.exists());
            drop(store);
        }
        assert!(!log.exists());
    }
}
