//! Storing checkpoints, and what tasks write.

use std::collections::{BTreeMap, BTreeSet};

use loopstore::extend::{AppendKey, LoopKey, SessionKey, StoreWrite, session};
use loopstore::{AgentMessage, Json, Session, SessionId};

use crate::Checkpoints;
use crate::error::{Error, Result};
use crate::lines::Lines;
use crate::names::{self, Revision};
use crate::read;
use crate::record::{
    NewCheckpoint, NewWrites, Place, Record, Stored, StoredValue, WritesRecord, kinds,
};

impl Checkpoints {
    /// Stores a checkpoint. The session begins with it if it is not there. One that has its id is replaced:
    /// what was stored before stays in the record.
    ///
    /// # Errors
    /// [`Error::Missing`] if an unchanged channel is stored at none of the parent's versions,
    /// [`Error::Stale`] if the segments are of a session that was deleted since, [`Error::Foreign`], or if
    /// the store fails.
    pub fn put(&self, thread: &str, new: NewCheckpoint) -> Result<Stored> {
        let id = SessionId::new(thread)?;
        let name = names::checkpoint(self.language, &new.ns, &new.id)?;
        let counter = self.store.database().counter();
        self.write(|write| {
            let session = self.session(write, &id)?;
            if new.session.is_some_and(|seen| seen != session.get()) {
                return Err(Error::Stale(thread.to_owned()));
            }
            let at = self.unchanged(write, session, &id, &new)?;
            let before = names::last(write.as_read(), session, &name)?;
            let mut lines = Lines {
                home: self.home(write, session, &new)?,
                write,
                session,
                counter,
            };
            let (values, lists) = store_values(&mut lines, new.values)?;
            let record = Record {
                ns: new.ns,
                id: new.id,
                parent: new.parent,
                checkpoint: new.checkpoint,
                versions: new.versions,
                metadata: new.metadata,
                values,
                at,
            };
            let before = before.and_then(|key| Revision::of(&key.name));
            let name = Revision::next(before, &name, false);
            push(&mut lines, kinds::CHECKPOINT, &record, vec![name])?;
            Ok(Stored {
                session: session.get(),
                lists,
            })
        })
    }

    /// Stores what a task wrote. A write of an index that the task has written before is left as it is; one
    /// of a negative index replaces it.
    ///
    /// # Errors
    /// [`Error::Foreign`], or if the store fails.
    pub fn put_writes(&self, thread: &str, new: NewWrites) -> Result<()> {
        let id = SessionId::new(thread)?;
        let name = names::task(self.language, &new.ns, &new.id, &new.task)?;
        let checkpoint = names::checkpoint(self.language, &new.ns, &new.id)?;
        let counter = self.store.database().counter();
        self.write(|write| {
            let session = self.session(write, &id)?;
            let known = names::all(write.as_read(), session, &name)?;
            let mut written = BTreeSet::new();
            for key in &known {
                let record: WritesRecord = read::record(write.as_read(), &id, key)?;
                written.extend(record.writes.into_iter().map(|(index, ..)| index));
            }
            let is_new = |write: &(i64, String, Json)| write.0 < 0 || !written.contains(&write.0);
            let record = WritesRecord {
                ns: new.ns,
                id: new.id,
                task: new.task,
                path: new.path,
                writes: new.writes.into_iter().filter(is_new).collect(),
            };
            if record.writes.is_empty() {
                return Ok(());
            }
            let home = names::last(write.as_read(), session, &checkpoint)?;
            let last = known.last().and_then(|key| Revision::of(&key.name));
            let mut lines = Lines {
                home: home.map(|key| key.loop_key),
                write,
                session,
                counter,
            };
            let name = Revision::next(last, &name, false);
            push(&mut lines, kinds::WRITES, &record, vec![name])?;
            Ok(())
        })
    }

    /// Returns the thread's session, which begins if it is not there.
    fn session(&self, write: &mut dyn StoreWrite, id: &SessionId) -> Result<SessionKey> {
        if let Some(row) = write.session(id)? {
            read::ensure_own(write.as_read(), row.key, id, self.language)?;
            return Ok(row.key);
        }
        let new = Session {
            agent_id: None,
            ..Session::new(id.clone(), "")
        };
        Ok(session::create_session(write, &new, None, None)?)
    }

    /// Finds the values of the channels that did not change.
    fn unchanged(
        &self,
        write: &dyn StoreWrite,
        session: SessionKey,
        thread: &SessionId,
        new: &NewCheckpoint,
    ) -> Result<BTreeMap<String, Place>> {
        let mut at = BTreeMap::new();
        let parent = match &new.parent {
            Some(parent) if !new.versions.is_empty() => {
                let name = names::checkpoint(self.language, &new.ns, parent)?;
                names::last(write.as_read(), session, &name)?
            }
            _ => None,
        };
        if let Some(key) = parent {
            let record: Record = read::record(write.as_read(), thread, &key)?;
            let own = read::place(write.as_read(), &key)?;
            for (channel, version) in &new.versions {
                if new.values.contains_key(channel) || record.versions.get(channel) != Some(version)
                {
                    continue;
                }
                if record.values.contains_key(channel) {
                    at.insert(channel.clone(), own.clone());
                } else if let Some(place) = record.at.get(channel) {
                    at.insert(channel.clone(), place.clone());
                }
            }
        }
        let is_missing =
            |channel: &&String| !at.contains_key(*channel) && !new.values.contains_key(*channel);
        let missing: Vec<String> = new.unchanged.iter().filter(is_missing).cloned().collect();
        if missing.is_empty() {
            Ok(at)
        } else {
            Err(Error::Missing(missing))
        }
    }

    /// Returns the loop of the parent, where a checkpoint without messages goes.
    fn home(
        &self,
        write: &dyn StoreWrite,
        session: SessionKey,
        new: &NewCheckpoint,
    ) -> Result<Option<LoopKey>> {
        let Some(parent) = &new.parent else {
            return Ok(None);
        };
        let name = names::checkpoint(self.language, &new.ns, parent)?;
        let key = names::last(write.as_read(), session, &name)?;
        Ok(key.map(|key| key.loop_key))
    }
}

type Values = BTreeMap<String, StoredValue>;
type Lists = BTreeMap<String, crate::StoredList>;

fn store_values(
    lines: &mut Lines<'_>,
    new: BTreeMap<String, crate::NewValue>,
) -> Result<(Values, Lists)> {
    let (mut values, mut lists) = (Values::new(), Lists::new());
    for (channel, value) in new {
        let stored = match value.list {
            None => StoredValue {
                data: Some(value.data.unwrap_or_default()),
                list: None,
            },
            Some(parts) => {
                let list = lines.store(parts)?;
                let segments = list.segments.clone();
                lists.insert(channel.clone(), list);
                StoredValue {
                    data: None,
                    list: Some(segments),
                }
            }
        };
        values.insert(channel, stored);
    }
    Ok((values, lists))
}

/// Appends a record as an extension under these names.
pub(crate) fn push(
    lines: &mut Lines<'_>,
    kind: &str,
    record: &impl serde::Serialize,
    names: Vec<String>,
) -> Result<()> {
    let data = Json::of(record).map_err(|error| Error::Invalid(error.to_string()))?;
    let at = lines.home;
    let (loop_key, place) = lines.push_extension(at, AgentMessage::extension(kind, data))?;
    for name in names {
        let key = AppendKey {
            name,
            loop_key,
            seqs: place.1..place.1.saturating_add(1),
            turns: 0..0,
            tokens: 0,
        };
        lines.write.insert_append_key(lines.session, &key)?;
    }
    Ok(())
}
