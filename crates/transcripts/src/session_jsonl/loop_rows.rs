//! Loops with their turns, messages, notes and started calls.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use loopstore::extend::scan::MessagePlace;
use loopstore::extend::{
    Blob, CallRow, CallSite, LoopCore, LoopKey, LoopMeta, LoopProgress, LoopRow, LoopTotals,
    MessageRow, Note, StoreRead, StoreResult, StoredMessage, TurnRow, codec,
};
use loopstore::model::{AgentMessage, LoopStatus, Role};
use loopstore::tokens::TokenCounter;
use serde_json::value::RawValue;

use super::form::*;
use super::redacted::salt_of;
use super::restore::{Age, RestoreStage, SessionTarget};
use super::wrong;
use crate::ImportError;
use crate::fields::{reason, shown};

/// The loop that is being restored.
pub(super) struct RestoredLoop {
    key: LoopKey,
    line: LoopLine,
    /// The stored row; `None` if the loop is new.
    stored: Option<LoopRow>,
    /// The number of stored messages that stay.
    kept: u32,
    kept_turns: u32,
    /// After this number of messages, the chain of digests must have this value.
    check: (u32, [u8; 32]),
    /// Stored messages that were redacted.
    redacted: BTreeSet<u32>,
    /// Digests of unsealed messages, which are restored again or were replaced.
    removed: Vec<[u8; 32]>,
    seq: u32,
    turn: u32,
    chain: [u8; 32],
    notes: Vec<Note>,
}

impl RestoredLoop {
    /// Checks that a record belongs to this loop.
    fn check_loop(&self, id: &loopstore::model::LoopId) -> Result<(), ImportError> {
        match *id == self.line.loop_id {
            true => Ok(()),
            false => Err(wrong(format!(
                "it belongs to loop `{}` but is listed in loop `{}`",
                shown(id.as_str()),
                shown(self.line.loop_id.as_str())
            ))),
        }
    }
}

impl SessionTarget<'_> {
    pub(super) fn one_loop(&mut self, line: LoopLine) -> Result<(), ImportError> {
        self.enter_stage(RestoreStage::Loops)?;
        if self.open.loops.contains_key(&line.loop_id) {
            return Err(wrong("the loop appears twice"));
        }
        let id = line.loop_id.clone();
        let open = match self.write.loop_by_id(self.open.key, &id)? {
            Some(stored) => self.known_loop(stored, line)?,
            None => self.new_loop(line)?,
        };
        self.open.seen.loops += 1;
        self.open.loops.insert(id, open.key);
        self.open.loop_key = Some(open);
        Ok(())
    }

    fn new_loop(&mut self, line: LoopLine) -> Result<RestoredLoop, ImportError> {
        if !self.open.grows() {
            let id = shown(line.loop_id.as_str());
            return Err(self.open.diverged(&format!("loop `{id}` is not there")));
        }
        let mut row = self.row_of(&line)?;
        row.totals = LoopTotals::default();
        row.progress = LoopProgress::default();
        let key = self.write.insert_loop(&row, &meta_of(&line))?;
        self.open.is_changed = true;
        Ok(RestoredLoop {
            key,
            line,
            stored: None,
            kept: 0,
            kept_turns: 0,
            check: (0, [0; 32]),
            redacted: BTreeSet::new(),
            removed: Vec::new(),
            seq: 0,
            turn: 0,
            chain: [0; 32],
            notes: Vec::new(),
        })
    }

    /// Continues a stored loop. If the file is newer, the unsealed messages are restored from it.
    fn known_loop(&mut self, stored: LoopRow, line: LoopLine) -> Result<RestoredLoop, ImportError> {
        let wanted = self.row_of(&line)?;
        let place = |row: &LoopRow| (row.tick, row.parent, row.parent_turn, row.parent_seq);
        if place(&stored) != place(&wanted) {
            let id = shown(line.loop_id.as_str());
            return Err(self.open.diverged(&format!("loop `{id}` began elsewhere")));
        }
        let redacted = self.redacted_of(&stored)?;
        let (mut kept, mut kept_turns) = (stored.totals.next_seq, stored.totals.turns);
        let mut removed = Vec::new();
        if self.open.grows() && stored.progress.chain != wanted.progress.chain {
            (kept, kept_turns, removed) = self.unsealed(&stored)?;
        }
        if self.open.age == Age::Older {
            kept = line.sealed_seq.min(line.next_seq);
        }
        let check = (kept, chain_at(self.write, stored.key, kept)?);
        Ok(RestoredLoop {
            redacted,
            key: stored.key,
            line,
            stored: Some(stored),
            kept,
            kept_turns,
            check,
            removed,
            seq: 0,
            turn: 0,
            chain: [0; 32],
            notes: Vec::new(),
        })
    }

    /// Removes the unsealed messages. Returns the numbers of messages and turns that stay, and the digests of the
    /// removed messages.
    fn unsealed(&mut self, stored: &LoopRow) -> Result<(u32, u32, Vec<[u8; 32]>), ImportError> {
        let (key, totals) = (stored.key, &stored.totals);
        let (sealed, mut turns) = (totals.sealed_seq, totals.turns);
        if let Some(last) = turns.checked_sub(1)
            && let Some(row) = self.write.turn(key, last)?
            && row.first_seq >= sealed
        {
            turns = last;
        }
        let mut removed = Vec::new();
        self.write
            .messages(key, sealed..totals.next_seq, &mut |row| {
                removed.push(row.body.digest);
                Ok(ControlFlow::Continue(()))
            })?;
        if !removed.is_empty() {
            self.write.remove_unsealed(key, sealed, turns)?;
            self.open.is_changed = true;
        }
        Ok((sealed.min(totals.next_seq), turns, removed))
    }

    fn row_of(&self, line: &LoopLine) -> Result<LoopRow, ImportError> {
        let parent = line.parent.as_ref();
        let parent = parent.map(|id| self.open.loop_key(id)).transpose()?;
        Ok(LoopRow {
            core: LoopCore {
                key: LoopKey::default(),
                session: self.open.key,
                loop_id: line.loop_id.clone(),
                parent,
                parent_turn: line.parent_turn,
                parent_seq: line.parent_seq,
                status: line.status.clone(),
                totals: LoopTotals {
                    next_seq: line.next_seq,
                    sealed_seq: line.sealed_seq,
                    turns: line.turns,
                    complete: line.complete,
                    messages: line.messages,
                    tokens: line.tokens,
                    bytes: line.bytes,
                    generation: line.generation,
                    reported: None,
                },
                edits: 0,
            },
            parent_loop_id: line.parent_loop_id.clone(),
            kind: line.kind.get().to_owned(),
            started_at: line.started_at.clone(),
            ended_at: line.ended_at.clone(),
            tick: line.tick,
            progress: LoopProgress {
                system_tokens: line.system_tokens,
                last_turn_index: line.last_turn_index,
                open_calls: line.open_calls.clone(),
                chain: codec::unhex(&line.chain)
                    .ok_or_else(|| wrong("its chain is not a digest"))?,
            },
        })
    }

    pub(super) fn turn(&mut self, line: TurnLine) -> Result<(), ImportError> {
        let answers = line.answers.iter().map(|site| {
            Ok(CallSite {
                loop_key: self.open.loop_key(&site.loop_id)?,
                turn: site.turn,
            })
        });
        let answers = answers.collect::<Result<Vec<_>, ImportError>>()?;
        let grows = self.open.grows();
        let open = self.loop_key()?;
        open.check_loop(&line.loop_id)?;
        if line.turn != open.turn || open.seq > 0 {
            return Err(wrong(format!("turn {} is out of order", line.turn)));
        }
        open.turn += 1;
        // The last turn that stays may have grown.
        if !grows || line.turn.saturating_add(1) < open.kept_turns {
            return Ok(());
        }
        let key = open.key;
        let row = TurnRow {
            turn: line.turn,
            first_seq: line.first_seq,
            messages: line.messages,
            prompts: line.prompts,
            tokens: line.tokens,
            bytes: line.bytes,
            turn_index: line.turn_index,
            answered: line.answered,
            answers,
            tick: line.tick,
            started_at: line.started_at,
            ended_at: line.ended_at,
        };
        if self.write.turn(key, line.turn)?.as_ref() != Some(&row) {
            self.write.put_turn(key, &row)?;
            self.open.is_changed = true;
        }
        Ok(())
    }

    fn loop_key(&mut self) -> Result<&mut RestoredLoop, ImportError> {
        let none = || wrong("it does not belong to a loop");
        self.open.loop_key.as_mut().ok_or_else(none)
    }

    pub(super) fn message(&mut self, line: MessageLine<Box<RawValue>>) -> Result<(), ImportError> {
        if line.session != *self.open.id() {
            let id = shown(line.session.as_str());
            return Err(wrong(format!("it belongs to another session, `{id}`")));
        }
        let grows = self.open.grows();
        let open = self.loop_key()?;
        open.check_loop(&line.loop_id)?;
        if line.seq != open.seq || line.seq >= open.line.next_seq {
            return Err(wrong(format!("message {} is out of order", line.seq)));
        }
        let digest: [u8; 32] =
            codec::unhex(&line.digest).ok_or_else(|| wrong("its digest is malformed"))?;
        let stamp = line.created_at.filter(|_| line.stamped);
        open.chain = codec::chain(&open.chain, &digest, stamp);
        open.seq += 1;
        if open.check.0 == open.seq && open.check.1 != open.chain {
            let id = shown(open.line.loop_id.as_str());
            let detail = format!("loop `{id}` has other messages");
            return Err(self.open.diverged(&detail));
        }
        let is_new = grows && line.seq >= open.kept;
        let is_again = open.removed.contains(&digest);
        let (key, chain) = (open.key, open.chain);
        let (here, there) = (open.redacted.contains(&line.seq), line.salt.is_none());
        if line.message.is_some() && (here || line.seq < open.check.0) {
            self.compare_redaction(here, there)?;
        }
        if !is_new {
            return Ok(());
        }
        let (body, blobs) = body_of(
            line.message.as_deref(),
            line.salt.as_deref(),
            digest,
            self.counter,
        )?;
        self.report.added_messages += u64::from(body.role != Role::Extension && !is_again);
        let row = MessageRow {
            seq: line.seq,
            turn: line.turn,
            tick: line.tick,
            body,
            created_at: line.created_at,
            origin: self
                .origins
                .and_then(|origins| origins.get(&digest).copied()),
            chain,
        };
        self.write.insert_message(key, &row, &blobs)?;
        let place = MessagePlace::InLoop(key, line.seq);
        self.note_redacted(place, (line.loop_id, None), &row.body)?;
        self.open.is_changed = true;
        Ok(())
    }

    pub(super) fn note(&mut self, line: NoteLine) -> Result<(), ImportError> {
        let open = self.loop_key()?;
        open.check_loop(&line.loop_id)?;
        let note = match (line.event, line.turn) {
            (Some(event), None) => Note::Event(event.get().to_owned()),
            (None, Some(turn)) => Note::Turn(turn.get().to_owned()),
            _ => return Err(wrong("a note must belong to an event or a turn")),
        };
        open.notes.push(note);
        Ok(())
    }

    pub(super) fn call(&mut self, line: CallLine) -> Result<(), ImportError> {
        let open = self.loop_key()?;
        open.check_loop(&line.loop_id)?;
        let row = CallRow {
            loop_key: open.key,
            call_id: line.call_id,
            nth: line.nth,
            tool_name: line.tool_name,
            arguments: line.arguments.map(|json| json.get().to_owned()),
            idempotency_key: line.idempotency_key,
            turn_index: line.turn_index,
            started_at: line.started_at,
            attempts: line.attempts,
            finished_at: line.finished_at,
        };
        let stored = self.write.calls(row.loop_key, &row.call_id)?;
        match stored.iter().find(|stored| stored.nth == row.nth) {
            None => self.write.insert_call(&row)?,
            Some(stored) if is_earlier(stored, &row) => self.write.update_call(&row)?,
            Some(_) => return Ok(()),
        }
        self.open.is_changed = true;
        Ok(())
    }

    /// Ends the current loop and checks that all of its lines were read.
    pub(super) fn close_loop(&mut self) -> Result<(), ImportError> {
        let Some(open) = self.open.loop_key.take() else {
            return Ok(());
        };
        let (line, id) = (&open.line, shown(open.line.loop_id.as_str()));
        let (has, should) = ((open.turn, open.seq), (line.turns, line.next_seq));
        if has != should {
            return Err(wrong(format!(
                "loop `{id}` has {} turns and {} messages instead of {} and {}",
                has.0, has.1, should.0, should.1
            )));
        }
        if open.check.0 > open.seq {
            let detail = format!("loop `{id}` has more messages");
            return Err(self.open.diverged(&detail));
        }
        self.report.loops += 1;
        self.report.turns += u64::from(line.turns);
        self.report.messages += line.messages;
        if self.takes_row(&open) {
            self.loop_row(&open)?;
            self.notes(&open)?;
        }
        Ok(())
    }

    /// True if the row of a loop in the file is newer. The end of a loop has no tick of its own.
    fn takes_row(&self, open: &RestoredLoop) -> bool {
        let ended = |status: &LoopStatus| status.is_ended();
        match &open.stored {
            Some(stored) if self.open.age == Age::Same => {
                !ended(&stored.status) || ended(&open.line.status)
            }
            _ => self.open.grows(),
        }
    }

    fn loop_row(&mut self, open: &RestoredLoop) -> Result<(), ImportError> {
        let mut wanted = self.row_of(&open.line)?;
        wanted.key = open.key;
        let stored = self.write.loop_by_key(open.key)?;
        let sealed = &mut wanted.totals.sealed_seq;
        *sealed = stored.totals.sealed_seq.max(*sealed);
        if stored != wanted {
            self.write.update_loop(&wanted)?;
            self.open.is_changed = true;
        }
        let meta = meta_of(&open.line);
        if self.write.loop_meta(open.key)? != meta {
            self.write.update_loop_meta(open.key, &meta)?;
            self.open.is_changed = true;
        }
        Ok(())
    }

    fn notes(&mut self, open: &RestoredLoop) -> StoreResult<()> {
        let stored = self.write.notes(open.key)?;
        if stored == open.notes {
            return Ok(());
        }
        self.open.is_changed = true;
        let known = open.notes.starts_with(&stored);
        if !known {
            self.write.remove_notes(open.key)?;
        }
        let from = if known { stored.len() } else { 0 };
        let mut new = open.notes[from..].iter();
        new.try_for_each(|note| self.write.insert_note(open.key, note))
    }
}

/// True if a stored call is in an earlier state than the incoming one.
fn is_earlier(stored: &CallRow, incoming: &CallRow) -> bool {
    let progress = |row: &CallRow| (row.finished_at.is_some(), row.attempts);
    progress(stored) < progress(incoming)
}

fn meta_of(line: &LoopLine) -> LoopMeta {
    LoopMeta {
        meta: line.meta.get().to_owned(),
        history: line.history.as_ref().map(|json| json.get().to_owned()),
    }
}

/// Returns the chain of digests through the first `messages` messages of a loop.
fn chain_at(read: &dyn StoreRead, key: LoopKey, messages: u32) -> StoreResult<[u8; 32]> {
    let mut chain = [0; 32];
    if let Some(last) = messages.checked_sub(1) {
        read.messages(key, last..messages, &mut |row| {
            chain = row.chain;
            Ok(ControlFlow::Break(()))
        })?;
    }
    Ok(chain)
}

/// Returns the stored form of a message, whose digest must be that of the line. A message without a salt was redacted:
/// its digest is that of the removed content.
pub(super) fn body_of(
    message: Option<&RawValue>,
    salt: Option<&str>,
    digest: [u8; 32],
    counter: &dyn TokenCounter,
) -> Result<(StoredMessage, Vec<Blob>), ImportError> {
    let Some(message) = message else {
        return Err(wrong(
            "its content was removed, so its digest cannot be checked",
        ));
    };
    let salt = salt_of(salt)?;
    let message: AgentMessage =
        serde_json::from_str(message.get()).map_err(|error| wrong(reason(error)))?;
    let (mut body, blobs) = codec::encode(message, counter)?;
    body.salt = salt;
    let Some(salt) = salt else {
        body.digest = digest;
        return Ok((body, blobs));
    };
    let (head, text) = (
        body.head.as_deref().unwrap_or_default(),
        body.text.as_deref(),
    );
    body.digest = codec::message_digest(&salt, body.role, head, body.text_block, text);
    match body.digest == digest {
        true => Ok((body, blobs)),
        false => Err(wrong("the message does not fit its digest")),
    }
}
