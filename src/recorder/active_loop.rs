//! What a recorder knows of a loop between two writes. Nothing here touches the store.

use std::collections::BTreeMap;

use super::error::{RecordError, RecordResult};
use super::event::*;
use crate::model::{
    AgentMessage, ChildLoopRef, Extra, Json, LoopId, Message, Role, SessionId, Time, Turn, TurnId,
};
use crate::store::{Lease, LoopKey, SessionKey};

/// A loop that the recorder drives.
pub(super) struct ActiveLoop {
    pub session: SessionKey,
    pub session_id: SessionId,
    pub loop_key: LoopKey,
    pub loop_id: LoopId,
    pub lease: Lease,
    /// The index of the last turn that was written.
    pub last_index: Option<i64>,
    /// Whether the loop holds messages.
    pub has_messages: bool,
    pub turn: Option<OpenTurn>,
    /// Messages that began and have not ended.
    open: Vec<Place>,
    /// Messages that ended and are not written.
    pub collected: Vec<AgentMessage>,
    /// Calls of the open turn, and whether they have ended.
    calls: BTreeMap<String, bool>,
    pub children: Vec<ChildLoopRef>,
    /// Events that are not written.
    pub events: Vec<AgentEvent>,
    pub rejection: Option<Json>,
}

/// A turn that has begun.
#[derive(Clone)]
pub(super) struct OpenTurn {
    pub index: i64,
    started_at: Option<Time>,
    triggered_by: Option<String>,
}

/// What tells the messages of a loop apart that are open at one time.
#[derive(Clone, PartialEq)]
struct Place(Role, String);

impl Place {
    fn of(message: &AgentMessage) -> Self {
        let name = match (message, message.message()) {
            (_, Some(Message::ToolResult(result))) => result.tool_call_id.clone(),
            (AgentMessage::Extension(extension), _) => extension.kind.clone(),
            _ => String::new(),
        };
        Self(message.role(), name)
    }

    fn told(&self) -> String {
        let words = match self.0 {
            Role::User => "a user message",
            Role::Assistant => "an answer",
            Role::ToolResult => "a tool result",
            Role::Extension => "a note",
        };
        match self.1.as_str() {
            "" => words.to_owned(),
            name => format!("{words} `{}`", short(name)),
        }
    }
}

/// Returns the beginning of a text that another program chose.
pub(super) fn short(text: &str) -> String {
    text.chars().take(64).collect()
}

impl ActiveLoop {
    pub fn new(
        session: (SessionKey, SessionId),
        loop_key: (LoopKey, LoopId),
        lease: Lease,
    ) -> Self {
        Self {
            session: session.0,
            session_id: session.1,
            loop_key: loop_key.0,
            loop_id: loop_key.1,
            lease,
            last_index: None,
            has_messages: false,
            turn: None,
            open: Vec::new(),
            collected: Vec::new(),
            calls: BTreeMap::new(),
            children: Vec::new(),
            events: Vec::new(),
            rejection: None,
        }
    }

    fn id(&self) -> String {
        self.loop_id.to_string()
    }

    fn contradiction(&self, what: impl Into<String>) -> RecordError {
        RecordError::Contradiction {
            loop_id: self.id(),
            what: what.into(),
        }
    }

    /// Returns the open turn.
    pub fn in_turn(&self, event: &'static str) -> RecordResult<&OpenTurn> {
        self.turn.as_ref().ok_or_else(|| RecordError::NoTurn {
            event,
            loop_id: self.id(),
        })
    }

    pub fn begin_turn(&mut self, event: &TurnStart) -> RecordResult<()> {
        if let Some(turn) = &self.turn {
            return Err(RecordError::TurnOpen {
                loop_id: self.id(),
                open: turn.index,
            });
        }
        let index = event.turn_index.get();
        if !(0..=i64::from(u32::MAX)).contains(&index) || Some(index) <= self.last_index {
            return Err(RecordError::TurnIndex {
                loop_id: self.id(),
                given: index,
                last: self.last_index,
            });
        }
        self.turn = Some(OpenTurn {
            index,
            started_at: event.timestamp.clone(),
            triggered_by: event.triggered_by.clone(),
        });
        Ok(())
    }

    /// Checks that an event that names a turn names the open one.
    pub fn check_turn(&self, event: &'static str, given: Option<i64>) -> RecordResult<()> {
        let open = self.in_turn(event)?.index;
        match given {
            Some(given) if given != open => Err(self.contradiction(format!(
                "`{event}` is for turn {given}, but turn {open} is open"
            ))),
            _ => Ok(()),
        }
    }

    pub fn begin_message(&mut self, message: &AgentMessage) -> RecordResult<()> {
        let place = Place::of(message);
        if self.open.contains(&place) {
            return Err(RecordError::MessageOpen {
                loop_id: self.id(),
                message: place.told(),
            });
        }
        self.open.push(place);
        Ok(())
    }

    fn open_place(&self, event: &'static str, message: &AgentMessage) -> RecordResult<usize> {
        let place = Place::of(message);
        let at = self.open.iter().position(|open| *open == place);
        at.ok_or_else(|| RecordError::NoMessage {
            event,
            loop_id: self.id(),
            message: place.told(),
        })
    }

    pub fn update_message(&self, event: &MessageUpdate) -> RecordResult<()> {
        let name = "messageUpdate";
        match &event.message {
            Some(message) => self.open_place(name, message).map(|_| ()),
            None if self.open.is_empty() => Err(RecordError::NoMessage {
                event: name,
                loop_id: self.id(),
                message: "a message".into(),
            }),
            None => Ok(()),
        }
    }

    pub fn end_message(&mut self, message: &AgentMessage) -> RecordResult<()> {
        let at = self.open_place("messageEnd", message)?;
        if let (Some(turn), Some(given)) = (&self.turn, message.turn_index())
            && turn.index != given
        {
            let open = turn.index;
            return Err(self.contradiction(format!(
                "a message belongs to turn {given}, but turn {open} is open"
            )));
        }
        self.open.remove(at);
        self.collected.push(message.clone());
        Ok(())
    }

    /// Checks that a call may start now; [`ActiveLoop::call_started`] follows once it is stored.
    pub fn check_call(&self, call: &str) -> RecordResult<i64> {
        let turn = self.in_turn("toolExecutionStart")?.index;
        if self.calls.contains_key(call) {
            return Err(RecordError::CallOpen {
                loop_id: self.id(),
                call: short(call),
            });
        }
        Ok(turn)
    }

    pub fn call_started(&mut self, call: String) {
        self.calls.insert(call, false);
    }

    pub fn check_running(&self, event: &'static str, call: &str) -> RecordResult<()> {
        match self.calls.get(call) {
            Some(false) => Ok(()),
            _ => Err(RecordError::NoCall {
                event,
                loop_id: self.id(),
                call: short(call),
            }),
        }
    }

    pub fn end_call(&mut self, event: &ToolExecutionEnd) -> RecordResult<()> {
        self.check_running("toolExecutionEnd", &event.tool_call_id)?;
        self.calls.insert(event.tool_call_id.clone(), true);
        if let Some(child) = &event.child_loop_id {
            self.children.push(ChildLoopRef {
                tool_call_id: Some(event.tool_call_id.clone()),
                tool_name: Some(event.tool_name.clone()),
                child_loop_id: child.clone(),
                child_session_id: event.child_session_id.clone(),
                extra: Extra::default(),
            });
        }
        Ok(())
    }

    /// Returns the messages of the turn as they are to be written: those that ended, and those that
    /// only the end of the turn has.
    pub fn turn_messages(&self, end: &TurnEnd) -> RecordResult<Vec<AgentMessage>> {
        self.check_turn("turnEnd", end.turn_index.as_ref().map(|index| index.get()))?;
        let mut all = self.collected.clone();
        if let Some(message) = &end.message {
            self.merge_answer(&mut all, message)?;
        }
        for result in &end.tool_results {
            self.merge_result(&mut all, result)?;
        }
        Ok(self.stamped(all))
    }

    fn merge_answer(&self, all: &mut Vec<AgentMessage>, given: &AgentMessage) -> RecordResult<()> {
        if given.role() != Role::Assistant {
            return Err(self.contradiction("the message of `turnEnd` is not an answer"));
        }
        let mut known = all.iter().filter(|one| one.role() == Role::Assistant);
        if known.clone().any(|one| one.message() == given.message()) {
            return Ok(());
        }
        if known.next().is_some() {
            return Err(
                self.contradiction("the answer of `turnEnd` differs from the one that ended")
            );
        }
        let results = all.iter().position(|one| one.role() == Role::ToolResult);
        all.insert(results.unwrap_or(all.len()), given.clone());
        Ok(())
    }

    fn merge_result(&self, all: &mut Vec<AgentMessage>, given: &AgentMessage) -> RecordResult<()> {
        let Some(Message::ToolResult(result)) = given.message() else {
            return Err(self.contradiction("a tool result of `turnEnd` is not a tool result"));
        };
        let mut known = all
            .iter()
            .filter(|one| *answered(one) == *result.tool_call_id);
        if known.clone().any(|one| one.message() == given.message()) {
            return Ok(());
        }
        if known.next().is_some() {
            let call = short(&result.tool_call_id);
            return Err(self.contradiction(format!(
                "the result of call `{call}` in `turnEnd` differs from the one that ended"
            )));
        }
        all.push(given.clone());
        Ok(())
    }

    /// Puts the messages into the open turn, if there is one.
    pub fn stamped(&self, all: Vec<AgentMessage>) -> Vec<AgentMessage> {
        let Some(turn) = &self.turn else { return all };
        let stamp = |message: AgentMessage| match message.turn_index() {
            Some(index) if index == turn.index => message,
            // The check of the index keeps it within 32 bits.
            _ => message.in_turn(TurnId::new(self.loop_id.as_str(), turn.index as u32)),
        };
        all.into_iter().map(stamp).collect()
    }

    /// Returns what is noted of the open turn; the messages stand as their sequences from `first`.
    pub fn turn_note(&self, messages: &[AgentMessage], first: u32, end: &TurnEnd) -> Option<Turn> {
        let turn = self.turn.as_ref()?;
        let mut extra = Extra::default();
        let seqs = |role: fn(Role) -> bool| -> Vec<String> {
            let numbered = (first..).zip(messages);
            let fits = numbered.filter(|(_, message)| role(message.role()));
            fits.map(|(seq, _)| format!("{{\"$seq\":{seq}}}")).collect()
        };
        let answers = seqs(|role| role == Role::Assistant);
        let output = answers.last().map_or("null", String::as_str).to_owned();
        let list = |seqs: Vec<String>| format!("[{}]", seqs.join(","));
        for (key, text) in [
            ("input_messages", list(seqs(|role| role == Role::User))),
            ("output_message", output),
            ("tool_results", list(seqs(|role| role == Role::ToolResult))),
        ] {
            extra.insert(key, Json::parse(&text).unwrap_or_default());
        }
        let id = serde_json::json!({"loopId": self.loop_id, "turnIndex": turn.index});
        Some(Turn {
            turn_id: Json::of(&id).ok(),
            triggered_by: turn.triggered_by.clone(),
            usage: end.usage.clone(),
            started_at: turn.started_at.clone(),
            ended_at: end.timestamp.clone(),
            extra,
        })
    }

    /// Forgets what is written now.
    pub fn turn_written(&mut self, wrote: bool) {
        if let Some(turn) = self.turn.take() {
            self.last_index = Some(turn.index);
        }
        self.has_messages |= wrote;
        self.open.clear();
        self.collected.clear();
        self.calls.clear();
        self.children.clear();
        self.events.clear();
    }
}

/// Returns the id of the call that a message answers, empty if it answers none.
pub(super) fn answered(message: &AgentMessage) -> &str {
    match message.message() {
        Some(Message::ToolResult(result)) => &result.tool_call_id,
        _ => "",
    }
}
