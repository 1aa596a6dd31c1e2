//! Rows of `edits`.

use std::ops::ControlFlow;

use loopstore_core::store::columns::Columns;
use loopstore_core::store::mapping::*;
use loopstore_core::store::scan::ScanEdits;
use loopstore_core::store::values::BoundValue;
use loopstore_core::store::*;

use super::connection::Param;
use super::keys::session_of;
use super::row::{PostgresRow, escaped};
use super::transaction::PostgresTransaction;

const EDITS: &str =
    "SELECT loop, from_seq, to_seq, part, parts, action, text, escaped, tokens_before,
     bytes_before, messages, tokens_after, bytes_after, salt, digest
     FROM edits WHERE session = $1 AND run = $2 ORDER BY ordinal";

const EDITS_OF_LOOP: &str = "SELECT e.run, r.run_id, r.loop AS run_loop, r.turns AS run_turns,
     r.tick AS run_tick, e.ordinal, e.loop, e.from_seq, e.to_seq, e.part, e.parts, e.action, e.text,
     e.escaped, e.tokens_before, e.bytes_before, e.messages, e.tokens_after, e.bytes_after, e.salt
     FROM edits e JOIN runs r ON r.session = $1 AND r.key = e.run
     WHERE e.session = $1 AND e.loop = $2 AND r.outcome = 'committed' ORDER BY r.tick, e.run, e.ordinal";

const PACKED_EDITS: &str = "SELECT key, EXISTS (
         SELECT 1 FROM flips f WHERE f.session = $1 AND f.run = r.key
     ) AS is_flipped, edits
     FROM runs r WHERE session = $1 AND tick <= $2 AND edits IS NOT NULL AND outcome = 'committed'
     ORDER BY tick, key";

impl ReadEdits for PostgresTransaction<'_> {
    fn edit_count(&self, session: SessionKey) -> StoreResult<u64> {
        let sql = "SELECT edits FROM sessions WHERE session = $1";
        let count = self.first(session.0, sql, &[&session.0], |row| row.get("edits"))?;
        Ok(count.unwrap_or(0))
    }

    fn edits_of_loop(&self, loop_key: LoopKey, visit: &mut Visit<'_, RunEdit>) -> StoreResult<()> {
        let session = session_of(loop_key.0);
        let params: [Param<'_>; 2] = [&session, &loop_key.0];
        for edit in self.all(session, EDITS_OF_LOOP, &params, run_edit)? {
            if let ControlFlow::Break(()) = visit(edit)? {
                break;
            }
        }
        Ok(())
    }

    fn edits_of_run(&self, run: RunKey) -> StoreResult<Vec<EditRow>> {
        let session = session_of(run.0);
        self.all(session, EDITS, &[&session, &run.0], edit_row)
    }

    fn packed_edits(&self, session: SessionKey, until: Option<Tick>) -> StoreResult<PackedRuns> {
        let until = until.unwrap_or(i64::MAX);
        let mut runs = PackedRuns::default();
        let rows = self.all(session.0, PACKED_EDITS, &[&session.0, &until], |row| {
            let (run, is_flipped): (RunKey, bool) = (row.get("key")?, row.get("is_flipped")?);
            let edits: Vec<u8> = row.get("edits")?;
            Ok((edits, is_flipped.then_some(run)))
        })?;
        for (edits, flipped) in rows {
            runs.edits.extend(edits);
            runs.flipped.extend(flipped);
        }
        Ok(runs)
    }
}

impl PostgresTransaction<'_> {
    /// Writes the packed form of the edits of a run.
    pub(super) fn put_packed_edits(&self, run: RunKey, edits: &[EditRow]) -> StoreResult<()> {
        let session = session_of(run.0);
        let sql = "SELECT key, run_id, loop, turns FROM runs WHERE session = $1 AND key = $2";
        let of = self.first(session, sql, &[&session, &run.0], packed_run)?;
        let of = of.filter(|_| !edits.is_empty());
        let packed = of.map(|of| packed_edits::pack(&of, edits));
        let sql = "UPDATE runs SET edits = $3 WHERE session = $1 AND key = $2";
        self.run(session, sql, &[&session, &run.0, &packed])
            .map(drop)
    }
}

impl ScanEdits for PostgresTransaction<'_> {
    fn edits_and_digests(&self, run: RunKey) -> StoreResult<Vec<(EditRow, [u8; 32])>> {
        let session = session_of(run.0);
        self.all(session, EDITS, &[&session, &run.0], |row: &PostgresRow| {
            with_digest(row, edit_row)
        })
    }

    fn packed_edits_of_run(&self, run: RunKey) -> StoreResult<Option<Vec<u8>>> {
        let session = session_of(run.0);
        let sql = "SELECT edits FROM runs WHERE session = $1 AND key = $2";
        let edits = self.first(session, sql, &[&session, &run.0], |row: &PostgresRow| {
            row.get("edits")
        });
        Ok(edits?.flatten())
    }
}

impl WriteEdits for PostgresTransaction<'_> {
    fn insert_edits(&mut self, run: RunKey, edits: &[EditRow]) -> StoreResult<()> {
        let session = session_of(run.0);
        let columns = format!("{EDIT_COLUMNS}, escaped, session, run, ordinal");
        for (ordinal, edit) in (0i64..).zip(edits) {
            let text = edit.text.as_deref();
            let safe = escaped(text);
            let mut values = edit_values(edit)?;
            values.push(BoundValue::Text(safe.as_deref().or(text)));
            values.push(BoundValue::Flag(safe.is_some()));
            values.extend([session, run.0, ordinal].map(|key| BoundValue::Integer(Some(key))));
            self.insert(session, "edits", &columns, &values)?;
            self.run(
                session,
                "UPDATE loops SET edits = edits + 1 WHERE session = $1 AND key = $2",
                &[&session, &edit.loop_key.0],
            )?;
        }
        self.put_packed_edits(run, edits)?;
        let count = i64::try_from(edits.len()).unwrap_or(i64::MAX);
        self.run(
            session,
            "UPDATE sessions SET edits = edits + $2 WHERE session = $1",
            &[&session, &count],
        )?;
        Ok(())
    }
}
