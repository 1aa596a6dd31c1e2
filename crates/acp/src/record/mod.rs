//! The recorder: messages of the protocol as sessions, loops, turns and messages of the store.
//!
//! - A prompt and everything until its response are a loop. Chunks of text between two results of tools are one
//!   answer of the model, and so one turn.
//! - An answer is stored when it is complete: before the result of its first call, before a question for permission,
//!   after a pause if it calls tools, or with the response. A result is stored when the call has ended.
//! - A plan is stored as a call of [`PLAN_TOOL`]: agents send it in place of the call of their own tool.
//! - Permissions, modes, usage and other updates are messages that no model sees (`notes`).

mod call;
mod content;
mod draft;
mod message;
pub(crate) mod notes;
mod periodic;
mod prompt;

use std::collections::HashMap;
use std::time::Duration;

use loopstore::model::{AgentMessage, Json, LoopId, Message, SessionId, UserMessage};
use loopstore::{Error, SessionHandle, Store};
use loopstore_recorder::event::AgentStart;
use loopstore_recorder::{RecordError, RecordResult, RecorderOptions, SessionRecorder};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use self::draft::ChunkKind;
use self::message::{
    AgentRequest, AnsweredRequest, EditorRequest, Initialized, NewSession, Permission,
    PromptResponse, Selected, TerminalOutput, Update,
};
use self::prompt::{ActivePrompt, PromptEnd};
use crate::counts::{PassedCounts, Unrecorded, add};
use crate::queue::Direction;
use crate::wire::Envelope;

/// The field of messages and blocks with the details of the protocol.
pub(crate) const DETAILS: &str = "acp";
/// The tool that plans are stored as calls of.
pub(crate) const PLAN_TOOL: &str = "update_plan";
/// The longest id of a call that is kept whole, in characters.
const MAX_ID: usize = 128;
/// The pause after which an answer that calls tools is complete.
const PAUSE: Duration = Duration::from_millis(500);
/// The largest number of requests that are remembered until their responses.
const MAX_REQUESTS: usize = 10_000;
/// The largest output of a terminal that is kept until the result of its call, in bytes.
const MAX_OUTPUT: usize = 1 << 20;
/// The largest number of sessions with one id.
const MAX_NAMESAKES: u32 = 10_000;

/// A session of the connection.
#[derive(Default)]
struct SessionState {
    /// The session in the store, once it has a prompt.
    stored: Option<SessionId>,
    /// True if the agent began the session on this connection: a stored session with its id is another one.
    is_new: bool,
    folder: Option<String>,
    model: Option<String>,
    active: Option<ActivePrompt>,
    /// True after the store failed, until the next prompt.
    has_failed: bool,
    /// The number of `session/load` requests that the agent has not answered.
    loading: u32,
}

/// Records the messages of a connection.
pub(crate) struct Recorder {
    store: Store,
    recorder: SessionRecorder<'static>,
    agent: String,
    agent_version: Option<String>,
    sessions: HashMap<String, SessionState>,
    /// The stored sessions that the agent continues under ids of its own.
    aliases: HashMap<String, String>,
    requests: HashMap<String, EditorRequest>,
    questions: HashMap<String, AgentRequest>,
    /// The output of the editor's terminals.
    terminals: HashMap<String, String>,
    pub counts: PassedCounts,
    /// The counts that a note has.
    noted: PassedCounts,
    pub prompts: u64,
    /// The first error of the store.
    pub error: Option<String>,
}

impl Recorder {
    /// Returns a recorder. `agent` is the name of the agent until it tells its own.
    pub fn new(store: Store, agent: &str, redact: bool) -> Self {
        let options = RecorderOptions {
            redact,
            ..RecorderOptions::default()
        };
        Self {
            recorder: SessionRecorder::shared(store.shared(), options),
            store,
            agent: agent.to_owned(),
            agent_version: None,
            sessions: HashMap::new(),
            aliases: HashMap::new(),
            requests: HashMap::new(),
            questions: HashMap::new(),
            terminals: HashMap::new(),
            counts: PassedCounts::new(),
            noted: PassedCounts::new(),
            prompts: 0,
            error: None,
        }
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    pub fn agent(&self) -> &str {
        &self.agent
    }

    /// Records one line.
    pub fn line(&mut self, direction: Direction, line: &[u8]) {
        if line.trim_ascii().is_empty() {
            return;
        }
        let Some(message) = Envelope::read(line) else {
            add(&mut self.counts, Unrecorded::NotJson, 1);
            return;
        };
        let unrecorded = match (direction, &message.method) {
            (Direction::ToAgent, Some(_)) => self.editor_calls(&message),
            (Direction::ToAgent, None) => self.editor_answers(&message),
            (Direction::ToEditor, Some(_)) => self.agent_calls(&message),
            (Direction::ToEditor, None) => self.agent_answers(&message),
        };
        if let Some(reason) = unrecorded {
            add(&mut self.counts, reason, 1);
        }
    }

    /// Forgets a request of the editor that the agent does not receive.
    pub fn forget_request(&mut self, key: &str) {
        if let Some(EditorRequest::Load(session, _)) = self.requests.remove(key) {
            let session = self.session(&session);
            session.loading = session.loading.saturating_sub(1);
        }
    }

    /// Remembers that the agent begins a session of its own for a stored one.
    pub fn expect_session(&mut self, key: String, session_id: String) {
        self.requests.insert(key, EditorRequest::Served(session_id));
    }

    fn session(&mut self, id: &str) -> &mut SessionState {
        self.sessions.entry(id.to_owned()).or_default()
    }

    /// Returns the session that a message is for, by the id that the editor uses.
    fn session_of(&self, message: &Envelope<'_>) -> Option<String> {
        let id = message.session_id()?;
        Some(self.aliases.get(&id).cloned().unwrap_or(id))
    }

    /// Reads a request or notification of the editor.
    fn editor_calls(&mut self, message: &Envelope<'_>) -> Option<Unrecorded> {
        let request = match EditorRequest::read(message) {
            Ok(Some(request)) => request,
            Ok(None) => return None,
            Err(reason) => return Some(reason),
        };
        let unrecorded = match &request {
            EditorRequest::Load(session, folder) => {
                let session = self.session(session);
                session.loading += 1;
                session.folder = folder.clone().or(session.folder.take());
                None
            }
            EditorRequest::Prompt(session) => self.prompt(session, message),
            EditorRequest::Option(session, option) => {
                self.set_option(session, option.clone());
                None
            }
            EditorRequest::Cancel(session) => {
                self.note(session, notes::CANCEL, Json::null());
                None
            }
            EditorRequest::Initialize | EditorRequest::New(_) | EditorRequest::Served(_) => None,
        };
        if let Some(key) = message.id_key()
            && self.requests.len() < MAX_REQUESTS
        {
            self.requests.insert(key, request);
        }
        unrecorded
    }

    fn set_option(&mut self, session: &str, option: Value) {
        if let Some(model) = option["modelId"].as_str() {
            self.session(session).model = Some(model.to_owned());
        }
        self.note(session, notes::OPTION, option.into());
    }

    /// Records a prompt: it begins a loop, or belongs to the running one.
    fn prompt(&mut self, id: &str, message: &Envelope<'_>) -> Option<Unrecorded> {
        let Some(blocks) = message::prompt_blocks(message) else {
            return Some(Unrecorded::Malformed);
        };
        let content = blocks.iter().map(|raw| content::block(raw)).collect();
        let prompt: AgentMessage = Message::User(UserMessage {
            content,
            ..UserMessage::default()
        })
        .into();
        self.prompts += 1;
        let done = match self
            .sessions
            .get_mut(id)
            .and_then(|session| session.active.as_mut())
        {
            Some(active) => active.add_prompt(&mut self.recorder, prompt),
            None => self.begin(id, prompt),
        };
        self.finish_write(id, done)
    }

    fn begin(&mut self, id: &str, prompt: AgentMessage) -> RecordResult<()> {
        self.session(id).has_failed = false;
        let stored = self.stored_session(id)?;
        let handle = self.handle(&stored)?;
        let summary = handle.summary().map_err(store_error)?;
        let mut number = summary.as_ref().map_or(0, |summary| summary.loops) + 1;
        let mut active = loop {
            let loop_id = LoopId::of(format!("loop-{number}"));
            let mut start = AgentStart::new(stored.clone(), loop_id);
            start.agent_id = Some(self.agent.clone());
            start.metadata = Some(self.details(id).into());
            match ActivePrompt::begin(&mut self.recorder, start, prompt.clone()) {
                Err(RecordError::AlreadyBegun(_)) => number += 1,
                Err(error) => return Err(error),
                Ok(active) => break active,
            }
        };
        let session = self.session(id);
        active.model.clone_from(&session.model);
        session.stored = Some(stored);
        session.active = Some(active);
        let has_project = summary.is_some_and(|summary| summary.project.is_some());
        match session.folder.clone().filter(|_| !has_project) {
            Some(folder) => handle.set_project(folder).map_err(store_error),
            None => Ok(()),
        }
    }

    fn handle(&self, id: &SessionId) -> RecordResult<SessionHandle> {
        let handle = self.store.session(id.as_str());
        handle.map_err(|error| RecordError::Id {
            what: "session_id",
            error,
        })
    }

    fn details(&self, id: &str) -> Value {
        json!({DETAILS: {
            "agent": self.agent,
            "agentVersion": self.agent_version,
            "sessionId": id,
        }})
    }

    /// Returns the stored session for a session of the connection. A new session never continues a stored one that
    /// has its id.
    fn stored_session(&mut self, id: &str) -> RecordResult<SessionId> {
        let session = self.session(id);
        if let Some(stored) = &session.stored {
            return Ok(stored.clone());
        }
        let is_new = session.is_new;
        let Ok(own) = SessionId::new(id) else {
            return Ok(SessionId::generate());
        };
        if !is_new || !self.exists(&own)? {
            return Ok(own);
        }
        for number in 2..MAX_NAMESAKES {
            if let Ok(other) = SessionId::new(format!("{id}-{number}"))
                && !self.exists(&other)?
            {
                return Ok(other);
            }
        }
        Ok(SessionId::generate())
    }

    fn exists(&self, id: &SessionId) -> RecordResult<bool> {
        self.handle(id)?.exists().map_err(store_error)
    }

    /// Counts what a failed write loses, and stops recording the prompt.
    fn finish_write(&mut self, id: &str, done: RecordResult<()>) -> Option<Unrecorded> {
        let error = done.err()?;
        self.error.get_or_insert_with(|| error.to_string());
        let session = self.sessions.entry(id.to_owned()).or_default();
        session.has_failed = true;
        if let Some(active) = session.active.take() {
            // The lease ends with this process otherwise.
            let _ = self.recorder.release(active.loop_id());
        }
        Some(Unrecorded::StoreFailed)
    }

    /// Runs a write of the running prompt of a session. Returns the reason if there is none, or the write failed.
    fn write(
        &mut self,
        id: &str,
        write: impl FnOnce(
            &mut ActivePrompt,
            &mut SessionRecorder<'static>,
        ) -> RecordResult<Option<Unrecorded>>,
    ) -> Option<Unrecorded> {
        let Some(session) = self.sessions.get_mut(id) else {
            return Some(Unrecorded::OutsidePrompt);
        };
        let Some(active) = session.active.as_mut() else {
            return Some(match session.has_failed {
                true => Unrecorded::StoreFailed,
                false => Unrecorded::OutsidePrompt,
            });
        };
        match write(active, &mut self.recorder) {
            Ok(unrecorded) => unrecorded,
            Err(error) => self.finish_write(id, Err(error)),
        }
    }

    /// Stores a message that no model sees; outside of a prompt it is not stored.
    fn note(&mut self, id: &str, kind: &str, data: Json) {
        let unrecorded = self.write(id, |active, recorder| {
            active.note(recorder, kind, data)?;
            Ok(None)
        });
        if unrecorded == Some(Unrecorded::StoreFailed) {
            add(&mut self.counts, Unrecorded::StoreFailed, 1);
        }
    }

    /// Reads a response of the editor.
    fn editor_answers(&mut self, message: &Envelope<'_>) -> Option<Unrecorded> {
        let question = self.questions.remove(&message.id_key()?)?;
        let result = message.result.map_or("null", RawValue::get);
        match question {
            AgentRequest::Permission(session, permission) => {
                let selected = serde_json::from_str(result).unwrap_or(Selected::default());
                self.note(&session, notes::PERMISSION, permission.answered(&selected));
            }
            AgentRequest::TerminalOutput(terminal) => {
                if let Ok(output) = serde_json::from_str::<TerminalOutput>(result) {
                    self.keep_output(terminal, output.output);
                }
            }
        }
        None
    }

    fn keep_output(&mut self, terminal: String, mut output: String) {
        if self.terminals.len() >= MAX_REQUESTS {
            self.terminals.clear();
        }
        output.truncate(output.floor_char_boundary(MAX_OUTPUT));
        self.terminals.insert(terminal, output);
    }

    /// Reads a request or notification of the agent.
    fn agent_calls(&mut self, message: &Envelope<'_>) -> Option<Unrecorded> {
        match message.method.as_deref()? {
            "session/update" => match self.session_of(message) {
                Some(session) => self.update(&session, message),
                None => Some(Unrecorded::Malformed),
            },
            "session/request_permission" => {
                let (Some(session), Some(permission)) =
                    (self.session_of(message), Permission::read(message))
                else {
                    return Some(Unrecorded::Malformed);
                };
                let update = permission.call.clone();
                // The answer is complete: its call waits for the person.
                let update = serde_json::from_value(update).ok();
                let terminals = std::mem::take(&mut self.terminals);
                let unrecorded = self.write(&session, |active, recorder| {
                    if let Some(update) = update {
                        active.update_call(recorder, update, &terminals)?;
                    }
                    active.flush(recorder, None)?;
                    Ok(None)
                });
                self.terminals = terminals;
                self.ask(message, AgentRequest::Permission(session, permission));
                unrecorded
            }
            "terminal/output" => {
                if let Some(terminal) = message::terminal_of(message) {
                    self.ask(message, AgentRequest::TerminalOutput(terminal));
                }
                None
            }
            // The effects of these are in the updates of the calls.
            name if message::is_service(name) => None,
            _ => Some(Unrecorded::UnknownMethod),
        }
    }

    fn ask(&mut self, message: &Envelope<'_>, question: AgentRequest) {
        if let Some(key) = message.id_key()
            && self.questions.len() < MAX_REQUESTS
        {
            self.questions.insert(key, question);
        }
    }

    /// Records an update.
    fn update(&mut self, id: &str, message: &Envelope<'_>) -> Option<Unrecorded> {
        let Some(update) = Update::read(message) else {
            return Some(Unrecorded::Malformed);
        };
        if self.session(id).loading > 0 {
            return Some(Unrecorded::Repeated);
        }
        match update {
            Update::Ignored => None,
            Update::Title(title) => {
                self.set_title(id, title);
                None
            }
            Update::Option(option) => {
                self.set_option(id, option);
                None
            }
            Update::EchoedPrompt => None,
            Update::Usage(usage) => {
                let unrecorded = self.write(id, |active, _| {
                    active.set_usage(usage);
                    Ok(None)
                });
                unrecorded.filter(|reason| *reason == Unrecorded::StoreFailed)
            }
            Update::Chunk(kind, raw, message_id) => self.chunk(id, kind, raw, message_id),
            Update::Plan(entries) => self.write(id, |active, _| {
                let is_new = active.add_plan(entries);
                Ok((!is_new).then_some(Unrecorded::Repeated))
            }),
            Update::Call(call) => {
                let terminals = std::mem::take(&mut self.terminals);
                let unrecorded = self.write(id, |active, recorder| {
                    active.update_call(recorder, *call, &terminals)
                });
                self.terminals = terminals;
                unrecorded
            }
            Update::Other(update) => self.write(id, |active, recorder| {
                active.note(recorder, notes::UPDATE, update)?;
                Ok(None)
            }),
        }
    }

    fn chunk(
        &mut self,
        id: &str,
        kind: ChunkKind,
        raw: &RawValue,
        message_id: Option<String>,
    ) -> Option<Unrecorded> {
        self.write(id, |active, _| {
            match content::text(raw) {
                Some(text) => active.add_text(kind, &text, message_id),
                None => active.add_block(content::block(raw)),
            }
            Ok(None)
        })
    }

    fn set_title(&mut self, id: &str, title: String) {
        let Some(stored) = self.session(id).stored.clone() else {
            return;
        };
        let Ok(handle) = self.store.session(stored.as_str()) else {
            return;
        };
        if let Err(error) = handle.set_title(title) {
            self.error.get_or_insert_with(|| error.to_string());
            add(&mut self.counts, Unrecorded::StoreFailed, 1);
        }
    }

    /// Reads a response of the agent.
    fn agent_answers(&mut self, message: &Envelope<'_>) -> Option<Unrecorded> {
        let request = self.requests.remove(&message.id_key()?)?;
        let result = message.result.map_or("null", RawValue::get);
        match request {
            EditorRequest::Initialize => {
                let own: Initialized = serde_json::from_str(result).unwrap_or_default();
                if let Some(info) = own.agent_info {
                    self.agent = info.name;
                    self.agent_version = info.version;
                }
            }
            EditorRequest::New(folder) => self.began(result, folder, None),
            EditorRequest::Served(stored) => self.began(result, None, Some(stored)),
            EditorRequest::Load(session, _) => {
                let session = self.session(&session);
                session.loading = session.loading.saturating_sub(1);
                let answered: AnsweredRequest = serde_json::from_str(result).unwrap_or_default();
                session.model = answered.model().or(session.model.take());
            }
            EditorRequest::Prompt(session) => return self.answered(&session, message),
            EditorRequest::Option(..) | EditorRequest::Cancel(_) => {}
        }
        None
    }

    /// Notes a session that the agent began, for itself or for a stored session.
    fn began(&mut self, result: &str, folder: Option<String>, stored: Option<String>) {
        let Ok(answered) = serde_json::from_str::<NewSession>(result) else {
            return;
        };
        let model = answered.rest.model();
        match stored {
            None => {
                let session = self.session(&answered.session_id);
                *session = SessionState {
                    is_new: true,
                    folder,
                    model,
                    ..SessionState::default()
                };
            }
            Some(id) => {
                self.session(&id).model = model;
                if answered.session_id != id {
                    self.aliases.insert(answered.session_id, id);
                }
            }
        }
    }

    /// Ends a prompt with the agent's response.
    fn answered(&mut self, id: &str, message: &Envelope<'_>) -> Option<Unrecorded> {
        let result = message.result.map_or("null", RawValue::get);
        let response: PromptResponse = serde_json::from_str(result).unwrap_or_default();
        let end = PromptEnd {
            usage: response.usage(),
            stop_reason: response.stop_reason,
            error: message.error.map(message::error_text),
            is_aborted: false,
        };
        self.end(id, end)
    }

    fn end(&mut self, id: &str, end: PromptEnd) -> Option<Unrecorded> {
        let session = self.sessions.get_mut(id)?;
        let active = session.active.as_mut()?;
        active.open_requests = active.open_requests.saturating_sub(1);
        if active.open_requests > 0 && !end.is_aborted {
            return None;
        }
        self.note_unrecorded(id);
        let terminals = std::mem::take(&mut self.terminals);
        let unrecorded = self.write(id, |active, recorder| {
            active.end(recorder, end, &terminals)?;
            Ok(None)
        });
        self.session(id).active = None;
        unrecorded
    }
}

fn store_error(error: Error) -> RecordError {
    match error {
        Error::Store(error) => RecordError::Store(error),
        other => RecordError::Store(loopstore::StoreError::Invalid(other.to_string())),
    }
}
