//! The second pass: reads the entries again and emits them.

use loopstore::model::{AgentMessage, Json, Message, Role, Time};

use super::TOOL;
use super::entries::{PiEntries, PiEntry};
use super::messages::{PiRecord, read, summary};
use crate::extension::{extension_of, unreadable};
use crate::fields::Fields;
use crate::records::RecordReader;
use crate::transcript::{Emitted, EntryTree, LoopTurn, Style, TranscriptBuilder};
use crate::values::text_of;
use crate::{FoundEffect, ImportError, SessionHead, Sink, Source};

/// Emits the whole session. Returns true if there was a conversation.
pub(super) fn emit(
    source: &mut Source<'_>,
    entries: &PiEntries,
    head: SessionHead,
    sink: &mut dyn Sink,
) -> Result<bool, ImportError> {
    let mut emitter = PiEmitter {
        records: RecordReader::new(source.path, &mut *source.reader)?,
        entries,
        transcript: TranscriptBuilder::new(sink, head, Style::Log),
        tree: EntryTree::default(),
        places: Vec::new(),
    };
    for (at, entry) in entries.all.iter().enumerate() {
        emitter.entry(at, entry)?;
    }
    emitter.transcript.finish()
}

struct PiEmitter<'a> {
    records: RecordReader<'a>,
    entries: &'a PiEntries,
    transcript: TranscriptBuilder<'a>,
    tree: EntryTree,
    /// The number of each readable entry among all entries.
    places: Vec<usize>,
}

/// The fields of an entry that place it in the tree.
struct EntryHead {
    id: Option<String>,
    /// The parent; `None` in version 1.
    parent: Option<Option<String>>,
    kind: Option<String>,
    line: u64,
}

impl EntryHead {
    fn parent(&self) -> Option<Option<&str>> {
        self.parent.as_ref().map(Option::as_deref)
    }

    /// Returns the name of the loop that the entry would begin.
    fn name(&self) -> String {
        let id = self.id.clone();
        id.unwrap_or_else(|| format!("line-{}", self.line))
    }
}

impl PiEmitter<'_> {
    fn entry(&mut self, at: usize, entry: &PiEntry) -> Result<(), ImportError> {
        let raw = self.records.bytes(entry.place)?;
        let json = String::from_utf8_lossy(&raw).into_owned();
        let (Some(_), Ok(fields)) = (entry.number, Fields::parse(&json)) else {
            return self.transcript.extension(unreadable(&raw), &raw);
        };
        self.places.push(at);
        self.transcript
            .at(fields.text("timestamp").map(Time::from_text));
        let parent = fields.get("parentId");
        let head = EntryHead {
            id: fields.text("id"),
            parent: parent.map(|parent| text_of(Some(parent))),
            kind: fields.text("type"),
            line: entry.place.line,
        };
        let record = read(&json).unwrap_or_else(|reason| {
            self.transcript.skip(entry.place.line, reason);
            PiRecord::Extension
        });
        let at = match record {
            PiRecord::Extension => {
                let message = extension_of(head.kind.as_deref(), &json);
                self.transcript.extension(message, &raw)?;
                None
            }
            PiRecord::Compaction => {
                self.compaction(&head, &fields, &json, &raw)?;
                None
            }
            record => {
                let is_begun = self.branch(&head, is_prompt(&record))?;
                Some(self.message(&head, record, is_begun, &raw)?)
            }
        };
        self.tree.add(head.id.clone(), head.parent(), at);
        Ok(())
    }

    /// Emits a message, and returns its position.
    fn message(
        &mut self,
        head: &EntryHead,
        record: PiRecord,
        is_begun: bool,
        raw: &[u8],
    ) -> Result<LoopTurn, ImportError> {
        let continues = is_begun && is_prompt(&record);
        match record {
            PiRecord::Message(message) if continues => self.transcript.input(message, raw, true)?,
            PiRecord::Message(message) => {
                let is_stopped = is_stopped(&message);
                self.transcript.message(|| head.name(), message, raw)?;
                if is_stopped {
                    self.transcript.interrupted();
                }
            }
            PiRecord::Added(message) => self.transcript.input(message, raw, false)?,
            PiRecord::Compaction | PiRecord::Extension => {}
        }
        // Entries before the first loop are emitted at its beginning.
        Ok(self.transcript.last_turn().unwrap_or((0, 0)))
    }

    /// Begins a loop if the next message does not continue the current position, and returns true if so.
    fn branch(&mut self, head: &EntryHead, is_prompt: bool) -> Result<bool, ImportError> {
        let begun = self
            .transcript
            .branch(&self.tree, head.parent(), head.name(), is_prompt)?;
        let is_begun = begun.is_some();
        for emitted in begun.unwrap_or_default() {
            self.repeat(emitted)?;
        }
        Ok(is_begun)
    }

    /// Emits a message again: a path left its turn in the middle, and a loop can continue only from a whole turn.
    fn repeat(&mut self, emitted: Emitted) -> Result<(), ImportError> {
        let place = self.entries.all[self.places[emitted.entry]].place;
        let raw = self.records.bytes(place)?;
        let json = String::from_utf8_lossy(&raw).into_owned();
        let Ok(record) = read(&json) else {
            return Ok(());
        };
        let head = EntryHead {
            id: None,
            parent: None,
            kind: None,
            line: place.line,
        };
        let at = self.message(&head, record, true, &raw)?;
        self.tree.emit(at, emitted.entry);
        Ok(())
    }

    fn compaction(
        &mut self,
        head: &EntryHead,
        entry: &Fields<'_>,
        json: &str,
        raw: &[u8],
    ) -> Result<(), ImportError> {
        if self.transcript.here().is_none() {
            // The range that the summary replaces is unknown.
            return self.transcript.input(summary(entry), raw, false);
        }
        let index = entry.get("firstKeptEntryIndex");
        let by_index = || serde_json::from_str::<usize>(index?.get()).ok();
        let by_id = entry.text("firstKeptEntryId");
        let first = by_id.and_then(|id| self.tree.entry(&id)).or_else(by_index);
        let kept = first.and_then(|first| self.tree.first_kept(first, head.parent()));
        let kept = kept.and_then(|kept| Some((kept, self.transcript.loop_at(kept.at.0)?)));
        let message = summary(entry);
        let effect = match kept {
            Some((kept, of)) if kept.nth > 0 || kept.at == (0, 0) => FoundEffect::SummaryWithin {
                message: Box::new(message),
                first_kept: (of.id.clone(), kept.at.1),
                dropped: kept.nth,
            },
            kept => FoundEffect::Summary {
                messages: vec![message],
                first_kept: kept.map(|(kept, of)| (of.id.clone(), kept.at.1)),
            },
        };
        let record = Json::parse(json).unwrap_or_default();
        self.transcript.compaction(TOOL, effect, record)
    }
}

fn is_prompt(record: &PiRecord) -> bool {
    matches!(record, PiRecord::Message(message) if message.role() == Role::User)
}

/// True if the agent was stopped in the middle of an answer.
fn is_stopped(message: &AgentMessage) -> bool {
    let Some(Message::Assistant(answer)) = message.message() else {
        return false;
    };
    answer.stop_reason.as_deref() == Some("aborted")
}
