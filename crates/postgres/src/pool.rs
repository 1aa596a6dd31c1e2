//! Connections that are kept for the next transaction.
//!
//! This crate has its own small pool: `r2d2` was last released in 2022, and only a list, a limit and a clock
//! are needed. If the server closed a connection while it was idle, the first statement of the next transaction
//! fails before any result is returned, and the connection is replaced.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use loopstore_core::store::{OpenError, StoreError, StoreResult};

use super::connection::Connection;
use super::errors::{from_postgres, is_lost, is_standby};
use super::options::PostgresOptions;
use super::schema;
use super::url::Address;

const FOLLOWS: &str = "the server takes no writes, as it follows another one";

/// The connections of a store.
pub(super) struct Pool {
    address: Address,
    options: PostgresOptions,
    state: Mutex<PoolState>,
    freed: Condvar,
}

#[derive(Default)]
struct PoolState {
    idle: Vec<Connection>,
    /// Connections that are in use.
    out: usize,
}

/// A connection that returns to its pool when it is dropped.
pub(super) struct PooledConnection<'a> {
    pool: &'a Pool,
    /// `None` if the connection is not to be used again.
    link: Option<Connection>,
}

impl Pool {
    pub(super) fn new(address: Address, options: PostgresOptions) -> Self {
        Self {
            address,
            options,
            state: Mutex::default(),
            freed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection and runs the statements that begin a transaction.
    ///
    /// # Errors
    /// [`StoreError::PoolTimeout`] if no connection becomes free in time; any error of a new connection.
    pub(super) fn begin(&self, first: &[impl AsRef<str>]) -> StoreResult<PooledConnection<'_>> {
        loop {
            let (mut taken, is_new) = self.take()?;
            let Some(link) = &mut taken.link else {
                continue;
            };
            let begun = match first.split_first() {
                Some((begin, rest)) if link.is_shared() && begin.as_ref().starts_with("BEGIN") => {
                    let settings = schema::in_each_transaction(&self.options);
                    let own = settings.iter().map(String::as_str);
                    let rest = rest.iter().map(AsRef::as_ref);
                    let all = std::iter::once(begin.as_ref()).chain(own).chain(rest);
                    link.batches(&all.collect::<Vec<_>>())
                }
                _ => link.batches(first),
            };
            match begun {
                Ok(()) => return Ok(taken),
                Err(error) => {
                    // A primary that became a standby cannot serve a writer: another server is the primary now.
                    let follows = is_standby(&error);
                    let lost = is_lost(&error) || follows;
                    // A transaction that began with more than one statement may be open.
                    taken.link = None;
                    if is_new && follows {
                        return Err(StoreError::Connection(FOLLOWS.into()));
                    }
                    if is_new || !lost {
                        return Err(from_postgres(error));
                    }
                }
            }
        }
    }

    /// Takes a connection; returns true with it if it is new.
    fn take(&self) -> StoreResult<(PooledConnection<'_>, bool)> {
        let until = Instant::now() + self.options.patience;
        let most = self.options.connections.max(1);
        let mut state = self.lock();
        while state.out >= most {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(StoreError::PoolTimeout(most));
            }
            let waited = self.freed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.out += 1;
        let idle = std::iter::from_fn(|| state.idle.pop()).find(|link| !link.is_closed());
        drop(state);
        let mut taken = PooledConnection {
            pool: self,
            link: idle,
        };
        if taken.link.is_some() {
            return Ok((taken, false));
        }
        let link = schema::connect(&self.address, &self.options);
        taken.link = Some(link.map_err(from_open)?);
        Ok((taken, true))
    }

    /// Keeps a connection for later.
    pub(super) fn keep(&self, link: Connection) {
        self.lock().idle.push(link);
    }
}

/// Converts an error of opening: the server was there when the store was opened, so the connection failed.
pub(super) fn from_open(error: OpenError) -> StoreError {
    match error {
        OpenError::Unreachable { detail, .. } => StoreError::Connection(detail.into()),
        gone @ OpenError::NoDatabase { .. } => StoreError::Connection(Box::new(gone)),
        other => StoreError::Other(Box::new(other)),
    }
}

impl PooledConnection<'_> {
    /// Returns the connection.
    pub(super) fn link(&mut self) -> StoreResult<&mut Connection> {
        let lost = || StoreError::Connection("it was closed".into());
        self.link.as_mut().ok_or_else(lost)
    }

    /// Closes the connection.
    pub(super) fn discard(&mut self) {
        self.link = None;
    }
}

impl Drop for PooledConnection<'_> {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        state.out -= 1;
        match self.link.take() {
            Some(link) if !link.is_closed() => state.idle.push(link),
            gone => {
                drop(state);
                drop(gone);
            }
        }
        self.pool.freed.notify_one();
    }
}
