//! Sessions without ids: they wait until they are complete, and are then matched with earlier
//! imports of the same record.

use std::collections::HashMap;

use super::matching::{Digest, common_prefix, made_id};
use super::pipeline::SinkCall;
use super::writer::{Origin, StoreSink};
use super::{ImportError, SessionHead};
use crate::model::{LoopId, SessionId};
use crate::store::StoreResult;
use crate::store::session::is_hidden;

/// A session without an id: what it is shows only when all of it is there.
pub(super) struct DeferredSession {
    pub(super) head: SessionHead,
    pub(super) key: RecordKey,
    pub(super) calls: Vec<SinkCall>,
}

/// What a session without an id is known by, besides its format.
#[derive(Clone)]
pub(super) struct RecordKey {
    /// Empty if the name says nothing.
    pub(super) file_name: String,
    pub(super) key: String,
}

impl StoreSink<'_> {
    /// Finds out which session the deferred one is, and writes it.
    pub(super) fn settle(&mut self) -> Result<(), ImportError> {
        let Some(deferred) = self.deferred.take() else {
            return Ok(());
        };
        let DeferredSession { head, key, calls } = deferred;
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
        for mut call in calls {
            if let SinkCall::Loop(record) = &mut call
                && record.session_id.is_some()
            {
                record.session_id = Some(id.clone());
            }
            call.send_to(self)?;
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
    fn known(&self, key: &RecordKey, calls: &[SinkCall]) -> StoreResult<Option<SessionId>> {
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
            // What was hidden is not gone on with.
            if self.by_id.contains_key(&row.session_id) || is_hidden(self.write.as_read(), session)?
            {
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
fn in_order_of_loops(calls: &[SinkCall]) -> Vec<Digest> {
    let mut order: Vec<&LoopId> = Vec::new();
    let mut of_loop: HashMap<&LoopId, Vec<Digest>> = HashMap::new();
    for call in calls {
        match call {
            SinkCall::Loop(record) if !of_loop.contains_key(&record.loop_id) => {
                order.push(&record.loop_id);
                of_loop.insert(&record.loop_id, Vec::new());
            }
            SinkCall::Message(loop_key, _, digest, _) => {
                of_loop.entry(loop_key).or_default().push(*digest);
            }
            _ => {}
        }
    }
    let digests = order.into_iter().filter_map(|id| of_loop.remove(id));
    digests.flatten().collect()
}
