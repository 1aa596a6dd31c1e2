//! The tree of a session's entries: the turn of each message, and the points at which paths diverge.

use std::collections::HashMap;

use loopstore::model::ContinuationKind;

use super::{LoopTurn, NewLoop, TranscriptBuilder};
use crate::ImportError;

/// A message that was emitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Emitted {
    pub(crate) at: LoopTurn,
    /// The number of messages of its turn before it.
    pub(crate) nth: u32,
    /// The number of the entry.
    pub(crate) entry: usize,
}

/// An entry that others may name.
#[derive(Clone, Copy, Debug)]
struct KnownEntry {
    /// The entry before it on its path.
    parent: Option<usize>,
    /// The last message at or before the entry on its path, by its number among the emitted messages.
    last: Option<usize>,
    /// The message of the entry itself.
    own: Option<usize>,
}

/// The parent of the next entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextEntry {
    /// The current position in the transcript.
    On,
    /// After another message (by its number), or at the root.
    From(Option<usize>),
}

/// The entries so far, as a tree.
#[derive(Debug, Default)]
pub(crate) struct EntryTree {
    known: Vec<KnownEntry>,
    ids: HashMap<String, usize>,
    emitted: Vec<Emitted>,
    /// The number of messages of each turn.
    sizes: HashMap<LoopTurn, u32>,
}

impl EntryTree {
    /// Returns the position of an entry with this parent (`Some(None)` for a root), or with none.
    fn way(&self, parent: Option<Option<&str>>) -> NextEntry {
        let last = self.emitted.len().checked_sub(1);
        let hangs = match self.parent(parent) {
            ParentEntry::Entry(entry) => self.known[entry].last,
            ParentEntry::Root => None,
            ParentEntry::Before => return NextEntry::On,
        };
        match hangs == last {
            true => NextEntry::On,
            false => NextEntry::From(hangs),
        }
    }

    fn parent(&self, parent: Option<Option<&str>>) -> ParentEntry {
        match parent {
            None => ParentEntry::Before,
            Some(None) => ParentEntry::Root,
            // A missing parent is before the beginning of the file.
            Some(Some(id)) => match self.ids.get(id) {
                Some(entry) => ParentEntry::Entry(*entry),
                None => ParentEntry::Before,
            },
        }
    }

    /// Adds the next entry; `at` is the position of its message, if it is one.
    pub(crate) fn add(
        &mut self,
        id: Option<String>,
        parent: Option<Option<&str>>,
        at: Option<LoopTurn>,
    ) {
        let number = self.known.len();
        let parent = match self.parent(parent) {
            ParentEntry::Entry(entry) => Some(entry),
            ParentEntry::Root => None,
            ParentEntry::Before => number.checked_sub(1),
        };
        let own = at.map(|at| self.emit(at, number));
        let last = own.or_else(|| self.known[parent?].last);
        self.known.push(KnownEntry { parent, last, own });
        if let Some(id) = id {
            self.ids.insert(id, number);
        }
    }

    /// Records an emitted message of entry `entry`.
    pub(crate) fn emit(&mut self, at: LoopTurn, entry: usize) -> usize {
        let size = self.sizes.entry(at).or_insert(0);
        self.emitted.push(Emitted {
            at,
            nth: *size,
            entry,
        });
        *size += 1;
        self.emitted.len() - 1
    }

    /// True if a message is the last of its turn.
    fn ends_turn(&self, emitted: Emitted) -> bool {
        self.sizes.get(&emitted.at) == Some(&(emitted.nth + 1))
    }

    /// Returns the messages of the turn of `emitted` up to it.
    fn turn_so_far(&self, emitted: Emitted) -> Vec<Emitted> {
        let of_turn = self.emitted.iter().filter(|other| other.at == emitted.at);
        of_turn
            .filter(|other| other.nth <= emitted.nth)
            .copied()
            .collect()
    }

    /// Returns the number of the entry with an id.
    pub(crate) fn entry(&self, id: &str) -> Option<usize> {
        self.ids.get(id).copied()
    }

    /// Returns the last message at or before the entry with an id, on its path.
    pub(crate) fn last_at(&self, id: &str) -> Option<Emitted> {
        let last = self.known[self.entry(id)?].last?;
        Some(self.emitted[last])
    }

    /// Returns the message that was emitted last.
    pub(crate) fn newest(&self) -> Option<Emitted> {
        self.emitted.last().copied()
    }

    /// Returns the first message at or after entry `first`, on the path of the next entry, whose
    /// parent is named as in [`EntryTree::way`].
    pub(crate) fn first_kept(&self, first: usize, parent: Option<Option<&str>>) -> Option<Emitted> {
        let mut at = match self.parent(parent) {
            ParentEntry::Entry(entry) => Some(entry),
            ParentEntry::Root => None,
            ParentEntry::Before => self.known.len().checked_sub(1),
        };
        let mut kept = None;
        while let Some(entry) = at.filter(|entry| *entry >= first) {
            kept = self.known[entry].own.or(kept);
            if entry == first {
                return Some(self.emitted[kept?]);
            }
            at = self.known[entry].parent;
        }
        None
    }
}

impl TranscriptBuilder<'_> {
    /// Begins a loop if the next message, whose parent is given as in [`EntryTree::way`], does not continue the current
    /// position. Then returns the messages on its path of a turn that the path leaves in the middle: a loop continues
    /// only from a whole turn, so these messages are not on the path of the new loop.
    pub(crate) fn branch(
        &mut self,
        tree: &EntryTree,
        parent: Option<Option<&str>>,
        name: String,
        is_prompt: bool,
    ) -> Result<Option<Vec<Emitted>>, ImportError> {
        let NextEntry::From(after) = tree.way(parent) else {
            return Ok(None);
        };
        if self.here().is_none() {
            return Ok(None);
        }
        let after = after.map(|number| tree.emitted[number]);
        let is_tail = |after: &Emitted| tree.ends_turn(*after) && self.is_tail(after.at);
        let kind = match is_prompt && after.as_ref().is_some_and(is_tail) {
            true => ContinuationKind::Default,
            false => branch_kind(&name),
        };
        let (parent, left) = match after {
            Some(after) if tree.ends_turn(after) => (Some(after.at), Vec::new()),
            Some(after) => (self.turn_before(after.at), tree.turn_so_far(after)),
            None => (None, Vec::new()),
        };
        let next = self.next_loop(name);
        self.begin(NewLoop {
            parent,
            kind,
            ..next
        })?;
        Ok(Some(left))
    }

    /// Returns to the end of a turn, or to the root: the next message is on a new branch, which the next prompt belongs
    /// to.
    pub(crate) fn go_back(
        &mut self,
        after: Option<LoopTurn>,
        name: String,
    ) -> Result<(), ImportError> {
        let kind = branch_kind(&name);
        let next = self.next_loop(name);
        self.begin(NewLoop {
            parent: after,
            kind,
            ..next
        })?;
        let session = self.session_mut();
        session.is_back = true;
        session.last = after;
        Ok(())
    }

    /// Returns the turn before a turn on its path.
    pub(crate) fn turn_before(&self, (loop_no, turn): LoopTurn) -> Option<LoopTurn> {
        match turn.checked_sub(1) {
            Some(turn) => Some((loop_no, turn)),
            None => self.loop_at(loop_no)?.parent,
        }
    }
}

fn branch_kind(name: &str) -> ContinuationKind {
    ContinuationKind::Branch {
        tag: name.chars().take(8).collect(),
    }
}

enum ParentEntry {
    Entry(usize),
    /// The entry begins a path.
    Root,
    /// The entry continues from the one before it.
    Before,
}
