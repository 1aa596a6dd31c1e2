//! Values of columns, in a form that both backends bind.
//!
//! The columns and values of a row are listed once, in [`super::mapping`]. A backend adds columns of its
//! own (its keys) and passes the list to its driver. Rows of the hot paths (messages, turns, totals) are
//! bound by each backend itself, without a list.

use super::StoreResult;
use super::error::StoreError;
use super::rows::*;
use crate::model::{LoopId, SessionId};
use crate::tokens::MAX_AMOUNT;

/// A value of a column, with its type also if it is NULL, as a server needs it.
#[derive(Clone, Debug)]
pub enum BoundValue<'a> {
    /// A whole number.
    Integer(Option<i64>),
    /// A text.
    Text(Option<&'a str>),
    /// A text that was made for its column.
    Json(String),
    /// Bytes.
    Bytes(Option<&'a [u8]>),
    /// A digest that was made for its column.
    Digest(Vec<u8>),
    /// A truth value.
    Flag(bool),
}

/// A type that can be written into a column.
pub trait ToValue {
    /// Returns the value; fails for a number that no database can store.
    fn to_value(&self) -> StoreResult<BoundValue<'_>>;
}

/// Makes a list of values in the order of their columns.
macro_rules! values {
    ($($value:expr),* $(,)?) => {
        vec![$(crate::store::values::ToValue::to_value($value)?),*]
    };
}
pub(super) use values;

macro_rules! to_values {
    ($($type:ty: $value:ident => $made:expr;)*) => {$(
        impl ToValue for $type {
            fn to_value(&self) -> StoreResult<BoundValue<'_>> {
                let $value = self;
                Ok($made)
            }
        }
    )*};
}

to_values! {
    i64: number => BoundValue::Integer(Some(*number));
    u32: number => BoundValue::Integer(Some(i64::from(*number)));
    u64: number => BoundValue::Integer(Some(signed(*number)?));
    Option<i64>: number => BoundValue::Integer(*number);
    Option<u32>: number => BoundValue::Integer(number.map(i64::from));
    bool: flag => BoundValue::Flag(*flag);
    str: text => BoundValue::Text(Some(text));
    String: text => BoundValue::Text(Some(text));
    Option<String>: text => BoundValue::Text(text.as_deref());
    Option<&str>: text => BoundValue::Text(*text);
    SessionId: id => BoundValue::Text(Some(id.as_str()));
    LoopId: id => BoundValue::Text(Some(id.as_str()));
    SessionKey: key => BoundValue::Integer(Some(key.0));
    LoopKey: key => BoundValue::Integer(Some(key.0));
    RunKey: key => BoundValue::Integer(Some(key.0));
    Option<BlockKey>: key => BoundValue::Integer(key.map(|key| key.0));
    Option<LoopKey>: key => BoundValue::Integer(key.map(|key| key.0));
    Outcome: word => BoundValue::Text(Some(word.as_str()));
    BlockKind: word => BoundValue::Text(Some(word.as_str()));
}

impl<const N: usize> ToValue for [u8; N] {
    fn to_value(&self) -> StoreResult<BoundValue<'_>> {
        Ok(BoundValue::Bytes(Some(self)))
    }
}

impl<const N: usize> ToValue for Option<[u8; N]> {
    fn to_value(&self) -> StoreResult<BoundValue<'_>> {
        Ok(BoundValue::Bytes(self.as_ref().map(|bytes| &bytes[..])))
    }
}

/// Returns an amount in the form that the databases store.
pub fn signed(number: u64) -> StoreResult<i64> {
    match i64::try_from(number) {
        Ok(signed) if number <= MAX_AMOUNT => Ok(signed),
        _ => Err(StoreError::Invalid(format!("{number} is too large"))),
    }
}

/// Reads an amount; `None` if it is negative or larger than any that is written.
pub fn amount(signed: i64) -> Option<u64> {
    u64::try_from(signed).ok().filter(|&it| it <= MAX_AMOUNT)
}
