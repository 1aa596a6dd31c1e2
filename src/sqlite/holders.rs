//! A lock that shows that the holder of a lease lives: the system drops it with its process.
//!
//! Each holder locks one byte of the file at which writers queue (`FILE-queue`), named by the lease's
//! loop and token. Whoever wants the lease tests that byte: if nobody has it locked, the holder is gone,
//! however it died. The locks are *open file description locks*: unlike other POSIX locks they hold
//! between the stores of one process too, and are not lost when some other part of the process closes the
//! file. They do not touch the lock of the queue, which is of another kind (`flock`). A process id would
//! not do: another container counts its own.
//!
//! Without such locks (a database in memory, a network file system, a system other than Linux),
//! nothing is known of a holder, and the time of its lease decides.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use loopstore_locks::{HAS_LOCKS, OwnFile, is_byte_free, lock_byte, unlock_byte};

use super::queue::{open, queue_file};
use crate::store::error::{StoreError, StoreResult};
use crate::store::lease::LeaseGuard;
use crate::store::{LeaseRow, LoopKey};

/// The locks of the leases of one database.
pub(super) struct LeaseLocks {
    /// `None`: there are none.
    path: Option<PathBuf>,
    /// Opened with the first lock; all locks of this store are on it.
    file: Mutex<Option<Arc<OwnFile>>>,
}

impl LeaseLocks {
    /// The locks beside the database at `path`; `None` where there can be none.
    pub(super) fn new(path: Option<&Path>) -> Self {
        Self {
            path: path.map(queue_file),
            file: Mutex::default(),
        }
    }

    /// Shows that the holder of a lease lives, until the guard is dropped or the process ends.
    ///
    /// # Errors
    /// If the file cannot be opened: whoever asks for the lease would take its holder for dead.
    pub(super) fn lock(&self, loop_key: LoopKey, token: i64) -> StoreResult<Option<LeaseGuard>> {
        let Some(path) = &self.path else {
            return Ok(None);
        };
        let mut shared = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let file = match &*shared {
            Some(file) => Arc::clone(file),
            None => {
                let file = open(path).map_err(|error| StoreError::Io(Box::new(error)))?;
                Arc::clone(shared.insert(Arc::new(file)))
            }
        };
        let at = place_of(loop_key, token);
        Ok(lock_byte(&file, at).then(|| Arc::new(HolderLock { file, at }) as LeaseGuard))
    }

    /// True if the holder of a lease is known to be gone.
    pub(super) fn is_gone(&self, lease: &LeaseRow) -> bool {
        let Some(path) = &self.path else {
            return false;
        };
        // A lock does not stand in the way of its own file.
        match OpenOptions::new().read(true).open(path) {
            Ok(file) => is_byte_free(&file, place_of(lease.loop_key, lease.token)),
            // Every holder has made the file.
            Err(error) => error.kind() == std::io::ErrorKind::NotFound && HAS_LOCKS,
        }
    }
}

/// A lock on a byte; it ends with this value.
struct HolderLock {
    file: Arc<OwnFile>,
    at: i64,
}

impl Drop for HolderLock {
    fn drop(&mut self) {
        unlock_byte(&self.file, self.at);
    }
}

/// Returns the byte of a lease. Keys and tokens beyond 31 bits may share one; then time decides.
fn place_of(loop_key: LoopKey, token: i64) -> i64 {
    let low = |number: i64| number & 0x7FFF_FFFF;
    (low(loop_key.0) << 31) | low(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(loop_key: i64, token: i64) -> LeaseRow {
        LeaseRow {
            loop_key: LoopKey(loop_key),
            owner: "one".into(),
            token,
            ttl: 1,
            renewed_at: 0,
            expires_at: 1,
            released: false,
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_holder_lives_as_long_as_its_guard_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("some.db");
        let (ours, theirs) = (
            LeaseLocks::new(Some(&database)),
            LeaseLocks::new(Some(&database)),
        );
        assert!(ours.is_gone(&lease(1, 1)), "there is no file yet");
        let one = ours.lock(LoopKey(1), 1).unwrap().unwrap();
        let two = ours.lock(LoopKey(2), 1).unwrap().unwrap();
        for asks in [&ours, &theirs] {
            assert!(!asks.is_gone(&lease(1, 1)));
            assert!(!asks.is_gone(&lease(2, 1)));
            assert!(asks.is_gone(&lease(1, 2)));
        }
        // Unlike POSIX locks, this one outlasts the closing of other descriptors of the file.
        drop(std::fs::File::open(queue_file(&database)).unwrap());
        assert!(!theirs.is_gone(&lease(1, 1)));
        drop(one);
        for asks in [&ours, &theirs] {
            assert!(asks.is_gone(&lease(1, 1)));
            assert!(!asks.is_gone(&lease(2, 1)));
        }
        drop((ours, two));
        assert!(theirs.is_gone(&lease(2, 1)));
    }

    #[test]
    fn without_a_file_nothing_is_known() {
        let none = LeaseLocks::new(None);
        assert!(none.lock(LoopKey(1), 1).unwrap().is_none());
        assert!(!none.is_gone(&lease(1, 1)));
    }
}
