//! Leases, started calls, notes and usage: what a recorder reads and writes.

use rusqlite::{ToSql, params};

use super::from_sqlite;
use super::reader::{SqliteReader, packed};
use super::row::SqliteRow;
use super::statements::HIDDEN_SESSIONS;
use crate::store::columns::Columns;
use crate::store::error::{StoreError, StoreResult};
use crate::store::mapping::*;
use crate::store::*;

fn usage_row(row: &SqliteRow<'_, '_>) -> StoreResult<UsageRow> {
    // Reported usage may be any number; a cast saturates.
    let sum = |column: &'static str| row.get::<f64>(column).map(|sum| sum as u64);
    Ok(UsageRow {
        loop_id: row.get("loop_id")?,
        model: row.get("model")?,
        spent: UsageCost {
            input: sum("input")?,
            output: sum("output")?,
            cache_read: sum("cache_read")?,
            cache_write: sum("cache_write")?,
            reasoning: sum("reasoning")?,
            total: sum("total")?,
            cost: row.get("cost")?,
        },
    })
}

fn append_keys_within_sql(has_end: bool, descending: bool) -> String {
    let until = if has_end { "AND name < ?5" } else { "" };
    let order = if descending { "DESC" } else { "ASC" };
    format!(
        "SELECT {APPEND_KEY_COLUMNS} FROM append_keys
         WHERE session = ?1 AND name >= ?2 AND name IS NOT ?3 {until}
         ORDER BY name {order} LIMIT ?4"
    )
}

fn append_keys_of_all_sql(has_end: bool) -> String {
    let until = if has_end { "AND k.name < ?2" } else { "" };
    // CROSS JOIN: the sessions first, as the keys are found by session and name only.
    format!(
        "SELECT {APPEND_KEY_COLUMNS} FROM sessions s
             CROSS JOIN append_keys k ON k.session = s.key AND k.name >= ?1 {until}
         WHERE s.key NOT IN ({HIDDEN_SESSIONS})
         ORDER BY s.key, k.name"
    )
}

impl SqliteReader<'_> {
    pub(super) fn read_usage(&self, session: SessionKey) -> StoreResult<Vec<UsageRow>> {
        self.all(
            "SELECT l.loop_id, json_extract(m.json, '$.model') AS model,
                 total(json_extract(m.json, '$.usage.input')) AS input,
                 total(json_extract(m.json, '$.usage.output')) AS output,
                 total(json_extract(m.json, '$.usage.cache_read')) AS cache_read,
                 total(json_extract(m.json, '$.usage.cache_write')) AS cache_write,
                 total(json_extract(m.json, '$.usage.reasoning')) AS reasoning,
                 total(coalesce(
                     json_extract(m.json, '$.usage.total_tokens'),
                     coalesce(json_extract(m.json, '$.usage.input'), 0)
                         + coalesce(json_extract(m.json, '$.usage.output'), 0)
                         + coalesce(json_extract(m.json, '$.usage.cache_read'), 0)
                         + coalesce(json_extract(m.json, '$.usage.cache_write'), 0)
                 )) AS total,
                 total(CASE json_type(m.json, '$.usage.cost')
                     WHEN 'object' THEN json_extract(m.json, '$.usage.cost.total')
                     ELSE json_extract(m.json, '$.usage.cost')
                 END) AS cost
             FROM loops l
                 CROSS JOIN message_content m ON m.id >= l.key << 32 AND m.id < (l.key + 1) << 32
             WHERE l.session = ?1 AND m.role = 1 AND json_type(m.json, '$.usage') = 'object'
             GROUP BY l.key, model ORDER BY l.key, model",
            [session.0],
            usage_row,
        )
    }
}

impl ReadCalls for SqliteReader<'_> {
    fn calls(&self, loop_key: LoopKey, id: &str) -> StoreResult<Vec<CallRow>> {
        let sql = format!(
            "SELECT {CALL_COLUMNS} FROM started_calls WHERE loop = ?1 AND call_id = ?2 ORDER BY nth"
        );
        self.all(&sql, params![loop_key.0, id], |row| call_row(row))
    }

    fn calls_of_loop(&self, loop_key: LoopKey) -> StoreResult<Vec<CallRow>> {
        let sql = format!("SELECT {CALL_COLUMNS} FROM started_calls WHERE loop = ?1 ORDER BY key");
        self.all(&sql, [loop_key.0], |row| call_row(row))
    }

    fn open_calls(&self, session: Option<SessionKey>) -> StoreResult<Vec<CallRow>> {
        let sql = format!(
            "SELECT {CALL_COLUMNS} FROM started_calls INDEXED BY started_calls_open
             WHERE finished_at IS NULL
                 AND EXISTS (SELECT 1 FROM loops l
                     WHERE l.key = loop AND (?1 IS NULL OR l.session = ?1))
             ORDER BY key"
        );
        self.all(&sql, [session.map(|key| key.0)], |row| call_row(row))
    }
}

impl ReadAppendKeys for SqliteReader<'_> {
    fn append_key(&self, session: SessionKey, name: &str) -> StoreResult<Option<AppendKey>> {
        let sql = format!(
            "SELECT {APPEND_KEY_COLUMNS} FROM append_keys WHERE session = ?1 AND name = ?2"
        );
        self.first(&sql, params![session.0, name], |row| append_key(row))
    }

    fn append_keys(&self, session: SessionKey) -> StoreResult<Vec<AppendKey>> {
        let sql = format!(
            "SELECT {APPEND_KEY_COLUMNS} FROM append_keys WHERE session = ?1 ORDER BY name"
        );
        self.all(&sql, [session.0], |row| append_key(row))
    }

    fn append_keys_within(
        &self,
        session: SessionKey,
        range: &AppendKeyRange,
    ) -> StoreResult<Vec<AppendKey>> {
        let (first, end) = range.bounds();
        let sql = append_keys_within_sql(end.is_some(), range.descending);
        let limit = range.limit.map_or(-1, i64::from);
        let mut values: Vec<&dyn ToSql> = vec![&session.0, &first, &range.after, &limit];
        values.extend(end.as_ref().map(|end| end as &dyn ToSql));
        self.all(&sql, &*values, |row| append_key(row))
    }

    fn append_keys_of_all(&self, prefix: &str) -> StoreResult<Vec<(SessionKey, AppendKey)>> {
        let range = AppendKeyRange {
            prefix: prefix.to_owned(),
            ..AppendKeyRange::default()
        };
        let (first, end) = range.bounds();
        let sql = append_keys_of_all_sql(end.is_some());
        let mut values: Vec<&dyn ToSql> = vec![&first];
        values.extend(end.as_ref().map(|end| end as &dyn ToSql));
        self.all(&sql, &*values, |row| {
            Ok((row.get("session")?, append_key(row)?))
        })
    }
}

impl ReadNotes for SqliteReader<'_> {
    fn notes(&self, loop_key: LoopKey) -> StoreResult<Vec<Note>> {
        self.all(
            "SELECT kind, note FROM notes WHERE id BETWEEN ?1 AND ?2 ORDER BY id",
            [packed(loop_key.0, 0), packed(loop_key.0, u32::MAX)],
            |row| note(row),
        )
    }
}

impl WriteCalls for SqliteReader<'_> {
    fn insert_call(&mut self, row: &CallRow) -> StoreResult<()> {
        self.insert("started_calls", CALL_COLUMNS, call_values(row)?)
    }

    fn update_call(&mut self, row: &CallRow) -> StoreResult<()> {
        self.run(
            "UPDATE started_calls SET arguments = ?4, turn_index = ?5, attempts = ?6,
                 finished_at = ?7
             WHERE loop = ?1 AND call_id = ?2 AND nth = ?3",
            params![
                row.loop_key.0,
                row.call_id,
                row.nth,
                row.arguments,
                row.turn_index,
                row.attempts,
                row.finished_at,
            ],
        )?;
        Ok(())
    }
}

impl WriteAppendKeys for SqliteReader<'_> {
    fn insert_append_key(&mut self, session: SessionKey, row: &AppendKey) -> StoreResult<()> {
        self.insert(
            "append_keys",
            APPEND_KEY_COLUMNS,
            append_key_values(&session, row)?,
        )
    }
}

impl WriteNotes for SqliteReader<'_> {
    fn insert_note(&mut self, loop_key: LoopKey, note: &Note) -> StoreResult<()> {
        let last: Option<i64> = self
            .connection
            .prepare_cached("SELECT max(id) FROM notes WHERE id BETWEEN ?1 AND ?2")
            .map_err(from_sqlite)?
            .query_row(
                [packed(loop_key.0, 0), packed(loop_key.0, u32::MAX)],
                |row| row.get(0),
            )
            .map_err(from_sqlite)?;
        let id = last.map_or(packed(loop_key.0, 0), |last| last + 1);
        if id > packed(loop_key.0, u32::MAX) {
            return Err(StoreError::Invalid(
                "a loop holds at most 2^32 notes".into(),
            ));
        }
        let (kind, text) = note_values(note);
        self.run(
            "INSERT INTO notes (id, kind, note) VALUES (?1, ?2, ?3)",
            params![id, kind, text],
        )?;
        Ok(())
    }

    fn remove_notes(&mut self, loop_key: LoopKey) -> StoreResult<()> {
        self.run(
            "DELETE FROM notes WHERE id BETWEEN ?1 AND ?2",
            [packed(loop_key.0, 0), packed(loop_key.0, u32::MAX)],
        )?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::SqliteStore;

    #[test]
    fn names_of_appends_are_read_along_their_index() {
        let store = SqliteStore::in_memory().unwrap();
        let within = [(true, true), (true, false), (false, true), (false, false)];
        let within = within.map(|(has_end, descending)| {
            let values = ["1", "a", "", "1", "b"];
            let count = if has_end { 5 } else { 4 };
            (
                append_keys_within_sql(has_end, descending),
                values[..count].to_vec(),
            )
        });
        let of_all = [
            (append_keys_of_all_sql(true), vec!["a", "b"]),
            (append_keys_of_all_sql(false), vec!["a"]),
        ];
        for (sql, values) in within.iter().chain(&of_all) {
            let plan = format!("EXPLAIN QUERY PLAN {sql}");
            let plan = store.query_with(&plan, values).unwrap().records();
            let steps: Vec<_> = plan.iter().filter_map(|row| row.text("detail")).collect();
            let steps = steps.join("\n");
            assert!(steps.contains("(session=? AND name>?"), "{steps}");
            assert!(!steps.contains("TEMP B-TREE"), "{steps}");
        }
    }
}
