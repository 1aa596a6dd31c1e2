//! Rows of `edits`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::ControlFlow;

use rusqlite::params;

use super::reader::{SqliteReader, packed};
use super::row::SqliteRow;
use crate::store::columns::Columns;
use crate::store::mapping::*;
use crate::store::scan::ScanEdits;
use crate::store::values::BoundValue;
use crate::store::*;

const EDITS: &str = "SELECT loop, from_seq, to_seq, part, parts, action, text, tokens_before,
     bytes_before, messages, tokens_after, bytes_after, salt, digest
     FROM edits WHERE id BETWEEN ?1 AND ?2 ORDER BY id";

// The runs that were undone or redone are read apart: there are nearly always none.
const PACKED_EDITS: &str = "SELECT edits FROM runs INDEXED BY runs_edited
     WHERE session = ?1 AND edits IS NOT NULL AND outcome = 'committed' ORDER BY tick, key";

const PACKED_EDITS_UNTIL: &str = "SELECT edits FROM runs INDEXED BY runs_edited
     WHERE session = ?1 AND tick <= ?2 AND edits IS NOT NULL AND outcome = 'committed'
     ORDER BY tick, key";

// The runs are read apart, each once: a join would read the run of each edit again, and sort the texts of all of them.
const EDITS_OF_LOOP: &str =
    "SELECT id >> 32 AS run, id AS ordinal, loop, from_seq, to_seq, part, parts, action, text,
     tokens_before, bytes_before, messages, tokens_after, bytes_after, salt
     FROM edits INDEXED BY edits_loop WHERE loop = ?1";

const COMMITTED_RUN: &str = "SELECT run_id, loop, turns, tick FROM runs
     WHERE key = ?1 AND outcome = 'committed'";

/// The number of bytes that are reserved for packed edits.
const PACKED_BYTES: usize = 1 << 16;

/// The columns of a committed run that its edits are read with.
struct EditingRun {
    run_id: String,
    point: Point,
    tick: Tick,
}

impl SqliteReader<'_> {
    /// Returns a run if it is committed.
    fn committed_run(&self, run: RunKey) -> StoreResult<Option<EditingRun>> {
        self.one(COMMITTED_RUN, [run.0], |row| {
            Ok(EditingRun {
                run_id: row.get("run_id")?,
                point: Point {
                    loop_key: row.get("loop")?,
                    turns: row.get("turns")?,
                },
                tick: row.get("tick")?,
            })
        })
    }
}

impl ReadEdits for SqliteReader<'_> {
    fn edit_count(&self, session: SessionKey) -> StoreResult<u64> {
        let sql = "SELECT edits FROM sessions WHERE key = ?1";
        Ok(self
            .one(sql, [session.0], |row| row.get("edits"))?
            .unwrap_or(0))
    }

    fn edits_of_loop(&self, loop_key: LoopKey, visit: &mut Visit<'_, RunEdit>) -> StoreResult<()> {
        let mut edits: Vec<RunEdit> = Vec::new();
        let mut runs: HashMap<RunKey, Option<EditingRun>> = HashMap::new();
        self.in_order(EDITS_OF_LOOP, [loop_key.0], &mut |row| {
            let run: RunKey = row.get("run")?;
            let ordinal = row.number("ordinal")?;
            let edit = edit_row(row)?;
            let of = match runs.entry(run) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(self.committed_run(run)?),
            };
            edits.extend(of.as_ref().map(|of| RunEdit {
                run,
                run_id: of.run_id.clone(),
                point: of.point,
                tick: of.tick,
                ordinal,
                edit,
            }));
            Ok(ControlFlow::Continue(()))
        })?;
        edits.sort_unstable_by_key(|edit| (edit.tick, edit.run, edit.ordinal));
        for edit in edits {
            if visit(edit)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn edits_of_run(&self, run: RunKey) -> StoreResult<Vec<EditRow>> {
        let ids = [packed(run.0, 0), packed(run.0, u32::MAX)];
        self.all(EDITS, ids, |row| edit_row(row))
    }

    fn packed_edits(&self, session: SessionKey, until: Option<Tick>) -> StoreResult<PackedRuns> {
        let mut runs = PackedRuns::default();
        let sql = "SELECT run FROM flips WHERE session = ?1";
        self.in_order(sql, [session.0], &mut |row| {
            runs.flipped.insert(row.get("run")?);
            Ok(ControlFlow::Continue(()))
        })?;
        // To grow step by step from nothing costs a tenth of reading a thousand runs.
        let packed = &mut runs.edits;
        packed.reserve(PACKED_BYTES);
        let mut add = |row: &SqliteRow<'_, '_>| {
            packed.extend_from_slice(row.bytes("edits")?.unwrap_or_default());
            Ok(ControlFlow::Continue(()))
        };
        match until {
            None => self.in_order(PACKED_EDITS, [session.0], &mut add)?,
            Some(until) => self.in_order(PACKED_EDITS_UNTIL, [session.0, until], &mut add)?,
        }
        Ok(runs)
    }
}

impl SqliteReader<'_> {
    /// Writes the packed form of the edits of a run.
    pub(super) fn put_packed_edits(&self, run: RunKey, edits: &[EditRow]) -> StoreResult<()> {
        let sql = "SELECT key, run_id, loop, turns FROM runs WHERE key = ?1";
        let of = self.one(sql, [run.0], |row| packed_run(row))?;
        let of = of.filter(|_| !edits.is_empty());
        let packed = of.map(|of| packed_edits::pack(&of, edits));
        let sql = "UPDATE runs SET edits = ?2 WHERE key = ?1";
        self.run(sql, params![run.0, packed]).map(drop)
    }
}

impl ScanEdits for SqliteReader<'_> {
    fn edits_and_digests(&self, run: RunKey) -> StoreResult<Vec<(EditRow, [u8; 32])>> {
        let ids = [packed(run.0, 0), packed(run.0, u32::MAX)];
        self.all(EDITS, ids, |row| with_digest(row, edit_row))
    }

    fn packed_edits_of_run(&self, run: RunKey) -> StoreResult<Option<Vec<u8>>> {
        let sql = "SELECT edits FROM runs WHERE key = ?1";
        Ok(self.one(sql, [run.0], |row| row.get("edits"))?.flatten())
    }
}

impl WriteEdits for SqliteReader<'_> {
    fn insert_edits(&mut self, run: RunKey, edits: &[EditRow]) -> StoreResult<()> {
        let columns = format!("{EDIT_COLUMNS}, id");
        for (ordinal, edit) in (0u32..).zip(edits) {
            let mut values = edit_values(edit)?;
            values.push(BoundValue::Text(edit.text.as_deref()));
            values.push(BoundValue::Integer(Some(packed(run.0, ordinal))));
            self.insert("edits", &columns, values)?;
            self.run(
                "UPDATE loops SET edits = edits + 1 WHERE key = ?1",
                [edit.loop_key.0],
            )?;
        }
        self.put_packed_edits(run, edits)?;
        self.run(
            "UPDATE sessions SET edits = edits + ?2
             WHERE key = (SELECT session FROM runs WHERE key = ?1)",
            [run.0, edits.len().try_into().unwrap_or(i64::MAX)],
        )?;
        Ok(())
    }
}
