//! Reads the SQLite file in which goose keeps its sessions. The columns differ by version; those that exist are read.
//! Nothing is written.

use std::path::Path;

use rusqlite::{Connection, Row};

use crate::sqlite_file::{Unusable, has_columns, open, reason, text};

/// One session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GooseSession {
    /// The id.
    pub id: String,
    /// The title.
    pub name: Option<String>,
    /// The working folder.
    pub project: Option<String>,
    /// The time at which the session began, in the form of the file.
    pub created: Option<String>,
    /// The time of the last change, in the form of the file.
    pub updated: Option<String>,
    /// The id of the session that started this one.
    pub parent: Option<String>,
    /// The model used last.
    pub model: Option<String>,
}

/// One stored message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GooseRow {
    /// The row.
    pub row: u64,
    /// The id of the message; several rows may have one.
    pub message_id: Option<String>,
    /// `user` or `assistant`.
    pub role: String,
    /// A list of items, as JSON.
    pub content: String,
    /// The visibility and the tokens of the message, as JSON.
    pub metadata: Option<String>,
    /// The time since the epoch at which the message was written, in a unit that differs by version.
    pub created: Option<i64>,
}

/// A file of sessions.
pub struct GooseFile {
    connection: Connection,
}

impl GooseFile {
    /// Opens the file.
    ///
    /// # Errors
    /// If the file cannot be read, or lacks a table or column; the error gives the reason.
    pub fn open(path: &Path) -> Unusable<Self> {
        let connection = open(path)?;
        let of_messages = [
            "id",
            "session_id",
            "role",
            "content_json",
            "created_timestamp",
        ];
        let is_whole = has_columns(&connection, "messages", &of_messages)?
            && has_columns(&connection, "sessions", &["id", "working_dir"])?;
        match is_whole {
            true => Ok(Self { connection }),
            false => Err("it has not the tables of goose's sessions".to_owned()),
        }
    }

    /// Returns the sessions in the order in which they began, without those of helpers of other programs.
    ///
    /// # Errors
    /// If the file is damaged.
    pub fn sessions(&self) -> Unusable<Vec<GooseSession>> {
        let sql = "SELECT * FROM sessions ORDER BY rowid";
        let mut statement = self.connection.prepare(sql).map_err(reason)?;
        let rows = statement.query_map([], |row| {
            let column = |name: &str| text(row, name).ok().flatten();
            let full = |name: &str| column(name).filter(|text| !text.trim().is_empty());
            let kind = column("session_type");
            Ok((kind.as_deref() != Some("hidden")).then(|| GooseSession {
                id: column("id").unwrap_or_default(),
                name: full("name").or_else(|| full("description")),
                project: full("working_dir"),
                created: full("created_at"),
                updated: full("updated_at"),
                parent: full("parent_session_id"),
                model: column("model_config_json").as_deref().and_then(model),
            }))
        });
        let rows: Result<Vec<_>, _> = rows.map_err(reason)?.collect();
        Ok(rows.map_err(reason)?.into_iter().flatten().collect())
    }

    /// Passes the messages of a session to `each` in the order in which they were written, until `each` ends the
    /// iteration. The times of the messages are not used as an order: they are in seconds or milliseconds, and a
    /// result may have an earlier time than its call.
    ///
    /// # Errors
    /// If the file is damaged.
    pub fn messages(&self, session: &str, each: &mut dyn FnMut(GooseRow) -> bool) -> Unusable<()> {
        let sql = "SELECT * FROM messages WHERE session_id = ?1 ORDER BY id";
        let mut statement = self.connection.prepare(sql).map_err(reason)?;
        let mut rows = statement.query([session]).map_err(reason)?;
        while let Some(row) = rows.next().map_err(reason)? {
            if !each(message(row)) {
                break;
            }
        }
        Ok(())
    }
}

fn message(row: &Row<'_>) -> GooseRow {
    let column = |name: &str| text(row, name).ok().flatten();
    let number = |name: &str| column(name).and_then(|text| text.parse().ok());
    GooseRow {
        row: number("id").unwrap_or(0_i64).unsigned_abs(),
        message_id: column("message_id").filter(|id| !id.is_empty()),
        role: column("role").unwrap_or_default(),
        content: column("content_json").unwrap_or_default(),
        metadata: column("metadata_json"),
        created: number("created_timestamp"),
    }
}

/// Returns the name of the model in a configuration.
fn model(config: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Config {
        model_name: String,
    }
    serde_json::from_str::<Config>(config)
        .ok()
        .map(|config| config.model_name)
}
