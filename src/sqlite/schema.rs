//! Opening: what the file is, its pragmas, its format.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::connections::keep_log_at_close;
use super::encryption::{CIPHER_PAGE_BYTES, can_encrypt, opening_with, unlock};
use super::foreign::{self, ForeignObjects, MOST_READING};
use super::log;
use super::migration::{self, FIRST_FORMAT, Formats};
use super::old_format;
use super::options::{Durability, SqliteOptions};
use super::place::{has_log, immutable_uri};
use super::query::in_time;
use crate::store::error::{OpenError, StoreError, StoreResult};

/// `LOOP` in ASCII: tells a loopstore database from any other SQLite file.
pub(super) const APPLICATION_ID: i64 = 0x4C4F_4F50;

/// True if a file that begins with `head` is a loopstore database. False for an encrypted database.
/// <https://sqlite.org/fileformat2.html#application_id>
pub fn is_store(head: &[u8]) -> bool {
    let id = head.get(68..72).and_then(|id| id.try_into().ok());
    head.starts_with(b"SQLite format 3\0")
        && id.is_some_and(|id| i64::from(u32::from_be_bytes(id)) == APPLICATION_ID)
}

/// The size of a page: a small append writes few pages whole, and each table or index takes one at least.
/// Only an empty file takes it.
pub(super) const PAGE_BYTES: u32 = 4 << 10;

/// Opens the database at `path`, as [`real_path`] gave it, for writing (or reading, if the options say
/// so). A file that is no database SQLite itself refuses.
pub(super) fn open_file(path: &Path, options: &mut SqliteOptions) -> Result<Connection, OpenError> {
    options.immutable = false;
    let mut connection = connect(path, options)?;
    match prepare(&mut connection, options) {
        Err(error) if options.read_only && lacks_its_log(&error) => open_immutable(path, options),
        prepared => {
            prepared.map_err(|error| opening_with(path, options, error))??;
            Ok(connection)
        }
    }
}

/// True if SQLite could not make the log and the lock file beside the database, which it needs for
/// reading too.
fn lacks_its_log(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(code, Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly))
}

/// Opens a database in a folder that cannot be written. Without a log beside it nobody is writing the
/// file, and all of it is in the file.
fn open_immutable(path: &Path, options: &mut SqliteOptions) -> Result<Connection, OpenError> {
    if has_log(path) {
        return Err(OpenError::LogUnread {
            path: path.to_owned(),
        });
    }
    options.immutable = true;
    let mut connection = connect(path, options)?;
    prepare(&mut connection, options).map_err(|error| opening_with(path, options, error))??;
    Ok(connection)
}

/// Makes a database in memory.
pub(super) fn open_memory(options: &mut SqliteOptions) -> Result<Connection, OpenError> {
    let place = Path::new(":memory:");
    if options.read_only {
        let path = place.to_owned();
        return Err(OpenError::Missing { path });
    }
    let opened = migration::formats().in_memory();
    let mut connection = opened.map_err(|error| opening(place, error))?;
    prepare(&mut connection, options).map_err(|error| opening(place, error))??;
    Ok(connection)
}

/// Opens one more connection to a database that is open.
pub(super) fn open_more(path: &Path, options: &SqliteOptions) -> Result<Connection, OpenError> {
    let connection = connect(path, options)?;
    set_pragmas(&connection, options).map_err(|error| opening_with(path, options, error))?;
    Ok(connection)
}

/// Opens one more connection that can only read.
pub(super) fn open_reader(path: &Path, options: &SqliteOptions) -> Result<Connection, OpenError> {
    let connection = open_more(path, options)?;
    only_read(&connection).map_err(|error| opening_with(path, options, error))?;
    Ok(connection)
}

/// Makes a connection one that can only read.
pub(super) fn only_read(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "query_only", true)
}

/// Makes a connection that could only read one that can write.
pub(super) fn allow_writing(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "query_only", false)
}

pub(super) fn connect(path: &Path, options: &SqliteOptions) -> Result<Connection, OpenError> {
    let access = if options.read_only {
        OpenFlags::SQLITE_OPEN_READ_ONLY
    } else {
        OpenFlags::SQLITE_OPEN_READ_WRITE
    };
    // Each connection has one user at a time, so SQLite's own mutexes are not needed.
    let access = access | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let unreached = |cause: std::io::Error| OpenError::Other {
        path: path.to_owned(),
        cause: Box::new(cause),
    };
    let opened = if options.immutable {
        let uri = immutable_uri(path).map_err(unreached)?;
        open_locked(uri, access | OpenFlags::SQLITE_OPEN_URI)
    } else {
        // In full, a path is never taken as a URI or as a database in memory, whatever it is called.
        let path = std::path::absolute(path).map_err(unreached)?;
        open_locked(path, access)
    };
    let connection = opened.map_err(|error| opening(path, error))?;
    keep_log_at_close(&connection).map_err(|error| opening(path, error))?;
    unlock(&connection, options.key.as_ref())?;
    Ok(connection)
}

/// Opens a connection whose locks no other part of the process can drop. Every file is opened with this function.
pub fn open_locked(path: impl AsRef<Path>, flags: OpenFlags) -> rusqlite::Result<Connection> {
    loopstore_locks::install();
    Connection::open_with_flags(path, flags)
}

/// Looks at the place before SQLite does, and returns the real path of the file; creates it with mode
/// 0600.
///
/// The file is never opened here. A process loses its POSIX locks on a file when it closes any descriptor of
/// it, and another copy of SQLite in this process may have some.
pub(super) fn real_path(path: &Path, options: &SqliteOptions) -> Result<PathBuf, OpenError> {
    let other = |cause: std::io::Error| OpenError::Other {
        path: path.to_owned(),
        cause: Box::new(cause),
    };
    let real = match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => real_of_link(path, options)?,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if !options.create || options.read_only {
                return Err(OpenError::Missing {
                    path: path.to_owned(),
                });
            }
            if options.key.is_some() && !can_encrypt() {
                return Err(OpenError::NoEncryption);
            }
            create(path).map_err(other)?;
            path.to_owned()
        }
        found => found.map(|_| path.to_owned()).map_err(other)?,
    };
    let found = real.metadata().map_err(other)?;
    // SQLite takes a file of one byte for an empty one.
    if !found.is_file() || found.len() == 1 {
        return Err(OpenError::NotADatabase {
            path: path.to_owned(),
        });
    }
    check_file_system(&real, options)?;
    Ok(real)
}

fn real_of_link(path: &Path, options: &SqliteOptions) -> Result<PathBuf, OpenError> {
    let real = path.canonicalize();
    match real {
        Ok(real) if options.follow_links => Ok(real),
        Ok(to) => Err(OpenError::Link {
            path: path.to_owned(),
            to,
        }),
        Err(_) => Err(OpenError::Missing {
            path: path.to_owned(),
        }),
    }
}

/// Makes an empty file, if another process does not do it first.
fn create(path: &Path) -> std::io::Result<()> {
    // A file made without a descriptor leaves none to close.
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let mode = Mode::RUSR | Mode::WUSR;
        match mknodat(CWD, path, FileType::RegularFile, mode, 0) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => return Ok(()),
            // Some file systems make files only by opening them.
            Err(rustix::io::Errno::PERM | rustix::io::Errno::INVAL) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut new = std::fs::OpenOptions::new();
    let created = std::os::unix::fs::OpenOptionsExt::mode(&mut new, 0o600)
        .write(true)
        .create_new(true)
        .open(path);
    match created {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Refuses network file systems: their locks do not keep two writers apart.
fn check_file_system(path: &Path, options: &SqliteOptions) -> Result<(), OpenError> {
    match network_of(path) {
        Some(kind) if !options.allow_network => Err(OpenError::NetworkFileSystem {
            path: path.to_owned(),
            kind: kind.to_owned(),
        }),
        _ => Ok(()),
    }
}

/// Returns the kind of the network file system on which a file lies, `None` if it lies on none.
pub(super) fn network_of(path: &Path) -> Option<&'static str> {
    // Magic numbers of statfs(2).
    const NETWORK: [(u64, &str); 6] = [
        (0x6969, "NFS"),
        (0x517B, "SMB"),
        (0xFF53_4D42, "CIFS"),
        (0xFE53_4D42, "SMB2"),
        (0x0102_1997, "9P"),
        (0x00C3_6400, "Ceph"),
    ];
    let found = rustix::fs::statfs(path).ok()?;
    let magic = u64::from(found.f_type.cast_unsigned() as u32);
    let known = NETWORK.iter().find(|(number, _)| *number == magic);
    known.map(|(_, kind)| *kind)
}

/// Sets the pragmas of a connection.
fn set_pragmas(connection: &Connection, options: &SqliteOptions) -> rusqlite::Result<()> {
    // The time that SQLite itself waits for a lock before the operation fails as busy.
    connection.busy_timeout(options.busy_timeout)?;
    // Page cache of this connection; negative means KiB.
    connection.pragma_update(None, "cache_size", -i64::from(options.cache_kib))?;
    // A trigger or view of a hostile file must not reach anything but plain SQL functions.
    connection.pragma_update(None, "trusted_schema", false)?;
    // Sorts and temporary tables stay out of the file system: they would hold transcript text.
    connection.pragma_update(None, "temp_store", "memory")?;
    // The references between tables are checked; each has an index where a delete would scan.
    connection.pragma_update(None, "foreign_keys", true)?;
    // FULL waits for the disk at each commit; NORMAL only at checkpoints. The store's writer waits by
    // itself: `disk`.
    let synchronous = match options.durability {
        Durability::Full => "full",
        Durability::Normal => "normal",
    };
    connection.pragma_update(None, "synchronous", synchronous)?;
    // A log that grew longer beside a reader is cut when it begins anew.
    connection.pragma_update_and_check(None, "journal_size_limit", log::LONG_BYTES, |_| Ok(()))?;
    connection.set_prepared_statement_cache_capacity(128);
    // Else SQLite looks at the values bound to a statement, and where another one might allow a better
    // plan prepares it anew: two thirds of what a trigger costs. Keys and ranges have but one good plan.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

pub(super) type PreparedFile = rusqlite::Result<Result<(), OpenError>>;

/// Makes an empty file a database, brings an older format up to date, refuses one that is newer or was
/// never released.
fn prepare(connection: &mut Connection, options: &mut SqliteOptions) -> PreparedFile {
    prepare_with(connection, options, migration::formats())
}

/// Returns the application id, the format and the number of tables of a file, on one snapshot: another process may
/// make the file meanwhile.
fn identity(connection: &mut Connection) -> rusqlite::Result<(i64, i64, i64)> {
    let snapshot = connection.transaction()?;
    let sql = "SELECT count(*) FROM sqlite_schema";
    let tables = snapshot.query_row(sql, [], |row| row.get(0))?;
    let id = snapshot.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let format = snapshot.pragma_query_value(None, "user_version", |row| row.get(0))?;
    snapshot.commit()?;
    Ok((id, format, tables))
}

/// Does so for a program that knows these formats.
pub(super) fn prepare_with(
    connection: &mut Connection,
    options: &mut SqliteOptions,
    formats: &Formats,
) -> PreparedFile {
    set_pragmas(connection, options)?;
    let path = PathBuf::from(connection.path().unwrap_or(":memory:"));
    let (id, found, tables) = identity(connection)?;
    if id != APPLICATION_ID && (id != 0 || tables > 0) {
        return Ok(Err(OpenError::NotADatabase { path }));
    }
    let known = formats.newest();
    match found {
        0 if options.read_only => return Ok(Err(OpenError::Missing { path })),
        0 => {}
        _ if found > known => return Ok(Err(OpenError::Newer { path, found, known })),
        _ if found < FIRST_FORMAT => return Ok(Err(OpenError::Unreleased { path })),
        _ if found < known && options.read_only => {
            return Ok(Err(OpenError::Older { path, found, known }));
        }
        _ => {}
    }
    let foreign = foreign::look(connection, formats)?;
    if options.read_only {
        return read_counter(connection, options, &foreign);
    }
    if found < known {
        if found > 0 && !foreign.added.is_empty() {
            return Ok(Err(foreign.refusal(path)));
        }
        if let Err(error) = old_format::keep(connection, &path, options, found, formats) {
            return Ok(Err(error));
        }
        let page_bytes = match options.key {
            None => PAGE_BYTES,
            Some(_) => CIPHER_PAGE_BYTES,
        };
        if let Err(error) = formats.migrate(connection, &path, options.busy_timeout, page_bytes)? {
            return Ok(Err(error));
        }
    }
    let foreign = foreign::look(connection, formats)?;
    if foreign.is_empty() {
        write_meta(connection, options)?;
        // A file is finished with this mark, and not before: whoever reads it finds all of it.
        if found < known {
            connection.pragma_update(None, "user_version", known)?;
        }
    } else if found < known {
        return Ok(Err(foreign.refusal(path)));
    }
    read_counter(connection, options, &foreign)
}

/// Compares the counters, which does not take long even where something stands in place of the table.
fn read_counter(
    connection: &mut Connection,
    options: &mut SqliteOptions,
    foreign: &ForeignObjects,
) -> PreparedFile {
    if foreign.replaced.is_empty() {
        return check_counter(connection, options);
    }
    let path = PathBuf::from(connection.path().unwrap_or(":memory:"));
    let checked = in_time(connection, Some(MOST_READING), |connection| {
        Ok(check_counter(connection, options))
    });
    match checked {
        Ok(Ok(checked)) => Ok(checked),
        Ok(Err(_)) | Err(_) => Ok(Err(foreign.refusal(path))),
    }
}

/// Notes once what the database is written with.
fn write_meta(connection: &Connection, options: &SqliteOptions) -> rusqlite::Result<()> {
    let noted: i64 =
        connection.query_row("SELECT count(*) FROM store_meta", [], |row| row.get(0))?;
    if noted >= 3 {
        return Ok(());
    }
    let mut key = [0u8; 32];
    getrandom::fill(&mut key)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.to_string().into()))?;
    connection.execute(
        "INSERT INTO store_meta (name, value)
         SELECT given.column1, given.column2
         FROM (VALUES ('token_counter', ?1), ('import_key', ?2), ('created_at', ?3)) AS given
         WHERE NOT EXISTS (SELECT 1 FROM store_meta WHERE name = given.column1)",
        rusqlite::params![
            options.counter.name(),
            key,
            crate::model::Time::now().as_str()
        ],
    )?;
    Ok(())
}

/// Compares the counter that the database is written with and the one that it is opened with.
fn check_counter(connection: &Connection, options: &mut SqliteOptions) -> PreparedFile {
    let (stored, recounting) = counters(connection)?;
    let given = options.counter.clone();
    let chosen = options.other_counter.choose(given, stored, recounting);
    Ok(chosen.map(|counter| options.counter = counter))
}

/// Returns the counter of the database, and the one that an unfinished recount counts with.
fn counters(connection: &Connection) -> rusqlite::Result<(String, Option<String>)> {
    let sql = "SELECT (SELECT value FROM store_meta WHERE name = 'token_counter'),
        (SELECT CASE WHEN json_valid(value) THEN coalesce(value ->> '$.to', '') ELSE '' END
         FROM store_meta WHERE name = 'recount')";
    let mut statement = connection.prepare_cached(sql)?;
    statement.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))
}

/// Another process may have begun a recount since this one opened the database: what is written
/// now would be counted with the wrong counter.
///
/// # Errors
/// If the counter is no longer this one.
pub(super) fn check_still_counts_with(connection: &Connection, name: &str) -> StoreResult<()> {
    let (stored, recounting) = counters(connection).map_err(super::from_sqlite)?;
    if stored == name && recounting.is_none() {
        return Ok(());
    }
    let now = recounting.unwrap_or(stored);
    Err(StoreError::Invalid(format!(
        "the database counts tokens with `{now}` since it was opened; open it again"
    )))
}

/// Sorts an error of opening by what the caller can do.
pub(super) fn opening(path: &Path, error: rusqlite::Error) -> OpenError {
    let path = path.to_owned();
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => OpenError::Busy,
        Some(ErrorCode::NotADatabase) => OpenError::NotADatabase { path },
        Some(ErrorCode::ReadOnly) => OpenError::ReadOnly { path },
        Some(ErrorCode::DatabaseCorrupt) => OpenError::Damaged {
            path,
            detail: error.to_string(),
        },
        _ if super::error::is_misfit(&error) => OpenError::Damaged {
            path,
            detail: error.to_string(),
        },
        _ => OpenError::Other {
            path,
            cause: Box::new(error),
        },
    }
}
