//! The options of a database.

use std::sync::Arc;
use std::time::Duration;

use loopstore_core::store::counter_choice::OtherCounter;
use loopstore_model::tokens::{HeuristicTokenCounter, TokenCounter};

/// The options of a PostgreSQL database.
///
/// ```no_run
/// use loopstore_postgres::{PostgresOptions, PostgresStore};
/// use std::time::Duration;
///
/// let patience = Duration::from_secs(30);
/// let options = PostgresOptions::new().connections(64).patience(patience);
/// let store = PostgresStore::open_with("postgres://agent@db1,db2/agents", options)?;
/// # drop(store);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct PostgresOptions {
    pub(super) read_only: bool,
    pub(super) create: bool,
    pub(super) connections: usize,
    pub(super) patience: Duration,
    /// The maximum time that the server may be silent; `None` for no limit.
    pub(super) limit: Option<Duration>,
    pub(super) counter: Arc<dyn TokenCounter>,
    /// The treatment of a database that was written with another counter.
    pub(super) other_counter: OtherCounter,
    /// The settings of a write transaction on the nodes of a cluster; empty on one server.
    pub(super) on_nodes: Vec<String>,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            create: true,
            connections: 16,
            patience: Duration::from_secs(10),
            limit: Some(Duration::from_secs(60)),
            counter: Arc::new(HeuristicTokenCounter),
            other_counter: OtherCounter::Refuse,
            on_nodes: Vec::new(),
        }
    }
}

impl std::fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("read_only", &self.read_only)
            .field("create", &self.create)
            .field("connections", &self.connections)
            .field("patience", &self.patience)
            .field("limit", &self.limit)
            .field("counter", &self.counter.name())
            .finish()
    }
}

impl PostgresOptions {
    /// Returns the default options: read and write, 16 connections, a patience of 10 seconds, a statement limit of
    /// one minute.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens the database for reading only.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Sets whether the tables are created if the database has none (true by default). The database itself is never
    /// created.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Sets the maximum number of connections, which is also the maximum number of concurrent transactions.
    #[must_use]
    pub fn connections(mut self, most: usize) -> Self {
        self.connections = most;
        self
    }

    /// Sets the time that a transaction waits for a free connection, and the time that it waits for another writer of
    /// its session.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Returns the patience with another writer, in milliseconds as the server takes it.
    pub(super) fn lock_timeout(&self) -> u128 {
        self.patience.as_millis().clamp(1, i32::MAX as u128)
    }

    /// Sets the maximum duration of a statement, by the clock of this machine; `None` for no limit. The default is
    /// one minute. After it the connection is closed, and the call fails with
    /// [`StoreError::StatementTimeout`](loopstore::StoreError::StatementTimeout). The server's own
    /// `statement_timeout` is not enough: it has no effect if the server hangs, which the network does not report
    /// either (`connection.rs`). Statements that read much of the database (`verify`, removals, a recount, a new
    /// index) have ten times this limit. Migrations and `VACUUM` have no limit, and
    /// [`PostgresStore::query_within`](super::PostgresStore::query_within) has its own.
    #[must_use]
    pub fn statement_limit(mut self, limit: Option<Duration>) -> Self {
        self.limit = limit;
        self
    }

    /// Sets the token counter. A database keeps the counter that it was created with.
    #[must_use]
    pub fn counter(mut self, counter: Arc<dyn TokenCounter>) -> Self {
        self.counter = counter;
        self
    }

    /// Uses the counter that the database was written with, if this program knows the counter. The counter that is
    /// set with [`PostgresOptions::counter`] is then used only for a new database.
    #[must_use]
    pub fn stored_counter(mut self) -> Self {
        self.other_counter = OtherCounter::Use;
        self
    }

    pub(super) fn for_recount(mut self) -> Self {
        self.other_counter = OtherCounter::Recount;
        self
    }
}
