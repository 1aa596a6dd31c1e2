//! Whole threads: deleting, copying, pruning.

use loopstore::SessionId;
use loopstore::extend::{SessionKey, StoreWrite};
use serde::Serialize;

use crate::error::Result;
use crate::lines::Lines;
use crate::names::{self, Revision};
use crate::put::push;
use crate::read;
use crate::record::{Record, kinds};
use crate::Checkpoints;

/// What becomes of a thread that is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDelete {
    /// Nobody finds it any more, and its id may be used again; the record stays.
    #[default]
    Hide,
    /// Its content is removed.
    Erase,
}

/// Which checkpoints of a thread stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// The newest of each namespace, with what it needs of those before it.
    KeepLatest,
    /// None.
    Delete,
}

/// Which checkpoints were deleted.
#[derive(Serialize)]
struct DeletedRecord {
    deleted: Vec<String>,
}

impl Checkpoints {
    /// Deletes the checkpoints of a thread that `strategy` does not keep. The record stays.
    ///
    /// # Errors
    /// [`Error::Foreign`](crate::Error::Foreign), or if the store fails.
    pub fn prune(&self, thread: &str, strategy: Strategy) -> Result<usize> {
        let thread = SessionId::new(thread)?;
        self.write(|write| {
            let Some(session) = self.own(write.as_read(), &thread)? else {
                return Ok(0);
            };
            let all = names::checkpoints(self.language);
            let mut live = self.live_keys(write.as_read(), session, &all)?;
            if strategy == Strategy::KeepLatest {
                let mut kept = std::collections::BTreeSet::new();
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
            let mut found = Vec::new();
            for row in read.sessions()? {
                let mut names = Vec::new();
                let all = names::checkpoints(self.language);
                for key in self.live_keys(read, row.key, &all)? {
                    let record: Record = read::record(read, &row.session_id, &key)?;
                    let run = record.metadata.get("run_id");
                    let run: Option<String> = run.and_then(|run| run.read().ok());
                    if run.is_some_and(|run| runs.contains(&run)) {
                        names.push(key.name);
                    }
                }
                if !names.is_empty() {
                    found.push((row.session_id, names));
                }
            }
            Ok(found)
        })?;
        let mut deleted = 0;
        for (thread, names) in found {
            deleted += self.write(|write| match self.own(write.as_read(), &thread)? {
                Some(session) => self.delete(write, session, names),
                None => Ok(0),
            })?;
        }
        Ok(deleted)
    }

    /// Keeps a checkpoint, and those before it whose writes make up a channel that it has no value of.
    fn keep(
        &self,
        write: &dyn StoreWrite,
        session: SessionKey,
        thread: &SessionId,
        key: &loopstore::extend::AppendKey,
        kept: &mut std::collections::BTreeSet<String>,
    ) -> Result<()> {
        kept.insert(key.name.clone());
        let mut record: Record = read::record(write.as_read(), thread, key)?;
        let counters = record.metadata.get("counters_since_delta_snapshot");
        let deltas = counters.and_then(|counters| {
            counters.read::<std::collections::BTreeMap<String, serde_json::Value>>().ok()
        });
        let mut open: Vec<String> = deltas.into_iter().flatten().map(|(name, _)| name).collect();
        loop {
            open.retain(|name| !record.values.contains_key(name) && !record.at.contains_key(name));
            let (false, Some(parent)) = (open.is_empty(), &record.parent) else {
                return Ok(());
            };
            let Some(above) = self.find(write.as_read(), session, &record.ns, parent)? else {
                return Ok(());
            };
            if !kept.insert(above.name.clone()) {
                return Ok(());
            }
            record = read::record(write.as_read(), thread, &above)?;
        }
    }

    /// Notes that revisions were deleted.
    fn delete(
        &self,
        write: &mut dyn StoreWrite,
        session: SessionKey,
        names: Vec<String>,
    ) -> Result<usize> {
        let mut new = Vec::new();
        for name in &names {
            // Another program may have stored a newer one since.
            let base = names::without_revision(name);
            let last = names::last(write.as_read(), session, base)?;
            if last.is_some_and(|last| last.name == *name) {
                new.push(Revision::next(Revision::of(name), base, true));
            }
        }
        if new.is_empty() {
            return Ok(0);
        }
        let (count, counter) = (new.len(), self.store.database().counter());
        let mut lines = Lines {
            home: None,
            write,
            session,
            counter,
        };
        push(&mut lines, kinds::DELETED, &DeletedRecord { deleted: names }, new)?;
        Ok(count)
    }
}
