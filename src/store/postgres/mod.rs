//! The PostgreSQL backend: a pool of connections to one server or several of a cluster.
//!
//! The tables are made to be partitioned or distributed by session: see `migrations/postgres` and
//! `keys.rs`. What a transaction is stands in `door.rs`.
//!
//! A connection that is lost before a commit is [`StoreError::Connection`], and nothing was kept; the
//! next call connects again. During a commit it is [`StoreError::Unconfirmed`], which is never tried
//! again here: the write may be there. Nor is a write that others interrupted, as its closure has run
//! once and may have told somebody what it read.

mod ddl;
mod door;
mod driving;
mod errors;
mod index;
mod keys;
mod link;
mod listing;
mod options;
mod packs;
mod pool;
mod query;
mod read;
mod removal;
mod row;
mod scan;
mod schema;
mod source;
mod url;
mod write;

pub use ddl::{BY_SESSION, Engine, grants, schema};
pub use options::PostgresOptions;
pub use url::is_address;

use super::error::{OpenError, StoreError, StoreResult};
use super::{SessionStore, StoreRead, StoreWrite};
use crate::tokens::TokenCounter;
use door::Door;
use errors::{from_postgres, is_lost, told};
use pool::{Pool, Taken};
use url::Address;

const BEGIN_READ: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
const BEGIN_WRITE: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";

/// A store in one PostgreSQL database.
///
/// Its calls wait for the server; async code goes through `AsyncStore`.
pub struct PostgresStore {
    place: String,
    options: PostgresOptions,
    pool: Pool,
}

/// A transaction that is rolled back if it is not ended.
struct Transaction<'a> {
    taken: Taken<'a>,
    is_open: bool,
}

impl PostgresStore {
    /// Opens the database at `address` (`postgres://USER:PASSWORD@HOST:5432/NAME`, or several hosts
    /// with commas between) with default options; makes the tables where there are none.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses, is too old, has no such database, or that was
    /// written by a newer version. No error holds the password.
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
        schema::prepare(&mut link, &address, &mut options)?;
        let place = address.place.clone();
        let pool = Pool::new(address, options.clone());
        pool.keep(link);
        Ok(Self {
            place,
            options,
            pool,
        })
    }

    /// Returns hosts and name of the database, without user and password.
    pub fn place(&self) -> &str {
        &self.place
    }

    fn snapshot<T>(&self, work: impl FnOnce(&Door<'_>) -> StoreResult<T>) -> StoreResult<T> {
        let mut transaction = self.begin(BEGIN_READ)?;
        let done = work(&Door::reading(transaction.taken.link()?));
        // What was read is whole, whatever becomes of the connection.
        transaction.roll_back();
        done
    }

    fn transaction<T>(&self, work: impl FnOnce(&mut Door<'_>) -> StoreResult<T>) -> StoreResult<T> {
        if self.options.read_only {
            return Err(StoreError::ReadOnly);
        }
        let mut transaction = self.begin(BEGIN_WRITE)?;
        let mut door = Door::writing(transaction.taken.link()?);
        let done = work(&mut door)?;
        door.check()?;
        transaction.commit()?;
        Ok(done)
    }

    /// Runs a statement outside of any transaction.
    fn alone(&self, sql: &str) -> StoreResult<()> {
        self.pool.begin(sql).map(drop)
    }

    fn begin(&self, sql: &str) -> StoreResult<Transaction<'_>> {
        Ok(Transaction {
            taken: self.pool.begin(sql)?,
            is_open: true,
        })
    }
}

impl Transaction<'_> {
    fn commit(mut self) -> StoreResult<()> {
        self.is_open = false;
        let link = self.taken.link()?;
        link.batch("COMMIT").map_err(|error| {
            let is_unknown = error.code().is_some_and(|code| code.code() == "40003");
            if is_lost(&error) || is_unknown {
                self.taken.discard();
                return StoreError::Unconfirmed(told(&error).into());
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

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        self.roll_back();
    }
}

impl SessionStore for PostgresStore {
    fn read(&self, work: &mut dyn FnMut(&dyn StoreRead) -> StoreResult<()>) -> StoreResult<()> {
        self.snapshot(|door| work(door))
    }

    fn write(
        &self,
        work: &mut dyn FnMut(&mut dyn StoreWrite) -> StoreResult<()>,
    ) -> StoreResult<()> {
        self.transaction(|door| work(door))
    }

    fn counter(&self) -> &dyn TokenCounter {
        &*self.options.counter
    }
}
