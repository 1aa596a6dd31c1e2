//! Sessions, their flags, and receipts.

use super::{LoopKey, SessionKey, Tick};
use crate::model::SessionId;

/// A row of `sessions`.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionRow {
    /// Its key.
    pub key: SessionKey,
    /// Its public id.
    pub session_id: SessionId,
    /// The agent.
    pub agent_id: Option<String>,
    /// A title for people.
    pub title: Option<String>,
    /// UTC text of one width, `2026-01-02T03:04:05.678Z`: the order of texts is the order of instants.
    pub created_at: Option<String>,
    /// The time of the newest message, in the same form; `None` if no time is known.
    pub last_active_at: Option<String>,
    /// The loop last appended to or created.
    pub current_loop: Option<LoopKey>,
    /// The session's clock.
    pub tick: Tick,
    /// The format that it was imported from.
    pub source: Option<String>,
    /// The folder that its agent worked in.
    pub project: Option<String>,
    /// The session in the interchange form, without loops, as JSON.
    pub meta: String,
}

impl SessionRow {
    /// Returns the id of the session that started this one.
    pub fn started_by(&self) -> Option<String> {
        let meta: serde_json::Value = serde_json::from_str(&self.meta).ok()?;
        let parent = meta.get("parent_spawn_ref")?.get("parent_session_id")?;
        parent.as_str().map(str::to_owned)
    }
}

/// The activity of a session: the columns that each write to it changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionActivity {
    /// Its key.
    pub key: SessionKey,
    /// The time of the newest message, as in [`SessionRow`].
    pub last_active_at: Option<String>,
    /// The loop last appended to or created.
    pub current_loop: Option<LoopKey>,
    /// The session's clock.
    pub tick: Tick,
}

impl From<&SessionRow> for SessionActivity {
    fn from(row: &SessionRow) -> Self {
        Self {
            key: row.key,
            last_active_at: row.last_active_at.clone(),
            current_loop: row.current_loop,
            tick: row.tick,
        }
    }
}

/// The flags of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionFlags {
    /// The time at which the session was protected from pruning, as ISO-8601 text; `None` if it is not protected.
    pub protected_at: Option<String>,
    /// True if imports into the session are redacted first.
    pub redacts: bool,
}

/// A row of `maintenance`: the receipt of a removal of content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiptRow {
    /// Its key.
    pub key: i64,
    /// The session, which may have been erased.
    pub session: SessionKey,
    /// `erase`, `redact`, `prune` or `archive`.
    pub kind: String,
    /// ISO-8601 text.
    pub opened_at: String,
    /// ISO-8601 text; `None` while content may be removed.
    pub closed_at: Option<String>,
    /// The content of the receipt, as JSON.
    pub detail: String,
}
