//! A session of a transcript that waits until the transcript is read: only then its content shows which stored session
//! it is.

use std::collections::HashMap;
use std::rc::Rc;

use loopstore::extend::session::NO_TURN;
use loopstore::extend::{LoopKey, SessionKey};
use loopstore::model::{AgentMessage, Author, LoopId, LoopRecord, Role};
use loopstore_model::GroupCursor;

use super::stored::StoredLoop;
use crate::matching::RecordDigest;
use crate::pending::PendingMessage;
use crate::{FoundCompaction, Identity, ImportError, SessionHead};

/// A message of the transcript.
pub(crate) struct IncomingEntry {
    pub(crate) role: Role,
    pub(crate) is_voice: bool,
    pub(crate) digest: RecordDigest,
    /// The size of its record.
    pub(crate) bytes: usize,
    /// The time of the message in milliseconds since the epoch.
    pub(crate) created_at: Option<i64>,
    pub(crate) turn_index: Option<i64>,
    /// `None` if the store has a message of the same record.
    pub(crate) message: Option<AgentMessage>,
}

impl IncomingEntry {
    pub(crate) fn is_note(&self) -> bool {
        self.role == Role::Extension
    }
}

/// True if the author is a person or an agent, not the harness.
pub(crate) fn is_voice(role: Role, author: Author) -> bool {
    matches!(role, Role::User | Role::Assistant) && author != Author::Harness
}

/// A loop of the transcript.
pub(crate) struct IncomingLoop {
    pub(crate) id: LoopId,
    pub(crate) parent: Option<LoopId>,
    /// The last turn of the parent on the loop's chain, if the transcript names it.
    pub(crate) cut: Option<i64>,
    /// The number of messages that the parent had when the loop began.
    parent_entries: usize,
    pub(crate) entries: Vec<IncomingEntry>,
}

/// A call of the sink, in the order of the transcript; loops and messages are given by number.
pub(crate) enum IncomingCall {
    Loop(usize, Box<LoopRecord>),
    Message(usize, usize),
    Compaction(Box<FoundCompaction>),
}

/// A session that waits to be matched.
pub(crate) struct Incoming {
    pub(crate) identity: Identity,
    pub(crate) head: SessionHead,
    pub(crate) loops: Vec<IncomingLoop>,
    pub(crate) calls: Vec<IncomingCall>,
    by_id: HashMap<LoopId, usize>,
    /// The stored session with the same id.
    pub(crate) namesake: Option<SessionKey>,
    /// The stored loops with the ids of loops of the transcript.
    pub(super) known: HashMap<LoopKey, Rc<StoredLoop>>,
    /// The position of a stored message, by the digest and the time of its record. Not every record contains its time.
    bodies: HashMap<(RecordDigest, Option<i64>), (LoopKey, u32)>,
}

impl Incoming {
    pub(crate) fn new(head: SessionHead, namesake: Option<SessionKey>) -> Self {
        Self {
            identity: head.identity.clone(),
            head,
            loops: Vec::new(),
            calls: Vec::new(),
            by_id: HashMap::new(),
            namesake,
            known: HashMap::new(),
            bodies: HashMap::new(),
        }
    }

    /// Adds or updates the description of a loop. Returns true if the loop is new.
    pub(crate) fn begin_loop(&mut self, record: LoopRecord) -> bool {
        let at = self.by_id.get(&record.loop_id).copied();
        let number = at.unwrap_or(self.loops.len());
        if at.is_none() {
            let parent = record.parent_loop_id.clone();
            let before = parent.as_ref().and_then(|id| self.loop_no(id));
            self.loops.push(IncomingLoop {
                id: record.loop_id.clone(),
                cut: record.parent_turn.as_ref().map(|turn| turn.get()),
                parent_entries: before.map_or(0, |before| self.loops[before].entries.len()),
                parent,
                entries: Vec::new(),
            });
            self.by_id.insert(record.loop_id.clone(), number);
        }
        self.calls
            .push(IncomingCall::Loop(number, Box::new(record)));
        at.is_none()
    }

    /// Adds a stored loop with the id of a loop of the transcript: its messages need not wait in memory.
    pub(super) fn add_stored(&mut self, stored: Rc<StoredLoop>) {
        let key = stored.row.key;
        for entry in &stored.entries {
            if let Some(digest) = entry.digest {
                let made_from = (digest, entry.created_at);
                self.bodies.entry(made_from).or_insert((key, entry.seq));
            }
        }
        self.known.insert(key, stored);
    }

    /// Adds a message.
    pub(crate) fn message(
        &mut self,
        loop_id: &LoopId,
        message: PendingMessage,
        digest: RecordDigest,
        bytes: usize,
    ) -> Result<(), ImportError> {
        let Some(number) = self.loop_no(loop_id) else {
            let reason = format!("the importer found a message before its loop `{loop_id}`");
            return Err(ImportError::Refused(reason));
        };
        let message = message.into_message()?;
        let created_at = message.message().and_then(|inner| inner.timestamp());
        let is_stored = self.bodies.contains_key(&(digest, created_at));
        let entry = IncomingEntry {
            role: message.role(),
            is_voice: is_voice(message.role(), message.author()),
            digest,
            bytes,
            created_at,
            turn_index: message.turn_index(),
            message: (!is_stored).then_some(message),
        };
        let entries = &mut self.loops[number].entries;
        self.calls
            .push(IncomingCall::Message(number, entries.len()));
        entries.push(entry);
        Ok(())
    }

    /// Adds a compaction.
    pub(crate) fn compaction(&mut self, found: FoundCompaction) -> Result<(), ImportError> {
        if self.loop_no(&found.loop_id).is_none() {
            let reason = format!(
                "the importer found a compaction before its loop `{}`",
                found.loop_id
            );
            return Err(ImportError::Refused(reason));
        }
        self.calls.push(IncomingCall::Compaction(Box::new(found)));
        Ok(())
    }

    pub(super) fn loop_no(&self, id: &LoopId) -> Option<usize> {
        self.by_id.get(id).copied()
    }

    /// Returns the position of a stored message that was made from the same record.
    pub(super) fn body_of(
        &self,
        digest: RecordDigest,
        created_at: Option<i64>,
    ) -> Option<(LoopKey, u32)> {
        self.bodies.get(&(digest, created_at)).copied()
    }

    /// Returns the digests of all messages, loop by loop, which is the order in which a stored session is read.
    pub(super) fn digests(&self) -> Vec<RecordDigest> {
        let entries = self.loops.iter().flat_map(|of| &of.entries);
        entries.map(|entry| entry.digest).collect()
    }

    /// True if the session contains a message by a person or an agent.
    pub(super) fn has_voice(&self) -> bool {
        let mut entries = self.loops.iter().flat_map(|of| &of.entries);
        entries.any(|entry| entry.is_voice)
    }

    /// Returns the parent of a loop if the transcript contains it, and the last message of the parent on the loop's
    /// chain.
    pub(super) fn parent_of(&self, number: usize) -> Option<(usize, Option<usize>)> {
        let of = &self.loops[number];
        let parent = self.loop_no(of.parent.as_ref()?)?;
        let parent = (parent < number).then_some(parent)?;
        if of.cut == Some(NO_TURN) {
            return Some((parent, None));
        }
        let mut last = None;
        for (at, turn) in self.turns(parent, 0) {
            if at >= of.parent_entries || of.cut.is_some_and(|cut| i64::from(turn) > cut) {
                break;
            }
            last = Some(at);
        }
        Some((parent, last))
    }

    /// Iterates over the messages of a loop from `from` on, without notes, each with the position of its turn among the
    /// turns from there on.
    pub(super) fn turns(&self, number: usize, from: usize) -> impl Iterator<Item = (usize, u32)> {
        let (mut cursor, mut turns) = (GroupCursor::default(), 0u32);
        let entries = self.loops[number].entries.iter().enumerate().skip(from);
        let messages = entries.filter(|(_, entry)| !entry.is_note());
        messages.map(move |(at, entry)| {
            turns += u32::from(cursor.begins(entry.turn_index));
            (at, turns.saturating_sub(1))
        })
    }
}
