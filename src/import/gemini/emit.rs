//! Tells the sink of the messages of a session.

use std::path::Path;

use super::TOOL;
use super::messages::{self, Said};
use crate::import::blocks::{note, text, unreadable};
use crate::import::fields::{Fields, list};
use crate::import::telling::{Telling, identity, session};
use crate::import::{ImportError, SessionHead, Sink};
use crate::model::{Extra, Json, Time};

/// Reads a session, whichever layout it has.
pub(super) struct Reader<'a> {
    path: &'a Path,
    session: Option<String>,
    started: Option<String>,
    ended: Option<String>,
    /// What the header says besides.
    extra: Extra,
    telling: Option<Telling>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(path: &'a Path) -> Self {
        Self {
            path,
            session: None,
            started: None,
            ended: None,
            extra: Extra::default(),
            telling: None,
        }
    }

    /// Takes the fields of a session besides its messages; the first word on its id counts.
    pub(super) fn header(&mut self, fields: &Fields<'_>) {
        self.session = self
            .session
            .take()
            .or_else(|| text(fields.get("sessionId")));
        self.started = self
            .started
            .take()
            .or_else(|| text(fields.get("startTime")));
        self.ended = text(fields.get("lastUpdated")).or(self.ended.take());
        for key in ["projectHash", "kind", "summary", "directories"] {
            if let Some(Ok(value)) = fields.get(key).map(|value| Json::parse(value.get())) {
                self.extra.insert(key, value);
            }
        }
    }

    /// Looks at a line of the newer layout and returns the id of a message.
    pub(super) fn glance(&mut self, record: &str) -> Option<String> {
        let fields = Fields::parse(record).ok()?;
        if let Some(set) = fields.get("$set") {
            self.header(&Fields::parse(set.get()).ok()?);
        } else if fields.get("sessionId").is_some() {
            self.header(&fields);
        }
        fields.get("type")?;
        text(fields.get("id"))
    }

    /// Says which session it is; nothing is told before.
    pub(super) fn begin(&mut self) {
        if self.telling.is_none() {
            self.telling = Some(Telling::new(self.head()));
        }
    }

    fn head(&self) -> SessionHead {
        let (identity, id) = identity(self.path, self.session.as_deref());
        let mut session = session(id, TOOL, self.started.clone().map(Time::from_text));
        session.last_active_at = self.ended.clone().map(Time::from_text);
        session.extra = self.extra.clone();
        SessionHead {
            identity,
            session,
            title: None,
        }
    }

    fn telling(&mut self) -> &mut Telling {
        let head = self.head();
        self.telling.get_or_insert_with(|| Telling::new(head))
    }

    /// Takes a line of the newer layout.
    pub(super) fn record(
        &mut self,
        record: &str,
        line: u64,
        sink: &mut dyn Sink,
    ) -> Result<(), ImportError> {
        let Ok(fields) = Fields::parse(record) else {
            sink.skip(Some(line), "not a JSON object".into());
            return self.unreadable(record.as_bytes(), sink);
        };
        if let Some(messages) = fields.get("messages").and_then(list) {
            for message in messages {
                self.message(message.get(), line, sink)?;
            }
            return Ok(());
        }
        if fields.get("type").is_some() {
            return self.message(record, line, sink);
        }
        let is_header = fields.get("sessionId").is_some();
        let kind = [None, Some("session")][usize::from(is_header)];
        let kind = kind.or_else(|| fields.get("$set").map(|_| "set"));
        self.telling()
            .note(note(kind, record), record.as_bytes(), sink)
    }

    /// Takes what is no record.
    pub(super) fn unreadable(
        &mut self,
        raw: &[u8],
        sink: &mut dyn Sink,
    ) -> Result<(), ImportError> {
        self.telling().note(unreadable(raw), raw, sink)
    }

    /// Takes a message.
    pub(super) fn message(
        &mut self,
        record: &str,
        line: u64,
        sink: &mut dyn Sink,
    ) -> Result<(), ImportError> {
        let read = Fields::parse(record).map(|fields| {
            let id = text(fields.get("id")).unwrap_or_else(|| format!("line-{line}"));
            let time = text(fields.get("timestamp")).map(Time::from_text);
            let kind = text(fields.get("type"));
            (id, time, kind, messages::read(fields))
        });
        let telling = self.telling();
        let (id, time, kind, said) = match read {
            Ok(read) => read,
            Err(reason) => {
                sink.skip(Some(line), reason);
                return telling.note(unreadable(record.as_bytes()), record.as_bytes(), sink);
            }
        };
        telling.at(time);
        let raw = record.as_bytes();
        match said {
            Ok(Said::Prompt(message)) => telling.prompt(id, *message, raw, sink),
            Ok(Said::Answer(answer)) => {
                telling.answer(|| id, answer.message, answer.raw.as_bytes(), sink)?;
                for (call, message, raw) in answer.results {
                    telling.result(&call, String::new, message, raw.as_bytes(), sink)?;
                }
                Ok(())
            }
            Ok(Said::Note) => telling.note(note(kind.as_deref(), record), raw, sink),
            Err(reason) => {
                sink.skip(Some(line), reason);
                telling.note(note(kind.as_deref(), record), raw, sink)
            }
        }
    }

    /// Says how it ended. Returns whether there was a conversation.
    pub(super) fn finish(&mut self, sink: &mut dyn Sink) -> Result<bool, ImportError> {
        match &mut self.telling {
            Some(telling) => telling.finish(sink),
            None => Ok(false),
        }
    }
}
