//! OpenCode: one document a session (`opencode export`), `{info, messages: [{info, parts}]}`.
//!
//! A message of the user begins a loop, an assistant message is one model call. A tool part holds
//! call and result in one: it becomes a call block and a tool result message. The first loop of a
//! session has the session's id, so that a `task` call can name the loop that it started. A message
//! with `summary` set is a compaction.

mod parts;

use std::path::Path;

use serde_json::value::RawValue;

use self::parts::{Called, OpencodeAnswer, answer, steps, user};
use super::authors::by_harness;
use super::extension::extension;
use super::fields::{Fields, list};
use super::json_stream::{JsonDocument, LineCounter, documents};
use super::key_outline::KeyOutline;
use super::transcript::{NewLoop, Style, TranscriptBuilder, session, started_by};
use super::values::{self, json, millis, rest, session_id};
use super::{
    FoundEffect, Identity, ImportError, Importer, SessionHead, Sink, Source, holds_conversation,
};
use crate::model::{ChildLoopRef, Extra, Json, LoopStatus, Message, SessionId, Time};

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
        let outline = KeyOutline::of(head);
        ["", "[]."].iter().any(|at| is_export(&outline, at))
    }

    fn rewrites(&self) -> bool {
        true
    }

    fn import(&self, source: &mut Source<'_>, sink: &mut dyn Sink) -> Result<(), ImportError> {
        let mut nth = 0;
        let any = documents(source, sink, &mut |document, sink| {
            let any = export(document, nth, sink)?;
            nth += u64::from(any);
            Ok(any)
        })?;
        holds_conversation(any)
    }
}

/// Whether the object at `at` is an export.
fn is_export(outline: &KeyOutline, at: &str) -> bool {
    let has = |key: &str| outline.has(&format!("{at}{key}"));
    let described = has("info.id") && (has("info.projectID") || has("info.directory"));
    let has_parts = has("messages[].parts") && (has("messages[].info") || has("info.id"));
    has_parts || described && !has("session_id")
}

/// Reads one document, and returns whether there was a conversation in it.
fn export(document: JsonDocument<'_>, nth: u64, sink: &mut dyn Sink) -> Result<bool, ImportError> {
    let JsonDocument {
        text: json,
        mut fields,
        line,
        ..
    } = document;
    let Some(messages) = fields.take("messages").and_then(list) else {
        sink.skip(Some(line), "a document without a list of messages".into());
        return Ok(false);
    };
    let head = head(&mut fields, &messages, nth)?;
    let mut export = Export {
        session: match &head.identity {
            Identity::Own(id) => Some(id.clone()),
            _ => None,
        },
        is_first: true,
        nth: 0,
        transcript: TranscriptBuilder::new(sink, head, Style::Document),
    };
    let mut lines = LineCounter::new(json, line);
    for raw in messages {
        let line = lines.of(raw.get());
        export.nth += 1;
        if let Err(reason) = export.message(raw)? {
            let reason = format!("message {}: {reason}", export.nth);
            export.transcript.skip(line, reason);
        }
    }
    export.transcript.finish()
}

/// The id that a document without one of its own has by its messages.
fn id_of_messages(messages: &[&RawValue]) -> Option<String> {
    let id = |raw: &&RawValue| {
        let fields = Fields::parse(raw.get()).ok()?;
        fields.object("info").text("sessionID")
    };
    messages.iter().find_map(id)
}

fn head(
    fields: &mut Fields<'_>,
    messages: &[&RawValue],
    nth: u64,
) -> Result<SessionHead, ImportError> {
    let mut info = fields.object("info");
    let named = info.text("id").or_else(|| id_of_messages(messages));
    let own = session_id(named);
    let time = info.object("time");
    let at = |key| millis(&time, key).and_then(Time::from_millis);
    let (created, updated) = (at("created"), at("updated"));
    let placeholder = SessionId::new(nth.to_string())
        .map_err(|error| ImportError::NoTranscript(error.to_string()))?;
    let mut session = session(own.clone().unwrap_or(placeholder), TOOL, created);
    session.last_active_at = updated;
    session.parent_spawn_ref = info.text("parentID").as_deref().and_then(started_by);
    let title = info.text("title");
    let project = info.text("directory").or_else(|| info.text("projectID"));
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
        project,
    })
}

/// One document on its way.
struct Export<'a> {
    session: Option<SessionId>,
    is_first: bool,
    nth: u64,
    transcript: TranscriptBuilder<'a>,
}

/// What came of a message: the reason why it could not be used, or nothing.
type Used = Result<Result<(), String>, ImportError>;

impl Export<'_> {
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
            Some(_) => fields.object("info"),
            None => object_without_parts(raw),
        };
        let Some(role) = info.text("role") else {
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
            role => self
                .transcript
                .extension(extension(Some(role), record), raw.get().as_bytes())?,
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
            return self.transcript.extension(
                extension(Some("compaction-request"), record),
                raw.as_bytes(),
            );
        }
        let first = self.session.as_ref().filter(|_| self.is_first);
        let id = first.map(|id| id.as_str().to_owned());
        self.is_first = false;
        let created = millis(&info.object("time"), "created");
        // It is written anew while the agent works: as the loop's it may follow the newest export.
        let summary = info.get("summary").and_then(|summary| json(summary).ok());
        let metadata = summary
            .and_then(|summary| Json::parse(&format!("{{\"summary\":{}}}", summary.as_str())).ok());
        let id = id.or_else(|| info.text("id")).unwrap_or_default();
        self.transcript.begin(NewLoop {
            started: created.and_then(Time::from_millis),
            agent: info.text("agent"),
            metadata,
            ..self.transcript.next_loop(id)
        })?;
        self.transcript
            .input(user(info, parts), raw.as_bytes(), true)
    }

    fn assistant(&mut self, info: Fields<'_>, parts: &[&RawValue]) -> Result<(), ImportError> {
        let name = info
            .text("id")
            .unwrap_or_else(|| format!("message-{}", self.nth));
        let status = error_status(&info);
        let unfinished = millis(&info.object("time"), "completed").is_none();
        let goes_on = info
            .text("finish")
            .map_or(unfinished, |word| word == "tool-calls");
        let steps = steps(parts);
        let alone = steps.len() == 1;
        for (at, step) in steps.iter().enumerate() {
            let raw = raw_of(&info, step, alone);
            let OpencodeAnswer { message, called } = answer(&info, step, alone, at == 0, &name);
            self.transcript
                .answer(String::new, message, raw.as_bytes())?;
            if goes_on {
                self.transcript.goes_on();
            }
            for called in called {
                self.called(called)?;
            }
        }
        self.transcript.ended_as(status);
        Ok(())
    }

    fn called(&mut self, called: Called) -> Result<(), ImportError> {
        if let Some(child) = called.child {
            let child = ChildLoopRef {
                tool_call_id: Some(called.id.clone()),
                tool_name: Some(called.tool.clone()),
                child_loop_id: child.0,
                child_session_id: Some(child.1),
                extra: Extra::default(),
            };
            self.transcript.started(0, &called.id, child);
        }
        match called.result {
            Some(result) => self
                .transcript
                .result(String::new, result, called.raw.as_bytes()),
            None => Ok(()),
        }
    }

    fn summary(
        &mut self,
        info: Fields<'_>,
        parts: &[&RawValue],
        record: Json,
    ) -> Result<(), ImportError> {
        let completed = millis(&info.object("time"), "completed");
        let answer = answer(&info, parts, true, true, "summary").message;
        let texts: Vec<&str> = answer
            .message()
            .into_iter()
            .flat_map(Message::texts)
            .collect();
        // One that failed, or that is still being written, stands for nothing.
        let is_done = completed.is_some() || info.get("finish").is_some();
        if texts.is_empty() || !is_done || error_status(&info).is_some() {
            let raw = raw_of(&info, parts, true);
            return self
                .transcript
                .extension(extension(Some("compaction"), record), raw.as_bytes());
        }
        let summary = by_harness(Message::user(texts.join("\n\n")).into());
        let at = completed.and_then(Time::from_millis);
        self.transcript.at(at);
        let effect = FoundEffect::Summary {
            messages: vec![summary],
            first_kept: None,
        };
        self.transcript.end_loop()?;
        self.transcript.compaction(TOOL, effect, record)
    }
}

/// A message whose `info` fields stand beside its parts.
fn object_without_parts(raw: &RawValue) -> Fields<'_> {
    let mut fields = Fields::parse(raw.get()).unwrap_or_default();
    fields.take("parts");
    fields
}

fn is_summary(info: &Fields<'_>) -> bool {
    info.read("summary") == Some(true)
}

fn is_kind(part: &RawValue, kind: &str) -> bool {
    let fields = Fields::parse(part.get()).unwrap_or_default();
    fields.text("type").as_deref() == Some(kind)
}

/// How an answer with an error ended its loop.
fn error_status(info: &Fields<'_>) -> Option<LoopStatus> {
    let error = info.read::<Json>("error");
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
