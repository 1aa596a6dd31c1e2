//! A prompt with everything until the agent's response: one loop.

use std::collections::HashMap;
use std::time::Instant;

use loopstore::model::{AgentMessage, AssistantMessage, Json, LoopId, Message, Usage};
use loopstore_recorder::event::{
    AgentEnd, AgentStart, MessageEnd, MessageStart, TurnEnd, TurnStart,
};
use loopstore_recorder::{AgentEvent, RecordResult, SessionRecorder};

use super::call::{CallUpdate, ToolState};
use super::draft::{AnswerDraft, ChunkKind};
use super::notes;
use crate::counts::Unrecorded;

/// The recorder that owns its store.
type EventRecorder = SessionRecorder<'static>;

/// The end of a prompt.
#[derive(Default)]
pub(crate) struct PromptEnd {
    /// The reason, in the words of the protocol.
    pub stop_reason: Option<String>,
    pub usage: Option<Usage>,
    /// The text of an error response.
    pub error: Option<String>,
    /// True if the agent ended before its response.
    pub is_aborted: bool,
}

/// A prompt whose response has not come.
pub(crate) struct ActivePrompt {
    loop_id: LoopId,
    /// The model that answers, if it is known.
    pub model: Option<String>,
    /// The number of prompts that were sent for this loop and have no response.
    pub open_requests: u32,
    turn: u32,
    has_answer: bool,
    draft: AnswerDraft,
    /// The time of the last update of the draft.
    drafted_at: Option<Instant>,
    calls: HashMap<String, ToolState>,
    plans: u32,
    last_plan: Option<Json>,
    last_usage: Option<Json>,
}

impl ActivePrompt {
    /// Begins a loop with its prompt.
    pub fn begin(
        recorder: &mut EventRecorder,
        start: AgentStart,
        prompt: AgentMessage,
    ) -> RecordResult<Self> {
        let active = Self {
            loop_id: start.loop_id.clone(),
            model: None,
            open_requests: 1,
            turn: 0,
            has_answer: false,
            draft: AnswerDraft::default(),
            drafted_at: None,
            calls: HashMap::new(),
            plans: 0,
            last_plan: None,
            last_usage: None,
        };
        recorder.record(AgentEvent::AgentStart(start))?;
        recorder.record(active.turn_start())?;
        active.put(recorder, prompt)?;
        Ok(active)
    }

    pub fn loop_id(&self) -> &LoopId {
        &self.loop_id
    }

    fn turn_start(&self) -> AgentEvent {
        AgentEvent::TurnStart(TurnStart::new(self.loop_id.clone(), self.turn))
    }

    fn put(&self, recorder: &mut EventRecorder, message: AgentMessage) -> RecordResult<()> {
        let id = || self.loop_id.clone();
        let start = MessageStart::new(id(), message.clone());
        recorder.record(AgentEvent::MessageStart(start))?;
        recorder.record(AgentEvent::MessageEnd(MessageEnd::new(id(), message)))?;
        Ok(())
    }

    /// Stores an answer, in a turn of its own.
    fn put_answer(
        &mut self,
        recorder: &mut EventRecorder,
        answer: AgentMessage,
    ) -> RecordResult<()> {
        if self.has_answer {
            recorder.record(AgentEvent::TurnEnd(TurnEnd::new(self.loop_id.clone())))?;
            self.turn += 1;
            recorder.record(self.turn_start())?;
        }
        self.put(recorder, answer)?;
        self.has_answer = true;
        Ok(())
    }

    /// Stores a further prompt that the editor sent before the response.
    pub fn add_prompt(
        &mut self,
        recorder: &mut EventRecorder,
        prompt: AgentMessage,
    ) -> RecordResult<()> {
        self.flush(recorder, None)?;
        self.open_requests += 1;
        self.put(recorder, prompt)
    }

    /// Stores a message that no model sees.
    pub fn note(&self, recorder: &mut EventRecorder, kind: &str, data: Json) -> RecordResult<()> {
        self.put(recorder, AgentMessage::extension(kind, data))
    }

    /// Returns the draft, which has changed.
    fn drafting(&mut self) -> &mut AnswerDraft {
        self.drafted_at = Some(Instant::now());
        &mut self.draft
    }

    pub fn add_text(&mut self, kind: ChunkKind, text: &str, message_id: Option<String>) {
        self.drafting().add_text(kind, text, message_id);
    }

    pub fn add_block(&mut self, block: loopstore::model::Content) {
        self.drafting().add_block(block);
    }

    /// Adds a plan; returns false if it is the previous one.
    pub fn add_plan(&mut self, entries: Json) -> bool {
        if self.last_plan.as_ref() == Some(&entries) {
            return false;
        }
        self.plans += 1;
        let id = format!("{}-plan-{}", self.loop_id, self.plans);
        self.last_plan = Some(entries.clone());
        self.drafting().add_plan(id, entries);
        true
    }

    /// Keeps the last numbers of the context window until the prompt ends.
    pub fn set_usage(&mut self, usage: Json) {
        self.last_usage = Some(usage);
    }

    /// Applies an update of a call, and stores the result if the call has ended. Returns the reason if the update is
    /// not recorded.
    pub fn update_call(
        &mut self,
        recorder: &mut EventRecorder,
        update: CallUpdate,
        terminals: &HashMap<String, String>,
    ) -> RecordResult<Option<Unrecorded>> {
        let id = update.tool_call_id.clone();
        let is_new = !self.calls.contains_key(&id);
        let call = self
            .calls
            .entry(id.clone())
            .or_insert_with(|| ToolState::new(&id));
        if call.is_answered {
            return Ok(Some(Unrecorded::LateUpdate));
        }
        call.update(update);
        let has_ended = call.has_ended();
        if is_new {
            self.drafting().add_call(&id);
        }
        if has_ended {
            self.put_result(recorder, &id, terminals)?;
        }
        Ok(None)
    }

    fn put_result(
        &mut self,
        recorder: &mut EventRecorder,
        id: &str,
        terminals: &HashMap<String, String>,
    ) -> RecordResult<()> {
        if self.draft.has_call(id) {
            self.flush(recorder, Some("toolUse"))?;
        }
        let Some(result) = self.calls.get(id).map(|call| call.result(terminals)) else {
            return Ok(());
        };
        self.put(recorder, result)?;
        if let Some(call) = self.calls.get_mut(id) {
            call.is_answered = true;
        }
        Ok(())
    }

    /// Stores the answer as far as it has come, if it is not empty.
    pub fn flush(
        &mut self,
        recorder: &mut EventRecorder,
        stop_reason: Option<&str>,
    ) -> RecordResult<()> {
        self.drafted_at = None;
        if self.draft.is_empty() {
            return Ok(());
        }
        let draft = std::mem::take(&mut self.draft);
        let reason = stop_reason.or(draft.has_calls().then_some("toolUse"));
        let (answer, results) = draft.finish(&self.calls, self.model.as_deref(), reason);
        self.put_answer(recorder, answer)?;
        results
            .into_iter()
            .try_for_each(|result| self.put(recorder, result))
    }

    /// Returns the time since which an answer that calls tools has not changed: it is complete.
    pub fn complete_since(&self) -> Option<Instant> {
        self.drafted_at.filter(|_| self.draft.has_calls())
    }

    /// Ends the loop.
    pub fn end(
        &mut self,
        recorder: &mut EventRecorder,
        end: PromptEnd,
        terminals: &HashMap<String, String>,
    ) -> RecordResult<()> {
        let reason = match end.stop_reason.as_deref() {
            Some("end_turn") => Some("stop"),
            Some("max_tokens") => Some("length"),
            Some("cancelled") => Some("aborted"),
            Some(other) => Some(other),
            None => end.is_aborted.then_some("aborted"),
        };
        self.flush(recorder, reason)?;
        let has_output = |(_, call): &(&String, &ToolState)| !call.is_answered && call.has_output();
        let open = self.calls.iter().filter(has_output);
        let mut open: Vec<String> = open.map(|(id, _)| id.clone()).collect();
        open.sort();
        for id in open {
            self.put_result(recorder, &id, terminals)?;
        }
        if let Some(error) = end.error {
            let answer = AssistantMessage {
                model: self.model.clone(),
                stop_reason: Some("error".into()),
                error_message: Some(error),
                ..AssistantMessage::default()
            };
            self.put_answer(recorder, Message::Assistant(answer).into())?;
        }
        if let Some(usage) = self.last_usage.take() {
            self.note(recorder, notes::USAGE, usage)?;
        }
        let is_aborted = end.is_aborted || reason == Some("aborted");
        recorder.record(AgentEvent::TurnEnd(TurnEnd::new(self.loop_id.clone())))?;
        recorder.record(AgentEvent::AgentEnd(AgentEnd {
            usage: end.usage,
            aborted: is_aborted.then_some(true),
            ..AgentEnd::new(self.loop_id.clone())
        }))?;
        Ok(())
    }
}
