//! Reading checkpoints.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use loopstore::extend::{self, AppendKey, LoopKey, SessionKey, StoreRead};
use loopstore::{AgentMessage, Json, SessionId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::{Error, Result};
use crate::forms::RecordForm;
use crate::lines::{loop_at, read_segment};
use crate::names::{self, Language, Revision};
use crate::record::{
    Bodies, ChannelHistory, Checkpoint, CheckpointRecord, CheckpointRef, ListQuery,
    MessagePosition, Segment, StoredValue, Value, Write, WritesRecord,
};
use crate::{Checkpoints, MessagesOf};

/// The number of names that are read at a time.
const PAGE: u32 = 64;

impl Checkpoints {
    /// Returns a checkpoint by its id, or the newest of its namespace if no id is given; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Foreign`], [`Error::Unreadable`], or if the store fails.
    pub fn get(&self, thread: &str, ns: &str, id: Option<&str>) -> Result<Option<Checkpoint>> {
        self.get_with(thread, ns, id, Bodies::All)
    }

    /// Returns a checkpoint as [`get`](Self::get) does, with the content of these messages.
    ///
    /// # Errors
    /// As [`Checkpoints::get`].
    pub fn get_with(
        &self,
        thread: &str,
        ns: &str,
        id: Option<&str>,
        bodies: Bodies,
    ) -> Result<Option<Checkpoint>> {
        let thread = SessionId::new(thread)?;
        self.read(|read| {
            let Some(session) = self.own(read, &thread)? else {
                return Ok(None);
            };
            let key = match id {
                Some(id) => self.find(read, session, ns, id)?,
                None => self.newest(read, session, ns)?,
            };
            key.map(|key| self.whole(read, session, &thread, &key, bodies))
                .transpose()
        })
    }

    /// Lists checkpoints, the largest id first.
    ///
    /// # Errors
    /// [`Error::Foreign`] if the query names a thread of the other language, [`Error::Unreadable`], or if the store
    /// fails.
    pub fn list(&self, query: &ListQuery) -> Result<Vec<CheckpointRef>> {
        let named = query.thread.as_ref().map(SessionId::new).transpose()?;
        self.read(|read| {
            let mut found = Vec::new();
            let mut keys = Vec::new();
            match &named {
                Some(thread) => {
                    if let Some(session) = self.own(read, thread)? {
                        keys.extend(self.live(read, session, thread, query)?);
                    }
                }
                None => {
                    let all = read.append_keys_of_all(&names::checkpoints(self.language))?;
                    let mut last: Option<(SessionKey, SessionId)> = None;
                    for (session, key) in newest_revisions(all) {
                        let thread = match last.take() {
                            Some((key, id)) if key == session => id,
                            _ => read.session_by_key(session)?.session_id,
                        };
                        keys.push((thread.clone(), key));
                        last = Some((session, thread));
                    }
                }
            }
            // Threads and namespaces stay together if ids are equal.
            keys.sort_by(|one, other| id_of(&other.1.name).cmp(id_of(&one.1.name)));
            for (thread, key) in keys {
                if query.limit.is_some_and(|limit| found.len() >= limit) {
                    break;
                }
                let record: CheckpointRecord = record(read, &thread, &key)?;
                let fits = query.ns.as_ref().is_none_or(|ns| *ns == record.ns)
                    && query.id.as_ref().is_none_or(|id| *id == record.id)
                    && query
                        .before
                        .as_ref()
                        .is_none_or(|before| record.id < *before)
                    && query
                        .filter
                        .iter()
                        .all(|(name, value)| has(&record, name, value));
                if fits {
                    found.push(CheckpointRef {
                        thread: thread.to_string(),
                        ns: record.ns,
                        id: record.id,
                    });
                }
            }
            Ok(found)
        })
    }

    /// Returns the writes to channels on the path to a checkpoint (the newest if no id is given). The writes of a
    /// channel begin after the nearest earlier checkpoint with a value of the channel.
    ///
    /// # Errors
    /// As [`Checkpoints::get`].
    pub fn history(
        &self,
        thread: &str,
        ns: &str,
        id: Option<&str>,
        channels: &[String],
    ) -> Result<BTreeMap<String, ChannelHistory>> {
        let thread = SessionId::new(thread)?;
        self.read(|read| {
            let mut found: BTreeMap<String, ChannelHistory> = BTreeMap::new();
            let mut open: BTreeSet<&String> = channels.iter().collect();
            found.extend(
                channels
                    .iter()
                    .map(|name| (name.clone(), ChannelHistory::default())),
            );
            let Some(session) = self.own(read, &thread)? else {
                return Ok(found);
            };
            let mut key = match id {
                Some(id) => self.find(read, session, ns, id)?,
                None => self.newest(read, session, ns)?,
            };
            let mut is_target = true;
            let mut seen = BTreeSet::new();
            while let Some(at) = key.take().filter(|key| seen.insert(key.name.clone())) {
                let record: CheckpointRecord = record(read, &thread, &at)?;
                if !is_target {
                    let at_checkpoint = (record.ns.as_str(), record.id.as_str());
                    let writes = self.writes(read, session, &thread, at_checkpoint, Bodies::All)?;
                    for write in writes.into_iter().rev() {
                        if open.contains(&write.1)
                            && let Some(history) = found.get_mut(&write.1)
                        {
                            history.writes.push(write);
                        }
                    }
                    for channel in open.clone() {
                        let own = place(read, &at)?;
                        let thread = Thread {
                            session,
                            id: &thread,
                            bodies: Bodies::All,
                        };
                        let value = value_of(read, &thread, &record, &own, channel)?;
                        if let (Some(value), Some(history)) = (value, found.get_mut(channel)) {
                            history.seed = Some(value);
                            open.remove(channel);
                        }
                    }
                }
                is_target = false;
                if open.is_empty() {
                    break;
                }
                if let Some(parent) = &record.parent {
                    key = self.find(read, session, ns, parent)?;
                }
            }
            for history in found.values_mut() {
                history.writes.reverse();
            }
            Ok(found)
        })
    }

    /// Returns the session of a thread whose values are in this encoding; `None` if there is none.
    pub(crate) fn own(
        &self,
        read: &dyn StoreRead,
        thread: &SessionId,
    ) -> Result<Option<SessionKey>> {
        let Some(row) = read.session(thread)? else {
            return Ok(None);
        };
        ensure_own(read, row.key, thread, self.language)?;
        Ok(Some(row.key))
    }

    /// Returns the newest revision of a checkpoint, unless it marks the checkpoint as deleted.
    pub(crate) fn find(
        &self,
        read: &dyn StoreRead,
        session: SessionKey,
        ns: &str,
        id: &str,
    ) -> Result<Option<AppendKey>> {
        let Ok(name) = names::checkpoint(self.language, ns, id) else {
            return Ok(None);
        };
        let key = names::last(read, session, &name)?;
        Ok(key.filter(|key| !is_deleted(key)))
    }

    fn newest(
        &self,
        read: &dyn StoreRead,
        session: SessionKey,
        ns: &str,
    ) -> Result<Option<AppendKey>> {
        let beginning = names::namespace(self.language, ns);
        let (mut end, mut limit): (Option<String>, u32) = (None, 1);
        loop {
            let page = names::before(read, session, &beginning, end.as_deref(), limit)?;
            let Some(last) = page.last().map(|key| key.name.clone()) else {
                return Ok(None);
            };
            let is_partial = (page.len() as u64) < u64::from(limit);
            for key in page {
                // Older revisions of the checkpoint before.
                if end.as_deref().map(names::without_revision)
                    == Some(names::without_revision(&key.name))
                {
                    continue;
                }
                if !is_deleted(&key) {
                    return Ok(Some(key));
                }
                end = Some(key.name);
            }
            if is_partial {
                return Ok(None);
            }
            (end, limit) = (Some(last), PAGE);
        }
    }

    /// Returns the newest revisions of the checkpoints that a query may select.
    fn live(
        &self,
        read: &dyn StoreRead,
        session: SessionKey,
        thread: &SessionId,
        query: &ListQuery,
    ) -> Result<Vec<(SessionId, AppendKey)>> {
        let beginning = match (&query.ns, &query.id) {
            (Some(ns), Some(id)) => match names::checkpoint(self.language, ns, id) {
                Ok(name) => name,
                Err(_) => return Ok(Vec::new()),
            },
            (Some(ns), None) => names::namespace(self.language, ns),
            (None, _) => names::checkpoints(self.language),
        };
        let keys = self.live_keys(read, session, &beginning)?;
        Ok(keys.into_iter().map(|key| (thread.clone(), key)).collect())
    }

    /// Returns the newest revisions of all checkpoints whose names have this prefix.
    pub(crate) fn live_keys(
        &self,
        read: &dyn StoreRead,
        session: SessionKey,
        beginning: &str,
    ) -> Result<Vec<AppendKey>> {
        let all = names::all(read, session, beginning)?;
        let all = all.into_iter().map(|key| (session, key)).collect();
        let live = newest_revisions(all).into_iter();
        Ok(live.map(|(_, key)| key).collect())
    }

    fn whole(
        &self,
        read: &dyn StoreRead,
        session: SessionKey,
        thread: &SessionId,
        key: &AppendKey,
        bodies: Bodies,
    ) -> Result<Checkpoint> {
        let record: CheckpointRecord = record(read, thread, key)?;
        let own = place(read, key)?;
        let mut values = BTreeMap::new();
        let of = Thread {
            session,
            id: thread,
            bodies,
        };
        for channel in record.values.keys().chain(record.at.keys()) {
            if let Some(value) = value_of(read, &of, &record, &own, channel)? {
                values.insert(channel.clone(), value);
            }
        }
        let at = (record.ns.as_str(), record.id.as_str());
        let writes = self.writes(read, session, thread, at, bodies)?;
        Ok(Checkpoint {
            thread: thread.to_string(),
            ns: record.ns,
            id: record.id,
            parent: record.parent,
            checkpoint: record.checkpoint,
            versions: record.versions,
            metadata: record.metadata,
            values,
            writes,
            session: session.get(),
        })
    }

    /// Returns the writes of the tasks that continue a checkpoint, in the order in which a step applies them.
    pub(crate) fn writes(
        &self,
        read: &dyn StoreRead,
        session: SessionKey,
        thread: &SessionId,
        (ns, id): (&str, &str),
        bodies: Bodies,
    ) -> Result<Vec<Write>> {
        let of = Thread {
            session,
            id: thread,
            bodies,
        };
        let mut sorted: BTreeMap<(String, i64), (String, String, Json)> = BTreeMap::new();
        for key in names::all(read, session, &names::writes(self.language, ns, id)?)? {
            let record: WritesRecord = record(read, thread, &key)?;
            if record.id != id || record.ns != ns {
                continue;
            }
            for (index, channel, value) in record.writes {
                let value = with_messages(read, &of, value, &record.said)?;
                let entry = (record.path.clone(), channel, value);
                let at = (record.task.clone(), index);
                if index < 0 {
                    sorted.insert(at, entry);
                } else {
                    sorted.entry(at).or_insert(entry);
                }
            }
        }
        let mut writes: Vec<_> = sorted.into_iter().collect();
        // The sort is stable: tasks of one path stay in the order of their ids.
        writes.sort_by(|(_, one), (_, other)| one.0.cmp(&other.0));
        let plain = |((task, _), (_, channel, value))| (task, channel, value);
        Ok(writes.into_iter().map(plain).collect())
    }
}

/// Returns the newest revisions, without those that mark a checkpoint as deleted.
fn newest_revisions(all: Vec<(SessionKey, AppendKey)>) -> Vec<(SessionKey, AppendKey)> {
    let mut live: Vec<(SessionKey, AppendKey)> = Vec::new();
    for (session, key) in all {
        let base = names::without_revision(&key.name);
        if live.last().is_some_and(|(last, before)| {
            *last == session && names::without_revision(&before.name) == base
        }) {
            live.pop();
        }
        live.push((session, key));
    }
    live.retain(|(_, key)| !is_deleted(key));
    live
}

fn is_deleted(key: &AppendKey) -> bool {
    Revision::of(&key.name).is_none_or(|revision| revision.is_deleted)
}

/// Returns the encoded id in the name of a checkpoint.
fn id_of(name: &str) -> &str {
    name.rsplit('/').nth(1).unwrap_or_default()
}

fn has(record: &CheckpointRecord, name: &str, wanted: &serde_json::Value) -> bool {
    let found = record
        .metadata
        .get(name)
        .and_then(|value| value.read().ok());
    let found = found.unwrap_or(serde_json::Value::Null);
    match (found.as_f64(), wanted.as_f64()) {
        (Some(found), Some(wanted)) => found == wanted,
        _ => found == *wanted,
    }
}

/// Fails for a thread that the other language wrote.
pub(crate) fn ensure_own(
    read: &dyn StoreRead,
    session: SessionKey,
    thread: &SessionId,
    language: Language,
) -> Result<()> {
    let other = language.other();
    if names::last(read, session, other.prefix())?.is_none() {
        return Ok(());
    }
    Err(Error::Foreign {
        thread: thread.to_string(),
        theirs: other.as_str(),
        ours: language.as_str(),
    })
}

/// Returns the position of the extension of an append.
pub(crate) fn place(read: &dyn StoreRead, key: &AppendKey) -> Result<MessagePosition> {
    let row = read.loop_by_key(key.loop_key)?;
    Ok(MessagePosition(row.core.loop_id, key.seqs.start))
}

/// Reads the record of an append.
pub(crate) fn record<T: RecordForm>(
    read: &dyn StoreRead,
    thread: &SessionId,
    key: &AppendKey,
) -> Result<T> {
    let record: T = record_at(read, thread, key.loop_key, key.seqs.start)?;
    Ok(record.named(&key.name))
}

fn record_at<T: RecordForm>(
    read: &dyn StoreRead,
    thread: &SessionId,
    loop_key: LoopKey,
    seq: u32,
) -> Result<T> {
    let mut found = None;
    read.message_refs(loop_key, seq..seq.saturating_add(1), false, &mut |stored| {
        found = Some(extend::decode_ref(read, &stored.message)?);
        Ok(ControlFlow::Break(()))
    })?;
    let unreadable = |why: String| Error::Unreadable {
        what: "a checkpoint".into(),
        thread: thread.to_string(),
        why,
    };
    match found {
        Some(AgentMessage::Extension(extension)) if extension.kind.starts_with("langgraph.") => {
            T::from_json(&extension.data).map_err(unreadable)
        }
        Some(AgentMessage::Extension(extension)) => {
            Err(unreadable(format!("its content is `{}`", extension.kind)))
        }
        Some(AgentMessage::Llm(_)) => Err(unreadable("a message stands in its place".into())),
        None => Err(unreadable("it is not there".into())),
    }
}

/// A thread that is read, and the messages whose content is read.
struct Thread<'a> {
    session: SessionKey,
    id: &'a SessionId,
    bodies: Bodies,
}

/// Reads the value of a channel, from the checkpoint that brought it.
fn value_of(
    read: &dyn StoreRead,
    thread: &Thread<'_>,
    record: &CheckpointRecord,
    own: &MessagePosition,
    channel: &str,
) -> Result<Option<Value>> {
    let (stored, said) = match (record.values.get(channel), record.at.get(channel)) {
        (Some(value), _) => (value.clone(), Cow::Borrowed(&*record.said)),
        (None, Some(place)) if place != own => {
            let row = loop_at(read, thread.session, place)?;
            let mut holder: CheckpointRecord = record_at(read, thread.id, row.key, place.1)?;
            match holder.values.remove(channel) {
                Some(value) => (value, Cow::Owned(holder.said)),
                None => {
                    return Err(Error::Unreadable {
                        what: format!("channel `{channel}`"),
                        thread: thread.id.to_string(),
                        why: "its checkpoint does not hold it".into(),
                    });
                }
            }
        }
        _ => return Ok(None),
    };
    Ok(Some(match stored {
        StoredValue::List(segments) => Value::List {
            list: list_of(read, thread, &segments)?,
        },
        StoredValue::Data(data) => Value::Data {
            data: with_messages(read, thread, data, &said)?,
        },
    }))
}

fn list_of(
    read: &dyn StoreRead,
    thread: &Thread<'_>,
    segments: &[Segment],
) -> Result<Vec<MessagesOf>> {
    let read = |segment: &Segment| {
        let found = read_segment(read, thread.session, segment.clone(), thread.bodies)?;
        readable(found, thread.id)
    };
    segments.iter().map(read).collect()
}

/// A value with the messages that it refers to.
#[derive(Serialize)]
struct ValueWithMessages<'a> {
    said: &'a RawValue,
    list: Vec<MessagesOf>,
}

/// Adds the messages of a record to a value that refers to some of them.
fn with_messages(
    read: &dyn StoreRead,
    thread: &Thread<'_>,
    data: Json,
    said: &[Segment],
) -> Result<Json> {
    #[derive(Deserialize)]
    struct Referring<'a> {
        #[serde(borrow)]
        said: &'a RawValue,
    }
    if said.is_empty() || !data.as_str().starts_with(r#"{"said":"#) {
        return Ok(data);
    }
    let invalid = |error: serde_json::Error| Error::Invalid(error.to_string());
    let Referring { said: which } = data.read().map_err(invalid)?;
    let list = list_of(read, thread, said)?;
    Json::of(&ValueWithMessages { said: which, list }).map_err(invalid)
}

/// Fails for messages whose content was removed.
fn readable(found: MessagesOf, thread: &SessionId) -> Result<MessagesOf> {
    let is_removed = |message: &Option<AgentMessage>| matches!(message, Some(AgentMessage::Extension(extension)) if extension.kind == "removed");
    let removed = found.messages.iter().position(is_removed);
    match removed.and_then(|at| found.places.get(at)) {
        None => Ok(found),
        Some(MessagePosition(id, seq)) => Err(Error::Unreadable {
            what: format!("message {seq} of loop `{id}`"),
            thread: thread.to_string(),
            why: "its content was removed".into(),
        }),
    }
}
