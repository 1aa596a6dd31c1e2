//! Sessions, their flags, and receipts.

use crate::store::columns::Columns;
use crate::store::{
    ReceiptRow, SessionActivity, SessionFlags, SessionKey, SessionRow, StoreResult,
};

/// Reads a session from its columns.
pub fn session_row(row: &impl Columns) -> StoreResult<SessionRow> {
    Ok(SessionRow {
        key: row.get("key")?,
        session_id: row.get("session_id")?,
        agent_id: row.get("agent_id")?,
        title: row.get("title")?,
        created_at: row.get("created_at")?,
        last_active_at: row.get("last_active_at")?,
        current_loop: row.get("current_loop")?,
        tick: row.get("tick")?,
        source: row.get("source")?,
        project: row.get("project")?,
        meta: row.get("meta")?,
    })
}

/// Reads the activity of a session whose key is known.
pub fn session_activity(row: &impl Columns, key: SessionKey) -> StoreResult<SessionActivity> {
    Ok(SessionActivity {
        key,
        last_active_at: row.get("last_active_at")?,
        current_loop: row.get("current_loop")?,
        tick: row.get("tick")?,
    })
}

/// Reads the flags of a session from its columns.
pub fn session_flags(row: &impl Columns) -> StoreResult<SessionFlags> {
    Ok(SessionFlags {
        protected_at: row.get("protected_at")?,
        redacts: row.get("redacts")?,
    })
}

/// Reads a receipt from its columns.
pub fn receipt_row(row: &impl Columns) -> StoreResult<ReceiptRow> {
    Ok(ReceiptRow {
        key: row.get("key")?,
        session: row.get("session")?,
        kind: row.get("kind")?,
        opened_at: row.get("opened_at")?,
        closed_at: row.get("closed_at")?,
        detail: row.get("detail")?,
    })
}
