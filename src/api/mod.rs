//! The store, the handle of a session, and the context of the next model call.
//!
//! [`Store`] opens a database, [`Store::session`] names a session in it, and a [`SessionHandle`] appends messages,
//! prepares the next model call, reads the history, begins branches and undoes compactions. Rows, transactions and
//! plans are in lower modules, and are not needed here.

#[cfg(feature = "tokio")]
pub(crate) mod asynchronous;
mod calls;
mod default_strategy;
mod entries;
mod error;
mod keys;
mod line;
mod load;
mod overlays;
mod prepare;
mod prepared;
pub(crate) mod records;
mod same_append;
mod session;
mod settings;
mod spec;
mod summary;

use std::path::Path;
use std::sync::Arc;

use crate::compact::Policy;
use crate::model::{InvalidId, SessionId};
use crate::search::{Recall, SearchQuery, SearchResults, recall, search};
use crate::sqlite::{Durability, SqliteOptions, SqliteStore};
pub use crate::store::append::Appended;
use crate::store::{Database, Key, OpenError, SessionStore};
use crate::tokens::TokenCounter;

#[cfg(feature = "tokio")]
pub use asynchronous::{AsyncSession, AsyncStore};
pub use calls::CallState;
pub use entries::{Entry, EntryQuery, EntryRef};
pub use error::{Error, Result};
pub use keys::{KeyQuery, KeyedAppend};
pub use load::StoredBlock;
pub use prepared::Prepared;
pub use session::SessionHandle;
pub use settings::{Settings, SettingsError, StrategyName};
pub use spec::{LoopSpec, TurnRef};
pub use summary::SessionSummary;

/// A database of sessions. Clones refer to the same database.
///
/// ```
/// use loopstore::{Message, Store};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("agent.db");
/// let store = Store::open(&path)?;
/// let chat = store.session("weather")?;
/// chat.append([Message::user("Will it rain?"), Message::assistant("It will.")])?;
/// // Another program may continue it, or this one after a restart.
/// assert_eq!(Store::open(&path)?.session("weather")?.context()?.messages.len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Store {
    database: Arc<dyn Database>,
    policy: Arc<Policy>,
}

impl Store {
    /// Opens a SQLite database. The file is created if it does not exist.
    ///
    /// # Errors
    /// If the file is not a database that this version can open, is damaged, or cannot be read.
    pub fn open(path: impl AsRef<Path>) -> std::result::Result<Self, OpenError> {
        Self::options().open(path)
    }

    /// Opens a database in memory, which is deleted when the last clone of the store is dropped.
    ///
    /// # Errors
    /// If SQLite cannot create the database.
    pub fn in_memory() -> std::result::Result<Self, OpenError> {
        Self::options().in_memory()
    }

    /// Returns the default options.
    pub fn options() -> StoreOptions {
        StoreOptions::default()
    }

    /// Returns the handle of the session `id`. Nothing is read or written. A session that does not exist is created
    /// by its first append.
    ///
    /// # Errors
    /// If `id` is empty or longer than 512 bytes.
    pub fn session(&self, id: impl AsRef<str>) -> std::result::Result<SessionHandle, InvalidId> {
        let id = SessionId::new(id.as_ref())?;
        Ok(SessionHandle::new(
            self.clone(),
            id,
            Arc::clone(&self.policy),
        ))
    }

    /// Finds messages by their words, including messages that a compaction hides.
    ///
    /// # Errors
    /// If the query cannot be read, or the store fails.
    ///
    /// ```
    /// use loopstore::{Message, Store};
    ///
    /// let store = Store::in_memory()?;
    /// store.session("weather")?.append([Message::user("Will it rain?")])?;
    /// assert_eq!(store.search("rain")?.hits.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn search(&self, query: impl Into<SearchQuery>) -> Result<SearchResults> {
        Ok(search(&*self.database, &query.into())?)
    }

    /// Answers a question from stored messages, in at most `tokens` tokens. The answer contains the best hits of
    /// [`Store::search`], cut to the lines around the searched words. [`SessionHandle::recall`] searches one session
    /// only.
    ///
    /// # Errors
    /// [`Error::TooFewTokens`] if the shortest answer does not fit. Also if the question cannot be read, or the store
    /// fails.
    pub fn recall(&self, question: impl Into<SearchQuery>, tokens: u64) -> Result<Recall> {
        Ok(recall(&*self.database, &question.into(), tokens)?)
    }

    /// Returns the backend as a shared reference.
    #[doc(hidden)]
    pub fn shared(&self) -> Arc<dyn SessionStore> {
        Arc::clone(&self.database) as Arc<dyn SessionStore>
    }

    /// Returns the backend, for the functions of [`extend`](crate::extend).
    pub fn database(&self) -> &dyn Database {
        &*self.database
    }
}

impl From<SqliteStore> for Store {
    /// Returns a store on a backend that was opened with options of its own.
    fn from(database: SqliteStore) -> Self {
        Self::from(Arc::new(database) as Arc<dyn Database>)
    }
}

impl From<Arc<dyn Database>> for Store {
    /// Returns a store on a backend whose kind is known only when the program runs.
    fn from(database: Arc<dyn Database>) -> Self {
        Self {
            database,
            policy: Arc::default(),
        }
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Store")
            .field(&self.database.place())
            .finish()
    }
}

/// The options of a store.
///
/// ```
/// use loopstore::{Durability, Policy, Store};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("agent.db");
/// let store = Store::options()
///     .policy(Policy::new(200_000))
///     .durability(Durability::Normal)
///     .open(&path)?;
/// # drop(store);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct StoreOptions {
    policy: Policy,
    sqlite: SqliteOptions,
}

impl StoreOptions {
    /// Sets the policy of each session without a policy of its own.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets the token counter of every append, trigger and budget. A database can be opened only with the counter
    /// that it was created with.
    pub fn counter(mut self, counter: impl TokenCounter + 'static) -> Self {
        self.sqlite = self.sqlite.counter(Arc::new(counter));
        self
    }

    /// Sets the durability of commits to a SQLite database.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.sqlite = self.sqlite.durability(durability);
        self
    }

    /// Encrypts a SQLite database with this key (feature `sqlcipher`).
    pub fn key(mut self, key: Key) -> Self {
        self.sqlite = self.sqlite.key(key);
        self
    }

    /// Opens the database for reading only.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.sqlite = self.sqlite.read_only(read_only);
        self
    }

    /// Opens a SQLite database. The file is created if it does not exist.
    ///
    /// # Errors
    /// As [`Store::open`]. Also if the database was written with another counter.
    pub fn open(self, path: impl AsRef<Path>) -> std::result::Result<Store, OpenError> {
        let store = SqliteStore::open_with(path.as_ref(), self.sqlite)?;
        Ok(Store::from(store).with_policy(self.policy))
    }

    /// Opens a database in memory.
    ///
    /// # Errors
    /// As [`Store::in_memory`].
    pub fn in_memory(self) -> std::result::Result<Store, OpenError> {
        let store = SqliteStore::in_memory_with(self.sqlite)?;
        Ok(Store::from(store).with_policy(self.policy))
    }
}

impl Store {
    /// Returns the store with this policy for each session without a policy of its own.
    #[must_use]
    pub fn with_policy(self, policy: Policy) -> Self {
        let policy = Arc::new(policy);
        Self { policy, ..self }
    }
}
