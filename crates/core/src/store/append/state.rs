//! An append in progress: turns and totals as they grow with each message.

use super::calls::call_above;
use super::{AppendedCompaction, AppendedMessages, LastTurn, finalize_turns_with, missing_turn};
use crate::model::{AgentMessage, GroupCursor, LoopRecord, LoopStatus, Role, Time};
use crate::store::encoded::EncodedMessage;
use crate::store::error::{StoreError, StoreResult};
use crate::store::{
    AppendState, CallSite, LoopCore, LoopKey, LoopProgress, LoopTotals, MessageRow, ReportedTokens,
    SessionActivity, StoreWrite, StoredMessage, TurnRow,
};
use crate::store::{codec, session};

/// The state of an append in progress.
pub(super) struct Append {
    pub(super) row: LoopCore,
    pub(super) progress: LoopProgress,
    session: SessionActivity,
    /// The last turn so far.
    pub(super) turn: Option<TurnRow>,
    cursor: GroupCursor,
    /// True if `turn` differs from its stored row.
    dirty: bool,
    /// True if the tick was raised already.
    ticked: bool,
    compactions: Vec<AppendedCompaction>,
    stamp: DefaultTime,
    /// The newest time of the messages appended, in milliseconds since the epoch.
    newest: Option<i64>,
}

/// The time of messages that have no time of their own, in milliseconds since the epoch. `None` for an import, since
/// its time is not the time of its messages.
pub type DefaultTime = Option<i64>;

impl Append {
    pub(super) fn begin(state: AppendState, stamp: DefaultTime) -> StoreResult<Self> {
        let turns = state.row.totals.turns;
        let cursor = match &state.last {
            Some(turn) => GroupCursor::after(turn.turn_index),
            None if turns == 0 => GroupCursor::default(),
            None => return Err(missing_turn(turns - 1)),
        };
        Ok(Self {
            row: state.row,
            progress: state.progress,
            session: state.session,
            turn: state.last,
            cursor,
            dirty: false,
            ticked: false,
            compactions: Vec::new(),
            stamp,
            newest: None,
        })
    }

    pub(super) fn push(
        &mut self,
        write: &mut dyn StoreWrite,
        new: EncodedMessage,
    ) -> StoreResult<()> {
        if new.body.role != Role::Extension {
            self.enter_turn(write, new.turn_index)?;
            self.follow_calls(write, &new)?;
        }
        if !self.ticked {
            self.raise_tick();
        }
        let stamp = self.stamp.filter(|_| new.created_at.is_none());
        let created_at = new.created_at.or(stamp);
        self.newest = self.newest.max(created_at);
        self.count(&new.body, new.is_system, created_at);
        if let Some(tokens) = new.reported {
            let seq = self.row.totals.next_seq;
            self.row.totals.reported = Some(ReportedTokens { seq, tokens });
        }
        if let Some(provider) = new.compaction {
            self.compactions.push(AppendedCompaction {
                loop_key: self.row.key,
                seq: self.row.totals.next_seq,
                provider,
            });
        }
        let EncodedMessage {
            body,
            blobs,
            origin,
            ..
        } = new;
        let totals = &mut self.row.totals;
        self.progress.chain = codec::chain(&self.progress.chain, &body.digest, stamp);
        let row = MessageRow {
            seq: totals.next_seq,
            turn: totals.turns.checked_sub(1),
            tick: self.session.tick,
            body,
            created_at,
            origin,
            chain: self.progress.chain,
        };
        totals.next_seq = totals
            .next_seq
            .checked_add(1)
            .ok_or_else(|| StoreError::Invalid("a loop can hold at most 2^32 messages".into()))?;
        write.insert_message(self.row.key, &row, &blobs)
    }

    fn raise_tick(&mut self) {
        self.session.tick += 1;
        self.ticked = true;
    }

    /// Begins a new turn group if this message begins one.
    fn enter_turn(
        &mut self,
        write: &mut dyn StoreWrite,
        turn_index: Option<i64>,
    ) -> StoreResult<()> {
        if !self.cursor.begins(turn_index) && self.turn.is_some() {
            return Ok(());
        }
        self.flush(write)?;
        self.raise_tick();
        let before = self.turn.take().unwrap_or_default();
        self.turn = Some(TurnRow {
            turn: self.row.totals.turns,
            first_seq: self.row.totals.next_seq,
            turn_index,
            answered: false,
            answers: Vec::new(),
            started_at: None,
            ended_at: None,
            ..before
        });
        self.row.totals.turns += 1;
        self.progress.last_turn_index = turn_index;
        Ok(())
    }

    /// Keeps track of calls without a result, and of results that answer another turn's call.
    fn follow_calls(&mut self, read: &dyn StoreWrite, new: &EncodedMessage) -> StoreResult<()> {
        let Some(turn) = self.turn.as_mut() else {
            return Ok(());
        };
        let calls = &mut self.progress.open_calls;
        for id in &new.calls {
            calls.insert(id.clone(), turn.turn);
        }
        let Some(id) = &new.answers else {
            return Ok(());
        };
        let site = match calls.remove(id) {
            Some(made) if made == turn.turn => None,
            Some(made) => Some(CallSite {
                loop_key: self.row.key,
                turn: made,
            }),
            None => call_above(read, &self.row, id)?,
        };
        if let Some(site) = site.filter(|site| !turn.answers.contains(site)) {
            turn.answers.push(site);
        }
        Ok(())
    }

    fn count(&mut self, body: &StoredMessage, is_system: bool, created_at: Option<i64>) {
        if body.role == Role::Extension {
            self.progress.system_tokens += if is_system { body.tokens } else { 0 };
            return;
        }
        let totals = &mut self.row.totals;
        totals.messages += 1;
        totals.tokens += body.tokens;
        totals.bytes += body.bytes;
        let Some(turn) = self.turn.as_mut() else {
            return;
        };
        turn.messages = totals.messages;
        turn.tokens = totals.tokens;
        turn.bytes = totals.bytes;
        turn.prompts += u64::from(body.is_prompt());
        turn.answered |= body.role == Role::Assistant;
        turn.started_at = turn.started_at.or(created_at);
        turn.ended_at = created_at.or(turn.ended_at);
        turn.tick = self.session.tick;
        self.dirty = true;
    }

    fn flush(&mut self, write: &mut dyn StoreWrite) -> StoreResult<()> {
        if let (true, Some(turn)) = (self.dirty, &self.turn) {
            write.put_turn(self.row.key, turn)?;
        }
        self.dirty = false;
        Ok(())
    }

    pub(super) fn finish(
        mut self,
        write: &mut dyn StoreWrite,
        from: u32,
        last_turn: LastTurn,
    ) -> StoreResult<AppendedMessages> {
        self.write(write, from, last_turn)
    }

    /// Writes the appended state; no more messages may follow.
    pub(super) fn write(
        &mut self,
        write: &mut dyn StoreWrite,
        from: u32,
        last_turn: LastTurn,
    ) -> StoreResult<AppendedMessages> {
        self.flush(write)?;
        if self.row.totals.next_seq > from {
            finalize_turns_with(&mut self.row, &self.progress, self.turn.as_ref(), last_turn);
            write.update_totals(&self.row, &self.progress)?;
            self.note_activity();
            write.touch_session(&self.session)?;
        }
        let totals = &self.row.totals;
        Ok(AppendedMessages {
            seqs: from..totals.next_seq,
            turns: totals.turns,
            complete: totals.complete,
            tick: self.session.tick,
            compactions: std::mem::take(&mut self.compactions),
            notes: Vec::new(),
        })
    }

    /// Writes the appended state, ends the loop if it runs, and creates the loop `record` as its child.
    ///
    /// The session's row is written with the first append to the new loop, which must not stay empty.
    pub(super) fn go_on(
        &mut self,
        write: &mut dyn StoreWrite,
        from: u32,
        record: &LoopRecord,
    ) -> StoreResult<Self> {
        self.flush(write)?;
        let (runs, grew) = (!self.row.status.is_ended(), self.row.totals.next_seq > from);
        if runs {
            self.row.status = LoopStatus::Completed;
        }
        if runs || grew {
            let last = self.turn.as_ref();
            finalize_turns_with(&mut self.row, &self.progress, last, LastTurn::Final);
        }
        if runs {
            write.end_loop(&self.row, &self.progress, Time::now().as_str())?;
        } else if grew {
            write.update_totals(&self.row, &self.progress)?;
        }
        if grew {
            self.note_activity();
        }
        let mut session = self.session.clone();
        let next = session::add_loop_to(write, &mut session, record, Some(&self.row))?;
        let begun = AppendState {
            row: next.core,
            progress: next.progress,
            session,
            lease: None,
            last: None,
        };
        let mut next = Self::begin(begun, self.stamp)?;
        next.compactions = std::mem::take(&mut self.compactions);
        Ok(next)
    }

    /// Returns the current loop of the session before this append.
    pub(super) fn current_loop(&self) -> Option<LoopKey> {
        self.session.current_loop
    }

    /// Makes the loop the current one. The session was last active at the time of its newest message, not of
    /// the append.
    fn note_activity(&mut self) {
        self.session.current_loop = Some(self.row.key);
        let newest = self.newest.and_then(Time::sortable_from_millis);
        if newest > self.session.last_active_at {
            self.session.last_active_at = newest;
        }
    }
}

/// A rebuild of the turns and totals of a loop from its stored messages, one by one.
pub struct LoopRebuild {
    append: Append,
}

impl LoopRebuild {
    /// Begins with a loop without turns.
    pub fn begin(mut row: LoopCore, session: SessionActivity) -> Self {
        row.totals = LoopTotals {
            generation: row.totals.generation,
            // A block may have made more messages final than the complete turns have.
            sealed_seq: row.totals.sealed_seq,
            ..Default::default()
        };
        Self {
            append: Append {
                row,
                progress: LoopProgress::default(),
                session,
                turn: None,
                cursor: GroupCursor::default(),
                dirty: false,
                ticked: true,
                compactions: Vec::new(),
                stamp: None,
                newest: None,
            },
        }
    }

    /// Adds the next message, and returns its row with the values that depend on the messages before.
    pub fn push(
        &mut self,
        write: &mut dyn StoreWrite,
        row: MessageRow,
        message: &AgentMessage,
    ) -> StoreResult<MessageRow> {
        let append = &mut self.append;
        let ready = EncodedMessage::stored(message, row.body.clone());
        if ready.role() != Role::Extension {
            append.enter_turn(write, ready.turn_index)?;
            append.follow_calls(write, &ready)?;
        }
        append.session.tick = row.tick;
        let stamp = row.created_at.filter(|_| ready.created_at.is_none());
        let created_at = ready.created_at.or(stamp);
        append.count(&ready.body, ready.is_system, created_at);
        let (totals, progress) = (&mut append.row.totals, &mut append.progress);
        progress.chain = codec::chain(&progress.chain, &row.body.digest, stamp);
        totals.next_seq = row.seq.saturating_add(1);
        Ok(MessageRow {
            turn: totals.turns.checked_sub(1),
            created_at,
            chain: progress.chain,
            ..row
        })
    }

    /// Writes the last turn and the totals.
    pub fn finish(mut self, write: &mut dyn StoreWrite) -> StoreResult<()> {
        self.append.flush(write)?;
        let Append {
            row,
            progress,
            turn,
            ..
        } = &mut self.append;
        let totals = &mut row.totals;
        totals.sealed_seq = totals.sealed_seq.min(totals.next_seq);
        finalize_turns_with(row, progress, turn.as_ref(), LastTurn::Final);
        write.update_totals(row, progress)
    }
}
