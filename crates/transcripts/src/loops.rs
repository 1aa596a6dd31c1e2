//! Finds the loops of a transcript in the store, or creates them.

use loopstore::extend::{LoopKey, LoopRow, SessionKey, StoreResult, session};
use loopstore::model::LoopRecord;

use super::ImportError;
use super::identity::LoopPiece;
use super::state::{KnownLoop, LoopDescription, LoopState, PendingHistory};
use super::writer::StoreSink;

impl StoreSink<'_> {
    /// Replaces the ids in the references to sessions of the file that are stored under another id.
    pub(super) fn with_renamed(&self, mut record: LoopRecord) -> LoopRecord {
        for child in &mut record.child_loop_refs {
            let id = child.child_session_id.as_ref();
            if let Some(id) = id.and_then(|id| self.renamed.get(id)) {
                child.child_session_id = Some(id.clone());
            }
        }
        record
    }

    /// Begins a loop, or updates its description. `piece` describes its stored part.
    pub(super) fn loop_begins(
        &mut self,
        mut record: LoopRecord,
        piece: Option<&LoopPiece>,
    ) -> Result<(), ImportError> {
        let Some(at) = self.session_at()? else {
            return Ok(());
        };
        record.messages.clear();
        record.compaction_block = None;
        if self.redacts(at) {
            self.redact_loop(&mut record)?;
        }
        let turns = std::mem::take(&mut record.turns);
        let events = std::mem::take(&mut record.events);
        let history = PendingHistory::of(&turns, &events)?;
        if !self.sessions[at].loops.contains_key(&record.loop_id) {
            let (state, parent) = self.open_loop(at, &mut record, piece)?;
            let session = &mut self.sessions[at];
            let is_new = state.known.is_none();
            session.current.begins(state.key, parent, is_new);
            session.order.push(record.loop_id.clone());
            session.loops.insert(record.loop_id.clone(), state);
        }
        let state = self.sessions[at].loops.get_mut(&record.loop_id);
        if let Some(state) = state {
            state.described = LoopDescription::of(&record)?;
            if history.is_some() {
                state.history = history;
            }
            state.spill(self.write)?;
        }
        Ok(())
    }

    /// Finds a loop in the store or creates it, and returns it with its parent.
    fn open_loop(
        &mut self,
        at: usize,
        record: &mut LoopRecord,
        piece: Option<&LoopPiece>,
    ) -> Result<(LoopState, Option<LoopKey>), ImportError> {
        let session = self.session_key(at)?;
        if let Some(piece) = piece
            && let Some(stored) = &piece.stored
        {
            let known = KnownLoop {
                status: stored.row.status.clone(),
                is_left_behind: piece.is_left_behind,
                has_recorded: stored.has_recorded,
                revised: stored.revised.clone(),
                matched: piece.fates.iter().filter_map(|fate| fate.seq()).collect(),
                replaced_from: None,
            };
            let state = LoopState::known(stored.row.key, known, LoopDescription::of(record)?);
            return Ok((state, stored.row.parent));
        }
        // The branch point of the child may be the last turn of the parent.
        self.flush()?;
        let parent = match &record.parent_loop_id {
            Some(id) => self.write.loop_by_id(session, id)?,
            None => None,
        };
        self.check_cut(parent.as_ref(), record);
        let key = session::add_loop(self.write, session, record, parent.as_deref())?;
        self.sessions[at].is_changed = true;
        let state = LoopState::new(key, LoopDescription::of(record)?);
        Ok((state, parent.map(|parent| parent.key)))
    }

    /// Removes a `parent_turn` that the parent does not have.
    fn check_cut(&mut self, parent: Option<&LoopRow>, record: &mut LoopRecord) {
        let (Some(parent), Some(cut)) = (parent, &record.parent_turn) else {
            return;
        };
        let cut = cut.get();
        let turn = u32::try_from(cut).ok();
        let turn = turn.filter(|turn| *turn < parent.totals.turns);
        if cut == session::NO_TURN || turn.is_some() {
            let part = turn.zip(session::parent_seq(record));
            let fits = part
                .is_none_or(|(turn, seq)| session::part_of(self.write, parent, turn, seq).is_ok());
            if !fits {
                let reason = format!(
                    "loop `{}` goes on from within turn {cut} of `{}`, which has no such message",
                    record.loop_id, parent.loop_id
                );
                self.report.skip(&self.from.path, None, reason);
                session::forget_parent_seq(record);
            }
            return;
        }
        let reason = format!(
            "loop `{}` goes on from turn {cut} of `{}`, which has {} turns",
            record.loop_id, parent.loop_id, parent.totals.turns
        );
        self.report.skip(&self.from.path, None, reason);
        record.parent_turn = None;
    }

    /// Returns the key of a session, creating the session if necessary.
    fn session_key(&mut self, at: usize) -> StoreResult<SessionKey> {
        let state = &mut self.sessions[at];
        if let Some(key) = state.key {
            return Ok(key);
        }
        let head = &state.head;
        let source = Some(self.from.format.clone());
        let key = session::create_session(self.write, &head.session, head.title.clone(), source)?;
        state.key = Some(key);
        state.is_changed = true;
        if state.redacts {
            self.mark(key)?;
        }
        Ok(key)
    }
}
