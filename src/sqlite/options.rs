//! Options for opening a database.

use std::sync::Arc;
use std::time::Duration;

use crate::store::counter_choice::OtherCounter;
use crate::store::key::Key;
use crate::tokens::{HeuristicTokenCounter, TokenCounter};

/// The durability of the last commits after a power loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// No commit is lost: each commit waits for the disk before it is acknowledged.
    #[default]
    Full,
    /// The last commits may be lost, but never a commit before one that is kept. An append takes about a third of the
    /// time.
    Normal,
}

/// Options of a SQLite database.
///
/// ```
/// use loopstore::{Durability, OpenError, SqliteOptions, SqliteStore};
/// use std::time::Duration;
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("agent.db");
/// let there = SqliteStore::open_with(&path, SqliteOptions::new().create(false));
/// assert!(matches!(there, Err(OpenError::Missing { .. })));
/// let patience = Duration::from_secs(30);
/// let options = SqliteOptions::new().durability(Durability::Normal).busy_timeout(patience);
/// let store = SqliteStore::open_with(&path, options)?;
/// let reader = SqliteStore::open_with(&path, SqliteOptions::new().read_only(true))?;
/// # drop((store, reader));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SqliteOptions {
    pub(super) durability: Durability,
    pub(super) busy_timeout: Duration,
    pub(super) read_only: bool,
    pub(super) create: bool,
    pub(super) cache_kib: u32,
    pub(super) allow_network: bool,
    pub(super) follow_links: bool,
    pub(super) key: Option<Key>,
    pub(super) counter: Arc<dyn TokenCounter>,
    /// The treatment of a database that was written with another counter.
    pub(super) other_counter: OtherCounter,
    /// Found when opening: the folder cannot be written, and nobody writes the file.
    pub(super) immutable: bool,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            durability: Durability::Full,
            busy_timeout: Duration::from_secs(10),
            read_only: false,
            create: true,
            cache_kib: 8192,
            allow_network: false,
            follow_links: false,
            key: None,
            counter: Arc::new(HeuristicTokenCounter),
            other_counter: OtherCounter::Refuse,
            immutable: false,
        }
    }
}

impl std::fmt::Debug for SqliteOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteOptions")
            .field("durability", &self.durability)
            .field("busy_timeout", &self.busy_timeout)
            .field("read_only", &self.read_only)
            .field("create", &self.create)
            .field("cache_kib", &self.cache_kib)
            .field("allow_network", &self.allow_network)
            .field("follow_links", &self.follow_links)
            .field("key", &self.key)
            .field("counter", &self.counter.name())
            .finish()
    }
}

impl SqliteOptions {
    /// Returns the default options: full durability, a busy timeout of 10 seconds, reading and writing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the durability of the last commits after a power loss.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Sets the time that an operation waits for another writer before it fails with
    /// [`StoreError::Busy`](crate::StoreError::Busy).
    #[must_use]
    pub fn busy_timeout(mut self, timeout: Duration) -> Self {
        self.busy_timeout = timeout;
        self
    }

    /// If `true`, opens the database for reading only.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// If `true` (the default), creates a database that does not exist.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Sets the page cache of each connection in KiB.
    #[must_use]
    pub fn cache_kib(mut self, kib: u32) -> Self {
        self.cache_kib = kib;
        self
    }

    /// If `true`, opens the database even on a network file system, where SQLite's locks may fail.
    #[must_use]
    pub fn allow_network(mut self, allow: bool) -> Self {
        self.allow_network = allow;
        self
    }

    /// If `true`, follows a symbolic link at the path of the database. By default opening fails for a link: a user
    /// who can create links in the folder could redirect the data to another file.
    #[must_use]
    pub fn follow_links(mut self, follow: bool) -> Self {
        self.follow_links = follow;
        self
    }

    /// Sets the key of the database (feature `sqlcipher`). A new database is encrypted with it; an existing one must
    /// have been created with it. A database in memory has no key.
    #[must_use]
    pub fn key(mut self, key: Key) -> Self {
        self.key = Some(key);
        self
    }

    #[doc(hidden)]
    pub fn maybe_key(mut self, key: Option<&Key>) -> Self {
        self.key = key.cloned();
        self
    }

    /// Sets the token counter. A database can be opened only with the counter that it was created with.
    #[must_use]
    pub fn counter(mut self, counter: Arc<dyn TokenCounter>) -> Self {
        self.counter = counter;
        self
    }

    /// Uses the counter that the database was written with, if this program knows that counter. The counter set with
    /// [`SqliteOptions::counter`] then applies to a new database only.
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
