//! The two gates: bytes pass through them unchanged, except the few messages that concern sessions of the store.
//!
//! A gate passes bytes on as they arrive. It holds a line until it is whole only while it may have to change or answer
//! the line:
//! - the agent's response to `initialize`, to which it adds the capabilities that the store provides;
//! - afterwards, if the store provides any, the requests of the editor;
//! - messages of the agent while a session of the store is open.
//!
//! A session of the store has the id that the editor uses and the id of the agent's own session; the gates replace
//! one by the other. A line that is held for its end loses no time: a peer cannot read half a message.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use memchr::memchr;
use memchr::memmem::find;
use serde_json::value::RawValue;

use crate::queue::Item;
use crate::serve::{ServeKind, ServeRequest};
use crate::shared::{Offered, Phase, ServedSession, Serving, Shared};
use crate::wire::{Envelope, fields, id_key, place_of, replaced, with_field};

/// The longest line that a gate holds; the rest of a longer line passes unread.
const MAX_HELD: usize = 64 << 20;
/// The longest line of the editor before its `initialize`.
const MAX_FIRST: usize = 1 << 20;
/// The only version of the protocol that the gates change.
const VERSION: u64 = 1;

/// A piece of a stream at a gate.
enum LinePiece<'a> {
    /// Bytes to pass on unread.
    Raw(&'a [u8]),
    /// A whole line with its end.
    Line(&'a [u8]),
}

/// Cuts a stream into pieces: into lines while lines are held, else as it arrives.
#[derive(Default)]
struct Holder {
    held: Vec<u8>,
    /// True within a line whose beginning has passed.
    is_within_line: bool,
}

impl Holder {
    fn feed(
        &mut self,
        mut bytes: &[u8],
        holds: impl Fn() -> bool,
        mut each: impl FnMut(LinePiece<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        while !bytes.is_empty() {
            let holds = holds();
            if self.held.is_empty() && !holds {
                self.is_within_line = !bytes.ends_with(b"\n");
                return each(LinePiece::Raw(bytes));
            }
            let end = memchr(b'\n', bytes).map(|at| at + 1);
            let (first, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            bytes = rest;
            if self.is_within_line {
                self.is_within_line = end.is_none();
                each(LinePiece::Raw(first))?;
            } else if end.is_none() {
                self.held.extend_from_slice(first);
                if self.held.len() > MAX_HELD || !holds {
                    self.is_within_line = true;
                    each(LinePiece::Raw(&std::mem::take(&mut self.held)))?;
                }
            } else if self.held.is_empty() {
                each(LinePiece::Line(first))?;
            } else {
                self.held.extend_from_slice(first);
                each(LinePiece::Line(&std::mem::take(&mut self.held)))?;
            }
        }
        Ok(())
    }
}

/// The gate from the editor to the agent.
pub(crate) struct EditorGate {
    shared: Arc<Shared>,
    holder: Holder,
    /// The current line, until `initialize` was found.
    first: Vec<u8>,
}

impl EditorGate {
    pub fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            holder: Holder::default(),
            first: Vec::new(),
        }
    }

    /// Passes bytes of the editor on.
    pub fn pass(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.shared.serving().phase == Phase::Waiting {
            self.look_for_initialize(bytes);
        }
        let shared = &self.shared;
        let holds = || matches!(shared.serving().phase, Phase::Ready(_));
        self.holder.feed(bytes, holds, |piece| match piece {
            LinePiece::Raw(bytes) => shared.to_agent.pass(bytes),
            LinePiece::Line(line) => match request(shared, line) {
                Some(line) => shared.to_agent.pass(&line),
                None => Ok(()),
            },
        })
    }

    /// Passes on the line that the editor did not end.
    pub fn finish(&mut self) -> io::Result<()> {
        self.shared
            .to_agent
            .pass(&std::mem::take(&mut self.holder.held))
    }

    /// Reads lines that pass meanwhile; the id of the request must be known before the agent can answer.
    fn look_for_initialize(&mut self, mut bytes: &[u8]) {
        while let Some(at) = memchr(b'\n', bytes) {
            self.first.extend_from_slice(&bytes[..at]);
            let id = initialize_id(&self.first);
            self.first.clear();
            bytes = &bytes[at + 1..];
            if let Some(id) = id {
                self.shared.serving().phase = Phase::Initializing(id);
                self.first = Vec::new();
                return;
            }
        }
        if self.first.len() + bytes.len() <= MAX_FIRST {
            self.first.extend_from_slice(bytes);
        }
    }
}

fn initialize_id(line: &[u8]) -> Option<String> {
    find(line, b"initialize")?;
    let message = Envelope::read(line)?;
    (message.method.as_deref() == Some("initialize")).then(|| message.id_key())?
}

/// Returns the line to pass on to the agent; `None` if the store answers it.
fn request<'a>(shared: &Shared, line: &'a [u8]) -> Option<Cow<'a, [u8]>> {
    let unchanged = Some(Cow::Borrowed(line));
    let mut serving = shared.serving();
    let Phase::Ready(offered) = serving.phase else {
        return unchanged;
    };
    let may_be_served = ["session/list", "session/load", "session/resume"];
    let is_relevant = may_be_served
        .iter()
        .any(|name| find(line, name.as_bytes()).is_some());
    if !is_relevant && serving.served.is_empty() {
        return unchanged;
    }
    let Some(message) = Envelope::read(line) else {
        return unchanged;
    };
    if let (Some(id), Some(kind)) = (message.id, served_kind(&message, offered)) {
        shared.queue.push(Item::Serve(ServeRequest {
            id: id.get().to_owned(),
            kind,
            params: message.params.map_or("{}", RawValue::get).to_owned(),
        }));
        return None;
    }
    if is_resume(&message) && offered.resume {
        let changed = load_quietly(&mut serving, line, &message);
        return changed.map_or(unchanged, |line| Some(Cow::Owned(line)));
    }
    Some(translated(&mut serving, line, &message).map_or(Cow::Borrowed(line), Cow::Owned))
}

/// Returns the way in which a request is answered for the agent.
fn served_kind(message: &Envelope<'_>, offered: Offered) -> Option<ServeKind> {
    match message.method.as_deref()? {
        "session/list" if offered.list => Some(ServeKind::List),
        "session/load" if offered.load => Some(ServeKind::Load),
        "session/resume" if offered.resume && offered.load => Some(ServeKind::Resume),
        _ => None,
    }
}

fn is_resume(message: &Envelope<'_>) -> bool {
    message.id.is_some() && message.method.as_deref() == Some("session/resume")
}

/// Turns a `session/resume` into the `session/load` that the agent can do; what it replays is held back.
fn load_quietly(serving: &mut Serving, line: &[u8], message: &Envelope<'_>) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(line).ok()?;
    let method = *fields(text)?.get("method")?;
    let changed = replaced(line, method.get(), "\"session/load\"")?;
    serving
        .quiet
        .insert(message.id_key()?, message.session_id()?);
    Some(changed)
}

/// Returns a message of the editor for a session of the store as the agent reads it.
fn translated(serving: &mut Serving, line: &[u8], message: &Envelope<'_>) -> Option<Vec<u8>> {
    let served = serving.served.get_mut(&message.session_id()?)?;
    let is_prompt = message.method.as_deref() == Some("session/prompt");
    let mut params = message.params?.get().to_owned();
    let agents = serde_json::to_string(&served.agent_id).ok()?;
    if let (true, Some(context)) = (is_prompt, &served.context) {
        params = with_context(&params, context)?;
        served.context = None;
    }
    params = with_field(&params, "sessionId", &agents)?;
    replaced(line, message.params?.get(), &params)
}

/// Returns the parameters of a prompt with a text before its first block.
fn with_context(params: &str, context: &str) -> Option<String> {
    let fields = fields(params)?;
    let prompt = fields.get("prompt")?.get();
    let blocks: Vec<&RawValue> = serde_json::from_str(prompt).ok()?;
    let block = serde_json::json!({"type": "text", "text": context}).to_string();
    let comma = if blocks.is_empty() { "" } else { "," };
    let inside = prompt.trim_start().strip_prefix('[')?;
    with_field(params, "prompt", &format!("[{block}{comma}{inside}"))
}

/// The gate from the agent to the editor.
pub(crate) struct AgentGate {
    shared: Arc<Shared>,
    holder: Holder,
}

impl AgentGate {
    pub fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            holder: Holder::default(),
        }
    }

    /// Passes bytes of the agent on.
    pub fn pass(&mut self, bytes: &[u8]) -> io::Result<()> {
        let shared = &self.shared;
        let holds = || shared.serving().reads_agent();
        self.holder.feed(bytes, holds, |piece| match piece {
            LinePiece::Raw(bytes) => shared.to_editor.pass(bytes),
            LinePiece::Line(line) => match answer(shared, line) {
                Some(line) => shared.to_editor.pass(&line),
                None => Ok(()),
            },
        })
    }

    /// Passes on the line that the agent did not end.
    pub fn finish(&mut self) -> io::Result<()> {
        self.shared
            .to_editor
            .pass(&std::mem::take(&mut self.holder.held))
    }
}

/// Returns the line to pass on to the editor; `None` if it is not for the editor.
fn answer<'a>(shared: &Shared, line: &'a [u8]) -> Option<Cow<'a, [u8]>> {
    let unchanged = Some(Cow::Borrowed(line));
    let Some(message) = Envelope::read(line) else {
        return unchanged;
    };
    let mut serving = shared.serving();
    if message.method.is_some() {
        let session = message.session_id();
        let is_quiet = session.as_ref().is_some_and(|id| serving.is_quiet(id));
        if is_quiet && message.method.as_deref() == Some("session/update") {
            return None;
        }
        let editors = session.and_then(|id| serving.editor_id(&id));
        let changed = editors.and_then(|id| {
            let id = serde_json::to_string(&id).ok()?;
            let params = with_field(message.params?.get(), "sessionId", &id)?;
            replaced(line, message.params?.get(), &params)
        });
        return Some(changed.map_or(Cow::Borrowed(line), Cow::Owned));
    }
    let Some(id) = message.id_key() else {
        return unchanged;
    };
    serving.quiet.remove(&id);
    if let Some(starting) = serving.starting.remove(&id) {
        let (lines, session) = starting.lines(&message);
        if let Some((editor_id, session)) = session {
            serving.served.insert(editor_id, session);
        }
        return Some(Cow::Owned(lines));
    }
    if serving.phase == Phase::Initializing(id) {
        drop(serving);
        return Some(initialized(shared, line, &message));
    }
    unchanged
}

/// Returns the response to `initialize` with the capabilities that the store adds.
fn initialized<'a>(shared: &Shared, line: &'a [u8], message: &Envelope<'a>) -> Cow<'a, [u8]> {
    let offered = match shared.store_opens() {
        true => missing(message),
        false => None,
    };
    let changed = offered.and_then(|offered| with_capabilities(line, message, offered));
    shared.serving().phase = match (offered, &changed) {
        (Some(offered), Some(_)) => Phase::Ready(offered),
        _ => Phase::Off,
    };
    changed.map_or(Cow::Borrowed(line), Cow::Owned)
}

fn is_set(value: Option<&&RawValue>) -> bool {
    value.is_some_and(|value| !matches!(value.get(), "null" | "false"))
}

/// Returns the capabilities that the agent lacks; `None` if it lacks none or speaks another version.
fn missing(message: &Envelope<'_>) -> Option<Offered> {
    let result = fields(message.result?.get())?;
    let version = result.get("protocolVersion")?.get().parse::<u64>();
    if version != Ok(VERSION) {
        return None;
    }
    let own = result.get("agentCapabilities");
    let own = own.and_then(|own| fields(own.get())).unwrap_or_default();
    let sessions = own.get("sessionCapabilities");
    let sessions = sessions.and_then(|own| fields(own.get()));
    let sessions = sessions.unwrap_or_default();
    let offered = Offered {
        load: !is_set(own.get("loadSession")),
        list: !is_set(sessions.get("list")),
        resume: !is_set(sessions.get("resume")),
    };
    (offered.load || offered.list || offered.resume).then_some(offered)
}

fn with_capabilities(line: &[u8], message: &Envelope<'_>, offered: Offered) -> Option<Vec<u8>> {
    let result = message.result?.get();
    place_of(line, result)?;
    let outer = fields(result)?;
    let object = |value: Option<&&RawValue>| match value.map(|value| value.get()) {
        None | Some("null") => "{}".to_owned(),
        Some(text) => text.to_owned(),
    };
    let mut own = object(outer.get("agentCapabilities"));
    let mut sessions = object(fields(&own)?.get("sessionCapabilities"));
    if offered.list {
        sessions = with_field(&sessions, "list", "{}")?;
    }
    if offered.resume {
        sessions = with_field(&sessions, "resume", "{}")?;
    }
    own = with_field(&own, "sessionCapabilities", &sessions)?;
    if offered.load {
        own = with_field(&own, "loadSession", "true")?;
    }
    replaced(
        line,
        result,
        &with_field(result, "agentCapabilities", &own)?,
    )
}

/// A session that the agent begins in place of one of the store.
#[derive(Debug)]
pub(crate) struct StartingSession {
    /// The id of the editor's request, as it is written.
    pub request_id: String,
    pub session_id: String,
    /// The updates that replay the conversation: whole lines.
    pub replay: Vec<u8>,
    /// The conversation for the agent's model.
    pub context: Option<String>,
}

impl StartingSession {
    /// Returns the lines for the editor when the agent has answered, and the session if it began.
    fn lines(self, answer: &Envelope<'_>) -> (Vec<u8>, Option<(String, ServedSession)>) {
        let id = &self.request_id;
        let result = answer.result.and_then(|result| fields(result.get()));
        let agent_id = result
            .as_ref()
            .and_then(|result| serde_json::from_str::<String>(result.get("sessionId")?.get()).ok());
        let (Some(mut result), Some(agent_id)) = (result, agent_id) else {
            let error = answer.error.map_or(
                r#"{"code":-32603,"message":"the agent began no session"}"#,
                RawValue::get,
            );
            let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}\n");
            return (line.into_bytes(), None);
        };
        result.remove("sessionId");
        let result = serde_json::to_string(&result).unwrap_or_else(|_| "{}".into());
        let mut lines = self.replay;
        let response = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n");
        lines.extend_from_slice(response.as_bytes());
        let session = ServedSession {
            agent_id,
            context: self.context,
        };
        (lines, Some((self.session_id, session)))
    }
}

/// Returns the key of an id as the proxy writes it.
pub(crate) fn own_key(id: &str) -> Option<String> {
    let raw: &RawValue = serde_json::from_str(id).ok()?;
    id_key(raw)
}

#[cfg(test)]
mod tests;
