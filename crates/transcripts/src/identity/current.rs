//! Chooses the current loop of a session after an import.
//!
//! The current loop is the loop of the newest message, by the order of the transcript and by times. The order in which
//! files are imported does not matter: an older copy, or a stub that a tool left behind, changes nothing.

use std::ops::ControlFlow;

use loopstore::extend::{LoopKey, LoopRow, StoreRead, StoreResult};
use loopstore::model::Role;

use super::incoming::is_voice;

/// The end of a session, as a transcript shows it.
#[derive(Debug, Default)]
pub(crate) struct CurrentLoop {
    /// The current loop before the import.
    pub(crate) before: Option<LoopKey>,
    /// The loop in which the transcript ends.
    end: Option<LoopKey>,
    /// The last loop and its parent, and the end before it began, if the loop begins elsewhere and contains no message
    /// yet.
    branch: Option<([Option<LoopKey>; 2], LoopKey)>,
    /// The time of the newest message of a person or an agent, in milliseconds since the epoch.
    newest: Option<i64>,
    has_voice: bool,
    /// True if a message other than a note was imported.
    has_grown: bool,
}

impl CurrentLoop {
    pub(crate) fn new(before: Option<LoopKey>) -> Self {
        Self {
            before,
            ..Self::default()
        }
    }

    /// Records that a loop begins below another.
    pub(crate) fn begins(&mut self, key: LoopKey, parent: Option<LoopKey>, is_new: bool) {
        let before = self.end.filter(|end| Some(*end) != parent);
        self.branch = before.map(|before| ([Some(key), parent], before));
        self.end = Some(key);
        self.has_grown |= is_new;
    }

    /// Records a message, stored or new. The result of a call may come when the conversation has moved to another loop.
    pub(crate) fn message(&mut self, key: LoopKey, role: Role) {
        match role {
            Role::Extension => {}
            Role::ToolResult => {
                // A branch with nothing but a late result is not the current loop.
                if let Some((_, before)) =
                    self.branch.take_if(|(keys, _)| keys.contains(&Some(key)))
                {
                    self.end = Some(before);
                }
            }
            Role::User | Role::Assistant => {
                self.end = Some(key);
                self.branch = None;
            }
        }
    }

    /// Records the time of a message by a person or an agent.
    pub(crate) fn voice(&mut self, created_at: Option<i64>) {
        self.has_voice = true;
        self.newest = self.newest.max(created_at);
    }

    /// Records that a message is new.
    pub(crate) fn grows(&mut self) {
        self.has_grown = true;
    }

    /// Returns the current loop after the import. `is_covered` is true if the transcript contains the whole loop that
    /// was current before; `is_same_file` is true if the session was imported from the same file before.
    pub(crate) fn decide(
        &self,
        read: &dyn StoreRead,
        is_covered: bool,
        is_same_file: bool,
    ) -> StoreResult<Option<LoopKey>> {
        let (Some(before), Some(end)) = (self.before, self.end) else {
            return Ok(self.end.or(self.before));
        };
        if !self.has_grown || before == end {
            return Ok(Some(before));
        }
        if is_covered {
            return Ok(Some(end));
        }
        let stored = LastVoice::of(read, before)?;
        let is_later = match (self.newest, stored.newest) {
            _ if !self.has_voice => !stored.has_voice,
            _ if !stored.has_voice => true,
            (Some(new), Some(old)) if new != old => new > old,
            _ if is_same_file => true,
            _ => messages_of(read, end)? >= messages_of(read, before)?,
        };
        Ok(Some(if is_later { end } else { before }))
    }
}

/// The last message of a person or an agent on a chain.
#[derive(Default)]
struct LastVoice {
    newest: Option<i64>,
    has_voice: bool,
}

impl LastVoice {
    fn of(read: &dyn StoreRead, leaf: LoopKey) -> StoreResult<Self> {
        let mut spoken = Self::default();
        on_chain(read, leaf, &mut |row, cut| {
            read.messages(row.key, 0..row.totals.next_seq, &mut |message| {
                let is_on_chain =
                    cut.is_none_or(|cut| message.turn.is_some_and(|turn| turn <= cut));
                if is_on_chain && is_voice(message.body.role, message.body.author) {
                    spoken.has_voice = true;
                    spoken.newest = spoken.newest.max(message.created_at);
                }
                Ok(ControlFlow::Continue(()))
            })?;
            Ok(spoken.newest.is_some())
        })?;
        Ok(spoken)
    }
}

/// Counts the messages of a chain.
fn messages_of(read: &dyn StoreRead, leaf: LoopKey) -> StoreResult<u64> {
    let mut messages = 0;
    on_chain(read, leaf, &mut |row, cut| {
        messages += match cut {
            None => row.totals.messages,
            Some(cut) => read.turn(row.key, cut)?.map_or(0, |turn| turn.messages),
        };
        Ok(false)
    })?;
    Ok(messages)
}

/// Visits the loops of a chain from the leaf on, each with its last turn on the chain, until `visit` returns true.
fn on_chain(
    read: &dyn StoreRead,
    leaf: LoopKey,
    visit: &mut dyn FnMut(&LoopRow, Option<u32>) -> StoreResult<bool>,
) -> StoreResult<()> {
    let (mut at, mut cut) = (Some(leaf), None);
    while let Some(key) = at {
        let row = read.loop_by_key(key)?;
        if visit(&row, cut)? {
            break;
        }
        // Parents are older; the check ends the iteration in a damaged file too.
        at = row
            .parent
            .filter(|parent| parent.0 < key.0 && row.parent_turn.is_some());
        cut = row.parent_turn;
    }
    Ok(())
}
