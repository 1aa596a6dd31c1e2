//! The id of a session, and the key by which a later import recognises it.

use std::path::Path;

use loopstore::model::{Json, ParentSpawnRef, Session, SessionId, Time};

use crate::Identity;

/// Returns the identity of a session: its own id, else the id at the end of a name such as
/// `rollout-2026-01-31T12-00-00-<uuid>.jsonl`, else its file.
pub(crate) fn identity(path: &Path, own: Option<&str>) -> (Identity, SessionId) {
    let own = own.and_then(|id| SessionId::new(id).ok());
    match own.or_else(|| id_in_name(path)) {
        Some(id) => (Identity::Own(id.clone()), id),
        None => (Identity::Key("0".into()), SessionId::generate()),
    }
}

fn id_in_name(path: &Path) -> Option<SessionId> {
    let stem = path.file_stem()?.to_str()?;
    let id = stem.get(stem.len().checked_sub(36)?..)?;
    uuid::Uuid::try_parse(id).ok()?;
    SessionId::new(id).ok()
}

/// Returns a session as its transcript describes it, without generated values.
pub(crate) fn session(id: SessionId, agent: &str, created: Option<Time>) -> Session {
    let formation = serde_json::json!({ "Explicit": { "timestamp": created } });
    let mut session = Session::new(id, agent);
    session.formation = created.as_ref().and_then(|_| Json::of(&formation).ok());
    session.created_at = created;
    session.last_active_at = None;
    session
}

/// Returns the reference to the session that started another, if `parent` is a valid session id.
pub(crate) fn started_by(parent: &str) -> Option<ParentSpawnRef> {
    Some(ParentSpawnRef {
        parent_session_id: SessionId::new(parent).ok()?,
        parent_loop_id: None,
        tool_call_id: None,
        tool_name: None,
        extra: Default::default(),
    })
}
