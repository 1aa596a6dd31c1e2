//! Writes a session that waited: its calls are repeated, with each loop in the pieces of the plan.

use loopstore::extend::StoreResult;
use loopstore::internal::{forget_parent_seq, set_parent_seq};
use loopstore::model::{
    AgentMessage, ContinuationKind, LoopId, LoopRecord, Role, SessionId, TurnId,
};
use loopstore_model::GroupCursor;

use super::align::{Fate, message_at};
use super::incoming::{Incoming, IncomingCall};
use super::plan::{LoopPiece, SessionPlan};
use super::{SessionMatch, StoredLoop};
use crate::report::ImportedBranch;
use crate::writer::{KnownMessage, StoreSink};
use crate::{FoundCompaction, FoundEffect, ImportError};

/// The state of a session that is being written.
struct SessionReplay {
    incoming: Incoming,
    plan: SessionPlan,
    id: SessionId,
    /// The newest description of each loop.
    records: Vec<Option<Box<LoopRecord>>>,
    /// The piece of each loop that was begun last.
    begun: Vec<Option<usize>>,
    /// The newest message of each loop that is no note.
    last: Vec<Option<usize>>,
}

impl StoreSink<'_> {
    /// Writes a session that waited.
    pub(super) fn replay(
        &mut self,
        incoming: Incoming,
        decision: SessionMatch,
    ) -> Result<(), ImportError> {
        let SessionMatch {
            id,
            key,
            plan,
            is_unlike,
        } = decision;
        let own = match &incoming.identity {
            crate::Identity::Own(own) => Some(own),
            _ => None,
        };
        let is_wanted = self.is_wanted(&id) || own.is_some_and(|own| self.is_wanted(own));
        self.report_branches(
            &incoming,
            &plan,
            &id,
            is_unlike && plan.added > 0 && incoming.has_voice(),
        );
        self.begin(id.clone(), key, incoming.head.clone(), is_wanted)?;
        if !is_wanted {
            return Ok(());
        }
        let count = incoming.loops.len();
        let mut replay = SessionReplay {
            incoming,
            plan,
            id,
            records: (0..count).map(|_| None).collect(),
            begun: vec![None; count],
            last: vec![None; count],
        };
        for call in std::mem::take(&mut replay.incoming.calls) {
            match call {
                IncomingCall::Loop(number, record) => {
                    replay.records[number] = Some(record);
                    let piece = replay.begun[number].unwrap_or(0);
                    self.begin_piece(&mut replay, number, piece)?;
                }
                IncomingCall::Message(number, entry) => {
                    self.replay_message(&mut replay, number, entry)?;
                }
                IncomingCall::Compaction(found) => self.found(replay.placed(*found))?,
            }
        }
        Ok(())
    }

    fn report_branches(
        &mut self,
        incoming: &Incoming,
        plan: &SessionPlan,
        id: &SessionId,
        is_unlike: bool,
    ) {
        let loops = incoming.loops.iter().zip(&plan.loops);
        let pieces = loops.flat_map(|(of, pieces)| pieces.iter().map(move |piece| (of, piece)));
        let mut is_first = true;
        for (of, piece) in pieces.filter(|(_, piece)| piece.stored.is_none()) {
            let is_root = std::mem::take(&mut is_first) && is_unlike;
            let entries = &of.entries[piece.from..];
            let has_messages = entries.iter().any(|entry| !entry.is_note());
            if has_messages && (is_root || piece.is_branch(&of.id)) {
                self.report.branches.push(ImportedBranch {
                    file: self.from.path.clone(),
                    session: id.clone(),
                    loop_id: piece.id.clone(),
                });
            }
        }
    }

    fn begin_piece(
        &mut self,
        replay: &mut SessionReplay,
        number: usize,
        at: usize,
    ) -> Result<(), ImportError> {
        let Some(record) = replay.record(number, at) else {
            return Ok(());
        };
        replay.begun[number] = Some(at);
        let record = self.with_renamed(record);
        let piece = &replay.plan.loops[number][at];
        self.loop_begins(record, Some(piece))
    }

    fn replay_message(
        &mut self,
        replay: &mut SessionReplay,
        number: usize,
        entry: usize,
    ) -> Result<(), ImportError> {
        let at = replay.plan.piece_of(number, entry);
        if replay.begun[number].is_none_or(|begun| begun < at) {
            self.begin_piece(replay, number, at)?;
        }
        let fate = replay.plan.fate_of(number, entry);
        let (piece, of) = (
            &replay.plan.loops[number][at],
            &mut replay.incoming.loops[number],
        );
        let is_moved = piece.id != of.id;
        let entry_no = entry;
        let entry = &mut of.entries[entry_no];
        if !entry.is_note() {
            replay.last[number] = Some(entry_no);
        }
        let (digest, bytes) = (entry.digest, entry.bytes);
        let turn_index = entry.turn_index;
        let known = KnownMessage {
            role: entry.role,
            turn_index,
            is_voice: entry.is_voice,
            created_at: entry.created_at,
        };
        let is_replaced = match self.written() {
            Some(session) => self.is_replaced(session, &piece.id, fate),
            None => false,
        };
        let (message, is_stored) = match entry.message.take() {
            Some(message) => (Some(message), false),
            None if matches!(fate, Fate::Known(_)) && !is_replaced => (None, true),
            None => (
                self.stored_message(&replay.incoming, digest, known.created_at)?,
                true,
            ),
        };
        let piece_id = piece.id.clone();
        let Some(mut message) = message else {
            self.known_message(&piece_id, &known);
            return Ok(());
        };
        if let (Some(index), true) = (turn_index, is_moved || is_stored) {
            message = in_turn(message, &piece_id, index);
        }
        self.take_message(&piece_id, message.into(), digest, bytes, fate)
    }

    fn stored_message(
        &self,
        incoming: &Incoming,
        digest: crate::matching::RecordDigest,
        created_at: Option<i64>,
    ) -> StoreResult<Option<AgentMessage>> {
        match incoming.body_of(digest, created_at) {
            Some((key, seq)) => message_at(self.write, key, seq),
            None => Ok(None),
        }
    }
}

/// Sets the turn index of a message.
fn in_turn(message: AgentMessage, loop_id: &LoopId, index: i64) -> AgentMessage {
    message.in_turn(TurnId {
        loop_id: loop_id.as_str().to_owned(),
        turn_index: index.into(),
        extra: Default::default(),
    })
}

impl SessionReplay {
    /// Returns the record of a piece of a loop.
    fn record(&self, number: usize, at: usize) -> Option<LoopRecord> {
        let mut record = LoopRecord::clone(self.records[number].as_ref()?);
        let piece = &self.plan.loops[number][at];
        record.loop_id.clone_from(&piece.id);
        if record.session_id.is_some() {
            record.session_id = Some(self.id.clone());
        }
        if let Some(stored) = &piece.stored {
            keep_parent(&mut record, stored);
        } else if let Some(before) = at.checked_sub(1) {
            let before = &self.plan.loops[number][before];
            record.parent_loop_id = Some(before.id.clone());
            let tag = piece.id.as_str().chars().take(8).collect();
            record.continuation_kind = Some(ContinuationKind::Branch { tag });
            let entries = &self.incoming.loops[number].entries;
            let last = (before.from..piece.from)
                .rev()
                .find(|at| !entries[*at].is_note());
            self.cut(
                &mut record,
                number,
                last,
                self.begins_with_result(number, piece.from),
            );
        } else if let Some((parent, entry)) = self.incoming.parent_of(number) {
            self.move_parent(&mut record, number, (parent, entry));
        }
        Some(record)
    }

    /// Replaces the parent of a record by its stored counterpart.
    fn move_parent(
        &self,
        record: &mut LoopRecord,
        number: usize,
        (parent, entry): (usize, Option<usize>),
    ) {
        let pieces = &self.plan.loops[parent];
        let at = entry.map_or(0, |entry| self.plan.piece_of(parent, entry));
        record.parent_loop_id = Some(pieces[at].id.clone());
        if pieces.len() > 1 || pieces[0].is_left_behind {
            self.cut(record, parent, entry, self.begins_with_result(number, 0));
        }
    }

    /// True if the messages of a loop from `from` on begin with the result of a call.
    fn begins_with_result(&self, number: usize, from: usize) -> bool {
        let entries = &self.incoming.loops[number].entries[from..];
        let first = entries.iter().find(|entry| !entry.is_note());
        first.is_some_and(|first| first.role == Role::ToolResult)
    }

    /// Sets the turn of the parent from which a record continues to the turn of a message of the transcript.
    fn cut(
        &self,
        record: &mut LoopRecord,
        number: usize,
        entry: Option<usize>,
        has_own_results: bool,
    ) {
        let cut = entry.and_then(|entry| self.turn_of(number, entry, has_own_results));
        let Some((turn, seq)) = cut else {
            return;
        };
        record.parent_turn = Some(i64::from(turn).into());
        match seq {
            Some(seq) => set_parent_seq(record, seq),
            None => forget_parent_seq(record),
        }
    }

    /// Returns the stored turn of a message, and the message itself if the turn continues after it.
    fn turn_of(
        &self,
        number: usize,
        entry: usize,
        has_own_results: bool,
    ) -> Option<(u32, Option<u32>)> {
        let piece = &self.plan.loops[number][self.plan.piece_of(number, entry)];
        let fate = self.plan.fate_of(number, entry);
        if let (Some(stored), Some(seq)) = (&piece.stored, fate.seq()) {
            return stored.cut_after(seq, has_own_results);
        }
        let (mut cursor, mut turns) = match &piece.stored {
            Some(stored) if stored.row.totals.turns > 0 => {
                let row = &stored.row;
                (
                    GroupCursor::after(row.progress.last_turn_index),
                    row.totals.turns,
                )
            }
            _ => (GroupCursor::default(), 0),
        };
        let entries = self.incoming.loops[number].entries.iter().enumerate();
        for (at, of) in entries.take(entry + 1).skip(piece.from) {
            if self.plan.fate_of(number, at) == Fate::New && !of.is_note() {
                turns += u32::from(cursor.begins(of.turn_index));
            }
        }
        Some((turns.checked_sub(1)?, None))
    }

    /// Replaces the loops of a compaction by their stored counterparts.
    fn placed(&self, mut found: FoundCompaction) -> FoundCompaction {
        if let Some(number) = self.incoming.loop_no(&found.loop_id) {
            let at = self.last[number].map_or(0, |last| self.plan.piece_of(number, last));
            found.loop_id.clone_from(&self.plan.loops[number][at].id);
        }
        match &mut found.effect {
            FoundEffect::Summary {
                first_kept: Some(first_kept),
                ..
            }
            | FoundEffect::SummaryWithin { first_kept, .. } => self.place_turn(first_kept),
            _ => {}
        }
        found
    }

    fn place_turn(&self, (loop_id, turn): &mut (LoopId, u32)) {
        let Some(number) = self.incoming.loop_no(loop_id) else {
            return;
        };
        if let [LoopPiece { id, .. }] = &self.plan.loops[number][..] {
            loop_id.clone_from(id);
            return;
        }
        let kept = self.incoming.turns(number, 0).find(|(_, at)| at >= turn);
        if let Some((entry, _)) = kept
            && let Some((placed, _)) = self.turn_of(number, entry, false)
        {
            let at = self.plan.piece_of(number, entry);
            loop_id.clone_from(&self.plan.loops[number][at].id);
            *turn = placed;
        }
    }
}

/// Sets the parent of a record to that of its stored loop.
fn keep_parent(record: &mut LoopRecord, stored: &StoredLoop) {
    if record.parent_loop_id != stored.row.parent_loop_id {
        record.parent_loop_id.clone_from(&stored.row.parent_loop_id);
        record.parent_turn = stored.row.parent_turn.map(|turn| i64::from(turn).into());
    }
}
