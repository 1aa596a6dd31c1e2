//! Qwen Code: `chats/<session>.jsonl`, one record per line, each naming the record before it (`parentUuid`). The model
//! sees the path from the last record to the root; `/rewind` and forks leave other branches behind.
//!
//! Messages are Gemini's contents (`parts`). The output of a tool for the model is in its `functionResponse`, which
//! differs from the output that the person saw. A record that is written in fragments has one `uuid` in several lines.

mod emit;
mod messages;

use std::path::Path;

use loopstore::model::{SessionId, Time};

use super::fields::Fields;
use super::records::{RecordLine, RecordStream};
use super::signs::is_qwen;
use super::transcript::{identity, session, started_by};
use super::values::text_of;
use super::{ImportError, Importer, ReadSeek, SessionHead, Sink, Source, holds_conversation};

const TOOL: &str = "qwen-code";

/// Reads the chats of Qwen Code.
#[derive(Clone, Copy, Debug, Default)]
pub struct QwenCode;

impl Importer for QwenCode {
    fn format(&self) -> &'static str {
        TOOL
    }

    fn detect(&self, _path: &Path, head: &[u8]) -> bool {
        is_qwen(head)
    }

    fn import(&self, source: &mut Source<'_>, sink: &mut dyn Sink) -> Result<(), ImportError> {
        let about = QwenSession::read(source.path, &mut *source.reader)?;
        let is_of_agent = about.agent.is_some();
        let head = about.head(source.path);
        holds_conversation(emit::emit(source, head, is_of_agent, sink)?)
    }
}

/// The description of the session in its records.
#[derive(Default)]
struct QwenSession {
    session: Option<String>,
    /// The sub-agent that the file belongs to.
    agent: Option<String>,
    parent: Option<String>,
    title: Option<String>,
    project: Option<String>,
    started: Option<String>,
    ended: Option<String>,
}

impl QwenSession {
    fn read(path: &Path, reader: &mut dyn ReadSeek) -> Result<Self, ImportError> {
        let mut about = Self::default();
        let mut records = RecordStream::new(path, reader)?;
        while let Some((_, line)) = records.next()? {
            if let RecordLine::Record(_, fields) = line {
                about.add(&fields);
            }
        }
        Ok(about)
    }

    fn add(&mut self, record: &Fields<'_>) {
        let first = |known: &mut Option<String>, key: &str| {
            *known = known.take().or_else(|| text_of(record.get(key)));
        };
        first(&mut self.session, "sessionId");
        first(&mut self.project, "cwd");
        first(&mut self.started, "timestamp");
        self.ended = record.text("timestamp").or(self.ended.take());
        if record.read::<bool>("isSidechain") == Some(true) {
            first(&mut self.agent, "agentId");
        }
        let payload = || record.object("systemPayload");
        match record.text("subtype").as_deref() {
            // The title is written again as the file grows; the last one wins.
            Some("custom_title") => {
                self.title = text_of(payload().get("customTitle")).or(self.title.take());
            }
            Some("parent_session") => {
                self.parent = text_of(payload().get("parentSessionId")).or(self.parent.take());
            }
            _ => {}
        }
    }

    fn head(self, path: &Path) -> SessionHead {
        let own = match (&self.session, &self.agent) {
            // The file of a sub-agent names the session that started it.
            (Some(session), Some(agent)) => Some(format!("{session}/agent-{agent}")),
            (session, _) => session.clone(),
        };
        let own = own.filter(|id| SessionId::new(id.as_str()).is_ok());
        let (identity, id) = identity(path, own.as_deref());
        let mut session = session(id, TOOL, self.started.map(Time::from_text));
        session.last_active_at = self.ended.map(Time::from_text);
        let parent = match self.agent {
            Some(_) => self.session,
            None => self.parent,
        };
        session.parent_spawn_ref = parent.as_deref().and_then(started_by);
        SessionHead {
            identity,
            session,
            title: self.title,
            project: self.project,
        }
    }
}
