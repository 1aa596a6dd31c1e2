//! The second pass: reads the records again, one message at a time, and emits them.

use std::collections::HashMap;

use loopstore::model::{
    AgentMessage, ChildLoopRef, Json, LoopId, LoopRecord, Session, SessionId, Time, TurnId,
};

use super::content::{ExtendedFields, read};
use super::index::ClaudeIndex;
use super::messages::{answer, user_record};
use super::track::{SummaryStep, Track, TrackStep};
use crate::extension::{extension, unreadable};
use crate::lines::SourceLocation;
use crate::records::RecordReader;
use crate::{FoundCompaction, FoundEffect, ImportError, Sink, Source};

/// The name of the tool, for compactions and agents.
pub(super) const TOOL: &str = "claude-code";

/// Emits one session of the file.
pub(super) struct ClaudeEmitter<'a> {
    records: RecordReader<'a>,
    index: &'a ClaudeIndex,
    track: &'a Track,
    /// References from loops to the sub-agents that they started.
    children: HashMap<usize, Vec<ChildLoopRef>>,
    session: Session,
}

impl<'a> ClaudeEmitter<'a> {
    pub(super) fn new(
        source: &'a mut Source<'_>,
        index: &'a ClaudeIndex,
        track: &'a Track,
        session: Session,
        children: HashMap<usize, Vec<ChildLoopRef>>,
    ) -> Result<Self, ImportError> {
        let records = RecordReader::new(source.path, &mut *source.reader)?;
        Ok(Self {
            records,
            index,
            track,
            children,
            session,
        })
    }

    pub(super) fn run(&mut self, sink: &mut dyn Sink) -> Result<(), ImportError> {
        let track = self.track;
        let mut begun = 0;
        for (at, step) in track.steps.iter().enumerate() {
            let loop_no = step.loop_no();
            while begun <= loop_no {
                sink.begin_loop(track.loops.record(begun, &self.session, None))?;
                begun += 1;
            }
            self.step(step, sink)?;
            if track.ends(loop_no, at + 1) {
                sink.begin_loop(self.ended_loop(loop_no))?;
            }
        }
        Ok(())
    }

    fn ended_loop(&self, loop_no: usize) -> LoopRecord {
        let is_last = self.track.current == Some(loop_no);
        let status = self.track.loops[loop_no].status(is_last);
        let mut record = self
            .track
            .loops
            .record(loop_no, &self.session, Some(status));
        record.child_loop_refs = self.children.get(&loop_no).cloned().unwrap_or_default();
        record
    }

    fn id(&self, loop_no: usize) -> &'a LoopId {
        &self.track.loops[loop_no].id
    }

    fn step(&mut self, step: &TrackStep, sink: &mut dyn Sink) -> Result<(), ImportError> {
        match step {
            TrackStep::User {
                loop_no,
                turn,
                text_turn,
                place,
            } => {
                let raw = self.records.bytes(*place)?;
                let index = self.index;
                let record = user_record(ExtendedFields::parse(text(&raw)), |call| {
                    index.tool_name(call)
                });
                let loop_id = self.id(*loop_no);
                for result in record.results {
                    let turn_id = TurnId::new(loop_id.as_str(), *turn);
                    sink.message(loop_id, result.in_turn(turn_id), &raw)?;
                }
                if let Some(text) = record.text {
                    let turn_id = TurnId::new(loop_id.as_str(), *text_turn);
                    sink.message(loop_id, text.in_turn(turn_id), &raw)?;
                }
                Ok(())
            }
            TrackStep::Answer {
                loop_no,
                turn,
                answer,
            } => self.answer(*loop_no, *turn, *answer, sink),
            TrackStep::Extension { loop_no, place } => {
                let raw = self.records.bytes(*place)?;
                sink.message(self.id(*loop_no), note(&raw), &raw)
            }
            TrackStep::Summary { loop_no, found } => self.summary(*loop_no, found, sink),
            TrackStep::Cleared { loop_no, place } => self.cleared(*loop_no, *place, sink),
        }
    }

    fn answer(
        &mut self,
        loop_no: usize,
        turn: u32,
        number: usize,
        sink: &mut dyn Sink,
    ) -> Result<(), ImportError> {
        let (mut raw, mut ends) = (Vec::new(), Vec::new());
        let index = self.index;
        for place in index.answers[number].places() {
            if !raw.is_empty() {
                raw.push(b'\n');
            }
            let from = raw.len();
            self.records.read(place, &mut raw)?;
            ends.push(from..raw.len());
        }
        let texts: Vec<_> = ends.into_iter().map(|part| text(&raw[part])).collect();
        let records = texts
            .iter()
            .map(|text| ExtendedFields::parse(text))
            .collect();
        let loop_id = self.id(loop_no);
        sink.message(
            loop_id,
            answer(records).in_turn(TurnId::new(loop_id.as_str(), turn)),
            &raw,
        )
    }

    fn summary(
        &mut self,
        loop_no: usize,
        found: &SummaryStep,
        sink: &mut dyn Sink,
    ) -> Result<(), ImportError> {
        let raw = self.records.bytes(found.summary)?;
        let record = match found.boundary {
            Some(boundary) => parse(&self.records.bytes(boundary)?),
            None => parse(&raw),
        };
        let summary = user_record(ExtendedFields::parse(text(&raw)), |_| None);
        let effect = FoundEffect::Summary {
            messages: summary.results.into_iter().chain(summary.text).collect(),
            first_kept: found
                .first_kept
                .map(|(kept, turn)| (self.id(kept).clone(), turn)),
        };
        sink.compaction(self.found(loop_no, effect, record, "compactMetadata"))
    }

    fn cleared(
        &mut self,
        loop_no: usize,
        place: SourceLocation,
        sink: &mut dyn Sink,
    ) -> Result<(), ImportError> {
        let record = parse(&self.records.bytes(place)?);
        let metadata = ExtendedFields::parse(record.as_str())
            .get("microcompactMetadata")
            .map(ExtendedFields::of);
        let ids = metadata.and_then(|metadata| read(metadata.get("compactedToolIds")?));
        let effect = FoundEffect::EditedResults {
            tool_call_ids: ids.unwrap_or_default(),
            replaced: Vec::new(),
        };
        sink.compaction(self.found(loop_no, effect, record, "microcompactMetadata"))
    }

    fn found(
        &self,
        loop_no: usize,
        effect: FoundEffect,
        record: Json,
        metadata: &str,
    ) -> FoundCompaction {
        let fields = ExtendedFields::parse(record.as_str());
        let metadata = fields.get(metadata).map(ExtendedFields::of);
        let trigger = metadata.and_then(|metadata| metadata.text("trigger"));
        let at = fields.text("timestamp").map(Time::from_text);
        FoundCompaction {
            loop_id: self.id(loop_no).clone(),
            strategy: TOOL.into(),
            trigger,
            effect,
            at,
            record,
        }
    }
}

/// Returns the reference from a loop to the sub-agent that it started with `call`.
pub(super) fn child_ref(
    call: &str,
    tool: &str,
    child: &Track,
    session: SessionId,
) -> Option<ChildLoopRef> {
    Some(ChildLoopRef {
        tool_call_id: Some(call.to_owned()),
        tool_name: Some(tool.to_owned()),
        child_loop_id: child.loops.get(0)?.id.clone(),
        child_session_id: Some(session),
        extra: Default::default(),
    })
}

fn parse(raw: &[u8]) -> Json {
    Json::parse(text(raw)).unwrap_or_default()
}

/// Returns the text of a record.
fn text(raw: &[u8]) -> &str {
    // The first pass accepted only valid UTF-8.
    std::str::from_utf8(raw).unwrap_or_default()
}

/// Keeps a whole record that no model sees; the kind is its type.
fn note(raw: &[u8]) -> AgentMessage {
    let record = parse(raw);
    if !record.as_str().starts_with('{') {
        return unreadable(raw);
    }
    let kind = ExtendedFields::parse(record.as_str()).text("type");
    extension(kind.as_deref(), record)
}
