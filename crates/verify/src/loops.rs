//! The messages of one loop: digests, the chain, counts, and the turns that they form.

use std::ops::ControlFlow;

use loopstore::extend::{
    LoopProgress, LoopRow, LoopTotals, MessageRow, StoreError, StoreResult, Tick, TurnRow, codec,
    scan::{BlobOwner, MessagePlace},
};
use loopstore::model::{AgentMessage, Message, Role};
use loopstore_model::GroupCursor;

use super::calls::CallBook;
use super::packs::Packs;
use super::report::{ProblemKind, Subject, short};
use super::sessions::SessionScope;
use super::stored::{check_digest, decoded};
use super::turns::{Turn, check_turn};
use super::verify::Verify;

/// Checks the messages, turns and totals of a loop.
pub(super) fn check(
    verify: &mut Verify<'_>,
    scope: &mut SessionScope,
    row: LoopRow,
    place: String,
) -> StoreResult<()> {
    let packs = Packs::of(verify, &row, &place)?;
    let mut walk = Walk {
        packs,
        tick: row.tick,
        chain: Some([0; 32]),
        cursor: Some(GroupCursor::default()),
        totals: LoopTotals::default(),
        progress: LoopProgress::default(),
        turn: None,
        before: Some(TurnRow::default()),
        calls: CallBook::default(),
        is_whole: true,
        scope,
        row,
        place,
        verify,
    };
    walk.messages()?;
    walk.close_turn()?;
    walk.finish()
}

/// The state of checking one loop, message by message.
struct Walk<'v, 'a> {
    verify: &'v mut Verify<'a>,
    scope: &'v mut SessionScope,
    row: LoopRow,
    place: String,
    /// The tick of the last message.
    tick: Tick,
    /// The chain through the last message; `None` after a gap.
    chain: Option<[u8; 32]>,
    /// `None` after a message whose turn index is not known: the turn column is then trusted.
    cursor: Option<GroupCursor>,
    totals: LoopTotals,
    progress: LoopProgress,
    turn: Option<Turn>,
    /// The stored row of the last closed turn; `None` if it cannot be read.
    before: Option<TurnRow>,
    calls: CallBook,
    packs: Packs,
    /// True while all content is known: no message is missing, unreadable or removed.
    is_whole: bool,
}

impl Walk<'_, '_> {
    /// Visits all messages; skips a message that cannot be read.
    fn messages(&mut self) -> StoreResult<()> {
        let (scan, key) = (self.verify.scan, self.row.key);
        loop {
            let from = self.totals.next_seq;
            let visited = scan.messages(key, from..u32::MAX, &mut |row| {
                self.message(row)?;
                Ok(ControlFlow::Continue(()))
            });
            let Err(error) = visited else { return Ok(()) };
            let StoreError::Damaged(detail) = error else {
                return Err(error);
            };
            let next = scan.next_message(key, self.totals.next_seq);
            let place = format!("{}, message {}", self.place, self.totals.next_seq);
            match self.verify.found.readable(place, next)? {
                Some(Some(seq)) => self.unreadable(seq, &detail),
                // Not even the key can be read, so the messages after it cannot be reached.
                _ => return Ok(()),
            }
        }
    }

    fn unreadable(&mut self, seq: u32, detail: &str) {
        let place = format!("{}, message {seq}", self.place);
        let kind = ProblemKind::Unreadable;
        self.verify.found.subject = Subject::Message(self.row.key, seq);
        self.verify.found.add(kind, place, detail);
        self.gap();
        self.totals.next_seq = seq.saturating_add(1);
    }

    /// Forgets the state that depends on the messages before.
    fn gap(&mut self) {
        self.is_whole = false;
        self.chain = None;
        self.cursor = None;
        if let Some(turn) = &mut self.turn {
            turn.is_whole = false;
        }
    }

    fn message(&mut self, row: MessageRow) -> StoreResult<()> {
        self.verify.found.checked.messages += 1;
        self.verify.found.subject = Subject::Message(self.row.key, row.seq);
        let place = format!("{}, message {}", self.place, row.seq);
        if row.seq != self.totals.next_seq {
            let (from, to) = (self.totals.next_seq, row.seq);
            let detail = match to.checked_sub(1) {
                Some(last) if last >= from => {
                    format!("messages {from} to {last} are missing before it")
                }
                // A page of the table was replaced by another one.
                _ => format!("it comes after message {}", from.saturating_sub(1)),
            };
            self.verify.found.add(ProblemKind::Sequence, &place, detail);
            self.gap();
        }
        self.totals.next_seq = self.totals.next_seq.max(row.seq.saturating_add(1));
        let stamp = self.check_chain(&row, &place)?;
        self.packs.check(self.verify, &row, &place)?;
        self.check_tick(&row, &place);
        let message = self.decode(&row, stamp, &place)?;
        let compaction = message.as_ref().and_then(AgentMessage::last_compaction);
        let sealed = compaction.map(|(_, by)| (self.row.loop_id.clone(), row.seq, by));
        self.scope.sealed.extend(sealed);
        self.place_in_turn(&row, message.as_ref(), &place)?;
        self.count(&row, message.as_ref());
        Ok(())
    }

    /// Returns the time that the store gave the message, if the chain contains one.
    fn check_chain(&mut self, row: &MessageRow, place: &str) -> StoreResult<Option<i64>> {
        let at = MessagePlace::InLoop(self.row.key, row.seq);
        check_digest(self.verify, self.scope, &row.body, at, place)?;
        let Some(before) = self.chain.replace(row.chain) else {
            // After a gap the source of the time is unknown.
            return Ok(row.created_at);
        };
        let derived = codec::chain(&before, &row.body.digest, None);
        if derived == row.chain {
            return Ok(None);
        }
        let stamped = codec::chain(&before, &row.body.digest, row.created_at);
        if stamped != row.chain {
            let detail = format!("{} should be {}", short(&row.chain), short(&derived));
            self.verify.found.add(ProblemKind::Chain, place, detail);
        }
        Ok(row.created_at)
    }

    fn check_tick(&mut self, row: &MessageRow, place: &str) {
        let is_first = self.totals.next_seq == 1;
        let rises = row.tick > self.tick || (row.tick == self.tick && !is_first);
        if !rises || row.tick > self.scope.tick {
            let detail = format!(
                "tick {} does not lie between {} before and {} of the session",
                row.tick, self.tick, self.scope.tick
            );
            self.verify.found.add(ProblemKind::Tick, place, detail);
        }
    }

    /// Decodes a message and compares it with its row; `stamp` is the time that the store gave the message.
    fn decode(
        &mut self,
        row: &MessageRow,
        stamp: Option<i64>,
        place: &str,
    ) -> StoreResult<Option<AgentMessage>> {
        if row.body.head.is_none() {
            return Ok(None);
        }
        let owner = BlobOwner::Message(self.row.key, row.seq);
        let Some(message) = decoded(self.verify, owner, &row.body, place)? else {
            return Ok(None);
        };
        let lines = codec::tool_result_lines(&message);
        let own = message.message().and_then(Message::timestamp);
        let created_at = own.or(stamp);
        let (found, kind) = (&mut self.verify.found, ProblemKind::Count);
        found.compare(kind, place, "author", &row.body.author, &message.author());
        found.compare(kind, place, "lines", &row.body.lines, &lines);
        found.compare(kind, place, "created_at", &row.created_at, &created_at);
        Ok(Some(message))
    }

    fn place_in_turn(
        &mut self,
        row: &MessageRow,
        message: Option<&AgentMessage>,
        place: &str,
    ) -> StoreResult<()> {
        let last_tick = std::mem::replace(&mut self.tick, row.tick);
        if row.body.role != Role::Extension && self.begins(row, message) {
            if last_tick == row.tick && self.totals.turns > 0 {
                let detail = "it begins a turn at the tick of the message before";
                self.verify.found.add(ProblemKind::Tick, place, detail);
            }
            self.open_turn(row, message)?;
        }
        let turn = self.totals.turns.checked_sub(1);
        let found = &mut self.verify.found;
        found.compare(ProblemKind::Turn, place, "turn", &row.turn, &turn);
        Ok(())
    }

    fn begins(&mut self, row: &MessageRow, message: Option<&AgentMessage>) -> bool {
        match (&mut self.cursor, message) {
            (Some(cursor), Some(message)) => cursor.begins(message.turn_index()),
            _ => {
                self.cursor = message.map(|message| GroupCursor::after(message.turn_index()));
                row.turn.is_some_and(|turn| turn >= self.totals.turns)
            }
        }
    }

    fn open_turn(&mut self, row: &MessageRow, message: Option<&AgentMessage>) -> StoreResult<()> {
        self.close_turn()?;
        // After a gap the turn column tells the number of skipped turns.
        let number = match row.turn {
            Some(turn) if !self.is_whole && turn > self.totals.turns => {
                self.before = None;
                turn
            }
            _ => self.totals.turns,
        };
        self.totals.turns = number.saturating_add(1);
        self.progress.last_turn_index = message.and_then(AgentMessage::turn_index);
        self.turn = Some(Turn {
            row: TurnRow {
                turn: number,
                first_seq: row.seq,
                turn_index: self.progress.last_turn_index,
                ..TurnRow::default()
            },
            calls_from_above: Vec::new(),
            began: row.tick,
            knows_calls: false,
            is_whole: message.is_some(),
        });
        Ok(())
    }

    /// Adds a message to the totals of its turn and loop.
    fn count(&mut self, row: &MessageRow, message: Option<&AgentMessage>) {
        self.is_whole &= message.is_some();
        let (tokens, bytes) = match message {
            Some(message) => (
                self.verify.counter.message_tokens(message),
                codec::json_bytes(message).unwrap_or(row.body.bytes),
            ),
            None => (row.body.tokens, row.body.bytes),
        };
        if row.body.role == Role::Extension {
            let is_system =
                matches!(message, Some(AgentMessage::Extension(e)) if e.kind == "system");
            self.progress.system_tokens += if is_system { tokens } else { 0 };
            return;
        }
        self.totals.messages += 1;
        self.totals.tokens = self.totals.tokens.saturating_add(tokens);
        self.totals.bytes = self.totals.bytes.saturating_add(bytes);
        let Some(turn) = &mut self.turn else { return };
        turn.is_whole &= message.is_some();
        turn.add(row, tokens, bytes);
        if let Some(message) = message.and_then(AgentMessage::message) {
            self.calls.follow(self.row.key, turn, message);
        }
    }

    fn close_turn(&mut self) -> StoreResult<()> {
        let Some(mut turn) = self.turn.take() else {
            return Ok(());
        };
        self.verify.found.subject = Subject::Loop(self.row.key);
        turn.knows_calls = self.is_whole;
        let (place, before) = (&self.place, self.before.take());
        self.before = check_turn(self.verify, &self.row, place, turn, before)?;
        Ok(())
    }

    /// Compares the totals of the loop.
    fn finish(&mut self) -> StoreResult<()> {
        self.verify.found.subject = Subject::Loop(self.row.key);
        let next = self.verify.scan.next_turn(self.row.key, self.totals.turns);
        if let Some(Some(turn)) = self.verify.found.readable(&self.place, next)? {
            let place = format!("{}, turn {turn}", self.place);
            let detail = "no message belongs to it";
            self.verify.found.add(ProblemKind::Sequence, place, detail);
        }
        let (stored, derived) = (&self.row.totals, &self.totals);
        let (found, kind, at) = (&mut self.verify.found, ProblemKind::Total, &self.place);
        found.compare(kind, at, "next_seq", &stored.next_seq, &derived.next_seq);
        found.compare(kind, at, "turns", &stored.turns, &derived.turns);
        found.compare(kind, at, "messages", &stored.messages, &derived.messages);
        found.compare(kind, at, "tokens", &stored.tokens, &derived.tokens);
        found.compare(kind, at, "bytes", &stored.bytes, &derived.bytes);
        if let Some(chain) = self.chain
            && chain != self.row.progress.chain
        {
            let stored = short(&self.row.progress.chain);
            let detail = format!("{stored} should be {}", short(&chain));
            found.add(ProblemKind::Chain, at, detail);
        }
        self.check_seal();
        if self.is_whole {
            self.check_whole();
        }
        Ok(())
    }

    /// Compares the values that require the content of all messages.
    fn check_whole(&mut self) {
        let (stored, derived) = (&self.row.progress, &self.progress);
        let (found, kind, at) = (&mut self.verify.found, ProblemKind::Total, &self.place);
        let (a, b) = (&stored.system_tokens, &derived.system_tokens);
        found.compare(kind, at, "system_tokens", a, b);
        let (a, b) = (&stored.last_turn_index, &derived.last_turn_index);
        found.compare(kind, at, "last_turn_index", a, b);
        found.compare(
            kind,
            at,
            "open_calls",
            &stored.open_calls,
            self.calls.open(),
        );
    }

    /// Checks which turns are complete, and that these are sealed; an import may leave the last turn open.
    fn check_seal(&mut self) {
        let (stored, open) = (&self.row.totals, &self.row.progress.open_calls);
        let last = self.before.as_ref().filter(|_| self.totals.turns > 0);
        let unanswered =
            |last: &TurnRow| !last.answered || open.values().any(|made| *made == last.turn);
        let in_flight = !self.row.status.is_ended() && last.is_some_and(unanswered);
        let complete = self.totals.turns - u32::from(in_flight);
        let (found, kind, at) = (&mut self.verify.found, ProblemKind::Total, &self.place);
        found.compare(kind, at, "complete", &stored.complete, &complete);
        let least = match last {
            Some(last) if in_flight || self.scope.is_imported => last.first_seq,
            _ => stored.next_seq,
        };
        if stored.sealed_seq < least || stored.sealed_seq > stored.next_seq {
            let detail = format!(
                "sealed_seq is {} and should be {least} to {}",
                stored.sealed_seq, stored.next_seq
            );
            found.add(kind, at, detail);
        }
    }
}
