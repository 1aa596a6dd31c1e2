//! The bare ceiling: plain rusqlite with prepared statements and no model. The tables and indexes are those of
//! the store, copied without triggers; rows, counters and digests are the same.

use std::path::Path;

use rusqlite::types::Value;
use rusqlite::{Connection, params, params_from_iter};

use super::plain::Plain;
use crate::workload::Outcome;
use crate::workload::digests::{Salts, sha256};

/// The place of the text of a message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// In the JSON.
    Packed,
    /// In its own column.
    Split,
}

/// A database to write to.
pub struct Bare {
    connection: Connection,
    form: Form,
    salts: Salts,
    key: i64,
    seq: i64,
    turn: i64,
    tokens: i64,
    bytes: i64,
    tick: i64,
    chain: [u8; 32],
}

fn open(file: &Path, synchronous: &str) -> Outcome<Connection> {
    let connection = Connection::open(file)?;
    connection.execute_batch(&format!(
        "PRAGMA page_size = 4096; PRAGMA journal_mode = WAL; PRAGMA synchronous = {synchronous};
         PRAGMA cache_size = -8192; PRAGMA foreign_keys = OFF;"
    ))?;
    connection.set_prepared_statement_cache_capacity(128);
    Ok(connection)
}

/// Returns the statements that create the tables and indexes of a store.
fn tables_of(store: &Path) -> Outcome<Vec<String>> {
    let connection = Connection::open(store)?;
    let mut tables = connection.prepare(
        "SELECT sql FROM sqlite_schema
         WHERE type IN ('table', 'index') AND sql NOT LIKE 'CREATE VIRTUAL%'
             AND name NOT LIKE 'message_index%' AND name NOT LIKE 'sqlite_%'
         ORDER BY type DESC",
    )?;
    let tables = tables.query_map([], |row| row.get(0))?;
    Ok(tables.collect::<rusqlite::Result<_>>()?)
}

impl Bare {
    /// A new database with the tables of a store.
    pub fn create(file: &Path, store: &Path, synchronous: &str, form: Form) -> Outcome<Self> {
        let connection = open(file, synchronous)?;
        for table in tables_of(store)? {
            connection.execute_batch(&table)?;
        }
        connection.execute(
            "INSERT INTO sessions (key, session_id, agent_id, meta)
             VALUES (1, 'session', 'agent', '{\"sessionId\":\"session\",\"agentId\":\"agent\"}')",
            [],
        )?;
        Ok(Self {
            connection,
            form,
            salts: Salts::default(),
            key: 0,
            seq: 0,
            turn: 0,
            tokens: 0,
            bytes: 0,
            tick: 0,
            chain: [0; 32],
        })
    }

    /// Begins a loop.
    pub fn start(&mut self) -> Outcome<()> {
        self.key += 1;
        (self.seq, self.turn, self.tokens, self.bytes) = (0, 0, 0, 0);
        self.tick += 1;
        self.chain = [0; 32];
        self.connection.execute(
            "INSERT INTO loops (key, session, loop_id, parent, kind, status, tick, chain, meta)
             VALUES (?1, 1, ?2, ?3, '\"default\"', 'running', ?4, ?5, '{}')",
            params![
                self.key,
                format!("loop-{}", self.key),
                (self.key > 1).then_some(self.key - 1),
                self.tick,
                self.chain
            ],
        )?;
        Ok(())
    }

    /// Appends turns in one transaction.
    pub fn append(&mut self, turns: Vec<Vec<Plain>>) -> Outcome<()> {
        self.connection
            .prepare_cached("BEGIN IMMEDIATE")?
            .execute([])?;
        self.tick += 1;
        for turn in turns {
            let first = self.seq;
            let ended = turn.last().and_then(|message| message.timestamp);
            for message in turn {
                self.message(message)?;
            }
            self.turn(first, ended)?;
        }
        self.totals()?;
        self.connection.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }

    fn message(&mut self, mut message: Plain) -> Outcome<()> {
        let text = match self.form {
            Form::Split => message.take_text(),
            Form::Packed => None,
        };
        let head = serde_json::to_string(&message)?;
        let (block, body) = text.map_or((None, None), |(at, text)| (Some(at as i64), Some(text)));
        let body_bytes = body.as_ref().map_or(&[][..], |text| text.as_bytes());
        let salt = self.salts.next_salt()?;
        let digest = sha256(&[&salt, head.as_bytes(), body_bytes]);
        self.chain = sha256(&[&self.chain, &digest]);
        let bytes = (head.len() + body_bytes.len()) as i64;
        let role = match message.role.as_str() {
            "user" => 0,
            "assistant" => 1,
            _ => 2,
        };
        let lines = (role == 2).then(|| body_bytes.iter().filter(|b| **b == b'\n').count() as i64);
        self.connection
            .prepare_cached(
                "INSERT INTO messages (id, turn, role, tick, tokens, bytes, lines, created_at,
                     body_block, origin, salt, digest, chain, head, body, author)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, NULL, ?10, ?11, ?12, ?13, ?14,
                     min(?3, 2))",
            )?
            .execute(params![
                (self.key << 32) | self.seq,
                self.turn,
                role,
                self.tick,
                bytes / 4,
                bytes,
                lines,
                message.timestamp,
                block,
                salt,
                digest,
                self.chain,
                head,
                body
            ])?;
        self.seq += 1;
        self.tokens += bytes / 4;
        self.bytes += bytes;
        Ok(())
    }

    fn turn(&mut self, first: i64, ended: Option<i64>) -> Outcome<()> {
        self.connection
            .prepare_cached(
                "INSERT INTO turns (id, first_seq, messages, prompts, tokens, bytes, turn_index,
                     answered, answers, tick, started_at, ended_at)
                 VALUES (?1, ?2, ?3, 1, ?4, ?5, ?6, 1, NULL, ?7, ?8, ?8)",
            )?
            .execute(params![
                (self.key << 32) | self.turn,
                first,
                self.seq,
                self.tokens,
                self.bytes,
                self.turn,
                self.tick,
                ended
            ])?;
        self.turn += 1;
        Ok(())
    }

    /// Writes the rows of the loop and the session.
    fn totals(&mut self) -> Outcome<()> {
        self.connection
            .prepare_cached(
                "UPDATE loops SET next_seq = ?2, sealed_seq = ?2, turns = ?3, complete = ?3,
                     messages = ?2, tokens = ?4, bytes = ?5, last_turn_index = ?3,
                     open_calls = NULL, chain = ?6
                 WHERE key = ?1",
            )?
            .execute(params![
                self.key,
                self.seq,
                self.turn,
                self.tokens,
                self.bytes,
                self.chain
            ])?;
        self.connection
            .prepare_cached(
                "UPDATE sessions SET last_active_at = ?1, current_loop = ?2, tick = ?3 WHERE key = 1",
            )?
            .execute(params!["2026-01-01T00:00:00.000Z", self.key, self.tick])?;
        Ok(())
    }

    /// Writes rows in one transaction, each with a digest.
    pub fn insert(&self, rows: &[(String, Vec<Vec<Value>>)]) -> Outcome<()> {
        let write = self.connection.unchecked_transaction()?;
        for (sql, rows) in rows {
            let mut statement = write.prepare_cached(sql)?;
            for row in rows {
                let bytes: Vec<&[u8]> = row.iter().map(bytes_of).collect();
                std::hint::black_box(sha256(&bytes));
                statement.execute(params_from_iter(row))?;
            }
        }
        write
            .prepare_cached("UPDATE loops SET generation = generation + 1 WHERE key = ?1")?
            .execute([self.key])?;
        write
            .prepare_cached("UPDATE sessions SET tick = tick + 1 WHERE key = 1")?
            .execute([])?;
        write.commit()?;
        Ok(())
    }
}

fn bytes_of(value: &Value) -> &[u8] {
    match value {
        Value::Text(text) => text.as_bytes(),
        Value::Blob(bytes) => bytes,
        _ => &[],
    }
}

/// A visitor of stored messages: the JSON of each, and its text with the number of its block.
type Visit<'a> = dyn FnMut(&str, Option<(usize, &str)>) -> Outcome<()> + 'a;

/// Reads a store's own file.
pub struct Reader(Connection);

impl Reader {
    pub fn open(file: &Path) -> Outcome<Self> {
        let connection = Connection::open(file)?;
        connection.pragma_update(None, "cache_size", -8192)?;
        Ok(Self(connection))
    }

    /// Visits each message of the session's context as it is stored: JSON, and a text with the number of its
    /// block.
    fn stored(&self, visit: &mut Visit<'_>) -> Outcome<()> {
        let read = self.0.unchecked_transaction()?;
        let mut chain = read.prepare_cached(
            "WITH RECURSIVE chain (loop) AS (
                 SELECT current_loop FROM sessions WHERE key = 1
                 UNION ALL
                 SELECT l.parent FROM chain c JOIN loops l ON l.key = c.loop WHERE l.parent IS NOT NULL
             )
             SELECT c.loop, b.key, b.through, b.recent_start, l.next_seq FROM chain c
             CROSS JOIN loops l ON l.key = c.loop
             LEFT JOIN blocks b ON b.loop = l.key AND b.generation = l.generation",
        )?;
        let mut links: Vec<(i64, Option<i64>, bool)> = chain
            .query_map([], |row| {
                Ok((
                    row.get(0)?,
                    row.get(1)?,
                    row.get::<_, Option<i64>>(3)?.is_some(),
                ))
            })?
            .collect::<rusqlite::Result<_>>()?;
        links.reverse();
        let mut of_block = read.prepare_cached(
            "SELECT head, body, body_block FROM block_messages WHERE id BETWEEN ?1 AND ?2 ORDER BY id",
        )?;
        let mut originals = read.prepare_cached(
            "SELECT head, body, body_block FROM messages WHERE id BETWEEN ?1 AND ?2 ORDER BY id",
        )?;
        for (loop_key, block, keeps) in links {
            let (statement, owner) = match block {
                Some(block) if !keeps => (&mut of_block, block),
                _ => (&mut originals, loop_key),
            };
            let mut rows = statement.query([owner << 32, (owner << 32) | 0xFFFF_FFFF])?;
            while let Some(row) = rows.next()? {
                let at: Option<i64> = row.get(2)?;
                let text = row.get_ref(1)?.as_str_or_null()?;
                visit(
                    row.get_ref(0)?.as_str()?,
                    at.map(|at| at as usize).zip(text),
                )?;
            }
        }
        Ok(())
    }

    /// Returns the messages of the session's context.
    pub fn build(&self) -> Outcome<Vec<Plain>> {
        let mut messages = Vec::new();
        self.stored(&mut |head, text| {
            let mut message: Plain = serde_json::from_str(head)?;
            if let Some((at, text)) = text {
                message.put_text(at, text.to_owned());
            }
            messages.push(message);
            Ok(())
        })?;
        Ok(messages)
    }

    /// Returns the same as it is stored.
    pub fn raw(&self) -> Outcome<Vec<(String, String)>> {
        let mut messages = Vec::new();
        self.stored(&mut |head, text| {
            let text = text.map_or("", |(_, text)| text);
            messages.push((head.to_owned(), text.to_owned()));
            Ok(())
        })?;
        Ok(messages)
    }

    /// Returns how many rows of each table that a compaction writes to are there.
    pub fn newest(&self) -> Outcome<Vec<i64>> {
        let newest = |(table, key): &(&str, &str)| {
            let sql = format!("SELECT coalesce(max({key}), 0) FROM {table}");
            Ok(self.0.query_row(&sql, [], |row| row.get(0))?)
        };
        WRITTEN.iter().map(newest).collect()
    }

    /// Returns the new rows, each with the statement that inserts it.
    pub fn since(&self, newest: &[i64]) -> Outcome<Vec<(String, Vec<Vec<Value>>)>> {
        let mut all = Vec::new();
        // A run is inserted open, and closed after its row in the audit chain.
        let mut closes = Vec::new();
        for ((table, key), newest) in WRITTEN.iter().zip(newest) {
            let mut rows = self.0.prepare(&format!(
                "SELECT * FROM {table} WHERE {key} > ?1 ORDER BY {key}"
            ))?;
            let columns = rows.column_count();
            let values =
                rows.query_map([newest], |row| (0..columns).map(|at| row.get(at)).collect())?;
            let mut values: Vec<Vec<Value>> = values.collect::<rusqlite::Result<_>>()?;
            if *table == "runs" {
                let outcome = rows.column_index("outcome")?;
                let digest = rows.column_index("digest")?;
                for row in &mut values {
                    let open = Value::Text("running".into());
                    let outcome = std::mem::replace(&mut row[outcome], open);
                    let digest = std::mem::replace(&mut row[digest], Value::Null);
                    closes.push(vec![outcome, digest, row[0].clone()]);
                }
            }
            let marks = vec!["?"; columns].join(", ");
            all.push((format!("INSERT INTO {table} VALUES ({marks})"), values));
        }
        let close = "UPDATE runs SET outcome = ?1, digest = ?2 WHERE key = ?3";
        all.push((close.to_owned(), closes));
        Ok(all)
    }
}

/// The tables that a compaction writes to, each with its key.
const WRITTEN: [(&str, &str); 5] = [
    ("runs", "key"),
    ("blocks", "key"),
    ("block_messages", "id"),
    ("coverage", "id"),
    ("audit", "audit_seq"),
];
