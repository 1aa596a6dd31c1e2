//! ADK: a document `{id, events, …}`. Calls and responses have no ids in older versions: they are paired by name and
//! order. Newer versions write the keys in camel case. Events are never removed: one with `rewind_before_invocation_id`
//! reverts an invocation and those after it, one with `compaction` adds a summary of a range of time.

mod compaction;
mod messages;

use std::collections::HashMap;
use std::path::Path;

use loopstore::model::{Json, SessionId};

use self::compaction::{EventSummary, Summaries};
use self::messages::Keys;

use super::extension::{extension_of, unreadable};
use super::fields::{Fields, list};
use super::json_stream::{JsonDocument, LineCounter, documents};
use super::key_outline::KeyOutline;
use super::transcript::{LoopTurn, Style, TranscriptBuilder, session};
use super::values::text_of;
use super::{
    FoundEffect, Identity, ImportError, Importer, SessionHead, Sink, Source, holds_conversation,
};

/// The name of the tool, for agents.
const TOOL: &str = "adk";
/// The maximum number of summaries that a run lists; a run lists all active ones up to this number.
const MOST_SUMMARIES: usize = 1_000;

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

/// Reads one session. Returns true if it contains a conversation.
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
    let mut reader = AdkReader {
        transcript: TranscriptBuilder::new(sink, head(&fields, &events, nth), Style::Log),
        invocations: Vec::new(),
        places: HashMap::new(),
        shown: Vec::new(),
        summaries: Summaries::default(),
    };
    let mut lines = LineCounter::new(text, line);
    for raw in events {
        let line = lines.of(raw.get());
        reader.event(raw.get(), line)?;
    }
    reader.transcript.finish()
}

/// Returns the description of a session. The fields other than its events are kept, except those that the session has a
/// field for.
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

/// The beginning of an invocation.
struct Invocation {
    id: String,
    /// The last turn before it.
    after: Option<LoopTurn>,
    /// The number of messages and of summaries before it.
    shown: usize,
    summaries: usize,
}

/// A message that the model sees, with its time and its turn.
#[derive(Clone, Copy)]
struct AdkMessage {
    seconds: f64,
    at: LoopTurn,
}

/// Reads the events of one session.
struct AdkReader<'a> {
    transcript: TranscriptBuilder<'a>,
    /// The invocations that were not reverted, with their ids if they have one.
    invocations: Vec<Invocation>,
    places: HashMap<String, usize>,
    shown: Vec<AdkMessage>,
    summaries: Summaries,
}

impl AdkReader<'_> {
    fn event(&mut self, json: &str, line: u64) -> Result<(), ImportError> {
        let raw = json.as_bytes();
        let event = match Fields::parse(json) {
            Ok(event) => event,
            Err(reason) => {
                self.transcript.skip(line, reason);
                return self.transcript.extension(unreadable(raw), raw);
            }
        };
        let seconds = event.read::<f64>("timestamp");
        self.transcript.at(messages::time(event.get("timestamp")));
        let id = event.text("id").unwrap_or_else(|| format!("line-{line}"));
        let actions = event.object("actions");
        let target = actions.either("rewind_before_invocation_id", "rewindBeforeInvocationId");
        if let Some(target) = text_of(target) {
            self.rewind(&target, &id)?;
        }
        self.invoked(text_of(event.either("invocation_id", "invocationId")));
        if let Some(compaction) = actions.child("compaction") {
            return self.compaction(&compaction, json, line);
        }
        let messages = messages::read(event, &id).unwrap_or_else(|reason| {
            self.transcript.skip(line, reason);
            Vec::new()
        });
        if messages.is_empty() {
            return self.note(json);
        }
        for message in messages {
            self.transcript.message(|| id.clone(), message, raw)?;
            self.record_message(seconds);
        }
        Ok(())
    }

    fn note(&mut self, json: &str) -> Result<(), ImportError> {
        self.transcript
            .extension(extension_of(Some("event"), json), json.as_bytes())
    }

    /// Records the message that was emitted last.
    fn record_message(&mut self, seconds: Option<f64>) {
        let last = self.shown.last().map(|shown| shown.seconds);
        // A message without a time has the time of the message before it.
        let seconds = seconds.or(last).unwrap_or(f64::NEG_INFINITY);
        if let Some(at) = self.transcript.last_turn() {
            self.shown.push(AdkMessage { seconds, at });
        }
    }

    /// Records the beginning of an invocation.
    fn invoked(&mut self, id: Option<String>) {
        if let Some(id) = id.filter(|id| !self.places.contains_key(id)) {
            self.places.insert(id.clone(), self.invocations.len());
            self.invocations.push(Invocation {
                id,
                after: self.transcript.last_turn(),
                shown: self.shown.len(),
                summaries: self.summaries.len(),
            });
        }
    }

    /// Reverts to the point before an invocation; an unknown invocation reverts nothing.
    fn rewind(&mut self, target: &str, id: &str) -> Result<(), ImportError> {
        let Some(first) = self.places.get(target).copied() else {
            return Ok(());
        };
        let mut gone = self.invocations.split_off(first);
        for invocation in &gone {
            self.places.remove(&invocation.id);
        }
        let taken = gone.swap_remove(0);
        if taken.shown == self.shown.len() {
            return Ok(());
        }
        self.shown.truncate(taken.shown);
        self.summaries.truncate(taken.summaries);
        self.transcript.go_back(taken.after, id.to_owned())
    }

    /// Adds a summary of a range of time.
    fn compaction(
        &mut self,
        fields: &Fields<'_>,
        json: &str,
        line: u64,
    ) -> Result<(), ImportError> {
        let summary = match EventSummary::read(fields) {
            Ok(summary) => summary,
            Err(reason) => {
                self.transcript.skip(line, reason);
                return self.note(json);
            }
        };
        if self.summaries.len() >= MOST_SUMMARIES {
            let reason = format!("a session has at most {MOST_SUMMARIES} summaries");
            self.transcript.skip(line, reason);
            return self.note(json);
        }
        let is_new = self.summaries.add(summary);
        if !is_new || self.shown.is_empty() {
            return self.note(json);
        }
        let (end, covered) = (self.summaries.end(), self.summaries.covered());
        let mut before = self.shown.iter().filter(|shown| shown.seconds <= end);
        if before.any(|shown| !covered.contains(shown.seconds)) {
            let reason = "a summary that does not stand for all that was said before its end";
            self.transcript.skip(line, reason);
            return self.note(json);
        }
        let record = Json::parse(json).unwrap_or_default();
        let effect = self.effect(end);
        self.transcript.compaction(TOOL, effect, record)
    }

    /// Returns the effect of the summaries: the messages after `end` were kept.
    fn effect(&self, end: f64) -> FoundEffect {
        let mut messages = self.summaries.messages();
        let kept = self.shown.iter().position(|shown| shown.seconds > end);
        let place = kept.and_then(|kept| {
            let (loop_no, turn) = self.shown.get(kept)?.at;
            Some((self.transcript.loop_at(loop_no)?.id.clone(), turn))
        });
        let is_same_turn = |shown: &&AdkMessage| {
            kept.and_then(|kept| self.shown.get(kept))
                .is_some_and(|first| first.at == shown.at)
        };
        let before = self.shown.iter().take(kept.unwrap_or_default());
        let dropped = before.filter(is_same_turn).count();
        match (place, messages.len(), u32::try_from(dropped)) {
            (Some(first_kept), 1, Ok(dropped @ 1..)) => FoundEffect::SummaryWithin {
                message: Box::new(messages.remove(0)),
                first_kept,
                dropped,
            },
            (first_kept, ..) => FoundEffect::Summary {
                messages,
                first_kept,
            },
        }
    }
}
