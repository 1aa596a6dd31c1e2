//! Everything that a document may say, as it was read from messages or from the document before.

use super::lines::Heading;
use super::model_sections::ModelSection;
use super::text::{UnitText, units_of};
use super::values::{Ledger, flat};
use crate::activity::{Activity, SourceTurn};
use loopstore_model::Int;

/// Bytes of one text that are kept at most, half at each end.
const LONGEST_TEXT: usize = 65_536;

/// Who said something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SpeakerRole {
    /// A person.
    Human,
    /// A parent agent that gives its sub-agent a task.
    Parent,
    /// The agent.
    Agent,
    /// The program around it.
    Harness,
    /// A sub-agent that reports.
    SubAgent,
}

impl SpeakerRole {
    const NAMED: [(Self, &'static str); 5] = [
        (Self::Human, "user"),
        (Self::Parent, "parent agent"),
        (Self::Agent, "agent"),
        (Self::Harness, "harness"),
        (Self::SubAgent, "sub-agent"),
    ];

    /// Returns the name that stands in a document.
    pub(super) fn name(self) -> &'static str {
        Self::NAMED[self as usize].1
    }

    /// Whether it is one of the two that a conversation is of.
    pub(super) fn is_participant(self) -> bool {
        matches!(self, Self::Human | Self::Agent)
    }

    /// Returns the speaker with that name.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::NAMED
            .into_iter()
            .find(|known| known.1 == name)
            .map(|known| known.0)
    }
}

/// What somebody said in one message.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    pub(super) speaker: SpeakerRole,
    pub(super) place: SourceTurn,
    /// The day it was said, `2031-04-01`; empty if nobody knows.
    pub(super) day: String,
    /// All of it on one line.
    pub(super) text: String,
    pub(super) units: UnitText,
    /// Whether calls go with it: then it mostly says what comes next, and not what was found.
    pub(super) has_calls: bool,
    /// Whether a harness says what is to be done, as nobody else does.
    pub(super) is_task: bool,
}

impl Statement {
    /// Reads a text.
    pub(super) fn new(speaker: SpeakerRole, place: SourceTurn, day: String, text: &str) -> Self {
        let text = ends_of(text.trim(), LONGEST_TEXT);
        Self {
            speaker,
            place,
            day,
            units: units_of(&text),
            text: flat(&text).trim().to_owned(),
            has_calls: false,
            is_task: false,
        }
    }

    /// Takes words of a document, which stand on one line already.
    pub(super) fn kept(speaker: SpeakerRole, place: SourceTurn, day: String, text: &str) -> Self {
        Self::new(speaker, place, day, text)
    }

    /// Whether it is a prompt: what a person or a parent agent asks for.
    pub(super) fn is_prompt(&self) -> bool {
        matches!(self.speaker, SpeakerRole::Human | SpeakerRole::Parent)
    }
}

/// A sentence of a person that is to hold until it is taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Instruction {
    pub(super) place: SourceTurn,
    pub(super) text: String,
}

/// A summary that a model or another tool wrote, kept as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ForeignSummary {
    pub(super) place: SourceTurn,
    pub(super) text: String,
}

/// Everything that a document may say.
#[derive(Default)]
pub(super) struct DocumentRecord {
    /// Prompts and statements, in the order in which they were said.
    pub(super) statements: Vec<Statement>,
    /// Instructions of a document before, whose prompts it may have shortened.
    pub(super) instructions: Vec<Instruction>,
    pub(super) foreign_summaries: Vec<ForeignSummary>,
    /// What a model wrote.
    pub(super) model_sections: Vec<ModelSection>,
    pub(super) activity: Activity,
    pub(super) values: Ledger,
    /// The time of the newest message.
    pub(super) timestamp: Option<Int>,
}

impl DocumentRecord {
    /// Calls `each` with every place.
    pub(super) fn each_place(&mut self, each: &mut dyn FnMut(&mut SourceTurn)) {
        self.statements.iter_mut().for_each(|s| each(&mut s.place));
        self.instructions
            .iter_mut()
            .for_each(|i| each(&mut i.place));
        self.foreign_summaries
            .iter_mut()
            .for_each(|c| each(&mut c.place));
        self.activity.each_place(each);
        self.values.each_place(each);
        self.model_sections
            .iter_mut()
            .for_each(|g| each(&mut g.place));
    }

    /// Whether a model that wrote a section had read what happened there.
    pub(super) fn is_covered_by_model(&self, heading: Heading, place: &SourceTurn) -> bool {
        let has_read = |given: &ModelSection| {
            given.is_new
                || (given.place.loop_name == place.loop_name && place.turn <= given.place.turn)
        };
        let mut given = self
            .model_sections
            .iter()
            .filter(|given| given.heading == heading);
        given.any(has_read)
    }

    /// Returns who says everything that a person or the agent says, if it is only one of them.
    pub(super) fn only_speaker(&self) -> Option<SpeakerRole> {
        let voices = self.statements.iter().map(|statement| statement.speaker);
        let mut voices = voices.filter(|speaker| speaker.is_participant());
        let first = voices.next()?;
        voices.all(|speaker| speaker == first).then_some(first)
    }

    /// Whether nobody used a tool: two people, or a person and a model, who talk.
    pub(super) fn is_conversation(&self) -> bool {
        let work = self.activity.work();
        let nothing_done =
            work.files.is_empty() && work.calls.is_empty() && work.running.is_empty();
        nothing_done && !self.values.has_used()
    }
}

/// Returns both ends of a text, parted by a line if it is longer than they are.
fn ends_of(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let head = &text[..text.floor_char_boundary(most / 2)];
    let tail = &text[text.ceil_char_boundary(text.len() - most / 2)..];
    format!("{head}\n…\n{tail}")
}
