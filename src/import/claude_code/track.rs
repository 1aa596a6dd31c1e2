//! What the first pass notes of one session: its loops and the steps that the second pass takes.

use std::collections::{HashMap, HashSet};

use super::record::{Glance, Speech, digest_text};
use crate::import::MAX_RECORD_BYTES;
use crate::import::lines::Place;
use crate::model::{ContinuationKind, LoopStatus};

/// The model of answers that Claude Code made up itself.
const SYNTHETIC: &str = "<synthetic>";

/// One thing to tell the sink, in the order of the file.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// A record in the user's name; its results belong to `turn`, its texts to `text_turn`.
    User {
        loop_no: usize,
        turn: u32,
        text_turn: u32,
        place: Place,
    },
    /// An answer of the model, at the place of its first record.
    Answer {
        loop_no: usize,
        turn: u32,
        answer: usize,
    },
    /// A record that no model sees.
    Note { loop_no: usize, place: Place },
    /// A compaction that left a summary.
    Summary { loop_no: usize, found: Box<Summary> },
    /// A compaction that emptied tool results.
    Cleared { loop_no: usize, place: Place },
}

impl Step {
    /// The loop that the step belongs to.
    pub(super) fn loop_no(&self) -> usize {
        match self {
            Self::User { loop_no, .. }
            | Self::Answer { loop_no, .. }
            | Self::Note { loop_no, .. }
            | Self::Summary { loop_no, .. }
            | Self::Cleared { loop_no, .. } => *loop_no,
        }
    }

    /// The line of its record.
    pub(super) fn line(&self) -> u64 {
        match self {
            Self::User { place, .. } | Self::Note { place, .. } | Self::Cleared { place, .. } => {
                place.line
            }
            Self::Summary { found, .. } => found.summary.line,
            Self::Answer { .. } => 0,
        }
    }
}

/// Where a compaction and its summary stand. Rare, and kept apart so that a step is small.
#[derive(Clone, Debug)]
pub(super) struct Summary {
    pub(super) boundary: Option<Place>,
    pub(super) summary: Place,
    pub(super) first_kept: Option<(usize, u32)>,
}

/// The records that one answer is joined from. Most have one.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) turn: u32,
    first: Option<(Place, Part)>,
    more: Option<Box<More>>,
}

/// The records of an answer after the first.
#[derive(Debug, Default)]
struct More {
    places: Vec<Place>,
    bytes: usize,
    /// The first record of each content that differs from that of the very first.
    parts: HashMap<u64, Part>,
}

/// What a record of an answer says and where it hangs.
#[derive(Clone, Copy, Debug)]
struct Part {
    content: u64,
    /// The digest of its parent's id.
    parent: Option<u64>,
    line: u64,
}

impl Answer {
    pub(super) fn new(turn: u32) -> Self {
        Self {
            turn,
            first: None,
            more: None,
        }
    }

    /// Returns where the records stand, in order.
    pub(super) fn places(&self) -> impl Iterator<Item = Place> {
        let more = self.more.iter().flat_map(|more| more.places.iter());
        let first = self.first.iter().map(|(place, _)| place);
        first.chain(more).copied()
    }

    /// Whether one more record can be joined: the answer is read as one.
    pub(super) fn takes(&self, place: Place) -> bool {
        let first = self.first.map_or(0, |(first, _)| first.len);
        let more = self.more.as_ref().map_or(0, |more| more.bytes);
        first + more + place.len <= MAX_RECORD_BYTES
    }

    pub(super) fn add(&mut self, glance: &Glance, place: Place) {
        let part = Part {
            content: glance.digest,
            parent: parent_of(glance),
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

    /// Returns the line of the record that says the same in the same place. (Blocks of one answer
    /// hang one on the other; one that was recorded twice hangs where it did, or nowhere.)
    pub(super) fn repeats(&self, glance: &Glance) -> Option<u64> {
        let first = self.first.as_ref().map(|(_, part)| part);
        let first = first.filter(|part| part.content == glance.digest);
        let more = || self.more.as_ref()?.parts.get(&glance.digest);
        let part = first.or_else(more)?;
        (glance.parent.is_none() || part.parent == parent_of(glance)).then_some(part.line)
    }
}

fn parent_of(glance: &Glance) -> Option<u64> {
    glance.parent.as_deref().map(digest_text)
}

/// A compaction that waits for its summary.
#[derive(Debug)]
pub(super) struct Boundary {
    pub(super) place: Place,
    pub(super) loop_no: usize,
    pub(super) first_kept: Option<(usize, u32)>,
}

/// One loop.
#[derive(Debug)]
pub(super) struct LoopInfo {
    pub(super) id: String,
    pub(super) parent: Option<(usize, u32)>,
    pub(super) kind: ContinuationKind,
    pub(super) started: Option<String>,
    pub(super) ended: Option<String>,
    /// The model of its first real answer.
    pub(super) model: Option<String>,
    /// The turn that is being written.
    pub(super) turn: u32,
    /// The last turn that holds more than commands and other markers.
    real_turn: u32,
    /// The largest turn that another loop goes on from.
    pub(super) last_child: Option<u32>,
    /// How many of the track's steps are told when the loop's last is.
    pub(super) end: usize,
    answered: bool,
    open_calls: HashSet<String>,
    waiting: bool,
    interrupted: bool,
}

/// What begins a loop.
pub(super) struct NewLoop {
    pub(super) id: String,
    pub(super) parent: Option<(usize, u32)>,
    pub(super) kind: ContinuationKind,
    pub(super) time: Option<String>,
    pub(super) is_prompt: bool,
}

impl NewLoop {
    pub(super) fn new(
        glance: &Glance,
        place: Place,
        parent: Option<(usize, u32)>,
        kind: ContinuationKind,
    ) -> Self {
        Self {
            id: loop_id(glance, place),
            parent,
            kind,
            time: glance.time.clone(),
            is_prompt: glance.speech == Some(Speech::Prompt),
        }
    }
}

/// Names a loop after the record that begins it.
pub(super) fn loop_id(glance: &Glance, place: Place) -> String {
    match &glance.uuid {
        Some(uuid) if uuid.len() <= 256 => uuid.clone(),
        _ => format!("line-{}", place.line),
    }
}

impl LoopInfo {
    pub(super) fn new(
        id: String,
        parent: Option<(usize, u32)>,
        kind: ContinuationKind,
        started: Option<String>,
    ) -> Self {
        Self {
            id,
            parent,
            kind,
            ended: started.clone(),
            started,
            model: None,
            turn: 0,
            real_turn: 0,
            last_child: None,
            end: 0,
            answered: false,
            open_calls: HashSet::new(),
            waiting: false,
            interrupted: false,
        }
    }

    /// Takes a text in the user's name and returns its turn.
    pub(super) fn speech(&mut self, speech: Speech) -> u32 {
        if self.answered {
            self.turn += 1;
            self.answered = false;
        }
        match speech {
            Speech::Prompt | Speech::Added => {
                self.waiting = true;
                self.real_turn = self.turn;
            }
            Speech::Interrupt => {
                self.waiting = false;
                self.interrupted = true;
            }
            Speech::Marker => {}
        }
        self.turn
    }

    /// Takes an answer that begins, and returns its turn.
    pub(super) fn answer(&mut self, model: Option<&str>) -> u32 {
        if self.answered {
            self.turn += 1;
        }
        self.answered = true;
        self.waiting = false;
        self.real_turn = self.turn;
        self.open_calls.clear();
        if model != Some(SYNTHETIC) {
            self.interrupted = false;
            self.model = self.model.take().or_else(|| model.map(str::to_owned));
        }
        self.turn
    }

    /// Takes one more record of the answer of `turn`.
    pub(super) fn joined(&mut self, glance: &Glance, turn: u32) {
        if turn == self.turn {
            self.waiting = false;
            self.open_calls
                .extend(glance.calls.iter().map(|call| call.id.clone()));
        }
        self.end_at(glance.time.as_deref());
    }

    /// Takes the result of a call.
    pub(super) fn result(&mut self, id: &str) {
        self.open_calls.remove(id);
        self.waiting = true;
        self.real_turn = self.turn;
    }

    pub(super) fn end_at(&mut self, time: Option<&str>) {
        if let Some(time) = time {
            self.ended = Some(time.to_owned());
        }
    }

    /// Where the loop stands; `last` if the transcript ends in it.
    pub(super) fn status(&self, last: bool) -> LoopStatus {
        let open = !self.open_calls.is_empty();
        if self.interrupted {
            LoopStatus::Aborted
        } else if last && (open || self.waiting) {
            LoopStatus::Running
        } else if open || (self.waiting && !self.answered) {
            LoopStatus::Aborted
        } else {
            LoopStatus::Completed
        }
    }
}

/// One session within the file.
#[derive(Debug, Default)]
pub(super) struct Track {
    /// The sub-agent's id, if records give one.
    pub(super) agent: Option<String>,
    /// The first record of a sub-agent's track.
    pub(super) root: Option<String>,
    pub(super) first_prompt: Option<u64>,
    pub(super) first_parent: Option<String>,
    /// The call that started the sub-agent, found by its prompt.
    pub(super) spawned_by: Option<String>,
    pub(super) loops: Vec<LoopInfo>,
    pub(super) steps: Vec<Step>,
    /// What stands before the first loop.
    pub(super) lead: Vec<Step>,
    lead_loop: Option<String>,
    /// The loop in which the transcript stands.
    pub(super) current: Option<usize>,
    /// Whether any record so far was linked to its parent.
    pub(super) linked: bool,
    pub(super) boundary: Option<Boundary>,
    pub(super) started: Option<String>,
    pub(super) ended: Option<String>,
    /// The loops' ids, and the last number that was given to one of each.
    ids: HashMap<String, u32>,
}

impl Track {
    /// The track of a sub-agent that begins with this record.
    pub(super) fn of_agent(glance: &Glance, place: Place, spawned_by: Option<String>) -> Self {
        Self {
            agent: glance.agent.clone(),
            root: Some(loop_id(glance, place)),
            first_prompt: glance.text,
            first_parent: glance.parent.clone(),
            spawned_by,
            ..Self::default()
        }
    }

    /// Begins a loop and makes it the current one.
    pub(super) fn begin(&mut self, new: NewLoop) -> usize {
        let loop_no = self.loops.len();
        let id = self
            .lead_id()
            .filter(|_| loop_no == 0 && !new.is_prompt)
            .unwrap_or(new.id);
        let id = self.unused(id);
        if let Some((parent, turn)) = new.parent {
            let last = &mut self.loops[parent].last_child;
            *last = Some(last.map_or(turn, |last| last.max(turn)));
        }
        self.loops
            .push(LoopInfo::new(id, new.parent, new.kind, new.time));
        self.current = Some(loop_no);
        if loop_no == 0 {
            self.flush_lead();
        }
        loop_no
    }

    /// Takes the time of a record.
    pub(super) fn saw(&mut self, time: Option<&str>) {
        if let Some(time) = time {
            self.started.get_or_insert_with(|| time.to_owned());
            self.ended = Some(time.to_owned());
        }
    }

    /// Adds a step to a loop.
    pub(super) fn push(&mut self, loop_no: usize, step: Step) {
        self.steps.push(step);
        let (end, time) = (self.steps.len(), self.ended.clone());
        let info = &mut self.loops[loop_no];
        info.end = end;
        info.end_at(time.as_deref());
    }

    /// Where the transcript stands: its loop and the last real turn of that.
    pub(super) fn end(&self) -> Option<(usize, u32)> {
        let loop_no = self.current?;
        Some((loop_no, self.loops[loop_no].turn))
    }

    /// Whether a prompt after this turn goes on from the loop's end, where none went on before.
    pub(super) fn is_tail(&self, loop_no: usize, turn: u32) -> bool {
        let info = &self.loops[loop_no];
        turn >= info.real_turn && info.last_child.is_none_or(|child| child < turn)
    }

    /// Adds a record that no model sees.
    pub(super) fn note(&mut self, place: Place, cleared: bool) {
        let Some(loop_no) = self.current else {
            return self.lead.push(Step::Note { loop_no: 0, place });
        };
        let step = if cleared {
            Step::Cleared { loop_no, place }
        } else {
            Step::Note { loop_no, place }
        };
        self.push(loop_no, step);
    }

    /// Keeps a text in the user's name for the first loop.
    pub(super) fn lead_with(&mut self, glance: &Glance, place: Place) {
        self.lead_loop.get_or_insert_with(|| loop_id(glance, place));
        self.lead.push(Step::User {
            loop_no: 0,
            turn: 0,
            text_turn: 0,
            place,
        });
    }

    /// The id of a first loop that no prompt begins, if a text stands before it.
    pub(super) fn lead_id(&self) -> Option<String> {
        self.lead_loop.clone()
    }

    pub(super) fn flush_lead(&mut self) {
        for step in std::mem::take(&mut self.lead) {
            self.push(0, step);
        }
    }

    /// Returns `id`, or `id` with a number if a loop has it.
    pub(super) fn unused(&mut self, id: String) -> String {
        let mut name = id.clone();
        while self.ids.contains_key(&name) {
            let number = self.ids.entry(id.clone()).or_insert(1);
            *number += 1;
            name = format!("{id}~{number}");
        }
        self.ids.insert(name.clone(), 1);
        name
    }

    /// Keeps a compaction's record that no summary followed as a note.
    pub(super) fn give_up_boundary(&mut self) {
        if let Some(boundary) = self.boundary.take() {
            self.push(
                boundary.loop_no,
                Step::Note {
                    loop_no: boundary.loop_no,
                    place: boundary.place,
                },
            );
        }
    }
}
