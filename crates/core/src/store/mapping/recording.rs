//! Rows of a recorder: leases, started calls, named appends, notes.

use crate::store::columns::Columns;
use crate::store::values::{BoundValue, values};
use crate::store::{AppendKey, CallRow, LeaseRow, Note, SessionKey, StoreResult};

/// Reads a lease from its columns.
pub fn lease_row(row: &impl Columns) -> StoreResult<LeaseRow> {
    Ok(LeaseRow {
        loop_key: row.get("loop")?,
        owner: row.get("owner")?,
        token: row.get("token")?,
        ttl: row.get("ttl")?,
        renewed_at: row.get("renewed_at")?,
        expires_at: row.get("expires_at")?,
        released: row.get("released")?,
    })
}

/// Reads a started call from its columns.
pub fn call_row(row: &impl Columns) -> StoreResult<CallRow> {
    Ok(CallRow {
        loop_key: row.get("loop")?,
        call_id: row.get("call_id")?,
        nth: row.get("nth")?,
        tool_name: row.get("tool_name")?,
        arguments: row.get("arguments")?,
        idempotency_key: row.get("idempotency_key")?,
        turn_index: row.get("turn_index")?,
        started_at: row.get("started_at")?,
        attempts: row.get("attempts")?,
        finished_at: row.get("finished_at")?,
    })
}

/// Reads a named append from its columns.
pub fn append_key(row: &impl Columns) -> StoreResult<AppendKey> {
    Ok(AppendKey {
        name: row.get("name")?,
        loop_key: row.get("loop")?,
        seqs: row.get("first_seq")?..row.get("end_seq")?,
        turns: row.get("first_turn")?..row.get("end_turn")?,
        tokens: row.get("tokens")?,
    })
}

/// Reads a note from its columns.
pub fn note(row: &impl Columns) -> StoreResult<Note> {
    let kind: i64 = row.get("kind")?;
    let text = row.get("note")?;
    Ok(match kind {
        0 => Note::Event(text),
        _ => Note::Turn(text),
    })
}

/// Returns the stored form of a note: its kind and its text.
pub fn note_values(note: &Note) -> (i64, &str) {
    match note {
        Note::Event(text) => (0, text),
        Note::Turn(text) => (1, text),
    }
}

/// The columns of the values of a started call.
pub const CALL_COLUMNS: &str = "loop, call_id, nth, tool_name, arguments,
    idempotency_key, turn_index, started_at, attempts, finished_at";

/// Returns the values of a started call, in the order of [`CALL_COLUMNS`].
pub fn call_values(row: &CallRow) -> StoreResult<Vec<BoundValue<'_>>> {
    Ok(values![
        &row.loop_key,
        &row.call_id,
        &row.nth,
        &row.tool_name,
        &row.arguments,
        &row.idempotency_key,
        &row.turn_index,
        &row.started_at,
        &row.attempts,
        &row.finished_at,
    ])
}

/// The columns of the values of a named append.
pub const APPEND_KEY_COLUMNS: &str =
    "session, name, loop, first_seq, end_seq, first_turn, end_turn, tokens";

/// Returns the values of a named append, in the order of [`APPEND_KEY_COLUMNS`].
pub fn append_key_values<'a>(
    session: &'a SessionKey,
    row: &'a AppendKey,
) -> StoreResult<Vec<BoundValue<'a>>> {
    Ok(values![
        session,
        &row.name,
        &row.loop_key,
        &row.seqs.start,
        &row.seqs.end,
        &row.turns.start,
        &row.turns.end,
        &row.tokens,
    ])
}
