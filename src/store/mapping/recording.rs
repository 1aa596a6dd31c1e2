//! What a recorder reads and writes: leases, started calls, named appends, notes.

use crate::store::columns::Columns;
use crate::store::{AppendKey, CallRow, LeaseRow, Note, StoreResult};

pub(in crate::store) fn lease_row(row: &impl Columns) -> StoreResult<LeaseRow> {
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

pub(in crate::store) fn call_row(row: &impl Columns) -> StoreResult<CallRow> {
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

pub(in crate::store) fn append_key(row: &impl Columns) -> StoreResult<AppendKey> {
    Ok(AppendKey {
        name: row.get("name")?,
        loop_key: row.get("loop")?,
        seqs: row.get("first_seq")?..row.get("end_seq")?,
        turns: row.get("first_turn")?..row.get("end_turn")?,
        tokens: u64::try_from(row.get::<i64>("tokens")?).unwrap_or_default(),
    })
}

pub(in crate::store) fn note(row: &impl Columns) -> StoreResult<Note> {
    let kind: i64 = row.get("kind")?;
    let text = row.get("note")?;
    Ok(match kind {
        0 => Note::Event(text),
        _ => Note::Turn(text),
    })
}

/// Returns a note as it is stored: its kind and its text.
pub(in crate::store) fn note_values(note: &Note) -> (i64, &str) {
    match note {
        Note::Event(text) => (0, text),
        Note::Turn(text) => (1, text),
    }
}
