//! The values of a row, found by the name of their column or by its place.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};

use rusqlite::Row;
use rusqlite::types::{FromSql, FromSqlError, ValueRef};

use super::from_sqlite;
use super::reader::number;
use crate::store::columns::{Columns, damaged};
use crate::store::error::{StoreError, StoreResult};

/// A row read by column name, with damage reported instead of passed on.
pub(super) struct SqliteRow<'r, 's> {
    row: &'r Row<'s>,
    /// `None`: the columns stand in the order in which they are asked for.
    places: Option<&'r Places>,
    next: Cell<usize>,
}

/// The places of the columns of a query.
///
/// SQLite hands out names as C strings, and to look through those of a row for each value was a third of
/// a build. So the first row notes what was asked for in which order, and the others find it by that.
#[derive(Default)]
pub(super) struct Places {
    known: RefCell<Vec<(&'static str, usize)>>,
    /// The number of values that were read of this row.
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

impl<'r, 's> SqliteRow<'r, 's> {
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

    /// Passes over columns of a row that is read in order.
    pub(super) fn skip(&self, columns: usize) {
        self.next.set(self.next.get() + columns);
    }

    /// Returns a value as it lies in the row.
    #[inline]
    fn get_ref(&self, column: &'static str) -> StoreResult<ValueRef<'_>> {
        self.place(column)
            .and_then(|at| self.row.get_ref(at))
            .map_err(unread)
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

    /// Returns true if a column has this name. Case is ignored as in SQLite, since names in a damaged schema may
    /// differ in case.
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
}

impl Columns for SqliteRow<'_, '_> {
    #[inline]
    fn integer(&self, column: &'static str) -> StoreResult<Option<i64>> {
        let value = self.get_ref(column)?.as_i64_or_null();
        value.map_err(|error| unlike(column, &error))
    }

    fn real(&self, column: &'static str) -> StoreResult<Option<f64>> {
        let value = Option::column_result(self.get_ref(column)?);
        value.map_err(|error| unlike(column, &error))
    }

    #[inline]
    fn flag(&self, column: &'static str) -> StoreResult<Option<bool>> {
        Ok(self.integer(column)?.map(|number| number != 0))
    }

    fn text(&self, column: &'static str) -> StoreResult<Option<&str>> {
        match self.get_ref(column)? {
            // Most of what a build reads is text, and a tenth of its time went into this check.
            ValueRef::Text(bytes) => {
                let text = simdutf8::basic::from_utf8(bytes);
                text.map(Some).map_err(damaged)
            }
            other => other
                .as_str_or_null()
                .map_err(|error| unlike(column, &error)),
        }
    }

    #[inline]
    fn bytes(&self, column: &'static str) -> StoreResult<Option<&[u8]>> {
        let value = self.get_ref(column)?.as_blob_or_null();
        value.map_err(|error| unlike(column, &error))
    }

    /// The key of such a row is packed: the number is its lower half.
    #[inline]
    fn number(&self, column: &'static str) -> StoreResult<u32> {
        self.get(column).map(number)
    }

    /// SQLite keeps any text as it is.
    fn content(&self, column: &'static str) -> StoreResult<Option<Cow<'_, str>>> {
        Ok(self.text(column)?.map(Cow::Borrowed))
    }
}

// Errors nearly never happen: out of line, so that reading a value stays short.
#[cold]
fn unlike(column: &str, error: &FromSqlError) -> StoreError {
    damaged(format!("{column}: {error}"))
}

#[cold]
fn unread(error: rusqlite::Error) -> StoreError {
    match error {
        rusqlite::Error::SqliteFailure(..) => from_sqlite(error),
        _ => damaged(error),
    }
}
