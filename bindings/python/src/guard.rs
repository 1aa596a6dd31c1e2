//! What every call goes through.

use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use loopstore::{SessionHandle, Store};
use pyo3::prelude::*;

use crate::errors::Failure;

/// Runs `work` without the GIL. A panic in it becomes an exception.
pub fn call<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, Failure> + Send,
) -> PyResult<T> {
    py.detach(|| {
        let _under_way = CallUnderWay::begin();
        let done = catch_unwind(AssertUnwindSafe(work));
        done.unwrap_or_else(|panic| Err(Failure::Panicked(text_of(&*panic))))
    })
    .map_err(|failure| failure.raise(py))
}

/// Calls that are under way in this process, and whether it is about to be forked.
///
/// A mutex that another thread holds at the moment of a fork stays locked in the child for good, those of
/// SQLite among them, and no store could be opened there. So a fork waits until no call is under way. These
/// are atomics, as a mutex would have the same trouble.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);
static IS_FORKING: AtomicBool = AtomicBool::new(false);

/// How long a fork waits: a call may itself wait for the thread that forks.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_micros(50);

struct CallUnderWay;

impl CallUnderWay {
    fn begin() -> Self {
        loop {
            UNDER_WAY.fetch_add(1, Ordering::SeqCst);
            if !IS_FORKING.load(Ordering::SeqCst) {
                return Self;
            }
            UNDER_WAY.fetch_sub(1, Ordering::SeqCst);
            while IS_FORKING.load(Ordering::SeqCst) {
                std::thread::sleep(LOOK);
            }
        }
    }
}

impl Drop for CallUnderWay {
    fn drop(&mut self) {
        UNDER_WAY.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Waits until no call is under way, and lets none begin until [`after_fork`].
pub fn before_fork(py: Python<'_>) {
    py.detach(|| {
        IS_FORKING.store(true, Ordering::SeqCst);
        let last = Instant::now() + PATIENCE;
        while UNDER_WAY.load(Ordering::SeqCst) > 0 && Instant::now() < last {
            std::thread::sleep(LOOK);
        }
    });
}

/// Lets calls begin again, in the parent or in the child, which has no other thread.
pub fn after_fork(in_child: bool) {
    if in_child {
        UNDER_WAY.store(0, Ordering::SeqCst);
    }
    IS_FORKING.store(false, Ordering::SeqCst);
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
        .to_owned()
}

/// An open store with the sessions that were asked for, until it is closed. It belongs to the process that
/// opened it: locks do not go through a fork, and neither do the threads that it may wait for.
pub struct Handle {
    process: u32,
    opened: Mutex<Option<Opened>>,
}

struct Opened {
    store: Store,
    sessions: HashMap<u64, SessionHandle>,
    next: u64,
}

impl Handle {
    pub fn new(store: Store) -> Self {
        Self {
            process: std::process::id(),
            opened: Mutex::new(Some(Opened {
                store,
                sessions: HashMap::new(),
                next: 0,
            })),
        }
    }

    fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    /// Takes the lock, which another thread may have held when the process was forked: so the process is
    /// looked at first.
    fn lock(&self) -> Result<MutexGuard<'_, Option<Opened>>, Failure> {
        match self.is_forked() {
            true => Err(Failure::Forked),
            // What it holds is whole also after a panic of another thread.
            false => Ok(self.opened.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    pub fn store(&self) -> Result<Store, Failure> {
        let opened = self.lock()?;
        let opened = opened.as_ref().ok_or(Failure::Closed)?;
        Ok(opened.store.clone())
    }

    pub fn session(&self, key: u64) -> Result<SessionHandle, Failure> {
        let opened = self.lock()?;
        let opened = opened.as_ref().ok_or(Failure::Closed)?;
        opened.sessions.get(&key).cloned().ok_or(Failure::Closed)
    }

    /// Keeps a session's handle for as long as the store is open, and returns its key.
    pub fn keep(&self, session: SessionHandle) -> Result<u64, Failure> {
        let mut opened = self.lock()?;
        let opened = opened.as_mut().ok_or(Failure::Closed)?;
        let key = opened.next;
        opened.next += 1;
        opened.sessions.insert(key, session);
        Ok(key)
    }

    /// Lets a session's handle go.
    pub fn forget(&self, key: u64) {
        if let Ok(mut opened) = self.lock()
            && let Some(opened) = opened.as_mut()
        {
            opened.sessions.remove(&key);
        }
    }

    pub fn is_closed(&self) -> Result<bool, Failure> {
        Ok(self.lock()?.is_none())
    }

    /// Closes the store once the calls that are under way have ended.
    pub fn close(&self) -> Result<(), Failure> {
        let opened = self.lock()?.take();
        drop(opened);
        Ok(())
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let opened = self.opened.get_mut();
        let opened = opened.unwrap_or_else(PoisonError::into_inner).take();
        if self.process != std::process::id() {
            // To close it here would act on files that the parent has open.
            std::mem::forget(opened);
        }
    }
}
