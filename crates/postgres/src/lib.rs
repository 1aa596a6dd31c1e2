//! loopstore on a PostgreSQL server: the second backend of the session store, for a fleet of processes.
//!
//! [`connect`] opens a database at an address and returns a [`Store`] with all functions of a file.
//! [`PostgresStore::open_with`] accepts [`PostgresOptions`]. [`schema`] returns the script of the tables, also
//! partitioned or for a Citus cluster; [`tenant`] and [`grants`] return scripts of rights. The crate contains the
//! statements and the connections. The crate `loopstore` defines the rules on rows, and calls this crate through the
//! traits [`SessionStore`] and [`Database`].
//!
//! The tables are made to be partitioned or distributed by session: see `migrations` and `keys.rs`. The
//! isolation and the locks of a transaction are described in `transaction.rs`.
//!
//! A connection that is lost before a commit is [`StoreError::Connection`], and nothing was written; the
//! next call connects again. A connection that is lost during a commit is [`StoreError::Unconfirmed`], and
//! the write is never repeated here: it may have succeeded. A write that other writers interrupted is not
//! repeated either, because its work ran once and the caller may have used what it read: the call fails with
//! [`StoreError::SerializationFailure`]. Only a `BEGIN`, a query in SQL and the creation of the tables are
//! repeated (`again`).

#![warn(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod audit;
mod cluster;
mod cluster_tenants;
mod connection;
mod ddl;
mod edits;
mod errors;
mod index;
mod keys;
mod listing;
mod loops_with_blocks;
mod message_refs;
mod options;
mod packs;
mod pending;
mod pool;
mod pooler;
mod prefetched;
mod prompts;
mod query;
mod read;
mod recording;
mod recount;
mod removal;
mod row;
mod scan;
mod schema;
mod source;
mod transaction;
mod url;
mod values;
mod write;

pub use cluster::{ClusterCheck, ClusterReport, check_cluster};
pub use ddl::{BY_SESSION, Engine, grants, schema, tenant};
pub use options::PostgresOptions;
pub use recount::recount;
pub use url::is_address;

use std::sync::Arc;
use std::time::Duration;

use loopstore::Store;
use loopstore_core::store::OpenError;
use loopstore_core::store::{Database, ReadWork, SessionStore, StoreError, StoreResult, WriteWork};
use loopstore_model::tokens::TokenCounter;

use connection::Connection;
use ddl::literal;
use errors::{describe, from_postgres, is_lost};
use pool::{Pool, PooledConnection};
use transaction::PostgresTransaction;
use url::Address;

const BEGIN_READ: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
const BEGIN_WRITE: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";

/// Opens the database at `url` (`postgres://USER:PASSWORD@HOST:5432/NAME`) with default options. The tables
/// are created if the database has none.
///
/// # Errors
/// As [`PostgresStore::open`].
///
/// ```no_run
/// use loopstore::Message;
///
/// let store = loopstore_postgres::connect("postgres://agent@localhost/agents")?;
/// store.session("weather")?.append([Message::user("Will it rain?")])?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn connect(url: &str) -> Result<Store, OpenError> {
    PostgresStore::open(url).map(Store::from)
}

/// A store in one PostgreSQL database.
///
/// Calls block until the server answers; async code uses `AsyncStore`.
///
/// ```no_run
/// use loopstore::*;
/// use loopstore_postgres::PostgresStore;
///
/// let store = PostgresStore::open("postgres://agent:secret@localhost/agents")?;
/// // No log shows the password.
/// println!("recording to {}", store.place());
/// let mut recorder = SessionRecorder::new(&store, RecorderOptions::default());
/// # let (session, loop_key) = (SessionId::new("s")?, LoopId::new("s.1")?);
/// # use loopstore_recorder::event::AgentStart;
/// # use loopstore_recorder::{AgentEvent, RecorderOptions, SessionRecorder};
/// recorder.record(AgentEvent::AgentStart(AgentStart::new(session.clone(), loop_key)))?;
/// let context = build_context_from_session(&store, &session, &BuildOptions::default())?;
/// # drop(context);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PostgresStore {
    place: String,
    options: PostgresOptions,
    pool: Pool,
}

/// A transaction that is rolled back if it is not ended.
struct OpenTransaction<'a> {
    taken: PooledConnection<'a>,
    is_open: bool,
}

impl PostgresStore {
    /// Opens the database at `address` (`postgres://USER:PASSWORD@HOST:5432/NAME`, or several hosts separated by
    /// commas) with default options. The tables are created if the database has none.
    ///
    /// # Errors
    /// If the server cannot be reached, rejects the connection, is too old or has no such database, or if the
    /// database was written by a newer version of loopstore. No error contains the password.
    pub fn open(address: &str) -> Result<Self, OpenError> {
        Self::open_with(address, PostgresOptions::default())
    }

    /// Opens the database at `address` with these options.
    ///
    /// # Errors
    /// As [`PostgresStore::open`].
    pub fn open_with(address: &str, options: PostgresOptions) -> Result<Self, OpenError> {
        let mut options = options;
        let address = Address::parse(address, !options.read_only)?;
        let mut link = schema::connect(&address, &options)?;
        let prepared = again(
            || match schema::prepare(&mut link, &address, &mut options) {
                Err(OpenError::Busy) => Err(StoreError::SerializationFailure),
                prepared => Ok(prepared),
            },
        );
        prepared.map_err(|_| OpenError::Busy)??;
        let place = address.place.clone();
        let pool = Pool::new(address, options.clone());
        pool.keep(link);
        Ok(Self {
            place,
            options,
            pool,
        })
    }

    /// Returns the hosts and the name of the database, without user and password.
    pub fn place(&self) -> &str {
        &self.place
    }

    fn snapshot<T>(
        &self,
        work: impl FnOnce(&PostgresTransaction<'_>) -> StoreResult<T>,
    ) -> StoreResult<T> {
        let mut transaction = self.begin(&[BEGIN_READ])?;
        let done = work(&PostgresTransaction::reading(transaction.taken.link()?));
        // All rows have been read, even if the connection fails now.
        transaction.roll_back();
        done
    }

    /// Runs `work` on a snapshot; its statements may read much of the database.
    fn long_snapshot<T>(
        &self,
        work: impl FnOnce(&PostgresTransaction<'_>) -> StoreResult<T>,
    ) -> StoreResult<T> {
        let mut transaction = self.begin(&[BEGIN_READ])?;
        let link = transaction.taken.link()?;
        let done = link.with_long_limit(|link| work(&PostgresTransaction::reading(link)));
        transaction.roll_back();
        done
    }

    /// Runs `work` in a write transaction. The transaction checks that the counter of this store is still the
    /// counter of the database.
    fn transaction<T>(
        &self,
        work: impl FnOnce(&mut PostgresTransaction<'_>) -> StoreResult<T>,
    ) -> StoreResult<T> {
        self.transaction_from(&self.begin_write(), |link| run_write(link, work))
    }

    /// Runs `work` in a write transaction; its statements may read much of the database.
    fn long_transaction<T>(
        &self,
        begin: &[String],
        work: impl FnOnce(&mut PostgresTransaction<'_>) -> StoreResult<T>,
    ) -> StoreResult<T> {
        self.transaction_from(begin, |link| {
            link.with_long_limit(|link| run_write(link, work))
        })
    }

    fn begin_write(&self) -> Vec<String> {
        let counter = literal(self.options.counter.name());
        let mut begin = self.begin_any_write();
        let counts = format!("SELECT loopstore_counts_with({counter})");
        match &mut begin[..] {
            [only] => *only = format!("{only}; {counts}"),
            _ => begin.push(counts),
        }
        begin
    }

    /// Returns the statements that begin a write. Settings of a connection do not reach the nodes of a cluster,
    /// settings of a transaction do; each is sent on its own, since the nodes receive the whole text that
    /// contains it.
    fn begin_any_write(&self) -> Vec<String> {
        let own = [BEGIN_WRITE.to_owned()];
        own.into_iter()
            .chain(self.options.on_nodes.iter().cloned())
            .collect()
    }

    fn transaction_from<T>(
        &self,
        begin: &[String],
        work: impl FnOnce(&mut Connection) -> StoreResult<T>,
    ) -> StoreResult<T> {
        if self.options.read_only {
            return Err(StoreError::ReadOnly);
        }
        let mut transaction = self.begin(begin)?;
        let done = work(transaction.taken.link()?)?;
        transaction.commit()?;
        Ok(done)
    }

    /// Runs a statement outside of a transaction, without a time limit.
    fn execute_outside(&self, sql: &str) -> StoreResult<()> {
        let mut taken = self.pool.begin(&["SELECT 1"])?;
        let link = taken.link()?;
        let done = link.with_limit(None, |link| link.batch(sql));
        done.map_err(from_postgres)
    }

    fn begin(&self, sql: &[impl AsRef<str>]) -> StoreResult<OpenTransaction<'_>> {
        Ok(OpenTransaction {
            taken: again(|| self.pool.begin(sql))?,
            is_open: true,
        })
    }
}

/// Runs `work` on a connection within a write transaction.
fn run_write<T>(
    link: &mut Connection,
    work: impl FnOnce(&mut PostgresTransaction<'_>) -> StoreResult<T>,
) -> StoreResult<T> {
    let mut door = PostgresTransaction::writing(link);
    let done = work(&mut door)?;
    door.check()?;
    Ok(done)
}

/// The pauses before an interrupted transaction is tried again, in milliseconds.
const PAUSES: [u64; 4] = [10, 40, 160, 640];

/// Repeats work that other transactions interrupted and that has not returned anything yet.
fn again<T>(mut work: impl FnMut() -> StoreResult<T>) -> StoreResult<T> {
    for pause in PAUSES {
        match work() {
            Err(StoreError::SerializationFailure) => {
                std::thread::sleep(Duration::from_millis(pause));
            }
            done => return done,
        }
    }
    work()
}

impl OpenTransaction<'_> {
    fn commit(mut self) -> StoreResult<()> {
        self.is_open = false;
        let link = self.taken.link()?;
        link.batch("COMMIT").map_err(|error| {
            let is_unknown = error.code() == Some("40003");
            if is_lost(&error) || is_unknown {
                self.taken.discard();
                return StoreError::Unconfirmed(describe(&error).into());
            }
            from_postgres(error)
        })
    }

    fn roll_back(&mut self) {
        if !std::mem::take(&mut self.is_open) {
            return;
        }
        let ended = self.taken.link().map(|link| link.batch("ROLLBACK"));
        if !matches!(ended, Ok(Ok(()))) {
            self.taken.discard();
        }
    }
}

impl Drop for OpenTransaction<'_> {
    fn drop(&mut self) {
        self.roll_back();
    }
}

impl From<PostgresStore> for Store {
    /// Converts a store that was opened with its own options.
    fn from(database: PostgresStore) -> Self {
        Self::from(Arc::new(database) as Arc<dyn Database>)
    }
}

impl SessionStore for PostgresStore {
    fn read(&self, work: ReadWork<'_>) -> StoreResult<()> {
        self.snapshot(|door| work(door))
    }

    fn write(&self, work: WriteWork<'_>) -> StoreResult<()> {
        self.transaction(|door| work(door))
    }

    fn counter(&self) -> &dyn TokenCounter {
        &*self.options.counter
    }
}
