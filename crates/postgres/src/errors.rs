//! Errors of the driver, by what the caller can do.
//!
//! The text of the server is reported, the address is not: it may contain a password.

use std::time::Duration;

use loopstore_core::store::{OpenError, StoreError};
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

/// An error of a statement.
#[derive(Debug)]
pub(super) enum StatementError {
    /// An error of the server or the driver.
    Driver(Error),
    /// The server was silent for this time.
    StatementTimeout(Duration),
    /// The connection was closed before.
    GivenUp,
    /// An error of this machine.
    Local(String),
}

impl StatementError {
    /// Returns the code of the server's error.
    pub(super) fn code(&self) -> Option<&str> {
        match self {
            Self::Driver(error) => error.code().map(SqlState::code),
            _ => None,
        }
    }
}

/// Returns the text of an error, without parts of the address.
pub(super) fn describe(error: &StatementError) -> String {
    match error {
        StatementError::Driver(error) => driver_text(error),
        StatementError::StatementTimeout(limit) => {
            format!("it did not answer in {} s", limit.as_secs_f64())
        }
        StatementError::GivenUp => "it was given up".into(),
        StatementError::Local(detail) => detail.clone(),
    }
}

/// Returns the text of an error, without parts of the address.
pub(super) fn driver_text(error: &Error) -> String {
    if let Some(error) = error.as_db_error() {
        let message = error.message();
        return match error.code().code() {
            // A prepared statement does not exist, or exists already.
            "26000" | "42P05" => format!(
                "{message}: a pooler gives the transactions of a connection to different processes of the \
                 server; say `pooling=transaction` in the address"
            ),
            _ => message.to_owned(),
        };
    }
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// True if the connection cannot be used any more.
pub(super) fn is_lost(error: &StatementError) -> bool {
    let StatementError::Driver(error) = error else {
        return true;
    };
    match error.code() {
        Some(code) => {
            let code = code.code();
            // 08: connection; 57P01 to 57P05: the server shuts down or restarts.
            code.starts_with("08") || code.starts_with("57P")
        }
        // An error in a value or a column has no code either, but leaves the connection usable.
        None => error.is_closed() || is_from_the_wire(error),
    }
}

fn is_from_the_wire(error: &Error) -> bool {
    let Some(cause) = std::error::Error::source(error) else {
        return false;
    };
    cause.is::<std::io::Error>() || error.to_string().starts_with("error communicating")
}

/// True if a `BEGIN` was rejected because the server is a standby. The code only means that something is not
/// possible; nothing else in a `BEGIN` can fail with it.
pub(super) fn is_standby(error: &StatementError) -> bool {
    error.code() == Some("0A000")
}

/// True if the code asks for the transaction to be run again: other writers interfered, or there was a
/// deadlock.
pub(super) fn is_serialization_failure(code: &str) -> bool {
    matches!(code, "40001" | "40P01")
}

/// Converts an error of a statement to one of the store.
pub(super) fn from_postgres(error: StatementError) -> StoreError {
    if let StatementError::StatementTimeout(limit) = error {
        return StoreError::StatementTimeout(limit);
    }
    if is_lost(&error) {
        return StoreError::Connection(describe(&error).into());
    }
    let Some(code) = error.code() else {
        return StoreError::Damaged(describe(&error));
    };
    match code {
        "55P03" => StoreError::Busy,
        code if is_serialization_failure(code) => StoreError::SerializationFailure,
        "57014" => StoreError::TimedOut,
        "25006" => StoreError::ReadOnly,
        "53100" => StoreError::Full,
        "58030" => StoreError::Io(describe(&error).into()),
        "XX001" | "XX002" => StoreError::Damaged(describe(&error)),
        "22021" | "22P05" => {
            StoreError::Invalid("PostgreSQL cannot hold U+0000 in this text".into())
        }
        "26000" | "42P05" => StoreError::Invalid(describe(&error)),
        // A statement of this crate does not match the tables.
        "42P01" | "42703" | "42883" => StoreError::Damaged(describe(&error)),
        // Raised by functions of the store.
        "55000" => StoreError::Invalid(describe(&error)),
        "42501" => StoreError::Invalid(format!("{}; this role may not do that", describe(&error))),
        code if code.starts_with("22") || code.starts_with("23") => {
            StoreError::Invalid(describe(&error))
        }
        _ => StoreError::Other(describe(&error).into()),
    }
}

/// Converts an error of a new connection to one of opening.
pub(super) fn from_connecting(place: &str, error: StatementError) -> OpenError {
    let (place, detail) = (place.to_owned(), describe(&error));
    let StatementError::Driver(error) = &error else {
        return OpenError::Unreachable { place, detail };
    };
    match error.code() {
        Some(code) if *code == SqlState::TOO_MANY_CONNECTIONS => OpenError::Unreachable {
            place,
            detail: format!(
                "{detail}; raise max_connections there, or let a pooler such as PgBouncer share them out"
            ),
        },
        Some(code) if *code == SqlState::INVALID_CATALOG_NAME => OpenError::NoDatabase { place },
        Some(code)
            if code.code().starts_with("28") || *code == SqlState::INSUFFICIENT_PRIVILEGE =>
        {
            OpenError::Refused { place, detail }
        }
        None if error.to_string().starts_with("authentication")
            || error.to_string().starts_with("invalid configuration") =>
        {
            OpenError::Refused { place, detail }
        }
        _ => OpenError::Unreachable { place, detail },
    }
}
