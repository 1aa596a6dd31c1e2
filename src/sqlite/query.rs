//! Questions in SQL: read-only, and figures of the file.

use std::time::{Duration, Instant};

use rusqlite::types::ValueRef;
use rusqlite::{Connection, hooks};

use super::{QueryLimits, QueryRows, SqliteStore, Stats, from_sqlite};
use crate::model::Json;
use crate::store::error::{StoreError, StoreResult};

impl SqliteStore {
    /// Runs one read-only query and returns its rows.
    ///
    /// # Errors
    /// If the query is not a single read-only statement, or SQLite rejects it.
    ///
    /// # Examples
    /// ```
    /// # use loopstore::extend as store;
    /// use loopstore::*;
    ///
    /// # use loopstore::extend::{append, session};
    /// # let (store, id) = (SqliteStore::in_memory()?, SessionId::new("weather")?);
    /// # let new = Session::new(id.clone(), "agent");
    /// # let mut first = LoopRecord::new(LoopId::generate(), None);
    /// # first.status = LoopStatus::Completed;
    /// # store::write(&store, |write| {
    /// #     let key = session::create_session(write, &new, None, None)?;
    /// #     let loop_key = session::create_loop(write, key, &first)?;
    /// #     let message = AgentMessage::from(Message::user("Will it rain?"));
    /// #     append::append(write, loop_key, vec![message.into()], &HeuristicTokenCounter)
    /// # })?;
    /// let found = store.query("SELECT session_id, messages FROM v_sessions")?;
    /// assert_eq!(found.columns, ["session_id", "messages"]);
    /// assert_eq!(found.records()[0].text("session_id"), Some("weather".into()));
    /// // Nothing can be changed so.
    /// assert!(store.query("DELETE FROM sessions").is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn query(&self, sql: &str) -> StoreResult<QueryRows> {
        self.query_with(sql, &[])
    }

    /// Runs one read-only query with `values` for `?1`, `?2` … and returns its rows.
    ///
    /// # Errors
    /// If the query is not a single read-only statement, takes another number of values, or SQLite rejects it.
    ///
    /// # Examples
    /// ```
    /// # use loopstore::extend as store;
    /// use loopstore::*;
    ///
    /// # use loopstore::extend::{append, session};
    /// # let (store, id) = (SqliteStore::in_memory()?, SessionId::new("weather")?);
    /// # let new = Session::new(id.clone(), "agent");
    /// # let mut first = LoopRecord::new(LoopId::generate(), None);
    /// # first.status = LoopStatus::Completed;
    /// # store::write(&store, |write| {
    /// #     let key = session::create_session(write, &new, None, None)?;
    /// #     let loop_key = session::create_loop(write, key, &first)?;
    /// #     let message = AgentMessage::from(Message::user("Will it rain?"));
    /// #     append::append(write, loop_key, vec![message.into()], &HeuristicTokenCounter)
    /// # })?;
    /// let sql = "SELECT count(*) AS n FROM v_messages WHERE session_id = ?1";
    /// let found = store.query_with(sql, &["weather"])?;
    /// assert_eq!(found.records()[0].number("n"), Some(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn query_with(&self, sql: &str, values: &[&str]) -> StoreResult<QueryRows> {
        self.query_within(sql, values, QueryLimits::default())
    }

    /// Runs one query as [`SqliteStore::query_with`] does, within limits.
    ///
    /// # Errors
    /// As [`SqliteStore::query_with`]. Also if the query exceeds the time limit.
    ///
    /// # Examples
    /// ```
    /// use loopstore::SqliteStore;
    /// use loopstore::extend::sqlite::QueryLimits;
    ///
    /// let store = SqliteStore::in_memory()?;
    /// let limits = QueryLimits { rows: Some(2), ..QueryLimits::default() };
    /// let found = store.query_within("VALUES (1), (2), (3)", &[], limits)?;
    /// assert_eq!((found.rows.len(), found.is_cut), (2, true));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn query_within(
        &self,
        sql: &str,
        values: &[&str],
        limits: QueryLimits,
    ) -> StoreResult<QueryRows> {
        self.with_reader(|connection| {
            in_time(connection, limits.time, |connection| {
                read_only(connection, |connection| {
                    rows_within(connection, sql, values, limits.rows)
                })
            })
        })
    }

    /// Returns figures of the database and its files.
    ///
    /// # Errors
    /// If the database cannot be read.
    ///
    /// # Examples
    /// ```
    /// # use loopstore::extend as store;
    /// use loopstore::*;
    ///
    /// # use loopstore::extend::{append, session};
    /// # let (store, id) = (SqliteStore::in_memory()?, SessionId::new("weather")?);
    /// # let new = Session::new(id.clone(), "agent");
    /// # let mut first = LoopRecord::new(LoopId::generate(), None);
    /// # first.status = LoopStatus::Completed;
    /// # store::write(&store, |write| {
    /// #     let key = session::create_session(write, &new, None, None)?;
    /// #     let loop_key = session::create_loop(write, key, &first)?;
    /// #     let message = AgentMessage::from(Message::user("Will it rain?"));
    /// #     append::append(write, loop_key, vec![message.into()], &HeuristicTokenCounter)
    /// # })?;
    /// let stats = store.stats()?;
    /// assert_eq!((stats.sessions, stats.messages), (1, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stats(&self) -> StoreResult<Stats> {
        let mut stats = self.snapshot(totals)?;
        if let Some(path) = self.path() {
            let size = |path: &std::path::Path| {
                std::fs::metadata(path).map_or(0, |data| i64::try_from(data.len()).unwrap_or(0))
            };
            let mut wal = path.as_os_str().to_owned();
            wal.push("-wal");
            stats.file_bytes = size(path);
            stats.wal_bytes = size(wal.as_ref());
        }
        Ok(stats)
    }

    /// Returns the tables, indexes, triggers and views that differ from this format. A database without its triggers
    /// does not protect its content.
    ///
    /// # Errors
    /// If the database cannot be read at all.
    pub fn schema_problems(&self) -> StoreResult<Vec<String>> {
        self.snapshot(|connection| {
            let mut problems = super::migration::differences(connection).map_err(from_sqlite)?;
            let foreign = super::foreign::find(connection, super::migration::formats())
                .map_err(from_sqlite)?;
            let named = foreign.added.iter().map(|object| {
                format!(
                    "the {object} is not part of the schema, and can copy, change or block what is \
                     written: drop it"
                )
            });
            problems.extend(named);
            Ok(problems)
        })
    }

    /// Returns the problems of the search index. They do not affect the stored messages, and the index can be
    /// rebuilt.
    ///
    /// # Errors
    /// If the database cannot be read at all.
    pub fn index_problems(&self) -> StoreResult<Vec<String>> {
        self.snapshot(|connection| {
            let found = super::index::problems(connection);
            match found {
                Err(StoreError::Damaged(detail)) => Ok(vec![detail]),
                found => found,
            }
        })
    }

    /// Returns the findings of SQLite's own checks of pages, indexes and references between tables. The search index
    /// is left out: it can be rebuilt, and contains no recorded data.
    ///
    /// # Errors
    /// If the database cannot be read at all.
    pub fn integrity_problems(&self) -> StoreResult<Vec<String>> {
        self.snapshot(|connection| {
            let mut problems = integrity(connection)?;
            let mut statement = connection
                .prepare("PRAGMA foreign_key_check")
                .map_err(from_sqlite)?;
            let mut rows = statement.query([]).map_err(from_sqlite)?;
            while let Some(row) = rows.next().map_err(from_sqlite)? {
                let (table, id): (String, Option<i64>) = (
                    row.get(0).map_err(from_sqlite)?,
                    row.get(1).map_err(from_sqlite)?,
                );
                problems.push(format!(
                    "row {} of {table} refers to nothing",
                    id.unwrap_or(-1)
                ));
            }
            Ok(problems)
        })
    }
}

/// Returns what SQLite finds in pages and indexes but for the search index.
fn integrity(connection: &Connection) -> StoreResult<Vec<String>> {
    let lines = match super::index::integrity(connection, "PRAGMA integrity_check") {
        // An index of which the tables are missing ends the whole check: then table by table.
        Err(StoreError::Damaged(_)) => {
            let tables = super::index::tables(connection).map_err(from_sqlite)?;
            super::index::check(connection, &tables)?
        }
        lines => lines?,
    };
    let is_own = |line: &String| !super::index::is_of_index(line);
    Ok(lines.into_iter().filter(is_own).collect())
}

fn totals(connection: &Connection) -> StoreResult<Stats> {
    connection
        .query_row(
            "SELECT (SELECT count(*) FROM sessions), count(*), coalesce(sum(turns), 0),
                 coalesce(sum(messages), 0), coalesce(sum(next_seq - messages), 0),
                 coalesce(sum(tokens), 0), coalesce(sum(bytes), 0),
                 (SELECT count(*) FROM runs), (SELECT count(*) FROM blocks),
                 (SELECT count(*) FROM blobs), (SELECT coalesce(sum(bytes), 0) FROM blobs)
             FROM loops",
            [],
            |row| {
                let mut stats = Stats::default();
                stats.sessions = row.get(0)?;
                stats.loops = row.get(1)?;
                stats.turns = row.get(2)?;
                stats.messages = row.get(3)?;
                stats.extensions = row.get(4)?;
                stats.tokens = row.get(5)?;
                stats.bytes = row.get(6)?;
                stats.runs = row.get(7)?;
                stats.blocks = row.get(8)?;
                stats.blobs = row.get(9)?;
                stats.blob_bytes = row.get(10)?;
                Ok(stats)
            },
        )
        .map_err(from_sqlite)
}

/// Runs `work` while the connection allows nothing but reading: no writes, no `ATTACH`, no
/// pragmas that change anything, no functions that load code.
fn read_only<T>(
    connection: &mut Connection,
    work: impl FnOnce(&Connection) -> StoreResult<T>,
) -> StoreResult<T> {
    connection
        .authorizer(Some(allow_reading))
        .map_err(from_sqlite)?;
    let result = work(connection);
    connection
        .authorizer(None::<fn(hooks::AuthContext<'_>) -> hooks::Authorization>)
        .map_err(from_sqlite)?;
    result
}

fn allow_reading(context: hooks::AuthContext<'_>) -> hooks::Authorization {
    use hooks::AuthAction as Action;
    const PRAGMAS: [&str; 5] = [
        "table_info",
        "table_list",
        "index_list",
        "index_info",
        "table_xinfo",
    ];
    match context.action {
        Action::Select | Action::Read { .. } | Action::Recursive => hooks::Authorization::Allow,
        Action::Function { function_name } if function_name != "load_extension" => {
            hooks::Authorization::Allow
        }
        Action::Pragma { pragma_name, .. } if PRAGMAS.contains(&pragma_name) => {
            hooks::Authorization::Allow
        }
        _ => hooks::Authorization::Deny,
    }
}

/// Runs `work` and stops it when its time is over.
pub(super) fn in_time<T>(
    connection: &mut Connection,
    time: Option<Duration>,
    work: impl FnOnce(&mut Connection) -> StoreResult<T>,
) -> StoreResult<T> {
    /// Steps of SQLite's machine between two looks at the clock: some tens of microseconds.
    const STEPS: i32 = 10_000;
    let Some(time) = time else {
        return work(connection);
    };
    let end = Instant::now() + time;
    connection
        .progress_handler(STEPS, Some(move || Instant::now() >= end))
        .map_err(from_sqlite)?;
    let result = work(connection);
    connection
        .progress_handler(0, None::<fn() -> bool>)
        .map_err(from_sqlite)?;
    result
}

pub(super) fn rows(connection: &Connection, sql: &str, values: &[&str]) -> StoreResult<QueryRows> {
    rows_within(connection, sql, values, None)
}

fn rows_within(
    connection: &Connection,
    sql: &str,
    values: &[&str],
    most: Option<usize>,
) -> StoreResult<QueryRows> {
    let refused = |error: rusqlite::Error| match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::AuthorizationForStatementDenied) => {
            StoreError::Invalid("only a single SELECT is allowed here".into())
        }
        Some(rusqlite::ErrorCode::DatabaseCorrupt) => from_sqlite(error),
        Some(rusqlite::ErrorCode::OperationInterrupted) => {
            StoreError::Invalid("the query timed out".into())
        }
        _ => StoreError::Invalid(format!("the query failed: {error}")),
    };
    let mut statement = connection.prepare(sql).map_err(refused)?;
    if statement.column_count() == 0 || !statement.readonly() {
        return Err(StoreError::Invalid(
            "only a single SELECT is allowed here".into(),
        ));
    }
    let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let mut rows = statement
        .query(rusqlite::params_from_iter(values))
        .map_err(refused)?;
    let (mut found, mut is_cut) = (Vec::new(), false);
    while let Some(row) = rows.next().map_err(refused)? {
        if most.is_some_and(|most| found.len() >= most) {
            is_cut = true;
            break;
        }
        let mut values = Vec::with_capacity(columns.len());
        for at in 0..columns.len() {
            values.push(json(row.get_ref(at).map_err(refused)?));
        }
        found.push(values);
    }
    Ok(QueryRows {
        columns,
        rows: found,
        is_cut,
    })
}

fn json(value: ValueRef<'_>) -> Json {
    match value {
        ValueRef::Null => Json::null(),
        ValueRef::Integer(number) => Json::of(&number).unwrap_or_default(),
        ValueRef::Real(number) => Json::of(&number).unwrap_or_default(),
        ValueRef::Text(text) => Json::string(&String::from_utf8_lossy(text)),
        ValueRef::Blob(bytes) => Json::string(&hex::encode(bytes)),
    }
}
