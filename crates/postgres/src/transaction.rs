//! A transaction on a connection, for reads and for writes.
//!
//! A read sees one snapshot (REPEATABLE READ, READ ONLY). A write is READ COMMITTED and locks the row of each
//! session before it first reads or writes a row of the session. The writes of one session are therefore
//! sequential, and each reads the results of the one before; writes of different sessions run concurrently. A
//! write fails because of another write only in a deadlock over several sessions. SERIALIZABLE would promise
//! the same and reject some writes at their commit, when their closure cannot be run again.

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;

use loopstore_core::store::columns::Columns;
use loopstore_core::store::packs::LastPack;
use loopstore_core::store::{StoreError, StoreResult, Visit};
use sha2::{Digest as _, Sha256};

use super::connection::{Connection, Param};
use super::errors::{StatementError, from_postgres};
use super::keys::{Locked, before_first};
use super::pending::Pending;
use super::prefetched::PrefetchedRows;
use super::row::PostgresRow;

/// A connection within a transaction.
pub(super) struct PostgresTransaction<'a> {
    link: RefCell<&'a mut Connection>,
    /// The locked sessions; `None` for a read.
    locked: Option<RefCell<Locked>>,
    /// The sessions of which rows were read, the latest last.
    seen: RefCell<Vec<i64>>,
    /// True after a statement failed: the server rejects all others until the end of the transaction.
    failed: Cell<bool>,
    /// The messages that go with the next statement.
    pub(super) pending: RefCell<Pending>,
    /// The rows that were read ahead.
    pub(super) prefetched: RefCell<PrefetchedRows>,
    pub(super) last_pack: LastPack,
}

impl<'a> PostgresTransaction<'a> {
    pub(super) fn reading(link: &'a mut Connection) -> Self {
        Self {
            link: RefCell::new(link),
            locked: None,
            seen: RefCell::default(),
            failed: Cell::new(false),
            pending: RefCell::default(),
            prefetched: RefCell::default(),
            last_pack: LastPack::default(),
        }
    }

    pub(super) fn writing(link: &'a mut Connection) -> Self {
        Self {
            locked: Some(RefCell::default()),
            ..Self::reading(link)
        }
    }

    /// Sends the pending messages before a commit, and checks that no statement failed whose error the caller
    /// ignored: the server would roll back without an error.
    pub(super) fn check(&self) -> StoreResult<()> {
        self.flush()?;
        match self.failed.get() {
            true => Err(StoreError::Invalid(
                "the transaction went on after a statement that failed".into(),
            )),
            false => Ok(()),
        }
    }

    /// True if the transaction writes.
    pub(super) fn writes(&self) -> bool {
        self.locked.is_some()
    }

    /// Records a session that this transaction created: it needs no lock, since nobody else sees it.
    pub(super) fn add_created(&self, session: i64) {
        self.see(session);
        if let Some(locked) = &self.locked {
            locked.borrow_mut().insert(session);
        }
    }

    /// Returns the sessions of which rows were read, the latest first.
    pub(super) fn seen(&self) -> Vec<i64> {
        self.seen.borrow().iter().rev().copied().collect()
    }

    fn see(&self, session: i64) {
        let mut seen = self.seen.borrow_mut();
        if seen.last() != Some(&session) {
            seen.retain(|other| *other != session);
            seen.push(session);
        }
    }

    /// Makes other writers of a session wait until the end of this write.
    pub(super) fn lock(&self, session: i64) -> StoreResult<()> {
        self.see(session);
        let Some(locked) = &self.locked else {
            return Ok(());
        };
        if !locked.borrow_mut().insert(session) {
            return Ok(());
        }
        self.lock_row(session)
    }

    /// Makes other writers wait that look up the same name, where there is no row to lock.
    pub(super) fn lock_name(&self, name: &[&str]) -> StoreResult<()> {
        if !self.writes() {
            return Ok(());
        }
        let hash = hash_of(name);
        // Each tenant has its own names.
        let sql = "SELECT pg_advisory_xact_lock($1 # hashtextextended(loopstore_tenant(), 0))";
        self.ask(sql, &[&hash]).map(drop)
    }

    fn noted<T>(&self, result: Result<T, StatementError>) -> StoreResult<T> {
        result.map_err(|error| {
            self.failed.set(true);
            from_postgres(error)
        })
    }

    /// Runs a query over any session.
    pub(super) fn ask(&self, sql: &str, params: &[Param<'_>]) -> StoreResult<Vec<PostgresRow>> {
        self.flush()?;
        let rows = self.link.borrow_mut().query(sql, params);
        Ok(self.noted(rows)?.into_iter().map(PostgresRow).collect())
    }

    /// Runs a statement on any session; returns the number of rows that it changed.
    pub(super) fn execute(&self, sql: &str, params: &[Param<'_>]) -> StoreResult<u64> {
        self.flush()?;
        self.prefetched.take();
        let done = self.link.borrow_mut().execute(sql, params);
        self.noted(done)
    }

    /// Runs a statement that may read much of the database.
    pub(super) fn execute_long(&self, sql: &str, params: &[Param<'_>]) -> StoreResult<u64> {
        let mut link = self.link.borrow_mut();
        self.noted(link.with_long_limit(|link| link.execute(sql, params)))
    }

    /// Runs a statement on a session.
    pub(super) fn run(&self, session: i64, sql: &str, params: &[Param<'_>]) -> StoreResult<u64> {
        self.lock(session)?;
        self.execute(sql, params)
    }

    /// Returns the next key of a table in a session. No other write can take it, since the session is locked.
    /// An insert that selects its key itself is rejected where the tables are distributed.
    pub(super) fn next_key(&self, table: &str, session: i64) -> StoreResult<i64> {
        let sql = format!(
            "SELECT coalesce(max(key), $2::BIGINT) + 1 AS next FROM {table} WHERE session = $1"
        );
        let params: [Param<'_>; 2] = [&session, &before_first(session)];
        let next = self.first(session, &sql, &params, |row| row.get("next"))?;
        next.ok_or_else(|| StoreError::Damaged(format!("{table} gave no key")))
    }

    /// Returns the rows of a session.
    pub(super) fn all<T>(
        &self,
        session: i64,
        sql: &str,
        params: &[Param<'_>],
        from_row: fn(&PostgresRow) -> StoreResult<T>,
    ) -> StoreResult<Vec<T>> {
        self.lock(session)?;
        self.all_of_any(sql, params, from_row)
    }

    /// Returns rows of any session.
    pub(super) fn all_of_any<T>(
        &self,
        sql: &str,
        params: &[Param<'_>],
        from_row: fn(&PostgresRow) -> StoreResult<T>,
    ) -> StoreResult<Vec<T>> {
        let rows = self.ask(sql, params)?;
        rows.iter().map(from_row).collect()
    }

    /// Returns the first row of a session.
    pub(super) fn first<T>(
        &self,
        session: i64,
        sql: &str,
        params: &[Param<'_>],
        from_row: fn(&PostgresRow) -> StoreResult<T>,
    ) -> StoreResult<Option<T>> {
        self.lock(session)?;
        self.first_of_any(sql, params, from_row)
    }

    /// Returns the first row of any session.
    pub(super) fn first_of_any<T>(
        &self,
        sql: &str,
        params: &[Param<'_>],
        from_row: fn(&PostgresRow) -> StoreResult<T>,
    ) -> StoreResult<Option<T>> {
        let rows = self.ask(sql, params)?;
        rows.first().map(from_row).transpose()
    }
}

/// Returns a hash of a name.
fn hash_of(name: &[&str]) -> i64 {
    let mut hash = Sha256::new();
    for part in name {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let hash: [u8; 32] = hash.finalize().into();
    let mut first = [0; 8];
    first.copy_from_slice(&hash[..8]);
    i64::from_le_bytes(first)
}

/// Visits rows in pages of `most`: `page` returns the rows after a position, in order. The visitor may query
/// the same transaction, which a stream of rows would not allow.
pub(super) fn paged<T, P>(
    most: i64,
    place: impl Fn(&T) -> P,
    mut page: impl FnMut(Option<P>) -> StoreResult<Vec<T>>,
    visit: &mut Visit<'_, T>,
) -> StoreResult<()> {
    let mut after = None;
    loop {
        let rows = page(after.take())?;
        let is_end = (rows.len() as i64) < most;
        after = rows.last().map(&place);
        for row in rows {
            if let ControlFlow::Break(()) = visit(row)? {
                return Ok(());
            }
        }
        if is_end {
            return Ok(());
        }
    }
}
