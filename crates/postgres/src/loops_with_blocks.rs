//! The active blocks of a chain, with two queries for each page: its loops, and their newest blocks.

use std::ops::ControlFlow;

use loopstore_core::store::columns::Columns;
use loopstore_core::store::mapping::{generation, run_summary};
use loopstore_core::store::{
    Generation, LoopCore, LoopKey, LoopWithBlock, SessionKey, StoreResult, Visit, VisitRunSummary,
};

use super::row::{BLOCK_CORE_COLUMNS, PostgresRow};
use super::transaction::{PostgresTransaction, paged};

/// The number of runs that are fetched at a time; most callers need only the first.
const RUNS_AT_ONCE: i64 = 8;

fn newest(row: &PostgresRow) -> StoreResult<(Generation, bool)> {
    Ok((generation(row, row.get("loop")?)?, row.get("is_flipped")?))
}

impl PostgresTransaction<'_> {
    /// Visits the loops of a chain, each with its newest block.
    pub(super) fn walk_standings(
        &self,
        leaf: LoopKey,
        visit: &mut Visit<'_, LoopWithBlock>,
    ) -> StoreResult<()> {
        let mut next = Some(leaf);
        while let Some(leaf) = next {
            let (links, after) = self.page_of_chain(leaf)?;
            let mut blocks = self.newest_blocks(&links)?;
            next = after;
            for row in links {
                let at = blocks
                    .iter()
                    .position(|(found, _)| found.block.loop_key == row.key);
                let found = at.map(|at| blocks.swap_remove(at));
                let is_disputed = found.as_ref().is_some_and(|(_, is_flipped)| *is_flipped);
                let newest = found.filter(|_| !is_disputed).map(|(newest, _)| newest);
                let standing = LoopWithBlock {
                    row,
                    newest,
                    is_disputed,
                };
                if let ControlFlow::Break(()) = visit(standing)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Returns the newest block of each loop that has one, and whether its run was ever undone.
    fn newest_blocks(&self, loops: &[LoopCore]) -> StoreResult<Vec<(Generation, bool)>> {
        let Some(session) = loops.first().map(|row| row.session.0) else {
            return Ok(Vec::new());
        };
        let compacted = loops.iter().filter(|row| row.totals.generation > 0);
        let keys: Vec<i64> = compacted.map(|row| row.key.0).collect();
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let sql = format!(
            "SELECT {BLOCK_CORE_COLUMNS}, b.run_loop, b.run_turns, b.run_tick,
                 EXISTS (SELECT 1 FROM flips f WHERE f.session = $1 AND f.run = b.run)
                     OR (SELECT s.edits > 0 FROM sessions s WHERE s.session = $1) AS is_flipped
             FROM unnest($2::BIGINT[]) AS wanted (loop)
             CROSS JOIN LATERAL (
                 SELECT b.*, r.loop AS run_loop, r.turns AS run_turns, r.tick AS run_tick
                 FROM blocks b JOIN runs r ON r.session = $1 AND r.key = b.run
                 WHERE b.session = $1 AND b.loop = wanted.loop AND r.outcome = 'committed'
                 ORDER BY b.generation DESC LIMIT 1
             ) b"
        );
        self.all(session, &sql, &[&session, &keys], newest)
    }

    /// Visits the runs of a session that fulfil a condition, newest first, with few of their columns.
    pub(super) fn read_marks(
        &self,
        session: SessionKey,
        condition: &str,
        visit: &mut VisitRunSummary<'_>,
    ) -> StoreResult<()> {
        self.lock(session.0)?;
        let sql = format!(
            "SELECT r.key, r.loop, r.turns, r.tick, r.round, r.outcome,
                 EXISTS (SELECT 1 FROM flips f WHERE f.session = $1 AND f.run = r.key) AS is_flipped,
                 (r.strategy LIKE 'provider:%' OR r.trigger = 'edit') AS has_no_settings, r.older_loops
             FROM runs r
             WHERE r.session = $1 AND {condition} AND (r.tick, r.key) < ($2, $3)
             ORDER BY r.tick DESC, r.key DESC LIMIT {RUNS_AT_ONCE}"
        );
        paged(
            RUNS_AT_ONCE,
            |row: &PostgresRow| {
                let of = |column| row.get(column).unwrap_or(i64::MIN);
                (of("tick"), of("key"))
            },
            |after| {
                let (tick, key) = after.unwrap_or((i64::MAX, i64::MAX));
                self.ask(&sql, &[&session.0, &tick, &key])
            },
            &mut |row: PostgresRow| visit(&run_summary(&row)?),
        )
    }
}
