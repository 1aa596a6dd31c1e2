//! Changes of a session's items that are applied once, however often they are requested.

use loopstore::extend::{self, AppendKey, append, session_of};
use loopstore::{AgentMessage, Entry, EntryQuery, Error, Json, SessionHandle};
use serde_json::Value;

use crate::errors::CallError;
use crate::items::{self, ItemForm, ItemList, branch_after, end_of};

/// A change of the history that is applied once.
pub struct ItemChange<'a> {
    /// The key of its append.
    pub key: &'a str,
    /// The digest that identifies the change.
    pub digest: &'a str,
    /// The items to remove from the end, if any.
    pub expected: Option<Vec<Value>>,
    /// The messages to append.
    pub messages: Vec<AgentMessage>,
}

/// The kind of the extension that records a change.
const CHANGE: &str = "items.change";

/// Applies a change, all of it or nothing, unless it was applied before.
///
/// # Errors
/// If another change has the key, or the session does not end with the items that are expected.
pub fn apply(
    session: &SessionHandle,
    form: ItemForm,
    change: &ItemChange<'_>,
) -> Result<(), CallError> {
    let note = Json::string(change.digest);
    let note = || std::iter::once(AgentMessage::extension(CHANGE, note.clone()));
    let messages = || {
        note()
            .chain(change.messages.iter().cloned())
            .collect::<Vec<_>>()
    };
    loop {
        let session = &session
            .store()
            .session(session.id().as_str())?
            .with_policy(session.policy().clone());
        if let Some(known) = session.appended(change.key)? {
            return is_made(session, &known, change.digest);
        }
        let expected = change.expected.as_deref().unwrap_or_default();
        if expected.is_empty() {
            match session.append_once(change.key, messages()) {
                Ok(done) if !done.duplicate => return Ok(()),
                // Another program was faster; the next round checks its change.
                Ok(_) | Err(Error::KeyTaken { .. }) => continue,
                Err(error) => return Err(error.into()),
            }
        }
        let backend = session.store().database();
        let end = extend::read(backend, |read| end_of(read, session))?;
        let mut last = session.entries(&items::messages().last(expected.len() + 1))?;
        let at = last.len().checked_sub(expected.len());
        let suffix = at.map(|at| last.split_off(at)).unwrap_or_default();
        if !says(form, &suffix, expected)? {
            let text =
                "the session does not end with the expected items; read it again, then try again";
            return Err(CallError::Input(text.into()));
        }
        let done = extend::write(backend, |write| {
            let owner = session_of(write, session.id())?.key;
            if end_of(write, session)? != end || write.append_key(owner, change.key)?.is_some() {
                return Ok(false);
            }
            let leaf = branch_after(write, session, last.last(), "replace_suffix")?;
            let done =
                append::append_in_turns(write, owner, Some(leaf), messages(), backend.counter())?;
            let row = AppendKey {
                name: change.key.to_owned(),
                loop_key: done.loop_key,
                seqs: done.appended.seqs,
                turns: done.appended.turns,
                tokens: done.appended.tokens,
            };
            write.insert_append_key(owner, &row)?;
            Ok(true)
        })?;
        if done {
            return Ok(());
        }
    }
}

/// True if entries contain exactly these items.
fn says(form: ItemForm, entries: &[Entry], items: &[Value]) -> Result<bool, CallError> {
    if entries.len() != items.len() {
        return Ok(false);
    }
    for (entry, item) in entries.iter().zip(items) {
        let items = ItemList::of(form, [&entry.message])?;
        let (1, Some(own)) = (items.len(), items.last()) else {
            return Ok(false);
        };
        if serde_json::from_str::<Value>(own)? != *item {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Fails if the key belongs to another change.
fn is_made(
    session: &SessionHandle,
    known: &loopstore::Appended,
    digest: &str,
) -> Result<(), CallError> {
    let query = EntryQuery::whole_session().kinds([CHANGE.to_owned()]);
    let is_recorded = session.entries(&query)?.into_iter().any(|entry| {
        let is_here = entry.loop_id == known.loop_id && known.seqs.contains(&entry.seq);
        is_here && is_note(&entry.message, digest)
    });
    match is_recorded {
        true => Ok(()),
        false => Err(CallError::Input(
            "this operation was made before with another change; give each change an id of its own"
                .into(),
        )),
    }
}

fn is_note(message: &AgentMessage, digest: &str) -> bool {
    match message {
        AgentMessage::Extension(extension) => extension
            .data
            .read::<String>()
            .is_ok_and(|noted| noted == digest),
        AgentMessage::Llm(_) => false,
    }
}
