//! Sessions whose records come one after another: where a loop begins, which turn a message belongs
//! to, and where each loop stands at the end.
//!
//! Everything is decided by what came before, so that a transcript that has grown gives what it
//! gave before and then more. Positions of turns equal their indices: no turn is without a message.

mod heads;
mod told;

use std::collections::HashMap;

pub(super) use self::heads::{identity, session, started_by};
use self::told::Told;
use super::{FoundCompaction, FoundEffect, ImportError, SessionHead, Sink};
use crate::model::{
    AgentMessage, ChildLoopRef, ContinuationKind, Json, LoopId, LoopRecord, LoopStatus, Role, Time,
    TurnId,
};

/// A loop, by its number, and a turn of it.
pub(super) type Spot = (usize, u32);

/// What stands before the first prompt waits for it, up to this many bytes.
const MAX_LEAD_BYTES: usize = 4 << 20;

/// What begins a loop.
pub(super) struct NewLoop {
    /// Its id, if none has it yet.
    pub(super) id: String,
    /// The turn that it goes on from.
    pub(super) parent: Option<Spot>,
    pub(super) kind: ContinuationKind,
}

/// A session on its way to the sink.
pub(super) struct Telling {
    head: SessionHead,
    loops: Vec<Told>,
    /// The loops' ids, and the last number that was given to one of each.
    ids: HashMap<String, u32>,
    /// Every call by its id, the last one of each: its tool, and where it stands.
    calls: HashMap<String, (String, Spot)>,
    lead: Vec<(AgentMessage, Vec<u8>)>,
    lead_bytes: usize,
    now: Option<Time>,
    last: Option<Spot>,
}

impl Telling {
    pub(super) fn new(head: SessionHead) -> Self {
        Self {
            head,
            loops: Vec::new(),
            ids: HashMap::new(),
            calls: HashMap::new(),
            lead: Vec::new(),
            lead_bytes: 0,
            now: None,
            last: None,
        }
    }

    /// Says when what comes next happened.
    pub(super) fn at(&mut self, time: Option<Time>) {
        if time.is_some() {
            self.now = time;
        }
    }

    /// Where the transcript stands.
    pub(super) fn here(&self) -> Option<Spot> {
        let loop_no = self.loops.len().checked_sub(1)?;
        Some((loop_no, self.loops[loop_no].turn))
    }

    /// Returns the session's head.
    pub(super) fn head(&self) -> &SessionHead {
        &self.head
    }

    /// Where the message that was told last stands; `None` while it waits for the first loop.
    pub(super) fn last_spot(&self) -> Option<Spot> {
        self.last
    }

    /// Returns the id of a loop that was begun.
    pub(super) fn loop_id(&self, loop_no: usize) -> Option<&LoopId> {
        self.loops.get(loop_no).map(|told| &told.id)
    }

    /// Returns the turn that a loop goes on from.
    pub(super) fn parent(&self, loop_no: usize) -> Option<Spot> {
        self.loops.get(loop_no)?.parent
    }

    /// Whether a loop that goes on from this turn would be the first that does, at the loop's end.
    pub(super) fn is_tail(&self, (loop_no, turn): Spot) -> bool {
        let told = &self.loops[loop_no];
        turn >= told.turn && told.last_child.is_none_or(|child| child < turn)
    }

    /// Returns the tool of a call.
    pub(super) fn tool_name(&self, id: &str) -> Option<&str> {
        self.calls.get(id).map(|(name, _)| name.as_str())
    }

    /// Returns the open call that a result answers which does not name it: the first of this tool,
    /// else, without a tool, the first.
    pub(super) fn open_call(&self, tool: Option<&str>) -> Option<String> {
        let open = &self.loops.last()?.open;
        let fits = |name: &str| tool.is_none_or(|tool| tool == name);
        let call = open.iter().find(|(_, name)| fits(name))?;
        Some(call.0.clone())
    }

    /// Begins a loop.
    pub(super) fn begin(
        &mut self,
        new: NewLoop,
        sink: &mut dyn Sink,
    ) -> Result<usize, ImportError> {
        match self.loops.len().checked_sub(1) {
            Some(before) => self.end(before, false, sink)?,
            None => sink.session(self.head.clone())?,
        }
        if let Some((parent, turn)) = new.parent {
            let last = &mut self.loops[parent].last_child;
            *last = Some(last.map_or(turn, |last| last.max(turn)));
        }
        let id = self.unused(new.id);
        let told = Told::new(id, new.parent, new.kind, self.now.clone());
        self.loops.push(told);
        let loop_no = self.loops.len() - 1;
        sink.begin_loop(self.record(loop_no, None))?;
        self.lead_bytes = 0;
        for (message, raw) in std::mem::take(&mut self.lead) {
            self.push(loop_no, message, &raw, sink)?;
        }
        Ok(loop_no)
    }

    /// Begins the loop of a prompt that goes on where the transcript stands.
    pub(super) fn prompt(
        &mut self,
        id: String,
        message: AgentMessage,
        raw: &[u8],
        sink: &mut dyn Sink,
    ) -> Result<(), ImportError> {
        self.go_on(id, sink)?;
        self.said(message, raw, true, sink)
    }

    /// Begins a loop that goes on where the transcript stands.
    pub(super) fn go_on(&mut self, id: String, sink: &mut dyn Sink) -> Result<usize, ImportError> {
        let parent = self.here();
        let kind = match parent {
            None => ContinuationKind::Initial,
            Some(_) => ContinuationKind::Default,
        };
        self.begin(NewLoop { id, parent, kind }, sink)
    }

    /// Takes a record that no model sees.
    pub(super) fn note(
        &mut self,
        message: AgentMessage,
        raw: &[u8],
        sink: &mut dyn Sink,
    ) -> Result<(), ImportError> {
        match self.loops.len().checked_sub(1) {
            Some(loop_no) => self.push(loop_no, message, raw, sink),
            None => self.wait(message, raw, sink),
        }
    }

    /// Takes a text in the user's name that begins no loop; it may want no answer.
    pub(super) fn said(
        &mut self,
        message: AgentMessage,
        raw: &[u8],
        wants_answer: bool,
        sink: &mut dyn Sink,
    ) -> Result<(), ImportError> {
        let Some(loop_no) = self.loops.len().checked_sub(1) else {
            return self.wait(message, raw, sink);
        };
        let told = &mut self.loops[loop_no];
        if told.answered {
            told.turn += 1;
            told.answered = false;
            told.open.clear();
        }
        told.waiting |= wants_answer;
        self.push(loop_no, message, raw, sink)
    }

    /// Takes an answer; `id` names the loop if none was begun.
    pub(super) fn answer(
        &mut self,
        id: impl FnOnce() -> String,
        message: AgentMessage,
        raw: &[u8],
        sink: &mut dyn Sink,
    ) -> Result<(), ImportError> {
        if self.loops.is_empty() {
            self.go_on(id(), sink)?;
        }
        let loop_no = self.loops.len() - 1;
        let told = &mut self.loops[loop_no];
        if let Some(answer) = message.message() {
            told.answer(answer);
            for call in answer.tool_calls() {
                let spot = (loop_no, told.turn);
                self.calls
                    .insert(call.id.clone(), (call.name.clone(), spot));
            }
        }
        self.push(loop_no, message, raw, sink)
    }

    /// Takes the result of a call. It stands with its call if that is in the last turn of its loop.
    pub(super) fn result(
        &mut self,
        call: &str,
        id: impl FnOnce() -> String,
        message: AgentMessage,
        raw: &[u8],
        sink: &mut dyn Sink,
    ) -> Result<(), ImportError> {
        if self.loops.is_empty() {
            self.go_on(id(), sink)?;
        }
        let last = self.loops.len() - 1;
        let of_call = self.calls.get(call).map(|(_, spot)| *spot);
        let loop_no = match of_call {
            Some((loop_no, turn)) if self.loops[loop_no].turn == turn => loop_no,
            _ => last,
        };
        let told = &mut self.loops[loop_no];
        let answered = told.open.iter().position(|(id, _)| id == call);
        if let Some(at) = answered {
            told.open.remove(at);
        }
        told.waiting |= loop_no == last;
        self.push(loop_no, message, raw, sink)
    }

    /// Notes that the run was stopped.
    pub(super) fn interrupted(&mut self) {
        if let Some(told) = self.loops.last_mut() {
            told.interrupted = true;
            told.is_changed = true;
        }
    }

    /// Goes on with the session after another one was told of.
    pub(super) fn resume(&self, sink: &mut dyn Sink) -> Result<(), ImportError> {
        match self.loops.is_empty() {
            true => Ok(()),
            false => sink.session(self.head.clone()),
        }
    }

    /// Returns the tool of a call and the loop that it stands in.
    pub(super) fn site(&self, call: &str) -> Option<(&str, &LoopId)> {
        let (name, (loop_no, _)) = self.calls.get(call)?;
        Some((name, &self.loops.get(*loop_no)?.id))
    }

    /// Notes the loop of another session that a call started.
    pub(super) fn started(&mut self, call: &str, child: ChildLoopRef) {
        if let Some((_, (loop_no, _))) = self.calls.get(call)
            && let Some(told) = self.loops.get_mut(*loop_no)
        {
            told.children.push(child);
            told.is_changed = true;
        }
    }

    /// Takes a compaction that happened where the transcript stands; there must be a loop.
    pub(super) fn compaction(
        &mut self,
        strategy: &str,
        trigger: Option<String>,
        effect: FoundEffect,
        record: Json,
        sink: &mut dyn Sink,
    ) -> Result<(), ImportError> {
        let Some(told) = self.loops.last() else {
            return Ok(());
        };
        let is_all =
            matches!(&effect, FoundEffect::Summary { first_kept, .. } if first_kept.is_none());
        if is_all && !told.answered {
            // What was said without an answer is gone too, so it must not count as in flight.
            self.end(self.loops.len() - 1, false, sink)?;
        }
        let Some(told) = self.loops.last() else {
            return Ok(());
        };
        sink.compaction(FoundCompaction {
            loop_id: told.id.clone(),
            strategy: strategy.into(),
            trigger,
            effect,
            at: self.now.clone(),
            record,
        })
    }

    /// Says how the loops ended. Returns whether there was anything to tell of.
    pub(super) fn finish(&mut self, sink: &mut dyn Sink) -> Result<bool, ImportError> {
        for loop_no in 0..self.loops.len() {
            self.end(loop_no, loop_no + 1 == self.loops.len(), sink)?;
        }
        Ok(!self.loops.is_empty())
    }

    fn wait(
        &mut self,
        message: AgentMessage,
        raw: &[u8],
        sink: &mut dyn Sink,
    ) -> Result<(), ImportError> {
        self.lead_bytes += raw.len();
        self.lead.push((message, raw.to_vec()));
        if self.lead_bytes > MAX_LEAD_BYTES {
            self.go_on("start".into(), sink)?;
        }
        Ok(())
    }

    fn push(
        &mut self,
        loop_no: usize,
        message: AgentMessage,
        raw: &[u8],
        sink: &mut dyn Sink,
    ) -> Result<(), ImportError> {
        let told = &mut self.loops[loop_no];
        told.is_changed = true;
        if self.now.is_some() {
            told.ended.clone_from(&self.now);
        }
        if message.role() == Role::Extension {
            return sink.message(&told.id, message, raw);
        }
        told.is_empty = false;
        self.last = Some((loop_no, told.turn));
        let turn_id = TurnId::new(told.id.as_str(), told.turn);
        sink.message(&told.id, message.in_turn(turn_id), raw)
    }

    fn end(
        &mut self,
        loop_no: usize,
        is_last: bool,
        sink: &mut dyn Sink,
    ) -> Result<(), ImportError> {
        if std::mem::take(&mut self.loops[loop_no].is_changed) || is_last {
            let status = self.loops[loop_no].status(is_last);
            sink.begin_loop(self.record(loop_no, Some(status)))?;
        }
        Ok(())
    }

    fn record(&self, loop_no: usize, status: Option<LoopStatus>) -> LoopRecord {
        let told = &self.loops[loop_no];
        let parent = told.parent.map(|(parent, _)| self.loops[parent].id.clone());
        let mut record = told.record(parent, status);
        record.session_id = Some(self.head.session.session_id.clone());
        record.agent_id.clone_from(&self.head.session.agent_id);
        record
    }

    /// Returns `id` as the id of a loop, with a number if a loop has it.
    fn unused(&mut self, id: String) -> LoopId {
        let id = if id.is_empty() || id.len() > 256 {
            format!("loop-{}", self.loops.len())
        } else {
            id
        };
        let mut name = id.clone();
        while self.ids.contains_key(&name) {
            let number = self.ids.entry(id.clone()).or_insert(1);
            *number += 1;
            name = format!("{id}~{number}");
        }
        self.ids.insert(name.clone(), 1);
        LoopId::new(name).unwrap_or_else(|_| LoopId::generate())
    }
}
