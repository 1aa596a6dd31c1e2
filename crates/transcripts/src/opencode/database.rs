//! Reads the SQLite file in which OpenCode keeps its sessions: a row for each session, message and part. Messages and
//! parts are JSON without their ids. The columns differ by version; those that exist are read.

use std::ops::ControlFlow;
use std::path::Path;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};

use crate::sqlite_file::{Unusable, has_columns, open, reason, text};

/// The columns of a record that are needed.
const RECORD: [&str; 4] = ["id", "session_id", "type", "data"];

/// One session, as the columns of its row that are not null.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpencodeSession {
    /// The id.
    pub id: String,
    /// The columns by their names.
    pub columns: Vec<(String, JsonColumn)>,
}

/// The JSON of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum JsonColumn {
    /// A whole number.
    Integer(i64),
    /// Another number.
    Real(f64),
    /// A text, which may be JSON.
    Text(String),
}

/// A message, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpencodeRow {
    /// The id.
    pub id: String,
    /// The other fields, as JSON.
    pub data: String,
}

/// A record of a newer version: a message with its parts, or an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpencodeRecord {
    /// The id.
    pub id: String,
    /// The kind of the row.
    pub kind: String,
    /// The time of the record in milliseconds since the epoch.
    pub created: Option<i64>,
    /// The other fields, as JSON.
    pub data: String,
}

/// A file of sessions.
pub struct OpencodeFile {
    connection: Connection,
}

impl OpencodeFile {
    /// Opens the file.
    ///
    /// # Errors
    /// If the file cannot be read, or lacks a table or column; the error gives the reason.
    pub fn open(path: &Path) -> Unusable<Self> {
        let connection = open(path)?;
        let has_messages = has_columns(&connection, "message", &["id", "session_id", "data"])?
            && has_columns(&connection, "part", &["id", "message_id", "data"])?;
        let is_whole = has_columns(&connection, "session", &["id", "directory"])?
            && (has_messages || has_columns(&connection, "session_message", &RECORD)?);
        match is_whole {
            true => Ok(Self { connection }),
            false => Err("it has not the tables of OpenCode's sessions".to_owned()),
        }
    }

    /// Returns the sessions in the order in which they began.
    ///
    /// # Errors
    /// If the file is damaged.
    pub fn sessions(&self) -> Unusable<Vec<OpencodeSession>> {
        let order = match has_columns(&self.connection, "session", &["time_created"])? {
            true => "time_created, id",
            false => "id",
        };
        let sql = format!("SELECT * FROM session ORDER BY {order}");
        let mut statement = self.connection.prepare(&sql).map_err(reason)?;
        let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
        let rows = statement.query_map([], |row| session(row, &names));
        rows.map_err(reason)?
            .collect::<Result<_, _>>()
            .map_err(reason)
    }

    /// Passes the messages of a session to `each` in the order of their times, until `each` ends the iteration.
    ///
    /// # Errors
    /// If the file is damaged.
    pub fn messages(
        &self,
        session: &str,
        each: &mut dyn FnMut(OpencodeRow) -> ControlFlow<()>,
    ) -> Unusable<()> {
        if !has_columns(&self.connection, "message", &["id", "session_id", "data"])? {
            return Ok(());
        }
        let order = match has_columns(&self.connection, "message", &["time_created"])? {
            true => "time_created, id",
            false => "id",
        };
        self.rows("message", "session_id", order, session, each)
    }

    /// Passes the parts of a message to `each`, in order.
    ///
    /// # Errors
    /// If the file is damaged.
    pub fn parts(
        &self,
        message: &str,
        each: &mut dyn FnMut(OpencodeRow) -> ControlFlow<()>,
    ) -> Unusable<()> {
        self.rows("part", "message_id", "id", message, each)
    }

    /// Passes the records of a session to `each`, in order. Newer versions write records in place of messages and
    /// parts.
    ///
    /// # Errors
    /// If the file is damaged.
    pub fn records(
        &self,
        session: &str,
        each: &mut dyn FnMut(OpencodeRecord) -> ControlFlow<()>,
    ) -> Unusable<()> {
        if !has_columns(&self.connection, "session_message", &RECORD)? {
            return Ok(());
        }
        let has = |column| has_columns(&self.connection, "session_message", &[column]);
        let created = match has("time_created")? {
            true => "time_created",
            false => "NULL",
        };
        let order = match has("seq")? {
            true => "seq, id",
            false => "created, id",
        };
        let sql = format!(
            "SELECT id, type, {created} AS created, data FROM session_message
             WHERE session_id = ?1 ORDER BY {order}"
        );
        let mut statement = self.connection.prepare_cached(&sql).map_err(reason)?;
        let mut rows = statement.query([session]).map_err(reason)?;
        while let Some(row) = rows.next().map_err(reason)? {
            let column = |name| text(row, name).map(Option::unwrap_or_default);
            let record = OpencodeRecord {
                id: column("id").map_err(reason)?,
                kind: column("type").map_err(reason)?,
                created: row.get("created").ok(),
                data: column("data").map_err(reason)?,
            };
            if each(record).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Returns the number of records of a session, including records that cannot be read.
    pub fn count_records(&self, session: &str) -> u64 {
        let sql = "SELECT count(*) FROM session_message WHERE session_id = ?1";
        let count = self
            .connection
            .query_row(sql, [session], |row| row.get::<_, i64>(0));
        // Most files do not have the table.
        count.map_or(0, |count| count.unsigned_abs())
    }

    fn rows(
        &self,
        table: &str,
        of: &str,
        order: &str,
        id: &str,
        each: &mut dyn FnMut(OpencodeRow) -> ControlFlow<()>,
    ) -> Unusable<()> {
        let sql = format!("SELECT id, data FROM {table} WHERE {of} = ?1 ORDER BY {order}");
        let mut statement = self.connection.prepare_cached(&sql).map_err(reason)?;
        let mut rows = statement.query([id]).map_err(reason)?;
        while let Some(row) = rows.next().map_err(reason)? {
            let row = OpencodeRow {
                id: text(row, "id").map_err(reason)?.unwrap_or_default(),
                data: text(row, "data").map_err(reason)?.unwrap_or_default(),
            };
            if each(row).is_break() {
                break;
            }
        }
        Ok(())
    }
}

fn session(row: &Row<'_>, names: &[String]) -> rusqlite::Result<OpencodeSession> {
    let mut columns = Vec::new();
    for name in names.iter().filter(|name| *name != "id") {
        let value = match row.get_ref(name.as_str())? {
            ValueRef::Null => continue,
            ValueRef::Integer(number) => JsonColumn::Integer(number),
            ValueRef::Real(number) => JsonColumn::Real(number),
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
                JsonColumn::Text(String::from_utf8_lossy(bytes).into_owned())
            }
        };
        columns.push((name.clone(), value));
    }
    Ok(OpencodeSession {
        id: text(row, "id")?.unwrap_or_default(),
        columns,
    })
}
