//! Stored messages with their positions.

use loopstore::{AgentMessage, Entry, EntryQuery, EntryRef, LoopId, Role};
use serde::{Deserialize, Serialize};

use crate::errors::CallError;

/// A query for stored messages: see `EntryQuery`.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GivenEntries {
    whole_session: bool,
    loop_id: Option<String>,
    seqs: Option<(u32, u32)>,
    roles: Option<Vec<String>>,
    kinds: Option<Vec<String>>,
    after: Option<(String, u32)>,
    before: Option<(String, u32)>,
    last: Option<usize>,
    limit: Option<usize>,
}

impl GivenEntries {
    pub fn of(json: &[u8]) -> Result<EntryQuery, CallError> {
        let given: Self = serde_json::from_slice(json)?;
        let mut query = match given.loop_id {
            Some(id) => {
                let (first, end) = given.seqs.unwrap_or((0, u32::MAX));
                EntryQuery::of_loop(LoopId::new(id)?, first..end)
            }
            None if given.whole_session => EntryQuery::whole_session(),
            None => EntryQuery::new(),
        };
        if let Some(roles) = given.roles {
            let roles: Result<Vec<Role>, CallError> = roles.iter().map(|name| role(name)).collect();
            query = query.roles(roles?);
        }
        if let Some(kinds) = given.kinds {
            query = query.kinds(kinds);
        }
        if let Some((loop_id, seq)) = given.after {
            query = query.after(EntryRef::new(loop_id, seq));
        }
        if let Some((loop_id, seq)) = given.before {
            query = query.before(EntryRef::new(loop_id, seq));
        }
        if let Some(count) = given.last {
            query = query.last(count);
        }
        if let Some(count) = given.limit {
            query = query.limit(count);
        }
        Ok(query)
    }
}

/// Reads the name of a role.
pub fn role(name: &str) -> Result<Role, CallError> {
    match name {
        "user" => Ok(Role::User),
        "assistant" => Ok(Role::Assistant),
        "toolResult" => Ok(Role::ToolResult),
        "extension" => Ok(Role::Extension),
        _ => Err(CallError::Input(format!(
            "unknown role `{name}`; known are user, assistant, toolResult, extension"
        ))),
    }
}

/// A stored message in JSON.
#[derive(Serialize)]
pub struct EntryRow<'a> {
    loop_id: &'a str,
    turn: Option<u32>,
    seq: u32,
    created_at: Option<i64>,
    message: &'a AgentMessage,
}

pub fn rows(entries: &[Entry]) -> Vec<EntryRow<'_>> {
    let rows = entries.iter().map(|entry| EntryRow {
        loop_id: entry.loop_id.as_str(),
        turn: entry.turn,
        seq: entry.seq,
        created_at: entry.created_at,
        message: &entry.message,
    });
    rows.collect()
}
