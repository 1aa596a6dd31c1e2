//! Lists of messages as lines of loops.
//!
//! A list nearly always grows at its end, as a session does. So a list is stored as its first and its last message
//! on a line of loops, however long it is, and new messages are appended after the last one: to the line if that
//! is the end of the line, else to a branch from there. A list that lost messages is several such segments.
//! A model sees exactly the list on the line, and two programs that continue one state get separate branches.
//!
//! A system message is an extension, as everywhere in loopstore. So is a message inserted into the middle of
//! a list, or in place of a changed one: it cannot be part of a line. Each is a segment of its own.

use std::ops::{ControlFlow, Range};

use loopstore::extend::append::{TurnsAppend, free_loop_id};
use loopstore::extend::{
    self, AppendKey, LoopCore, LoopKey, SessionKey, StoreRead, StoreWrite, session,
};
use loopstore::internal::record_report;
use loopstore::tokens::TokenCounter;
use loopstore::{
    AgentMessage, ContinuationKind, Json, LoopId, LoopRecord, LoopStatus, Role, StoreError,
};

use crate::error::{Error, Result};
use crate::record::{ListPart, MessagePosition, MessagesOf, Segment, StoredList, kinds};
use crate::reports::report_of;

/// The field of a loop with the message of its parent after which it begins.
pub(crate) const PARENT_SEQ: &str = "parent_seq";

/// A writer of lists to a session.
pub(crate) struct Lines<'a> {
    pub(crate) write: &'a mut dyn StoreWrite,
    pub(crate) session: SessionKey,
    pub(crate) counter: &'a dyn TokenCounter,
    /// The loop of the last message of the state; the record is appended there.
    home: Option<LoopKey>,
    /// The running append to the loop that was written last.
    open: Option<TurnsAppend>,
    /// A sentence for each part of a report of cleared content that is not recorded as an edit.
    pub(crate) notes: Vec<String>,
}

impl<'a> Lines<'a> {
    /// Returns a writer to a session; the state ends in the loop `home`.
    pub(crate) fn new(
        write: &'a mut dyn StoreWrite,
        session: SessionKey,
        counter: &'a dyn TokenCounter,
        home: Option<LoopKey>,
    ) -> Self {
        Self {
            write,
            session,
            counter,
            home,
            open: None,
            notes: Vec::new(),
        }
    }

    /// Appends a record as an extension under its names, and finishes the append.
    pub(crate) fn finish(mut self, kind: &str, data: Json, names: Vec<String>) -> Result<()> {
        let message = AgentMessage::extension(kind, data);
        let (loop_key, place) = self.push_extension(self.home, message)?;
        self.close()?;
        for name in names {
            let key = AppendKey {
                name,
                loop_key,
                seqs: place.1..place.1.saturating_add(1),
                turns: 0..0,
                tokens: 0,
            };
            self.write.insert_append_key(self.session, &key)?;
        }
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        if let Some(open) = self.open.take() {
            open.finish(self.write)?;
        }
        Ok(())
    }

    /// Returns the append to a loop.
    fn open(&mut self, leaf: Option<LoopKey>) -> Result<&mut TurnsAppend> {
        if self
            .open
            .as_ref()
            .is_some_and(|open| Some(open.loop_key()) != leaf)
        {
            self.close()?;
        }
        let open = match self.open.take() {
            Some(open) => open,
            None => TurnsAppend::begin(self.write, self.session, leaf)?,
        };
        Ok(self.open.insert(open))
    }

    /// Appends a message, and returns its position.
    fn push(
        &mut self,
        leaf: Option<LoopKey>,
        message: AgentMessage,
    ) -> Result<(LoopKey, MessagePosition)> {
        self.open(leaf)?;
        let Some(open) = self.open.as_mut() else {
            return Err(Error::Invalid("nothing is open".into()));
        };
        open.push(self.write, message, self.counter)?;
        let seq = open.next_seq().saturating_sub(1);
        Ok((
            open.loop_key(),
            MessagePosition(open.loop_id().clone(), seq),
        ))
    }

    /// Returns the loop of a message.
    fn loop_of(&self, place: &MessagePosition) -> Result<LoopKey> {
        match &self.open {
            Some(open) if *open.loop_id() == place.0 && place.1 < open.next_seq() => {
                Ok(open.loop_key())
            }
            _ => Ok(loop_at(self.write, self.session, place)?.key),
        }
    }

    /// Stores a list, and returns its positions.
    pub(crate) fn store(&mut self, parts: Vec<ListPart>) -> Result<StoredList> {
        let mut list = StoredList {
            segments: Vec::new(),
            new: Vec::new(),
        };
        let last = parts.len().saturating_sub(1);
        let mut behind = None;
        for (at, part) in parts.into_iter().enumerate() {
            list.segments.extend(part.kept);
            behind = part.behind.or(behind);
            if at < last {
                for message in part.new {
                    let data = Json::of(&message).map_err(|error| invalid(&error))?;
                    self.push_single(&mut list, AgentMessage::extension(kinds::MESSAGE, data))?;
                }
            } else {
                self.push_tail(&mut list, part.new, behind.as_ref())?;
            }
        }
        if let Some(end) = end_of(&list.segments) {
            self.home = Some(self.loop_of(end)?);
        }
        Ok(list)
    }

    /// Stores the lists that values refer to, and returns their positions. Only lists with new messages set the loop of
    /// the record: other lists may be far back.
    pub(crate) fn store_said(&mut self, said: Vec<Vec<ListPart>>) -> Result<Vec<StoredList>> {
        let mut stored = Vec::new();
        for parts in said {
            let home = self.home;
            let list = self.store(parts)?;
            if list.new.is_empty() {
                self.home = home;
            }
            stored.push(list);
        }
        Ok(stored)
    }

    /// Appends the messages at the end of a list; an empty list begins after the message `behind`.
    fn push_tail(
        &mut self,
        list: &mut StoredList,
        new: Vec<AgentMessage>,
        behind: Option<&MessagePosition>,
    ) -> Result<()> {
        let mut group: Vec<AgentMessage> = Vec::new();
        for message in new {
            let is_single = message.role() == Role::Extension;
            // Only a user message may begin a loop, so that a group belongs to one loop.
            if is_single || message.role() == Role::User {
                self.push_group(list, std::mem::take(&mut group), behind)?;
            }
            if is_single {
                self.push_single(list, message)?;
            } else {
                group.push(message);
            }
        }
        self.push_group(list, group, behind)
    }

    fn push_group(
        &mut self,
        list: &mut StoredList,
        group: Vec<AgentMessage>,
        behind: Option<&MessagePosition>,
    ) -> Result<()> {
        let count = group.len();
        if count == 0 {
            return Ok(());
        }
        let end = end_of(&list.segments).or(behind).cloned();
        let mut leaf = match (&self.open, &end) {
            (Some(open), Some(end))
                if end.0 == *open.loop_id() && end.1.saturating_add(1) == open.next_seq() =>
            {
                Some(open.loop_key())
            }
            _ => {
                self.close()?;
                self.leaf_after(end.as_ref())?
            }
        };
        let mut places = Vec::with_capacity(count);
        for mut message in group {
            self.record_report(leaf, &mut message)?;
            let (loop_key, place) = self.push(leaf, message)?;
            (leaf, self.home) = (Some(loop_key), Some(loop_key));
            places.push(place);
        }
        let (Some(first), Some(last)) = (places.first(), places.last()) else {
            return Ok(());
        };
        match list.segments.last_mut() {
            Some(segment) if segment.to.is_some() => segment.to = Some(last.clone()),
            _ => list.segments.push(Segment {
                from: first.clone(),
                to: Some(last.clone()),
            }),
        }
        let segment = list.segments.len() - 1;
        let new = places
            .into_iter()
            .map(|MessagePosition(id, seq)| (id, seq, segment));
        list.new.extend(new);
        Ok(())
    }

    /// Records what an answer reports as cleared, as a run of edits before the answer.
    fn record_report(&mut self, leaf: Option<LoopKey>, answer: &mut AgentMessage) -> Result<()> {
        let Some(report) = report_of(answer) else {
            return Ok(());
        };
        answer
            .set_applied_edits(&report)
            .map_err(|error| invalid(&error))?;
        // The run reads the messages before the answer.
        self.close()?;
        let reported = (&*answer, &report, None);
        let notes = record_report(self.write, leaf, reported, self.counter)?;
        self.notes.extend(notes);
        Ok(())
    }

    fn push_single(&mut self, list: &mut StoredList, message: AgentMessage) -> Result<()> {
        let at = end_of(&list.segments)
            .map(|end| self.loop_of(end))
            .transpose()?;
        let (_, place) = self.push_extension(at.or(self.home), message)?;
        list.new
            .push((place.0.clone(), place.1, list.segments.len()));
        list.segments.push(Segment {
            from: place,
            to: None,
        });
        Ok(())
    }

    /// Appends an extension to a loop, the current one if `None`.
    fn push_extension(
        &mut self,
        at: Option<LoopKey>,
        message: AgentMessage,
    ) -> Result<(LoopKey, MessagePosition)> {
        let at = match (at, &self.open) {
            (Some(at), _) => Some(at),
            (None, Some(open)) => Some(open.loop_key()),
            (None, None) => self.write.session_by_key(self.session)?.current_loop,
        };
        self.push(at, message)
    }

    /// Returns the loop to append to after a message; `None` if the session has no loop yet.
    fn leaf_after(&mut self, end: Option<&MessagePosition>) -> Result<Option<LoopKey>> {
        let Some(end) = end else {
            return self.empty_line();
        };
        let row = loop_at(self.write, self.session, end)?;
        if is_line_end(self.write, &row, end.1)? {
            return Ok(Some(row.key));
        }
        let id = free_loop_id(self.write, self.session)?;
        let mut record = LoopRecord::new(id.clone(), Some(row.loop_id.clone()));
        let turn = turn_of(self.write, &row, end.1)?;
        record.parent_turn = Some(turn.map_or(session::NO_TURN, i64::from).into());
        record.extra.insert(
            PARENT_SEQ,
            Json::of(&end.1).map_err(|error| invalid(&error))?,
        );
        record.status = LoopStatus::Running;
        record.continuation_kind = Some(ContinuationKind::Branch {
            tag: id.to_string(),
        });
        let key = session::create_loop(self.write, self.session, &record)?;
        Ok(Some(key))
    }

    /// Returns a loop for a list without an earlier message.
    fn empty_line(&mut self) -> Result<Option<LoopKey>> {
        let Some(current) = self.write.session_by_key(self.session)?.current_loop else {
            return Ok(None);
        };
        let row = self.write.loop_by_key(current)?;
        if row.totals.messages == 0 && row.parent.is_none() {
            return Ok(Some(current));
        }
        let id = free_loop_id(self.write, self.session)?;
        let mut record = LoopRecord::new(id, None);
        record.status = LoopStatus::Running;
        Ok(Some(session::create_loop(
            self.write,
            self.session,
            &record,
        )?))
    }
}

fn invalid(error: &serde_json::Error) -> Error {
    Error::Invalid(error.to_string())
}

/// Returns the last message of a list that is on a line.
fn end_of(segments: &[Segment]) -> Option<&MessagePosition> {
    segments
        .iter()
        .rev()
        .find_map(|segment| segment.to.as_ref())
}

/// True if only extensions follow a message.
fn is_line_end(read: &dyn StoreRead, row: &LoopCore, seq: u32) -> Result<bool> {
    let mut is_last = true;
    let behind = seq.saturating_add(1)..row.totals.next_seq;
    read.sizes(row.key, behind, &mut |size| {
        is_last &= size.role == Role::Extension;
        Ok(if is_last {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        })
    })?;
    Ok(is_last && read.default_child(row.key)?.is_none())
}

/// Returns the turn of a message.
fn turn_of(read: &dyn StoreRead, row: &LoopCore, seq: u32) -> Result<Option<u32>> {
    let mut turn = None;
    read.sizes(row.key, seq..seq.saturating_add(1), &mut |size| {
        turn = size.turn;
        Ok(ControlFlow::Break(()))
    })?;
    Ok(turn)
}

pub(crate) fn loop_at(
    read: &dyn StoreRead,
    session: SessionKey,
    place: &MessagePosition,
) -> Result<LoopCore> {
    let row = read.loop_by_id(session, &place.0)?;
    let row = row.ok_or_else(|| StoreError::NoLoop(place.0.to_string()))?;
    if place.1 >= row.totals.next_seq {
        let MessagePosition(id, seq) = place;
        return Err(Error::Invalid(format!("loop `{id}` has no message {seq}")));
    }
    Ok(row.core)
}

/// Returns the messages of each loop in a segment of a line, root first.
fn ranges(
    read: &dyn StoreRead,
    session: SessionKey,
    from: &MessagePosition,
    to: &MessagePosition,
) -> Result<Vec<(LoopCore, Range<u32>)>> {
    let mut row = loop_at(read, session, to)?;
    let mut end = to.1.saturating_add(1);
    let mut found = Vec::new();
    while row.loop_id != from.0 {
        let above = row.parent.map(|key| read.loop_by_key(key)).transpose()?;
        let Some(above) = above else {
            let (from, to) = (&from.0, &to.0);
            return Err(Error::Invalid(format!("loop `{from}` is not above `{to}`")));
        };
        let cut = cut_of(read, &row, &above)?;
        found.push((row, 0..end));
        (row, end) = (above.core, cut);
    }
    found.push((row, from.1..end));
    found.reverse();
    Ok(found)
}

/// Returns the sequence in the parent at which a loop branches off.
fn cut_of(read: &dyn StoreRead, row: &LoopCore, above: &LoopCore) -> Result<u32> {
    if let Some(last) = row.parent_seq {
        return Ok(last.saturating_add(1));
    }
    let turns = row.parent_turns();
    if turns == 0 {
        return Ok(0);
    }
    let next = read.turn(above.key, turns)?;
    Ok(next.map_or(above.totals.next_seq, |turn| turn.first_seq))
}

/// Reads the messages of a segment.
pub(crate) fn read_segment(
    read: &dyn StoreRead,
    session: SessionKey,
    segment: Segment,
    bodies: crate::Bodies,
) -> Result<MessagesOf> {
    let mut found = MessagesOf {
        segment,
        places: Vec::new(),
        messages: Vec::new(),
    };
    let parts = match &found.segment.to {
        Some(to) => ranges(read, session, &found.segment.from, to)?,
        None => {
            let row = loop_at(read, session, &found.segment.from)?;
            let seq = found.segment.from.1;
            vec![(row, seq..seq.saturating_add(1))]
        }
    };
    let is_line = found.segment.to.is_some();
    let only_changed = bodies == crate::Bodies::Changed;
    for (row, seqs) in parts {
        let id: &LoopId = &row.loop_id;
        read.message_refs(row.key, seqs, only_changed, &mut |stored| {
            if !is_line || stored.message.role != Role::Extension {
                // A redaction deletes the salt.
                let is_original = stored.message.head.is_some()
                    && stored
                        .message
                        .proof
                        .is_some_and(|proof| proof.salt.is_some());
                let message = match only_changed && is_original {
                    true => None,
                    false => Some(extend::decode_ref(read, &stored.message)?),
                };
                found.places.push(MessagePosition(id.clone(), stored.seq));
                found.messages.push(message);
            }
            Ok(ControlFlow::Continue(()))
        })?;
    }
    Ok(found)
}
