//! A session that is one line of prompts, on its way to the sink: loops one after the other, turns
//! as the model answers, results with the calls that they answer.
//!
//! A loop is held until the next one begins or the transcript ends: only then its status is known.

use std::collections::{HashMap, HashSet};

use super::values::loop_id;
use super::{FoundCompaction, FoundEffect, ImportError, SessionHead, Sink};
use crate::model::{
    AgentMessage, ChildLoopRef, Json, LoopId, LoopRecord, LoopStatus, Message, Role, Time, TurnId,
    Usage,
};

/// What a loop begins with.
#[derive(Default)]
pub(super) struct Start {
    /// Its id; `None`, taken or no id: `loop-N`.
    pub(super) id: Option<String>,
    pub(super) agent: Option<String>,
    pub(super) at: Option<Time>,
    pub(super) metadata: Option<Json>,
}

/// Where a call stands: its loop and turn.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Site {
    nth: u32,
    turn: u32,
}

/// What a loop holds until it is told.
// Nearly all are messages: a box for each would cost more than the room that the others waste.
#[expect(clippy::large_enum_variant)]
enum Held {
    Message(AgentMessage, Vec<u8>),
    /// One after which the loop goes on.
    Compaction(Box<FoundCompaction>),
}

/// One session.
pub(super) struct Thread<'a> {
    pub(super) sink: &'a mut dyn Sink,
    /// Until the first loop is there.
    head: Option<SessionHead>,
    ids: HashSet<String>,
    parent: Option<LoopId>,
    nth: u32,
    start: Start,
    config: Option<Json>,
    children: Vec<ChildLoopRef>,
    status: Option<LoopStatus>,
    /// Tokens of the loop as a whole.
    pub(super) usage: Option<Usage>,
    held: Vec<Held>,
    compaction: Option<FoundCompaction>,
    turn: u32,
    prompted: bool,
    answered: bool,
    /// Whether the agent goes on after what was said last.
    goes_on: bool,
    ended: Option<Time>,
    /// The calls so far: the tool, and where the last of this id stands.
    calls: HashMap<String, (String, Site)>,
    open: Vec<(String, Site)>,
}

impl<'a> Thread<'a> {
    pub(super) fn new(sink: &'a mut dyn Sink, head: SessionHead) -> Self {
        Self {
            sink,
            head: Some(head),
            ids: HashSet::new(),
            parent: None,
            nth: 0,
            start: Start::default(),
            config: None,
            children: Vec::new(),
            status: None,
            usage: None,
            held: Vec::new(),
            compaction: None,
            turn: 0,
            prompted: false,
            answered: false,
            goes_on: false,
            ended: None,
            calls: HashMap::new(),
            open: Vec::new(),
        }
    }

    /// Begins a loop; notes that stand before it belong to it.
    pub(super) fn begin(&mut self, start: Start) -> Result<(), ImportError> {
        if self.holds_more_than_notes() {
            self.flush(false)?;
            self.nth += 1;
        }
        self.start = start;
        Ok(())
    }

    fn holds_more_than_notes(&self) -> bool {
        let said = |held: &Held| match held {
            Held::Message(message, _) => message.role() != Role::Extension,
            Held::Compaction(_) => true,
        };
        self.compaction.is_some() || self.held.iter().any(said)
    }

    /// Adds a message of the user that the next answer is for.
    pub(super) fn prompt(&mut self, message: AgentMessage, raw: &[u8]) -> Result<(), ImportError> {
        self.after_compaction()?;
        self.turn += u32::from(std::mem::take(&mut self.answered));
        self.prompted = true;
        self.goes_on = false;
        self.put(message, self.turn, raw);
        Ok(())
    }

    /// Adds an answer of the model; `goes_on`: the agent will call it again.
    pub(super) fn answer(
        &mut self,
        message: AgentMessage,
        raw: &[u8],
        goes_on: bool,
    ) -> Result<(), ImportError> {
        self.after_compaction()?;
        self.turn += u32::from(self.answered);
        self.goes_on = goes_on;
        self.more(message, raw)
    }

    /// Adds more of the last answer.
    pub(super) fn more(&mut self, message: AgentMessage, raw: &[u8]) -> Result<(), ImportError> {
        self.after_compaction()?;
        self.answered = true;
        let site = Site {
            nth: self.nth,
            turn: self.turn,
        };
        if let Some(Message::Assistant(answer)) = message.message() {
            if let (None, Some(model)) = (&self.config, &answer.model) {
                let config = serde_json::json!({ "model": model, "provider": answer.provider });
                self.config = Json::of(&config).ok();
            }
            for call in message.message().into_iter().flat_map(Message::tool_calls) {
                let known = (call.name.clone(), site);
                self.calls.insert(call.id.clone(), known);
                self.open.push((call.id.clone(), site));
            }
        }
        self.put(message, self.turn, raw);
        Ok(())
    }

    /// Adds the result of a call, in the turn of the call.
    pub(super) fn result(
        &mut self,
        mut message: AgentMessage,
        raw: &[u8],
    ) -> Result<(), ImportError> {
        self.after_compaction()?;
        let mut turn = self.turn;
        if let Some(Message::ToolResult(result)) = message.message_mut()
            && let Some((name, site)) = self.calls.get(&result.tool_call_id)
        {
            let is_open = |(id, _): &(String, Site)| *id == result.tool_call_id;
            if let Some(at) = self.open.iter().rposition(is_open) {
                self.open.remove(at);
            }
            if site.nth == self.nth {
                turn = site.turn;
            }
            if result.tool_name.is_empty() {
                result.tool_name.clone_from(name);
            }
        }
        self.goes_on = true;
        self.put(message, turn, raw);
        Ok(())
    }

    /// Adds what a tool gave back as a message in the user's name.
    pub(super) fn observation(
        &mut self,
        message: AgentMessage,
        raw: &[u8],
    ) -> Result<(), ImportError> {
        self.after_compaction()?;
        self.goes_on = true;
        self.put(message, self.turn, raw);
        Ok(())
    }

    /// Adds what no model sees.
    pub(super) fn note(&mut self, message: AgentMessage, raw: &[u8]) -> Result<(), ImportError> {
        self.after_compaction()?;
        self.put(message, self.turn, raw);
        Ok(())
    }

    /// Adds a compaction by which everything so far gave way to `messages`.
    pub(super) fn compacted(
        &mut self,
        strategy: &str,
        messages: Vec<AgentMessage>,
        trigger: Option<&str>,
        at: Option<Time>,
        record: Json,
    ) -> Result<(), ImportError> {
        self.after_compaction()?;
        self.compaction = Some(FoundCompaction {
            loop_id: self.id()?,
            strategy: strategy.into(),
            trigger: trigger.map(str::to_owned),
            effect: FoundEffect::Summary {
                messages,
                first_kept: None,
            },
            at,
            record,
        });
        Ok(())
    }

    /// Adds a compaction after which the loop goes on: what stands before `first_kept` gave way to
    /// `messages`.
    pub(super) fn condensed(
        &mut self,
        strategy: &str,
        messages: Vec<AgentMessage>,
        first_kept: Option<(LoopId, u32)>,
        at: Option<Time>,
        record: Json,
    ) -> Result<(), ImportError> {
        self.after_compaction()?;
        let found = FoundCompaction {
            loop_id: self.id()?,
            strategy: strategy.into(),
            trigger: None,
            effect: FoundEffect::Summary {
                messages,
                first_kept,
            },
            at,
            record,
        };
        self.held.push(Held::Compaction(Box::new(found)));
        Ok(())
    }

    /// Returns loop and turn of what was said last.
    pub(super) fn last_site(&self) -> Result<(LoopId, u32), ImportError> {
        let turn = self.held.iter().rev().find_map(|held| match held {
            Held::Message(message, _) => message.turn_index(),
            Held::Compaction(_) => None,
        });
        let turn = turn.and_then(|turn| u32::try_from(turn).ok());
        Ok((self.id()?, turn.unwrap_or(self.turn)))
    }

    /// A loop ends with its compaction: what comes after it is another one.
    fn after_compaction(&mut self) -> Result<(), ImportError> {
        match self.compaction {
            Some(_) => self.begin(Start::default()),
            None => Ok(()),
        }
    }

    /// Notes a session that a call of this loop started.
    pub(super) fn child(&mut self, child: ChildLoopRef) {
        self.children.push(child);
    }

    /// Says how the loop ended.
    pub(super) fn ended_as(&mut self, status: Option<LoopStatus>) {
        self.status = status;
    }

    /// Tells what is left, and returns whether there was anything.
    pub(super) fn end(mut self) -> Result<bool, ImportError> {
        self.flush(true)?;
        Ok(self.head.is_none())
    }

    fn put(&mut self, message: AgentMessage, turn: u32, raw: &[u8]) {
        if let Some(time) = message
            .message()
            .and_then(Message::timestamp)
            .and_then(Time::from_millis)
        {
            self.ended = Some(time);
        }
        let message = match self.id() {
            Ok(id) => message.in_turn(TurnId::new(id.as_str(), turn)),
            Err(_) => message,
        };
        self.held.push(Held::Message(message, raw.to_vec()));
    }

    fn id(&self) -> Result<LoopId, ImportError> {
        let free = |id: &&String| !self.ids.contains(id.as_str());
        let given = self.start.id.as_ref().filter(free).and_then(loop_id);
        let mut name = format!("loop-{}", self.nth);
        while given.is_none() && self.ids.contains(&name) {
            name.push('~');
        }
        match given {
            Some(id) => Ok(id),
            None => LoopId::new(name).map_err(|e| ImportError::NoTranscript(e.to_string())),
        }
    }

    fn flush(&mut self, last: bool) -> Result<(), ImportError> {
        if self.held.is_empty() && self.compaction.is_none() {
            return Ok(());
        }
        if let Some(head) = self.head.take() {
            self.sink.session(head)?;
        }
        let record = self.record(last)?;
        let id = record.loop_id.clone();
        self.tell_held(record)?;
        if let Some(found) = self.compaction.take() {
            self.sink.compaction(found)?;
        }
        self.ids.insert(id.as_str().to_owned());
        self.parent = Some(id);
        (self.turn, self.prompted, self.answered) = (0, false, false);
        (self.goes_on, self.ended) = (false, None);
        Ok(())
    }

    fn tell_held(&mut self, record: LoopRecord) -> Result<(), ImportError> {
        let held = std::mem::take(&mut self.held);
        let goes_on = |held: &Held| matches!(held, Held::Compaction(_));
        // While a loop runs, its last turn counts as in flight: a compaction leaves that alone.
        let ended = held.iter().any(goes_on).then(|| record.clone());
        let status = match ended {
            Some(_) => LoopStatus::Running,
            None => record.status.clone(),
        };
        let id = record.loop_id.clone();
        self.sink.begin_loop(LoopRecord { status, ..record })?;
        for held in held {
            match held {
                Held::Message(message, raw) => self.sink.message(&id, message, &raw)?,
                Held::Compaction(found) => self.sink.compaction(*found)?,
            }
        }
        ended.map_or(Ok(()), |record| self.sink.begin_loop(record))
    }

    fn record(&mut self, last: bool) -> Result<LoopRecord, ImportError> {
        let mut record = LoopRecord::new(self.id()?, self.parent.clone());
        let start = std::mem::take(&mut self.start);
        record.status = self.status(last);
        record.agent_id = start.agent;
        record.started_at = start.at;
        record.ended_at = self.ended.take().filter(|_| record.status.is_ended());
        record.metadata = start.metadata;
        record.config = self.config.take();
        record.usage = self.usage.take();
        record.child_loop_refs = std::mem::take(&mut self.children);
        Ok(record)
    }

    fn status(&mut self, last: bool) -> LoopStatus {
        if let Some(status) = self.status.take() {
            return status;
        }
        let open = self.open.iter().any(|(_, site)| site.nth == self.nth);
        let waiting = self.prompted && !self.answered || open || last && self.goes_on;
        match (waiting, last) {
            (false, _) => LoopStatus::Completed,
            (true, true) => LoopStatus::Running,
            (true, false) => LoopStatus::Aborted,
        }
    }
}
