//! Whole threads: deleting and pruning. `copy.rs` copies them.

use std::collections::{BTreeMap, BTreeSet};

use loopstore::extend::{AppendKey, SessionKey, StoreWrite};
use loopstore::{Json, SessionId, StoreError};
use loopstore_admin::retention::{EraseRequest, erase};
use serde::Serialize;

use crate::Checkpoints;
use crate::error::{Error, Result};
use crate::lines::Lines;
use crate::names::{self, Revision};
use crate::read;
use crate::record::{CheckpointRecord, kinds};

/// The treatment of a deleted thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDelete {
    /// The thread is hidden, and its id can be used again. The record stays.
    #[default]
    Hide,
    /// The content of the thread is removed.
    Erase,
}

/// The checkpoints of a thread that pruning keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// The newest of each namespace, with the earlier checkpoints that it needs.
    KeepLatest,
    /// None.
    Delete,
}

/// The deleted checkpoints.
#[derive(Serialize)]
struct DeletedRecord {
    deleted: Vec<String>,
}

impl Checkpoints {
    /// Deletes a thread, if it exists. The thread may belong to the other language.
    ///
    /// # Errors
    /// If another program drives a loop of the thread, or the store fails.
    pub fn delete_thread(&self, thread: &str, how: OnDelete) -> Result<()> {
        let handle = self.store.session(thread)?;
        let done = match how {
            OnDelete::Hide => handle.hide().map(|_| ()).map_err(Error::from),
            OnDelete::Erase => {
                let request = EraseRequest {
                    reason: Some("its thread was deleted".into()),
                    ..EraseRequest::new(handle.id().clone())
                };
                erase(self.store.database(), &request)
                    .map(|_| ())
                    .map_err(Error::from)
            }
        };
        match done {
            Err(Error::Store(StoreError::NoSession(_))) => Ok(()),
            done => done,
        }
    }

    /// Deletes the checkpoints of a thread that `strategy` does not keep. The record stays.
    ///
    /// # Errors
    /// [`Error::Foreign`], or if the store fails.
    pub fn prune(&self, thread: &str, strategy: Strategy) -> Result<usize> {
        let thread = SessionId::new(thread)?;
        self.write(|write| {
            let Some(session) = self.own(write, &thread)? else {
                return Ok(0);
            };
            let all = names::checkpoints(self.language);
            let mut live = self.live_keys(write, session, &all)?;
            if strategy == Strategy::KeepLatest {
                let mut kept = BTreeSet::new();
                for (at, key) in live.iter().enumerate() {
                    let space = |name: &str| {
                        let id = names::without_revision(name).trim_end_matches('/');
                        names::without_revision(id).to_owned()
                    };
                    let next = live.get(at + 1).map(|next| space(&next.name));
                    if next.as_ref() != Some(&space(&key.name)) {
                        self.keep(write, session, &thread, key, &mut kept)?;
                    }
                }
                live.retain(|key| !kept.contains(&key.name));
            }
            let deleted = live.into_iter().map(|key| key.name).collect();
            self.delete(write, session, deleted)
        })
    }

    /// Deletes the checkpoints of runs, in all threads of this language.
    ///
    /// # Errors
    /// If the store fails.
    pub fn delete_for_runs(&self, runs: &[String]) -> Result<usize> {
        if runs.is_empty() {
            return Ok(0);
        }
        let found = self.read(|read| {
            let mut found: BTreeMap<SessionKey, BTreeSet<String>> = BTreeMap::new();
            for run in runs {
                let all = read.append_keys_of_all(&names::run(self.language, run))?;
                for (session, key) in all {
                    let thread = read.session_by_key(session)?.session_id;
                    // A name has the digest of a run; its checkpoint may have been deleted.
                    let record: CheckpointRecord = read::record(read, &thread, &key)?;
                    let own = record.metadata.get("run_id");
                    if own.and_then(|own| own.read::<String>().ok()).as_ref() != Some(run) {
                        continue;
                    }
                    let live = self.find(read, session, &record.ns, &record.id)?;
                    if let Some(live) = live.filter(|live| {
                        (live.loop_key, live.seqs.start) == (key.loop_key, key.seqs.start)
                    }) {
                        found.entry(session).or_default().insert(live.name);
                    }
                }
            }
            let named = found.into_iter().map(|(session, names)| {
                let names: Vec<String> = names.into_iter().collect();
                Ok((read.session_by_key(session)?.session_id, names))
            });
            named.collect::<Result<Vec<_>>>()
        })?;
        let mut deleted = 0;
        for (thread, names) in found {
            deleted += self.write(|write| match self.own(write, &thread)? {
                Some(session) => self.delete(write, session, names),
                None => Ok(0),
            })?;
        }
        Ok(deleted)
    }

    /// Keeps a checkpoint, and the earlier ones whose writes make up a channel without a value in it.
    fn keep(
        &self,
        write: &dyn StoreWrite,
        session: SessionKey,
        thread: &SessionId,
        key: &AppendKey,
        kept: &mut BTreeSet<String>,
    ) -> Result<()> {
        kept.insert(key.name.clone());
        let mut record: CheckpointRecord = read::record(write, thread, key)?;
        let counters = record.metadata.get("counters_since_delta_snapshot");
        let deltas = counters
            .and_then(|counters| counters.read::<BTreeMap<String, serde_json::Value>>().ok());
        let mut open: Vec<String> = deltas.into_iter().flatten().map(|(name, _)| name).collect();
        loop {
            open.retain(|name| !record.values.contains_key(name) && !record.at.contains_key(name));
            let (false, Some(parent)) = (open.is_empty(), &record.parent) else {
                return Ok(());
            };
            let Some(above) = self.find(write, session, &record.ns, parent)? else {
                return Ok(());
            };
            if !kept.insert(above.name.clone()) {
                return Ok(());
            }
            record = read::record(write, thread, &above)?;
        }
    }

    /// Stores that revisions were deleted.
    fn delete(
        &self,
        write: &mut dyn StoreWrite,
        session: SessionKey,
        names: Vec<String>,
    ) -> Result<usize> {
        let mut new = Vec::new();
        for name in &names {
            // Another program may have stored a newer revision since.
            let base = names::without_revision(name);
            let last = names::last(write, session, base)?;
            if last.is_some_and(|last| last.name == *name) {
                new.push(Revision::next(Revision::of(name), base, true));
            }
        }
        if new.is_empty() {
            return Ok(0);
        }
        let (count, counter) = (new.len(), self.store.database().counter());
        let lines = Lines::new(write, session, counter, None);
        let record = Json::of(&DeletedRecord { deleted: names })
            .map_err(|error| Error::Invalid(error.to_string()))?;
        lines.finish(kinds::DELETED, record, new)?;
        Ok(count)
    }
}
