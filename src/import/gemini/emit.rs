//! Emits the messages of a session.

use std::path::Path;

use super::TOOL;
use super::messages::{self, GeminiRecord};

use crate::import::extension::{extension_of, unreadable};
use crate::import::fields::{Fields, list};
use crate::import::transcript::{Style, TranscriptBuilder, identity, session};
use crate::import::{ImportError, SessionHead, Sink};
use crate::model::{Extra, Json, Time};

/// What a file says of its session.
#[derive(Default)]
struct Header {
    session: Option<String>,
    started: Option<String>,
    ended: Option<String>,
    /// What it says besides.
    extra: Extra,
}

impl Header {
    fn head(&self, path: &Path) -> SessionHead {
        let (identity, id) = identity(path, self.session.as_deref());
        let mut session = session(id, TOOL, self.started.clone().map(Time::from_text));
        session.last_active_at = self.ended.clone().map(Time::from_text);
        session.extra = self.extra.clone();
        SessionHead {
            identity,
            session,
            title: self.text("summary"),
            // Where no folder is named, the digest still says which sessions belong together.
            project: self.folder().or_else(|| self.text("projectHash")),
        }
    }

    fn text(&self, key: &str) -> Option<String> {
        let text = self.extra.get(key)?.read::<String>().ok();
        text.filter(|text| !text.trim().is_empty())
    }

    fn folder(&self) -> Option<String> {
        let folders: Vec<String> = self.extra.get("directories")?.read().ok()?;
        folders.into_iter().find(|folder| !folder.is_empty())
    }

    /// Whether another agent gave the session its task.
    fn is_subagent(&self) -> bool {
        self.text("kind").is_some_and(|kind| kind == "subagent")
    }

    /// Takes the fields of a session besides its messages; the first word on its id counts.
    fn read(&mut self, fields: &Fields<'_>) {
        self.session = self.session.take().or_else(|| fields.text("sessionId"));
        self.started = self.started.take().or_else(|| fields.text("startTime"));
        self.ended = fields.text("lastUpdated").or(self.ended.take());
        for key in ["projectHash", "kind", "summary", "directories"] {
            if let Some(Ok(value)) = fields.get(key).map(|value| Json::parse(value.get())) {
                self.extra.insert(key, value);
            }
        }
    }
}

/// Reads a session, whichever layout it has.
pub(super) struct GeminiReader<'a> {
    path: &'a Path,
    header: Header,
    transcript: TranscriptBuilder<'a>,
    /// Whether its header was read.
    is_begun: bool,
}

impl<'a> GeminiReader<'a> {
    pub(super) fn new(path: &'a Path, sink: &'a mut dyn Sink) -> Self {
        let header = Header::default();
        Self {
            path,
            transcript: TranscriptBuilder::new(sink, header.head(path), Style::Log),
            header,
            is_begun: false,
        }
    }

    /// Reports a record that is not used.
    pub(super) fn skip(&mut self, line: u64, reason: impl Into<String>) {
        self.transcript.skip(line, reason);
    }

    /// Takes the fields of a session besides its messages.
    pub(super) fn header(&mut self, fields: &Fields<'_>) {
        self.header.read(fields);
    }

    /// Looks at a line of the newer layout and returns the id of a message.
    pub(super) fn peek(&mut self, record: &str) -> Option<String> {
        let fields = Fields::parse(record).ok()?;
        if let Some(set) = fields.get("$set") {
            self.header.read(&Fields::parse(set.get()).ok()?);
        } else if fields.get("sessionId").is_some() {
            self.header.read(&fields);
        }
        fields.get("type")?;
        fields.text("id")
    }

    /// Says which session it is.
    pub(super) fn begin(&mut self) {
        if !std::mem::replace(&mut self.is_begun, true) {
            self.transcript.describe(self.header.head(self.path));
            if self.header.is_subagent() {
                self.transcript.is_of_agent();
            }
        }
    }

    /// Takes a line of the newer layout.
    pub(super) fn record(&mut self, record: &str, line: u64) -> Result<(), ImportError> {
        let Ok(fields) = Fields::parse(record) else {
            self.skip(line, "not a JSON object");
            return self.unreadable(record.as_bytes());
        };
        if let Some(messages) = fields.get("messages").and_then(list) {
            for message in messages {
                self.message(message.get(), line)?;
            }
            return Ok(());
        }
        if fields.get("type").is_some() {
            return self.message(record, line);
        }
        let kind = match fields.get("sessionId") {
            Some(_) => Some("session"),
            None => fields.get("$set").map(|_| "set"),
        };
        let message = extension_of(kind, record);
        self.transcript.extension(message, record.as_bytes())
    }

    /// Takes what is no record.
    pub(super) fn unreadable(&mut self, raw: &[u8]) -> Result<(), ImportError> {
        self.transcript.extension(unreadable(raw), raw)
    }

    /// Takes a message.
    pub(super) fn message(&mut self, record: &str, line: u64) -> Result<(), ImportError> {
        let raw = record.as_bytes();
        let fields = match Fields::parse(record) {
            Ok(fields) => fields,
            Err(reason) => {
                self.skip(line, reason);
                return self.unreadable(raw);
            }
        };
        let id = fields.text("id").unwrap_or_else(|| format!("line-{line}"));
        let time = fields.text("timestamp").map(Time::from_text);
        let kind = fields.text("type");
        self.transcript.at(time);
        let read = messages::read(fields).unwrap_or_else(|reason| {
            self.transcript.skip(line, reason);
            GeminiRecord::Extension
        });
        match read {
            GeminiRecord::Prompt(message) => self.transcript.prompt(id, *message, raw),
            GeminiRecord::Answer(answer) => {
                let of_answer = answer.raw.as_bytes();
                self.transcript.answer(|| id, answer.message, of_answer)?;
                for (message, raw) in answer.results {
                    self.transcript
                        .result(String::new, message, raw.as_bytes())?;
                }
                Ok(())
            }
            GeminiRecord::Extension => {
                let message = extension_of(kind.as_deref(), record);
                self.transcript.extension(message, raw)
            }
        }
    }

    /// Says how it ended. Returns whether there was a conversation.
    pub(super) fn finish(self) -> Result<bool, ImportError> {
        self.transcript.finish()
    }
}
