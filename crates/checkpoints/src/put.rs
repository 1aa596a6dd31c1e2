//! Storing checkpoints, and the writes of tasks.

use std::collections::{BTreeMap, BTreeSet};

use loopstore::extend::{AppendKey, LoopKey, SessionKey, StoreRead, StoreWrite, session};
use loopstore::{Json, Session, SessionId};

use crate::Checkpoints;
use crate::error::{Error, Result};
use crate::forms::RecordForm;
use crate::lines::Lines;
use crate::names::{self, Revision};
use crate::read;
use crate::record::{
    CheckpointRecord, MessagePosition, NewCheckpoint, NewWrites, PutResult, Segment, StoredList,
    StoredValue, WritesRecord, kinds,
};

impl Checkpoints {
    /// Stores a checkpoint, and creates the session if it does not exist. A checkpoint with the same id is replaced;
    /// its earlier revision stays in the record.
    ///
    /// # Errors
    /// [`Error::Missing`] if an unchanged channel is stored at none of the parent's versions, [`Error::Stale`] if the
    /// segments belong to a deleted session, [`Error::Foreign`], or if the store fails.
    pub fn put(&self, thread: &str, new: NewCheckpoint) -> Result<PutResult> {
        let id = SessionId::new(thread)?;
        let name = names::checkpoint(self.language, &new.ns, &new.id)?;
        let counter = self.store.database().counter();
        self.write(|write| {
            let session = self.session(write, &id)?;
            if new.session.is_some_and(|seen| seen != session.get()) {
                return Err(Error::Stale(thread.to_owned()));
            }
            let parent = match &new.parent {
                Some(parent) => {
                    let name = names::checkpoint(self.language, &new.ns, parent)?;
                    names::last(write, session, &name)?
                }
                None => None,
            };
            let at = unchanged(write, &id, &new, parent.as_ref())?;
            let before = names::last(write, session, &name)?;
            // A checkpoint without messages of its own is appended to the loop of its parent.
            let home = parent.map(|key| key.loop_key);
            let mut lines = Lines::new(write, session, counter, home);
            let said = lines.store_said(new.said)?;
            let (values, lists) = store_values(&mut lines, new.values)?;
            let record = CheckpointRecord {
                ns: new.ns,
                id: new.id,
                parent: new.parent,
                checkpoint: new.checkpoint,
                versions: new.versions,
                metadata: new.metadata,
                values,
                at,
                said: segments_of(&said),
            };
            let before = before.and_then(|key| Revision::of(&key.name));
            let mut names = vec![Revision::next(before, &name, false)];
            let run = record.metadata.get("run_id");
            if let Some(run) = run.and_then(|run| run.read::<String>().ok()) {
                names.push(names::of_run(self.language, &run, &names[0]));
            }
            let notes = std::mem::take(&mut lines.notes);
            lines.finish(kinds::CHECKPOINT, record.to_json()?, names)?;
            Ok(PutResult {
                session: session.get(),
                lists,
                said,
                notes,
            })
        })
    }

    /// Stores the writes of a task. A write of an index that the task has written before is ignored; a write
    /// of a negative index replaces the earlier one.
    ///
    /// # Errors
    /// [`Error::Stale`] if the segments belong to a deleted session, [`Error::Foreign`], or if the store fails.
    pub fn put_writes(&self, thread: &str, new: NewWrites) -> Result<PutResult> {
        let id = SessionId::new(thread)?;
        let name = names::task(self.language, &new.ns, &new.id, &new.task)?;
        let checkpoint = names::checkpoint(self.language, &new.ns, &new.id)?;
        let counter = self.store.database().counter();
        self.write(|write| {
            let session = self.session(write, &id)?;
            if new.session.is_some_and(|seen| seen != session.get()) {
                return Err(Error::Stale(thread.to_owned()));
            }
            let mut stored = PutResult {
                session: session.get(),
                lists: Lists::new(),
                said: Vec::new(),
                notes: Vec::new(),
            };
            let known = names::all(write, session, &name)?;
            let mut written = BTreeSet::new();
            for key in &known {
                let record: WritesRecord = read::record(write, &id, key)?;
                if record.task == new.task {
                    written.extend(record.writes.into_iter().map(|(index, ..)| index));
                }
            }
            let is_new = |write: &(i64, String, Json)| write.0 < 0 || !written.contains(&write.0);
            let mut record = WritesRecord {
                ns: new.ns,
                id: new.id,
                task: new.task,
                path: new.path,
                writes: new.writes.into_iter().filter(is_new).collect(),
                said: Vec::new(),
            };
            if record.writes.is_empty() {
                return Ok(stored);
            }
            let home = names::last(write, session, &checkpoint)?;
            let last = known.last().and_then(|key| Revision::of(&key.name));
            let home = home.map(|key| key.loop_key);
            let current = write.session_by_key(session)?.current_loop;
            let mut lines = Lines::new(write, session, counter, home);
            stored.said = lines.store_said(new.said)?;
            record.said = segments_of(&stored.said);
            stored.notes.append(&mut lines.notes);
            let name = Revision::next(last, &name, false);
            lines.finish(kinds::WRITES, record.to_json()?, vec![name])?;
            if stored.said.iter().all(|list| list.new.is_empty()) {
                restore_current(write, session, current)?;
            }
            Ok(stored)
        })
    }

    /// Returns the session of the thread, creating it if necessary.
    fn session(&self, write: &mut dyn StoreWrite, id: &SessionId) -> Result<SessionKey> {
        if let Some(row) = write.session(id)? {
            read::ensure_own(write, row.key, id, self.language)?;
            return Ok(row.key);
        }
        let new = Session {
            agent_id: None,
            ..Session::new(id.clone(), "")
        };
        Ok(session::create_session(write, &new, None, None)?)
    }
}

/// Makes a loop the current one again after a record without messages was appended elsewhere: the writes of a task may
/// arrive after the checkpoint that follows them.
fn restore_current(
    write: &mut dyn StoreWrite,
    session: SessionKey,
    current: Option<LoopKey>,
) -> Result<()> {
    let mut row = write.session_by_key(session)?;
    if current.is_some() && row.current_loop != current {
        row.current_loop = current;
        write.touch_session(&(&row).into())?;
    }
    Ok(())
}

/// Finds the values of the channels that did not change.
fn unchanged(
    read: &dyn StoreRead,
    thread: &SessionId,
    new: &NewCheckpoint,
    parent: Option<&AppendKey>,
) -> Result<BTreeMap<String, MessagePosition>> {
    let mut at = BTreeMap::new();
    let mut open = new
        .versions
        .iter()
        .filter(|(channel, _)| !new.values.contains_key(*channel))
        .peekable();
    if let Some(key) = parent.filter(|_| open.peek().is_some()) {
        let record: CheckpointRecord = read::record(read, thread, key)?;
        let own = read::place(read, key)?;
        for (channel, version) in open {
            if record.versions.get(channel) != Some(version) {
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

type Values = BTreeMap<String, StoredValue>;
type Lists = BTreeMap<String, StoredList>;

fn store_values(
    lines: &mut Lines<'_>,
    new: BTreeMap<String, crate::NewValue>,
) -> Result<(Values, Lists)> {
    let (mut values, mut lists) = (Values::new(), Lists::new());
    for (channel, value) in new {
        let stored = match value.list {
            None => StoredValue::Data(value.data.unwrap_or_default()),
            Some(parts) => {
                let list = lines.store(parts)?;
                let segments = list.segments.clone();
                lists.insert(channel.clone(), list);
                StoredValue::List(segments)
            }
        };
        values.insert(channel, stored);
    }
    Ok((values, lists))
}

/// Returns the segments of all lists.
fn segments_of(said: &[StoredList]) -> Vec<Segment> {
    said.iter().flat_map(|list| list.segments.clone()).collect()
}
