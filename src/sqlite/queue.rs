//! A fair queue of writers, within a process and between processes.
//!
//! SQLite lets a writer that finds the database locked sleep and try again, so one that just
//! committed is always there first, and others may starve for seconds. Here the threads of a process
//! stand in line, and the processes take turns at an advisory lock on a small file beside the
//! database. A process keeps its turn for [`TURN`] across transactions: handing the lock over costs
//! more than most transactions do. Then it steps back if somebody wished for the lock meanwhile.
//!
//! The queue keeps nobody out: SQLite's own lock does, also from programs that know of no queue. So
//! where the file cannot be made or locked, all that is lost is the fairness.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use loopstore_locks::OwnFile;

use super::place::with_end;
use crate::failpoints::{self, Failpoint};
use crate::store::error::{StoreError, StoreResult};

/// The longest time that a process keeps the lock while others wait.
const TURN: Duration = Duration::from_millis(5);
/// The time it steps back then. A waiter is woken at once and needs some tens of microseconds.
const STEP_BACK: Duration = Duration::from_micros(300);
/// The time that a waiter spins for the lock before it sleeps.
const SPIN: Duration = Duration::from_micros(300);

/// The line before the writer of one store.
pub(super) struct Queue {
    line: Mutex<WaitingThreads>,
    moved: Condvar,
    /// Touched only by the first of the line.
    lock: Mutex<ProcessLock>,
}

/// The threads of this process that write or wait to.
#[derive(Default)]
struct WaitingThreads {
    next: u64,
    waiting: VecDeque<u64>,
}

/// The right to write; lets the next one in when it is dropped.
pub(super) struct Ticket<'q> {
    queue: &'q Queue,
    number: u64,
}

impl Queue {
    /// A queue before the database at `path`; of one in memory there are no other processes.
    pub(super) fn new(path: Option<&Path>) -> Self {
        Self {
            line: Mutex::default(),
            moved: Condvar::new(),
            lock: Mutex::new(ProcessLock::new(path)),
        }
    }

    /// Waits until it is this thread's turn.
    ///
    /// # Errors
    /// [`StoreError::Busy`] if that takes longer than `timeout`.
    pub(super) fn enter(&self, timeout: Duration) -> StoreResult<Ticket<'_>> {
        let deadline = Instant::now() + timeout;
        let mut line = locked(&self.line);
        let number = line.next;
        line.next += 1;
        line.waiting.push_back(number);
        // From here on whatever ends this function leaves the line.
        let ticket = Ticket {
            queue: self,
            number,
        };
        if failpoints::is_active(Failpoint::UnfairQueue) {
            return Ok(ticket);
        }
        while line.waiting.front() != Some(&number) {
            let Some(left) = left(deadline) else {
                drop(line);
                return Err(StoreError::Busy);
            };
            let woken = self.moved.wait_timeout(line, left);
            line = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(line);
        locked(&self.lock).take(deadline)?;
        Ok(ticket)
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut line = locked(&self.queue.line);
        if line.waiting.front() == Some(&self.number) {
            locked(&self.queue.lock).give_back();
        }
        line.waiting.retain(|number| *number != self.number);
        // To wake nobody costs a call of the system all the same.
        if !line.waiting.is_empty() {
            self.queue.moved.notify_all();
        }
    }
}

/// Locks a mutex whose value is consistent even if a thread panicked with it.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn left(deadline: Instant) -> Option<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    (!left.is_zero()).then_some(left)
}

/// The lock between processes. The file holds a number that those who wait change, so that whoever
/// has the lock sees that somebody waits.
struct ProcessLock {
    /// `None`: there is no such lock.
    path: Option<PathBuf>,
    file: Option<OwnFile>,
    turn_ends: Instant,
    wishes: u64,
}

impl ProcessLock {
    fn new(database: Option<&Path>) -> Self {
        Self {
            path: database.map(queue_file),
            file: None,
            turn_ends: Instant::now(),
            wishes: 0,
        }
    }

    fn take(&mut self, deadline: Instant) -> StoreResult<()> {
        let Some(file) = self.open() else {
            return Ok(());
        };
        if Instant::now() >= self.turn_ends {
            self.begin_turn(&file);
        }
        let file = match (lock_soon(&file), &self.path) {
            (Err(TryLockError::WouldBlock), Some(path)) => {
                let file = wait_for(path, file, deadline)?;
                self.wishes = wishes(&file);
                self.turn_ends = Instant::now() + TURN;
                file
            }
            // Locked, or a file system that knows no locks.
            _ => file,
        };
        self.file = Some(file);
        Ok(())
    }

    fn open(&mut self) -> Option<OwnFile> {
        let opened = match (self.file.take(), &self.path) {
            (None, Some(path)) => open(path).ok(),
            (file, _) => file,
        };
        if opened.is_none() {
            self.path = None;
        }
        opened
    }

    /// Lets another process go first if one has waited since the last turn began.
    fn begin_turn(&mut self, file: &File) {
        let wishes = wishes(file);
        if wishes != self.wishes {
            self.wishes = wishes;
            std::thread::sleep(STEP_BACK);
        }
        self.turn_ends = Instant::now() + TURN;
    }

    fn give_back(&mut self) {
        if let Some(file) = &self.file
            && file.unlock().is_err()
        {
            // Closing it lets go too.
            self.file = None;
        }
    }
}

/// Returns the file of the queue before a database.
pub(super) fn queue_file(database: &Path) -> PathBuf {
    // As SQLite names its log: beside the file that a link leads to.
    let real = database.canonicalize();
    with_end(real.as_deref().unwrap_or(database), "-queue")
}

/// Opens the file of a queue. A forked child has no part in its locks.
pub(super) fn open(path: &Path) -> std::io::Result<OwnFile> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.mode(0o600).open(path).map(OwnFile::new)
}

/// Looks for the lock again and again for a moment: most transactions are over before a thread that
/// waits would have begun.
fn lock_soon(file: &File) -> Result<(), TryLockError> {
    let end = Instant::now() + SPIN;
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if Instant::now() < end => std::thread::yield_now(),
            tried => return tried,
        }
    }
}

/// Waits for the lock on a thread of its own, since such a wait cannot be ended.
fn wait_for(path: &Path, known: OwnFile, deadline: Instant) -> StoreResult<OwnFile> {
    let failed = |error: std::io::Error| StoreError::Other(Box::new(error));
    let file = open(path).map_err(failed)?;
    let (sender, receiver) = mpsc::channel();
    let waiting = std::thread::Builder::new().name("write-queue".into());
    let wait = move || {
        let locked = file.lock().map(|()| file);
        // Nobody may wait any more: then the file is closed here, and the lock is free.
        let _ = sender.send(locked);
    };
    waiting.spawn(wait).map_err(failed)?;
    loop {
        // Said again and again: who gets the lock next may not have seen it.
        wish(&known);
        let Some(left) = left(deadline) else {
            return Err(StoreError::Busy);
        };
        match receiver.recv_timeout(left.min(TURN)) {
            Ok(locked) => return locked.map_err(failed),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(StoreError::Busy),
        }
    }
}

fn wishes(file: &File) -> u64 {
    let mut bytes = [0; 8];
    match file.read_exact_at(&mut bytes, 0) {
        Ok(()) => u64::from_le_bytes(bytes),
        Err(_) => 0,
    }
}

/// Two that wish at once may write the same number; it has changed all the same.
fn wish(file: &File) {
    let next = wishes(file).wrapping_add(1);
    // A wish that is not heard costs time, nothing else.
    let _ = file.write_all_at(&next.to_le_bytes(), 0);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Ends a test that hangs, and judges no speed.
    const LONG: Duration = Duration::from_secs(300);

    #[test]
    fn threads_are_served_in_the_order_in_which_they_came() {
        #[cfg(debug_assertions)]
        if let Ok(fault) = std::env::var("LOOPSTORE_BROKEN") {
            failpoints::activate(&fault);
        }
        let queue = Queue::new(None);
        let served = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            let first = queue.enter(LONG).unwrap();
            for number in 0..8 {
                let (queue, served) = (&queue, &served);
                scope.spawn(move || {
                    let _place = queue.enter(LONG).unwrap();
                    locked(served).push(number);
                });
                while locked(&queue.line).waiting.len() < number + 2 {
                    assert!(locked(served).is_empty(), "one was served before its turn");
                    std::thread::yield_now();
                }
            }
            drop(first);
        });
        assert_eq!(*locked(&served), (0..8).collect::<Vec<_>>());
    }

    #[test]
    #[cfg(debug_assertions)]
    fn writers_that_do_not_queue_are_found_out() {
        let test = "sqlite::queue::tests::threads_are_served_in_the_order_in_which_they_came";
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env("LOOPSTORE_BROKEN", "unfair-queue")
            .output()
            .unwrap();
        assert!(!output.status.success());
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("served before its turn"), "{text}");
    }

    #[test]
    fn who_waits_too_long_leaves_the_line() {
        let queue = Queue::new(None);
        let first = queue.enter(LONG).unwrap();
        let refused = queue.enter(Duration::from_millis(5));
        assert!(matches!(refused, Err(StoreError::Busy)));
        drop(refused);
        drop(first);
        assert!(queue.enter(Duration::ZERO).is_ok());
    }

    #[test]
    fn a_panic_lets_the_next_one_in() {
        let queue = Queue::new(None);
        std::thread::scope(|scope| {
            let panicking = scope.spawn(|| {
                let _place = queue.enter(LONG).unwrap();
                panic!("on purpose");
            });
            assert!(panicking.join().is_err());
        });
        assert!(queue.enter(Duration::ZERO).is_ok());
    }

    /// Two queues before one database are as two processes: a lock belongs to an open file.
    #[test]
    fn processes_exclude_each_other_and_all_get_their_turns() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("some.db");
        let within = AtomicUsize::new(0);
        let written = [(); 3].map(|()| AtomicUsize::new(0));
        let all_write = || written.iter().all(|turns| turns.load(Ordering::SeqCst) > 1);
        let write_until_all_have = |turns: &AtomicUsize| {
            let queue = Queue::new(Some(&database));
            while !all_write() {
                let place = queue.enter(LONG).unwrap();
                assert_eq!(within.fetch_add(1, Ordering::SeqCst), 0);
                std::thread::sleep(Duration::from_micros(50));
                within.fetch_sub(1, Ordering::SeqCst);
                drop(place);
                turns.fetch_add(1, Ordering::SeqCst);
            }
        };
        std::thread::scope(|scope| {
            for turns in &written {
                scope.spawn(|| write_until_all_have(turns));
            }
        });
    }

    #[test]
    fn a_lock_that_is_held_for_too_long_ends_in_busy_and_is_free_later() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("some.db");
        let (ours, theirs) = (Queue::new(Some(&database)), Queue::new(Some(&database)));
        let place = theirs.enter(LONG).unwrap();
        let refused = ours.enter(Duration::from_millis(20));
        assert!(matches!(refused, Err(StoreError::Busy)));
        drop(refused);
        drop(place);
        assert!(ours.enter(LONG).is_ok());
    }

    #[test]
    fn without_a_place_for_its_file_there_is_no_lock() {
        let queue = Queue::new(Some(Path::new("/nowhere/at/all.db")));
        assert!(queue.enter(Duration::ZERO).is_ok());
    }
}
