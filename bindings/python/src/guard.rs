//! The guard of every call: no GIL, no panic, and no fork while a call runs.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use loopstore_bindings::caught;
use pyo3::prelude::*;

pub use loopstore_bindings::Handle;

use crate::errors::{CallError, raise};

/// Runs `work` without the GIL. A panic in it becomes an exception.
pub fn call<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, CallError> + Send,
) -> PyResult<T> {
    py.detach(|| {
        let _under_way = CallGuard::begin();
        caught(work)
    })
    .map_err(|failure| raise(failure, py))
}

/// The number of running calls in this process, and a flag for a fork that is about to happen.
///
/// A mutex that another thread holds during a fork stays locked in the child forever, including those of
/// SQLite, and no store could be opened there. So a fork waits until no call is running. Both are atomics, as a
/// mutex would have the same problem.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);
static IS_FORKING: AtomicBool = AtomicBool::new(false);

/// The time for which a fork waits: a call may itself wait for the thread that forks.
const PATIENCE: Duration = Duration::from_secs(2);
/// The interval in which a waiting fork or call checks again.
const POLL_INTERVAL: Duration = Duration::from_micros(50);

struct CallGuard;

impl CallGuard {
    fn begin() -> Self {
        loop {
            UNDER_WAY.fetch_add(1, Ordering::SeqCst);
            if !IS_FORKING.load(Ordering::SeqCst) {
                return Self;
            }
            UNDER_WAY.fetch_sub(1, Ordering::SeqCst);
            while IS_FORKING.load(Ordering::SeqCst) {
                std::thread::sleep(POLL_INTERVAL);
            }
        }
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        UNDER_WAY.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Waits until no call is running, and blocks new calls until [`after_fork`].
pub fn before_fork(py: Python<'_>) {
    py.detach(|| {
        IS_FORKING.store(true, Ordering::SeqCst);
        let last = Instant::now() + PATIENCE;
        while UNDER_WAY.load(Ordering::SeqCst) > 0 && Instant::now() < last {
            std::thread::sleep(POLL_INTERVAL);
        }
    });
}

/// Allows calls again, in the parent or in the child, which has no other thread.
pub fn after_fork(in_child: bool) {
    if in_child {
        UNDER_WAY.store(0, Ordering::SeqCst);
    }
    IS_FORKING.store(false, Ordering::SeqCst);
}
