//! Read-only queries in SQL, and statistics of the database.
//!
//! A query is declared as a cursor in a read-only transaction: a cursor accepts nothing but a query, and its
//! rows are fetched as text in pages.

use std::time::Duration;

use loopstore_core::store::columns::Columns;
use loopstore_core::store::{QueryLimits, QueryRows, Stats, StoreError, StoreResult};
use loopstore_model::Json;
use tokio_postgres::types::Type;
use tokio_postgres::{SimpleQueryMessage, SimpleQueryRow};

use super::connection::{Connection, Param};
use super::errors::{StatementError, describe, from_postgres, is_lost, is_serialization_failure};
use super::{BEGIN_READ, PostgresStore, again};

/// The number of rows that are fetched at a time.
const PAGE: usize = 1_000;

impl PostgresStore {
    /// Runs one read-only query within limits, and returns its rows. Values of types without a counterpart in JSON
    /// are returned as text, bytes as hexadecimal text.
    ///
    /// # Errors
    /// If the query is not a single read-only statement, takes too long, or is rejected by the server.
    pub fn query_within(&self, sql: &str, limits: QueryLimits) -> StoreResult<QueryRows> {
        // The server stops the query; if the server does not answer at all, the connection is closed.
        let patience = limits.time.map(|time| time + self.options.patience);
        self.query_with_values(sql, &[], limits, patience)
    }

    /// Runs a query as [`PostgresStore::query_within`] does, with values for `$1`, `$2` …; the connection is
    /// closed if the server is silent for `patience`.
    pub(super) fn query_with_values(
        &self,
        sql: &str,
        values: &[&str],
        limits: QueryLimits,
        patience: Option<Duration>,
    ) -> StoreResult<QueryRows> {
        again(|| {
            let mut transaction = self.begin(&[BEGIN_READ])?;
            let link = transaction.taken.link()?;
            let done = link.with_limit(patience, |link| rows(link, sql, values, limits));
            transaction.roll_back();
            done
        })
    }

    /// Returns statistics of the database. Its size includes everything in the database.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn stats(&self) -> StoreResult<Stats> {
        // Each count is a query of its own: where tables are distributed no subquery may be in the list of
        // columns.
        let sql = "SELECT s.sessions, l.*, r.runs, b.blocks, d.blobs, d.blob_bytes,
                 pg_database_size(current_database()) AS file_bytes
             FROM (SELECT count(*) AS sessions FROM sessions) s
                 CROSS JOIN (
                     SELECT count(*) AS loops, coalesce(sum(turns), 0)::BIGINT AS turns,
                         coalesce(sum(messages), 0)::BIGINT AS messages,
                         coalesce(sum(next_seq - messages), 0)::BIGINT AS extensions,
                         coalesce(sum(tokens), 0)::BIGINT AS tokens,
                         coalesce(sum(bytes), 0)::BIGINT AS bytes
                     FROM loops
                 ) l
                 CROSS JOIN (SELECT count(*) AS runs FROM runs) r
                 CROSS JOIN (SELECT count(*) AS blocks FROM blocks) b
                 CROSS JOIN (
                     SELECT count(*) AS blobs, coalesce(sum(o.bytes), 0)::BIGINT AS blob_bytes
                     FROM (SELECT DISTINCT sha256, bytes FROM blobs) o
                 ) d";
        let stats = self.long_snapshot(|door| {
            door.first_of_any(sql, &[], |row| {
                let mut stats = Stats::default();
                stats.sessions = row.get("sessions")?;
                stats.loops = row.get("loops")?;
                stats.turns = row.get("turns")?;
                stats.messages = row.get("messages")?;
                stats.extensions = row.get("extensions")?;
                stats.tokens = row.get("tokens")?;
                stats.bytes = row.get("bytes")?;
                stats.runs = row.get("runs")?;
                stats.blocks = row.get("blocks")?;
                stats.blobs = row.get("blobs")?;
                stats.blob_bytes = row.get("blob_bytes")?;
                stats.file_bytes = row.get("file_bytes")?;
                Ok(stats)
            })
        })?;
        stats.ok_or_else(|| StoreError::Damaged("the figures are missing".into()))
    }
}

fn refused(error: StatementError) -> StoreError {
    if is_lost(&error) {
        return from_postgres(error);
    }
    let code = error.code().unwrap_or_default();
    if is_serialization_failure(code) {
        return StoreError::SerializationFailure;
    }
    StoreError::Invalid(match code {
        "57014" => "the query timed out".into(),
        // The statement is no query, is several queries, or writes.
        "25006" | "42601" if describe(&error).contains("multiple commands") || code == "25006" => {
            "only a single SELECT is allowed here".into()
        }
        _ => format!("the query failed: {}", describe(&error)),
    })
}

fn rows(
    link: &mut Connection,
    sql: &str,
    values: &[&str],
    limits: QueryLimits,
) -> StoreResult<QueryRows> {
    let time = limits.time.unwrap_or(Duration::ZERO).as_millis();
    let patience = format!(
        "SET LOCAL statement_timeout = {}",
        time.min(i32::MAX as u128)
    );
    link.batch(&patience).map_err(refused)?;
    let sql = sql.trim_end().trim_end_matches(';');
    let declare = format!("DECLARE loopstore_query NO SCROLL CURSOR FOR {sql}\n");
    let params: Vec<Param<'_>> = values.iter().map(|value| value as Param<'_>).collect();
    link.execute_once(&declare, &params).map_err(refused)?;
    let columns = link
        .prepare("FETCH FORWARD 1 FROM loopstore_query")
        .map_err(refused)?;
    let columns = columns.columns();
    let mut found = QueryRows {
        columns: columns
            .iter()
            .map(|column| column.name().to_owned())
            .collect(),
        rows: Vec::new(),
        is_cut: false,
    };
    loop {
        let fetch = format!("FETCH FORWARD {PAGE} FROM loopstore_query");
        let page = link.simple(&fetch).map_err(refused)?;
        let page: Vec<_> = page.iter().filter_map(row_of).collect();
        for row in &page {
            if limits.rows.is_some_and(|most| found.rows.len() >= most) {
                found.is_cut = true;
                return Ok(found);
            }
            let values = columns.iter().enumerate();
            let values = values.map(|(at, column)| json(column.type_(), row.get(at)));
            found.rows.push(values.collect());
        }
        if page.len() < PAGE {
            return Ok(found);
        }
    }
}

fn row_of(message: &SimpleQueryMessage) -> Option<&SimpleQueryRow> {
    match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    }
}

/// Returns a JSON value from the text of a column.
fn json(kind: &Type, text: Option<&str>) -> Json {
    let Some(text) = text else {
        return Json::null();
    };
    match *kind {
        Type::INT2 | Type::INT4 | Type::INT8 | Type::OID => {
            let number = text.parse::<i64>();
            number.map_or_else(
                |_| Json::string(text),
                |number| Json::of(&number).unwrap_or_default(),
            )
        }
        Type::FLOAT4 | Type::FLOAT8 | Type::NUMERIC => match text.parse::<f64>() {
            Ok(number) if kind == &Type::NUMERIC && !text.contains('.') => {
                Json::parse(text).unwrap_or_else(|_| Json::of(&number).unwrap_or_default())
            }
            Ok(number) => Json::of(&number).unwrap_or_default(),
            Err(_) => Json::string(text),
        },
        Type::BOOL => Json::of(&(text == "t")).unwrap_or_default(),
        Type::BYTEA => Json::string(text.strip_prefix("\\x").unwrap_or(text)),
        _ => Json::string(text),
    }
}
