//! Emits the messages of a session.

use std::collections::HashSet;
use std::path::Path;

use loopstore::model::{AgentMessage, Extra, Json, Message, Time};
use serde_json::value::RawValue;

use super::TOOL;
use super::listed::{ListedMessage, MessageList, messages_of};
use super::messages::{self, GeminiRecord};
use crate::extension::{extension_of, unreadable};
use crate::fields::{Fields, list};
use crate::transcript::{Style, TranscriptBuilder, identity, session};
use crate::{FoundEffect, ImportError, SessionHead, Sink};

/// The description of the session in its file.
#[derive(Default)]
struct GeminiHeader {
    session: Option<String>,
    started: Option<String>,
    ended: Option<String>,
    /// The other fields.
    extra: Extra,
}

impl GeminiHeader {
    fn head(&self, path: &Path) -> SessionHead {
        let (identity, id) = identity(path, self.session.as_deref());
        let mut session = session(id, TOOL, self.started.clone().map(Time::from_text));
        session.last_active_at = self.ended.clone().map(Time::from_text);
        session.extra = self.extra.clone();
        SessionHead {
            identity,
            session,
            title: self.text("summary"),
            // Without a folder, the digest still shows which sessions belong together.
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

    /// True if the task of the session comes from another agent.
    fn is_subagent(&self) -> bool {
        self.text("kind").is_some_and(|kind| kind == "subagent")
    }

    /// Reads the fields of a session other than its messages; the first id wins.
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

/// Reads a session of either layout.
pub(super) struct GeminiReader<'a> {
    path: &'a Path,
    header: GeminiHeader,
    transcript: TranscriptBuilder<'a>,
    /// True if the header was read.
    is_begun: bool,
    list: MessageList,
    /// The messages before the first prompt, which share its turn.
    preamble: Vec<(AgentMessage, String)>,
    /// The calls that have a result.
    answered: HashSet<String>,
}

impl<'a> GeminiReader<'a> {
    pub(super) fn new(path: &'a Path, sink: &'a mut dyn Sink) -> Self {
        let header = GeminiHeader::default();
        Self {
            path,
            transcript: TranscriptBuilder::new(sink, header.head(path), Style::Log),
            header,
            is_begun: false,
            list: MessageList::default(),
            preamble: Vec::new(),
            answered: HashSet::new(),
        }
    }

    /// Reports a record that is not used.
    pub(super) fn skip(&mut self, line: u64, reason: impl Into<String>) {
        self.transcript.skip(line, reason);
    }

    /// Reads the fields of a session other than its messages.
    pub(super) fn header(&mut self, fields: &Fields<'_>) {
        self.header.read(fields);
    }

    /// Examines a line of the newer layout and returns the id of a message.
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

    /// Passes the description of the session on.
    pub(super) fn begin(&mut self) {
        if !std::mem::replace(&mut self.is_begun, true) {
            self.transcript.describe(self.header.head(self.path));
            if self.header.is_subagent() {
                self.transcript.is_of_agent();
            }
        }
    }

    /// Handles a line of the newer layout.
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
        if let Some(id) = fields.text("$rewindTo") {
            self.cut_back(self.list.find(&id), line)?;
            let message = extension_of(Some("rewind"), record);
            return self.transcript.extension(message, record.as_bytes());
        }
        let set = fields.object("$set");
        if let Some(messages) = set.get("messages").and_then(list) {
            self.transcript
                .at(set.text("lastUpdated").map(Time::from_text));
            return self.replaced(&messages, record, line);
        }
        let kind = match fields.get("sessionId") {
            Some(_) => Some("session"),
            None => fields.get("$set").map(|_| "set"),
        };
        let message = extension_of(kind, record);
        self.transcript.extension(message, record.as_bytes())
    }

    /// Keeps bytes that are not a record.
    pub(super) fn unreadable(&mut self, raw: &[u8]) -> Result<(), ImportError> {
        self.transcript.extension(unreadable(raw), raw)
    }

    /// Emits a message.
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
        let after = self.transcript.last_turn();
        match read {
            GeminiRecord::Prompt(message) => {
                self.transcript.prompt(id.as_str(), *message, raw)?;
            }
            GeminiRecord::Answer(answer) => {
                let of_answer = answer.raw.as_bytes();
                self.transcript
                    .answer(|| id.clone(), answer.message, of_answer)?;
                self.results(answer.results)?;
            }
            GeminiRecord::Responses(mut results) => {
                // Each result is usually stored with its call too.
                results.retain(|(message, _)| !self.is_answered(message));
                if results.is_empty() {
                    return self.extension(Some("response"), record);
                }
                return self.results(results);
            }
            GeminiRecord::Extension => return self.extension(kind.as_deref(), record),
        }
        self.list.push(id, after, self.transcript.last_turn());
        Ok(())
    }

    fn extension(&mut self, kind: Option<&str>, record: &str) -> Result<(), ImportError> {
        let message = extension_of(kind, record);
        self.transcript.extension(message, record.as_bytes())
    }

    /// True if the result of a call was emitted. A result without an id matches none.
    fn is_answered(&self, message: &AgentMessage) -> bool {
        match message.message() {
            Some(Message::ToolResult(result)) => self.answered.contains(&result.tool_call_id),
            _ => false,
        }
    }

    fn results(&mut self, results: Vec<(AgentMessage, String)>) -> Result<(), ImportError> {
        for (message, raw) in results {
            if let Some(Message::ToolResult(result)) = message.message()
                && !result.tool_call_id.is_empty()
            {
                self.answered.insert(result.tool_call_id.clone());
            }
            self.transcript
                .result(String::new, message, raw.as_bytes())?;
        }
        Ok(())
    }

    /// Drops all but the first messages of the list; the next message continues from there.
    fn cut_back(&mut self, kept: usize, line: u64) -> Result<(), ImportError> {
        let Some(first) = self.list.get(kept) else {
            return Ok(());
        };
        if self.transcript.here().is_none() {
            let reason = "it goes back where nothing was asked yet; what was put in stays";
            self.transcript.skip(line, reason);
            return Ok(());
        }
        if !first.begins_turn() && kept > 0 {
            let reason = "it goes back to the middle of a turn, or of a summary, which stays whole";
            self.transcript.skip(line, reason);
        }
        let after = first.after.filter(|_| kept > 0);
        self.transcript.go_back(after, format!("line-{line}"))?;
        self.list.truncate(kept);
        if kept > 0 && after.is_none() {
            for (message, raw) in &self.preamble {
                if self.transcript.may_repeat(raw.len(), line) {
                    self.transcript
                        .input(message.clone(), raw.as_bytes(), false)?;
                }
            }
        }
        Ok(())
    }

    /// Handles a list that replaces the current one. A shorter list with the same beginning is a rewind, a longer one
    /// adds messages, and any other list is the result of a compaction.
    fn replaced(
        &mut self,
        messages: &[&RawValue],
        record: &str,
        line: u64,
    ) -> Result<(), ImportError> {
        let count = messages.len();
        let Some(messages) = messages_of(messages) else {
            let reason = format!("a list of {count} messages, of which some cannot be read");
            self.transcript.skip(line, reason);
            return self.extension(Some("set"), record);
        };
        let same = self.list.begins_as(&messages);
        if same == messages.len() {
            self.cut_back(same, line)?;
        } else if same < self.list.len() && self.transcript.here().is_some() {
            return self.compacted(messages, record);
        }
        self.extension(Some("set"), record)?;
        for message in messages.into_iter().skip(same) {
            self.added(message)?;
        }
        Ok(())
    }

    /// Emits a message that only a list contains: no person typed it.
    fn added(&mut self, message: ListedMessage) -> Result<(), ImportError> {
        let after = self.transcript.last_turn();
        let raw = message.raw.as_bytes();
        match message.record {
            GeminiRecord::Prompt(prompt) => {
                if self.transcript.here().is_none() {
                    self.preamble.push(((*prompt).clone(), message.raw.clone()));
                }
                self.transcript.input(*prompt, raw, false)?;
            }
            GeminiRecord::Answer(answer) => {
                self.transcript
                    .answer(|| message.id.clone(), answer.message, raw)?;
                self.results(answer.results)?;
            }
            GeminiRecord::Responses(_) | GeminiRecord::Extension => {}
        }
        self.list
            .push(message.id, after, self.transcript.last_turn());
        Ok(())
    }

    /// Handles a compaction, whose list ends with the kept messages.
    fn compacted(
        &mut self,
        mut messages: Vec<ListedMessage>,
        record: &str,
    ) -> Result<(), ImportError> {
        let tail = self.list.ends_as(&messages);
        messages.truncate(messages.len() - tail);
        let first = self.list.get(self.list.len() - tail);
        let first_kept = first
            .and_then(|first| first.at)
            .and_then(|(loop_no, turn)| Some((self.transcript.loop_at(loop_no)?.id.clone(), turn)));
        let standing = self.transcript.last_turn();
        let effect = FoundEffect::Summary {
            messages: self.list.replace(messages, tail, standing),
            first_kept,
        };
        let record = Json::parse(record).unwrap_or_default();
        self.transcript.compaction(TOOL, effect, record)
    }

    /// Ends the session. Returns true if there was a conversation.
    pub(super) fn finish(self) -> Result<bool, ImportError> {
        self.transcript.finish()
    }
}
