//! OpenCode: one document a session (`opencode export`), `{info, messages: [{info, parts}]}`.
//!
//! A message of the user begins a loop, an assistant message is one model call. A tool part holds
//! call and result in one: it becomes a call block and a tool result message. The first loop of a
//! session has the session's id, so that a `task` call can name the loop that it started. A message
//! with `summary` set is a compaction.

mod parts;

use std::path::Path;

use serde_json::value::RawValue;

use self::parts::{Answer, Called, answer, steps, user};
use super::fields::{Fields, list};
use super::outline::Outline;
use super::pieces::{Lines, Pieces};
use super::thread::{Start, Thread};
use super::values::{self, json, millis, note, object, read, rest, session_id, text};
use super::{Identity, ImportError, Importer, SessionHead, Sink, Source, holds_conversation};
use crate::model::{
    AgentMessage, ChildLoopRef, Extra, Json, LoopStatus, Message, ParentSpawnRef, Session,
    SessionId, Time,
};

/// The name of the format, for compactions and agents too.
const TOOL: &str = "opencode";

/// Reads OpenCode's exports.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenCode;

impl Importer for OpenCode {
    fn format(&self) -> &'static str {
        TOOL
    }

    fn detect(&self, _path: &Path, head: &[u8]) -> bool {
        let outline = Outline::of(head);
        ["", "[]."].iter().any(|at| is_export(&outline, at))
    }

    fn import(&self, source: &mut Source<'_>, sink: &mut dyn Sink) -> Result<(), ImportError> {
        let mut told = 0;
        let mut pieces = Pieces::new(source)?;
        while let Some(piece) = pieces.next()? {
            match piece.text {
                Ok(text) => told += u64::from(document(&text, piece.line, told, sink)?),
                Err(reason) => sink.skip(Some(piece.line), reason.into()),
            }
        }
        holds_conversation(told > 0)
    }
}

/// Whether the object at `at` is an export.
fn is_export(outline: &Outline, at: &str) -> bool {
    let has = |key: &str| outline.has(&format!("{at}{key}"));
    let described = has("info.id") && (has("info.projectID") || has("info.directory"));
    let has_parts = has("messages[].parts") && (has("messages[].info") || has("info.id"));
    has_parts || described && !has("session_id")
}

/// Tells one document, and returns whether there was a conversation in it.
fn document(text: &str, line: u64, nth: u64, sink: &mut dyn Sink) -> Result<bool, ImportError> {
    let mut fields = match Fields::parse(text) {
        Ok(fields) => fields,
        Err(reason) => {
            sink.skip(Some(line), reason);
            return Ok(false);
        }
    };
    let Some(messages) = fields.take("messages").and_then(list) else {
        sink.skip(Some(line), "a document without a list of messages".into());
        return Ok(false);
    };
    let head = head(&mut fields, &messages, nth)?;
    let mut telling = Telling {
        session: match &head.identity {
            Identity::Own(id) => Some(id.clone()),
            _ => None,
        },
        is_first: true,
        nth: 0,
        thread: Thread::new(sink, head),
    };
    let mut lines = Lines::new(text, line);
    for raw in messages {
        let line = lines.of(raw.get());
        telling.nth += 1;
        if let Err(reason) = telling.message(raw)? {
            let reason = format!("message {}: {reason}", telling.nth);
            telling.thread.sink.skip(Some(line), reason);
        }
    }
    telling.thread.end()
}

/// The id that a document without one of its own has by its messages.
fn id_of_messages(messages: &[&RawValue]) -> Option<String> {
    let id = |raw: &&RawValue| {
        let fields = Fields::parse(raw.get()).ok()?;
        text(&object(&fields, "info"), "sessionID")
    };
    messages.iter().find_map(id)
}

fn head(
    fields: &mut Fields<'_>,
    messages: &[&RawValue],
    nth: u64,
) -> Result<SessionHead, ImportError> {
    let mut info = object(fields, "info");
    let named = text(&info, "id").or_else(|| id_of_messages(messages));
    let own = session_id(named);
    let time = object(&info, "time");
    let at = |key| millis(&time, key).and_then(Time::from_millis);
    let (created, updated) = (at("created"), at("updated"));
    let placeholder = SessionId::new(nth.to_string())
        .map_err(|error| ImportError::NoTranscript(error.to_string()))?;
    let mut session = Session::new(own.clone().unwrap_or(placeholder), TOOL);
    session.formation = created
        .as_ref()
        .and_then(|at| Json::of(&serde_json::json!({ "Explicit": { "timestamp": at } })).ok());
    session.created_at = created;
    session.last_active_at = updated;
    session.parent_spawn_ref = session_id(text(&info, "parentID")).map(|parent| ParentSpawnRef {
        parent_session_id: parent,
        parent_loop_id: None,
        tool_call_id: None,
        tool_name: None,
        extra: Extra::default(),
    });
    let title = text(&info, "title");
    for (key, taken) in [
        ("id", own.is_some()),
        ("title", title.is_some()),
        ("parentID", session.parent_spawn_ref.is_some()),
    ] {
        if taken {
            info.take(key);
        }
    }
    let mut source = rest(&info);
    if !info.is_empty() {
        fields.take("info");
    }
    for (key, value) in rest(fields).iter().filter(|(key, _)| *key != "info") {
        source.insert(key, value.clone());
    }
    if !source.is_empty() {
        session.extra.insert("source", values::object_of(&source));
    }
    Ok(SessionHead {
        identity: own.map_or_else(|| Identity::Key(nth.to_string()), Identity::Own),
        session,
        title,
    })
}

/// One document on its way.
struct Telling<'a> {
    session: Option<SessionId>,
    is_first: bool,
    nth: u64,
    thread: Thread<'a>,
}

/// What came of a message: the reason why it could not be used, or nothing.
type Used = Result<Result<(), String>, ImportError>;

impl Telling<'_> {
    fn message(&mut self, raw: &RawValue) -> Used {
        let record = match json(raw) {
            Ok(record) => record,
            Err(reason) => return Ok(Err(reason)),
        };
        let fields = match Fields::parse(raw.get()) {
            Ok(fields) => fields,
            Err(reason) => return Ok(Err(reason)),
        };
        let info = match fields.get("info") {
            Some(_) => object(&fields, "info"),
            None => object_without_parts(raw),
        };
        let Some(role) = text(&info, "role") else {
            return Ok(Err("its role is missing or no text".into()));
        };
        let parts = match fields.get("parts").map(list) {
            Some(Some(parts)) => parts,
            Some(None) => return Ok(Err("its parts are not a list".into())),
            None => Vec::new(),
        };
        match role.as_str() {
            "user" => self.user(info, &parts, record)?,
            "assistant" if is_summary(&info) => self.summary(info, &parts, record)?,
            "assistant" => self.assistant(info, &parts)?,
            role => self.thread.note(note(role, record), raw.get().as_bytes())?,
        }
        Ok(Ok(()))
    }

    fn user(
        &mut self,
        info: Fields<'_>,
        parts: &[&RawValue],
        record: Json,
    ) -> Result<(), ImportError> {
        let raw = raw_of(&info, parts, false);
        if parts.iter().any(|part| is_kind(part, "compaction")) {
            return self
                .thread
                .note(note("compaction-request", record), raw.as_bytes());
        }
        let first = self.session.as_ref().filter(|_| self.is_first);
        let id = first.map(|id| id.as_str().to_owned());
        self.is_first = false;
        let created = millis(&object(&info, "time"), "created");
        // It is written anew while the agent works: as the loop's it may follow the newest export.
        let summary = info.get("summary").and_then(|summary| json(summary).ok());
        let metadata = summary
            .and_then(|summary| Json::parse(&format!("{{\"summary\":{}}}", summary.as_str())).ok());
        self.thread.begin(Start {
            id: id.or_else(|| text(&info, "id")),
            agent: text(&info, "agent"),
            at: created.and_then(Time::from_millis),
            metadata,
        })?;
        self.thread.prompt(user(info, parts), raw.as_bytes())
    }

    fn assistant(&mut self, info: Fields<'_>, parts: &[&RawValue]) -> Result<(), ImportError> {
        let name = text(&info, "id").unwrap_or_else(|| format!("message-{}", self.nth));
        let status = error_status(&info);
        let unfinished = millis(&object(&info, "time"), "completed").is_none();
        let goes_on = text(&info, "finish").map_or(unfinished, |word| word == "tool-calls");
        let steps = steps(parts);
        let alone = steps.len() == 1;
        for (at, step) in steps.iter().enumerate() {
            let raw = raw_of(&info, step, alone);
            let Answer { message, called } = answer(&info, step, alone, at == 0, &name);
            self.thread.answer(message, raw.as_bytes(), goes_on)?;
            for called in called {
                self.called(called)?;
            }
        }
        self.thread.ended_as(status);
        Ok(())
    }

    fn called(&mut self, called: Called) -> Result<(), ImportError> {
        if let Some(child) = called.child {
            self.thread.child(ChildLoopRef {
                tool_call_id: Some(called.id.clone()),
                tool_name: Some(called.tool.clone()),
                child_loop_id: child.0,
                child_session_id: Some(child.1),
                extra: Extra::default(),
            });
        }
        match called.result {
            Some(result) => self.thread.result(result, called.raw.as_bytes()),
            None => Ok(()),
        }
    }

    fn summary(
        &mut self,
        info: Fields<'_>,
        parts: &[&RawValue],
        record: Json,
    ) -> Result<(), ImportError> {
        let completed = millis(&object(&info, "time"), "completed");
        let answer = answer(&info, parts, true, true, "summary").message;
        let texts: Vec<&str> = answer
            .message()
            .into_iter()
            .flat_map(Message::texts)
            .collect();
        if texts.is_empty() {
            let raw = raw_of(&info, parts, true);
            return self.thread.note(note("compaction", record), raw.as_bytes());
        }
        let summary = AgentMessage::from(Message::user(texts.join("\n\n")));
        let at = completed.and_then(Time::from_millis);
        self.thread.compacted(TOOL, vec![summary], None, at, record)
    }
}

/// A message whose `info` fields stand beside its parts.
fn object_without_parts(raw: &RawValue) -> Fields<'_> {
    let mut fields = Fields::parse(raw.get()).unwrap_or_default();
    fields.take("parts");
    fields
}

fn is_summary(info: &Fields<'_>) -> bool {
    read(info, "summary") == Some(true)
}

fn is_kind(part: &RawValue, kind: &str) -> bool {
    let fields = Fields::parse(part.get()).unwrap_or_default();
    text(&fields, "type").as_deref() == Some(kind)
}

/// How an answer with an error ended its loop.
fn error_status(info: &Fields<'_>) -> Option<LoopStatus> {
    let error = values::read::<Json>(info, "error");
    error.map(|_| LoopStatus::Aborted)
}

/// What a later export is compared by: the id and the parts, of an answer `info` too.
fn raw_of(info: &Fields<'_>, parts: &[&RawValue], with_info: bool) -> String {
    let mut raw = match with_info {
        true => info.to_text(),
        false => info.get("id").map_or("", RawValue::get).to_owned(),
    };
    for part in parts {
        raw.push('\n');
        raw.push_str(part.get());
    }
    raw
}
