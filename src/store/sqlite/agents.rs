//! Reads the SQLite files in which `SQLiteSession` of OpenAI's agents SDK keeps conversations.
//!
//! Their tables may have any name; they are known by their columns. The file is only read: one
//! without a write-ahead log is opened as one that nobody changes, so that nothing is created beside
//! it.

use std::ops::ControlFlow;
use std::path::Path;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, Row};

use super::schema::open_locked;
use crate::store::StoreError;

/// One conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentSession {
    /// Its id.
    pub id: String,
    /// When it began and when it was last written, as the file says.
    pub created_at: Option<String>,
    /// The last change.
    pub updated_at: Option<String>,
}

/// One stored item of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentItem {
    /// The row.
    pub row: i64,
    /// The item, which should be JSON.
    pub data: String,
    /// When it was stored, as the file says.
    pub created_at: Option<String>,
}

/// A file of conversations.
pub struct AgentFile {
    connection: Connection,
    messages: String,
    sessions: Option<String>,
}

/// Takes why a file cannot be used.
pub(super) type Unusable<T> = Result<T, String>;

pub(super) fn reason(error: rusqlite::Error) -> String {
    error.to_string()
}

impl AgentFile {
    /// Opens the file.
    ///
    /// # Errors
    /// Says why it cannot be read or what it lacks.
    pub fn open(path: &Path) -> Unusable<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_URI;
        let connection = open_locked(uri(path), flags).map_err(reason)?;
        let limit = std::time::Duration::from_secs(5);
        connection.busy_timeout(limit).map_err(reason)?;
        let messages = table_with(&connection, &["id", "session_id", "message_data"])?;
        let messages = messages.ok_or("it has no table with session_id and message_data")?;
        let sessions = table_with(&connection, &["session_id", "created_at", "updated_at"])?;
        Ok(Self {
            connection,
            messages,
            sessions,
        })
    }

    /// Returns the conversations in the order in which they began.
    ///
    /// # Errors
    /// If the file is damaged.
    pub fn sessions(&self) -> Unusable<Vec<AgentSession>> {
        let messages = quoted(&self.messages);
        let sql = match &self.sessions {
            Some(sessions) => format!(
                "SELECT m.session_id AS id, s.created_at AS created_at, s.updated_at AS updated_at
                 FROM (SELECT session_id, min(id) AS first FROM {messages} GROUP BY session_id) m
                     LEFT JOIN {} s ON s.session_id = m.session_id
                 ORDER BY m.first",
                quoted(sessions)
            ),
            None => format!(
                "SELECT session_id AS id, NULL AS created_at, NULL AS updated_at
                 FROM {messages} GROUP BY session_id ORDER BY min(id)"
            ),
        };
        let mut statement = self.connection.prepare(&sql).map_err(reason)?;
        let rows = statement.query_map([], |row| {
            Ok(AgentSession {
                id: text(row, "id")?.unwrap_or_default(),
                created_at: text(row, "created_at")?,
                updated_at: text(row, "updated_at")?,
            })
        });
        rows.map_err(reason)?
            .collect::<Result<_, _>>()
            .map_err(reason)
    }

    /// Gives the items of a conversation in their order.
    ///
    /// # Errors
    /// If the file is damaged.
    pub fn items(
        &self,
        session: &str,
        each: &mut dyn FnMut(AgentItem) -> Result<ControlFlow<()>, StoreError>,
    ) -> Result<Unusable<()>, StoreError> {
        // The times are not there in every version. An id may be stored as a number.
        let sql = format!(
            "SELECT * FROM {} WHERE CAST(session_id AS TEXT) = ?1 ORDER BY id",
            quoted(&self.messages)
        );
        let mut statement = match self.connection.prepare(&sql) {
            Ok(statement) => statement,
            Err(error) => return Ok(Err(reason(error))),
        };
        let mut rows = match statement.query([session]) {
            Ok(rows) => rows,
            Err(error) => return Ok(Err(reason(error))),
        };
        loop {
            let item = match rows.next() {
                Ok(Some(row)) => item(row),
                Ok(None) => return Ok(Ok(())),
                Err(error) => return Ok(Err(reason(error))),
            };
            match item {
                Ok(item) => {
                    if each(item)?.is_break() {
                        return Ok(Ok(()));
                    }
                }
                Err(error) => return Ok(Err(reason(error))),
            }
        }
    }
}

fn item(row: &Row<'_>) -> rusqlite::Result<AgentItem> {
    Ok(AgentItem {
        row: row.get("id")?,
        data: text(row, "message_data")?.unwrap_or_default(),
        created_at: text(row, "created_at").unwrap_or_default(),
    })
}

/// Reads a column of any type as text.
pub(super) fn text(row: &Row<'_>, column: &str) -> rusqlite::Result<Option<String>> {
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
fn table_with(connection: &Connection, columns: &[&str]) -> Unusable<Option<String>> {
    let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY rowid";
    let mut statement = connection.prepare(sql).map_err(reason)?;
    let names = statement.query_map([], |row| row.get::<_, String>("name"));
    for name in names.map_err(reason)? {
        let name = name.map_err(reason)?;
        if has_columns(connection, &name, columns)? {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

pub(super) fn has_columns(
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

/// Returns a name as it may stand in SQL.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Returns the address of a file for SQLite.
pub(super) fn uri(path: &Path) -> String {
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
