//! Lists of sessions and loops: rows of the views with what only the messages say.
//!
//! A view shows no prompt of what is archived; these lists read it from the archive.

use std::collections::HashMap;

use super::error::StoreResult;
use super::prompt::{loop_prompts, own_title, session_prompts};
use super::sqlite::Record;
use super::{LoopKey, SessionKey, StoreRead};
use crate::model::{Json, SessionId, Time};

/// The columns of `v_sessions` without those that are read from the messages, and the key of each session
/// last.
pub(super) const SESSION_COLUMNS: &str = "v.session_id, v.agent_id, s.title, v.created_at,
    v.last_active_at, v.current_loop_id, v.loops, v.turns, v.messages, v.tokens, v.source,
    NULL AS prompt, v.project, v.hidden_at";

/// Which sessions a list shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionFilter {
    /// Only those of this importer.
    pub source: Option<String>,
    /// Only those whose project has this text in it, in upper or lower case.
    pub project: Option<String>,
    /// Only those that have this text in title, prompt or id, in upper or lower case.
    pub text: Option<String>,
    /// Only those that were active then or later.
    pub since: Option<Time>,
    /// Only those that are hidden, in place of the others.
    pub hidden: bool,
    /// Without so many of these, the first ones.
    pub offset: usize,
    /// Only the first of those.
    pub limit: Option<usize>,
}

impl SessionFilter {
    /// Whether a row of the list is one of those asked for.
    fn takes(&self, row: &Record) -> bool {
        let has = |column: &str, part: &str| {
            let text = row.text(column);
            text.is_some_and(|text| text.to_lowercase().contains(&part.to_lowercase()))
        };
        let is_late = |since: &Time| {
            let last = row.text("last_active_at").map(Time::from_text);
            last.is_some_and(|last| last.millis() >= since.millis())
        };
        let source = self.source.as_ref();
        row.text("hidden_at").is_some() == self.hidden
            && source.is_none_or(|source| row.text("source").as_ref() == Some(source))
            && self
                .project
                .as_ref()
                .is_none_or(|part| has("project", part))
            && self.text.as_ref().is_none_or(|part| {
                let columns = ["title", "prompt", "session_id"];
                columns.iter().any(|column| has(column, part))
            })
            && self.since.as_ref().is_none_or(is_late)
    }
}

/// Gives sessions their prompts and titles, and leaves those that are asked for. Each row has the key of its
/// session in `key`.
pub(super) fn sessions(
    read: &dyn StoreRead,
    rows: Vec<Record>,
    filter: &SessionFilter,
) -> StoreResult<Vec<Record>> {
    let prompts = session_prompts(read)?;
    let described = rows.into_iter().map(|mut row| {
        let key = row.take("key").and_then(|key| key.read().ok());
        let prompt = key.and_then(|key| prompts.get(&SessionKey(key)));
        describe(&mut row, prompt);
        row
    });
    let taken = described.filter(|row| filter.takes(row));
    let limit = filter.limit.unwrap_or(usize::MAX);
    Ok(taken.skip(filter.offset).take(limit).collect())
}

/// Gives a session and its loops, in the order of their creation, their prompts, and the session its title.
pub(super) fn session_and_loops(
    read: &dyn StoreRead,
    id: &SessionId,
    session: &mut Record,
    loops: &mut [Record],
) -> StoreResult<()> {
    let Some(owner) = read.session(id)? else {
        return Ok(());
    };
    let prompt = super::prompt::session_prompt(read, owner.key)?;
    session.set("title", text(owner.title.as_ref()));
    describe(session, prompt.as_ref());
    let prompts: HashMap<LoopKey, String> = loop_prompts(read, owner.key)?;
    let keys = read.loops(owner.key)?;
    let keys: HashMap<&str, LoopKey> = keys
        .iter()
        .map(|row| (row.loop_id.as_str(), row.key))
        .collect();
    for row in loops {
        let key = row.text("loop_id").and_then(|id| keys.get(&*id).copied());
        row.set("prompt", text(key.and_then(|key| prompts.get(&key))));
    }
    Ok(())
}

fn describe(session: &mut Record, prompt: Option<&String>) {
    session.set("prompt", text(prompt));
    if own_title(session.text("title").as_deref()).is_none() {
        session.set("title", text(prompt));
    }
}

fn text(text: Option<&String>) -> Json {
    text.map(|text| Json::string(text)).unwrap_or_default()
}
