//! Removes copied rows that refer to lost rows, so that the remaining rows are consistent.
//!
//! The caller decides which rows are removed; a sweep then removes the rows that refer to them.

use rusqlite::{Params, params};

use crate::sqlite::from_sqlite;
use crate::sqlite::reader::{SqliteReader, packed};
use crate::sqlite::scan::STRAYS;
use crate::store::audit::{self, AuditEnd, AuditEntry, RECEIPTS};
use crate::store::codec::author_number;
use crate::store::columns::Columns;
use crate::store::error::StoreResult;
use crate::store::scan::{ScanBlocks, StoreScan};
use crate::store::*;

/// The rows that were copied from a damaged file, within one transaction and without triggers.
pub struct Mender<'a> {
    pub(super) rows: SqliteReader<'a>,
}

/// Messages whose loop is lost.
#[derive(Clone, Copy, Debug)]
pub struct LostLoop {
    pub key: LoopKey,
    pub messages: u64,
}

/// Runs of which a part is gone: the loop that they were made on, or that a block stands on or says
/// something of, or the rollup that it extends.
const BROKEN_RUNS: &str = "
    SELECT key FROM runs WHERE loop NOT IN (SELECT key FROM loops)
        OR session NOT IN (SELECT key FROM sessions)
    UNION
    SELECT run FROM blocks WHERE loop NOT IN (SELECT key FROM loops)
        OR extends NOT IN (SELECT key FROM blocks)
    UNION
    SELECT b.run FROM coverage c JOIN blocks b ON b.key = c.id >> 32
        WHERE c.loop NOT IN (SELECT key FROM loops)";

/// Rows without a rowid that belong to nothing, and those that no foreign key holds.
const LOOSE: [&str; 5] = [
    "DELETE FROM blocks WHERE run NOT IN (SELECT key FROM runs)",
    "DELETE FROM blob_refs WHERE blob NOT IN (SELECT key FROM blobs)",
    "DELETE FROM source_sessions WHERE session NOT IN (SELECT key FROM sessions)
        OR source NOT IN (SELECT key FROM sources)",
    "DELETE FROM notes WHERE id >> 32 NOT IN (SELECT key FROM loops)",
    "DELETE FROM append_keys WHERE session NOT IN (SELECT key FROM sessions)",
];

impl Mender<'_> {
    /// Returns the rows for reading.
    pub fn scan(&self) -> &dyn StoreScan {
        &self.rows
    }

    /// Returns the rows for writing.
    pub fn write(&mut self) -> &mut dyn StoreWrite {
        &mut self.rows
    }

    fn run(&self, sql: &str, params: impl Params) -> StoreResult<usize> {
        self.rows
            .connection
            .execute(sql, params)
            .map_err(from_sqlite)
    }

    /// Returns the sessions that have loops but no row, each with a tick that is later than all ticks of its loops.
    pub fn headless(&self) -> StoreResult<Vec<(SessionKey, Tick)>> {
        let sql = "SELECT session AS key, 1 + max(
                 max(tick),
                 coalesce((SELECT max(tick) FROM messages WHERE id >> 32 IN
                     (SELECT key FROM loops i WHERE i.session = l.session)), 0),
                 coalesce((SELECT max(tick) FROM runs r WHERE r.session = l.session), 0),
                 coalesce((SELECT max(tick) FROM flips f WHERE f.session = l.session), 0),
                 coalesce((SELECT max(tick) FROM pins p WHERE p.session = l.session), 0),
                 coalesce((SELECT max(tick) FROM hides h WHERE h.session = l.session), 0),
                 coalesce((SELECT max(tick) FROM manifests m WHERE m.session = l.session), 0)
             ) AS tick
             FROM loops l WHERE session NOT IN (SELECT key FROM sessions) GROUP BY session";
        self.rows
            .all(sql, [], |row| Ok((row.get("key")?, row.get("tick")?)))
    }

    /// Adds the row of a session under the key that its loops refer to.
    pub fn insert_session_at(&mut self, row: &SessionRow) -> StoreResult<()> {
        let key = self.rows.insert_session(row)?;
        self.run(
            "UPDATE sessions SET key = ?2 WHERE key = ?1",
            [key.0, row.key.0],
        )?;
        Ok(())
    }

    /// Returns the loops whose parent does not exist.
    pub fn parted(&self) -> StoreResult<Vec<LoopKey>> {
        let sql = "SELECT key FROM loops WHERE parent NOT IN (SELECT key FROM loops) ORDER BY key";
        self.rows.all(sql, [], |row| row.get("key"))
    }

    /// Makes a loop the root of a chain. The row keeps the id of its parent.
    pub fn detach(&mut self, key: LoopKey) -> StoreResult<()> {
        let sql =
            "UPDATE loops SET parent = NULL, parent_turn = NULL, parent_seq = NULL WHERE key = ?1";
        self.run(sql, [key.0]).map(drop)
    }

    /// Returns the messages whose loop does not exist.
    pub fn homeless(&self) -> StoreResult<Vec<LostLoop>> {
        let sql = "SELECT id >> 32 AS key, count(*) AS messages FROM messages
             WHERE id >> 32 NOT IN (SELECT key FROM loops) GROUP BY 1 ORDER BY 1";
        self.rows.all(sql, [], |row| {
            Ok(LostLoop {
                key: row.get("key")?,
                messages: row.get("messages")?,
            })
        })
    }

    /// Returns the runs of which a part is lost.
    pub fn broken_runs(&self) -> StoreResult<Vec<RunKey>> {
        self.rows.all(BROKEN_RUNS, [], |row| row.get("key"))
    }

    /// Removes rows that refer to missing rows, and rows that no row refers to any more, until there are none.
    /// Returns the table and key of each removed row with a broken reference.
    pub fn sweep(&mut self) -> StoreResult<Vec<(String, i64)>> {
        let mut swept = Vec::new();
        loop {
            let mut removed = 0;
            for sql in LOOSE {
                removed += self.run(sql, [])?;
            }
            for (table, key, condition) in STRAYS {
                let sql = format!(
                    "DELETE FROM {table} WHERE {key} IN
                         (SELECT t.{key} FROM {table} t WHERE {condition})"
                );
                removed += self.run(&sql, [])?;
            }
            let sql = "SELECT \"table\" AS name, rowid AS key FROM pragma_foreign_key_check
                 WHERE rowid IS NOT NULL AND \"table\" <> 'loops'";
            let loose = self
                .rows
                .all(sql, [], |row| Ok((row.get("name")?, row.get("key")?)))?;
            for (table, key) in loose {
                let table: String = table;
                removed += self.run(&format!("DELETE FROM {table} WHERE rowid = ?1"), [key])?;
                swept.push((table, key));
            }
            if removed == 0 {
                return Ok(swept);
            }
        }
    }

    /// Removes a row. The next sweep removes the rows that refer to it.
    pub fn remove(&mut self, table: Removable) -> StoreResult<()> {
        let (sql, key) = match table {
            Removable::Session(SessionKey(key)) => ("DELETE FROM sessions WHERE key = ?1", key),
            Removable::Loop(LoopKey(key)) => ("DELETE FROM loops WHERE key = ?1", key),
            Removable::Run(RunKey(key)) => ("DELETE FROM runs WHERE key = ?1", key),
            Removable::Flip(FlipKey(key)) => ("DELETE FROM flips WHERE key = ?1", key),
            Removable::Pin(PinKey(key)) => ("DELETE FROM pins WHERE key = ?1", key),
            Removable::Hide(HideKey(key)) => ("DELETE FROM hides WHERE key = ?1", key),
            Removable::Manifest(ManifestKey(key)) => ("DELETE FROM manifests WHERE key = ?1", key),
            Removable::Source(SourceKey(key)) => ("DELETE FROM sources WHERE key = ?1", key),
            Removable::Blob(key) => ("DELETE FROM blobs WHERE key = ?1", key),
            Removable::Import(key) => ("DELETE FROM imports WHERE key = ?1", key),
            Removable::Receipt(key) => ("DELETE FROM maintenance WHERE key = ?1", key),
        };
        if let Removable::Session(SessionKey(key)) = table {
            self.run("DELETE FROM loops WHERE session = ?1", [key])?;
        }
        if let Removable::Run(RunKey(key)) = table {
            self.run("DELETE FROM blocks WHERE run = ?1", [key])?;
            let edits = [packed(key, 0), packed(key, u32::MAX)];
            self.run("DELETE FROM edits WHERE id BETWEEN ?1 AND ?2", edits)?;
            self.run(
                "UPDATE loops SET edits = (SELECT count(*) FROM edits e WHERE e.loop = loops.key)
                 WHERE edits > 0",
                [],
            )?;
            self.run(
                "UPDATE sessions SET edits = (
                     SELECT count(*) FROM edits e JOIN runs r ON r.key = e.id >> 32
                     WHERE r.session = sessions.key
                 ) WHERE edits > 0",
                [],
            )?;
        }
        self.run(sql, [key]).map(drop)
    }

    /// Removes the messages of a loop from `seq` on, and the records of the loop's source and recorder, which refer
    /// to messages by their sequence. Returns the number of removed messages.
    pub fn cut(&mut self, key: LoopKey, seq: u32) -> StoreResult<u64> {
        let ids = [packed(key.0, seq), packed(key.0, u32::MAX)];
        let gone = self.run("DELETE FROM messages WHERE id BETWEEN ?1 AND ?2", ids)?;
        let notes = [packed(key.0, 0), packed(key.0, u32::MAX)];
        self.run("DELETE FROM notes WHERE id BETWEEN ?1 AND ?2", notes)?;
        self.run("DELETE FROM started_calls WHERE loop = ?1", [key.0])?;
        self.run("UPDATE loops SET history = NULL WHERE key = ?1", [key.0])?;
        Ok(gone as u64)
    }

    /// Clears the totals in a loop's row, so that they are derived again from its messages.
    pub fn forget_totals(&mut self, key: LoopKey) -> StoreResult<()> {
        self.run(
            "UPDATE loops SET next_seq = 0, sealed_seq = max(0, min(sealed_seq, 4294967295)),
                 turns = 0, complete = 0, messages = 0, tokens = 0, bytes = 0, system_tokens = 0,
                 generation = 0, last_turn_index = NULL, open_calls = NULL, chain = zeroblob(32)
             WHERE key = ?1",
            [key.0],
        )
        .map(drop)
    }

    /// Removes the turns of a loop, so that they are derived again from its messages.
    pub fn forget_turns(&mut self, key: LoopKey) -> StoreResult<()> {
        let ids = [packed(key.0, 0), packed(key.0, u32::MAX)];
        self.run("DELETE FROM turns WHERE id BETWEEN ?1 AND ?2", ids)
            .map(drop)
    }

    /// Writes the columns of a message that are derived from its content; the content is unchanged.
    pub fn rewrite(
        &mut self,
        key: LoopKey,
        row: &MessageRow,
        blobs: &[[u8; 32]],
    ) -> StoreResult<()> {
        let id = packed(key.0, row.seq);
        self.run(
            "UPDATE messages SET turn = ?2, tokens = ?3, bytes = ?4, lines = ?5, created_at = ?6,
                 chain = ?7, author = ?8 WHERE id = ?1",
            params![
                id,
                row.turn,
                row.body.tokens.cast_signed(),
                row.body.bytes.cast_signed(),
                row.body.lines,
                row.created_at,
                row.chain,
                author_number(row.body.author),
            ],
        )?;
        for name in blobs {
            self.run(
                "INSERT OR IGNORE INTO blob_refs (owner, blob)
                 SELECT ?1, key FROM blobs WHERE sha256 = ?2",
                params![id, name],
            )?;
        }
        Ok(())
    }

    /// Restarts the audit chain of a session, or of all receipts, with these entries.
    pub fn begin_audit(&mut self, session: SessionKey, entries: &[AuditEntry]) -> StoreResult<()> {
        self.run("DELETE FROM audit WHERE session = ?1", [session.0])?;
        let mut end = AuditEnd::default();
        // The trigger that would note it is away.
        let set_end = |end: AuditEnd| {
            let end = params![session.0, end.seq.cast_signed(), end.chain];
            let sql = match session {
                RECEIPTS => {
                    "UPDATE receipt_chain SET audit_seq = ?2, audit = ?3 WHERE session = ?1"
                }
                _ => "UPDATE sessions SET audit_seq = ?2, audit = ?3 WHERE key = ?1",
            };
            self.run(sql, end)
        };
        set_end(end)?;
        for entry in entries {
            self.rows.write_audit(session, entry)?;
            end = end.with(session, entry);
            set_end(end)?;
        }
        Ok(())
    }

    /// Numbers the blocks of a loop without gaps, in their order. A block whose digest does not match still does not
    /// match afterwards.
    pub fn renumber(&mut self, key: LoopKey) -> StoreResult<()> {
        let mut newest = 0;
        for block in self.rows.block_keys(key)? {
            newest += 1;
            // One that cannot be read is a finding, and goes.
            let Ok((mut row, stored)) = self.rows.block_and_digest(block) else {
                continue;
            };
            if row.generation == newest {
                continue;
            }
            let parts = (self.rows.block_messages(block), self.rows.coverage(block));
            let (Ok(messages), Ok(coverage)) = parts else {
                continue;
            };
            let is_whole = digest::block(&row, &messages, &coverage) == stored;
            let run = audit::row_digest(&self.rows, "runs", row.run.0).ok();
            row.generation = newest;
            let digest = match is_whole {
                true => digest::block(&row, &messages, &coverage),
                false => stored,
            };
            self.run(
                "UPDATE blocks SET generation = ?2, digest = ?3 WHERE key = ?1",
                params![block.0, newest, digest],
            )?;
            if run.is_some_and(|run| run.stored == run.derived) {
                let run = audit::row_digest(&self.rows, "runs", row.run.0)?;
                let sql = "UPDATE runs SET digest = ?2 WHERE key = ?1 AND digest IS NOT NULL";
                self.run(sql, params![row.run.0, run.derived])?;
            }
        }
        self.run(
            "UPDATE loops SET generation = ?2 WHERE key = ?1 AND generation <> ?2",
            params![key.0, newest],
        )
        .map(drop)
    }
}

/// The owner of rows that are removed together.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub enum Removable {
    Session(SessionKey),
    Loop(LoopKey),
    Run(RunKey),
    Flip(FlipKey),
    Pin(PinKey),
    Hide(HideKey),
    Manifest(ManifestKey),
    Source(SourceKey),
    Blob(i64),
    Import(i64),
    Receipt(i64),
}
