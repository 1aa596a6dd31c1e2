//! Errors of SQLite as errors of a store.

use crate::store::error::{OpenError, StoreError};

pub(super) fn from_open(error: OpenError) -> StoreError {
    match error {
        OpenError::Busy => StoreError::Busy,
        OpenError::Damaged { detail, .. } => StoreError::Damaged(detail),
        OpenError::ReadOnly { .. } => StoreError::ReadOnly,
        other => StoreError::Other(Box::new(other)),
    }
}

/// Sorts an error of the driver by what the caller can do.
pub(super) fn from_sqlite(error: rusqlite::Error) -> StoreError {
    use rusqlite::ErrorCode as Code;
    let message = error.to_string();
    match error.sqlite_error_code() {
        Some(Code::DatabaseBusy | Code::DatabaseLocked) => StoreError::Busy,
        Some(Code::ReadOnly) => StoreError::ReadOnly,
        Some(Code::DiskFull) => StoreError::Full,
        Some(Code::SystemIoFailure | Code::CannotOpen) => StoreError::Io(Box::new(error)),
        Some(Code::DatabaseCorrupt | Code::NotADatabase) => StoreError::Damaged(message),
        Some(Code::ConstraintViolation) => StoreError::Invalid(message),
        _ if is_misfit(&error) => StoreError::Damaged(message),
        _ => StoreError::Other(Box::new(error)),
    }
}

/// True if a statement of this program does not fit the tables, or a value its column.
pub(super) fn is_misfit(error: &rusqlite::Error) -> bool {
    use rusqlite::Error as E;
    let is_plain = |failure: &rusqlite::ffi::Error| failure.extended_code == 1;
    error.sqlite_error().is_some_and(is_plain)
        || matches!(
            error,
            E::SqlInputError { .. }
                | E::Utf8Error(..)
                | E::FromSqlConversionFailure(..)
                | E::InvalidColumnType(..)
                | E::IntegralValueOutOfRange(..)
        )
}
