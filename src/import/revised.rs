//! Messages that come back changed: kept beside the sealed ones, written over the open turn.

use std::collections::HashSet;
use std::ops::ControlFlow;

use super::matching::Digest;
use super::writer::StoreSink;
use crate::model::{AgentMessage, Json, LoopId, Role};
use crate::store::append::{self, NewMessage};
use crate::store::{StoreResult, decode};

impl StoreSink<'_> {
    /// Keeps a message that is not what is stored in its place.
    pub(super) fn changed(
        &mut self,
        at: usize,
        in_loop: &LoopId,
        seq: u32,
        message: AgentMessage,
        origin: Digest,
    ) -> StoreResult<()> {
        self.flush()?;
        let Some(key) = self.loop_key(at, in_loop) else {
            return Ok(());
        };
        if seq >= self.write.loop_by_key(key)?.totals.sealed_seq {
            return self.replace_turn(at, in_loop, seq, message, origin);
        }
        let digest = self.digests.revised(seq, &origin);
        let known = self.sessions[at].loops.get_mut(in_loop);
        if !known.is_some_and(|state| state.stored.revised.insert(digest)) {
            return Ok(());
        }
        let Ok(data) = data(seq, &message) else {
            let reason = format!("a changed message of loop `{in_loop}` nests too deeply");
            self.report.skip(&self.from.path, None, reason);
            return Ok(());
        };
        self.report.revised += 1;
        let new = NewMessage {
            message: AgentMessage::extension("revised", data),
            origin: Some(digest),
        };
        self.queue(at, in_loop, new, 0)
    }

    /// Writes the last turn again, with `message` instead of the one at `seq` and without what
    /// the transcript had after it.
    fn replace_turn(
        &mut self,
        at: usize,
        in_loop: &LoopId,
        seq: u32,
        message: AgentMessage,
        origin: Digest,
    ) -> StoreResult<()> {
        let Some(state) = self.sessions[at].loops.get_mut(in_loop) else {
            return Ok(());
        };
        let row = self.write.loop_by_key(state.key)?;
        let last = row.totals.turns.saturating_sub(1);
        let first = self
            .write
            .turn(state.key, last)?
            .map_or(seq, |turn| turn.first_seq);
        let gone: HashSet<u32> = state.stored.places[state.next - 1..]
            .iter()
            .map(|(seq, _)| *seq)
            .collect();
        let (mut turn, mut after) = (Vec::new(), Vec::new());
        let read = &*self.write;
        read.messages(state.key, first..row.totals.next_seq, &mut |row| {
            let list = if row.seq < seq { &mut turn } else { &mut after };
            if !gone.contains(&row.seq) {
                list.push(NewMessage {
                    origin: row.origin,
                    message: decode(read, row.body)?,
                });
            }
            Ok(ControlFlow::Continue(()))
        })?;
        self.report.added_messages += u64::from(message.role() != Role::Extension);
        turn.push(NewMessage {
            message,
            origin: Some(origin),
        });
        turn.extend(after);
        state.stored.places.truncate(state.next - 1);
        let key = state.key;
        self.sessions[at].is_changed = true;
        self.reopen(key)?;
        append::replace_last_turn(self.write, key, turn, self.counter)?;
        Ok(())
    }
}

/// Returns `{"seq":…,"message":…}`.
fn data(seq: u32, message: &AgentMessage) -> serde_json::Result<Json> {
    let message = serde_json::to_string(message)?;
    Json::parse(&format!("{{\"seq\":{seq},\"message\":{message}}}"))
}
