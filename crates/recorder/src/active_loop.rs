//! The state of a loop between two writes. Nothing here uses the store.

use std::collections::BTreeMap;

use loopstore::extend::{Lease, LoopKey, SessionKey};
use loopstore::model::{
    AgentMessage, ChildLoopRef, Extra, Json, LoopId, Message, Role, SessionId, Time, Turn, TurnId,
};
use loopstore::provider::context_management::ContextManagement;

use crate::OpenTurnState;
use crate::error::{RecordError, RecordResult};
use crate::event::*;
use crate::notes::StoredMessages;

/// A loop that the recorder drives.
pub(crate) struct ActiveLoop {
    pub session: SessionKey,
    pub session_id: SessionId,
    pub loop_key: LoopKey,
    pub loop_id: LoopId,
    pub lease: Lease,
    /// The index of the last turn that has ended.
    pub last_index: Option<i64>,
    /// True if the loop has messages.
    pub has_messages: bool,
    /// True if an answer was recorded here.
    pub has_answer: bool,
    pub turn: Option<OpenTurn>,
    /// The messages since the last turn that has ended.
    pub current: StoredTurn,
    /// Messages that began and have not ended.
    open: Vec<MessageSlot>,
    /// Calls of the open turn, and whether they have ended.
    calls: BTreeMap<String, bool>,
    /// Sub-agents that are not written.
    pub children: Vec<ChildLoopRef>,
    /// Events that are not written.
    pub events: Vec<AgentEvent>,
    pub rejection: Option<Json>,
    /// The setting of the last request that was recorded with its payload.
    pub context_management: Option<ContextManagement>,
}

/// A turn that has begun.
#[derive(Clone)]
pub(crate) struct OpenTurn {
    pub index: i64,
    started_at: Option<Time>,
    triggered_by: Option<String>,
    /// It began before the recorder took the loop over.
    is_resumed: bool,
}

/// The stored messages of a turn that has not ended; it may not even have begun, as for a prompt that
/// comes before its `turnStart`.
#[derive(Default)]
pub(crate) struct StoredTurn {
    /// `None` if there are no messages, or they have no turn.
    pub index: Option<i64>,
    /// Each with its sequence.
    pub messages: Vec<(u32, AgentMessage)>,
    /// The messages as events have them.
    pub known: StoredMessages,
}

impl StoredTurn {
    /// Returns the public state for a resumed loop.
    pub fn state(&self) -> Option<OpenTurnState> {
        Some(OpenTurnState {
            turn_index: self.index?,
            messages: self.iter().cloned().collect(),
        })
    }

    fn iter(&self) -> impl Iterator<Item = &AgentMessage> {
        self.messages.iter().map(|(_, message)| message)
    }

    fn is_answered(&self) -> bool {
        self.iter().any(|one| one.role() == Role::Assistant)
    }

    fn has_open_call(&self) -> bool {
        let results: Vec<&str> = self.iter().map(answered).collect();
        let known_messages = self.iter().filter_map(|one| one.message());
        let mut calls = known_messages.flat_map(Message::tool_calls);
        calls.any(|call| !results.contains(&&*call.id))
    }
}

/// The key of an open message: several may be open in a loop at one time.
#[derive(Clone, PartialEq)]
struct MessageSlot(Role, String);

impl MessageSlot {
    fn of(message: &AgentMessage) -> Self {
        let name = match (message, message.message()) {
            (_, Some(Message::ToolResult(result))) => result.tool_call_id.clone(),
            (AgentMessage::Extension(extension), _) => extension.kind.clone(),
            _ => String::new(),
        };
        Self(message.role(), name)
    }

    fn label(&self) -> String {
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
pub(crate) fn short(text: &str) -> String {
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
            has_answer: false,
            turn: None,
            current: StoredTurn::default(),
            open: Vec::new(),
            calls: BTreeMap::new(),
            children: Vec::new(),
            events: Vec::new(),
            rejection: None,
            context_management: None,
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
        if let Some(turn) = self.turn.as_ref().filter(|turn| !turn.is_resumed) {
            return Err(RecordError::TurnOpen {
                loop_id: self.id(),
                open: turn.index,
            });
        }
        let index = event.turn_index.get();
        // Messages that came before their turn have its index.
        let is_next = self.current.index.is_none_or(|current| current <= index)
            && self.last_index.is_none_or(|last| last < index);
        if !(0..=i64::from(u32::MAX)).contains(&index) || !is_next {
            return Err(RecordError::TurnIndex {
                loop_id: self.id(),
                given: index,
                last: self.current.index.or(self.last_index),
            });
        }
        self.enter(Some(index));
        self.turn = Some(OpenTurn {
            index,
            started_at: event.timestamp.clone(),
            triggered_by: event.triggered_by.clone(),
            is_resumed: false,
        });
        Ok(())
    }

    /// Continues the turn that another recorder left open.
    pub fn resume_turn(&mut self, turn: StoredTurn) {
        self.turn = turn.index.map(|index| OpenTurn {
            index,
            started_at: None,
            triggered_by: None,
            is_resumed: true,
        });
        self.current = turn;
    }

    /// Drops the messages of another turn.
    fn enter(&mut self, index: Option<i64>) {
        if self.current.index == index {
            return;
        }
        self.last_index = self.current.index.or(self.last_index);
        self.current = StoredTurn {
            index,
            ..StoredTurn::default()
        };
        self.turn = None;
    }

    /// Returns the turn of a message that is complete now: the open turn; else, since its turn has not
    /// begun, the turn in the message, or the next one.
    fn index_of(&self, message: &AgentMessage) -> Option<i64> {
        match &self.turn {
            Some(turn) if !turn.is_resumed => return Some(turn.index),
            _ => {}
        }
        let Some(current) = self.current.index else {
            let after = self.last_index;
            let given = message.turn_index();
            let given = given.filter(|given| after.is_none_or(|last| last < *given));
            return given.or(Some(after.map_or(0, |last| last + 1)));
        };
        if let Some(given) = message.turn_index().filter(|given| *given >= current) {
            return Some(given);
        }
        let begins_another = match message.role() {
            Role::Assistant => self.current.is_answered(),
            Role::User => self.current.is_answered() && !self.current.has_open_call(),
            Role::ToolResult | Role::Extension => false,
        };
        Some(current + i64::from(begins_another))
    }

    /// Takes the setting from the payload of a request, which says what the provider may clear before the answer.
    pub fn note_request(&mut self, request: &TurnRequest) {
        #[derive(serde::Deserialize)]
        struct Payload {
            context_management: Option<ContextManagement>,
        }
        let payload = request.request_payload.as_ref();
        let payload = payload.and_then(|payload| payload.read::<Payload>().ok());
        self.context_management = payload.and_then(|payload| payload.context_management);
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
        let slot = MessageSlot::of(message);
        if self.open.contains(&slot) {
            return Err(RecordError::MessageOpen {
                loop_id: self.id(),
                message: slot.label(),
            });
        }
        self.open.push(slot);
        Ok(())
    }

    fn open_slot(&self, event: &'static str, message: &AgentMessage) -> RecordResult<usize> {
        let slot = MessageSlot::of(message);
        let at = self.open.iter().position(|open| *open == slot);
        at.ok_or_else(|| RecordError::NoMessage {
            event,
            loop_id: self.id(),
            message: slot.label(),
        })
    }

    pub fn update_message(&self, event: &MessageUpdate) -> RecordResult<()> {
        let name = "messageUpdate";
        match &event.message {
            Some(message) => self.open_slot(name, message).map(|_| ()),
            None if self.open.is_empty() => Err(RecordError::NoMessage {
                event: name,
                loop_id: self.id(),
                message: "a message".into(),
            }),
            None => Ok(()),
        }
    }

    /// Returns the stored form of a message, if it may end now; [`ActiveLoop::message_written`] follows.
    pub fn end_message(&self, message: &AgentMessage) -> RecordResult<AgentMessage> {
        self.open_slot("messageEnd", message)?;
        if let (Some(turn), Some(given)) = (&self.turn, message.turn_index())
            && !turn.is_resumed
            && turn.index != given
        {
            let open = turn.index;
            return Err(self.contradiction(format!(
                "a message belongs to turn {given}, but turn {open} is open"
            )));
        }
        Ok(self.in_turn_of(message.clone(), self.index_of(message)))
    }

    fn in_turn_of(&self, message: AgentMessage, index: Option<i64>) -> AgentMessage {
        match index.and_then(|index| u32::try_from(index).ok()) {
            Some(index) if message.turn_index() != Some(i64::from(index)) => {
                message.in_turn(TurnId::new(self.loop_id.as_str(), index))
            }
            _ => message,
        }
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

    /// Returns the messages that only the end of the turn has, in their stored form.
    pub fn rest_of_turn(&self, end: &TurnEnd) -> RecordResult<Vec<AgentMessage>> {
        self.check_turn("turnEnd", end.turn_index.as_ref().map(|index| index.get()))?;
        let mut rest = Vec::new();
        if let Some(message) = &end.message {
            if message.role() != Role::Assistant {
                return Err(self.contradiction("the message of `turnEnd` is not an answer"));
            }
            let is_answer = |one: &&AgentMessage| one.role() == Role::Assistant;
            let what = || "the answer".to_owned();
            rest.extend(self.not_stored(message, is_answer, what)?);
        }
        for result in &end.tool_results {
            let Some(Message::ToolResult(answer)) = result.message() else {
                return Err(self.contradiction("a tool result of `turnEnd` is not a tool result"));
            };
            let id = &*answer.tool_call_id;
            let is_result = |one: &&AgentMessage| answered(one) == id;
            let what = || format!("the result of call `{}`", short(id));
            rest.extend(self.not_stored(result, is_result, what)?);
        }
        let index = self.turn.as_ref().map(|turn| turn.index);
        let rest = rest.into_iter();
        Ok(rest.map(|one| self.in_turn_of(one, index)).collect())
    }

    /// Returns a message unless it is stored; another one in its place is an error.
    fn not_stored(
        &self,
        given: &AgentMessage,
        is_alike: impl Fn(&&AgentMessage) -> bool,
        what: impl Fn() -> String,
    ) -> RecordResult<Option<AgentMessage>> {
        let mut alike = self.current.iter().filter(is_alike).peekable();
        if alike.peek().is_none() {
            return Ok(Some(given.clone()));
        }
        match alike.any(|one| one.message() == given.message()) {
            true => Ok(None),
            false => Err(self.contradiction(format!(
                "{} in `turnEnd` differs from the one that ended",
                what()
            ))),
        }
    }

    /// Returns the record of the open turn: its messages, including those that are written with the
    /// record, are replaced by their sequences.
    pub fn turn_note(&self, rest: &[(u32, AgentMessage)], end: &TurnEnd) -> Option<Turn> {
        let turn = self.turn.as_ref()?;
        let mut extra = Extra::default();
        let seqs = |role: fn(Role) -> bool| -> Vec<String> {
            let numbered = self.current.messages.iter().chain(rest);
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

    /// Updates the state after a message that ended was written, with the events before it.
    pub fn message_written(&mut self, written: Vec<(u32, AgentMessage)>, known: StoredMessages) {
        for (seq, message) in written {
            let slot = MessageSlot::of(&message);
            self.open.retain(|open| *open != slot);
            self.has_messages = true;
            self.has_answer |= message.role() == Role::Assistant;
            if message.role() != Role::Extension || self.current.index.is_none() {
                self.enter(message.turn_index());
            }
            self.current.messages.push((seq, message));
        }
        self.current.known.extend(known);
        self.events_written();
    }

    pub fn events_written(&mut self) {
        self.children.clear();
        self.events.clear();
    }

    /// Forgets a turn that has ended; `wrote` messages were written with its end.
    pub fn turn_written(&mut self, wrote: bool) {
        let ended = self.turn.take().map(|turn| turn.index);
        self.last_index = ended.or(self.last_index);
        self.has_messages |= wrote;
        self.has_answer |= wrote;
        self.current = StoredTurn::default();
        self.open.clear();
        self.calls.clear();
        self.events_written();
    }
}

/// Returns the id of the call that a message answers, empty if it answers none.
pub(crate) fn answered(message: &AgentMessage) -> &str {
    match message.message() {
        Some(Message::ToolResult(result)) => &result.tool_call_id,
        _ => "",
    }
}
