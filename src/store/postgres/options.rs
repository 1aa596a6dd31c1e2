//! How a database is opened.

use std::sync::Arc;
use std::time::Duration;

use crate::tokens::{HeuristicTokenCounter, TokenCounter};

/// Options of a PostgreSQL database.
#[derive(Clone)]
pub struct PostgresOptions {
    pub(super) read_only: bool,
    pub(super) create: bool,
    pub(super) connections: usize,
    pub(super) patience: Duration,
    pub(super) counter: Arc<dyn TokenCounter>,
    /// Whether the counter that the database was written with is taken instead.
    pub(super) takes_stored: bool,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            create: true,
            connections: 16,
            patience: Duration::from_secs(10),
            counter: Arc::new(HeuristicTokenCounter),
            takes_stored: false,
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
            .field("counter", &self.counter.name())
            .finish()
    }
}

impl PostgresOptions {
    /// The default options: read and write, 16 connections, ten seconds of patience.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens the database for reading only.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Sets whether the tables are made where there are none (the default). The database itself is
    /// never created.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Sets how many connections there are at most: so many transactions run side by side.
    #[must_use]
    pub fn connections(mut self, most: usize) -> Self {
        self.connections = most;
        self
    }

    /// Sets how long a transaction waits for a free connection, and how long for another writer of
    /// its session.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sets the token counter. A database keeps the counter that it was created with.
    #[must_use]
    pub fn counter(mut self, counter: Arc<dyn TokenCounter>) -> Self {
        self.counter = counter;
        self
    }

    /// Uses the counter that the database was written with, if this program knows it: the one set
    /// with [`PostgresOptions::counter`] is then only for a new database.
    #[must_use]
    pub fn stored_counter(mut self) -> Self {
        self.takes_stored = true;
        self
    }
}
