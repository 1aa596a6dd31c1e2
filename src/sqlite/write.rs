//! Writing rows. The rules stand above; here each function is one statement or a few.

use std::sync::LazyLock;

use rusqlite::types::{ToSql, ToSqlOutput};
use rusqlite::{OptionalExtension, params, params_from_iter};

use super::from_sqlite;
use super::reader::{SqliteReader, packed};
use crate::store::audit::{AuditEntry, AuditKind};
use crate::store::codec::{author_number, role_number};
use crate::store::columns::{Columns, missing};
use crate::store::error::{StoreError, StoreResult};
use crate::store::mapping::*;
use crate::store::scan::ScanRuns;
use crate::store::values::BoundValue;
use crate::store::*;

impl SqliteReader<'_> {
    pub(super) fn run(&self, sql: &str, params: impl rusqlite::Params) -> StoreResult<usize> {
        let mut statement = self.connection.prepare_cached(sql).map_err(from_sqlite)?;
        statement.execute(params).map_err(from_sqlite)
    }

    /// Inserts a row of a table that is no part of a hot path.
    pub(super) fn insert(
        &self,
        table: &str,
        columns: &str,
        values: Vec<BoundValue<'_>>,
    ) -> StoreResult<()> {
        self.run(&insert_into(table, columns), bind(values))
            .map(drop)
    }

    /// Writes the next row of an audit chain.
    pub(super) fn write_audit(&self, session: SessionKey, entry: &AuditEntry) -> StoreResult<()> {
        let end = self.audit_end(session)?.with(session, entry);
        self.run(
            "INSERT INTO audit (session, audit_seq, kind, digest, was, chain)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            params![
                session.0,
                signed(end.seq)?,
                entry.kind.as_str(),
                entry.digest,
                entry.was,
                end.chain,
            ],
        )
        .map(drop)
    }

    fn last_key(&self) -> i64 {
        self.connection.last_insert_rowid()
    }

    /// Returns the key of a blob, which is stored if it is not there yet.
    fn put_blob(&self, blob: &Blob) -> StoreResult<i64> {
        let known: Option<i64> = self
            .connection
            .prepare_cached("SELECT key FROM blobs WHERE sha256 = ?1")
            .map_err(from_sqlite)?
            .query_row([blob.sha256], |row| row.get(0))
            .optional()
            .map_err(from_sqlite)?;
        if let Some(key) = known {
            return Ok(key);
        }
        self.run(
            "INSERT INTO blobs (sha256, bytes, data) VALUES (?1, ?2, ?3)",
            params![blob.sha256, signed(blob.data.len() as u64)?, blob.data],
        )?;
        Ok(self.last_key())
    }

    fn refer_to_blobs(&self, owner: i64, blobs: &[Blob]) -> StoreResult<()> {
        for blob in blobs {
            let key = self.put_blob(blob)?;
            self.run(
                "INSERT OR IGNORE INTO blob_refs (owner, blob) VALUES (?1, ?2)",
                [owner, key],
            )?;
        }
        Ok(())
    }
}

/// A value of a column for rusqlite.
struct SqlValue<'a>(BoundValue<'a>);

impl ToSql for SqlValue<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        match &self.0 {
            BoundValue::Integer(number) => number.to_sql(),
            BoundValue::Text(text) => text.to_sql(),
            BoundValue::Json(text) => text.to_sql(),
            BoundValue::Bytes(bytes) => bytes.to_sql(),
            BoundValue::Digest(digest) => digest.to_sql(),
            BoundValue::Flag(flag) => flag.to_sql(),
        }
    }
}

/// Binds the values in their order.
pub(super) fn bind<'a>(values: impl IntoIterator<Item = BoundValue<'a>>) -> impl rusqlite::Params {
    params_from_iter(values.into_iter().map(SqlValue))
}

/// The key above all that are in a table and all that were removed from it.
macro_rules! next_key {
    ($table:literal) => {
        concat!(
            "1 + max((SELECT coalesce(max(key), 0) FROM ",
            $table,
            "), coalesce((SELECT key FROM spent_keys WHERE name = '",
            $table,
            "'), 0))"
        )
    };
}

/// Returns the statement that inserts a row with these columns.
pub(super) fn insert_into(table: &str, columns: &str) -> String {
    let places = vec!["?"; columns.split(',').count()].join(", ");
    format!("INSERT INTO {table} ({columns}) VALUES ({places})")
}

/// Returns the statement that inserts a row with these columns and the next key.
fn insert_with_key(table: &str, columns: &str, next_key: &str) -> String {
    let places = vec!["?"; columns.split(',').count()].join(", ");
    format!("INSERT INTO {table} ({columns}, key) VALUES ({places}, {next_key})")
}

static INSERT_RUN: LazyLock<String> =
    LazyLock::new(|| insert_with_key("runs", RUN_COLUMNS, next_key!("runs")));
static INSERT_BLOCK: LazyLock<String> =
    LazyLock::new(|| insert_with_key("blocks", BLOCK_COLUMNS, next_key!("blocks")));
static INSERT_BLOCK_MESSAGE: LazyLock<String> =
    LazyLock::new(|| insert_into("block_messages", &format!("{BLOCK_MESSAGE_COLUMNS}, id")));

/// Closing a run never changes its first columns. An update that names a column checks its reference and writes to
/// its indexes, also if the value stays the same, so that a run that has its tick already keeps it.
static CLOSE_RUN_AT_ITS_TICK: LazyLock<String> =
    LazyLock::new(|| format!("{} AND tick = ?5", close_run_from(6)));
static CLOSE_RUN: LazyLock<String> = LazyLock::new(|| close_run_from(5));

/// Returns the statement that writes the columns of a run from one on. The values of all columns and the key are
/// bound to it.
fn close_run_from(first: usize) -> String {
    let columns: Vec<&str> = RUN_COLUMNS.split(',').map(str::trim).collect();
    let written = (1..).zip(&columns).skip(first - 1);
    let written: Vec<String> = written
        .map(|(at, name)| format!("{name} = ?{at}"))
        .collect();
    let (written, key) = (written.join(", "), columns.len() + 1);
    format!("UPDATE runs SET {written} WHERE key = ?{key}")
}

impl WriteSessions for SqliteReader<'_> {
    fn insert_session(&mut self, row: &SessionRow) -> StoreResult<SessionKey> {
        self.run(
            // A receipt names its session by the key, which is never given again.
            "INSERT INTO sessions (key, session_id, agent_id, title, created_at, last_active_at,
                 current_loop, tick, source, project, meta)
             SELECT 1 + max(
                     (SELECT coalesce(max(key), 0) FROM sessions),
                     (SELECT coalesce(max(session), 0) FROM maintenance)
                 ), ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10",
            params![
                row.session_id.as_str(),
                row.agent_id,
                row.title,
                row.created_at,
                row.last_active_at,
                row.current_loop.map(|key| key.0),
                row.tick,
                row.source,
                row.project,
                row.meta,
            ],
        )?;
        Ok(SessionKey(self.last_key()))
    }

    fn update_session(&mut self, row: &SessionRow) -> StoreResult<()> {
        self.run(
            "UPDATE sessions SET agent_id = ?2, title = ?3, created_at = ?4, last_active_at = ?5,
                 current_loop = ?6, tick = ?7, source = ?8, project = ?9, meta = ?10
             WHERE key = ?1",
            params![
                row.key.0,
                row.agent_id,
                row.title,
                row.created_at,
                row.last_active_at,
                row.current_loop.map(|key| key.0),
                row.tick,
                row.source,
                row.project,
                row.meta,
            ],
        )?;
        Ok(())
    }

    fn touch_session(&mut self, activity: &SessionActivity) -> StoreResult<()> {
        self.run(
            "UPDATE OR FAIL sessions SET last_active_at = ?2, current_loop = ?3, tick = ?4 \
             WHERE key = ?1",
            params![
                activity.key.0,
                activity.last_active_at,
                activity.current_loop.map(|key| key.0),
                activity.tick,
            ],
        )?;
        Ok(())
    }

    fn put_flags(&mut self, session: SessionKey, flags: &SessionFlags) -> StoreResult<()> {
        self.run(
            "INSERT INTO session_flags (session, protected_at, redacts) VALUES (?1, ?2, ?3)
             ON CONFLICT (session) DO UPDATE SET protected_at = excluded.protected_at,
                 redacts = excluded.redacts",
            params![session.0, flags.protected_at, flags.redacts],
        )?;
        Ok(())
    }
}

impl WriteLoops for SqliteReader<'_> {
    fn insert_loop(&mut self, row: &LoopRow, meta: &LoopMeta) -> StoreResult<LoopKey> {
        self.run(
            concat!(
                "INSERT INTO loops (key, session, loop_id, parent, parent_loop_id, parent_turn,
                     parent_seq, kind, status, started_at, ended_at, tick, chain, meta, history)
                 VALUES (",
                next_key!("loops"),
                ", ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)"
            ),
            params![
                row.session.0,
                row.loop_id.as_str(),
                row.parent.map(|key| key.0),
                row.parent_loop_id.as_ref().map(|id| id.as_str()),
                row.parent_turn,
                row.parent_seq,
                row.kind,
                row.status.as_str(),
                row.started_at,
                row.ended_at,
                row.tick,
                row.progress.chain,
                meta.meta,
                meta.history,
            ],
        )?;
        Ok(LoopKey(self.last_key()))
    }

    fn update_loop(&mut self, row: &LoopRow) -> StoreResult<()> {
        self.update_totals(row, &row.progress)?;
        self.run(
            "UPDATE loops SET kind = ?2, started_at = ?3, ended_at = ?4 WHERE key = ?1",
            params![row.key.0, row.kind, row.started_at, row.ended_at],
        )?;
        Ok(())
    }

    fn update_totals(&mut self, row: &LoopCore, progress: &LoopProgress) -> StoreResult<()> {
        self.write_totals(row, progress, None)
    }

    fn end_loop(
        &mut self,
        row: &LoopCore,
        progress: &LoopProgress,
        ended_at: &str,
    ) -> StoreResult<()> {
        self.write_totals(row, progress, Some(ended_at))
    }

    fn update_loop_meta(&mut self, key: LoopKey, meta: &LoopMeta) -> StoreResult<()> {
        self.run(
            "UPDATE loops SET meta = ?2, history = ?3 WHERE key = ?1",
            params![key.0, meta.meta, meta.history],
        )?;
        Ok(())
    }
}

impl WriteTurns for SqliteReader<'_> {
    fn put_turn(&mut self, loop_key: LoopKey, row: &TurnRow) -> StoreResult<()> {
        self.run(
            "INSERT INTO turns (id, first_seq, messages, prompts, tokens, bytes, turn_index, \
                 answered, answers, tick, started_at, ended_at) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) \
             ON CONFLICT (id) DO UPDATE SET messages = excluded.messages, \
                 prompts = excluded.prompts, tokens = excluded.tokens, bytes = excluded.bytes, \
                 answered = excluded.answered, answers = excluded.answers, \
                 tick = excluded.tick, started_at = excluded.started_at, ended_at = excluded.ended_at",
            params![
                packed(loop_key.0, row.turn),
                row.first_seq,
                signed(row.messages)?,
                signed(row.prompts)?,
                signed(row.tokens)?,
                signed(row.bytes)?,
                row.turn_index,
                row.answered,
                answers_json(&row.answers)?,
                row.tick,
                row.started_at,
                row.ended_at,
            ],
        )?;
        Ok(())
    }
}

impl WriteMessages for SqliteReader<'_> {
    fn insert_message(
        &mut self,
        loop_key: LoopKey,
        row: &MessageRow,
        blobs: &[Blob],
    ) -> StoreResult<()> {
        let id = packed(loop_key.0, row.seq);
        let body = &row.body;
        self.run(
            "INSERT OR FAIL INTO messages (id, turn, role, author, tick, tokens, bytes, lines, created_at, \
                 body_block, origin, salt, digest, chain, head, body) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
            params![
                id,
                row.turn,
                role_number(body.role),
                author_number(body.author),
                row.tick,
                signed(body.tokens)?,
                signed(body.bytes)?,
                body.lines,
                row.created_at,
                body.text_block,
                row.origin,
                body.salt,
                body.digest,
                row.chain,
                body.head,
                body.text,
            ],
        )?;
        self.refer_to_blobs(id, blobs)
    }

    fn remove_unsealed(&mut self, loop_key: LoopKey, seq: u32, turn: u32) -> StoreResult<()> {
        match self.remove_from_index(loop_key, seq) {
            // A damaged index must not keep anybody from recording.
            Err(StoreError::IndexDamaged(_)) => {}
            done => done?,
        }
        let from = packed(loop_key.0, seq);
        let to = packed(loop_key.0, u32::MAX);
        self.run(
            "DELETE FROM blob_refs WHERE owner BETWEEN ?1 AND ?2",
            [from, to],
        )?;
        self.run(
            "DELETE FROM messages WHERE id BETWEEN ?1 AND ?2",
            [from, to],
        )?;
        self.run(
            "DELETE FROM turns WHERE id BETWEEN ?1 AND ?2",
            [packed(loop_key.0, turn), to],
        )?;
        self.run(
            "DELETE FROM redactions WHERE owner BETWEEN ?1 AND ?2",
            [from, to],
        )?;
        Ok(())
    }
}

impl WriteRuns for SqliteReader<'_> {
    fn insert_run(&mut self, row: &RunRow) -> StoreResult<RunKey> {
        self.run(&INSERT_RUN, bind(open_run_values(row)?))?;
        Ok(RunKey(self.last_key()))
    }

    fn close_run(&mut self, row: &RunRow, was: Option<[u8; 32]>) -> StoreResult<()> {
        let digest = digest::run(row, &self.part_digests(row.key)?);
        let kind = AuditKind::Run;
        self.write_audit(row.session, &AuditEntry { kind, digest, was })?;
        let mut values = run_values(row, Some(&digest))?;
        values.push(BoundValue::Integer(Some(row.key.0)));
        match self.run(&CLOSE_RUN_AT_ITS_TICK, bind(values.clone()))? {
            1 => Ok(()),
            _ => self.run(&CLOSE_RUN, bind(values)).map(drop),
        }
    }

    fn note_audit(&mut self, session: SessionKey, entry: &AuditEntry) -> StoreResult<()> {
        self.write_audit(session, entry)
    }

    fn insert_flip(&mut self, session: SessionKey, row: &FlipRow) -> StoreResult<()> {
        let digest = digest::flip(row);
        self.write_audit(session, &AuditEntry::new(AuditKind::Flip, digest))?;
        self.insert("flips", FLIP_COLUMNS, flip_values(&session, row, &digest)?)
    }
}

impl WritePins for SqliteReader<'_> {
    fn insert_pin(&mut self, session: SessionKey, row: &PinRow) -> StoreResult<()> {
        let digest = digest::pin(row);
        self.write_audit(session, &AuditEntry::new(AuditKind::Pin, digest))?;
        self.insert("pins", PIN_COLUMNS, pin_values(&session, row, &digest)?)
    }
}

impl WriteHides for SqliteReader<'_> {
    fn insert_hide(&mut self, session: SessionKey, row: &HideRow) -> StoreResult<()> {
        self.restore_hide(session, row)?;
        self.run(
            "UPDATE sessions SET session_id = ?2 WHERE key = ?1",
            params![session.0, row.session_id.as_str()],
        )?;
        Ok(())
    }

    fn restore_hide(&mut self, session: SessionKey, row: &HideRow) -> StoreResult<()> {
        let digest = digest::hide(row);
        self.write_audit(session, &AuditEntry::new(AuditKind::Hide, digest))?;
        self.insert("hides", HIDE_COLUMNS, hide_values(&session, row, &digest)?)
    }

    fn insert_head(&mut self, row: &HeadRow) -> StoreResult<()> {
        self.run(
            "INSERT INTO heads (sha256, taken_at, content) VALUES (?1, ?2, ?3)",
            params![row.sha256, row.taken_at, row.content],
        )
        .map(drop)
    }
}

impl WriteBlocks for SqliteReader<'_> {
    fn insert_block(&mut self, block: &NewBlock) -> StoreResult<BlockKey> {
        self.run(&INSERT_BLOCK, bind(block_values(block)?))?;
        let key = self.last_key();
        for (ordinal, message) in (0u32..).zip(&block.messages) {
            self.insert_block_message(packed(key, ordinal), message)?;
        }
        self.insert_coverage(key, &block.coverage)?;
        self.refer_to_blobs(-packed(key, 0), &block.blobs)?;
        Ok(BlockKey(key))
    }
}

impl WriteManifests for SqliteReader<'_> {
    fn insert_manifest(&mut self, row: &ManifestRow) -> StoreResult<ManifestKey> {
        let digest = digest::manifest(row);
        self.write_audit(row.session, &AuditEntry::new(AuditKind::Manifest, digest))?;
        self.insert(
            "manifests",
            MANIFEST_COLUMNS,
            manifest_values(row, &digest)?,
        )?;
        Ok(ManifestKey(self.last_key()))
    }
}

impl WriteLeases for SqliteReader<'_> {
    fn put_lease(&mut self, row: &LeaseRow) -> StoreResult<()> {
        let params = params![
            row.loop_key.0,
            row.owner,
            row.token,
            row.ttl,
            row.renewed_at,
            row.expires_at,
            row.released,
        ];
        let changed = self.run(
            "UPDATE leases SET owner = ?2, token = ?3, ttl = ?4, renewed_at = ?5, expires_at = ?6,
                 released = ?7
             WHERE loop = ?1",
            params,
        )?;
        if changed == 0 {
            self.run(
                "INSERT INTO leases (loop, owner, token, ttl, renewed_at, expires_at, released)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params,
            )?;
        }
        Ok(())
    }

    fn guard_lease(&mut self, loop_key: LoopKey, token: i64) -> StoreResult<Option<LeaseGuard>> {
        match self.holders {
            Some(holders) => holders.lock(loop_key, token),
            None => Ok(None),
        }
    }
}

impl StoreWrite for SqliteReader<'_> {
    fn begin_generation(&mut self, loop_key: LoopKey, through: u32) -> StoreResult<u32> {
        self.run(
            "UPDATE OR FAIL loops SET generation = generation + 1, sealed_seq = max(sealed_seq, ?2) \
             WHERE key = ?1",
            [loop_key.0, through.into()],
        )?;
        let sql = "SELECT generation FROM loops WHERE key = ?1";
        self.one(sql, [loop_key.0], |row| row.get("generation"))?
            .ok_or_else(|| missing("loop", loop_key.0))
    }
}

impl SqliteReader<'_> {
    fn insert_block_message(&self, id: i64, message: &BlockMessage) -> StoreResult<()> {
        let mut values = block_message_values(message)?;
        let text = message.body.as_ref().and_then(|body| body.text.as_deref());
        values.extend([BoundValue::Text(text), BoundValue::Integer(Some(id))]);
        self.run(&INSERT_BLOCK_MESSAGE, bind(values)).map(drop)
    }

    /// Writes the coverage of a block. A statement that may fail at a guard or a foreign key copies the
    /// pages that it is about to change, so several rows go into one.
    fn insert_coverage(&self, block: i64, rows: &[CoverageRow]) -> StoreResult<()> {
        let numbered: Vec<(i64, &CoverageRow)> =
            (0u32..).map(|at| packed(block, at)).zip(rows).collect();
        let mut rest = &numbered[..];
        for (most, sql) in COVERAGE_AT_ONCE.iter().zip(&*INSERT_COVERAGE) {
            let whole = rest.len() - rest.len() % most;
            let (rows, fewer) = rest.split_at(whole);
            for rows in rows.chunks(*most) {
                self.run(sql, bind(coverage_values(rows)))?;
            }
            rest = fewer;
        }
        Ok(())
    }
}

/// The numbers of coverage rows that one statement inserts, in descending order.
const COVERAGE_AT_ONCE: [usize; 4] = [16, 8, 4, 1];

/// The statements that insert so many rows of coverage.
static INSERT_COVERAGE: LazyLock<[String; 4]> = LazyLock::new(|| {
    COVERAGE_AT_ONCE.map(|rows| {
        let rows = vec!["(?, ?, ?, ?, ?, ?, ?)"; rows].join(", ");
        format!(
            "INSERT INTO coverage (id, loop, from_seq, to_seq, from_turn, to_turn, disposition)
             VALUES {rows}"
        )
    })
});

fn coverage_values<'a>(rows: &'a [(i64, &'a CoverageRow)]) -> impl Iterator<Item = BoundValue<'a>> {
    rows.iter().flat_map(|(id, row)| {
        let number = |number: Option<u32>| BoundValue::Integer(number.map(i64::from));
        let (seqs, turns) = (row.seqs, row.turns);
        [
            BoundValue::Integer(Some(*id)),
            BoundValue::Integer(Some(row.loop_key.0)),
            number(seqs.map(|(from, _)| from)),
            number(seqs.map(|(_, to)| to)),
            number(turns.map(|(from, _)| from)),
            number(turns.map(|(_, to)| to)),
            BoundValue::Text(Some(row.disposition.as_str())),
        ]
    })
}
