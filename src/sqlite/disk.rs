//! Waiting for the disk after a commit, outside of the transaction.
//!
//! With `synchronous=FULL` SQLite waits for the disk while it holds the lock of the writers, so that
//! each waits for the waits of all others. Here the writer commits as with `synchronous=NORMAL`, lets
//! the next one in, and only then waits, before the commit is acknowledged. One wait is for all commits
//! before it: the log is one file, and is read back from its beginning. Who reads may so see a commit
//! some moments before it would outlast a power loss.
//!
//! A disk that failed once may have dropped what it was to write, and says nothing of it the next time.
//! So after that the log is not trusted until all of it has been moved into the database, which waits
//! for the disk in its own way. That is a second best: what is moved is what the system still holds of
//! the log in memory. Until it succeeds no write is confirmed, though each is there for readers.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use crate::failpoints::{self, Failpoint};
use crate::store::error::{StoreError, StoreResult};

/// The disk below the log of one database.
pub(super) struct Disk {
    log: PathBuf,
    state: Mutex<SyncState>,
}

#[derive(Default)]
struct SyncState {
    /// The log; opened with the first wait. Whoever has it open is told of a failure once.
    file: Option<File>,
    /// So many commits of this store are known to outlast a power loss.
    safe: u64,
    /// The error of the last sync that failed, until a later one succeeds.
    failure: Option<String>,
    /// So many commits were there when that was last tried.
    tried: u64,
}

impl Disk {
    /// The disk below this log.
    pub(super) fn below(log: PathBuf) -> Self {
        Self {
            log,
            state: Mutex::default(),
        }
    }

    /// Waits until the first `commits` of this store would outlast a power loss. `made` says how many
    /// there are by now; `move_all` moves the whole log into the database.
    ///
    /// # Errors
    /// [`StoreError::Unconfirmed`] if the disk fails, and the log cannot be moved.
    pub(super) fn wait_for(
        &self,
        commits: u64,
        made: impl Fn() -> u64,
        move_all: impl FnOnce() -> StoreResult<()>,
    ) -> StoreResult<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.safe >= commits || failpoints::is_active(Failpoint::EarlyAnswer) {
            return Ok(());
        }
        let all = made();
        if state.failure.is_none() {
            state.failure = self.sync(&mut state.file).err().map(|e| e.to_string());
        }
        if let Some(failure) = state.failure.take() {
            // Others have waited for this one to try; it would fail for them too.
            if state.tried >= commits || move_all().is_err() {
                let cause = io::Error::other(format!("the disk failed: {failure}"));
                state.tried = all.max(state.tried);
                state.failure = Some(failure);
                return Err(StoreError::Unconfirmed(Box::new(cause)));
            }
        }
        state.safe = all;
        Ok(())
    }

    fn sync(&self, file: &mut Option<File>) -> io::Result<()> {
        let log = match file {
            Some(log) => log,
            None => file.insert(File::open(&self.log)?),
        };
        log.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn never() -> StoreResult<()> {
        panic!("the log is moved without need")
    }

    fn with_log() -> (tempfile::TempDir, Disk) {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("some.db-wal");
        std::fs::write(&log, "frames").unwrap();
        (folder, Disk::below(log))
    }

    #[test]
    fn one_wait_is_for_all_commits_before_it() {
        let (folder, disk) = with_log();
        disk.wait_for(1, || 5, never).unwrap();
        // Neither the log nor the number of commits is looked at again.
        drop(folder);
        disk.state.lock().unwrap().file = None;
        disk.wait_for(5, || panic!("waits again"), never).unwrap();
        let moved = Cell::new(false);
        let move_all = || {
            moved.set(true);
            Ok(())
        };
        disk.wait_for(6, || 6, move_all).unwrap();
        assert!(moved.get());
    }

    /// A commit that came while the disk was waited for is not known to be on it.
    #[test]
    fn commits_are_counted_before_the_wait() {
        let (_folder, disk) = with_log();
        let moved = Cell::new(false);
        // Without its log the wait fails, if it has not been yet.
        let made = || {
            std::fs::remove_file(&disk.log).unwrap();
            1
        };
        let move_all = || {
            moved.set(true);
            Ok(())
        };
        disk.wait_for(1, made, move_all).unwrap();
        assert!(moved.get());
    }

    #[test]
    fn after_a_failure_no_wait_is_trusted_until_all_is_moved() {
        let (_folder, disk) = with_log();
        let log = disk.log.with_extension("gone");
        std::fs::rename(&disk.log, &log).unwrap();
        let fails = || Err(StoreError::Busy);
        for commit in 1..3 {
            let refused = disk.wait_for(commit, || commit, fails);
            assert!(matches!(refused, Err(StoreError::Unconfirmed(_))));
        }
        // The disk works again, but what it dropped is not known.
        std::fs::rename(&log, &disk.log).unwrap();
        let refused = disk.wait_for(3, || 4, fails);
        assert!(matches!(refused, Err(StoreError::Unconfirmed(_))));
        // Commits that waited for the same sync fail with it.
        let refused = disk.wait_for(4, || 4, never);
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("the disk failed: No such file"), "{error}");
        disk.wait_for(5, || 5, || Ok(())).unwrap();
        disk.wait_for(6, || 6, never).unwrap();
    }
}
