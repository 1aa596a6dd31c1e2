//! A connection within a transaction, and how rows are read from it.

use std::ops::{ControlFlow, Range};

use rusqlite::Connection;

use super::from_sqlite;
use super::holders::LeaseLocks;
use super::row::{Places, SqliteRow};
use crate::store::error::StoreResult;
use crate::store::packs::{self, LastPack};
use crate::store::*;

/// A connection within a transaction: what both doors hand out.
pub(super) struct SqliteReader<'a> {
    pub(super) connection: &'a Connection,
    pub(super) last_pack: LastPack,
    /// The locks that show which holders of leases live; `None` if no read needs them.
    pub(super) holders: Option<&'a LeaseLocks>,
}

/// The key of the row `number` of a loop or block.
pub(super) fn packed(owner: i64, number: u32) -> i64 {
    (owner << 32) | i64::from(number)
}

pub(super) fn number(id: i64) -> u32 {
    // The mask leaves 32 bits.
    (id & 0xFFFF_FFFF) as u32
}

/// The keys of the rows in `range` of a loop or block, both ends inclusive.
pub(super) fn span(owner: i64, range: &Range<u32>) -> Option<(i64, i64)> {
    (range.start < range.end).then(|| (packed(owner, range.start), packed(owner, range.end - 1)))
}

impl<'a> SqliteReader<'a> {
    pub(super) fn new(connection: &'a Connection) -> Self {
        Self {
            connection,
            last_pack: LastPack::default(),
            holders: None,
        }
    }

    /// Knows also which holders of leases live.
    pub(super) fn with_holders(self, holders: &'a LeaseLocks) -> Self {
        Self {
            holders: Some(holders),
            ..self
        }
    }
}

impl SqliteReader<'_> {
    /// Visits the rows of a query.
    pub(super) fn each<T>(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
        from_row: fn(&SqliteRow<'_, '_>) -> StoreResult<T>,
        visit: &mut Visit<'_, T>,
    ) -> StoreResult<()> {
        let mut statement = self.connection.prepare_cached(sql).map_err(from_sqlite)?;
        let mut rows = statement.query(params).map_err(from_sqlite)?;
        let places = &Places::default();
        while let Some(row) = rows.next().map_err(from_sqlite)? {
            if visit(from_row(&SqliteRow::by_name(row, places))?)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Visits the rows of a query that selects in the order in which `look` reads: what a build asks
    /// for, where looking for names would be felt.
    pub(super) fn in_order(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
        look: &mut dyn FnMut(&SqliteRow<'_, '_>) -> StoreResult<ControlFlow<()>>,
    ) -> StoreResult<()> {
        let mut statement = self.connection.prepare_cached(sql).map_err(from_sqlite)?;
        let mut rows = statement.query(params).map_err(from_sqlite)?;
        while let Some(row) = rows.next().map_err(from_sqlite)? {
            if look(&SqliteRow::in_order(row))?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Returns the first row of such a query.
    pub(super) fn one<T>(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
        from_row: fn(&SqliteRow<'_, '_>) -> StoreResult<T>,
    ) -> StoreResult<Option<T>> {
        let mut found = None;
        self.in_order(sql, params, &mut |row| {
            found = Some(from_row(row)?);
            Ok(ControlFlow::Break(()))
        })?;
        Ok(found)
    }

    /// Goes a chain up, loop by loop: most are short, and what a recursion needs for itself costs more than a
    /// few steps.
    pub(super) fn step_up<T>(
        &self,
        sql: &str,
        leaf: LoopKey,
        from_row: fn(&SqliteRow<'_, '_>, LoopKey) -> StoreResult<T>,
        core: fn(&T) -> &LoopCore,
        visit: &mut Visit<'_, T>,
    ) -> StoreResult<()> {
        let mut statement = self.connection.prepare_cached(sql).map_err(from_sqlite)?;
        let mut next = Some(leaf);
        let mut session = None;
        while let Some(key) = next.take() {
            let mut rows = statement.query([key.0]).map_err(from_sqlite)?;
            let Some(row) = rows.next().map_err(from_sqlite)? else {
                break;
            };
            let found = from_row(&SqliteRow::in_order(row), key)?;
            drop(rows);
            let row = core(&found);
            if *session.get_or_insert(row.session) != row.session {
                break;
            }
            // Keys that fall from child to parent cannot go round in a circle.
            let parent = row.parent.filter(|parent| *parent < key);
            if visit(found)?.is_continue() {
                next = parent;
            }
        }
        Ok(())
    }

    /// Shows what a message says, read from its pack if it is archived.
    #[inline]
    pub(super) fn visit_ref(
        &self,
        place: (LoopKey, u32),
        turn: Option<u32>,
        created_at: Option<i64>,
        message: StoredMessageRef<'_>,
        visit: &mut VisitMessageRef<'_>,
    ) -> StoreResult<ControlFlow<()>> {
        let mut visit = |message: StoredMessageRef<'_>| {
            visit(&MessageRef {
                seq: place.1,
                turn,
                created_at,
                message,
            })
        };
        if message.head.is_none() {
            return packs::with_message(self, &self.last_pack, place, message, visit);
        }
        visit(message)
    }

    pub(super) fn all<T>(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
        from_row: fn(&SqliteRow<'_, '_>) -> StoreResult<T>,
    ) -> StoreResult<Vec<T>> {
        let mut rows = Vec::new();
        self.each(sql, params, from_row, &mut |row| {
            rows.push(row);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(rows)
    }

    pub(super) fn first<T>(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
        from_row: fn(&SqliteRow<'_, '_>) -> StoreResult<T>,
    ) -> StoreResult<Option<T>> {
        let mut found = None;
        self.each(sql, params, from_row, &mut |row| {
            found = Some(row);
            Ok(ControlFlow::Break(()))
        })?;
        Ok(found)
    }
}
