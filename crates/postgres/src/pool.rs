//! Connections that are kept for the next transaction.
//!
//! A small pool of its own: `r2d2` was last released in 2022, and what is needed is a list, a limit
//! and a clock. A connection that the server closed while it was idle is found by the first statement
//! of the next transaction, before anything was promised, and replaced.

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

/// A connection that goes back to its pool.
pub(super) struct PooledConnection<'a> {
    pool: &'a Pool,
    /// `None`: it is of no use any more.
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

    /// Takes a connection on which these were run first, as what begins a transaction.
    ///
    /// # Errors
    /// [`StoreError::PoolTimeout`] if none becomes free in time; what connecting gives.
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
                    // A primary that became a standby is lost to a writer: another one took over.
                    let follows = is_standby(&error);
                    let lost = is_lost(&error) || follows;
                    // A transaction that was begun with more than one statement may be open.
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

    /// Takes a connection, and tells whether it was just made.
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

/// A server that was there when the store was opened is only away.
pub(super) fn from_open(error: OpenError) -> StoreError {
    match error {
        OpenError::Unreachable { detail, .. } => StoreError::Connection(detail.into()),
        gone @ OpenError::NoDatabase { .. } => StoreError::Connection(Box::new(gone)),
        other => StoreError::Other(Box::new(other)),
    }
}

impl PooledConnection<'_> {
    /// The connection.
    pub(super) fn link(&mut self) -> StoreResult<&mut Connection> {
        let lost = || StoreError::Connection("it was closed".into());
        self.link.as_mut().ok_or_else(lost)
    }

    /// Throws the connection away.
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
