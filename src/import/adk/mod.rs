//! ADK: a document `{id, events, …}`. Calls and responses have no ids in older versions: they are
//! paired by name and order. Newer versions write the keys in camel case.

mod messages;

use std::path::Path;

use self::messages::Keys;

use super::extension::{extension_of, unreadable};
use super::fields::{Fields, list};
use super::json_stream::{JsonDocument, LineCounter, documents};
use super::key_outline::KeyOutline;
use super::transcript::{Style, TranscriptBuilder, session};
use super::{Identity, ImportError, Importer, SessionHead, Sink, Source, holds_conversation};
use crate::model::SessionId;

/// The name of the tool, for agents.
const TOOL: &str = "adk";

/// Reads the sessions of ADK.
#[derive(Clone, Copy, Debug, Default)]
pub struct Adk;

impl Importer for Adk {
    fn format(&self) -> &'static str {
        TOOL
    }

    fn detect(&self, _path: &Path, head: &[u8]) -> bool {
        let keys = KeyOutline::of(head);
        ["", "[]."].iter().any(|at| {
            let has = |key: &str| keys.has(&format!("{at}{key}"));
            let is_event = has("events[].author")
                && (has("events[].invocation_id")
                    || has("events[].invocationId")
                    || has("events[].content"));
            is_event && !has("loops") && !has("messages")
        })
    }

    fn import(&self, source: &mut Source<'_>, sink: &mut dyn Sink) -> Result<(), ImportError> {
        holds_conversation(documents(source, sink, &mut one)?)
    }
}

/// Reads one session. Returns whether it holds a conversation.
fn one(document: JsonDocument<'_>, sink: &mut dyn Sink) -> Result<bool, ImportError> {
    let JsonDocument {
        text,
        mut fields,
        line,
        nth,
    } = document;
    let Some(events) = fields.take("events").and_then(list) else {
        sink.skip(Some(line), "a session without a list of events".into());
        return Ok(false);
    };
    let mut transcript = TranscriptBuilder::new(sink, head(&fields, &events, nth), Style::Log);
    let mut lines = LineCounter::new(text, line);
    for raw in events {
        let line = lines.of(raw.get());
        event(raw.get(), line, &mut transcript)?;
    }
    transcript.finish()
}

/// What a session says besides its events is kept with it, but for what would stand for something
/// of the session's own.
fn head(fields: &Fields<'_>, events: &[&serde_json::value::RawValue], nth: u64) -> SessionHead {
    let own = fields.text("id").and_then(|id| SessionId::new(id).ok());
    let (identity, id) = match own {
        Some(id) => (Identity::Own(id.clone()), id),
        None => (Identity::Key(nth.to_string()), SessionId::generate()),
    };
    let time = |raw: Option<&&serde_json::value::RawValue>| {
        let event = Fields::parse(raw?.get()).ok()?;
        messages::time(event.get("timestamp"))
    };
    let mut session = session(id, TOOL, time(events.first()));
    let last = fields.either("last_update_time", "lastUpdateTime");
    session.last_active_at = messages::time(last).or_else(|| time(events.last()));
    let mut kept = Fields::parse("{}").unwrap_or_default();
    for (key, value) in fields.iter().filter(|(key, _)| *key != "id") {
        kept.set(key, value);
    }
    if !kept.is_empty()
        && let Ok(rest) = kept.to_json()
    {
        session.extra.insert("source", rest);
    }
    SessionHead {
        identity,
        session,
        title: None,
        project: None,
    }
}

fn event(json: &str, line: u64, transcript: &mut TranscriptBuilder<'_>) -> Result<(), ImportError> {
    let raw = json.as_bytes();
    let event = match Fields::parse(json) {
        Ok(event) => event,
        Err(reason) => {
            transcript.skip(line, reason);
            return transcript.extension(unreadable(raw), raw);
        }
    };
    transcript.at(messages::time(event.get("timestamp")));
    let id = event.text("id").unwrap_or_else(|| format!("line-{line}"));
    let messages = messages::read(event, &id).unwrap_or_else(|reason| {
        transcript.skip(line, reason);
        Vec::new()
    });
    if messages.is_empty() {
        return transcript.extension(extension_of(Some("event"), json), raw);
    }
    for message in messages {
        transcript.message(|| id.clone(), message, raw)?;
    }
    Ok(())
}
