//! The values of a row, found by the name of their column or by its place.

use std::cell::{Cell, RefCell};

use rusqlite::Row;
use rusqlite::types::{FromSql, FromSqlError, ValueRef};

use super::from_sqlite;
use crate::store::Turns;
use crate::store::error::{StoreError, StoreResult};

/// A row read by column name, with damage reported instead of passed on.
pub(super) struct Fields<'r, 's> {
    row: &'r Row<'s>,
    /// `None`: the columns stand in the order in which they are asked for.
    places: Option<&'r Places>,
    next: Cell<usize>,
}

/// Where the columns of a query stand.
///
/// SQLite hands out names as C strings, and to look through those of a row for each value was a third of
/// a build. So the first row notes what was asked for in which order, and the others find it by that.
#[derive(Default)]
pub(super) struct Places {
    known: RefCell<Vec<(&'static str, usize)>>,
    /// How many values were asked of this row.
    asked: Cell<usize>,
}

impl Places {
    /// Returns the place of a column, if the row before was asked for it at this point.
    fn known(&self, column: &'static str) -> Option<usize> {
        let known = self.known.borrow();
        let (name, at) = known.get(self.asked.get())?;
        std::ptr::eq(*name, column).then_some(*at)
    }

    /// Looks a column up. Most statements select in the order in which is read: the one after the last
    /// is tried first.
    fn find(&self, row: &Row<'_>, column: &'static str) -> rusqlite::Result<usize> {
        let statement = row.as_ref();
        let mut known = self.known.borrow_mut();
        known.truncate(self.asked.get());
        let next = known.last().map_or(0, |(_, at)| at + 1);
        let is_next = statement.column_name(next).is_ok_and(|name| name == column);
        let at = match is_next {
            true => next,
            false => statement.column_index(column)?,
        };
        known.push((column, at));
        Ok(at)
    }
}

impl<'r, 's> Fields<'r, 's> {
    /// A row whose columns may stand in any order.
    pub(super) fn by_name(row: &'r Row<'s>, places: &'r Places) -> Self {
        places.asked.set(0);
        Self {
            row,
            places: Some(places),
            next: Cell::new(0),
        }
    }

    /// A row of a statement that selects exactly in the order in which is read. A debug build compares
    /// the names.
    pub(super) fn in_order(row: &'r Row<'s>) -> Self {
        Self {
            row,
            places: None,
            next: Cell::new(0),
        }
    }

    #[inline]
    pub(super) fn get<T: FromSql>(&self, column: &'static str) -> StoreResult<T> {
        T::column_result(self.get_ref(column)?).map_err(|error| unlike(column, &error))
    }

    /// Passes over columns of a row that is read in order.
    pub(super) fn skip(&self, columns: usize) {
        self.next.set(self.next.get() + columns);
    }

    /// Returns a value as it lies in the row.
    #[inline]
    pub(super) fn get_ref(&self, column: &'static str) -> StoreResult<ValueRef<'_>> {
        self.place(column)
            .and_then(|at| self.row.get_ref(at))
            .map_err(unread)
    }

    /// Returns a word that is only compared, as it lies in the row; none is damage.
    pub(super) fn word(&self, column: &'static str) -> StoreResult<&str> {
        let value = self.get_ref(column)?.as_str();
        value.map_err(|error| unlike(column, &error))
    }

    /// Returns a text as it lies in the row.
    pub(super) fn text(&self, column: &'static str) -> StoreResult<Option<&str>> {
        match self.get_ref(column)? {
            // Most of what a build reads is text, and a tenth of its time went into this check.
            ValueRef::Text(bytes) => {
                let text = simdutf8::basic::from_utf8(bytes);
                text.map(Some).map_err(damaged)
            }
            other => other.as_str_or_null().map_err(damaged),
        }
    }

    #[inline]
    fn place(&self, column: &'static str) -> rusqlite::Result<usize> {
        let Some(places) = self.places else {
            let at = self.next.replace(self.next.get() + 1);
            debug_assert!(self.is_named(at, column), "{column} is not read in order");
            return Ok(at);
        };
        self.place_of(places, column)
    }

    /// Whether a column has this name. As for SQLite, case makes no difference: a name in a damaged
    /// schema may differ in it.
    fn is_named(&self, at: usize, column: &str) -> bool {
        let name = self.row.as_ref().column_name(at);
        name.is_ok_and(|name| name.eq_ignore_ascii_case(column))
    }

    fn place_of(&self, places: &Places, column: &'static str) -> rusqlite::Result<usize> {
        let at = match places.known(column) {
            Some(at) => Ok(at),
            None => places.find(self.row, column),
        };
        places.asked.set(places.asked.get() + 1);
        at
    }

    pub(super) fn unsigned(&self, column: &'static str) -> StoreResult<u64> {
        let value: i64 = self.get(column)?;
        u64::try_from(value).map_err(|_| out_of_range(column, &value))
    }

    pub(super) fn small(&self, column: &'static str) -> StoreResult<u32> {
        let value: i64 = self.get(column)?;
        u32::try_from(value).map_err(|_| out_of_range(column, &value))
    }

    pub(super) fn maybe_small(&self, column: &'static str) -> StoreResult<Option<u32>> {
        let Some(value) = self.get::<Option<i64>>(column)? else {
            return Ok(None);
        };
        let small = u32::try_from(value).map(Some);
        small.map_err(|_| out_of_range(column, &Some(value)))
    }

    pub(super) fn turns(
        &self,
        first: &'static str,
        last: &'static str,
    ) -> StoreResult<Option<Turns>> {
        Ok(match (self.maybe_small(first)?, self.maybe_small(last)?) {
            (Some(first), Some(last)) => Some(Turns { first, last }),
            _ => None,
        })
    }
}

// What nearly never happens stands apart, so that reading a value stays short.
#[cold]
fn unlike(column: &str, error: &FromSqlError) -> StoreError {
    damaged(format!("{column}: {error}"))
}

#[cold]
fn out_of_range(column: &str, value: &dyn std::fmt::Debug) -> StoreError {
    StoreError::Damaged(format!("{column} is {value:?}"))
}

#[cold]
fn unread(error: rusqlite::Error) -> StoreError {
    match error {
        rusqlite::Error::SqliteFailure(..) => from_sqlite(error),
        _ => StoreError::Damaged(error.to_string()),
    }
}

pub(super) fn damaged<E: std::fmt::Display>(error: E) -> StoreError {
    StoreError::Damaged(error.to_string())
}
