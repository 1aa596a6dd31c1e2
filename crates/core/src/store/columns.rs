//! Columns of a row, read by name on both backends.
//!
//! A backend implements [`Columns`] for its row; the mappers in [`super::mapping`] are written against
//! it. Differences between the two schemas (packed keys, texts with U+0000) are resolved in that
//! implementation, so that a mapper sees one form.

use std::borrow::Cow;
use std::fmt::Display;

use super::codec::{author_from_number, role_from_number};
use super::error::{StoreError, StoreResult};
use super::rows::*;
use super::values::amount;
use crate::model::{Author, LoopId, LoopStatus, Role, SessionId};

/// A row whose columns are read by name. A value that cannot be read is damage.
///
/// SQLite's rows of the hot queries are read by position, so a mapper must read the columns in the
/// order in which the queries select them; a debug build compares the names.
pub trait Columns: Sized {
    /// Returns a whole number; `None` for NULL.
    fn integer(&self, column: &'static str) -> StoreResult<Option<i64>>;
    /// Returns a floating-point number; `None` for NULL.
    fn real(&self, column: &'static str) -> StoreResult<Option<f64>>;
    /// Returns a truth value; `None` for NULL.
    fn flag(&self, column: &'static str) -> StoreResult<Option<bool>>;
    /// Returns a text without a copy; `None` for NULL.
    fn text(&self, column: &'static str) -> StoreResult<Option<&str>>;
    /// Returns bytes without a copy; `None` for NULL.
    fn bytes(&self, column: &'static str) -> StoreResult<Option<&[u8]>>;
    /// Returns the number of a row within its loop or block.
    fn number(&self, column: &'static str) -> StoreResult<u32>;
    /// Returns a text that may contain U+0000, without a copy if the backend stores it unchanged.
    fn content(&self, column: &'static str) -> StoreResult<Option<Cow<'_, str>>>;

    /// Returns a value of the requested type; NULL is damage unless the type is an [`Option`].
    #[inline]
    fn get<'r, T: FromColumn<'r>>(&'r self, column: &'static str) -> StoreResult<T> {
        T::from_column(self, column)
    }

    /// Returns a value that is stored as JSON; the default of the type for NULL.
    fn json<T: serde::de::DeserializeOwned + Default>(
        &self,
        column: &'static str,
    ) -> StoreResult<T> {
        match self.text(column)? {
            Some(json) => serde_json::from_str(json).map_err(damaged),
            None => Ok(T::default()),
        }
    }

    /// Returns a range of turns; `None` if either end is NULL.
    fn turns(&self, first: &'static str, last: &'static str) -> StoreResult<Option<Turns>> {
        let (first, last): (Option<u32>, Option<u32>) = (self.get(first)?, self.get(last)?);
        Ok(first.zip(last).map(|(first, last)| Turns { first, last }))
    }

    /// Returns a size from its three columns.
    fn size(
        &self,
        tokens: &'static str,
        bytes: &'static str,
        messages: &'static str,
    ) -> StoreResult<Size> {
        Ok(Size {
            tokens: self.get(tokens)?,
            bytes: self.get(bytes)?,
            messages: self.get(messages)?,
        })
    }
}

/// A type that [`Columns::get`] can return: a [`ColumnValue`], or an [`Option`] of one.
pub trait FromColumn<'r>: Sized {
    /// Reads the column.
    fn from_column(row: &'r impl Columns, column: &'static str) -> StoreResult<Self>;
}

/// A type of values of a column.
pub trait ColumnValue<'r>: Sized {
    /// Reads the column; `None` for NULL.
    fn read(row: &'r impl Columns, column: &'static str) -> StoreResult<Option<Self>>;
}

impl<'r, T: ColumnValue<'r>> FromColumn<'r> for T {
    #[inline]
    fn from_column(row: &'r impl Columns, column: &'static str) -> StoreResult<Self> {
        match T::read(row, column)? {
            Some(value) => Ok(value),
            None => Err(is_null(column)),
        }
    }
}

impl<'r, T: ColumnValue<'r>> FromColumn<'r> for Option<T> {
    #[inline]
    fn from_column(row: &'r impl Columns, column: &'static str) -> StoreResult<Self> {
        T::read(row, column)
    }
}

/// Implements [`ColumnValue`] for types: the getter, and the conversion of its value.
macro_rules! column_values {
    ($($type:ty: $getter:ident, $column:ident, $value:ident => $made:expr;)*) => {$(
        impl<'r> ColumnValue<'r> for $type {
            #[inline]
            fn read(row: &'r impl Columns, $column: &'static str) -> StoreResult<Option<Self>> {
                match row.$getter($column)? {
                    Some($value) => Ok(Some($made)),
                    None => Ok(None),
                }
            }
        }
    )*};
}

column_values! {
    i64: integer, column, value => value;
    u64: integer, column, value => amount(value).ok_or_else(|| out_of_range(column, value))?;
    u32: integer, column, value => u32::try_from(value).map_err(|_| out_of_range(column, value))?;
    f64: real, column, value => value;
    bool: flag, column, value => value;
    &'r str: text, column, text => text;
    String: text, column, text => text.to_owned();
    Vec<u8>: bytes, column, bytes => bytes.to_vec();
    SessionKey: integer, column, key => Self(key);
    LoopKey: integer, column, key => Self(key);
    RunKey: integer, column, key => Self(key);
    BlockKey: integer, column, key => Self(key);
    FlipKey: integer, column, key => Self(key);
    HideKey: integer, column, key => Self(key);
    PinKey: integer, column, key => Self(key);
    SourceKey: integer, column, key => Self(key);
    ManifestKey: integer, column, key => Self(key);
    SessionId: text, column, id => Self::new(id).map_err(damaged)?;
    LoopId: text, column, id => Self::new(id).map_err(damaged)?;
    LoopStatus: text, column, word => Self::from(word);
    Role: integer, column, number => role_from_number(number)?;
    Author: integer, column, number => author_from_number(number)?;
    Outcome: text, column, word => Self::from_word(word).ok_or_else(|| damaged(word))?;
    BlockKind: text, column, word => Self::from_word(word).ok_or_else(|| damaged(word))?;
    crate::model::EditAction: text, column, word => Self::from_word(word).ok_or_else(|| damaged(word))?;
    Disposition: text, column, word => Self::from_word(word).ok_or_else(|| damaged(word))?;
    super::audit::AuditKind: text, column, word => Self::from_word(word).ok_or_else(|| damaged(word))?;
}

impl<'r, const N: usize> ColumnValue<'r> for [u8; N] {
    #[inline]
    fn read(row: &'r impl Columns, column: &'static str) -> StoreResult<Option<Self>> {
        match row.bytes(column)? {
            Some(bytes) => match bytes.try_into() {
                Ok(bytes) => Ok(Some(bytes)),
                Err(_) => Err(wrong_length(column, bytes.len())),
            },
            None => Ok(None),
        }
    }
}

// Rare errors are made in functions of their own, so that reading a value stays short.
#[cold]
fn is_null(column: &str) -> StoreError {
    damaged(format!("{column} is missing"))
}

#[cold]
fn out_of_range(column: &str, value: i64) -> StoreError {
    damaged(format!("{column} is {value}"))
}

#[cold]
fn wrong_length(column: &str, length: usize) -> StoreError {
    damaged(format!("{column} has {length} bytes"))
}

/// Returns the error for a stored value that cannot be read.
#[cold]
pub fn damaged(error: impl Display) -> StoreError {
    StoreError::Damaged(error.to_string())
}

/// Returns the error for a key without a row.
#[cold]
pub fn missing(what: &str, key: i64) -> StoreError {
    damaged(format!("{what} {key} is missing"))
}
