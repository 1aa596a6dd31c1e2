//! Changes of a session's items that are made once, however often they are tried.

use loopstore::extend::{self, AppendKey, append, session_of};
use loopstore::{AgentMessage, Entry, EntryQuery, Error, Json, SessionHandle};
use serde_json::Value;

use crate::errors::Failure;
use crate::items::{self, ItemForm, Items, branch_after, end_of};

/// A change of the history that is made once.
pub struct Change<'a> {
    /// The key of its append.
    pub key: &'a str,
    /// What tells it from another change.
    pub digest: &'a str,
    /// The items that it takes from the end, if it takes any.
    pub expected: Option<Vec<Value>>,
    /// What it appends.
    pub messages: Vec<AgentMessage>,
}

/// The kind of the extension that says which change was made.
const CHANGE: &str = "items.change";

/// Makes a change, all of it or nothing, unless it was made before.
///
/// # Errors
/// If another change has the key, or the session does not end with the items that are expected.
pub fn apply(session: &SessionHandle, form: ItemForm, change: &Change<'_>) -> Result<(), Failure> {
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
                // Somebody else was faster; what the change was is looked up.
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
            return Err(Failure::Input(text.into()));
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
                seqs: done.seqs,
                turns: done.turns,
                tokens: done.tokens,
            };
            write.insert_append_key(owner, &row)?;
            Ok(true)
        })?;
        if done {
            return Ok(());
        }
    }
}

/// Whether entries are these items.
fn says(form: ItemForm, entries: &[Entry], items: &[Value]) -> Result<bool, Failure> {
    if entries.len() != items.len() {
        return Ok(false);
    }
    for (entry, item) in entries.iter().zip(items) {
        let items = Items::of(form, [&entry.message])?;
        let (1, Some(own)) = (items.len(), items.last()) else {
            return Ok(false);
        };
        if serde_json::from_str::<Value>(own)? != *item {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Refuses a change whose key another one has.
fn is_made(
    session: &SessionHandle,
    known: &loopstore::Appended,
    digest: &str,
) -> Result<(), Failure> {
    let query = EntryQuery::whole_session().kinds([CHANGE.to_owned()]);
    let noted = session.entries(&query)?.into_iter().any(|entry| {
        let is_here = entry.loop_id == known.loop_id && known.seqs.contains(&entry.seq);
        is_here && is_note(&entry.message, digest)
    });
    match noted {
        true => Ok(()),
        false => Err(Failure::Input(
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
