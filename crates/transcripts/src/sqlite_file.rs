//! Databases of other programs: opened, recognised by their tables and columns, and only read.
//!
//! A file without a write-ahead log is opened as immutable, so that SQLite creates no file next to it.

use std::path::Path;
use std::time::Duration;

use loopstore::internal::open_locked;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, Row};

/// The maximum time to wait for a lock of another program.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// A value, or the reason why a file cannot be used.
pub(crate) type Unusable<T> = Result<T, String>;

pub(crate) fn reason(error: rusqlite::Error) -> String {
    error.to_string()
}

/// Opens a file for reading.
pub(crate) fn open(path: &Path) -> Unusable<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    let connection = open_locked(uri(path), flags).map_err(reason)?;
    connection.busy_timeout(MAX_WAIT).map_err(reason)?;
    Ok(connection)
}

/// Returns the names of the tables of a file.
///
/// # Errors
/// If the file cannot be read; the error gives the reason.
pub(crate) fn table_names(path: &Path) -> Unusable<Vec<String>> {
    names(&open(path)?)
}

fn names(connection: &Connection) -> Unusable<Vec<String>> {
    let sql = "SELECT name FROM sqlite_schema
               WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY rowid";
    let mut statement = connection.prepare(sql).map_err(reason)?;
    let names = statement.query_map([], |row| row.get::<_, String>("name"));
    names
        .map_err(reason)?
        .collect::<Result<_, _>>()
        .map_err(reason)
}

/// Reads a column of any type as text.
pub(crate) fn text(row: &Row<'_>, column: &str) -> rusqlite::Result<Option<String>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Null => None,
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Real(number) => Some(number.to_string()),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            Some(String::from_utf8_lossy(bytes).into_owned())
        }
    })
}

/// Returns the first table that has these columns.
pub(crate) fn table_with(connection: &Connection, columns: &[&str]) -> Unusable<Option<String>> {
    for name in names(connection)? {
        if has_columns(connection, &name, columns)? {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// True if a table has all of these columns.
pub(crate) fn has_columns(
    connection: &Connection,
    table: &str,
    columns: &[&str],
) -> Unusable<bool> {
    let sql = "SELECT name FROM pragma_table_info(?1)";
    let mut statement = connection.prepare(sql).map_err(reason)?;
    let found = statement.query_map([table], |row| row.get::<_, String>("name"));
    let found: Result<Vec<String>, _> = found.map_err(reason)?.collect();
    let found = found.map_err(reason)?;
    Ok(columns
        .iter()
        .all(|column| found.iter().any(|name| name == column)))
}

/// Returns a name quoted for SQL.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Returns the URI of a file for SQLite.
fn uri(path: &Path) -> String {
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
                uri.push(char::from(*byte));
            }
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let has_log = std::fs::metadata(log).is_ok_and(|data| data.len() > 0);
    uri.push_str(if has_log { "?mode=ro" } else { "?immutable=1" });
    uri
}
