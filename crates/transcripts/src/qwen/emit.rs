//! Emits the messages of a chat.

use std::collections::HashMap;

use loopstore::model::{AgentMessage, Json, LoopStatus, Message, Time};

use super::TOOL;
use super::messages::{QwenRecord, read};
use crate::extension::{extension_of, unreadable};
use crate::fields::Fields;
use crate::lines::SourceLocation;
use crate::records::{RecordLine, RecordReader, RecordStream};
use crate::transcript::{Emitted, EntryTree, Style, TranscriptBuilder};
use crate::values::text_of;
use crate::{FoundEffect, ImportError, SessionHead, Sink, Source};

/// Emits the whole session. Returns true if there was a conversation.
pub(super) fn emit(
    source: &mut Source<'_>,
    head: SessionHead,
    is_of_agent: bool,
    sink: &mut dyn Sink,
) -> Result<bool, ImportError> {
    let mut transcript = TranscriptBuilder::new(sink, head, Style::Log);
    if is_of_agent {
        transcript.is_of_agent();
    }
    let found = find(source, &mut transcript)?;
    let mut emitter = QwenEmitter {
        records: RecordReader::new(source.path, &mut *source.reader)?,
        transcript,
        tree: EntryTree::default(),
        entries: Vec::new(),
        known: HashMap::new(),
    };
    for line in found {
        let raw = emitter.records.bytes(line.location)?;
        let json = String::from_utf8_lossy(&raw);
        match Fields::parse(&json) {
            Ok(fields) if line.is_record => emitter.record(&json, fields, line.location)?,
            _ => emitter.transcript.extension(unreadable(&raw), &raw)?,
        }
    }
    emitter.transcript.finish()
}

/// A line that is kept.
struct FoundLine {
    location: SourceLocation,
    is_record: bool,
}

/// Runs the first pass: collects the locations of the records.
fn find(
    source: &mut Source<'_>,
    transcript: &mut TranscriptBuilder<'_>,
) -> Result<Vec<FoundLine>, ImportError> {
    let mut found = Vec::new();
    let mut records = RecordStream::new(source.path, &mut *source.reader)?;
    while let Some((location, line)) = records.next()? {
        let is_record = match line {
            RecordLine::Record(..) => true,
            RecordLine::Bad { reason, kept } => {
                transcript.skip(location.line, reason);
                if kept.is_empty() {
                    continue;
                }
                false
            }
        };
        found.push(FoundLine {
            location,
            is_record,
        });
    }
    Ok(found)
}

struct QwenEmitter<'a> {
    records: RecordReader<'a>,
    transcript: TranscriptBuilder<'a>,
    tree: EntryTree,
    /// The locations of each entry of the tree, with all its fragments.
    entries: Vec<Vec<SourceLocation>>,
    /// The entries by their ids.
    known: HashMap<String, usize>,
}

/// The fields of a record that place it in the tree.
struct QwenHead {
    id: Option<String>,
    /// The record before it; `Some(None)` at the root.
    parent: Option<Option<String>>,
    line: u64,
}

impl QwenHead {
    fn parent(&self) -> Option<Option<&str>> {
        self.parent.as_ref().map(Option::as_deref)
    }

    /// Returns the name of the loop that the record would begin.
    fn name(&self) -> String {
        let id = self.id.clone();
        id.unwrap_or_else(|| format!("line-{}", self.line))
    }
}

impl QwenEmitter<'_> {
    fn record(
        &mut self,
        json: &str,
        fields: Fields<'_>,
        location: SourceLocation,
    ) -> Result<(), ImportError> {
        let raw = json.as_bytes();
        let head = QwenHead {
            id: text_of(fields.get("uuid")),
            parent: fields.get("parentUuid").map(|parent| text_of(Some(parent))),
            line: location.line,
        };
        self.transcript
            .at(fields.text("timestamp").map(Time::from_text));
        let kind = fields.text("subtype").or_else(|| fields.text("type"));
        let state = fields.object("systemPayload").text("state");
        let known = head.id.as_ref().and_then(|id| self.known.get(id)).copied();
        let record = read(fields).unwrap_or_else(|reason| {
            self.transcript.skip(location.line, reason);
            QwenRecord::Extension
        });
        let at = match record {
            QwenRecord::Extension => {
                if kind.as_deref() == Some("turn_result") {
                    self.ended(state.as_deref());
                }
                let message = extension_of(kind.as_deref(), json);
                self.transcript.extension(message, raw)?;
                None
            }
            QwenRecord::Compaction(messages) => {
                self.compaction(messages, json)?;
                None
            }
            record => {
                let is_prompt = matches!(record, QwenRecord::Prompt(_));
                let is_more = known.is_some();
                let is_fragment = is_more && matches!(record, QwenRecord::Answer(_));
                let is_begun = !is_fragment && self.branch(&head, is_prompt)?;
                self.message(&head, record, is_begun, is_more, raw)?;
                self.transcript.last_turn()
            }
        };
        match known {
            Some(entry) => self.entries[entry].push(location),
            None => {
                self.tree.add(head.id.clone(), head.parent(), at);
                self.known
                    .extend(head.id.map(|id| (id, self.entries.len())));
                self.entries.push(vec![location]);
            }
        }
        Ok(())
    }

    /// Emits a message. `is_begun` is true if the loop of a prompt was begun already; `is_more` is true for a further
    /// fragment of a record.
    fn message(
        &mut self,
        head: &QwenHead,
        record: QwenRecord,
        is_begun: bool,
        is_more: bool,
        raw: &[u8],
    ) -> Result<(), ImportError> {
        match record {
            QwenRecord::Prompt(message) if is_begun || is_more => {
                self.transcript.input(message, raw, true)
            }
            QwenRecord::Prompt(message) => self.transcript.prompt(head.name(), message, raw),
            QwenRecord::Added(message) => self.transcript.input(message, raw, true),
            QwenRecord::Answer(mut message) if is_more => {
                // Each fragment has the tokens of the whole.
                if let Some(Message::Assistant(more)) = message.message_mut() {
                    more.usage = None;
                }
                self.transcript.more_of_answer(message, raw)
            }
            QwenRecord::Answer(message) => self.transcript.answer(|| head.name(), message, raw),
            QwenRecord::Results(messages) => {
                for message in messages {
                    self.transcript.result(|| head.name(), message, raw)?;
                }
                Ok(())
            }
            QwenRecord::Compaction(_) | QwenRecord::Extension => Ok(()),
        }
    }

    /// Emits a record again: a path left its turn in the middle, and a loop can continue only from a whole turn.
    fn repeat(&mut self, emitted: Emitted) -> Result<(), ImportError> {
        let places = self.entries.get(emitted.entry).cloned();
        for (nth, location) in places.unwrap_or_default().into_iter().enumerate() {
            let raw = self.records.bytes(location)?;
            let json = String::from_utf8_lossy(&raw);
            let Ok(Ok(record)) = Fields::parse(&json).map(read) else {
                continue;
            };
            let head = QwenHead {
                id: None,
                parent: None,
                line: location.line,
            };
            self.message(&head, record, true, nth > 0, &raw)?;
        }
        if let Some(at) = self.transcript.last_turn() {
            self.tree.emit(at, emitted.entry);
        }
        Ok(())
    }

    /// Begins a loop if the next message does not continue the current position, and returns true if so.
    fn branch(&mut self, head: &QwenHead, is_prompt: bool) -> Result<bool, ImportError> {
        let begun = self
            .transcript
            .branch(&self.tree, head.parent(), head.name(), is_prompt)?;
        let is_begun = begun.is_some();
        for emitted in begun.unwrap_or_default() {
            self.repeat(emitted)?;
        }
        Ok(is_begun)
    }

    /// Records the end state of a prompt.
    fn ended(&mut self, state: Option<&str>) {
        let status = match state {
            Some("completed") => Some(LoopStatus::Completed),
            Some("cancelled") => Some(LoopStatus::Aborted),
            Some("error") => Some(LoopStatus::Aborted),
            _ => None,
        };
        if status.is_some() && self.transcript.here().is_some() {
            self.transcript.ended_as(status);
        }
    }

    fn compaction(&mut self, messages: Vec<AgentMessage>, json: &str) -> Result<(), ImportError> {
        let Some((loop_no, turn)) = self.transcript.here() else {
            // The range that the messages replace is unknown.
            for message in messages {
                self.transcript.input(message, json.as_bytes(), false)?;
            }
            return Ok(());
        };
        // In the middle of a turn, its calls stay for the results to come.
        let is_open = self.transcript.is_unfinished();
        let kept = self.transcript.loop_at(loop_no).filter(|_| is_open);
        let first_kept = kept.map(|of| (of.id.clone(), turn));
        let effect = FoundEffect::Summary {
            messages,
            first_kept,
        };
        let record = Json::parse(json).unwrap_or_default();
        self.transcript.compaction(TOOL, effect, record)?;
        match is_open {
            true => Ok(()),
            false => self.transcript.end_loop(),
        }
    }
}
