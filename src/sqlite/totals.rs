//! The row of a loop as an append writes it.

use rusqlite::ToSql;

use super::from_sqlite;
use super::reader::SqliteReader;
use crate::failpoints::{self, Failpoint};
use crate::store::error::StoreResult;
use crate::store::mapping::*;
use crate::store::{LoopCore, LoopProgress};

macro_rules! totals {
    () => {
        "next_seq = ?3, sealed_seq = ?4, turns = ?5, complete = ?6, messages = ?7, tokens = ?8, \
         bytes = ?9, generation = ?10, system_tokens = ?11, last_turn_index = ?12, open_calls = ?13, \
         chain = ?14, reported_seq = ?15, reported_tokens = ?16"
    };
}

/// An update that names a column writes to its index, whatever was there before. Most appends change neither
/// the status nor whether there is something for the index of messages.
const SAME_INDEXES: &str = concat!(
    "UPDATE OR FAIL loops SET ",
    totals!(),
    " WHERE key = ?1 AND status = ?2 AND (unindexed OR next_seq >= ?3)"
);

const ALL: &str = concat!(
    "UPDATE OR FAIL loops SET status = ?2, unindexed = unindexed OR next_seq < ?3,
         ended_at = coalesce(?17, ended_at), ",
    totals!(),
    " WHERE key = ?1"
);

impl SqliteReader<'_> {
    /// Writes where a loop stands and what it holds; with the time when it ended, if it ends.
    pub(super) fn write_totals(
        &self,
        row: &LoopCore,
        progress: &LoopProgress,
        ended_at: Option<&str>,
    ) -> StoreResult<()> {
        if failpoints::is_active(Failpoint::SplitTransaction) {
            let split = self.connection.execute_batch("COMMIT; BEGIN IMMEDIATE");
            split.map_err(from_sqlite)?;
        }
        let totals = &row.totals;
        let values: [&dyn ToSql; 17] = [
            &row.key.0,
            &row.status.as_str(),
            &totals.next_seq,
            &totals.sealed_seq,
            &totals.turns,
            &totals.complete,
            &signed(totals.messages)?,
            &signed(totals.tokens)?,
            &signed(totals.bytes)?,
            &totals.generation,
            &signed(progress.system_tokens)?,
            &progress.last_turn_index,
            &open_calls_json(progress)?,
            &progress.chain,
            &totals.reported.map(|reported| reported.seq),
            &reported_tokens(totals)?,
            &ended_at,
        ];
        if ended_at.is_none() && self.run(SAME_INDEXES, &values[..16])? == 1 {
            return Ok(());
        }
        self.run(ALL, &values[..]).map(drop)
    }
}
