//! The formats of a file: how one is made, brought up to date, and compared with what it should be.
//!
//! To change the schema: until 0.1.0 is released, edit `migrations/sqlite/V1__store.sql` and raise
//! [`FIRST_FORMAT`]; afterwards add `migrations/sqlite/V<n>__<what>.sql`. If that rewrites rows, name its
//! number in [`REWRITING`]: the file is copied first.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use rusqlite::backup::Backup;
use rusqlite::{Connection, ErrorCode};

use super::schema::{APPLICATION_ID, PAGE_BYTES, PreparedFile};
use super::writer::locked;
#[cfg(debug_assertions)]
use crate::failpoints::{self, Failpoint};
use crate::store::error::OpenError;
use crate::store::migrations::{Applied, Migrations};

mod embedded {
    refinery::embed_migrations!("migrations/sqlite");
}

/// The format of a file that V1 makes, and the oldest that opens. Before the first release each edit of
/// V1 raises it; files of a lower one were written by programs that were never released.
pub(super) const FIRST_FORMAT: i64 = 29;

/// The number of migrations. Reading them takes as long as opening a file, and a file of the newest
/// format needs none.
const MIGRATIONS: i64 = 1;

/// The migrations that rewrite rows, by number.
const REWRITING: [i64; 0] = [];

/// The formats that a program knows: the first, and one more for each further migration.
pub(super) struct Formats {
    newest: i64,
    migrations: LazyLock<Migrations>,
    rewriting: Vec<i64>,
    /// An empty database as the migrations make it, once one was asked for: making it takes several
    /// milliseconds.
    empty: Mutex<Option<Connection>>,
}

/// Returns the formats that this program knows.
pub(super) fn formats() -> &'static Formats {
    static EMBEDDED: LazyLock<Formats> = LazyLock::new(Formats::embedded);
    #[cfg(debug_assertions)]
    static LATER: LazyLock<Formats> = LazyLock::new(|| Formats::later(false));
    #[cfg(debug_assertions)]
    if failpoints::is_active(Failpoint::LaterFormat) {
        return &LATER;
    }
    &EMBEDDED
}

/// Returns the newest format that this version reads and writes.
pub fn format_version() -> i64 {
    formats().newest()
}

impl Formats {
    fn embedded() -> Self {
        Self {
            newest: Self::made_by(MIGRATIONS),
            migrations: LazyLock::new(scripts),
            rewriting: REWRITING.to_vec(),
            empty: Mutex::default(),
        }
    }

    /// The embedded ones and one more, which nobody has; its migration may be one that rewrites rows.
    #[cfg(debug_assertions)]
    fn later(rewrites: bool) -> Self {
        let later = MIGRATIONS + 1;
        Self {
            newest: Self::made_by(later),
            migrations: LazyLock::new(|| {
                scripts().and_later(
                    "ALTER TABLE leases ADD COLUMN made_up TEXT NOT NULL DEFAULT 'later';
                     UPDATE turns SET ended_at = ended_at;
                     CREATE INDEX made_up ON leases (made_up)",
                )
            }),
            rewriting: rewrites.then_some(later).into_iter().collect(),
            empty: Mutex::default(),
        }
    }

    /// Returns the format that a migration makes.
    fn made_by(version: i64) -> i64 {
        FIRST_FORMAT + version - 1
    }

    pub(super) fn newest(&self) -> i64 {
        self.newest
    }

    /// True if one of the migrations that a file of this format needs rewrites rows.
    pub(super) fn rewrites_after(&self, found: i64) -> bool {
        let mut rewriting = self.rewriting.iter();
        rewriting.any(|version| Self::made_by(*version) > found)
    }

    /// Makes the tables of an empty file, or those of the newest format of older ones; the caller then marks the
    /// file as finished with the number of its format. The migrations run with
    /// foreign keys off: rebuilding a parent table with them on would delete its children, and inside a
    /// migration's transaction the pragma does nothing.
    pub(super) fn migrate(
        &self,
        connection: &mut Connection,
        path: &Path,
        patience: Duration,
        page_bytes: u32,
    ) -> PreparedFile {
        let begun = Instant::now();
        // SQLite does not wait for a lock that it needs to change the journal, as it may be one of two processes
        // that wait for each other.
        while let Err(error) = set_file_pragmas(connection, page_bytes) {
            let is_busy = error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy);
            if !is_busy || begun.elapsed() > patience {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        connection.pragma_update(None, "foreign_keys", false)?;
        let mut failures = 0;
        loop {
            if let Err(misfit) = self.check_history(connection, path)? {
                return Ok(Err(misfit));
            }
            let Err(error) = self.migrations.runner().run(connection) else {
                break;
            };
            // Another process may be migrating the same file: then its work will be found done.
            let found: i64 =
                connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
            if found >= self.newest() {
                break;
            }
            failures += u32::from(!is_busy(&error));
            // A process that made the tables meanwhile causes one failure: the tables exist now.
            if failures > 1 || begun.elapsed() > patience {
                return Ok(Err(refused(path, error)));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let broken: i64 =
            connection.query_row("SELECT count(*) FROM pragma_foreign_key_check", [], |row| {
                row.get(0)
            })?;
        if broken > 0 {
            let detail = format!("{broken} rows refer to nothing after the migration");
            return Ok(Err(OpenError::Damaged {
                path: path.to_owned(),
                detail,
            }));
        }
        connection.pragma_update(None, "foreign_keys", true)?;
        Ok(Ok(()))
    }

    /// Compares the history of a file with the migrations.
    fn check_history(&self, connection: &mut Connection, path: &Path) -> PreparedFile {
        // One moment: another process may be making the tables.
        let moment = connection.transaction()?;
        let sql = "SELECT count(*) FROM sqlite_schema WHERE name = 'store_meta'";
        let has_tables: bool = moment.query_row(sql, [], |row| row.get(0))?;
        let history = if moment.table_exists(None, "refinery_schema_history")? {
            history(&moment)?
        } else {
            Vec::new()
        };
        let last = self.migrations.last_applied(path, &history, has_tables);
        Ok(last.and_then(|last| {
            let (found, known) = (Self::made_by(last), self.newest());
            let path = path.to_owned();
            match found > known {
                true => Err(OpenError::Newer { path, found, known }),
                false => Ok(()),
            }
        }))
    }

    /// Makes an empty database in memory.
    pub(super) fn in_memory(&self) -> rusqlite::Result<Connection> {
        let mut new = Connection::open_in_memory()?;
        self.with_empty(|empty| Backup::new(empty, &mut new)?.step(-1).map(drop))?;
        Ok(new)
    }

    /// Returns the statements of the schema as the migrations make it.
    pub(super) fn statements(&self) -> rusqlite::Result<BTreeSet<String>> {
        self.with_empty(|empty| {
            let sql = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL";
            let mut statement = empty.prepare(sql)?;
            let rows = statement.query_map([], |row| row.get(0))?;
            rows.collect()
        })
    }

    /// Reads an empty database as the migrations make it.
    fn with_empty<T>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        let mut empty = locked(&self.empty);
        if let Some(empty) = &*empty {
            return read(empty);
        }
        let mut made = Connection::open_in_memory()?;
        let migrated =
            self.migrate(&mut made, Path::new(":memory:"), Duration::ZERO, PAGE_BYTES)?;
        migrated.map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
        made.pragma_update(None, "user_version", self.newest())?;
        read(empty.insert(made))
    }
}

fn scripts() -> Migrations {
    Migrations::embedded(&embedded::migrations::runner())
}

fn history(connection: &Connection) -> rusqlite::Result<Vec<Applied>> {
    let sql = "SELECT CAST(version AS INTEGER), CAST(name AS TEXT), CAST(applied_on AS TEXT),
            CAST(checksum AS TEXT)
        FROM refinery_schema_history ORDER BY version";
    let mut statement = connection.prepare(sql)?;
    let applied = statement.query_map([], |row| {
        Ok(Applied {
            version: row.get(0)?,
            name: row.get(1)?,
            applied_on: row.get(2)?,
            checksum: row.get(3)?,
        })
    });
    applied?.collect()
}

fn code_of(error: &refinery::Error) -> Option<ErrorCode> {
    let cause = std::error::Error::source(error)?;
    cause.downcast_ref::<rusqlite::Error>()?.sqlite_error_code()
}

/// Sets what the file itself holds: the size of its pages, its journal and whose it is.
fn set_file_pragmas(connection: &Connection, page_bytes: u32) -> rusqlite::Result<()> {
    connection.pragma_update(None, "page_size", page_bytes)?;
    // Readers do not stop the writer, nor the writer readers.
    connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    connection.pragma_update(None, "application_id", APPLICATION_ID)
}

fn is_busy(error: &refinery::Error) -> bool {
    let code = code_of(error);
    matches!(
        code,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}

/// Sorts an error of the migrations: nothing of them was kept.
fn refused(path: &Path, error: refinery::Error) -> OpenError {
    match code_of(&error) {
        // A statement itself was refused: something stands in its way.
        Some(ErrorCode::Unknown) => OpenError::Damaged {
            path: path.to_owned(),
            detail: format!(
                "its tables are not those that the history of its format names: {error}"
            ),
        },
        _ => OpenError::Other {
            path: path.to_owned(),
            cause: Box::new(error),
        },
    }
}

/// Makes the index of messages anew, whatever is left of the one before.
pub(super) fn remake_index(connection: &Connection) -> rusqlite::Result<()> {
    // FTS5 can drop its tables only while its settings say which format they have.
    let settings = "message_index_config";
    let has_settings = connection.table_exists(None, settings)?;
    let (make_settings, version, make_index) = formats().with_empty(|empty| {
        let sql = |name: &str| -> rusqlite::Result<String> {
            let sql = "SELECT sql FROM sqlite_schema WHERE name = ?1";
            empty.query_row(sql, [name], |row| row.get(0))
        };
        let version: i64 = empty.query_row(
            "SELECT v FROM message_index_config WHERE k = 'version'",
            [],
            |row| row.get(0),
        )?;
        Ok((sql(settings)?, version, sql("message_index")?))
    })?;
    if !has_settings {
        connection.execute(&make_settings, [])?;
    }
    connection.execute(
        "INSERT OR REPLACE INTO message_index_config (k, v) VALUES ('version', ?1)",
        [version],
    )?;
    connection.execute("DROP TABLE IF EXISTS message_index", [])?;
    connection.execute(&make_index, [])?;
    Ok(())
}

/// Says which tables, indexes, triggers and views are not as the migrations make them. What someone
/// added is left alone, and so is the index of messages: it is no part of the record.
pub(super) fn differences(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let found = schema_of(connection)?;
    let wanted = formats().with_empty(schema_of)?;
    let other = wanted.difference(&found).map(|[kind, name, _]| {
        let text = |bytes: &Option<Vec<u8>>| {
            String::from_utf8_lossy(bytes.as_deref().unwrap_or_default()).into_owned()
        };
        (text(kind), text(name))
    });
    let own = other.filter(|(_, name)| !super::index::is_index(name));
    let said = own.map(|(kind, name)| format!("the {kind} {name} is missing or another one"));
    Ok(said.collect())
}

/// Returns type, name and statement of everything in a schema: the bytes of their UTF-8, whatever a damaged
/// one holds there.
fn schema_of(connection: &Connection) -> rusqlite::Result<BTreeSet<[Option<Vec<u8>>; 3]>> {
    let mut statement = connection.prepare(
        "SELECT CAST(type AS TEXT), CAST(name AS TEXT), CAST(sql AS TEXT) FROM sqlite_schema
         WHERE tbl_name NOT LIKE 'refinery%'",
    )?;
    let rows = statement.query_map([], |row| {
        let bytes = |at| -> rusqlite::Result<_> {
            Ok(row.get_ref(at)?.as_bytes_or_null()?.map(<[u8]>::to_vec))
        };
        Ok([bytes(0)?, bytes(1)?, bytes(2)?])
    })?;
    rows.collect()
}

#[cfg(test)]
mod tests;
