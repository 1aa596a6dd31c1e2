//! ADK: a document `{id, events, …}`. Calls and responses have no ids in older versions: they are
//! paired by name and order. Newer versions write the keys in camel case.

mod messages;

use std::path::Path;

use self::messages::{Keys, Said};
use super::blocks::{note, text, unreadable};
use super::fields::{Fields, list};
use super::outline::Outline;
use super::pieces::{Lines, Pieces};
use super::telling::{Telling, session};
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
        let keys = Outline::of(head);
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
        let (mut nth, mut any) = (0_u64, false);
        let mut pieces = Pieces::new(source)?;
        while let Some(piece) = pieces.next()? {
            match &piece.text {
                Ok(text) => {
                    any |= one(text, piece.line, nth, sink)?;
                    nth += 1;
                }
                Err(reason) => sink.skip(Some(piece.line), (*reason).into()),
            }
        }
        holds_conversation(any)
    }
}

/// Reads one session. Returns whether it holds a conversation.
fn one(json: &str, line: u64, nth: u64, sink: &mut dyn Sink) -> Result<bool, ImportError> {
    let mut fields = match Fields::parse(json) {
        Ok(fields) => fields,
        Err(reason) => {
            sink.skip(Some(line), reason);
            return Ok(false);
        }
    };
    let Some(events) = fields.take("events").and_then(list) else {
        sink.skip(Some(line), "a session without a list of events".into());
        return Ok(false);
    };
    let mut telling = Telling::new(head(&fields, &events, nth));
    let mut lines = Lines::new(json, line);
    for raw in events {
        let line = lines.of(raw.get());
        event(raw.get(), line, &mut telling, sink)?;
    }
    telling.finish(sink)
}

/// What a session says besides its events is kept with it, but for what would stand for something
/// of the session's own.
fn head(fields: &Fields<'_>, events: &[&serde_json::value::RawValue], nth: u64) -> SessionHead {
    let own = text(fields.get("id")).and_then(|id| SessionId::new(id).ok());
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
    }
}

fn event(
    json: &str,
    line: u64,
    telling: &mut Telling,
    sink: &mut dyn Sink,
) -> Result<(), ImportError> {
    let raw = json.as_bytes();
    let event = match Fields::parse(json) {
        Ok(event) => event,
        Err(reason) => {
            sink.skip(Some(line), reason);
            return telling.note(unreadable(raw), raw, sink);
        }
    };
    telling.at(messages::time(event.get("timestamp")));
    let id = text(event.get("id")).unwrap_or_else(|| format!("line-{line}"));
    let kept = |reason: Option<String>, telling: &mut Telling, sink: &mut dyn Sink| {
        if let Some(reason) = reason {
            sink.skip(Some(line), reason);
        }
        telling.note(note(Some("event"), json), raw, sink)
    };
    let said = match messages::read(event, &id) {
        Ok(said) if !said.is_empty() => said,
        Ok(_) => return kept(None, telling, sink),
        Err(reason) => return kept(Some(reason), telling, sink),
    };
    for one in said {
        match one {
            Said::Prompt(message) => telling.prompt(id.clone(), message, raw, sink)?,
            Said::Answer(message) => telling.answer(|| id.clone(), message, raw, sink)?,
            Said::Result { call, message } => {
                let tool = messages::tool(&message);
                let call = call.or_else(|| telling.open_call(tool.as_deref()));
                let call = call.unwrap_or_default();
                let message = messages::answering(message, &call);
                telling.result(&call, || id.clone(), message, raw, sink)?;
            }
        }
    }
    Ok(())
}
