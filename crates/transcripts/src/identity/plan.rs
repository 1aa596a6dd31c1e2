//! Plans where each loop of a transcript is stored: in the stored loop that it continues, or in a new branch.
//!
//! A loop is recognised by its position below the same parent and by its first messages; its id only decides which loop
//! is compared first. Where it diverges from the stored loop, the rest becomes a branch.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use loopstore::extend::{LoopKey, LoopRow, SessionKey, StoreResult};
use loopstore::model::LoopId;

use super::align::{Alignment, Comparison, Fate};
use super::incoming::Incoming;
use super::stored::StoredLoop;

/// Messages of a loop that are stored in one loop of the store.
pub(crate) struct LoopPiece {
    /// The number of the first message.
    pub(crate) from: usize,
    /// The loop in the store.
    pub(crate) id: LoopId,
    /// The stored part; `None` if the loop is new.
    pub(crate) stored: Option<Rc<StoredLoop>>,
    pub(crate) fates: Vec<Fate>,
    /// True if the stored loop continues differently.
    pub(crate) is_left_behind: bool,
}

impl LoopPiece {
    /// True if the loop diverges from a stored one, or cannot have its own id.
    pub(crate) fn is_branch(&self, own: &LoopId) -> bool {
        self.stored.is_none() && (self.from > 0 || self.id != *own)
    }
}

/// The pieces of each loop of a session, in the order of the transcript.
#[derive(Default)]
pub(crate) struct SessionPlan {
    pub(crate) loops: Vec<Vec<LoopPiece>>,
    /// The number of messages of a person or an agent that are stored.
    pub(crate) voices: usize,
    /// The number of messages that are not stored, without notes.
    pub(crate) added: usize,
    /// The number of stored messages that the transcript contains in another state or with another text.
    pub(crate) changed: usize,
    /// True if a stored loop of the same id contains nothing comparable.
    pub(crate) is_incomparable: bool,
}

impl SessionPlan {
    /// Returns the number of the piece that a message of a loop belongs to.
    pub(crate) fn piece_of(&self, number: usize, entry: usize) -> usize {
        let pieces = &self.loops[number];
        let after = pieces.iter().rposition(|piece| piece.from <= entry);
        after.unwrap_or(0)
    }

    pub(crate) fn fate_of(&self, number: usize, entry: usize) -> Fate {
        let piece = &self.loops[number][self.piece_of(number, entry)];
        let fate = piece.fates.get(entry - piece.from);
        fate.copied().unwrap_or(Fate::New)
    }
}

/// The point in the store from which a loop continues.
#[derive(Clone, Copy)]
enum LoopOrigin {
    /// The loop begins a conversation.
    Root,
    /// A turn of a stored loop.
    Stored { key: LoopKey, turn: Option<u32> },
    /// A stored loop that is not in the transcript.
    Outside(LoopKey),
    /// A loop of the same import.
    New,
}

/// Makes the plan of the import into one stored session.
pub(super) struct ImportPlanner<'a, 'c> {
    comparison: &'a Comparison<'c>,
    incoming: &'a Incoming,
    session: Option<SessionKey>,
    loaded: HashMap<LoopKey, Rc<StoredLoop>>,
    /// The stored loops by parent; `None` for the roots.
    children: Option<HashMap<Option<LoopKey>, Vec<LoopRow>>>,
    taken: HashSet<LoopKey>,
    used: HashSet<LoopId>,
    plan: SessionPlan,
}

impl<'a, 'c> ImportPlanner<'a, 'c> {
    pub(super) fn new(
        comparison: &'a Comparison<'c>,
        incoming: &'a Incoming,
        session: Option<SessionKey>,
    ) -> Self {
        Self {
            comparison,
            incoming,
            session,
            loaded: HashMap::new(),
            children: None,
            taken: HashSet::new(),
            used: HashSet::new(),
            plan: SessionPlan::default(),
        }
    }

    pub(super) fn run(mut self) -> StoreResult<SessionPlan> {
        for number in 0..self.incoming.loops.len() {
            let origin = self.origin_of(number)?;
            let pieces = self.pieces(number, origin)?;
            self.plan.loops.push(pieces);
        }
        Ok(self.plan)
    }

    fn origin_of(&self, number: usize) -> StoreResult<LoopOrigin> {
        if let Some((parent, entry)) = self.incoming.parent_of(number) {
            let at = entry.map_or(0, |entry| self.plan.piece_of(parent, entry));
            let piece = &self.plan.loops[parent][at];
            let seq = entry.map(|entry| self.plan.fate_of(parent, entry).seq());
            return Ok(match (&piece.stored, seq) {
                (Some(stored), None) => LoopOrigin::Stored {
                    key: stored.row.key,
                    turn: None,
                },
                (Some(stored), Some(Some(seq))) => LoopOrigin::Stored {
                    key: stored.row.key,
                    turn: stored.entry(seq).and_then(|entry| entry.turn),
                },
                _ => LoopOrigin::New,
            });
        }
        let of = &self.incoming.loops[number];
        match (&of.parent, self.session) {
            (Some(parent), Some(session)) if *parent != of.id => {
                let row = self.comparison.read.loop_by_id(session, parent)?;
                Ok(row.map_or(LoopOrigin::Root, |row| LoopOrigin::Outside(row.key)))
            }
            _ => Ok(LoopOrigin::Root),
        }
    }

    fn pieces(&mut self, number: usize, mut origin: LoopOrigin) -> StoreResult<Vec<LoopPiece>> {
        let (mut pieces, mut from) = (Vec::new(), 0);
        let of = &self.incoming.loops[number];
        while let Some((stored, mut found)) = self.find(number, from, origin)? {
            self.split_growth((number, from), &stored, &mut found)?;
            self.taken.insert(stored.row.key);
            self.used.insert(stored.row.loop_id.clone());
            self.plan.voices += found.voices;
            let end = from + found.fates.len();
            let last = found.fates.iter().filter_map(|fate| fate.seq());
            let last = last
                .filter_map(|seq| stored.entry(seq))
                .filter(|entry| !entry.is_note());
            origin = LoopOrigin::Stored {
                key: stored.row.key,
                turn: last
                    .max_by_key(|entry| entry.seq)
                    .and_then(|entry| entry.turn),
            };
            self.plan.added += self.count_new(number, from, &found.fates);
            self.plan.changed += self.count_changed(number, from, &found.fates);
            pieces.push(LoopPiece {
                from,
                id: stored.row.loop_id.clone(),
                stored: Some(stored),
                fates: found.fates,
                is_left_behind: found.is_left_behind,
            });
            if end == of.entries.len() {
                return Ok(pieces);
            }
            from = end;
        }
        let fates = vec![Fate::New; of.entries.len() - from];
        self.plan.added += self.count_new(number, from, &fates);
        pieces.push(LoopPiece {
            from,
            id: self.unused(number, from == 0)?,
            stored: None,
            fates,
            is_left_behind: false,
        });
        Ok(pieces)
    }

    fn count_changed(&self, number: usize, from: usize, fates: &[Fate]) -> usize {
        let entries = &self.incoming.loops[number].entries[from..];
        let is_changed = |fate: &Fate| matches!(fate, Fate::Later { .. } | Fate::Revised(_));
        let changed = entries.iter().zip(fates);
        changed
            .filter(|(entry, fate)| is_changed(fate) && !entry.is_note())
            .count()
    }

    fn count_new(&self, number: usize, from: usize, fates: &[Fate]) -> usize {
        let entries = &self.incoming.loops[number].entries[from..];
        let new = entries.iter().zip(fates);
        new.filter(|(entry, fate)| **fate == Fate::New && !entry.is_note())
            .count()
    }

    /// Ends the alignment before messages that would extend a turn from which a loop outside of the transcript
    /// continues: that loop would then begin with them.
    fn split_growth(
        &mut self,
        (number, from): (usize, usize),
        stored: &StoredLoop,
        found: &mut Alignment,
    ) -> StoreResult<()> {
        let Some(at) = found.grows_at else {
            return Ok(());
        };
        let entries = &self.incoming.loops[number].entries[from..];
        let before = entries[..at].iter().rfind(|entry| !entry.is_note());
        let is_same_turn = before.is_some_and(|before| {
            before.turn_index.is_some() && before.turn_index == entries[at].turn_index
        });
        let last = stored.row.totals.turns.checked_sub(1);
        if !is_same_turn || last.is_none() {
            return Ok(());
        }
        let incoming = self.incoming;
        let mut children = self.children_of(Some(stored.row.key))?.iter();
        let is_other = |child: &&LoopRow| incoming.loop_no(&child.loop_id).is_none();
        if children.any(|child| {
            child.parent_turn == last && child.parent_seq.is_none() && is_other(&child)
        }) {
            found.fates.truncate(at);
            found.is_left_behind = true;
        }
        Ok(())
    }

    /// Finds the stored loop that the rest of a loop matches.
    fn find(
        &mut self,
        number: usize,
        from: usize,
        origin: LoopOrigin,
    ) -> StoreResult<Option<(Rc<StoredLoop>, Alignment)>> {
        let Some(session) = self.session else {
            return Ok(None);
        };
        if from == 0
            && let Some(found) = self.namesake(session, number, origin)?
        {
            return Ok(Some(found));
        }
        let parent = match origin {
            LoopOrigin::Root => None,
            LoopOrigin::Stored { key, .. } | LoopOrigin::Outside(key) => Some(key),
            LoopOrigin::New => return Ok(None),
        };
        let rows: Vec<LoopRow> = self.children_of(parent)?.to_vec();
        let mut best: Option<(Rc<StoredLoop>, Alignment)> = None;
        for row in rows {
            if self.taken.contains(&row.key) || !is_below(&row, origin) {
                continue;
            }
            let stored = self.load(row)?;
            let found = self
                .comparison
                .align(self.incoming, (number, from), &stored)?;
            let is_empty = |found: &Alignment| found.common == 0 && !found.is_left_behind;
            let entries = &self.incoming.loops[number].entries[from..];
            let has_messages = entries.iter().any(|entry| !entry.is_note());
            let found = found.filter(|found| match has_messages {
                true => found.common > 0,
                false => is_empty(found),
            });
            if let Some(found) = found
                && best
                    .as_ref()
                    .is_none_or(|(_, best)| best.common < found.common)
            {
                best = Some((stored, found));
            }
        }
        Ok(best)
    }

    /// Returns the stored loop with the same id, if it matches.
    fn namesake(
        &mut self,
        session: SessionKey,
        number: usize,
        origin: LoopOrigin,
    ) -> StoreResult<Option<(Rc<StoredLoop>, Alignment)>> {
        let id = &self.incoming.loops[number].id;
        let Some(row) = self.comparison.read.loop_by_id(session, id)? else {
            return Ok(None);
        };
        if self.taken.contains(&row.key) {
            return Ok(None);
        }
        let stored = self.load(row)?;
        self.plan.is_incomparable |= stored.is_incomparable();
        let found = self.comparison.align(self.incoming, (number, 0), &stored)?;
        // The transcript may begin later than the stored session.
        let is_first = number == 0 && matches!(origin, LoopOrigin::Root);
        let is_unsaid = self.incoming.loops[number].cut.is_none() && self.comparison.own_form;
        Ok(found
            .filter(|found| {
                let row = &stored.row;
                is_below(row, origin)
                    || is_first && found.begins_equal
                    || is_unsaid
                        && matches!(origin, LoopOrigin::Stored { key, .. } if row.parent == Some(key))
            })
            .map(|found| (stored, found)))
    }

    fn load(&mut self, row: LoopRow) -> StoreResult<Rc<StoredLoop>> {
        let key = row.key;
        if let Some(stored) = self
            .loaded
            .get(&key)
            .or_else(|| self.incoming.known.get(&key))
        {
            return Ok(stored.clone());
        }
        let comparison = self.comparison;
        let stored = Rc::new(StoredLoop::load(comparison.read, row, comparison.own_form)?);
        self.loaded.insert(key, stored.clone());
        Ok(stored)
    }

    fn children_of(&mut self, parent: Option<LoopKey>) -> StoreResult<&[LoopRow]> {
        if self.children.is_none() {
            let mut children: HashMap<_, Vec<LoopRow>> = HashMap::new();
            if let Some(session) = self.session {
                for row in self.comparison.read.loops(session)? {
                    children.entry(row.parent).or_default().push(row);
                }
            }
            self.children = Some(children);
        }
        let children = self.children.get_or_insert_default();
        Ok(children.get(&parent).map_or(&[], Vec::as_slice))
    }

    /// Returns the id for a new loop: its own if the loop is whole and no other loop has the id.
    fn unused(&mut self, number: usize, is_whole: bool) -> StoreResult<LoopId> {
        let own = &self.incoming.loops[number].id;
        let (mut id, mut count) = (own.clone(), 1u64);
        loop {
            let may_be = match count {
                1 => is_whole,
                _ => self.incoming.loop_no(&id).is_none(),
            };
            if may_be && !self.used.contains(&id) && !self.is_stored(&id)? {
                break;
            }
            count += 1;
            id = numbered(own, count);
        }
        self.used.insert(id.clone());
        Ok(id)
    }

    fn is_stored(&self, id: &LoopId) -> StoreResult<bool> {
        match self.session {
            Some(session) => Ok(self.comparison.read.loop_by_id(session, id)?.is_some()),
            None => Ok(false),
        }
    }
}

/// True if a stored loop continues from this point.
fn is_below(row: &LoopRow, origin: LoopOrigin) -> bool {
    match origin {
        LoopOrigin::Root => row.parent.is_none(),
        LoopOrigin::Stored { key, turn } => row.parent == Some(key) && row.parent_turn == turn,
        LoopOrigin::Outside(key) => row.parent == Some(key),
        LoopOrigin::New => false,
    }
}

/// Returns an id with a number appended; a long id is truncated.
fn numbered(id: &LoopId, count: u64) -> LoopId {
    let end = format!("~{count}");
    let mut text = id.as_str().to_owned();
    while text.len() + end.len() > loopstore_model::MAX_ID_BYTES {
        text.pop();
    }
    LoopId::of(text + &end)
}
