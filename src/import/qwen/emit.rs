//! Emits the messages of a chat.

use std::collections::HashSet;

use super::TOOL;
use super::messages::{QwenRecord, read};
use crate::import::extension::{extension_of, unreadable};
use crate::import::fields::Fields;
use crate::import::records::{RecordLine, RecordStream};
use crate::import::transcript::{EntryTree, Style, TranscriptBuilder};
use crate::import::values::text_of;
use crate::import::{FoundEffect, ImportError, SessionHead, Sink, Source};
use crate::model::{AgentMessage, Json, LoopStatus, Message, Time};

/// Emits the whole session. Returns whether there was a conversation.
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
    let mut emitter = QwenEmitter {
        transcript,
        tree: EntryTree::default(),
        seen: HashSet::new(),
    };
    let mut records = RecordStream::new(source.path, &mut *source.reader)?;
    while let Some((location, line)) = records.next()? {
        match line {
            RecordLine::Record(json, fields) => emitter.record(json, fields, location.line)?,
            RecordLine::Bad { reason, kept } => {
                emitter.transcript.skip(location.line, reason);
                if !kept.is_empty() {
                    emitter.transcript.extension(unreadable(kept), kept)?;
                }
            }
        }
    }
    emitter.transcript.finish()
}

struct QwenEmitter<'a> {
    transcript: TranscriptBuilder<'a>,
    tree: EntryTree,
    /// Records that were read.
    seen: HashSet<String>,
}

/// What a record says of itself.
struct RecordHead {
    id: Option<String>,
    /// The record before it: none, or at the root.
    parent: Option<Option<String>>,
    line: u64,
}

impl RecordHead {
    fn parent(&self) -> Option<Option<&str>> {
        self.parent.as_ref().map(Option::as_deref)
    }

    /// The name of a loop that the record begins.
    fn name(&self) -> String {
        let id = self.id.clone();
        id.unwrap_or_else(|| format!("line-{}", self.line))
    }
}

impl QwenEmitter<'_> {
    fn record(&mut self, json: &str, fields: Fields<'_>, line: u64) -> Result<(), ImportError> {
        let raw = json.as_bytes();
        let head = RecordHead {
            id: text_of(fields.get("uuid")),
            parent: fields.get("parentUuid").map(|parent| text_of(Some(parent))),
            line,
        };
        self.transcript
            .at(fields.text("timestamp").map(Time::from_text));
        let kind = fields.text("subtype").or_else(|| fields.text("type"));
        let state = fields.object("systemPayload").text("state");
        let is_more = head
            .id
            .as_ref()
            .is_some_and(|id| !self.seen.insert(id.clone()));
        let record = read(fields).unwrap_or_else(|reason| {
            self.transcript.skip(line, reason);
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
            QwenRecord::Prompt(message) => {
                let is_begun = self.branch(&head, true)? || is_more;
                match is_begun {
                    true => self.transcript.input(message, raw, true)?,
                    false => self.transcript.prompt(head.name(), message, raw)?,
                }
                self.transcript.last_turn()
            }
            QwenRecord::Added(message) => {
                self.branch(&head, false)?;
                self.transcript.input(message, raw, true)?;
                self.transcript.last_turn()
            }
            QwenRecord::Answer(mut message) if is_more => {
                // Each fragment tells the tokens of the whole.
                if let Some(Message::Assistant(more)) = message.message_mut() {
                    more.usage = None;
                }
                self.transcript.more_of_answer(message, raw)?;
                self.transcript.last_turn()
            }
            QwenRecord::Answer(message) => {
                self.branch(&head, false)?;
                self.transcript.answer(|| head.name(), message, raw)?;
                self.transcript.last_turn()
            }
            QwenRecord::Results(messages) => {
                self.branch(&head, false)?;
                for message in messages {
                    self.transcript.result(|| head.name(), message, raw)?;
                }
                self.transcript.last_turn()
            }
        };
        if !is_more {
            self.tree.add(head.id.clone(), head.parent(), at);
        }
        Ok(())
    }

    /// Begins a loop if the next message does not hang where the transcript stands. Returns whether it did.
    fn branch(&mut self, head: &RecordHead, is_prompt: bool) -> Result<bool, ImportError> {
        let begun = self
            .transcript
            .branch(&self.tree, head.parent(), head.name(), is_prompt)?;
        // What stood in the middle of the turn that was left belongs to the other path.
        Ok(begun.is_some())
    }

    /// Notes how a prompt's work ended.
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
            // Nothing is known of what it stands for.
            for message in messages {
                self.transcript.input(message, json.as_bytes(), false)?;
            }
            return Ok(());
        };
        // In the middle of a turn its calls stay, for what they give back.
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
