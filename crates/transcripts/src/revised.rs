//! Messages that differ from their stored version. A changed message of a sealed turn is kept in an extension; one of
//! the open turn is replaced. If an answer only grew, the rest is appended as an answer of its own.

use std::ops::ControlFlow;

use loopstore::extend::append::NewMessage;
use loopstore::extend::{LoopKey, StoreResult, append, decode};
use loopstore::internal::record_appended_compactions;
use loopstore::model::{AgentMessage, Extra, Int, Json, LlmMessage, LoopId, Message, Role, Usage};
use loopstore_model::extension_kinds;

use super::identity::{Fate, newest_loop};
use super::matching::{RecordDigest, is_revised};
use super::pending::PendingMessage;
use super::writer::StoreSink;

impl StoreSink<'_> {
    /// Handles a message that is another state of a stored one.
    pub(super) fn changed(
        &mut self,
        at: usize,
        loop_id: &LoopId,
        fate: Fate,
        message: AgentMessage,
        origin: RecordDigest,
    ) -> StoreResult<()> {
        self.flush()?;
        let (Some(key), Some(seq)) = (self.loop_key(at, loop_id), fate.seq()) else {
            return Ok(());
        };
        if self.mask(at, (loop_id, key, seq), &message)? {
            return Ok(());
        }
        let may_replace = matches!(
            fate,
            Fate::Later {
                may_replace: true,
                ..
            }
        );
        if may_replace && self.may_replace(key, seq)? {
            return self.replace_turn(at, loop_id, seq, message, origin);
        }
        let digest = self.digests.revised(seq, &origin);
        let state = self.sessions[at].loops.get_mut(loop_id);
        let known = state.and_then(|state| state.known.as_mut());
        if !known.is_some_and(|known| known.revised.insert(digest)) {
            return Ok(());
        }
        if let Fate::Later { .. } = fate
            && let Some(rest) = self.rest(key, seq, &message)?
        {
            self.report.added_messages += 1;
            self.sessions[at].current.grows();
            return self.queue(at, loop_id, rest.into(), digest, 0);
        }
        let Ok(data) = data(seq, &message) else {
            let reason = format!("a changed message of loop `{loop_id}` nests too deeply");
            self.report.skip(&self.from.path, None, reason);
            return Ok(());
        };
        self.report.revised += 1;
        let note = AgentMessage::extension(extension_kinds::REVISED, data);
        self.queue(at, loop_id, note.into(), digest, 0)
    }

    /// True if a message may still be replaced: it is in the last turn of its loop, and that turn is in flight, or
    /// nothing comes after it.
    fn may_replace(&self, key: LoopKey, seq: u32) -> StoreResult<bool> {
        let row = self.write.loop_by_key(key)?;
        let last = match row.totals.turns.checked_sub(1) {
            Some(turn) => self.write.turn(key, turn)?,
            None => None,
        };
        if seq < row.totals.sealed_seq || last.is_none_or(|turn| seq < turn.first_seq) {
            return Ok(false);
        }
        let is_in_flight = row.totals.complete < row.totals.turns;
        Ok(is_in_flight || newest_loop(&*self.write, row.session)? == Some(key))
    }

    /// Returns the part by which an answer of the last turn has grown, as an answer of its own.
    ///
    /// Some tools write an answer block by block, so a transcript can end within one. The part that was imported then
    /// looks complete and is sealed, but calls that follow are not a revision: without them their results would have no
    /// call.
    fn rest(
        &self,
        key: LoopKey,
        seq: u32,
        new: &AgentMessage,
    ) -> StoreResult<Option<AgentMessage>> {
        let AgentMessage::Llm(LlmMessage {
            message: Message::Assistant(answer),
            ..
        }) = new
        else {
            return Ok(None);
        };
        let totals = self.write.loop_by_key(key)?.totals;
        let (read, mut known) = (&*self.write, Some(Vec::new()));
        let mut counted = Vec::new();
        read.messages(key, seq..totals.next_seq, &mut |row| {
            let is_part = row.seq == seq || row.origin.is_some_and(|origin| is_revised(&origin));
            if row.seq == seq && row.turn != totals.turns.checked_sub(1) {
                known = None;
                return Ok(ControlFlow::Break(()));
            }
            if is_part && row.body.role == Role::Assistant {
                let part = decode(read, row.body)?;
                counted.extend(usage_of(&part).cloned());
                let content = part.message().map(Message::content).unwrap_or_default();
                known.get_or_insert_default().extend_from_slice(content);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let rest = known
            .as_deref()
            .and_then(|known| answer.content.strip_prefix(known));
        let Some(rest) = rest.filter(|rest| !rest.is_empty()) else {
            return Ok(None);
        };
        let mut message = new.clone();
        if let Some(Message::Assistant(part)) = message.message_mut() {
            part.content = rest.to_vec();
            // The first tokens of the call were counted with an earlier part.
            let usage = part.usage.take();
            part.usage = usage.and_then(|usage| usage_beyond(usage, &counted));
        }
        Ok(Some(message))
    }

    /// Rewrites the last turn, with `message` instead of the one at `seq`, and without the messages that followed it in
    /// the transcript.
    fn replace_turn(
        &mut self,
        at: usize,
        loop_id: &LoopId,
        seq: u32,
        message: AgentMessage,
        origin: RecordDigest,
    ) -> StoreResult<()> {
        let Some(state) = self.sessions[at].loops.get_mut(loop_id) else {
            return Ok(());
        };
        let row = self.write.loop_by_key(state.key)?;
        let last = row.totals.turns.saturating_sub(1);
        let first = self
            .write
            .turn(state.key, last)?
            .map_or(seq, |turn| turn.first_seq);
        let Some(known) = state.known.as_mut() else {
            return Ok(());
        };
        known.replaced_from = Some(seq);
        // The transcript contains another state of these messages.
        let is_gone = |other: u32| other >= seq && known.matched.contains(&other);
        let (mut turn, mut after) = (Vec::new(), Vec::new());
        let read = &*self.write;
        read.messages(state.key, first..row.totals.next_seq, &mut |row| {
            let list = if row.seq < seq { &mut turn } else { &mut after };
            if !is_gone(row.seq) {
                list.push(NewMessage {
                    origin: row.origin,
                    message: decode(read, row.body)?,
                });
            }
            Ok(ControlFlow::Continue(()))
        })?;
        self.report.added_messages += u64::from(message.role() != Role::Extension);
        let message = PendingMessage::from(message);
        let (edits, created_at) = (message.applied_edits(), message.created_at());
        let message = message.into_message()?;
        turn.push(NewMessage {
            message,
            origin: Some(origin),
        });
        turn.extend(after);
        let key = state.key;
        self.sessions[at].is_changed = true;
        self.reopen(key)?;
        if let Some((report, response)) = edits {
            self.record_report(
                at,
                (loop_id, key),
                (&report, response.as_deref(), created_at),
            )?;
        }
        let appended =
            append::replace_turn(self.write, key, turn, self.counter, None, self.last_turn)?;
        let sealed = record_appended_compactions(self.write, self.counter, &appended.compactions)?;
        self.report.compactions.extend(sealed);
        Ok(())
    }
}

/// Returns the token usage of an answer, if it has one.
fn usage_of(message: &AgentMessage) -> Option<&Usage> {
    match message.message()? {
        Message::Assistant(answer) => answer.usage.as_ref(),
        _ => None,
    }
}

/// Returns the usage of a call beyond what was counted before; `None` if there is none. Some tools record counts while
/// an answer is written; the last count is the total.
fn usage_beyond(usage: Usage, counted: &[Usage]) -> Option<Usage> {
    if counted.is_empty() {
        return Some(usage);
    }
    let rest = |of: &dyn Fn(&Usage) -> i64| {
        let before: i64 = counted.iter().map(of).fold(0, i64::saturating_add);
        of(&usage).saturating_sub(before).max(0)
    };
    let part = |of: fn(&Usage) -> &Option<Int>| {
        let tokens = rest(&|usage| of(usage).as_ref().map_or(0, Int::get));
        (tokens > 0).then(|| Int::from(tokens))
    };
    let (input, output) = (
        rest(&|usage| usage.input.get()),
        rest(&|usage| usage.output.get()),
    );
    let beyond = Usage {
        input: input.into(),
        output: output.into(),
        reasoning: part(|usage| &usage.reasoning),
        cache_read: part(|usage| &usage.cache_read),
        cache_write: part(|usage| &usage.cache_write),
        total_tokens: None,
        extra: Extra::default(),
    };
    let is_any =
        input > 0 || output > 0 || beyond.cache_read.is_some() || beyond.cache_write.is_some();
    is_any.then_some(beyond)
}

/// Returns the data of the extension: `{"seq":…,"message":…}`.
fn data(seq: u32, message: &AgentMessage) -> serde_json::Result<Json> {
    let message = serde_json::to_string(message)?;
    Json::parse(&format!("{{\"seq\":{seq},\"message\":{message}}}"))
}
