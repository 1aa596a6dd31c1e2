//! Leases, started calls, notes and usage: the rows that a recorder reads and writes.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use loopstore_core::store::columns::Columns;
use loopstore_core::store::mapping::*;
use loopstore_core::store::values::BoundValue;
use loopstore_core::store::*;
use loopstore_model::Role;
use serde_json::Value;

use super::connection::Param;
use super::keys::session_of;
use super::transaction::PostgresTransaction;

/// The sums of the usage that providers reported: input, output, both caches, reasoning, total, cost.
type Sums = [f64; 7];

/// Returns the usage and the model of an answer; `None` if the answer reports no usage.
fn reported(head: &str) -> Option<(Option<String>, Sums)> {
    let head: Value = serde_json::from_str(head).ok()?;
    let usage = head.get("usage")?.as_object()?;
    let number = |name: &str| usage.get(name).and_then(Value::as_f64);
    let of = |name: &str| number(name).unwrap_or(0.0);
    let parts = of("input") + of("output") + of("cache_read") + of("cache_write");
    let cost = usage.get("cost");
    let cost = cost.and_then(|cost| match cost {
        Value::Object(cost) => cost.get("total").and_then(Value::as_f64),
        cost => cost.as_f64(),
    });
    let model = head.get("model").and_then(|model| match model {
        Value::Null => None,
        Value::String(model) => Some(model.clone()),
        other => Some(other.to_string()),
    });
    let sums = [
        of("input"),
        of("output"),
        of("cache_read"),
        of("cache_write"),
        of("reasoning"),
        number("total_tokens").unwrap_or(parts),
        cost.unwrap_or(0.0),
    ];
    Some((model, sums))
}

fn usage_row(loop_id: &str, model: Option<String>, sums: &Sums) -> UsageRow {
    let [
        input,
        output,
        cache_read,
        cache_write,
        reasoning,
        total,
        cost,
    ] = *sums;
    // Reported numbers may have any size; a cast saturates.
    UsageRow {
        loop_id: loop_id.to_owned(),
        model,
        spent: UsageCost {
            input: input as u64,
            output: output as u64,
            cache_read: cache_read as u64,
            cache_write: cache_write as u64,
            reasoning: reasoning as u64,
            total: total as u64,
            cost,
        },
    }
}

impl PostgresTransaction<'_> {
    /// The usage is summed here and not in SQL: providers wrote the JSON, and PostgreSQL rejects some of it.
    pub(super) fn read_usage(&self, session: SessionKey) -> StoreResult<Vec<UsageRow>> {
        let mut usage = Vec::new();
        for row in self.loops(session)? {
            let mut models: BTreeMap<Option<String>, Sums> = BTreeMap::new();
            self.messages(row.key, 0..row.totals.next_seq, &mut |message| {
                let head = message.body.head.as_deref();
                let head = head.filter(|_| message.body.role == Role::Assistant);
                if let Some((model, sums)) = head.and_then(reported) {
                    let all = models.entry(model).or_default();
                    all.iter_mut().zip(sums).for_each(|(all, sum)| *all += sum);
                }
                Ok(ControlFlow::Continue(()))
            })?;
            let rows = models.into_iter();
            usage.extend(rows.map(|(model, sums)| usage_row(row.loop_id.as_str(), model, &sums)));
        }
        Ok(usage)
    }
}

impl ReadLeases for PostgresTransaction<'_> {
    fn lease(&self, loop_key: LoopKey) -> StoreResult<Option<LeaseRow>> {
        if self.writes() {
            return self.lease_and_loop(loop_key);
        }
        let session = session_of(loop_key.0);
        let sql = "SELECT loop, owner, token, ttl, renewed_at, expires_at, released
             FROM leases WHERE session = $1 AND loop = $2";
        self.first(session, sql, &[&session, &loop_key.0], lease_row)
    }
}

impl ReadCalls for PostgresTransaction<'_> {
    fn calls(&self, loop_key: LoopKey, id: &str) -> StoreResult<Vec<CallRow>> {
        let session = session_of(loop_key.0);
        let sql = format!(
            "SELECT {CALL_COLUMNS} FROM started_calls WHERE session = $1 AND loop = $2 AND call_id = $3 ORDER BY nth"
        );
        self.all(session, &sql, &[&session, &loop_key.0, &id], call_row)
    }

    fn calls_of_loop(&self, loop_key: LoopKey) -> StoreResult<Vec<CallRow>> {
        let session = session_of(loop_key.0);
        let sql = format!(
            "SELECT {CALL_COLUMNS} FROM started_calls WHERE session = $1 AND loop = $2 ORDER BY key"
        );
        self.all(session, &sql, &[&session, &loop_key.0], call_row)
    }

    fn open_calls(&self, session: Option<SessionKey>) -> StoreResult<Vec<CallRow>> {
        let sql = format!("SELECT {CALL_COLUMNS} FROM started_calls WHERE finished_at IS NULL");
        match session {
            Some(session) => {
                let sql = format!("{sql} AND session = $1 ORDER BY key");
                self.all(session.0, &sql, &[&session.0], call_row)
            }
            None => self.all_of_any(&format!("{sql} ORDER BY session, key"), &[], call_row),
        }
    }
}

impl ReadAppendKeys for PostgresTransaction<'_> {
    fn append_key(&self, session: SessionKey, name: &str) -> StoreResult<Option<AppendKey>> {
        let sql = format!(
            "SELECT {APPEND_KEY_COLUMNS} FROM append_keys WHERE session = $1 AND name = $2"
        );
        self.first(session.0, &sql, &[&session.0, &name], append_key)
    }

    fn append_keys(&self, session: SessionKey) -> StoreResult<Vec<AppendKey>> {
        let sql = format!(
            "SELECT {APPEND_KEY_COLUMNS} FROM append_keys WHERE session = $1 ORDER BY name"
        );
        self.all(session.0, &sql, &[&session.0], append_key)
    }

    fn append_keys_within(
        &self,
        session: SessionKey,
        range: &AppendKeyRange,
    ) -> StoreResult<Vec<AppendKey>> {
        let (first, end) = range.bounds();
        let until = if end.is_some() { "AND name < $5" } else { "" };
        let order = if range.descending { "DESC" } else { "ASC" };
        let sql = format!(
            "SELECT {APPEND_KEY_COLUMNS} FROM append_keys
             WHERE session = $1 AND name >= $2 AND name IS DISTINCT FROM $3 {until}
             ORDER BY name {order} LIMIT $4"
        );
        let limit = range.limit.map(i64::from);
        let mut values: Vec<Param<'_>> = vec![&session.0, &first, &range.after, &limit];
        if let Some(end) = &end {
            values.push(end);
        }
        self.all(session.0, &sql, &values, append_key)
    }

    fn append_keys_of_all(&self, prefix: &str) -> StoreResult<Vec<(SessionKey, AppendKey)>> {
        let range = AppendKeyRange {
            prefix: prefix.to_owned(),
            ..AppendKeyRange::default()
        };
        let (first, end) = range.bounds();
        let until = if end.is_some() { "AND name < $2" } else { "" };
        // Sessions first, as the keys are found by session and name only.
        let sql = format!(
            "SELECT {APPEND_KEY_COLUMNS} FROM (SELECT session AS owner FROM sessions) s
                 CROSS JOIN LATERAL (
                     SELECT {APPEND_KEY_COLUMNS} FROM append_keys
                     WHERE session = s.owner AND name >= $1 {until}
                 ) k
             WHERE NOT EXISTS (
                 SELECT 1 FROM hides h
                 WHERE h.session = s.owner AND h.kind = 'hide'
                     AND h.key = (SELECT max(n.key) FROM hides n WHERE n.session = h.session)
             )
             ORDER BY k.session, k.name"
        );
        let mut values: Vec<Param<'_>> = vec![&first];
        if let Some(end) = &end {
            values.push(end);
        }
        self.all_of_any(&sql, &values, |row| {
            Ok((row.get("session")?, append_key(row)?))
        })
    }
}

impl ReadNotes for PostgresTransaction<'_> {
    fn notes(&self, loop_key: LoopKey) -> StoreResult<Vec<Note>> {
        let session = session_of(loop_key.0);
        let sql = "SELECT kind, note FROM notes WHERE session = $1 AND loop = $2 ORDER BY ordinal";
        self.all(session, sql, &[&session, &loop_key.0], note)
    }
}

impl WriteLeases for PostgresTransaction<'_> {
    fn put_lease(&mut self, row: &LeaseRow) -> StoreResult<()> {
        let session = session_of(row.loop_key.0);
        self.run(
            session,
            "INSERT INTO leases (session, loop, owner, token, ttl, renewed_at, expires_at, released)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
             ON CONFLICT (session, loop) DO UPDATE SET owner = excluded.owner,
                 token = excluded.token, ttl = excluded.ttl, renewed_at = excluded.renewed_at,
                 expires_at = excluded.expires_at, released = excluded.released",
            &[
                &session,
                &row.loop_key.0,
                &row.owner,
                &row.token,
                &row.ttl,
                &row.renewed_at,
                &row.expires_at,
                &row.released,
            ],
        )?;
        Ok(())
    }
}

impl WriteCalls for PostgresTransaction<'_> {
    fn insert_call(&mut self, row: &CallRow) -> StoreResult<()> {
        let session = session_of(row.loop_key.0);
        let key = self.next_key("started_calls", session)?;
        let mut values = call_values(row)?;
        values.extend([session, key].map(|key| BoundValue::Integer(Some(key))));
        self.insert(
            session,
            "started_calls",
            &format!("{CALL_COLUMNS}, session, key"),
            &values,
        )
    }

    fn update_call(&mut self, row: &CallRow) -> StoreResult<()> {
        let session = session_of(row.loop_key.0);
        self.run(
            session,
            "UPDATE started_calls SET arguments = $5, turn_index = $6, attempts = $7,
                 finished_at = $8
             WHERE session = $1 AND loop = $2 AND call_id = $3 AND nth = $4",
            &[
                &session,
                &row.loop_key.0,
                &row.call_id,
                &i64::from(row.nth),
                &row.arguments,
                &row.turn_index,
                &i64::from(row.attempts),
                &row.finished_at,
            ],
        )?;
        Ok(())
    }
}

impl WriteAppendKeys for PostgresTransaction<'_> {
    fn insert_append_key(&mut self, session: SessionKey, row: &AppendKey) -> StoreResult<()> {
        let values = append_key_values(&session, row)?;
        self.insert(session.0, "append_keys", APPEND_KEY_COLUMNS, &values)
    }
}

impl WriteNotes for PostgresTransaction<'_> {
    fn insert_note(&mut self, loop_key: LoopKey, note: &Note) -> StoreResult<()> {
        let session = session_of(loop_key.0);
        let (kind, text) = note_values(note);
        let sql = "SELECT coalesce(max(ordinal), -1) + 1 AS next FROM notes
             WHERE session = $1 AND loop = $2";
        let next = self.first(session, sql, &[&session, &loop_key.0], |row| {
            row.get::<i64>("next")
        })?;
        self.run(
            session,
            "INSERT INTO notes (session, loop, ordinal, kind, note) VALUES ($1, $2, $3, $4, $5)",
            &[&session, &loop_key.0, &next, &kind, &text],
        )?;
        Ok(())
    }

    fn remove_notes(&mut self, loop_key: LoopKey) -> StoreResult<()> {
        let session = session_of(loop_key.0);
        let sql = "DELETE FROM notes WHERE session = $1 AND loop = $2";
        self.run(session, sql, &[&session, &loop_key.0]).map(drop)
    }
}
