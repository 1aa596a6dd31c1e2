//! Keeping the write-ahead log short.
//!
//! The pages of the log have to be moved into the database one day, which costs as much as writing them
//! did. SQLite lets a committing writer do that; here a thread of its own does, which is started when the
//! log has first grown by `WORTH_MOVING`.
//!
//! The log begins anew only where all of it is moved and nobody reads from it. A writer that never
//! stops leaves no such moment: when the thread has moved all but a few pages, the writer moves those. To
//! write into the beginning of a file that is there costs half as much as to make it longer.
//!
//! Between writers and readers that never leave such a moment the log would grow without end all the same.
//! So where it has become long, a writer moves what is left and waits a little for the readers, who then
//! find all in the database and leave the log alone.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::types::Value;
use rusqlite::{Connection, ErrorCode};

use super::from_sqlite;
use super::place::OpenFiles;
use super::schema::PAGE_BYTES;
use crate::store::error::{StoreError, StoreResult};

/// New KiB that are worth moving.
const WORTH_MOVING: u32 = 8 << 10;
/// From how many bytes on the log is long …
pub(super) const LONG_BYTES: u32 = 32 << 20;
/// … and of how many KiB.
const LONG: u32 = LONG_BYTES >> 10;
/// From how many KiB on a writer leaves all moving to the mover: it would take seconds.
const MANY: u32 = 4 * LONG;
/// KiB that a writer moves itself.
const FEW: u32 = 1600;
/// Passes of the mover behind a writer that never stops.
const PASSES: usize = 8;
/// The time that a writer waits for readers.
const WAIT: Duration = Duration::from_millis(40);
/// The pause after a wait in vain. Mostly a reader was only kept from its processor …
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// … but where it is in vain again and again somebody reads for longer.
const PAUSE: Duration = Duration::from_millis(400);
/// The time that a writer waits for a mover that has fallen behind. Others wait for the writer meanwhile.
const BEHIND: Duration = Duration::from_millis(200);

/// The log of one database.
pub(super) struct Log {
    /// The files; `None` in memory.
    place: Option<Arc<OpenFiles>>,
    /// Commits of this store to it.
    commits: Arc<AtomicU64>,
    /// KiB in it after the last of them.
    length: Arc<AtomicU32>,
    /// KiB that the mover moved since it was last woken.
    moved: Arc<AtomicU32>,
    /// True until the pages that the mover was last woken for are moved.
    is_due: Arc<AtomicBool>,
    /// KiB that the mover could not move when it last tried, as somebody reads what was there before.
    left: Arc<AtomicU32>,
    /// Held by whoever moves pages: SQLite refuses a second one at once.
    moving: Arc<Mutex<()>>,
    state: Mutex<LogState>,
}

struct LogState {
    /// KiB when the mover was last woken.
    woken_at: u32,
    mover: Option<Mover>,
    next_try: Instant,
    /// The next pause.
    pause: Duration,
}

impl LogState {
    /// Lets the readers be for a while, each time for longer.
    fn rest(&mut self) {
        self.next_try = Instant::now() + self.pause;
        self.pause = PAUSE.min(2 * self.pause);
    }
}

impl Log {
    /// A log that nobody has written to yet.
    pub(super) fn new(place: Option<Arc<OpenFiles>>) -> Self {
        Self {
            place,
            commits: Arc::default(),
            length: Arc::default(),
            moved: Arc::default(),
            is_due: Arc::default(),
            left: Arc::default(),
            moving: Arc::default(),
            state: Mutex::new(LogState {
                woken_at: 0,
                mover: None,
                next_try: Instant::now(),
                pause: FIRST_PAUSE,
            }),
        }
    }

    /// Takes the log over from SQLite: counts what this writer puts into it.
    pub(super) fn count(&self, writer: &mut Connection) -> rusqlite::Result<()> {
        let (commits, length) = (Arc::clone(&self.commits), Arc::clone(&self.length));
        let page = page_kib(writer)?;
        writer.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages| {
            let pages = u32::try_from(pages).unwrap_or(0);
            length.store(pages.saturating_mul(page), Ordering::Relaxed);
            // Whoever reads the number waits for what was written before it was raised.
            commits.fetch_add(1, Ordering::Release);
            Ok(())
        }))
    }

    /// Checks that the log is the one beside the file. One that is not must never be moved into it.
    ///
    /// # Errors
    /// [`StoreError::FileReplaced`] if it is not.
    pub(super) fn check(&self) -> StoreResult<()> {
        self.place
            .as_ref()
            .map_or(Ok(()), |place| place.check().map(drop))
    }

    /// Ends the mover, which closes its connection.
    pub(super) fn stop(&self) {
        let mover = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.mover.take()
        };
        drop(mover);
    }

    /// Returns how many commits this store has made.
    pub(super) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Acquire)
    }

    /// Keeps the log short; after a commit, by its writer. `timeout` is that connection's own, `open`
    /// opens another one.
    pub(super) fn committed<E>(
        &self,
        writer: &Connection,
        timeout: Duration,
        open: impl FnOnce() -> Result<Connection, E>,
    ) {
        let length = self.length.load(Ordering::Relaxed);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if length >= LONG && Instant::now() >= state.next_try {
            self.begin_anew(writer, timeout, length, &mut state);
        }
        // It has begun anew since.
        if length < state.woken_at {
            state.woken_at = 0;
        }
        if length < state.woken_at + WORTH_MOVING {
            self.catch_up(writer, length, &mut state);
            return;
        }
        state.woken_at = length;
        if state.mover.is_none() {
            state.mover = open().ok().and_then(|own| self.mover(own));
        }
        self.moved.store(0, Ordering::Relaxed);
        self.wake(&mut state);
    }

    /// Wakes the mover; one that has ended is begun anew the next time.
    fn wake(&self, state: &mut LogState) {
        self.is_due.store(true, Ordering::Relaxed);
        if state.mover.as_ref().is_some_and(|mover| !mover.wake()) {
            state.mover = None;
        }
    }

    /// Lets the next commit begin the log anew, if its readers allow it.
    fn begin_anew(
        &self,
        writer: &Connection,
        timeout: Duration,
        length: u32,
        state: &mut LogState,
    ) {
        let _moving = match self.moving.try_lock() {
            Ok(alone) => alone,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // It is being moved; but a mover that falls behind is waited for.
            Err(TryLockError::WouldBlock) if length < LONG + LONG / 2 => return,
            Err(TryLockError::WouldBlock) => match self.alone_within(BEHIND) {
                Some(alone) => alone,
                None => return,
            },
        };
        // Pages left behind by a long reader take seconds to move, and nobody could write meanwhile.
        if self.left.load(Ordering::Relaxed) > MANY {
            self.wake(state);
            state.rest();
            return;
        }
        // The commit stands whatever comes of this: a log that stays long is moved later.
        let mut is_busy = true;
        if writer.busy_timeout(WAIT).is_ok() {
            let sql = "PRAGMA wal_checkpoint(RESTART)";
            is_busy = writer.query_row(sql, [], |row| row.get(0)).unwrap_or(true);
        }
        let _ = writer.busy_timeout(timeout);
        if is_busy {
            state.rest();
        } else {
            self.is_due.store(false, Ordering::Relaxed);
            state.pause = FIRST_PAUSE;
        }
    }

    /// Moves the few pages that came while the mover moved all others.
    fn catch_up(&self, writer: &Connection, length: u32, state: &mut LogState) {
        let moved = self.moved.load(Ordering::Relaxed);
        if moved == 0 || length - length.min(moved) > FEW {
            return;
        }
        if let Ok(_moving) = self.moving.try_lock() {
            // An error here is met again, and returned, once the log has become long.
            let _ = writer.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
            self.moved.store(0, Ordering::Relaxed);
            self.is_due.store(false, Ordering::Relaxed);
            state.woken_at = length;
        }
    }

    /// Does the same as [`Log::alone`], but not for longer than this.
    fn alone_within(&self, patience: Duration) -> Option<MutexGuard<'_, ()>> {
        let end = Instant::now() + patience;
        loop {
            match self.moving.try_lock() {
                Ok(alone) => return Some(alone),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if Instant::now() >= end => return None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Waits until nobody else of this store moves pages, and keeps it so.
    pub(super) fn alone(&self) -> MutexGuard<'_, ()> {
        self.moving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mover(&self, connection: Connection) -> Option<Mover> {
        let (wake, woken) = sync_channel(1);
        let moving = Arc::clone(&self.moving);
        let shared = [&self.length, &self.moved, &self.left].map(Arc::clone);
        let is_due = Arc::clone(&self.is_due);
        let place = self.place.clone();
        let thread = std::thread::Builder::new().name("loopstore-log".into());
        let thread = thread.spawn(move || {
            let is_still_there = || place.as_ref().is_none_or(|place| place.check().is_ok());
            move_pages(
                &connection,
                &woken,
                &moving,
                &is_due,
                &shared,
                is_still_there,
            );
        });
        Some(Mover {
            wake: Some(wake),
            thread: Some(thread.ok()?),
        })
    }
}

/// Returns the KiB of a page, at least one: a file keeps the size that it was made with.
fn page_kib(connection: &Connection) -> rusqlite::Result<u32> {
    // SQLCipher answers with a text.
    let bytes = connection.pragma_query_value(None, "page_size", |row| {
        Ok(match row.get(0)? {
            Value::Integer(bytes) => u32::try_from(bytes).ok(),
            Value::Text(bytes) => bytes.parse().ok(),
            _ => None,
        })
    })?;
    Ok((bytes.unwrap_or(PAGE_BYTES) >> 10).max(1))
}

/// Moves the whole log into the database and waits for the disk.
///
/// # Errors
/// [`StoreError::Busy`] if readers or writers do not allow that in time; if the disk fails.
pub(super) fn move_all(writer: &Connection) -> StoreResult<()> {
    let sql = "PRAGMA wal_checkpoint(FULL)";
    let busy: i64 = writer
        .query_row(sql, [], |row| row.get(0))
        .map_err(from_sqlite)?;
    match busy {
        0 => Ok(()),
        _ => Err(StoreError::Busy),
    }
}

/// Moves what readers and writers allow whenever it is woken, until the other end is gone.
fn move_pages(
    connection: &Connection,
    woken: &Receiver<()>,
    moving: &Mutex<()>,
    is_due: &AtomicBool,
    [length, moved, left]: &[Arc<AtomicU32>; 3],
    is_still_there: impl Fn() -> bool,
) {
    let Ok(page) = page_kib(connection) else {
        return;
    };
    for () in woken {
        for _ in 0..PASSES {
            let _alone = moving.lock().unwrap_or_else(PoisonError::into_inner);
            if !is_due.load(Ordering::Relaxed) {
                // The writer did it while this thread waited.
                break;
            }
            if !is_still_there() {
                return;
            }
            // An error here occurs again where the writer moves pages, or at its next commit.
            let pass = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
                let kib = |at| {
                    row.get(at)
                        .map(|pages: i64| u32::try_from(pages).unwrap_or(0).saturating_mul(page))
                };
                Ok((row.get(0)?, kib(1)?, kib(2)?))
            });
            let (all, now) = match pass {
                Ok((false, all, now)) => (all, now),
                // Another process moves them: then it is not known how many are left.
                Ok((true, ..)) => break,
                // A connection that can only read will never move a page.
                Err(error) if error.sqlite_error_code() == Some(ErrorCode::ReadOnly) => return,
                Err(_) => break,
            };
            left.store(all - all.min(now), Ordering::Relaxed);
            moved.store(now, Ordering::Relaxed);
            let new = length.load(Ordering::Relaxed);
            if now < all || new - new.min(now) <= FEW {
                break;
            }
        }
    }
}

/// The thread that moves pages; ends with the store.
struct Mover {
    wake: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Mover {
    /// Returns whether it still runs.
    fn wake(&self) -> bool {
        // One that is awake looks again anyway.
        let sent = self.wake.as_ref().map(|wake| wake.try_send(()));
        !matches!(sent, Some(Err(TrySendError::Disconnected(()))))
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::sqlite::place::with_end;

    /// Ends a test that hangs, and judges no speed.
    const HUNG: Duration = Duration::from_secs(300);

    /// A writer of large rows.
    struct Stage {
        _folder: tempfile::TempDir,
        file: PathBuf,
        log: Log,
        writer: Connection,
    }

    impl Stage {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("loopstore.db");
            let mut writer = Connection::open(&file).unwrap();
            writer
                .execute_batch("PRAGMA journal_mode = wal; CREATE TABLE t (x);")
                .unwrap();
            let log = Log::new(None);
            log.count(&mut writer).unwrap();
            Self {
                _folder: folder,
                file,
                log,
                writer,
            }
        }

        fn commit(&self, bytes: u32) {
            let sql = "INSERT INTO t VALUES (zeroblob(?1))";
            self.writer.execute(sql, [bytes]).unwrap();
            let open = || Connection::open(&self.file);
            self.log
                .committed(&self.writer, Duration::from_secs(5), open);
        }

        fn has_mover(&self) -> bool {
            self.log.state.lock().unwrap().mover.is_some()
        }

        fn bytes(&self, end: &str) -> u64 {
            with_end(&self.file, end).metadata().unwrap().len()
        }
    }

    #[test]
    fn a_long_log_is_moved_without_the_writer() {
        let stage = Stage::new();
        stage.commit(1 << 20);
        assert!(!stage.has_mover(), "a thread for so little");
        assert!(stage.bytes("") < 1 << 20);

        stage.commit(8 << 20);
        let begun = Instant::now();
        while stage.bytes("") < 8 << 20 {
            assert!(begun.elapsed() < HUNG, "nobody moves it");
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(stage.log.alone());
        // All of it is moved, so the next commit stands at its beginning.
        stage.commit(1 << 10);
        assert!(stage.log.length.load(Ordering::Relaxed) < 800);
    }

    #[test]
    fn the_log_stays_short_below_a_writer_that_never_stops() {
        let stage = Stage::new();
        for _ in 0..200 {
            stage.commit(1 << 20);
            assert!(stage.bytes("-wal") < 2 * u64::from(LONG_BYTES) + (4 << 20));
        }
    }

    #[test]
    fn a_reader_makes_it_longer_until_it_has_gone() {
        let stage = Stage::new();
        let reader = Connection::open(&stage.file).unwrap();
        reader
            .execute_batch("BEGIN; SELECT count(*) FROM t")
            .unwrap();
        for _ in 0..40 {
            stage.commit(1 << 20);
        }
        assert!(stage.bytes("-wal") > u64::from(LONG_BYTES));

        reader.execute_batch("COMMIT").unwrap();
        std::thread::sleep(PAUSE);
        stage.commit(1 << 10);
        stage.commit(1 << 10);
        assert!(stage.log.length.load(Ordering::Relaxed) < 800);
    }

    #[test]
    fn a_mover_that_comes_late_moves_nothing_twice() {
        let stage = Stage::new();
        stage.commit(8 << 20);
        let begun = Instant::now();
        while stage.log.moved.load(Ordering::Relaxed) == 0 {
            assert!(begun.elapsed() < HUNG, "nobody moves it");
            std::thread::sleep(Duration::from_millis(5));
        }
        // It is woken, and while it waits the writer moves all.
        let alone = stage.log.alone();
        let mut state = stage.log.state.lock().unwrap();
        stage.log.moved.store(0, Ordering::Relaxed);
        stage.log.wake(&mut state);
        move_all(&stage.writer).unwrap();
        stage.log.is_due.store(false, Ordering::Relaxed);
        let mover = state.mover.take();
        drop((state, alone));
        // Waits until it has ended.
        drop(mover);
        assert_eq!(stage.log.moved.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_a_reader_left_is_moved_by_the_mover_if_it_is_much() {
        let stage = Stage::new();
        (0..40).for_each(|_| stage.commit(1 << 20));
        let length = stage.log.length.load(Ordering::Relaxed);
        stage.log.left.store(u32::MAX, Ordering::Relaxed);
        std::thread::sleep(PAUSE);
        stage.log.state.lock().unwrap().next_try = Instant::now();
        stage.log.length.store(length.max(LONG), Ordering::Relaxed);
        let writer = &stage.writer;
        let none = || Err::<Connection, ()>(());
        stage.log.committed(writer, Duration::from_secs(5), none);
        let begun = Instant::now();
        while stage.log.left.load(Ordering::Relaxed) > MANY {
            assert!(begun.elapsed() < HUNG);
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(PAUSE);
        stage.commit(1 << 10);
        stage.commit(1 << 10);
        assert!(stage.log.length.load(Ordering::Relaxed) < LONG);
    }
}
