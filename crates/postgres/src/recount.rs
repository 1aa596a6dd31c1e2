//! The rows of a recount of tokens.
//!
//! Each transaction of a recount holds a lock exclusively that every write takes in shared mode before it
//! checks the counter of the database: so no write goes on with the old counter.

use loopstore_core::store::columns::{Columns, missing};
use loopstore_core::store::mapping::{BLOCK_COLUMNS, block_row, signed};
use loopstore_core::store::recount::run;
use loopstore_core::store::recount::{RecountError, RecountProgress, RecountReport, StoreRecount};
use loopstore_core::store::{BlockKey, BlockRow, LoopKey, ReadEdits, RunKey, StoreResult};

use super::PostgresStore;
use super::connection::Param;
use super::keys::session_of;
use super::options::PostgresOptions;
use super::transaction::PostgresTransaction;

/// Takes the exclusive lock; `loopstore_counts_with` takes the shared one.
const ALONE: &str = "SELECT pg_advisory_xact_lock(loopstore_count_lock())";

/// Counts the tokens of the database at `address` again, with the counter of `options`.
///
/// Other programs may have the database open: their writes fail until they open the database again. `progress` is
/// called after each transaction. If the process is killed, only the last transaction is lost, and the next recount
/// with the same counter continues there. A database with tenants requires a role that sees all tenants.
///
/// # Errors
/// If the database cannot be opened, read or written.
///
/// # Examples
/// ```no_run
/// use loopstore_postgres::PostgresOptions;
/// use loopstore_postgres::recount;
///
/// let address = "postgres://owner@localhost/agents";
/// let report = recount(address, PostgresOptions::new(), &mut |progress| {
///     println!("{} of {} messages", progress.messages, progress.all_messages);
/// })?;
/// println!("{} messages are counted with {}", report.messages, report.to);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn recount(
    address: &str,
    options: PostgresOptions,
    progress: &mut dyn FnMut(RecountProgress),
) -> Result<RecountReport, RecountError> {
    let store = PostgresStore::open_with(address, options.create(false).for_recount())?;
    Ok(run(&store, progress)?)
}

impl PostgresStore {
    /// Runs `work` in a write transaction that may change token counts.
    pub(super) fn recounting<T>(
        &self,
        work: impl FnOnce(&mut dyn StoreRecount) -> StoreResult<T>,
    ) -> StoreResult<T> {
        self.long_transaction(&self.begin_any_write(), |door| {
            door.ask(ALONE, &[])?;
            work(door)
        })
    }
}

impl PostgresTransaction<'_> {
    fn meta(&self, name: &str) -> StoreResult<Option<String>> {
        let sql = "SELECT value FROM store_meta WHERE name = $1";
        self.first_of_any(sql, &[&name], |row| row.get("value"))
    }

    /// Writes the token counts of numbered rows below `key`.
    fn put_tokens(
        &self,
        (table, of, number): (&str, &str, &str),
        key: i64,
        counts: &[(u32, u64)],
    ) -> StoreResult<()> {
        if counts.is_empty() {
            return Ok(());
        }
        let session = session_of(key);
        let numbers: Vec<i64> = counts
            .iter()
            .map(|(number, _)| i64::from(*number))
            .collect();
        let tokens: StoreResult<Vec<i64>> = counts.iter().map(|(_, all)| signed(*all)).collect();
        let sql = format!(
            "UPDATE {table} t SET tokens = c.tokens
             FROM unnest($3::BIGINT[], $4::BIGINT[]) AS c (number, tokens)
             WHERE t.session = $1 AND t.{of} = $2 AND t.{number} = c.number"
        );
        self.run(session, &sql, &[&session, &key, &numbers, &tokens?])
            .map(drop)
    }
}

impl StoreRecount for PostgresTransaction<'_> {
    fn counter_name(&self) -> StoreResult<Option<String>> {
        self.meta("token_counter")
    }

    fn recount_note(&self) -> StoreResult<Option<String>> {
        self.meta("recount")
    }

    fn put_recount_note(&mut self, note: &str) -> StoreResult<()> {
        let sql = "INSERT INTO store_meta (name, value) VALUES ('recount', $1)
             ON CONFLICT (name) DO UPDATE SET value = excluded.value";
        self.execute(sql, &[&note]).map(drop)
    }

    fn finish_recount(&mut self, counter: &str) -> StoreResult<()> {
        let sql = "UPDATE store_meta SET value = $1 WHERE name = 'token_counter'";
        self.execute(sql, &[&counter])?;
        self.execute("DELETE FROM store_meta WHERE name = 'recount'", &[])
            .map(drop)
    }

    fn stored_messages(&self) -> StoreResult<u64> {
        let sql =
            "SELECT (SELECT count(*) FROM messages) + (SELECT count(*) FROM block_messages) AS n";
        let count = self.first_of_any(sql, &[], |row| row.get("n"))?;
        Ok(count.unwrap_or(0))
    }

    fn loop_from(&self, from: LoopKey) -> StoreResult<Option<(LoopKey, u32)>> {
        // A key begins with its session, so that the order of keys is the same.
        let sql = "SELECT key FROM loops WHERE (session, key) >= ($1, $2)
             ORDER BY session, key LIMIT 1";
        let params = [session_of(from.0), from.0];
        let found = self.first_of_any(sql, &[&params[0], &params[1]], |row| row.get("key"))?;
        let Some(key) = found else { return Ok(None) };
        // The session is locked before its loop is read.
        let session = session_of(key);
        let sql = "SELECT next_seq FROM loops WHERE session = $1 AND key = $2";
        let count = self.first(session, sql, &[&session, &key], |row| row.get("next_seq"))?;
        let count = count.ok_or_else(|| missing("loop", key))?;
        Ok(Some((LoopKey(key), count)))
    }

    fn block_from(&self, from: BlockKey) -> StoreResult<Option<BlockRow>> {
        let sql = format!(
            "SELECT key, {BLOCK_COLUMNS} FROM blocks WHERE (session, key) >= ($1, $2)
             ORDER BY session, key LIMIT 1"
        );
        let params = [session_of(from.0), from.0];
        self.first_of_any(&sql, &[&params[0], &params[1]], block_row)
    }

    fn put_message_tokens(&mut self, loop_key: LoopKey, counts: &[(u32, u64)]) -> StoreResult<()> {
        self.put_tokens(("messages", "loop", "seq"), loop_key.0, counts)
    }

    fn put_turn_tokens(&mut self, loop_key: LoopKey, counts: &[(u32, u64)]) -> StoreResult<()> {
        self.put_tokens(("turns", "loop", "turn"), loop_key.0, counts)
    }

    fn put_loop_tokens(
        &mut self,
        loop_key: LoopKey,
        tokens: u64,
        before: u64,
        after: u64,
    ) -> StoreResult<()> {
        let session = session_of(loop_key.0);
        self.run(
            session,
            "UPDATE loops SET tokens = $3,
                 system_tokens = greatest(system_tokens - $4::BIGINT, 0) + $5::BIGINT
             WHERE session = $1 AND key = $2",
            &[
                &session,
                &loop_key.0,
                &signed(tokens)?,
                &signed(before)?,
                &signed(after)?,
            ],
        )
        .map(drop)
    }

    fn put_edit_tokens(
        &mut self,
        run: RunKey,
        ordinal: u32,
        before: u64,
        after: u64,
    ) -> StoreResult<()> {
        let session = session_of(run.0);
        let sql = "UPDATE edits SET tokens_before = $4, tokens_after = $5
             WHERE session = $1 AND run = $2 AND ordinal = $3";
        let (before, after) = (signed(before)?, signed(after)?);
        let params: [Param<'_>; 5] = [&session, &run.0, &i64::from(ordinal), &before, &after];
        self.run(session, sql, &params).map(drop)
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
        self.put_tokens(("block_messages", "block", "ordinal"), block.0, counts)
    }

    fn put_block_tokens(&mut self, block: BlockKey, covered: u64, shown: u64) -> StoreResult<()> {
        let session = session_of(block.0);
        self.run(
            session,
            "UPDATE blocks SET tokens_covered = $3, tokens_block = $4
             WHERE session = $1 AND key = $2",
            &[&session, &block.0, &signed(covered)?, &signed(shown)?],
        )
        .map(drop)
    }
}
