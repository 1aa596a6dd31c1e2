//! OpenAI's agents SDK: the SQLite file of `SQLiteSession`, whose rows hold items of the Responses
//! API.
//!
//! A message of the user begins a loop; the items that the model put out in a row are one answer. A loop
//! is named by its first row, whose number the SDK never gives again: after a session was cleared, or the
//! newest of it taken out, what is said next is never taken for what stood there before.
//! The file is read where it lies, as its write-ahead log may hold the newest of it.

use std::ops::ControlFlow;
use std::path::Path;

use serde_json::value::RawValue;

use super::responses::{ResponseItem, answer, item};
use super::transcript::{self, NewLoop, Style, TranscriptBuilder};
use super::values::session_id;
use super::{
    Identity, ImportError, Importer, SQLITE_MAGIC, SessionHead, Sink, Source, holds_conversation,
    log_head,
};
use crate::model::{AgentMessage, Content, Extra, Message, Time};
use crate::store::StoreError;
use crate::store::sqlite::agents::{AgentFile, AgentItem, AgentSession};

/// Reads the sessions of OpenAI's agents SDK.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenAiAgents;

/// The name of the format, for agents too.
const TOOL: &str = "openai-agents";

impl Importer for OpenAiAgents {
    fn format(&self) -> &'static str {
        TOOL
    }

    fn detect(&self, path: &Path, head: &[u8]) -> bool {
        head.starts_with(SQLITE_MAGIC) && (names_columns(head) || names_columns(&log_head(path)))
    }

    fn import(&self, source: &mut Source<'_>, sink: &mut dyn Sink) -> Result<(), ImportError> {
        let file = AgentFile::open(source.path).map_err(ImportError::NoTranscript)?;
        let sessions = file.sessions().map_err(ImportError::NoTranscript)?;
        let mut any = false;
        for session in sessions {
            any |= self.session(&file, session, sink)?;
        }
        holds_conversation(any)
    }
}

/// Whether the beginning of a file names the columns of its tables.
fn names_columns(bytes: &[u8]) -> bool {
    let has = |name: &[u8]| bytes.windows(name.len()).any(|bytes| bytes == name);
    has(b"message_data") && has(b"session_id")
}

impl OpenAiAgents {
    fn session(
        &self,
        file: &AgentFile,
        session: AgentSession,
        sink: &mut dyn Sink,
    ) -> Result<bool, ImportError> {
        let mut builder = AgentsSession {
            transcript: TranscriptBuilder::new(sink, head(&session)?, Style::Document),
            output: None,
            first: None,
        };
        let mut failed = None;
        let read = file.items(&session.id, &mut |item| {
            match builder.item(&item) {
                Ok(Ok(())) => {}
                Ok(Err(reason)) => {
                    let reason = format!("row {} of session `{}`: {reason}", item.row, session.id);
                    builder.transcript.skip(None, reason);
                }
                Err(error) => {
                    failed = Some(error);
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        });
        if let Some(error) = failed {
            return Err(error);
        }
        if let Err(reason) = read.map_err(|error: StoreError| ImportError::from(error))? {
            let reason = format!("session `{}`: {reason}", session.id);
            builder.transcript.skip(None, reason);
        }
        builder.end()
    }
}

fn head(session: &AgentSession) -> Result<SessionHead, ImportError> {
    let own = session_id(Some(session.id.clone()));
    let placeholder = session_id(Some(TOOL.to_owned()));
    let id = own.clone().or(placeholder);
    let id = id.ok_or_else(|| ImportError::NoTranscript("a session without an id".into()))?;
    let created = session.created_at.as_deref().map(time);
    let mut head = transcript::session(id, TOOL, created);
    head.last_active_at = session.updated_at.as_deref().map(time);
    Ok(SessionHead {
        identity: own.map_or_else(|| Identity::Key("0".into()), Identity::Own),
        session: head,
        title: None,
        project: None,
    })
}

/// SQLite's own times are UTC and have a space between day and hour.
fn time(text: &str) -> Time {
    let iso = format!("{}Z", text.replacen(' ', "T", 1));
    let read = Time::from_text(iso.as_str());
    match read.parse() {
        Some(_) => read,
        None => Time::from_text(text),
    }
}

/// What the model put out so far of an answer.
#[derive(Default)]
struct ModelOutput {
    /// The loop that it begins, if none goes on.
    name: String,
    content: Vec<Content>,
    sources: Vec<Extra>,
    raw: String,
    millis: Option<i64>,
}

struct AgentsSession<'a> {
    transcript: TranscriptBuilder<'a>,
    output: Option<ModelOutput>,
    /// The first row; what stands before the first loop is a part of it.
    first: Option<i64>,
}

impl AgentsSession<'_> {
    /// Names the loop that a row begins; instructions before it are the loop's.
    fn name(&self, row: &AgentItem) -> String {
        let lead = self.first.filter(|_| self.transcript.here().is_none());
        loop_name(lead.unwrap_or(row.row))
    }

    fn item(&mut self, row: &AgentItem) -> Result<Result<(), String>, ImportError> {
        let raw: &RawValue = match serde_json::from_str(&row.data) {
            Ok(raw) => raw,
            Err(error) => return Ok(Err(format!("not JSON: {error}"))),
        };
        let item = match item(raw) {
            Ok(item) => item,
            Err(reason) => return Ok(Err(reason)),
        };
        self.first.get_or_insert(row.row);
        let at = row.created_at.as_deref().map(time);
        let millis = at.as_ref().and_then(Time::millis);
        if !matches!(item, ResponseItem::Output(..)) {
            self.settle()?;
        }
        let name = self.name(row);
        let bytes = row.data.as_bytes();
        match item {
            ResponseItem::Output(content, source) => {
                let output = self.output.get_or_insert_with(|| ModelOutput {
                    name,
                    ..ModelOutput::default()
                });
                output.content.extend(content);
                output.sources.push(source);
                output.millis = output.millis.or(millis);
                if !output.raw.is_empty() {
                    output.raw.push('\n');
                }
                output.raw.push_str(&row.data);
            }
            ResponseItem::Prompt(message) => {
                self.transcript.begin(NewLoop {
                    started: at,
                    ..self.transcript.next_loop(name)
                })?;
                self.transcript
                    .input(at_time(message, millis), bytes, true)?;
            }
            ResponseItem::Result(message) => {
                let message = at_time(message, millis);
                self.transcript.result(|| name, message, bytes)?;
            }
            ResponseItem::Extension(message) => self.transcript.extension(message, bytes)?,
        }
        Ok(Ok(()))
    }

    fn settle(&mut self) -> Result<(), ImportError> {
        let Some(output) = self.output.take() else {
            return Ok(());
        };
        let message = at_time(answer(output.content, output.sources), output.millis);
        self.transcript
            .answer(|| output.name, message, output.raw.as_bytes())
    }

    fn end(mut self) -> Result<bool, ImportError> {
        self.settle()?;
        let name = self.first.map(loop_name);
        self.transcript.finish_as(name.unwrap_or_default())
    }
}

fn loop_name(first_row: i64) -> String {
    format!("row-{first_row}")
}

fn at_time(mut message: AgentMessage, millis: Option<i64>) -> AgentMessage {
    let millis = millis.map(Into::into);
    match message.message_mut() {
        Some(Message::User(user)) => user.timestamp = millis,
        Some(Message::Assistant(answer)) => answer.timestamp = millis,
        Some(Message::ToolResult(result)) => result.timestamp = millis,
        None => {}
    }
    message
}
