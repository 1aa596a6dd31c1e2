//! The second pass: reads the records again and tells the sink.

use super::TOOL;
use super::index::{Index, Step};
use super::items::{Record, answer, history};
use crate::import::blocks::{note, system, text, unreadable, user};
use crate::import::fields::Fields;
use crate::import::lines::Place;
use crate::import::records::Records;
use crate::import::telling::Telling;
use crate::import::{FoundEffect, ImportError, SessionHead, Sink, Source};
use crate::model::{AgentMessage, Content, Json, Time};

/// Tells of the whole transcript. Returns whether there was a conversation.
pub(super) fn tell(
    source: &mut Source<'_>,
    index: &Index,
    head: SessionHead,
    sink: &mut dyn Sink,
) -> Result<bool, ImportError> {
    let mut emitter = Emitter {
        records: Records::new(source.path, &mut *source.reader)?,
        index,
        telling: Telling::new(head),
    };
    for step in &index.steps {
        emitter.step(step, sink)?;
    }
    emitter.telling.finish(sink)
}

struct Emitter<'a> {
    records: Records<'a>,
    index: &'a Index,
    telling: Telling,
}

impl Emitter<'_> {
    fn step(&mut self, step: &Step, sink: &mut dyn Sink) -> Result<(), ImportError> {
        match step {
            Step::Answer(number) => self.answer(*number, sink),
            Step::Copy => Ok(()),
            Step::Unreadable(place) => {
                let raw = self.records.bytes(*place)?;
                self.telling.note(unreadable(&raw), &raw, sink)
            }
            Step::Meta(place)
            | Step::Note(place)
            | Step::Aborted(place)
            | Step::System(place)
            | Step::Result(place)
            | Step::Compacted(place)
            | Step::User { place, .. } => {
                let raw = self.records.bytes(*place)?;
                let json = String::from_utf8_lossy(&raw);
                let told = match Fields::parse(&json) {
                    Ok(record) => {
                        let time = text(record.get("timestamp")).map(Time::from_text);
                        self.telling.at(time);
                        self.record(step, &json, &raw, sink)?
                    }
                    Err(reason) => Err(reason),
                };
                match told {
                    Ok(()) => Ok(()),
                    Err(reason) => {
                        sink.skip(Some(place.line), reason);
                        self.telling.note(unreadable(&raw), &raw, sink)
                    }
                }
            }
        }
    }

    /// Tells of one record. The inner error says why it cannot be used.
    fn record(
        &mut self,
        step: &Step,
        json: &str,
        raw: &[u8],
        sink: &mut dyn Sink,
    ) -> Result<Result<(), String>, ImportError> {
        let message = match step {
            Step::Meta(_) => return self.meta(json, raw, sink).map(Ok),
            Step::Compacted(_) => return self.compacted(json, raw, sink).map(Ok),
            Step::User { prompt, .. } => {
                match Record::of(json).and_then(Record::user) {
                    Ok(message) => self.user(message, raw, prompt.as_ref(), sink)?,
                    Err(reason) => return Ok(Err(reason)),
                }
                return Ok(Ok(()));
            }
            Step::Result(place) => {
                let telling = &self.telling;
                let find = |id: Option<String>| {
                    let id = id.or_else(|| telling.open_call(None)).unwrap_or_default();
                    let name = telling.tool_name(&id).unwrap_or_default().to_owned();
                    (id, name)
                };
                match Record::of(json).and_then(|record| record.result(find)) {
                    Ok((call, message)) => {
                        let id = || line_id(*place);
                        self.telling.result(&call, id, message, raw, sink)?;
                    }
                    Err(reason) => return Ok(Err(reason)),
                }
                return Ok(Ok(()));
            }
            Step::System(_) => system_item(json),
            _ => Ok(note_of(json)),
        };
        match message {
            Ok(message) => self.telling.note(message, raw, sink)?,
            Err(reason) => return Ok(Err(reason)),
        }
        if matches!(step, Step::Aborted(_)) {
            self.telling.interrupted();
        }
        Ok(Ok(()))
    }

    fn user(
        &mut self,
        message: AgentMessage,
        raw: &[u8],
        prompt: Option<&String>,
        sink: &mut dyn Sink,
    ) -> Result<(), ImportError> {
        match prompt {
            Some(name) => self.telling.prompt(name.clone(), message, raw, sink),
            None => self.telling.said(message, raw, false, sink),
        }
    }

    /// Keeps the record that describes the session; the system prompt in it counts as one.
    fn meta(&mut self, json: &str, raw: &[u8], sink: &mut dyn Sink) -> Result<(), ImportError> {
        let instructions = || {
            let record = Record::of(json).ok()?;
            let given = record.item.get("base_instructions")?;
            let said = Fields::parse(given.get()).ok();
            let said = said.and_then(|given| text(given.get("text")));
            said.or_else(|| text(Some(given)))
        };
        self.telling.note(note_of(json), raw, sink)?;
        match instructions() {
            Some(said) => {
                let message = system(&Json::string(&said), None);
                self.telling.note(message, raw, sink)
            }
            None => Ok(()),
        }
    }

    fn answer(&mut self, number: usize, sink: &mut dyn Sink) -> Result<(), ImportError> {
        let found = &self.index.answers[number];
        let mut raws = Vec::new();
        for place in &found.places {
            let bytes = self.records.bytes(*place)?;
            raws.push((place.line, String::from_utf8_lossy(&bytes).into_owned()));
        }
        let mut records = Vec::new();
        for (line, json) in &raws {
            match Record::of(json) {
                Ok(record) => records.push((*line, record)),
                Err(reason) => sink.skip(Some(*line), reason),
            }
        }
        self.telling
            .at(records.first().and_then(|(_, record)| record.time.clone()));
        let provider = self.index.meta.as_ref().and_then(|m| m.provider.clone());
        let message = answer(
            records,
            found.model.clone(),
            provider,
            found.usage.clone(),
            &mut |line, reason| sink.skip(Some(line), reason),
        );
        let raws: Vec<&str> = raws.iter().map(|(_, json)| json.as_str()).collect();
        let raw = raws.join("\n");
        let id = || line_id(found.places[0]);
        self.telling.answer(id, message, raw.as_bytes(), sink)
    }

    /// Tells of a compaction: what is left is its `replacement_history`, else its message.
    fn compacted(
        &mut self,
        json: &str,
        raw: &[u8],
        sink: &mut dyn Sink,
    ) -> Result<(), ImportError> {
        let record = Record::of(json).ok();
        let left = record.as_ref().and_then(|record| {
            let items = record.item.get("replacement_history");
            let messages = items.map(history).unwrap_or_default();
            if !messages.is_empty() {
                return Some(messages);
            }
            let said = text(record.item.get("message"))?;
            Some(vec![user(vec![Content::text(said)], None)])
        });
        let (Some(messages), Some(_)) = (left, self.telling.here()) else {
            return self.telling.note(note_of(json), raw, sink);
        };
        let effect = FoundEffect::Summary {
            messages,
            first_kept: None,
        };
        let record = Json::parse(json).unwrap_or_default();
        self.telling.compaction(TOOL, None, effect, record, sink)
    }
}

fn line_id(place: Place) -> String {
    format!("line-{}", place.line)
}

fn system_item(json: &str) -> Result<AgentMessage, String> {
    let mut record = Record::of(json)?;
    record.item.take("type");
    let content = record.item.take("content").map(|content| content.get());
    let content = Json::parse(content.unwrap_or("null")).unwrap_or_default();
    Ok(system(&content, record.rest()))
}

/// Keeps a record as it is, under the name of its payload.
fn note_of(json: &str) -> AgentMessage {
    let record = Fields::parse(json).ok();
    let kind = record.and_then(|record| {
        let inner = Fields::parse(record.get("payload")?.get()).ok();
        let inner = inner.and_then(|payload| text(payload.get("type")));
        inner.or_else(|| text(record.get("type")))
    });
    note(kind.as_deref(), json)
}
