//! Encrypted databases, by SQLCipher: every page of the file, its log and its copies.
//!
//! Without a key SQLCipher is plain SQLite. Plain SQLite takes a key without a word and encrypts
//! nothing, so it is asked first what it is.

use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};
use zeroize::Zeroizing;

use super::options::SqliteOptions;
use super::schema::{connect, opening};
use crate::store::error::OpenError;
use crate::store::key::Key;

/// The size of a page of an encrypted file, which does not say it: so it is the same for all of them.
pub(super) const CIPHER_PAGE_BYTES: u32 = 8 << 10;

/// The bytes of each page that SQLCipher reserves: an initialisation vector of 16 and an authentication code of 64.
const RESERVED_BYTES: u32 = 80;

/// SQLCipher that is not ready after so long never will be.
const MOST_STARTING: Duration = Duration::from_secs(2);

/// Gives the key to a new connection, before anything else is asked of it.
///
/// # Errors
/// If this program cannot encrypt, or the key could not be given; the error never holds it.
pub(super) fn unlock(connection: &Connection, key: Option<&Key>) -> Result<(), OpenError> {
    let Some(key) = key else {
        return Ok(());
    };
    if !has_cipher(connection) {
        return Err(OpenError::NoEncryption);
    }
    await_cipher();
    let sql = unlocking(&key.literal());
    connection.execute_batch(&sql).map_err(|error| {
        let path = Path::new(connection.path().unwrap_or_default());
        opening(path, without_statement(&error))
    })
}

/// Waits until SQLCipher is ready. While the thread that uses SQLite first still makes it so, SQLite lets
/// others pass, and SQLCipher would refuse their keys.
fn await_cipher() {
    static READY: OnceLock<()> = OnceLock::new();
    let is_ready = || {
        Connection::open_in_memory().is_ok_and(|connection| {
            let sql = "PRAGMA cipher_log_level = NONE; PRAGMA key = 'any'";
            connection.execute_batch(sql).is_ok()
        })
    };
    READY.get_or_init(|| {
        let begun = Instant::now();
        while !is_ready() && begun.elapsed() < MOST_STARTING {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

/// The driver's errors hold the statement, and with it the key.
fn without_statement(error: &rusqlite::Error) -> rusqlite::Error {
    match error.sqlite_error() {
        Some(code) => rusqlite::Error::SqliteFailure(*code, None),
        None => rusqlite::Error::InvalidQuery,
    }
}

/// Returns the statements that unlock a database.
fn unlocking(literal: &str) -> Zeroizing<String> {
    let end = format!("; PRAGMA cipher_page_size = {CIPHER_PAGE_BYTES}");
    let mut sql = Zeroizing::new(String::with_capacity(literal.len() + 128));
    // It would tell of each wrong key on stderr.
    sql.push_str("PRAGMA cipher_log_level = NONE; PRAGMA key = ");
    sql.push_str(literal);
    sql.push_str(&end);
    sql
}

/// Lets a connection with an open transaction go on after a page that cannot be decrypted, which then
/// counts as empty. By default the first one ends it.
///
/// # Errors
/// If not even the first page can be read.
pub(super) fn bear_damage(connection: &Connection) -> rusqlite::Result<()> {
    // The transaction keeps the first page at hand from here on. It is the only one that the setting
    // below would spoil: it says that all of that page is plain, which SQLCipher takes as a wish to
    // read what is left.
    connection.pragma_query_value(None, "schema_version", |row| row.get::<_, i64>(0))?;
    let content = CIPHER_PAGE_BYTES - RESERVED_BYTES;
    connection.execute_batch(&format!("PRAGMA cipher_plaintext_header_size = {content}"))
}

/// True if this program is linked with SQLCipher.
fn has_cipher(connection: &Connection) -> bool {
    let version = connection.query_row("PRAGMA cipher_version", [], |row| row.get::<_, String>(0));
    version.is_ok()
}

/// True if this program can encrypt.
pub(super) fn can_encrypt() -> bool {
    Connection::open_in_memory().is_ok_and(|connection| has_cipher(&connection))
}

/// Sorts an error of opening, and tells what is wrong with the key.
pub(super) fn opening_with(
    path: &Path,
    options: &SqliteOptions,
    error: rusqlite::Error,
) -> OpenError {
    let is_unread = error.sqlite_error_code() == Some(ErrorCode::NotADatabase);
    let path = path.to_owned();
    match &options.key {
        Some(_) if is_unread && is_plain(&path, options) => OpenError::NotEncrypted { path },
        Some(_) if is_unread && has_whole_pages(&path) => OpenError::WrongKey { path },
        None if is_unread && has_whole_pages(&path) => OpenError::KeyMissing { path },
        _ => opening(&path, error),
    }
}

/// True if the file can be read without a key.
fn is_plain(path: &Path, options: &SqliteOptions) -> bool {
    let mut options = options.clone().read_only(true);
    options.key = None;
    let read = |connection: Connection| {
        connection.pragma_query_value(None, "schema_version", |row| row.get::<_, i64>(0))
    };
    connect(path, &options).is_ok_and(|connection| read(connection).is_ok())
}

/// Returns true if a file could be an encrypted database. Only its length shows that.
fn has_whole_pages(path: &Path) -> bool {
    let length = path.metadata().map_or(0, |found| found.len());
    length > 0 && length.is_multiple_of(u64::from(CIPHER_PAGE_BYTES))
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    #[test]
    fn why_a_key_could_not_be_given_is_told_without_the_key() {
        let connection = Connection::open_in_memory().unwrap();
        let error = connection
            .execute_batch("PRAGMA key = 'secret' nonsense")
            .unwrap_err();
        assert!(format!("{error:?}").contains("secret"));
        assert!(!format!("{:?}", without_statement(&error)).contains("secret"));
        let busy = ffi::Error::new(ffi::SQLITE_BUSY);
        let busy = rusqlite::Error::SqliteFailure(busy, Some("secret".to_owned()));
        let told = opening(Path::new("a.db"), without_statement(&busy));
        assert!(matches!(told, OpenError::Busy));
    }
}
