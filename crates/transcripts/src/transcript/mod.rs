//! Translates the records of a transcript to the calls of a sink: finds where a loop begins, which turn a message
//! belongs to, which call a result answers, and the status of each loop at the end.
//!
//! An importer reads one record after the other and passes on its role. Only earlier records affect the result, so that
//! a transcript that has grown yields the same calls as before and then more. Positions of turns equal their indices:
//! no turn is without a message.

mod head;
mod loops;
mod rows;
mod tree;

use std::collections::HashMap;

use loopstore::model::{
    AgentMessage, ChildLoopRef, ContinuationKind, Json, LoopId, LoopStatus, Message, Role, Time,
    TurnId, Usage,
};

pub(super) use self::head::{identity, session, started_by};
pub(super) use self::loops::{LoopBuilder, LoopTurn, NewLoop, Style, TranscriptLoops};
pub(super) use self::tree::{Emitted, EntryTree};
use super::authors;
use super::{FoundCompaction, FoundEffect, ImportError, SessionHead, Sink};

/// The maximum size of the messages before the first prompt, which are held for its loop.
const MAX_PREAMBLE_BYTES: usize = 4 << 20;
/// The maximum size of the messages that are repeated because several branches contain them.
const MAX_REPEATED_BYTES: usize = 64 << 20;

/// The sessions of a file that is being imported.
pub(super) struct TranscriptBuilder<'a> {
    sink: &'a mut dyn Sink,
    /// The session of the file, then those of its sub-agents.
    sessions: Vec<SessionBuilder>,
    /// The session that the sink was passed last.
    current: usize,
}

/// One session.
struct SessionBuilder {
    head: SessionHead,
    /// True if its tasks come from another agent, although the head names no parent.
    is_spawned: bool,
    loops: TranscriptLoops,
    /// True if the last loop continues.
    is_open: bool,
    /// The last call of each id: its tool and its position.
    calls: HashMap<String, (String, LoopTurn)>,
    preamble: Vec<(AgentMessage, Vec<u8>)>,
    preamble_bytes: usize,
    now: Option<Time>,
    last: Option<LoopTurn>,
    /// True if the last loop is a branch that the next prompt belongs to.
    is_back: bool,
    repeated_bytes: usize,
}

impl SessionBuilder {
    fn new(head: SessionHead, style: Style) -> Self {
        Self {
            head,
            is_spawned: false,
            loops: TranscriptLoops::new(style),
            is_open: false,
            calls: HashMap::new(),
            preamble: Vec::new(),
            preamble_bytes: 0,
            now: None,
            last: None,
            is_back: false,
            repeated_bytes: 0,
        }
    }

    /// True if its tasks come from another agent.
    fn is_of_agent(&self) -> bool {
        self.is_spawned || self.head.session.parent_spawn_ref.is_some()
    }

    /// Returns the loop of the next message.
    fn open_loop(&self) -> Option<usize> {
        self.loops.len().checked_sub(1).filter(|_| self.is_open)
    }

    /// Sets the call and the tool of a result if they are missing. Returns the id of the call.
    fn pair(&self, message: &mut AgentMessage) -> String {
        let Some(Message::ToolResult(result)) = message.message_mut() else {
            return String::new();
        };
        if result.tool_call_id.is_empty()
            && let Some(call) = self.loops.open_call(&result.tool_name)
        {
            call.clone_into(&mut result.tool_call_id);
        }
        if let (true, Some((tool, _))) = (
            result.tool_name.is_empty(),
            self.calls.get(&result.tool_call_id),
        ) {
            result.tool_name.clone_from(tool);
        }
        result.tool_call_id.clone()
    }

    /// Records the calls of an answer.
    fn called(&mut self, message: &Message, at: LoopTurn) {
        for call in message.tool_calls() {
            self.calls.insert(call.id.clone(), (call.name.clone(), at));
        }
    }
}

impl<'a> TranscriptBuilder<'a> {
    pub(super) fn new(sink: &'a mut dyn Sink, head: SessionHead, style: Style) -> Self {
        Self {
            sink,
            sessions: vec![SessionBuilder::new(head, style)],
            current: 0,
        }
    }

    fn session(&self) -> &SessionBuilder {
        &self.sessions[self.current]
    }

    fn session_mut(&mut self) -> &mut SessionBuilder {
        &mut self.sessions[self.current]
    }

    /// Adds the session of a sub-agent and returns its number.
    pub(super) fn add_session(&mut self, head: SessionHead) -> usize {
        let style = self.sessions[0].loops.style();
        self.sessions.push(SessionBuilder::new(head, style));
        self.sessions.len() - 1
    }

    /// Replaces the description of the session of the file. Has no effect once its first loop began.
    pub(super) fn describe(&mut self, head: SessionHead) {
        self.sessions[0].head = head;
    }

    /// Records that the tasks of the session of the file come from another agent.
    pub(super) fn is_of_agent(&mut self) {
        self.sessions[0].is_spawned = true;
    }

    /// Continues a session.
    pub(super) fn select(&mut self, session: usize) -> Result<(), ImportError> {
        if session == self.current {
            return Ok(());
        }
        self.current = session;
        match self.session().loops.is_empty() {
            true => Ok(()),
            false => self.sink.session(self.sessions[session].head.clone()),
        }
    }

    /// Reports a record that is not used.
    pub(super) fn skip(&mut self, line: impl Into<Option<u64>>, reason: impl Into<String>) {
        self.sink.skip(line.into(), reason.into());
    }

    /// Sets the time of the records that follow.
    pub(super) fn at(&mut self, time: Option<Time>) {
        let session = self.session_mut();
        session.now = time.or(session.now.take());
    }

    /// Returns the current position in the transcript.
    pub(super) fn here(&self) -> Option<LoopTurn> {
        let loop_no = self.session().loops.len().checked_sub(1)?;
        Some((loop_no, self.session().loops[loop_no].turn))
    }

    /// True if this many bytes may be repeated for a branch: a small file must not become a huge database.
    pub(super) fn may_repeat(&mut self, bytes: usize, line: u64) -> bool {
        let session = self.session_mut();
        session.repeated_bytes = session.repeated_bytes.saturating_add(bytes);
        let may = session.repeated_bytes <= MAX_REPEATED_BYTES;
        if !may {
            self.skip(
                line,
                "what stands before the first prompt is repeated on too many branches",
            );
        }
        may
    }

    /// Returns the end of the path: that of a branch without messages is where the branch begins.
    fn path_end(&self) -> Option<LoopTurn> {
        let here @ (loop_no, _) = self.here()?;
        let last = &self.session().loops[loop_no];
        match self.session().is_back && last.is_empty {
            true => last.parent,
            false => Some(here),
        }
    }

    /// Returns the head of a session.
    pub(super) fn head(&self, session: usize) -> &SessionHead {
        &self.sessions[session].head
    }

    /// Returns the turn of the newest message that a model sees; `None` while the message waits for the first loop.
    pub(super) fn last_turn(&self) -> Option<LoopTurn> {
        self.session().last
    }

    /// Returns a loop that was begun.
    pub(super) fn loop_at(&self, loop_no: usize) -> Option<&LoopBuilder> {
        self.session().loops.get(loop_no)
    }

    /// True if a loop that continues from this turn would be the first one, at the end of the loop.
    pub(super) fn is_tail(&self, at: LoopTurn) -> bool {
        self.session().loops.is_tail(at)
    }

    /// Begins a loop.
    pub(super) fn begin(&mut self, new: NewLoop) -> Result<usize, ImportError> {
        match self.session().loops.len().checked_sub(1) {
            Some(before) => self.end(before, false)?,
            None => self
                .sink
                .session(self.sessions[self.current].head.clone())?,
        }
        let session = self.session_mut();
        let loop_no = session.loops.begin(new);
        session.is_open = true;
        session.is_back = false;
        session.preamble_bytes = 0;
        let preamble = std::mem::take(&mut session.preamble);
        let record = session.loops.record(loop_no, &session.head.session, None);
        self.sink.begin_loop(record)?;
        for (message, raw) in preamble {
            self.push(loop_no, message, &raw)?;
        }
        Ok(loop_no)
    }

    /// Returns the beginning of a loop that continues at the current position, now.
    pub(super) fn next_loop(&self, name: impl Into<String>) -> NewLoop {
        let parent = self.path_end();
        NewLoop {
            name: name.into(),
            parent,
            kind: match parent {
                None => ContinuationKind::Initial,
                Some(_) => ContinuationKind::Default,
            },
            started: match self.session().loops.style() {
                Style::Log => self.session().now.clone(),
                Style::Document => None,
            },
            ..NewLoop::default()
        }
    }

    /// Begins the loop of a prompt that continues at the current position. After a rewind the loop was begun already.
    pub(super) fn prompt(
        &mut self,
        name: impl Into<String>,
        message: AgentMessage,
        raw: &[u8],
    ) -> Result<(), ImportError> {
        let session = self.session_mut();
        if std::mem::take(&mut session.is_back) && session.is_open {
            return self.input(message, raw, true);
        }
        self.begin(self.next_loop(name))?;
        self.input(message, raw, true)
    }

    /// Adds a message according to its role; a user message is a prompt. `name` names the loop that it begins.
    pub(super) fn message(
        &mut self,
        name: impl FnOnce() -> String,
        message: AgentMessage,
        raw: &[u8],
    ) -> Result<(), ImportError> {
        match message.role() {
            Role::User => self.prompt(name(), message, raw),
            Role::Assistant => self.answer(name, message, raw),
            Role::ToolResult => self.result(name, message, raw),
            Role::Extension => self.extension(message, raw),
        }
    }

    /// Adds a record that no model sees.
    pub(super) fn extension(
        &mut self,
        message: AgentMessage,
        raw: &[u8],
    ) -> Result<(), ImportError> {
        match self.session().open_loop() {
            Some(loop_no) => self.push(loop_no, message, raw),
            None => self.wait(message, raw),
        }
    }

    /// Adds a user text that begins no loop. If the text needs no answer, its author is the harness.
    pub(super) fn input(
        &mut self,
        message: AgentMessage,
        raw: &[u8],
        wants_answer: bool,
    ) -> Result<(), ImportError> {
        let message = match wants_answer {
            true => message,
            false => authors::by_harness(message),
        };
        let Some(loop_no) = self.session().open_loop() else {
            return self.wait(message, raw);
        };
        let of = &mut self.session_mut().loops[loop_no];
        of.abandon_calls();
        of.input(wants_answer);
        self.push(loop_no, message, raw)
    }

    /// Adds an answer; `name` names the loop if there is none.
    pub(super) fn answer(
        &mut self,
        name: impl FnOnce() -> String,
        message: AgentMessage,
        raw: &[u8],
    ) -> Result<(), ImportError> {
        let loop_no = self.any_loop(name)?;
        self.session_mut().is_back = false;
        self.session_mut().loops[loop_no].answer();
        self.answer_part(loop_no, message, raw)
    }

    /// Adds another part of the last answer.
    pub(super) fn more_of_answer(
        &mut self,
        message: AgentMessage,
        raw: &[u8],
    ) -> Result<(), ImportError> {
        let loop_no = self.any_loop(String::new)?;
        self.answer_part(loop_no, message, raw)
    }

    fn answer_part(
        &mut self,
        loop_no: usize,
        message: AgentMessage,
        raw: &[u8],
    ) -> Result<(), ImportError> {
        let session = self.session_mut();
        if let Some(answer) = message.message() {
            session.loops[loop_no].answer_message(answer);
            session.called(answer, (loop_no, session.loops[loop_no].turn));
        }
        self.push(loop_no, message, raw)
    }

    /// Records that the agent continues after the last message.
    pub(super) fn expect_more(&mut self) {
        if let Some(last) = self.session_mut().loops.last_mut() {
            last.waiting = true;
        }
    }

    /// Adds the result of a call. It is stored with its call if that is in the last turn of its loop, in a document
    /// also if it is in an earlier turn of the last loop. If the call is on another branch, the result stays on the
    /// current path. A result that names no call answers the first open one of its tool.
    pub(super) fn result(
        &mut self,
        name: impl FnOnce() -> String,
        mut message: AgentMessage,
        raw: &[u8],
    ) -> Result<(), ImportError> {
        let last = self.any_loop(name)?;
        let session = self.session_mut();
        let call = session.pair(&mut message);
        let known = session.calls.get(&call).map(|(_, at)| *at);
        let is_with_call = |(loop_no, turn): &LoopTurn| match session.loops.style() {
            Style::Log => {
                let is_last = session.loops[*loop_no].turn == *turn;
                is_last && session.loops.is_on_path(last, (*loop_no, *turn))
            }
            Style::Document => *loop_no == last,
        };
        let at = known.filter(is_with_call);
        let (loop_no, turn) = at.unwrap_or((last, session.loops[last].turn));
        session.loops[loop_no].result(&call);
        session.loops[loop_no].waiting |= loop_no == last;
        self.push_to((loop_no, turn), message, raw)
    }

    /// Adds the output of a tool as a user message by the harness.
    pub(super) fn observation(
        &mut self,
        message: AgentMessage,
        raw: &[u8],
    ) -> Result<(), ImportError> {
        let loop_no = self.any_loop(String::new)?;
        self.session_mut().loops[loop_no].waiting = true;
        self.push(loop_no, authors::by_harness(message), raw)
    }

    /// Records that the run was interrupted.
    pub(super) fn interrupted(&mut self) {
        if let Some(last) = self.session_mut().loops.last_mut() {
            last.interrupted = true;
            last.is_changed = true;
        }
    }

    /// Sets the status of the last loop; with `None` it is derived from the messages.
    pub(super) fn ended_as(&mut self, status: Option<LoopStatus>) {
        if let Some(last) = self.session_mut().loops.last_mut() {
            last.status = status;
            last.is_changed = true;
        }
    }

    /// Records the token usage of the last loop as a whole.
    pub(super) fn set_usage(&mut self, usage: Option<Usage>) {
        if let Some(last) = self.session_mut().loops.last_mut() {
            last.usage = usage;
        }
    }

    /// True if the last message has no answer, or a call has no result.
    pub(super) fn is_unfinished(&self) -> bool {
        let loops = &self.session().loops;
        let last = loops.len().checked_sub(1);
        last.is_some_and(|last| loops[last].is_unfinished())
    }

    /// Returns the tool of a call of a session, and the loop that contains it.
    pub(super) fn call(&self, session: usize, call: &str) -> Option<(&str, &LoopId)> {
        let session = &self.sessions[session];
        let (tool, (loop_no, _)) = session.calls.get(call)?;
        Some((tool, &session.loops[*loop_no].id))
    }

    /// Records the loop of another session that a call of `session` started.
    pub(super) fn started(&mut self, session: usize, call: &str, child: ChildLoopRef) {
        let session = &mut self.sessions[session];
        if let Some((_, (loop_no, _))) = session.calls.get(call) {
            let of_call = &mut session.loops[*loop_no];
            of_call.children.push(child);
            of_call.is_changed = true;
        }
    }

    /// Adds a compaction at the current position; there must be a loop.
    pub(super) fn compaction(
        &mut self,
        strategy: &str,
        mut effect: FoundEffect,
        record: Json,
    ) -> Result<(), ImportError> {
        let Some((last, _)) = self.here() else {
            return Ok(());
        };
        let is_all =
            matches!(&effect, FoundEffect::Summary { first_kept, .. } if first_kept.is_none());
        if is_all && !self.session().loops[last].is_answered() {
            // An unanswered message is replaced too, so it must not count as in flight.
            self.end(last, false)?;
        }
        let session = &self.sessions[self.current];
        match &mut effect {
            FoundEffect::Summary { messages, .. } => {
                let is_spawned = session.is_of_agent();
                messages
                    .iter_mut()
                    .for_each(|m| authors::set_author(m, is_spawned));
            }
            FoundEffect::SummaryWithin { message, .. } => authors::set_author(message, false),
            FoundEffect::EditedResults { .. } | FoundEffect::Block(_) => {}
        }
        self.sink.compaction(FoundCompaction {
            loop_id: session.loops[last].id.clone(),
            strategy: strategy.into(),
            trigger: None,
            effect,
            at: session.now.clone(),
            record,
        })
    }

    /// Ends the last loop: the next message begins another.
    pub(super) fn end_loop(&mut self) -> Result<(), ImportError> {
        self.session_mut().is_open = false;
        match self.here() {
            Some((last, _)) => self.end(last, false),
            None => Ok(()),
        }
    }

    /// Ends the loops. Returns true if there was a conversation.
    pub(super) fn finish(self) -> Result<bool, ImportError> {
        self.finish_as(String::new())
    }

    /// Ends the loops; `name` names the loop of instructions that nothing follows. Returns true if there was a
    /// conversation.
    pub(super) fn finish_as(mut self, name: String) -> Result<bool, ImportError> {
        let mut any = false;
        for session in (0..self.sessions.len()).rev() {
            self.select(session)?;
            let waits = !self.session().preamble.is_empty();
            if waits && self.session().loops.style() == Style::Document {
                self.begin(self.next_loop(name.as_str()))?;
            }
            let loops = self.session().loops.len();
            for loop_no in 0..loops {
                self.end(loop_no, loop_no + 1 == loops)?;
            }
            any |= loops > 0;
        }
        self.sink.end_document()?;
        Ok(any)
    }

    /// Returns the current loop, and begins one if there is none.
    fn any_loop(&mut self, name: impl FnOnce() -> String) -> Result<usize, ImportError> {
        match self.session().open_loop() {
            Some(loop_no) => Ok(loop_no),
            None => self.begin(self.next_loop(name())),
        }
    }

    fn wait(&mut self, message: AgentMessage, raw: &[u8]) -> Result<(), ImportError> {
        let session = self.session_mut();
        session.preamble_bytes += raw.len();
        session.preamble.push((message, raw.to_vec()));
        if session.preamble_bytes > MAX_PREAMBLE_BYTES {
            self.begin(self.next_loop("start"))?;
        }
        Ok(())
    }

    fn push(
        &mut self,
        loop_no: usize,
        message: AgentMessage,
        raw: &[u8],
    ) -> Result<(), ImportError> {
        let turn = self.session().loops[loop_no].turn;
        self.push_to((loop_no, turn), message, raw)
    }

    fn push_to(
        &mut self,
        (loop_no, turn): LoopTurn,
        mut message: AgentMessage,
        raw: &[u8],
    ) -> Result<(), ImportError> {
        let session = &mut self.sessions[self.current];
        let (style, is_spawned) = (session.loops.style(), session.is_of_agent());
        let of = &mut session.loops[loop_no];
        of.is_changed = true;
        match (style, &session.now) {
            (Style::Log, Some(now)) => of.ended = Some(now.clone()),
            _ => of.ended = time_of(&message).or(of.ended.take()),
        }
        if message.role() == Role::Extension {
            return self.sink.message(&of.id, message, raw);
        }
        of.is_empty = false;
        authors::set_author(&mut message, is_spawned);
        session.last = Some((loop_no, turn));
        let turn_id = TurnId::new(of.id.as_str(), turn);
        self.sink.message(&of.id, message.in_turn(turn_id), raw)
    }

    fn end(&mut self, loop_no: usize, is_last: bool) -> Result<(), ImportError> {
        let session = &mut self.sessions[self.current];
        let is_changed = std::mem::take(&mut session.loops[loop_no].is_changed);
        if !is_changed && !is_last {
            return Ok(());
        }
        let status = session.loops[loop_no].status(is_last);
        let loops = &session.loops;
        let record = loops.record(loop_no, &session.head.session, Some(status));
        self.sink.begin_loop(record)
    }
}

/// Returns the time in a message.
fn time_of(message: &AgentMessage) -> Option<Time> {
    let millis = message.message().and_then(Message::timestamp)?;
    Time::from_millis(millis)
}
