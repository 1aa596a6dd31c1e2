//! Sessions without ids: they wait until they are complete, and are then matched with earlier
//! imports of the same record.

use std::collections::HashMap;

use super::matching::{Digest, common_prefix, made_id};
use super::said::Said;
use super::writer::{Origin, StoreSink};
use super::{FoundCompaction, ImportError, SessionHead};
use crate::model::{LoopId, LoopRecord, SessionId};
use crate::store::StoreResult;

/// A session without an id: what it is shows only when all of it is there.
pub(super) struct Waiting {
    pub(super) head: SessionHead,
    pub(super) key: RecordKey,
    pub(super) calls: Vec<Call>,
}

/// What a session without an id is known by, besides its format.
#[derive(Clone)]
pub(super) struct RecordKey {
    /// Empty if the name says nothing.
    pub(super) file_name: String,
    pub(super) key: String,
}

/// One call of the sink, kept until its session is complete.
pub(super) enum Call {
    Loop(Box<LoopRecord>),
    Message(LoopId, Said, Digest, usize),
    Compaction(Box<FoundCompaction>),
}

impl StoreSink<'_> {
    /// Finds out which session the waiting one is, and writes it.
    pub(super) fn settle(&mut self) -> Result<(), ImportError> {
        let Some(waiting) = self.waiting.take() else {
            return Ok(());
        };
        let Waiting { head, key, calls } = waiting;
        let id = match self.known(&key, &calls)? {
            Some(id) => id,
            None => {
                let (from, named) = self.named(&key.key);
                let (write, by_id) = (&*self.write, &self.by_id);
                let stem = match key.file_name.is_empty() {
                    true => &from.format,
                    false => from.stem(),
                };
                made_id(stem, &named, &mut |id| {
                    Ok(by_id.contains_key(id) || write.session(id)?.is_some())
                })?
            }
        };
        self.begin(id.clone(), Some(key), head)?;
        for call in calls {
            match call {
                Call::Loop(mut record) => {
                    if record.session_id.is_some() {
                        record.session_id = Some(id.clone());
                    }
                    self.loop_begins(*record)?;
                }
                Call::Message(loop_key, said, origin, bytes) => {
                    self.take_message(&loop_key, said, origin, bytes)?;
                }
                Call::Compaction(found) => self.found(*found)?,
            }
        }
        Ok(())
    }

    /// Returns what an id is made of: ids are never redacted later.
    fn named(&self, key: &str) -> (Origin, String) {
        match self.secrets.all {
            true => (self.secrets.origin(&self.from), self.secrets.name(key)),
            false => (self.from.clone(), key.to_owned()),
        }
    }

    /// Returns the stored session with the same key that shares the longest beginning.
    fn known(&self, key: &RecordKey, calls: &[Call]) -> StoreResult<Option<SessionId>> {
        let new = in_order_of_loops(calls);
        let from = &self.from;
        let mut best: Option<(usize, SessionId)> = None;
        // A session that was redacted is noted under names that are.
        let plain = (key.file_name.clone(), key.key.clone());
        let redacted = (self.secrets.name(&plain.0), self.secrets.name(&plain.1));
        let mut sessions = self.write.imported(&from.format, &plain.0, &plain.1)?;
        if redacted != plain {
            let (name, key) = &redacted;
            sessions.extend(self.write.imported(&from.format, name, key)?);
        }
        for session in sessions {
            let row = self.write.session_by_key(session)?;
            if self.by_id.contains_key(&row.session_id) {
                continue;
            }
            let Some(common) = common_prefix(&*self.write, session, &new)? else {
                continue;
            };
            if best.as_ref().is_none_or(|(most, _)| common > *most) {
                best = Some((common, row.session_id));
            }
        }
        Ok(best.map(|(_, id)| id))
    }
}

/// Returns the digests of all messages, loop by loop in the order in which the loops begin: the
/// order in which a stored session is read.
fn in_order_of_loops(calls: &[Call]) -> Vec<Digest> {
    let mut order: Vec<&LoopId> = Vec::new();
    let mut of_loop: HashMap<&LoopId, Vec<Digest>> = HashMap::new();
    for call in calls {
        match call {
            Call::Loop(record) if !of_loop.contains_key(&record.loop_id) => {
                order.push(&record.loop_id);
                of_loop.insert(&record.loop_id, Vec::new());
            }
            Call::Message(loop_key, _, digest, _) => {
                of_loop.entry(loop_key).or_default().push(*digest);
            }
            _ => {}
        }
    }
    let digests = order.into_iter().filter_map(|id| of_loop.remove(id));
    digests.flatten().collect()
}
