//! The loops of a session: their names and links, the turn that is being written, and the status of each at the end.

use std::collections::HashMap;
use std::ops::{Index, IndexMut};

use loopstore::model::{
    ChildLoopRef, ContinuationKind, Json, LoopId, LoopRecord, LoopStatus, Message, Session, Time,
    ToolCall, Usage,
};

/// A loop of the session, by its number, and a turn of it.
pub(crate) type LoopTurn = (usize, u32);

/// The maximum length of a name that a loop takes from its transcript, in bytes.
const MAX_NAME: usize = 256;

/// The level of detail of the loops of a format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Style {
    /// A log that is written while the agent works: records have times, and loops name their session, its agent and the
    /// turn from which they continue. A call that is open when the next answer comes is abandoned.
    #[default]
    Log,
    /// A document: its loops have only the fields in it, and end with their newest message. Results may come late, and
    /// instructions alone are a session.
    Document,
}

/// The beginning of a loop.
#[derive(Debug, Default)]
pub(crate) struct NewLoop {
    /// The name. If it is empty, too long or in use, a number is appended.
    pub(crate) name: String,
    /// The turn from which the loop continues.
    pub(crate) parent: Option<LoopTurn>,
    pub(crate) kind: ContinuationKind,
    pub(crate) started: Option<Time>,
    /// The agent, if it is not that of the session.
    pub(crate) agent: Option<String>,
    pub(crate) metadata: Option<Json>,
}

/// A loop that was begun.
#[derive(Debug)]
pub(crate) struct LoopBuilder {
    pub(crate) id: LoopId,
    pub(crate) parent: Option<LoopTurn>,
    kind: ContinuationKind,
    started: Option<Time>,
    pub(crate) ended: Option<Time>,
    agent: Option<String>,
    metadata: Option<Json>,
    model: Option<(String, Option<String>)>,
    /// The turn that is being written.
    pub(crate) turn: u32,
    /// The last turn from which another loop may continue without being a branch.
    pub(crate) last_turn: u32,
    /// The last turn from which another loop continues.
    pub(crate) last_child: Option<u32>,
    /// True if the loop has no message that a model sees.
    pub(crate) is_empty: bool,
    style: Style,
    answered: bool,
    /// True if a prompt has no answer.
    unanswered: bool,
    /// True if the last message needs an answer: it is a prompt or a result.
    pub(crate) waiting: bool,
    pub(crate) interrupted: bool,
    /// Calls without a result: those of the last answer, or in a document all.
    open: Vec<PendingCall>,
    /// The loops of other sessions that this loop started.
    pub(crate) children: Vec<ChildLoopRef>,
    /// The end of the loop, if the transcript states it.
    pub(crate) status: Option<LoopStatus>,
    /// Tokens of the loop as a whole.
    pub(crate) usage: Option<Usage>,
    /// True if the loop changed since its record was passed to the sink.
    pub(crate) is_changed: bool,
}

#[derive(Debug)]
struct PendingCall {
    id: String,
    tool: String,
    turn: u32,
}

impl LoopBuilder {
    fn new(id: LoopId, new: NewLoop, style: Style) -> Self {
        let ended = match style {
            Style::Log => new.started.clone(),
            Style::Document => None,
        };
        Self {
            id,
            parent: new.parent,
            kind: new.kind,
            started: new.started,
            ended,
            agent: new.agent,
            metadata: new.metadata,
            model: None,
            turn: 0,
            last_turn: 0,
            last_child: None,
            is_empty: true,
            style,
            answered: false,
            unanswered: false,
            waiting: false,
            interrupted: false,
            open: Vec::new(),
            children: Vec::new(),
            status: None,
            usage: None,
            is_changed: true,
        }
    }

    /// Adds a text of the user and returns its turn: a new one if the last was answered.
    pub(crate) fn input(&mut self, wants_answer: bool) -> u32 {
        self.turn += u32::from(std::mem::take(&mut self.answered));
        self.last_turn = self.turn;
        self.unanswered |= wants_answer;
        self.waiting |= wants_answer;
        self.turn
    }

    /// Abandons the calls without a result when a text of the user follows the answer.
    pub(crate) fn abandon_calls(&mut self) {
        if self.answered && self.style == Style::Log {
            self.open.clear();
        }
    }

    /// Adds an answer and returns its turn: a new one, unless it is the first after a text.
    pub(crate) fn answer(&mut self) -> u32 {
        self.turn += u32::from(self.answered);
        self.last_turn = self.turn;
        self.answered = true;
        self.unanswered = false;
        self.waiting = false;
        if self.style == Style::Log {
            self.open.clear();
        }
        self.turn
    }

    /// Handles the message of an answer, or of a further part of the last one.
    pub(crate) fn answer_message(&mut self, message: &Message) {
        self.answered = true;
        self.unanswered = false;
        self.waiting = false;
        let Message::Assistant(answer) = message else {
            return;
        };
        self.answered_by(answer.model.as_deref(), answer.provider.as_deref());
        for call in message.tool_calls().filter(|call| !is_hosted(call)) {
            self.called(&call.id, &call.name);
        }
    }

    /// Records the model of an answer; the first one counts. An agent that was stopped continues.
    pub(crate) fn answered_by(&mut self, model: Option<&str>, provider: Option<&str>) {
        self.interrupted = false;
        if let (None, Some(model)) = (&self.model, model) {
            self.model = Some((model.to_owned(), provider.map(str::to_owned)));
        }
    }

    /// Records a call of the last answer.
    pub(crate) fn called(&mut self, id: &str, tool: &str) {
        if !self.open.iter().any(|open| open.id == id) {
            self.open.push(PendingCall {
                id: id.to_owned(),
                tool: tool.to_owned(),
                turn: self.turn,
            });
        }
    }

    /// Handles the result of a call.
    pub(crate) fn result(&mut self, call: &str) {
        if let Some(at) = self.open.iter().rposition(|open| open.id == call) {
            self.open.remove(at);
        }
        self.last_turn = self.turn;
    }

    /// Returns the call for a result that names none: the first open one of its tool.
    fn open_call(&self, tool: &str) -> Option<&str> {
        let mut open = self.open.iter();
        let call = open.find(|open| tool.is_empty() || open.tool == tool)?;
        Some(&call.id)
    }

    /// True if a prompt has no answer, or a call of the last turn has no result.
    pub(crate) fn is_unfinished(&self) -> bool {
        let is_last = |open: &PendingCall| open.turn == self.turn;
        self.is_unanswered() || self.open.iter().any(is_last)
    }

    /// True if the last message was answered.
    pub(crate) fn is_answered(&self) -> bool {
        self.answered
    }

    fn is_unanswered(&self) -> bool {
        match self.style {
            Style::Log => self.waiting && !self.answered,
            Style::Document => self.unanswered,
        }
    }

    fn is_void(&self) -> bool {
        self.is_empty && self.style == Style::Log
    }

    /// Returns the status of the loop; `is_last` if the transcript ends in it.
    pub(crate) fn status(&self, is_last: bool) -> LoopStatus {
        if let Some(status) = &self.status {
            status.clone()
        } else if self.interrupted {
            LoopStatus::Aborted
        } else if is_last && (self.waiting || !self.open.is_empty()) {
            LoopStatus::Running
        } else if self.is_unanswered() || !self.open.is_empty() || self.is_void() {
            LoopStatus::Aborted
        } else {
            LoopStatus::Completed
        }
    }
}

/// True if the provider executes a call, so that no result follows.
fn is_hosted(call: &ToolCall) -> bool {
    let form = call.extra.get("form").map(Json::read::<String>);
    form.is_some_and(|form| form.is_ok_and(|form| form == "web_search_call"))
}

/// The loops of a session, in the order in which they begin.
#[derive(Debug, Default)]
pub(crate) struct TranscriptLoops {
    style: Style,
    all: Vec<LoopBuilder>,
    /// The names of the loops, each with the last number that was appended to it.
    names: HashMap<String, u32>,
}

impl TranscriptLoops {
    pub(crate) fn new(style: Style) -> Self {
        Self {
            style,
            ..Self::default()
        }
    }

    pub(crate) fn style(&self) -> Style {
        self.style
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn get(&self, loop_no: usize) -> Option<&LoopBuilder> {
        self.all.get(loop_no)
    }

    pub(crate) fn last_mut(&mut self) -> Option<&mut LoopBuilder> {
        self.all.last_mut()
    }

    /// Begins a loop and returns its number.
    pub(crate) fn begin(&mut self, mut new: NewLoop) -> usize {
        if let Some((parent, turn)) = new.parent {
            let last = &mut self.all[parent].last_child;
            *last = Some(last.map_or(turn, |last| last.max(turn)));
        }
        let id = self.unused(std::mem::take(&mut new.name));
        self.all.push(LoopBuilder::new(id, new, self.style));
        self.all.len() - 1
    }

    /// True if a loop that continues from this turn would be the first one, at the end of the loop.
    pub(crate) fn is_tail(&self, (loop_no, turn): LoopTurn) -> bool {
        let parent = &self.all[loop_no];
        turn >= parent.last_turn && parent.last_child.is_none_or(|child| child < turn)
    }

    /// True if a turn is on the path that ends with a loop. A parent begins before its children.
    pub(crate) fn is_on_path(&self, leaf: usize, (loop_no, turn): LoopTurn) -> bool {
        let (mut at, mut cut) = (leaf, self.all[leaf].turn);
        while at > loop_no
            && let Some(parent) = self.all[at].parent
        {
            (at, cut) = parent;
        }
        at == loop_no && turn <= cut
    }

    /// Returns the open call of the last loop for a result of this tool.
    pub(crate) fn open_call(&self, tool: &str) -> Option<&str> {
        self.all.last()?.open_call(tool)
    }

    /// Returns the record of a loop of `session`; a loop without a status is running.
    pub(crate) fn record(
        &self,
        loop_no: usize,
        session: &Session,
        status: Option<LoopStatus>,
    ) -> LoopRecord {
        let of = &self.all[loop_no];
        let parent = of.parent.map(|(parent, _)| self.all[parent].id.clone());
        let mut record = LoopRecord::new(of.id.clone(), parent);
        record.agent_id.clone_from(&of.agent);
        if self.style == Style::Log {
            record.session_id = Some(session.session_id.clone());
            record.agent_id.clone_from(&session.agent_id);
        }
        if self.style == Style::Log || matches!(of.kind, ContinuationKind::Branch { .. }) {
            record.parent_turn = of.parent.map(|(_, turn)| i64::from(turn).into());
        }
        record.continuation_kind = Some(of.kind.clone());
        record.started_at.clone_from(&of.started);
        record.metadata.clone_from(&of.metadata);
        if let Some((model, provider)) = &of.model {
            let config = serde_json::json!({ "model": model, "provider": provider });
            record.config = Json::of(&config).ok();
        }
        record.child_loop_refs.clone_from(&of.children);
        record.usage.clone_from(&of.usage);
        record.status = status.unwrap_or(LoopStatus::Running);
        if record.status != LoopStatus::Running {
            record.ended_at.clone_from(&of.ended);
        }
        record
    }

    /// Returns `name` as the id of a loop, with a number if another loop has it.
    fn unused(&mut self, name: String) -> LoopId {
        let name = match name.len() {
            1..=MAX_NAME => name,
            _ => format!("loop-{}", self.all.len()),
        };
        let mut unused = name.clone();
        while self.names.contains_key(&unused) {
            let number = self.names.entry(name.clone()).or_insert(1);
            *number += 1;
            unused = format!("{name}~{number}");
        }
        self.names.insert(unused.clone(), 1);
        LoopId::new(unused).unwrap_or_else(|_| LoopId::generate())
    }
}

impl Index<usize> for TranscriptLoops {
    type Output = LoopBuilder;

    fn index(&self, loop_no: usize) -> &LoopBuilder {
        &self.all[loop_no]
    }
}

impl IndexMut<usize> for TranscriptLoops {
    fn index_mut(&mut self, loop_no: usize) -> &mut LoopBuilder {
        &mut self.all[loop_no]
    }
}
