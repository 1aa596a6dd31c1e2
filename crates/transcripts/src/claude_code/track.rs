//! The index of one session: its loops, and the steps of the second pass.

use std::collections::HashMap;

use loopstore::model::{ContinuationKind, Time};

use super::record::{ClaudeRecord, Speech, digest_text};
use super::words::SYNTHETIC;
use crate::MAX_RECORD_BYTES;
use crate::lines::SourceLocation;
use crate::transcript::{LoopBuilder, LoopTurn, NewLoop, TranscriptLoops};

/// A step of the second pass, in the order of the file.
#[derive(Clone, Debug)]
pub(super) enum TrackStep {
    /// A record of the user; its results belong to `turn`, its texts to `text_turn`.
    User {
        loop_no: usize,
        turn: u32,
        text_turn: u32,
        place: SourceLocation,
    },
    /// An answer of the model, at the position of its first record.
    Answer {
        loop_no: usize,
        turn: u32,
        answer: usize,
    },
    /// A record that no model sees.
    Extension {
        loop_no: usize,
        place: SourceLocation,
    },
    /// A compaction that left a summary.
    Summary {
        loop_no: usize,
        found: Box<SummaryStep>,
    },
    /// A compaction that cleared tool results.
    Cleared {
        loop_no: usize,
        place: SourceLocation,
    },
}

impl TrackStep {
    /// The loop that the step belongs to.
    pub(super) fn loop_no(&self) -> usize {
        match self {
            Self::User { loop_no, .. }
            | Self::Answer { loop_no, .. }
            | Self::Extension { loop_no, .. }
            | Self::Summary { loop_no, .. }
            | Self::Cleared { loop_no, .. } => *loop_no,
        }
    }

    /// Returns the line of the record.
    pub(super) fn line(&self) -> u64 {
        match self {
            Self::User { place, .. }
            | Self::Extension { place, .. }
            | Self::Cleared { place, .. } => place.line,
            Self::Summary { found, .. } => found.summary.line,
            Self::Answer { .. } => 0,
        }
    }
}

/// The locations of a compaction and its summary. They are rare, and boxed so that a step is small.
#[derive(Clone, Debug)]
pub(super) struct SummaryStep {
    pub(super) boundary: Option<SourceLocation>,
    pub(super) summary: SourceLocation,
    pub(super) first_kept: Option<LoopTurn>,
}

/// The records that are joined to one answer; mostly one.
#[derive(Debug)]
pub(super) struct AnswerRecords {
    pub(super) turn: u32,
    first: Option<(SourceLocation, AnswerPart)>,
    more: Option<Box<FurtherRecords>>,
}

/// The records of an answer after the first.
#[derive(Debug, Default)]
struct FurtherRecords {
    places: Vec<SourceLocation>,
    bytes: usize,
    /// The first record of each content that differs from the content of the first record.
    parts: HashMap<u64, AnswerPart>,
}

/// A record of an answer: its content and its parent.
#[derive(Clone, Copy, Debug)]
struct AnswerPart {
    content: u64,
    /// The digest of the parent's id.
    parent: Option<u64>,
    line: u64,
}

impl AnswerRecords {
    pub(super) fn new(turn: u32) -> Self {
        Self {
            turn,
            first: None,
            more: None,
        }
    }

    /// Returns the locations of the records, in order.
    pub(super) fn places(&self) -> impl Iterator<Item = SourceLocation> {
        let more = self.more.iter().flat_map(|more| more.places.iter());
        let first = self.first.iter().map(|(place, _)| place);
        first.chain(more).copied()
    }

    /// True if one more record can be joined within the limit, since an answer is read as a whole.
    pub(super) fn takes(&self, place: SourceLocation) -> bool {
        let first = self.first.map_or(0, |(first, _)| first.len);
        let more = self.more.as_ref().map_or(0, |more| more.bytes);
        first + more + place.len <= MAX_RECORD_BYTES
    }

    pub(super) fn add(&mut self, head: &ClaudeRecord, place: SourceLocation) {
        let part = AnswerPart {
            content: head.digest,
            parent: parent_of(head),
            line: place.line,
        };
        let Some((_, first)) = &self.first else {
            self.first = Some((place, part));
            return;
        };
        let more = self.more.get_or_insert_default();
        more.places.push(place);
        more.bytes += place.len;
        if first.content != part.content {
            more.parts.entry(part.content).or_insert(part);
        }
    }

    /// Returns the line of an earlier record with the same content in the same position. (Each block of an answer has
    /// the block before it as its parent; a block that was recorded twice has the same parent or none.)
    pub(super) fn repeats(&self, head: &ClaudeRecord) -> Option<u64> {
        let first = self.first.as_ref().map(|(_, part)| part);
        let first = first.filter(|part| part.content == head.digest);
        let more = || self.more.as_ref()?.parts.get(&head.digest);
        let part = first.or_else(more)?;
        (head.parent.is_none() || part.parent == parent_of(head)).then_some(part.line)
    }
}

fn parent_of(head: &ClaudeRecord) -> Option<u64> {
    head.parent.as_deref().map(digest_text)
}

/// A compaction that waits for its summary.
#[derive(Debug)]
pub(super) struct Boundary {
    pub(super) place: SourceLocation,
    pub(super) loop_no: usize,
    pub(super) first_kept: Option<LoopTurn>,
}

/// Returns the name of a loop, after the record that begins it.
pub(super) fn loop_name(head: &ClaudeRecord, place: SourceLocation) -> String {
    match &head.uuid {
        Some(uuid) if uuid.len() <= 256 => uuid.clone(),
        _ => format!("line-{}", place.line),
    }
}

/// Adds a text of the user, and returns its turn.
pub(super) fn add_speech(of: &mut LoopBuilder, speech: Speech) -> u32 {
    let last_turn = of.last_turn;
    let wants_answer = matches!(speech, Speech::Prompt | Speech::Added);
    let turn = of.input(wants_answer);
    if !wants_answer {
        // A prompt after a command continues from the messages before the command.
        of.last_turn = last_turn;
    }
    if speech == Speech::Interrupt {
        of.waiting = false;
        of.interrupted = true;
    }
    turn
}

/// Begins an answer, and returns its turn.
pub(super) fn begin_answer(of: &mut LoopBuilder, model: Option<&str>) -> u32 {
    let turn = of.answer();
    if model != Some(SYNTHETIC) {
        of.answered_by(model, Some("anthropic"));
    }
    turn
}

/// Adds a record to the answer of `turn`.
pub(super) fn add_part(of: &mut LoopBuilder, head: &ClaudeRecord, turn: u32) {
    if turn == of.turn {
        of.waiting = false;
        for call in &head.calls {
            of.called(&call.id, &call.name);
        }
    }
    end_at(of, head.time.as_deref());
}

/// Adds the result of a call.
pub(super) fn add_result(of: &mut LoopBuilder, call: &str) {
    of.result(call);
    of.waiting = true;
}

fn end_at(of: &mut LoopBuilder, time: Option<&str>) {
    if let Some(time) = time {
        of.ended = Some(Time::from_text(time));
    }
}

/// One session within the file.
#[derive(Debug, Default)]
pub(super) struct Track {
    /// The id of the sub-agent, if records contain one.
    pub(super) agent: Option<String>,
    /// The first record of a sub-agent's track.
    pub(super) root: Option<String>,
    pub(super) first_prompt: Option<u64>,
    pub(super) first_parent: Option<String>,
    /// The call that started the sub-agent, found by its prompt.
    pub(super) spawned_by: Option<String>,
    pub(super) loops: TranscriptLoops,
    /// The number of steps after the last step of each loop.
    ends: Vec<usize>,
    pub(super) steps: Vec<TrackStep>,
    /// The steps before the first loop.
    pub(super) preamble: Vec<TrackStep>,
    preamble_loop: Option<String>,
    /// The loop of the current position.
    pub(super) current: Option<usize>,
    /// True if any record so far was linked to its parent.
    pub(super) linked: bool,
    pub(super) boundary: Option<Boundary>,
    pub(super) started: Option<String>,
    pub(super) ended: Option<String>,
}

impl Track {
    /// Returns the track of a sub-agent that begins with this record.
    pub(super) fn of_agent(
        head: &ClaudeRecord,
        place: SourceLocation,
        spawned_by: Option<String>,
    ) -> Self {
        Self {
            agent: head.agent.clone(),
            root: Some(loop_name(head, place)),
            first_prompt: head.text,
            first_parent: head.parent.clone(),
            spawned_by,
            ..Self::default()
        }
    }

    /// Begins a loop with a record, and makes it the current one.
    pub(super) fn begin(
        &mut self,
        record: &ClaudeRecord,
        location: SourceLocation,
        parent: Option<LoopTurn>,
        kind: ContinuationKind,
    ) -> usize {
        let is_prompt = record.speech == Some(Speech::Prompt);
        let preamble = self.preamble_loop.clone();
        let preamble = preamble.filter(|_| self.loops.is_empty() && !is_prompt);
        let loop_no = self.loops.begin(NewLoop {
            name: preamble.unwrap_or_else(|| loop_name(record, location)),
            parent,
            kind,
            started: record.time.as_deref().map(Time::from_text),
            ..NewLoop::default()
        });
        self.loops[loop_no].is_empty = false;
        self.ends.push(0);
        self.current = Some(loop_no);
        if loop_no == 0 {
            for step in std::mem::take(&mut self.preamble) {
                self.push(0, step);
            }
        }
        loop_no
    }

    /// True if the step before `taken` is the last of its loop.
    pub(super) fn ends(&self, loop_no: usize, taken: usize) -> bool {
        self.ends[loop_no] == taken
    }

    /// Updates the time of the last record.
    pub(super) fn update_time(&mut self, time: Option<&str>) {
        if let Some(time) = time {
            self.started.get_or_insert_with(|| time.to_owned());
            self.ended = Some(time.to_owned());
        }
    }

    /// Adds a step to a loop.
    pub(super) fn push(&mut self, loop_no: usize, step: TrackStep) {
        self.steps.push(step);
        self.ends[loop_no] = self.steps.len();
        end_at(&mut self.loops[loop_no], self.ended.as_deref());
    }

    /// Returns the current position: the loop and its last real turn.
    pub(super) fn end(&self) -> Option<LoopTurn> {
        let loop_no = self.current?;
        Some((loop_no, self.loops[loop_no].turn))
    }

    /// Adds a record that no model sees.
    pub(super) fn note(&mut self, place: SourceLocation, cleared: bool) {
        let Some(loop_no) = self.current else {
            return self
                .preamble
                .push(TrackStep::Extension { loop_no: 0, place });
        };
        let step = if cleared {
            TrackStep::Cleared { loop_no, place }
        } else {
            TrackStep::Extension { loop_no, place }
        };
        self.push(loop_no, step);
    }

    /// Holds a text of the user for the first loop.
    pub(super) fn add_to_preamble(&mut self, head: &ClaudeRecord, place: SourceLocation) {
        self.preamble_loop
            .get_or_insert_with(|| loop_name(head, place));
        self.preamble.push(TrackStep::User {
            loop_no: 0,
            turn: 0,
            text_turn: 0,
            place,
        });
    }

    /// Keeps a compaction record without a summary as an extension.
    pub(super) fn drop_boundary(&mut self) {
        if let Some(boundary) = self.boundary.take() {
            self.push(
                boundary.loop_no,
                TrackStep::Extension {
                    loop_no: boundary.loop_no,
                    place: boundary.place,
                },
            );
        }
    }
}
