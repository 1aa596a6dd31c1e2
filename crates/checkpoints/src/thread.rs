//! Whole threads: deleting, copying, pruning.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use loopstore::admin::retention::{EraseRequest, erase};
use loopstore::extend::append::append;
use loopstore::extend::{
    AppendKey, LoopKey, LoopRow, SessionKey, SessionRow, StoreRead, StoreWrite, decode_ref, session,
};
use loopstore::{Json, LoopRecord, Session, SessionId, StoreError};
use serde::Serialize;

use crate::Checkpoints;
use crate::error::{Error, Result};
use crate::lines::{Lines, PARENT_SEQ};
use crate::names::{self, Revision};
use crate::put::push;
use crate::read;
use crate::record::{Record, kinds};

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

/// How many messages are copied together.
const PAGE: u32 = 256;

impl Checkpoints {
    /// Deletes a thread; nothing happens if there is none. Its values may be of the other language.
    ///
    /// # Errors
    /// If another program drives it, or the store fails.
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

    /// Copies a thread: its loops with all messages, checkpoints and writes, but not its compactions. Nothing
    /// happens if there is none.
    ///
    /// # Errors
    /// [`Error::ThreadExists`] if the target holds anything, [`Error::Foreign`], or if the store fails.
    pub fn copy_thread(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (SessionId::new(from)?, SessionId::new(to)?);
        self.write(|write| {
            let Some(source) = self.own(write.as_read(), &from)? else {
                return Ok(());
            };
            let source = write.session_by_key(source)?;
            let target = match write.session(&to)? {
                Some(row) if row.current_loop.is_some() => {
                    return Err(Error::ThreadExists(to.to_string()));
                }
                Some(row) => row.key,
                None => {
                    let new = Session {
                        agent_id: source.agent_id.clone(),
                        ..Session::new(to, "")
                    };
                    session::create_session(write, &new, source.title.clone(), None)?
                }
            };
            let counter = self.store.database().counter();
            let mut copied: BTreeMap<LoopKey, LoopKey> = BTreeMap::new();
            for row in write.loops(source.key)? {
                let record = record_of(write.as_read(), &row)?;
                let key = session::create_loop(write, target, &record)?;
                copied.insert(row.key, key);
                let mut first = 0;
                while first < row.totals.next_seq {
                    let end = first.saturating_add(PAGE).min(row.totals.next_seq);
                    let mut page = Vec::new();
                    write.message_refs(row.key, first..end, false, &mut |stored| {
                        page.push(decode_ref(write.as_read(), &stored.message)?.into());
                        Ok(ControlFlow::Continue(()))
                    })?;
                    append(write, key, page, counter)?;
                    first = end;
                }
            }
            copy_keys(write, &source, target, &copied)
        })
    }

    /// Deletes the checkpoints of a thread that `strategy` does not keep. The record stays.
    ///
    /// # Errors
    /// [`Error::Foreign`], or if the store fails.
    pub fn prune(&self, thread: &str, strategy: Strategy) -> Result<usize> {
        let thread = SessionId::new(thread)?;
        self.write(|write| {
            let Some(session) = self.own(write.as_read(), &thread)? else {
                return Ok(0);
            };
            let all = names::checkpoints(self.language);
            let mut live = self.live_keys(write.as_read(), session, &all)?;
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
            let mut found = Vec::new();
            for row in session::shown_sessions(read)? {
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
        key: &AppendKey,
        kept: &mut BTreeSet<String>,
    ) -> Result<()> {
        kept.insert(key.name.clone());
        let mut record: Record = read::record(write.as_read(), thread, key)?;
        let counters = record.metadata.get("counters_since_delta_snapshot");
        let deltas = counters
            .and_then(|counters| counters.read::<BTreeMap<String, serde_json::Value>>().ok());
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
        push(
            &mut lines,
            kinds::DELETED,
            &DeletedRecord { deleted: names },
            new,
        )?;
        Ok(count)
    }
}

/// Returns a loop as it began, without what it holds.
fn record_of(read: &dyn StoreRead, row: &LoopRow) -> Result<LoopRecord> {
    let meta = read.loop_meta(row.key)?.meta;
    let mut record: LoopRecord = serde_json::from_str(&meta)
        .map_err(|error| StoreError::Damaged(format!("a loop cannot be read: {error}")))?;
    record.extra.remove(PARENT_SEQ);
    if let Some(seq) = row.parent_seq {
        let seq = Json::of(&seq).map_err(|error| Error::Invalid(error.to_string()))?;
        record.extra.insert(PARENT_SEQ, seq);
    }
    let turn = row.parent_turn.map_or(session::NO_TURN, i64::from);
    Ok(LoopRecord {
        status: row.status.clone(),
        parent_turn: row.parent.map(|_| turn.into()),
        ..record
    })
}

/// Copies the names of appends, and which loop is the current one.
fn copy_keys(
    write: &mut dyn StoreWrite,
    source: &SessionRow,
    target: SessionKey,
    copied: &BTreeMap<LoopKey, LoopKey>,
) -> Result<()> {
    for key in write.append_keys(source.key)? {
        if let Some(loop_key) = copied.get(&key.loop_key) {
            let loop_key = *loop_key;
            write.insert_append_key(target, &AppendKey { loop_key, ..key })?;
        }
    }
    let mut row = write.session_by_key(target)?;
    let current = source.current_loop.and_then(|key| copied.get(&key));
    row.current_loop = current.copied().or(row.current_loop);
    Ok(write.touch_session(&(&row).into())?)
}
