//! Open stores, and the guard of every call.

use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use loopstore::{SessionHandle, Store};

use crate::errors::CallError;

/// Runs `work`; a panic in it becomes an error.
pub fn caught<T>(work: impl FnOnce() -> Result<T, CallError>) -> Result<T, CallError> {
    let done = catch_unwind(AssertUnwindSafe(work));
    done.unwrap_or_else(|panic| Err(CallError::Panicked(text_of(&*panic))))
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
        .to_owned()
}

/// An open store with the handles of its sessions. The store belongs to the process that opened it: neither locks nor
/// threads survive a fork.
pub struct Handle {
    process: u32,
    opened: Mutex<Option<OpenStore>>,
}

struct OpenStore {
    store: Store,
    sessions: HashMap<u64, SessionHandle>,
    next: u64,
}

impl Handle {
    pub fn new(store: Store) -> Self {
        Self {
            process: std::process::id(),
            opened: Mutex::new(Some(OpenStore {
                store,
                sessions: HashMap::new(),
                next: 0,
            })),
        }
    }

    fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    /// Takes the lock, which another thread may have held when the process was forked: so the process id is
    /// compared first.
    fn lock(&self) -> Result<MutexGuard<'_, Option<OpenStore>>, CallError> {
        match self.is_forked() {
            true => Err(CallError::Forked),
            // The value is consistent also after a panic of another thread.
            false => Ok(self.opened.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    pub fn store(&self) -> Result<Store, CallError> {
        let opened = self.lock()?;
        let opened = opened.as_ref().ok_or(CallError::Closed)?;
        Ok(opened.store.clone())
    }

    pub fn session(&self, key: u64) -> Result<SessionHandle, CallError> {
        let opened = self.lock()?;
        let opened = opened.as_ref().ok_or(CallError::Closed)?;
        opened.sessions.get(&key).cloned().ok_or(CallError::Closed)
    }

    /// Keeps a session's handle for as long as the store is open, and returns its key.
    pub fn keep(&self, session: SessionHandle) -> Result<u64, CallError> {
        let mut opened = self.lock()?;
        let opened = opened.as_mut().ok_or(CallError::Closed)?;
        let key = opened.next;
        opened.next += 1;
        opened.sessions.insert(key, session);
        Ok(key)
    }

    /// Drops a session's handle.
    pub fn forget(&self, key: u64) {
        let Ok(mut opened) = self.lock() else {
            return;
        };
        let gone = opened
            .as_mut()
            .and_then(|opened| opened.sessions.remove(&key));
        // A summarizer may own another session, which is dropped with this one and takes the same lock.
        drop(opened);
        drop(gone);
    }

    pub fn is_closed(&self) -> Result<bool, CallError> {
        Ok(self.lock()?.is_none())
    }

    /// Closes the store after the running calls have ended.
    pub fn close(&self) -> Result<(), CallError> {
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
            // Closing it here would act on files that the parent has open.
            std::mem::forget(opened);
        }
    }
}
