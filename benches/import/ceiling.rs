//! The same lines through plain SQLite: the rows, counters, digests and indexes of an import, each row written
//! once, and nothing parsed except line ends.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rusqlite::{CachedStatement, Connection, Transaction, TransactionBehavior, params};

use super::Result;
use super::transcripts::TURNS;
use super::workload::digests::{Salts, sha256};

/// The lines of a loop: a prompt, then an answer and its result in each turn.
const LOOP: i64 = 1 + 2 * TURNS as i64;
/// The size of a head without content of the line: with it the database is as large as after an import.
const HEAD_BYTES: usize = 110;
/// The metadata of a loop.
const META: &str = r#"{"loopId":"session-0000-000","sessionId":"session-0000","agentId":"claude-code","parentLoopId":"session-0000-000","parentTurn":7,"status":"completed","continuationKind":"default","startedAt":"2026-01-01T00:00:00.000Z","endedAt":"2026-01-01T00:00:00.000Z","config":{"model":"m","provider":"anthropic"}}"#;

/// Stores the files, one transaction each; returns the seconds.
pub fn import(files: &[PathBuf], db: &Path) -> Result<f64> {
    let mut connection = Connection::open(db)?;
    connection.execute_batch(
        "PRAGMA page_size = 4096; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
         PRAGMA cache_size = -8192;
         CREATE TABLE sessions (key INTEGER PRIMARY KEY, session_id TEXT NOT NULL UNIQUE,
             agent_id TEXT, title TEXT, created_at TEXT, last_active_at TEXT, current_loop INTEGER,
             tick INTEGER, source TEXT, meta TEXT) STRICT;
         CREATE TABLE imports (key INTEGER PRIMARY KEY, session INTEGER, format TEXT, path TEXT,
             file_name TEXT, record_key TEXT, imported_at TEXT) STRICT;
         CREATE INDEX imports_session ON imports (session);
         CREATE INDEX imports_identity ON imports (format, file_name, record_key);
         CREATE TABLE loops (key INTEGER PRIMARY KEY, session INTEGER, loop_id TEXT NOT NULL,
             parent INTEGER, parent_turn INTEGER, kind TEXT, status TEXT, started_at TEXT,
             ended_at TEXT, tick INTEGER, messages INTEGER, turns INTEGER, tokens INTEGER,
             bytes INTEGER, chain BLOB, meta TEXT, UNIQUE (session, loop_id)) STRICT;
         CREATE INDEX loops_parent ON loops (parent);
         CREATE TABLE turns (id INTEGER PRIMARY KEY, first_seq INTEGER, messages INTEGER,
             prompts INTEGER, tokens INTEGER, bytes INTEGER, turn_index INTEGER, answered INTEGER,
             answers TEXT, tick INTEGER, started_at INTEGER, ended_at INTEGER) STRICT;
         CREATE INDEX turns_answers ON turns (id) WHERE answers IS NOT NULL;
         CREATE TABLE messages (id INTEGER PRIMARY KEY, turn INTEGER, role INTEGER, tick INTEGER,
             tokens INTEGER, bytes INTEGER, lines INTEGER, created_at INTEGER, body_block INTEGER,
             origin BLOB, salt BLOB, digest BLOB, chain BLOB, head TEXT, body TEXT) STRICT;",
    )?;
    let begun = Instant::now();
    for (session, file) in (1..).zip(files) {
        let write = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        import_file(&write, session, file)?;
        write.commit()?;
    }
    Ok(begun.elapsed().as_secs_f64())
}

/// The loops of a file, one after another, with the state of the current one.
struct Loop<'a> {
    message: CachedStatement<'a>,
    turn: CachedStatement<'a>,
    whole: CachedStatement<'a>,
    session: i64,
    key: i64,
    tick: i64,
    messages: i64,
    tokens: i64,
    bytes: i64,
    chain: [u8; 32],
    salts: Salts,
}

fn import_file(write: &Transaction<'_>, session: i64, file: &Path) -> Result<()> {
    let last: Option<i64> = write.query_row("SELECT max(key) FROM loops", [], |row| row.get(0))?;
    let mut current = Loop {
        message: write.prepare_cached(
            "INSERT INTO messages VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13,
                 ?14, ?15)",
        )?,
        turn: write.prepare_cached(
            "INSERT INTO turns VALUES (?1, ?2, ?3, 1, ?4, ?5, ?6, 1, NULL, ?7, ?8, ?9)",
        )?,
        whole: write.prepare_cached(
            "INSERT INTO loops VALUES (?1, ?2, ?3, ?4, 7, '\"default\"', 'completed',
                 '2026-01-01T00:00:00.000Z', '2026-01-01T00:00:00.000Z', ?5, ?6, ?7, ?8, ?9, ?10,
                 ?11)",
        )?,
        session,
        key: last.unwrap_or_default() + 1,
        tick: 0,
        messages: 0,
        tokens: 0,
        bytes: 0,
        chain: [0; 32],
        salts: Salts::default(),
    };
    let mut lines = BufReader::with_capacity(128 << 10, File::open(file)?);
    let mut line = String::new();
    while lines.read_line(&mut line)? > 0 {
        current.line(&line)?;
        line.clear();
    }
    current.end()?;
    let name = file.to_string_lossy();
    write.execute(
        "INSERT INTO sessions VALUES (?1, ?2, 'claude-code', NULL, '2026-01-01T00:00:00.000Z',
             '2026-01-01T00:00:00.000Z', ?3, ?4, 'claude-code', ?5)",
        params![session, name, current.key, current.tick, META],
    )?;
    write.execute(
        "INSERT INTO imports VALUES (NULL, ?1, 'claude-code', ?2, ?2, NULL, '2026-01-01T00:00:00Z')",
        params![session, name],
    )?;
    Ok(())
}

impl Loop<'_> {
    fn line(&mut self, line: &str) -> Result<()> {
        let seq = self.messages;
        // A prompt belongs to the turn after it.
        let turn = (seq - 1).max(0) / 2;
        let begins = seq == 0 || (seq > 1 && seq % 2 == 1);
        if begins {
            self.tick += 1;
        }
        let salt = self.salts.next_salt()?;
        // The key of a database comes first.
        let origin = sha256(&[&[7; 32], line.as_bytes()]);
        let digest = sha256(&[&salt, line.as_bytes()]);
        self.chain = sha256(&[&self.chain, &digest]);
        let size = i64::try_from(line.len())?;
        (self.tokens, self.bytes) = (self.tokens + size / 4, self.bytes + size);
        let head = &line[..line.len().min(HEAD_BYTES)];
        self.message.execute(params![
            (self.key << 32) | seq,
            turn,
            seq % 2,
            self.tick,
            size / 4,
            size,
            seq,
            seq,
            0,
            origin,
            salt,
            digest,
            self.chain,
            head,
            line
        ])?;
        self.messages += 1;
        if self.messages % 2 == 1 && self.messages > 1 {
            let (key, first) = ((self.key << 32) | turn, seq - 1);
            self.turn.execute(params![
                key,
                first,
                self.messages,
                self.tokens,
                self.bytes,
                turn,
                self.tick,
                seq,
                seq
            ])?;
        }
        if self.messages == LOOP {
            self.end()?;
        }
        Ok(())
    }

    /// Writes the row of the loop and begins the next.
    fn end(&mut self) -> Result<()> {
        if self.messages == 0 {
            return Ok(());
        }
        self.whole.execute(params![
            self.key,
            self.session,
            self.key.to_string(),
            self.key - 1,
            self.tick,
            self.messages,
            i64::from(TURNS),
            self.tokens,
            self.bytes,
            self.chain,
            META
        ])?;
        self.key += 1;
        (self.messages, self.tokens, self.bytes) = (0, 0, 0);
        self.chain = [0; 32];
        Ok(())
    }
}
