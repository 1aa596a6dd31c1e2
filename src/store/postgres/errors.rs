//! Sorts errors of the driver by what the caller can do.
//!
//! What the server says is told, where it was is not: an address may hold a password.

use ::postgres::Error;
use ::postgres::error::SqlState;

use crate::store::error::{OpenError, StoreError};

/// What the driver says, without what stands in the address.
pub(super) fn told(error: &Error) -> String {
    if let Some(error) = error.as_db_error() {
        return error.message().to_owned();
    }
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// Whether the connection is of no use any more.
pub(super) fn is_lost(error: &Error) -> bool {
    match error.code() {
        Some(code) => {
            let code = code.code();
            // 08: connection; 57P01 to 57P05: the server shuts down or restarts.
            code.starts_with("08") || code.starts_with("57P")
        }
        // What is wrong with a value or a column has no code either, but leaves the connection whole.
        None => error.is_closed() || is_from_the_wire(error),
    }
}

fn is_from_the_wire(error: &Error) -> bool {
    let Some(cause) = std::error::Error::source(error) else {
        return false;
    };
    cause.is::<std::io::Error>() || error.to_string().starts_with("error communicating")
}

/// Sorts an error of a statement.
pub(super) fn from_postgres(error: Error) -> StoreError {
    if is_lost(&error) {
        return StoreError::Connection(told(&error).into());
    }
    let Some(code) = error.code() else {
        return StoreError::Damaged(told(&error));
    };
    match code.code() {
        "55P03" => StoreError::Busy,
        "40001" | "40P01" => StoreError::Interrupted,
        "57014" => StoreError::TimedOut,
        "25006" => StoreError::ReadOnly,
        "53100" => StoreError::Full,
        "58030" => StoreError::Io(told(&error).into()),
        "XX001" | "XX002" => StoreError::Damaged(told(&error)),
        "22021" | "22P05" => {
            StoreError::Invalid("PostgreSQL cannot hold U+0000 in this text".into())
        }
        // A statement of this program does not fit the tables.
        "42P01" | "42703" | "42883" => StoreError::Damaged(told(&error)),
        "42501" => StoreError::Invalid(format!("{}; this role may not do that", told(&error))),
        code if code.starts_with("22") || code.starts_with("23") => {
            StoreError::Invalid(told(&error))
        }
        _ => StoreError::Other(told(&error).into()),
    }
}

/// Sorts an error of a connection that could not be made.
pub(super) fn from_connecting(place: &str, error: Error) -> OpenError {
    let place = place.to_owned();
    match error.code() {
        Some(code) if *code == SqlState::INVALID_CATALOG_NAME => OpenError::NoDatabase { place },
        Some(code) if code.code().starts_with("28") => OpenError::Refused {
            place,
            detail: told(&error),
        },
        Some(code) if *code == SqlState::INSUFFICIENT_PRIVILEGE => OpenError::Refused {
            place,
            detail: told(&error),
        },
        None if error.to_string().starts_with("authentication")
            || error.to_string().starts_with("invalid configuration") =>
        {
            OpenError::Refused {
                place,
                detail: told(&error),
            }
        }
        _ => OpenError::Unreachable {
            place,
            detail: told(&error),
        },
    }
}
