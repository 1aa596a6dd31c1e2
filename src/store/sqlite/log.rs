//! Keeping the write-ahead log short.
//!
//! SQLite moves the log into the database whenever it has grown by 1,000 pages, but begins it anew only
//! at a moment when nobody reads from it. Between readers that never leave such a moment it would
//! grow without end. So where it has become long, a writer waits a little for the readers, who then
//! find all in the database and leave the log alone.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::place::with_end;

/// From how many bytes on the log is long.
const LONG: u64 = 32 << 20;
/// How long a writer waits for readers.
const WAIT: Duration = Duration::from_millis(40);
/// How long it lets them be after that was in vain: somebody reads for longer.
const PAUSE: Duration = Duration::from_millis(400);

/// The log of one database.
pub(super) struct Log {
    /// `None`: the database is in memory.
    path: Option<PathBuf>,
    next_try: Mutex<Instant>,
}

impl Log {
    pub(super) fn new(database: Option<&Path>) -> Self {
        Self {
            path: database.map(|database| with_end(database, "-wal")),
            next_try: Mutex::new(Instant::now()),
        }
    }

    /// Empties the log if it is long and its readers allow it; after a commit, by its writer.
    /// `timeout` is the connection's own.
    pub(super) fn keep_short(&self, connection: &Connection, timeout: Duration) {
        let Some(path) = &self.path else { return };
        if std::fs::metadata(path).map_or(0, |log| log.len()) < LONG {
            return;
        }
        let mut next_try = self.next_try.lock().unwrap_or_else(PoisonError::into_inner);
        if Instant::now() < *next_try {
            return;
        }
        // The commit stands whatever comes of this: a log that stays long is emptied later.
        if connection.busy_timeout(WAIT).is_ok() {
            let _ = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        }
        let _ = connection.busy_timeout(timeout);
        *next_try = Instant::now() + PAUSE;
    }
}
