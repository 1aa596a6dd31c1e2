//! `--db postgres://…`: a database on a server.

use std::sync::Arc;

use loopstore::extend::sqlite::{RecountError, RecountProgress, RecountReport};
use loopstore::{Database, OpenError, TokenCounter};

/// The access of a command to the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access<'a> {
    /// The command only reads.
    Read,
    /// The command writes to an existing database.
    Write,
    /// The command creates missing tables, with this token counter.
    Create(&'a str),
}

/// True if a text is the address of a database on a server.
pub fn is_address(text: &str) -> bool {
    text.starts_with("postgres://") || text.starts_with("postgresql://")
}

/// Returns an address without user, password and options.
pub fn place(address: &str) -> String {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let (front, options) = match rest.find(['?', '#']) {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    match front.rsplit_once('@') {
        // A password may contain an @ itself.
        Some((_, host)) => format!("postgres://{host}"),
        None if !options.contains('@') => format!("postgres://{front}"),
        // A password with a ?, or an option with an @: ambiguous.
        None => "postgres://…".to_owned(),
    }
}

/// Opens a database on a server, with the token counter that it was written with.
#[cfg(feature = "postgres")]
pub fn open(address: &str, access: Access<'_>) -> Result<Box<dyn Database>, OpenError> {
    use loopstore_postgres::{PostgresOptions, PostgresStore};
    let mut options = PostgresOptions::new()
        .stored_counter()
        .read_only(access == Access::Read)
        .create(matches!(access, Access::Create(_)));
    if let Access::Create(counter) = access
        && let Some(counter) = loopstore::counter_named(counter)
    {
        options = options.counter(counter);
    }
    Ok(Box::new(PostgresStore::open_with(address, options)?))
}

/// Fails: this program was built without PostgreSQL.
#[cfg(not(feature = "postgres"))]
pub fn open(_address: &str, _access: Access<'_>) -> Result<Box<dyn Database>, OpenError> {
    Err(files_only())
}

/// Recounts the tokens of a database on a server.
#[cfg(feature = "postgres")]
pub fn recount(
    address: &str,
    counter: Arc<dyn TokenCounter>,
    show: &mut dyn FnMut(RecountProgress),
) -> Result<RecountReport, RecountError> {
    let options = loopstore_postgres::PostgresOptions::new().counter(counter);
    loopstore_postgres::recount(address, options, show)
}

/// Fails: this program was built without PostgreSQL.
#[cfg(not(feature = "postgres"))]
pub fn recount(
    _address: &str,
    _counter: Arc<dyn TokenCounter>,
    _show: &mut dyn FnMut(RecountProgress),
) -> Result<RecountReport, RecountError> {
    Err(files_only().into())
}

#[cfg(not(feature = "postgres"))]
fn files_only() -> OpenError {
    OpenError::Address {
        detail: "this loopstore was built without PostgreSQL; build it with `--features postgres`"
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_shown_without_user_password_and_options() {
        for (address, shown) in [
            (
                "postgres://me:pa@ss/w0rd@host:5432/db?password=x",
                "postgres://host:5432/db",
            ),
            ("postgresql://host/db?sslmode=require", "postgres://host/db"),
            ("postgres://me:pass?word@host/db", "postgres://…"),
            ("postgres://host/db?password=pass@word", "postgres://…"),
            ("postgres://me@%2Ftmp%2Fx/db", "postgres://%2Ftmp%2Fx/db"),
        ] {
            assert_eq!(place(address), shown);
        }
    }
}
