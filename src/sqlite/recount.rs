//! The recount of the tokens of a database file.

use std::path::Path;

use rusqlite::params;

use super::reader::{SqliteReader, packed};
use super::{SqliteOptions, SqliteStore};
use crate::store::columns::Columns;
use crate::store::error::StoreResult;
use crate::store::mapping::{BLOCK_COLUMNS, block_row, signed};
use crate::store::recount::{RecountError, RecountProgress, RecountReport, StoreRecount, run};
use crate::store::{BlockKey, BlockRow, LoopKey, ReadEdits, RunKey};

/// Recounts the tokens of the database at `path` with the counter of `options`.
///
/// `progress` is called after each transaction. If the process is killed, only the last transaction is lost: the next
/// recount with the same counter continues from there.
///
/// # Errors
/// If the database cannot be opened, read or written.
///
/// # Examples
/// ```
/// use loopstore::extend::sqlite::recount;
/// use loopstore::{SqliteOptions, SqliteStore, TokenCounter};
/// use std::sync::Arc;
///
/// /// A token for each byte.
/// struct Bytes;
///
/// impl TokenCounter for Bytes {
///     fn name(&self) -> &str {
///         "bytes"
///     }
///
///     fn text_tokens(&self, text: &str) -> u64 {
///         text.len() as u64
///     }
/// }
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("agent.db");
/// # drop(SqliteStore::open(&path)?);
/// let options = SqliteOptions::new().counter(Arc::new(Bytes));
/// let report = recount(&path, options, &mut |_| {})?;
/// assert_eq!((&*report.from, &*report.to), ("heuristic", "bytes"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn recount(
    path: impl AsRef<Path>,
    options: SqliteOptions,
    progress: &mut dyn FnMut(RecountProgress),
) -> Result<RecountReport, RecountError> {
    let store = SqliteStore::open_with(path, options.create(false).for_recount())?;
    Ok(run(&store, progress)?)
}

impl SqliteStore {
    /// Runs `work` in a write transaction in which tokens can be counted anew.
    pub(super) fn recounting<T>(
        &self,
        work: impl FnOnce(&mut dyn StoreRecount) -> StoreResult<T>,
    ) -> StoreResult<T> {
        self.transaction(|connection| work(&mut SqliteReader::new(connection)))
    }
}

impl SqliteReader<'_> {
    fn meta(&self, name: &str) -> StoreResult<Option<String>> {
        let sql = "SELECT value FROM store_meta WHERE name = ?1";
        self.first(sql, [name], |row| row.get("value"))
    }

    /// Writes tokens at packed keys.
    fn put_tokens(&self, table: &str, key: i64, counts: &[(u32, u64)]) -> StoreResult<()> {
        let sql = format!("UPDATE {table} SET tokens = ?2 WHERE id = ?1");
        for (number, tokens) in counts {
            self.run(&sql, [packed(key, *number), signed(*tokens)?])?;
        }
        Ok(())
    }
}

impl StoreRecount for SqliteReader<'_> {
    fn counter_name(&self) -> StoreResult<Option<String>> {
        self.meta("token_counter")
    }

    fn recount_note(&self) -> StoreResult<Option<String>> {
        self.meta("recount")
    }

    fn put_recount_note(&mut self, note: &str) -> StoreResult<()> {
        let sql = "UPDATE store_meta SET value = ?1 WHERE name = 'recount'";
        if self.run(sql, [note])? == 0 {
            let sql = "INSERT INTO store_meta (name, value) VALUES ('recount', ?1)";
            self.run(sql, [note])?;
        }
        Ok(())
    }

    fn finish_recount(&mut self, counter: &str) -> StoreResult<()> {
        let sql = "UPDATE store_meta SET value = ?1 WHERE name = 'token_counter'";
        self.run(sql, [counter])?;
        self.run("DELETE FROM store_meta WHERE name = 'recount'", [])?;
        Ok(())
    }

    fn stored_messages(&self) -> StoreResult<u64> {
        let sql =
            "SELECT (SELECT count(*) FROM messages) + (SELECT count(*) FROM block_messages) AS n";
        Ok(self.first(sql, [], |row| row.get("n"))?.unwrap_or(0))
    }

    fn loop_from(&self, from: LoopKey) -> StoreResult<Option<(LoopKey, u32)>> {
        let sql = "SELECT key, next_seq FROM loops WHERE key >= ?1 ORDER BY key LIMIT 1";
        self.first(sql, [from.0], |row| {
            Ok((row.get("key")?, row.get("next_seq")?))
        })
    }

    fn block_from(&self, from: BlockKey) -> StoreResult<Option<BlockRow>> {
        let sql =
            format!("SELECT key, {BLOCK_COLUMNS} FROM blocks WHERE key >= ?1 ORDER BY key LIMIT 1");
        self.first(&sql, [from.0], |row| block_row(row))
    }

    fn put_message_tokens(&mut self, loop_key: LoopKey, counts: &[(u32, u64)]) -> StoreResult<()> {
        self.put_tokens("messages", loop_key.0, counts)
    }

    fn put_turn_tokens(&mut self, loop_key: LoopKey, counts: &[(u32, u64)]) -> StoreResult<()> {
        self.put_tokens("turns", loop_key.0, counts)
    }

    fn put_loop_tokens(
        &mut self,
        loop_key: LoopKey,
        tokens: u64,
        before: u64,
        after: u64,
    ) -> StoreResult<()> {
        self.run(
            "UPDATE loops SET tokens = ?2, system_tokens = max(system_tokens - ?3, 0) + ?4
             WHERE key = ?1",
            params![loop_key.0, signed(tokens)?, signed(before)?, signed(after)?],
        )?;
        Ok(())
    }

    fn put_edit_tokens(
        &mut self,
        run: RunKey,
        ordinal: u32,
        before: u64,
        after: u64,
    ) -> StoreResult<()> {
        let sql = "UPDATE edits SET tokens_before = ?2, tokens_after = ?3 WHERE id = ?1";
        let id = packed(run.0, ordinal);
        self.run(sql, [id, signed(before)?, signed(after)?])
            .map(drop)
    }

    fn repack_edits(&mut self, run: RunKey) -> StoreResult<()> {
        let edits = self.edits_of_run(run)?;
        self.put_packed_edits(run, &edits)
    }

    fn put_block_message_tokens(
        &mut self,
        block: BlockKey,
        counts: &[(u32, u64)],
    ) -> StoreResult<()> {
        self.put_tokens("block_messages", block.0, counts)
    }

    fn put_block_tokens(&mut self, block: BlockKey, covered: u64, shown: u64) -> StoreResult<()> {
        self.run(
            "UPDATE blocks SET tokens_covered = ?2, tokens_block = ?3 WHERE key = ?1",
            [block.0, signed(covered)?, signed(shown)?],
        )?;
        Ok(())
    }
}
