//! Rows of `edits`.

use super::reader::{SqliteReader, packed};
use crate::store::columns::Columns;
use crate::store::mapping::*;
use crate::store::scan::ScanEdits;
use crate::store::values::BoundValue;
use crate::store::*;

const EDITS: &str = "SELECT loop, from_seq, to_seq, part, parts, action, text, tokens_before,
     bytes_before, messages, tokens_after, bytes_after, salt, digest
     FROM edits WHERE id BETWEEN ?1 AND ?2 ORDER BY id";

const EDITS_OF_LOOP: &str = "SELECT e.id >> 32 AS run, r.run_id, r.loop AS run_loop, r.turns AS run_turns,
     r.tick AS run_tick, e.id AS ordinal, e.loop, e.from_seq, e.to_seq, e.part, e.parts, e.action, e.text,
     e.tokens_before, e.bytes_before, e.messages, e.tokens_after, e.bytes_after, e.salt
     FROM edits e INDEXED BY edits_loop CROSS JOIN runs r ON r.key = e.id >> 32
     WHERE e.loop = ?1 AND r.outcome = 'committed' ORDER BY r.tick, e.id";

impl ReadEdits for SqliteReader<'_> {
    fn edit_count(&self, session: SessionKey) -> StoreResult<u64> {
        let sql = "SELECT edits FROM sessions WHERE key = ?1";
        Ok(self
            .one(sql, [session.0], |row| row.get("edits"))?
            .unwrap_or(0))
    }

    fn edits_of_loop(&self, loop_key: LoopKey, visit: &mut Visit<'_, RunEdit>) -> StoreResult<()> {
        self.in_order(EDITS_OF_LOOP, [loop_key.0], &mut |row| {
            visit(run_edit(row)?)
        })
    }

    fn edits_of_run(&self, run: RunKey) -> StoreResult<Vec<EditRow>> {
        let ids = [packed(run.0, 0), packed(run.0, u32::MAX)];
        self.all(EDITS, ids, |row| edit_row(row))
    }
}

impl ScanEdits for SqliteReader<'_> {
    fn edits_and_digests(&self, run: RunKey) -> StoreResult<Vec<(EditRow, [u8; 32])>> {
        let ids = [packed(run.0, 0), packed(run.0, u32::MAX)];
        self.all(EDITS, ids, |row| with_digest(row, edit_row))
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
        self.run(
            "UPDATE sessions SET edits = edits + ?2
             WHERE key = (SELECT session FROM runs WHERE key = ?1)",
            [run.0, edits.len().try_into().unwrap_or(i64::MAX)],
        )?;
        Ok(())
    }
}
