//! The second pass: reads the records again, one message at a time, and tells the sink.

use std::borrow::Cow;
use std::collections::HashMap;

use super::content::{Fields, read};
use super::index::Index;
use super::messages::{answer, user_record};
use super::track::{Step, Summary, Track};
use crate::import::lines::Place;
use crate::import::records::Records;
use crate::import::surrogates::replace_lone;
use crate::import::{FoundCompaction, FoundEffect, ImportError, SessionHead, Sink, Source};
use crate::model::{
    AgentMessage, ChildLoopRef, Json, LoopId, LoopRecord, LoopStatus, SessionId, Time, TurnId,
};

/// The name of the tool, for compactions and agents.
pub(super) const TOOL: &str = "claude-code";
/// What Claude Code shows in place of a result that a microcompaction emptied.
const CLEARED: &str = "[Old tool result content cleared]";

/// Tells the sink about one session of the file.
pub(super) struct Emitter<'a> {
    records: Records<'a>,
    index: &'a Index,
    track: &'a Track,
    ids: Vec<LoopId>,
    /// References from loops to the sub-agents that they started.
    children: HashMap<usize, Vec<ChildLoopRef>>,
    session: SessionId,
}

impl<'a> Emitter<'a> {
    pub(super) fn new(
        source: &'a mut Source<'_>,
        index: &'a Index,
        track: &'a Track,
        session: SessionId,
        children: HashMap<usize, Vec<ChildLoopRef>>,
    ) -> Result<Self, ImportError> {
        let ids = track.loops.iter().map(|info| loop_id(&info.id)).collect();
        let records = Records::new(source.path, &mut *source.reader)?;
        Ok(Self {
            records,
            index,
            track,
            ids,
            children,
            session,
        })
    }

    pub(super) fn run(
        &mut self,
        head: SessionHead,
        sink: &mut dyn Sink,
    ) -> Result<(), ImportError> {
        sink.session(head)?;
        let track = self.track;
        let mut begun = 0;
        for (at, step) in track.steps.iter().enumerate() {
            let loop_no = step.loop_no();
            while begun <= loop_no {
                sink.begin_loop(self.loop_record(begun, false))?;
                begun += 1;
            }
            self.step(step, sink)?;
            if track.loops[loop_no].end == at + 1 {
                sink.begin_loop(self.loop_record(loop_no, true))?;
            }
        }
        Ok(())
    }

    fn loop_record(&self, loop_no: usize, done: bool) -> LoopRecord {
        let info = &self.track.loops[loop_no];
        let parent = info.parent.map(|(parent, _)| self.ids[parent].clone());
        let mut record = LoopRecord::new(self.ids[loop_no].clone(), parent);
        record.session_id = Some(self.session.clone());
        record.agent_id = Some(self.track.agent.clone().unwrap_or_else(|| TOOL.into()));
        record.parent_turn = info.parent.map(|(_, turn)| i64::from(turn).into());
        record.continuation_kind = Some(info.kind.clone());
        record.started_at = info.started.clone().map(Time::from_text);
        record.status = LoopStatus::Running;
        if let Some(model) = &info.model {
            let config = serde_json::json!({ "model": model, "provider": "anthropic" });
            record.config = Json::of(&config).ok();
        }
        if done {
            record.status = info.status(self.track.current == Some(loop_no));
            if record.status != LoopStatus::Running {
                record.ended_at = info.ended.clone().map(Time::from_text);
            }
            record.child_loop_refs = self.children.get(&loop_no).cloned().unwrap_or_default();
        }
        record
    }

    fn step(&mut self, step: &Step, sink: &mut dyn Sink) -> Result<(), ImportError> {
        match step {
            Step::User {
                loop_no,
                turn,
                text_turn,
                place,
            } => {
                let raw = self.records.bytes(*place)?;
                let index = self.index;
                let said = user_record(Fields::parse(&text(&raw)), |call| index.tool_name(call));
                let loop_id = &self.ids[*loop_no];
                for result in said.results {
                    let turn_id = TurnId::new(loop_id.as_str(), *turn);
                    sink.message(loop_id, result.in_turn(turn_id), &raw)?;
                }
                if let Some(text) = said.text {
                    let turn_id = TurnId::new(loop_id.as_str(), *text_turn);
                    sink.message(loop_id, text.in_turn(turn_id), &raw)?;
                }
                Ok(())
            }
            Step::Answer {
                loop_no,
                turn,
                answer,
            } => self.answer(*loop_no, *turn, *answer, sink),
            Step::Note { loop_no, place } => {
                let raw = self.records.bytes(*place)?;
                sink.message(&self.ids[*loop_no], note(&raw), &raw)
            }
            Step::Summary { loop_no, found } => self.summary(*loop_no, found, sink),
            Step::Cleared { loop_no, place } => self.cleared(*loop_no, *place, sink),
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
        let records = texts.iter().map(|text| Fields::parse(text)).collect();
        let loop_id = &self.ids[loop_no];
        sink.message(
            loop_id,
            answer(records).in_turn(TurnId::new(loop_id.as_str(), turn)),
            &raw,
        )
    }

    fn summary(
        &mut self,
        loop_no: usize,
        found: &Summary,
        sink: &mut dyn Sink,
    ) -> Result<(), ImportError> {
        let raw = self.records.bytes(found.summary)?;
        let record = match found.boundary {
            Some(boundary) => parse(&self.records.bytes(boundary)?),
            None => parse(&raw),
        };
        let said = user_record(Fields::parse(&text(&raw)), |_| None);
        let effect = FoundEffect::Summary {
            messages: said.results.into_iter().chain(said.text).collect(),
            first_kept: found
                .first_kept
                .map(|(kept, turn)| (self.ids[kept].clone(), turn)),
        };
        sink.compaction(self.found(loop_no, effect, record, "compactMetadata"))
    }

    fn cleared(
        &mut self,
        loop_no: usize,
        place: Place,
        sink: &mut dyn Sink,
    ) -> Result<(), ImportError> {
        let record = parse(&self.records.bytes(place)?);
        let metadata = Fields::parse(record.as_str())
            .get("microcompactMetadata")
            .map(Fields::of);
        let ids = metadata.and_then(|metadata| read(metadata.get("compactedToolIds")?));
        let effect = FoundEffect::ClearedResults {
            tool_call_ids: ids.unwrap_or_default(),
            placeholder: CLEARED.into(),
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
        let fields = Fields::parse(record.as_str());
        let metadata = fields.get(metadata).map(Fields::of);
        let trigger = metadata.and_then(|metadata| metadata.text("trigger"));
        let at = fields.text("timestamp").map(Time::from_text);
        FoundCompaction {
            loop_id: self.ids[loop_no].clone(),
            strategy: TOOL.into(),
            trigger,
            effect,
            at,
            record,
        }
    }
}

/// The reference from a loop to the sub-agent that it started with `call`.
pub(super) fn child_ref(
    call: &str,
    tool: &str,
    child: &Track,
    session: SessionId,
) -> Option<ChildLoopRef> {
    Some(ChildLoopRef {
        tool_call_id: Some(call.to_owned()),
        tool_name: Some(tool.to_owned()),
        child_loop_id: loop_id(&child.loops.first()?.id),
        child_session_id: Some(session),
        extra: Default::default(),
    })
}

pub(super) fn loop_id(id: &str) -> LoopId {
    // The first pass gives no id that is empty or too long.
    LoopId::new(id).unwrap_or_else(|_| LoopId::generate())
}

fn parse(raw: &[u8]) -> Json {
    Json::parse(&text(raw)).unwrap_or_default()
}

/// Returns the text of a record.
fn text(raw: &[u8]) -> Cow<'_, str> {
    // The first pass took no other.
    replace_lone(std::str::from_utf8(raw).unwrap_or_default())
}

/// Keeps a record that no model sees: of the kind that its type says, whole.
fn note(raw: &[u8]) -> AgentMessage {
    let record = parse(raw);
    if !record.as_str().starts_with('{') {
        let lossy = Json::string(&String::from_utf8_lossy(raw));
        let data = if record.is_null() { lossy } else { record };
        return AgentMessage::extension("unreadable", data);
    }
    let kind = match Fields::parse(record.as_str())
        .text("type")
        .filter(|kind| !kind.is_empty())
    {
        // The kind `system` stands for system prompts.
        Some(kind) if kind == "system" => "system-record".into(),
        Some(kind) => kind,
        None => "unknown".into(),
    };
    AgentMessage::extension(kind, record)
}
